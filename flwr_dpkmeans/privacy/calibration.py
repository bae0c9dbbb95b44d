"""From a total epsilon and delta back to the amount of noise, always on the private
side.
"""

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
from flwr_dpkmeans.privacy.gaussian import gaussian_delta, gaussian_delta_bound
from flwr_dpkmeans.privacy.release import Event
from flwr_dpkmeans.privacy.searches import Bracket, smallest_true

CALIBRATION_SHADE = 1.0 - 2.0**-41
"""What epsilon and delta are multiplied by before noise is calibrated to them.

A calibrated plan is priced again by a search of its own, whose last digits must not end
above the request.
"""

_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_RELATIVE_PRECISION = 2.0**-43
_STEPS_PER_OCTAVE = 2**20  # so that a scale has 21 significant bits
_FARTHEST = 333 * _STEPS_PER_OCTAVE  # a scale of about 1e100
_LONGEST_JUMP = 16.0  # octaves
_MOST_SLOW = 3  # secants that may leave more than half of a range


def calibrate_gaussian(
    epsilon: float, delta: float, closeness_at: Callable[[float], Closeness]
) -> float:
    """Return the smallest noise multiplier that is (`epsilon`, `delta`)-DP as the noise
    is drawn, 0 < `delta` < 1.

    `closeness_at` is how close the drawn noise of all releases is to what is analysed
    when the multiplier of their sum is sigma; no part of it may increase with sigma. T
    releases with multipliers ``sigma sqrt(T)``, together as close as
    ``closeness_at(sigma)``, cost at most `epsilon` at `delta`, as `compose_epsilon`
    prices them. A `PlanError` is raised if the closeness leaves no room, however large
    sigma is.

    With log-ratios a and b and additive part tau, ``exp(a) (gaussian_delta(e, 1 /
    sigma) + (1 + exp(e)) tau) <= delta`` must hold at e = `epsilon` - a - b or, as the
    factor of tau may be enormous there, at a smaller e.
    """
    target, room = epsilon * CALIBRATION_SHADE, delta * CALIBRATION_SHADE

    def private(sigma: float) -> bool:
        totals = Totals(mu=1.0 / sigma, closeness=closeness_at(sigma))
        return (
            totals.closeness.log_ratio < target
            and delta_as_drawn(totals, target, gdp_delta) <= room
        )

    return smallest_multiplier(private, gaussian_noise_multiplier(epsilon, delta))


def calibrate_scale(
    events_at: Callable[[float], Sequence[Event]],
    epsilon: float,
    delta: float,
    *,
    start: float = 1.0,
) -> float:
    """Return the smallest noise scale s > 0 at which ``compose_epsilon(events_at(s),
    delta) <= epsilon``, as seen.

    The price must not increase with s; `start` affects the time only. A `PlanError` is
    raised if no scale up to 1e100 is private enough (a release without noise, or drawn
    noise that is too far from the analysed one), or every one down to 1e-100 is. Only
    scales on a fixed lattice (21 significant bits) are tried: two machines whose last
    digits of a price differ find the same, whatever the start and the path of the
    search.
    """
    epsilon, delta, start = (
        require_positive("epsilon", epsilon),
        require_delta(delta),
        require_positive("start", start),
    )
    if add_up(events_at(start)).exact:
        raise PlanError(
            "a release has no noise at all, so that no noise scale is private: give"
            " every release noise."
        )

    def price(scale: float) -> float:
        try:
            return compose_epsilon(events_at(scale), delta)
        except PlanError:  # the closeness leaves no room
            return math.inf

    return first_private(price, epsilon, start)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier sigma whose Gaussian noise is (`epsilon`,
    `delta`)-DP, rounded up by 1e-12.

    ``gaussian_delta(epsilon, 1 / sigma) <= delta`` always holds. Balle and Wang 2018,
    Theorem 8 and Algorithm 1.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    tail = math.sqrt(-2.0 * math.log(delta))
    # Two values of mu that are surely private: the tail bound of `gaussian_epsilon`,
    # and delta(0) <= mu / sqrt(2 pi).
    private_mu = max(
        2.0 * epsilon / (tail + math.sqrt(tail * tail + 2.0 * epsilon)),
        delta * _SQRT_TWO_PI,
    )
    epsilon, delta = epsilon * CALIBRATION_SHADE, delta * CALIBRATION_SHADE
    start = 1.0 / _refine_mu(epsilon, delta, private_mu)
    return smallest_multiplier(
        lambda sigma: gaussian_delta_bound(epsilon, 1.0 / sigma) <= delta, start
    )


