"""A bounds file with names belongs to columns with these names, in whatever order a
table has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import RefusalError
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy

TABLE = ("age", "income")


def run(
    folder: Path, rows: list[str], names: tuple[str, ...] = TABLE,
    policy: ClientPolicy | None = None, *, writes: bool = False, **options: Any,
) -> tuple[KMeansResult, list[MemoryLedger], list[KMeansClient]]:  # fmt: skip
    """One run of two clients with these columns under a bounds file with these rows."""
    bounds = folder / "bounds.csv"
    bounds.write_text("\n".join(["feature,lower,upper", *rows]) + "\n")
    ledgers, clients, nodes = [MemoryLedger(), MemoryLedger()], [], []
    for seed, ledger in enumerate(ledgers):
        points = np.random.default_rng(seed).uniform((0.0, 0.0), (100.0, 1e5), (300, 2))
        clients.append(
            KMeansClient(
                points,
                feature_names=names,
                output_dir=folder / str(seed) if writes and not seed else None,
            )
        )
        settings = NodeSettings(policy or ClientPolicy(), ledger, "default")
        nodes.append(
            Node(
                client_app(
                    lambda _, c=clients[-1]: c,
                    mod=SecureAggregation(lambda _, s=settings: s),
                )
            )
        )
    grid = InProcessGrid(nodes)
    with grid.running():
        return (
            FastLloyd(
                2, bounds=str(bounds), n_examples=600, max_iter=2, **options
            ).start(grid),
            ledgers,
            clients,
        )


@pytest.mark.parametrize(
    "rows", [["age,0,100", "income,0,100000"], ["income,0,100000", "age,0,100"]]
)
def test_tables_are_put_in_the_order_of_the_bounds_file(
    tmp_path: Path, rows: list[str]
) -> None:
    result, _, clients = run(tmp_path, rows, writes=True)
    assert result.confirmed
    centers = clients[0].cluster_centers_
    assert centers is not None
    incomes = [row.startswith("income") for row in rows].index(True)
    assert bool((centers[:, incomes] > 1000.0).all())
    assert bool((centers[:, 1 - incomes] <= 100.0).all())
    with np.load(tmp_path / "0" / "centroids.npz") as archive:
        assert archive["feature_names"].tolist() == [
            row.partition(",")[0] for row in rows
        ]


def test_a_table_without_names_is_matched_by_position_if_that_is_asked_for(
    tmp_path: Path,
) -> None:
    rows = ["age,0,100", "income,0,100000"]
    result, _, _ = run(tmp_path, rows, names=(), allow_unnamed=True, writes=True)
    assert result.confirmed
    with np.load(tmp_path / "0" / "centroids.npz") as archive:
        assert archive["feature_names"].tolist() == ["age", "income"]
    with pytest.raises(RefusalError, match="this client's table has no column names"):
        run(tmp_path, rows, names=())


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["age,0,100", "incom,0,100000"], "of which this client's table of 2 lacks 1"),
        (["age,0,100"], "the plan names 1 columns, of which this client's table of 2"),
        (["age,0,100", "income,0,1", "more,0,1"], "this client's table has 2 features"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_before_budget_is_spent(
    tmp_path: Path, rows: list[str], sentence: str
) -> None:
    """The server reads the sentence: it has numbers, and no name of the table."""
    with pytest.raises(RefusalError) as caught:
        run(tmp_path, rows)
    assert sentence in str(caught.value)
    assert "income" not in str(caught.value)


@pytest.mark.parametrize(
    "rows", [["age,0,100", "income,0,100000"], ["income,0,100000", "age,0,100"]]
)
def test_a_policy_s_bounds_are_those_of_columns_in_whatever_order(
    tmp_path: Path, rows: list[str]
) -> None:
    allowed = ClientPolicy(allowed_bounds=((0.0, 100.0), (0.0, 1e5)))
    assert run(tmp_path, rows, policy=allowed)[0].confirmed
    wider = [
        row.replace("age,0,100", "age,0,500").replace("100000", "50") for row in rows
    ]
    with pytest.raises(RefusalError, match=r"500\], but this client allows only \[0"):
        run(tmp_path, wider, policy=allowed)


@pytest.mark.parametrize(
    "rows", [["income,0,50", "age,0,500"], ["age,0,500", "income,0,50"]]
)
def test_a_server_cannot_swap_the_columns_that_a_policy_s_bounds_are_held_against(
    tmp_path: Path, rows: list[str]
) -> None:
    with pytest.raises(RefusalError, match="bounds of feature 0"):
        run(
            tmp_path,
            rows,
            policy=ClientPolicy(allowed_bounds=((0.0, 100.0), (0.0, 1e5))),
        )
