"""Every message as it travels, and back: one JSON header of scalars, blobs by name, and at most one vector.

Whatever comes in is hostile until it has been read here. Nothing is parsed that is longer than its limit, no field is
taken for another type than its own, and anything else is a `ProtocolError`. What a well-formed message may *say* is for
`sums.client` and `sums.server` to judge. A client's memory has the same form (`sums.client.Memory`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans import __version__
from flwr_dpkmeans.errors import PeerError, ProtocolError, RefusalError, VersionError
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import (
    FinishReply,
    FinishRequest,
    Release,
    ShareReply,
    ShareRequest,
    Stage,
    SumReply,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
    pack_boxes,
    pack_credentials,
    pack_keys,
    pack_marks,
    pack_nodes,
    unpack_boxes,
    unpack_credentials,
    unpack_marks,
    unpack_nodes,
    unpack_roster,
)
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.signing import SIGNATURE_BYTES, Credential
from flwr_dpkmeans.sums import plan as plan_format
from flwr_dpkmeans.sums.draft import resolve_delta
from flwr_dpkmeans.sums.plan import Plan

MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
MAX_LIST_BYTES = 2**22
"""Longest blob of equal entries that are taken apart one by one: a roster of 100,000 clients."""
LIST_BLOBS = frozenset(("roster", "cohort", "survivors", "marks"))
MAX_HEADER_CHARACTERS = 10_000
MAX_INTEGER = 2**31
MAX_PLAN_BYTES = 2**26
"""Longest plan that is parsed: server points are the only long part of one."""
MAX_PLAN_ENTRIES = 200_000
"""Most commas in a plan that is parsed, since every entry costs time; server points have none."""
LONGEST_SENTENCE = 800
"""Characters of a refusal, some of which the header spells with 12."""
STOPPING_CODES = frozenset(
    {"BudgetError", "RefusalError", "ConfigurationError", "DataError", "LocalMisuseError", "IdentityError"}
)
"""Refusals that leaving the node out does not mend."""
_LISTED_ERRORS = 100
_PROTOCOL, _PLAN, _PACKAGE = "protocol", "plan_format", "package"
_HIGHEST = 10**6
# Another party's text is shown only in this form, which holds no words.
_RELEASE = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}((a|b|rc|\.post|\.dev)[0-9]{1,5})?")


class Status(Enum):
    """Outcome of a request, as the client reports it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Packet:
    """One message between encoding and transport."""

    fields: Mapping[str, Any]
    """``header`` (JSON), ``wait`` (seconds), and blobs by name; whatever else a transport let through."""
    vector: Ring | None = field(default=None, repr=False)
    """Ring elements."""

    @cached_property
    def header(self) -> Mapping[str, Any]:
        """The JSON header."""
        text = self.fields.get("header")
        if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
            raise ProtocolError("a message's header is missing or too long: message discarded.")
        return _parsed_header(text)

    def integer(self, name: str) -> int:
        """An integer of the header."""
        value = self.header.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_INTEGER:
            raise ProtocolError(f"field {name!r} is missing or is not a small integer: message discarded.")
        return value

    def blob(self, name: str, default: bytes | None = None) -> bytes:
        """A bytes field of bounded length."""
        value = self.fields.get(name, default)
        most = MAX_LIST_BYTES if name in LIST_BLOBS else MAX_BLOB_BYTES
        if not isinstance(value, bytes) or len(value) > most:
            raise ProtocolError(f"field {name!r} is missing, too long or is not bytes: message discarded.")
        return value

    def boxes(self, name: str, default: bytes | None = b"") -> dict[int, bytes]:
        """Blobs by node id."""
        return unpack_boxes(self.blob(name, default)) if name in self.fields or default is None else {}

    @property
    def failure(self) -> Failure | None:
        """What is wrong on the client's side; None if all is well."""
        status = _member(Status, self.header.get("status"), "status")
        if status is Status.OK:
            return None
        return Failure(status, _text(self.header.get("code"), 100), _text(self.header.get("sentence"), 1000))

    def opened(self, stage: Stage, node: int) -> Any:
        """The reply to what was asked in a stage of the protocol; a key of another version is not parsed."""
        if stage is Stage.KEYS:
            require_same_versions(stated_versions(self.header), sender=f"node {node}", receiver="the server")
        return _READ_REPLY[stage](self)

    @property
    def asked(self) -> tuple[int, int]:
        """Round and attempt."""
        return self.integer("round"), self.integer("attempt")

    @property
    def release(self) -> Release | None:
        """The release that it carries, if any."""
        if self.vector is None:
            return None
        return Release(self.integer("release_round"), self.integer("release_attempt"), self.vector)

    @property
    def wait(self) -> float | None:
        """For how many seconds the sender of a request waits for the answer; None if it does not say."""
        seconds = self.fields.get("wait")
        if seconds is None:
            return None
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0.0 < seconds < math.inf:
            raise ProtocolError("field 'wait' is not a positive, finite number of seconds: message discarded.")
        return float(seconds)


