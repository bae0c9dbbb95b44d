"""AES-256-GCM in its two uses: streams that hide vectors, and boxes that seal secrets.

Streams hide without authenticating, since a sum is all that may be read; boxes
authenticate, since who relays them is not trusted.
"""

from __future__ import annotations

import os
import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.keys import Part
from flwr_dpkmeans.secagg.ring import Ring

AttemptId = tuple[int, int]
"""Round and attempt: the name of one aggregation, which hides one vector a client."""
_NONCE_BYTES = 12
_TAG_BYTES = 16
BOX_OVERHEAD = _NONCE_BYTES + _TAG_BYTES
"""How many bytes longer a box is than what it holds: nonce and authentication tag."""
ATTEMPT_NONCE = struct.Struct("<qI")
"""Packs round and attempt into the nonce of the streams of one aggregation."""
_WORD = np.dtype("<u8")


def stream(
    key: bytes,
    attempt_id: AttemptId,
    length: int,
) -> Ring:
    """Expand a key into the words that hide the vector of one aggregation only.

    AES-256-GCM of zeros without its tag, so counter mode: block i encrypts the nonce,
    which is the aggregation, and i + 2.

    Parameters
    ----------
    key : bytes
        32 bytes.
    attempt_id : tuple of int
        Round and attempt: the nonce.
    length : int
        How many words are needed.

    Returns
    -------
    array of shape (length,)
        Little-endian 64-bit words.
    """
    nonce = ATTEMPT_NONCE.pack(*attempt_id)
    zeros = bytes(_WORD.itemsize * length)
    # In one call, as the library's objects for counter mode take three times as long.
    sealed = AESGCM(key).encrypt(nonce, zeros, None)
    return np.frombuffer(sealed, dtype=_WORD, count=length)


def mask(
    secret: bytes,
    attempt_id: AttemptId,
    length: int,
    purpose: str,
    *context: Part,
) -> Ring:
    """Expand the key that `derive_key` derives from a secret; see `stream`."""
    key = keys.derive_key(secret, purpose, *context)
    return stream(key, attempt_id, length)


def seal(
    key: bytes,
    plaintext: bytes,
    associated: bytes,
) -> bytes:
    """Encrypt and authenticate under a random nonce, which stands in front.

    Parameters
    ----------
    key : bytes
        32 bytes, for this box alone.
    plaintext : bytes
        What is to be hidden.
    associated : bytes
        What the box is bound to: it opens in no other context.
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated)


def unseal(
    key: bytes,
    box: bytes,
    associated: bytes,
) -> bytes:
    """Open a box made by `seal`.

    Raises
    ------
    ProtocolError
        If the box was changed, or made for another context.
    """
    nonce = box[:_NONCE_BYTES]
    sealed = box[_NONCE_BYTES:]
    try:
        return AESGCM(key).decrypt(nonce, sealed, associated)
    except (InvalidTag, ValueError) as error:
        # Against a server that writes boxes itself, or relays those of another run,
        # attempt or recipient.
        raise ProtocolError(
            "a sealed box does not open under the key agreed with its author:"
            " stop the run and look for a server that relays boxes of another run or"
            " attempt."
        ) from error
