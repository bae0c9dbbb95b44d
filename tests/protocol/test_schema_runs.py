"""Nodes with a schema of their own: who has another one, or lacks a column, refuses
before anything is charged.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import FederatedKMeans, ProxyLloyd
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError, DataError, PeerError
from flwr_dpkmeans.estimators.federate import federate
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.server_app import report_result
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.results.model import Model

FILE = """[columns]
age = { kind = "number", bounds = [0, 100], missing = "drop" }
ward = { kind = "category", values = ["A", "B"], missing = "centre" }
since = { kind = "date", bounds = [2020-01-01, 2021-01-01] }
"""
N_ROWS = 300
NAMES = ["age", "ward=A", "ward=B", "since"]


def rows_of(index: int) -> pd.DataFrame:
    """One party's table: two groups, some gaps, columns that nobody asked for."""
    generator = np.random.default_rng(index)
    old = generator.random(N_ROWS) < 0.5
    days = np.where(old, 30, 330) + generator.integers(0, 20, N_ROWS)
    frame = pd.DataFrame(
        {"name": "x", "age": np.where(old, 70.0, 20.0) + generator.normal(0, 4, N_ROWS)}
    )
    frame["ward"] = np.where(
        generator.random(N_ROWS) < 0.02, None, np.where(old, "A", "B")
    )
    frame["since"] = (pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")).strftime(
        "%Y-%m-%d"
    )
    frame.loc[:4, "age"] = np.nan
    return frame


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tables, a schema, a policy."""
    (tmp_path / "schema.toml").write_text(FILE)
    (tmp_path / "policy.toml").write_text("allow-anything = true\n")
    for index in range(2):
        rows_of(index).to_csv(tmp_path / f"rows{index}.csv", index=False)
    return tmp_path


def run(
    folder: Path, own: dict[str, Any] | None = None, changed: Any = None,
    names: Any = NAMES, **more: Any,
) -> np.ndarray:  # fmt: skip
    """Cluster as a deployment does; the centroids of the first node's file."""
    nodes = []
    for index in range(2):
        config = {
            "data-path": str(folder / f"rows{index}.csv"),
            "schema": str(folder / "schema.toml"),
        }
        config |= {
            name: str(folder / name) + str(index) for name in ("ledger", "output")
        }
        config |= {"policy": str(folder / "policy.toml")}
        config |= (own or {}) if index == 0 else {}
        nodes.append(
            Node(
                client_app(load_client),
                {key: value for key, value in config.items() if value},
            )
        )
    given = {
        "n-clusters": 2,
        "num-clients": 2,
        "epsilon": 4.0,
        "bounds": str(folder / "schema.toml"),
    } | more
    grid = InProcessGrid(nodes, run_id=91)
    with grid.running():
        strategy = strategy_from_run_config(given)
        strategy.config = strategy.config.changed(**(changed or {}))
        result = strategy.start(grid)
        if names is not NAMES:
            report_result(strategy, result, folder / "run", given)
    with np.load(next((folder / "output0").rglob("centroids.npz"))) as archive:
        assert archive["feature_names"].tolist() == names
        return np.asarray(archive["centroids"])


def means_of_groups() -> np.ndarray:
    """What the centroids are near, from exact rows."""
    rows = pd.concat([rows_of(0), rows_of(1)]).dropna()
    days = (pd.to_datetime(rows["since"]) - pd.Timestamp("1970-01-01")).dt.days
    table = np.stack(
        [rows["age"], rows["ward"] == "A", rows["ward"] == "B", days], axis=1
    ).astype(float)
    return np.stack(
        [table[table[:, 0] < 45].mean(axis=0), table[table[:, 0] > 45].mean(axis=0)]
    )


def test_a_deployment_finds_the_groups_in_text_dates_and_gaps(folder: Path) -> None:
    found = run(folder)
    np.testing.assert_allclose(
        found[found[:, 0].argsort()], means_of_groups(), atol=6.0
    )
    assert np.abs(found[:, 1:3] - np.rint(found[:, 1:3])).max() < 0.1


@pytest.mark.nightly
def test_order_and_other_columns_of_one_table_change_nothing(folder: Path) -> None:
    rows_of(0)[["since", "name", "ward", "age"]].assign(more="1,2").to_csv(
        folder / "rows0.csv", index=False
    )
    found = run(folder)
    np.testing.assert_allclose(
        found[found[:, 0].argsort()], means_of_groups(), atol=6.0
    )


