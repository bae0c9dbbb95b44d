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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Again:
    """What is sent once more, and how many seconds are waited for answers then."""

    messages: Sequence[Message] = ()
    seconds: float = 0.0


AskAgain = Callable[[Sequence[Message]], Again]
"""Hears of the replies that came in time, and says whom to ask once more."""


def nobody_again(replies: Sequence[Message]) -> Again:
    """Ask nobody a second time."""
    return Again()


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    on_replies: Listener[Message] = list,
    ask_again: AskAgain = nobody_again,
) -> list[Message]:
    """Send to all, wait up to `timeout` seconds in the way that suits the grid.

    And return the replies in time. In a deployment those that `ask_again` names are
    asked once more, and what was asked first may be answered until then, too.
    """
    if is_deployed(grid):
        waves = Waves(grid, on_replies, len(messages), DEPLOYED_POLL_SECONDS)
        waves.send(messages, timeout)
        again = ask_again(waves.replies)
        waves.send(again.messages, again.seconds)
        return waves.replies
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
    waves = Waves(grid, on_replies, in_flight, poll)
    waves.send(messages, timeout)
    return waves.replies


class Waves:
    """Messages under way, never more than `in_flight`, and what came of them."""

    def __init__(
        self,
        grid: Grid,
        on_replies: Listener[Message],
        in_flight: int,
        poll: float,
    ) -> None:
        self.replies: list[Message] = []
        self._grid = grid
        self._on_replies = on_replies
        self._in_flight = in_flight
        self._poll = poll
        self._waiting: set[str] = set()

    def send(self, messages: Sequence[Message], timeout: float) -> None:
        """Send all, and wait until all are answered or it has taken too long.

        Answers to what was sent before are taken in meanwhile.
        """
        end = time.monotonic() + timeout
        due: set[str] = set()
        sent = 0
        while (sent < len(messages) or due) and time.monotonic() < end:
            wave = messages[sent : sent + self._in_flight - len(due)]
            if wave:
                # A node that has left gets no message, and its message no id.
                due.update(name for name in self._grid.push_messages(wave) if name)
                sent += len(wave)
            waiting = self._waiting | due
            arrived = list(self._grid.pull_messages(waiting)) if waiting else []
            self.replies += arrived
            answered = {reply.metadata.reply_to_message_id for reply in arrived}
            due -= answered
            self._waiting -= answered
            if arrived:
                self._on_replies(self.replies)
            else:
                time.sleep(self._poll)
        self._waiting |= due
