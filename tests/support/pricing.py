"""An independent price of any list of releases.

Which oracle each claim about a price needs.

Nothing here uses `flwr_dpkmeans.privacy`: noise is described as it is drawn, and priced
again by other means.

All Gaussian
    The truth for continuous noise is GDP with ``mu^2 = sum mu_i^2`` (Dong, Roth and Su
    2022, Corollary 2), here evaluated in 60 digits by `mpmath`;
    ``tests/oracle/integration.py`` has the integral that it stands for. What is drawn
    is discrete, and the house pays for that with log-ratios and an additive part.
    `Slack` computes them again from their published formulas, and ``integration.py``
    proves on small grids that they suffice. So "never below" is against the continuous
    price with the own slack, and "at most 1% above" against the continuous price alone.
    `dp_accounting` gives a bracket (a pessimistic and an optimistic PLD of every single
    release, not of their sum) and an upper bound by Renyi divergences.

Gaussian with pure releases
    The house prices a Laplace release of scale s and L1 sensitivity D as randomized
    response of epsilon D/s, the worst mechanism of that epsilon (Kairouz, Oh and
    Viswanath 2015, Theorem 3.3). "At most 3% above" is therefore against randomized
    response, exactly, by atoms in 40 digits or more. "Never below" is against the noise
    that is drawn: a discrete Laplace variable on each entry, shifted by any vector of
    that L1 norm. `integration.py` computes it for all shifts of small grids (it equals
    randomized response where D and s are one step, and differs where they are more).
    For whole plans randomized response is taken for the lower side as well: more than
    what is drawn, so the test asks for more than it must.

Pure releases alone
    The house promises their sum, which holds at delta = 0 and is exact there. A run's
    delta is greater than 0, and randomized response composes to less at it: "never
    below" is against that, "at most 3% above" against the sum.

Poisson samples
    Two pairs, for adding and for removing a unit (Zhu, Dong and Wang 2022, Theorem 11);
    the larger delta counts. All arrays under one coin are one release. `Bracket`
    composes on a grid of losses: all losses rounded up bound delta from above, the same
    distribution moved down by a step for each release bounds it from below, so that the
    truth is between two numbers that differ by some 1e-3. "Never below" is against the
    lower end, "at most 3% above" too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]
DIGITS = 60
TAIL = 100.0
"""The additive part of what discreteness costs is exp(-100) for each array."""


@dataclass(frozen=True)
class Noise:
    """Noise of one array as it is drawn: `scale` is a standard deviation or a Laplace
    scale, in units of the array.
    """

    gaussian: bool
    scale: float
    sensitivity: float
    entries: int = 1
    grid: float = (
        0.0  # width of a grid step, in units of the array; 0: continuous noise
    )
    shares: int = 1  # of which the noise is the sum

    @property
    def strength(self) -> float:
        """mu of Gaussian noise, epsilon of Laplace noise."""
        return self.sensitivity / self.scale


@dataclass(frozen=True)
class Draw:
    """What is released under one coin: with rate 1, of everybody."""

    noises: tuple[Noise, ...]
    rate: float = 1.0


@dataclass(frozen=True)
class Slack:
    """What discreteness costs: two log-ratios and an additive part."""

    above: float
    below: float
    additive: float


@dataclass(frozen=True)
class Interval:
    """The truth lies between two numbers."""

    low: float
    high: float


# -- discreteness ----------------------------------------------------------------------


def slack_of(draws: Iterable[Draw]) -> Slack:
    """What discrete Gaussian noise costs, from the formulas of `privacy.noise`, written
    down again.
    """
    above = below = additive = 0.0
    for noise in (noise for draw in draws for noise in draw.noises):
        if not noise.gaussian or noise.grid == 0.0 or noise.entries == 0:
            continue
        n, s2 = noise.entries, (noise.scale / noise.grid) ** 2
        rest = 2.1 * math.exp(-2 * math.pi**2 * s2)
        first, second = (
            n / (24 * s2),
            math.sqrt(6.00002 * n * TAIL) / (24 * s2) + n / (319 * s2**2),
        )
        y = TAIL + n * (1 / (290 * s2**2) + rest)
        apart = 0.0
        for j in range(1, noise.shares):
            exponent = 2 * math.pi**2 * s2 / noise.shares * j / (j + 1)
            apart += 5 * n * math.exp(-exponent)
        above += min(first, second) + apart
        below += (
            (math.sqrt(n * y) + y) / (12 * s2 - 1)
            + n * (1 / (186 * s2**2) + rest)
            + apart
        )
        additive += math.exp(apart - TAIL)
    return Slack(above, below, additive)


# -- Gaussian noise alone --------------------------------------------------------------


def gdp_delta(epsilon: float, mu: float) -> Any:
    """Trade-off of two normal distributions a distance of mu apart, in many digits."""
    with mpmath.workdps(DIGITS):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def gdp_epsilon(mu: float, delta: float) -> float:
    """The epsilon at which that is delta: Newton steps in log(delta), which is concave
    in epsilon.
    """
    with mpmath.workdps(DIGITS):
        m, goal = mpmath.mpf(mu), mpmath.mpf(delta)
        if gdp_delta(0.0, mu) <= goal:
            return 0.0
        e = mpmath.mpf(0)
        for _ in range(500):
            tail = mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            value = mpmath.ncdf(m / 2 - e / m) - tail
            step = (
                mpmath.log(value / goal) * value / tail
            )  # the derivative of delta is -tail
            e += step
            if abs(step) < mpmath.mpf(10) ** -25 * (1 + e):
                return float(e)
    raise AssertionError(f"no epsilon found for mu {mu}, delta {delta}")


# -- randomized response beside it -----------------------------------------------------


def response_atoms(epsilons: Sequence[float]) -> tuple[Array, Array]:
    """Values and log-probabilities of the sum of the losses, equal epsilons counted by
    binomials.
    """
    losses, logs = np.zeros(1), np.zeros(1)
    for epsilon, count in sorted(Counter(epsilons).items()):
        ups = np.arange(count + 1)
        binomials = np.array(
            [
                math.lgamma(count + 1) - math.lgamma(u + 1) - math.lgamma(count - u + 1)
                for u in ups
            ]
        )
        yes = -math.log1p(math.exp(-epsilon))
        more = binomials + ups * yes + (count - ups) * (yes - epsilon)
        losses = np.add.outer(losses, epsilon * (2.0 * ups - count)).ravel()
        logs = np.add.outer(logs, more).ravel()
    return losses, logs


def mixture_delta(epsilon: float, mu: float, epsilons: Sequence[float]) -> float:
    """Gaussian noise of mu beside randomized responses, by all atoms.

    In many digits where doubles would cancel.
    """
    losses, logs = response_atoms(epsilons)
    probabilities = np.exp(logs)
    left = epsilon - losses
    if mu == 0.0:
        return float(probabilities @ np.maximum(-np.expm1(left), 0.0))
    first, second = log_ndtr(mu / 2 - left / mu), left + log_ndtr(-mu / 2 - left / mu)
    parts = -np.exp(first) * np.expm1(np.minimum(second - first, 0.0))
    total = float(probabilities @ parts)
    # Whatever the arguments' last digits do to log_ndtr, relative to the difference.
    size = (
        np.abs(first)
        + np.abs(left / mu) * (np.abs(left / mu) + mu)
        + np.abs(left)
        + 1.0
    )
    error = float(probabilities @ (np.exp(first) * size)) * 4e-16
    if error <= 1e-9 * total or len(losses) > 5000:
        return total
    with mpmath.workdps(40):
        exact = (
            mpmath.exp(float(g)) * gdp_delta(float(e), mu)
            for g, e in zip(logs, left, strict=True)
        )
        return float(mpmath.fsum(exact))


def mixture_epsilon(mu: float, epsilons: Sequence[float], delta: float) -> float:
    """The epsilon at which that is delta."""
    tail = mu * (math.sqrt(-2.0 * math.log(delta)) + mu) if delta > 0.0 else 0.0
    return bisected(
        lambda e: mixture_delta(e, mu, epsilons) <= delta, math.fsum(epsilons) + tail
    )


def bisected(
    holds: Callable[[float], bool], high: float, low: float = 0.0, width: float = 1e-11
) -> float:
    """The smallest value at which a condition holds that holds from there on."""
    if holds(low):
        return low
    while high - low > width * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- anything, on a grid of losses -----------------------------------------------------


def sampled_argument(loss: Array, mu: float, rate: float) -> Array:
    """Where (1 - rate) N(0, 1) + rate N(mu, 1) has this log-ratio to N(0, 1).

    -inf where it is always more.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.expm1(loss) / rate + 1.0  # exp(mu x - mu^2/2)
        # Beyond exp(700) the difference to the loss is next to nothing.
        logs = np.where(
            loss < 600.0, np.log(np.maximum(grown, 0.0)), loss - math.log(rate)
        )
        return np.asarray((logs + 0.5 * mu * mu) / mu)


