"""Every message as it travels, and back.

One JSON header of scalars, blobs by name, and at most one vector.

Whatever comes in is hostile until it has been read here. Nothing is parsed that is
longer than its limit, no field is taken for another type than its own, and anything
else is a `ProtocolError`. What a well-formed message may *say* is for `sums.client` and
`sums.server` to judge. `pack_fields` and `unpack_fields` are for a client's own memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_type_hints

from flwr_dpkmeans import __version__
from flwr_dpkmeans.errors import (
    EnumT,
    PeerError,
    ProtocolError,
    RefusalError,
    VersionError,
)
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.secagg import keys, messages, packing
from flwr_dpkmeans.secagg.credentials import SIGNATURE_BYTES, Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.draft import resolve_delta
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State, unpack_state
from flwr_dpkmeans.sums.task import adapter

MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
MAX_LIST_BYTES = 2**22
"""Longest blob of equal entries that are taken apart one by one.

a roster of 100,000 clients.
"""
LIST_BLOBS = frozenset(("roster", "cohort", "survivors", "marks"))
MAX_HEADER_CHARACTERS = 10_000
MAX_INTEGER = 2**31
MAX_PLAN_BYTES = 2**26
"""Longest plan that is parsed: server points are the only long part of one."""
MAX_PLAN_ENTRIES = 200_000
"""Most commas in a plan that is parsed, since every entry costs time.

Server points have none.
"""
LONGEST_SENTENCE = 800
"""Characters of a refusal, some of which the header spells with 12."""
STOPPING_CODES = frozenset(
    {
        "BudgetError",
        "RefusalError",
        "ConfigurationError",
        "DataError",
        "LocalMisuseError",
        "IdentityError",
    }
)
"""Refusals that leaving the node out does not mend."""
_LISTED_ERRORS = 100
_HIGHEST = 10**6
# Another party's text is shown only in this form, which holds no words.
_RELEASE = re.compile(
    r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}((a|b|rc|\.post|\.dev)[0-9]{1,5})?"
)


class Status(Enum):
    """Outcome of a request, as the client reports it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Packet:
    """One message between encoding and transport."""

    fields: Mapping[str, Any]
    """``header`` (JSON), ``wait`` (seconds), and blobs by name.

    Whatever else a transport let through.
    """
    vector: Ring | None = field(default=None, repr=False)

    @cached_property
    def header(self) -> Mapping[str, Any]:
        text = self.fields.get("header")
        if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
            raise ProtocolError(
                "a message's header is missing or too long: message discarded."
            )
        return _parsed_header(text)

    def choice(self, name: str, kind: type[EnumT]) -> EnumT:
        """A member of an enumeration in the header."""
        try:
            return kind(self.header.get(name))
        except ValueError as error:
            raise ProtocolError(
                f"field {name!r} has an unknown value: message discarded."
            ) from error

    def integer(self, name: str) -> int:
        """An integer of the header."""
        value = self.header.get(name)
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or abs(value) > MAX_INTEGER
        ):
            raise ProtocolError(
                f"field {name!r} is missing or is not a small integer: message"
                " discarded."
            )
        return value

    def blob(self, name: str) -> bytes:
        """A bytes field of bounded length."""
        value = self.fields.get(name)
        most = MAX_LIST_BYTES if name in LIST_BLOBS else MAX_BLOB_BYTES
        if not isinstance(value, bytes) or len(value) > most:
            raise ProtocolError(
                f"field {name!r} is missing, too long or is not bytes: message"
                " discarded."
            )
        return value

    @property
    def failure(self) -> Failure | None:
        """What is wrong on the client's side; None if all is well."""
        status = self.choice("status", Status)
        if status is Status.OK:
            return None
        # The code is told to other parties, whom no party's own words are to reach in
        # the server's.
        code = _text(self.header.get("code"), 100)
        code = code if code.isascii() and code.isidentifier() else "unknown"
        return Failure(status, code, _text(self.header.get("sentence"), 1000))

    def opened(self, stage: Stage, node: int) -> Any:
        """The reply to what was asked in a stage of the protocol.

        a key of another version is not parsed.
        """
        _, form = _FORMS[stage]
        if stage is Stage.KEYS:
            require_same_versions(
                stated_versions(self.header),
                sender=f"node {node}",
                receiver="the server",
            )
            return _checked_keys(_read(form, self))
        reply = _read(form, self)
        if stage is Stage.UNMASK and len(reply.signature) not in (0, SIGNATURE_BYTES):
            raise ProtocolError(
                f"a client signed the survivors with {len(reply.signature)} bytes"
                f" instead of {SIGNATURE_BYTES}: reply discarded."
            )
        if stage is Stage.FINISH and self.vector is not None:
            # A late reply to a request for a vector has a tag as well, of an older
            # state.
            raise ProtocolError(
                "a client's reply carries a vector that was not asked for: it is late,"
                " and discarded."
            )
        return reply

    @property
    def wait(self) -> float | None:
        """For how many seconds the sender of a request waits for the answer.

        None if it does not say.
        """
        seconds = self.fields.get("wait")
        if seconds is None:
            return None
        if (
            not isinstance(seconds, int | float)
            or isinstance(seconds, bool)
            or not 0.0 < seconds < 1e300
        ):
            raise ProtocolError(
                "field 'wait' is not a positive, finite number of seconds: message"
                " discarded."
            )
        return float(seconds)


