"""The baselines on absolute sums: GLloyd (Gaussian), SuLloyd (Laplace, Su et al. 2016) and Lloyd (no noise).

Centroids that leave the box are truncated to it by default: it costs nothing, and with independent noise on sums and
counts an unbounded quotient is otherwise much worse than the papers' figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.lloyd_family import (
    ERROR_TARGET,
    MAX_ITERATIONS,
    RHO,
    PackedOptions,
    absolute_advance,
    absolute_sums,
    counts_sensitivity,
    iterations,
    packed_state,
    total_closeness,
)
from flwr_dpkmeans.kmeans.update import PostProcessing
from flwr_dpkmeans.privacy.calibration import calibrate_scale
from flwr_dpkmeans.privacy.discreteness import Closeness
from flwr_dpkmeans.privacy.events import Event, LaplaceRelease
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum
from flwr_dpkmeans.sums.task import Known

SULLOYD_CONSTANT = 500.0
"""Constant of SuLloyd's number of iterations (Su et al. 2016)."""


@dataclass(frozen=True)
class GLloydOptions(PackedOptions):
    """Options of GLloyd."""


@dataclass(frozen=True, kw_only=True)
class GLloyd(KMeansTask):
    """GLloyd as a task."""

    name = "glloyd"
    title = "GLloyd: DP-Lloyd with Gaussian noise"
    needs_n_examples = True
    options: GLloydOptions = GLloydOptions()

    def build(self, known: Known) -> Algorithm:
        """GLloyd: absolute sums with L2 sensitivity sqrt(d), counts with 1, Gaussian noise (appendix B.1)."""
        d, k = known.n_features, known.config.n_clusters

        def n_iterations(sigma: float) -> int:
            n = float(known.known_n_examples)
            scale = k**3 * d * sigma**2 * (2.0 * RHO + math.sqrt(d)) ** 2
            return iterations(known.config, ERROR_TARGET * n**2 / scale)

        def closeness_at(sigma: float) -> Closeness:
            t = n_iterations(sigma)
            sums, counts = glloyd_split(sigma * math.sqrt(t), d)
            return total_closeness([(sums * math.sqrt(d), k * d), (counts, k)], t, known.fraction_bits)

        sigma = known.calibrate(closeness_at)
        t = n_iterations(sigma)
        sums, counts = glloyd_split(sigma * math.sqrt(t), d)
        return _build("glloyd", known, t, NoiseShape.GAUSSIAN, sums, counts)


@dataclass(frozen=True)
class SuLloydOptions(PackedOptions):
    """Options of SuLloyd."""


@dataclass(frozen=True, kw_only=True)
class SuLloyd(KMeansTask):
    """SuLloyd as a task."""

    name = "sulloyd"
    title = "SuLloyd: DP-Lloyd with Laplace noise (Su et al.)"
    noise = NoiseShape.LAPLACE
    needs_n_examples = True
    options: SuLloydOptions = SuLloydOptions()

    def build(self, known: Known) -> Algorithm:
        """SuLloyd: absolute sums with L1 sensitivity d, counts with 1, Laplace noise, epsilon/T per iteration.

        Other releases (private count, histograms, evaluation) are Gaussian and have a share of epsilon of their own; a
        mixture costs less than the sum of its parts, so that the iterations get more than the rest of epsilon: the same
        after every outcome of a private count, which decides how many there are.
        """
        d, k = known.n_features, known.config.n_clusters
        epsilon = known.settings.epsilon * (1.0 - known.settings.reserved_share(counts=True))
        n = float(known.known_n_examples)
        count_part = (4.0 * d * RHO**2) ** (1.0 / 3.0)
        t = iterations(known.config, epsilon / math.sqrt(SULLOYD_CONSTANT * k**3 / n**2 * (d + count_part) ** 3))
        sum_share, count_share = sulloyd_split(d)
        per_iteration = _laplace_epsilon(known, epsilon, [sum_share / t, count_share / t] * t) / t
        return _build(
            "sulloyd",
            known,
            t,
            NoiseShape.LAPLACE,
            1.0 / (per_iteration * sum_share),
            1.0 / (per_iteration * count_share),
        )


