"""Keys of a run: X25519 pairs, and what follows from a secret by HKDF-SHA256.

Every key is derived with an ``info`` that names the protocol version, its purpose and
everything that must be equal on both sides, each part with its length in front, so that
no two purposes can share a key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from flwr_dpkmeans.errors import ProtocolError

PROTOCOL_VERSION = 2
KEY_BYTES = 32
_PROTOCOL_LABEL = b"flwr-dpkmeans secure aggregation"
_NO_SALT = bytes(KEY_BYTES)
_FIRST_BLOCK = b"\x01"
_LENGTH_BYTES = 8
_INTEGER_BYTES = 16

Part = bytes | str | int
"""What a key, a tag or a signature can be bound to."""


def pack(*parts: Part) -> bytes:
    """Join parts unambiguously: the length of each, its type, then the part itself.

    A length is 8 bytes, little endian, and counts the byte of the type as well.
    """
    joined: list[bytes] = []
    for part in parts:
        if isinstance(part, int):
            kind = b"i"
            content = part.to_bytes(_INTEGER_BYTES, "little", signed=True)
        elif isinstance(part, str):
            kind = b"s"
            content = part.encode()
        else:
            kind = b"b"
            content = part
        length = 1 + len(content)
        joined.append(length.to_bytes(_LENGTH_BYTES, "little"))
        joined.append(kind)
        joined.append(content)
    return b"".join(joined)


def digest(*parts: Part) -> bytes:
    """Hash packed parts with SHA-256."""
    return hashlib.sha256(pack(*parts)).digest()


def keyed_tag(key: bytes, *parts: Part) -> bytes:
    """Authenticate packed parts with HMAC-SHA256."""
    return hmac.digest(key, pack(*parts), "sha256")


def derive_key(secret: bytes, purpose: str, *context: Part) -> bytes:
    """Derive a 32-byte key by HKDF-SHA256 (RFC 5869) for one purpose.

    Parameters
    ----------
    secret : bytes
        What only those that may have the key share.
    purpose : str
        What the key is used for; `client.md` and, for recovered sums, `protocol.md`
        list all purposes.
    *context : bytes, str or int
        What both sides must agree on, or else they come to different keys.
    """
    return _hkdf(secret, _key_info(PROTOCOL_VERSION, purpose, *context))


def _hkdf(secret: bytes, info: bytes) -> bytes:
    """Extract and expand (RFC 5869, sections 2.2 and 2.3): no salt, one block."""
    # Written out, as the library's objects take three times as long.
    pseudorandom_key = hmac.digest(_NO_SALT, secret, "sha256")
    return hmac.digest(pseudorandom_key, info + _FIRST_BLOCK, "sha256")


@lru_cache(maxsize=64)
def _key_info(version: int, purpose: str, *context: Part) -> bytes:
    """Pack what a key is bound to; none of it is secret, and many keys share it."""
    return pack(
        _PROTOCOL_LABEL,
        version,
        purpose,
        *context,
    )


# Parts are packed one by one, so that two packed nodes end to end are both packed.
_packed_node = lru_cache(maxsize=4096)(pack)


def piece(blob: bytes, index: int) -> bytes:
    """Return one of the 32-byte strings that stand end to end."""
    start = index * KEY_BYTES
    return blob[start : start + KEY_BYTES]


def generate_private_key() -> bytes:
    """Draw an X25519 private key from the operating system's entropy.

    It has 32 raw bytes (RFC 7748, section 6.1).
    """
    # Not from the library's generator, whose state a copy of the process would share.
    return os.urandom(KEY_BYTES)


def generate_group_key() -> bytes:
    """Draw a key author's 32-byte group key from the operating system's entropy."""
    return os.urandom(KEY_BYTES)


def public_key_of(private_key: bytes) -> bytes:
    """Return the 32-byte X25519 public key that belongs to a private one."""
    return _parse_private(private_key).public_key().public_bytes_raw()


# For one client's message, as parsing its key costs as much as an agreement. It holds a
# secret until `forget`.
_parse_private = lru_cache(maxsize=1)(X25519PrivateKey.from_private_bytes)
# For virtual clients on a circle, whose neighbours have nearly the same neighbours.
_parse_public = lru_cache(maxsize=64)(X25519PublicKey.from_public_bytes)


def forget() -> None:
    """Leave no private key in this process that a client no longer has."""
    _parse_private.cache_clear()


def agree_pair_keys(
    private_key: bytes,
    public_keys: Mapping[int, bytes],
    run_id: int,
    own_id: int,
) -> dict[int, bytes]:
    """Agree with peers on the keys from which all pairwise keys of a run are derived.

    Run and node ids are bound into them; the order of two nodes does not matter.

    Parameters
    ----------
    private_key : bytes
        X25519 private key of this node.
    public_keys : mapping of int to bytes
        X25519 public keys of the peers, by node id.
    run_id, own_id : int
        The run, and this node's id in it.

    Returns
    -------
    dict of int to bytes
        32 bytes for each peer, by node id.

    Raises
    ------
    ProtocolError
        If a peer's public key gives a secret that everybody knows.
    """
    private = _parse_private(private_key)
    info = _key_info(PROTOCOL_VERSION, "pair", run_id)
    pair_keys: dict[int, bytes] = {}
    for peer, public_key in public_keys.items():
        try:
            shared_secret = private.exchange(_parse_public(public_key))
        except ValueError as error:
            # Against points of low order (RFC 7748 section 6.1), whose shared secret
            # everybody knows.
            raise ProtocolError(
                f"the public key announced for node {peer} is not a usable X25519 key:"
                " have that node start again."
            ) from error
        both_nodes = _packed_node(min(own_id, peer)) + _packed_node(max(own_id, peer))
        pair_keys[peer] = _hkdf(shared_secret, info + both_nodes)
    return pair_keys
