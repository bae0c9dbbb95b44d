"""What stands out of the noise in a histogram: first and last bin of the data, from noisy counts.

Everything is computed with integers and single IEEE operations, so that all machines find the same bins.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

COARSE_FAILURE = 1e-3
"""Probability that noise alone widens any coarse range, possibly to the whole domain: that would spoil the run."""
BULK_DEVIATIONS = 5.5
"""Deviations of the noise that the bulk of a column must stand out by; otherwise its coarse range is kept."""
TAIL_DEVIATIONS = 2.5
"""Likewise what is beside the bulk: noise alone widens a range at most to the coarse one, and that costs little."""
OCTAVE_DEVIATIONS = 3.5
"""Likewise, in the magnitude histogram, what lies a few octaves beside what was found."""
_TAIL_OCTAVES = 4
_GRID = 2.0**16
_MOST_STEPS = 2.0**46


def outermost(counts: Integers, threshold: float) -> tuple[int, int] | None:
    """First and last bin of what stands out of the noise; None if nothing does.

    Single bins are looked at first, then sums of two, four, ... neighbours that lie outside of what was found: a thin
    tail stands out as a whole, and a full bin does not draw its empty neighbours in.

    Parameters
    ----------
    counts : ndarray of int, (n_bins,)
        Noisy counts in grid steps of 2^-16.
    threshold : float
        That a single bin must exceed; w bins together must exceed sqrt(w) times as much.

    Returns
    -------
    tuple of int or None

    Examples
    --------
    >>> outermost(np.array([0, 0, 9, 0, 4, 4, 0, 0]) * 2**16, 5.0)
    (2, 5)
    >>> outermost(np.array([1, 0, 1]) * 2**16, 5.0) is None
    True
    """
    sums = running_sums(counts)
    for width in _window_widths(len(counts)):
        windows = sums[width:] - sums[:-width]
        fullest = int(np.argmax(windows))
        if windows[fullest] / _GRID > threshold * math.sqrt(width):
            return _with_tails(sums, (fullest, fullest + width - 1), threshold)
    return None


def bulk_and_tails(counts: Integers, noise_std: float) -> tuple[int, int] | None:
    """First and last bin of the data: the window that stands out most, and what stands out beside it.

    The window maximises its sum over the root of its width, the likelihood of equally full bins among empty ones; so
    the bulk is found as a whole even where no single bin stands out.

    Parameters
    ----------
    counts : ndarray of int, (n_bins,)
        Noisy counts in grid steps of 2^-16.
    noise_std : float
        Standard deviation of the noise.

    Returns
    -------
    tuple of int or None
        None if the window does not stand out by `BULK_DEVIATIONS`.

    Examples
    --------
    >>> bulk_and_tails(np.array([0, 0, 3, 3, 3, 3, 0, 0]) * 2**16, 1.0)
    (2, 5)
    >>> bulk_and_tails(np.array([0, 0, 3, 0, 0, 0, 0, 0]) * 2**16, 1.0) is None
    True
    """
    sums = running_sums(counts)
    best, bulk = BULK_DEVIATIONS * noise_std, None
    for width in range(1, len(counts) + 1):
        windows = sums[width:] - sums[:-width]
        start = int(np.argmax(windows))
        deviation = float(windows[start] / _GRID / math.sqrt(width))
        if deviation > best:
            best, bulk = deviation, (start, start + width - 1)
    return None if bulk is None else _with_tails(sums, bulk, TAIL_DEVIATIONS * noise_std)


def _with_tails(sums: Integers, found: tuple[int, int], threshold: float) -> tuple[int, int]:
    """Reach out to the outermost windows beside the found bins that exceed the threshold, narrow ones first."""
    for width in _window_widths(len(sums) - 1):
        starts = np.flatnonzero((sums[width:] - sums[:-width]) / _GRID > threshold * math.sqrt(width))
        first, last = found
        before, after = starts[starts + width <= first], starts[starts > last]
        found = (
            int(before[0]) if before.size else first,
            int(after[-1]) + width - 1 if after.size else last,
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
        if max(float(counts[place]), float(between.sum()) / math.sqrt(len(between))) / _GRID > threshold:
            end = place
    return end


def as_integers(released: NDArray[np.float64]) -> Integers:
    """Counts in grid steps: sums of integers do not depend on their order, and false ones must not overflow either."""
    return np.rint(np.clip(released * _GRID, -_MOST_STEPS, _MOST_STEPS)).astype(np.int64)


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