@lru_cache(maxsize=16)
def _parsed_header(text: str) -> Mapping[str, Any]:
    """A header is looked at several times while one message is handled, so the last few are kept."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message's header is not JSON: message discarded.") from error
    if not isinstance(header, dict):
        raise ProtocolError("a message's header is not a mapping: message discarded.")
    return MappingProxyType(header)


@dataclass(frozen=True)
class Versions:
    """What one side speaks.

    Examples
    --------
    >>> str(Versions(1, 5, "0.1.0"))
    'protocol 1 and plan format 5 (flwr-dpkmeans 0.1.0)'
    """

    protocol: int
    """Of masked aggregation: keys, masks, tags and signatures."""
    plan_format: int
    """Of plans."""
    package: str = ""
    """Release of flwr-dpkmeans, for the sentence only: releases may differ. Empty if unknown."""

    def __str__(self) -> str:
        """Both numbers, and the release that has them."""
        release = f" (flwr-dpkmeans {self.package})" if self.package else ""
        return f"protocol {self.protocol} and plan format {self.plan_format}{release}"

    def speaks_with(self, other: Versions) -> bool:
        """Whether the two sides understand each other."""
        return (self.protocol, self.plan_format) == (other.protocol, other.plan_format)


def own_versions() -> Versions:
    """What this installation speaks."""
    return Versions(keys.PROTOCOL_VERSION, plan_format.PLAN_VERSION, __version__)


def _version_fields() -> dict[str, int | str]:
    """The header entries that state the own versions."""
    own = own_versions()
    return {_PROTOCOL: own.protocol, _PLAN: own.plan_format, _PACKAGE: own.package}


def stated_versions(header: Mapping[str, Any]) -> Versions | None:
    """The versions that a header states; None if it does not, or not in a readable way.

    Examples
    --------
    >>> stated_versions({"protocol": 2, "plan_format": 7, "package": "0.3.0"})
    Versions(protocol=2, plan_format=7, package='0.3.0')
    >>> stated_versions({"protocol": "2"}) is None
    True
    """
    protocol, plan_format, package = (header.get(name) for name in (_PROTOCOL, _PLAN, _PACKAGE))
    if not (_is_number(protocol) and _is_number(plan_format)):
        return None
    known = isinstance(package, str) and _RELEASE.fullmatch(package) is not None
    return Versions(protocol, plan_format, package if known else "")  # type: ignore[arg-type]


def require_same_versions(stated: Versions | None, *, sender: str, receiver: str) -> None:
    """Refuse (`VersionError`) to go on with a side that speaks, or says that it speaks, something else.

    This is for a sentence that helps. What keeps versions apart is that they are in every key, signature and plan
    digest: a side that states a false one gains nothing, as masks of two versions add up to noise.
    """
    own = own_versions()
    if stated is not None and stated.speaks_with(own):
        return
    told = f"speaks {stated}" if stated is not None else "states no version that can be read"
    raise VersionError(
        f"{sender} {told}, but {receiver} speaks {own}: install the same version of flwr-dpkmeans on the server and on "
        "every node."
    )


def _is_number(value: object) -> bool:
    """Whether a version is an integer of a plausible size."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST


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
    return _text(".".join(str(part) for part in first["loc"]), 200)


