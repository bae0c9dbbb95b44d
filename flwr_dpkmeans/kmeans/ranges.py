"""The range of each column from two noisy histograms: its order of magnitude first, then the range inside of it.

Both histograms have at most one entry per row and column, so one row moves them by at most sqrt(n_features) in L2 norm,
whatever bins are asked for. What follows from a noisy histogram is computed with integers and single IEEE operations,
so that all clients find the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kmeans.blocks import row_blocks
from flwr_dpkmeans.kmeans.clipping import clip_vector
from flwr_dpkmeans.kmeans.noisy_bins import (
    TAIL_DEVIATIONS,
    Integers,
    as_integers,
    bulk_and_tails,
    noise_threshold,
    outermost,
    running_sums,
    with_near_octaves,
)

Array = NDArray[np.float64]

LEVELS = 60
"""Powers of two on each side of zero, downward from the domain's largest magnitude."""
N_MAGNITUDES = 2 * LEVELS + 1
N_BINS = 16
"""Bins of equal width inside a column's coarse range: more of them hold fewer rows each and leave thinner margins."""
WIDEST = 2.0**40
"""Half the width of a domain that says nothing of the data."""
_NEAR_OCTAVES = 3
_NEGLIGIBLE = 0.05
_GRID = 2.0**16


@dataclass(frozen=True)
class Ranges:
    """One range for each column, in the units of the data.

    Parameters
    ----------
    lower, upper : tuple of float, (n_features,)
        Each lower bound is below its upper bound.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True)
class FoundRanges:
    """Ranges that were read off a noisy histogram.

    Parameters
    ----------
    ranges : Ranges
        For every column.
    unclear : tuple of int
        Columns in whose own histogram nothing stood out of the noise.
    unbounded : tuple of int
        Those of them whose range is the domain although that says nothing of the data.
    """

    ranges: Ranges
    unclear: tuple[int, ...]
    unbounded: tuple[int, ...] = ()


def magnitude_edges(lower: float, upper: float) -> Array:
    """Edges of one column's magnitude bins: powers of two on both sides of zero.

    Parameters
    ----------
    lower, upper : float
        The column's public domain.

    Returns
    -------
    ndarray, (N_MAGNITUDES + 1,)
        Ascending; the outermost ones reach the domain's largest magnitude.

    Examples
    --------
    >>> magnitude_edges(-3.0, 5.0)[[0, 1, -2, -1]].tolist()
    [-8.0, -4.0, 4.0, 8.0]
    """
    mantissa, exponent = math.frexp(max(abs(lower), abs(upper)))
    top = exponent - 1 if mantissa == 0.5 else exponent
    powers = np.ldexp(1.0, np.arange(top - LEVELS, top + 1))
    return np.concatenate([-powers[::-1], powers])


def magnitude_histogram(points: Array, domain: Ranges) -> Array:
    """Count each column's values by sign and power of two.

    Parameters
    ----------
    points : ndarray, (n_points, n_features)
        In the units of the data; values outside the domain are clipped to it.
    domain : Ranges
        Public.

    Returns
    -------
    ndarray, (n_features, N_MAGNITUDES)
        Every row of `points` is in exactly one bin of each column.

    Examples
    --------
    >>> counts = magnitude_histogram(np.array([[3.0], [-0.75], [0.0]]), Ranges((-4.0,), (4.0,)))
    >>> np.flatnonzero(counts).tolist()
    [2, 60, 120]
    """
    counts = np.zeros((points.shape[1], N_MAGNITUDES))
    for column, (low, high) in enumerate(zip(domain.lower, domain.upper, strict=True)):
        edges = magnitude_edges(low, high)
        first, last = _inside(edges, low, high)
        for rows in row_blocks(len(points), 1):
            values = np.clip(points[rows, column], low, high)
            # A magnitude in [2^(e-1), 2^e) has the exponent e, exactly.
            levels = np.clip(np.frexp(values)[1] - (math.frexp(edges[-1])[1] - 1 - LEVELS), 0, LEVELS)
            places = LEVELS + np.where(values < 0.0, -levels, np.where(values > 0.0, levels, 0))
            counts[column] += np.bincount(np.clip(places, first, last), minlength=N_MAGNITUDES)
    return counts


def range_histogram(points: Array, coarse: Ranges) -> Array:
    """Count each column's values in equal bins of its coarse range.

    Parameters
    ----------
    points : ndarray, (n_points, n_features)
        In the units of the data; a value outside the coarse range is in no bin.
    coarse : Ranges
        Released before.

    Returns
    -------
    ndarray, (n_features, N_BINS)

    Examples
    --------
    >>> counts = range_histogram(np.array([[0.0], [63.5], [64.0], [65.0]]), Ranges((0.0,), (64.0,)))
    >>> counts[0, [0, -1]].tolist()
    [1.0, 2.0]
    """
    counts = np.zeros((points.shape[1], N_BINS))
    for column, (low, high) in enumerate(zip(coarse.lower, coarse.upper, strict=True)):
        for rows in row_blocks(len(points), 1):
            values = points[rows, column]
            values = values[(values >= low) & (values <= high)]
            places = np.floor((values - low) / (high - low) * N_BINS).astype(np.int64)
            counts[column] += np.bincount(np.clip(places, 0, N_BINS - 1), minlength=N_BINS)
    return counts


def one_vote(counts: Array) -> Array:
    """Scale a client's histograms down to the norm of a single row's: its privacy is that of one row then.

    Parameters
    ----------
    counts : ndarray, (n_features, n_bins)
        One client's histograms.

    Returns
    -------
    ndarray, (n_features, n_bins)
        On the grid, rounded toward zero; the L2 norm is at most sqrt(n_features). A client of any size keeps that norm:
        a larger bound would need noise as much larger, and let large clients alone profit from it.

    Examples
    --------
    >>> one_vote(np.array([[30.0, 40.0]])).round(3).tolist()
    [[0.6, 0.8]]
    """
    return clip_vector(counts, math.sqrt(len(counts)))


def find_coarse_ranges(released: Array, domain: Ranges, noise_std: float) -> FoundRanges:
    """Read each column's order of magnitude off its noisy magnitude histogram.

    Parameters
    ----------
    released : ndarray, (n_features, N_MAGNITUDES)
        With Gaussian noise, on the grid.
    domain : Ranges
        Public.
    noise_std : float
        Standard deviation of the noise.

    Returns
    -------
    FoundRanges
        Inside the domain, from zero on unless the data are clearly far from it. Columns that do not stand out get what
        all columns together show; if these do not stand out either, the whole domain: a bin that is merely the fullest
        is noise.

    Examples
    --------
    >>> released = np.zeros((1, N_MAGNITUDES))
    >>> released[0, [115, 116, 118]] = 50.0
    >>> find_coarse_ranges(released, Ranges((-1024.0,), (1024.0,)), 1.0).ranges
    Ranges(lower=(16.0,), upper=(256.0,))
    """
    n_columns, n_bins = released.shape
    threshold = noise_threshold(n_columns, n_bins, noise_std)
    counts = _inside_domain(as_integers(released), domain)
    pooled = outermost(counts.sum(axis=0), noise_threshold(1, n_bins, noise_std * math.sqrt(n_columns)))
    lower, upper, unclear, unbounded = [], [], [], []
    for column, (low, high) in enumerate(zip(domain.lower, domain.upper, strict=True)):
        edges = magnitude_edges(low, high)
        first, last = _inside(edges, low, high)
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

    Parameters
    ----------
    released : ndarray, (n_features, N_BINS)
        With Gaussian noise, on the grid.
    coarse : Ranges
        Where the bins lie.
    domain : Ranges
        Public.
    noise_std : float
        Standard deviation of the noise.

    Returns
    -------
    FoundRanges
        Inside the domain, of positive width. A column that does not stand out keeps its coarse range.

    Examples
    --------
    >>> released = np.zeros((1, N_BINS))
    >>> released[0, 3:9] = 50.0
    >>> find_ranges(released, Ranges((0.0,), (16.0,)), Ranges((-1024.0,), (1024.0,)), 1.0).ranges
    Ranges(lower=(2.0,), upper=(10.0,))
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
    near = float(sums[end] - sums[start]) / _GRID + TAIL_DEVIATIONS * noise_std * math.sqrt(end - start)
    if near <= _NEGLIGIBLE * float(sums[last + 1] - sums[first]) / _GRID:
        return found
    return (LEVELS, last) if positive else (first, LEVELS)


def _inside_domain(counts: Integers, domain: Ranges) -> Integers:
    """The counts without noise on bins outside of the domain, which says nothing."""
    kept = np.zeros_like(counts)
    for column, (low, high) in enumerate(zip(domain.lower, domain.upper, strict=True)):
        first, last = _inside(magnitude_edges(low, high), low, high)
        kept[column, first : last + 1] = counts[column, first : last + 1]
    return kept


def _inside(edges: Array, lower: float, upper: float) -> tuple[int, int]:
    """First and last bin that have more than one point in common with the domain."""
    inside = np.flatnonzero((edges[:-1] < upper) & (edges[1:] > lower))
    return int(inside[0]), int(inside[-1])
