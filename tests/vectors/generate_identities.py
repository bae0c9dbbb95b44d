"""Write identities.json: known answers of signatures of keys and of survivors, from
fixed private keys.

Run ``python tests/vectors/generate_identities.py`` after a deliberate change of the
protocol (and raise PROTOCOL_VERSION). `test_identity_vectors.py` checks the file with
code of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.secagg import keys

TARGET = Path(__file__).with_name("identities.json")
RUN_IDS = (1, 2**63 + 5)
NODE_IDS = (3, 2**32 + 1, 2**64 - 1)
ROUNDS = ((-1, 0), (1, 0), (7, 3))


def build() -> dict[str, Any]:
    """All known answers, as JSON values (byte strings in hexadecimal)."""
    parties = {
        node: Identity(keys.digest("known answers", "identity", node))
        for node in NODE_IDS
    }
    signed_keys, signed_survivors = [], []
    for node, identity in parties.items():
        for run_id in RUN_IDS:
            plan = keys.digest("known answers", "plan", run_id)
            public_key = keys.public_key_of(
                keys.digest("known answers", "private", run_id, node)
            )
            signed_keys.append(
                {
                    "run_id": run_id,
                    "node_id": node,
                    "plan_digest": plan.hex(),
                    "public_key": public_key.hex(),
                    "signature": (
                        identity.sign_keys(run_id, node, plan, public_key).hex()
                    ),
                }
            )
        for round_index, attempt in ROUNDS:
            survivors = keys.digest("known answers", "survivors", round_index, attempt)
            signature = identity.sign_survivors(
                RUN_IDS[1], node, round_index, attempt, survivors
            )
            signed_survivors.append(
                {
                    "run_id": RUN_IDS[1],
                    "node_id": node,
                    "round": round_index,
                    "attempt": attempt,
                    "survivors_digest": survivors.hex(),
                    "signature": signature.hex(),
                }
            )
    return {
        "protocol_version": keys.PROTOCOL_VERSION,
        "parties": {
            str(node): {
                "private_key": identity.private_key.hex(),
                "public_key": identity.public_key.hex(),
            }
            for node, identity in parties.items()
        },
        "keys": signed_keys,
        "survivors": signed_survivors,
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(build(), indent=1) + "\n")
