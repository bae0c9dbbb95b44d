"""What a client remembers between two messages, kept in Flower's ``context.state``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from flwr_dpkmeans.flower.records import load_plan, pack_boxes, pack_roster, unpack_boxes, unpack_roster
from flwr_dpkmeans.planning import Plan
from flwr_dpkmeans.rounds.private_sum import ClusterState
from flwr_dpkmeans.secagg.client import ClientState, Phase

_KEY = "dpkmeans.client"
_CLUSTERS_KEY = "dpkmeans.clusters"


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
    """

    protocol: ClientState
    plan_blob: bytes
    agreed_digest: bytes
    clusters: ClusterState | None
    attempts: tuple[tuple[int, int], ...]
    n_features: int

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return load_plan(self.plan_blob)


def recall(context: Context) -> ClientMemory | None:
    """Read the memory of this run; None before the first message."""
    fields = context.state.config_records.get(_KEY)
    if fields is None:
        return None
    roster = _bytes(fields, "roster")
    attempt = int(_number(fields, "attempt"))
    protocol = ClientState(
        run_id=context.run_id,
        node_id=context.node_id,
        private_key=_bytes(fields, "private_key"),
        min_cohort=int(_number(fields, "min_cohort")),
        max_silent=int(_number(fields, "max_silent")),
        authored=bool(fields["authored"]),
        plan_digest=_bytes(fields, "plan_digest"),
        phase=Phase(fields["phase"]),
        round_index=int(_number(fields, "round_index")),
        attempt=attempt,
        roster=unpack_roster(attempt, roster) if roster else None,
        own_group_key=_bytes(fields, "own_group_key"),
        group_keys=tuple(sorted(unpack_boxes(_bytes(fields, "group_keys")).items())),
        tag_key=_bytes(fields, "tag_key"),
        pair_keys=tuple(sorted(unpack_boxes(_bytes(fields, "pair_keys")).items())),
    )
    answered = _bytes(fields, "attempts")
    pairs = [struct.unpack_from("<ii", answered, start) for start in range(0, len(answered), 8)]
    return ClientMemory(
        protocol,
        _bytes(fields, "plan"),
        _bytes(fields, "agreed_digest"),
        _clusters(context.state),
        tuple((first, second) for first, second in pairs),
        int(_number(fields, "n_features")),
    )


def remember(context: Context, memory: ClientMemory) -> None:
    """Replace the memory of this run, all of it at once."""
    state = memory.protocol
    fields: dict[str, Any] = {
        "private_key": state.private_key,
        "min_cohort": state.min_cohort,
        "max_silent": state.max_silent,
        "authored": state.authored,
        "plan_digest": state.plan_digest,
        "phase": state.phase.value,
        "round_index": state.round_index,
        "attempt": state.attempt,
        "roster": pack_roster(state.roster) if state.roster is not None else b"",
        "own_group_key": state.own_group_key,
        "group_keys": pack_boxes(dict(state.group_keys)),
        "tag_key": state.tag_key,
        "pair_keys": pack_boxes(dict(state.pair_keys)),
        "plan": memory.plan_blob,
        "agreed_digest": memory.agreed_digest,
        "attempts": b"".join(struct.pack("<ii", *pair) for pair in memory.attempts),
        "n_features": memory.n_features,
    }
    if memory.clusters is not None:
        arrays = {name: Array(np.ascontiguousarray(array)) for name, array in memory.clusters.to_arrays().items()}
        context.state.array_records[_CLUSTERS_KEY] = ArrayRecord(arrays)
    context.state.config_records[_KEY] = ConfigRecord({k: v for k, v in fields.items() if v != b""})


def _clusters(state: RecordDict) -> ClusterState | None:
    """The clustering state, if there is one."""
    record = state.array_records.get(_CLUSTERS_KEY)
    if record is None:
        return None
    return ClusterState.from_arrays({name: array.numpy() for name, array in record.items()})


def _bytes(fields: Any, name: str) -> bytes:
    """A bytes field; absent stands for empty."""
    value = fields.get(name, b"")
    return bytes(value)


def _number(fields: Any, name: str) -> int:
    """An integer field."""
    return int(fields[name])