@pytest.mark.nightly
def test_a_node_may_hold_its_rows_in_a_database(folder: Path) -> None:
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(folder / "rows.db") as database:
        rows_of(0).to_sql("patients", database, index=False)
    own = {
        "data-path": f"sqlite:///{folder}/rows.db",
        "query": "SELECT since, age, ward FROM patients",
        "data-id": "a",
    }
    found = run(folder, own)
    np.testing.assert_allclose(
        found[found[:, 0].argsort()], means_of_groups(), atol=6.0
    )
    assert {entry.data_id for entry in FileLedger(folder / "ledger0").entries()} == {
        "a"
    }


REFUSED = {
    "another bound": (("[0, 100]", "[0, 101]"), "the plan follows the schema"),
    "other values": (('["A", "B"]', '["A", "C"]'), "the plan follows the schema"),
    "another gap": (('"drop"', '"centre"'), "the plan follows the schema"),
    "another weight": (
        ("missing", "weight = 2, missing"),
        "the plan follows the schema",
    ),
    "another order": (("", ""), "the plan follows the schema"),
}


def swapped(text: str) -> str:
    """The same columns in another order, not that of positions in sentences."""
    head, age, *others = text.splitlines()
    return "\n".join([head, *others, age])


@pytest.mark.parametrize("what", REFUSED)
def test_another_schema_is_refused_before_anything_is_charged(
    folder: Path, what: str
) -> None:
    (old, new), sentence = REFUSED[what]
    (folder / "own.toml").write_text(
        FILE.replace(old, new, 1) if old else swapped(FILE)
    )
    with pytest.raises(PeerError, match=sentence):
        run(folder, {"schema": str(folder / "own.toml")})
    assert not FileLedger(folder / "ledger0").entries()


@pytest.mark.parametrize(
    ("own", "more", "sentence"),
    [
        ({"schema": "", "columns": "age"}, {}, "but this client's table has none"),
        ({}, {"bounds": "0,1"}, "the plan has no schema, but this client's table"),
        ({}, {"bounds": "private"}, "the plan has no schema, but this client's table"),
    ],
)  # fmt: skip
def test_a_schema_on_one_side_alone_is_refused(
    folder: Path, own: dict[str, str], more: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PeerError, match=sentence):
        run(folder, own, **more)
    assert not FileLedger(folder / "ledger0").entries()


