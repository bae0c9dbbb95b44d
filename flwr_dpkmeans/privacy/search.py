"""A search for the smallest noise scale, on a lattice of scales so that its result does not depend on its path."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flwr_dpkmeans.errors import PlanError

_STEPS_PER_OCTAVE = 2**20
_LARGEST_OCTAVE = 333  # a scale of about 1e100
_LONGEST_JUMP = 16.0  # octaves
_MOST_PRICES = 500


def first_private(
    price: Callable[[float], float], epsilon: float, start: float, *, steps: int = _STEPS_PER_OCTAVE
) -> float:
    """Return the first scale of the lattice whose price is at most `epsilon`.

    Parameters
    ----------
    price : Callable[[float], float]
        The epsilon at a noise scale, which must not increase with the scale; may be 0 or infinite.
    epsilon : float
        The largest epsilon allowed, greater than 0.
    start : float
        A scale greater than 0; the nearer it is to the answer, the quicker the search.
    steps : int
        Scales of the lattice between a power of two and the next. As given they are floats with 21 significant bits,
        0.5e-6 to 1e-6 apart relatively.

    Returns
    -------
    float
        A scale whose price was seen to be at most `epsilon`, where that of the scale before it on the lattice was seen
        to be above.

    Raises
    ------
    PlanError
        If no scale up to 1e100 is private, every one down to 1e-100 is, or a price is not a number.

    Examples
    --------
    >>> round(first_private(lambda scale: 1.0 / scale, 0.3, 1.0), 5)
    3.33333
    """
    farthest = _LARGEST_OCTAVE * steps
    bracket = _Bracket(steps, low=-farthest - 1, high=farthest + 1)
    index = min(max(_index_of(start, steps), -farthest), farthest)
    for _ in range(_MOST_PRICES):
        bracket.add(index, _log_excess(price(_scale_at(index, steps)), epsilon))
        if bracket.is_closed:
            return _scale_at(bracket.high, steps)
        index = bracket.next_index()
    raise PlanError(
        f"the search for the noise of epsilon = {epsilon:g} did not converge: give a larger epsilon or a larger delta."
    )


@dataclass
class _Bracket:
    """What a search knows: the last scale seen not to be private, the first seen to be, and the two latest prices."""

    steps: int
    low: int
    high: int
    shortest: int = 1
    latest: tuple[int, float] | None = None
    before: tuple[int, float] | None = None
    widths: tuple[int, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the first private scale is known."""
        return self.high - self.low == 1

    def add(self, index: int, excess: float) -> None:
        """Note the logarithm of price over epsilon at a scale."""
        if excess <= 0.0:
            self.high = min(self.high, index)
        else:
            self.low = max(self.low, index)
        if self.low >= _LARGEST_OCTAVE * self.steps:
            raise PlanError(
                "no noise scale up to 1e100 is private enough: give every release noise, a finer grid, a larger "
                "epsilon or a larger delta."
            )
        if self.high <= -_LARGEST_OCTAVE * self.steps:
            raise PlanError("every noise scale down to 1e-100 is private enough: give a smaller epsilon or delta.")
        self.before, self.latest = self.latest, (index, excess)
        self.widths = (*self.widths[-2:], self.high - self.low)

    def next_index(self) -> int:
        """Return the scale to price next, strictly inside the bracket."""
        assert self.latest is not None
        index, excess = self.latest
        step = max(-_LONGEST_JUMP, min(_LONGEST_JUMP, -excess / self._slope())) * self.steps
        if self.low < -_LARGEST_OCTAVE * self.steps or self.high > _LARGEST_OCTAVE * self.steps:
            # One side is unknown: go at least 1, 8, 64, ... scales further, however flat the price is.
            guess = math.ceil(index + (max(step, self.shortest) if excess > 0.0 else min(step, -self.shortest)))
            self.shortest *= 8
        elif math.isinf(excess) or (len(self.widths) == 3 and 2 * self.widths[-1] > self.widths[0]):
            guess = (self.low + self.high) // 2
        else:
            guess = math.ceil(index + step)
        return min(max(guess, self.low + 1), self.high - 1)

    def _slope(self) -> float:
        """Return the change of the latest excess per octave; as if the price were 1 / scale if it is not known."""
        usual = -math.log(2.0)
        if self.latest is None or self.before is None or self.latest[0] == self.before[0]:
            return usual
        rise = (self.latest[1] - self.before[1]) / (self.latest[0] - self.before[0]) * self.steps
        return rise if -math.inf < rise < -1e-6 else usual


def _log_excess(price: float, epsilon: float) -> float:
    """Return log(price / epsilon), minus infinity for a price of 0."""
    if math.isnan(price):
        raise PlanError("a price is not a number: give noise multipliers nearer to 1.")
    if price <= 0.0:
        return -math.inf
    # At the boundary the sign must be that of the comparison, whatever the rounding of the logarithm.
    excess = math.log(price) - math.log(epsilon) if price < math.inf else math.inf
    return max(excess, 5e-324) if price > epsilon else min(excess, 0.0)


def _scale_at(index: int, steps: int) -> float:
    """Return a scale of the lattice: equal steps within every octave."""
    exponent, step = divmod(index, steps)
    return math.ldexp(1.0 + step / steps, exponent)


def _index_of(scale: float, steps: int) -> int:
    """Return the index of a scale of the lattice near `scale`."""
    mantissa, exponent = math.frexp(scale)
    return (exponent - 1) * steps + round((2.0 * mantissa - 1.0) * steps)
