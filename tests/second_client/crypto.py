"""Keys, streams, boxes and tags, as the page's "Keys and masks" has them."""

from __future__ import annotations

import hashlib
import hmac
import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from second_client.wire import Members, Refusal

PROTOCOL = 2
LABEL = b"flwr-dpkmeans secure aggregation"
NONCE_BYTES = 12
Part = bytes | str | int


def pack(*parts: Part) -> bytes:
    """Parts, each after its length and the letter of its kind."""
    packed = b""
    for part in parts:
        if isinstance(part, int):
            content = b"i" + part.to_bytes(16, "little", signed=True)
        elif isinstance(part, str):
            content = b"s" + part.encode()
        else:
            content = b"b" + part
        packed += len(content).to_bytes(8, "little") + content
    return packed


def digest(*parts: Part) -> bytes:
    """SHA-256 of packed parts."""
    return hashlib.sha256(pack(*parts)).digest()


def tag(key: bytes, *parts: Part) -> bytes:
    """HMAC-SHA256 of packed parts."""
    return hmac.digest(key, pack(*parts), "sha256")


def derive(secret: bytes, purpose: str, *context: Part) -> bytes:
    """HKDF-SHA256 without salt, one block."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    info = pack(LABEL, PROTOCOL, purpose, *context)
    return hmac.digest(extracted, info + b"\x01", "sha256")


def public_key(private: bytes) -> bytes:
    """The X25519 public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pair_key(private: bytes, peer_key: bytes, run: int, own: int, peer: int) -> bytes:
    """The root of what two nodes share in a run."""
    try:
        peer_public = X25519PublicKey.from_public_bytes(peer_key)
        secret = X25519PrivateKey.from_private_bytes(private).exchange(peer_public)
    except ValueError as error:
        raise Refusal(f"node {peer}'s key is of low order.") from error
    return derive(secret, "pair", run, min(own, peer), max(own, peer))


def stream(key: bytes, round_index: int, attempt: int, length: int) -> np.ndarray:
    """Words that hide one vector."""
    nonce = struct.pack("<qI", round_index, attempt)
    sealed = AESGCM(key).encrypt(nonce, bytes(8 * length), None)
    return np.frombuffer(sealed[: 8 * length], dtype="<u8")


def seal(key: bytes, secret: bytes, context: bytes, nonce: bytes) -> bytes:
    """A box: nonce, ciphertext and its tag."""
    box_key = derive(key, "box", context)
    return nonce + AESGCM(box_key).encrypt(nonce, secret, context)


def unseal(key: bytes, box: bytes, context: bytes) -> bytes:
    """The 32 bytes in a box."""
    box_key = derive(key, "box", context)
    nonce, sealed = box[:NONCE_BYTES], box[NONCE_BYTES:]
    try:
        secret = AESGCM(box_key).decrypt(nonce, sealed, context)
    except (InvalidTag, ValueError) as error:
        raise Refusal("a box does not open.") from error
    if len(secret) != 32:
        raise Refusal("a box holds no key.")
    return secret


def roster_digest(attempt: int, members: Members) -> bytes:
    """What everybody in an attempt must agree on."""
    entries = [node.to_bytes(8, "little") + key for node, key in members.items()]
    return digest("roster", attempt, b"".join(entries))


def hashed_order(of_roster: bytes, members: Members) -> list[int]:
    """Nodes in an order that nobody chose."""

    def hashed(node: int) -> bytes:
        return hashlib.sha256(of_roster + node.to_bytes(8, "little")).digest()

    return sorted(members, key=hashed)


def neighbours(order: list[int], node: int, max_silent: int) -> list[int]:
    """With whom a node masks."""
    size = len(order)
    half = (max_silent + 2) // 2
    if size <= 32 or 2 * half >= size - 1:
        return sorted(set(order) - {node})
    index = order.index(node)
    distances = [*range(-half, 0), *range(1, half + 1)]
    return sorted({order[(index + distance) % size] for distance in distances})
