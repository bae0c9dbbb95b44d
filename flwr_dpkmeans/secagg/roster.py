"""Who takes part in one attempt, who masks with whom, who authors the group keys, and
who these parties are.

All but the last are functions of the roster alone, so that every party computes them by
itself; the roster's digest is bound into every mask key, so that parties with different
rosters produce noise instead of a readable sum.

Long-term identities are Ed25519 signatures (RFC 8032) by which a client knows whose key
it masks with, since the keys of a run reach it through the server, which could put its
own in their place; ``README.md`` beside this file says what is signed and what is held
against it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, PROTOCOL_VERSION, digest, pack

ALL_PAIRS_UP_TO = 32
"""Cohorts up to this size mask all pairs; larger ones along a sparse graph."""


@dataclass(frozen=True)
class Roster:
    """The clients of one attempt."""

    attempt: int
    """0 for the first attempt of a run, one more after each dropout."""
    members: tuple[tuple[int, bytes], ...]
    """In ascending order of node id, without repetition."""

    def __post_init__(self) -> None:
        ids = [node_id for node_id, _ in self.members]
        if len(ids) < 2:
            raise ProtocolError(
                f"a roster has {len(ids)} member(s), but masks need at least 2: start"
                " more clients."
            )
        if any(a >= b for a, b in pairwise(ids)) or self.attempt < 0:
            # Against one client that counts twice, or one set of clients with two
            # digests.
            raise ProtocolError(
                "a roster lists its nodes out of order or twice: stop the run and check"
                " the server."
            )
        if not 0 <= ids[0] <= ids[-1] < 2**64:
            raise ProtocolError(
                "a roster has a node id outside 0 to 2^64 - 1: stop the run and check"
                " the server."
            )
        if any(len(key) != KEY_BYTES for _, key in self.members):
            raise ProtocolError(
                f"a roster has a public key that is not {KEY_BYTES} bytes long: check"
                " the server."
            )
        if len({key for _, key in self.members}) != len(ids):
            # Against a server whose key stands for several clients: it would know all
            # masks between them.
            raise ProtocolError(
                "a roster announces one public key for two nodes: stop the run and"
                " check the server."
            )

    @classmethod
    def of(cls, attempt: int, keys: dict[int, bytes]) -> Roster:
        """Build a roster from a mapping of node id to public key."""
        return cls(attempt, tuple(sorted(keys.items())))

    def without(self, attempt: int, missing: Iterable[int]) -> Roster:
        """Return the roster of a later attempt, without the `missing` nodes."""
        gone = set(missing)
        return Roster(
            attempt, tuple(member for member in self.members if member[0] not in gone)
        )

    @cached_property
    def keys(self) -> dict[int, bytes]:
        return dict(self.members)

    @cached_property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(node_id for node_id, _ in self.members)

    @cached_property
    def packed(self) -> bytes:
        """Node ids (8 bytes, little endian) and public keys (32 bytes) end to end."""
        return b"".join(
            [node_id.to_bytes(8, "little") + key for node_id, key in self.members]
        )

    @cached_property
    def digest(self) -> bytes:
        return digest("roster", self.attempt, self.packed)

    @cached_property
    def hashed_order(self) -> tuple[int, ...]:
        """Node ids in an order that nobody chose.

        By SHA-256 of the roster's digest and the node id.
        """
        return _hashed_order(self.digest, self.node_ids)

    def authors(self, max_silent: int) -> tuple[int, ...]:
        """The key authors: the first ``max(2, max_silent + 2)`` nodes of the hashed
        order.
        """
        return self.hashed_order[: max(2, max_silent + 2)]

    def neighbours(self, node_id: int, max_silent: int) -> tuple[int, ...]:
        """The nodes with which `node_id` shares masks."""
        return self.circle(node_id, mask_degree(len(self.members), max_silent))

    def circle(self, node_id: int, degree: int) -> tuple[int, ...]:
        """The `degree` (even) nearest nodes on the hashed circle, in ascending order,
        or everybody else.
        """
        size = len(self.members)
        if degree >= size - 1:
            return tuple([other for other in self.node_ids if other != node_id])
        position, order = self._positions[node_id], self.hashed_order
        near = (
            step
            for distance in range(1, degree // 2 + 1)
            for step in (distance, -distance)
        )
        return tuple(sorted(order[(position + step) % size] for step in near))

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {node_id: place for place, node_id in enumerate(self.hashed_order)}


def mask_degree(n_clients: int, max_silent: int) -> int:
    """With how many others a client shares masks, where there are so many.

    Up to `ALL_PAIRS_UP_TO` members: everybody. Above: those in a Harary graph of
    connectivity above `max_silent` (Harary 1962), which stays in one part without so
    many nodes, so that no part of the others' sum can be read.
    """
    return n_clients - 1 if n_clients <= ALL_PAIRS_UP_TO else (max_silent + 2) // 2 * 2


@lru_cache(maxsize=8)
def _hashed_order(roster_digest: bytes, node_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Order of a roster.

    Kept for the few rosters in use, since all clients of one process need the same.
    """
    return tuple(
        sorted(
            node_ids,
            key=lambda i: hashlib.sha256(
                roster_digest + i.to_bytes(8, "little")
            ).digest(),
        )
    )