# Requests: what a server asks.


@dataclass(frozen=True)
class Request:
    """What a server asks one client."""

    stage: Stage
    body: Any = None
    """None in the key phase, which asks with the plan alone."""
    plan: bytes | None = field(default=None, repr=False)
    """The plan, or a later one that takes its place."""
    run_id: int | None = None
    """None: it does not say."""
    wait: float | None = None
    """For how many seconds the server waits for the answer."""
    versions: Versions | None = None
    """Stated with the plan, and checked before the plan is parsed, whose format may be another."""


def encode_request(request: Request) -> Packet:
    """One message to one client; with a run id, clients in other runs refuse it."""
    header: dict[str, Any] = {"stage": request.stage.value}
    if request.run_id is not None:
        header["run"] = request.run_id
    if request.stage is Stage.KEYS:
        header |= _version_fields()
    fields: dict[str, Any] = {}
    if request.plan is not None:
        fields["plan"] = request.plan
    if request.wait is not None:
        fields["wait"] = request.wait
    vector = None
    if request.body is not None:
        vector = _WRITE_REQUEST[request.stage](request.body, header, fields)
    return Packet({"header": json.dumps(header), **fields}, vector)


def decode_request(packet: Packet) -> Request:
    """Undo `encode_request`."""
    stage = _member(Stage, packet.header.get("stage"), "stage")
    run = packet.header.get("run")
    versions = stated_versions(packet.header) if stage is Stage.KEYS else None
    read = _READ_REQUEST.get(stage)
    body = None if read is None else read(packet)
    return Request(stage, body, packet.blob("plan", b"") or None, run, packet.wait, versions)


def _write_release(request: SumRequest | FinishRequest, header: dict[str, Any], fields: dict[str, Any]) -> Ring | None:
    """What the requests for a vector and the last one have in common."""
    packed = {"boxes": request.boxes, "confirmations": request.confirmations}
    fields |= {name: pack_boxes(boxes) for name, boxes in packed.items() if boxes}
    if request.state:
        fields["state"] = request.state
    release = request.release
    if release is None:
        return None
    header |= {"release_round": release.round_index, "release_attempt": release.attempt}
    return release.values


def _write_sum_request(request: SumRequest, header: dict[str, Any], fields: dict[str, Any]) -> Ring | None:
    header |= {"round": request.round_index, "attempt": request.attempt}
    if request.roster is not None:
        fields["roster"] = pack_keys(request.roster.members)
    if request.credentials:
        fields["credentials"] = pack_credentials(request.credentials)
    if request.cohort:
        fields["cohort"] = pack_nodes(request.cohort)
    if request.group_boxes:
        fields["group_boxes"] = pack_boxes(request.group_boxes)
    return _write_release(request, header, fields)


def _read_sum_request(packet: Packet) -> SumRequest:
    index, attempt = packet.asked
    blob = packet.blob("roster", b"")
    roster = unpack_roster(attempt, blob) if blob else None
    return SumRequest(
        index,
        attempt,
        roster=roster,
        release=packet.release,
        boxes=packet.boxes("boxes"),
        state=packet.blob("state", b""),
        credentials=unpack_credentials(packet.blob("credentials", b""), len(roster.members) if roster else 0),
        cohort=unpack_nodes(packet.blob("cohort", b"")),
        group_boxes=packet.boxes("group_boxes"),
        confirmations=packet.boxes("confirmations"),
    )


def _read_finish_request(packet: Packet) -> FinishRequest:
    release = packet.release
    if release is None:
        raise ProtocolError("the last message carries no release: check the server's version.")
    return FinishRequest(release, packet.boxes("boxes"), packet.blob("state", b""), packet.boxes("confirmations"))


def _write_share_request(request: ShareRequest, header: dict[str, Any], fields: dict[str, Any]) -> None:
    del header
    fields["roster"] = pack_keys(request.roster.members)
    if request.credentials:
        fields["credentials"] = pack_credentials(request.credentials)


