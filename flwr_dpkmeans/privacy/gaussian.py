"""How much Gaussian noise tells: delta in closed form.

*Gaussian noise* of multiplier ``sigma`` (standard deviation over L2 sensitivity) is
``mu``-GDP with ``mu = 1 / sigma``, and ``mu``-GDP is (epsilon, delta)-DP if and only if
(Dong, Roth, Su 2022, Corollary 1; Balle, Wang 2018, Theorem 8) ::

    delta >= Phi(-x) - exp(epsilon) Phi(-y),
    x = epsilon/mu - mu/2,
    y = x + mu = epsilon/mu + mu/2.

Evaluated as written, the second term overflows and the difference cancels. Since
``exp(epsilon) phi(y) = phi(x)``, the right-hand side is ``phi(x) (R(x) - R(y))`` with
the Mills ratio ``R(t) = Phi(-t) / phi(t)``, in which nothing overflows; and since
``R'(t) = t R(t) - 1 =: -D(t)``, it is ``phi(x)`` times the integral of ``D`` from x to
y, in which nothing cancels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import (
    LocalMisuseError,
    require_delta,
    require_positive,
    require_real,
)
from flwr_dpkmeans.privacy.searches import smallest_at_most

UNIT_ROUNDOFF = 2.0**-53
LARGEST_EXPONENT = 700.0
"""Its exponential, and some more, are numbers still."""
_SQRT_HALF = math.sqrt(0.5)
SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_HALF_SQRT_TWO_PI = 0.5 * SQRT_TWO_PI
_CONTINUED_FRACTION_FROM = 2.5
_QUADRATURE_BELOW = 0.5
# Gauss-Legendre, with an error below 1e-16 of delta.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
_QUADRATURE = tuple(zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True))
_NO_DENSITY_FROM = 40.0
"""Beyond so many deviations the density is 0, so that arguments do not matter."""

Array = NDArray[np.float64]


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which mu-GDP implies (epsilon, delta)-DP.

    The relative error is below 1e-12 wherever epsilon and mu are below 1000 and delta
    above 1e-300; smaller ones may be 0.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float
        Above 0.

    Raises
    ------
    LocalMisuseError
        Where ``epsilon / mu`` overflows, or an argument is out of range.
    """
    epsilon = require_real(
        "epsilon", epsilon, "give a number of at least 0 such as 1.0"
    )
    mu = require_positive("mu", mu)
    if epsilon < 0.0:
        raise LocalMisuseError(
            f"epsilon is {epsilon}, but it must be at least 0: give a number such as"
            " 1.0."
        )
    x, y = _arguments(epsilon, mu)
    return _delta_between(x, y, mu)


def gaussian_delta_bound(epsilon: float, mu: float) -> float:
    """Return an upper bound of `gaussian_delta`, which no rounding error exceeds.

    Rounding (about 1e-12) moves x by up to a few units of ``y`` roundoffs, and log
    delta has slope at most ``x + 1`` in x, nearly. `epsilon` of at least 0 and `mu`
    above 0 are taken as checked: searches call it again and again.
    """
    x, y = _arguments(epsilon, mu)
    slope = max(x, 0.0) + 2.0
    allowance = 2e-13 + 8.0 * UNIT_ROUNDOFF * y * slope
    return _delta_between(x, y, mu) * (1.0 + allowance)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which mu-GDP implies (epsilon, delta)-DP.

    Rounded up: never below the true one, and above it by about 1e-12 of it or of `mu`;
    0.0 if even the total variation is private.
    """
    mu = require_positive("mu", mu)
    delta = require_delta(delta)
    # Phi(-x) <= exp(-x^2 / 2) / 2 < delta at x = sqrt(2 log(1 / delta)), and epsilon =
    # mu x + mu^2 / 2 there.
    x_of_delta = math.sqrt(-2.0 * math.log(delta))
    enough = mu * (x_of_delta + 0.5 * mu)

    def bound(epsilon: float) -> float:
        return gaussian_delta_bound(epsilon, mu)

    return smallest_at_most(bound, delta, enough)


def _arguments(epsilon: float, mu: float) -> tuple[float, float]:
    """Return x and y of the module's formula, or raise if they are not defined."""
    half = 0.5 * mu
    ratio = epsilon / mu
    x = ratio - half
    y = ratio + half
    if not math.isfinite(x * x):
        raise LocalMisuseError(
            f"epsilon is {epsilon} and mu is {mu}, but epsilon/mu and mu must be below"
            " 1e154: give less extreme values."
        )
    return x, y


