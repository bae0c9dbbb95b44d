"""Write shamir.json: known answers of secret sharing over GF(2^8), from fixed
coefficients.

Run ``python tests/vectors/generate_shamir.py`` after a deliberate change of the
protocol (and raise PROTOCOL_VERSION). `test_shamir_vectors.py` checks the file with
code of its own. With `tests` on `PYTHONPATH`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.machine import replace_entropy

from flwr_dpkmeans.secagg import shamir

TARGET = Path(__file__).with_name("shamir.json")
CASES = (
    (b"\x01", 2, 2),
    (b"\x00\xff\x80\x53", 5, 3),
    (bytes(range(32)), 7, 7),
    (bytes(range(250, 256)) + b"one key and another", 255, 170),
    (b"public", 3, 1),
)


def entropy(n_bytes: int) -> bytes:
    """Bytes that everybody may know."""
    return hashlib.shake_256(b"known answers of shamir").digest(n_bytes)


def build() -> dict[str, Any]:
    """All known answers, as JSON values (byte strings in hexadecimal)."""
    cases = []
    for secret, n_holders, threshold in CASES:
        with pytest.MonkeyPatch.context() as patch:
            replace_entropy(patch, entropy)
            shares = shamir.share(secret, n_holders, threshold)
        picked = (
            [0, n_holders // 2, n_holders - 1] if threshold > 10 else range(n_holders)
        )
        last = list(range(n_holders - threshold + 1, n_holders + 1))
        cases.append(
            {
                "secret": secret.hex(),
                "n_holders": n_holders,
                "threshold": threshold,
                "entropy": entropy((threshold - 1) * len(secret)).hex(),
                "shares": {str(index + 1): shares[index].hex() for index in picked},
                "last_holders": last,
                "weights_of_the_last": bytes(shamir.lagrange_weights(last)).hex(),
            }
        )
    return {"polynomial": shamir.POLYNOMIAL, "cases": cases}


if __name__ == "__main__":
    TARGET.write_text(json.dumps(build(), indent=1) + "\n")
