"""A client's aggregation state as JSON and blobs, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_dpkmeans.flower.packing import pack_boxes, pack_nodes, pack_roster, unpack_boxes, unpack_nodes, unpack_roster
from flwr_dpkmeans.secagg import client
from flwr_dpkmeans.secagg.client import ClientState
from flwr_dpkmeans.secagg.protocols import AnyState
from flwr_dpkmeans.secagg.recovery import state as recovery
from flwr_dpkmeans.secagg.recovery.masks import cohort_of
from flwr_dpkmeans.secagg.recovery.slots import Slots
from flwr_dpkmeans.secagg.recovery.state import RecoveryState

_SECRETS = ("private_key", "plan_digest", "own_group_key", "tag_key")


def pack_protocol(state: AnyState) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Split a state into what JSON holds and larger blobs.

    Parameters
    ----------
    state : ClientState or RecoveryState

    Returns
    -------
    dict
        Progress and small secrets.
    dict of bytes
        Rosters and shares.
    """
    secrets = {name: getattr(state, name).hex() for name in _SECRETS}
    secrets["group_keys"] = pack_boxes(dict(state.group_keys)).hex()
    progress = {
        "min_cohort": state.min_cohort,
        "max_silent": state.max_silent,
        "authored": state.authored,
        "phase": state.phase.value,
        "round_index": state.round_index,
        "attempt": state.attempt,
        "secrets": secrets,
    }
    if isinstance(state, RecoveryState):
        slots = state.slots
        secrets |= {"masters": state.masters.hex(), "transcript": state.transcript.hex()}
        progress["slots"] = (slots.first_round, slots.last_round, slots.n_attempts)
        blobs = {"held": pack_boxes(dict(state.held)), "survivors": pack_nodes(state.survivors)}
        if state.setup is not None:
            blobs["roster"] = pack_roster(state.setup)
        if state.roster is not None:
            blobs["cohort"] = pack_nodes(state.roster.node_ids)
        return progress, blobs
    secrets["pair_keys"] = pack_boxes(dict(state.pair_keys)).hex()
    return progress, {} if state.roster is None else {"roster": pack_roster(state.roster)}


def unpack_protocol(run_id: int, node_id: int, progress: Mapping[str, Any], blobs: Mapping[str, Any]) -> AnyState:
    """Undo `pack_protocol`."""
    secrets = {name: bytes.fromhex(value) for name, value in progress["secrets"].items()}
    roster, attempt = bytes(blobs.get("roster", b"")), int(progress["attempt"])
    common: dict[str, Any] = {
        **{name: secrets[name] for name in _SECRETS},
        **{name: progress[name] for name in ("min_cohort", "max_silent", "authored", "round_index")},
        "run_id": run_id,
        "node_id": node_id,
        "attempt": attempt,
        "group_keys": _sorted(secrets["group_keys"]),
    }
    if "slots" not in progress:
        return ClientState(
            **common,
            phase=client.Phase(progress["phase"]),
            roster=unpack_roster(attempt, roster) if roster else None,
            pair_keys=_sorted(secrets["pair_keys"]),
        )
    setup = unpack_roster(0, roster) if roster else None
    cohort = unpack_nodes(bytes(blobs.get("cohort", b"")))
    return RecoveryState(
        **common,
        slots=Slots(*progress["slots"]),
        masters=secrets["masters"],
        phase=recovery.Phase(progress["phase"]),
        setup=setup,
        roster=cohort_of(setup, attempt, cohort) if setup is not None and cohort else None,
        survivors=unpack_nodes(bytes(blobs["survivors"])),
        transcript=secrets["transcript"],
        held=_sorted(bytes(blobs["held"])),
    )


def _sorted(blob: bytes) -> tuple[tuple[int, bytes], ...]:
    """Secrets by node id."""
    return tuple(sorted(unpack_boxes(blob).items()))
