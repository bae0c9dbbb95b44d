"""What is decided and said before a run is planned to its end: how clients that fall silent are met, and the price."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from flwr_dpkmeans import PrivateKMeans
from flwr_dpkmeans.flower import strategy as strategy_module
from flwr_dpkmeans.node.client_log import plan_came
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.settings import Dropout

GRID: Any = SimpleNamespace(run=SimpleNamespace(run_id=5, fab_hash=""))


@pytest.mark.parametrize(
    ("deployed", "given", "expected"),
    [(False, {}, Dropout.RETRY), (True, {}, Dropout.RECOVER), (False, {"dropout": "recover"}, Dropout.RECOVER)],
)
def test_a_large_cohort_recovers_sums_where_clients_may_fall_silent(
    monkeypatch: pytest.MonkeyPatch, deployed: bool, given: dict[str, Any], expected: Dropout
) -> None:
    """Among 120 virtual clients a second round trip for each sum would be for nothing, unless it is asked for."""
    monkeypatch.setattr(strategy_module, "is_deployed", lambda grid: deployed)
    monkeypatch.setattr(strategy_module, "wait_for_nodes", lambda *_, **__: list(range(2, 122)))
    strategy = PrivateKMeans(3, bounds=(-1, 1), n_features=2, n_examples=10_000, algorithm="glloyd", **given)
    assert strategy._open(GRID).plan.dropout is expected


@pytest.mark.parametrize("n_examples", [None, 1000])
def test_a_plan_that_is_still_to_be_made_is_said_to_cost_what_is_asked_for(
    n_examples: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Not what its preliminary sums cost: once before it is final, and once where it is from the start."""
    config = parse_config(n_clusters=3, bounds=((-1.0,), (1.0,)), epsilon=2.0, max_retries=1, n_examples=n_examples)
    plan = draft_plan(config, run_id=9, n_clients=5, seed=7, n_features=2)
    assert plan.is_final is (n_examples is not None)
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans"):
        plan_came(plan, bytes(32))
    assert "epsilon 2 (at most" in caplog.text
    assert ("rounds still to be planned" in caplog.text) is not plan.is_final
