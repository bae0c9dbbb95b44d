"""Requests and replies, and how they become packets."""

from __future__ import annotations

import re
from typing import Any

from flwr_dpkmeans.errors import (
    ProtocolError,
)
from flwr_dpkmeans.secagg.credentials import SIGNATURE_BYTES
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.wire.failure import Failure, Status, shown_text
from flwr_dpkmeans.sums.wire.message_fields import read_message, write_message
from flwr_dpkmeans.sums.wire.packet import Packet
from flwr_dpkmeans.sums.wire.requests import MESSAGES, KeysReply, Request
from flwr_dpkmeans.sums.wire.versions import (
    installed_versions,
    require_same_versions,
    stated_versions,
)

LONGEST_SENTENCE = 800
"""Characters of a refusal, some of which the header spells with 12."""


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
    return write_message(request.body, header, parts)


def decode_request(packet: Packet) -> Request:
    """Undo `encode_request`."""
    stage = packet.choice("stage", Stage)
    kind, _ = MESSAGES[stage]
    versions = None
    body = None
    if kind is None:
        versions = stated_versions(packet.header)
    plan = packet.blob("plan") if "plan" in packet.fields else b""
    if kind is not None:
        body = read_message(kind, packet)
    return Request(
        stage=stage,
        body=body,
        plan=plan or None,
        run_id=packet.header.get("run"),
        wait=packet.wait,
        versions=versions,
    )


def encode_reply(stage: Stage, reply: Any) -> Packet:
    """One reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    if stage is Stage.KEYS:
        header |= vars(installed_versions())
    return write_message(reply, header, {})


def decode_reply(
    packet: Packet,
    stage: Stage,
    node: int,
) -> Any:
    """The reply to what was asked in a stage of the protocol; a key of another version
    is not parsed.
    """
    _, kind = MESSAGES[stage]
    if stage is Stage.KEYS:
        require_same_versions(
            stated_versions(packet.header),
            sender=f"node {node}",
            receiver="the server",
        )
        return _checked_keys(read_message(kind, packet))
    reply = read_message(kind, packet)
    if stage is Stage.UNMASK and len(reply.signature) not in (0, SIGNATURE_BYTES):
        raise ProtocolError(
            f"a client signed the survivors with {len(reply.signature)} bytes"
            f" instead of {SIGNATURE_BYTES}: reply discarded."
        )
    if stage is Stage.FINISH and packet.vector is not None:
        # A late reply to a request for a vector has a tag as well, of an older
        # state.
        raise ProtocolError(
            "a client's reply carries a vector that was not asked for: it is late,"
            " and discarded."
        )
    return reply


def encode_failure(failure: Failure) -> Packet:
    """A refusal in the place of a reply."""
    header = {
        "status": failure.status.value,
        "code": failure.code,
        "sentence": shown_text(failure.sentence, LONGEST_SENTENCE),
    }
    return write_message(None, header, {})


def _checked_keys(reply: KeysReply) -> KeysReply:
    """Refuse keys, digests and signatures that have not the form of one."""
    if len(reply.public_key) != KEY_BYTES:
        raise ProtocolError(
            f"a client's public key has {len(reply.public_key)} bytes instead of"
            f" {KEY_BYTES}: reply discarded."
        )
    is_text = isinstance(reply.columns, str)
    if not is_text or not re.fullmatch("([0-9a-f]{64})?", reply.columns):
        raise ProtocolError(
            "a client's digest of columns is no SHA-256 in hexadecimal: reply"
            " discarded."
        )
    _ = reply.credential
    return reply
