"""What runs cost together: their squared GDP parameters add up.

A cost (mu, kappa) says of the outputs P and Q on any two neighbouring data sets ::

    H(t) <= H_mu(t) + kappa for all t > 0,

with H(t) the integral of (p - t q)+ and H_mu that of mu-GDP. Costs add up as squares of
mu and sums of kappa, also where each run is chosen by what the others have released, as
long as the totals of both are fixed before. Proof table, row C17:

Let a run of cost (mu_1, kappa_1) release y, with densities p and q, and let what
follows on y cost at most (mu_2, kappa_2), mu_2 being what is left of the total. Then ::

    H(t) <= E_y[H_mu2(t q/p) + kappa_2] = E_z[H_1(t phi_0(z) / phi_mu2(z))] + kappa_2
         <= H_mu(t) + kappa_1 + kappa_2,  mu^2 = mu_1^2 + mu_2^2,

z being the other Gaussian. By induction that holds for any number of runs, chosen and
stopped by whatever came before (Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023).
Where mu_2 and kappa_2 could be traded for each other after y, or whole privacy curves
were composed, the bound would depend on y and fail (Honkela, Koskela, Tran, Raisa,
arXiv 2602.06756).

A pure epsilon tells no more than the mu whose trade-off curve, which is convex, meets
the corner of its own, two straight lines: mu = -2 Phi^-1(1 / (1 + exp(epsilon))).
Drawn noise with the closeness (a, b, tau) has H(t) <= exp(a) H_mu(t exp(-a - b)) plus
what tau costs. From there to H_(mu + m)(t) the path that changes mu, epsilon and the
factor together never falls if m >= a R(x) + b R(y) along it, R being the Mills ratio,
and x and y at least -mu/2 - m/2 - (a + b)/mu and mu/2 - (a + b)/mu.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from flwr_dpkmeans.privacy import gaussian, release
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.closeness import SAME, Closeness, joint_closeness, slack_cost
from flwr_dpkmeans.privacy.release import Event

_NORMAL = NormalDist()
_ROUNDED_UP = 1.0 + 1e-12
_STEEP = math.sqrt(0.5 * math.pi)
"""What mu of a pure release is over its epsilon, at most, and nearly where that is
small.
"""
_LARGEST_PURE = 700.0
_TAILS = range(4, 100, 4)
"""Epsilons from which on the tail of a cost may be bounded by one number."""


@dataclass(frozen=True)
class GaussianCost:
    """No more than so much Gaussian noise tells, up to a probability."""

    mu: float = 0.0
    """GDP parameter; infinite without privacy."""
    own_delta: float = 0.0
    """kappa: what is not Gaussian."""

    def and_run(self, other: GaussianCost) -> GaussianCost:
        """Add the cost of another run."""
        return GaussianCost(
            math.hypot(self.mu, other.mu),
            self.own_delta + other.own_delta,
        )

    def and_part(self, other: GaussianCost) -> GaussianCost:
        """Add another part of the same run, whose noise hides a row of both.

        As two rows of one person: first one of them is taken away, then the other.
        """
        more = other.own_delta
        if more > 0.0 and self.mu > 0.0:
            more = _more_likely(more, self.mu)
        return GaussianCost(self.mu + other.mu, self.own_delta + more)

    def is_within(self, other: GaussianCost) -> bool:
        """Whether neither part exceeds another cost's."""
        return self.mu <= other.mu and self.own_delta <= other.own_delta

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at a delta, infinity if there is none."""
        room = delta - self.own_delta
        if self.mu == 0.0 and room >= 0.0:
            return 0.0
        if math.isinf(self.mu) or room <= 0.0:
            return math.inf
        return gaussian.gaussian_epsilon(self.mu, min(room, 0.5))


@dataclass(frozen=True)
class Total:
    """What all runs together may cost, fixed before the first of them."""

    epsilon: float
    delta: float
    own_share: float = 0.01
    """Part of delta for what is not Gaussian.

    It is no more than that, and mu no more than the rest allows, whatever the other has
    left: whoever may choose after a release which of them takes the whole delta gets
    twice as much (`test_a_delta_that_either_may_take_is_caught`).
    """

    @property
    def cost(self) -> GaussianCost:
        """The largest mu, and the largest kappa."""
        own_delta = self.delta * self.own_share
        mu = largest_mu(self.epsilon, self.delta - own_delta)
        return GaussianCost(mu, own_delta)

    def left(self, spent: GaussianCost) -> float:
        """Return the epsilon, at this delta, of one more Gaussian run that fits."""
        whole = self.cost
        if spent.own_delta > whole.own_delta:
            return 0.0
        if math.isinf(whole.mu):
            # Runs without privacy may be among what is allowed.
            return math.inf
        if spent.mu >= whole.mu:
            return 0.0
        square = whole.mu**2 - spent.mu**2
        rest = GaussianCost(math.sqrt(square), whole.own_delta)
        return rest.epsilon(self.delta)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose GDP is private to a total epsilon and delta.

    0.0 if none is.
    """
    if epsilon <= 0.0 or delta <= 0.0:
        return 0.0
    if math.isinf(epsilon) or delta >= 1.0:
        return math.inf
    return 1.0 / gaussian_noise_multiplier(epsilon, delta)


