"""Strategies of Flower's behind a secure mean do what they do without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    Krum,
    Strategy,
)

from flwr_dpkmeans import ProxyLloyd, SecureMean
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client.wrapped_app import WrappedApp
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import IN_SIMULATION

START = ArrayRecord({"w": Array(np.ones(3, np.float32)), "b": Array(np.zeros((2, 1)))})


def app_of(step: float, n_examples: int, *, masked: bool) -> ClientApp:
    """Moves arrays a part of the way to a value of its own."""
    own = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)
    mods = [SecureAggregation(lambda _: own, wrapped=WrappedApp)] if masked else []
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config = message.content["config"]
        speed = 0.5 / (config["server-round"] + config.get("proximal-mu", 0.0))
        arrays = {
            name: Array((array.numpy() + speed * (step - array.numpy())).astype("f4"))
            for name, array in message.content["arrays"].items()
        }
        content = {
            "arrays": ArrayRecord(arrays),
            "metrics": MetricRecord({"num-examples": n_examples, "loss": step}),
        }
        return Message(RecordDict(content), reply_to=message)

    return app


def grid_of(*, masked: bool) -> InProcessGrid:
    nodes = [(1.0, 5), (2.0, 10), (6.0, 1)]
    return InProcessGrid(Node(app_of(*node, masked=masked)) for node in nodes)


@pytest.mark.parametrize(
    "strategy_of",
    [
        FedAvg,
        FedAdam,
        lambda **options: FedProx(proximal_mu=0.5, **options),
        lambda **options: FedAvgM(server_momentum=0.5, **options),
    ],
)
def test_a_strategy_finds_the_same_of_the_mean_as_of_all_answers(
    strategy_of: Callable[..., Strategy],
) -> None:
    plain, masked = grid_of(masked=False), grid_of(masked=True)
    with plain.running():
        clear = strategy_of(fraction_evaluate=0.0).start(plain, START, num_rounds=3)
    with masked.running():
        mean = SecureMean(strategy_of(), most_examples=10, largest=8.0)
        result = mean.start(
            masked,
            START,
            num_rounds=3,
            evaluate_fn=lambda index, arrays: MetricRecord({"n": len(arrays)}),
        )
    assert [*result.evaluate_metrics_serverapp] == [0, 1, 2, 3]
    assert result.arrays["w"].dtype == "float32"
    for name, array in clear.arrays.items():
        np.testing.assert_allclose(
            result.arrays[name].numpy(), array.numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    "strategy",
    [FedMedian(), FedTrimmedAvg(), Krum(), Bulyan(), ProxyLloyd(3, bounds=(-1, 1))],
)
def test_strategies_that_need_each_answer_are_refused(strategy: Any) -> None:
    name = type(strategy).__name__
    with pytest.raises(ConfigurationError, match=f"^{name} .* use FedAvg"):
        SecureMean(strategy)


@pytest.mark.parametrize(
    ("options", "mend"),
    [
        ({"fraction_train": 0.7}, "asks 2 of 3 clients.*fraction_train=1.0"),
        ({"min_available_nodes": 4}, "lower its min_train_nodes"),
    ],
)
def test_a_strategy_that_asks_others_than_all_is_refused(
    options: dict[str, Any], mend: str
) -> None:
    grid = grid_of(masked=True)
    with grid.running(), pytest.raises(ConfigurationError, match=mend):
        SecureMean(FedAvg(**options)).start(grid, START)


class Losing(InProcessGrid):
    """The last node's answers are lost from the second round on."""

    n_delivered = 0

    def deliver(self, message: Message) -> list[Message]:
        replies, node = super().deliver(message), message.metadata.dst_node_id
        self.n_delivered += node == min(self._nodes)
        return [] if node == max(self._nodes) and self.n_delivered > 2 else replies


def test_a_round_that_is_asked_again_begins_with_the_same_arrays() -> None:
    """The mean is then that of those who are left."""
    steps = (1.0, 2.0, 3.0, 6.0)
    grid = Losing(Node(app_of(step, 1, masked=True)) for step in steps)
    options: dict[str, Any] = {"max_silent": 1, "min_clients": 2, "largest": 8.0}
    with grid.running():
        mean = SecureMean(FedAvg(), **options)
        result = mean.start(grid, START, num_rounds=2)
    assert [step.n_clients for step in result.steps] == [4, 3]
    # From 1 half of the way to 3, then a quarter of that to 2, for those who stay.
    assert result.arrays["w"].numpy() == pytest.approx(2.0, abs=1e-6)
