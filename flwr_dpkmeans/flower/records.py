"""Packets of the protocol as Flower's records, and back; records of other kinds than they should be are refused.

Every message has one `ConfigRecord` named `RECORD`, and a vector as a uint64 array in an `ArrayRecord` named
`VECTOR_RECORD`. A client's memory is one `ConfigRecord` in ``context.state``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Never

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.secagg.keys import Ring
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.wire import MAX_BLOB_BYTES, Packet, Request, encode_request

logger = placed_logger("flwr_dpkmeans.server")

RECORD = "dpkmeans"
VECTOR_RECORD = "dpkmeans.vector"
VECTOR_LAYOUT = "flwr-dpkmeans.little-endian"
"""Serialisation of vectors: raw 64-bit words, so that nothing has to be parsed."""
_MEMORY = "dpkmeans.client"
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


def content_of(packet: Packet) -> RecordDict:
    """A packet as the content of a message."""
    content = RecordDict({RECORD: ConfigRecord(dict(packet.fields))})
    if packet.vector is not None:
        data = np.ascontiguousarray(packet.vector, dtype="<u8").tobytes()
        array = Array(dtype="uint64", shape=(len(packet.vector),), stype=VECTOR_LAYOUT, data=data)
        content[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return content


def packet_of(content: RecordDict) -> Packet:
    """Undo `content_of`."""
    # Flower's typed views (config_records) copy the whole dictionary each time, so records are looked up directly.
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError(f"a message carries no record {RECORD!r}: it is not of this protocol.")
    carried = content.get(VECTOR_RECORD)
    return Packet(record, None if carried is None else _vector_of(carried))


def n_bytes(content: RecordDict) -> int:
    """Bytes of the values in a message, without Flower's own wrapping."""
    size = 0
    for config in content.config_records.values():
        size += sum(len(value) if isinstance(value, bytes | str) else 8 for value in config.values())
    for arrays in content.array_records.values():
        size += sum(len(array.data) for array in arrays.values())
    return size


def _vector_of(record: Any) -> Ring:
    """The uint64 vector in a message."""
    if not isinstance(record, ArrayRecord):
        raise ProtocolError("a vector is not an array record: message discarded.")
    array = record.get("vector")
    if array is None or (array.dtype, array.stype) != ("uint64", VECTOR_LAYOUT):
        raise ProtocolError("a vector is missing or is not of 64-bit ring elements: message discarded.")
    if len(array.data) > MAX_BLOB_BYTES or len(array.data) % 8 or tuple(array.shape) != (len(array.data) // 8,):
        raise ProtocolError("a vector's length does not match its shape, or is too long: message discarded.")
    return np.frombuffer(array.data, dtype="<u8").astype(np.uint64, copy=False)


def recall(context: Context) -> Memory | None:
    """Read the memory of this run; None before the first message.

    Flower keeps one context for a whole series of runs, so what an earlier run left there may still be in it.
    """
    record: Any = context.state.get(_MEMORY)
    return None if record is None else Memory.unpack(record, context.run_id, context.node_id)


def remember(context: Context, memory: Memory) -> None:
    """Replace the memory of this run, or of one before it, all of it at once."""
    # One record, put in place by one assignment, so that a crash leaves the old or the new memory.
    context.state[_MEMORY] = ConfigRecord(memory.pack())


@dataclass(frozen=True)
class Unreadable:
    """A reply that is not of the protocol, as whoever looks at it is told; see `flwr_dpkmeans.sums.server.Answer`."""

    error: ProtocolError

    @property
    def failure(self) -> Never:
        """Not to be known."""
        raise self.error

    def opened(self, stage: Stage, node: int) -> Never:
        """Not to be known."""
        raise self.error


def message_of(node: int, request: Request) -> Message:
    """A request as a message: each phase is an ordinary ``train`` message, the last one ``evaluate``."""
    kind = "evaluate" if request.stage is Stage.FINISH else "train"
    return Message(content_of(encode_request(request)), node, kind)


def answers_of(replies: Iterable[Message]) -> Iterator[tuple[int, Packet | Unreadable]]:
    """What came from which node; Flower's own errors in the place of a reply are logged."""
    for reply in replies:
        if reply.has_error():
            logger.warning("%s", error_text(reply))
            continue
        answer: Packet | Unreadable
        try:
            answer = packet_of(reply.content)
        except ProtocolError as error:
            answer = Unreadable(error)
        yield reply.metadata.src_node_id, answer


def error_text(reply: Message) -> str:
    """Say who gave no reply and why; the text of an exception, which could hold anything, is left out.

    The SuperLink answers in place of a node that is gone, without saying which.
    """
    node, code = reply.metadata.src_node_id, reply.error.code
    who = "a node" if node == _SUPERLINK else f"node {node}"
    return f"{who} gave no reply: {_ERRORS.get(code, 'look at its log')} (Flower's error code {code})"


def debug_size(what: str, content: RecordDict) -> None:
    """Log how large a message is, for whoever asks for details."""
    if client_log.logger.isEnabledFor(logging.DEBUG):
        client_log.logger.debug("%s %d bytes in %d records", what, n_bytes(content), len(content))
