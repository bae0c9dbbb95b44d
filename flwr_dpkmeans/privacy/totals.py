"""What a list of events adds up to, and the prices that follow from the sums alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from flwr_dpkmeans.privacy.slack import SAME, Closeness, joint_closeness

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
    closeness : Closeness
        Of all noise that is drawn to the noise that is analysed.
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
    closeness: Closeness = SAME
    pure_epsilons: tuple[float, ...] = ()
    sampled: tuple[SampledGaussianRelease, ...] = ()
    multipliers: tuple[float, ...] = ()
    exact: bool = False

    @property
    def pure(self) -> float:
        """Sum of the pure epsilons."""
        return math.fsum(self.pure_epsilons)

    @property
    def tau(self) -> float:
        """The slack: the additive part of the closeness."""
        return self.closeness.additive

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
    closeness: list[Closeness] = []
    pure: list[float] = []
    exact = False
    for event in events:
        match event:
            case SampledGaussianRelease() if event.sampling_rate <= _LARGEST_RATE:
                sampled.append(replace(event, sampling_rate=max(event.sampling_rate, _SMALLEST_RATE)))
                closeness.append(event.closeness)
            case GaussianRelease() | SampledGaussianRelease():
                multipliers.append(event.noise_multiplier)
                closeness.append(event.closeness)
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
    return Totals(mu, joint_closeness(closeness), tuple(sorted(pure)), tuple(sampled), tuple(multipliers), exact)


def require_finite(epsilon: float, totals: Totals, delta: float) -> float:
    """Return `epsilon`, or say that the slack is to blame for its being infinite."""
    if math.isfinite(epsilon):
        return epsilon
    raise PlanError(
        f"the releases have a slack of {totals.tau:.3g} and a log-ratio of {totals.closeness.log_ratio_above:.3g} to "
        f"continuous noise, which leaves no room within delta = {delta:.3g}: use a finer noise grid or a larger delta."
    )


def epsilon_as_drawn(totals: Totals, delta: float, price: Callable[[Totals, float], float]) -> float:
    """Return the epsilon at `delta` of the noise that is drawn, from a price of the noise that is analysed.

    The price takes a smaller delta, and includes `slack_cost` at its own epsilon; see `flwr_dpkmeans.privacy.slack`.
    """
    left = delta * math.exp(-totals.closeness.log_ratio_above)
    return price(totals, left) + totals.closeness.log_ratio if left > 0.0 else math.inf


def delta_as_drawn(totals: Totals, epsilon: float, price: Callable[[Totals, float], float]) -> float:
    """Return the delta at `epsilon` of the noise that is drawn, from a price of the noise that is analysed."""
    analysed = epsilon - totals.closeness.log_ratio
    factor = math.exp(min(totals.closeness.log_ratio_above, 700.0))
    delta = min(1.0, factor * price(totals, max(0.0, analysed)))
    if analysed >= 0.0:
        return delta
    # With e the epsilon at which that delta holds: Q <= exp(e) Q' + delta gives Q' >= exp(-e) (Q - delta), and Q <= 1.
    return -math.expm1(analysed) + math.exp(analysed) * delta


def slack_cost(tau: float, epsilon: float) -> float:
    """Return (1 + exp(epsilon)) tau, the delta that an additive closeness of tau costs."""
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
