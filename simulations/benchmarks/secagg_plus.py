"""`SecureSum` beside Flower's own SecAgg+ workflow.

Bytes, seconds, round trips and precision of the same means.

``python -m simulations.benchmarks.secagg_plus`` prints the table. Both run in this
process, each message through Flower's own serialisation and back: bytes are those of
the contents, both ways, without HTTP; seconds are processor time of server and all
clients together, without training. Both recover the sum when clients leave, on graphs
of the same degree.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import Client as FlowerClient
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Scalar, ndarrays_to_parameters
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from numpy.typing import NDArray

from flwr_dpkmeans.flower.client.wrapped_app import WrappedApp
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.secure_sum import SecureSum
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.secagg.graph import recovery_graph
from flwr_dpkmeans.threads import one_thread

Vector = NDArray[np.float64]
MOST_EXAMPLES = 1000
_SHARED_PART = 8


@dataclass(frozen=True)
class Updates:
    """What every client adds to zeros in every round, and its number of examples."""

    values: Sequence[Vector]
    weights: Sequence[int]

    @classmethod
    def drawn(
        cls,
        n_clients: int,
        n_entries: int,
    ) -> Updates:
        """Of norm about 1, as a clipped update has."""
        generator = np.random.default_rng(n_clients)
        values = generator.normal(0.0, n_entries**-0.5, (n_clients, n_entries)) * 0.9
        weights = generator.integers(1, MOST_EXAMPLES, n_clients)
        return cls(list(values), weights.tolist())

    @property
    def mean(self) -> Vector:
        """The weighted mean in float64."""
        return np.average(
            self.values,
            axis=0,
            weights=self.weights,
        )


@dataclass(frozen=True)
class Cost:
    """What a run cost."""

    name: str
    n_clients: int
    n_rounds: int
    round_trips: int
    sent: int
    """Bytes of all messages and replies."""
    seconds: float
    error: float
    """Largest one in an entry of a mean."""


class CountingGrid(InProcessGrid):
    """Messages take Flower's serialisation and back, and are counted."""

    round_trips = 0
    sent = 0

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
    ) -> list[Message]:
        """Count a round trip."""
        self.round_trips += 1
        return super().send_and_receive(messages, timeout=timeout)

    def deliver(self, message: Message) -> list[Message]:
        """Count what goes out and what comes back."""
        message.content = self._travelled(message.content)
        replies = super().deliver(message)
        for reply in replies:
            if reply.has_content():
                reply.content = self._travelled(reply.content)
        return replies

    def _travelled(self, content: RecordDict) -> RecordDict:
        data = recorddict_to_proto(content).SerializeToString()
        self.sent += len(data)
        return recorddict_from_proto(ProtoRecordDict.FromString(data))


def secure_sum(
    updates: Updates,
    n_rounds: int,
    dropout: str,
) -> tuple[CountingGrid, Callable[[CountingGrid], Vector]]:
    """A federation behind `secure_sum_mod`, and how it is run; without noise."""

    def node(update: Vector, weight: int) -> Node:
        settings = NodeSettings(
            IN_SIMULATION, MemoryLedger(), "default", simulated=True
        )
        mod = SecureAggregation(lambda _: settings, wrapped=WrappedApp)
        app = ClientApp(mods=[mod])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            model = message.content.array_records["arrays"]["model"].numpy()
            arrays = ArrayRecord({"model": Array(model + update)})
            metrics = MetricRecord({"num-examples": weight})
            content = RecordDict({"a": arrays, "m": metrics})
            return Message(content, reply_to=message)

        @app.evaluate()
        def keep(message: Message, context: Context) -> Message:
            return Message(RecordDict(), reply_to=message)

        return Node(app)

    def run(grid: CountingGrid) -> Vector:
        start = ArrayRecord({"model": Array(np.zeros(len(updates.mean)))})
        max_silent = None
        if dropout == "recover":
            max_silent = len(updates.values) // _SHARED_PART
        strategy = SecureSum(
            start,
            clip=1.5,
            most_examples=MOST_EXAMPLES,
            max_iter=n_rounds,
            dropout=dropout,
            max_silent=max_silent,
        )
        return strategy.start(grid).arrays["model"].numpy() / n_rounds

    return CountingGrid(map(node, updates.values, updates.weights)), run