@lru_cache(maxsize=8)
def transcript_of(plan_digest: bytes, roster_digest: bytes) -> bytes:
    """Digest of what all parties that mask with each other must agree on.

    The plan and the roster.
    """
    return digest("transcript", plan_digest, roster_digest)


IDENTITY_BYTES = 32
SIGNATURE_BYTES = 64
MOST_FINGERPRINTS = 100
"""Largest cohort whose members are listed one by one."""
_LABEL = "flwr-dpkmeans identity"
_SHOWN_DIGITS = 16


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
    def public_key(self) -> bytes:
        """The Ed25519 public key, 32 bytes: what others pin."""
        return (
            Ed25519PrivateKey.from_private_bytes(self.private_key)
            .public_key()
            .public_bytes_raw()
        )

    def sign_keys(
        self, run_id: int, node_id: int, plan_digest: bytes, public_key: bytes
    ) -> bytes:
        """Sign the X25519 key under which a node takes part in one run with one plan."""
        return self._sign("keys", run_id, node_id, plan_digest, public_key)

    def sign_survivors(
        self,
        run_id: int,
        node_id: int,
        round_index: int,
        attempt: int,
        survivors: bytes,
    ) -> bytes:
        """Sign the digest of the survivors that a node was told of, for one round and
        attempt.
        """
        return self._sign("survivors", run_id, node_id, round_index, attempt, survivors)

    def _sign(self, purpose: str, *content: bytes | int) -> bytes:
        signed = pack(_LABEL, PROTOCOL_VERSION, purpose, *content)
        return Ed25519PrivateKey.from_private_bytes(self.private_key).sign(signed)


def verify(
    identity: bytes, signature: bytes, purpose: str, *content: bytes | int
) -> bool:
    """Whether an identity (its public key) signed this for a purpose.

    Malformed keys and signatures do not hold.

    Purposes, and what is signed for each, are those of `Signer.sign_keys` and
    `Signer.sign_survivors`.
    """
    try:
        signed = pack(_LABEL, PROTOCOL_VERSION, purpose, *content)
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Credential:
    """What a node says of its key: who it is, which plan it agreed to, and its
    signature (`Signer.sign_keys`).
    """

    identity: bytes
    plan_digest: bytes
    """As signed, or as the server claims: it only serves to tell a signature for
    another plan from a wrong one.
    """
    signature: bytes

    def __post_init__(self) -> None:
        lengths = (len(self.identity), len(self.plan_digest), len(self.signature))
        if lengths != (IDENTITY_BYTES, KEY_BYTES, SIGNATURE_BYTES):
            raise ProtocolError(
                f"an identity, plan digest and signature have {lengths[0]},"
                f" {lengths[1]} and {lengths[2]} bytes instead of {IDENTITY_BYTES},"
                f" {KEY_BYTES} and {SIGNATURE_BYTES}: use the same version of"
                " flwr-dpkmeans everywhere."
            )


