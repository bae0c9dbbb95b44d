"""From a total epsilon and delta back to the amount of noise, always on the private side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flwr_dpkmeans.errors import PlanError, require_delta, require_positive
from flwr_dpkmeans.privacy.composition import compose_epsilon
from flwr_dpkmeans.privacy.events import Event, GaussianRelease, SampledGaussianRelease, require_closeness
from flwr_dpkmeans.privacy.gaussian import CALIBRATION_SHADE, gaussian_noise_multiplier, smallest_multiplier
from flwr_dpkmeans.privacy.pld import numerical_epsilon
from flwr_dpkmeans.privacy.search import first_private
from flwr_dpkmeans.privacy.slack import Closeness
from flwr_dpkmeans.privacy.totals import Totals, add_up, delta_as_drawn, epsilon_as_drawn, gdp_delta, gdp_epsilon

_COARSENESS = 8.0


def calibrate_gaussian(epsilon: float, delta: float, closeness_at: Callable[[float], Closeness] | None = None) -> float:
    """Return the smallest noise multiplier that is (`epsilon`, `delta`)-DP as the noise is drawn.

    Parameters
    ----------
    epsilon : float
        The total epsilon, greater than 0.
    delta : float
        The total delta, greater than 0 and less than 1.
    closeness_at : callable, optional
        How close the drawn noise of all releases is to what is analysed when the multiplier of their sum is sigma; no
        part of it may increase with sigma. None means that they are the same.

    Returns
    -------
    float
        The multiplier sigma of the whole: T releases with multipliers ``sigma sqrt(T)``, together as close as
        ``closeness_at(sigma)``, cost at most `epsilon` at `delta`, as `compose_epsilon` prices them.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.
    PlanError
        If the closeness leaves no room within `epsilon` and `delta`, however large sigma is.

    Notes
    -----
    With log-ratios a and b and additive part tau the condition is ``exp(a) (gaussian_delta(e, 1 / sigma) + (1 + exp(e))
    tau) <= delta`` at e = `epsilon` - a - b, or at a smaller e where the left-hand side is smaller: (e, delta)-DP
    implies (epsilon, delta)-DP, and at a large epsilon the factor of tau would be enormous.

    Examples
    --------
    >>> round(calibrate_gaussian(1.0, 1e-6), 6)
    4.224679
    >>> round(calibrate_gaussian(1.0, 1e-6, lambda sigma: Closeness(0.01, 0.01, 1e-7)), 4)
    4.4028
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
    """Return the smallest noise scale at which a list of releases costs at most `epsilon`.

    Parameters
    ----------
    events_at : callable
        The releases at a noise scale s > 0; their price must not increase with s.
    epsilon : float
        The total epsilon, greater than 0.
    delta : float
        The total delta, greater than 0 and less than 1.
    start : float
        A scale greater than 0 to begin with. It affects the time only.

    Returns
    -------
    float
        A scale s with ``compose_epsilon(events_at(s), delta) <= epsilon``, as that function was seen to return; the
        scale before it, smaller by less than 1e-6 of it, costs more.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range or an event is of an unsupported type.
    PlanError
        If no scale up to 1e100 is private enough (a release without noise, or drawn noise that is too far from the
        analysed one), or every one down to 1e-100 is.

    Notes
    -----
    Only scales on a fixed lattice (21 significant bits) are tried. The result is the first private one, whatever the
    start and the path of the search, so that two machines whose last digits of a price differ find the same.

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
