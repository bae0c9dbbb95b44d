"""What max cover's releases cost, and how a budget is split among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flwr_dpkmeans.baselines.selection import (
    SELECTION_SLACK,
    selection_rate,
)
from flwr_dpkmeans.errors import (
    require_delta,
    require_positive,
)
from flwr_dpkmeans.privacy.calibration import calibrate_scale, gaussian_noise_multiplier
from flwr_dpkmeans.privacy.closeness import (
    Closeness,
    discrete_gaussian_closeness,
    joint_closeness,
)
from flwr_dpkmeans.privacy.release import (
    Event,
    GaussianRelease,
    Norm,
    PrivacyUnit,
    PureRelease,
    Sensitivity,
    product_at_least,
)

# Part of epsilon that goes to the selections, and parts of the squared GDP parameter of
# the Gaussian releases, which add up to 1. The best of nine splits on mixtures of 64
# Gaussians in 100 dimensions with 50,000 points.
_SELECTION_SHARE = 0.35
_WEIGHTS = {
    "cover counts": 0.05,
    "average sums": 0.25,
    "average counts": 0.025,
    "Lloyd sums": 0.65,
    "Lloyd counts": 0.025,
}
_SELECTION_DELTA_SHARE = 0.1
NOISE_BITS = 24
"""Noise lives on multiples of 2^-24: what its discreteness costs falls with the square
of the step, to nothing.
"""
_SELECTION_THEOREM = (
    "adaptive max cover by the exponential mechanism, any number of selections (after"
    " Nguyen, Chaturvedi and Xu 2021, Lemma 17; proof in"
    " flwr_dpkmeans.baselines.selection) [S20, M6]."
)


class CentralLine(NamedTuple):
    """What was released, how far one record can move it (L2 for Gaussian noise).

    Its noise, and why it is private.

    The noise's scale is a standard deviation in the release's own units; for
    selections, 1 / rate.
    """

    event: Event
    sensitivity: float
    noise_scale: float
    theorem: str
    noise: str = "gaussian"

    @property
    def name(self) -> str:
        """Of the release."""
        return self.event.name


@dataclass(frozen=True)
class CoverBudget:
    """The rate of the selections.

    The noise's standard deviation of each Gaussian release by name, and their price.
    """

    rate: float
    stds: dict[str, float]
    lines: tuple[CentralLine, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        """What is accounted for."""
        return tuple(line.event for line in self.lines)


def draft_budget(
    epsilon: float,
    delta: float,
    *,
    radius: float,
    n_clusters: int,
    n_features: int,
    n_levels: int,
) -> CoverBudget:
    """Split a budget among the releases of max cover, from public numbers alone.

    The selections are (e, s)-DP with e a share of epsilon, by the theorem in
    ``selection``. Such a mechanism is a post-processing of one that with probability s
    tells everything and else is e-DP (Kairouz, Oh and Viswanath 2015), so that it adds
    at most s to the delta of whatever is composed with an e-DP mechanism. It is
    described by a `PureRelease` of e and by an additive closeness of s, beside its own,
    on the first Gaussian release: the accountant charges (1 + exp(epsilon)) s for it,
    more than is due.

    No clipped point is longer than `radius`. The events cost at most `epsilon` at
    `delta`, as `compose_epsilon` prices them; a budget that is too small for discrete
    noise and failing selections is a PlanError.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    n_choices = n_clusters * n_levels
    failure = _SELECTION_DELTA_SHARE * delta * math.exp(-epsilon)
    selections = Closeness(additive=min(1.0, failure + n_choices * SELECTION_SLACK))
    sizes = {"cover counts": n_choices} | average_sizes(n_clusters, n_features)
    (selected,), noisy = price_releases(
        epsilon,
        delta,
        pure={"grid set cover": _SELECTION_SHARE},
        weights=_WEIGHTS,
        sizes=sizes,
        slack=selections,
    )
    rate = selection_rate(selected.epsilon, failure)
    lines = (
        CentralLine(
            selected,
            1.0,
            1.0 / rate,
            _SELECTION_THEOREM,
            "exponential mechanism",
        ),
        *gaussian_lines(noisy, radius),
    )
    return CoverBudget(rate, {line.name: line.noise_scale for line in lines[1:]}, lines)


