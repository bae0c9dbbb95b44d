"""What a client remembers between two messages, kept in Flower's ``context.state``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Context

from flwr_dpkmeans.flower.records import load_plan, pack_boxes, pack_roster, unpack_boxes, unpack_roster
from flwr_dpkmeans.kmeans.ranges import Ranges
from flwr_dpkmeans.plan import Plan
from flwr_dpkmeans.preliminary import Found
from flwr_dpkmeans.rounds.state import ClusterState, pack_state, unpack_state
from flwr_dpkmeans.secagg.client import ClientState, Phase

_KEY = "dpkmeans.client"


@dataclass(frozen=True)
class ClientMemory:
    """One client's whole state in one run.

    Parameters
    ----------
    protocol : ClientState
        Keys and progress.
    plan_blob : bytes
        The plan in force, as received.
    agreed_digest : bytes
        Digest of the plan that was agreed on in the key phase; names the run in the ledger.
    clusters : ClusterState or None
        None while the plan is preliminary.
    attempts : tuple of (round, attempt)
        What was answered so far.
    n_features : int
        Width of the own table.
    found : Found
        What preliminary releases have told.
    """

    protocol: ClientState
    plan_blob: bytes
    agreed_digest: bytes
    clusters: ClusterState | None
    attempts: tuple[tuple[int, int], ...]
    n_features: int
    found: Found = field(default_factory=Found)

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return load_plan(self.plan_blob)


def recall(context: Context) -> ClientMemory | None:
    """Read the memory of this run; None before the first message."""
    record: Any = context.state.get(_KEY)
    if record is None:
        return None
    progress = json.loads(str(record["progress"]))
    secrets = {name: bytes.fromhex(value) for name, value in progress["secrets"].items()}
    attempt = int(progress["attempt"])
    roster = bytes(record.get("roster", b""))
    clusters = bytes(record.get("clusters", b""))
    protocol = ClientState(
        run_id=context.run_id,
        node_id=context.node_id,
        private_key=secrets["private_key"],
        min_cohort=progress["min_cohort"],
        max_silent=progress["max_silent"],
        authored=progress["authored"],
        plan_digest=secrets["plan_digest"],
        phase=Phase(progress["phase"]),
        round_index=progress["round_index"],
        attempt=attempt,
        roster=unpack_roster(attempt, roster) if roster else None,
        own_group_key=secrets["own_group_key"],
        group_keys=tuple(sorted(unpack_boxes(secrets["group_keys"]).items())),
        tag_key=secrets["tag_key"],
        pair_keys=tuple(sorted(unpack_boxes(secrets["pair_keys"]).items())),
    )
    return ClientMemory(
        protocol,
        bytes(record["plan"]),
        secrets["agreed_digest"],
        unpack_state(clusters) if clusters else None,
        tuple((int(index), int(number)) for index, number in progress["attempts"]),
        progress["n_features"],
        _found(progress["found"]),
    )


def remember(context: Context, memory: ClientMemory) -> None:
    """Replace the memory of this run, all of it at once."""
    state = memory.protocol
    progress = {
        "min_cohort": state.min_cohort,
        "max_silent": state.max_silent,
        "authored": state.authored,
        "phase": state.phase.value,
        "round_index": state.round_index,
        "attempt": state.attempt,
        "attempts": memory.attempts,
        "n_features": memory.n_features,
        "found": (memory.found.n_examples, memory.found.box),
        "secrets": {
            "private_key": state.private_key.hex(),
            "plan_digest": state.plan_digest.hex(),
            "agreed_digest": memory.agreed_digest.hex(),
            "own_group_key": state.own_group_key.hex(),
            "group_keys": pack_boxes(dict(state.group_keys)).hex(),
            "tag_key": state.tag_key.hex(),
            "pair_keys": pack_boxes(dict(state.pair_keys)).hex(),
        },
    }
    fields: dict[str, Any] = {"progress": json.dumps(progress), "plan": memory.plan_blob}
    if state.roster is not None:
        fields["roster"] = pack_roster(state.roster)
    if memory.clusters is not None:
        fields["clusters"] = pack_state(memory.clusters)
    # One record, put in place by one assignment, so that a crash leaves the old or the new memory.
    context.state[_KEY] = ConfigRecord(fields)


def _found(stored: Sequence[Any]) -> Found:
    """Undo how `remember` stores what was found; floats come back from JSON as they were."""
    n_examples, box = stored
    if box is None:
        return Found(n_examples)
    lower, upper = (tuple(float(value) for value in side) for side in box)
    return Found(n_examples, Ranges(lower, upper))
