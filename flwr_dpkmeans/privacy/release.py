"""From an exact sum to a released one: the only place where noise is added.

It is the only maker of `ReleasedSum` as well.
Describing (`Block`), adding (`draw_noise`) and pricing (`Block.event`) are apart: a
plan has a price before any data. The events that the accountant prices are at the end.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError, invalid, require_positive
from flwr_dpkmeans.privacy.closeness import (
    SAME,
    Closeness,
    discrete_gaussian_closeness,
    discrete_gaussian_sum_log_ratio,
    joint_closeness,
)
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.sentences import report_sentence

_ROW = re.compile(r"([A-Z]\d+): (.*)", re.DOTALL)


class PrivacyUnit(enum.Enum):
    """Whose presence or absence the guarantee hides."""

    RECORD = "record"
    CLIENT = "client"


class Norm(enum.Enum):
    """The norm in which a sensitivity is measured.

    L1 for Laplace noise, L2 for Gaussian noise.
    """

    L1 = "l1"
    L2 = "l2"


@dataclass(frozen=True)
class Sensitivity:
    """The largest change of a query by one unit more or less, and why it is no larger.

    One function makes both, bound and reason, so that no bound travels with another
    one's proof. A `LocalMisuseError` is raised if a value is of another type, or
    `bound` is not finite and greater than 0.

    Examples
    --------
    >>> reason = "S2: one row lies in at most one cluster"
    >>> counts = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, reason, True)
    >>> counts.proof
    ('S2', 'one row lies in at most one cluster')
    """

    norm: Norm
    bound: float
    """The largest norm of the change, in the units of the query."""
    unit: PrivacyUnit
    because: str = ""
    """Why the bound holds, in half a sentence for the report, after the row of the
    proof table that shows it if there is one. No plan is drafted without it.
    """
    nonnegative: bool = False
    """Whether the query is a sum of numbers of at least 0."""

    def __post_init__(self) -> None:
        """Refuse values of other types, and bounds that are none."""
        if not isinstance(self.norm, Norm):
            raise invalid("norm", self.norm, "a Norm", "give Norm.L1 or Norm.L2")
        if not isinstance(self.unit, PrivacyUnit):
            raise invalid(
                "unit",
                self.unit,
                "a PrivacyUnit",
                "give PrivacyUnit.RECORD or PrivacyUnit.CLIENT",
            )
        require_positive("the bound of a sensitivity", self.bound)
        if not isinstance(self.because, str):
            raise invalid(
                "because", self.because, "half a sentence", "say why the bound holds"
            )

    @cached_property
    def proof(self) -> tuple[str, str]:
        """The row of the proof table that shows the bound, and the reason without it.

        The row is "" where `because` names none.
        """
        match = _ROW.fullmatch(self.because)
        if match is None:
            return "", self.because
        return match[1], match[2]


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
    events = []
    for block in blocks:
        if sampling_rate < 1.0 and block.noise is not NoiseShape.GAUSSIAN:
            raise PlanError(
                f"{block.name!r} has {block.noise.value} noise, but amplification by"
                " sampling is accounted for Gaussian noise only: choose"
                " noise_kind='gaussian' or client_sampling_rate=1."
            )
        events.append(block.event(fraction_bits, n_shares))
    if sampling_rate >= 1.0:
        return tuple(events)
    gaussians = [event for event in events if isinstance(event, GaussianRelease)]
    name = " and ".join(block.name for block in blocks)
    return (joint_sampled_release(name, gaussians, sampling_rate),)


def vector_length(blocks: Sequence[Block]) -> int:
    """Return the number of entries of all blocks together."""
    return sum([block.size for block in blocks])


def draw_noise(
    blocks: Sequence[Block],
    source: NoiseSource,
    fraction_bits: int,
    *,
    share: float = 1.0,
) -> NDArray[np.uint64]:
    """Draw fresh noise for one release.

    Parameters
    ----------
    blocks : sequence of Block
        What is released.
    source : NoiseSource
        Where the noise comes from.
    fraction_bits : int
        Fractional bits of the grid.
    share : float
        A factor on the standard deviation where each client adds a share; Laplace noise
        cannot be split.

    Returns
    -------
    array of shape (vector_length(blocks),)
        Elements of the ring, blocks laid end to end.
    """
    parts = []
    for block in blocks:
        # Not below the exact product, in grid steps: that much noise is priced.
        scale = product_at_least(
            block.noise_multiplier, block.sensitivity.bound, share, 2.0**fraction_bits
        )
        if block.noise is NoiseShape.NONE:
            parts.append(np.zeros(block.size, dtype=np.int64))
        elif block.noise is NoiseShape.GAUSSIAN:
            parts.append(source.discrete_gaussian(scale, block.size))
        elif share == 1.0:
            parts.append(source.discrete_laplace(scale, block.size))
        else:
            raise PlanError(
                f"{block.name!r} has Laplace noise, which cannot be split into shares:"
                " use Gaussian noise or the trust model 'oblivious'."
            )
    return np.concatenate(parts).view(np.uint64)


@lru_cache(maxsize=256)
def product_at_least(*factors: float) -> float:
    """Return the smallest float that is not below the exact product."""
    exact = math.prod(map(Fraction, factors))
    # Correctly rounded, so perhaps down.
    product = float(exact)
    if Fraction(product) >= exact:
        return product
    return math.nextafter(product, math.inf)


_MAKER = object()


class ReleasedSum:
    """The only thing that `advance` may look at: a noised sum's arrays.

    `as_released` makes it, not a plain array.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[np.float64]],
        blocks: Sequence[Block],
        maker: object,
    ) -> None:
        if maker is not _MAKER:
            raise LocalMisuseError(
                "a ReleasedSum is made by the mechanism that adds the noise: call"
                " `as_released`."
            )
        self.arrays: Mapping[str, NDArray[np.float64]] = MappingProxyType(dict(arrays))
        self.blocks = tuple(blocks)
        """What the plan says of them, their noise above all."""

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.arrays[name]

    def __reduce__(self) -> Any:
        raise LocalMisuseError(
            "a ReleasedSum cannot be pickled: send the noised vector instead."
        )


