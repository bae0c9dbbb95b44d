"""What a node says, in its own log, of columns that look like ids, indices and
constants.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import KMeansClient
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy

N_ROWS = 600
BOUNDS = (0, 400)


def table(seed: int, **columns: Any) -> pd.DataFrame:
    """A party's rows: three kinds by weight and height."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(0, 3, N_ROWS)
    rows = generator.normal(np.array([[60, 160], [80, 170], [100, 185]])[kinds], 4)
    return pd.DataFrame({"kg": rows[:, 0], "cm": rows[:, 1]}).assign(**columns)


def test_a_node_says_it_in_its_own_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = []
    for index in range(2):
        client = KMeansClient(
            table(index, Obs=np.arange(N_ROWS)), output_dir=tmp_path / str(index)
        )
        settings = NodeSettings(ClientPolicy(), MemoryLedger(), "rows")
        mod = SecureAggregation(lambda _, settings=settings: settings)
        nodes.append(Node(client_app(lambda _, client=client: client, mod=mod)))
    strategy = FastLloyd(
        n_clusters=3, n_clients=2, epsilon=1.0, n_examples=2 * N_ROWS, bounds=(0, 1000)
    )
    grid = InProcessGrid(nodes, run_id=5)
    with caplog.at_level(logging.WARNING, logger="flwr_dpkmeans"), grid.running():
        result = strategy.start(grid)
    assert "what looks like an index is clustered in column 'Obs'" in caplog.text
    assert "looks like" not in str(result)
