"""What a histogram counts in some neighbouring bins."""

from __future__ import annotations

import math

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.kmeans.ranges.running_counts import Integers, window_sums

Window = tuple[int, int]
"""First and last of some neighbouring bins."""


def fullest(counts: Integers, width: int) -> Window:
    """The window of one width with the largest count, the first of them."""
    sums = window_sums(counts, width)
    start = int(sums.argmax())
    return start, start + width - 1


def count_in(counts: Integers, window: Window) -> float:
    """Count of a window, in grid steps."""
    first, last = window
    inside = counts[first : last + 1]
    return float(inside.sum())


def deviations_of(
    counts: Integers,
    window: Window,
    noise_std: float,
) -> float:
    """A window's count, in deviations of its noise."""
    first, last = window
    width = last + 1 - first
    count = count_in(counts, window) / GRID
    noise = noise_std * math.sqrt(width)
    return count / noise
