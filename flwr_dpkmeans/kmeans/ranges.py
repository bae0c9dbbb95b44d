"""A safe range for each column from two noisy histograms.

Its order of magnitude first, then its position in that range.

Both histograms have at most one entry per row and column, so one row moves them by at
most sqrt(n_features) in L2 norm, whatever bins are asked for. What follows from a noisy
histogram is computed with integers and single IEEE operations, so that all clients find
the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.clipping import clip_vector
from flwr_dpkmeans.kernels.grid import GRID

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Ranges = tuple[tuple[float, ...], tuple[float, ...]]
"""Lower and upper bounds of each column, in the units of the data.

Each lower one is below its upper one.
"""
Window = tuple[int, int]
"""First and last of some neighbouring bins."""

LEVELS = 60
"""Powers of two on each side of zero, downward from the domain's largest magnitude."""
N_MAGNITUDES = 2 * LEVELS + 1
ZERO: Window = (LEVELS, LEVELS)
"""The bin of zero, and of what is next to it."""
N_BINS = 32
"""Bins of equal width inside a column's coarse range."""
WIDEST = 2.0**40
"""Half the width of a domain that says nothing of the data."""
COARSE_FAILURE = 1e-3
"""Probability that noise alone widens any coarse range, possibly to the whole domain.

That would spoil the run.
"""
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
BULK_DEVIATIONS = 5.5
"""Deviations of the noise that the bulk of a column must stand out by.

Otherwise its coarse range is kept.
"""
TAIL_DEVIATIONS = 2.5
"""Likewise what is beside the bulk: noise alone widens a range at most to the coarse
one, and that costs little.
"""
BEYOND_DEVIATIONS = 1.5
MOST_BEYOND = 0.02
"""Beyond a range's end near 0: above both it reaches past 0, which costs less than a
cluster that is cut off.
"""
MOST_OUTSIDE = 0.25
"""The coarse range is kept where so many times as many rows as inside of the narrower
one may lie outside of it.
"""
_MOST_STEPS = 2.0**46


@dataclass(frozen=True)
class CoarseRanges:
    """Ranges that were read off a noisy magnitude histogram, for every column."""

    ranges: Ranges
    silent: tuple[int, ...]
    """Columns in which nothing stood out of the noise: their range is the domain."""
    zero: tuple[int, ...]
    """Columns of which only zeros stood out: their range is next to zero."""


def magnitude_edges(lower: float, upper: float) -> Array:
    """Edges (N_MAGNITUDES + 1,) of one column's magnitude bins, ascending.

    Powers of two on both sides of zero.
    """
    mantissa, exponent = math.frexp(max(abs(lower), abs(upper)))
    top = exponent - 1 if mantissa == 0.5 else exponent
    powers = np.ldexp(1.0, np.arange(top - LEVELS, top + 1))
    return np.concatenate([-powers[::-1], powers])


@dataclass(frozen=True, repr=False)
class _Column:
    """One column's public domain with its magnitude bins."""

    low: float
    high: float
    edges: Array
    first: int
    """First bin with more than a point of the domain in it."""
    last: int
    """Last such bin."""


def _columns_of(domain: Ranges) -> list[_Column]:
    """Magnitude bins of every column of a domain."""
    columns = []
    for low, high in zip(*domain, strict=True):
        edges = magnitude_edges(low, high)
        inside = np.flatnonzero((edges[:-1] < high) & (edges[1:] > low))
        columns.append(
            _Column(
                low,
                high,
                edges,
                int(inside[0]),
                int(inside[-1]),
            )
        )
    return columns


def magnitude_histogram(points: Array, domain: Ranges) -> Array:
    """Count each column's values by sign and power of two: (d, N_MAGNITUDES).

    Values are clipped to the public domain. Every row of `points` is in exactly one bin
    of each column.
    """
    counts = np.zeros((points.shape[1], N_MAGNITUDES))
    for index, column in enumerate(_columns_of(domain)):
        # A magnitude in [2^(e-1), 2^e) has the exponent e, exactly.
        lowest_exponent = math.frexp(column.edges[-1])[1] - 1 - LEVELS
        for rows in row_blocks(len(points), 1):
            values = np.clip(points[rows, index], column.low, column.high)
            exponents = np.frexp(values)[1]
            levels = np.clip(exponents - lowest_exponent, 0, LEVELS)
            signed = np.where(values > 0.0, levels, 0)
            signed = np.where(values < 0.0, -levels, signed)
            bins = np.clip(LEVELS + signed, column.first, column.last)
            counts[index] += np.bincount(bins, minlength=N_MAGNITUDES)
    return counts


