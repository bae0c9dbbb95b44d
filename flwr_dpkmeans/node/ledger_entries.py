"""Lines of a ledger."""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from flwr_dpkmeans.errors import invalid
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, pair_cost
from flwr_dpkmeans.privacy.provenance import utc_now

FIRST_ROUND = -9
"""Rounds that come before a run's first one, because they steer its plan, are numbered
up to 0.
"""

SHARES_GIVEN = 10**6
"""Added to the attempt number of an entry that says that key shares were given.

It is no release and costs nothing.
"""

RESULT_TAKEN = 2 * SHARES_GIVEN
"""The attempt number of an entry that says that the run's result has come, in its last
round; it costs nothing.
"""

OWNER_SAID = 3 * SHARES_GIVEN
"""The attempt number of an entry that says that the owner looked at the data.

It belongs to no run and costs nothing.
"""

ADDED_LATER = {"mu", "own_delta"}
"""Values that lines of an older version lack."""

_CALL = "correct the call that charges the ledger"


@dataclass(frozen=True)
class LedgerEntry:
    """One release that a client is about to make.

    A value of the wrong type or range is a ConfigurationError.
    """

    run_id: str
    data_id: str
    plan_digest: str
    """Of the run's public plan, in lower-case hexadecimal digits."""
    round_index: int
    attempt: int
    """Within the run, from 0; see `SHARES_GIVEN`, `RESULT_TAKEN`, `OWNER_SAID`."""
    release: str
    epsilon: float
    """What the whole run can cost at its delta, charged with its first release.

    Infinite if it is not private.
    """
    delta: float
    unit: str
    """The run's unit of privacy; costs of different units are never added up."""
    time: str = field(default_factory=utc_now)
    """ISO format in UTC."""
    mu: float | None = None
    """GDP parameter of the whole run; None in lines of an older version."""
    own_delta: float | None = None
    """What comes on top of it, a part of delta; None where mu is."""

    @property
    def cost(self) -> GaussianCost:
        """What the whole run costs besides others."""
        if self.mu is None or self.own_delta is None:
            return pair_cost(self.epsilon, self.delta)
        return GaussianCost(self.mu, self.own_delta)

    @property
    def is_release(self) -> bool:
        """Whether something was released, and not only noted."""
        return self.attempt < SHARES_GIVEN

    @property
    def is_of_run(self) -> bool:
        """Whether a run made it, and not the owner."""
        return self.attempt != OWNER_SAID

    def __post_init__(self) -> None:
        """Read each value as what it must be."""
        for name in ("run_id", "data_id", "release", "unit"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise invalid(
                    name,
                    value,
                    "a string that is not empty",
                    _CALL,
                )
        digits = self.plan_digest
        if not isinstance(digits, str) or not re.fullmatch("[0-9a-f]+", digits):
            raise invalid(
                "plan_digest",
                digits,
                "a string of lower-case hexadecimal digits",
                _CALL,
            )
        for name, rule in _NUMBERS.items():
            value = getattr(self, name)
            if value is None and name in ADDED_LATER:
                continue
            is_number = isinstance(value, rule.kind) and not isinstance(value, bool)
            # Written so that NaN fails as well.
            if not is_number or not rule.least <= value <= rule.most:
                raise invalid(
                    name,
                    value,
                    rule.bound,
                    _CALL,
                )
            object.__setattr__(self, name, rule.read(value))
        if not is_utc(self.time):
            raise invalid(
                "time",
                self.time,
                "an ISO time in UTC",
                _CALL,
            )


def is_utc(time: str) -> bool:
    """Tell whether a text is a time in UTC, in ISO format."""
    try:
        return datetime.fromisoformat(time).utcoffset() == timedelta(0)
    except (TypeError, ValueError):
        return False


class _NumberRule(NamedTuple):
    """What a number of an entry must be, how it is stored, and the words for it."""

    kind: type[object]
    read: type[int] | type[float]
    least: float
    most: float
    bound: str


_AMOUNT = _NumberRule(numbers.Real, float, 0, math.inf, "a number between 0 and inf")
_PROBABILITY = _NumberRule(numbers.Real, float, 0, 1, "a number between 0 and 1")
_NUMBERS = {
    "round_index": _NumberRule(
        numbers.Integral,
        int,
        FIRST_ROUND,
        math.inf,
        f"a whole number of at least {FIRST_ROUND}",
    ),
    "attempt": _NumberRule(
        numbers.Integral,
        int,
        0,
        math.inf,
        "a whole number of at least 0",
    ),
    "epsilon": _AMOUNT,
    "delta": _PROBABILITY,
    "mu": _AMOUNT,
    "own_delta": _PROBABILITY,
}


@dataclass(frozen=True)
class PlanNote:
    """That a plan was held against what other runs have cost.

    The answer told its server something of that.
    """

    time: str
    """ISO format in UTC."""
    data_id: str
    run_id: str
    plan: str = ""
    """Its digest: the plans of a run that released nothing tell as much as plans of as
    many runs.
    """

    @property
    def key(self) -> tuple[str, str]:
        """What is counted once, as nodes that share a ledger look at one plan."""
        return self.run_id, self.plan
