"""An in-process grid that loses, repeats, changes and reorders messages as a test says,
and keeps what came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node


@dataclass
class Faults:
    """What a test does to the traffic."""

    on_request: Callable[[Message], bool] | None = None
    """False loses the request."""
    on_reply: Callable[[Message], list[Message]] | None = None
    """What is delivered instead of a reply: none, one, several, or changed ones."""
    extra: list[Message] = field(default_factory=list)
    """Delivered with the next batch of replies: late ones, forged ones."""
    on_send: Callable[[list[Message]], list[Message]] = list
    """Sees the whole batch of requests: in another order, without some, with older
    ones.
    """
    on_receive: Callable[[list[Message]], list[Message]] = list
    """The same for a batch of replies."""


class FaultyGrid(InProcessGrid):
    """See `Faults`; `received` are all replies that the server got."""

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        run_id: int = 1,
        run_config: Mapping[str, Any] | None = None,
        faults: Faults | None = None,
    ) -> None:
        super().__init__(nodes, run_id=run_id, run_config=run_config)
        self._faults = faults or Faults()
        self.received: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver what the test makes of a batch."""
        return super().push_messages(self._faults.on_send(list(messages)))

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out the replies to the given messages, and whatever arrived late."""
        extra, self._faults.extra = self._faults.extra, []
        replies = self._faults.on_receive(super().pull_messages(message_ids) + extra)
        self.received += replies
        return replies

    def deliver(self, message: Message) -> list[Message]:
        """Run one node's app, unless the request is lost, and return what is left of
        its reply.
        """
        if self._faults.on_request is not None and not self._faults.on_request(message):
            return []
        (reply,) = super().deliver(message)
        known = message.metadata.dst_node_id in self.contexts
        return (
            [reply]
            if self._faults.on_reply is None or not known
            else self._faults.on_reply(reply)
        )
