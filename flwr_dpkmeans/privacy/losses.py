"""How much noise tells: delta of Gaussian noise in closed form, of its mixtures, and of
releases over samples.

*Gaussian noise* of multiplier ``sigma`` (standard deviation over L2 sensitivity) is
``mu``-GDP with ``mu = 1 / sigma``, and ``mu``-GDP is (epsilon, delta)-DP if and only if
(Dong, Roth, Su 2022, Corollary 1; Balle, Wang 2018, Theorem 8) ::

    delta >= Phi(-x) - exp(epsilon) Phi(-y),        x = epsilon/mu - mu/2,    y = x + mu = epsilon/mu + mu/2.

Evaluated as written, the second term overflows and the difference cancels. Since
``exp(epsilon) phi(y) = phi(x)``, the right-hand side is ``phi(x) (R(x) - R(y))`` with
the Mills ratio ``R(t) = Phi(-t) / phi(t)``, in which nothing overflows; and since
``R'(t) = t R(t) - 1 =: -D(t)``, it is ``phi(x)`` times the integral of ``D`` from x to
y, in which nothing cancels.

How pure releases and releases over samples are priced together with it is derived in
``README.md`` ("Mixtures").
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import (
    LocalMisuseError,
    PlanError,
    require_delta,
    require_positive,
    require_real,
)

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_HALF_SQRT_TWO_PI = 0.5 * _SQRT_TWO_PI
_UNIT_ROUNDOFF = 2.0**-53
_CONTINUED_FRACTION_FROM = 2.5
_QUADRATURE_BELOW = 0.5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)  # error below 1e-16 of delta
_QUADRATURE = tuple(zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True))
_MAX_STEPS = 2200
_RELATIVE_PRECISION = 2.0**-43
_NEAR = 2.0**-41
_MOST_SECANTS = 30
_MOST_ATOMS = 4096
# Convolutions by FFT carry absolute errors near 1e-15 in each probability; 1e-13 of
# delta is set aside for them.
FFT_NOISE = 1e-13
# Step of the grid over the standard deviation that one release has if all are alike:
# epsilon rises by some 1e-4 of it.
_STEP = 0.04
_MOST_POINTS = 2.0**16

Array = NDArray[np.float64]


# -- Gaussian noise --------------------------------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which `mu`-GDP, mu > 0, implies (`epsilon`,
    delta)-DP, epsilon >= 0.

    The relative error is below 1e-12 wherever epsilon and mu are below 1000 and delta
    above 1e-300; smaller ones may be
    0. Where ``epsilon / mu`` overflows, or an argument is out of range, a
       `LocalMisuseError` is raised.
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
    return _delta_between(*_arguments(epsilon, mu), mu)


def gaussian_delta_bound(epsilon: float, mu: float) -> float:
    """Return an upper bound of `gaussian_delta`, which no rounding error of this module
    exceeds.

    Rounding (about 1e-12) moves x by up to a few units of ``y`` roundoffs, and log
    delta has slope at most ``x + 1`` in x, nearly. `epsilon` of at least 0 and `mu`
    above 0 are taken as checked: searches ask again and again.
    """
    x, y = _arguments(epsilon, mu)
    allowance = 2e-13 + 8.0 * _UNIT_ROUNDOFF * y * (max(x, 0.0) + 2.0)
    return _delta_between(x, y, mu) * (1.0 + allowance)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which `mu`-GDP implies (epsilon, `delta`)-DP,
    rounded up.

    Never below the true one, and above it by about 1e-12 of it or of `mu`; 0.0 if even
    the total variation is private.
    """
    mu, delta = require_positive("mu", mu), require_delta(delta)
    # Phi(-x) <= exp(-x^2 / 2) / 2 < delta at x = sqrt(2 log(1 / delta)), and epsilon =
    # mu x + mu^2 / 2 there.
    enough = mu * (math.sqrt(-2.0 * math.log(delta)) + 0.5 * mu)
    return smallest_at_most(
        lambda epsilon: gaussian_delta_bound(epsilon, mu), delta, enough
    )


