"""A whole federation of Flower's messages in one process.

The same strategy, ClientApp, secure-aggregation mod and records as a deployment.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from flwr_dpkmeans.errors import (
    ConfigurationError,
)
from flwr_dpkmeans.flower import _private
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.node.settings import NodeSettings
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.checks.columns import planned_schema
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.statement import (
    Step,
)
from flwr_dpkmeans.threads import one_thread

if TYPE_CHECKING:
    from flwr_dpkmeans.flower._private import Run

logger = placed_logger("flwr_dpkmeans.estimator")

_ONE_RUN = RLock()
"""Held by the thread whose run Flower's identity of this process names."""
if hasattr(os, "register_at_fork"):  # a child has no thread that would let go of it
    os.register_at_fork(after_in_child=_ONE_RUN._at_fork_reinit)  # type: ignore[attr-defined]


def play_inprocess(
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
) -> Federated:
    """Run any task through Flower's messages, every client behind the
    secure-aggregation mod.

    `parts` (n_i, d; or as in `Encoded`) and `server_points` (n_server, d) are in the
    caller's units; `labels` (n_i,) are for what looks at them; `on_step` is told of
    each step. The result is one client's: under ``oblivious`` the server has none.
    """
    n_beside = config.settings.n_beside
    split = [np.split(part, [part.shape[1] - n_beside], axis=1) for part in parts]
    clients = [
        KMeansClient(
            points,
            feature_names=config.feature_names,
            labels=None if labels is None else labels[i],
        )
        for i, (points, _) in enumerate(split)
    ]
    for client, (_, beside) in zip(clients, split, strict=True):
        # All parts were encoded by one schema, if any.
        client.agreement, client.beside = planned_schema(config.settings), beside
    grid = InProcessGrid(
        [node_of(client) for client in clients], run_id=secrets.randbits(62)
    )
    strategy = PrivateKMeans.from_config(
        config,
        server_points=server_points,
        on_step=on_step,
        # The result says it, and Python's warnings show it once, not once for each fit
        # in a loop.
        on_warning=logger.debug,
    )
    with one_thread(), grid.running():
        steps = strategy.start(grid).steps
    # Others may have failed.
    first = next(
        (client for client in clients if client.state_ is not None), clients[0]
    )
    if first.state_ is None or first.privacy_ is None:
        raise ConfigurationError(
            "the run ended without a result: look at the log of flwr_dpkmeans."
        )
    return Federated(
        strategy.run.plan,
        first.state_,
        first.privacy_,
        config.feature_names,
        steps,
        first.evaluation_,
    )


def node_of(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    settings = NodeSettings(
        IN_SIMULATION,
        MemoryLedger(),
        "default",
        simulated=True,
    )
    return Node(client_app(lambda _: client, mod=SecureAggregation(lambda _: settings)))


@dataclass(frozen=True)
class Node:
    """One virtual client: the app that it runs, and its own configuration."""

    app: ClientApp
    node_config: Mapping[str, Any] = field(default_factory=dict)


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
        run_config: Mapping[str, Any] | None = None,
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
        self._run = run

    @contextmanager
    def running(self) -> Iterator[InProcessGrid]:
        """Set Flower's process-wide identity, from which a `Message` takes sender and
        run, for a run.

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
        return Message(
            content,
            dst_node_id,
            message_type,
            ttl=ttl,
            group_id=group_id,
        )

    def get_node_ids(self) -> list[int]:
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            message_id = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id
            ids.append(message_id)
            self._pending[message_id] = self.deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
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
