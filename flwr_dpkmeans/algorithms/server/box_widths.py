"""Widths of the box."""

from __future__ import annotations

import math

from flwr_dpkmeans.sums.settings import Box

_RELATIVE_WIDTH_TOLERANCE = 1e-6


def squared_unit(box: Box) -> float | None:
    """The caller's squared units in a squared scaled one, where it is a number and the
    same for all features.
    """
    widths = [high - low for low, high in zip(*box, strict=True)]
    # A power would raise where it is infinite.
    squared = (widths[0] / 2.0) * (widths[0] / 2.0)
    is_one = max(widths) <= min(widths) * (1.0 + _RELATIVE_WIDTH_TOLERANCE)
    return squared if is_one and math.isfinite(squared) else None
