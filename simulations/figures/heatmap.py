"""Heat maps of areas under cost over epsilon, and of the reduction of one series
against another.
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
    spec: HeatmapSpec, found: Numbers, looks: Mapping[str, Look], notes: Sequence[str]
) -> Any:
    """Draw one panel for each series, in one scale of colours, and one of the reduction
    in percent.

    Parameters
    ----------
    spec : HeatmapSpec
        What is shown.
    found : Numbers
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

    cells = found.cells
    seen = series_seen(looks, cells["series"].to_list())
    grids = {
        name: _grid(cells, name)
        for name in (*seen, *([REDUCTION] if spec.baseline else []))
    }
    of_series = cells[cells["series"] != REDUCTION]
    low, high = float(of_series["y"].min()), float(of_series["y"].max())
    norm = LogNorm(low, high) if 0.0 < 3.0 * low < high else Normalize(low, high)
    sentences = (
        (
            f"Cells: area under mean {column_label(spec.y)} over epsilon;"
            f" {seeds_text(of_series)}."
        ),
        *notes,
        *found.notes,
    )
    rows, columns = next(iter(grids.values())).shape
    size = (max(3.0, 0.52 * columns + 1.3), max(2.2, 0.34 * rows + 0.9))
    # Wide grids stand below each other, so that their numbers are read without a
    # magnifier.
    n_columns = (
        1
        if len(grids) <= 3 and columns > 6
        else min(len(grids), max(1, int(12.5 / size[0])))
    )
    frame = make_frame(
        len(grids),
        title=spec.title,
        labels=(),
        caption=" ".join(sentences) if spec.footer else "",
        panel=size,
        n_columns=n_columns,
    )
    for place, (axes, (name, grid)) in enumerate(
        zip(frame.axes, grids.items(), strict=True)
    ):
        if name == REDUCTION:
            largest = max(1.0, float(np.nanmax(np.abs(grid.to_numpy()))))
            image = _draw(
                axes, grid, TwoSlopeNorm(0.0, -largest, largest), "PuOr", _percent
            )
            title, unit = (
                (
                    f"reduction, {looks[spec.of].label} against"
                    f" {looks[spec.baseline].label}"
                ),
                "reduction (%)",
            )
        else:
            image = _draw(axes, grid, norm, "cividis_r", _area)
            title, unit = seen[name].label, "area"
        axes.set_title(title, fontsize=9.0)
        _label(frame, place, spec)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
        bar.set_label(unit, fontsize=8.0)
        bar.ax.tick_params(labelsize=7.0)
    return frame.figure


def _grid(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """One panel's values; all panels have the rows and columns of all."""
    own = cells[cells["series"] == name].pivot(
        index="row", columns="column", values="y"
    )
    return own.reindex(
        index=sorted(cells["row"].unique()), columns=sorted(cells["column"].unique())
    )


def _draw(
    axes: Any, grid: pd.DataFrame, norm: Any, colours: str, form: Callable[[float], str]
) -> Any:
    """Draw cells with their numbers, the smallest row at the bottom."""
    values = grid.to_numpy()
    image = axes.imshow(values, cmap=colours, norm=norm, aspect="auto", origin="lower")
    axes.set_facecolor("#F0F0F0")
    for (row, column), value in np.ndenumerate(values):
        if math.isnan(value):
            axes.text(
                column,
                row,
                "–",
                ha="center",
                va="center",
                fontsize=7.0,
                color="#777777",
            )
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        colour = "white" if dark else "black"
        axes.text(
            column,
            row,
            form(value),
            ha="center",
            va="center",
            fontsize=7.0,
            color=colour,
        )
    axes.set_xticks(
        range(len(grid.columns)), [plain(value) for value in grid.columns], fontsize=8.0
    )
    axes.set_yticks(
        range(len(grid.index)), [plain(value) for value in grid.index], fontsize=8.0
    )
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def _area(value: float) -> str:
    """Two digits, and no exponent where it can be read without."""
    if 10.0 <= abs(value) < 10_000.0:
        return f"{value:.0f}"
    return f"{value:#.2g}".replace("e+0", "e").replace("e-0", "e-") if value else "0"


def _percent(value: float) -> str:
    return f"{round(value)}"


def _label(frame: Frame, place: int, spec: HeatmapSpec) -> None:
    """Name the axes at the left and the bottom."""
    if place + frame.n_columns >= len(frame.axes):
        frame.axes[place].set_xlabel(column_label(spec.columns), fontsize=9.0)
    if place % frame.n_columns == 0:
        frame.axes[place].set_ylabel(column_label(spec.rows), fontsize=9.0)
