"""The exact privacy of Gaussian noise, with the standard library's arithmetic only.

A Gaussian mechanism with noise multiplier ``sigma`` (standard deviation over L2 sensitivity) is ``mu``-GDP with
``mu = 1 / sigma``, and ``mu``-GDP is (epsilon, delta)-DP if and only if (Dong, Roth and Su 2022, Corollary 1; Balle
and Wang 2018, Theorem 8) ::

    delta >= Phi(-x) - exp(epsilon) Phi(-y),        x = epsilon/mu - mu/2,    y = x + mu = epsilon/mu + mu/2.

Evaluated as written, the second term overflows and the difference cancels. Since ``exp(epsilon) phi(y) = phi(x)``,
the right-hand side is ``phi(x) (R(x) - R(y))`` with the Mills ratio ``R(t) = Phi(-t) / phi(t)``, in which nothing
overflows; and since ``R'(t) = t R(t) - 1 =: -D(t)``, it is ``phi(x)`` times the integral of ``D`` from x to y, in
which nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from flwr_dpkmeans.errors import LocalMisuseError, PlanError, require_delta, require_positive, require_real

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_UNIT_ROUNDOFF = 2.0**-53
_CONTINUED_FRACTION_FROM = 2.5
_QUADRATURE_BELOW = 0.5
_NODES, _WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(7))  # error below 1e-16 of delta
_MAX_STEPS = 2200
_RELATIVE_PRECISION = 2.0**-43

CALIBRATION_SHADE = 1.0 - 2.0**-41
"""What epsilon and delta are multiplied by before noise is calibrated to them.

A calibrated plan is priced again by a search of its own, whose last digits must not end above the request."""


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which `mu`-GDP implies (`epsilon`, delta)-DP.

    Parameters
    ----------
    epsilon : float
        The epsilon, at least 0.
    mu : float
        The parameter of Gaussian differential privacy, L2 sensitivity over standard deviation; greater than 0.

    Returns
    -------
    float
        The delta, with a relative error below 1e-12 wherever epsilon and mu are below 1000 and delta above 1e-300;
        a delta too small for a float is 0.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range or ``epsilon / mu`` overflows.

    References
    ----------
    Dong, Roth and Su 2022, "Gaussian differential privacy", Corollary 1; Balle and Wang 2018, "Improving the
    Gaussian mechanism for differential privacy", Theorem 8.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 12)
    0.126936737507
    """
    x, y = _arguments(epsilon, mu)
    density = math.exp(-0.5 * x * x) / _SQRT_TWO_PI
    if density == 0.0 and x > 0.0:
        return 0.0
    if mu < _QUADRATURE_BELOW:
        half, middle = 0.5 * mu, x + 0.5 * mu
        terms = zip(_NODES, _WEIGHTS, strict=True)
        return density * half * math.fsum(weight * _mills_slope(middle + half * node) for node, weight in terms)
    if x > 0.0:
        return density * (_mills(x) - _mills(y))
    return 0.5 * math.erfc(x * _SQRT_HALF) - density * _mills(y)


def gaussian_delta_bound(epsilon: float, mu: float) -> float:
    """Return an upper bound of `gaussian_delta`, which no rounding error of this module exceeds.

    Parameters
    ----------
    epsilon : float
        The epsilon, at least 0.
    mu : float
        The parameter of Gaussian differential privacy, greater than 0.

    Returns
    -------
    float
        The computed delta times one plus an allowance for rounding (about 1e-12). Rounding moves x by up to a few
        units of ``y`` roundoffs, and log delta has slope at most ``x + 1`` in x (up to a factor near 1).

    Raises
    ------
    LocalMisuseError
        As `gaussian_delta`.

    Examples
    --------
    >>> 0.0 < gaussian_delta_bound(1.0, 1.0) - gaussian_delta(1.0, 1.0) < 1e-12
    True
    """
    x, y = _arguments(epsilon, mu)
    allowance = 2e-13 + 8.0 * _UNIT_ROUNDOFF * y * (max(x, 0.0) + 2.0)
    return gaussian_delta(epsilon, mu) * (1.0 + allowance)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which `mu`-GDP implies (epsilon, `delta`)-DP, rounded up.

    Parameters
    ----------
    mu : float
        The parameter of Gaussian differential privacy, greater than 0.
    delta : float
        The delta, greater than 0 and less than 1.

    Returns
    -------
    float
        The epsilon, never below the true one, and above it by about 1e-12 of it or of `mu`; 0.0 if the total-variation
        distance at `mu` is at most `delta`.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.
    PlanError
        If the search does not converge, which no argument in range should cause.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-6), 6)
    4.886554
    """
    mu, delta = require_positive("mu", mu), require_delta(delta)
    # Phi(-x) <= exp(-x^2 / 2) / 2 < delta at x = sqrt(2 log(1 / delta)), and epsilon = mu x + mu^2 / 2 there.
    enough = mu * (math.sqrt(-2.0 * math.log(delta)) + 0.5 * mu)
    return smallest_true(lambda epsilon: gaussian_delta_bound(epsilon, mu) <= delta, 0.0, enough)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier whose Gaussian noise is (`epsilon`, `delta`)-DP, rounded up.

    Parameters
    ----------
    epsilon : float
        The epsilon, greater than 0.
    delta : float
        The delta, greater than 0 and less than 1.

    Returns
    -------
    float
        The standard deviation over the L2 sensitivity. ``gaussian_delta(epsilon, 1 / sigma) <= delta`` always holds,
        and sigma is above the smallest such value by about 1e-12 of it.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.
    PlanError
        If the search does not converge, which no argument in range should cause.

    References
    ----------
    Balle and Wang 2018, Theorem 8 and Algorithm 1.

    Examples
    --------
    >>> round(gaussian_noise_multiplier(1.0, 1e-6), 6)
    4.224679
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    tail = math.sqrt(-2.0 * math.log(delta))
    # Two values of mu that are surely private: the tail bound of `gaussian_epsilon`, and delta(0) <= mu / sqrt(2 pi).
    private_mu = max(2.0 * epsilon / (tail + math.sqrt(tail * tail + 2.0 * epsilon)), delta * _SQRT_TWO_PI)
    epsilon, delta = epsilon * CALIBRATION_SHADE, delta * CALIBRATION_SHADE
    start = 1.0 / _refine_mu(epsilon, delta, private_mu)
    return smallest_multiplier(lambda sigma: gaussian_delta_bound(epsilon, 1.0 / sigma) <= delta, start)


def smallest_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return, by bisection, the smallest value from which on `holds` is true, landing on the true side.

    Parameters
    ----------
    holds : Callable[[float], bool]
        A condition that is false below some value and true from there on.
    low, high : float
        The range of the search, at least 0; `holds(high)` must be true, and need not be false at `low`.

    Returns
    -------
    float
        A value at which `holds` was seen to be true, within 2^-43 of the smallest one, relatively.

    Raises
    ------
    PlanError
        If `holds(high)` is false, or a value is not finite.

    Examples
    --------
    >>> round(smallest_true(lambda value: value * value >= 2.0, 0.0, 2.0), 10)
    1.4142135624
    """
    if holds(low):
        return low
    if not (math.isfinite(high) and low < high and holds(high)):
        raise PlanError(f"no value up to {high} meets the privacy condition: give a larger epsilon or a larger delta.")
    for _ in range(_MAX_STEPS):
        middle = low + 0.5 * (high - low)
        if high - low <= _RELATIVE_PRECISION * high or not low < middle < high:
            return high
        low, high = (low, middle) if holds(middle) else (middle, high)
    raise PlanError(f"the search between {low} and {high} did not converge: give a larger epsilon or a larger delta.")


