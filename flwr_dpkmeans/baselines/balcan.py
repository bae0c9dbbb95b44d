"""Central differentially private k-means by noisy trees and local search.

Balcan et al. 2017 (ICML), as a baseline.

Rows are projected; the centres of the full cells of trees, each cell cut into halves
along every axis, are candidates; swaps of candidates, drawn by the exponential
mechanism, lower the cost; noisy averages are the centroids.

The authors' MATLAB code (github.com/mouwenlong/dp-clustering-icml17) is not as private
as it says. Mended here are three faults that the PE-means repository lists: Lloyd's
steps at the end are not paid for; the exponential mechanism takes half of the
sensitivity that its proof needs; noise of averages leaves out a factor of 2 sqrt(d).
One that Nguyen, Chaturvedi and Xu 2021 name: sums are divided by exact counts. And four
more: there are three trees at the price of two; the radius grows with the exact rows;
rows are not bounded after their projection, where the search's sensitivity is that of
the bound; an empty cell is never cut, while one with a single row may be.

What differs from the paper besides, and why: averages have Gaussian noise and one Lloyd
step follows, as in the comparison of Nguyen, Chaturvedi and Xu 2021; `n_levels` levels
instead of log(n), since deep ones keep no cells.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.cover_budget import (
    CentralLine,
    average_sizes,
    gaussian_lines,
    price_releases,
)
from flwr_dpkmeans.baselines.cover_points import Draws, Table
from flwr_dpkmeans.baselines.noisy_averages import MaxCoverResult, average_twice
from flwr_dpkmeans.baselines.pooled import FloatArray
from flwr_dpkmeans.baselines.selection import (
    SELECTION_SLACK,
    CoverageSampler,
    byte_source,
)
from flwr_dpkmeans.errors import require_delta, require_positive
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.privacy.closeness import Closeness
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, PureRelease, Sensitivity

_Integers = npt.NDArray[np.int64]

N_TREES = 3
_MOST_SWAPS = 20
# Parts of epsilon, and of what is left of it as squared GDP parameters, which add up to
# 1.
_PURE = {"cell counts": 0.5, "local search": 0.1}
_WEIGHTS = {
    "average sums": 0.45,
    "average counts": 0.05,
    "Lloyd sums": 0.45,
    "Lloyd counts": 0.05,
}
_COST_BITS = 20
_STEPS = 4
"""Scores are costs in steps of a fourth of the largest squared distance."""


def balcan(
    points: npt.ArrayLike,
    n_clusters: int,
    *,
    epsilon: float,
    delta: float,
    draws: Draws,
    n_examples: int | None = None,
    n_components: int | None = None,
    n_levels: int = 7,
) -> MaxCoverResult:
    """Cluster points in one place by noisy trees, local search and two noisy averages.

    Points are (n_points, n_features).

    Arguments are those of `max_cover`; `n_levels` is that of the trees, whose finest
    cells have 2^-n_levels of the side. Each of `_PURE`'s shares is a pure release, so
    that all cost at most `epsilon` at `delta`.

    Source: Balcan, Dick, Liang, Mou and Zhang 2017, "Differentially private clustering
    in high-dimensional Euclidean spaces".

    Examples
    --------
    >>> from flwr_dpkmeans.baselines.cover_points import Draws
    >>> from flwr_dpkmeans.privacy.noise import SeededNoise
    >>> generator = np.random.default_rng(0)
    >>> points = np.repeat([[-0.75], [0.5]], 5000, axis=0)
    >>> result = balcan(
    ...     points,
    ...     2,
    ...     epsilon=1.0,
    ...     delta=1e-6,
    ...     draws=Draws(SeededNoise(generator), generator),
    ... )
    >>> np.sort(result.centroids[:, 0]).round(1).tolist()
    [-0.8, 0.5]
    """
    table = Table.of(
        points,
        n_clusters,
        n_examples,
        n_components,
        draws.generator,
    )
    lines = draft_search(
        epsilon,
        delta,
        radius=table.radius,
        n_clusters=n_clusters,
        n_features=table.points.shape[1],
        n_levels=n_levels,
    )
    clipped, projected = table.clipped_and_projected(draws.generator)
    cells, search = lines[:2]
    # Before anything is released, since it refuses what is too slow.
    sampler = CoverageSampler(
        1.0 / search.noise_scale, byte_source(draws.source, draws.generator)
    )
    shifts = round_to_grid(
        draws.generator.uniform(-1.0, 1.0, (N_TREES, table.n_components))
    )
    centres_by_tree = [
        tree_centres(
            projected,
            n_levels,
            cells.noise_scale,
            table.n_examples,
            shift,
            draws.source,
        )
        for shift in shifts
    ]
    # Fewer than clusters are filled up by uniform points.
    n_centres = sum(map(len, centres_by_tree))
    n_missing = max(0, n_clusters - n_centres)
    uniform = draws.generator.uniform(-1.0, 1.0, (n_missing, table.n_components))
    centres = np.concatenate([*centres_by_tree, uniform])
    candidates = round_to_grid(np.clip(centres, -1.0, 1.0))
    start = draws.generator.choice(len(candidates), n_clusters, replace=False)
    chosen = local_search(
        exact_distances(projected, candidates),
        start,
        table.n_components,
        sampler,
    )
    return average_twice(
        clipped,
        projected,
        candidates[chosen],
        lines,
        draws.source,
    )


def draft_search(
    epsilon: float,
    delta: float,
    *,
    radius: float,
    n_clusters: int,
    n_features: int,
    n_levels: int,
) -> tuple[CentralLine, ...]:
    """What is released and at which noise, from public numbers alone.

    All lines cost at most epsilon at delta.

    **Trees.** One row adds 1 to one cell's count on each of `n_levels` levels of each
    of `N_TREES` trees (whether a cell is looked at depends on earlier levels' noisy
    counts alone): L1, ``N_TREES n_levels``.

    **Search.** Candidates are drawn with probability proportional to ``exp(-score /
    scale)``, where a score is the integer part of a cost over a fourth of the largest
    squared distance. One more row raises every cost by between 0 and that distance,
    hence every score by between 0 and 4: the weight of each falls by a factor from
    exp(-4 / scale) to 1, and so does their sum; a draw is (4 / scale)-DP. A factor of 2
    is not needed, since all scores rise. Draws are as many as swaps, and one more.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    n_draws = _n_swaps(n_clusters) + 1
    (cells, search), noisy = price_releases(
        epsilon,
        delta,
        pure=_PURE,
        weights=_WEIGHTS,
        sizes=average_sizes(n_clusters, n_features),
        slack=Closeness(additive=n_draws * SELECTION_SLACK),
    )
    counts = Sensitivity(
        Norm.L1,
        float(N_TREES * n_levels),
        PrivacyUnit.RECORD,
        "S32: one row is in one cell of each level of each tree",
    )
    scores = Sensitivity(
        Norm.L1,
        float(_STEPS * n_draws),
        PrivacyUnit.RECORD,
        "S33: one row moves all scores of a draw one way",
    )
    return (
        _pure_line(
            cells,
            counts,
            "laplace",
            "Laplace mechanism",
            "M2",
        ),
        _pure_line(
            search,
            scores,
            "exponential mechanism",
            "exponential mechanism",
            "M6",
        ),
        *gaussian_lines(noisy, radius),
    )


