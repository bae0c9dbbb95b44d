"""A picture of claims and of what audits found: the gap is what they leave open."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simulations.audit.audit import AuditResult
from simulations.audit.options import differences

_CLAIM = "#0072B2"
_BOUND = "#E69F00"
_ABOVE = "#D55E00"
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
    heights = np.arange(n)[::-1]
    claims = np.array([result.claimed for result in results])
    bounds = np.array([result.bound.epsilon for result in results])
    is_above = np.array(above, dtype=bool)
    axes.hlines(heights, bounds, claims, color="#B8BDC2", linewidth=1.2, zorder=1)
    axes.scatter(
        claims,
        heights,
        marker="|",
        s=150,
        linewidths=2.4,
        color=_CLAIM,
        label="claimed by the report",
        zorder=3,
    )
    axes.scatter(
        bounds[~is_above],
        heights[~is_above],
        marker="o",
        s=34,
        color=_BOUND,
        label="lower bound",
        zorder=4,
    )
    if is_above.any():
        axes.scatter(
            bounds[is_above],
            heights[is_above],
            marker="X",
            s=80,
            color=_ABOVE,
            label="lower bound above the claim",
            zorder=5,
        )
    axes.set_yticks(heights, [_label(result) for result in results], fontsize=8)
    axes.set_ylim(-0.7, n - 0.3)
    axes.set_xlim(left=-0.02 * claims.max())
    confidence = results[0].bound.confidence
    certainty = f"lower bounds hold with confidence {confidence:g} each"
    axes.set_xlabel(f"epsilon at each run's delta ({certainty})")
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
    label = " ".join(parts)
    further = differences(options.values)
    if options.until is not None:
        further = f"first release, {further}" if further else "first release"
    if options.retries:
        further = f"a reply held back, {further}"
    if not further:
        return label
    if len(further) > 42:
        further = further[:40] + "..."
    return f"{label}, {further}"
