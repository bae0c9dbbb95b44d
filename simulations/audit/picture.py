"""A picture of claims and of what audits found: the gap is what they leave open."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simulations.audit.audit import AuditResult
from simulations.audit.options import differences

_CLAIM, _BOUND, _ABOVE = "#0072B2", "#E69F00", "#D55E00"
"""Blue, orange and vermilion of Okabe and Ito's palette; marks differ too."""
_DPI = 130


def draw(results: Sequence[AuditResult], above: Sequence[bool]) -> bytes:
    """Draw one line for each audit, from its lower bound to its claim.

    Parameters
    ----------
    results : sequence of AuditResult
    above : sequence of bool
        Whether each claim is refuted.

    Returns
    -------
    bytes
        A PNG file.
    """
    n = len(results)
    figure = Figure(figsize=(9.0, 1.9 + 0.27 * n), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = [n - 1 - position for position in range(n)]
    claims = [result.claimed for result in results]
    bounds = [result.bound.epsilon for result in results]
    for place, low, high in zip(places, bounds, claims, strict=True):
        axes.plot([low, high], [place, place], color="#B8BDC2", linewidth=1.2, zorder=1)
    axes.scatter(
        claims,
        places,
        marker="|",
        s=150,
        linewidths=2.4,
        color=_CLAIM,
        label="claimed by the report",
        zorder=3,
    )
    held = [position for position in range(n) if not above[position]]
    axes.scatter(
        [bounds[i] for i in held],
        [places[i] for i in held],
        marker="o",
        s=34,
        color=_BOUND,
        label="lower bound",
        zorder=4,
    )
    broken = [position for position in range(n) if above[position]]
    if broken:
        axes.scatter(
            [bounds[i] for i in broken],
            [places[i] for i in broken],
            marker="X",
            s=80,
            color=_ABOVE,
            label="lower bound above the claim",
            zorder=5,
        )
    axes.set_yticks(places, [_label(result) for result in results], fontsize=8)
    axes.set_ylim(-0.7, n - 0.3)
    axes.set_xlim(left=-0.02 * max(claims))
    confidence = results[0].bound.confidence
    axes.set_xlabel(
        f"epsilon at each run's delta (lower bounds hold with confidence {confidence:g}"
        " each)"
    )
    axes.grid(axis="x", color="#E3E6E8", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def _label(result: AuditResult) -> str:
    """One audit in a line."""
    options = result.options
    parts = [options.algorithm, options.unit, result.trust, f"({result.adversary})"]
    further = differences(options.values)
    if options.until is not None:
        further = f"first release, {further}" if further else "first release"
    if options.retries:
        further = f"a reply held back, {further}"
    further = further if len(further) <= 42 else further[:40] + "..."
    return " ".join(parts) + (f", {further}" if further else "")
