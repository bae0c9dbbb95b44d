"""The protocol at message level, for tests that play one side.

Contents built and read, and a server that is driven.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Message, RecordDict

from flwr_dpkmeans.algorithms.server.held_points import HeldPoints
from flwr_dpkmeans.flower.messages.message_records import (
    RECORD,
    VECTOR_LAYOUT,
    VECTOR_RECORD,
    content_of,
)
from flwr_dpkmeans.flower.messages.message_records import packet_of as packet_of
from flwr_dpkmeans.flower.messages.replies import answers_of, message_of
from flwr_dpkmeans.secagg.messages import (
    Release,
    ShareRequest,
    Stage,
    SumReply,
    SumRequest,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.messages.packed_parts import (
    MAX_BOXES,
    pack_boxes,
    unpack_boxes,
    unpack_roster,
)
from flwr_dpkmeans.sums import wire
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.wire import (
    MAX_BLOB_BYTES,
    MAX_LIST_BYTES,
    MAX_PLAN_BYTES,
    MAX_PLAN_ENTRIES,
    KeysReply,
    Request,
    Status,
    Versions,
    decode_request,
    dump_plan,
    encode_request,
    installed_versions,
    load_plan,
    plan_digest,
    stated_versions,
)

__all__ = [
    "MAX_BLOB_BYTES", "MAX_BOXES", "MAX_LIST_BYTES", "MAX_PLAN_BYTES",
    "MAX_PLAN_ENTRIES", "RECORD", "VECTOR_LAYOUT", "VECTOR_RECORD", "WAIT", "Stage",
    "Status", "Versions", "dump_plan", "installed_versions", "load_plan", "pack_boxes",
    "plan_digest", "stated_versions", "unpack_boxes", "unpack_roster",
]  # fmt: skip
WAIT = "wait"


def copied(content: RecordDict) -> RecordDict:
    """Copy records one by one.

    Their values (numbers, bytes, serialised arrays) are immutable.
    """
    copy = content.copy()
    for name, record in content.items():
        copy[name] = record.copy()
    return copy


def request_content(
    stage: Stage,
    *,
    plan: bytes | None = None,
    request: Any = None,
    run_id: int | None = None,
) -> Any:
    """The content of one request."""
    if request is None and stage is not Stage.KEYS:
        content = content_of(
            encode_request(Request(Stage.KEYS, plan=plan, run_id=run_id))
        )
        record: Any = content[RECORD]
        record["header"] = record["header"].replace('"keys"', f'"{stage.value}"')
        return content
    return content_of(encode_request(Request(stage, request, plan, run_id)))


def unmask_request_content(request: UnmaskRequest) -> RecordDict:
    return content_of(encode_request(Request(Stage.UNMASK, request)))


def stage_and_round(message: Message) -> tuple[str, int]:
    """Phase and round of a request."""
    header = json.loads(str(message.content.config_records[RECORD]["header"]))
    return header["stage"], header.get("round", -1)


def stage_of(content: RecordDict) -> Stage | None:
    """Phase of a message; None if it is not of this protocol."""
    if RECORD not in content:
        return None
    return packet_of(content).choice("stage", Stage)


def header_of(content: RecordDict) -> Mapping[str, Any]:
    return packet_of(content).header


def version_fields() -> dict[str, int | str]:
    return dict(vars(installed_versions()))


def plan_blob(content: RecordDict) -> bytes | None:
    packet = packet_of(content)
    return (packet.blob("plan") or None) if "plan" in packet.fields else None


def parse_sum_request(content: RecordDict) -> SumRequest:
    return wire.decode_request(packet_of(content)).body


def parse_share_request(content: RecordDict) -> ShareRequest:
    return wire.decode_request(packet_of(content)).body


def parse_unmask_request(content: RecordDict) -> UnmaskRequest:
    return wire.decode_request(packet_of(content)).body


def parse_finish_request(content: RecordDict) -> Any:
    return wire.decode_request(packet_of(content)).body


def parse_keys_reply(content: RecordDict) -> KeysReply:
    return wire.decode_reply(packet_of(content), Stage.KEYS, 0)


def parse_sum_reply(content: RecordDict) -> SumReply:
    return wire.decode_reply(packet_of(content), Stage.SUM, 0)


def parse_share_reply(content: RecordDict) -> Any:
    return wire.decode_reply(packet_of(content), Stage.SHARE, 0)


def parse_unmask_reply(content: RecordDict) -> Any:
    return wire.decode_reply(packet_of(content), Stage.UNMASK, 0)


def parse_finish_reply(content: RecordDict) -> Any:
    return wire.decode_reply(packet_of(content), Stage.FINISH, 0)


def parse_request(content: RecordDict) -> Request:
    return decode_request(packet_of(content))


def parse_failure(content: RecordDict) -> tuple[Status, str, str]:
    """Status, code and sentence of a reply; the latter two are empty if all is well."""
    failure = packet_of(content).failure
    return (
        (Status.OK, "", "")
        if failure is None
        else (failure.status, failure.code, failure.sentence)
    )


READERS: Mapping[str, Callable[[RecordDict], Any]] = {
    "stage": stage_of, "header": header_of, "plan": plan_blob, "request": parse_request,
    "sum request": parse_sum_request, "finish request": parse_finish_request,
    "share request": parse_share_request, "unmask request": parse_unmask_request,
    "keys reply": parse_keys_reply, "sum reply": parse_sum_reply,
    "finish reply": parse_finish_reply, "share reply": parse_share_reply,
    "unmask reply": parse_unmask_reply, "failure": parse_failure,
}  # fmt: skip
"""Everything that reads what a peer sent."""


class ServerRun(Server):
    """A server whose every step a test takes by hand."""

    def __init__(
        self,
        config: RunConfig,
        *,
        run_id: int,
        seed: int,
        node_ids: Iterable[int],
        held: HeldPoints | None = None,
    ) -> None:
        nodes = tuple(node_ids)
        plan = draft_plan(
            config,
            run_id=run_id,
            n_clients=len(nodes),
            seed=seed,
            n_features=None if held is None else held.scaled.shape[1],
            server=None if held is None else held.facts,
            public_points=None if held is None else held.public,
        )
        super().__init__(
            plan, node_ids=nodes, server_points=None if held is None else held.on_server
        )

    def keys_messages(self) -> list[Message]:
        return keys_messages(self)

    def take_keys(self, replies: Iterable[Message]) -> None:
        self.take(answers_of(replies))

    def open_round(self, index: int) -> None:
        """Opened by itself, when its messages are asked for."""
        assert self._to_open in (index, None), (self._to_open, index)

    def sum_messages(self) -> list[Message]:
        return [message_of(node, request) for node, request in self.requests()]

    def take_sums(self, replies: Iterable[Message]) -> Step | None:
        return self.take(answers_of(replies))

    def finish_messages(self) -> list[Message]:
        """The last messages, also where they are not due."""
        due, self.due = self.due, Stage.FINISH
        messages = [message_of(node, request) for node, request in self._requests()]
        self.due = due
        return messages

    def take_finish(self, replies: Iterable[Message]) -> tuple[int, ...]:
        self.take(answers_of(replies))
        return self.confirmed


def keys_messages(server: Server) -> list[Message]:
    """The plan, for every node, whatever is due."""
    request = Request(Stage.KEYS, plan=dump_plan(server.plan))
    return [message_of(node, request) for node in server.joined]


__all__ += ["Release", "ServerRun", "keys_messages"]
