"""Where each column lies in its coarse range, off its second noisy histogram."""

from __future__ import annotations

import math

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.kmeans.ranges.coarse import WIDENING
from flwr_dpkmeans.kmeans.ranges.histograms import N_BINS
from flwr_dpkmeans.kmeans.ranges.magnitudes import Array, Ranges
from flwr_dpkmeans.kmeans.ranges.running_counts import Integers, as_integers
from flwr_dpkmeans.kmeans.ranges.window_counts import Window, count_in
from flwr_dpkmeans.kmeans.ranges.windows import bulk_and_tails

BEYOND_DEVIATIONS = 1.5
MOST_BEYOND = 0.02
"""Beyond a range's end near 0: above both it reaches past 0, which costs less than a
cluster that is cut off.
"""
MOST_OUTSIDE = 0.25
"""The coarse range is kept where so many times as many rows as inside of the narrower
one may lie outside of it.
"""


def find_ranges(
    released: Array,
    coarse: Ranges,
    noise_std: float,
    domain: Ranges,
) -> Ranges:
    """Move in on each column's values where its noisy histogram shows nearly all.

    And a bin farther on both sides. A column that does not stand out keeps its coarse
    range. Where values seem to lie between that and 0, or around 0, of whose many
    magnitudes none stood out, the range reaches as far on the other side of 0.
    """
    lower: list[float] = []
    upper: list[float] = []
    coarse_pairs = zip(*coarse, strict=True)
    domain_pairs = zip(*domain, strict=True)
    columns = zip(as_integers(released), coarse_pairs, domain_pairs, strict=True)
    for counts, (low, high), (lowest, highest) in columns:
        least = MOST_BEYOND * float(counts.sum())
        beyond = max(BEYOND_DEVIATIONS * noise_std * GRID, least)
        is_below = low > 0.0 and counts[0] > beyond
        is_above = high < 0.0 and counts[-1] > beyond
        if is_below:
            nearest = _nearest_to_zero(low, high)
            low = max(lowest, -nearest)
        elif is_above:
            nearest = _nearest_to_zero(low, high)
            high = min(highest, nearest)
        else:
            low, high = _moved_in(
                counts,
                low,
                high,
                noise_std,
            )
        lower.append(float(low))
        upper.append(float(high))
    return tuple(lower), tuple(upper)


def _nearest_to_zero(low: float, high: float) -> float:
    """Distance from 0 of the end of what stood out, before it was widened."""
    widening = 1.0 + 2.0 * WIDENING
    margin = (high - low) * WIDENING / widening
    return min(abs(low), abs(high)) + margin


def _moved_in(
    counts: Integers,
    low: float,
    high: float,
    noise_std: float,
) -> tuple[float, float]:
    """The bins of a range that hold nearly all rows, and one more on both sides."""
    window = bulk_and_tails(counts, noise_std)
    if window is None:
        return low, high
    if not _holds_most(counts, window, noise_std):
        return low, high
    first, last = window
    before = max(first - 1, 0)
    behind = min(last + 2, N_BINS)
    width = high - low
    start = low + width * (before / N_BINS)
    end = low + width * (behind / N_BINS)
    # Bins narrower than the last digit of their position would leave no width.
    if not start < end:
        return low, high
    return start, end


def _holds_most(
    counts: Integers,
    window: Window,
    noise_std: float,
) -> bool:
    """Whether few rows can be outside of a window.

    By what was counted there and the deviation of its noise.
    """
    first, last = window
    inside = count_in(counts, window)
    outside = float(counts.sum()) - inside
    n_outside = len(counts) - (last + 1 - first)
    noise = noise_std * math.sqrt(n_outside)
    most = MOST_OUTSIDE * inside / GRID
    return outside / GRID + noise <= most
