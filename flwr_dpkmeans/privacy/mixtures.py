"""How much Gaussian and pure releases tell together.

A release of pure epsilon e is no worse than randomized response, whose privacy loss is
e with probability 1 / (1 + exp(-e)) and -e otherwise (Kairouz, Oh and Viswanath 2015,
Theorem 3.3 and its lemmas); all Gaussian releases together are one of parameter mu.
Given the sum L of the randomized responses' losses only the Gaussian part is left to
chance, so that the whole, adaptive or not, has

    delta(epsilon) = E[delta_mu(epsilon - L)],

delta_mu being the delta of Gaussian noise of mu-GDP (`gaussian.py`), continued to
negative arguments. L has few values, or is moved to a grid in the way of Doroshenko et
al. 2022 ("Connect the dots"), which never lowers delta: an atom is split over the two
neighbouring grid points so that its probabilities under both hypotheses stay the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.privacy.gaussian import UNIT_ROUNDOFF, Array, gaussian_deltas

_MOST_ATOMS = 4096
Atoms = tuple[Array, Array]
"""Losses and their probabilities where the unit is present."""


@dataclass(frozen=True)
class Mixture:
    """One Gaussian release and the sum of the losses of randomized responses."""

    mu: float
    """GDP parameter of the Gaussian part, greater than 0."""
    losses: Array
    """The values of the sum in increasing order, symmetric about 0."""
    probabilities: Array
    """Theirs, where the unit is present; in reverse order those where it is absent."""

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta.

        Above it by rounding errors only (about 1e-11 of it).
        """
        rest = epsilon - self.losses
        deltas = gaussian_deltas(rest, self.mu)
        loss_sizes = np.abs(self.losses)
        magnitude = abs(epsilon) + loss_sizes
        size = magnitude / self.mu + self.mu
        # As in `gaussian_delta_bound`: what moves the argument x by an ulp moves log
        # delta by up to x + 1 ulps.
        x = rest / self.mu
        depth = np.clip(x, 0.0, 40.0)
        slope = depth + 2.0
        n_losses = len(self.losses)
        n_roundoffs = 8.0 * size * slope + 2.0 * n_losses
        allowance = 4e-12 + UNIT_ROUNDOFF * n_roundoffs
        bounds = deltas * (1.0 + allowance)
        return float(self.probabilities @ bounds)

    def absent_tail(self, epsilon: float) -> float:
        """Return the probability of a loss above epsilon where the unit is absent.

        Minus d delta / d exp(epsilon).
        """
        from scipy.special import ndtr

        rest = epsilon - self.losses
        half = 0.5 * self.mu
        arguments = -rest / self.mu - half
        tails = ndtr(arguments)
        where_absent = self.probabilities[::-1]
        return float(where_absent @ tails)


def mixture_of(mu: float, pure_epsilons: Sequence[float]) -> Mixture:
    """Return a mixture that Gaussian releases and pure ones are no worse than.

    Parameters
    ----------
    mu : float
        GDP parameter of all Gaussian releases together.
    pure_epsilons : sequence of float
        Epsilon of each pure release.
    """
    counts = Counter(pure_epsilons)
    groups = []
    n_atoms = 1
    for epsilon, count in sorted(counts.items()):
        groups.append(responses(epsilon, count))
        n_atoms *= count + 1
    if n_atoms <= _MOST_ATOMS:
        return _exact_mixture(mu, groups)
    width = 2.0 * math.fsum(pure_epsilons)
    step = width / _MOST_ATOMS
    probabilities = np.ones(1)
    for group_losses, weights in groups:
        moved = on_grid(group_losses, weights, step)
        probabilities = np.convolve(probabilities, moved)
    reach = len(probabilities) // 2
    points = np.arange(-reach, reach + 1.0)
    return Mixture(
        mu=mu,
        losses=step * points,
        probabilities=probabilities,
    )


def _exact_mixture(mu: float, groups: Sequence[Atoms]) -> Mixture:
    """Add up the losses of groups of releases, each sum an atom of its own."""
    losses = np.zeros(1)
    probabilities = np.ones(1)
    for group_losses, weights in groups:
        sums = np.add.outer(losses, group_losses)
        products = np.multiply.outer(probabilities, weights)
        order = np.argsort(sums, axis=None, kind="stable")
        losses = sums.ravel()[order]
        probabilities = products.ravel()[order]
    return Mixture(
        mu=mu,
        losses=losses,
        probabilities=probabilities,
    )


def responses(epsilon: float, count: int) -> Atoms:
    """Return losses and probabilities of randomized responses of epsilon each."""
    from scipy.special import expit

    wrong = expit(-epsilon)
    right = expit(epsilon)
    single = np.array([wrong, right])
    probabilities = np.ones(1)
    for _ in range(count):
        probabilities = np.convolve(probabilities, single)
    n_right = np.arange(count + 1.0)
    excess_right = 2.0 * n_right - count
    return epsilon * excess_right, probabilities


def on_grid(
    losses: Array,
    probabilities: Array,
    step: float,
) -> Array:
    """Move atoms to the points of a symmetric grid.

    Each is split over its two nearest points so that its probability is unchanged under
    both hypotheses, with and without the unit.
    """
    position = losses / step
    point_below = np.floor(position)
    distance = (point_below - position) * step
    part_above = np.expm1(distance)
    to_upper = part_above / math.expm1(-step)
    upper = probabilities * to_upper
    rest = probabilities - upper
    lower = np.maximum(rest, 0.0)
    below = point_below.astype(np.int64)
    reach = int(below.max()) + 1
    size = 2 * reach + 1
    index = below + reach
    lower_total = np.bincount(
        index,
        weights=lower,
        minlength=size,
    )
    upper_total = np.bincount(
        index + 1,
        weights=upper,
        minlength=size,
    )
    total = lower_total + upper_total
    return total.astype(np.float64)
