"""Keys, streams, boxes and digests."""

import hmac
from collections.abc import Iterable
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Part = bytes | str | int
LABEL = b"flwr-dpkmeans secure aggregation"
NONCE_BYTES = 12
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


def digest(*parts: Part) -> bytes:
    return sha256(pack(parts)).digest()


def tag(key: bytes, *parts: Part) -> bytes:
    return hmac.digest(key, pack(parts), "sha256")


def derive(secret: bytes, purpose: str, *parts: Part) -> bytes:
    """A key for one purpose."""
    info = pack([LABEL, 2, purpose, *parts])
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)


def stream(key: bytes, index: int, attempt: int, length: int) -> np.ndarray:
    """The words that hide one vector."""
    nonce = index.to_bytes(8, "little", signed=True) + attempt.to_bytes(4, "little")
    ciphertext = AESGCM(key).encrypt(nonce, bytes(8 * length), None)
    return np.frombuffer(ciphertext, "<u8", length)


def public_key(private: bytes) -> bytes:
    pair = x25519.X25519PrivateKey.from_private_bytes(private)
    return pair.public_key().public_bytes_raw()


def pair_key(private: bytes, public: bytes, run: int, node: int, peer: int) -> bytes:
    """What two nodes share; ValueError for a public key of low order."""
    pair = x25519.X25519PrivateKey.from_private_bytes(private)
    secret = pair.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    return derive(secret, "pair", run, min(node, peer), max(node, peer))


def seal(key: bytes, content: bytes, context: bytes, nonce: bytes) -> bytes:
    cipher = AESGCM(derive(key, "box", context))
    return nonce + cipher.encrypt(nonce, content, context)


def unseal(key: bytes, box: bytes, context: bytes) -> bytes:
    """What is in a box; InvalidTag if it is not of this context."""
    cipher = AESGCM(derive(key, "box", context))
    return cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], context)


def hashed_order(roster_digest: bytes, nodes: Iterable[int]) -> list[int]:
    """Nodes in an order that nobody chooses."""
    ids = [node.to_bytes(8, "little") for node in nodes]
    ids.sort(key=lambda node: sha256(roster_digest + node).digest())
    return [int.from_bytes(node, "little") for node in ids]


def neighbours(order: list[int], node: int, max_silent: int) -> set[int]:
    """With whom a node masks."""
    if len(order) <= LARGEST_CLIQUE:
        return set(order) - {node}
    half = max_silent // 2 + 1
    first = order.index(node) - half
    circle = [order[index % len(order)] for index in range(first, first + 2 * half + 1)]
    return set(circle) - {node}
