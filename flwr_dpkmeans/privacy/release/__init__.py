"""From an exact sum to a released one: the only place where noise is added.

It is the only maker of `ReleasedSum` as well.
Describing (`Block`), adding (`draw_noise`) and pricing (`Block.event`) are apart: a
plan has a price before any data.
"""

from __future__ import annotations

from flwr_dpkmeans.privacy.release.block import (
    Block,
    NoiseShape,
    round_events,
    vector_length,
)
from flwr_dpkmeans.privacy.release.events import (
    Event,
    ExactRelease,
    GaussianRelease,
    PureRelease,
)
from flwr_dpkmeans.privacy.release.joint_events import (
    dominating_release,
    joint_sampled_release,
    with_joint_pure_release,
)
from flwr_dpkmeans.privacy.release.proofs import PROOF_PAGE, theorem
from flwr_dpkmeans.privacy.release.released_sum import (
    ReleasedSum,
    as_released,
    draw_noise,
    product_at_least,
)
from flwr_dpkmeans.privacy.release.sensitivity import Norm, PrivacyUnit, Sensitivity

__all__ = [
    "PROOF_PAGE",
    "Block",
    "Event",
    "ExactRelease",
    "GaussianRelease",
    "NoiseShape",
    "Norm",
    "PrivacyUnit",
    "PureRelease",
    "ReleasedSum",
    "Sensitivity",
    "as_released",
    "dominating_release",
    "draw_noise",
    "joint_sampled_release",
    "product_at_least",
    "round_events",
    "theorem",
    "vector_length",
    "with_joint_pure_release",
]
