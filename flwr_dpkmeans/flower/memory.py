"""What a client remembers between two messages, kept in Flower's ``context.state``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Context

from flwr_dpkmeans.flower.packing import pack_boxes, unpack_boxes
from flwr_dpkmeans.flower.protocol_memory import pack_protocol, unpack_protocol
from flwr_dpkmeans.flower.records import load_plan
from flwr_dpkmeans.kmeans.ranges import Ranges
from flwr_dpkmeans.secagg.protocols import AnyState
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.state import State, pack_state, unpack_state
from flwr_dpkmeans.sums.task import Found

_KEY = "dpkmeans.client"


@dataclass(frozen=True)
class ClientMemory:
    """One client's whole state in one run.

    Parameters
    ----------
    protocol : ClientState or RecoveryState
        Keys and progress.
    plan_blob : bytes
        The plan in force, as received.
    agreed_digest : bytes
        Digest of the plan that was agreed on in the key phase; names the run in the ledger.
    clusters : State or None
        None while the plan is preliminary.
    attempts : tuple of (round, attempt)
        What was answered so far.
    n_features : int
        Width of the own table.
    found : Found
        What preliminary releases have told.
    n_recognised : int
        How many peers the policy's pinned identities recognised in the run's first roster; 0 where none are pinned.
    identities : tuple of (node id, bytes)
        Where sums are recovered: the neighbours' pinned identities, which sign what survivors they were told of.
    started, cohort : str, tuple of str
        For the result's provenance: when the plan came, and who was in the first roster.
    columns : str
        Digest of the own table's column names in the agreed order; empty if it has none.
    """

    protocol: AnyState
    plan_blob: bytes = field(repr=False)
    agreed_digest: bytes
    clusters: State | None
    attempts: tuple[tuple[int, int], ...]
    n_features: int
    found: Found = field(default_factory=Found)
    n_recognised: int = 0
    identities: tuple[tuple[int, bytes], ...] = ()
    started: str = ""
    cohort: tuple[str, ...] = ()
    columns: str = ""

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return load_plan(self.plan_blob)


def recall(context: Context) -> ClientMemory | None:
    """Read the memory of this run; None before the first message.

    Flower keeps one context for a whole series of runs, so what an earlier run left there may still be in it.
    """
    record: Any = context.state.get(_KEY)
    if record is None:
        return None
    progress = json.loads(str(record["progress"]))
    if progress["run_id"] != context.run_id:
        return None
    protocol = unpack_protocol(context.run_id, context.node_id, progress, record)
    clusters = bytes(record.get("clusters", b""))
    return ClientMemory(
        protocol,
        bytes(record["plan"]),
        bytes.fromhex(progress["agreed_digest"]),
        unpack_state(clusters) if clusters else None,
        tuple((int(index), int(number)) for index, number in progress["attempts"]),
        progress["n_features"],
        _found(progress["found"]),
        progress["n_recognised"],
        tuple(sorted(unpack_boxes(bytes(record["identities"])).items())),
        progress["started"],
        tuple(progress["cohort"]),
        progress["columns"],
    )


def remember(context: Context, memory: ClientMemory) -> None:
    """Replace the memory of this run, or of one before it, all of it at once."""
    progress, blobs = pack_protocol(memory.protocol)
    progress |= {
        "run_id": context.run_id,
        "attempts": memory.attempts,
        "n_features": memory.n_features,
        "found": (memory.found.n_examples, memory.found.box, memory.found.unclear),
        "n_recognised": memory.n_recognised,
        "columns": memory.columns,
        "agreed_digest": memory.agreed_digest.hex(),
        "started": memory.started,
        "cohort": memory.cohort,
    }
    fields: dict[str, Any] = {"progress": json.dumps(progress), "plan": memory.plan_blob, **blobs}
    fields["identities"] = pack_boxes(dict(memory.identities))
    if memory.clusters is not None:
        fields["clusters"] = pack_state(memory.clusters)
    # One record, put in place by one assignment, so that a crash leaves the old or the new memory.
    context.state[_KEY] = ConfigRecord(fields)


def _found(stored: Sequence[Any]) -> Found:
    """Undo how `remember` stores what was found; floats come back from JSON as they were."""
    n_examples, box, unclear = stored
    if box is None:
        return Found(n_examples)
    lower, upper = (tuple(float(value) for value in side) for side in box)
    return Found(n_examples, Ranges(lower, upper), tuple(int(column) for column in unclear))
