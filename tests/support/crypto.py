"""What masks, boxes and keys are made by, replaced for the time of a test.

Recorders note what the honest function gives; planted bugs give something else. Each
function takes what is called in the place of the package's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.secagg import ciphers, credentials, keys

Words = NDArray[np.uint64]


def replace_stream(
    patch: pytest.MonkeyPatch,
    stream: Callable[[bytes, tuple[int, int], int], Words],
) -> None:
    """Let ``stream(key, (round, attempt), length)`` give masks and blindings."""
    patch.setattr(ciphers, "stream", stream)


def replace_derivation(patch: pytest.MonkeyPatch, derive: Callable[..., bytes]) -> None:
    """Let ``derive(key, purpose, *context)`` make keys of a key."""
    patch.setattr(keys, "derive_key", derive)


def speak_version(patch: pytest.MonkeyPatch, version: int) -> None:
    """Let keys be derived as another version of the protocol does."""
    for module in (keys, credentials):
        patch.setattr(module, "PROTOCOL_VERSION", version)


def no_blinding(patch: pytest.MonkeyPatch) -> None:
    """The server, which knows its noise, sees the noised sum, and so the exact one."""
    derive, stream = keys.derive_key, ciphers.stream
    blinding: set[bytes] = set()

    def noting(secret: bytes, purpose: str, *context: Any) -> bytes:
        key = derive(secret, purpose, *context)
        if purpose == "blind":
            blinding.add(key)
        return key

    def without(key: bytes, attempt_id: tuple[int, int], length: int) -> Words:
        words = stream(key, attempt_id, length)
        return np.zeros_like(words) if key in blinding else words

    replace_derivation(patch, noting)
    replace_stream(patch, without)
