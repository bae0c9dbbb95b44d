"""The rows that a trajectory gave away, and how many each method gives away.

Of private methods with their noise and without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulations.audit.attack_picture import encoded
from simulations.audit.trajectory import CLEAR, Line, View, uninformed
from simulations.figures.looks import METHODS

_ROW, _REBUILT, _PRIVATE = "#999999", "#D55E00", "#0072B2"


def draw(lines: Sequence[Line], shown: Sequence[View]) -> bytes:
    """Draw one run in the clear, in its last two columns, beside all methods' shares.

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
    right = np.concatenate([uninformed(view).right for view in shown])
    axes.plot(
        *rows[:, -2:].T,
        "o",
        color=_ROW,
        markersize=3.0,
        label=f"rows ({len(rows)})",
    )
    ring = {
        "markerfacecolor": "none",
        "markeredgewidth": 1.4,
        "markersize": 8.0,
    }
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
    axes.legend(
        fontsize=8,
        frameon=False,
        loc="upper left",
    )


def _bars(axes: Any, lines: Sequence[Line]) -> None:
    """For each method the rows that are found, and those that are determined.

    Zeros are written out.
    """
    upwards = lines[::-1]
    longest = 1.0
    for height, line in enumerate(upwards):
        colour = _PRIVATE if line.noise else _REBUILT
        pale = 100.0 * line.informed
        dark = 100.0 * line.uninformed
        end = max(pale, dark)
        longest = max(longest, end)
        axes.barh(
            height,
            pale,
            height=0.72,
            color=colour,
            alpha=0.3,
        )
        axes.barh(
            height,
            dark,
            height=0.36,
            color=colour,
        )
        axes.text(
            end + 0.4,
            height,
            _shares(line),
            va="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(lines)), [_label(line) for line in upwards], fontsize=8)
    axes.set_xlabel(
        "rows rebuilt in all digits, %\ndark: from sums and counts alone; pale: if told"
        " who moved when"
    )
    axes.xaxis.label.set_size(8)
    axes.set_xlim(0.0, 1.18 * longest)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _shares(line: Line) -> str:
    if line.informed == line.uninformed == 0.0:
        return "none"
    return f"{100 * line.uninformed:.1f} ({100 * line.informed:.1f})"


def _label(line: Line) -> str:
    name = line.method if line.method == CLEAR else METHODS[line.method].label
    if line.method in (CLEAR, "lloyd"):
        return name
    return f"{name}, {'as released' if line.noise else 'its noise taken out'}"