def smallest_multiplier(private: Callable[[float], bool], start: float) -> float:
    """Return the smallest noise multiplier that is `private`, landing on the private side.

    Parameters
    ----------
    private : Callable[[float], bool]
        Whether a noise multiplier is private enough; false below some multiplier and true from there on.
    start : float
        A multiplier greater than 0; the nearer it is to the answer, the quicker the search.

    Returns
    -------
    float
        A multiplier at which `private` was seen to be true, within 2^-43 of the smallest one, relatively.

    Raises
    ------
    PlanError
        If no multiplier up to 1e100 is private, or every one down to 1e-100 is.

    Examples
    --------
    >>> round(smallest_multiplier(lambda sigma: sigma >= 3.0, 1.0), 10)
    3.0
    """
    low = high = start
    step = _RELATIVE_PRECISION
    while not private(high):
        low, high, step = high, high * (1.0 + step), 8.0 * step
        if not high < 1e100:
            raise PlanError(
                "no noise multiplier up to 1e100 meets the privacy condition: "
                "give a larger epsilon, a larger delta or a finer grid."
            )
    while private(low):
        low, high, step = low / (1.0 + step), low, 8.0 * step
        if not low > 1e-100:
            raise PlanError(
                "every noise multiplier down to 1e-100 meets the privacy condition: "
                "give a smaller epsilon or a smaller delta."
            )
    return smallest_true(private, low, high)


def _arguments(epsilon: float, mu: float) -> tuple[float, float]:
    """Return x and y of the module's formula, or raise if they are not defined."""
    epsilon = require_real("epsilon", epsilon, "give a number of at least 0 such as 1.0")
    mu = require_positive("mu", mu)
    if epsilon < 0.0:
        raise LocalMisuseError(f"epsilon is {epsilon}, but it must be at least 0: give a number such as 1.0.")
    x, y = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    if not math.isfinite(x * x):
        raise LocalMisuseError(
            f"epsilon is {epsilon} and mu is {mu}, but epsilon/mu and mu must be below 1e154: give less extreme values."
        )
    return x, y


def _refine_mu(epsilon: float, delta: float, mu: float) -> float:
    """Return a mu near the solution of gaussian_delta(epsilon, mu) = delta, by Newton steps in log mu and log delta."""
    for _ in range(12):
        value, x = gaussian_delta(epsilon, mu), epsilon / mu - 0.5 * mu
        slope = mu * math.exp(-0.5 * x * x) / _SQRT_TWO_PI  # the derivative of delta in log mu is mu phi(x)
        if value == 0.0 or slope == 0.0:
            break
        step = math.log(delta / value) * value / slope
        mu *= math.exp(max(-1.0, min(1.0, step)))
        if abs(step) < _RELATIVE_PRECISION:
            break
    return mu


def _mills(t: float) -> float:
    """Return the Mills ratio Phi(-t) / phi(t) for t above about -1."""
    if t < _CONTINUED_FRACTION_FROM:
        return 0.5 * _SQRT_TWO_PI * math.exp(0.5 * t * t) * math.erfc(t * _SQRT_HALF)
    return 1.0 / (t + _fraction_tail(t))


def _mills_slope(t: float) -> float:
    """Return D(t) = 1 - t R(t), minus the derivative of the Mills ratio, for t above about -1."""
    if t < _CONTINUED_FRACTION_FROM:
        return 1.0 - t * _mills(t)
    tail = _fraction_tail(t)
    return tail / (t + tail)


def _fraction_tail(t: float) -> float:
    """Return K of R(t) = 1 / (t + K), K = 1/(t + 2/(t + 3/(t + ...))), Laplace's continued fraction."""
    depth = 12 + int(420.0 / (t * t))
    tail = 0.0
    for index in range(depth, 0, -1):
        tail = index / (t + tail)
    return tail
