"""A safe range for each column from two noisy histograms.

Its order of magnitude first, then its place in that range.

Both histograms have at most one entry per row and column, so one row moves them by at
most sqrt(n_features) in L2 norm, whatever bins are asked for. What follows from a noisy
histogram is computed with integers and single IEEE operations, so that all clients find
the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    unheard: tuple[int, ...]
    """Columns in which nothing stood out of the noise: their range is the domain."""
    zero: tuple[int, ...]
    """Columns of which only zeros were heard: their range is next to zero."""


def magnitude_edges(lower: float, upper: float) -> Array:
    """Edges (N_MAGNITUDES + 1,) of one column's magnitude bins, ascending.

    Powers of two on both sides of zero.
    """
    mantissa, exponent = math.frexp(max(abs(lower), abs(upper)))
    top = exponent - 1 if mantissa == 0.5 else exponent
    powers = np.ldexp(1.0, np.arange(top - LEVELS, top + 1))
    return np.concatenate([-powers[::-1], powers])


def _columns_of(domain: Ranges) -> Iterator[tuple[float, float, Array, int, int]]:
    """For each column: its range, its edges, and the first and last bin with more than
    a point of the domain in it.
    """
    for low, high in zip(*domain, strict=True):
        edges = magnitude_edges(low, high)
        inside = np.flatnonzero((edges[:-1] < high) & (edges[1:] > low))
        yield low, high, edges, int(inside[0]), int(inside[-1])


def magnitude_histogram(points: Array, domain: Ranges) -> Array:
    """Count each column's values, clipped to the public domain, by sign and power of
    two: (d, N_MAGNITUDES).

    Every row of `points` is in exactly one bin of each column.
    """
    counts = np.zeros((points.shape[1], N_MAGNITUDES))
    for column, (low, high, edges, first, last) in enumerate(_columns_of(domain)):
        for rows in row_blocks(len(points), 1):
            values = np.clip(points[rows, column], low, high)
            # A magnitude in [2^(e-1), 2^e) has the exponent e, exactly.
            levels = np.clip(
                np.frexp(values)[1] - (math.frexp(edges[-1])[1] - 1 - LEVELS), 0, LEVELS
            )
            places = LEVELS + np.where(
                values < 0.0, -levels, np.where(values > 0.0, levels, 0)
            )
            counts[column] += np.bincount(
                np.clip(places, first, last), minlength=N_MAGNITUDES
            )
    return counts


def range_histogram(points: Array, coarse: Ranges) -> Array:
    """Count each column's values in equal bins of its released coarse range, (d,
    N_BINS); those outside at its ends.
    """
    counts = np.zeros((points.shape[1], N_BINS))
    for column, (low, high) in enumerate(zip(*coarse, strict=True)):
        for rows in row_blocks(len(points), 1):
            values = np.clip(points[rows, column], low, high)
            places = np.floor((values - low) / (high - low) * N_BINS).astype(np.int64)
            counts[column] += np.bincount(
                np.clip(places, 0, N_BINS - 1), minlength=N_BINS
            )
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
    released: Array, domain: Ranges, noise_std: float, n_rows: int | None = None
) -> CoarseRanges:
    """Read each column's order of magnitude off its noisy magnitude histogram, given
    the Gaussian noise's deviation.

    Ranges are twice as wide as what was heard, but inside the domain. A column that
    does not stand out by itself is looked for where the columns together are fullest;
    else it has the whole domain: its own fullest bin may be noise. Where `n_rows` is
    known, nothing is heard in windows so wide that all rows together would hardly stand
    out.
    """
    threshold = noise_threshold(len(released), noise_std)
    widest = N_MAGNITUDES
    if n_rows is not None:
        widest = int(
            min(
                widest,
                (n_rows / max(threshold - LUCKY_DEVIATIONS * noise_std, 1e-9)) ** 2,
            )
        )
    counts, columns = as_integers(released), list(_columns_of(domain))
    # Bins outside of the domain hold noise alone.
    for column, (_, _, _, first, last) in enumerate(columns):
        counts[column, :first] = counts[column, last + 1 :] = 0
    shared = _shared_window(
        counts, noise_threshold(1, noise_std * math.sqrt(len(released)))
    )
    lower, upper, unheard, zero = [], [], [], []
    for column, (low, high, edges, _, _) in enumerate(columns):
        found = _heard(counts[column], threshold, widest)
        if found in (None, ZERO) and shared is not None:
            found = _heard_where_others_are(counts[column], shared, found, noise_std)
        start, end = low, high
        if found is None:
            unheard.append(column)
        else:
            if found == ZERO:
                zero.append(column)
            start, end = float(edges[found[0]]), float(edges[found[1] + 1])
            margin = WIDENING * (end - start)
            start, end = max(start - margin, low), min(end + margin, high)
        # Powers of two below the smallest number leave no width.
        lower.append(start if start < end else low)
        upper.append(end if start < end else high)
    return CoarseRanges((tuple(lower), tuple(upper)), tuple(unheard), tuple(zero))


def find_ranges(
    released: Array, coarse: Ranges, noise_std: float, domain: Ranges
) -> Ranges:
    """Move in on each column's values, and a bin farther on both sides, where its noisy
    histogram shows nearly all.

    A column that does not stand out keeps its coarse range. Where values seem to lie
    between that and 0, or around 0, of whose many magnitudes none was heard, the range
    reaches as far on the other side of 0.
    """
    lower, upper = [], []
    for counts, low, high, first, last in zip(
        as_integers(released), *coarse, *domain, strict=True
    ):
        below, above = counts[[0, -1]] > max(
            BEYOND_DEVIATIONS * noise_std * GRID, MOST_BEYOND * float(counts.sum())
        )
        if (below and low > 0.0) or (above and high < 0.0):
            # The end of what was heard, before it was widened.
            nearest = min(abs(low), abs(high)) + (high - low) * WIDENING / (
                1.0 + 2.0 * WIDENING
            )
            low, high = (
                (max(first, -nearest), high) if low > 0.0 else (low, min(last, nearest))
            )
        elif (found := bulk_and_tails(counts, noise_std)) is not None and _holds_most(
            counts, found, noise_std
        ):
            start = low + (high - low) * (max(found[0] - 1, 0) / N_BINS)
            end = low + (high - low) * (min(found[1] + 2, N_BINS) / N_BINS)
            # Bins narrower than the last digit of their place would leave no width.
            low, high = (start, end) if start < end else (low, high)
        lower.append(float(low))
        upper.append(float(high))
    return tuple(lower), tuple(upper)


# -- what stands out of the noise in a histogram ---------------------------------------


def _heard(counts: Integers, threshold: float, widest: int) -> Window | None:
    """Magnitude bins that stand out, on one side of zero or, where the other side is
    much alike, on both.
    """
    found = outermost(counts, threshold, widest)
    if found is None:
        folded = (counts + counts[::-1])[LEVELS + 1 :]
        both = outermost(folded, threshold * math.sqrt(2.0), widest // 2)
        return None if both is None else (LEVELS - 1 - both[1], LEVELS + 1 + both[1])
    if found[0] <= LEVELS <= found[1]:
        return found
    inside = slice(found[0], found[1] + 1)
    if float(counts[::-1][inside].sum()) <= MIRRORED * float(counts[inside].sum()):
        return found
    farthest = max(abs(end - LEVELS) for end in found)
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


def _heard_where_others_are(
    counts: Integers, shared: Window, found: Window | None, noise_std: float
) -> Window | None:
    """The columns' shared window, from zero on if that was heard, if a column stands
    out there; else what was found.

    Zeros fit into any range: of a column that was not heard they count as well.
    """
    places = np.arange(shared[0], shared[1] + 1)
    if found is None:
        places = np.union1d(places, LEVELS)
    if float(counts[places].sum()) / GRID <= SHARED_DEVIATIONS * noise_std * math.sqrt(
        len(places)
    ):
        return found
    return shared if found is None else (min(shared[0], LEVELS), max(shared[1], LEVELS))


def _fullest(counts: Integers, width: int) -> Window:
    sums = running_sums(counts)
    start = int(np.argmax(sums[width:] - sums[:-width]))
    return start, start + width - 1


def _deviations(counts: Integers, window: Window, noise_std: float) -> float:
    """A window's count, in deviations of its noise."""
    first, last = window
    return (
        float(counts[first : last + 1].sum())
        / GRID
        / (noise_std * math.sqrt(last + 1 - first))
    )


