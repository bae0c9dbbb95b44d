"""What a site's [gate] lets through, and each plan that it does not."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from support.gates import gate_options
from support.pages import ROOT

from flwr_dpkmeans import FastLloyd, SecureSum
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.deploy.gate.gate_policy import GatePolicy
from flwr_dpkmeans.errors import BudgetError, ConfigurationError, RefusalError
from flwr_dpkmeans.node.guard import cost_of
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.sums.draft import draft_plan


def refuse(
    options: GateOptions,
    shape: tuple[int, ...] = (2, 3),
    metrics: tuple[tuple[str, float, float], ...] = (),
    **run: Any,
) -> None:
    """Hold a run among four nodes against a gate."""
    start = ArrayRecord({"w": Array(np.zeros(shape))})
    strategy = SecureSum(start, **{"epsilon": 1.0, "max_iter": 2} | run)
    config = strategy.config.changed(metrics=metrics)
    plan = draft_plan(config, run_id=1, n_clients=4, seed=1, n_features=1)
    policy = GatePolicy.around(ClientPolicy(), options)
    policy.check(Proposal(plan, *cost_of(plan), Past()))


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ({"clip": 1.01}, "clip is 1.01, but this node's gate allows at most 1"),
        ({"max_iter": 4, "epsilon": 0.5}, "rounds is 4, but"),
        ({"most_examples": 10}, "most_examples is 10, but"),
        ({"shape": (3, 2)}, "arrays are {'w': .3, 2.}, but this node's gate lets"),
        ({"trust": "central"}, "trust model is 'central', but behind this node's gate"),
        (
            {"metrics": (("loss", 0.0, 9.0),)},
            "metric 'loss' has the bounds 0 and 9, but",
        ),
        ({"max_iter": 1}, "costs epsilon 0.99[0-9]* at delta 1e-06, but"),
        ({"epsilon": 1.5}, "own noise .* is 2.3[0-9]* of its bound, but .* 2.4"),
    ],
)
def test_a_plan_beyond_the_gate_is_refused(run: dict[str, Any], sentence: str) -> None:
    refuse(gate_options())
    with pytest.raises(RefusalError, match=sentence):
        refuse(gate_options(), **run)


def test_a_method_that_computes_from_rows_is_refused() -> None:
    lloyd = FastLloyd(n_clusters=2, bounds=(-1, 1), n_examples=90, trust="distributed")
    plan = draft_plan(lloyd.config, run_id=1, n_clients=4, seed=1, n_features=2)
    policy = GatePolicy.around(ClientPolicy(), gate_options())
    with pytest.raises(RefusalError, match="computes 'fastlloyd', but this node's"):
        policy.check(Proposal(plan, *cost_of(plan), Past()))


def test_a_run_that_is_not_private_or_beyond_the_total_is_refused() -> None:
    with pytest.raises(BudgetError, match="worst-case epsilon is inf"):
        refuse(gate_options(), epsilon=None)
    with pytest.raises(BudgetError, match=r"max_epsilon_total of 0\.9"):
        refuse(gate_options(epsilon_total=0.9))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"noise": 1}, "the key 'noise' is not known"),
        ({"clip": 0}, "clip is 0: Input should be greater than 0"),
        ({"clip": True}, "clip"),
        ({"arrays": {}}, "arrays is {}"),
        ({"arrays": {"w": {"shape": [0]}}}, "arrays.w.shape.0 is 0"),
        ({"arrays": {"w": {"shape": [2], "dtype": "str"}}}, "arrays.w.dtype is 'str'"),
        ({"arrays": {"w": {"shape": [2**14, 2**14]}}}, "at most 134217728 may leave"),
        ({"delta_per_round": 1}, "delta-per-round is 1: Input should be less than 1"),
        ({"app": "A" * 64}, "app is"),
        ({"metrics": {"loss": [1.0, 1.0]}}, "metric 'loss' has the bounds"),
    ],
)
def test_a_gate_is_read_strictly(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        gate_options(**values)


def test_the_pages_gate_is_one() -> None:
    page = ROOT / "flwr_dpkmeans" / "docs" / "how-to" / "own_flower_app.md"
    (text,) = re.findall(r"(?ms)^```toml\n(\[gate\]\n.*?)^```$", page.read_text())
    options = GateOptions.of(tomllib.loads(text)["gate"], page)
    assert options.size == 650
    assert {field.alias for field in GateOptions.model_fields.values()} == {
        *re.findall(r"(?m)^(?:\[gate\.)?([a-z-]+)(?:\]| = )", text)
    } - {"partition-id", "loss"}
