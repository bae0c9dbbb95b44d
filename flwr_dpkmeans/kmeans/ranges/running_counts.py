"""Sums over neighbouring bins, in integers: they do not depend on their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.kmeans.ranges.magnitudes import Array

Integers = NDArray[np.int64]
"""Counts in steps of the grid."""
_MOST_STEPS = 2.0**46


def window_sums(counts: Integers, width: int) -> Integers:
    """Count of each window of so many neighbouring bins, by its first bin."""
    sums = running_sums(counts)
    at_ends = sums[width:]
    at_starts = sums[:-width]
    return at_ends - at_starts


def as_integers(released: Array) -> Integers:
    """Counts in grid steps.

    Sums of integers do not depend on their order, and false ones must not overflow.
    """
    steps = released * GRID
    steps = np.clip(steps, -_MOST_STEPS, _MOST_STEPS)
    rounded = np.rint(steps)
    return rounded.astype(np.int64)


def running_sums(counts: Integers) -> Integers:
    """Sums of the first 0, 1, ... bins."""
    none = np.zeros(1, np.int64)
    sums = np.cumsum(counts)
    all_sums = [none, sums]
    return np.concatenate(all_sums)
