"""The figure of `simulations.papers.proxy.ablation`.

a bar for each variant, a mark for each data set.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

# Okabe and Ito's palette, which is distinguishable with any kind of colour vision; the
# markers differ as well.
_MARKS = (
    ("o", "#000000"),
    ("s", "#D55E00"),
    ("^", "#009E73"),
    ("D", "#CC79A7"),
    ("v", "#56B4E9"),
    ("X", "#E69F00"),
    ("P", "#0072B2"),
    ("*", "#8C6D00"),
)
_OWN, _CHANGED = "#0072B2", "#B8C4CC"
_DPI = 150


def draw_ratios(
    ratios: Mapping[str, Mapping[str, float]], epsilons: Sequence[float], seeds: str
) -> bytes:
    """Draw the geometric mean of every variant as a bar, from FastLloyd's 1, with all
    data sets' own ratios on it.

    Parameters
    ----------
    ratios : mapping of str to mapping of str to float
        By variant, then by data set; the first variant is the algorithm itself.
    epsilons : sequence of float
        For the title.
    seeds : str
        How many, for the title.

    Returns
    -------
    bytes
        A PNG image.
    """
    # The object-oriented interface needs no display and leaves matplotlib's global
    # state alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure: Any = Figure(
        figsize=(8.0, 1.6 + 0.36 * len(ratios)), dpi=_DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    means = {
        name: statistics.geometric_mean(by_set.values())
        for name, by_set in ratios.items()
    }
    first = next(iter(means.values()))
    listed = [value for by_set in ratios.values() for value in by_set.values()]
    low, high = min(0.8, *listed) / 1.25, max(1.0, *listed) * 1.25
    for place, (name, ratio_by_set) in enumerate(ratios.items()):
        colour = _CHANGED if place else _OWN
        axes.barh(
            place, means[name] - 1.0, left=1.0, height=0.66, color=colour, zorder=1
        )
        values = list(ratio_by_set.values())
        axes.plot(
            [min(values), max(values)],
            [place, place],
            color="#666666",
            linewidth=1.0,
            zorder=2,
        )
        for number, (data, value) in enumerate(ratio_by_set.items()):
            marker, colour = _MARKS[number % len(_MARKS)]
            axes.plot(
                value,
                place,
                marker,
                color=colour,
                markersize=5.5,
                markeredgecolor="white",
                markeredgewidth=0.6,
                label=data if place == 0 else None,
                zorder=3,
            )
        axes.annotate(
            f"{means[name]:.2f}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    axes.axvline(1.0, color="black", linewidth=1.2)
    axes.axvline(first, color=_OWN, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(
        "excess cost per point over FastLloyd's (log scale; 1: FastLloyd, dashed: all"
        " ingredients)"
    )
    axes.set_title(
        f"Bars: geometric mean over data sets and epsilons {min(epsilons):g} to"
        f" {max(epsilons):g} ({seeds});\nmarks: single data sets",
        fontsize=10,
    )
    figure.legend(
        loc="outside lower center",
        ncols=min(7, len(next(iter(ratios.values())))),
        frameon=False,
        fontsize=9,
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
