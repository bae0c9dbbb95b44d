"""The price by the numerical privacy-loss distributions (PLD) of Google's ``dp_accounting``.

A release over a Poisson sample is dominated by two pairs of distributions, one for removing and one for adding a unit,
each of which composes with the pairs of the other releases (Zhu, Dong and Wang 2022, Theorems 10 and 11); the larger
of the two deltas counts. ``dp_accounting`` puts each pair on a grid so that no delta falls (Doroshenko et al. 2022)
and composes by fast Fourier transforms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr_dpkmeans.errors import PlanError, require_delta
from flwr_dpkmeans.privacy.events import Event
from flwr_dpkmeans.privacy.gaussian import smallest_true
from flwr_dpkmeans.privacy.totals import Totals, add_up, epsilon_as_drawn, slack_cost

# Convolutions by FFT carry absolute errors near 1e-15 in each probability; 1e-13 of delta is set aside for them.
_FFT_NOISE = 1e-13
# Step of the grid over the standard deviation that one release has if all are alike: epsilon rises by some 1e-4 of it.
_STEP = 0.04
_MOST_POINTS = 2.0**16
_LARGEST_MU = 100.0

_Gaussians = Mapping[tuple[float, float], int]
"""How often each pair of noise multiplier and sampling rate occurs."""


def pld_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the total epsilon of `events` at `delta` by numerical privacy-loss distributions alone.

    For comparison: where nothing is sampled it shares no arithmetic with `compose_epsilon`, which uses closed forms.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    delta : float
        The total delta, greater than 0 and less than 1; below 1e-13 the result is infinite, as it is for sampled
        releases whose multipliers are below 0.01 or that are many and little above it.

    Returns
    -------
    float
        The epsilon by ``dp_accounting.pld``, pessimistic, for the add-or-remove relation; a Laplace release counts as
        the worst mechanism of its pure epsilon.

    Raises
    ------
    LocalMisuseError
        If an event is of an unsupported type or `delta` is out of its range.
    PlanError
        If the privacy loss cannot be computed in floating point.

    References
    ----------
    Doroshenko et al. 2022, "Connect the dots: tighter discrete approximations of privacy loss distributions".

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.events import GaussianRelease
    >>> round(pld_epsilon([GaussianRelease("sums", 10.0)] * 100, 1e-6), 3)
    4.887
    """
    totals, delta = add_up(events), require_delta(delta)
    if totals.exact:
        return math.inf
    if not events:
        return 0.0
    return epsilon_as_drawn(totals, delta, numerical_epsilon)


def numerical_epsilon(totals: Totals, delta: float, *, coarseness: float = 1.0) -> float:
    """Return the smallest epsilon found at `delta`, slack included; infinity if there is none.

    A `coarseness` above 1 widens the grid by that factor: quicker, and never below the truth either.
    """
    if delta <= _FFT_NOISE or _is_too_strong(totals):
        return math.inf
    return _epsilon_with_slack(_composed(_grouped(totals), totals.pure_epsilons, coarseness), totals.tau, delta)


def numerical_delta(totals: Totals, epsilon: float) -> float:
    """Return a delta at `epsilon`, slack included."""
    if _is_too_strong(totals):
        return 1.0
    losses = _composed(_grouped(totals), totals.pure_epsilons)
    computed = _require_number(float(losses.get_delta_for_epsilon(epsilon)))
    return min(1.0, computed + _FFT_NOISE + slack_cost(totals.tau, epsilon))


def _is_too_strong(totals: Totals) -> bool:
    """Whether sampled releases have so little noise that their losses, of some mu^2, are beyond a numerical price."""
    return bool(totals.sampled) and totals.mu > _LARGEST_MU


def _grouped(totals: Totals) -> _Gaussians:
    """Count the sampled releases and the others; equal ones are composed together."""
    groups = Counter((event.noise_multiplier, event.sampling_rate) for event in totals.sampled)
    groups.update((multiplier, 1.0) for multiplier in totals.multipliers)
    return groups


