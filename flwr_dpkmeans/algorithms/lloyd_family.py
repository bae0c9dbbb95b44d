"""What FastLloyd, GLloyd, SuLloyd and Lloyd have in common: public parameters, iteration counts, sphere packing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.server_points import ServerFacts
from flwr_dpkmeans.config import KMeansConfig
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.kmeans.packing import sphere_packing
from flwr_dpkmeans.kmeans.statistics import absolute_statistics
from flwr_dpkmeans.kmeans.update import PostProcessing, absolute_update
from flwr_dpkmeans.privacy.calibration import calibrate_gaussian
from flwr_dpkmeans.privacy.discreteness import Closeness, discrete_gaussian_closeness, joint_closeness
from flwr_dpkmeans.privacy.events import Event, GaussianRelease, SampledGaussianRelease
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.round import Array, ClusterState, InitialState

MIN_ITERATIONS = 2
MAX_ITERATIONS = 7
ERROR_TARGET = 0.004
"""Mean squared error per iteration that the number of iterations aims at (Su et al. 2016)."""
MOST_PACKING_WORK = 10**9
"""Largest k^2 d of a sphere packing, half a minute or so: a plan comes from a server that may be hostile."""
RHO = 0.225
"""Su et al.'s estimate of a normalised centroid coordinate, used by SuLloyd and GLloyd."""


@dataclass(frozen=True)
class Public:
    """Everything public that an algorithm's rounds are computed from.

    Parameters
    ----------
    config : KMeansConfig
        The run's options.
    n_examples : int or None
        Declared or privately estimated number of rows, N; None for algorithms that do not need it.
    n_features : int
        d.
    delta : float
        Of the total guarantee.
    released_multiplier : float or None
        Noise multiplier of all Gaussian releases that are not the algorithm's own (private count, histograms,
        evaluation) together; None if there are none.
    released_closeness : Closeness
        Of that noise to a continuous Gaussian.
    fraction_bits : int
        Grid of the ring.
    server : ServerFacts or None
        What follows from the server's own points, if it has any.
    noise_factor : float
        Standard deviation of what is released over that of the plan: shares of all clients add more than is counted on.
    n_clients : int
        Cohort at the start, M.
    evaluation : tuple of Block
        What an evaluation after the last round releases; empty if there is none.
    sampled : tuple of SampledGaussianRelease
        An evaluation over sampled clients, which has no place in `released_multiplier`.
    """

    config: KMeansConfig
    n_examples: int | None
    n_features: int
    delta: float
    released_multiplier: float | None
    released_closeness: Closeness
    fraction_bits: int
    server: ServerFacts | None = None
    noise_factor: float = 1.0
    n_clients: int = 0
    evaluation: tuple[Block, ...] = ()
    sampled: tuple[SampledGaussianRelease, ...] = ()

    @property
    def known_n_examples(self) -> int:
        """N, which the caller needs."""
        if self.n_examples is None:
            raise PlanError(f"{self.config.algorithm!r} needs the number of rows: declare n_examples.")
        return self.n_examples

    @property
    def counted(self) -> bool:
        """Whether N was released, so that all plans that may follow from it must be priced together."""
        return self.n_examples is not None and self.config.n_examples is None

    @property
    def n_units(self) -> float:
        """What sums are taken over: N rows or, at client level, as many clients as take part on average."""
        if self.config.unit is PrivacyUnit.CLIENT:
            return self.n_clients * self.config.client_sampling_rate
        return float(self.known_n_examples)

    def released_events(self) -> tuple[Event, ...]:
        """What is not the algorithm's own, for the accountant: Gaussian releases compose to one."""
        if self.released_multiplier is None:
            return self.sampled
        return (GaussianRelease("other releases", self.released_multiplier, self.released_closeness), *self.sampled)

    def calibrate(self, closeness_at: Callable[[float], Closeness]) -> float:
        """Noise multiplier of the algorithm's own rounds: what the preliminary ones leave of (epsilon, delta).

        Under joint Gaussian accounting the squared reciprocals of the multipliers add up.
        """
        total = calibrate_gaussian(
            self.config.epsilon,
            self.delta,
            lambda multiplier: joint_closeness([closeness_at(multiplier), self.released_closeness]),
        )
        if self.released_multiplier is None:
            return total
        left = total**-2 - self.released_multiplier**-2
        if left <= 0.0:
            raise PlanError(
                "the other releases take the whole budget: lower count_share, bounds_share or evaluation_share."
            )
        return 1.0 / math.sqrt(left)


def counts_sensitivity(norm: Norm = Norm.L2) -> Sensitivity:
    """Say how far one row moves the counts of clusters, in either norm."""
    return Sensitivity(norm, 1.0, PrivacyUnit.RECORD, "S2: one row lies in at most one cluster", nonnegative=True)


def iterations(config: KMeansConfig, estimate: float) -> int:
    """Floor the paper's estimate and clip it to [2, 7], unless ``max_iter`` overrides it."""
    if config.max_iter is not None:
        return config.max_iter
    if not math.isfinite(estimate):
        return MAX_ITERATIONS
    return int(min(max(math.floor(estimate), MIN_ITERATIONS), MAX_ITERATIONS))


def require_packable(public: Public) -> None:
    """Refuse a sphere packing that would keep every client busy for minutes: its work grows with k^2 d."""
    k, d = public.config.n_clusters, public.n_features
    if k**2 * d > MOST_PACKING_WORK:
        raise ConfigurationError(
            f"n_clusters is {k} with {d} features, but a start by sphere packing may take at most k^2 d = "
            f"{MOST_PACKING_WORK:.0e} steps: choose fewer clusters, or an algorithm without it such as 'proxy_lloyd'."
        )


def packed_state(public: Public) -> InitialState:
    """Start from a sphere packing: data-independent, from a seed that everybody knows."""
    require_packable(public)
    config = public.config

    def initial_state(seed: int, server_points: Array | None = None, /) -> ClusterState:
        del server_points
        generator = np.random.default_rng(seed)
        centroids = sphere_packing(config.n_clusters, public.n_features, generator, config.packing)
        return ClusterState(centroids, np.zeros(config.n_clusters))

    return initial_state


def absolute_sums(points: Array, state: ClusterState) -> Sequence[Array]:
    """Statistic of an iteration on absolute sums."""
    return absolute_statistics(points, state.centroids)


def absolute_advance(post_processing: PostProcessing) -> Callable[[ClusterState, ReleasedSum], ClusterState]:
    """Post-processing of an iteration on absolute sums."""

    def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
        moved = absolute_update(state.centroids, released["sums"], released["counts"], post_processing=post_processing)
        return moved_state(state, moved, released["counts"])

    return advance


def moved_state(state: ClusterState, centroids: Array, counts: Array) -> ClusterState:
    """Record new centroids, their noisy counts and the largest step."""
    return ClusterState(centroids, counts, (*state.movements, largest_step(state.centroids, centroids)))


def largest_step(before: Array, after: Array) -> float:
    """Largest Euclidean step of a centroid, in scaled units."""
    return math.sqrt(max(math.fsum(row) for row in np.square(after - before).tolist()))


def total_closeness(scales_and_sizes: Sequence[tuple[float, int]], n_rounds: int, fraction_bits: int) -> Closeness:
    """Closeness of equal rounds together, from the standard deviations (data units) and sizes of one round's arrays."""
    unit = 2.0**fraction_bits
    arrays = [discrete_gaussian_closeness(max(1.0, std * unit), size) for std, size in scales_and_sizes]
    return joint_closeness(arrays * n_rounds)
