"""The price of a list of releases.

Events only describe what was released; the functions here price them. The releases may be adaptive: each may depend
on what the earlier ones showed. The rules are

* Gaussian releases: Gaussian differential privacy composes exactly, ``mu^2 = sum 1 / multiplier^2`` (Dong, Roth and
  Su 2022, Corollary 2).
* Laplace releases: the sum of the pure epsilons, which is exact for the adaptive pure statement.
* Both: the smaller of the two rules added up (the tensor product of trade-off functions commutes, so that the
  releases may be interleaved) and a numerical privacy-loss distribution, in which a Laplace release is the worst
  mechanism of its pure epsilon (Kairouz, Oh and Viswanath 2015), whatever the grid and dimension of its noise.
* Slack: the whole list is within total-variation distance ``tau``, the sum of the slacks, of the list that was
  analysed (replace the releases one at a time), and this costs ``(1 + exp(epsilon)) tau`` of delta; see
  ``flwr_dpkmeans.privacy.slack``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.gaussian import (
    CALIBRATION_SHADE,
    gaussian_delta_bound,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    smallest_multiplier,
    smallest_true,
)
from flwr_dpkmeans.privacy.sensitivity import require_delta, require_positive, require_real

# Convolutions by FFT carry absolute errors near 1e-15 in each probability; 1e-13 of delta is set aside for them.
_FFT_NOISE = 1e-13


@dataclass(frozen=True)
class GaussianRelease:
    """A release with Gaussian noise.

    Parameters
    ----------
    name : str
        What was released.
    noise_multiplier : float
        Standard deviation of the noise over the L2 sensitivity; finite and greater than 0.
    slack : float
        Total-variation distance between the noise that is drawn and the noise that is analysed, from 0 to 1.

    Raises
    ------
    LocalMisuseError
        If a value is out of its range.

    Examples
    --------
    >>> GaussianRelease("round 1", 4.0).slack
    0.0
    """

    name: str
    noise_multiplier: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)
        _require_slack(self.slack)


@dataclass(frozen=True)
class LaplaceRelease:
    """A release with Laplace or discrete Laplace noise, of pure epsilon ``1 / noise_multiplier``.

    Parameters
    ----------
    name : str
        What was released.
    noise_multiplier : float
        Scale of the noise over the L1 sensitivity; finite and greater than 0.

    Raises
    ------
    LocalMisuseError
        If `noise_multiplier` is out of its range.

    Examples
    --------
    >>> LaplaceRelease("count", 2.0).noise_multiplier
    2.0
    """

    name: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class ExactRelease:
    """A release without noise, which no finite epsilon covers.

    Parameters
    ----------
    name : str
        What was released.

    Examples
    --------
    >>> compose_epsilon([ExactRelease("labels")], 1e-6)
    inf
    """

    name: str


Event = GaussianRelease | LaplaceRelease | ExactRelease
"""One release, as `compose_epsilon` and `compose_delta` price it."""


@dataclass(frozen=True)
class _Totals:
    """What a list of events adds up to: GDP parameter, slack, pure epsilon, and whether one had no noise."""

    mu: float
    tau: float
    pure: float
    exact: bool

    @property
    def mixed(self) -> bool:
        """Whether there are both Gaussian and Laplace events."""
        return self.mu > 0.0 and self.pure > 0.0


def compose_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the total epsilon of `events` at `delta`.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    delta : float
        The total delta, less than 1; greater than 0 if there is a Gaussian release, else at least 0.

    Returns
    -------
    float
        The epsilon: 0.0 for no events, infinity if any release is exact.

    Raises
    ------
    LocalMisuseError
        If an event is of an unsupported type or `delta` is out of its range.
    PlanError
        If the slack of the releases leaves no room within `delta` at any epsilon.

    Notes
    -----
    Mixtures import ``dp_accounting`` and take a fraction of a second; the other cases take well below 1 ms. A mixture
    with a delta below 1e-13 is priced without the privacy-loss distribution, whose convolutions are not exact enough.

    Examples
    --------
    >>> round(compose_epsilon([GaussianRelease("sums", 10.0)] * 100, 1e-6), 6)
    4.886554
    >>> compose_epsilon([LaplaceRelease("counts", 4.0)] * 3, 0.0)
    0.75
    """
    totals = _total(events)
    delta = require_real("delta", delta, "give a small number such as 1e-6")
    if totals.mu > 0.0 or not 0.0 <= delta < 1.0:
        delta = require_delta(delta)
    if totals.exact:
        return math.inf
    if totals.mu == 0.0:
        return totals.pure
    epsilon = _gdp_epsilon(totals, delta)
    if totals.mixed:
        epsilon = min(epsilon, _pld_epsilon_with_slack(_merge_gaussians(events, totals), totals, delta))
    return _require_finite(epsilon, totals, delta)


