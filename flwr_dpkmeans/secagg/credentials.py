"""What a node says of its key, and how a client that has pinned the parties' identities holds a roster against it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.signing import IDENTITY_BYTES, SIGNATURE_BYTES, verify_keys

MOST_FINGERPRINTS = 100
"""Largest cohort whose members are listed one by one."""
_DIGITS = 16


@dataclass(frozen=True)
class Credential:
    """What a node says of its key: who it is, which plan it agreed to, and its signature (`Signer.sign_keys`).

    Raises `ProtocolError` if a length is wrong.
    """

    identity: bytes
    """Ed25519 public key."""
    plan_digest: bytes
    """As the node signed it, or as the server claims: it only serves to tell a signature for another plan from a wrong
    one.
    """
    signature: bytes

    def __post_init__(self) -> None:
        lengths = (len(self.identity), len(self.plan_digest), len(self.signature))
        if lengths != (IDENTITY_BYTES, KEY_BYTES, SIGNATURE_BYTES):
            raise ProtocolError(
                f"an identity, plan digest and signature have {lengths[0]}, {lengths[1]} and {lengths[2]} bytes "
                f"instead of {IDENTITY_BYTES}, {KEY_BYTES} and {SIGNATURE_BYTES}: use the same version of "
                "flwr-dpkmeans everywhere."
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
    """Accept a roster only if every other member's key is signed by a pinned identity of its own.

    Parameters
    ----------
    roster : Roster
        As announced, with the node itself.
    credentials : mapping of node id to Credential
        As the server relayed them.
    run_id, node_id : int
        Of the client that checks.
    plan_digest : bytes of length 32
        Of the plan that this client agreed to in the key phase.
    own_identity : bytes of length 32
        Nobody else may use it, whether or not it is pinned.
    pinned : mapping of Ed25519 public key to name
        Names are for the sentences; empty ones are replaced by the first digits of the key.

    Returns
    -------
    int
        How many peers were recognised: all of them.

    Raises
    ------
    IdentityError
        It names the first node that is not as it should be, and what is wrong.

    Examples
    --------
    >>> from flwr_dpkmeans.secagg.signing import Signer
    >>> alice, bob = Signer.generate(), Signer.generate()
    >>> roster = Roster.of(0, {2: b"a" * 32, 3: b"b" * 32})
    >>> signed = Credential(bob.public_key, bytes(32), bob.sign_keys(1, 3, bytes(32), b"b" * 32))
    >>> here = {"run_id": 1, "node_id": 2, "plan_digest": bytes(32), "own_identity": alice.public_key}
    >>> require_pinned(roster, {3: signed}, **here, pinned={bob.public_key: "ward-7"})
    1
    >>> require_pinned(roster, {}, **here, pinned={bob.public_key: "ward-7"})
    Traceback (most recent call last):
    flwr_dpkmeans.errors.IdentityError: node 3 signed nothing, but this client's policy pins identities: give that \
node an 'identity' and pin it, or leave the node out.
    """
    holders = {own_identity: node_id}
    for node, key in roster.members:
        if node == node_id:
            continue
        credential = credentials.get(node)
        if credential is None:
            raise IdentityError(
                f"node {node} signed nothing, but this client's policy pins identities: give that node an 'identity' "
                "and pin it, or leave the node out."
            )
        if credential.identity not in pinned and credential.identity != own_identity:
            raise IdentityError(
                f"node {node} has the identity {name_of(credential.identity)}, which this client's policy does not "
                "pin: ask its owner for the key on another way than through the server before you pin it."
            )
        _require_signed(node, key, credential, run_id, plan_digest, pinned)
        if credential.identity in holders:
            who = name_of(credential.identity, pinned)
            raise IdentityError(
                f"nodes {holders[credential.identity]} and {node} both have the identity {who}: a party takes part "
                "once, so give each node an identity of its own and look for a server that invents clients."
            )
        holders[credential.identity] = node
    return len(holders) - 1


def fingerprints(roster: Roster, credentials: Mapping[int, Credential]) -> tuple[str, ...]:
    """Each member's node id with the first digits of its identity, or else of its key in this run.

    Identities are as announced: that they were recognised is said elsewhere. A large cohort has one fingerprint.
    """
    if len(roster.members) > MOST_FINGERPRINTS:
        return (f"{len(roster.members)} nodes, roster {roster.digest.hex()[:_DIGITS]}",)
    shown = []
    for node, key in roster.members:
        found = credentials.get(node)
        kind, known = ("key", key) if found is None else ("identity", found.identity)
        shown.append(f"{node} {kind} {known.hex()[:_DIGITS]}")
    return tuple(shown)


def pin_mark(identity: bytes, run_id: int) -> bytes:
    """What a client tells the server of an identity that it pins: a hash, another one in every run."""
    return hashlib.sha256(b"flwr-dpkmeans pin" + run_id.to_bytes(8, "little") + identity).digest()


def require_known_peers(
    credentials: Mapping[int, Credential | None], marks: Mapping[int, Collection[bytes]], run_id: int
) -> None:
    """Refuse a cohort in which a client would refuse a peer; for the server, before anybody is asked for a sum.

    This spares budgets where a pin or an identity is missing. It protects nobody from the server: each client holds the
    roster against its own pins as well (`require_pinned`).

    The `IdentityError` names the first node that refuses, and whom.
    """
    own = {node: pin_mark(found.identity, run_id) for node, found in credentials.items() if found is not None}
    for node, known in marks.items():
        for peer, found in credentials.items():
            if peer == node or own.get(peer) in known:
                continue
            lack = "signed nothing" if found is None else f"has the identity {name_of(found.identity)}, not one of them"
            raise IdentityError(
                f"node {node} takes part with pinned identities only, but node {peer} {lack}: have node {node} pin "
                f"node {peer}'s identity, or leave one of them out; nothing has been released or charged."
            )


def name_of(identity: bytes, pinned: Mapping[bytes, str] | None = None) -> str:
    """The pinned name of an identity, or the first 12 digits of its public key."""
    return (pinned or {}).get(identity) or f"{identity.hex()[:12]}..."


def _require_signed(
    node: int, key: bytes, credential: Credential, run_id: int, plan_digest: bytes, pinned: Mapping[bytes, str]
) -> None:
    """Hold one member's signature against what this client knows itself."""
    who = name_of(credential.identity, pinned)
    if not verify_keys(credential.identity, credential.signature, run_id, node, credential.plan_digest, key):
        raise IdentityError(
            f"node {node} ({who}) did not sign the public key that the server announces for it in run {run_id}: the "
            "key was exchanged, or the signature is of another run, node or plan; stop the run and check the server."
        )
    if credential.plan_digest != plan_digest:
        raise IdentityError(
            f"node {node} ({who}) agreed to another plan ({credential.plan_digest.hex()[:12]}...) than this client "
            f"({plan_digest.hex()[:12]}...): the server shows clients different plans; stop the run and check the "
            "server."
        )
