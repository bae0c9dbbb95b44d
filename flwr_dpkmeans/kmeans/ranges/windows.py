"""Neighbouring bins of a histogram that stand out of the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.kmeans.ranges.magnitudes import N_MAGNITUDES
from flwr_dpkmeans.kmeans.ranges.running_counts import Integers, window_sums
from flwr_dpkmeans.kmeans.ranges.thresholds import window_widths
from flwr_dpkmeans.kmeans.ranges.window_counts import (
    Window,
    deviations_of,
    fullest,
)

BULK_DEVIATIONS = 5.5
"""Deviations of the noise that the bulk of a column must stand out by.

Otherwise its coarse range is kept.
"""
TAIL_DEVIATIONS = 2.5
"""Likewise what is beside the bulk: noise alone widens a range at most to the coarse
one, and that costs little.
"""


def most_outstanding(
    counts: Integers,
    widths: Iterable[int],
    noise_std: float,
) -> Window:
    """The window, of any of these widths, with the most deviations of its noise."""

    def deviations(window: Window) -> float:
        return deviations_of(counts, window, noise_std)

    windows = (fullest(counts, width) for width in widths)
    return max(windows, key=deviations)


def outermost(
    counts: Integers,
    threshold: float,
    widest: int = N_MAGNITUDES,
) -> Window | None:
    """First and last bin of what stands out of the noise; None if nothing does.

    Counts are in grid steps of 2^-16. Narrow windows come first, also where a wider one
    stands out more: a tight range costs less than rows clipped to it.
    """
    for width in window_widths(len(counts), widest):
        window = fullest(counts, width)
        if deviations_of(counts, window, threshold) > 1.0:
            return _with_tails(
                counts,
                window,
                threshold,
                widest,
            )
    return None


def bulk_and_tails(counts: Integers, noise_std: float) -> Window | None:
    """First and last bin of the data: the fullest window, and what stands out beside.

    The window maximises its sum over the root of its width, the likelihood of equally
    full bins among empty ones, so that no single bin has to stand out. None if it does
    not stand out by `BULK_DEVIATIONS`.
    """
    widths = range(1, len(counts) + 1)
    bulk = most_outstanding(counts, widths, noise_std)
    if deviations_of(counts, bulk, noise_std) <= BULK_DEVIATIONS:
        return None
    return _with_tails(counts, bulk, TAIL_DEVIATIONS * noise_std)


def _with_tails(
    counts: Integers,
    window: Window,
    threshold: float,
    widest: int = N_MAGNITUDES,
) -> Window:
    """Reach out to the outermost windows beside some bins that exceed the threshold.

    Narrow ones first. Windows of w bins must exceed sqrt(w) times as much: a thin tail
    stands out as a whole, and a full bin does not draw its empty neighbours in.
    """
    first, last = window
    for width in window_widths(len(counts), widest):
        window_counts = window_sums(counts, width) / GRID
        least = threshold * math.sqrt(width)
        starts = np.flatnonzero(window_counts > least)
        before = starts[starts + width <= first]
        after = starts[starts > last]
        if before.size:
            first = int(before[0])
        if after.size:
            farthest = int(after[-1])
            last = farthest + width - 1
    return first, last
