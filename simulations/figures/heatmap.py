"""Heat maps of areas under cost over epsilon.

And of the reduction of one series against another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from simulations.figures.frame import Frame, make_frame
from simulations.figures.kinds import HeatmapSpec
from simulations.figures.looks import Look, column_label, series_seen
from simulations.figures.numbers import Numbers, seeds_text
from simulations.figures.ratios import REDUCTION
from simulations.figures.table import plain


def draw_heatmap(
    spec: HeatmapSpec,
    shown: Numbers,
    looks: Mapping[str, Look],
    notes: Sequence[str],
) -> Any:
    """Draw one panel for each series, in one scale of colours.

    And one of the reduction in percent, if there is a baseline.

    Parameters
    ----------
    spec : HeatmapSpec
        What is shown.
    shown : Numbers
        Its numbers.
    looks : mapping of str to Look
        Of all series.
    notes : sequence of str
        Sentences for the caption.

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to any display.
    """
    from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm

    cells = shown.cells
    seen = series_seen(looks, cells["series"].to_list())
    grids = {name: _grid(cells, name) for name in seen}
    if spec.baseline:
        grids[REDUCTION] = _grid(cells, REDUCTION)
    of_series = cells[cells["series"] != REDUCTION]
    low = float(of_series["y"].min())
    high = float(of_series["y"].max())
    norm = LogNorm(low, high) if 0.0 < 3.0 * low < high else Normalize(low, high)
    explanation = (
        f"Cells: area under mean {column_label(spec.y)} over epsilon;"
        f" {seeds_text(of_series)}."
    )
    caption = " ".join([explanation, *notes, *shown.notes])
    frame = _frame_for(grids, spec.title, caption if spec.footer else "")
    for index, (name, grid) in enumerate(grids.items()):
        axes = frame.axes[index]
        if name == REDUCTION:
            largest = max(1.0, float(np.nanmax(np.abs(grid.to_numpy()))))
            around_zero = TwoSlopeNorm(0.0, -largest, largest)
            image = _draw(axes, grid, around_zero, "PuOr", _percent)
            better, worse = looks[spec.of], looks[spec.baseline]
            title = f"reduction, {better.label} against {worse.label}"
            unit = "reduction (%)"
        else:
            image = _draw(axes, grid, norm, "cividis_r", _area)
            title = seen[name].label
            unit = "area"
        axes.set_title(title, fontsize=9.0)
        _label(frame, index, spec)
        bar = axes.figure.colorbar(
            image,
            ax=axes,
            fraction=0.05,
            pad=0.02,
        )
        bar.set_label(unit, fontsize=8.0)
        bar.ax.tick_params(labelsize=7.0)
    return frame.figure


def _frame_for(
    grids: Mapping[str, pd.DataFrame],
    title: str,
    caption: str,
) -> Frame:
    """An empty figure with a panel for each grid."""
    n_rows, n_columns = next(iter(grids.values())).shape
    width = max(3.0, 0.52 * n_columns + 1.3)
    height = max(2.2, 0.34 * n_rows + 0.9)
    n_side_by_side = min(len(grids), max(1, int(12.5 / width)))
    if len(grids) <= 3 and n_columns > 6:
        # Wide grids stand below each other, so that their numbers are read without a
        # magnifier.
        n_side_by_side = 1
    return make_frame(
        len(grids),
        title=title,
        labels=(),
        caption=caption,
        panel=(width, height),
        n_columns=n_side_by_side,
    )


def _grid(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """One panel's values; all panels have the rows and columns of all."""
    of_series = cells[cells["series"] == name]
    grid = of_series.pivot(
        index="row",
        columns="column",
        values="y",
    )
    rows = sorted(cells["row"].unique())
    columns = sorted(cells["column"].unique())
    return grid.reindex(index=rows, columns=columns)


def _draw(
    axes: Any,
    grid: pd.DataFrame,
    norm: Any,
    colours: str,
    form: Callable[[float], str],
) -> Any:
    """Draw cells with their numbers, the smallest row at the bottom."""
    values = grid.to_numpy()
    image = axes.imshow(
        values,
        cmap=colours,
        norm=norm,
        aspect="auto",
        origin="lower",
    )
    axes.set_facecolor("#F0F0F0")
    style = {
        "ha": "center",
        "va": "center",
        "fontsize": 7.0,
    }
    for (row, column), value in np.ndenumerate(values):
        if math.isnan(value):
            axes.text(
                column,
                row,
                "–",
                color="#777777",
                **style,
            )
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        luminance = 0.299 * red + 0.587 * green + 0.114 * blue
        colour = "white" if luminance < 0.5 else "black"
        axes.text(
            column,
            row,
            form(value),
            color=colour,
            **style,
        )
    column_names = [plain(value) for value in grid.columns]
    row_names = [plain(value) for value in grid.index]
    axes.set_xticks(range(len(column_names)), column_names, fontsize=8.0)
    axes.set_yticks(range(len(row_names)), row_names, fontsize=8.0)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def _area(value: float) -> str:
    """Two digits, and no exponent where it can be read without."""
    if 10.0 <= abs(value) < 10_000.0:
        return f"{value:.0f}"
    if not value:
        return "0"
    return f"{value:#.2g}".replace("e+0", "e").replace("e-0", "e-")


def _percent(value: float) -> str:
    return f"{round(value)}"


def _label(
    frame: Frame,
    index: int,
    spec: HeatmapSpec,
) -> None:
    """Name the axes at the left and the bottom."""
    axes = frame.axes[index]
    if index + frame.n_columns >= len(frame.axes):
        axes.set_xlabel(column_label(spec.columns), fontsize=9.0)
    if index % frame.n_columns == 0:
        axes.set_ylabel(column_label(spec.rows), fontsize=9.0)