def range_histogram(points: Array, coarse: Ranges) -> Array:
    """Count each column's values in equal bins of its coarse range, (d, N_BINS).

    Values outside of the released range are counted at its ends.
    """
    counts = np.zeros((points.shape[1], N_BINS))
    for index, (low, high) in enumerate(zip(*coarse, strict=True)):
        for rows in row_blocks(len(points), 1):
            values = np.clip(points[rows, index], low, high)
            positions = np.floor((values - low) / (high - low) * N_BINS)
            bins = np.clip(positions.astype(np.int64), 0, N_BINS - 1)
            counts[index] += np.bincount(bins, minlength=N_BINS)
    return counts


def one_vote(counts: Array) -> Array:
    """Scale a client's histograms (d, n_bins) down to the norm of a single row's.

    Its privacy is that of one row then.

    On the grid, toward zero; the L2 norm is at most sqrt(d) for a client of any size: a
    larger bound would need noise as much larger, and let large clients alone profit
    from it.
    """
    return clip_vector(counts, math.sqrt(len(counts)))


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
    columns = _columns_of(domain)
    # Bins outside of the domain hold noise alone.
    for index, column in enumerate(columns):
        counts[index, : column.first] = 0
        counts[index, column.last + 1 :] = 0
    joint_std = noise_std * math.sqrt(n_columns)
    shared = _shared_window(counts, noise_threshold(1, joint_std))
    lower, upper, silent, zero = [], [], [], []
    for index, column in enumerate(columns):
        window = _standing_out(counts[index], threshold, widest)
        if window in (None, ZERO) and shared is not None:
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
    return CoarseRanges((tuple(lower), tuple(upper)), tuple(silent), tuple(zero))


def _widest_window(
    threshold: float,
    noise_std: float,
    n_rows: int | None,
) -> int:
    """The widest window in which all rows together would stand out."""
    if n_rows is None:
        return N_MAGNITUDES
    lucky = max(threshold - LUCKY_DEVIATIONS * noise_std, 1e-9)
    return int(min(N_MAGNITUDES, (n_rows / lucky) ** 2))


def _widened(window: Window | None, column: _Column) -> tuple[float, float]:
    """Range of a window of magnitudes, twice as wide, inside of the domain."""
    if window is None:
        return column.low, column.high
    start = float(column.edges[window[0]])
    end = float(column.edges[window[1] + 1])
    margin = WIDENING * (end - start)
    start = max(start - margin, column.low)
    end = min(end + margin, column.high)
    # Powers of two below the smallest number leave no width.
    if not start < end:
        return column.low, column.high
    return start, end


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
    lower, upper = [], []
    all_counts = as_integers(released)
    for index, counts in enumerate(all_counts):
        low, high = coarse[0][index], coarse[1][index]
        least = MOST_BEYOND * float(counts.sum())
        beyond = max(BEYOND_DEVIATIONS * noise_std * GRID, least)
        is_below = low > 0.0 and counts[0] > beyond
        is_above = high < 0.0 and counts[-1] > beyond
        if is_below or is_above:
            # The end of what stood out, before it was widened.
            margin = (high - low) * WIDENING / (1.0 + 2.0 * WIDENING)
            nearest = min(abs(low), abs(high)) + margin
            if low > 0.0:
                low = max(domain[0][index], -nearest)
            else:
                high = min(domain[1][index], nearest)
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


def _moved_in(
    counts: Integers,
    low: float,
    high: float,
    noise_std: float,
) -> tuple[float, float]:
    """The bins of a range that hold nearly all rows, and a bin farther on both sides."""
    window = bulk_and_tails(counts, noise_std)
    if window is None or not _holds_most(counts, window, noise_std):
        return low, high
    first = max(window[0] - 1, 0)
    behind = min(window[1] + 2, N_BINS)
    start = low + (high - low) * (first / N_BINS)
    end = low + (high - low) * (behind / N_BINS)
    # Bins narrower than the last digit of their position would leave no width.
    if not start < end:
        return low, high
    return start, end