@lru_cache(maxsize=16)
def _parsed_header(text: str) -> Mapping[str, Any]:
    """A header is looked at several times while one message is handled, so the last few
    are kept.
    """
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            "a message's header is not JSON: message discarded."
        ) from error
    if not isinstance(header, dict):
        raise ProtocolError("a message's header is not a mapping: message discarded.")
    return MappingProxyType(header)


@dataclass(frozen=True)
class Versions:
    """What one side speaks."""

    protocol: int
    """Of masked aggregation: keys, masks, tags and signatures."""
    plan_format: int
    package: str = ""
    """Release of flwr-dpkmeans, for the sentence only: releases may differ.

    Empty if unknown.
    """

    def __str__(self) -> str:
        release = f" (flwr-dpkmeans {self.package})" if self.package else ""
        return f"protocol {self.protocol} and plan format {self.plan_format}{release}"


def installed_versions() -> Versions:
    """What this installation speaks."""
    return Versions(keys.PROTOCOL_VERSION, Plan.version, __version__)


def stated_versions(header: Mapping[str, Any]) -> Versions | None:
    """The versions that a header states; None if it does not, or not in a readable way."""
    package: Any = header.get("package")
    numbers: list[Any] = [header.get("protocol"), header.get("plan_format")]
    if not all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _HIGHEST
        for n in numbers
    ):
        return None
    known = isinstance(package, str) and _RELEASE.fullmatch(package) is not None
    return Versions(numbers[0], numbers[1], package if known else "")


def require_same_versions(
    stated: Versions | None, *, sender: str, receiver: str
) -> None:
    """Refuse (`VersionError`) to go on with a side that speaks, or says that it speaks,
    something else.

    This is for a sentence that helps. What keeps versions apart is that they are in
    every key, signature and plan digest: a side that states a false one gains nothing,
    as masks of two versions add up to noise.
    """
    own = installed_versions()
    if stated is not None and (stated.protocol, stated.plan_format) == (
        own.protocol,
        own.plan_format,
    ):
        return
    told = (
        f"speaks {stated}"
        if stated is not None
        else "states no version that can be read"
    )
    raise VersionError(
        f"{sender} {told}, but {receiver} speaks {own}: install the same version of"
        " flwr-dpkmeans on the server and on every node."
    )


def dump_plan(plan: Plan) -> bytes:
    """Serialise a plan as JSON."""
    return bytes(adapter(Plan).dump_json(plan))


def plan_digest(blob: bytes) -> bytes:
    """SHA-256 of a plan as it travelled."""
    return hashlib.sha256(blob).digest()


