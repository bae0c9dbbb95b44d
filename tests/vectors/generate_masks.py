"""Write masks.json: known answers of keys, streams, boxes, masks and tags, from fixed
private and group keys.

Run ``python tests/vectors/generate_masks.py`` after a deliberate change of the protocol
(and raise PROTOCOL_VERSION). `test_mask_vectors.py` checks the file with code of its
own. With `tests` on `PYTHONPATH`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machine import replace_entropy

from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumRequest
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster

TARGET = Path(__file__).with_name("masks.json")
RUN_ID = 2**63 + 5
PLAN_DIGEST = bytes(range(32))
NODE_IDS = (3, 2**32 + 1, 2**64 - 1)
VECTORS = {
    NODE_IDS[0]: (0, 1, 2**63, 2**64 - 1, 12345),
    NODE_IDS[1]: (0, 2**64 - 1, 2**63, 2**64 - 1, 67890),
    NODE_IDS[2]: (0, 5, 2**63 - 1, 1, 2**64 - 98765),
}
NOISE = (7, 2**64 - 7, 1, 2, 3)
STATE_DIGEST = b"digest of the clustering state"


def fixed_key(label: str, node: int, attempt: int = 0) -> bytes:
    """A key that everybody may know."""
    return keys.digest("known answers", label, node, attempt)


@dataclass(frozen=True)
class _Counter:
    """Nonces in a fixed order, in place of the operating system's entropy."""

    used: list[int]

    def __call__(self, n_bytes: int) -> bytes:
        self.used.append(len(self.used))
        return len(self.used).to_bytes(n_bytes, "big")


def _ring(values: tuple[int, ...]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def _states() -> dict[int, Retry]:
    return {
        node: Retry(RUN_ID, node, fixed_key("private", node), 2, 0, True, PLAN_DIGEST)
        for node in NODE_IDS
    }


def _attempt(
    states: dict[int, Retry],
    roster: Roster,
    round_index: int,
    fresh: bool,
    release: Release | None,
    boxes: dict[int, dict[int, bytes]],
) -> tuple[dict[str, Any], Release, dict[int, dict[int, bytes]]]:
    """Answer one request on all clients of a roster.

    Return the record, the release and the boxes to relay.
    """
    record: dict[str, Any] = {
        "round": round_index,
        "attempt": roster.attempt,
        "clients": {},
    }
    relayed: dict[int, dict[int, bytes]] = {node: {} for node in roster.node_ids}
    total = np.zeros(len(NOISE), dtype=np.uint64)
    for node in roster.node_ids:
        request = SumRequest(
            round_index,
            roster.attempt,
            roster if fresh else None,
            release,
            boxes.get(node, {}),
        )
        group_key = fixed_key("group", node, roster.attempt)
        with pytest.MonkeyPatch.context() as patch:
            replace_entropy(patch, lambda _, key=group_key: key)  # type: ignore[misc]
            admitted = states[node].admit(request, 1)
        states[node], reply = admitted.answer(
            request,
            FixedPointVector(_ring(VECTORS[node])),
            blinded=True,
            state_digest=STATE_DIGEST,
        )
        total += reply.masked.values
        for recipient, box in reply.boxes.items():
            relayed[recipient][node] = box
        record["clients"][str(node)] = {
            "masked": reply.masked.values.tolist(),
            "tag": reply.tag.hex(),
            "boxes": {
                str(recipient): box.hex()
                for recipient, box in sorted(reply.boxes.items())
            },
        }
    record["aggregate"] = total.tolist()
    values = total + _ring(NOISE)
    return (
        record | {"release": values.tolist()},
        Release(round_index, roster.attempt, values),
        relayed,
    )


def _run() -> dict[str, Any]:
    """Three clients: rounds 1 and 2 of attempt 0, then attempt 1 of round 2 without the
    last client, then the end.
    """
    states = _states()
    first = Roster.of(
        0,
        {node: keys.public_key_of(state.private_key) for node, state in states.items()},
    )
    second = first.without(1, [NODE_IDS[-1]])
    attempts = []
    with pytest.MonkeyPatch.context() as patch:
        replace_entropy(patch, _Counter([]))
        record, release, boxes = _attempt(states, first, 1, True, None, {})
        attempts.append(record)
        record, _, _ = _attempt(states, first, 2, False, release, boxes)
        attempts.append(record)
        record, release, boxes = _attempt(states, second, 2, True, None, {})
        attempts.append(record)
    read = {}
    for node in second.node_ids:
        state = states[node].finish(FinishRequest(release, boxes[node]))
        read[str(node)] = {
            "values": state.unblind(release, blinded=True).values.tolist(),
            "tag": state.tag(3, 1, STATE_DIGEST).hex(),
        }
    rosters = [
        {
            "attempt": roster.attempt,
            "digest": roster.digest.hex(),
            "hashed_order": list(roster.hashed_order),
            "authors": list(roster.authors(0)),
        }
        for roster in (first, second)
    ]
    return {"rosters": rosters, "attempts": attempts, "read": read}


def _derivations() -> list[dict[str, Any]]:
    """Every purpose's label with a context of its own kind."""
    secret = bytes(range(100, 132))
    contexts: dict[str, tuple[bytes | str | int, ...]] = {
        "pair": (RUN_ID, NODE_IDS[0], NODE_IDS[2]),
        "mask": (PLAN_DIGEST,),
        "box": (PLAN_DIGEST,),
        "blind": (RUN_ID, NODE_IDS[2], PLAN_DIGEST),
        "tag": (RUN_ID, PLAN_DIGEST),
    }
    return [
        {
            "purpose": purpose,
            "secret": secret.hex(),
            "context": [
                part.hex() if isinstance(part, bytes) else part for part in context
            ],
            "key": keys.derive_key(secret, purpose, *context).hex(),
        }
        for purpose, context in contexts.items()
    ]


def build() -> dict[str, Any]:
    """All known answers, as JSON values (byte strings in hexadecimal)."""
    parties = {
        str(node): {
            "private_key": fixed_key("private", node).hex(),
            "public_key": keys.public_key_of(fixed_key("private", node)).hex(),
            "group_keys": [
                fixed_key("group", node, attempt).hex() for attempt in (0, 1)
            ],
            "vector": list(VECTORS[node]),
        }
        for node in NODE_IDS
    }
    streams = [
        {
            "key": key.hex(),
            "asked": list(asked),
            "words": ciphers.stream(key, asked, length).tolist(),
        }
        for key, asked, length in (
            (bytes(32), (0, 0), 3),
            (bytes(range(32)), (-7, 2), 5),
            (fixed_key("stream", 1), (2**31, 2**31), 17),
        )
    ]
    return {
        "protocol_version": keys.PROTOCOL_VERSION,
        "run_id": RUN_ID,
        "plan_digest": PLAN_DIGEST.hex(),
        "state_digest": STATE_DIGEST.hex(),
        "noise": list(NOISE),
        "parties": parties,
        "derivations": _derivations(),
        "streams": streams,
        "run": _run(),
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(build(), indent=1) + "\n")