def smallest_at_most(
    cost: Callable[[float], float], level: float, high: float
) -> float:
    """Return what `smallest_true` finds of ``cost(value) <= level`` from 0 to `high`,
    in under half of its steps.

    The cost, of at least 0, falls. Secants in its logarithm tell where it crosses the
    level; once it is seen on both sides of a narrow range, bisection asks only there,
    and ends at the same bits, but where the cost is so flat that it crosses the level
    more than once by rounding.
    """
    cost = cache(cost)

    def holds(value: float) -> bool:
        return cost(value) <= level

    def excess(value: float) -> float:
        return math.log(max(cost(value), 5e-324)) - math.log(level)

    if holds(0.0) or not (math.isfinite(high) and holds(high)):
        return smallest_true(holds, 0.0, high)
    about = _crossing(excess, high)
    below, above = about * (1.0 - 2.0 * _NEAR), about * (1.0 + 2.0 * _NEAR)
    if holds(below) or not holds(above):  # so flat that rounding shows
        return smallest_true(holds, 0.0, high)
    return smallest_true(
        lambda value: value >= above or (value > below and holds(value)), 0.0, high
    )


def _crossing(excess: Callable[[float], float], high: float) -> float:
    """Return about where a function, above 0 at 0, falls through 0."""
    bracket = Bracket(excess, 0.0, high)
    for _ in range(_MOST_SECANTS):
        low, high, place = bracket.low, bracket.high, bracket.secant()
        found = bracket.ask(place)
        if found == 0.0 or max(bracket.low - low, high - bracket.high) <= _NEAR * place:
            break
    return place


Place = TypeVar("Place", int, float)


class Bracket(Generic[Place]):
    """Two places between which a function falls from above 0, narrowed by regula falsi
    (Dowell and Jarratt 1971).

    SciPy's `brentq` asks as often, but takes as long to be imported as a thousand
    prices.
    """

    def __init__(
        self, excess: Callable[[Place], float], low: Place, high: Place
    ) -> None:
        self.low: Place = low
        self.high: Place = high
        self._excess: Callable[[Place], float] = excess
        self._at_low, self._at_high, self._last = excess(low), excess(high), 0.0

    def secant(self) -> float:
        """Where a straight line between both ends is 0."""
        return self.high - self._at_high * (self.high - self.low) / (
            self._at_high - self._at_low
        )

    def ask(self, place: Place) -> float:
        """Take a place between both in the stead of one, and return what the function
        is there.
        """
        found = self._excess(place)
        # Where the same end moves twice, the other one counts half, else it would stay
        # for ever.
        if found > 0.0:
            self._at_high *= 0.5 if self._last > 0.0 else 1.0
            self.low, self._at_low = place, found
        else:
            self._at_low *= 0.5 if self._last < 0.0 else 1.0
            self.high, self._at_high = place, found
        self._last = found
        return found


def smallest_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return, by bisection, the smallest value from which on `holds` is true, within
    2^-43 of it, seen to hold.

    The range is at least 0; `holds(high)` must be true (else `PlanError`), and need not
    be false at `low`.
    """
    if holds(low):
        return low
    if not (math.isfinite(high) and low < high and holds(high)):
        raise PlanError(
            f"no value up to {high} meets the privacy condition: give a larger epsilon"
            " or a larger delta."
        )
    for _ in range(_MAX_STEPS):
        middle = low + 0.5 * (high - low)
        if high - low <= _RELATIVE_PRECISION * high or not low < middle < high:
            return high
        low, high = (low, middle) if holds(middle) else (middle, high)
    raise PlanError(
        f"the search between {low} and {high} did not converge: give a larger epsilon"
        " or a larger delta."
    )


def _arguments(epsilon: float, mu: float) -> tuple[float, float]:
    """Return x and y of the module's formula, or raise if they are not defined."""
    x, y = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    if not math.isfinite(x * x):
        raise LocalMisuseError(
            f"epsilon is {epsilon} and mu is {mu}, but epsilon/mu and mu must be below"
            " 1e154: give less extreme values."
        )
    return x, y


def _delta_between(x: float, y: float, mu: float) -> float:
    """Return the module's formula."""
    density = math.exp(-0.5 * x * x) / _SQRT_TWO_PI
    if mu < _QUADRATURE_BELOW:
        half, middle = 0.5 * mu, x + 0.5 * mu
        return (
            density
            * half
            * math.fsum(
                [
                    weight * _mills_slope(middle + half * node)
                    for node, weight in _QUADRATURE
                ]
            )
        )
    if x > 0.0:
        return density * (_mills(x) - _mills(y))
    return 0.5 * math.erfc(x * _SQRT_HALF) - density * _mills(y)


def _mills(t: float) -> float:
    """Return the Mills ratio Phi(-t) / phi(t) for t above about -1."""
    if t < _CONTINUED_FRACTION_FROM:
        return _HALF_SQRT_TWO_PI * math.exp(0.5 * t * t) * math.erfc(t * _SQRT_HALF)
    return 1.0 / (t + _fraction_tail(t))


