"""The price of a list of releases, which may be adaptive.

Each may depend on what the earlier ones showed.

* Gaussian releases: Gaussian differential privacy composes exactly, ``mu^2 = sum 1 /
  multiplier^2`` (Dong, Roth and Su 2022, Corollary 2), and has a price in closed form.
* Pure releases (Laplace noise, exponential mechanism): the sum of the pure epsilons,
  exact for the adaptive statement.
* Both: each pure release counts as the worst mechanism of its epsilon (Kairouz, Oh and
  Viswanath 2015), whatever the grid and dimension of its noise; where their number
  follows from an earlier release, all of them count as one.
* Gaussian releases over Poisson samples, with any of the others: numerical privacy-loss
  distributions by ``dp_accounting`` for adding and for removing a unit, or, if that is
  less, the price as if everybody were included.
* Discrete noise: drawn noise costs ``epsilon + a + b`` and ``exp(a) (delta + (1 +
  exp(epsilon)) tau)`` where the analysed noise costs epsilon and delta; a, b and tau
  add up over the list. See ``closeness``.

Formulas of the first four are in ``gaussian``, ``mixtures`` and ``losses``; here is
what a list adds up to, and which rule is the cheapest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from flwr_dpkmeans.errors import (
    LocalMisuseError,
    PlanError,
    require_delta,
    require_real,
)
from flwr_dpkmeans.privacy import gaussian, release
from flwr_dpkmeans.privacy.closeness import SAME, Closeness, joint_closeness, slack_cost
from flwr_dpkmeans.privacy.gaussian import LARGEST_EXPONENT
from flwr_dpkmeans.privacy.release import Event
from flwr_dpkmeans.privacy.searches import smallest_at_most, smallest_true

if TYPE_CHECKING:
    from flwr_dpkmeans.privacy.losses import NumericalLosses
    from flwr_dpkmeans.privacy.mixtures import Mixture

_SMALLEST_RATE = 1e-9
_LARGEST_RATE = 1.0 - 1e-6
"""Rates outside are priced as the next larger one inside.

At others the numerical accountant loses all digits.
"""
_LARGEST_MU = 100.0
"""Sampled releases of a larger mu have losses of some mu^2, beyond a numerical price.
"""

Price = Callable[["Totals", float], float]
"""Epsilon of totals at a delta, or delta at an epsilon."""


def compose_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the total epsilon of releases at the total delta.

    0.0 for none, infinity if one is exact. Sampled releases take some 10 ms for each
    distinct one, mixtures some milliseconds. Sampled releases with a delta below 1e-13
    are priced as if everybody were included: numerical convolutions are not exact
    enough.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    delta : float
        Less than 1, and greater than 0 if there is a Gaussian release, sampled or not,
        else at least 0.

    Raises
    ------
    LocalMisuseError
        If `delta` is out of its range or an event has no price.
    PlanError
        If the noise that is drawn is too far from the noise that is analysed for any
        epsilon at `delta`.

    Examples
    --------
    >>> round(compose_epsilon([release.GaussianRelease("sums", 10.0)] * 100, 1e-6), 6)
    4.886554
    >>> compose_epsilon([release.PureRelease("counts", 0.25)] * 3, 0.0)
    0.75
    """
    totals = add_up(events)
    delta = require_real("delta", delta, "give a small number such as 1e-6")
    if totals.mu > 0.0 or not 0.0 <= delta < 1.0:
        delta = require_delta(delta)
    if totals.exact:
        return math.inf
    if totals.mu == 0.0:
        return totals.pure
    epsilon = epsilon_as_drawn(totals, delta, _analysed_epsilon)
    if math.isinf(epsilon):
        raise PlanError(
            f"the releases have a slack of {totals.closeness.additive:.3g} and a"
            f" log-ratio of {totals.closeness.log_ratio_above:.3g} to continuous noise,"
            f" which leaves no room within delta = {delta:.3g}: use a finer noise grid"
            " or a larger delta."
        )
    return epsilon


def _analysed_epsilon(totals: Totals, delta: float) -> float:
    """Return the least epsilon by any rule, for analysed noise and its slack."""
    epsilon = gdp_epsilon(totals, delta)
    if totals.pure_epsilons:
        epsilon = min(epsilon, _mixture_epsilon(totals, delta))
    if totals.sampled:
        epsilon = min(epsilon, numerical_epsilon(totals, delta))
    return epsilon


@dataclass(frozen=True)
class Totals:
    """What a list of events adds up to."""

    mu: float
    """GDP parameter of the Gaussian releases, the sampled ones counted as if everybody
    were included (an upper bound: the hockey-stick divergence is jointly convex).
    """
    closeness: Closeness = SAME
    """Of all noise that is drawn to the noise that is analysed."""
    pure_epsilons: tuple[float, ...] = ()
    """Of the pure releases, in increasing order."""
    sampled: tuple[release.GaussianRelease, ...] = ()
    """Those with a rate below 1, as it is priced."""
    multipliers: tuple[float, ...] = ()
    """Of the Gaussian releases that are not sampled, nor priced as sampled."""
    exact: bool = False
    """Whether a release had no noise."""

    @property
    def pure(self) -> float:
        """Sum of the pure epsilons."""
        return math.fsum(self.pure_epsilons)


