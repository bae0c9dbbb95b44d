"""From a total epsilon and delta back to the amount of noise, always on the private side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flwr_dpkmeans.errors import PlanError, require_delta, require_positive
from flwr_dpkmeans.privacy.accounting import (
    Totals,
    add_up,
    compose_epsilon,
    delta_as_drawn,
    epsilon_as_drawn,
    gdp_delta,
    gdp_epsilon,
    numerical_epsilon,
)
from flwr_dpkmeans.privacy.discreteness import Closeness, require_closeness
from flwr_dpkmeans.privacy.events import Event, GaussianRelease, SampledGaussianRelease
from flwr_dpkmeans.privacy.losses import gaussian_delta, gaussian_delta_bound, smallest_true

CALIBRATION_SHADE = 1.0 - 2.0**-41
"""What epsilon and delta are multiplied by before noise is calibrated to them.

A calibrated plan is priced again by a search of its own, whose last digits must not end above the request."""

_COARSENESS = 8.0
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_RELATIVE_PRECISION = 2.0**-43
_STEPS_PER_OCTAVE = 2**20
_LARGEST_OCTAVE = 333  # a scale of about 1e100
_LONGEST_JUMP = 16.0  # octaves
_MOST_PRICES = 500


def calibrate_gaussian(epsilon: float, delta: float, closeness_at: Callable[[float], Closeness] | None = None) -> float:
    """Return the smallest noise multiplier that is (`epsilon`, `delta`)-DP as the noise is drawn, 0 < `delta` < 1.

    `closeness_at` is how close the drawn noise of all releases is to what is analysed when the multiplier of their sum
    is sigma; no part of it may increase with sigma, and None means that they are the same. T releases with multipliers
    ``sigma sqrt(T)``, together as close as ``closeness_at(sigma)``, cost at most `epsilon` at `delta`, as
    `compose_epsilon` prices them. A `PlanError` is raised if the closeness leaves no room, however large sigma is.

    With log-ratios a and b and additive part tau the condition is ``exp(a) (gaussian_delta(e, 1 / sigma) + (1 + exp(e))
    tau) <= delta`` at e = `epsilon` - a - b, or at a smaller e where the left-hand side is smaller: (e, delta)-DP
    implies (epsilon, delta)-DP, and at a large epsilon the factor of tau would be enormous.

    Examples
    --------
    >>> round(calibrate_gaussian(1.0, 1e-6), 6)
    4.224679
    """
    start = gaussian_noise_multiplier(epsilon, delta)
    if closeness_at is None:
        return start
    at = closeness_at
    target, room = epsilon * CALIBRATION_SHADE, delta * CALIBRATION_SHADE

    def private(sigma: float) -> bool:
        totals = Totals(mu=1.0 / sigma, closeness=require_closeness(at(sigma)))
        return totals.closeness.log_ratio < target and delta_as_drawn(totals, target, gdp_delta) <= room

    return smallest_multiplier(private, start)


def calibrate_scale(
    events_at: Callable[[float], Sequence[Event]], epsilon: float, delta: float, *, start: float = 1.0
) -> float:
    """Return the smallest noise scale s > 0 at which ``compose_epsilon(events_at(s), delta) <= epsilon``, as seen.

    The price must not increase with s; `start` affects the time only. A `PlanError` is raised if no scale up to 1e100
    is private enough (a release without noise, or drawn noise that is too far from the analysed one), or every one down
    to 1e-100 is. Only scales on a fixed lattice (21 significant bits) are tried: two machines whose last digits of a
    price differ find the same, whatever the start and the path of the search.

    Examples
    --------
    >>> def events_at(scale: float) -> list[Event]:
    ...     return [GaussianRelease("sums", 2.0 * scale), GaussianRelease("counts", 3.0 * scale)]
    >>> scale = calibrate_scale(events_at, 1.0, 1e-6)
    >>> round(scale, 4), round(compose_epsilon(events_at(scale), 1e-6), 5)
    (2.5387, 1.0)
    """
    epsilon, delta, start = require_positive("epsilon", epsilon), require_delta(delta), require_positive("start", start)

    def price(scale: float) -> float:
        return _price_or_infinity(events_at(scale), delta)

    totals = add_up(events_at(start))
    if totals.exact:
        raise PlanError("a release has no noise at all, so that no noise scale is private: give every release noise.")
    if totals.sampled:
        start = _sampled_start(events_at, epsilon, delta, start)
    return first_private(price, epsilon, start)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier sigma whose Gaussian noise is (`epsilon`, `delta`)-DP, rounded up by 1e-12.

    ``gaussian_delta(epsilon, 1 / sigma) <= delta`` always holds. Balle and Wang 2018, Theorem 8 and Algorithm 1.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    tail = math.sqrt(-2.0 * math.log(delta))
    # Two values of mu that are surely private: the tail bound of `gaussian_epsilon`, and delta(0) <= mu / sqrt(2 pi).
    private_mu = max(2.0 * epsilon / (tail + math.sqrt(tail * tail + 2.0 * epsilon)), delta * _SQRT_TWO_PI)
    epsilon, delta = epsilon * CALIBRATION_SHADE, delta * CALIBRATION_SHADE
    start = 1.0 / _refine_mu(epsilon, delta, private_mu)
    return smallest_multiplier(lambda sigma: gaussian_delta_bound(epsilon, 1.0 / sigma) <= delta, start)


def smallest_multiplier(private: Callable[[float], bool], start: float) -> float:
    """Return the smallest noise multiplier that is `private`, to 2^-43 of it, from above; quick from a `start` near it.

    A `PlanError` is raised if no multiplier up to 1e100 is private, or every one down to 1e-100 is.
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