@dataclass(frozen=True)
class LloydOptions(PackedOptions):
    """Options of Lloyd."""


@dataclass(frozen=True, kw_only=True)
class Lloyd(KMeansTask):
    """Lloyd as a task."""

    name = "lloyd"
    title = "Lloyd: no noise, not private, for comparison"
    noise = NoiseShape.NONE
    options: LloydOptions = LloydOptions()

    def build(self, known: Known) -> Algorithm:
        """Lloyd's algorithm without noise: not private, for comparison."""
        return _build("lloyd", known, iterations(known.config, MAX_ITERATIONS), NoiseShape.NONE, 0.0, 0.0)


def glloyd_split(noise_multiplier: float, n_features: int) -> tuple[float, float]:
    """Split sigma into (sigma_S, sigma_C) (FastLloyd paper, equation 31, solved with equation 30).

    Examples
    --------
    >>> sums, counts = glloyd_split(1.0, 4)
    >>> round(1 / sums**2 + 1 / counts**2, 12)
    1.0
    """
    root = math.sqrt(2.0 * RHO + math.sqrt(n_features))
    return noise_multiplier * root / n_features**0.25, noise_multiplier * root / math.sqrt(2.0 * RHO)


def sulloyd_split(n_features: int) -> tuple[float, float]:
    """Fractions of an iteration's epsilon for sums and counts, in the ratio d : (4 d rho^2)^(1/3).

    Examples
    --------
    >>> sum(sulloyd_split(4))
    1.0
    """
    count_part = (4.0 * n_features * RHO**2) ** (1.0 / 3.0)
    return n_features / (n_features + count_part), count_part / (n_features + count_part)


def _laplace_epsilon(public: Known, least: float, shares: Sequence[float]) -> float:
    """The largest sum of the iterations' epsilons, of which each array has a share, with which the run costs epsilon.

    Where N was counted it is the same however many iterations follow: see `with_joint_pure_release`.
    """
    others = public.released_events()
    if not others:
        return least

    def events_at(scale: float) -> Sequence[Event]:
        iterations = [LaplaceRelease("iterations", scale / share) for share in ([1.0] if public.counted else shares)]
        return [*others, *iterations]

    scale = calibrate_scale(events_at, public.settings.epsilon, public.delta, start=1.0 / least)
    # Not at least `least`: where a count lowers delta, what was released before costs more than its share.
    return 1.0 / scale


def root_at_least(square: int) -> float:
    """The square root, rounded up: a corner of the box must not exceed the bound even in the last digit."""
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)


def _box_sensitivity(norm: Norm, n_features: int) -> Sensitivity:
    """How far one row of the box moves the sums."""
    if norm is Norm.L1:
        bound, because = float(n_features), "S4: one row of [-1, 1]^d has L1 norm at most d"
    else:
        bound, because = root_at_least(n_features), "S3: one row of [-1, 1]^d has L2 norm at most sqrt(d)"
    return Sensitivity(norm, bound, PrivacyUnit.RECORD, because)


def _build(
    name: str, public: Known, n_iterations: int, noise: NoiseShape, sums_multiplier: float, counts_multiplier: float
) -> Algorithm:
    """T equal iterations on absolute sums of points in [-1, 1]^d."""
    k, d = public.config.n_clusters, public.n_features
    norm = Norm.L1 if noise is NoiseShape.LAPLACE else Norm.L2
    # A row's own coordinates are summed, so one entry moves by at most 1, the box's half width.
    blocks = (
        Block("sums", (k, d), _box_sensitivity(norm, d), noise, sums_multiplier, 1.0),
        Block("counts", (k,), counts_sensitivity(norm), noise, counts_multiplier, 1.0),
    )
    advance = absolute_advance(public.options.post_processing or PostProcessing.TRUNCATE)
    rounds = tuple(PrivateSum(f"lloyd-{i}", blocks, absolute_sums, advance) for i in range(1, n_iterations + 1))
    return Algorithm(name, rounds, packed_state(public))
