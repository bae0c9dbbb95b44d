"""What is decided and said before a run is planned to its end.

How clients that fall silent are met, and the price.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans import KMeansClient, PrivateKMeans, client_app
from flwr_dpkmeans.errors import CohortError
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_log import log_plan, log_price
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan, worst_case
from flwr_dpkmeans.sums.settings import Dropout


class MuteGrid:
    """A grid of 120 nodes that cannot be asked anything."""

    run = SimpleNamespace(run_id=5, fab_hash="")

    def __init__(self, *, is_deployed: bool) -> None:
        self.is_complete = not is_deployed

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=node, name="") for node in range(2, 122)]

    def push_messages(self, messages: object) -> list[str]:
        raise CohortError("nobody is asked")

    def send_and_receive(self, messages: object, *, timeout: float) -> list[Any]:
        raise CohortError("nobody is asked")


@pytest.mark.parametrize(
    ("deployed", "given", "expected"),
    [
        (False, {}, Dropout.RETRY),
        (True, {}, Dropout.RECOVER),
        (False, {"dropout": "recover"}, Dropout.RECOVER),
    ],
)
def test_a_large_cohort_recovers_sums_where_clients_may_fall_silent(
    caplog: pytest.LogCaptureFixture,
    deployed: bool,
    given: dict[str, Any],
    expected: Dropout,
) -> None:
    """Among 120 virtual clients a second round trip would be for nothing."""
    strategy = PrivateKMeans(
        3, bounds=(-1, 1), n_features=2, n_examples=10_000, n_clients=120,
        algorithm="glloyd", **given,
    )  # fmt: skip
    grid: Any = MuteGrid(is_deployed=deployed)
    with (
        InProcessGrid([], run_id=5).running(),
        caplog.at_level(logging.INFO, logger="flwr_dpkmeans.server"),
        pytest.raises(CohortError, match="nobody is asked"),
    ):
        strategy.start(grid)
    assert strategy.run.plan.dropout is expected
    # How long a run takes is told where somebody waits for other machines.
    assert [
        "duration" in vars(record).get("event", "") for record in caplog.records
    ].count(True) == deployed


@pytest.mark.parametrize("n_examples", [None, 1000])
def test_a_plan_that_is_still_to_be_made_is_said_to_cost_what_is_asked_for(
    n_examples: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Not what its preliminary sums cost, before it is final or from the start."""
    config = parse_config(
        n_clusters=3, bounds=((-1.0,), (1.0,)), epsilon=2.0, max_retries=1,
        n_examples=n_examples,
    )  # fmt: skip
    plan = draft_plan(config, run_id=9, n_clients=5, seed=7, n_features=2)
    assert plan.is_final is (n_examples is not None)
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans"):
        log_plan(plan, bytes(32))
        log_price(plan)
    # Before the plan is at hand, for whichever plan: what its policy holds against its
    # limits, and the server says.
    assert (
        f"epsilon 2 (at most {worst_case(plan):.4g} with all 1 retries)" in caplog.text
    )
    assert 2.1 < worst_case(plan) < 3.0
    assert ("rounds still to be planned" in caplog.text) is not plan.is_final


def test_clients_report_nothing_back_that_depends_on_data() -> None:
    """Neither a loss nor a number of rows: Flower's strategies would log both."""
    told: list[Any] = []

    class Noted(KMeansClient):
        def evaluate(self, *received: Any) -> Any:
            told.append(super().evaluate(*received))
            return told[-1]

    parts = [np.full((10, 2), 0.5), np.full((20, 2), -0.5)]
    nodes = []
    for part in parts:
        settings = NodeSettings(ClientPolicy(), MemoryLedger(), "own")
        mod = SecureAggregation(lambda _, own=settings: own)
        nodes.append(Node(client_app(lambda _, own=part: Noted(own), mod=mod)))
    grid = InProcessGrid(nodes, run_id=77)
    with grid.running():
        PrivateKMeans(
            2, bounds=(-1, 1), n_examples=30, algorithm="glloyd", max_iter=1
        ).start(grid)
    assert told == [(0.0, 0, {})] * 2
