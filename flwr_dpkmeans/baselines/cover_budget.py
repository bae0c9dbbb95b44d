"""How max cover spends its budget: rate of the selections, noise of each release, and the events that describe them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from flwr_dpkmeans.baselines.selection import SELECTION_SLACK, selection_rate
from flwr_dpkmeans.errors import PlanError, require_delta, require_positive
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import calibrate_gaussian
from flwr_dpkmeans.privacy.discreteness import Closeness, discrete_gaussian_closeness, joint_closeness
from flwr_dpkmeans.privacy.events import Event, GaussianRelease, PureRelease
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, Sensitivity, product_at_least

# Part of epsilon that goes to the selections, and parts of the squared GDP parameter of the Gaussian releases, which
# add up to 1. The best of nine splits on mixtures of 64 Gaussians in 100 dimensions with 50,000 points.
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
"""Noise lives on multiples of 2^-24: what its discreteness costs falls with the square of the step, to nothing."""
_SELECTION_THEOREM = (
    "adaptive max cover by the exponential mechanism, any number of selections (after Nguyen, Chaturvedi and Xu 2021, "
    "Lemma 17; proof in flwr_dpkmeans.baselines.selection) [S20, M6]."
)


class CentralLine(NamedTuple):
    """What was released, how far one record can move it (L2 for Gaussian noise), its noise, and why it is private.

    The noise's scale is a standard deviation in the release's own units; for selections, 1 / rate.
    """

    name: str
    sensitivity: float
    noise_scale: float
    theorem: str


@dataclass(frozen=True)
class CoverBudget:
    """The rate of the selections, the noise's standard deviation of each Gaussian release by name, and their price."""

    rate: float
    stds: dict[str, float]
    events: tuple[Event, ...]
    lines: tuple[CentralLine, ...]


def draft_budget(
    epsilon: float, delta: float, *, radius: float, n_clusters: int, n_features: int, n_levels: int
) -> CoverBudget:
    """Split a budget among the releases of max cover, from public numbers alone.

    The selections are (e, s)-DP with e a share of epsilon, by the theorem in ``selection``. Such a mechanism is a
    post-processing of one that with probability s tells everything and else is e-DP (Kairouz, Oh and Viswanath 2015),
    so that it adds at most s to the delta of whatever is composed with an e-DP mechanism. It is described by a
    `PureRelease` of e and by an additive closeness of s, beside its own, on the first Gaussian release: the accountant
    charges (1 + exp(epsilon)) s for it, more than is due.

    No clipped point is longer than `radius`. The events cost at most `epsilon` at `delta`, as `compose_epsilon` prices
    them; a budget that is too small for discrete noise and failing selections is a PlanError.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    pure = _SELECTION_SHARE * epsilon
    n_choices = n_clusters * n_levels
    failure = _SELECTION_DELTA_SHARE * delta * math.exp(-epsilon)
    selections = Closeness(additive=min(1.0, failure + n_choices * SELECTION_SLACK))
    sizes = {
        "cover counts": n_choices,
        "average sums": n_clusters * n_features,
        "average counts": n_clusters,
        "Lloyd sums": n_clusters * n_features,
        "Lloyd counts": n_clusters,
    }
    sensitivities = {name: _sensitivity(name, radius) for name in sizes}

    def stds_at(multiplier: float) -> dict[str, float]:
        # Never below the multiplier that is priced times the bound, not even in the last digit.
        priced = {name: multiplier / math.sqrt(_WEIGHTS[name]) for name in sizes}
        return {name: product_at_least(priced[name], sensitivities[name].bound) for name in sizes}

    def closeness_at(multiplier: float) -> dict[str, Closeness]:
        stds = {name: std * 2.0**NOISE_BITS for name, std in stds_at(multiplier).items()}
        closeness = {name: discrete_gaussian_closeness(stds[name], size) for name, size in sizes.items()}
        return closeness | {"cover counts": joint_closeness([closeness["cover counts"], selections])}

    def events_at(multiplier: float) -> tuple[Event, ...]:
        closeness = closeness_at(multiplier)
        gaussians = (GaussianRelease(name, multiplier / math.sqrt(_WEIGHTS[name]), closeness[name]) for name in sizes)
        return (PureRelease("grid set cover", pure), *gaussians)

    def joint_closeness_at(multiplier: float) -> Closeness:
        joint = joint_closeness(closeness_at(multiplier).values())
        # It is paid for at the total epsilon, which is `pure` above the Gaussian part: hence the factor.
        return replace(joint, additive=min(1.0, math.exp(min(pure, 700.0)) * joint.additive))

    multiplier = calibrate_gaussian(epsilon - pure, delta, joint_closeness_at)
    rate, events = selection_rate(pure, failure), events_at(multiplier)
    total = compose_epsilon(events, delta)
    if total > epsilon:
        raise PlanError(
            f"the releases cost epsilon = {total}, but {epsilon} was asked for: give a slightly larger delta."
        )
    selection = CentralLine("grid set cover", 1.0, 1.0 / rate, _SELECTION_THEOREM)
    stds = stds_at(multiplier)
    gaussians = [
        CentralLine(name, sensitivities[name].bound, std, _theorem(sensitivities[name])) for name, std in stds.items()
    ]
    return CoverBudget(rate, stds, events, (selection, *gaussians))


def _sensitivity(name: str, radius: float) -> Sensitivity:
    """How far one record moves a release."""
    if name.endswith("sums"):
        because = "S22: one row of the sums moves by at most the radius"
        return Sensitivity(Norm.L2, radius, PrivacyUnit.RECORD, because)
    row = "S21" if name == "cover counts" else "S22"
    return Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, f"{row}: one count moves by 1", nonnegative=True)


def _theorem(sensitivity: Sensitivity) -> str:
    """Say why one Gaussian release is private."""
    row, bound = sensitivity.proof
    return f"Gaussian mechanism (Dong, Roth and Su 2022): {bound} [{row}, M1, M3]."
