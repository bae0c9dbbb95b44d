"""From a total epsilon and delta back to the amount of noise, on the private side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from flwr_dpkmeans.errors import PlanError, require_delta, require_positive
from flwr_dpkmeans.privacy.accounting import (
    Totals,
    add_up,
    compose_epsilon,
    delta_as_drawn,
    gdp_delta,
)
from flwr_dpkmeans.privacy.closeness import Closeness
from flwr_dpkmeans.privacy.gaussian import (
    LARGEST_EXPONENT,
    SQRT_TWO_PI,
    gaussian_delta,
    gaussian_delta_bound,
)
from flwr_dpkmeans.privacy.release import Event
from flwr_dpkmeans.privacy.searches import (
    RELATIVE_PRECISION,
    SMALLEST_FLOAT,
    Bracket,
    smallest_true,
)

CALIBRATION_SHADE = 1.0 - 2.0**-41
"""What epsilon and delta are multiplied by before noise is calibrated to them.

A calibrated plan is priced again by a search of its own, whose last digits must not end
above the request.
"""

_STEPS_PER_OCTAVE = 2**20
"""So that a scale has 21 significant bits."""
_FARTHEST = 333 * _STEPS_PER_OCTAVE
"""Index of a scale of about 1e100."""
_LONGEST_JUMP = 16.0
"""In octaves."""
_MOST_SLOW = 3
"""Secants that may leave more than half of a range."""


def calibrate_gaussian(
    epsilon: float, delta: float, closeness_at: Callable[[float], Closeness]
) -> float:
    """Return the smallest noise multiplier that is private as the noise is drawn.

    T releases with multipliers ``sigma sqrt(T)``, together as close as
    ``closeness_at(sigma)``, cost at most `epsilon` at `delta`, as `compose_epsilon`
    prices them.

    With log-ratios a and b and additive part tau, ``exp(a) (gaussian_delta(e, 1 /
    sigma) + (1 + exp(e)) tau) <= delta`` must hold at e = `epsilon` - a - b or, as the
    factor of tau may be enormous there, at a smaller e.

    Parameters
    ----------
    epsilon, delta : float
        The budget; 0 < delta < 1.
    closeness_at : callable
        How close the drawn noise of all releases is to what is analysed when the
        multiplier of their sum is sigma; no part of it may increase with sigma.

    Raises
    ------
    PlanError
        If the closeness leaves no room, however large sigma is.
    """
    target = epsilon * CALIBRATION_SHADE
    room = delta * CALIBRATION_SHADE

    def is_private(sigma: float) -> bool:
        totals = Totals(mu=1.0 / sigma, closeness=closeness_at(sigma))
        if totals.closeness.log_ratio >= target:
            return False
        return delta_as_drawn(totals, target, gdp_delta) <= room

    start = gaussian_noise_multiplier(epsilon, delta)
    return smallest_multiplier(is_private, start)


def calibrate_scale(
    events_at: Callable[[float], Sequence[Event]],
    epsilon: float,
    delta: float,
    *,
    start: float = 1.0,
) -> float:
    """Return the smallest noise scale at which releases cost at most so much, as seen.

    Only scales on a fixed lattice (21 significant bits) are tried: two machines whose
    last digits of a price differ find the same, whatever the start and the path of the
    search.

    Parameters
    ----------
    events_at : callable
        The releases with noise of a scale; their price must not increase with it.
    epsilon, delta : float
        The budget.
    start : float
        Where the search begins, which affects the time only.

    Raises
    ------
    PlanError
        If no scale up to 1e100 is private enough (a release without noise, or drawn
        noise that is too far from the analysed one), or every one down to 1e-100 is.
    """
    epsilon = require_positive("epsilon", epsilon)
    delta = require_delta(delta)
    start = require_positive("start", start)
    if add_up(events_at(start)).exact:
        raise PlanError(
            "a release has no noise at all, so that no noise scale is private: give"
            " every release noise."
        )

    def price(scale: float) -> float:
        try:
            return compose_epsilon(events_at(scale), delta)
        except PlanError:
            # The closeness leaves no room, or the range of the loss is too wide to be
            # computed, as with very little noise: such a scale is not seen to be
            # private.
            return math.inf

    return first_private(price, epsilon, start)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest multiplier whose Gaussian noise is private, rounded up.

    Rounded up by 1e-12: ``gaussian_delta(epsilon, 1 / sigma) <= delta`` always holds.
    Balle and Wang 2018, Theorem 8 and Algorithm 1.
    """
    epsilon = require_positive("epsilon", epsilon)
    delta = require_delta(delta)
    # Two values of mu that are surely private: the tail bound of `gaussian_epsilon`,
    # and delta(0) <= mu / sqrt(2 pi).
    tail = math.sqrt(-2.0 * math.log(delta))
    mu_by_tail = 2.0 * epsilon / (tail + math.sqrt(tail * tail + 2.0 * epsilon))
    mu_at_zero = delta * SQRT_TWO_PI
    private_mu = max(mu_by_tail, mu_at_zero)

    target = epsilon * CALIBRATION_SHADE
    room = delta * CALIBRATION_SHADE

    def is_private(sigma: float) -> bool:
        return gaussian_delta_bound(target, 1.0 / sigma) <= room

    start = 1.0 / _refine_mu(target, room, private_mu)
    return smallest_multiplier(is_private, start)


