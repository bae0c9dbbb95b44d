"""Flower's messages in one process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from flwr_dpkmeans.flower import _private
from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID

if TYPE_CHECKING:
    from flwr_dpkmeans.flower._private import Run


logger = placed_logger("flwr_dpkmeans.estimator")

_ONE_RUN = RLock()
"""Held by the thread whose run Flower's identity of this process names."""
if hasattr(os, "register_at_fork"):
    # A child has no thread that would let go of it.
    _lock: Any = _ONE_RUN
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)


@dataclass(frozen=True)
class Node:
    """One virtual client: the app that it runs, and its own configuration."""

    app: ClientApp
    node_config: Mapping[str, bool | float | int | str] = field(default_factory=dict)


class InProcessGrid(Grid):
    """A Grid over ClientApps in this process; node ids count up from 2.

    As with the real transports, each node has its own ``context.state`` that survives
    only successful calls, and exceptions become Flower errors. Use `running` around a
    run.
    """

    is_complete = True

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        run_id: int = 1,
        run_config: Mapping[str, bool | float | int | str] | None = None,
    ) -> None:
        self._nodes = dict(enumerate(nodes, start=FIRST_NODE_ID))
        self._run = _private.empty_run(run_id)
        self.contexts = {
            node_id: Context(
                run_id,
                node_id,
                dict(node.node_config),
                RecordDict(),
                dict(run_config or {}),
            )
            for node_id, node in self._nodes.items()
        }
        self._ids = itertools.count(1)
        self._pending: dict[str, list[Message]] = {}

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def set_run(self, run: Run) -> None:
        """Remember the run, which decides nothing here."""
        self._run = run

    @contextmanager
    def running(self) -> Iterator[InProcessGrid]:
        """Set Flower's process-wide identity.

        From which a `Message` takes sender and run, for a run.

        Runs of other threads wait for their turn.
        """
        with _ONE_RUN, _private.process_of_run(self._run.run_id):
            yield self

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message that no network carries."""
        return Message(
            content,
            dst_node_id,
            message_type,
            ttl=ttl,
            group_id=group_id,
        )

    def get_node_ids(self) -> list[int]:
        """Nodes that live in this process."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let nodes answer at once, and keep their replies."""
        ids = []
        for message in messages:
            message_id = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id
            ids.append(message_id)
            self._pending[message_id] = self.deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies to these messages, which are not kept any longer."""
        return [
            reply
            for message_id in message_ids
            for reply in self._pending.pop(message_id, [])
        ]

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
    ) -> list[Message]:
        """Deliver and collect.

        Nothing is waited for, a lost message simply has no reply.
        """
        return self.pull_messages(self.push_messages(messages))

    def deliver(self, message: Message) -> list[Message]:
        """Run one node's app on a message; a test may lose it or the reply here."""
        node_id = message.metadata.dst_node_id
        if node_id not in self._nodes:
            return [
                Message(
                    Error(_private.no_such_node(), "the node does not exist"),
                    reply_to=message,
                )
            ]
        context = self.contexts[node_id]
        # The app replaces whole records of its state, so that a shallow copy keeps
        # those of before.
        trial = Context(
            context.run_id,
            context.node_id,
            context.node_config,
            context.state.copy(),
            context.run_config,
        )
        try:
            reply = self._nodes[node_id].app(message, trial)
        except Exception as exception:
            logger.debug("node %d raised %s", node_id, where_raised(exception))
            reason = f"{type(exception)}:<'{exception}'>"
            return [
                Message(
                    Error(code=_private.app_has_failed(), reason=reason),
                    reply_to=message,
                )
            ]
        self.contexts[node_id] = trial
        return [reply]
