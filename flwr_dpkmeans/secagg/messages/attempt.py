"""What belongs to one aggregation: its name, and the noised sum that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.ring import Ring

Credentials = Mapping[int, Credential]
"""What clients signed, by node id."""
Boxes = Mapping[int, bytes]
"""What is for one client each, by node id: sealed keys and shares, or tickets."""
NO_ROUND = -(2**31)
"""Index before any round.

Those of real rounds may be negative, as rounds that steer the plan are numbered up to
0.
"""


@dataclass(frozen=True)
class OfAttempt:
    """What belongs to one aggregation: a client answers each at most once."""

    round_index: int
    attempt: int

    @cached_property
    def attempt_id(self) -> AttemptId:
        """Round and attempt."""
        return self.round_index, self.attempt


@dataclass(frozen=True)
class Release(OfAttempt):
    """A noised sum on its way to the clients, which alone read it if it is blinded."""

    values: Ring = field(repr=False)
