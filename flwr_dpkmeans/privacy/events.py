"""What was released: the events that `flwr_dpkmeans.privacy.accounting` prices, as plain descriptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.errors import LocalMisuseError, require_positive
from flwr_dpkmeans.privacy.discreteness import SAME, Closeness, joint_closeness, require_closeness


@dataclass(frozen=True)
class GaussianRelease:
    """A release with Gaussian noise."""

    name: str
    noise_multiplier: float
    """Standard deviation of the noise over the L2 sensitivity; finite and greater than 0, else `LocalMisuseError`."""
    closeness: Closeness = SAME
    """Of the noise that is drawn to the continuous Gaussian that is analysed."""

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)
        require_closeness(self.closeness)


@dataclass(frozen=True)
class SampledGaussianRelease:
    """A release with Gaussian noise over a Poisson sample of the units, drawn for this release alone.

    Each unit's contribution is included independently with probability `sampling_rate`, and nobody from whom privacy
    is to be kept sees who was included. The price holds for adding or removing one unit. All arrays that depend on the
    same draw are one release (`joint_sampled_release`): priced one by one they would count as independent draws.
    Sampling does not change the closeness. Zhu, Dong and Wang 2022, "Optimal accounting of differential privacy via
    characteristic function", Theorem 11.
    """

    name: str
    noise_multiplier: float
    sampling_rate: float
    """Probability of inclusion, greater than 0 and at most 1; at 1 this is a `GaussianRelease`."""
    closeness: Closeness = SAME

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)
        rate = require_positive("sampling_rate", self.sampling_rate)
        if rate > 1.0:
            raise LocalMisuseError(
                f"sampling_rate is {rate}, but it must be at most 1: give the probability that a unit is included."
            )
        require_closeness(self.closeness)


@dataclass(frozen=True)
class LaplaceRelease:
    """A release with Laplace or discrete Laplace noise, of pure epsilon ``1 / noise_multiplier``."""

    name: str
    noise_multiplier: float
    """Scale of the noise over the L1 sensitivity; finite and greater than 0, else `LocalMisuseError`."""

    def __post_init__(self) -> None:
        require_positive("noise_multiplier", self.noise_multiplier)

    @property
    def epsilon(self) -> float:
        """Its pure epsilon."""
        return 1.0 / self.noise_multiplier


@dataclass(frozen=True)
class PureRelease:
    """A pure epsilon-DP release, such as an exponential mechanism's; priced as the worst mechanism of its epsilon."""

    name: str
    epsilon: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class ExactRelease:
    """A release without noise, which no finite epsilon covers."""

    name: str


Event = GaussianRelease | SampledGaussianRelease | LaplaceRelease | PureRelease | ExactRelease
"""One release, as `compose_epsilon` prices it."""


def joint_sampled_release(name: str, parts: Sequence[Event], sampling_rate: float) -> SampledGaussianRelease:
    """Join the arrays that are sent under one draw of the sample to the one release that they are.

    A unit is in all of them or in none. Scaled to unit noise the arrays, at least one, each a `GaussianRelease` as
    without sampling, are one vector, of sensitivity ``hypot(1 / multipliers)``; closeness adds up.
    """
    gaussians = []
    for part in parts:
        if not isinstance(part, GaussianRelease):
            raise LocalMisuseError(
                f"{name!r} is sampled and has a part of type {type(part).__name__!r}, but only Gaussian noise has a "
                "price under sampling: give every part a GaussianRelease."
            )
        gaussians.append(part)
    if not gaussians:
        raise LocalMisuseError(f"{name!r} has 0 parts, but it must have at least 1: give a GaussianRelease.")
    mu = math.hypot(*[1.0 / part.noise_multiplier for part in gaussians])
    return SampledGaussianRelease(name, 1.0 / mu, sampling_rate, joint_closeness(part.closeness for part in gaussians))


def with_joint_pure_release(events: Sequence[Event]) -> tuple[Event, ...]:
    """Put one pure release of their total in place of all pure releases.

    For rounds that follow from an earlier release: how many there are, and how each is priced, may depend on its
    outcome, which itself speaks for one of two neighbours. Their total epsilon is the same for every outcome, so one
    mechanism is no better than any of them, randomized response of that total; several of its parts are not, since an
    outcome after which more is told may be likelier for one neighbour.

    Examples
    --------
    >>> with_joint_pure_release([LaplaceRelease("sums", 4.0), LaplaceRelease("counts", 2.0)])
    (PureRelease(name='sums and counts', epsilon=0.75),)
    """
    pure = [event for event in events if isinstance(event, LaplaceRelease | PureRelease)]
    if not pure:
        return tuple(events)
    others = [event for event in events if not isinstance(event, LaplaceRelease | PureRelease)]
    names = dict.fromkeys(event.name for event in pure)
    return (*others, PureRelease(" and ".join(names), math.fsum(event.epsilon for event in pure)))


def dominating_release(rounds: Sequence[Sequence[Event]]) -> GaussianRelease | SampledGaussianRelease:
    """Return one Gaussian release that costs no less than any of some rounds, whatever else is released.

    The strongest round need not be the costliest: one of weaker signals, whose noise is coarser, may pay more for being
    discrete, and two rounds that cost the same alone can cost more one after the other than either does twice.

    It has the smallest joint multiplier of a round (less 1e-12 of it), and each part of the closeness as large as it is
    in any round. Rounds, none of them empty, are of `GaussianRelease`, or `SampledGaussianRelease` of one rate.
    """
    mu, rates, closeness = 0.0, set(), []
    for events in rounds:
        gaussians = [event for event in events if isinstance(event, GaussianRelease | SampledGaussianRelease)]
        if len(gaussians) < len(events) or not gaussians:
            raise LocalMisuseError("a round has releases that are not Gaussian: price its repetitions one by one.")
        if len(events) > 1 and any(isinstance(event, SampledGaussianRelease) for event in events):
            raise LocalMisuseError("a sampled round has several releases: join those of one draw first.")
        rates |= {event.sampling_rate if isinstance(event, SampledGaussianRelease) else 1.0 for event in gaussians}
        mu = max(mu, math.hypot(*[1.0 / event.noise_multiplier for event in gaussians]))
        closeness.append(joint_closeness([event.closeness for event in gaussians]))
    if len(rates) != 1:
        raise LocalMisuseError(f"rounds have the sampling rates {sorted(rates)}: give rounds of one rate.")
    widest = Closeness(
        max([part.log_ratio_above for part in closeness]),
        max([part.log_ratio_below for part in closeness]),
        max([part.additive for part in closeness]),
    )
    (rate,) = rates
    # A little less noise than the strongest round has, so that the last digits of prices do not change their order.
    multiplier = (1.0 - 2.0**-40) / mu
    if rate == 1.0:
        return GaussianRelease("a repetition", multiplier, widest)
    return SampledGaussianRelease("a repetition", multiplier, rate, widest)