def _mills_slope(t: float) -> float:
    """Return D(t) = 1 - t R(t), minus the derivative of the Mills ratio, for t above
    about -1.
    """
    if t < _CONTINUED_FRACTION_FROM:
        return 1.0 - t * _mills(t)
    tail = _fraction_tail(t)
    return tail / (t + tail)


def _fraction_tail(t: float) -> float:
    """Return K of R(t) = 1 / (t + K), K = 1/(t + 2/(t + 3/(t + ...))), Laplace's
    continued fraction.
    """
    tail = 0.0
    for index in range(12 + int(420.0 / (t * t)), 0, -1):
        tail = index / (t + tail)
    return tail


# -- together with pure releases -------------------------------------------------------


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
        """Return an upper bound of delta at `epsilon`, above it by rounding errors only
        (about 1e-11 of it).
        """
        deltas = _gaussian_deltas(epsilon - self.losses, self.mu)
        size = (abs(epsilon) + np.abs(self.losses)) / self.mu + self.mu
        # As in `gaussian_delta_bound`: what moves the argument x by an ulp moves log
        # delta by up to x + 1 ulps.
        depth = np.clip((epsilon - self.losses) / self.mu, 0.0, 40.0) + 2.0
        allowance = 4e-12 + _UNIT_ROUNDOFF * (
            8.0 * size * depth + 2.0 * len(self.losses)
        )
        return float(self.probabilities @ (deltas * (1.0 + allowance)))

    def absent_tail(self, epsilon: float) -> float:
        """Return the probability of a loss above `epsilon` where the unit is absent.

        Minus d delta / d exp(epsilon).
        """
        from scipy.special import ndtr

        return float(
            self.probabilities[::-1]
            @ ndtr(-(epsilon - self.losses) / self.mu - 0.5 * self.mu)
        )


def mixture_of(mu: float, pure_epsilons: Sequence[float]) -> Mixture:
    """Return the mixture that Gaussian releases of `mu` together and pure ones are no
    worse than.
    """
    groups = [
        _responses(epsilon, count)
        for epsilon, count in sorted(Counter(pure_epsilons).items())
    ]
    losses, probabilities = np.zeros(1), np.ones(1)
    if math.prod(len(more) for more, _ in groups) <= _MOST_ATOMS:
        for more, weights in groups:
            sums = np.add.outer(losses, more).ravel()
            order = np.argsort(sums, kind="stable")
            losses, probabilities = (
                sums[order],
                np.multiply.outer(probabilities, weights).ravel()[order],
            )
    else:
        step = 2.0 * math.fsum(pure_epsilons) / _MOST_ATOMS
        for more, weights in groups:
            probabilities = np.convolve(probabilities, _on_grid(more, weights, step))
        reach = len(probabilities) // 2
        losses = step * np.arange(-reach, reach + 1, dtype=np.float64)
    return Mixture(mu, losses, probabilities)


def _responses(epsilon: float, count: int) -> tuple[Array, Array]:
    """Return the losses and probabilities of `count` randomized responses of `epsilon`
    each.
    """
    from scipy.special import expit

    single = np.array([expit(-epsilon), expit(epsilon)])
    probabilities = np.ones(1)
    for _ in range(count):
        probabilities = np.convolve(probabilities, single)
    return epsilon * np.arange(-count, count + 1, 2, dtype=np.float64), probabilities


def _on_grid(losses: Array, probabilities: Array, step: float) -> Array:
    """Return the probabilities of a symmetric grid to which atoms were moved, unchanged
    under both hypotheses.
    """
    position = losses / step
    below = np.floor(position).astype(np.int64)
    upper = probabilities * (np.expm1((below - position) * step) / math.expm1(-step))
    lower = np.maximum(probabilities - upper, 0.0)
    reach = int(below.max()) + 1
    size = 2 * reach + 1
    total = np.bincount(below + reach, lower, size) + np.bincount(
        below + reach + 1, upper, size
    )
    return total.astype(np.float64)


