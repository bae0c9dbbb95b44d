"""One release that costs as much as, or no less than, several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy.closeness import Closeness, joint_closeness
from flwr_dpkmeans.privacy.release.events import Event, GaussianRelease, PureRelease

_LITTLE_LESS = 1.0 - 2.0**-40
"""Of the noise of a strongest round, so that the last digits of prices do not change
their order.
"""


def joint_sampled_release(
    name: str, parts: Sequence[GaussianRelease], sampling_rate: float
) -> GaussianRelease:
    """Join the arrays that are sent under one draw of the sample to one release.

    A unit is in all of them or in none. Scaled to unit noise the arrays, at least one,
    each described as without sampling, are one vector, of sensitivity ``hypot(1 /
    multipliers)``; closeness adds up.
    """
    inverses = [1.0 / part.noise_multiplier for part in parts]
    return GaussianRelease(
        name=name,
        noise_multiplier=1.0 / math.hypot(*inverses),
        closeness=joint_closeness(part.closeness for part in parts),
        sampling_rate=sampling_rate,
    )


def with_joint_pure_release(events: Sequence[Event]) -> tuple[Event, ...]:
    """Put one pure release of their total in place of all pure releases.

    For rounds that follow from an earlier release, whose outcome speaks for one of two
    neighbours: their total is the same for every outcome, so one randomized response of
    that total is no better than any of them; parts of it are not.

    Examples
    --------
    >>> with_joint_pure_release([PureRelease("sums", 0.25), PureRelease("counts", 0.5)])
    (PureRelease(name='sums and counts', epsilon=0.75),)
    """
    pure = [event for event in events if isinstance(event, PureRelease)]
    if not pure:
        return tuple(events)
    others = [event for event in events if not isinstance(event, PureRelease)]
    names = dict.fromkeys(event.name for event in pure)
    epsilons = [event.epsilon for event in pure]
    joint = PureRelease(" and ".join(names), math.fsum(epsilons))
    return (*others, joint)


def dominating_release(rounds: Sequence[Sequence[Event]]) -> GaussianRelease:
    """Return one Gaussian release that costs no less than any of some rounds.

    Whatever else is released.

    The strongest round need not be the costliest: one of weaker signals, whose noise is
    coarser, may pay more for being discrete, and two rounds that cost the same alone
    can cost more one after the other than either does twice.

    It has the smallest joint multiplier of a round (less 1e-12 of it), and each part of
    the closeness as large as it is in any. Rounds, none of them empty, are of
    `GaussianRelease` of one rate.
    """
    mus: list[float] = []
    rates: set[float] = set()
    closeness: list[Closeness] = []
    for events in rounds:
        gaussians = _all_gaussian(events)
        rates |= {event.sampling_rate for event in gaussians}
        inverses = [1.0 / event.noise_multiplier for event in gaussians]
        mus.append(math.hypot(*inverses))
        closeness.append(joint_closeness([event.closeness for event in gaussians]))
    if len(rates) != 1:
        raise LocalMisuseError(
            f"rounds have the sampling rates {sorted(rates)}: give rounds of one rate."
        )
    (rate,) = rates
    widest = Closeness(
        log_ratio_above=max([part.log_ratio_above for part in closeness]),
        log_ratio_below=max([part.log_ratio_below for part in closeness]),
        additive=max([part.additive for part in closeness]),
    )
    return GaussianRelease(
        name="a repetition",
        noise_multiplier=_LITTLE_LESS / max(mus),
        closeness=widest,
        sampling_rate=rate,
    )


def _all_gaussian(events: Sequence[Event]) -> list[GaussianRelease]:
    """Return a round's releases, refusing others than those of one Gaussian vector."""
    gaussians = [event for event in events if isinstance(event, GaussianRelease)]
    if len(gaussians) < len(events) or not gaussians:
        raise LocalMisuseError(
            "a round has releases that are not Gaussian: price its repetitions one"
            " by one."
        )
    is_sampled = any(event.sampling_rate < 1.0 for event in gaussians)
    if len(gaussians) > 1 and is_sampled:
        raise LocalMisuseError(
            "a sampled round has several releases: join those of one draw first."
        )
    return gaussians
