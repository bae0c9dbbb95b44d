"""Long-term identities: Ed25519 signatures (RFC 8032) by which a client knows whose key it masks with.

Each run's X25519 keys are fresh and reach the other clients through the server, which could put its own in their place.
A party that has an identity signs its key, and a client that has pinned the parties' identities answers no roster with
a key that none of them signed. A signature covers ``pack("flwr-dpkmeans identity", version, purpose, ...)``:

=============  ===================================================================  ===============================
purpose        then                                                                 says
=============  ===================================================================  ===============================
``keys``       run id, node id, digest of the agreed plan, X25519 public key        this is my key for the run
``survivors``  run id, node id, round, attempt, digest of the survivors             I was told of these survivors
=============  ===================================================================  ===============================
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.secagg.keys import PROTOCOL_VERSION, pack

IDENTITY_BYTES = 32
"""Length of an Ed25519 public key."""
SIGNATURE_BYTES = 64
_LABEL = "flwr-dpkmeans identity"
_DIGITS = 2 * IDENTITY_BYTES


@dataclass(frozen=True)
class Signer:
    """A party's long-term key pair.

    Examples
    --------
    >>> identity = Signer.generate()
    >>> signature = identity.sign_keys(1, 2, bytes(32), b"k" * 32)
    >>> verify_keys(identity.public_key, signature, 1, 2, bytes(32), b"k" * 32)
    True
    >>> verify_keys(identity.public_key, signature, 1, 3, bytes(32), b"k" * 32)
    False
    """

    private_key: bytes = field(repr=False)
    """Ed25519 private key (the seed of RFC 8032). It is not part of the ``repr``."""

    @classmethod
    def generate(cls) -> Self:
        """Draw a key pair from the operating system's entropy."""
        return cls(os.urandom(IDENTITY_BYTES))

    @property
    def public_key(self) -> bytes:
        """The Ed25519 public key, 32 bytes: what others pin."""
        return Ed25519PrivateKey.from_private_bytes(self.private_key).public_key().public_bytes_raw()

    def sign_keys(self, run_id: int, node_id: int, plan_digest: bytes, public_key: bytes) -> bytes:
        """Sign the X25519 key under which a node takes part in one run with one plan."""
        return self._sign(_keys_content(run_id, node_id, plan_digest, public_key))

    def sign_survivors(
        self, run_id: int, node_id: int, round_index: int, attempt: int, survivors_digest: bytes
    ) -> bytes:
        """Sign the set of survivors that a node was told of, for one round and attempt; see `sign_keys`."""
        return self._sign(_survivors_content(run_id, node_id, round_index, attempt, survivors_digest))

    def _sign(self, content: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private_key).sign(content)


def verify_keys(
    identity: bytes, signature: bytes, run_id: int, node_id: int, plan_digest: bytes, public_key: bytes
) -> bool:
    """Whether `Signer.sign_keys` of the given identity (its public key) made the signature."""
    return _verify(identity, signature, _keys_content(run_id, node_id, plan_digest, public_key))


def verify_survivors(
    identity: bytes,
    signature: bytes,
    run_id: int,
    node_id: int,
    round_index: int,
    attempt: int,
    survivors_digest: bytes,
) -> bool:
    """Whether `Signer.sign_survivors` of the given identity (its public key) made the signature."""
    return _verify(identity, signature, _survivors_content(run_id, node_id, round_index, attempt, survivors_digest))


def format_identity(public_key: bytes) -> str:
    """Write a public key as policies hold it: 64 hexadecimal digits.

    Examples
    --------
    >>> parse_identity(format_identity(bytes(32))) == bytes(32)
    True
    """
    return public_key.hex()


def parse_identity(text: str) -> bytes:
    """Undo `format_identity`; anything but 64 hexadecimal digits is a `ConfigurationError`."""
    try:
        key = bytes.fromhex(text) if len(text) == _DIGITS else b""
    except ValueError:
        key = b""
    if len(key) != IDENTITY_BYTES:
        raise ConfigurationError(
            f"an identity's public key is {text[:_DIGITS]!r}, but it must have {_DIGITS} hexadecimal digits: copy what "
            "'python -m flwr_dpkmeans identity show PATH' prints."
        )
    return key


def _keys_content(run_id: int, node_id: int, plan_digest: bytes, public_key: bytes) -> bytes:
    """What a signature of a key covers."""
    return pack(_LABEL, PROTOCOL_VERSION, "keys", run_id, node_id, plan_digest, public_key)


def _survivors_content(run_id: int, node_id: int, round_index: int, attempt: int, survivors_digest: bytes) -> bytes:
    """What a signature of a set of survivors covers."""
    return pack(_LABEL, PROTOCOL_VERSION, "survivors", run_id, node_id, round_index, attempt, survivors_digest)


def _verify(identity: bytes, signature: bytes, content: bytes) -> bool:
    """Whether a signature holds; malformed keys and signatures do not."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
