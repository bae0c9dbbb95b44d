"""Keys of a run: one X25519 pair and one self-mask seed for every (round, attempt)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, derive_key

MOST_SLOTS = 256
"""Aggregations that keys are shared for; each costs a client 96 bytes for every neighbour."""


@dataclass(frozen=True)
class Slots:
    """Every aggregation that a run may have.

    Raises `PlanError` if there are more than `MOST_SLOTS`.

    Examples
    --------
    >>> Slots(0, 2, 2).place(1, 1)
    3
    """

    first_round: int
    last_round: int
    """Of the plan; where it is not final yet, the last round that it may have."""
    n_attempts: int
    """Attempts of each."""

    def __post_init__(self) -> None:
        if not (self.last_round >= self.first_round and self.n_attempts >= 1 and self.number <= MOST_SLOTS):
            raise PlanError(
                f"the plan may have {self.number} aggregations with all retries, but dropout='recover' shares keys for "
                f"at most {MOST_SLOTS}: lower max_retries or max_iter, or choose dropout='retry'."
            )

    @cached_property
    def number(self) -> int:
        """How many aggregations."""
        return (self.last_round - self.first_round + 1) * self.n_attempts

    def place(self, round_index: int, attempt: int) -> int:
        """Place of an aggregation in the order of keys; one that is not planned is a `ProtocolError`."""
        if not (self.first_round <= round_index <= self.last_round and 0 <= attempt < self.n_attempts):
            raise ProtocolError(
                f"round {round_index}, attempt {attempt} has no keys in this run, which shared them for rounds "
                f"{self.first_round} to {self.last_round} and {self.n_attempts} attempt(s): stop the run."
            )
        return (round_index - self.first_round) * self.n_attempts + attempt

    def seeds(self, master: bytes, purpose: str, run_id: int, node_id: int) -> list[bytes]:
        """One key for each aggregation; those that become known say nothing about the master or each other."""
        return [self.seed(master, purpose, run_id, node_id, place) for place in range(self.number)]

    @staticmethod
    def seed(master: bytes, purpose: str, run_id: int, node_id: int, place: int) -> bytes:
        """The key of one of them."""
        return derive_key(master, purpose, run_id, node_id, place)


def piece(blob: bytes, place: int) -> bytes:
    """The 32 bytes at one place."""
    return blob[place * KEY_BYTES : (place + 1) * KEY_BYTES]
