"""Packets of the protocol as Flower's messages, sent to nodes that are waited for, as
are their answers.

Every message has one `ConfigRecord` named `RECORD`, and a vector as a uint64 array in
an `ArrayRecord` named `VECTOR_RECORD`; records of other kinds than they should be are
refused. A client's memory is one `ConfigRecord` in ``context.state``.

Flower's simulation looks through all messages in flight once for every node, again and
again, so that with 1,000 nodes most of its time goes into looking. With few in flight
there is little to look through, and memory is bounded. In a deployment
`Grid.send_and_receive` looks for replies every 3 s, and so returns up to 3 s after the
last one, and after its own timeout.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from flwr_dpkmeans.errors import CohortError, ProtocolError
from flwr_dpkmeans.flower._private import flower_home
from flwr_dpkmeans.log import event, name_nodes, placed_logger
from flwr_dpkmeans.node.durable_files import lock
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.party import Phase, changed
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.wire import (
    MAX_BLOB_BYTES,
    Answer,
    Packet,
    Request,
    decode_reply,
    encode_request,
)

logger = placed_logger("flwr_dpkmeans.server")

RECORD = "dpkmeans"
VECTOR_RECORD = "dpkmeans.vector"
VECTOR_LAYOUT = "flwr-dpkmeans.little-endian"
"""Serialisation of vectors: raw 64-bit words, so that nothing has to be parsed."""
_MEMORY = "dpkmeans.client"
_SUPERLINK = 1
Told = Callable[[Sequence[Any]], object]
"""Hears of nodes that are there, or of replies that have come, whenever there are more.
"""
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
        array = Array(
            dtype="uint64",
            shape=(len(packet.vector),),
            stype=VECTOR_LAYOUT,
            data=data,
        )
        content[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return content


def packet_of(content: RecordDict) -> Packet:
    """Undo `content_of`."""
    # Flower's typed views (config_records) copy the whole dictionary each time, so
    # records are looked up directly.
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError(
            f"a message carries no record {RECORD!r}: it is not of this protocol."
        )
    carried = content.get(VECTOR_RECORD)
    return Packet(record, None if carried is None else _vector_of(carried))


def _vector_of(record: Any) -> Ring:
    if not isinstance(record, ArrayRecord):
        raise ProtocolError("a vector is not an array record: message discarded.")
    array = record.get("vector")
    if array is None or (array.dtype, array.stype) != ("uint64", VECTOR_LAYOUT):
        raise ProtocolError(
            "a vector is missing or is not of 64-bit ring elements: message discarded."
        )
    if (
        len(array.data) > MAX_BLOB_BYTES
        or len(array.data) % 8
        or tuple(array.shape) != (len(array.data) // 8,)
    ):
        raise ProtocolError(
            "a vector's length does not match its shape, or is too long: message"
            " discarded."
        )
    return np.frombuffer(array.data, dtype="<u8").astype(np.uint64, copy=False)


def recall(context: Context) -> Memory | None:
    """The memory of this run, None before its first message.

    Flower's context may still hold that of an earlier run.
    """
    record: Any = context.state.get(_MEMORY)
    return None if record is None else Memory.unpack(record, context.run_id)


def remember(context: Context, memory: Memory) -> None:
    """Replace the memory of this run, or of one before it, all of it at once.

    At the run's end, its keys go.
    """
    if memory.protocol.phase is Phase.FINISHED:
        memory = changed(memory, protocol=memory.protocol.forgotten())
    # One record, put in place by one assignment, so that a crash leaves the old or the
    # new memory.
    context.state[_MEMORY] = ConfigRecord(memory.pack())


def message_of(node: int, request: Request) -> Message:
    """A request as a message: each phase is an ordinary ``train`` message, the last one
    ``evaluate``.
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
) -> Any:
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


def bytes_of(messages: Iterable[Message]) -> int:
    """Bytes of the values in some messages, without Flower's own wrapping."""
    size = 0
    for content in [message.content for message in messages if message.has_content()]:
        for config in content.config_records.values():
            size += sum(
                len(value) if isinstance(value, bytes | str) else 8
                for value in config.values()
            )
        for arrays in content.array_records.values():
            size += sum(len(array.data) for array in arrays.values())
    return size


def log_size(
    log: logging.Logger,
    what: str,
    messages: Sequence[Message],
) -> None:
    """Log how large messages are, for whoever asks for details."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "%s %d bytes in %d messages",
            what,
            bytes_of(messages),
            len(messages),
        )


IN_FLIGHT = max(32, 4 * (os.cpu_count() or 1))
"""Messages that are on their way at a time.

Enough for a worker on every core of this machine.
"""
_POLL_SECONDS = 0.05
DEPLOYED_POLL_SECONDS = 0.25
"""Between two questions for replies in a deployment.

Each is one small request to the SuperLink.
"""
_JOINING_POLL_SECONDS = 0.5
_SETTLED_SECONDS = 3.0
_REMIND_SECONDS = 30.0
TURN_FILE = "flwr-dpkmeans.turn"
"""In the SuperLink's Flower home: whose run it is holds its lock."""


