"""What one client remembers of a run between two messages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.sums.aggregation import PARTIES
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.wire import load_plan
from flwr_dpkmeans.sums.wire.stored_fields import (
    StoredFields,
    pack_fields,
    unpack_fields,
)


@dataclass(frozen=True)
class Memory:
    """One client's whole state in one run."""

    party: Party
    """Keys, masks and rosters of the aggregation."""
    plan_blob: bytes = field(repr=False)
    """The plan in force, as received."""
    plan: Plan = field(repr=False)
    agreed_digest: bytes
    """Digest of the plan that was agreed on in the key phase.

    Names the run in the ledger.
    """
    clusters: State | None
    """None while the plan is preliminary, and until the first state came where the
    server alone makes it.
    """
    n_features: int
    attempts: tuple[AttemptId, ...] = ()
    """(round, attempt) of every vector that was answered, in order."""
    discoveries: Discoveries = field(default_factory=Discoveries)
    n_recognised: int = 0
    """How many peers the policy's pinned identities recognised in the run's first
    roster; 0 where none are pinned.
    """
    identities: tuple[tuple[int, bytes], ...] = ()
    """Where sums are recovered: the neighbours' pinned identities, which sign what
    survivors they heard of.
    """
    started: str = ""
    cohort: tuple[str, ...] = ()
    """For the result's provenance: when the plan came, and who was in the first roster.
    """
    columns: str = ""
    """Digest of the own table's column names in the agreed order; empty if it has none.
    """

    def digest(self) -> bytes:
        """Hash what the tag of a reply covers.

        The state; before there is one, what was discovered; empty before that.
        """
        if self.clusters is not None:
            return self.clusters.digest
        if self.discoveries == Discoveries():
            return b""
        return self.discoveries.digest()

    def pack(self) -> StoredFields:
        """Write it as text and blobs, for one record that is replaced as a whole."""
        party = pack_fields(self.party)
        # The plan stands under its own name as it came, and is parsed again.
        others = pack_fields(self, without=("party", "plan_blob", "plan"))
        return {**party, **others, "plan": self.plan_blob}

    @classmethod
    def unpack(cls, stored: StoredFields, run_id: int) -> Memory | None:
        """Undo `pack`; None where it is of an earlier run.

        That may have been one of another release, whose memory cannot be read.
        """
        party_name = next(name for name in PARTIES if name in stored)
        if json.loads(stored[party_name])["run_id"] != run_id:
            return None
        party = unpack_fields(PARTIES[party_name], stored)
        plan_blob = bytes(stored["plan"])
        return unpack_fields(
            cls,
            stored,
            party=party,
            plan_blob=plan_blob,
            plan=load_plan(plan_blob),
        )
