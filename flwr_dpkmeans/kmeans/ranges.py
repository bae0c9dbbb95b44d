"""The range of each column from two noisy histograms: its order of magnitude first, then the range inside of it.

Both histograms have at most one entry per row and column, so one row moves them by at most sqrt(n_features) in L2 norm,
whatever bins are asked for. What follows from a noisy histogram is computed with integers and single IEEE operations,
so that all clients find the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kmeans.lloyd import GRID, clip_vector, row_blocks

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

LEVELS = 60
"""Powers of two on each side of zero, downward from the domain's largest magnitude."""
N_MAGNITUDES = 2 * LEVELS + 1
N_BINS = 16
"""Bins of equal width inside a column's coarse range: more of them hold fewer rows each and leave thinner margins."""
WIDEST = 2.0**40
"""Half the width of a domain that says nothing of the data."""
_NEAR_OCTAVES = 3
_NEGLIGIBLE = 0.05
COARSE_FAILURE = 1e-3
"""Probability that noise alone widens any coarse range, possibly to the whole domain: that would spoil the run."""
BULK_DEVIATIONS = 5.5
"""Deviations of the noise that the bulk of a column must stand out by; otherwise its coarse range is kept."""
TAIL_DEVIATIONS = 2.5
"""Likewise what is beside the bulk: noise alone widens a range at most to the coarse one, and that costs little."""
OCTAVE_DEVIATIONS = 3.5
"""Likewise, in the magnitude histogram, what lies a few octaves beside what was found."""
_TAIL_OCTAVES = 4
_MOST_STEPS = 2.0**46


@dataclass(frozen=True)
class Ranges:
    """One range for each column, in the units of the data: each lower bound is below its upper bound."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True)
class FoundRanges:
    """Ranges that were read off a noisy histogram, for every column."""

    ranges: Ranges
    unclear: tuple[int, ...]
    """Columns in whose own histogram nothing stood out of the noise."""
    unbounded: tuple[int, ...] = ()
    """Those of them whose range is the domain although that says nothing of the data."""


def magnitude_edges(lower: float, upper: float) -> Array:
    """Edges (N_MAGNITUDES + 1,) of one column's magnitude bins, ascending: powers of two on both sides of zero."""
    mantissa, exponent = math.frexp(max(abs(lower), abs(upper)))
    top = exponent - 1 if mantissa == 0.5 else exponent
    powers = np.ldexp(1.0, np.arange(top - LEVELS, top + 1))
    return np.concatenate([-powers[::-1], powers])


def _columns_of(domain: Ranges) -> Iterator[tuple[float, float, Array, int, int]]:
    """For each column: its range, its edges, and the first and last bin with more than a point of the domain in it."""
    for low, high in zip(domain.lower, domain.upper, strict=True):
        edges = magnitude_edges(low, high)
        inside = np.flatnonzero((edges[:-1] < high) & (edges[1:] > low))
        yield low, high, edges, int(inside[0]), int(inside[-1])


def magnitude_histogram(points: Array, domain: Ranges) -> Array:
    """Count each column's values, clipped to the public domain, by sign and power of two: (d, N_MAGNITUDES).

    Every row of `points` is in exactly one bin of each column.
    """
    counts = np.zeros((points.shape[1], N_MAGNITUDES))
    for column, (low, high, edges, first, last) in enumerate(_columns_of(domain)):
        for rows in row_blocks(len(points), 1):
            values = np.clip(points[rows, column], low, high)
            # A magnitude in [2^(e-1), 2^e) has the exponent e, exactly.
            levels = np.clip(np.frexp(values)[1] - (math.frexp(edges[-1])[1] - 1 - LEVELS), 0, LEVELS)
            places = LEVELS + np.where(values < 0.0, -levels, np.where(values > 0.0, levels, 0))
            counts[column] += np.bincount(np.clip(places, first, last), minlength=N_MAGNITUDES)
    return counts


def range_histogram(points: Array, coarse: Ranges) -> Array:
    """Count each column's values in equal bins of its released coarse range, (d, N_BINS); those outside are in none."""
    counts = np.zeros((points.shape[1], N_BINS))
    for column, (low, high) in enumerate(zip(coarse.lower, coarse.upper, strict=True)):
        for rows in row_blocks(len(points), 1):
            values = points[rows, column]
            values = values[(values >= low) & (values <= high)]
            places = np.floor((values - low) / (high - low) * N_BINS).astype(np.int64)
            counts[column] += np.bincount(np.clip(places, 0, N_BINS - 1), minlength=N_BINS)
    return counts


