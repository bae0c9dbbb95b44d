"""Packets of the protocol as Flower's records, and back; records of other kinds than they should be are refused.

Every message has one `ConfigRecord` named `RECORD`, and a vector as a uint64 array in an `ArrayRecord` named
`VECTOR_RECORD`. A client's memory is one `ConfigRecord` in ``context.state``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.flower_errors import error_text
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.wire import MAX_BLOB_BYTES, Failure, Packet, Request, encode_request

logger = placed_logger("flwr_dpkmeans.server")

RECORD = "dpkmeans"
VECTOR_RECORD = "dpkmeans.vector"
VECTOR_LAYOUT = "flwr-dpkmeans.little-endian"
"""Serialisation of vectors: raw 64-bit words, so that nothing has to be parsed."""
_MEMORY = "dpkmeans.client"


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
    return Packet(record, _vector_of(content))


def n_bytes(content: RecordDict) -> int:
    """Bytes of the values in a message, without Flower's own wrapping."""
    size = 0
    for config in content.config_records.values():
        size += sum(len(value) if isinstance(value, bytes | str) else 8 for value in config.values())
    for arrays in content.array_records.values():
        size += sum(len(array.data) for array in arrays.values())
    return size


def _vector_of(content: RecordDict) -> Ring | None:
    """The uint64 vector in a message, if it carries one."""
    record = content.get(VECTOR_RECORD)
    if record is None:
        return None
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


class Answered:
    """A node's reply that the server has not looked at; see `flwr_dpkmeans.sums.server.Answer`."""

    def __init__(self, content: RecordDict) -> None:
        self._content = content

    @cached_property
    def _packet(self) -> Packet:
        """What it carries; reading a message of another kind fails when it is looked at."""
        return packet_of(self._content)

    @property
    def failure(self) -> Failure | None:
        """What the node says is wrong."""
        return self._packet.failure

    def opened(self, stage: Stage, node: int) -> Any:
        """The reply to what was asked."""
        return self._packet.opened(stage, node)


def message_of(node: int, request: Request) -> Message:
    """A request as a message: each phase is an ordinary ``train`` message, the last one ``evaluate``."""
    kind = "evaluate" if request.stage is Stage.FINISH else "train"
    return Message(content_of(encode_request(request)), node, kind)


def answers_of(replies: Iterable[Message]) -> Iterator[tuple[int, Answered]]:
    """What came from which node; Flower's own errors in the place of a reply are logged."""
    for reply in replies:
        if reply.has_error():
            logger.warning("%s", error_text(reply))
        else:
            yield reply.metadata.src_node_id, Answered(reply.content)


def debug_size(what: str, content: RecordDict) -> None:
    """Log how large a message is, for whoever asks for details."""
    if client_log.logger.isEnabledFor(logging.DEBUG):
        client_log.logger.debug("%s %d bytes in %d records", what, n_bytes(content), len(content))