def _read_share_request(packet: Packet) -> ShareRequest:
    roster = unpack_roster(0, packet.blob("roster"))
    return ShareRequest(roster, unpack_credentials(packet.blob("credentials", b""), len(roster.members)))


def _write_unmask_request(request: UnmaskRequest, header: dict[str, Any], fields: dict[str, Any]) -> None:
    header |= {"round": request.round_index, "attempt": request.attempt}
    fields["survivors"] = pack_nodes(request.survivors)


def _read_unmask_request(packet: Packet) -> UnmaskRequest:
    return UnmaskRequest(*packet.asked, unpack_nodes(packet.blob("survivors")))


_WRITE_REQUEST: Mapping[Stage, Callable[[Any, dict[str, Any], dict[str, Any]], Ring | None]] = MappingProxyType(
    {
        Stage.SHARE: _write_share_request,
        Stage.SUM: _write_sum_request,
        Stage.UNMASK: _write_unmask_request,
        Stage.FINISH: _write_release,
    }
)
_READ_REQUEST: Mapping[Stage, Callable[[Packet], Any]] = MappingProxyType(
    {
        Stage.SHARE: _read_share_request,
        Stage.SUM: _read_sum_request,
        Stage.UNMASK: _read_unmask_request,
        Stage.FINISH: _read_finish_request,
    }
)


# Replies: what a client answers.


@dataclass(frozen=True)
class KeysReply:
    """A client's answer to the plan."""

    public_key: bytes
    """X25519, fresh for the run."""
    plan_digest: bytes
    """Of the plan it agreed to."""
    n_features: int
    """Width of its table: schema, the same whatever the rows are."""
    identity: bytes = b""
    signature: bytes = b""
    """Ed25519 public key and signature of all this, from a node that has an identity; else empty."""
    marks: frozenset[bytes] = frozenset()
    """From a node that pins identities: `pin_mark` of each, so that the server can tell a cohort that this node would
    refuse before anybody pays for it; else empty.
    """
    columns: str = ""
    """Digest of its column names in the order that the run agrees on (`sums.columns`); empty without names."""

    @property
    def credential(self) -> Credential | None:
        """What the node signed, for the other clients; a malformed one is a `ProtocolError`."""
        if not self.identity and not self.signature:
            return None
        return Credential(self.identity, self.plan_digest, self.signature)


@dataclass(frozen=True)
class Failure:
    """A refusal, or a failure on a client's side: a fixed code and a sentence made of public values only."""

    status: Status
    code: str
    sentence: str

    def stop(self, node: int, *, always: bool) -> PeerError:
        """The error that it is to the server: one that stops the run, or one that only leaves the node out."""
        if always or self.code in STOPPING_CODES:
            return RefusalError(f"node {node} refused ({self.code}): {self.sentence}")
        return ProtocolError(f"node {node} did not answer ({self.code}): {self.sentence}")


