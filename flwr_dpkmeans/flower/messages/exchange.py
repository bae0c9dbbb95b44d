"""Messages that are sent to nodes, and replies that are waited for.

Flower's simulation looks through all messages in flight once for every node, again and
again, so that with 1,000 nodes most of its time goes into looking. With few in flight
there is little to look through, and memory is bounded. In a deployment
`Grid.send_and_receive` looks for replies every 3 s, and so returns up to 3 s after the
last one, and after its own timeout.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_dpkmeans.flower.messages.server_kind import is_deployed, is_simulated_server

T = TypeVar("T")
Listener = Callable[[Sequence[T]], object]
"""Hears of nodes that are there, or of replies that have come, whenever there are more.
"""

IN_FLIGHT = max(32, 4 * (os.cpu_count() or 1))
"""Messages that are on their way at a time.

Enough for a worker on every core of this machine.
"""

_POLL_SECONDS = 0.05

DEPLOYED_POLL_SECONDS = 0.25
"""Between two questions for replies in a deployment.

Each is one small request to the SuperLink.
"""


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    on_replies: Listener[Message] = list,
) -> list[Message]:
    """Send to all, wait up to `timeout` seconds in the way that suits the grid.

    And return the replies in time.
    """
    if is_deployed(grid):
        return send_in_waves(
            grid,
            messages,
            timeout,
            on_replies,
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
    on_replies: Listener[Message] = list,
    *,
    in_flight: int = IN_FLIGHT,
    poll: float = _POLL_SECONDS,
) -> list[Message]:
    """Send and collect as `Grid.send_and_receive` does.

    But never more than `in_flight` messages at a time.

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
            on_replies(replies)
        else:
            time.sleep(poll)
    return replies
