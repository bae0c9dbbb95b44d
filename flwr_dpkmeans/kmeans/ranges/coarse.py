"""The order of magnitude of each column, off its noisy magnitude histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.kmeans.ranges.magnitudes import (
    LEVELS,
    N_MAGNITUDES,
    Array,
    Column,
    Ranges,
    columns_of,
)
from flwr_dpkmeans.kmeans.ranges.running_counts import Integers, as_integers
from flwr_dpkmeans.kmeans.ranges.thresholds import noise_threshold
from flwr_dpkmeans.kmeans.ranges.window_counts import (
    Window,
    count_in,
    deviations_of,
)
from flwr_dpkmeans.kmeans.ranges.windows import most_outstanding, outermost

ZERO: Window = (LEVELS, LEVELS)
"""The bin of zero, and of what is next to it."""
SHARED_DEVIATIONS = 3.0
"""Deviations that a column must stand out by where the columns together do.

One place, not hundreds of them.
"""
LUCKY_DEVIATIONS = 2.0
"""By which all rows of a table may miss the threshold of a window that is looked into.

Nearer, noise is as likely.
"""
MIRRORED = 0.3
"""A column has both signs where the mirror image of what was found holds more than this
part of it.
"""
WIDENING = 0.5
"""Of the width of what was found, on both sides: rows that are not heard lie there."""


@dataclass(frozen=True)
class CoarseRanges:
    """Ranges that were read off a noisy magnitude histogram, for every column."""

    ranges: Ranges
    silent: tuple[int, ...]
    """Columns in which nothing stood out of the noise: their range is the domain."""
    zero: tuple[int, ...]
    """Columns of which only zeros stood out: their range is next to zero."""


def find_coarse_ranges(
    released: Array,
    domain: Ranges,
    noise_std: float,
    n_rows: int | None = None,
) -> CoarseRanges:
    """Read each column's order of magnitude off its noisy magnitude histogram.

    `noise_std` is the Gaussian noise's deviation. Ranges are twice as wide as what
    stands out, but inside the domain. A column that does not stand out by itself is
    looked for where the columns together are fullest; else it has the whole domain: its
    own fullest bin may be noise. Where `n_rows` is public, windows are not looked into
    that are so wide that all rows together would hardly stand out.
    """
    n_columns = len(released)
    threshold = noise_threshold(n_columns, noise_std)
    widest = _widest_window(threshold, noise_std, n_rows)
    counts = as_integers(released)
    columns = columns_of(domain)
    # Bins outside of the domain hold noise alone.
    for index, column in enumerate(columns):
        counts[index, : column.first] = 0
        counts[index, column.last + 1 :] = 0
    joint_std = noise_std * math.sqrt(n_columns)
    shared = _shared_window(counts, noise_threshold(1, joint_std))
    lower: list[float] = []
    upper: list[float] = []
    silent: list[int] = []
    zero: list[int] = []
    for index, column in enumerate(columns):
        window = _standing_out(counts[index], threshold, widest)
        has_no_magnitude = window is None or window == ZERO
        if has_no_magnitude and shared is not None:
            window = _in_shared_window(
                counts[index],
                shared,
                window,
                noise_std,
            )
        if window is None:
            silent.append(index)
        if window == ZERO:
            zero.append(index)
        low, high = _widened(window, column)
        lower.append(low)
        upper.append(high)
    return CoarseRanges(
        ranges=(tuple(lower), tuple(upper)),
        silent=tuple(silent),
        zero=tuple(zero),
    )


def _widest_window(
    threshold: float,
    noise_std: float,
    n_rows: int | None,
) -> int:
    """The widest window in which all rows together would stand out."""
    if n_rows is None:
        return N_MAGNITUDES
    lucky = threshold - LUCKY_DEVIATIONS * noise_std
    at_least = max(lucky, 1e-9)
    widest = (n_rows / at_least) ** 2
    return int(min(N_MAGNITUDES, widest))


def _widened(window: Window | None, column: Column) -> tuple[float, float]:
    """Range of a window of magnitudes, twice as wide, inside of the domain."""
    if window is None:
        return column.low, column.high
    first, last = window
    start = float(column.edges[first])
    end = float(column.edges[last + 1])
    margin = WIDENING * (end - start)
    start = max(start - margin, column.low)
    end = min(end + margin, column.high)
    # Powers of two below the smallest number leave no width.
    if not start < end:
        return column.low, column.high
    return start, end


def _standing_out(
    counts: Integers,
    threshold: float,
    widest: int,
) -> Window | None:
    """Magnitude bins that stand out on one side of zero.

    On both sides where the other one is much alike.
    """
    window = outermost(counts, threshold, widest)
    if window is None:
        return _on_both_sides(counts, threshold, widest)
    first, last = window
    if first <= LEVELS <= last:
        return window
    mirror_image = counts[::-1]
    mirrored = count_in(mirror_image, window)
    if mirrored <= MIRRORED * count_in(counts, window):
        return window
    farthest = max(abs(first - LEVELS), abs(last - LEVELS))
    return LEVELS - farthest, LEVELS + farthest


def _on_both_sides(
    counts: Integers,
    threshold: float,
    widest: int,
) -> Window | None:
    """Magnitude bins on both sides of zero that stand out together."""
    folded = counts + counts[::-1]
    magnitudes = folded[LEVELS + 1 :]
    # Two noises in each bin.
    joint_threshold = threshold * math.sqrt(2.0)
    window = outermost(magnitudes, joint_threshold, widest // 2)
    if window is None:
        return None
    _, last = window
    farthest = 1 + last
    return LEVELS - farthest, LEVELS + farthest


def _shared_window(counts: Integers, threshold: float) -> Window | None:
    """The fullest one, two or four octaves of all columns together, if they stand out.

    Zeros tell no magnitude.
    """
    sums = counts.sum(axis=0)
    sums[LEVELS] = 0
    best = most_outstanding(sums, (1, 2, 4), threshold)
    if deviations_of(sums, best, threshold) > 1.0:
        return best
    return None


def _in_shared_window(
    counts: Integers,
    shared: Window,
    window: Window | None,
    noise_std: float,
) -> Window | None:
    """The columns' shared window, if a column stands out there.

    From zero on if zeros stood out, too; else `window` as it is. Zeros fit into any
    range: of a column of which nothing stood out they count as well.
    """
    first, last = shared
    bins = np.arange(first, last + 1)
    if window is None:
        bins = np.union1d(bins, LEVELS)
    n_bins = len(bins)
    least = SHARED_DEVIATIONS * noise_std * math.sqrt(n_bins)
    count = float(counts[bins].sum()) / GRID
    if count <= least:
        return window
    if window is None:
        return shared
    return min(first, LEVELS), max(last, LEVELS)