def compose_delta(events: Sequence[Event], epsilon: float) -> float:
    """Return the total delta of `events` at `epsilon`.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    epsilon : float
        The total epsilon, at least 0.

    Returns
    -------
    float
        The delta, from 0.0 to 1.0; 1.0 if any release is exact.

    Raises
    ------
    LocalMisuseError
        If an event is of an unsupported type or `epsilon` is out of its range.

    Notes
    -----
    Laplace releases whose epsilons sum to E above `epsilon` cost at most (exp(E) - exp(epsilon)) / (exp(E) + 1), the
    value for randomized response, which is the worst E-DP mechanism (Kairouz, Oh and Viswanath 2015).

    Examples
    --------
    >>> round(compose_delta([GaussianRelease("sums", 10.0)] * 100, 1.0), 12)
    0.126936737507
    """
    totals = _total(events)
    epsilon = require_real("epsilon", epsilon, "give a number of at least 0 such as 1.0")
    if epsilon < 0.0:
        raise LocalMisuseError(f"epsilon is {epsilon}, but it must be at least 0: give a number such as 1.0.")
    if totals.exact:
        return 1.0
    if totals.mu == 0.0:
        return _pure_delta(totals.pure, epsilon)
    delta = 1.0
    if epsilon >= totals.pure:
        delta = min(delta, _gdp_delta(totals, epsilon - totals.pure))
    if totals.mixed:
        losses = _compose_pld(_merge_gaussians(events, totals), _interval(totals, events, 1e-6))
        computed = float(losses.get_delta_for_epsilon(epsilon))
        delta = min(delta, computed + _FFT_NOISE + _slack_cost(totals.tau, epsilon))
    return delta


