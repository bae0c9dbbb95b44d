"""What FastLloyd, GLloyd, SuLloyd and Lloyd have in common: public parameters, iteration counts, sphere packing.

And what a state that a server sent must be like, so that a client's search for nearest centres is exact. On the grid
and inside these ranges all sums are exact: each row's label is then a function of that row alone, to the last bit. The
statistics' bounds themselves hold for every state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kmeans.assignment import is_on_grid
from flwr_dpkmeans.kmeans.sphere_packing import PackingMethod, sphere_packing
from flwr_dpkmeans.kmeans.statistics import absolute_statistics
from flwr_dpkmeans.kmeans.update import PostProcessing, absolute_update
from flwr_dpkmeans.privacy.discreteness import Closeness, discrete_gaussian_closeness, joint_closeness
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.round import Array, InitialState, State
from flwr_dpkmeans.sums.settings import Options, choice, whole
from flwr_dpkmeans.sums.task import Known, Run

_STRETCH = 1.01
"""Largest length of a projection's column: 1, and room for rounding."""
_LARGEST_COUNT = 2.0**47


def cluster_state(
    centroids: Array, counts: Array, movements: tuple[float, ...] = (), extras: Mapping[str, Array] | None = None
) -> State:
    """The state of a clustering: centroids, (k, d) on the grid in [-1, 1]^d, and noisy counts of the last release,
    (k,).

    Both are zeros before there are any. `movements` are the largest steps of a centroid so far; `extras` what an
    algorithm's own steps carry on, such as a projection: on the grid, of one or two dimensions.
    """
    return State({"centroids": centroids, "counts": counts, **(extras or {})}, movements)


def has_exact_centroids(state: State) -> bool:
    """Whether the centroids are on the grid, in the box, and the counts small enough for it."""
    inside = np.abs(state.centroids).max(initial=0.0) <= 1.0 and np.abs(state.counts).max(initial=0.0) <= _LARGEST_COUNT
    return bool(inside) and is_on_grid(state.centroids)


def is_projection(array: Array) -> bool:
    """Whether the columns of a table are on the grid and do not stretch."""
    return is_on_grid(array) and bool(np.square(array).sum(axis=0).max(initial=0.0) <= _STRETCH**2)


def is_near(array: Array, n_features: int) -> bool:
    """Whether points are on the grid and no farther from the origin than points of the box can be from a centre."""
    # At most 2 sqrt(d) from a centre in the box.
    farthest = (2.0 * _STRETCH) ** 2 * n_features
    return is_on_grid(array) and bool(np.square(array).sum(axis=-1).max(initial=0.0) <= farthest)


def is_cost_curve(array: Array, most_clusters: int) -> bool:
    """Whether an array has one entry for each number of clusters that the run chose from, on the grid."""
    return array.shape == (most_clusters,) and is_on_grid(array)


def is_table(array: Array, most_rows: int, width: int) -> bool:
    """Whether an array has 1 to `most_rows` rows of the width."""
    return array.ndim == 2 and 1 <= len(array) <= most_rows and array.shape[1] == width


MIN_ITERATIONS = 2
MAX_ITERATIONS = 7
ERROR_TARGET = 0.004
"""Mean squared error per iteration that the number of iterations aims at (Su et al. 2016)."""
MOST_PACKING_WORK = 10**9
"""Largest k^2 d of a sphere packing, half a minute or so: a plan comes from a server that may be hostile."""
RHO = 0.225
"""Su et al.'s estimate of a normalised centroid coordinate, used by SuLloyd and GLloyd."""


@dataclass(frozen=True)
class PackedOptions(Options):
    """What all algorithms that start from a sphere packing have."""

    max_iter: int | None = whole(None, 0, 5, "number of iterations; automatic: the paper's estimate", most=1_000)
    packing: PackingMethod = choice(PackingMethod, PackingMethod.BISECT, "search of the sphere packing")
    post_processing: PostProcessing | None = choice(
        PostProcessing, None, "what happens to centroids that leave the box; automatic: the algorithm's own"
    )


def counts_sensitivity(norm: Norm = Norm.L2) -> Sensitivity:
    """Say how far one row moves the counts of clusters, in either norm."""
    return Sensitivity(norm, 1.0, PrivacyUnit.RECORD, "S2: one row lies in at most one cluster", nonnegative=True)


def iterations(config: Run, estimate: float) -> int:
    """Floor the paper's estimate and clip it to [2, 7], unless ``max_iter`` overrides it."""
    rounds = config.task.max_rounds
    if rounds is not None:
        return rounds
    if not math.isfinite(estimate):
        return MAX_ITERATIONS
    return int(min(max(math.floor(estimate), MIN_ITERATIONS), MAX_ITERATIONS))


def require_packable(public: Known) -> None:
    """Refuse a sphere packing that would keep every client busy for minutes: its work grows with k^2 d."""
    k, d = public.config.n_clusters, public.n_features
    if k**2 * d > MOST_PACKING_WORK:
        raise ConfigurationError(
            f"n_clusters is {k} with {d} features, but a start by sphere packing may take at most k^2 d = "
            f"{MOST_PACKING_WORK:.0e} steps: choose fewer clusters, or an algorithm without it such as 'proxy_lloyd'."
        )


def packed_state(public: Known) -> InitialState:
    """Start from a sphere packing: data-independent, from a seed that everybody knows."""
    require_packable(public)
    config = public.config

    def initial_state(seed: int, server_points: Array | None = None, /) -> State:
        del server_points
        generator = np.random.default_rng(seed)
        centroids = sphere_packing(config.n_clusters, public.n_features, generator, public.options.packing)
        return cluster_state(centroids, np.zeros(config.n_clusters))

    return initial_state


def absolute_sums(points: Array, state: State) -> Sequence[Array]:
    """Statistic of an iteration on absolute sums."""
    return absolute_statistics(points, state.centroids)


def absolute_advance(post_processing: PostProcessing) -> Callable[[State, ReleasedSum], State]:
    """Post-processing of an iteration on absolute sums."""

    def advance(state: State, released: ReleasedSum) -> State:
        moved = absolute_update(state.centroids, released["sums"], released["counts"], post_processing=post_processing)
        return moved_state(state, moved, released["counts"])

    return advance


def moved_state(state: State, centroids: Array, counts: Array) -> State:
    """Record new centroids, their noisy counts and the largest step."""
    return cluster_state(centroids, counts, (*state.movements, largest_step(state.centroids, centroids)))


def largest_step(before: Array, after: Array) -> float:
    """Largest Euclidean step of a centroid, in scaled units."""
    return math.sqrt(max(map(math.fsum, np.square(after - before).tolist())))


def total_closeness(scales_and_sizes: Sequence[tuple[float, int]], n_rounds: int, fraction_bits: int) -> Closeness:
    """Closeness of equal rounds together, from the standard deviations (data units) and sizes of one round's arrays."""
    unit = 2.0**fraction_bits
    arrays = [discrete_gaussian_closeness(max(1.0, std * unit), size) for std, size in scales_and_sizes]
    return joint_closeness(arrays * n_rounds)
