"""A safe range for each column from two noisy histograms.

Its order of magnitude first, then its position in that range.

Both histograms have at most one entry per row and column, so one row moves them by at
most sqrt(n_features) in L2 norm, whatever bins are asked for. What follows from a noisy
histogram is computed with integers and single IEEE operations, so that all clients find
the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
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
    largest = max(abs(lower), abs(upper))
    mantissa, exponent = math.frexp(largest)
    top = exponent - 1 if mantissa == 0.5 else exponent
    exponents = np.arange(top - LEVELS, top + 1)
    powers = np.ldexp(1.0, exponents)
    falling = powers[::-1]
    return np.concatenate([-falling, powers])


@dataclass(frozen=True, repr=False)
class Column:
    """One column's public domain with its magnitude bins."""

    low: float
    high: float
    edges: Array
    first: int
    """First bin with more than a point of the domain in it."""
    last: int
    """Last such bin."""


def columns_of(domain: Ranges) -> list[Column]:
    """Magnitude bins of every column of a domain."""
    pairs = zip(*domain, strict=True)
    return [_column_of(low, high) for low, high in pairs]


def _column_of(low: float, high: float) -> Column:
    """Magnitude bins of one column."""
    edges = magnitude_edges(low, high)
    begins_inside = edges[:-1] < high
    ends_inside = edges[1:] > low
    inside = np.flatnonzero(begins_inside & ends_inside)
    return Column(
        low,
        high,
        edges,
        first=int(inside[0]),
        last=int(inside[-1]),
    )


def magnitude_histogram(points: Array, domain: Ranges) -> Array:
    """Count each column's values by sign and power of two: (d, N_MAGNITUDES).

    Values are clipped to the public domain. Every row of `points` is in exactly one bin
    of each column.
    """
    n_rows, n_features = points.shape
    counts = np.zeros((n_features, N_MAGNITUDES))
    for index, column in enumerate(columns_of(domain)):
        for rows in row_blocks(n_rows, 1):
            values = points[rows, index]
            bins = _magnitude_bins(values, column)
            counts[index] += np.bincount(bins, minlength=N_MAGNITUDES)
    return counts


def _magnitude_bins(values: Array, column: Column) -> NDArray[np.integer]:
    """Bin of each value, by its sign and power of two."""
    # A magnitude in [2^(e-1), 2^e) has the exponent e, exactly.
    _, highest_exponent = math.frexp(column.edges[-1])
    lowest_exponent = highest_exponent - 1 - LEVELS
    clipped = np.clip(values, column.low, column.high)
    _, exponents = np.frexp(clipped)
    levels = np.clip(exponents - lowest_exponent, 0, LEVELS)
    signed = np.where(clipped > 0.0, levels, 0)
    signed = np.where(clipped < 0.0, -levels, signed)
    bins = LEVELS + signed
    return np.clip(bins, column.first, column.last)


def range_histogram(points: Array, coarse: Ranges) -> Array:
    """Count each column's values in equal bins of its coarse range, (d, N_BINS).

    Values outside of the released range are counted at its ends.
    """
    n_rows, n_features = points.shape
    counts = np.zeros((n_features, N_BINS))
    pairs = zip(*coarse, strict=True)
    for index, (low, high) in enumerate(pairs):
        width = high - low
        for rows in row_blocks(n_rows, 1):
            values = np.clip(points[rows, index], low, high)
            positions = (values - low) / width * N_BINS
            bins = np.floor(positions).astype(np.int64)
            bins = np.clip(bins, 0, N_BINS - 1)
            counts[index] += np.bincount(bins, minlength=N_BINS)
    return counts


def one_vote(counts: Array) -> Array:
    """Scale a client's histograms (d, n_bins) down to the norm of a single row's.

    Its privacy is that of one row then.

    On the grid, toward zero; the L2 norm is at most sqrt(d) for a client of any size: a
    larger bound would need noise as much larger, and let large clients alone profit
    from it.
    """
    n_columns = len(counts)
    return clip_vector(counts, math.sqrt(n_columns))


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
    """The bins of a range that hold nearly all rows, and a bin farther on both sides."""
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


def fullest(counts: Integers, width: int) -> Window:
    """The window of one width with the largest count, the first of them."""
    sums = window_sums(counts, width)
    start = int(sums.argmax())
    return start, start + width - 1


def window_sums(counts: Integers, width: int) -> Integers:
    """Count of each window of so many neighbouring bins, by its first bin."""
    sums = running_sums(counts)
    return sums[width:] - sums[:-width]


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


def as_integers(released: Array) -> Integers:
    """Counts in grid steps.

    Sums of integers do not depend on their order, and false ones must not overflow.
    """
    steps = np.clip(released * GRID, -_MOST_STEPS, _MOST_STEPS)
    rounded = np.rint(steps)
    return rounded.astype(np.int64)


def running_sums(counts: Integers) -> Integers:
    """Sums of the first 0, 1, ... bins."""
    none = np.zeros(1, np.int64)
    sums = np.cumsum(counts)
    return np.concatenate([none, sums])


def window_widths(n_bins: int, widest: int = N_MAGNITUDES) -> list[int]:
    """Powers of two up to a quarter of the bins, and up to the widest."""
    widest_window = n_bins // 4
    n_powers = max(1, widest_window.bit_length())
    widths = (2**power for power in range(n_powers))
    return [width for width in widths if width <= widest]


def noise_threshold(n_columns: int, noise_std: float) -> float:
    """Count that noise alone hardly exceeds in any window of magnitudes of one sign.

    The probability is `COARSE_FAILURE` at most.
    """
    widths = window_widths(N_MAGNITUDES)
    n_windows = sum(N_MAGNITUDES - width + 1 for width in widths)
    n_tests = n_columns * n_windows
    return noise_std * exceeded_among(n_tests, COARSE_FAILURE)


def exceeded_among(n_tests: int, chance: float) -> float:
    """Deviations that noise exceeds in any of so many counts with this chance at most.

    By a union bound.
    """
    deviations = -NormalDist().inv_cdf(chance / n_tests)
    # Six digits, so that the last digit of a machine's logarithm makes no difference.
    return float(f"{deviations:.6g}")