def one_vote(counts: Array) -> Array:
    """Scale a client's histograms (d, n_bins) down to the norm of a single row's: its privacy is that of one row then.

    On the grid, toward zero; the L2 norm is at most sqrt(d) for a client of any size: a larger bound would need noise
    as much larger, and let large clients alone profit from it.
    """
    return clip_vector(counts, math.sqrt(len(counts)))


def find_coarse_ranges(released: Array, domain: Ranges, noise_std: float) -> FoundRanges:
    """Read each column's order of magnitude off its noisy magnitude histogram, given the Gaussian noise's deviation.

    Ranges are inside the domain, from zero on unless the data are clearly far from it. Columns that do not stand out
    get what all columns together show; if these do not stand out either, the whole domain: a bin that is merely the
    fullest is noise.
    """
    n_columns, n_bins = released.shape
    threshold = noise_threshold(n_columns, n_bins, noise_std)
    # Bins outside of the domain hold noise alone.
    counts = as_integers(released)
    for column, (_, _, _, first, last) in enumerate(_columns_of(domain)):
        counts[column, :first] = counts[column, last + 1 :] = 0
    pooled = outermost(counts.sum(axis=0), noise_threshold(1, n_bins, noise_std * math.sqrt(n_columns)))
    lower, upper, unclear, unbounded = [], [], [], []
    for column, (low, high, edges, first, last) in enumerate(_columns_of(domain)):
        found = outermost(counts[column], threshold)
        if found is None:
            unclear.append(column)
            if pooled is None and max(abs(low), abs(high)) >= WIDEST:
                unbounded.append(column)
            bins = (first, last) if pooled is None else (min(pooled[0], LEVELS), max(pooled[1], LEVELS))
        else:
            bins = _toward_zero_bin(counts[column], with_near_octaves(counts[column], found, noise_std), noise_std)
        bins = (max(bins[0], first), min(bins[1], last))
        ends = (edges[bins[0]], edges[bins[1] + 1]) if bins[0] <= bins[1] else (low, high)
        lower.append(float(max(ends[0], low)))
        upper.append(float(min(ends[1], high)))
    return FoundRanges(Ranges(tuple(lower), tuple(upper)), tuple(unclear), tuple(unbounded))


def find_ranges(released: Array, coarse: Ranges, domain: Ranges, noise_std: float) -> FoundRanges:
    """Read each column's range off its noisy histogram, and widen it by a bin on both sides for thin tails.

    Ranges are inside the domain, of positive width. A column that does not stand out keeps its coarse range.
    """
    counts = as_integers(released)
    lower, upper, unclear = [], [], []
    for column in range(len(released)):
        low, high = coarse.lower[column], coarse.upper[column]
        found = bulk_and_tails(counts[column], noise_std)
        if found is None:
            unclear.append(column)
        else:
            start = max(low + (high - low) * ((found[0] - 1) / N_BINS), domain.lower[column])
            end = min(low + (high - low) * ((found[1] + 2) / N_BINS), domain.upper[column])
            # Bins narrower than the last digit of their place would leave no width.
            low, high = (start, end) if start < end else (low, high)
        lower.append(float(low))
        upper.append(float(high))
    return FoundRanges(Ranges(tuple(lower), tuple(upper)), tuple(unclear))


def _toward_zero_bin(counts: Integers, found: tuple[int, int], noise_std: float) -> tuple[int, int]:
    """Reach to the bin around zero unless the octaves next to the found bins clearly hold next to nothing.

    Small values are few in each octave and hide in the noise, but the room down to zero is at most as wide again as
    the range.
    """
    first, last = found
    if first <= LEVELS <= last:
        return found
    sums = running_sums(counts)
    positive = first > LEVELS
    start, end = (max(first - _NEAR_OCTAVES, LEVELS), first) if positive else (last + 1, last + 1 + _NEAR_OCTAVES)
    end = end if positive else min(end, LEVELS + 1)
    near = float(sums[end] - sums[start]) / GRID + TAIL_DEVIATIONS * noise_std * math.sqrt(end - start)
    if near <= _NEGLIGIBLE * float(sums[last + 1] - sums[first]) / GRID:
        return found
    return (LEVELS, last) if positive else (first, LEVELS)


