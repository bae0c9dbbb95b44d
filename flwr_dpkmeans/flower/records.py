"""Protocol messages as Flower records, and back; everything that comes in is checked here.

Every phase travels as an ordinary ``train`` message, the last one as ``evaluate``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from flwr.app import RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.content import (
    RECORD,
    VECTOR_LAYOUT,
    VECTOR_RECORD,
    blob_of,
    build_content,
    header_of,
    integer_of,
    member_of,
    printable_of,
    vector_of,
)
from flwr_dpkmeans.flower.packing import (
    pack_boxes,
    pack_credentials,
    pack_marks,
    pack_nodes,
    pack_roster,
    unpack_boxes,
    unpack_credentials,
    unpack_marks,
    unpack_nodes,
    unpack_roster,
)
from flwr_dpkmeans.flower.versions import require_same_versions, version_fields
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import FinishReply, FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.ring import MaskedVector
from flwr_dpkmeans.sums.draft import resolve_delta
from flwr_dpkmeans.sums.plan import Plan

__all__ = ["RECORD", "VECTOR_LAYOUT", "VECTOR_RECORD", "unpack_boxes"]

MAX_PLAN_BYTES = 2**26
"""Longest plan that is parsed: server points are the only long part of one."""
MAX_PLAN_ENTRIES = 200_000
"""Most commas in a plan that is parsed, since every entry costs time; server points have none."""
LONGEST_SENTENCE = 800
"""Characters of a refusal, some of which the header spells with 12."""
_LISTED_ERRORS = 100


class Stage(Enum):
    """Phase of the protocol that a message belongs to."""

    KEYS = "keys"
    SHARE = "share"
    SUM = "sum"
    UNMASK = "unmask"
    FINISH = "finish"


class Status(Enum):
    """Outcome of a request, as the client reports it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class KeysReply:
    """A client's answer to the plan.

    Parameters
    ----------
    public_key : bytes
        X25519, fresh for the run.
    plan_digest : bytes
        Of the plan it agreed to.
    n_features : int
        Width of its table: schema, the same whatever the rows are.
    identity, signature : bytes
        Ed25519 public key and signature of all this, from a node that has an identity; else empty.
    marks : frozenset of bytes
        From a node that pins identities: `pin_mark` of each, so that the server can tell a cohort that this node would
        refuse before anybody pays for it; else empty.
    columns : str
        Digest of its column names in the order that the run agrees on (`sums.columns`); empty without names.
    """

    public_key: bytes
    plan_digest: bytes
    n_features: int
    identity: bytes = b""
    signature: bytes = b""
    marks: frozenset[bytes] = frozenset()
    columns: str = ""

    @property
    def credential(self) -> Credential | None:
        """What the node signed, for the other clients; a malformed one is a `ProtocolError`."""
        if not self.identity and not self.signature:
            return None
        return Credential(self.identity, self.plan_digest, self.signature)


@lru_cache(maxsize=1)
def _plan_adapter() -> Any:
    """Parser and serialiser of plans (pydantic compiles it once)."""
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)


def dump_plan(plan: Plan) -> bytes:
    """Serialise a plan as JSON."""
    return bytes(_plan_adapter().dump_json(plan))


def plan_digest(blob: bytes) -> bytes:
    """SHA-256 of a plan as it travelled."""
    return hashlib.sha256(blob).digest()


def terms_digest(plan: Plan) -> str:
    """SHA-256 of what a plan's runs have in common: all but run id, seeds, and what is counted, found or answered.

    Rounds follow from the rest, as does the delta that a count leads to, so that a preliminary plan has the digest of
    the final one. The digest of columns is another one in every run; names that are given stand in the configuration.
    """
    config = plan.config.changed(random_state=None)
    common = replace(plan, run_id=0, seed=0, config=config, preliminary=(), rounds=(), box=None, columns_digest="")
    start = resolve_delta(config, plan.n_clients)
    declared = replace(common, n_examples=config.n_examples, n_features=config.n_features, delta=start)
    return plan_digest(dump_plan(declared)).hex()


