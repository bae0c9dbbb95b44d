"""Masks of clients that answer together: each pair's once, added up by client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.ciphers import ATTEMPT_NONCE, AttemptId
from flwr_dpkmeans.secagg.keys import piece
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import transcript_of
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
        self._nonce = ATTEMPT_NONCE.pack(*attempt_id)
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
    attempt_id = parties[0].attempt_id
    mask_keys = _mask_keys_of_each(parties)
    totals = np.zeros((len(parties), length), np.uint64)
    total_of = {}
    for party, total in zip(parties, totals, strict=True):
        total_of[party.node_id] = total
    buffer = StreamBuffer(attempt_id, length)
    for party, keys_of_party in zip(parties, mask_keys, strict=True):
        _add_pairs(
            party,
            keys_of_party,
            buffer,
            total_of,
        )
    for party, keys_of_party in zip(parties, mask_keys, strict=True):
        node = party.node_id
        transcript = _transcript(party)
        name = (node, attempt_id, transcript, length)
        party.awaited.prepared[name] = (keys_of_party, total_of[node])


def _add_pairs(
    party: Paired,
    mask_keys: bytes,
    buffer: StreamBuffer,
    total_of: Mapping[int, Ring],
) -> None:
    """Add the masks of a client's pairs, but for those that its peer has added."""
    node = party.node_id
    total = total_of[node]
    for index, (peer, _) in enumerate(party.pair_keys):
        of_peer = total_of.get(peer)
        is_later = peer < node
        if is_later and of_peer is not None:
            continue
        words = buffer.stream(piece(mask_keys, index))
        if is_later:
            total -= words
            continue
        total += words
        if of_peer is not None:
            of_peer -= words


def _transcript(party: Paired) -> bytes:
    """What a client's vector is about to be masked under."""
    return transcript_of(party.plan_digest, party.cohort.digest)


def _mask_keys_of_each(parties: Sequence[Paired]) -> list[bytes]:
    """Keys of each client's masks, end to end, as `Retry.mask_keys`."""
    derived: dict[bytes, bytes] = {}
    keys_of_each = []
    for party in parties:
        mask_keys = party.mask_keys
        if _transcript(party) != party.transcript:
            mask_keys = _derived_keys(party, derived)
        keys_of_each.append(mask_keys)
    return keys_of_each


def _derived_keys(party: Paired, derived: dict[bytes, bytes]) -> bytes:
    """Derive the keys of one client's masks, but for those that `derived` has."""
    transcript = _transcript(party)
    mask_keys = []
    for _, pair_key in party.pair_keys:
        mask_key = derived.get(pair_key)
        if mask_key is None:
            mask_key = keys.derive_key(pair_key, "mask", transcript)
            derived[pair_key] = mask_key
        mask_keys.append(mask_key)
    return b"".join(mask_keys)
