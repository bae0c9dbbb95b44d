"""How much releases over Poisson samples tell: their losses, on a grid.

Such a release is dominated by two pairs of distributions, one for removing and one for
adding a unit, each of which composes with the pairs of the other releases (Zhu, Dong
and Wang 2022, Theorems 10 and 11); the larger of the two deltas counts. Google's
``dp_accounting`` puts each pair on a grid so that no delta falls (Doroshenko et al.
2022) and composes by fast Fourier transforms. `mixtures` prices pure releases together
with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.gaussian import LARGEST_EXPONENT
from flwr_dpkmeans.privacy.mixtures import on_grid, responses

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

FFT_NOISE = 1e-13
"""Part of delta that is set aside for rounding.

Convolutions by FFT carry absolute errors near 1e-15 in each probability.
"""
_STEP = 0.04
"""Step of the grid over the standard deviation that one release has if all are alike.

Epsilon rises by some 1e-4 of it.
"""
_MOST_POINTS = 2.0**16

Gaussians = Mapping[tuple[float, float], int]
"""How many releases there are, by noise multiplier and sampling rate."""


@dataclass(frozen=True)
class NumericalLosses:
    """The losses of all releases by ``dp_accounting``, pessimistic.

    What its transforms round off comes on top here.
    """

    distribution: PrivacyLossDistribution

    def delta(self, epsilon: float) -> float:
        """Return delta at an epsilon."""
        delta = float(self.distribution.get_delta_for_epsilon(epsilon))
        return _require_number(delta) + FFT_NOISE

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at a delta above `FFT_NOISE`.

        Infinity if there is none.
        """
        rest = delta - FFT_NOISE
        return _require_number(float(self.distribution.get_epsilon_for_delta(rest)))


def _require_number(value: float) -> float:
    if math.isnan(value):
        raise PlanError(
            "the privacy loss is not a number (its range is too wide to compute): give"
            " noise multipliers nearer to 1."
        )
    return value


def numerical_losses(
    gaussians: Gaussians, pure_epsilons: Sequence[float]
) -> NumericalLosses:
    """Return the privacy losses of Gaussian and pure releases together.

    A pure release stands for the worst mechanism of its epsilon: discrete Laplace noise
    of a few grid steps leaks more than continuous noise.

    Parameters
    ----------
    gaussians : mapping
        Counts of releases by multiplier and sampling rate.
    pure_epsilons : sequence of float
        Epsilon of each pure release.

    Raises
    ------
    PlanError
        If the privacy loss cannot be computed in floating point.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = grid_step(gaussians, pure_epsilons)
    total = pld.identity(value_discretization_interval=step)
    try:
        for (multiplier, rate), count in sorted(gaussians.items()):
            part = pld.from_gaussian_mechanism(
                multiplier, sampling_prob=rate, value_discretization_interval=step
            )
            if count > 1:
                part = part.self_compose(count)
            total = total.compose(part)
        for epsilon, count in sorted(Counter(pure_epsilons).items()):
            part = randomized_response(epsilon, step)
            total = total.compose(part.self_compose(count))
    except (ValueError, ArithmeticError) as error:
        raise PlanError(
            f"the privacy-loss distribution cannot be computed ({error}): give noise"
            " multipliers nearer to 1."
        ) from error
    return NumericalLosses(total)


def grid_step(gaussians: Gaussians, pure_epsilons: Sequence[float]) -> float:
    """Choose a step for privacy losses.

    A power of two, so that the price does not flicker as the noise changes.
    """
    squares = [epsilon * epsilon for epsilon in pure_epsilons]
    variance = math.fsum(squares)
    widths = [2.0 * epsilon for epsilon in set(pure_epsilons)]
    width = math.fsum(widths)
    for (multiplier, rate), count in gaussians.items():
        mu = 1.0 / multiplier
        variance += count * mu * mu * _sampled_variance_factor(mu, rate)
        width += _sampled_width(mu, rate)
    n_releases = len(pure_epsilons) + sum(gaussians.values())
    deviation = math.sqrt(variance / n_releases)
    step = max(_STEP * deviation, width / _MOST_POINTS, 1e-15)
    exponent = math.floor(math.log2(step))
    return 2.0**exponent


def _sampled_variance_factor(mu: float, rate: float) -> float:
    """Return the variance of a sampled release's loss over mu squared.

    That of weak releases, and that of the Gaussian as its bound.
    """
    exponent = min(mu * mu, LARGEST_EXPONENT)
    growth = math.expm1(exponent) / (mu * mu)
    return min(1.0, rate * rate * growth)


def _sampled_width(mu: float, rate: float) -> float:
    """Return the range of a sampled release's losses.

    Ten standard deviations to either side, as ``dp_accounting`` has it.
    """
    reach = mu * (10.0 + 0.5 * mu)
    exponent = min(reach, LARGEST_EXPONENT)
    largest_gain = rate * math.expm1(exponent)
    above = min(reach, largest_gain)
    largest_fall = -math.log1p(-min(rate, 0.99))
    below = min(reach, largest_fall)
    return 2.0 * above + below


def randomized_response(epsilon: float, step: float) -> PrivacyLossDistribution:
    """Return the loss distribution of the worst mechanism of pure epsilon.

    Each loss is split over two grid points.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    losses, weights = responses(epsilon, 1)
    probabilities = on_grid(losses, weights, step)
    middle = len(probabilities) // 2
    masses = {}
    for index in np.flatnonzero(probabilities):
        masses[int(index) - middle] = probabilities[index]
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        masses, 0.0, step
    )
