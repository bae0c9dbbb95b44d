"""What every run has, whatever it computes: budget, unit, trust, bounds, cohort.

And how one option is checked.

An option is declared once, as a field with its range and its description (`whole`,
`real`, `choice`, `flag`). All of it is public: it travels to every client inside the
plan, so what a client builds from it is bounded here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from flwr_dpkmeans.errors import ConfigurationError, invalid
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import (
    Options,
    Rule,
    choice,
    flag,
    option,
    real,
    require_bounds,
    whole,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

RECOVER_ABOVE = 100
"""Deployed cohorts larger than this recover sums unless told otherwise.

a repetition would hardly find them all.
"""
_MOST_BESIDE = 65_536
MOST_ROWS_OF_A_PERSON = 2**16
"""Rows that may share the weight of one, in steps of 2^-16."""
_UNUSED_PROFILE_SHARE = 0.05
"""The default of a share that only a schema may change."""
Box = tuple[tuple[float, ...], tuple[float, ...]]
"""Lower and upper bounds, one pair for each feature (or one for all), in the units of
the data.
"""


class EvaluationKind(Enum):
    """Metrics of the result.

    None, one more private round, or exact sums, which only a simulation may release.
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
        """What happens where nobody falls silent.

        A second round trip for each sum would be for nothing.
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
        "what is protected: one row, all rows of one person, or all rows of one client",
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
        "number of rows (at person level of persons) in all, if it is public;"
        " automatic: estimated privately",
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
    rows_per_person: int | None = whole(
        None,
        1,
        1,
        "person level: so many rows of each person count at most; automatic: all",
        most=MOST_ROWS_OF_A_PERSON,
    )
    max_weight: float | None = real(
        None,
        0.0,
        math.inf,
        "20.0",
        "public maximum of a row's weight; automatic: rows have none",
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
        self._require_standard_columns()
        self._require_description()
        self.require_width(self.n_features)
        self._require_shares()
        self._require_small_delta()
        if self.max_weight is not None:
            from flwr_dpkmeans.sums.persons.weighable import require_weighable

            require_weighable(self.max_weight, self.unit, self.n_examples)
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

    def _require_standard_columns(self) -> None:
        """Refuse standardised columns that no schema asks for."""
        if not self.standard_columns:
            return
        lower, _ = self.bounds
        n_columns = sum(number for number, _ in self.standard_columns)
        has_schema = self.schema_digest != "" and self.private_bounds
        if not has_schema or n_columns != len(lower):
            raise ConfigurationError(
                "standard_columns follow from a schema, but there is none like it: give"
                " one."
            )

    def _require_small_delta(self) -> None:
        """Refuse a delta at which a run may publish whole rows."""
        n = self.n_examples
        if not self.unit.by_row or self.delta is None or n is None:
            return
        if self.delta >= 1.0 / n:
            raise ConfigurationError(
                f"delta is {self.delta:g}, but it must be below 1/N = {1.0 / n:g} or a"
                " run may publish whole rows: leave delta unset for 1/(N ln N)."
            )

    @property
    def weighs_rows(self) -> bool:
        """Whether rows count by weights, stated ones or shares of a person's."""
        return self.max_weight is not None or self.unit is PrivacyUnit.PERSON

    @property
    def things(self) -> str:
        """What a sum is taken over, in words."""
        return self.unit.things if self.max_weight is None else "units of weight"

    @property
    def weight_unit(self) -> float:
        """What a row of full weight counts in a result, in the units of weights."""
        return 1.0 if self.max_weight is None else self.max_weight

    @classmethod
    def __get_pydantic_core_schema__(
        cls,
        source: type[Settings],
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        """A plan that weighs no rows is written as before there were weights."""
        from pydantic_core import core_schema

        written = core_schema.wrap_serializer_function_ser_schema(
            _without_unused_weight
        )
        return {**handler(source), "serialization": written}

    def _require_description(self) -> None:
        """Refuse a description of the clusters that no schema asks for."""
        widths = self.profile_widths
        gaps = self.gap_columns
        asks = len(widths) > 0 or len(gaps) > 0
        if asks:
            is_sound = self.schema_digest != "" and 0.0 < self.profile_share < 0.5
        else:
            is_sound = self.profile_share == _UNUSED_PROFILE_SHARE
        if not is_sound or not _are_widths(widths):
            raise ConfigurationError(
                "profile_widths follow from a schema, but there is none like it: give"
                " one."
            )
        # Of numbers and of flags there are as many columns, of categories one each.
        n_profiled = sum(widths[:2]) + len(widths[2:])
        if not _are_indices(gaps, n_profiled) or self.n_beside > _MOST_BESIDE:
            raise ConfigurationError(
                "gap_columns follow from a schema, but there is none like it: give one."
            )

    @property
    def n_beside(self) -> int:
        """How many columns stand beside the points.

        For the round that describes the clusters.
        """
        return sum(self.profile_widths) + len(self.gap_columns)

    def dropout_of(self, n_clients: int) -> Dropout:
        """What happens when clients fall silent, as given or as usual."""
        if self.dropout is None:
            return Dropout.usual(n_clients, masked=self.masking)
        return self.dropout

    def preliminary_share(self, *, counts: bool) -> float:
        """Return the share of the budget that releases before the task's own take.

        With a private count or without.
        """
        share = 0.0
        if counts and self.n_examples is None:
            share += self.count_share
        if self.private_bounds:
            share += self.bounds_share
        return share

    @cached_property
    def closing_share(self) -> float:
        """Share of the budget that releases after the task's own take.

        A description, and a private evaluation.
        """
        share = 0.0
        if self.evaluation is EvaluationKind.PRIVATE:
            share += self.evaluation_share
        if self.n_beside > 0:
            share += self.profile_share
        return share

    def reserved_share(self, *, counts: bool) -> float:
        """Share of the budget that is not the task's own.

        Of releases before it and after it.
        """
        return self.preliminary_share(counts=counts) + self.closing_share

    def _require_shares(self) -> None:
        """Refuse shares that leave the task nothing, and samples without effect.

        Such as samples that hide no client or miss some.
        """
        rate = self.client_sampling_rate
        reserved = self.reserved_share(counts=True)
        if reserved >= 1.0:
            raise ConfigurationError(
                "count_share, bounds_share, profile_share and evaluation_share"
                f" together are {reserved:g}, but they must"
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
        """Refuse tables whose width does not fit bounds or names, or too wide ones.

        `n_features` is None where it is not known yet.
        """
        lower, _ = self.bounds
        n_bounds = len(lower)
        names = self.feature_names
        if n_features is not None:
            rule: Rule = self.__dataclass_fields__["n_features"].metadata["rule"]
            rule.take("n_features", n_features)
            if n_bounds not in (1, n_features):
                raise ConfigurationError(
                    f"there are bounds for {n_bounds} features, but the table has"
                    f" {n_features}: give one pair for all features or one pair for"
                    " each."
                )
        if len(set(names)) != len(names):
            twice, times = Counter(names).most_common(1)[0]
            raise ConfigurationError(
                f"feature_names has {twice!r} {times} times, but columns are matched by"
                " name: rename the others."
            )
        if not names:
            return
        other_widths: set[int] = set()
        if n_features is not None:
            other_widths.add(n_features)
        if n_bounds > 1:
            # One pair alone is for all features.
            other_widths.add(n_bounds)
        other_widths.discard(len(names))
        if other_widths:
            raise ConfigurationError(
                f"feature_names has {len(names)} names, but bounds or n_features say"
                f" {max(other_widths)}: give one name for each feature."
            )


def _without_unused_weight(
    settings: Settings,
    write: Callable[[Settings], dict[str, object]],
) -> dict[str, object]:
    """Settings as they stand in a plan, where weights are named only if there are some.

    So that nodes of earlier versions read all other plans, and refuse these.
    """
    written = write(settings)
    if settings.max_weight is None:
        del written["max_weight"]
    return written


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