def encode_reply(stage: Stage, reply: Any) -> Packet:
    """One reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    fields: dict[str, Any] = {}
    vector = _WRITE_REPLY[stage](reply, header, fields)
    return Packet({"header": json.dumps(header), **fields}, vector)


def encode_failure(failure: Failure) -> Packet:
    """A refusal in the place of a reply."""
    told = _text(failure.sentence, LONGEST_SENTENCE)
    header = {"status": failure.status.value, "code": failure.code, "sentence": told}
    return Packet({"header": json.dumps(header)})


def _write_keys(reply: KeysReply, header: dict[str, Any], fields: dict[str, Any]) -> None:
    header |= {"n_features": reply.n_features} | _version_fields()
    if reply.columns:
        header["columns"] = reply.columns
    fields |= {"public_key": reply.public_key, "plan_digest": reply.plan_digest}
    if reply.identity:
        fields |= {"identity": reply.identity, "signature": reply.signature}
    if reply.marks:
        fields["marks"] = pack_marks(reply.marks)


def _read_keys(packet: Packet) -> KeysReply:
    key, columns = packet.blob("public_key"), packet.header.get("columns", "")
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"a client's public key has {len(key)} bytes instead of {KEY_BYTES}: reply discarded.")
    if not isinstance(columns, str) or not re.fullmatch("([0-9a-f]{64})?", columns):
        raise ProtocolError("a client's digest of columns is no SHA-256 in hexadecimal: reply discarded.")
    reply = KeysReply(
        key,
        packet.blob("plan_digest"),
        packet.integer("n_features"),
        packet.blob("identity", b""),
        packet.blob("signature", b""),
        unpack_marks(packet.blob("marks", b"")),
        columns,
    )
    _ = reply.credential
    return reply


def _write_shares(reply: ShareReply, header: dict[str, Any], fields: dict[str, Any]) -> None:
    del header
    fields |= {"public_keys": reply.public_keys, "commitments": reply.commitments, "boxes": pack_boxes(reply.boxes)}
    if reply.group_boxes:
        fields["group_boxes"] = pack_boxes(reply.group_boxes)


def _read_shares(packet: Packet) -> ShareReply:
    boxes, groups = packet.boxes("boxes", None), packet.boxes("group_boxes")
    return ShareReply(packet.blob("public_keys"), packet.blob("commitments"), boxes, groups)


def _write_sum(reply: SumReply, header: dict[str, Any], fields: dict[str, Any]) -> Ring:
    header |= {"round": reply.round_index, "attempt": reply.attempt}
    fields["tag"] = reply.tag
    if reply.boxes:
        fields["boxes"] = pack_boxes(reply.boxes)
    return reply.masked.values


def _read_sum(packet: Packet) -> SumReply:
    if packet.vector is None:
        raise ProtocolError("a client's reply carries no vector: reply discarded.")
    return SumReply(*packet.asked, MaskedVector(packet.vector), packet.blob("tag"), packet.boxes("boxes"))


def _write_unmask(reply: UnmaskReply, header: dict[str, Any], fields: dict[str, Any]) -> None:
    header |= {"round": reply.round_index, "attempt": reply.attempt}
    fields["shares"] = pack_boxes(reply.shares)
    if reply.signature:
        fields["signature"] = reply.signature


def _read_unmask(packet: Packet) -> UnmaskReply:
    signature = packet.blob("signature", b"")
    if len(signature) not in (0, SIGNATURE_BYTES):
        raise ProtocolError(
            f"a client signed the survivors with {len(signature)} bytes instead of {SIGNATURE_BYTES}: reply discarded."
        )
    return UnmaskReply(*packet.asked, packet.boxes("shares", None), signature)


def _write_finish(reply: FinishReply, header: dict[str, Any], fields: dict[str, Any]) -> None:
    del header
    fields["tag"] = reply.tag


def _read_finish(packet: Packet) -> FinishReply:
    # A late reply to a request for a vector has a tag as well, of an older state.
    if packet.vector is not None:
        raise ProtocolError("a client's reply carries a vector although none was asked for: it is late, and discarded.")
    return FinishReply(packet.blob("tag"))


_WRITE_REPLY: Mapping[Stage, Callable[[Any, dict[str, Any], dict[str, Any]], Ring | None]] = MappingProxyType(
    {
        Stage.KEYS: _write_keys,
        Stage.SHARE: _write_shares,
        Stage.SUM: _write_sum,
        Stage.UNMASK: _write_unmask,
        Stage.FINISH: _write_finish,
    }
)
_READ_REPLY: Mapping[Stage, Callable[[Packet], Any]] = MappingProxyType(
    {
        Stage.KEYS: _read_keys,
        Stage.SHARE: _read_shares,
        Stage.SUM: _read_sum,
        Stage.UNMASK: _read_unmask,
        Stage.FINISH: _read_finish,
    }
)


def _text(value: object, longest: int) -> str:
    """Another party's text for a log: bounded, and without control characters."""
    return printable(value, longest) if isinstance(value, str) else ""


def _member(kind: Any, value: object, name: str) -> Any:
    """A member of an enumeration by its value."""
    for member in kind:
        if member.value == value:
            return member
    raise ProtocolError(f"field {name!r} has an unknown value: message discarded.")