# -- what stands out of the noise in a histogram --------------------------------------------------------------------


def outermost(counts: Integers, threshold: float) -> tuple[int, int] | None:
    """First and last bin of what stands out of the noise in counts of grid steps of 2^-16; None if nothing does.

    Single bins, which must exceed `threshold`, come first, then w = 2, 4, ... neighbours outside of what was found,
    which must exceed sqrt(w) times as much: a thin tail stands out as a whole, and a full bin does not draw its empty
    neighbours in.
    """
    sums = running_sums(counts)
    for width in _window_widths(len(counts)):
        windows = sums[width:] - sums[:-width]
        fullest = int(np.argmax(windows))
        if windows[fullest] / GRID > threshold * math.sqrt(width):
            return _with_tails(sums, (fullest, fullest + width - 1), threshold)
    return None


def bulk_and_tails(counts: Integers, noise_std: float) -> tuple[int, int] | None:
    """First and last bin of the data: the window that stands out most, and what stands out beside it.

    The window maximises its sum over the root of its width, the likelihood of equally full bins among empty ones, so
    that no single bin has to stand out. None if it does not stand out by `BULK_DEVIATIONS`.
    """
    sums = running_sums(counts)
    best, bulk = BULK_DEVIATIONS * noise_std, None
    for width in range(1, len(counts) + 1):
        windows = sums[width:] - sums[:-width]
        start = int(np.argmax(windows))
        deviation = float(windows[start] / GRID / math.sqrt(width))
        if deviation > best:
            best, bulk = deviation, (start, start + width - 1)
    return None if bulk is None else _with_tails(sums, bulk, TAIL_DEVIATIONS * noise_std)


def _with_tails(sums: Integers, found: tuple[int, int], threshold: float) -> tuple[int, int]:
    """Reach out to the outermost windows beside the found bins that exceed the threshold, narrow ones first."""
    for width in _window_widths(len(sums) - 1):
        starts = np.flatnonzero((sums[width:] - sums[:-width]) / GRID > threshold * math.sqrt(width))
        before, after = starts[starts + width <= found[0]], starts[starts > found[1]]
        found = (
            int(before[0]) if before.size else found[0],
            int(after[-1]) + width - 1 if after.size else found[1],
        )
    return found


def with_near_octaves(counts: Integers, found: tuple[int, int], noise_std: float) -> tuple[int, int]:
    """Reach on to octaves nearby that stand out less: taking noise for data costs some powers of two there, not all."""
    threshold, end = OCTAVE_DEVIATIONS * noise_std, len(counts) - 1
    return end - _near_end(counts[::-1], end - found[0], threshold), _near_end(counts, found[1], threshold)


def _near_end(counts: Integers, last: int, threshold: float) -> int:
    """The last bin nearby that stands out, alone or together with those between."""
    end = last
    for place in range(last + 1, min(last + 1 + _TAIL_OCTAVES, len(counts))):
        between = counts[end + 1 : place + 1]
        if max(float(counts[place]), float(between.sum()) / math.sqrt(len(between))) / GRID > threshold:
            end = place
    return end


def as_integers(released: NDArray[np.float64]) -> Integers:
    """Counts in grid steps: sums of integers do not depend on their order, and false ones must not overflow either."""
    return np.rint(np.clip(released * GRID, -_MOST_STEPS, _MOST_STEPS)).astype(np.int64)


def running_sums(counts: Integers) -> Integers:
    """Sums of the first 0, 1, ... bins."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _window_widths(n_bins: int) -> list[int]:
    """Powers of two up to a quarter of the bins."""
    return [2**power for power in range(max(1, (n_bins // 4).bit_length()))]


def noise_threshold(n_columns: int, n_bins: int, noise_std: float) -> float:
    """What noise alone exceeds in any window of any column with probability `COARSE_FAILURE` at most (union bound)."""
    n_tests = n_columns * sum(n_bins - width + 1 for width in _window_widths(n_bins))
    # Six digits, so that the last digit of a machine's logarithm makes no difference.
    quantile = float(f"{-NormalDist().inv_cdf(COARSE_FAILURE / n_tests):.6g}")
    return noise_std * quantile