def loss_masses(edges: Array, mu: float, rate: float, *, removing: bool) -> Array:
    """Probabilities of losses up to the first edge and between each two, where the unit
    is present, or (adding) absent.

    Differences of the smaller of both tails, so that small probabilities keep their
    digits.
    """
    if removing:
        x = sampled_argument(edges, mu, rate)
        below, above = (
            (1.0 - rate) * ndtr(sign * x) + rate * ndtr(sign * (x - mu))
            for sign in (1.0, -1.0)
        )
    else:
        x = sampled_argument(-edges, mu, rate)
        below, above = ndtr(-x), ndtr(x)
    return np.asarray(
        np.where(below < 0.5, np.diff(below, prepend=0.0), -np.diff(above, prepend=1.0))
    )


def loss_range(
    mu: float, rate: float, *, removing: bool, reach: float
) -> tuple[float, float]:
    """Between which losses all lie but those of normal variables beyond `reach`
    deviations.
    """

    def loss(x: float) -> float:
        grown = mu * x - 0.5 * mu * mu
        if rate == 1.0:
            return grown
        return float(np.logaddexp(math.log1p(-rate), math.log(rate) + grown))

    least, most = loss(-reach), loss(mu + reach)
    return (least, most) if removing else (-most, -least)


@dataclass(frozen=True)
class Bracket:
    """Composed losses on a grid, tilted by exp(tilt * loss) so that Fourier transforms
    keep the digits of the tail.

    All single losses were rounded up to the grid; `n_rounded` of them by less than a
    step each. `lost` is the probability that was beyond the grid above, and `raised`
    that which was below.
    """

    losses: Array
    tilted: Array
    tilt: float
    scale: float
    step: float
    n_rounded: int
    lost: float
    raised: float

    def _delta(self, epsilon: float) -> float:
        beyond = self.losses > epsilon
        losses = self.losses[beyond]
        weights = np.exp(self.scale - self.tilt * losses) * np.maximum(
            self.tilted[beyond], 0.0
        )
        return float(-(weights @ np.expm1(epsilon - losses)))

    def high(self, epsilon: float) -> float:
        """No less than delta."""
        return self._delta(epsilon) + self.lost

    def low(self, epsilon: float) -> float:
        """No more than delta."""
        return self._delta(epsilon + self.n_rounded * self.step) - self.raised

    def epsilon(self, delta: float, most: float) -> Interval:
        """Between which epsilons delta is reached."""
        low = bisected(lambda e: self.low(e) <= delta, most, width=1e-7)
        high = bisected(lambda e: self.high(e) <= delta, most, width=1e-7)
        return Interval(low, high)


