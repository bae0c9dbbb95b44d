"""Messages to very many virtual clients, a few at a time.

Flower's simulation looks through all messages in flight once for every node, again and again, so that with 1,000 nodes
most of its time goes into looking. With few in flight there is little to look through, and memory is bounded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

IN_FLIGHT = max(32, 4 * (os.cpu_count() or 1))
"""Messages that are on their way at a time: enough for a worker on every core of this machine."""
_POLL_SECONDS = 0.05


def send_in_waves(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    *,
    in_flight: int = IN_FLIGHT,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Message]:
    """Send and collect as `Grid.send_and_receive` does, but never more than `in_flight` at a time.

    Parameters
    ----------
    grid : Grid
        Of a simulation.
    messages : sequence of Message
        One for each node.
    timeout : float
        Seconds for all of them together.
    in_flight : int
        Largest number of messages without a reply.
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
            waiting.update(grid.push_messages(wave))
            sent += len(wave)
        arrived = list(grid.pull_messages(waiting))
        replies += arrived
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        if not arrived:
            sleep(_POLL_SECONDS)
    return replies
