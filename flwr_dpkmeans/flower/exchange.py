"""Waiting for nodes and for their answers, and how long that takes.

Flower's simulation looks through all messages in flight once for every node, again and again, so that with 1,000 nodes
most of its time goes into looking. With few in flight there is little to look through, and memory is bounded.

In a deployment `Grid.send_and_receive` looks for replies every 3 s, and so returns up to 3 s after the last one, and
after its own timeout.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_dpkmeans.errors import CohortError
from flwr_dpkmeans.flower.node import is_simulated_server

IN_FLIGHT = max(32, 4 * (os.cpu_count() or 1))
"""Messages that are on their way at a time: enough for a worker on every core of this machine."""
_POLL_SECONDS = 0.05
DEPLOYED_POLL_SECONDS = 0.25
"""Between two questions for replies in a deployment: each is one small request to the SuperLink."""
_JOINING_POLL_SECONDS = 0.5
_SETTLED_SECONDS = 3.0
_REMIND_SECONDS = 30.0


def is_deployed(grid: Grid) -> bool:
    """Whether messages go over a SuperLink, where every reply is polled for: not in process, nor in a simulation."""
    return not getattr(grid, "is_complete", False) and not is_simulated_server()


def wait_for_nodes(
    grid: Grid,
    n_clients: int | None,
    min_clients: int,
    timeout: float,
    *,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """Wait until the expected nodes have joined, and return their ids in ascending order.

    With `n_clients` exactly this many take part, those with the lowest ids; without, all that are there once none has
    come or gone for 3 s or the time (seconds) is up, at least `min_clients`. `say` is told what is being waited for;
    tests give their own clock. Raises a `CohortError` if too few joined in time.
    """
    start = clock()
    wanted = n_clients or min_clients
    last: list[int] = []
    changed = told = start
    while True:
        nodes = sorted(grid.get_node_ids())
        now = clock()
        if nodes != last:
            last, changed = nodes, now
            if len(nodes) < wanted:
                say(f"waiting for {wanted} clients: {len(nodes)} joined so far")
                told = now
        elif len(nodes) < wanted and now - told >= _REMIND_SECONDS:
            waited = f"{now - start:.0f} of {timeout:g} s"
            say(f"still waiting for {wanted} clients after {waited}: {len(nodes)} joined so far, nodes {nodes}")
            told = now
        if n_clients is not None and len(nodes) >= n_clients:
            return nodes[:n_clients]
        settled = now - changed >= _SETTLED_SECONDS or getattr(grid, "is_complete", False)
        expired = now - start >= timeout
        if n_clients is None and len(nodes) >= min_clients and (settled or expired):
            return nodes
        if expired:
            option = "min-clients" if n_clients is None else "num-clients"
            raise CohortError(
                f"{len(nodes)} of {wanted} clients joined within {timeout:g} s: start more nodes (in simulation: "
                f'--federation-config "num-supernodes={wanted}"), or lower {option}.'
            )
        sleep(min(_JOINING_POLL_SECONDS, timeout - (now - start)))


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> list[Message]:
    """Send to all, wait up to `timeout` seconds in the way that suits the grid, and return the replies in time."""
    if is_deployed(grid):
        return send_in_waves(grid, messages, timeout, in_flight=len(messages), poll=DEPLOYED_POLL_SECONDS)
    if is_simulated_server() and len(messages) > IN_FLIGHT:
        return send_in_waves(grid, messages, timeout)
    return list(grid.send_and_receive(messages, timeout=timeout))


def send_in_waves(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    *,
    in_flight: int = IN_FLIGHT,
    poll: float = _POLL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Message]:
    """Send and collect as `Grid.send_and_receive` does, but never more than `in_flight` messages at a time.

    `timeout` seconds are for all of them together, `poll` between two looks for replies; tests give their own clock.
    """
    end = clock() + timeout
    waiting: set[str] = set()
    replies: list[Message] = []
    sent = 0
    while (sent < len(messages) or waiting) and clock() < end:
        wave = messages[sent : sent + in_flight - len(waiting)]
        if wave:
            # A node that has left gets no message, and its message no id.
            waiting.update(name for name in grid.push_messages(wave) if name)
            sent += len(wave)
        arrived = list(grid.pull_messages(waiting)) if waiting else []
        replies += arrived
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        if not arrived:
            sleep(poll)
    return replies
