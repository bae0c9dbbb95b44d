"""Requests as messages, and what came back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from flwr.app import Message, RecordDict

from flwr_dpkmeans.flower.messages.message_records import content_of, packet_of
from flwr_dpkmeans.log import event, placed_logger
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.wire import Answer, Request, decode_reply, encode_request

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.wire.failure import Failure
    from flwr_dpkmeans.sums.wire.requests import Reply

logger = placed_logger("flwr_dpkmeans.server")

_SUPERLINK = 1

_ERRORS = MappingProxyType(
    {
        1: "its SuperNode could not load the app, or its guard has not approved it",
        2: "its app failed before it could answer",
        3: "the message was no longer there",
        4: "its reply was not complete",
        5: "its SuperNode has given no sign of life for 60 s, or has left",
        7: "its SuperNode does not trust the app",
        8: "its app ended without a reply",
    }
)
"""What Flower's error codes mean for the operator."""


def message_of(node: int, request: Request) -> Message:
    """A request as a message.

    Each phase is an ordinary ``train`` message, the last one ``evaluate``.
    """
    kind = "evaluate" if request.stage is Stage.FINISH else "train"
    return Message(content_of(encode_request(request)), node, kind)


def answers_of(replies: Iterable[Message]) -> Iterator[tuple[int, Answer]]:
    """What came from which node.

    Flower's own errors in the place of a reply are logged.
    """
    for reply in replies:
        if reply.has_error():
            logger.warning(
                "%s", error_text(reply), extra=event("no reply", code=reply.error.code)
            )
        else:
            yield reply.metadata.src_node_id, partial(_opened, reply.content)


def _opened(
    content: RecordDict,
    stage: Stage,
    node: int,
) -> Reply | Failure:
    """A reply, or the failure in its place; see `flwr_dpkmeans.sums.wire.Answer`."""
    packet = packet_of(content)
    return packet.failure or decode_reply(packet, stage, node)


def error_text(reply: Message) -> str:
    """Say who gave no reply and why.

    The text of an exception, which could hold anything, is left out.
    """
    node, code = reply.metadata.src_node_id, reply.error.code
    # The SuperLink answers in place of a node that is gone, without saying which.
    who = "a node" if node == _SUPERLINK else f"node {node}"
    return (
        f"{who} gave no reply: {_ERRORS.get(code, 'look at its log')} (Flower's error"
        f" code {code})"
    )