def _pure_line(
    event: PureRelease,
    sensitivity: Sensitivity,
    noise: str,
    mechanism: str,
    proof: str,
) -> CentralLine:
    """What is told of a pure release, whose scale is never below the priced one.

    Or a whole number's step.
    """
    row, bound = sensitivity.proof
    scale = max(1.0, math.nextafter(sensitivity.bound / event.epsilon, math.inf))
    return CentralLine(
        event,
        sensitivity.bound,
        scale,
        f"{mechanism}: {bound} [{row}, {proof}].",
        noise,
    )


def _n_swaps(n_clusters: int) -> int:
    return min(n_clusters, _MOST_SWAPS)


def tree_centres(
    points: FloatArray,
    n_levels: int,
    scale: float,
    n_examples: int,
    shift: FloatArray,
    source: NoiseSource,
) -> FloatArray:
    """Centres of one tree's root and full cells, (n, m).

    The root of side 4 around the box moved by the shift, (m,).

    All 2^m cells that a full cell is cut into are counted with Laplace noise, empty
    ones too; those above the paper's 2 log(n) scales are full.
    """
    n_components = points.shape[1]
    corners = np.array(
        list(itertools.product((0, 1), repeat=n_components)), dtype=np.int64
    )
    bits = 1 << np.arange(
        n_components - 1,
        -1,
        -1,
        dtype=np.int64,
    )
    places = np.floor((points + shift + 2.0) * 2.0 ** (n_levels - 2)).astype(np.int64)
    full = np.zeros((1, n_components), dtype=np.int64)
    owner = np.zeros(len(points), dtype=np.int64)
    centres = [-shift[None]]
    for level in range(1, n_levels + 1):
        # The digit of every coordinate says which half of the cell a point is in.
        halves = ((places >> (n_levels - level)) & 1) @ bits
        inside = owner >= 0
        child = owner * len(corners) + halves
        counts = np.bincount(child[inside], minlength=len(full) * len(corners))
        noisy_counts = counts + source.discrete_laplace(scale, len(counts))
        is_full = noisy_counts > 2.0 * math.log(n_examples) * scale
        indices = np.cumsum(is_full) - 1
        owner = np.where(inside & is_full[child], indices[child], -1)
        children = (2 * full[:, None] + corners).reshape(-1, n_components)
        full = children[is_full]
        if not len(full):
            break
        width = 2.0 ** (2 - level)
        centres.append((full + 0.5) * width - 2.0 - shift)
    return np.asarray(np.concatenate(centres), dtype=np.float64)