@cache
def pure_mu(epsilon: float) -> float:
    """Return the mu whose GDP tells no less than a pure epsilon, rounded up.

    -2 Phi^-1(1 / (1 + exp(epsilon))): the trade-off curve of mu-GDP is convex, and
    meets the corners of the other, straight between them.
    """
    if epsilon > _LARGEST_PURE:
        # Phi(-x) <= exp(-x^2 / 2) / 2.
        return 2.0 * math.sqrt(2.0 * epsilon)
    if epsilon < 1e-3:
        return _STEEP * epsilon
    corner = 1.0 / (1.0 + math.exp(epsilon))
    return -2.0 * _NORMAL.inv_cdf(corner) * _ROUNDED_UP


def pair_cost(epsilon: float, delta: float) -> GaussianCost:
    """Return the cost of whatever is (epsilon, delta)-private.

    Kairouz, Oh, Viswanath 2015: it is no worse than a pure release that fails with
    probability delta.
    """
    return GaussianCost(pure_mu(epsilon), delta)


def signal(events: Iterable[Event]) -> float:
    """Return mu of releases as they are analysed, sampled ones as if all took part."""
    total = 0.0
    for event in events:
        mu = math.inf
        match event:
            case release.GaussianRelease():
                mu = 1.0 / event.noise_multiplier
            case release.PureRelease():
                mu = pure_mu(event.epsilon)
        total = math.hypot(total, mu)
    return total


def drawn_cost(mu: float, parts: Iterable[Closeness]) -> GaussianCost | None:
    """Return the cost of releases whose drawn noise is close to that of a mu.

    None where it is not close enough: see `pair_cost`.
    """
    closeness = joint_closeness(parts)
    if closeness == SAME or math.isinf(mu):
        return GaussianCost(mu)
    ratio = closeness.log_ratio
    farthest = ratio / mu
    half = 0.5 * mu
    lowest = -half - 0.5 - farthest
    if lowest < -30.0 or ratio > 1.0:
        return None
    at_lowest = gaussian.mills_ratio(lowest)
    beside = gaussian.mills_ratio(half - farthest)
    more = closeness.log_ratio_above * at_lowest
    more += closeness.log_ratio_below * beside
    if more > 1.0:
        return None
    tails = []
    for epsilon in _TAILS:
        beyond = gaussian.gaussian_delta_bound(epsilon - 1.0, mu)
        tails.append(beyond + slack_cost(closeness.additive, epsilon))
    # e**ratio is below 3.
    return GaussianCost(mu + more, 3.0 * min(tails))


def _more_likely(probability: float, mu: float) -> float:
    """Return what mu-GDP makes of an event's probability, at most."""
    if probability >= 1.0 or math.isinf(mu):
        return 1.0
    shifted = _NORMAL.inv_cdf(probability) + mu
    tail = math.erfc(-shifted * math.sqrt(0.5))
    return 0.5 * tail * _ROUNDED_UP