def is_simulated_server() -> bool:
    """Whether this ServerApp runs inside Flower's simulation process, where all nodes
    join at once.
    """
    return "flwr.simulation.run_simulation" in sys.modules


def is_deployed(grid: Grid) -> bool:
    """Whether messages go over a SuperLink, where every reply is polled for.

    Not in process, nor in a simulation.
    """
    return not getattr(grid, "is_complete", False) and not is_simulated_server()


@contextlib.contextmanager
def turn(grid: Grid, *, concurrent: bool) -> Iterator[None]:
    """Ask a deployment's nodes only while no other run of its SuperLink does, unless
    that is wanted.

    A node answers one message at a time, so that runs at once are slow, and late.
    ServerApps of one SuperLink have one Flower home; where they run on several hosts,
    each host has a turn.
    """
    if concurrent or not is_deployed(grid):
        yield
        return
    with (flower_home() / TURN_FILE).open("a") as file:
        start, told = time.monotonic(), -math.inf
        while not lock(file.fileno(), wait=False):
            if (now := time.monotonic()) - told >= _REMIND_SECONDS:
                told, waited = now, now - start
                logger.info(
                    f"waiting for another run's end, for {waited:.0f} s so far"
                    " (concurrent=true: not waiting)"
                )
            time.sleep(_JOINING_POLL_SECONDS)
        yield


def wait_for_nodes(
    grid: Grid,
    n_clients: int | None,
    min_clients: int,
    wait: float,
    joined: Told = list,
) -> list[int]:
    """Wait until the expected nodes have joined, and return their ids in ascending
    order.

    With `n_clients` exactly this many take part, those with the lowest ids; without,
    all that are there once none has come or gone for 3 s or the time (seconds) is up,
    at least `min_clients`. Too few in time are a `CohortError`.
    """
    start = time.monotonic()
    wanted = n_clients or min_clients
    last: list[int] = []
    changed = told = start
    while True:
        # The SuperLink knows a node by its key, and the operator has named the key.
        names = {node.node_id: node.name for node in grid.get_nodes()}
        nodes = sorted(names)
        name_nodes(names)
        now = time.monotonic()
        if nodes != last:
            last, changed = nodes, now
            joined(nodes)
            if len(nodes) < wanted:
                logger.info(f"waiting for {wanted} clients: {len(nodes)} joined so far")
                told = now
        elif len(nodes) < wanted and now - told >= _REMIND_SECONDS:
            waited = f"{now - start:.0f} of {wait:g} s"
            there = f"{len(nodes)} joined so far, nodes {nodes}"
            logger.info(f"still waiting for {wanted} clients after {waited}: {there}")
            told = now
        if n_clients is not None and len(nodes) >= n_clients:
            return nodes[:n_clients]
        settled = now - changed >= _SETTLED_SECONDS or getattr(
            grid, "is_complete", False
        )
        expired = now - start >= wait
        if n_clients is None and len(nodes) >= min_clients and (settled or expired):
            return nodes
        if expired:
            option = "min-clients" if n_clients is None else "num-clients"
            raise CohortError(
                f"{len(nodes)} of {wanted} clients joined within {wait:g} s: start more"
                " nodes (in simulation: "
                f'--federation-config "num-supernodes={wanted}"), or lower {option}.'
            )
        time.sleep(min(_JOINING_POLL_SECONDS, wait - (now - start)))


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    heard: Told = list,
) -> list[Message]:
    """Send to all, wait up to `timeout` seconds in the way that suits the grid, and
    return the replies in time.
    """
    if is_deployed(grid):
        return send_in_waves(
            grid,
            messages,
            timeout,
            heard,
            in_flight=len(messages),
            poll=DEPLOYED_POLL_SECONDS,
        )
    if is_simulated_server() and len(messages) > IN_FLIGHT:
        return send_in_waves(grid, messages, timeout)
    return list(grid.send_and_receive(messages, timeout=timeout))


def send_in_waves(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    heard: Told = list,
    *,
    in_flight: int = IN_FLIGHT,
    poll: float = _POLL_SECONDS,
) -> list[Message]:
    """Send and collect as `Grid.send_and_receive` does, but never more than `in_flight`
    messages at a time.

    `timeout` seconds are for all of them together, `poll` between two looks for
    replies.
    """
    end = time.monotonic() + timeout
    waiting: set[str] = set()
    replies: list[Message] = []
    sent = 0
    while (sent < len(messages) or waiting) and time.monotonic() < end:
        wave = messages[sent : sent + in_flight - len(waiting)]
        if wave:
            # A node that has left gets no message, and its message no id.
            waiting.update(name for name in grid.push_messages(wave) if name)
            sent += len(wave)
        arrived = list(grid.pull_messages(waiting)) if waiting else []
        replies += arrived
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        if arrived:
            heard(replies)
        else:
            time.sleep(poll)
    return replies
