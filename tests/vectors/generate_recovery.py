"""Write recovery.json: known answers of a recovered sum, from fixed keys and fixed
entropy.

Run ``python tests/vectors/generate_recovery.py`` after a deliberate change of the
protocol (and raise its version). `test_recovery_vectors.py` checks the file with code
of its own. With `tests` on `PYTHONPATH`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machine import replace_entropy

from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    Release,
    ShareRequest,
    SumRequest,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.recover_session import RecoverSession
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.slots import Slots

TARGET = Path(__file__).with_name("recovery.json")
RUN_ID = 2**63 + 11
PLAN_DIGEST = bytes(range(7, 39))
STATE_DIGEST = b"digest of the clustering state"
NODE_IDS = (3, 8, 2**32 + 1, 2**40, 2**63, 2**64 - 1)
LATE = 2**32 + 1
LENGTH, MAX_SILENT = 3, 1
SLOTS = (-1, 0, 2)


def fixed_key(label: str, node: int) -> bytes:
    """A key that everybody may know."""
    return keys.digest("known answers of recovery", label, node)


def vector_of(node: int) -> np.ndarray:
    """A client's vector."""
    return np.frombuffer(fixed_key("vector", node)[: 8 * LENGTH], dtype="<u8").astype(
        np.uint64
    )


def entropy() -> Callable[[int], bytes]:
    """Bytes in a fixed order, in place of the operating system's entropy."""
    used = [0]

    def draw(n_bytes: int) -> bytes:
        used[0] += 1
        return hashlib.shake_256(
            b"known answers of recovery" + bytes([used[0] % 256, used[0] // 256])
        ).digest(n_bytes)

    return draw


def masters_first(node: int, draw: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """The same, but that a client's first draw gives its two masters."""
    masters = [fixed_key("self", node) + fixed_key("private", node)]
    return lambda n_bytes: masters.pop() if masters else draw(n_bytes)


def hexadecimal(parts: Any) -> dict[str, str]:
    """A mapping of node id to bytes as JSON holds it."""
    return {str(node): part.hex() for node, part in sorted(parts.items())}


def build() -> dict[str, Any]:
    """One aggregation of six clients, of which one comes late, as JSON values."""
    slots = Slots(*SLOTS)
    states = {}
    for node in NODE_IDS:
        private = fixed_key("run", node)
        states[node] = Recover(
            RUN_ID,
            node,
            private,
            2,
            MAX_SILENT,
            True,
            PLAN_DIGEST,
            slots=slots,
        )
    roster = Roster.of(
        0,
        {node: keys.public_key_of(state.private_key) for node, state in states.items()},
    )
    options = {
        "min_cohort": 2,
        "max_retries": 1,
        "max_silent": MAX_SILENT,
        "authored": True,
    }
    session = RecoverSession(RUN_ID, roster, slots, **options)
    shared, masked, given = {}, {}, {}
    draw = entropy()
    with pytest.MonkeyPatch.context() as patch:
        for node in NODE_IDS:
            replace_entropy(patch, masters_first(node, draw))
            states[node], shared[node] = states[node].share(ShareRequest(roster))
            session.receive_shares(node, shared[node])
        replace_entropy(patch, draw)
        session.close_shares()
        session.open_round(SLOTS[0], LENGTH)
        for node in NODE_IDS:
            boxes, group_boxes = session.take_boxes(node)
            request = SumRequest(
                SLOTS[0], 0, boxes=boxes, group_boxes=group_boxes, cohort=NODE_IDS
            )
            admitted = states[node].admit(request, SLOTS[0])
            states[node], masked[node] = admitted.answer(
                request,
                FixedPointVector(vector_of(node)),
                blinded=True,
                state_digest=STATE_DIGEST,
            )
            if node != LATE:
                session.receive(node, masked[node])
        session.close_vectors()
        for node in session.survivors:
            states[node], given[node] = states[node].unmask(
                UnmaskRequest(SLOTS[0], 0, session.survivors)
            )
            session.receive_unmask(node, given[node])
        values = session.recover(PLAN_DIGEST, blinded=True).values
    release = Release(SLOTS[0], 0, values)
    state = states[3].finish(FinishRequest(release))
    return {
        "protocol_version": keys.PROTOCOL_VERSION,
        "run_id": RUN_ID,
        "plan_digest": PLAN_DIGEST.hex(),
        "state_digest": STATE_DIGEST.hex(),
        "slots": list(SLOTS),
        "max_silent": MAX_SILENT,
        "threshold": session.graph.threshold,
        "late": LATE,
        "authors": sorted(roster.authors(MAX_SILENT)),
        "clients": {
            str(node): {
                "private_key": states[node].private_key.hex(),
                "masters": states[node].masters.hex(),
                "group_key": states[node].own_group_key.hex(),
                "vector": vector_of(node).tolist(),
                "public_keys": shared[node].public_keys.hex(),
                "commitments": shared[node].commitments.hex(),
                "boxes": hexadecimal(shared[node].boxes),
                "group_boxes": hexadecimal(shared[node].group_boxes),
                "masked": masked[node].masked.values.tolist(),
                "tag": masked[node].tag.hex(),
                "tickets": hexadecimal(masked[node].boxes),
                "given": hexadecimal(given[node].shares) if node in given else {},
            }
            for node in NODE_IDS
        },
        "recovered": values.tolist(),
        "read": state.unblind(release, blinded=True).values.tolist(),
        "last_tag": state.tag(SLOTS[0] + 1, 0, STATE_DIGEST).hex(),
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(build(), indent=1) + "\n")
