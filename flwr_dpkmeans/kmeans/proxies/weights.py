"""Rows of proxies, from their noisy counts."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray, round_to_grid
from flwr_dpkmeans.kernels.vectors import TINY, as_column, as_floats
from flwr_dpkmeans.kmeans.proxies.distances import N_DISTANCES
from flwr_dpkmeans.kmeans.proxies.lone_proxies import LEAST_CLUSTER, heard_among

_FARTHEST_SCORE = 30.0
_SCORE_STEP = 0.125
_SIZE_STEP = 0.125  # octaves
_FARTHEST_STEP = 48
_OCTAVES = np.arange(-6.0, 10.5, 0.5)
_EMPTY_TO_FULL = 2.0**_OCTAVES
_FULL_SHARES = 1.0 / (1.0 + _EMPTY_TO_FULL)
"""Shares of proxies with rows that are looked at: from nearly all to one in a thousand.
"""
_Bins = npt.NDArray[np.int64]


def likely_weights(
    noisy_counts: FloatArray,
    noise: float,
    n: float,
    *,
    least: float,
) -> FloatArray:
    """Posterior means of counts, which may be 0, given their `noise`.

    k-means of them has the least expected cost.

    A proxy has rows with a chance that is learnt from all counts, and then from `least`
    deviations to `n` of them, all octaves alike (``proxy_lloyd.md``, weights). Unless
    all counts together are above `least` deviations of their sum's noise, what is
    likelier empty than not weighs nothing. On the grid.
    """
    scores = np.maximum(noisy_counts / noise, -_FARTHEST_SCORE)
    numbers = np.arange(-_FARTHEST_STEP, _FARTHEST_STEP + 1)
    steps = numbers * _SCORE_STEP
    sizes = scores[:, None] + steps
    # Of the step around a size, only the part from the least size on.
    part_above = (sizes - least) / _SCORE_STEP + 0.5
    part_above = np.clip(part_above, 0.0, 1.0)
    chances = np.exp(-0.5 * steps**2) * part_above
    densities = chances / np.maximum(sizes, least)
    density = densities.sum(axis=1)
    largest = n / (least * noise)
    octaves = math.log(max(largest, 2.0))
    full = density * (_SCORE_STEP / octaves)
    empty = np.exp(-0.5 * scores**2)
    has_rows = _chances_of_rows(full, empty)
    n_proxies = len(noisy_counts)
    least_total = least * noise * math.sqrt(n_proxies)
    if math.fsum(noisy_counts) <= least_total:
        is_likely = has_rows > 0.5
        has_rows = np.where(is_likely, has_rows, 0.0)
    chance = chances.sum(axis=1)
    at_least = np.maximum(density, TINY)
    return round_to_grid(has_rows * noise * chance / at_least)


def _chances_of_rows(
    full: FloatArray,
    empty: FloatArray,
) -> FloatArray:
    """Chance of each proxy, (n_proxies,), to have rows at all.

    From the likelihoods of its count with rows and without any, averaged over the
    share of proxies that have rows, by how well it explains all counts.
    """
    # (n_proxies, n_shares)
    with_rows = as_column(full) * _FULL_SHARES
    empty_shares = 1.0 - _FULL_SHARES
    likelihoods = as_column(empty) * empty_shares + with_rows
    prior = np.log(_FULL_SHARES * empty_shares)
    logs = np.log(likelihoods)
    evidence = logs.sum(axis=0) + prior
    averaging = np.exp(evidence - evidence.max())
    averaging = averaging / averaging.sum()
    chances = with_rows / likelihoods
    return as_floats(chances @ averaging)


def unheard_rows(
    bins: _Bins,
    counts: FloatArray,
    weights: FloatArray,
    noise: float,
    histogram: tuple[FloatArray, FloatArray],
    n: float,
) -> FloatArray:
    """Rows of proxies (n_proxies,) that are too few to be heard at any of them.

    But are heard far away all together.

    `bins` are the proxies' by distance, `counts` with their `noise` what was released,
    `weights` what was made of them. Of all `n` rows those in a bin and beyond are
    estimated by the `histogram` and its noise, (N_DISTANCES,), by the proxies there,
    and by what the others leave; what noise makes in any bin is none
    (``proxy_lloyd.md``). On the grid.
    """

    def beyond(values: FloatArray) -> FloatArray:
        # Rows at a bin's edge may be those of a proxy in the next one.
        in_bins = np.bincount(bins, values, N_DISTANCES)
        sums = np.cumsum(in_bins)
        last = sums[-1]
        return np.append(sums[1:], last)

    rows, rows_noise = histogram
    n_proxies = len(bins)
    weight_beyond = beyond(weights)
    count_beyond = beyond(counts)
    n_beyond = beyond(np.ones(n_proxies))
    # Three estimates of the rows in a bin and beyond: by the histogram, by the proxies
    # there, and by what the others leave of all rows.
    by_histogram = np.cumsum(rows)
    of_others = counts.sum() - count_beyond
    by_others = n - of_others
    estimates = np.stack([by_histogram, count_beyond, by_others])
    n_others = n_proxies - n_beyond
    n_proxies_each = np.maximum([n_beyond, n_others], 0.5)
    variances = np.vstack(
        [
            np.cumsum(rows_noise**2),
            noise**2 * n_proxies_each,
        ]
    )
    precisions = 1.0 / variances
    total = np.average(estimates, 0, precisions)
    precision = precisions.sum(axis=0)
    least = heard_among(N_DISTANCES) / np.sqrt(precision)
    missing = total - weight_beyond
    half = 0.5 * total
    is_more = missing > np.maximum(half, least)
    is_more &= total < 0.5 * n
    is_more &= n_beyond > 0.0
    standing_out = np.flatnonzero(is_more)
    if not len(standing_out):
        return np.zeros(n_proxies)
    nearest = standing_out[-1]
    n_here = np.bincount(bins, minlength=N_DISTANCES)
    may_lack = np.arange(N_DISTANCES) <= nearest
    may_lack &= n_here > 0
    weight_here = np.bincount(bins, weights, N_DISTANCES)
    surplus = rows - weight_here
    lacking = may_lack * np.maximum(surplus, 0.0)
    total_lacking = float(lacking.sum())
    share = missing[nearest] / max(total_lacking, 1.0)
    of_each = lacking * share / np.maximum(n_here, 1)
    return round_to_grid(of_each[bins])


def expected_rows(
    noisy_counts: FloatArray,
    noise: float,
    n: float,
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of counts (k,), and their chances of being 0.

    Before, they are 0 or, as likely, of any size from `LEAST_CLUSTER` to n, all octaves
    alike.
    """
    most = max(n, LEAST_CLUSTER)
    octaves = np.arange(
        math.log2(LEAST_CLUSTER),
        math.log2(most) + _SIZE_STEP / 2.0,
        _SIZE_STEP,
    )
    sizes = 2.0**octaves
    none_and_sizes = np.concatenate([[0.0], sizes])
    # (k, 1 + n_sizes): log likelihoods of none and of each size.
    scores = (as_column(noisy_counts) - none_and_sizes) / noise
    logs = -0.5 * np.square(scores)
    largest = logs.max(axis=1, keepdims=True)
    chances = np.exp(logs - largest)
    chances[:, 0] *= len(sizes)
    totals = chances.sum(axis=1, keepdims=True)
    chances /= totals
    weighted = chances[:, 1:] * sizes
    expected = weighted.sum(axis=1)
    of_none = chances[:, 0]
    return as_floats(expected), of_none
