"""What a list of events adds up to, and the prices that follow from the sums alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.events import (
    Event,
    ExactRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    SampledGaussianRelease,
)
from flwr_dpkmeans.privacy.gaussian import gaussian_delta_bound, gaussian_epsilon, smallest_true

# Rates outside are priced as the next larger one inside, since at others the numerical accountant loses all digits.
_SMALLEST_RATE, _LARGEST_RATE = 1e-9, 1.0 - 1e-6


@dataclass(frozen=True)
class Totals:
    """What a list of events adds up to.

    Parameters
    ----------
    mu : float
        GDP parameter of the Gaussian releases, the sampled ones counted as if everybody were included (an upper
        bound: the hockey-stick divergence is jointly convex).
    tau : float
        Sum of the slacks, at most 1.
    pure_epsilons : tuple of float
        Of the Laplace and the other pure releases, in increasing order.
    sampled : tuple of SampledGaussianRelease
        Those with a rate below 1, as it is priced.
    multipliers : tuple of float
        Of the Gaussian releases that are not sampled, nor priced as sampled.
    exact : bool
        Whether a release had no noise.
    """

    mu: float
    tau: float = 0.0
    pure_epsilons: tuple[float, ...] = ()
    sampled: tuple[SampledGaussianRelease, ...] = ()
    multipliers: tuple[float, ...] = ()
    exact: bool = False

    @property
    def pure(self) -> float:
        """Sum of the pure epsilons."""
        return math.fsum(self.pure_epsilons)

    def merged(self) -> Totals:
        """Return the same with one Gaussian release in place of all that are not sampled."""
        if len(self.multipliers) < 2:
            return self
        mu = math.hypot(*(1.0 / multiplier for multiplier in self.multipliers))
        return replace(self, multipliers=(1.0 / mu,))


def add_up(events: Sequence[Event]) -> Totals:
    """Add up `events`, refusing any of an unsupported type."""
    multipliers: list[float] = []
    sampled: list[SampledGaussianRelease] = []
    slacks: list[float] = []
    pure: list[float] = []
    exact = False
    for event in events:
        match event:
            case SampledGaussianRelease() if event.sampling_rate <= _LARGEST_RATE:
                sampled.append(replace(event, sampling_rate=max(event.sampling_rate, _SMALLEST_RATE)))
                slacks.append(event.slack)
            case GaussianRelease() | SampledGaussianRelease():
                multipliers.append(event.noise_multiplier)
                slacks.append(event.slack)
            case LaplaceRelease():
                pure.append(1.0 / event.noise_multiplier)
            case PureRelease():
                pure.append(event.epsilon)
            case ExactRelease():
                exact = True
            case _:
                raise LocalMisuseError(
                    f"an event is of type {type(event).__name__!r}, which has no price: give a GaussianRelease, "
                    "a SampledGaussianRelease, a LaplaceRelease, a PureRelease or an ExactRelease."
                )
    mu = math.hypot(
        *(1.0 / multiplier for multiplier in multipliers), *(1.0 / event.noise_multiplier for event in sampled)
    )
    if not (math.isfinite(mu) and math.isfinite(sum(pure))):
        raise LocalMisuseError(
            "the noise multipliers are too small for a finite epsilon: give multipliers above 1e-100."
        )
    tau = min(1.0, math.fsum(slacks))
    return Totals(mu, tau, tuple(sorted(pure)), tuple(sampled), tuple(multipliers), exact)


def require_finite(epsilon: float, totals: Totals, delta: float) -> float:
    """Return `epsilon`, or say that the slack is to blame for its being infinite."""
    if math.isfinite(epsilon):
        return epsilon
    raise PlanError(
        f"the releases have a slack of {totals.tau:.3g}, which leaves no room within delta = {delta:.3g}: "
        "use a finer noise grid or a larger delta."
    )


def slack_cost(tau: float, epsilon: float) -> float:
    """Return (1 + exp(epsilon)) tau, the delta that a total-variation distance of tau costs."""
    if tau == 0.0:
        return 0.0
    exponent = epsilon + math.log(tau)
    return tau + (math.exp(exponent) if exponent < 700.0 else math.inf)


def _turning_epsilon(totals: Totals) -> float:
    """Return the Gaussian epsilon beyond which delta, with the cost of slack, no longer falls.

    In u = exp(epsilon), delta is convex with slope -Phi(-y), y = epsilon/mu + mu/2, and the cost of slack is linear
    with slope tau exp(pure).
    """
    if totals.tau == 0.0:
        return math.inf
    exponent = totals.pure + math.log(totals.tau)
    if exponent >= math.log(0.5):
        return 0.0
    y = -NormalDist().inv_cdf(math.exp(exponent))
    return max(0.0, totals.mu * (y - 0.5 * totals.mu))


def gdp_delta(totals: Totals, gaussian_part: float) -> float:
    """Return the smallest delta at epsilons of at most `gaussian_part` plus the pure epsilon, slack included."""
    epsilon = min(gaussian_part, _turning_epsilon(totals))
    return min(1.0, _gdp_delta_at(totals, epsilon))


def _gdp_delta_at(totals: Totals, epsilon: float) -> float:
    """Return delta at `epsilon` for the Gaussian part plus the pure epsilon, slack included."""
    return gaussian_delta_bound(epsilon, totals.mu) + slack_cost(totals.tau, epsilon + totals.pure)


def gdp_epsilon(totals: Totals, delta: float) -> float:
    """Return the smallest total epsilon at `delta` by GDP plus the pure epsilon; infinity if slack leaves no room."""
    if totals.tau == 0.0:
        return gaussian_epsilon(totals.mu, delta) + totals.pure
    turning = _turning_epsilon(totals)
    if _gdp_delta_at(totals, turning) > delta:
        return math.inf
    return smallest_true(lambda epsilon: _gdp_delta_at(totals, epsilon) <= delta, 0.0, turning) + totals.pure


def pure_delta(pure: float, epsilon: float) -> float:
    """Return the largest delta at `epsilon` of any mechanism that is pure-DP with epsilon `pure`."""
    if pure <= epsilon:
        return 0.0
    return -math.expm1(epsilon - pure) / (1.0 + math.exp(-pure))
