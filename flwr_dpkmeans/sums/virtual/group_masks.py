"""Masks of clients that answer together: each pair's once, added up by client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.ciphers import AttemptId, nonce_of
from flwr_dpkmeans.secagg.keys import piece
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.virtual.paired import Paired

_TAG_BYTES = 16


class StreamBuffer:
    """Expands keys as `ciphers.stream` does, one after another into the same memory.

    New memory for each of 10,000 masks takes longer than to compute them.

    Parameters
    ----------
    attempt_id : tuple of int
        Round and attempt.
    length : int
        Words of a stream.
    """

    def __init__(self, attempt_id: AttemptId, length: int) -> None:
        words = np.zeros(length, dtype="<u8")
        self._nonce = nonce_of(attempt_id)
        self._zeros = bytes(words.nbytes)
        self._sealed = bytearray(words.nbytes + _TAG_BYTES)
        self._words = np.frombuffer(self._sealed, dtype=words.dtype, count=length)

    def stream(self, key: bytes) -> Ring:
        """Expand a key of 32 bytes; the words are those of the next one after that."""
        cipher = AESGCM(key)
        cipher.encrypt_into(self._nonce, self._zeros, None, self._sealed)
        return self._words


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
        At least one, all of one run, that have admitted requests for one aggregation.
    length : int
        Entries of a vector.
    """
    rows = {party.node_id: row for row, party in enumerate(parties)}
    totals = np.zeros((len(parties), length), np.uint64)
    row_totals = list(totals)
    attempt_id = parties[0].attempt_id
    buffer = StreamBuffer(attempt_id, length)
    mask_keys = _mask_keys_of_each(parties)
    for party, keys_of_party in zip(parties, mask_keys, strict=True):
        node = party.node_id
        total = row_totals[rows[node]]
        for index, (peer, _) in enumerate(party.pair_keys):
            is_in_group = peer in rows
            if is_in_group and peer < node:
                # It is subtracted already.
                continue
            words = buffer.stream(piece(keys_of_party, index))
            if peer < node:
                total -= words
                continue
            total += words
            if is_in_group:
                row_totals[rows[peer]] -= words
    for party, keys_of_party, total in zip(parties, mask_keys, row_totals, strict=True):
        transcript = party.due_transcript
        name = (party.node_id, attempt_id, transcript, length)
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
