"""One array of a private sum with its noise, which has a price before any data."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.closeness import (
    discrete_gaussian_closeness,
    discrete_gaussian_sum_log_ratio,
)
from flwr_dpkmeans.privacy.release.events import (
    Event,
    ExactRelease,
    GaussianRelease,
    PureRelease,
)
from flwr_dpkmeans.privacy.release.joint_events import joint_sampled_release
from flwr_dpkmeans.privacy.release.sensitivity import Norm, Sensitivity


class NoiseShape(enum.Enum):
    """Distribution of the noise on one released array."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    NONE = "none"


_NORM_OF = {NoiseShape.GAUSSIAN: Norm.L2, NoiseShape.LAPLACE: Norm.L1}


@dataclass(frozen=True)
class Block:
    """One array of a private sum, and the noise that hides how far one unit moves it.

    A `PlanError` is raised if norm and noise do not fit together or the multiplier is
    not positive.
    """

    name: str
    shape: tuple[int, ...]
    sensitivity: Sensitivity
    """Norm, bound and unit; the statistic enforces the bound by clipping."""
    noise: NoiseShape
    """Gaussian goes with L2, Laplace with L1."""
    noise_multiplier: float
    """Standard deviation (Gaussian) or scale (Laplace) over the sensitivity bound.

    0 without noise.
    """
    entry_bound: float
    """Largest magnitude that one row adds to one entry, for the proof that sums cannot
    wrap.
    """

    def __post_init__(self) -> None:
        """Refuse noise that does not fit the sensitivity, or that is none."""
        if self.noise is NoiseShape.NONE:
            return
        if self.sensitivity.norm is not _NORM_OF[self.noise]:
            raise PlanError(
                f"{self.name!r} has {self.noise.value} noise, but its sensitivity is in"
                " another norm."
            )
        if not 0.0 < self.noise_multiplier < math.inf:
            raise PlanError(
                f"{self.name!r} has noise multiplier {self.noise_multiplier!r}, but it"
                " must be positive and finite."
            )

    @cached_property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @cached_property
    def noise_scale(self) -> float:
        """Standard deviation or Laplace scale, in the array's units."""
        return self.noise_multiplier * self.sensitivity.bound

    @cached_property
    def standard_deviation(self) -> float:
        """Of the planned noise on one entry, in the array's units."""
        if self.noise is NoiseShape.LAPLACE:
            return self.noise_scale * math.sqrt(2.0)
        return self.noise_scale

    def event(self, fraction_bits: int, n_shares: int = 1) -> Event:
        """Describe the release for the accountant.

        With how close its discrete noise is to a continuous Gaussian.

        Parameters
        ----------
        fraction_bits : int
            The noise lives on multiples of ``2**-fraction_bits``.
        n_shares : int
            Honest shares that it is the sum of.
        """
        if self.noise is NoiseShape.NONE:
            return ExactRelease(self.name)
        if self.noise is NoiseShape.LAPLACE:
            return PureRelease(self.name, 1.0 / self.noise_multiplier)
        std = self.noise_scale * 2.0**fraction_bits
        closeness = discrete_gaussian_closeness(std, self.size)
        if n_shares > 1:
            std_share = std / math.sqrt(n_shares)
            sum_log_ratio = discrete_gaussian_sum_log_ratio(
                std_share, n_shares, self.size
            )
            closeness = closeness.widened(sum_log_ratio)
        return GaussianRelease(self.name, self.noise_multiplier, closeness)


def round_events(
    blocks: Sequence[Block],
    fraction_bits: int,
    n_shares: int = 1,
    sampling_rate: float = 1.0,
) -> tuple[Event, ...]:
    """Describe one aggregation's releases for the accountant; see `Block.event`.

    Each unit takes part with a probability of `sampling_rate`. Below 1 one coin decides
    for all blocks together, so they are described as one Gaussian release of the joint
    multiplier; other noise is a `PlanError` there.
    """
    events = [block.event(fraction_bits, n_shares) for block in blocks]
    if sampling_rate >= 1.0:
        return tuple(events)
    gaussians = []
    for block, event in zip(blocks, events, strict=True):
        if not isinstance(event, GaussianRelease):
            raise PlanError(
                f"{block.name!r} has {block.noise.value} noise, but amplification by"
                " sampling is accounted for Gaussian noise only: choose"
                " noise_kind='gaussian' or client_sampling_rate=1."
            )
        gaussians.append(event)
    name = " and ".join(block.name for block in blocks)
    return (joint_sampled_release(name, gaussians, sampling_rate),)


def vector_length(blocks: Sequence[Block]) -> int:
    """Return the number of entries of all blocks together."""
    return sum([block.size for block in blocks])