def _holds_most(counts: Integers, found: Window, noise_std: float) -> bool:
    """Whether few rows can be outside of the found bins, by what was counted there and
    the deviation of its noise.
    """
    inside = int(counts[found[0] : found[1] + 1].sum())
    noise = noise_std * math.sqrt(len(counts) - (found[1] + 1 - found[0]))
    return (
        float(counts.sum() - inside) / GRID + noise
        <= MOST_OUTSIDE * float(inside) / GRID
    )


def outermost(
    counts: Integers, threshold: float, widest: int = N_MAGNITUDES
) -> Window | None:
    """First and last bin of what stands out of the noise in counts of grid steps of
    2^-16; None if nothing does.

    Narrow windows come first, also where a wider one stands out more: a tight range
    costs less than rows clipped to it.
    """
    for width in _window_widths(len(counts), widest):
        found = _fullest(counts, width)
        if _deviations(counts, found, threshold) > 1.0:
            return _with_tails(counts, found, threshold, widest)
    return None


def bulk_and_tails(counts: Integers, noise_std: float) -> Window | None:
    """First and last bin of the data: the window that stands out most, and what stands
    out beside it.

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
    counts: Integers, found: Window, threshold: float, widest: int = N_MAGNITUDES
) -> Window:
    """Reach out to the outermost windows beside the found bins that exceed the
    threshold, narrow ones first.

    Windows of w bins must exceed sqrt(w) times as much: a thin tail stands out as a
    whole, and a full bin does not draw its empty neighbours in.
    """
    sums = running_sums(counts)
    for width in _window_widths(len(counts), widest):
        starts = np.flatnonzero(
            (sums[width:] - sums[:-width]) / GRID > threshold * math.sqrt(width)
        )
        before, after = starts[starts + width <= found[0]], starts[starts > found[1]]
        found = (
            int(before[0]) if before.size else found[0],
            int(after[-1]) + width - 1 if after.size else found[1],
        )
    return found


def as_integers(released: NDArray[np.float64]) -> Integers:
    """Counts in grid steps: sums of integers do not depend on their order, and false
    ones must not overflow either.
    """
    return np.rint(np.clip(released * GRID, -_MOST_STEPS, _MOST_STEPS)).astype(np.int64)


def running_sums(counts: Integers) -> Integers:
    """Sums of the first 0, 1, ... bins."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _window_widths(n_bins: int, widest: int = N_MAGNITUDES) -> list[int]:
    """Powers of two up to a quarter of the bins, and up to the widest."""
    return [
        2**power
        for power in range(max(1, (n_bins // 4).bit_length()))
        if 2**power <= widest
    ]


def noise_threshold(n_columns: int, noise_std: float) -> float:
    """What noise alone exceeds in any window of magnitudes of one sign with probability
    `COARSE_FAILURE` at most.
    """
    n_tests = n_columns * sum(
        N_MAGNITUDES - width + 1 for width in _window_widths(N_MAGNITUDES)
    )
    return noise_std * exceeded_among(n_tests, COARSE_FAILURE)


def exceeded_among(n_tests: int, chance: float) -> float:
    """Deviations that noise exceeds in any of so many counts with this chance at most,
    by a union bound.
    """
    # Six digits, so that the last digit of a machine's logarithm makes no difference.
    return float(f"{-NormalDist().inv_cdf(chance / n_tests):.6g}")