def smallest_multiplier(private: Callable[[float], bool], start: float) -> float:
    """Return the smallest noise multiplier that is `private`, to 2^-43 of it, from
    above; quick from a `start` near it.

    A `PlanError` is raised if no multiplier up to 1e100 is private, or every one down
    to 1e-100 is.
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
                "every noise multiplier down to 1e-100 meets the privacy condition:"
                " give a smaller epsilon or delta."
            )
    return smallest_true(private, low, high)


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

    low, high = _bracket(excess, min(max(_index_of(start), -_FARTHEST), _FARTHEST))
    return _scale_at(_first_below(excess, low, high))


def _first_below(excess: Callable[[int], float], low: int, high: int) -> int:
    """Return, of a function above 0 at `low` and below at `high`, an index where it is
    below, and was above before.

    Prices are about straight lines in logarithms, along which secants are quick.
    """
    bracket, slow = Bracket(excess, low, high), 0
    while (width := bracket.high - bracket.low) > 1:
        if slow < _MOST_SLOW:
            bracket.narrow(
                min(max(round(bracket.secant()), bracket.low + 1), bracket.high - 1)
            )
        else:
            bracket.narrow((bracket.low + bracket.high) // 2)
        slow = slow + 1 if bracket.high - bracket.low > width / 2 else max(slow - 1, 0)
    return bracket.high


def _bracket(excess: Callable[[int], float], start: int) -> tuple[int, int]:
    """Return a scale of the lattice that is not private and one above it that is."""
    low = high = start
    # At first as far as if the price were 1 / scale, then 1, 8, 64, ... octaves
    # further, however flat the price is.
    step = (
        math.ceil(
            min(abs(excess(start)) / math.log(2.0), _LONGEST_JUMP) * _STEPS_PER_OCTAVE
        )
        + 1
    )
    while excess(high) > 0.0:
        if high == _FARTHEST:
            raise PlanError(
                "no noise scale up to 1e100 is private enough: give every release"
                " noise, a finer grid, a larger delta, or another epsilon: a larger one"
                " or, above 80, a smaller one."
            )
        low, high, step = (
            high,
            min(high + step, _FARTHEST),
            max(8 * step, _STEPS_PER_OCTAVE),
        )
    while excess(low) < 0.0:
        if low == -_FARTHEST:
            raise PlanError(
                "every noise scale down to 1e-100 is private enough: give a smaller"
                " epsilon or delta."
            )
        low, high, step = (
            max(low - step, -_FARTHEST),
            low,
            max(8 * step, _STEPS_PER_OCTAVE),
        )
    return low, high


def _refine_mu(epsilon: float, delta: float, mu: float) -> float:
    """Return a mu near the solution of gaussian_delta(epsilon, mu) = delta, by Newton
    steps in log mu and log delta.
    """
    for _ in range(12):
        value, x = gaussian_delta(epsilon, mu), epsilon / mu - 0.5 * mu
        slope = (
            mu * math.exp(-0.5 * x * x) / _SQRT_TWO_PI
        )  # the derivative of delta in log mu is mu phi(x)
        if value == 0.0 or slope == 0.0:
            break
        step = math.log(delta / value) * value / slope
        mu *= math.exp(max(-1.0, min(1.0, step)))
        if abs(step) < _RELATIVE_PRECISION:
            break
    return mu


def _log_excess(price: float, epsilon: float) -> float:
    """Return log(price / epsilon), at most 700 in size, and above 0 if the price is too
    high, else below 0.
    """
    if math.isnan(price):
        raise PlanError("a price is not a number: give noise multipliers nearer to 1.")
    # At the boundary the sign must be that of the comparison, whatever the rounding of
    # the logarithm.
    excess = math.log(price) - math.log(epsilon) if 0.0 < price < math.inf else math.inf
    size = min(max(abs(excess), 5e-324), 700.0)
    return size if price > epsilon else -size


def _scale_at(index: int) -> float:
    """Return a scale of the lattice: equal steps within every octave."""
    exponent, step = divmod(index, _STEPS_PER_OCTAVE)
    return math.ldexp(1.0 + step / _STEPS_PER_OCTAVE, exponent)


def _index_of(scale: float) -> int:
    mantissa, exponent = math.frexp(scale)
    return (exponent - 1) * _STEPS_PER_OCTAVE + round(
        (2.0 * mantissa - 1.0) * _STEPS_PER_OCTAVE
    )
