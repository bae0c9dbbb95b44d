"""Keys, streams, boxes and tags."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Part = bytes | str | int
LABEL = b"flwr-dpkmeans secure aggregation"
NONCE_BYTES, GCM_TAG_BYTES = 12, 16
LARGEST_CLIQUE = 32


def pack(parts: Iterable[Part]) -> bytes:
    """Parts, each behind its length and type."""
    packed = b""
    for part in parts:
        if isinstance(part, bytes):
            content = b"b" + part
        elif isinstance(part, str):
            content = b"s" + part.encode()
        else:
            content = b"i" + part.to_bytes(16, "little", signed=True)
        packed += len(content).to_bytes(8, "little") + content
    return packed


def sha256(content: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(content).digest()


def digest(*parts: Part) -> bytes:
    """SHA-256 of packed parts."""
    return sha256(pack(parts))


def tag(key: bytes, *parts: Part) -> bytes:
    """HMAC of packed parts."""
    return hmac.digest(key, pack(parts), "sha256")


def derive(secret: bytes, purpose: str, *parts: Part) -> bytes:
    """A key for one purpose."""
    info = pack((LABEL, 2, purpose, *parts))
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)


def stream(key: bytes, index: int, attempt: int, length: int) -> np.ndarray:
    """The words that hide one vector."""
    nonce = index.to_bytes(8, "little", signed=True) + attempt.to_bytes(4, "little")
    ciphertext = AESGCM(key).encrypt(nonce, bytes(8 * length), None)
    return np.frombuffer(ciphertext[:-GCM_TAG_BYTES], dtype="<u8")


def public_key(private: bytes) -> bytes:
    """The public half of a pair."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pair_key(private: bytes, public: bytes, run: int, node: int, peer: int) -> bytes:
    """What two nodes share; ValueError for a key of low order."""
    theirs = X25519PublicKey.from_public_bytes(public)
    secret = X25519PrivateKey.from_private_bytes(private).exchange(theirs)
    return derive(secret, "pair", run, min(node, peer), max(node, peer))


def seal(key: bytes, content: bytes, context: bytes, nonce: bytes) -> bytes:
    """A box."""
    cipher = AESGCM(derive(key, "box", context))
    return nonce + cipher.encrypt(nonce, content, context)


def unseal(key: bytes, box: bytes, context: bytes) -> bytes:
    """What is in a box; ValueError or InvalidTag if it is not for this context."""
    cipher = AESGCM(derive(key, "box", context))
    return cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], context)


def hashed_order(roster_digest: bytes, nodes: Iterable[int]) -> list[int]:
    """Nodes in an order that nobody chooses."""

    def rank(node: int) -> bytes:
        return sha256(roster_digest + node.to_bytes(8, "little"))

    return sorted(nodes, key=rank)


def neighbours(order: list[int], node: int, max_silent: int) -> set[int]:
    """With whom a node masks."""
    half = max_silent // 2 + 1
    position = order.index(node)
    offsets = range(-half, half + 1)
    if len(order) <= LARGEST_CLIQUE:
        offsets = range(len(order))
    return {order[(position + offset) % len(order)] for offset in offsets} - {node}