def _composed(gaussians: _Gaussians, pure_epsilons: Sequence[float], coarseness: float = 1.0) -> Any:
    """Return the privacy-loss distribution of all releases, pessimistic, for add-or-remove.

    A pure release stands for the worst mechanism of its epsilon, not for continuous Laplace noise: discrete Laplace
    noise whose scale is a few grid steps leaks more than continuous noise of the same epsilon.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = _grid_step(gaussians, pure_epsilons, coarseness)
    total = pld.identity(value_discretization_interval=step)
    try:
        for (multiplier, rate), count in sorted(gaussians.items()):
            if rate == 1.0:
                multiplier, count = multiplier / math.sqrt(count), 1
            part = pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=step)
            total = total.compose(part.self_compose(count) if count > 1 else part)
        for epsilon, count in sorted(Counter(pure_epsilons).items()):
            total = total.compose(_randomized_response(epsilon, step).self_compose(count))
    except (ValueError, ArithmeticError) as error:
        raise PlanError(
            f"the privacy-loss distribution cannot be computed ({error}): give noise multipliers nearer to 1."
        ) from error
    return total


def _grid_step(gaussians: _Gaussians, pure_epsilons: Sequence[float], coarseness: float) -> float:
    """Return a step for privacy losses: a power of two, so that the price does not flicker as the noise changes."""
    variance = math.fsum(epsilon * epsilon for epsilon in pure_epsilons)
    points = math.fsum(2.0 * epsilon for epsilon in set(pure_epsilons))
    for (multiplier, rate), count in gaussians.items():
        mu = 1.0 / multiplier
        # The variance of the loss for weak releases, and that of the Gaussian as its bound.
        variance += count * mu * mu * min(1.0, rate * rate * _expm1_over(mu * mu))
        # Ten standard deviations to either side, as ``dp_accounting`` has it.
        reach = mu * (10.0 + 0.5 * mu)
        points += 2.0 * min(reach, rate * math.expm1(min(reach, 700.0))) + min(reach, -math.log1p(-min(rate, 0.99)))
    count = len(pure_epsilons) + sum(gaussians.values())
    step = coarseness * max(_STEP * math.sqrt(variance / count), points / _MOST_POINTS, 1e-15)
    return 2.0 ** math.floor(math.log2(step))


def _expm1_over(value: float) -> float:
    """Return (exp(value) - 1) / value for value > 0."""
    return math.expm1(min(value, 700.0)) / value


def _randomized_response(epsilon: float, step: float) -> Any:
    """Return the PLD of the worst mechanism of pure `epsilon`, each loss split over two grid points (see `mixture`)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    masses: dict[int, float] = {}
    for loss in (-epsilon, epsilon):
        probability = 1.0 / (1.0 + math.exp(-loss)) if loss > -700.0 else 0.0
        below = math.floor(loss / step)
        upper = probability * min(1.0, math.expm1(below * step - loss) / math.expm1(-step))
        for index, mass in ((below, probability - upper), (below + 1, upper)):
            masses[index] = masses.get(index, 0.0) + mass
    return pld.PrivacyLossDistribution.create_from_rounded_probability(masses, 0.0, step)


def _epsilon_with_slack(losses: Any, tau: float, delta: float) -> float:
    """Return the smallest epsilon found at which the PLD's delta plus the cost of slack is at most `delta`."""
    epsilon = _require_number(float(losses.get_epsilon_for_delta(delta - _FFT_NOISE)))
    if tau == 0.0 or math.isinf(epsilon):
        return epsilon

    def cost(trial: float) -> float:
        return float(losses.get_delta_for_epsilon(trial)) + _FFT_NOISE + slack_cost(tau, trial)

    if cost(epsilon) <= delta:
        return epsilon
    # Slack alone costs more than delta beyond `highest`. Up to there the cost is convex in exp(epsilon).
    highest = math.log(delta / tau - 1.0) if delta > 2.0 * tau else -math.inf
    if highest <= epsilon:
        return math.inf
    cheapest = _lowest_point(cost, epsilon, highest)
    return smallest_true(lambda trial: cost(trial) <= delta, epsilon, cheapest) if cost(cheapest) <= delta else math.inf


def _lowest_point(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return about where a function that falls and then rises is smallest, by golden sections."""
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    cost_left, cost_right = cost(left), cost(right)
    while high - low > 1e-7 * high:
        if cost_left <= cost_right:
            high, right, cost_right = right, left, cost_left
            left = high - ratio * (high - low)
            cost_left = cost(left)
        else:
            low, left, cost_left = left, right, cost_right
            right = low + ratio * (high - low)
            cost_right = cost(right)
    return left if cost_left <= cost_right else right


def _require_number(value: float) -> float:
    """Return `value`, which may be infinite, or raise if it is NaN."""
    if math.isnan(value):
        raise PlanError(
            "the privacy loss is not a number (its range is too wide to compute): give noise multipliers nearer to 1."
        )
    return value