def exact_distances(points: FloatArray, candidates: FloatArray) -> FloatArray:
    """Squared distances, (n, m), in whole steps of 2^-20, rounded down.

    Each one a function of its own row alone.

    Points and candidates are in [-1, 1]^p on the 2^-16 grid. So products are exact in
    any order, as are sums of these integers over fewer than 2^28 rows.
    """
    squares = np.square(points).sum(axis=1)[:, None] + np.square(candidates).sum(axis=1)
    return np.asarray(
        np.floor((squares - 2.0 * (points @ candidates.T)) * 2.0**_COST_BITS)
    )


def local_search(
    distances: FloatArray,
    start: _Integers,
    n_components: int,
    sampler: CoverageSampler,
) -> _Integers:
    """Columns, (k,), that the exponential mechanism swaps in, from a start.

    And of all states one that it draws.

    Each of as many draws as there are swaps, and of one more, is paid for by
    `draft_search`.
    """
    chosen, states, costs = start.copy(), [], []
    for _ in range(_n_swaps(len(start))):
        swapped = swap_costs(distances, chosen)
        place, candidate = divmod(
            draw(scores(swapped.ravel(), n_components), sampler), distances.shape[1]
        )
        chosen[place] = candidate
        states.append(chosen.copy())
        costs.append(swapped[place, candidate])
    return states[draw(scores(np.array(costs), n_components), sampler)]


def scores(costs: _Integers, n_components: int) -> _Integers:
    """Costs over a fourth of the largest squared distance, rounded down.

    That distance is 4 p in the box [-1, 1]^p.
    """
    return costs // (n_components << _COST_BITS)


def swap_costs(distances: FloatArray, chosen: _Integers) -> _Integers:
    """Costs, (k, m), of the chosen columns with one of them replaced.

    By row the one that is replaced, by column the one that replaces it.
    """
    to_chosen = distances[:, chosen]
    labels = to_chosen.argmin(axis=1)
    rows = np.arange(len(to_chosen))
    nearest = to_chosen[rows, labels]
    to_chosen[rows, labels] = np.inf
    second = to_chosen.min(axis=1)
    with_all = np.minimum(distances, nearest[:, None])
    # Rows of the replaced column fall back to their second nearest.
    lost = np.minimum(distances, second[:, None]) - with_all
    lost_by_column = sum_by_label(lost, labels, len(chosen))
    return np.asarray(with_all.sum(axis=0) + lost_by_column, dtype=np.int64)


def draw(scores: _Integers, sampler: CoverageSampler) -> int:
    """An index, drawn with probability proportional to ``exp(-rate score)``."""
    # The sampler wants large numbers to be likely, and counts those at 0 apart.
    likely = scores.max() - scores + 1
    drawn = sampler.draw_coverage(np.bincount(likely), 0)
    members = np.flatnonzero(likely == drawn)
    return int(members[sampler.below(len(members))])
