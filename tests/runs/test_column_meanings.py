"""Runs over columns that mean more than their numbers.

Hours, skewed values, categories that could decide alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from flwr_dpkmeans import FederatedKMeans, Schema, client_app
from flwr_dpkmeans.errors import PeerError, PrivacyWarning
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy

N_ROWS = 4000
DECIDES = "of the squared distances between the clusters' centres"


def fitted(
    schema: Schema, table: pd.DataFrame, n_clusters: int, **options: Any
) -> FederatedKMeans:
    """A fit of two parties at epsilon 1."""
    given = {
        "epsilon": 1.0,
        "noise": "seeded",
        "random_state": 0,
        "engine": "direct",
        "n_examples": len(table),
    }
    estimator = FederatedKMeans(n_clusters, bounds=schema, **{**given, **options})
    with pytest.warns(PrivacyWarning):
        return estimator.fit([table[:2500], table[2500:]])


def agreement(
    schema: Schema, table: pd.DataFrame, kinds: np.ndarray, **options: Any
) -> float:
    """The adjusted Rand index of a fit with the kinds that the rows were drawn from."""
    labels = fitted(schema, table, len(set(kinds)), **options).predict(table)
    return float(adjusted_rand_score(kinds, labels))


def by_hour() -> tuple[pd.DataFrame, np.ndarray]:
    """Patients who come around midnight, and at noon."""
    generator = np.random.default_rng(1)
    kinds = generator.integers(0, 2, N_ROWS)
    hours = np.mod(generator.normal(np.where(kinds == 0, 0.0, 12.0), 1.5), 24)
    return pd.DataFrame({"hour": hours}), kinds


@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd"])
@pytest.mark.parametrize("scale", ["bounds", "standard"])
def test_patients_of_the_night_are_one_cluster(algorithm: str, scale: str) -> None:
    table, kinds = by_hour()
    schema = Schema(columns={"hour": {"kind": "cycle", "period": 24}}, scale=scale)
    assert agreement(schema, table, kinds, algorithm=algorithm) > 0.95
    number = Schema(columns={"hour": {"kind": "number", "bounds": [0, 24]}})
    assert agreement(number, table, kinds) < 0.5


def test_a_cycle_is_shown_as_where_its_values_gather() -> None:
    table, _ = by_hour()
    km = fitted(Schema(columns={"hour": {"kind": "cycle", "period": 24}}), table, 2)
    hours = km.schema_.decode(km.cluster_centers_)["hour"]
    noon = int(np.argmin(np.abs(np.array(hours) - 12)))
    assert hours[noon] == pytest.approx(12, abs=0.3)
    assert min(hours[1 - noon], 24 - hours[1 - noon]) < 0.3
    shown = str(km.model_)
    assert "hour: how alike, from 0 to 1" in shown
    assert "hour (cos)" not in shown


def skewed() -> tuple[pd.DataFrame, np.ndarray]:
    """A laboratory value whose kinds differ by factors, beside an age.

    -999 where it was not measured.
    """
    generator = np.random.default_rng(2)
    kinds = generator.integers(0, 3, N_ROWS)
    crp = np.exp(generator.normal(np.log([1.0, 10.0, 120.0])[kinds], 0.3))
    crp[:40] = -999
    return pd.DataFrame({"crp": crp, "age": generator.uniform(20, 90, N_ROWS)}), kinds


CRP = {
    "kind": "number",
    "bounds": [0.1, 500],
    "missing_values": [-999],
    "missing": "centre",
}


def test_kinds_that_differ_by_factors_are_seen_in_logarithms() -> None:
    table, kinds = skewed()
    age = {"kind": "number", "bounds": [0, 110], "weight": 0.3}
    schema = Schema(columns={"crp": CRP | {"transform": "log"}, "age": age})
    assert agreement(schema, table, kinds) > 0.95
    assert agreement(Schema(columns={"crp": CRP, "age": age}), table, kinds) < 0.8
    km = fitted(schema, table, 3)
    assert sorted(km.schema_.decode(km.cluster_centers_)["crp"]) == pytest.approx(
        [1, 10, 120], rel=0.15
    )
    assert "crp (geometric mean)" in str(km.model_)


def test_a_profile_of_logarithms_has_geometric_means_and_factors() -> None:
    table, _ = skewed()
    columns = {
        "crp": CRP | {"transform": "log"},
        "age": {"kind": "number", "bounds": [0, 110], "weight": 0.3},
    }
    schema = Schema(columns=columns, profile=["crp", "age"], profile_share=0.4)
    profile = fitted(schema, table, 3, epsilon=20.0).profile_.set_index(
        ["cluster", "column", "figure"]
    )
    means = sorted(
        profile.loc[(str(cluster), "crp", "geometric mean"), "estimate"]
        for cluster in range(3)
    )
    assert means == pytest.approx([1, 10, 120], rel=0.1)
    factors = [
        profile.loc[(str(cluster), "crp", "spread as a factor"), "estimate"]
        for cluster in range(3)
    ]
    assert min(factors) == pytest.approx(np.exp(0.3), rel=0.1)
    assert ("all", "age", "mean") in profile.index


EVERY = {
    "crp": CRP | {"transform": "log", "offset": 0.5, "outside": "missing"},
    "hour": {"kind": "cycle", "period": 24, "missing": "centre"},
    "smokes": {
        "kind": "flag",
        "map": {"ja": True, "nein": False},
        "missing": "centre",
        "weight": 0.5,
    },
}


def every_meaning() -> pd.DataFrame:
    """A table for them."""
    generator = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "smokes": generator.choice(["ja", "nein", None], N_ROWS),
            "hour": generator.choice(["22:30", "6", "2026-01-31T12:00"], N_ROWS),
            "crp": generator.choice([-999, 0.5, 7.0, 9000.0, 120.0], N_ROWS),
        }
    )


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("crp", {"offset": 0.6}),
    ("crp", {"outside": "clip"}),
    ("crp", {"missing_values": [-9]}),
    ("hour", {"start": 1}),
    ("smokes", {"map": {"ja": False, "nein": True}}),
    ("smokes", {"missing_values": ["?"]}),
]


@pytest.mark.parametrize(("name", "change"), OTHERS)
def test_nodes_whose_columns_mean_something_else_refuse(
    name: str, change: dict[str, Any]
) -> None:
    """The bounds of some are the same."""
    table, schema = every_meaning(), Schema(columns=EVERY)
    other = Schema(columns=EVERY | {name: EVERY[name] | change})
    ledgers, nodes = [MemoryLedger(), MemoryLedger()], []
    for stated, ledger in zip((schema, other), ledgers, strict=True):
        encoded, settings = (
            stated.encode(table[:1000]),
            NodeSettings(ClientPolicy(), ledger, "rows"),
        )
        mod = SecureAggregation(lambda _, settings=settings: settings)
        nodes.append(Node(client_app(lambda _, encoded=encoded: encoded, mod=mod)))
    strategy = FastLloyd(
        n_clusters=3, n_clients=2, epsilon=1.0, n_examples=2000, bounds=schema
    )
    grid = InProcessGrid(nodes, run_id=5)
    with grid.running(), pytest.raises(PeerError, match="the plan follows the schema"):
        strategy.start(grid)
    assert not [entry for ledger in ledgers for entry in ledger.entries()]


# One column that decides


def patients() -> tuple[pd.DataFrame, np.ndarray]:
    """Three clear kinds by age and weight; sex has nothing to do with them."""
    generator = np.random.default_rng(0)
    kinds = generator.integers(0, 3, N_ROWS)
    rows = generator.normal(np.array([[25, 60], [50, 95], [75, 65]])[kinds], [5, 6])
    sex = generator.choice(["m", "f"], N_ROWS)
    return pd.DataFrame({"age": rows[:, 0], "kg": rows[:, 1], "sex": sex}), kinds


def schema_of_patients(scale: str, weight: float) -> Schema:
    columns = {
        "age": {"kind": "number", "bounds": [0, 120]},
        "kg": {"kind": "number", "bounds": [30, 200]},
        "sex": {"kind": "category", "values": ["m", "f"], "weight": weight},
    }
    return Schema(columns=columns, scale=scale)


def test_a_column_that_decides_is_named_wherever_somebody_looks(tmp_path: Path) -> None:
    table, kinds = patients()
    schema = schema_of_patients("bounds", 1.0)
    assert agreement(schema, table, kinds) < 0.5
    km = fitted(schema, table, 3)
    (sentence,) = [warning for warning in km.privacy_.warnings if DECIDES in warning]
    assert sentence.startswith("Column 'sex' makes 8")
    assert "give it less weight" in sentence
    assert DECIDES in " ".join(str(km.model_).split())
    km.write(tmp_path)
    assert (
        "Column &#39;sex&#39; makes" in next(tmp_path.rglob("report.html")).read_text()
    )


def test_defaults_of_a_draft_let_no_column_decide() -> None:
    table, kinds = patients()
    schema = schema_of_patients("standard", 0.5)
    assert agreement(schema, table, kinds) > 0.99
    assert not [
        warning
        for warning in fitted(schema, table, 3).privacy_.warnings
        if DECIDES in warning
    ]


def test_a_number_with_bounds_that_are_much_too_narrow_decides_too() -> None:
    table, _ = patients()
    columns = {
        "age": {"kind": "number", "bounds": [0, 120]},
        "kg": {"kind": "number", "bounds": [0, 1e5]},
        "size": {"kind": "number", "bounds": [0, 1e5]},
    }
    km = fitted(Schema(columns=columns), table.assign(size=180.0), 3)
    assert any("Column 'age' makes" in warning for warning in km.privacy_.warnings)
