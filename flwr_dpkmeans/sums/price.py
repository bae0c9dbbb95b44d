"""What releases cost, and the noise that a share of the budget pays for."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import calibrate_scale, gaussian_noise_multiplier
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.release import Event, NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.outcome import COUNT

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.plan import Plan


@lru_cache(maxsize=1024)
def price(events: tuple[Event, ...], delta: float) -> float:
    """Epsilon of the events at delta.

    Remembered, since server and clients price the same prefixes of a plan.
    """
    return compose_epsilon(events, delta)


def price_or_infinity(events: tuple[Event, ...], delta: float) -> float:
    """Return epsilon of the events, or infinity.

    Where their discrete noise is too far from a continuous one for delta.
    """
    try:
        return price(events, delta)
    except PlanError:
        return math.inf


_LESS_DISCRETENESS = 1 - 1e-6
"""Of epsilon and delta: a millionth is set aside for what discrete noise costs."""
UNDECLARED_DELTA = 1e-6
"""delta of a run whose number of rows nobody declares."""


def resolve_delta(config: RunConfig, n_clients: int) -> float:
    """delta: as the user set it, else 1/(N ln N) where N is declared, else 1e-6.

    At client level also at most 1/(M ln M).
    """
    settings = config.settings
    if settings.delta is not None:
        return settings.delta
    if settings.unit is PrivacyUnit.CLIENT:
        if n_clients < 3:
            return UNDECLARED_DELTA
        return min(UNDECLARED_DELTA, _delta_of(n_clients))
    n = settings.n_examples
    if n is None:
        return UNDECLARED_DELTA
    if n < 3:
        raise ConfigurationError(
            f"n_examples is {n}, but 1/(N ln N) needs at least 3: give delta or add"
            " data."
        )
    return _delta_of(n)


def _delta_of(n: float) -> float:
    """1/(n ln n) for n units."""
    return 1.0 / (n * math.log(n))


def whole_multiplier(config: RunConfig, delta: float) -> float:
    """Return the noise multiplier of a Gaussian release that takes the whole budget.

    A share s of it gets this over sqrt(s).

    Beside Laplace noise all that is not the task's own shares one part of epsilon, on
    whose size it depends.
    """
    settings = config.settings
    if config.task.noise is not NoiseShape.LAPLACE:
        return gaussian_noise_multiplier(settings.epsilon, delta)
    counts = config.task.counts(settings.unit)
    total = settings.reserved_share(counts=counts)
    epsilon = settings.epsilon * total * _LESS_DISCRETENESS
    multiplier = gaussian_noise_multiplier(epsilon, delta * _LESS_DISCRETENESS)
    return multiplier * math.sqrt(total)


COUNT_DEVIATIONS = 6.0
"""Deviations of the count's noise that a table may be larger than its count says, in
the choice of delta.
"""
_SPENT_BEFORE = 0.7
"""Most of epsilon, less the closing rounds' share, that what comes before round 1 may
cost at the final delta.
"""


def closing_multiplier(plan: Plan, share: float) -> float:
    """Noise multiplier of a closing round with a share of the budget."""
    whole = whole_multiplier(plan.config, plan.delta)
    multiplier = whole / math.sqrt(share)
    rate = plan.settings.client_sampling_rate
    if rate >= 1.0:
        return multiplier
    return _sampled_multiplier(multiplier, rate, plan.delta)


@lru_cache(maxsize=64)
def _sampled_multiplier(multiplier: float, rate: float, delta: float) -> float:
    """Return the multiplier of one release over sampled clients at an equal cost.

    It costs what one over all clients would with the other multiplier.
    """
    over_all = release.GaussianRelease("closing round", multiplier)
    epsilon = compose_epsilon([over_all], delta)

    def over_a_sample(scale: float) -> list[Event]:
        return [release.GaussianRelease("closing round", scale, SAME, rate)]

    return calibrate_scale(over_a_sample, epsilon, delta, start=multiplier)


def counted_delta(plan: Plan) -> float:
    """Choose delta once N is counted.

    The first of the start's delta, a quarter of it, a sixteenth, ... that suits the
    table.

    Suits: at most 1/(n ln n), or below 1/n where the user set delta, n being the count
    and six deviations of its noise. The plan before it has the largest of them, so that
    a policy's limit holds for all [C15]. No step would leave the algorithm next to
    nothing of epsilon beside the preliminary rounds, whose noise is that of the first
    delta.
    """
    settings = plan.settings
    counting = plan.count
    delta = resolve_delta(plan.config, plan.n_clients)
    by_record = settings.unit.by_row
    if counting is None or plan.n_examples is None or not by_record:
        return delta
    stds = []
    for block in counting.blocks:
        if block.name == COUNT:
            stds.append(plan.released_std(counting, block))
    std = max(stds)
    n = plan.n_examples + COUNT_DEVIATIONS * std
    most = math.nextafter(1.0 / n, 0.0)
    if settings.delta is None:
        most = _delta_of(n)
    part_before_closing = 1.0 - settings.closing_share
    spendable = _SPENT_BEFORE * part_before_closing * settings.epsilon
    preliminary = range(plan.first_round, 1)
    events = plan.events(preliminary)
    while delta > most:
        quarter = 0.25 * delta
        if price_or_infinity(events, quarter) > spendable:
            break
        delta = quarter
    return delta
