"""FastLloyd (Diaa, Humphries, Kerschbaum 2025): relative sums of the points within a radius, Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.lloyd_family import (
    ERROR_TARGET,
    PackedOptions,
    counts_sensitivity,
    iterations,
    moved_state,
    packed_state,
    total_closeness,
)
from flwr_dpkmeans.kmeans.statistics import relative_statistics
from flwr_dpkmeans.kmeans.update import PostProcessing, relative_update
from flwr_dpkmeans.privacy.discreteness import Closeness
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import choice, flag, real
from flwr_dpkmeans.sums.task import Known


class Schedule(Enum):
    """The radius over the iterations: half the diagonal first, then the radius; or always the radius."""

    STEP = "step"
    CONSTANT = "constant"


@dataclass(frozen=True)
class FastLloydOptions(PackedOptions):
    """Options of FastLloyd."""

    alpha: float = real(0.8, 1e-6, 1e6, "0.8", "radius over half a cell's diagonal (equation 22)")
    schedule: Schedule = choice(Schedule, Schedule.STEP, "radius of the first iteration")
    radius_clipping: bool = flag(True, "clip steps to the radius")


BOX_BOUND = 1.0
"""B: data live in [-B, B]^d."""


@dataclass(frozen=True)
class FastLloydParameters:
    """The paper's derived quantities."""

    noise_multiplier: float
    """sigma: the smallest with (1/sigma)-GDP implying (epsilon, delta)-DP."""
    sums_multiplier: float
    """sigma_R (equation 7)."""
    counts_multiplier: float
    """sigma_C (equation 7)."""
    n_iterations: int
    """T (equation 21, clipped to [2, 7])."""
    radii: tuple[float, ...]
    """Radius of each iteration, in scaled units."""


def cluster_radius(alpha: float, n_clusters: int, n_features: int) -> float:
    """Radius eta = alpha * beta / (2 k^(1/d)) with beta = 2 B sqrt(d) (equations 22-25).

    Examples
    --------
    >>> cluster_radius(0.8, 1, 4)
    1.6
    """
    diagonal = 2.0 * BOX_BOUND * math.sqrt(n_features)
    # Twelve digits, so that a pow that differs in its last digit does not make two machines' states differ.
    return float(f"{alpha * diagonal / (2.0 * n_clusters ** (1.0 / n_features)):.12g}")


def split_multiplier(noise_multiplier: float, n_features: int) -> tuple[float, float]:
    """Split sigma into (sigma_R, sigma_C) with 1/sigma_R^2 + 1/sigma_C^2 = 1/sigma^2 (equation 7).

    Examples
    --------
    >>> sums, counts = split_multiplier(1.0, 4)
    >>> round(1 / sums**2 + 1 / counts**2, 12)
    1.0
    """
    root = math.sqrt(4.0 * n_features)
    counts = noise_multiplier * math.sqrt(1.0 + root)
    return counts / math.sqrt(root), counts


def derive_parameters(public: Known) -> FastLloydParameters:
    """Compute sigma, its split, T and the radii from public values only."""
    options, d, k = public.options, public.n_features, public.config.n_clusters
    eta = cluster_radius(options.alpha, k, d)
    first = d**0.5 * BOX_BOUND if options.schedule is Schedule.STEP else eta

    def n_iterations(sigma: float) -> int:
        n = float(public.known_n_examples)
        scale = k**3 * eta**2 * sigma**2 * (1.0 + math.sqrt(4.0 * d)) ** 2
        return iterations(public.config, ERROR_TARGET * 4.0 * n**2 / scale)

    def closeness_at(sigma: float) -> Closeness:
        t = n_iterations(sigma)
        sums, counts = split_multiplier(sigma * math.sqrt(t), d)
        return total_closeness([(sums * min(first, eta), k * d), (counts, k)], t, public.fraction_bits)

    sigma = public.calibrate(closeness_at)
    sums, counts = split_multiplier(sigma, d)
    t = n_iterations(sigma)
    return FastLloydParameters(sigma, sums, counts, t, (first,) + (eta,) * (t - 1))


@dataclass(frozen=True, kw_only=True)
class FastLloyd(KMeansTask):
    """FastLloyd as a task."""

    name = "fastlloyd"
    title = "FastLloyd (Diaa, Humphries, Kerschbaum 2025)"
    needs_n_examples = True
    options: FastLloydOptions = FastLloydOptions()

    def build(self, known: Known) -> Algorithm:
        """See `build`."""
        return build(known)


def build(public: Known) -> Algorithm:
    """FastLloyd as a list of T private sums.

    Each round releases ``relative_sums`` (k, d) with L2 sensitivity equal to its radius (Theorem 5.1) and ``counts``
    (k,) with L2 sensitivity 1: one record lies in at most one cluster.
    """
    parameters = derive_parameters(public)
    rounds = tuple(
        _iteration(public, parameters, index, radius) for index, radius in enumerate(parameters.radii, start=1)
    )
    return Algorithm("fastlloyd", rounds, packed_state(public))


def _iteration(public: Known, parameters: FastLloydParameters, index: int, radius: float) -> PrivateSum:
    """One iteration: noise std sigma_R * radius * sqrt(T) on sums, sigma_C * sqrt(T) on counts (equations 8, 9)."""
    k, d, spread = public.config.n_clusters, public.n_features, math.sqrt(parameters.n_iterations)
    within = "S1: one row lies in one cluster, within the radius of its centroid (FastLloyd, Theorem 5.1)"
    blocks = (
        Block(
            "relative_sums",
            (k, d),
            # Rows beyond the radius are left out, so that no row adds more however the centroids lie.
            Sensitivity(Norm.L2, radius, PrivacyUnit.RECORD, within),
            NoiseShape.GAUSSIAN,
            parameters.sums_multiplier * spread,
            # In one coordinate a row of the box is at most 2 B from a centroid in it, and at most the radius.
            min(radius, 2.0 * BOX_BOUND),
        ),
        Block(
            "counts",
            (k,),
            counts_sensitivity(),
            NoiseShape.GAUSSIAN,
            parameters.counts_multiplier * spread,
            1.0,
        ),
    )
    return PrivateSum(f"lloyd-{index}", blocks, _statistic(radius), _advance(public, radius), radius)


def _statistic(radius: float) -> Callable[[Array, State], Sequence[Array]]:
    """Relative sums and counts of the points within the radius."""

    def statistic(points: Array, state: State) -> Sequence[Array]:
        return relative_statistics(points, state.centroids, radius)

    return statistic


def _advance(public: Known, radius: float) -> Callable[[State, ReleasedSum], State]:
    """Step by R~/C~, clip the step to the radius, fold into the box (section 5.3.5)."""
    clip_radius = radius if public.options.radius_clipping else None
    post_processing = public.options.post_processing or PostProcessing.FOLD

    def advance(state: State, released: ReleasedSum) -> State:
        moved = relative_update(
            state.centroids,
            released["relative_sums"],
            released["counts"],
            clip_radius=clip_radius,
            post_processing=post_processing,
        )
        return moved_state(state, moved, released["counts"])

    return advance