def terms_digest(plan: Plan) -> str:
    """SHA-256 of what a plan's runs have in common.

    All but run id, seeds, and what is counted, found or answered.

    Rounds follow from the rest, as does the delta that a count leads to, so that a
    preliminary plan has the digest of the final one. The digest of columns is another
    one in every run; names that are given stand in the configuration.
    """
    config = plan.config.changed(random_state=None)
    common = replace(
        plan,
        run_id=0,
        seed=0,
        config=config,
        preliminary=(),
        rounds=(),
        box=None,
        columns_digest="",
    )
    start = resolve_delta(config, plan.n_clients)
    declared = replace(
        common, n_examples=config.n_examples, n_features=config.n_features, delta=start
    )
    return plan_digest(dump_plan(declared)).hex()


@lru_cache(maxsize=64)
def load_plan(blob: bytes) -> Plan:
    """Parse a plan; anything but a well-formed plan is a `ProtocolError`."""
    from pydantic_core import ValidationError, from_json

    if len(blob) > MAX_PLAN_BYTES or blob.count(b",") > MAX_PLAN_ENTRIES:
        raise ProtocolError(
            f"the plan has {len(blob)} bytes and {blob.count(b',')} commas, but at most"
            f" {MAX_PLAN_BYTES} and {MAX_PLAN_ENTRIES} are looked at: use fewer server"
            " points, features or rounds."
        )
    try:
        plan: Plan = adapter(Plan).validate_json(blob, strict=True)
    except ValidationError as error:
        # Asking where costs time for each place, so it is asked of a few only.
        few = error.error_count() <= _LISTED_ERRORS
        found = (
            error.errors(include_url=False, include_context=False, include_input=False)
            if few
            else []
        )
        place = (
            _text(".".join(map(str, found[0]["loc"])), 200) if found else "many places"
        )
        raise ProtocolError(
            f"the plan is malformed at {place!r}: use the same version of"
            " flwr-dpkmeans."
        ) from error
    if from_json(dump_plan(plan)) != from_json(blob):
        # The parser skips what it does not know, and fills in what is left out: two
        # sides might read two plans.
        raise ProtocolError(
            "the plan says more or less than one does: use the same version of"
            " flwr-dpkmeans."
        )
    return plan


# Requests and replies: what they are, and how they travel.


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
    versions: Versions | None = None
    """Stated with the plan, and checked before the plan is parsed, whose format may be
    another.
    """


@dataclass(frozen=True)
class KeysReply:
    """A client's answer to the plan."""

    public_key: bytes
    """X25519, fresh for the run."""
    plan_digest: bytes
    n_features: int
    """Width of its table: schema, the same whatever the rows are."""
    identity: bytes = b""
    signature: bytes = b""
    """Ed25519 public key and signature of all this, from a node that has an identity.

    Else empty.
    """
    marks: frozenset[bytes] = frozenset()
    """From a node that pins identities: `pin_mark` of each, so that the server can tell
    a cohort that this node would refuse before anybody pays for it; else empty.
    """
    columns: str = ""
    """Digest of its column names in the order that the run agrees on (`sums.plan`).

    Empty without names.
    """

    @property
    def credential(self) -> Credential | None:
        """What the node signed, for the other clients.

        a malformed one is a `ProtocolError`.
        """
        if not self.identity and not self.signature:
            return None
        return Credential(self.identity, self.plan_digest, self.signature)


@dataclass(frozen=True)
class Failure:
    """A refusal, or a failure on a client's side.

    a fixed code and a sentence made of public values only.
    """

    status: Status
    code: str
    sentence: str

    def stop(self, node: int, *, always: bool) -> PeerError:
        """The error that it is to the server: one that stops the run, or one that only
        leaves the node out.
        """
        if always or self.code in STOPPING_CODES:
            error = RefusalError(f"node {node} refused ({self.code}): {self.sentence}")
            # The sentence may hold a limit of the node's policy, which its owner tells
            # the server alone.
            error.for_others = f"node {node} refused ({self.code})."
            return error
        return ProtocolError(
            f"node {node} did not answer ({self.code}): {self.sentence}"
        )


