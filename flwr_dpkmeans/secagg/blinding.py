"""Streams of key authors, which hide a sum from the server but not from the clients."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flwr_dpkmeans.secagg.ciphers import AttemptId, mask
from flwr_dpkmeans.secagg.ring import Ring

Keys = tuple[tuple[int, bytes], ...]
"""Secrets of 32 bytes by node id, ascending."""


def blind_stream(
    run_id: int,
    attempt_id: AttemptId,
    author: int,
    group_key: bytes,
    transcript: bytes,
    length: int,
) -> Ring:
    """Expand the stream that one key author adds to its vector."""
    return mask(
        group_key,
        attempt_id,
        length,
        "blind",
        run_id,
        author,
        transcript,
    )


@lru_cache(maxsize=1)
def sum_of_streams(
    group_keys: Keys,
    run_id: int,
    attempt_id: AttemptId,
    transcript: bytes,
    length: int,
) -> Ring:
    """Add up the streams of all authors.

    Cached, as all virtual clients of one process need the same; secrets stay until
    `forget`.
    """
    total = np.zeros(length, dtype=np.uint64)
    for author, key in group_keys:
        total += blind_stream(
            run_id,
            attempt_id,
            author,
            key,
            transcript,
            length,
        )
    return total


def forget() -> None:
    """Leave no group key and no stream in this process that a client no longer has."""
    sum_of_streams.cache_clear()