# -- what stands out of the noise in a histogram ---------------------------------------


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
        folded = (counts + counts[::-1])[LEVELS + 1 :]
        both = outermost(folded, threshold * math.sqrt(2.0), widest // 2)
        if both is None:
            return None
        return LEVELS - 1 - both[1], LEVELS + 1 + both[1]
    if window[0] <= LEVELS <= window[1]:
        return window
    inside = slice(window[0], window[1] + 1)
    mirrored = float(counts[::-1][inside].sum())
    if mirrored <= MIRRORED * float(counts[inside].sum()):
        return window
    farthest = max(abs(end - LEVELS) for end in window)
    return LEVELS - farthest, LEVELS + farthest


def _shared_window(counts: Integers, threshold: float) -> Window | None:
    """The fullest one, two or four octaves of all columns together, if they stand out.

    Zeros tell no magnitude.
    """
    sums = counts.sum(axis=0)
    sums[LEVELS] = 0
    windows = [_fullest(sums, width) for width in (1, 2, 4)]
    best = max(windows, key=lambda window: _deviations(sums, window, threshold))
    return best if _deviations(sums, best, threshold) > 1.0 else None


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
    bins = np.arange(shared[0], shared[1] + 1)
    if window is None:
        bins = np.union1d(bins, LEVELS)
    least = SHARED_DEVIATIONS * noise_std * math.sqrt(len(bins))
    if float(counts[bins].sum()) / GRID <= least:
        return window
    if window is None:
        return shared
    return min(shared[0], LEVELS), max(shared[1], LEVELS)


def _fullest(counts: Integers, width: int) -> Window:
    """The window of one width with the largest count, the first of them."""
    sums = running_sums(counts)
    start = int(np.argmax(sums[width:] - sums[:-width]))
    return start, start + width - 1


def _deviations(
    counts: Integers,
    window: Window,
    noise_std: float,
) -> float:
    """A window's count, in deviations of its noise."""
    first, last = window
    count = float(counts[first : last + 1].sum()) / GRID
    return count / (noise_std * math.sqrt(last + 1 - first))


def _holds_most(
    counts: Integers,
    window: Window,
    noise_std: float,
) -> bool:
    """Whether few rows can be outside of a window.

    By what was counted there and the deviation of its noise.
    """
    inside = int(counts[window[0] : window[1] + 1].sum())
    outside = float(counts.sum() - inside) / GRID
    n_outside = len(counts) - (window[1] + 1 - window[0])
    noise = noise_std * math.sqrt(n_outside)
    return outside + noise <= MOST_OUTSIDE * float(inside) / GRID


def outermost(
    counts: Integers,
    threshold: float,
    widest: int = N_MAGNITUDES,
) -> Window | None:
    """First and last bin of what stands out of the noise; None if nothing does.

    Counts are in grid steps of 2^-16. Narrow windows come first, also where a wider one
    stands out more: a tight range costs less than rows clipped to it.
    """
    for width in _window_widths(len(counts), widest):
        window = _fullest(counts, width)
        if _deviations(counts, window, threshold) > 1.0:
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
    windows = [_fullest(counts, width) for width in range(1, len(counts) + 1)]
    bulk = max(windows, key=lambda window: _deviations(counts, window, noise_std))
    if _deviations(counts, bulk, noise_std) <= BULK_DEVIATIONS:
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
    sums = running_sums(counts)
    for width in _window_widths(len(counts), widest):
        window_counts = (sums[width:] - sums[:-width]) / GRID
        starts = np.flatnonzero(window_counts > threshold * math.sqrt(width))
        before = starts[starts + width <= first]
        after = starts[starts > last]
        if before.size:
            first = int(before[0])
        if after.size:
            last = int(after[-1]) + width - 1
    return first, last


def as_integers(released: NDArray[np.float64]) -> Integers:
    """Counts in grid steps.

    Sums of integers do not depend on their order, and false ones must not overflow.
    """
    steps = np.clip(released * GRID, -_MOST_STEPS, _MOST_STEPS)
    return np.rint(steps).astype(np.int64)


def running_sums(counts: Integers) -> Integers:
    """Sums of the first 0, 1, ... bins."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _window_widths(n_bins: int, widest: int = N_MAGNITUDES) -> list[int]:
    """Powers of two up to a quarter of the bins, and up to the widest."""
    n_powers = max(1, (n_bins // 4).bit_length())
    widths = [2**power for power in range(n_powers)]
    return [width for width in widths if width <= widest]


def noise_threshold(n_columns: int, noise_std: float) -> float:
    """Count that noise alone hardly exceeds in any window of magnitudes of one sign.

    The probability is `COARSE_FAILURE` at most.
    """
    n_windows = [N_MAGNITUDES - w + 1 for w in _window_widths(N_MAGNITUDES)]
    return noise_std * exceeded_among(n_columns * sum(n_windows), COARSE_FAILURE)


def exceeded_among(n_tests: int, chance: float) -> float:
    """Deviations that noise exceeds in any of so many counts with this chance at most.

    By a union bound.
    """
    deviations = -NormalDist().inv_cdf(chance / n_tests)
    # Six digits, so that the last digit of a machine's logarithm makes no difference.
    return float(f"{deviations:.6g}")
