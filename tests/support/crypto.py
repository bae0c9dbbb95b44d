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

from flwr_dpkmeans.secagg import blinding, ciphers, credentials, keys

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


def replace_group_key(patch: pytest.MonkeyPatch, generate: Callable[[], bytes]) -> None:
    """Let ``generate()`` make the keys by which authors blind a sum."""
    patch.setattr(keys, "generate_group_key", generate)


def speak_version(patch: pytest.MonkeyPatch, version: int) -> None:
    """Let keys be derived as another version of the protocol does."""
    for module in (keys, credentials):
        patch.setattr(module, "PROTOCOL_VERSION", version)


def no_blinding(patch: pytest.MonkeyPatch) -> None:
    """The server, which knows its noise, sees the noised sum, and so the exact one."""

    def zeros(*arguments: Any) -> Words:
        return np.zeros(arguments[-1], dtype=np.uint64)

    patch.setattr(blinding, "blind_stream", zeros)