_FORMS: Mapping[Stage, tuple[Any, type[Any]]] = MappingProxyType(
    {
        Stage.KEYS: (None, KeysReply),
        Stage.SHARE: (messages.ShareRequest, messages.ShareReply),
        Stage.SUM: (messages.SumRequest, messages.SumReply),
        Stage.UNMASK: (messages.UnmaskRequest, messages.UnmaskReply),
        Stage.FINISH: (messages.FinishRequest, messages.FinishReply),
        Stage.STOP: (messages.StopRequest, messages.StopReply),
    }
)
"""Body of a request and reply of each stage."""
_RELEASED = ("release_round", "release_attempt")
_HEADER_NAMES: Mapping[str, str] = MappingProxyType({"round_index": "round"})


@dataclass(frozen=True)
class _Blob:
    """How values of one type travel, in messages, and are kept, in a client's memory."""

    write: Callable[[Any], bytes]
    read: Callable[..., Any]
    in_context: bool = False
    """Whether reading takes what has been read of the message before, too."""


_BLOBS: Mapping[Any, _Blob] = MappingProxyType(
    {
        bytes: _Blob(bytes, bytes),
        frozenset[bytes]: _Blob(packing.pack_marks, packing.unpack_marks),
        tuple[int, ...]: _Blob(packing.pack_nodes, packing.unpack_nodes),
        Mapping[int, bytes]: _Blob(packing.pack_boxes, packing.unpack_boxes),
        Roster: _Blob(
            attrgetter("packed"),
            lambda blob, before: packing.unpack_roster(before.get("attempt", 0), blob),
            True,
        ),
        Mapping[int, Credential]: _Blob(
            packing.pack_credentials,
            lambda blob, before: packing.unpack_credentials(
                blob, len(before["roster"].members) if "roster" in before else 0
            ),
            True,
        ),
    }
)


