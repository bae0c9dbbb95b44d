"""Releases as `flwr_dpkmeans.privacy.accounting` prices them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flwr_dpkmeans.errors import invalid, require_positive
from flwr_dpkmeans.privacy.closeness import SAME, Closeness


@dataclass(frozen=True)
class GaussianRelease:
    """A release with Gaussian noise, of all units or of a Poisson sample of them.

    The sample is drawn for this release alone. In it each unit's contribution is
    included independently, and nobody from whom privacy is to be kept sees who was
    included. The price holds for adding or removing one unit. All arrays that depend on
    the same draw are one release (`joint_sampled_release`): priced one by one they
    would count as independent draws. Sampling does not change the closeness. Zhu, Dong
    and Wang 2022, "Optimal accounting of differential privacy via characteristic
    function", Theorem 11.
    """

    name: str
    noise_multiplier: float
    """Standard deviation of the noise over the L2 sensitivity.

    Finite and greater than 0, else `LocalMisuseError`.
    """
    closeness: Closeness = SAME
    """Of the noise that is drawn to the continuous Gaussian that is analysed."""
    sampling_rate: float = 1.0
    """Probability of inclusion, greater than 0 and at most 1."""

    def __post_init__(self) -> None:
        """Refuse multipliers and rates out of range."""
        require_positive("noise_multiplier", self.noise_multiplier)
        if self.sampling_rate == 1.0:
            return
        rate = require_positive("sampling_rate", self.sampling_rate)
        if rate > 1.0:
            mend = "give the probability that a unit is included"
            raise invalid("sampling_rate", self.sampling_rate, "at most 1", mend)


@dataclass(frozen=True)
class PureRelease:
    """A pure epsilon-DP release, priced as the worst mechanism of its epsilon.

    Laplace noise has the pure epsilon ``1 / noise_multiplier``, discrete as it is
    drawn; an exponential mechanism its own. Finite and greater than 0, else
    `LocalMisuseError`.
    """

    name: str
    epsilon: float
    closeness: ClassVar[Closeness] = SAME
    sampling_rate: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class ExactRelease:
    """A release without noise, which no finite epsilon covers."""

    name: str
    closeness: ClassVar[Closeness] = SAME
    sampling_rate: ClassVar[float] = 1.0


Event = GaussianRelease | PureRelease | ExactRelease
"""One release, as `compose_epsilon` prices it."""
