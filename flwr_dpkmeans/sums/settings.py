"""What every run has, whatever it computes: budget, unit, trust, bounds, cohort.

And how one option is checked.

An option is declared once, as a field with its range and its description (`whole`,
`real`, `choice`, `flag`). All of it is public: it travels to every client inside the
plan, so what a client builds from it is bounded here.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from flwr_dpkmeans.errors import (
    ConfigurationError,
    invalid,
)
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import (
    Options,
    choice,
    flag,
    option,
    real,
    require_bounds,
    whole,
)

RECOVER_ABOVE = 100
"""Deployed cohorts larger than this recover sums unless told otherwise.

a repetition would hardly find them all.
"""
_MOST_BESIDE = 65_536
Box = tuple[tuple[float, ...], tuple[float, ...]]
"""Lower and upper bounds, one pair for each feature (or one for all), in the units of
the data.
"""


class EvaluationKind(Enum):
    """Metrics of the result: none, one more private round, or exact sums, which only a
    simulation may release.
    """

    NONE = "none"
    PRIVATE = "private"
    EXACT = "exact"


class Dropout(Enum):
    """What happens when clients fall silent.

    The sum is asked for again without them, or recovered from key shares.
    """

    RETRY = "retry"
    RECOVER = "recover"

    @classmethod
    def usual(
        cls,
        n_clients: int,
        *,
        masked: bool,
    ) -> Dropout:
        """Where nobody gives it: by the size of the cohort; recovery takes masks."""
        return cls.RECOVER if masked and n_clients > RECOVER_ABOVE else cls.RETRY

    @classmethod
    def undisturbed(cls) -> Dropout:
        """Where nobody falls silent, so that a second round trip for each sum would be
        for nothing.
        """
        return cls.RETRY


def _require_name(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise invalid(
            name,
            value,
            "a name",
            "give a string",
        )


@dataclass(frozen=True)
class Settings(Options):
    """What every run has, whatever it computes.

    Values that are wrong or do not fit are a `ConfigurationError`.

    Examples
    --------
    >>> Settings(bounds=((-1.0,), (1.0,))).unit.value
    'record'
    """

    bounds: Box
    epsilon: float = real(
        1.0,
        0.0,
        math.inf,
        "1.0",
        "cost of a run without dropouts",
    )
    delta: float | None = real(
        None,
        -5e-324,
        1.0,
        "1e-6",
        "of the guarantee; 0 where all noise is Laplace; automatic: 1/(N ln N) if N is"
        " declared, else 1e-6, which a private count may lower",
    )
    unit: PrivacyUnit = choice(
        PrivacyUnit,
        PrivacyUnit.RECORD,
        "what is protected: one row, or all rows of one client",
    )
    trust: str = option(
        "oblivious",
        _require_name,
        "who sees what: oblivious, central, distributed, or another registered model",
    )
    noise: NoiseKind = choice(
        NoiseKind,
        NoiseKind.SECURE,
        "how noise is drawn; opendp is exact too, but slow; seeded protects nobody",
    )
    n_examples: int | None = whole(
        None,
        1,
        1000,
        "number of rows in all, if it is public; automatic: estimated privately",
        most=10**15,
    )
    n_features: int | None = whole(
        None,
        1,
        2,
        "width of the table; automatic: asked from the clients (it is schema, not"
        " data)",
        most=65_536,
    )
    random_state: int | None = whole(
        None,
        0,
        7,
        "seed of the public randomness (and of the noise, if that is seeded; it does"
        " not fix secure noise); automatic: drawn for the run",
    )
    n_clients: int | None = whole(
        None,
        2,
        10,
        "cohort to wait for; automatic: whoever is there",
    )
    min_clients: int = whole(
        2,
        2,
        2,
        "smallest cohort whose sum is released",
    )
    max_silent: int | None = whole(
        None,
        0,
        1,
        "clients that may collude or fall silent; automatic: with dropout 'retry' 0 up"
        " to 32 clients, above that a tenth of them, at most 20; with 'recover' an"
        " eighth of them, at least 1",
    )
    max_retries: int = whole(
        1,
        0,
        1,
        "attempts that may follow a dropout; what they can cost is charged beforehand",
        most=1_000,
    )
    max_epsilon: float | None = real(
        None,
        0.0,
        math.inf,
        "2.0",
        "refuse a plan whose worst case (all retries used) costs more",
    )
    count_share: float = real(
        0.02,
        0.0,
        0.5,
        "0.02",
        "share of the budget that a private count takes",
    )
    feature_names: tuple[str, ...] = ()
    schema_digest: str = ""
    standard_columns: tuple[tuple[int, float], ...] = ()
    profile_widths: tuple[int, ...] = ()
    profile_share: float = 0.05
    gap_columns: tuple[int, ...] = ()
    allow_unnamed: bool = flag(
        False, "let tables without column names take part, matched by position"
    )
    examples_per_client: int = whole(
        50,
        1,
        50,
        "declared number of rows of a client, for the clip bounds of client-level"
        " privacy; a private count counts no more of each",
        most=10_000_000,
    )
    client_sampling_rate: float = real(
        1.0,
        0.0,
        math.inf,
        "0.1",
        "client level: each client takes part in a round with this probability",
    )
    masking: bool = flag(
        True, "False turns masks off, in simulation without Flower only"
    )
    private_bounds: bool = flag(
        False,
        "let private histograms find each column's range; bounds are the public domain",
    )
    bounds_share: float = real(
        0.1,
        0.0,
        0.5,
        "0.1",
        "share of the budget that these histograms take together",
    )
    evaluation: EvaluationKind = choice(
        EvaluationKind,
        EvaluationKind.NONE,
        "whether one more round measures the result",
    )
    evaluation_share: float = real(
        0.05,
        0.0,
        0.5,
        "0.05",
        "share of the budget that a private evaluation takes",
    )
    n_classes: int = whole(
        0,
        0,
        3,
        "public number of label classes that an evaluation counts by; 0: none",
        most=10**5,
    )
    evaluation_radius: float | None = real(
        None,
        1e-6,
        1e6,
        "0.5",
        "distance, in scaled units, at which an evaluation clips rows",
    )
    dropout: Dropout | None = choice(
        Dropout,
        None,
        "what happens when clients fall silent; automatic: recover in deployments of"
        " more than 100 clients, else retry",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self.bounds)
        n_stated = (
            sum(n_columns for n_columns, _ in self.standard_columns)
            if self.schema_digest and self.private_bounds
            else -1
        )
        if self.standard_columns and n_stated != len(self.bounds[0]):
            raise ConfigurationError(
                "standard_columns follow from a schema, but there is none like it: give"
                " one."
            )
        self._require_description()
        self.require_width(self.n_features)
        self._require_shares()
        n, by_record = self.n_examples, self.unit is PrivacyUnit.RECORD
        if (
            by_record
            and self.delta is not None
            and n is not None
            and self.delta >= 1.0 / n
        ):
            raise ConfigurationError(
                f"delta is {self.delta:g}, but it must be below 1/N = {1.0 / n:g} or a"
                " run may publish whole rows: leave delta unset for 1/(N ln N)."
            )
        if self.dropout not in (None, Dropout.undisturbed()) and not self.masking:
            raise ConfigurationError(
                "masking is False, but dropout is 'recover', which always masks: leave"
                " masking on, or use 'retry'."
            )
        if self.n_clients is not None and self.n_clients < self.min_clients:
            raise ConfigurationError(
                f"n_clients is {self.n_clients}, but min_clients asks for at least"
                f" {self.min_clients}: start more clients or lower min_clients."
            )

    def _require_description(self) -> None:
        """Refuse a description of the clusters that no schema asks for."""
        widths, gaps, share = self.profile_widths, self.gap_columns, self.profile_share
        asks = bool(widths or gaps)
        shared = 0.0 < share < 0.5 if asks else share == 0.05
        if not shared or not _are_widths(widths) or (asks and not self.schema_digest):
            raise ConfigurationError(
                "profile_widths follow from a schema, but there is none like it: give"
                " one."
            )
        if (
            not _are_indices(gaps, len(widths[2:]) + sum(widths[:2]))
            or self.n_beside > _MOST_BESIDE
        ):
            raise ConfigurationError(
                "gap_columns follow from a schema, but there is none like it: give one."
            )

    @property
    def n_beside(self) -> int:
        """How many columns stand beside the points, for the round that describes the
        clusters.
        """
        return sum(self.profile_widths) + len(self.gap_columns)

    def dropout_of(self, n_clients: int) -> Dropout:
        """What happens when clients fall silent, as given or as usual."""
        return self.dropout or Dropout.usual(n_clients, masked=self.masking)

    def preliminary_share(self, *, counts: bool) -> float:
        """Share of the budget that the releases before the task's own take, with a
        private count or without.
        """
        count = self.count_share if counts and self.n_examples is None else 0.0
        return count + (self.bounds_share if self.private_bounds else 0.0)

    @cached_property
    def closing_share(self) -> float:
        """Share of the budget that the releases after the task's own take: a
        description, and a private evaluation.
        """
        evaluated = (
            self.evaluation_share if self.evaluation is EvaluationKind.PRIVATE else 0.0
        )
        return evaluated + (self.profile_share if self.n_beside else 0.0)

    def reserved_share(self, *, counts: bool) -> float:
        """Share of the budget that is not the task's own.

        Of releases before it and after it.
        """
        return self.preliminary_share(counts=counts) + self.closing_share

    def _require_shares(self) -> None:
        """Refuse shares that leave the task nothing, and samples that are none, hide no
        client or miss some.
        """
        rate = self.client_sampling_rate
        if self.reserved_share(counts=True) >= 1.0:
            raise ConfigurationError(
                "count_share, bounds_share, profile_share and evaluation_share"
                f" together are {self.reserved_share(counts=True):g}, but they must"
                " leave the algorithm a part of the budget: give smaller ones."
            )
        if self.evaluation is EvaluationKind.EXACT and rate < 1.0:
            raise ConfigurationError(
                f"evaluation is 'exact', but client_sampling_rate is {rate:g}, so that"
                " clients sit out: choose evaluation='private' or leave the rate at 1."
            )
        if rate > 1.0:
            raise ConfigurationError(
                f"client_sampling_rate is {rate:g}, but it is a probability: give a"
                " number above 0 and at most 1."
            )
        if rate < 1.0 and self.unit is not PrivacyUnit.CLIENT:
            raise ConfigurationError(
                f"client_sampling_rate is {rate:g}, but sampling clients amplifies"
                " client-level privacy only: choose unit='client' or leave the rate"
                " at 1."
            )

    def require_width(self, n_features: int | None) -> None:
        """Refuse tables of `n_features` columns (None: not known yet) that bounds or
        names do not fit, or too wide.
        """
        n_bounds, names = len(self.bounds[0]), self.feature_names
        if n_features is not None:
            self.__dataclass_fields__["n_features"].metadata["rule"].take(
                "n_features", n_features
            )
            if n_bounds not in (1, n_features):
                raise ConfigurationError(
                    f"there are bounds for {n_bounds} features, but the table has"
                    f" {n_features}: give one pair for all features or one pair for"
                    " each."
                )
        if len(set(names)) != len(names):
            ((twice, times),) = Counter(names).most_common(1)
            raise ConfigurationError(
                f"feature_names has {twice!r} {times} times, but columns are matched by"
                " name: rename the others."
            )
        widths = {
            len(names),
            n_features or len(names),
            n_bounds if n_bounds > 1 else len(names),
        }
        if names and len(widths) > 1:
            raise ConfigurationError(
                f"feature_names has {len(names)} names, but bounds or n_features say"
                f" {max(widths - {len(names)})}: give one name for each feature."
            )


def _are_widths(widths: tuple[int, ...]) -> bool:
    """Whether these are numbers of numbers, flags, and values of each category.

    Or nothing is profiled.
    """
    if not widths:
        return True
    if len(widths) < 2 or not all(isinstance(width, int) for width in widths):
        return False
    n_values = widths[2:]
    if min(widths) < 0 or 0 in n_values:
        return False
    return 0 < sum(widths) <= _MOST_BESIDE


def _are_indices(gaps: tuple[int, ...], n_profiled: int) -> bool:
    """Whether these are indices of profiled columns, each there once, or -1."""
    if not all(isinstance(index, int) for index in gaps):
        return False
    if not all(-1 <= index < n_profiled for index in gaps):
        return False
    profiled = [index for index in gaps if index >= 0]
    return len(set(profiled)) == len(profiled)
