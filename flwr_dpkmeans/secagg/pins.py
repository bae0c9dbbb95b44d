"""Whom a client takes part with: a roster held against the identities that it pins.

A client that pins identities holds off a server that puts keys of its own in the place
of the others', or invents clients around a single real one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from flwr_dpkmeans.errors import IdentityError
from flwr_dpkmeans.secagg.credentials import Credential, verify
from flwr_dpkmeans.secagg.roster import Roster

MOST_FINGERPRINTS = 100
"""Largest cohort whose members are listed one by one."""
_SHOWN_DIGITS = 16
_NAME_DIGITS = 12
_IDENTITY = " identity "
"""Between a node's id and its identity, in a fingerprint."""


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
    """Accept a roster only if a pinned identity of its own signed each member's key.

    Parameters
    ----------
    roster : Roster
        What the server announces.
    credentials : mapping of int to Credential
        What it relays of each member, by node id.
    run_id, node_id : int
        The run, and this client's id in it.
    plan_digest : bytes
        Digest of the plan that this client agreed to.
    own_identity : bytes
        This client's public key, which nobody else may use, pinned or not.
    pinned : mapping of bytes to str
        Public keys with names for the sentences.

    Returns
    -------
    int
        How many other members there are.

    Raises
    ------
    IdentityError
        Naming the first node that is not as it should be.
    """
    node_of_identity = {own_identity: node_id}
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
        identity = credential.identity
        if identity not in pinned and identity != own_identity:
            raise IdentityError(
                f"node {node} has the identity {name_of(identity)}, which"
                " this client's policy does not pin: ask its owner for the key on"
                " another way than through the server before you pin it."
            )
        _require_signed(node, key, credential, run_id, plan_digest, pinned)
        if identity in node_of_identity:
            # Against one party that stands for several, and so alone around a victim.
            who = name_of(identity, pinned)
            raise IdentityError(
                f"nodes {node_of_identity[identity]} and {node} both have the"
                f" identity {who}: a party takes part once, so give each node an"
                " identity of its own and look for a server that invents clients."
            )
        node_of_identity[identity] = node
    return len(node_of_identity) - 1


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
    is_signed = verify(
        credential.identity,
        credential.signature,
        "keys",
        run_id,
        node,
        credential.plan_digest,
        key,
    )
    # Against keys of the server's own in the place of a member's, or a signature from
    # elsewhere.
    if not is_signed:
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


def pin_mark(identity: bytes, run_id: int) -> bytes:
    """Hash an identity that a client pins, differently in every run, for the server."""
    pinned = b"flwr-dpkmeans pin" + run_id.to_bytes(8, "little") + identity
    return hashlib.sha256(pinned).digest()


def require_known_peers(
    credentials: Mapping[int, Credential | None],
    marks: Mapping[int, Collection[bytes]],
    run_id: int,
) -> None:
    """Refuse a cohort in which a client would refuse a peer, by an `IdentityError`.

    For the server, before anybody is asked for a sum: this spares budgets where a pin
    or an identity is missing. It protects nobody from the server; each client holds the
    roster against its own pins as well (`require_pinned`).

    Parameters
    ----------
    credentials : mapping of int to Credential or None
        What each node states of itself.
    marks : mapping of int to collection of bytes
        `pin_mark` of every identity that a node pins, for the nodes that pin some.
    run_id : int
        The run, which is part of the marks.
    """
    mark_of = {}
    for node, credential in credentials.items():
        if credential is not None:
            mark_of[node] = pin_mark(credential.identity, run_id)
    for node, pinned_marks in marks.items():
        for peer, credential in credentials.items():
            is_pinned = mark_of.get(peer) in pinned_marks
            if peer == node or is_pinned:
                continue
            if credential is None:
                lack = "signed nothing"
            else:
                who = name_of(credential.identity)
                lack = f"has the identity {who}, not one of them"
            raise IdentityError(
                f"node {node} takes part with pinned identities only, but node {peer}"
                f" {lack}: have node {node} pin node {peer}'s identity, or leave one of"
                " them out; nothing has been released or charged."
            )


def fingerprints(
    roster: Roster, credentials: Mapping[int, Credential]
) -> tuple[str, ...]:
    """Show each member's node id with the first digits of its identity or else its key.

    Identities are as announced: whether they were recognised is shown elsewhere. A
    large cohort has one fingerprint.
    """
    if len(roster.members) > MOST_FINGERPRINTS:
        digits = roster.digest.hex()[:_SHOWN_DIGITS]
        return (f"{len(roster.members)} nodes, roster {digits}",)
    shown = []
    for node, key in roster.members:
        if node in credentials:
            digits = _shown_digits(credentials[node].identity)
            shown.append(f"{node}{_IDENTITY}{digits}")
        else:
            digits = key.hex()[:_SHOWN_DIGITS]
            shown.append(f"{node} key {digits}")
    return tuple(shown)


def names_by_node(
    shown: Collection[str], pinned: Mapping[bytes, str]
) -> dict[int, str]:
    """Return the names of a cohort's nodes, from what `fingerprints` shows of them."""
    name_by_digits = {_shown_digits(key): name for key, name in pinned.items()}
    names = {}
    for fingerprint in shown:
        node, _, digits = fingerprint.partition(_IDENTITY)
        if digits in name_by_digits:
            names[int(node)] = name_by_digits[digits]
    return names


def _shown_digits(identity: bytes) -> str:
    return identity.hex()[:_SHOWN_DIGITS]


def name_of(identity: bytes, pinned: Mapping[bytes, str] | None = None) -> str:
    """Name an identity as it is pinned, or by the first digits of its public key."""
    name = "" if pinned is None else pinned.get(identity, "")
    if name:
        return name
    return f"{identity.hex()[:_NAME_DIGITS]}..."