def secagg_plus(
    updates: Updates, n_rounds: int
) -> tuple[CountingGrid, Callable[[CountingGrid], Vector]]:
    """A federation behind Flower's `secaggplus_mod`, and how it is run.

    With Flower's defaults.
    """
    n_clients = len(updates.values)
    graph = recovery_graph(n_clients, n_clients // _SHARED_PART)

    def node(update: Vector, weight: int) -> Node:
        class Client(NumPyClient):
            def fit(
                self,
                parameters: list[Vector],
                config: object,
            ) -> tuple[list[Vector], int, dict[str, Scalar]]:
                return [parameters[0] + update], weight, {}

        def client(context: Context) -> FlowerClient:
            return Client().to_client()

        return Node(ClientApp(client_fn=client, mods=[secaggplus_mod]))

    def run(grid: CountingGrid) -> Vector:
        start = ndarrays_to_parameters([np.zeros(len(updates.mean))])
        models: list[Vector] = []

        def keep(
            server_round: int,
            parameters: list[Vector],
            config: object,
        ) -> None:
            models.append(parameters[0])

        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=n_clients,
            min_available_clients=n_clients,
            initial_parameters=start,
            evaluate_fn=keep,
        )
        context = LegacyContext(
            Context(1, 1, {}, RecordDict(), {}),
            config=ServerConfig(num_rounds=n_rounds),
            strategy=strategy,
        )
        n_shares = min(n_clients, graph.degree + 1)
        fitting = SecAggPlusWorkflow(
            n_shares, graph.threshold, max_weight=float(MOST_EXAMPLES)
        )
        workflow = DefaultWorkflow(fit_workflow=fitting)
        workflow(grid, context)
        return models[-1] / n_rounds

    return CountingGrid(map(node, updates.values, updates.weights)), run


SECAGG_PLUS = "SecAgg+"
NAMES = (SECAGG_PLUS, "SecureSum, recover", "SecureSum, retry")


def measure(
    name: str,
    updates: Updates,
    n_rounds: int,
) -> Cost:
    """Run one of `NAMES`."""
    if name == SECAGG_PLUS:
        grid, run = secagg_plus(updates, n_rounds)
    else:
        grid, run = secure_sum(updates, n_rounds, name.split(", ")[1])
    begin = time.process_time()
    with one_thread(), grid.running():
        mean = run(grid)
    seconds = time.process_time() - begin
    error = float(np.abs(mean - updates.mean).max())
    return Cost(
        name=name,
        n_clients=len(updates.values),
        n_rounds=n_rounds,
        round_trips=grid.round_trips,
        sent=grid.sent,
        seconds=seconds,
        error=error,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.secagg_plus", description=__doc__
    )
    parser.add_argument(
        "--clients",
        type=int,
        nargs="+",
        default=[10, 100],
    )
    parser.add_argument(
        "--rounds",
        type=int,
        nargs="+",
        default=[1, 10],
    )
    parser.add_argument(
        "--entries",
        type=int,
        default=650,
    )
    parser.add_argument(
        "--only",
        choices=NAMES,
        nargs="+",
        default=NAMES,
    )
    options = parser.parse_args(arguments)
    for log in ("flwr", "flwr_dpkmeans"):
        logging.getLogger(log).setLevel(logging.ERROR)
    print(
        "| clients | rounds | way | round trips | MB a round | CPU seconds a round |"
        " largest error |"
    )
    print("|---|---|---|---|---|---|---|")
    for n_clients, n_rounds, name in itertools.product(
        options.clients, options.rounds, options.only
    ):
        updates = Updates.drawn(n_clients, options.entries)
        cost = measure(name, updates, n_rounds)
        megabytes = cost.sent / n_rounds / 1e6
        seconds = cost.seconds / n_rounds
        measured = f"{megabytes:.3g} | {seconds:.2g} | {cost.error:.1e}"
        numbers = f"{cost.round_trips} | {measured}"
        print(f"| {n_clients} | {n_rounds} | {name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
