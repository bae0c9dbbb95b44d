"""Numbers and keys: fixed point in the ring Z_2^64, and the streams that hide it.

X25519, HKDF-SHA256, and AES-256-GCM for streams and boxes. Every key is derived with an
``info`` that names the protocol version, its purpose and everything that must be equal
on both sides, each part with its length in front, so that no two purposes can share a
key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError, ProtocolError

FRACTION_BITS = 16
"""Fractional bits of every number on the wire."""

HALF_RING = 2**63
"""Sums must stay below this magnitude, or they wrap around."""

Ring = NDArray[np.uint64]


@dataclass(frozen=True)
class FixedPointVector:
    """One client's clipped statistic on the grid.

    Readable, so it never leaves the client in this type.
    """

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class MaskedVector:
    """One client's vector under its masks: uniform to everybody who lacks one of its
    keys.
    """

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class AggregateVector:
    """The sum of all masked vectors of one attempt.

    Still blinded if key authors added their streams.
    """

    values: Ring = field(repr=False)
    blinded: bool


def encode(
    values: NDArray[np.float64], fraction_bits: int = FRACTION_BITS
) -> FixedPointVector:
    """Put grid values into the ring, exactly."""
    scaled = np.ravel(values) * float(2**fraction_bits)
    integers = np.rint(scaled)
    if not (np.abs(scaled) <= 2.0**53).all():
        raise LocalMisuseError(
            f"a statistic has an entry outside +-2^{53 - fraction_bits} (or not"
            " finite), which float64 cannot hold exactly on the grid: use fewer rows"
            " per client."
        )
    if not (integers == scaled).all():
        raise LocalMisuseError(
            f"a statistic has entries between two grid points of 2^-{fraction_bits}:"
            " round each row's contribution toward zero on the grid before summing."
        )
    return FixedPointVector(integers.astype(np.int64).view(np.uint64))


def require_no_wrap(
    largest_sum: float,
    noise_scale: float,
    name: str,
    fraction_bits: int = FRACTION_BITS,
) -> None:
    """Refuse a round whose sum plus 91 deviations of noise could leave the ring, by a
    `PlanError`: noise that no source draws (of which 128 Laplace scales, 91 deviations,
    leave it) must be refused before anybody is charged.
    """
    reach = (largest_sum + 91.0 * noise_scale) * float(2**fraction_bits)
    if not reach < HALF_RING:
        raise PlanError(
            f"the sum {name!r} could reach {reach:.3g} grid steps, but the ring wraps"
            f" at {HALF_RING:.3g}: use fewer clients, fewer rows per client or a larger"
            " epsilon."
        )


PROTOCOL_VERSION = 2
KEY_BYTES = 32
_PROTOCOL_LABEL = b"flwr-dpkmeans secure aggregation"
_NONCE_BYTES = 12
_NO_SALT = bytes(KEY_BYTES)
_WHICH = struct.Struct("<qI")
_WORDS = np.dtype("<u8")
_INTEGER = (17).to_bytes(8, "little") + b"i"


def pack(*parts: bytes | str | int) -> bytes:
    """Join parts unambiguously: each one's length (8 bytes, little endian), then the
    part itself.
    """
    joined: list[bytes] = []
    for part in parts:
        if isinstance(part, int):
            joined += (_INTEGER, part.to_bytes(16, "little", signed=True))
            continue
        kind, content = (
            (b"b", part) if isinstance(part, bytes) else (b"s", part.encode())
        )
        joined += ((len(content) + 1).to_bytes(8, "little"), kind, content)
    return b"".join(joined)


def derive_key(secret: bytes, purpose: str, *context: bytes | str | int) -> bytes:
    """Derive a 32-byte key by HKDF-SHA256 (RFC 5869) for one purpose, in one context
    that both sides must agree on.
    """
    return _expanded(secret, _key_info(PROTOCOL_VERSION, purpose, *context))


def _expanded(secret: bytes, info: bytes) -> bytes:
    # Written out, as the library's objects take three times as long: no salt means
    # zeros, and one block is enough.
    return hmac.digest(
        hmac.digest(_NO_SALT, secret, "sha256"), info + b"\x01", "sha256"
    )


@lru_cache(maxsize=64)
def _key_info(version: int, purpose: str, *context: bytes | str | int) -> bytes:
    """What a key is bound to; nothing of it is secret, and many keys have the same."""
    return pack(_PROTOCOL_LABEL, version, purpose, *context)


def generate_private_key() -> bytes:
    """Draw an X25519 private key from the operating system's entropy (32 raw bytes, RFC
    7748 section 6.1).
    """
    # Not from the library's generator, whose state a copy of the process would share.
    return os.urandom(KEY_BYTES)


def public_key_of(private_key: bytes) -> bytes:
    """Return the 32-byte X25519 public key that belongs to `private_key`."""
    return _parsed(private_key).public_key().public_bytes_raw()


# Kept while one client's message is handled, as parsing costs as much as an agreement.
_parsed = lru_cache(maxsize=1)(X25519PrivateKey.from_private_bytes)
# For virtual clients on a circle, whose neighbours have nearly the same neighbours.
_parsed_public = lru_cache(maxsize=64)(X25519PublicKey.from_public_bytes)


def generate_group_key() -> bytes:
    """Draw a key author's 32-byte group key from the operating system's entropy."""
    return os.urandom(KEY_BYTES)


def agree_pair_keys(
    private_key: bytes, public_keys: Mapping[int, bytes], run_id: int, own_id: int
) -> dict[int, bytes]:
    """Agree with peers, by node id, on the keys from which all pairwise keys of a run
    are derived.

    Run and node ids are bound into them; the order of two nodes does not matter.
    """
    own = _parsed(private_key)
    agreed, bound = {}, _key_info(PROTOCOL_VERSION, "pair", run_id)
    for peer, public_key in public_keys.items():
        try:
            shared = own.exchange(_parsed_public(public_key))
        except ValueError as error:
            # Against points of low order (RFC 7748 section 6.1), whose shared secret
            # everybody knows.
            raise ProtocolError(
                f"the public key announced for node {peer} is not a usable X25519 key:"
                " have that node start again."
            ) from error
        agreed[peer] = _expanded(
            shared, bound + pack(min(own_id, peer), max(own_id, peer))
        )
    return agreed


def stream(key: bytes, asked: tuple[int, int], length: int) -> Ring:
    """Expand a key into the little-endian 64-bit words that hide one vector, that of
    (round, attempt), and no other.

    AES-256-GCM of zeros without its tag, so counter mode: block i encrypts the nonce,
    which is `asked`, and i + 2.
    """
    # In one call, as the library's objects for counter mode take three times as long.
    sealed = AESGCM(key).encrypt(_WHICH.pack(*asked), bytes(8 * length), None)
    return np.frombuffer(sealed, dtype=_WORDS, count=length)


def mask(
    secret: bytes,
    asked: tuple[int, int],
    length: int,
    purpose: str,
    *context: bytes | str | int,
) -> Ring:
    """The stream of the key that `derive_key` gives.

    Hides one vector, that of (round, attempt).
    """
    return stream(derive_key(secret, purpose, *context), asked, length)


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Encrypt and authenticate with AES-256-GCM under a random nonce (12 bytes, in
    front).
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated)


def unseal(key: bytes, box: bytes, associated: bytes) -> bytes:
    """Open a box made by `seal`.

    a box that was changed, or made for another context, is a `ProtocolError`.
    """
    try:
        return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        # Against a server that writes boxes itself, or relays those of another run,
        # attempt or recipient.
        raise ProtocolError(
            "a sealed group key does not open under the key agreed with its author:"
            " stop the run and look for a server that relays boxes of another run or"
            " attempt."
        ) from error


def keyed_tag(key: bytes, *parts: bytes | str | int) -> bytes:
    """HMAC-SHA256 of the packed parts."""
    return hmac.digest(key, pack(*parts), "sha256")


def digest(*parts: bytes | str | int) -> bytes:
    """SHA-256 of the packed parts."""
    return hashlib.sha256(pack(*parts)).digest()
