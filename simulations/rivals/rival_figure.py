"""The figure of the comparison of rivals.

a line of marks for each set, areas over the optimum's.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from simulations.rivals.rival_runs import METHODS
from simulations.rivals.rival_table import OURS, Compared

_MARKS = ("o", "s", "^", "D", "v", "X", "P", "*", "<", ">", "h", "d", "p")
# Okabe and Ito's palette, then darker ones of it.
_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"),
    *("#7A3E9D", "#8C6D00", "#5A6570", "#A03050", "#2E6E5E", "#B0A000", "#444444"),
)
_DPI = 150


def draw(sets: Sequence[Compared], title: str) -> bytes:
    """A PNG image: each method's area over the optimum's on a log axis, sets where ours
    loses at the top.
    """
    # The object-oriented interface needs no display and leaves matplotlib's global
    # state alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(
        figsize=(9.5, 2.2 + 0.32 * len(sets)), dpi=_DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, method in enumerate(METHODS[:-1]):
        places = [
            place
            for place, compared_set in enumerate(sets)
            if method in compared_set.areas
        ]
        if not places:
            continue
        ratios = [
            sets[place].areas[method].mean / sets[place].optimum for place in places
        ]
        ours = method == OURS
        style: dict[str, Any] = {
            "marker": _MARKS[number],
            "color": _COLOURS[number],
            "linestyle": "none",
        }
        # A ring, so that what lies on it is seen.
        ring = {
            "markersize": 11,
            "markerfacecolor": "none",
            "markeredgewidth": 2.5,
            "zorder": 3,
        }
        axes.plot(
            ratios,
            places,
            label=method,
            **style,
            **(ring if ours else {"markersize": 5, "zorder": 2}),
        )
    axes.set_xscale("log")
    axes.axvline(1.0, color="#333333", linewidth=0.8)
    axes.set_yticks(
        range(len(sets)),
        [
            f"{compared_set.name}{' (lost)' if compared_set.lead < 1.0 else ''}"
            for compared_set in sets
        ],
    )
    axes.invert_yaxis()
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_xlabel("area under cost over epsilon, over that of the best clustering")
    axes.set_title(title, fontsize=10)
    figure.legend(loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
