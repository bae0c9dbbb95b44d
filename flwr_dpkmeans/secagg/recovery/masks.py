"""Both masks of a vector, and what they are bound to; client and server derive them alike."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flwr_dpkmeans.secagg.keys import derive_key, stream
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster


def self_mask(seed: bytes, run_id: int, node_id: int, asked: tuple[int, int], transcript: bytes, length: int) -> Ring:
    """The mask that hides a vector whose pairwise masks were taken away, until it is known to have arrived."""
    return np.asarray(stream(derive_key(seed, "self", run_id, node_id, *asked, transcript), length))


def pair_mask(pair_key: bytes, node_id: int, peer: int, asked: tuple[int, int], transcript: bytes, length: int) -> Ring:
    """What `node_id` adds to its vector for `peer`: the other adds the negative."""
    mask = np.asarray(stream(derive_key(pair_key, "mask", *asked, transcript), length))
    return mask if node_id < peer else np.zeros_like(mask) - mask


@lru_cache(maxsize=8)
def cohort_of(setup: Roster, attempt: int, node_ids: tuple[int, ...]) -> Roster:
    """Part of a roster; the clients of one process need the same one."""
    keys = setup.keys
    return Roster(attempt, tuple((node, keys[node]) for node in node_ids))