@lru_cache(maxsize=64)
def load_plan(blob: bytes) -> Plan:
    """Parse a plan; anything but a well-formed plan is a `ProtocolError`."""
    from pydantic import ValidationError

    if len(blob) > MAX_PLAN_BYTES or blob.count(b",") > MAX_PLAN_ENTRIES:
        raise ProtocolError(
            f"the plan has {len(blob)} bytes and {blob.count(b',')} commas, but at most {MAX_PLAN_BYTES} and "
            f"{MAX_PLAN_ENTRIES} are looked at: use fewer server points, features or rounds."
        )
    try:
        plan: Plan = _plan_adapter().validate_json(blob, strict=True)
    except ValidationError as error:
        place = _first_place(error) if error.error_count() <= _LISTED_ERRORS else "many places"
        raise ProtocolError(f"the plan is malformed at {place!r}: use the same version of flwr-dpkmeans.") from error
    return plan


def _first_place(error: Any) -> str:
    """Where a plan is malformed first; asking costs time for each place, so it is asked of a few only."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return printable_of(".".join(str(part) for part in first["loc"]), 200)


def request_content(
    stage: Stage,
    *,
    plan: bytes | None = None,
    request: SumRequest | FinishRequest | None = None,
    run_id: int | None = None,
) -> RecordDict:
    """Build the content of one message to one client; with a run id, clients in other runs refuse it."""
    header: dict[str, Any] = {"stage": stage.value} | ({} if run_id is None else {"run": run_id})
    if stage is Stage.KEYS:
        header |= version_fields()
    blobs: dict[str, bytes] = {}
    vector = None
    if plan is not None:
        blobs["plan"] = plan
    if isinstance(request, SumRequest):
        header |= {"round": request.round_index, "attempt": request.attempt}
        if request.roster is not None:
            blobs["roster"] = pack_roster(request.roster)
        if request.credentials:
            blobs["credentials"] = pack_credentials(request.credentials)
        if request.cohort:
            blobs["cohort"] = pack_nodes(request.cohort)
        if request.group_boxes:
            blobs["group_boxes"] = pack_boxes(request.group_boxes)
    if request is not None:
        if request.boxes:
            blobs["boxes"] = pack_boxes(request.boxes)
        if request.confirmations:
            blobs["confirmations"] = pack_boxes(request.confirmations)
        if request.state:
            blobs["state"] = request.state
        if request.release is not None:
            header |= {"release_round": request.release.round_index, "release_attempt": request.release.attempt}
            vector = request.release.values
    return build_content(header, blobs, vector)


def reply_content(reply: KeysReply | SumReply | FinishReply) -> RecordDict:
    """Build the content of one reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    if isinstance(reply, KeysReply):
        header |= {"n_features": reply.n_features} | version_fields()
        header |= {"columns": reply.columns} if reply.columns else {}
        keys = {"public_key": reply.public_key, "plan_digest": reply.plan_digest}
        signed = {"identity": reply.identity, "signature": reply.signature} if reply.identity else {}
        marks = {"marks": pack_marks(reply.marks)} if reply.marks else {}
        return build_content(header, keys | signed | marks)
    if isinstance(reply, FinishReply):
        return build_content(header, {"tag": reply.tag})
    header |= {"round": reply.round_index, "attempt": reply.attempt}
    blobs = {"tag": reply.tag}
    if reply.boxes:
        blobs["boxes"] = pack_boxes(reply.boxes)
    return build_content(header, blobs, reply.masked.values)


def failure_content(status: Status, code: str, sentence: str) -> RecordDict:
    """Build a refusal: a fixed code and a sentence made of public values only."""
    told = printable_of(sentence, LONGEST_SENTENCE)
    return build_content({"status": status.value, "code": code, "sentence": told}, {})


def stage_of(content: RecordDict) -> Stage | None:
    """Phase of an incoming message; None if it is not of this protocol."""
    if RECORD not in content:
        return None
    stage: Stage = member_of(Stage, header_of(content).get("stage"), "stage")
    return stage


def require_run(content: RecordDict, run_id: int) -> None:
    """Refuse a message that says that it is of another run.

    A server can say what it likes; this is against messages that go astray or are sent once more as they were.
    """
    told = header_of(content).get("run", run_id)
    if told != run_id:
        raise ProtocolError(f"the message is of another run than {run_id}: it is replayed or went astray, and refused.")