def average_sizes(n_clusters: int, n_features: int) -> dict[str, int]:
    """How many numbers each release of `average_twice` has."""
    sums = n_clusters * n_features
    return {
        "average sums": sums,
        "average counts": n_clusters,
        "Lloyd sums": sums,
        "Lloyd counts": n_clusters,
    }


def price_releases(
    epsilon: float,
    delta: float,
    *,
    pure: Mapping[str, float],
    weights: Mapping[str, float],
    sizes: Mapping[str, int],
    slack: Closeness,
) -> tuple[tuple[PureRelease, ...], tuple[GaussianRelease, ...]]:
    """Pure releases and Gaussian ones that all together cost epsilon.

    Pure ones have these shares of epsilon, Gaussian ones these parts of what is left.

    `slack`, what the pure ones' sampling may fail by, is charged with the first
    Gaussian one.
    """
    # What basic composition would leave to each; a common scale below 1 then uses what
    # exact composition saves.
    entire = gaussian_noise_multiplier(epsilon - epsilon * sum(pure.values()), delta)
    first = next(iter(weights))

    def priced_at(
        scale: float,
    ) -> tuple[tuple[PureRelease, ...], tuple[GaussianRelease, ...]]:
        multipliers = {
            name: scale * entire / math.sqrt(weight) for name, weight in weights.items()
        }
        # Sensitivities are at least 1, so that the noise is no finer than this.
        closeness = {
            name: discrete_gaussian_closeness(
                max(1.0, multiplier * 2.0**NOISE_BITS), sizes[name]
            )
            for name, multiplier in multipliers.items()
        }
        closeness[first] = joint_closeness([closeness[first], slack])
        gaussians = tuple(
            GaussianRelease(name, multiplier, closeness[name])
            for name, multiplier in multipliers.items()
        )
        pure_releases = tuple(
            PureRelease(name, share * epsilon / scale) for name, share in pure.items()
        )
        return pure_releases, gaussians

    def events_at(scale: float) -> tuple[Event, ...]:
        released, gaussians = priced_at(scale)
        return (*released, *gaussians)

    return priced_at(calibrate_scale(events_at, epsilon, delta))


def gaussian_lines(
    events: Sequence[GaussianRelease], radius: float
) -> tuple[CentralLine, ...]:
    """Report lines of Gaussian releases, of points no longer than the radius."""
    sensitivities = [_sensitivity(event.name, radius) for event in events]
    return tuple(
        # Never below the multiplier that is priced times the bound, not even in the
        # last digit.
        CentralLine(
            event,
            moved.bound,
            product_at_least(event.noise_multiplier, moved.bound),
            _theorem(moved),
        )
        for event, moved in zip(events, sensitivities, strict=True)
    )


def _sensitivity(name: str, radius: float) -> Sensitivity:
    """How far one record moves a release."""
    if name.endswith("sums"):
        because = "S22: one row of the sums moves by at most the radius"
        return Sensitivity(
            Norm.L2,
            radius,
            PrivacyUnit.RECORD,
            because,
        )
    row = "S21" if name == "cover counts" else "S22"
    return Sensitivity(
        Norm.L2,
        1.0,
        PrivacyUnit.RECORD,
        f"{row}: one count moves by 1",
        nonnegative=True,
    )


def _theorem(sensitivity: Sensitivity) -> str:
    """Say why one Gaussian release is private."""
    row, bound = sensitivity.proof
    return f"Gaussian mechanism (Dong, Roth and Su 2022): {bound} [{row}, M1, M3]."
