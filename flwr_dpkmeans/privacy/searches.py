"""Searches of the number at which a falling cost meets a level.

All end at the same bits as bisection, which decides; what is around it saves steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

from flwr_dpkmeans.errors import PlanError

_MAX_STEPS = 2200
RELATIVE_PRECISION = 2.0**-43
_NEAR = 2.0**-41
_MOST_SECANTS = 30
SMALLEST_FLOAT = 5e-324


def smallest_true(
    holds: Callable[[float], bool],
    low: float,
    high: float,
) -> float:
    """Return, by bisection, the smallest value from which on a condition holds.

    Within 2^-43 of it, and seen to hold.

    Parameters
    ----------
    holds : callable
        The condition.
    low, high : float
        The range, at least 0; the condition must hold at `high` (else `PlanError`), and
        need not fail at `low`.
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
        is_narrow = high - low <= RELATIVE_PRECISION * high
        if is_narrow or not low < middle < high:
            return high
        if holds(middle):
            high = middle
        else:
            low = middle
    raise PlanError(
        f"the search between {low} and {high} did not converge: give a larger epsilon"
        " or a larger delta."
    )


def smallest_at_most(
    cost: Callable[[float], float],
    level: float,
    high: float,
) -> float:
    """Return the smallest value whose cost is at most a level; see `smallest_true`.

    In under half of its steps: secants in the cost's logarithm tell where it crosses
    the level; once it is seen on both sides of a narrow range, bisection looks only
    there, and ends at the same bits, but where the cost is so flat that it crosses the
    level more than once by rounding.

    Parameters
    ----------
    cost : callable
        Falls, and is at least 0.
    level : float
        What it is to be at most.
    high : float
        End of the range, which begins at 0.
    """
    cost = cache(cost)

    def holds(value: float) -> bool:
        return cost(value) <= level

    def excess(value: float) -> float:
        positive = max(cost(value), SMALLEST_FLOAT)
        return math.log(positive) - math.log(level)

    if holds(0.0) or not (math.isfinite(high) and holds(high)):
        return smallest_true(holds, 0.0, high)
    crossing = _crossing(excess, high)
    below = crossing * (1.0 - 2.0 * _NEAR)
    above = crossing * (1.0 + 2.0 * _NEAR)
    if holds(below) or not holds(above):
        # So flat that rounding shows.
        return smallest_true(holds, 0.0, high)

    def holds_nearby(value: float) -> bool:
        if value >= above:
            return True
        return value > below and holds(value)

    return smallest_true(holds_nearby, 0.0, high)


def _crossing(excess: Callable[[float], float], high: float) -> float:
    """Return about where a function, above 0 at 0, falls through 0."""
    bracket = Bracket(excess, 0.0, high)
    for _ in range(_MOST_SECANTS):
        low_before = bracket.low
        high_before = bracket.high
        point = bracket.secant()
        value = bracket.narrow(point)
        moved = max(bracket.low - low_before, high_before - bracket.high)
        if value == 0.0 or moved <= _NEAR * point:
            break
    return point


Point = TypeVar("Point", int, float)


class Bracket(Generic[Point]):
    """Two points between which a function falls from above 0.

    Narrowed by regula falsi (Dowell and Jarratt 1971). SciPy's `brentq` evaluates as
    often, but takes as long to be imported as a thousand prices.
    """

    def __init__(
        self,
        excess: Callable[[Point], float],
        low: Point,
        high: Point,
    ) -> None:
        self.low: Point = low
        self.high: Point = high
        self._excess: Callable[[Point], float] = excess
        self._at_low = excess(low)
        self._at_high = excess(high)
        self._last = 0.0

    def secant(self) -> float:
        """Return where a straight line between both ends is 0."""
        width = self.high - self.low
        rise = self._at_high - self._at_low
        return self.high - self._at_high * width / rise

    def narrow(self, point: Point) -> float:
        """Take a point between both in the stead of one, and return its value."""
        value = self._excess(point)
        # Where the same end moves twice, the other one counts half, else it would stay
        # for ever.
        if value > 0.0:
            if self._last > 0.0:
                self._at_high *= 0.5
            self.low = point
            self._at_low = value
        else:
            if self._last < 0.0:
                self._at_low *= 0.5
            self.high = point
            self._at_high = value
        self._last = value
        return value
