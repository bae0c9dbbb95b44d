"""Widths of the box."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_dpkmeans.sums.settings import Box

_RELATIVE_WIDTH_TOLERANCE = 1e-6


def have_one_width(widths: Sequence[float]) -> bool:
    """Say whether all features' widths are the same, up to rounding."""
    return max(widths) <= min(widths) * (1.0 + _RELATIVE_WIDTH_TOLERANCE)


def squared_unit(box: Box) -> float | None:
    """The caller's squared units in a squared scaled one.

    Where it is a number and the same for all features.
    """
    pairs = zip(*box, strict=True)
    widths = [high - low for low, high in pairs]
    half = widths[0] / 2.0
    # A power would raise where it is infinite.
    squared = half * half
    if have_one_width(widths) and math.isfinite(squared):
        return squared
    return None