def add_up(events: Sequence[Event]) -> Totals:
    """Add up `events`, refusing any of an unsupported type."""
    multipliers: list[float] = []
    sampled: list[release.GaussianRelease] = []
    pure: list[float] = []
    exact = False
    for event in events:
        match event:
            case release.GaussianRelease() if event.sampling_rate <= _LARGEST_RATE:
                rate = max(event.sampling_rate, _SMALLEST_RATE)
                sampled.append(replace(event, sampling_rate=rate))
            case release.GaussianRelease():
                multipliers.append(event.noise_multiplier)
            case release.PureRelease():
                pure.append(event.epsilon)
            case release.ExactRelease():
                exact = True
            case _:
                raise LocalMisuseError(
                    f"an event is of type {type(event).__name__!r}, which has no price:"
                    " give a GaussianRelease, a PureRelease or an ExactRelease."
                )
    all_multipliers = multipliers + [event.noise_multiplier for event in sampled]
    mu = _joint_mu(all_multipliers)
    is_finite = math.isfinite(mu) and math.isfinite(sum(pure))
    if not is_finite:
        raise LocalMisuseError(
            "the noise multipliers are too small for a finite epsilon: give some above"
            " 1e-100."
        )
    return Totals(
        mu=mu,
        closeness=joint_closeness(event.closeness for event in events),
        pure_epsilons=tuple(sorted(pure)),
        sampled=tuple(sampled),
        multipliers=tuple(multipliers),
        exact=exact,
    )


def _joint_mu(multipliers: Sequence[float]) -> float:
    """Compose Gaussian releases: mu^2 is the sum of 1 / multiplier^2."""
    inverses = [1.0 / multiplier for multiplier in multipliers]
    return math.hypot(*inverses)


# -- from analysed to drawn noise ------------------------------------------------------


def epsilon_as_drawn(totals: Totals, delta: float, price: Price) -> float:
    """Return the epsilon of drawn noise, from a price of analysed noise.

    The price takes a smaller delta, and includes `slack_cost` at its own epsilon; see
    `flwr_dpkmeans.privacy.closeness`.
    """
    closeness = totals.closeness
    delta_left = delta * math.exp(-closeness.log_ratio_above)
    if delta_left <= 0.0:
        return math.inf
    return price(totals, delta_left) + closeness.log_ratio


def delta_as_drawn(totals: Totals, epsilon: float, price: Price) -> float:
    """Return the delta of drawn noise, from a price of analysed noise."""
    above = totals.closeness.log_ratio_above
    analysed = epsilon - totals.closeness.log_ratio
    # Beyond this it may be any delta, as a price that is too small for floating point
    # is 0.
    delta = 1.0
    if above < LARGEST_EXPONENT:
        analysed_delta = price(totals, max(0.0, analysed))
        delta = min(1.0, math.exp(above) * analysed_delta)
    if analysed >= 0.0:
        return delta
    # With e the epsilon at which that delta holds: Q <= exp(e) Q' + delta gives Q' >=
    # exp(-e) (Q - delta), and Q <= 1.
    return -math.expm1(analysed) + math.exp(analysed) * delta


# -- prices of analysed noise, slack included ------------------------------------------
# In u = exp(epsilon), every delta here is convex and falls; the cost of slack is linear
# with slope tau (times exp(pure) where the Gaussian part's epsilon is meant). Beyond
# some epsilon their sum rises again, and is not searched there.


def gdp_delta(totals: Totals, gaussian_part: float) -> float:
    """Return the smallest delta by GDP at epsilons of at most so much.

    Of at most `gaussian_part` plus the pure epsilon. Above 1 if slack alone is.
    """
    tau = totals.closeness.additive
    turning = _turning_epsilon(totals.mu, totals.pure, tau)
    return _gdp_cost(totals, min(gaussian_part, turning))


def _gdp_cost(totals: Totals, gaussian_part: float) -> float:
    """Return the delta of the Gaussian part, and of slack at the whole epsilon."""
    slack = slack_cost(totals.closeness.additive, gaussian_part + totals.pure)
    return gaussian.gaussian_delta_bound(gaussian_part, totals.mu) + slack


def gdp_epsilon(totals: Totals, delta: float) -> float:
    """Return the smallest total epsilon by GDP plus the pure epsilon.

    Infinity if slack leaves no room.
    """
    tau = totals.closeness.additive
    if tau == 0.0:
        return gaussian.gaussian_epsilon(totals.mu, delta) + totals.pure

    def cost(gaussian_part: float) -> float:
        return _gdp_cost(totals, gaussian_part)

    turning = _turning_epsilon(totals.mu, totals.pure, tau)
    return _least_epsilon(cost, delta, turning) + totals.pure