def require_server_versions(content: RecordDict, node_id: int) -> None:
    """Refuse a plan from a server of another version; asked before the plan is parsed, whose format may be another."""
    require_same_versions(header_of(content), sender="the server", receiver=f"node {node_id}")


def require_node_versions(content: RecordDict, node_id: int) -> None:
    """Refuse the key of a node of another version; asked before the rest of its answer is parsed."""
    require_same_versions(header_of(content), sender=f"node {node_id}", receiver="the server")


def parse_sum_request(content: RecordDict) -> SumRequest:
    """Parse a request for a vector."""
    header = header_of(content)
    attempt = integer_of(header, "attempt")
    blob = blob_of(content, "roster", b"")
    roster = unpack_roster(attempt, blob) if blob else None
    return SumRequest(
        round_index=integer_of(header, "round"),
        attempt=attempt,
        roster=roster,
        release=_release(content),
        boxes=unpack_boxes(blob_of(content, "boxes", b"")),
        state=blob_of(content, "state", b""),
        credentials=unpack_credentials(blob_of(content, "credentials", b""), len(roster.members) if roster else 0),
        cohort=unpack_nodes(blob_of(content, "cohort", b"")),
        group_boxes=unpack_boxes(blob_of(content, "group_boxes", b"")),
        confirmations=unpack_boxes(blob_of(content, "confirmations", b"")),
    )


def parse_finish_request(content: RecordDict) -> FinishRequest:
    """Parse the last message."""
    release = _release(content)
    if release is None:
        raise ProtocolError("the last message carries no release: check the server's version.")
    return FinishRequest(
        release,
        unpack_boxes(blob_of(content, "boxes", b"")),
        blob_of(content, "state", b""),
        unpack_boxes(blob_of(content, "confirmations", b"")),
    )


def parse_keys_reply(content: RecordDict) -> KeysReply:
    """Parse a client's answer to the plan."""
    key = blob_of(content, "public_key")
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"a client's public key has {len(key)} bytes instead of {KEY_BYTES}: reply discarded.")
    reply = KeysReply(
        key,
        blob_of(content, "plan_digest"),
        integer_of(header_of(content), "n_features"),
        blob_of(content, "identity", b""),
        blob_of(content, "signature", b""),
        unpack_marks(blob_of(content, "marks", b"")),
        _columns_of(header_of(content)),
    )
    _ = reply.credential
    return reply


def _columns_of(header: Mapping[str, Any]) -> str:
    """A digest of columns in a header; empty where the table has no names."""
    columns = header.get("columns", "")
    if not isinstance(columns, str) or not re.fullmatch("([0-9a-f]{64})?", columns):
        raise ProtocolError("a client's digest of columns is no SHA-256 in hexadecimal: reply discarded.")
    return columns


def parse_sum_reply(content: RecordDict) -> SumReply:
    """Parse a masked vector."""
    header = header_of(content)
    vector = vector_of(content)
    if vector is None:
        raise ProtocolError("a client's reply carries no vector: reply discarded.")
    return SumReply(
        integer_of(header, "round"),
        integer_of(header, "attempt"),
        MaskedVector(vector),
        blob_of(content, "tag"),
        unpack_boxes(blob_of(content, "boxes", b"")),
    )


def parse_finish_reply(content: RecordDict) -> FinishReply:
    """Parse the last reply; a late one to a request for a vector has a tag as well, of an older state."""
    if vector_of(content) is not None:
        raise ProtocolError("a client's reply carries a vector although none was asked for: it is late, and discarded.")
    return FinishReply(blob_of(content, "tag"))


def parse_failure(content: RecordDict) -> tuple[Status, str, str]:
    """Return status, code and sentence of a reply; the latter two are empty if all is well."""
    header = header_of(content)
    status = member_of(Status, header.get("status"), "status")
    return status, printable_of(header.get("code"), 100), printable_of(header.get("sentence"), 1000)


def plan_blob(content: RecordDict) -> bytes | None:
    """The plan in a message, if it carries one."""
    return blob_of(content, "plan", b"") or None


def _release(content: RecordDict) -> Release | None:
    """The release in a message, if it carries one."""
    vector = vector_of(content)
    if vector is None:
        return None
    header = header_of(content)
    return Release(integer_of(header, "release_round"), integer_of(header, "release_attempt"), vector)