@lru_cache(maxsize=32)
def _fields_of(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name of each field, its type (if it may be None, the other one), and whether it
    must be there.
    """
    hints = get_type_hints(kind)
    kinds = {
        name: get_args(hint)[0] if isinstance(hint, UnionType) else hint
        for name, hint in hints.items()
    }
    needed = {
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    }
    return tuple(
        [(one.name, kinds[one.name], one.name in needed) for one in fields(kind)]
    )


def _write(message: Any, header: dict[str, Any], parts: dict[str, Any]) -> Packet:
    """A message after what is in every header and packet.

    Each field by its type, under its name.
    """
    vector = None
    for name, kind, needed in () if message is None else _fields_of(message.__class__):
        value = getattr(message, name)
        if kind is int:
            header[_HEADER_NAMES.get(name, name)] = value
        elif kind is str:
            header |= {name: value} if value else {}
        elif kind in _BLOBS:
            if value or needed:
                parts[name] = _BLOBS[kind].write(value)
        elif value is not None:
            vector = value.values
            header |= (
                zip(_RELEASED, value.attempt_id, strict=True)
                if kind is messages.Release
                else ()
            )
    return Packet({"header": json.dumps(header), **parts}, vector)


def _read(message: Any, packet: Packet) -> Any:
    values: dict[str, Any] = {}
    for name, kind, needed in _fields_of(message):
        if kind is int:
            values[name] = packet.integer(_HEADER_NAMES.get(name, name))
        elif kind is str:
            values[name] = packet.header.get(name, "")
        elif kind in _BLOBS:
            if needed or name in packet.fields:
                form, blob = _BLOBS[kind], packet.blob(name)
                values[name] = (
                    form.read(blob, values) if form.in_context else form.read(blob)
                )
        elif packet.vector is None:
            if needed:
                what = "release" if kind is messages.Release else "vector"
                raise ProtocolError(
                    f"a message carries no {what}, but must have one: message"
                    " discarded."
                )
        elif kind is messages.Release:
            index, attempt = map(packet.integer, _RELEASED)
            values[name] = messages.Release(index, attempt, packet.vector)
        else:
            values[name] = kind(packet.vector)
    return message(**values)


# What a client's memory has as blobs: rosters, with their attempts, and states.
_KEPT: Mapping[Any, _Blob] = MappingProxyType(
    {
        State: _Blob(attrgetter("packed"), unpack_state),
        Roster: _Blob(
            lambda roster: roster.attempt.to_bytes(4, "little") + roster.packed,
            lambda blob: packing.unpack_roster(
                int.from_bytes(blob[:4], "little"), blob[4:]
            ),
        ),
    }
)


@lru_cache(maxsize=8)
def _plain_fields(kind: Any, known: frozenset[str]) -> Any:
    """A model of those fields of a class that are no blobs, and not known elsewhere."""
    from pydantic import ConfigDict, create_model

    hints, in_text = (
        get_type_hints(kind),
        ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"),
    )
    names = [
        name
        for name, bare, _ in _fields_of(kind)
        if bare not in _KEPT and name not in known
    ]
    own: dict[str, Any] = {name: (hints[name], ...) for name in names}
    return create_model(str(kind.__name__), __config__=in_text, **own)


def pack_fields(record: Any, *known: str) -> dict[str, Any]:
    """An object's fields, but those that are known elsewhere.

    Blobs, and one text under the name of its class.
    """
    kind, values = record.__class__, vars(record)
    stored = {
        kind.__name__: (
            _plain_fields(kind, frozenset(known))
            .model_construct(**values)
            .model_dump_json()
        )
    }
    for name, bare, _ in _fields_of(kind):
        if bare in _KEPT and values[name] is not None:
            stored[name] = _KEPT[bare].write(values[name])
    return stored


def unpack_fields(kind: Any, stored: Mapping[str, Any], **known: Any) -> Any:
    """Undo `pack_fields`, with what is known elsewhere."""
    values = known | dict(
        _plain_fields(kind, frozenset(known)).model_validate_json(stored[kind.__name__])
    )
    for name, bare, _ in _fields_of(kind):
        if bare in _KEPT:
            values[name] = (
                _KEPT[bare].read(bytes(stored[name])) if name in stored else None
            )
    return kind(**values)


def encode_request(request: Request) -> Packet:
    """One message to one client; with a run id, clients in other runs refuse it."""
    header: dict[str, Any] = {"stage": request.stage.value}
    if request.run_id is not None:
        header["run"] = request.run_id
    if request.stage is Stage.KEYS:
        header |= vars(installed_versions())
    parts: dict[str, Any] = {} if request.plan is None else {"plan": request.plan}
    if request.wait is not None:
        parts["wait"] = request.wait
    return _write(request.body, header, parts)


def decode_request(packet: Packet) -> Request:
    """Undo `encode_request`."""
    stage, header = packet.choice("stage", Stage), packet.header
    form, _ = _FORMS[stage]
    plan = packet.blob("plan") if "plan" in packet.fields else b""
    versions = stated_versions(header) if form is None else None
    body = None if form is None else _read(form, packet)
    return Request(stage, body, plan or None, header.get("run"), packet.wait, versions)


def encode_reply(stage: Stage, reply: Any) -> Packet:
    """One reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    if stage is Stage.KEYS:
        header |= vars(installed_versions())
    return _write(reply, header, {})


def encode_failure(failure: Failure) -> Packet:
    """A refusal in the place of a reply."""
    told = _text(failure.sentence, LONGEST_SENTENCE)
    return _write(
        None,
        {"status": failure.status.value, "code": failure.code, "sentence": told},
        {},
    )


def _checked_keys(reply: KeysReply) -> KeysReply:
    """Refuse keys, digests and signatures that have not the form of one."""
    if len(reply.public_key) != KEY_BYTES:
        raise ProtocolError(
            f"a client's public key has {len(reply.public_key)} bytes instead of"
            f" {KEY_BYTES}: reply discarded."
        )
    if not isinstance(reply.columns, str) or not re.fullmatch(
        "([0-9a-f]{64})?", reply.columns
    ):
        raise ProtocolError(
            "a client's digest of columns is no SHA-256 in hexadecimal: reply"
            " discarded."
        )
    _ = reply.credential
    return reply


def _text(value: object, longest: int) -> str:
    """Another party's text for a log: bounded, and without control characters."""
    return printable(value, longest) if isinstance(value, str) else ""
