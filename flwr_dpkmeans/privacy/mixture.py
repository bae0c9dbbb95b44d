"""The exact price of Gaussian releases together with pure ones.

A release of pure epsilon e is no worse than randomized response, whose privacy loss is e with probability
1 / (1 + exp(-e)) and -e otherwise (Kairouz, Oh and Viswanath 2015, Theorem 3.3 and its lemmas); all Gaussian releases
together are one of parameter mu. Given the sum L of the randomized responses' losses only the Gaussian part is left to
chance, so that the whole, adaptive or not, has

    delta(epsilon) = E[delta_mu(epsilon - L)],

delta_mu being the formula of `flwr_dpkmeans.privacy.gaussian`, continued to negative arguments. L has few values, or
is moved to a grid in the way of Doroshenko et al. 2022 ("Connect the dots"), which never lowers delta: an atom is
split over the two neighbouring grid points so that its probabilities under both hypotheses stay the same.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.gaussian import smallest_true
from flwr_dpkmeans.privacy.totals import Totals, slack_cost

_MOST_ATOMS = 4096
_QUADRATURE_BELOW = 0.5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
_UNIT_ROUNDOFF = 2.0**-53
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """One Gaussian release and the sum of the losses of randomized responses.

    Parameters
    ----------
    mu : float
        GDP parameter of the Gaussian part, greater than 0.
    losses : ndarray, (n,)
        The values of the sum in increasing order, symmetric about 0.
    probabilities : ndarray, (n,)
        Theirs, where the unit is present; in reverse order those where it is absent.
    """

    mu: float
    losses: Array
    probabilities: Array

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at `epsilon`, above it by rounding errors only (about 1e-11 of it)."""
        deltas = _gaussian_deltas(epsilon - self.losses, self.mu)
        size = (abs(epsilon) + np.abs(self.losses)) / self.mu + self.mu
        # As in `gaussian_delta_bound`: what moves the argument x by an ulp moves log delta by up to x + 1 ulps.
        depth = np.clip((epsilon - self.losses) / self.mu, 0.0, 40.0) + 2.0
        allowance = 4e-12 + _UNIT_ROUNDOFF * (8.0 * size * depth + 2.0 * len(self.losses))
        return float(self.probabilities @ (deltas * (1.0 + allowance)))

    def absent_tail(self, epsilon: float) -> float:
        """Return the probability of a loss above `epsilon` where the unit is absent: minus d delta / d exp(epsilon)."""
        from scipy.special import ndtr

        return float(self.probabilities[::-1] @ ndtr(-(epsilon - self.losses) / self.mu - 0.5 * self.mu))


def mixture_of(totals: Totals) -> Mixture:
    """Return the mixture that the Gaussian and pure releases of `totals` are no worse than."""
    groups = [_responses(epsilon, count) for epsilon, count in sorted(Counter(totals.pure_epsilons).items())]
    losses, probabilities = np.zeros(1), np.ones(1)
    if math.prod(len(more) for more, _ in groups) <= _MOST_ATOMS:
        for more, weights in groups:
            sums = np.add.outer(losses, more).ravel()
            order = np.argsort(sums, kind="stable")
            losses, probabilities = sums[order], np.multiply.outer(probabilities, weights).ravel()[order]
    else:
        step = 2.0 * totals.pure / _MOST_ATOMS
        for more, weights in groups:
            probabilities = np.convolve(probabilities, _on_grid(more, weights, step))
        reach = len(probabilities) // 2
        losses = step * np.arange(-reach, reach + 1, dtype=np.float64)
    return Mixture(totals.mu, losses, probabilities)


def mixture_delta(totals: Totals, epsilon: float) -> float:
    """Return the smallest delta at epsilons of at most `epsilon`, slack included."""
    mixture = mixture_of(totals)
    if totals.tau > 0.0:
        epsilon = _turning_epsilon(mixture, totals.tau, epsilon)
    return min(1.0, mixture.delta(epsilon) + slack_cost(totals.tau, epsilon))


def mixture_epsilon(totals: Totals, delta: float) -> float:
    """Return the smallest epsilon at `delta`, slack included, rounded up; infinity if slack leaves no room."""
    mixture = mixture_of(totals)
    # The largest loss, and the Gaussian tail bound of `gaussian_epsilon`.
    enough = float(mixture.losses[-1]) + totals.mu * (math.sqrt(-2.0 * math.log(delta)) + 0.5 * totals.mu)
    if totals.tau > 0.0:
        enough = _turning_epsilon(mixture, totals.tau, enough)

    def private(epsilon: float) -> bool:
        return mixture.delta(epsilon) + slack_cost(totals.tau, epsilon) <= delta

    return smallest_true(private, 0.0, enough) if private(enough) else math.inf


def _turning_epsilon(mixture: Mixture, tau: float, high: float) -> float:
    """Return the epsilon, at most `high`, beyond which delta with the cost of slack no longer falls.

    In exp(epsilon), delta is convex with slope minus the absent tail, and the cost of slack has slope tau.
    """
    if mixture.absent_tail(high) > tau:
        return high
    return smallest_true(lambda epsilon: mixture.absent_tail(epsilon) <= tau, 0.0, high)


def _responses(epsilon: float, count: int) -> tuple[Array, Array]:
    """Return the losses and probabilities of `count` randomized responses of `epsilon` each."""
    from scipy.special import expit

    single = np.array([expit(-epsilon), expit(epsilon)])
    probabilities = np.ones(1)
    for _ in range(count):
        probabilities = np.convolve(probabilities, single)
    return epsilon * np.arange(-count, count + 1, 2, dtype=np.float64), probabilities


def _on_grid(losses: Array, probabilities: Array, step: float) -> Array:
    """Return the probabilities of a symmetric grid to which atoms were moved, unchanged under both hypotheses."""
    position = losses / step
    below = np.floor(position).astype(np.int64)
    upper = probabilities * (np.expm1((below - position) * step) / math.expm1(-step))
    lower = np.maximum(probabilities - upper, 0.0)
    reach = int(max(-below.min(), below.max() + 1))
    size = 2 * reach + 1
    total = np.bincount(below + reach, lower, size) + np.bincount(below + reach + 1, upper, size)
    return total.astype(np.float64)


def _gaussian_deltas(epsilons: Array, mu: float) -> Array:
    """Return delta of `mu`-GDP at any real epsilons: the formula of `gaussian`, and its symmetry below 0."""
    from scipy.special import erfcx, ndtr

    size = np.abs(epsilons)
    x = size / mu - 0.5 * mu
    y = size / mu + 0.5 * mu
    with np.errstate(under="ignore", over="ignore"):
        density = np.exp(-0.5 * x * x) / _SQRT_TWO_PI

    def mills(t: Array) -> Array:
        return np.asarray(0.5 * _SQRT_TWO_PI * erfcx(t * math.sqrt(0.5)), dtype=np.float64)

    # Beyond 40 the density is 0, so that the argument does not matter there.
    if mu < _QUADRATURE_BELOW:
        points = np.minimum(x, 40.0)[:, None] + 0.5 * mu * (1.0 + _NODES)
        deltas = density * (0.5 * mu) * ((1.0 - points * mills(points)) @ _WEIGHTS)
    else:
        positive = np.clip(x, 0.0, 40.0)
        deltas = np.where(x > 0.0, density * (mills(positive) - mills(y)), ndtr(-x) - density * mills(y))
    return np.where(epsilons >= 0.0, deltas, -np.expm1(-size) + np.exp(-size) * deltas)
