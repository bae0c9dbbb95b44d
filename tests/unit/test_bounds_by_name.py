"""A bounds file with names belongs to columns with these names: another order must not be applied in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flwr_dpkmeans.errors import RefusalError
from flwr_dpkmeans.flower.client import KMeansClient
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.inprocess import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.node import NodeSettings
from flwr_dpkmeans.flower.strategy import FastLloyd, KMeansResult
from flwr_dpkmeans.privacy.ledger import MemoryLedger
from flwr_dpkmeans.privacy.policy import ClientPolicy

TABLE = ("age", "income")


def run(folder: Path, rows: list[str], names: tuple[str, ...] = TABLE) -> tuple[KMeansResult, list[MemoryLedger]]:
    """One run of two clients with these columns under a bounds file with these rows."""
    bounds = folder / "bounds.csv"
    bounds.write_text("\n".join(["feature,lower,upper", *rows]) + "\n")
    ledgers = [MemoryLedger(), MemoryLedger()]
    nodes = []
    for seed, ledger in enumerate(ledgers):
        points = np.random.default_rng(seed).uniform((0.0, 0.0), (100.0, 1e5), (300, 2))
        client = KMeansClient(points, feature_names=names)
        settings = NodeSettings(ClientPolicy(), ledger, "default")
        nodes.append(Node(client_app(lambda _, c=client: c, mod=SecureAggregation(lambda _, s=settings: s))))
    grid = InProcessGrid(nodes)
    with grid.running():
        return FastLloyd(2, bounds=str(bounds), n_examples=600).start(grid), ledgers


def test_the_tables_order_is_accepted(tmp_path: Path) -> None:
    result, _ = run(tmp_path, ["age,0,100", "income,0,100000"])
    assert result.confirmed


def test_a_table_without_names_is_matched_by_position(tmp_path: Path) -> None:
    result, _ = run(tmp_path, ["age,0,100", "income,0,100000"], names=())
    assert result.confirmed


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["income,0,100000", "age,0,100"], "feature 0 is 'income' in the bounds, but 'age' in this client's table"),
        (["age,0,100", "incom,0,100000"], "feature 1 is 'incom' in the bounds, but 'income' in this client's table"),
        (["age,0,100"], "bounds are for 1 named features, but this client's table has 2 (such as 'income')"),
    ],
)
def test_anything_else_is_refused_before_budget_is_spent(tmp_path: Path, rows: list[str], sentence: str) -> None:
    with pytest.raises(RefusalError) as caught:
        run(tmp_path, rows)
    assert sentence in str(caught.value)