def _least_epsilon(
    cost: Callable[[float], float], delta: float, enough: float
) -> float:
    """Return the smallest private epsilon, rounded up.

    Infinity if not even `enough` is: slack leaves no room.
    """
    if cost(enough) > delta:
        return math.inf
    return smallest_at_most(cost, delta, enough)


def _turning_epsilon(mu: float, pure: float, tau: float) -> float:
    """Return the Gaussian epsilon at which delta falls as fast as slack rises.

    The slope of delta is -Phi(-y) at y = epsilon/mu + mu/2.
    """
    if tau == 0.0:
        return math.inf
    exponent = pure + math.log(tau)
    if exponent >= math.log(0.5):
        return 0.0
    y = -NormalDist().inv_cdf(math.exp(exponent))
    return max(0.0, mu * (y - 0.5 * mu))


def _mixture_epsilon(totals: Totals, delta: float) -> float:
    """Return the smallest epsilon of Gaussian and pure releases as a mixture."""
    # Few runs need it, and a node executes no more than its run needs.
    from flwr_dpkmeans.privacy.mixtures import mixture_of

    mixture = mixture_of(totals.mu, totals.pure_epsilons)
    tau = totals.closeness.additive
    # The largest loss, and the Gaussian tail bound of `gaussian_epsilon`.
    largest_loss = float(mixture.losses[-1])
    deviations = math.sqrt(-2.0 * math.log(delta)) + 0.5 * totals.mu
    enough = largest_loss + totals.mu * deviations
    enough = mixture_turning_epsilon(mixture, tau, enough)

    def cost(epsilon: float) -> float:
        return mixture.delta(epsilon) + slack_cost(tau, epsilon)

    return _least_epsilon(cost, delta, enough)


def mixture_turning_epsilon(mixture: Mixture, tau: float, high: float) -> float:
    """Return the epsilon, at most `high`, at which delta falls as fast as slack rises.

    The slope of delta is minus the absent tail.
    """
    if tau == 0.0 or mixture.absent_tail(high) > tau:
        return high
    return smallest_at_most(mixture.absent_tail, tau, high)


def numerical_epsilon(
    totals: Totals,
    delta: float,
    compose: Callable[[Totals], NumericalLosses | None] | None = None,
) -> float:
    """Return the smallest epsilon by privacy-loss distributions.

    Infinity if there is none. `compose` stands for `losses_of`.
    """
    from flwr_dpkmeans.privacy.losses import FFT_NOISE

    if delta <= FFT_NOISE:
        return math.inf
    numerical = (compose or losses_of)(totals)
    if numerical is None:
        return math.inf
    tau = totals.closeness.additive
    epsilon = numerical.epsilon(delta)
    if tau == 0.0 or math.isinf(epsilon):
        return epsilon

    def cost(trial: float) -> float:
        return numerical.delta(trial) + slack_cost(tau, trial)

    if cost(epsilon) <= delta:
        return epsilon
    if delta <= 2.0 * tau:
        return math.inf
    # Beyond this slack alone costs more than delta.
    highest = math.log(delta / tau - 1.0)
    if highest <= epsilon:
        return math.inf
    cheapest = _lowest_point(cost, epsilon, highest)
    if cost(cheapest) > delta:
        return math.inf

    def is_within(trial: float) -> bool:
        return cost(trial) <= delta

    return smallest_true(is_within, epsilon, cheapest)


def losses_of(totals: Totals) -> NumericalLosses | None:
    """Return the privacy losses of all releases together.

    Equal releases are composed together, and all that are not sampled in closed form.
    None if they are beyond a numerical price.
    """
    if totals.sampled and totals.mu > _LARGEST_MU:
        return None
    from flwr_dpkmeans.privacy.losses import numerical_losses

    groups: Counter[tuple[float, float]] = Counter()
    for event in totals.sampled:
        groups[event.noise_multiplier, event.sampling_rate] += 1
    if totals.multipliers:
        joint_multiplier = 1.0 / _joint_mu(totals.multipliers)
        groups[joint_multiplier, 1.0] = 1
    return numerical_losses(groups, totals.pure_epsilons)


def _lowest_point(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return about where a function that falls and then rises is smallest.

    By golden sections.
    """
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left = high - ratio * (high - low)
    right = low + ratio * (high - low)
    cost_left = cost(left)
    cost_right = cost(right)
    while high - low > 1e-7 * high:
        if cost_left <= cost_right:
            high = right
            right = left
            cost_right = cost_left
            left = high - ratio * (high - low)
            cost_left = cost(left)
        else:
            low = left
            left = right
            cost_left = cost_right
            right = low + ratio * (high - low)
            cost_right = cost(right)
    return left if cost_left <= cost_right else right