def require_pinned(
    roster: Roster,
    credentials: Mapping[int, Credential],
    *,
    run_id: int,
    node_id: int,
    plan_digest: bytes,
    own_identity: bytes,
    pinned: Mapping[bytes, str],
) -> int:
    """Accept a roster only if every other member's key is signed by a pinned identity
    of its own; return how many.

    `plan_digest` is of the plan that this client agreed to; nobody else may use
    `own_identity`, pinned or not; `pinned` are public keys with names for the
    sentences. The `IdentityError` names the first node that is not as it should be.
    """
    holders = {own_identity: node_id}
    for node, key in roster.members:
        if node == node_id:
            continue
        credential = credentials.get(node)
        if credential is None:
            # Against clients that the server invents.
            raise IdentityError(
                f"node {node} signed nothing, but this client's policy pins identities:"
                " give that node an 'identity' and pin it, or leave the node out."
            )
        if credential.identity not in pinned and credential.identity != own_identity:
            raise IdentityError(
                f"node {node} has the identity {name_of(credential.identity)}, which"
                " this client's policy does not pin: ask its owner for the key on"
                " another way than through the server before you pin it."
            )
        _require_signed(node, key, credential, run_id, plan_digest, pinned)
        if credential.identity in holders:
            # Against one party that stands for several, and so alone around a victim.
            who = name_of(credential.identity, pinned)
            raise IdentityError(
                f"nodes {holders[credential.identity]} and {node} both have the"
                f" identity {who}: a party takes part once, so give each node an"
                " identity of its own and look for a server that invents clients."
            )
        holders[credential.identity] = node
    return len(holders) - 1


def fingerprints(
    roster: Roster, credentials: Mapping[int, Credential]
) -> tuple[str, ...]:
    """Each member's node id with the first digits of its identity, or else of its key
    in this run.

    Identities are as announced: that they were recognised is said elsewhere. A large
    cohort has one fingerprint.
    """
    if len(roster.members) > MOST_FINGERPRINTS:
        return (
            (
                f"{len(roster.members)} nodes, roster"
                f" {roster.digest.hex()[:_SHOWN_DIGITS]}"
            ),
        )
    shown = []
    for node, key in roster.members:
        found = credentials.get(node)
        kind, known = ("key", key) if found is None else ("identity", found.identity)
        shown.append(f"{node} {kind} {known.hex()[:_SHOWN_DIGITS]}")
    return tuple(shown)


def pin_mark(identity: bytes, run_id: int) -> bytes:
    """What a client tells the server of an identity that it pins.

    a hash, another one in every run.
    """
    return hashlib.sha256(
        b"flwr-dpkmeans pin" + run_id.to_bytes(8, "little") + identity
    ).digest()


def require_known_peers(
    credentials: Mapping[int, Credential | None],
    marks: Mapping[int, Collection[bytes]],
    run_id: int,
) -> None:
    """Refuse a cohort in which a client would refuse a peer.

    For the server, before anybody is asked for a sum.

    This spares budgets where a pin or an identity is missing. It protects nobody from
    the server: each client holds the roster against its own pins as well
    (`require_pinned`).
    """
    own = {
        node: pin_mark(found.identity, run_id)
        for node, found in credentials.items()
        if found is not None
    }
    for node, known in marks.items():
        for peer, found in credentials.items():
            if peer == node or own.get(peer) in known:
                continue
            lack = (
                "signed nothing"
                if found is None
                else f"has the identity {name_of(found.identity)}, not one of them"
            )
            raise IdentityError(
                f"node {node} takes part with pinned identities only, but node {peer}"
                f" {lack}: have node {node} pin node {peer}'s identity, or leave one of"
                " them out; nothing has been released or charged."
            )


def name_of(identity: bytes, pinned: Mapping[bytes, str] | None = None) -> str:
    """The pinned name of an identity, or the first 12 digits of its public key."""
    return (pinned or {}).get(identity) or f"{identity.hex()[:12]}..."


def _require_signed(
    node: int,
    key: bytes,
    credential: Credential,
    run_id: int,
    plan_digest: bytes,
    pinned: Mapping[bytes, str],
) -> None:
    """Hold one member's signature against what this client knows itself."""
    who = name_of(credential.identity, pinned)
    # Against keys of the server's own in the place of a member's, or a signature from
    # elsewhere.
    if not verify(
        credential.identity,
        credential.signature,
        "keys",
        run_id,
        node,
        credential.plan_digest,
        key,
    ):
        raise IdentityError(
            f"node {node} ({who}) did not sign the public key that the server announces"
            f" for it in run {run_id}: the key was exchanged, or the signature is of"
            " another run, node or plan; stop the run and check the server."
        )
    # Against different plans for different clients.
    if credential.plan_digest != plan_digest:
        raise IdentityError(
            f"node {node} ({who}) agreed to another plan"
            f" ({credential.plan_digest.hex()[:12]}...) than this client"
            f" ({plan_digest.hex()[:12]}...): the server shows clients different plans;"
            " stop the run and check the server."
        )