def _delta_between(
    x: float,
    y: float,
    mu: float,
) -> float:
    """Evaluate the module's formula, in the form that neither overflows nor cancels."""
    density = math.exp(-0.5 * x * x) / SQRT_TWO_PI
    if mu < _QUADRATURE_BELOW:
        half = 0.5 * mu
        middle = x + half
        terms = []
        for node, weight in _QUADRATURE:
            slope = mills_slope(middle + half * node)
            terms.append(weight * slope)
        return density * half * math.fsum(terms)
    ratio_at_y = mills_ratio(y)
    if x > 0.0:
        ratio_at_x = mills_ratio(x)
        return density * (ratio_at_x - ratio_at_y)
    tail = 0.5 * math.erfc(x * _SQRT_HALF)
    return tail - density * ratio_at_y


def mills_ratio(t: float) -> float:
    """Return Phi(-t) / phi(t) for t above about -1."""
    if t < _CONTINUED_FRACTION_FROM:
        inverse_density = _HALF_SQRT_TWO_PI * math.exp(0.5 * t * t)
        return inverse_density * math.erfc(t * _SQRT_HALF)
    return 1.0 / (t + _fraction_tail(t))


def mills_slope(t: float) -> float:
    """Return D(t) = 1 - t R(t), minus the Mills ratio's slope, for t above about -1."""
    if t < _CONTINUED_FRACTION_FROM:
        return 1.0 - t * mills_ratio(t)
    tail = _fraction_tail(t)
    return tail / (t + tail)


def _fraction_tail(t: float) -> float:
    """Return K of R(t) = 1 / (t + K), Laplace's continued fraction.

    K = 1/(t + 2/(t + 3/(t + ...))).
    """
    tail = 0.0
    n_terms = 12 + int(420.0 / (t * t))
    for index in range(n_terms, 0, -1):
        tail = index / (t + tail)
    return tail


def gaussian_deltas(epsilons: Array, mu: float) -> Array:
    """Return delta of mu-GDP at any real epsilons.

    By the module's formula, and its symmetry below 0.

    Parameters
    ----------
    epsilons : array of shape (n,)
        Where delta is wanted.
    mu : float
        Above 0.

    Returns
    -------
    array of shape (n,)
        One delta for each.
    """
    from scipy.special import ndtr

    half = 0.5 * mu
    size = np.abs(epsilons)
    ratio = size / mu
    x = ratio - half
    y = ratio + half
    with np.errstate(under="ignore", over="ignore"):
        density = np.exp(-0.5 * x * x) / SQRT_TWO_PI
    if mu < _QUADRATURE_BELOW:
        capped = np.minimum(x, _NO_DENSITY_FROM)
        offsets = half * (1.0 + _NODES)
        points = capped[:, None] + offsets
        slopes = 1.0 - points * _mills_ratios(points)
        deltas = density * half * (slopes @ _WEIGHTS)
    else:
        capped = np.clip(x, 0.0, _NO_DENSITY_FROM)
        ratios_at_x = _mills_ratios(capped)
        ratios_at_y = _mills_ratios(y)
        where_positive = density * (ratios_at_x - ratios_at_y)
        elsewhere = ndtr(-x) - density * ratios_at_y
        deltas = np.where(x > 0.0, where_positive, elsewhere)
    mirrored = -np.expm1(-size) + np.exp(-size) * deltas
    return np.where(epsilons >= 0.0, deltas, mirrored)


def _mills_ratios(t: Array) -> Array:
    from scipy.special import erfcx

    ratios = _HALF_SQRT_TWO_PI * erfcx(t * _SQRT_HALF)
    return np.asarray(ratios, dtype=np.float64)
