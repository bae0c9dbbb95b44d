"""An in-process Flower Grid: the same strategy, ClientApp, mod and records, without processes or sockets.

It behaves like the real transports where it matters: messages are copied, each node has its own ``context.state`` that
survives only successful calls, exceptions become Flower errors, and replies may be missing, late or repeated (which
tests ask for through `Faults`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.sums.local import FIRST_NODE_ID as FIRST_NODE_ID

logger = placed_logger("flwr_dpkmeans.inprocess")

_SERVER_NODE_ID = 1


@dataclass(frozen=True)
class Node:
    """One virtual client: the app that it runs, and its own configuration."""

    app: ClientApp
    node_config: Mapping[str, Any] = field(default_factory=dict)


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
    """Sees the whole batch of requests: in another order, without some, with older ones."""
    on_receive: Callable[[list[Message]], list[Message]] = list
    """The same for a batch of replies."""


class InProcessGrid(Grid):
    """A Grid over ClientApps in this process; node ids count up from 2.

    Use `running` around a run: Flower's `Message` takes sender and run from a process-wide identity, which is set for
    the duration and put back afterwards.
    """

    is_complete = True

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        run_id: int = 1,
        run_config: Mapping[str, Any] | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._nodes = dict(enumerate(nodes, start=FIRST_NODE_ID))
        self._run = Run.create_empty(run_id)
        self._faults = faults or Faults()
        self._contexts = {
            node_id: Context(run_id, node_id, dict(node.node_config), RecordDict(), dict(run_config or {}))
            for node_id, node in self._nodes.items()
        }
        self._ids = itertools.count(1)
        self._pending: dict[str, list[Message]] = {}
        self.received: list[Message] = []

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def set_run(self, run: Run) -> None:
        """Replace the run."""
        self._run = run

    @contextmanager
    def running(self) -> Iterator[InProcessGrid]:
        """Set Flower's task identity for the duration of a run."""
        saved = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, self._run.run_id, _SERVER_NODE_ID
        try:
            yield self
        finally:
            TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = saved

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message (Flower's deprecated way)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Node ids."""
        return list(self._nodes)

    def context_of(self, node_id: int) -> Context:
        """One node's context, for tests."""
        return self._contexts[node_id]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver messages and keep the replies until they are pulled."""
        ids = []
        for message in self._faults.on_send(list(messages)):
            message_id = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id
            ids.append(message_id)
            self._pending[message_id] = self._deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out the replies to the given messages, and whatever arrived late."""
        replies = [reply for message_id in message_ids for reply in self._pending.pop(message_id, [])]
        extra, self._faults.extra = self._faults.extra, []
        replies = self._faults.on_receive(replies + extra)
        self.received += replies
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Deliver and collect; nothing is waited for, a lost message simply has no reply."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> list[Message]:
        """Run one node's app on a copy of a message."""
        node_id = message.metadata.dst_node_id
        if self._faults.on_request is not None and not self._faults.on_request(message):
            return []
        if node_id not in self._nodes:
            error = Error(code=ErrorCode.NODE_UNAVAILABLE, reason="the node does not exist")
            return [self._stamped(Message(error, reply_to=message))]
        context = self._contexts[node_id]
        trial = Context(context.run_id, context.node_id, context.node_config, copied(context.state), context.run_config)
        sent = Message(metadata=message.metadata, content=copied(message.content))  # type: ignore[call-overload]
        try:
            reply = self._nodes[node_id].app(sent, trial)
        except Exception as exception:
            logger.debug("node %d raised %s", node_id, where_raised(exception))
            reason = f"{type(exception)}:<'{exception}'>"
            reply = Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason), reply_to=message)
        else:
            self._contexts[node_id] = trial
        reply = self._stamped(reply)
        return [reply] if self._faults.on_reply is None else self._faults.on_reply(reply)

    def _stamped(self, reply: Message) -> Message:
        """Give a reply an id of its own."""
        reply.metadata.__dict__["_message_id"] = f"reply-{next(self._ids)}"
        return reply


def copied(content: RecordDict) -> RecordDict:
    """Copy records one by one; their values (numbers, bytes, serialised arrays) are immutable."""
    copy = content.copy()
    for name, record in content.items():
        copy[name] = record.copy()
    return copy
