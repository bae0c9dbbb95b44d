"""Who signed which key: long-term identities by Ed25519 signatures (RFC 8032).

The keys of a run reach a client through the server, which could put its own in their
place; signatures say whose they are. ``protocol.md`` says what is signed
and what is held against it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, PROTOCOL_VERSION, pack

IDENTITY_BYTES = 32
SIGNATURE_BYTES = 64
_LABEL = "flwr-dpkmeans identity"


@dataclass(frozen=True)
class Signer:
    """A party's long-term key pair."""

    private_key: bytes = field(repr=False)
    """Ed25519 private key (the seed of RFC 8032). It is not part of the ``repr``."""

    @classmethod
    def generate(cls) -> Self:
        """Draw a key pair from the operating system's entropy."""
        return cls(os.urandom(IDENTITY_BYTES))

    @property
    def _pair(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.private_key)

    @property
    def public_key(self) -> bytes:
        """The Ed25519 public key, 32 bytes: what others pin."""
        return self._pair.public_key().public_bytes_raw()

    def sign_keys(
        self,
        run_id: int,
        node_id: int,
        plan_digest: bytes,
        public_key: bytes,
    ) -> bytes:
        """Sign the X25519 key of a node in one run with one plan."""
        return self._sign(
            "keys",
            run_id,
            node_id,
            plan_digest,
            public_key,
        )

    def sign_survivors(
        self,
        run_id: int,
        node_id: int,
        round_index: int,
        attempt: int,
        survivors: bytes,
    ) -> bytes:
        """Sign the digest of the survivors that a node was told of, in one attempt."""
        return self._sign(
            "survivors",
            run_id,
            node_id,
            round_index,
            attempt,
            survivors,
        )

    def _sign(self, purpose: str, *content: bytes | int) -> bytes:
        return self._pair.sign(_signed_bytes(purpose, *content))


def verify(
    identity: bytes, signature: bytes, purpose: str, *content: bytes | int
) -> bool:
    """Tell whether an identity (its public key) signed this for a purpose.

    Malformed keys and signatures do not hold. Purposes, and what is signed for each,
    are those of `Signer.sign_keys` and `Signer.sign_survivors`.
    """
    signed = _signed_bytes(purpose, *content)
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed_bytes(purpose: str, *content: bytes | int) -> bytes:
    # Label and purpose in front, so that no signature serves for anything else.
    return pack(
        _LABEL,
        PROTOCOL_VERSION,
        purpose,
        *content,
    )


@dataclass(frozen=True)
class Credential:
    """What a node states of its key: who it is, which plan it agreed to, signed."""

    identity: bytes
    """Ed25519 public key."""
    plan_digest: bytes
    """As signed, or as the server claims: it only serves to tell a signature for
    another plan from a wrong one.
    """
    signature: bytes
    """See `Signer.sign_keys`."""

    def __post_init__(self) -> None:
        """Refuse parts of other lengths, by a `ProtocolError`."""
        n_identity = len(self.identity)
        n_digest = len(self.plan_digest)
        n_signature = len(self.signature)
        lengths = (n_identity, n_digest, n_signature)
        if lengths != (IDENTITY_BYTES, KEY_BYTES, SIGNATURE_BYTES):
            raise ProtocolError(
                f"an identity, plan digest and signature have {n_identity},"
                f" {n_digest} and {n_signature} bytes instead of {IDENTITY_BYTES},"
                f" {KEY_BYTES} and {SIGNATURE_BYTES}: use the same version of"
                " flwr-dpkmeans everywhere."
            )
