"""ROC curves of all attacks beside what the guarantee allows."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.audit.attack_runs import Cell, Row, game_of
from simulations.audit.attack_scores import ATTACKS
from simulations.audit.attack_success import (
    epsilon_delta_bound,
    gdp_bound,
    roc_curve,
    true_positive_rate,
)
from simulations.figures.looks import DASH_DOT, DASHED, DOTTED, METHODS, SOLID, Dashes

Array = NDArray[np.float64]

# Colours of Okabe and Ito's palette, which is distinguishable with any kind of colour
# vision.
_LOOKS: Mapping[str, tuple[str, str, Dashes]] = MappingProxyType(
    {
        "nearest": ("nearest final centroid", "#E69F00", DOTTED),
        "average": ("nearest averaged centroid", "#56B4E9", DASHED),
        "movement": ("movements of centroids", "#CC79A7", DASH_DOT),
        "projection": ("released sums, projected", "#009E73", DASHED),
        "shadow": ("shadow runs, final centroids", "#D55E00", SOLID),
        "exact": (
            "exact likelihood ratio, all other\nrows known, and 95% interval",
            "#0072B2",
            SOLID,
        ),
    }
)
_BOUND, _FORBIDDEN = "#000000", "#E8E4E0"
_LEAST = 1e-3
_DPI = 130
_COLUMNS = 4
_FEWEST = 8
"""Runs without the target behind the first point of a curve that is drawn."""


def draw_curves(rows: Sequence[Row], target: str, cells: Sequence[Cell]) -> bytes:
    """Draw one panel for each cell.

    Parameters
    ----------
    rows : sequence of Row
        Of any cells and targets.
    target : str
        Whose curves are drawn.
    cells : sequence of Cell
        The panels, in order.

    Returns
    -------
    bytes
        PNG.
    """
    from matplotlib.figure import Figure

    # One more place, for the legend.
    n_columns = min(_COLUMNS, len(cells) + 1)
    n_lines = -(-(len(cells) + 1) // n_columns)
    width, height = 2.55 * n_columns + 0.55, 2.6 * n_lines + 0.5
    figure = Figure(figsize=(width, height))
    places = np.ravel(figure.subplots(n_lines, n_columns, squeeze=False))
    left, right, top, bottom = (
        0.58 / width,
        1.0 - 0.15 / width,
        1.0 - 0.3 / height,
        0.48 / height,
    )
    figure.subplots_adjust(
        left=left, right=right, top=top, bottom=bottom, wspace=0.15, hspace=0.32
    )
    for place, (axes, cell) in enumerate(zip(places, cells, strict=False)):
        _panel(
            axes,
            cell,
            [row for row in rows if row.cell == cell and row.target == target],
        )
        axes.tick_params(labelleft=place % n_columns == 0)
        if place % n_columns == 0:
            axes.set_ylabel("true positive rate", fontsize=9)
        if place + n_columns >= len(places):
            axes.set_xlabel("false positive rate", fontsize=9)
    for spare in places[len(cells) :]:
        spare.set_axis_off()
    places[len(cells)].legend(
        handles=_handles(),
        loc="center left",
        bbox_to_anchor=(-0.12, 0.5),
        frameon=False,
        fontsize=8.5,
        handlelength=2.4,
        labelspacing=0.65,
        title=f"target: {target}",
        title_fontsize=9,
        alignment="left",
    )
    return encoded(figure)


def _panel(axes: Any, cell: Cell, rows: Sequence[Row]) -> None:
    """One cell: the region that the guarantee excludes, and the curves."""
    game = game_of(cell)
    rates = np.logspace(np.log10(_LEAST), 0.0, 300)
    if np.isfinite(game.mu):
        bound = gdp_bound(rates, game.mu)
        axes.fill_between(rates, bound, 1.0, color=_FORBIDDEN, linewidth=0.0, zorder=0)
        axes.plot(rates, bound, color=_BOUND, linewidth=1.6, zorder=4)
        weaker = epsilon_delta_bound(rates, game.epsilon, game.delta)
        axes.plot(
            rates, weaker, color=_BOUND, linewidth=1.0, linestyle=(0, DOTTED), zorder=3
        )
    axes.plot(rates, rates, color="#999999", linewidth=0.8, zorder=1)
    for row in rows:
        _, colour, dashes = _LOOKS[row.attack]
        false, true = _shown(*roc_curve(row.scores), row.scores.absent.size)
        axes.plot(
            false,
            true,
            color=colour,
            linestyle=(0, dashes) if dashes else "-",
            linewidth=1.4,
            zorder=5,
        )
        if row.attack == ATTACKS[-1]:
            limits = [
                true_positive_rate(row.scores, float(rate), game.mu)
                for rate in false[:-1]
            ]
            low, high = (
                [getattr(measured, side) for measured in limits]
                for side in ("low", "high")
            )
            axes.fill_between(
                false[:-1], low, high, color=colour, alpha=0.25, linewidth=0.0, zorder=2
            )
    axes.set(xscale="log", yscale="log", xlim=(_LEAST, 1.0), ylim=(_LEAST, 1.06))
    axes.tick_params(labelsize=8)
    axes.grid(
        color="#FFFFFF" if np.isfinite(game.mu) else "#E2E2E2",
        linewidth=0.5,
        zorder=0.5,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    name = METHODS[cell.algorithm].label
    axes.set_title(
        f"{name}, epsilon {cell.epsilon:g}" if np.isfinite(game.mu) else name,
        fontsize=9.5,
        loc="left",
    )


def _shown(false: Array, true: Array, n_absent: int) -> tuple[Array, Array]:
    """A curve from where it rests on some runs, thinned evenly on the log axis."""
    least = max(_LEAST, _FEWEST / n_absent)
    grid = np.logspace(np.log10(least), 0.0, 80)
    places = np.searchsorted(false, grid, side="right") - 1
    return grid, np.maximum(true[places], 0.1 * _LEAST)


def _handles() -> list[Any]:
    """Entries of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines: list[Any] = [
        Line2D(
            [],
            [],
            color=colour,
            linestyle=(0, dashes) if dashes else "-",
            linewidth=1.6,
            label=label,
        )
        for label, colour, dashes in (_LOOKS[attack] for attack in ATTACKS)
    ]
    lines.append(
        Line2D(
            [], [], color=_BOUND, linewidth=1.6, label="bound of the guarantee (GDP)"
        )
    )
    lines.append(
        Line2D(
            [],
            [],
            color=_BOUND,
            linewidth=1.0,
            linestyle=(0, DOTTED),
            label="by epsilon and delta alone",
        )
    )
    lines.append(Patch(color=_FORBIDDEN, label="excluded by the guarantee"))
    return lines


def encoded(figure: Any) -> bytes:
    """PNG with few colours, which takes a third of the room."""
    from PIL import Image

    drawn, written = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    with Image.open(io.BytesIO(drawn.getvalue())) as image:
        reduced = image.convert("RGB").quantize(
            256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        )
    reduced.save(written, format="png", optimize=True)
    return written.getvalue()
