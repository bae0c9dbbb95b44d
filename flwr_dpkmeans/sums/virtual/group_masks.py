"""Masks of clients that answer together: each pair's once, added up by client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.secagg.keys import piece
from flwr_dpkmeans.sums.virtual.paired import Paired


def prepare_masks(
    parties: Sequence[Paired],
    length: int,
) -> None:
    """Compute what each client of a group is about to add to its vector.

    Masks and their keys are functions of arguments that both of a pair have, so that
    the one with the smaller id computes them for both. What a pair shares of which one
    is in another group is computed there once more.

    Parameters
    ----------
    parties : sequence of Paired
        All of one run, that have admitted requests for one aggregation.
    length : int
        Entries of a vector.
    """
    rows = {party.node_id: row for row, party in enumerate(parties)}
    totals = np.zeros((len(parties), length), np.uint64)
    row_totals = list(totals)
    mask_keys = _mask_keys_of_each(parties)
    for party, keys_of_party in zip(parties, mask_keys, strict=True):
        node = party.node_id
        total = row_totals[rows[node]]
        for index, (peer, _) in enumerate(party.pair_keys):
            is_in_group = peer in rows
            if is_in_group and peer < node:
                # It is subtracted already.
                continue
            mask_key = piece(keys_of_party, index)
            words = ciphers.stream(mask_key, party.attempt_id, length)
            if peer < node:
                total -= words
                continue
            total += words
            if is_in_group:
                row_totals[rows[peer]] -= words
    for party, keys_of_party, total in zip(parties, mask_keys, row_totals, strict=True):
        transcript = party.due_transcript
        name = (party.node_id, party.attempt_id, transcript, length)
        party.awaited.prepared[name] = (keys_of_party, total)


def _mask_keys_of_each(parties: Sequence[Paired]) -> list[bytes]:
    """Keys of each client's masks, end to end, as `Retry.mask_keys`."""
    derived: dict[bytes, bytes] = {}
    keys_of_each = []
    for party in parties:
        transcript = party.due_transcript
        if transcript == party.transcript:
            keys_of_each.append(party.mask_keys)
            continue
        keys_of_party = []
        for _, pair_key in party.pair_keys:
            mask_key = derived.get(pair_key)
            if mask_key is None:
                mask_key = keys.derive_key(pair_key, "mask", transcript)
                derived[pair_key] = mask_key
            keys_of_party.append(mask_key)
        keys_of_each.append(b"".join(keys_of_party))
    return keys_of_each