def smallest_multiplier(is_private: Callable[[float], bool], start: float) -> float:
    """Return the smallest noise multiplier that is private, to 2^-43 of it, from above.

    Quick from a start near it. A `PlanError` is raised if no multiplier up to 1e100 is
    private, or every one down to 1e-100 is.
    """
    low = start
    high = start
    step = RELATIVE_PRECISION
    while not is_private(high):
        low = high
        high = high * (1.0 + step)
        step = 8.0 * step
        if not high < 1e100:
            raise PlanError(
                "no noise multiplier up to 1e100 meets the privacy condition: "
                "give a larger epsilon, a larger delta or a finer grid."
            )
    while is_private(low):
        high = low
        low = low / (1.0 + step)
        step = 8.0 * step
        if not low > 1e-100:
            raise PlanError(
                "every noise multiplier down to 1e-100 meets the privacy condition:"
                " give a smaller epsilon or delta."
            )
    return smallest_true(is_private, low, high)


def first_private(
    price: Callable[[float], float], epsilon: float, start: float
) -> float:
    """Return the first scale of the lattice whose price is at most `epsilon`.

    The one before it was seen to cost more.

    The price must not increase with the scale, and may be 0 or infinite. A `PlanError`
    is raised if no scale up to 1e100 is private, every one down to 1e-100 is, or a
    price is not a number.
    """

    @cache
    def excess(index: int) -> float:
        return _log_excess(price(_scale_at(index)), epsilon)

    index = min(max(_index_of(start), -_FARTHEST), _FARTHEST)
    low, high = _bracket(excess, index)
    return _scale_at(_first_below(excess, low, high))


def _first_below(excess: Callable[[int], float], low: int, high: int) -> int:
    """Return an index where a falling function is below 0, and was above before.

    Above at `low` and below at `high`. Prices are about straight lines in logarithms,
    along which secants are quick.
    """
    bracket = Bracket(excess, low, high)
    n_slow = 0
    while bracket.high - bracket.low > 1:
        width = bracket.high - bracket.low
        index = (bracket.low + bracket.high) // 2
        if n_slow < _MOST_SLOW:
            index = round(bracket.secant())
            index = max(index, bracket.low + 1)
            index = min(index, bracket.high - 1)
        bracket.narrow(index)
        if bracket.high - bracket.low > width / 2:
            n_slow += 1
        else:
            n_slow = max(n_slow - 1, 0)
    return bracket.high


def _bracket(excess: Callable[[int], float], start: int) -> tuple[int, int]:
    """Return a scale of the lattice that is not private and one above it that is."""
    low = start
    high = start
    # At first as far as if the price were 1 / scale, then 1, 8, 64, ... octaves
    # further, however flat the price is.
    octaves = min(abs(excess(start)) / math.log(2.0), _LONGEST_JUMP)
    step = math.ceil(octaves * _STEPS_PER_OCTAVE) + 1
    while excess(high) > 0.0:
        if high == _FARTHEST:
            raise PlanError(
                "no noise scale up to 1e100 is private enough: give every release"
                " noise, a finer grid, a larger delta, or another epsilon: a larger one"
                " or, above 80, a smaller one."
            )
        low = high
        high = min(high + step, _FARTHEST)
        step = max(8 * step, _STEPS_PER_OCTAVE)
    while excess(low) < 0.0:
        if low == -_FARTHEST:
            raise PlanError(
                "every noise scale down to 1e-100 is private enough: give a smaller"
                " epsilon or delta."
            )
        high = low
        low = max(low - step, -_FARTHEST)
        step = max(8 * step, _STEPS_PER_OCTAVE)
    return low, high


def _refine_mu(epsilon: float, delta: float, mu: float) -> float:
    """Return a mu near the solution of gaussian_delta(epsilon, mu) = delta.

    By Newton steps in log mu and log delta.
    """
    for _ in range(12):
        value = gaussian_delta(epsilon, mu)
        # The derivative of delta in log mu is mu phi(x).
        x = epsilon / mu - 0.5 * mu
        slope = mu * math.exp(-0.5 * x * x) / SQRT_TWO_PI
        if value == 0.0 or slope == 0.0:
            break
        step = math.log(delta / value) * value / slope
        mu *= math.exp(max(-1.0, min(1.0, step)))
        if abs(step) < RELATIVE_PRECISION:
            break
    return mu


def _log_excess(price: float, epsilon: float) -> float:
    """Return log(price / epsilon), above 0 if the price is too high, else below.

    At most 700 in size.
    """
    if math.isnan(price):
        raise PlanError("a price is not a number: give noise multipliers nearer to 1.")
    # At the boundary the sign must be that of the comparison, whatever the rounding of
    # the logarithm.
    excess = math.inf
    if 0.0 < price < math.inf:
        excess = math.log(price) - math.log(epsilon)
    size = min(max(abs(excess), SMALLEST_FLOAT), LARGEST_EXPONENT)
    return size if price > epsilon else -size


def _scale_at(index: int) -> float:
    """Return a scale of the lattice: equal steps within every octave."""
    exponent, step = divmod(index, _STEPS_PER_OCTAVE)
    return math.ldexp(1.0 + step / _STEPS_PER_OCTAVE, exponent)


def _index_of(scale: float) -> int:
    """Return the index of a scale near this one."""
    mantissa, exponent = math.frexp(scale)
    part_of_octave = 2.0 * mantissa - 1.0
    steps = round(part_of_octave * _STEPS_PER_OCTAVE)
    return (exponent - 1) * _STEPS_PER_OCTAVE + steps