def as_released(
    values: NDArray[np.uint64], blocks: Sequence[Block], fraction_bits: int
) -> ReleasedSum:
    """Declare a readable vector noised as the plan says, and cut it into its arrays.

    Parameters
    ----------
    values : array of shape (vector_length(blocks),)
        Elements of the ring.
    blocks : sequence of Block
        What the plan says of their noise.
    fraction_bits : int
        Fractional bits of the grid.

    Raises
    ------
    PlanError
        If the vector's length is not the plan's.
    """
    length = vector_length(blocks)
    if values.shape != (length,):
        raise PlanError(
            f"a release has {values.size} entries, but the plan has {length}."
        )
    numbers = values.view(np.int64).astype(np.float64) / 2.0**fraction_bits
    arrays = {}
    start = 0
    for block in blocks:
        end = start + block.size
        arrays[block.name] = numbers[start:end].reshape(block.shape)
        start = end
    return ReleasedSum(arrays, blocks, _MAKER)


PROOF_PAGE = "flwr_dpkmeans/docs/reference/proofs.md"
_PROOFS = {
    NoiseShape.GAUSSIAN: ("gaussian_mechanism", ["M1", "M3"]),
    NoiseShape.LAPLACE: ("laplace_mechanism", ["M2"]),
}


def theorem(
    block: Block, *, shared_noise: bool = False, sampling_rate: float = 1.0
) -> str:
    """Say why a block's sensitivity holds and what prices its noise.

    With the rows of the proof table.

    Parameters
    ----------
    block : Block
        What is released.
    shared_noise : bool
        Whether clients add the noise in shares.
    sampling_rate : float
        Probability with which a client takes part.
    """
    if block.noise is NoiseShape.NONE:
        return report_sentence("no_mechanism")
    bound_row, bound = block.sensitivity.proof
    mechanism, mechanism_rows = _PROOFS[block.noise]
    rows = [bound_row] if bound_row else []
    rows += mechanism_rows
    if shared_noise:
        rows.append("M4")
    sample = ""
    if sampling_rate < 1.0:
        rows.append("M5")
        sample = report_sentence("over_a_sample", rate=sampling_rate)
    return f"{bound}; {report_sentence(mechanism)}{sample} [{', '.join(rows)}]."


# -- events, as `flwr_dpkmeans.privacy.accounting` prices them -------------------------


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
    mu = 0.0
    rates: set[float] = set()
    closeness: list[Closeness] = []
    for events in rounds:
        gaussians = [event for event in events if isinstance(event, GaussianRelease)]
        if len(gaussians) < len(events) or not gaussians:
            raise LocalMisuseError(
                "a round has releases that are not Gaussian: price its repetitions one"
                " by one."
            )
        if len(events) > 1 and any(event.sampling_rate < 1.0 for event in gaussians):
            raise LocalMisuseError(
                "a sampled round has several releases: join those of one draw first."
            )
        rates |= {event.sampling_rate for event in gaussians}
        inverses = [1.0 / event.noise_multiplier for event in gaussians]
        mu = max(mu, math.hypot(*inverses))
        closeness.append(joint_closeness([event.closeness for event in gaussians]))
    if len(rates) != 1:
        raise LocalMisuseError(
            f"rounds have the sampling rates {sorted(rates)}: give rounds of one rate."
        )
    widest = Closeness(
        log_ratio_above=max([part.log_ratio_above for part in closeness]),
        log_ratio_below=max([part.log_ratio_below for part in closeness]),
        additive=max([part.additive for part in closeness]),
    )
    (rate,) = rates
    # A little less noise than the strongest round has, so that the last digits of
    # prices do not change their order.
    return GaussianRelease("a repetition", (1.0 - 2.0**-40) / mu, widest, rate)
