"""Every aggregation that a run may have, in the order in which keys stand for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from flwr_dpkmeans.errors import PlanError, ProtocolError

MOST_SLOTS = 256
"""Aggregations that keys are shared for.

Each costs a client 96 bytes for every neighbour.
"""


class SlotKeys(NamedTuple):
    """A client's two keys of one aggregation, of which one at most is given away."""

    self_seed: bytes
    private_key: bytes


@dataclass(frozen=True)
class Slots:
    """Aggregations that a client has an X25519 pair and a self-mask seed for.

    No two aggregations share keys, so that what opens one says nothing about another.
    """

    first_round: int
    last_round: int
    """Of the plan; where it is not final yet, the last round that it may have."""
    n_attempts: int

    def __post_init__(self) -> None:
        """Refuse a plan without aggregations, or with too many, by a `PlanError`."""
        has_rounds = self.last_round >= self.first_round and self.n_attempts >= 1
        if not has_rounds or self.number > MOST_SLOTS:
            raise PlanError(
                f"the plan may have {self.number} aggregations with all retries, but"
                f" dropout='recover' shares keys for at most {MOST_SLOTS}: lower"
                " max_retries or max_iter, or choose dropout='retry'."
            )

    @cached_property
    def number(self) -> int:
        """How many aggregations there may be."""
        n_rounds = self.last_round - self.first_round + 1
        return n_rounds * self.n_attempts

    def index(
        self,
        round_index: int,
        attempt: int,
    ) -> int:
        """Return where the keys of an aggregation stand among those of all.

        One that is not planned is a `ProtocolError`.
        """
        is_round = self.first_round <= round_index <= self.last_round
        is_attempt = 0 <= attempt < self.n_attempts
        if not (is_round and is_attempt):
            # Against a key that serves two aggregations: a dropout in one would open
            # the other.
            raise ProtocolError(
                f"round {round_index}, attempt {attempt} has no keys in this run, which"
                f" shared them for rounds {self.first_round} to {self.last_round} and"
                f" {self.n_attempts} attempt(s): stop the run."
            )
        return (round_index - self.first_round) * self.n_attempts + attempt