def first_private(
    price: Callable[[float], float], epsilon: float, start: float, *, steps: int = _STEPS_PER_OCTAVE
) -> float:
    """Return the first scale of the lattice whose price is at most `epsilon`; the one before it was seen to cost more.

    The price must not increase with the scale, and may be 0 or infinite. `steps` are the scales between a power of two
    and the next: as given they are floats with 21 significant bits. A `PlanError` is raised if no scale up to 1e100 is
    private, every one down to 1e-100 is, or a price is not a number.
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


def _sampled_start(events_at: Callable[[float], Sequence[Event]], epsilon: float, delta: float, start: float) -> float:
    """Return a scale near the answer by two cheap prices, which saves convolutions on the fine grid."""

    def guess(scale: float) -> float:
        return _price_or_infinity(_weak_limit(events_at(scale)), delta)

    def coarse_price(scale: float) -> float:
        return epsilon_as_drawn(add_up(events_at(scale)).merged(), delta, _coarse_epsilon)

    start = first_private(guess, epsilon, start, steps=2**7)
    return first_private(coarse_price, epsilon, start, steps=2**11)


def _coarse_epsilon(totals: Totals, delta: float) -> float:
    """Return a quick price of sampled releases."""
    return min(gdp_epsilon(totals, delta), numerical_epsilon(totals, delta, coarseness=_COARSENESS))


def _price_or_infinity(events: Sequence[Event], delta: float) -> float:
    """Return the price, infinity where the closeness leaves no room."""
    try:
        return compose_epsilon(events, delta)
    except PlanError:
        return math.inf


def _weak_limit(events: Sequence[Event]) -> list[Event]:
    """Replace sampled releases by what many weak ones tend to (Bu et al. 2020, Corollary 5.4): a rough guess."""
    return [
        GaussianRelease(event.name, _weak_multiplier(event), event.closeness)
        if isinstance(event, SampledGaussianRelease)
        else event
        for event in events
    ]


def _weak_multiplier(event: SampledGaussianRelease) -> float:
    """Return the multiplier of the limit, 1 / (rate sqrt(exp(1 / multiplier^2) - 1)), at most unsampled."""
    mu = 1.0 / event.noise_multiplier
    return 1.0 / min(max(event.sampling_rate * math.sqrt(math.expm1(min(mu * mu, 700.0))), 1e-100), mu)


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