def _gaussian_deltas(epsilons: Array, mu: float) -> Array:
    """Return delta of `mu`-GDP at any real epsilons.

    The formula of the module, and its symmetry below 0.
    """
    from scipy.special import erfcx, ndtr

    size = np.abs(epsilons)
    x = size / mu - 0.5 * mu
    y = size / mu + 0.5 * mu
    with np.errstate(under="ignore", over="ignore"):
        density = np.exp(-0.5 * x * x) / _SQRT_TWO_PI

    def mills(t: Array) -> Array:
        return np.asarray(_HALF_SQRT_TWO_PI * erfcx(t * _SQRT_HALF), dtype=np.float64)

    # Beyond 40 the density is 0, so that the argument does not matter there.
    if mu < _QUADRATURE_BELOW:
        points = np.minimum(x, 40.0)[:, None] + 0.5 * mu * (1.0 + _NODES)
        deltas = density * (0.5 * mu) * ((1.0 - points * mills(points)) @ _WEIGHTS)
    else:
        positive = np.clip(x, 0.0, 40.0)
        deltas = np.where(
            x > 0.0,
            density * (mills(positive) - mills(y)),
            ndtr(-x) - density * mills(y),
        )
    return np.where(epsilons >= 0.0, deltas, -np.expm1(-size) + np.exp(-size) * deltas)


# -- over Poisson samples --------------------------------------------------------------


@dataclass(frozen=True)
class NumericalLosses:
    """The losses of all releases by ``dp_accounting``, pessimistic.

    What its transforms round off comes on top here.
    """

    distribution: Any

    def delta(self, epsilon: float) -> float:
        """Return delta at `epsilon`."""
        return (
            _require_number(float(self.distribution.get_delta_for_epsilon(epsilon)))
            + FFT_NOISE
        )

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon found at a `delta` above `FFT_NOISE`, infinity if
        there is none.
        """
        return _require_number(
            float(self.distribution.get_epsilon_for_delta(delta - FFT_NOISE))
        )


def numerical_losses(
    gaussians: Mapping[tuple[float, float], int], pure_epsilons: Sequence[float]
) -> NumericalLosses:
    """Return the privacy losses of Gaussian releases, counted by multiplier and
    sampling rate, and pure ones together.

    A pure release stands for the worst mechanism of its epsilon: discrete Laplace noise
    of a few grid steps leaks more than continuous noise. A `PlanError` is raised if the
    privacy loss cannot be computed in floating point.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = _grid_step(gaussians, pure_epsilons)
    total = pld.identity(value_discretization_interval=step)
    try:
        for (multiplier, rate), count in sorted(gaussians.items()):
            part = pld.from_gaussian_mechanism(
                multiplier, sampling_prob=rate, value_discretization_interval=step
            )
            total = total.compose(part.self_compose(count) if count > 1 else part)
        for epsilon, count in sorted(Counter(pure_epsilons).items()):
            total = total.compose(
                _randomized_response(epsilon, step).self_compose(count)
            )
    except (ValueError, ArithmeticError) as error:
        raise PlanError(
            f"the privacy-loss distribution cannot be computed ({error}): give noise"
            " multipliers nearer to 1."
        ) from error
    return NumericalLosses(total)


def _grid_step(
    gaussians: Mapping[tuple[float, float], int], pure_epsilons: Sequence[float]
) -> float:
    """Return a step for privacy losses: a power of two, so that the price does not
    flicker as the noise changes.
    """
    variance = math.fsum(epsilon * epsilon for epsilon in pure_epsilons)
    points = math.fsum(2.0 * epsilon for epsilon in set(pure_epsilons))
    for (multiplier, rate), count in gaussians.items():
        mu = 1.0 / multiplier
        # The variance of the loss for weak releases, and that of the Gaussian as its
        # bound.
        variance += (
            count
            * mu
            * mu
            * min(1.0, rate * rate * (math.expm1(min(mu * mu, 700.0)) / (mu * mu)))
        )
        # Ten standard deviations to either side, as ``dp_accounting`` has it.
        reach = mu * (10.0 + 0.5 * mu)
        points += 2.0 * min(reach, rate * math.expm1(min(reach, 700.0))) + min(
            reach, -math.log1p(-min(rate, 0.99))
        )
    count = len(pure_epsilons) + sum(gaussians.values())
    return 2.0 ** math.floor(
        math.log2(
            max(_STEP * math.sqrt(variance / count), points / _MOST_POINTS, 1e-15)
        )
    )


def _randomized_response(epsilon: float, step: float) -> Any:
    """Return the PLD of the worst mechanism of pure `epsilon`, each loss split over two
    grid points.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    probabilities = _on_grid(*_responses(epsilon, 1), step)
    masses = {
        int(place) - len(probabilities) // 2: probabilities[place]
        for place in np.flatnonzero(probabilities)
    }
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        masses, 0.0, step
    )


def _require_number(value: float) -> float:
    if math.isnan(value):
        raise PlanError(
            "the privacy loss is not a number (its range is too wide to compute): give"
            " noise multipliers nearer to 1."
        )
    return value
