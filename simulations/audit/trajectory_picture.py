"""The rows that a trajectory gave away, and how many each method gives away with and
without its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulations.audit.attack_picture import encoded
from simulations.audit.trajectory import CLEAR, Line, View, finds
from simulations.figures.looks import METHODS

_ROW, _REBUILT, _KEPT = "#999999", "#D55E00", "#0072B2"


def draw(lines: Sequence[Line], shown: Sequence[View]) -> bytes:
    """Draw one run in the clear, in its last two columns, beside the shares of all
    methods.

    Parameters
    ----------
    lines : sequence of Line
    shown : sequence of View
        Of all clients of one run.

    Returns
    -------
    bytes
        PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    _scatter(left, shown)
    _bars(right, lines)
    return encoded(figure)


def _scatter(axes: Any, shown: Sequence[View]) -> None:
    """All rows, with rings around those that were found from the moves alone."""
    rows = np.concatenate([view.rows for view in shown])
    right = np.concatenate([finds(view).right for view in shown])
    axes.plot(
        *rows[:, -2:].T, "o", color=_ROW, markersize=3.0, label=f"rows ({len(rows)})"
    )
    ring = {"markerfacecolor": "none", "markeredgewidth": 1.4, "markersize": 8.0}
    axes.plot(
        *rows[right, -2:].T,
        "o",
        color=_REBUILT,
        label=f"rebuilt in all digits ({right.sum()})",
        **ring,
    )
    axes.set(xlabel="last column but one, scaled", ylabel="last column, scaled")
    axes.set_title(
        f"{len(shown)} clients send their centroids in the clear",
        fontsize=9.5,
        loc="left",
    )
    axes.set_ylim(top=rows[:, -1].max() + 0.3)
    axes.legend(fontsize=8, frameon=False, loc="upper left")


def _bars(axes: Any, lines: Sequence[Line]) -> None:
    """For each method the rows that are found, and those that are determined.

    Zeros are written out.
    """
    for place, line in enumerate(reversed(lines)):
        colour = _KEPT if line.noise else _REBUILT
        axes.barh(place, 100.0 * line.told, height=0.72, color=colour, alpha=0.3)
        axes.barh(place, 100.0 * line.finds, height=0.36, color=colour)
        axes.text(
            100.0 * max(line.told, line.finds) + 0.4,
            place,
            _said(line),
            va="center",
            fontsize=8,
        )
    axes.set_yticks(
        range(len(lines)), [_label(line) for line in reversed(lines)], fontsize=8
    )
    axes.set_xlabel(
        "rows rebuilt in all digits, %\ndark: from sums and counts alone; pale: if told"
        " who moved when"
    )
    axes.xaxis.label.set_size(8)
    axes.set_xlim(
        0.0, 118.0 * max(0.01, *(max(line.told, line.finds) for line in lines))
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _said(line: Line) -> str:
    return (
        "none"
        if not line.told and not line.finds
        else f"{100 * line.finds:.1f} ({100 * line.told:.1f})"
    )


def _label(line: Line) -> str:
    name = line.method if line.method == CLEAR else METHODS[line.method].label
    if line.method in (CLEAR, "lloyd"):
        return name
    return f"{name}, {'as released' if line.noise else 'its noise taken out'}"
