"""What a fit says of columns that look like ids, indices and constants, and of parties in other units."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import DPKMeans, FederatedKMeans, KMeansClient, Schema
from flwr_dpkmeans.flower.client_app import SecureAggregation, client_app
from flwr_dpkmeans.flower.engines import InProcessGrid, Node
from flwr_dpkmeans.flower.strategy import FastLloyd
from flwr_dpkmeans.node.guard import NodeSettings
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import ClientPolicy

N_ROWS = 600
BOUNDS = (0, 400)


def table(seed: int, **columns: Any) -> pd.DataFrame:
    """A party's rows: three kinds by weight and height."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(0, 3, N_ROWS)
    rows = generator.normal(np.array([[60, 160], [80, 170], [100, 185]])[kinds], 4)
    return pd.DataFrame({"kg": rows[:, 0], "cm": rows[:, 1]}).assign(**columns)


def warned(tables: Any, **options: Any) -> list[str]:
    """What a fit says that only the rows' owner may read."""
    given = {"bounds": BOUNDS, "noise": "seeded", "random_state": 0, "engine": "direct"} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        km = FederatedKMeans(3, epsilon=1.0, **given).fit(tables)
    return [warning for warning in km.privacy_.warnings if warning.startswith("Known here only")]


@pytest.mark.parametrize(
    ("name", "numbers", "sentence"),
    [
        ("Unnamed: 0", np.arange(N_ROWS), "seem to be numbered by column 'Unnamed: 0'"),
        ("Obs", np.arange(1, N_ROWS + 1), "seem to be numbered by column 'Obs'"),
        ("n", np.random.default_rng(0).permutation(N_ROWS), "seem to be numbered by column 'n'"),
        ("patient_id", np.random.default_rng(0).integers(0, 99_999, N_ROWS // 3).repeat(3), "by column 'patient_id'"),
        ("year", np.full(N_ROWS, 200), "All rows here have one value of column 'year', which sets nothing apart"),
    ],
)
def test_a_column_that_is_no_measure_is_named(name: str, numbers: np.ndarray, sentence: str) -> None:
    found = warned([table(seed, **{name: numbers}) for seed in range(2)], bounds=(0, 1e5))
    assert any(sentence in warning for warning in found)


def test_measures_are_no_ids() -> None:
    generator = np.random.default_rng(5)
    columns = {"cost": generator.permutation(10**5)[:N_ROWS], "age": generator.integers(0, 100, N_ROWS)}
    assert not [
        warning
        for warning in warned([table(seed, **columns) for seed in range(2)], bounds=(0, 1e5))
        if "numbered" in warning or "one value" in warning
    ]


def test_a_value_that_is_one_here_and_another_there_sets_parties_apart() -> None:
    found = warned([table(seed, site=seed) for seed in range(2)])
    assert not any("one value" in warning for warning in found)


def test_arrays_have_no_names_to_tell_ids_by() -> None:
    rows = np.stack([np.arange(100.0), np.zeros(100)], axis=1)
    assert not any("numbered" in warning or "one value" in warning for warning in warned([rows, rows]))


POUNDS, INCHES = 2.2046, 1 / 2.54


@pytest.mark.parametrize("factor", [POUNDS, 1 / POUNDS, 1000, 1 / 18])
@pytest.mark.parametrize("n_parties", [2, 5])
def test_parties_of_other_units_are_named(factor: float, n_parties: int) -> None:
    tables = [table(seed) for seed in range(n_parties)]
    tables[-1]["kg"] *= factor
    (sentence,) = [warning for warning in warned(tables, bounds=(0, 1e6)) if "one factor throughout" in warning]
    odd = n_parties - 1 if n_parties > 2 or factor > 1 else 0
    assert f"Values of party {odd} in column 'kg' differ from another party's by one factor" in sentence
    assert "'cm'" not in sentence


def test_names_of_parties_and_a_schema_are_used() -> None:
    tables = {f"ward {seed}": table(seed) for seed in range(3)}
    tables["ward 1"]["cm"] *= INCHES
    number = {"kind": "number", "bounds": [0, 400]}
    schema = Schema(columns={"kg": number | {"transform": "log", "offset": 1}, "cm": number})
    (sentence,) = [warning for warning in warned(tables, bounds=schema) if "one factor throughout" in warning]
    assert "party 'ward 1' in column 'cm'" in sentence


def test_parties_whose_rows_differ_have_no_other_units() -> None:
    """Of each party another kind, older patients, longer tails, and whole clusters that others lack."""
    generator = np.random.default_rng(3)
    for first, second in (
        (generator.normal(60, 5, N_ROWS), generator.normal(100, 5, N_ROWS)),
        (generator.normal(30, 8, N_ROWS), generator.normal(75, 12, N_ROWS)),
        (generator.exponential(5, N_ROWS), 4 + generator.exponential(20, N_ROWS)),
        (generator.integers(0, 5, N_ROWS), generator.integers(0, 9, N_ROWS)),
        (generator.integers(0, 2, N_ROWS), generator.integers(0, 2, N_ROWS)),
        (generator.normal(0, 1, N_ROWS), generator.normal(0, 5, N_ROWS)),
    ):
        tables = [table(0, x=first), table(1, x=second)]
        assert not any("one factor" in warning for warning in warned(tables, bounds=(-50, 400)))


def test_parties_of_few_rows_are_not_compared() -> None:
    tables = [table(0), table(1).assign(kg=lambda rows: rows["kg"] * POUNDS)[:40]]
    assert not any("one factor" in warning for warning in warned(tables))


def test_the_owner_of_one_table_is_told_by_python_alone() -> None:
    """Attributes of the model may be published."""
    model = DPKMeans(3, epsilon=1.0, bounds=BOUNDS, noise="seeded", random_state=0)
    with pytest.warns(match="seem to be numbered by column 'Obs'"):
        model.fit(table(0, Obs=np.arange(N_ROWS)))
    assert not any("numbered" in warning for warning in model.privacy_.warnings)


def test_a_node_says_it_in_its_own_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = []
    for index in range(2):
        client = KMeansClient(table(index, Obs=np.arange(N_ROWS)), output_dir=tmp_path / str(index))
        settings = NodeSettings(ClientPolicy(), MemoryLedger(), "rows")
        mod = SecureAggregation(lambda _, settings=settings: settings)
        nodes.append(Node(client_app(lambda _, client=client: client, mod=mod)))
    strategy = FastLloyd(n_clusters=3, n_clients=2, epsilon=1.0, n_examples=2 * N_ROWS, bounds=(0, 1000))
    grid = InProcessGrid(nodes, run_id=5)
    with caplog.at_level(logging.WARNING, logger="flwr_dpkmeans"), grid.running():
        result = strategy.start(grid)
    assert "Rows or persons seem to be numbered by column 'Obs'" in caplog.text
    assert "numbered" not in str(result)