SPOILT = {
    "a renamed column": lambda frame: frame.rename(columns={"ward": "wart"}),
    "a lost column": lambda frame: frame.drop(columns="ward"),
    "a column twice": lambda frame: frame.rename(columns={"name": "ward"}),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_missing_column_is_a_position_for_the_operator_and_a_name_on_the_node(
    folder: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    SPOILT[what](rows_of(0)).to_csv(folder / "rows0.csv", index=False)
    with (
        caplog.at_level(logging.WARNING, logger="flwr_dpkmeans"),
        pytest.raises(PeerError) as error,
    ):
        run(folder)
    assert "not once, column 2 of the schema's 3" in str(error.value)
    assert "ward" not in str(error.value)
    assert "columns named 'ward'" in caplog.text
    assert not FileLedger(folder / "ledger0").entries()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("column", "cell", "kept"),
    [("age", "", 0), ("since", "31.01.20", 0), ("ward", "a", 295)],
)
def test_an_empty_or_misspelt_column_ends_nothing_and_is_an_error_in_the_nodes_log(
    folder: Path, caplog: pytest.LogCaptureFixture, column: str, cell: str, kept: int
) -> None:
    rows_of(0).assign(**{column: cell}).to_csv(folder / "rows0.csv", index=False)
    with caplog.at_level(logging.ERROR, logger="flwr_dpkmeans"):
        assert run(folder).shape == (2, 4)
    assert f"'{column}' 300" in caplog.text
    assert f"{N_ROWS - kept} rows left out" in caplog.text


def test_a_plan_with_the_digest_of_a_schema_and_other_bounds_is_refused(
    folder: Path,
) -> None:
    bounds = Schema.load(folder / "schema.toml").bounds
    box = (bounds.lower, (*bounds.upper[:-1], bounds.upper[-1] + 1.0))
    with pytest.raises(PeerError, match="this client's table follows another one"):
        run(folder, changed={"bounds": box})
    assert not FileLedger(folder / "ledger0").entries()


def test_an_app_of_ones_own_hands_over_what_a_schema_encodes(folder: Path) -> None:
    schema, policy = (
        Schema.load(folder / "schema.toml"),
        {"policy": str(folder / "policy.toml")},
    )
    configs = [
        policy | {name: str(folder / f"{name}{i}") for name in ("ledger", "output")}
        for i in range(2)
    ]
    nodes = [
        Node(client_app(lambda _, i=i: schema.encode(rows_of(i))), own)
        for i, own in enumerate(configs)
    ]
    grid = InProcessGrid(nodes, run_id=93)
    with grid.running():
        assert ProxyLloyd(2, bounds=schema, epsilon=4.0).start(grid).confirmed
    with pytest.raises(PeerError, match="has no schema, but"), grid.running():
        ProxyLloyd(2, bounds=(0, 1), epsilon=4.0).start(InProcessGrid(nodes, run_id=94))


def test_a_notebook_fits_frames_and_labels_their_rows(folder: Path) -> None:
    parts = [rows_of(0), rows_of(1)[["ward", "since", "age"]]]
    for engine in ("direct", "inprocess"):
        km = FederatedKMeans(
            2, epsilon=4.0, bounds=str(folder / "schema.toml"), engine=engine
        ).fit(parts)
        assert km.privacy_.is_private
        assert (
            km.privacy_.n_examples_source == "private count"
        )  # how many are left out is private
        assert km.feature_names_in_.tolist() == ["age", "ward=A", "ward=B", "since"]
        labels = km.predict(parts[0])
        assert labels.shape == (N_ROWS,)
        assert set(labels[:5]) == {-1}
        old = parts[0]["age"][5:] > 45
        assert len(set(labels[5:][old])) == len(set(labels[5:][~old])) == 1
        assert np.isnan(km.transform(parts[0])[:5]).all()
        assert km.schema_ is not None
        assert sorted(
            max(one, key=one.get)
            for one in km.schema_.decode(km.cluster_centers_)["ward"]
        ) == ["A", "B"]


def test_a_notebook_says_whose_table_lacks_what(folder: Path) -> None:
    schema = Schema.load(folder / "schema.toml")
    with pytest.raises(DataError, match=r"the table has no columns named 'ward'.*did"):
        FederatedKMeans(2, bounds=schema).fit(
            [rows_of(0), rows_of(1).rename(columns={"ward": "wart"})]
        )
    with pytest.raises(ConfigurationError, match="schema_digest is no argument"):
        FederatedKMeans(2, bounds=schema, schema_digest="x")
    with pytest.raises(ConfigurationError, match="'moments' would count such a gap"):
        federate("moments", [rows_of(0), rows_of(1)], bounds=schema, epsilon=8.0)
    accepted = Schema(**schema.to_dict(), gap_share=0.0)
    found = federate("moments", [rows_of(0), rows_of(1)], bounds=accepted, epsilon=8.0)
    assert abs(found["mean"][0] - 45) < 6


PROFILED = """profile = ["ward", "age", "sick"]
profile_share = 0.2
[columns]
since = { kind = "date", bounds = [2020-01-01, 2021-01-01] }
ward = { kind = "category", values = ["A", "B"], missing = "centre", weight = 0 }
age = { kind = "number", bounds = [0, 100], missing = "drop" }
sick = { kind = "flag", weight = 0 }
"""


def profiled(folder: Path) -> None:
    """Tables with one more column, whose columns stand in other orders."""
    (folder / "schema.toml").write_text(PROFILED)
    for index in range(2):
        rows = rows_of(index)
        rows["sick"] = (rows["age"] > 45) & (np.arange(N_ROWS) % 4 > 0)
        rows[rows.columns[:: 1 - 2 * index]].to_csv(
            folder / f"rows{index}.csv", index=False
        )


@pytest.mark.sample(1)
@pytest.mark.parametrize("trust", ["oblivious", "distributed", "central"])
def test_nodes_release_a_profile_of_columns_that_are_not_clustered(
    folder: Path, trust: str
) -> None:
    profiled(folder)
    centroids = run(folder, names=["since", "age"], trust=trust, epsilon=8.0)
    old = int(centroids[:, 1].argmax())
    nodes = [
        next((folder / f"output{index}").rglob("federated_profile.csv"))
        for index in range(2)
    ]
    assert nodes[0].read_text().startswith("cluster,column,figure,value,")
    # Under `oblivious` the server knows the noise, and has no result.
    server = folder / "run" / "server" / "federated_profile.csv"
    assert server.exists() == (trust != "oblivious")
    files = [place.read_text() for place in (*nodes, server) if place.exists()]
    assert len(set(files)) == 1
    # pandas' usual parser is off by a last digit now and then.
    read = pd.read_csv(
        nodes[0], dtype={"cluster": str, "value": str}, float_precision="round_trip"
    )
    found = read.set_index(["cluster", "column", "figure"])
    assert found.loc[(str(old), "sick", "share"), "estimate"].item() == pytest.approx(
        0.75, abs=0.15
    )
    assert found.loc[
        (str(1 - old), "sick", "share"), "estimate"
    ].item() == pytest.approx(0.0, abs=0.15)
    assert found.loc[(str(old), "age", "mean"), "estimate"].item() == pytest.approx(
        70, abs=6
    )
    shares = found.loc[(str(old), "ward", "share")].set_index("value")
    assert shares.loc["A", "estimate"] > 0.8 > 0.2 > shares.loc["B", "estimate"]
    model = Model.load(nodes[1].parent / "model.json")
    assert [one.estimate for one in model.federated_profile] == found[
        "estimate"
    ].tolist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("trust", ["oblivious", "distributed"])
def test_nodes_show_centres_without_the_pull_of_gaps(folder: Path, trust: str) -> None:
    tables = [rows_of(0), rows_of(1)]
    for index, table in enumerate(tables):
        table.loc[np.arange(N_ROWS) % 3 == 0, "ward"] = None
        table.to_csv(folder / f"rows{index}.csv", index=False)
    centroids = run(folder, trust=trust, epsilon=8.0)
    old = int(centroids[:, 0].argmax())
    models = [
        Model.load(next((folder / f"output{index}").rglob("model.json")))
        for index in range(2)
    ]
    assert (
        models[0].to_json().partition(b'"privacy"')[0]
        == models[1].to_json().partition(b'"privacy"')[0]
    )
    np.testing.assert_array_equal(models[0].centroids, centroids)
    assert models[0].cell_means[old, 1:3] == pytest.approx([1.0, 0.0], abs=0.1)
    assert centroids[old, 1:3] == pytest.approx(
        [5 / 6, 1 / 6], abs=0.1
    )  # a third of the rows counts as one half
    shares = [one for one in models[0].federated_profile if one.cluster == "all"]
    assert [one.figure for one in shares] == ["missing"]
    assert shares[0].estimate == pytest.approx(
        pd.concat(tables).dropna(subset="age")["ward"].isna().mean(), abs=0.1
    )


CHANGED: list[dict[str, Any]] = [
    {"profile_share": 0.4},
    {"profile_widths": (2, 1, 2)},
    {"profile_widths": (1, 2, 2)},
    {"profile_widths": (), "profile_share": 0.05, "gap_columns": ()},
    {"gap_columns": ()},
    {"gap_columns": (-1,)},
    {"gap_columns": (1,)},
    {"gap_columns": (0, -1)},
]


@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_a_plan_with_the_digest_of_a_schema_and_another_profile_is_refused(
    folder: Path, changed: dict[str, Any]
) -> None:
    profiled(folder)
    with pytest.raises(PeerError, match="this client's table follows another one"):
        run(folder, changed=changed)
    assert not FileLedger(folder / "ledger0").entries()


def test_a_node_that_lacks_a_column_of_the_profile_refuses_by_its_position(
    folder: Path,
) -> None:
    profiled(folder)
    rows_of(1).to_csv(folder / "rows1.csv", index=False)
    with pytest.raises(PeerError, match="not once, column 4 of the schema's 4"):
        run(folder)
    assert not FileLedger(folder / "ledger0").entries()


def test_columns_that_are_only_profiled_must_be_allowed_too(folder: Path) -> None:
    profiled(folder)
    allowed = 'allow-anything = true\nallowed-columns = ["age", "since"{}]\n'
    (folder / "policy.toml").write_text(allowed.format(""))
    with pytest.raises(PeerError, match="and its table of 5 names has 3 besides them"):
        run(folder, names=["since", "age"])
    assert not FileLedger(folder / "ledger0").entries()
    (folder / "policy.toml").write_text(allowed.format(', "ward=A", "ward=B", "sick"'))
    run(folder, names=["since", "age"], epsilon=8.0)