def bracket(
    gaussians: Sequence[tuple[float, float]],
    epsilons: Sequence[float],
    delta: float,
    near: float,
    *,
    removing: bool,
    points: int = 2**18,
) -> Bracket:
    """Compose releases (mu, rate) and randomized responses.

    `near` is an epsilon that the grid shall be good for.
    """
    groups, answers = Counter(gaussians), Counter(epsilons)
    n = len(gaussians) + len(epsilons)
    reach = math.sqrt(2.0 * math.log(1e6 * n / delta))
    ranges = {
        group: loss_range(*group, removing=removing, reach=reach) for group in groups
    }
    deviations = [
        min(mu, math.sqrt(rate**2 * math.expm1(min(mu * mu, 50.0))))
        for mu, rate in gaussians
    ]
    spread = math.sqrt(math.fsum(d * d for d in (*deviations, *epsilons)))
    widest = max(
        [high - low for low, high in ranges.values()] + [2.0 * e for e in epsilons]
    )
    length = 2.0 * max(near, 12.0 * spread, 1.5 * widest)
    step = length / points
    lost = raised = 0.0
    masses: list[
        tuple[Array, Array, int]
    ] = []  # losses on the grid, log-probabilities, how often
    for (mu, rate), count in groups.items():
        low, high = ranges[mu, rate]
        edges = grid(math.floor(low / step), math.ceil(high / step) + 1, step)
        mass = loss_masses(edges, mu, rate, removing=removing)
        masses.append((edges[mass > 0.0], np.asarray(np.log(mass[mass > 0.0])), count))
        lost += count * 1e-6 * delta / n
        raised += count * float(mass[0])
    for epsilon, count in answers.items():
        rounded = np.ceil(np.array([-epsilon, epsilon]) / step) * step
        masses.append((rounded, -np.logaddexp(0.0, [epsilon, -epsilon]), count))

    def cumulant(tilt: float) -> float:
        parts = [
            count * _log_sum(tilt * losses + logs) for losses, logs, count in masses
        ]
        return math.fsum(parts) - tilt * near

    tilt = _minimum(cumulant, 4.0 * (reach / max(spread, 1e-300)))
    transform, scale = np.ones(points // 2 + 1, dtype=np.complex128), 0.0
    for losses, logs, count in masses:
        exponents = tilt * losses + logs
        total = _log_sum(exponents)
        scale += count * total
        places = np.mod(np.rint(losses / step).astype(np.int64), points)
        table = np.bincount(places, np.exp(exponents - total), points)
        transform *= np.fft.rfft(table) ** count
    # One period around `near`, which is where the tilted mass is.
    middle = round(near / step)
    first = middle - points // 2
    tilted = np.asarray(
        np.roll(np.fft.irfft(transform, points), -(first % points)), dtype=np.float64
    )
    return Bracket(
        grid(first, first + points, step), tilted, tilt, scale, step, n, lost, raised
    )


def grid(first: int, end: int, step: float) -> Array:
    """Multiples of a step."""
    return np.asarray(step * np.arange(first, end), dtype=np.float64)


def _log_sum(exponents: Array) -> float:
    """The logarithm of a sum of exponentials."""
    most = float(exponents.max())
    return most + math.log(float(np.exp(exponents - most).sum()))


def _minimum(function: Callable[[float], float], high: float) -> float:
    """About where a convex function on [0, high] is smallest."""
    low, ratio = 0.0, 0.5 * (math.sqrt(5.0) - 1.0)
    for _ in range(16):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if function(left) <= function(right) else (left, high)
    return 0.5 * (low + high)


# -- a whole list ----------------------------------------------------------------------


def parts_of(draws: Sequence[Draw]) -> tuple[list[tuple[float, float]], list[float]]:
    """(mu, rate) of each draw's Gaussian noise, and every pure epsilon."""
    gaussians, epsilons = [], []
    for draw in draws:
        squares = math.fsum(
            noise.strength**2 for noise in draw.noises if noise.gaussian
        )
        if squares > 0.0:
            gaussians.append((math.sqrt(squares), draw.rate))
        epsilons += [noise.strength for noise in draw.noises if not noise.gaussian]
    return gaussians, epsilons


def continuous_epsilons(
    draws: Sequence[Draw], deltas: Sequence[float], near: float, points: int = 2**18
) -> list[Interval]:
    """Between which epsilons the truth lies at each delta, for continuous Gaussian
    noise and randomized response.

    `near` is where they are expected; the deltas are alike.
    """
    gaussians, epsilons = parts_of(draws)
    mu = math.sqrt(math.fsum(mu * mu for mu, _ in gaussians))
    if any(rate < 1.0 for _, rate in gaussians):
        ways = [
            bracket(
                gaussians, epsilons, deltas[0], near, removing=removing, points=points
            )
            for removing in (True, False)
        ]
        found = []
        for delta in deltas:
            ends = [way.epsilon(delta, 4.0 * near) for way in ways]
            found.append(
                Interval(max(end.low for end in ends), max(end.high for end in ends))
            )
        return found
    exact = [
        mixture_epsilon(mu, epsilons, delta) if epsilons else gdp_epsilon(mu, delta)
        for delta in deltas
    ]
    return [Interval(epsilon, epsilon) for epsilon in exact]


# -- dp_accounting ---------------------------------------------------------------------


def accountant_epsilon(
    draws: Sequence[Draw], delta: float, near: float, *, pessimistic: bool
) -> float:
    """By the privacy-loss distributions of `dp_accounting`, one for each release.

    `near` sets the width of the grid.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    gaussians, epsilons = parts_of(draws)
    fine = (
        pessimistic and not epsilons
    )  # "connect the dots", whose error is of second order
    step = near * 1e-3 / (1 if fine else len(gaussians) + len(epsilons))
    parts = [
        pld.from_gaussian_mechanism(
            1.0 / mu,
            sampling_prob=rate,
            pessimistic_estimate=pessimistic,
            value_discretization_interval=step,
            use_connect_dots=fine,
        ).self_compose(count)
        for (mu, rate), count in Counter(gaussians).items()
    ]
    for epsilon, count in Counter(epsilons).items():
        # Over two answers, one drawn at random with this probability and told
        # truthfully otherwise.
        random = 2.0 / (1.0 + math.exp(epsilon))
        one = pld.from_randomized_response(
            random,
            2,
            pessimistic_estimate=pessimistic,
            value_discretization_interval=step,
        )
        parts.append(one.self_compose(count))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta))


ORDERS = (
    tuple(1.0 + x / 10.0 for x in range(1, 100))
    + tuple(range(11, 128))
    + (160, 256, 512, 1024, 4096)
)


def renyi_epsilon(draws: Sequence[Draw], delta: float) -> float:
    """An upper bound by Renyi divergences: of Gaussians by `dp_accounting`, of
    randomized response by definition.
    """
    from dp_accounting import (
        GaussianDpEvent,
        NeighboringRelation,
        PoissonSampledDpEvent,
        rdp,
    )

    gaussians, epsilons = parts_of(draws)
    accountant = rdp.RdpAccountant(ORDERS, NeighboringRelation.ADD_OR_REMOVE_ONE)
    for (mu, rate), count in Counter(gaussians).items():
        event = GaussianDpEvent(1.0 / mu)
        accountant.compose(
            event if rate == 1.0 else PoissonSampledDpEvent(rate, event), count
        )
    divergences = np.array(accountant._rdp, dtype=np.float64)
    orders = np.array(ORDERS)
    for epsilon, count in Counter(epsilons).items():
        yes, no = -math.log1p(math.exp(-epsilon)), -math.log1p(math.exp(epsilon))
        total = np.logaddexp(
            orders * yes + (1 - orders) * no, orders * no + (1 - orders) * yes
        )
        divergences += count * total / (orders - 1)
    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


@dataclass(frozen=True)
class Unpriced:
    """A release that no rule prices."""

    name: str