def pld_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the total epsilon of `events` at `delta` by numerical privacy-loss distributions alone.

    An independent price, for comparison: it shares nothing with `compose_epsilon` but the treatment of slack.

    Parameters
    ----------
    events : sequence of Event
        The releases, in any order.
    delta : float
        The total delta, greater than 0 and less than 1; below 1e-13 the result is infinite.

    Returns
    -------
    float
        The epsilon by ``dp_accounting.pld``, pessimistic, for the add-or-remove relation; a Laplace release counts as
        the worst mechanism of its pure epsilon.

    Raises
    ------
    LocalMisuseError
        If an event is of an unsupported type or `delta` is out of its range.

    References
    ----------
    Doroshenko et al. 2022, "Connect the dots: tighter discrete approximations of privacy loss distributions".

    Examples
    --------
    >>> round(pld_epsilon([GaussianRelease("sums", 10.0)] * 100, 1e-6), 3)
    4.887
    """
    totals, delta = _total(events), require_delta(delta)
    if totals.exact:
        return math.inf
    if not events:
        return 0.0
    return _pld_epsilon_with_slack(events, totals, delta)


def calibrate_gaussian(epsilon: float, delta: float, tau_of_sigma: Callable[[float], float] | None = None) -> float:
    """Return the smallest noise multiplier that is (`epsilon`, `delta`)-DP with room for slack.

    Parameters
    ----------
    epsilon : float
        The total epsilon, greater than 0.
    delta : float
        The total delta, greater than 0 and less than 1.
    tau_of_sigma : callable, optional
        The total slack (a total-variation distance) of all releases when the multiplier of their sum is sigma; it must
        not increase with sigma. None means no slack.

    Returns
    -------
    float
        The multiplier sigma of the whole: T releases with multipliers ``sigma sqrt(T)`` and slacks summing to
        ``tau_of_sigma(sigma)`` cost at most `epsilon` at `delta`, as `compose_epsilon` prices them.

    Raises
    ------
    LocalMisuseError
        If an argument is out of its range.
    PlanError
        If the slack leaves no room within `delta`, however large sigma is.

    Notes
    -----
    The condition is ``gaussian_delta(e, 1 / sigma) + (1 + exp(e)) tau <= delta`` at e = `epsilon`, or at a smaller
    e where the left-hand side is smaller: (e, delta)-DP implies (epsilon, delta)-DP, and at a large epsilon the factor
    of tau would be enormous.

    Examples
    --------
    >>> round(calibrate_gaussian(1.0, 1e-6), 6)
    4.224679
    >>> round(calibrate_gaussian(1.0, 1e-6, lambda sigma: 1e-7), 4)
    4.3193
    """
    start = gaussian_noise_multiplier(epsilon, delta)
    if tau_of_sigma is None:
        return start
    slack_at = tau_of_sigma
    target, room = epsilon * CALIBRATION_SHADE, delta * CALIBRATION_SHADE

    def private(sigma: float) -> bool:
        totals = _Totals(mu=1.0 / sigma, tau=_require_slack(slack_at(sigma)), pure=0.0, exact=False)
        return _gdp_delta(totals, target) <= room

    return smallest_multiplier(private, start)


def _require_slack(value: object) -> float:
    """Return a slack as a float, or raise if it is not from 0 to 1."""
    slack = require_real("slack", value, "give 0.0 or a total-variation distance")
    if not 0.0 <= slack <= 1.0:
        raise LocalMisuseError(
            f"slack is {slack}, but it must be from 0 to 1: give 0.0 or the total-variation distance of the noise."
        )
    return slack


def _require_finite(epsilon: float, totals: _Totals, delta: float) -> float:
    """Return `epsilon`, or say that the slack is to blame for its being infinite."""
    if math.isfinite(epsilon):
        return epsilon
    raise PlanError(
        f"the releases have a slack of {totals.tau:.3g}, which leaves no room within delta = {delta:.3g}: "
        "use a finer noise grid or a larger delta."
    )


def _total(events: Sequence[Event]) -> _Totals:
    """Add up `events`, refusing any of an unsupported type."""
    gaussians: list[GaussianRelease] = []
    pure: list[float] = []
    exact = False
    for event in events:
        if isinstance(event, GaussianRelease):
            gaussians.append(event)
        elif isinstance(event, LaplaceRelease):
            pure.append(1.0 / event.noise_multiplier)
        elif isinstance(event, ExactRelease):
            exact = True
        else:
            raise LocalMisuseError(
                f"an event is of type {type(event).__name__!r}, which has no price: "
                "give a GaussianRelease, a LaplaceRelease or an ExactRelease."
            )
    mu = math.hypot(*(1.0 / event.noise_multiplier for event in gaussians))
    total = math.fsum(pure)
    if not (math.isfinite(mu) and math.isfinite(total)):
        raise LocalMisuseError(
            "the noise multipliers are too small for a finite epsilon: give multipliers above 1e-100."
        )
    return _Totals(mu, min(1.0, math.fsum(event.slack for event in gaussians)), total, exact)


def _slack_cost(tau: float, epsilon: float) -> float:
    """Return (1 + exp(epsilon)) tau, the delta that a total-variation distance of tau costs."""
    if tau == 0.0:
        return 0.0
    exponent = epsilon + math.log(tau)
    return tau + (math.exp(exponent) if exponent < 700.0 else math.inf)


def _turning_epsilon(totals: _Totals) -> float:
    """Return the Gaussian epsilon beyond which delta, with the cost of slack, no longer falls.

    In u = exp(epsilon), delta is convex with slope -Phi(-y), y = epsilon/mu + mu/2, and the cost of slack is linear
    with slope tau exp(pure).
    """
    if totals.tau == 0.0:
        return math.inf
    exponent = totals.pure + math.log(totals.tau)
    if exponent >= math.log(0.5):
        return 0.0
    y = -NormalDist().inv_cdf(math.exp(exponent))
    return max(0.0, totals.mu * (y - 0.5 * totals.mu))


def _gdp_delta(totals: _Totals, gaussian_part: float) -> float:
    """Return the smallest delta at epsilons of at most `gaussian_part` plus the pure epsilon, slack included."""
    epsilon = min(gaussian_part, _turning_epsilon(totals))
    return min(1.0, _gdp_delta_at(totals, epsilon))


def _gdp_delta_at(totals: _Totals, epsilon: float) -> float:
    """Return delta at `epsilon` for the Gaussian part plus the pure epsilon, slack included."""
    return gaussian_delta_bound(epsilon, totals.mu) + _slack_cost(totals.tau, epsilon + totals.pure)


def _gdp_epsilon(totals: _Totals, delta: float) -> float:
    """Return the smallest total epsilon at `delta` by GDP plus the pure epsilon; infinity if slack leaves no room."""
    if totals.tau == 0.0:
        return gaussian_epsilon(totals.mu, delta) + totals.pure
    turning = _turning_epsilon(totals)
    if _gdp_delta_at(totals, turning) > delta:
        return math.inf
    return smallest_true(lambda epsilon: _gdp_delta_at(totals, epsilon) <= delta, 0.0, turning) + totals.pure


def _pure_delta(pure: float, epsilon: float) -> float:
    """Return the largest delta at `epsilon` of any mechanism that is pure-DP with epsilon `pure`."""
    if pure <= epsilon:
        return 0.0
    return -math.expm1(epsilon - pure) / (1.0 + math.exp(-pure))


def _merge_gaussians(events: Sequence[Event], totals: _Totals) -> list[Event]:
    """Replace all Gaussian releases by the one that is equivalent to them."""
    others: list[Event] = [event for event in events if isinstance(event, LaplaceRelease)]
    return [GaussianRelease("all Gaussian releases", 1.0 / totals.mu), *others]


def _interval(totals: _Totals, events: Sequence[Event], delta: float) -> float:
    """Return a grid for privacy losses of some 1e4 points, on which the smallest pure epsilon lies if possible."""
    rough = totals.mu * (math.sqrt(-2.0 * math.log(delta)) + 0.5 * totals.mu) + totals.pure
    step = 5e-5 * rough
    losses = [1.0 / event.noise_multiplier for event in events if isinstance(event, LaplaceRelease)]
    if not losses:
        return step
    smallest = min(losses)
    steps = math.ceil(smallest / step)
    fraction = smallest / steps
    # Both losses, plus and minus, are rounded up: a fraction that divides without a remainder moves neither.
    choices = (fraction, math.nextafter(fraction, math.inf), math.nextafter(fraction, 0.0))
    exact = next((choice for choice in choices if smallest / choice == steps), fraction)
    return max(exact, 0.05 * step)


def _compose_pld(events: Sequence[Event], interval: float) -> Any:
    """Return the privacy-loss distribution by ``dp_accounting`` of `events`, pessimistic, for add-or-remove.

    A Laplace release stands for the worst mechanism of its pure epsilon, not for continuous Laplace noise: discrete
    Laplace noise whose scale is a few grid steps leaks more than continuous noise of the same epsilon.
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    gaussians = Counter(event.noise_multiplier for event in events if isinstance(event, GaussianRelease))
    laplaces = Counter(event.noise_multiplier for event in events if isinstance(event, LaplaceRelease))
    total = pld.identity(value_discretization_interval=interval)
    for multiplier, count in gaussians.items():
        std = multiplier / math.sqrt(count)
        total = total.compose(pld.from_gaussian_mechanism(std, value_discretization_interval=interval))
    for multiplier, count in laplaces.items():
        parameters = common.DifferentialPrivacyParameters(1.0 / multiplier, 0.0)
        worst = pld.from_privacy_parameters(parameters, value_discretization_interval=interval)
        total = total.compose(worst.self_compose(count))
    return total


def _pld_epsilon_with_slack(events: Sequence[Event], totals: _Totals, delta: float) -> float:
    """Return the smallest epsilon found at which the PLD's delta plus the cost of slack is at most `delta`."""
    losses = _compose_pld(events, _interval(totals, events, delta))

    def epsilon_at(room: float) -> float:
        return float(losses.get_epsilon_for_delta(room - _FFT_NOISE)) if room > _FFT_NOISE else math.inf

    epsilon = epsilon_at(delta)
    if totals.tau == 0.0:
        return epsilon
    for _ in range(50):
        # Epsilons rise to the solution from below, so each is tried with a little added.
        trial = epsilon * (1.0 + 1e-9) + 1e-12
        epsilon = epsilon_at(delta - _slack_cost(totals.tau, trial))
        if epsilon <= trial:
            return trial
    return math.inf
