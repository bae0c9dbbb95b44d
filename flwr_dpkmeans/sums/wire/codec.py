"""Requests and replies, and how they become packets."""

from __future__ import annotations

import re

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import SIGNATURE_BYTES
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.wire.failure import Failure, Status, shown_text
from flwr_dpkmeans.sums.wire.message_fields import read_message, write_message
from flwr_dpkmeans.sums.wire.packet import Packet
from flwr_dpkmeans.sums.wire.requests import (
    MESSAGES,
    KeysReply,
    Reply,
    Request,
    RequestBody,
)
from flwr_dpkmeans.sums.wire.versions import (
    installed_versions,
    require_same_versions,
    stated_versions,
)

LONGEST_SENTENCE = 800
"""Characters of a refusal, some of which the header spells with 12."""
_SHA256_OR_NOTHING = re.compile("([0-9a-f]{64})?")


def encode_request(request: Request) -> Packet:
    """One message to one client; with a run id, clients in other runs refuse it."""
    header: dict[str, object] = {"stage": request.stage.value}
    if request.run_id is not None:
        header["run"] = request.run_id
    if request.stage is Stage.KEYS:
        header |= vars(installed_versions())
    parts: dict[str, object] = {}
    if request.plan is not None:
        parts["plan"] = request.plan
    if request.wait is not None:
        parts["wait"] = request.wait
    return write_message(request.body, header, parts)


def decode_request(packet: Packet) -> Request:
    """Undo `encode_request`."""
    stage = packet.choice("stage", Stage)
    kind, _ = MESSAGES[stage]
    versions = None
    if kind is None:
        versions = stated_versions(packet.header)
    plan = b""
    if "plan" in packet.fields:
        plan = packet.blob("plan")
    body: RequestBody | None = None
    if kind is not None:
        body = read_message(kind, packet)
    return Request(
        stage=stage,
        body=body,
        plan=plan if plan else None,
        run_id=packet.header.get("run"),
        wait=packet.wait,
        versions=versions,
    )


def encode_reply(stage: Stage, reply: Reply) -> Packet:
    """One reply; nothing else ever leaves a client."""
    header: dict[str, object] = {"status": Status.OK.value}
    if stage is Stage.KEYS:
        header |= vars(installed_versions())
    return write_message(reply, header, {})


def decode_reply(packet: Packet, stage: Stage, node: int) -> Reply:
    """Read the reply to what was asked in a stage of the protocol.

    A key of another version is not parsed.
    """
    if stage is Stage.KEYS:
        require_same_versions(
            stated_versions(packet.header),
            sender=f"node {node}",
            receiver="the server",
        )
    _, kind = MESSAGES[stage]
    reply: Reply = read_message(kind, packet)
    if isinstance(reply, KeysReply):
        _require_form_of_keys(reply)
    elif isinstance(reply, messages.UnmaskReply):
        _require_form_of_signature(reply)
    elif isinstance(reply, messages.FinishReply) and packet.vector is not None:
        # A late reply to a request for a vector has a tag as well, of an older
        # state.
        raise ProtocolError(
            "a client's reply carries a vector that was not asked for: it is late,"
            " and discarded."
        )
    return reply


def encode_failure(failure: Failure) -> Packet:
    """A refusal in the place of a reply."""
    header: dict[str, object] = {
        "status": failure.status.value,
        "code": failure.code,
        "sentence": shown_text(failure.sentence, LONGEST_SENTENCE),
    }
    return write_message(None, header, {})


def _require_form_of_keys(reply: KeysReply) -> None:
    """Refuse keys, digests and signatures that have not the form of one."""
    if len(reply.public_key) != KEY_BYTES:
        raise ProtocolError(
            f"a client's public key has {len(reply.public_key)} bytes instead of"
            f" {KEY_BYTES}: reply discarded."
        )
    if not _SHA256_OR_NOTHING.fullmatch(reply.columns):
        raise ProtocolError(
            "a client's digest of columns is no SHA-256 in hexadecimal: reply"
            " discarded."
        )
    # It refuses a malformed one when it is made.
    _ = reply.credential


def _require_form_of_signature(reply: messages.UnmaskReply) -> None:
    """Refuse a signature of another length than one has, if there is one."""
    if len(reply.signature) not in (0, SIGNATURE_BYTES):
        raise ProtocolError(
            f"a client signed the survivors with {len(reply.signature)} bytes"
            f" instead of {SIGNATURE_BYTES}: reply discarded."
        )
