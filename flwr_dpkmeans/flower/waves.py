"""An own loop over Flower's `Grid`: a few messages at a time in a simulation, and short waits in a deployment.

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

from flwr_dpkmeans.flower.node import is_simulated_server
from flwr_dpkmeans.flower.pace import is_deployed

IN_FLIGHT = max(32, 4 * (os.cpu_count() or 1))
"""Messages that are on their way at a time: enough for a worker on every core of this machine."""
_POLL_SECONDS = 0.05
DEPLOYED_POLL_SECONDS = 0.25
"""Between two questions for replies in a deployment: each is one small request to the SuperLink."""


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> list[Message]:
    """Send to all and wait for their replies, in the way that suits the grid.

    Parameters
    ----------
    grid : Grid
        Any.
    messages : sequence of Message
        One for each node.
    timeout : float
        Seconds for all of them together.

    Returns
    -------
    list of Message
        The replies that came in time.
    """
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
    """Send and collect as `Grid.send_and_receive` does, but never more than `in_flight` at a time.

    Parameters
    ----------
    grid : Grid
        Of a simulation or a deployment.
    messages : sequence of Message
        One for each node.
    timeout : float
        Seconds for all of them together.
    in_flight : int
        Largest number of messages without a reply.
    poll : float
        Seconds between two looks for replies.
    clock, sleep : callable
        For tests.

    Returns
    -------
    list of Message
        The replies that came in time.
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
