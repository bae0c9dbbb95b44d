"""Rows with weights of their own: in both engines, by every algorithm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict
from numpy.typing import NDArray
from sklearn import clone, config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from support.protocol_federation import make_federation, small_config
from test_contract import FITS, Case, estimator, mixture

from flwr_dpkmeans import (
    Budget,
    DPKMeans,
    DPNaiveBayes,
    Evaluation,
    FederatedKMeans,
    FederatedNaiveBayes,
    Schema,
    federate,
)
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.loading.unit_columns import UnitColumns
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    InputWarning,
    RefusalError,
)
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client.simulated_tables import simulated_part
from flwr_dpkmeans.flower.kmeans_client import KMeansClient, held_by
from flwr_dpkmeans.flower.run_config import checked_strategy
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.row_units import RowUnits
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.settings import Settings

RECORD = [case for case in FITS if case[2] == "record"]
PARTS = list(mixture().clients)
SEEDED: dict[str, Any] = {"noise": "seeded", "random_state": 1, "engine": "direct"}


def weights_of(parts: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    generator = np.random.default_rng(4)
    return [generator.uniform(0.0, 4.0, len(part)) for part in parts]


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", RECORD, ids="-".join)
def test_rows_of_full_weight_are_a_run_without_weights(case: Case) -> None:
    """Bit by bit, but for the unit of what is counted."""
    plain = estimator(case, n_examples="private").fit(PARTS)
    full = [np.full(len(part), 4.0) for part in PARTS]
    weighed = estimator(case, max_weight=4.0).fit(PARTS, sample_weight=full)
    assert np.array_equal(plain.cluster_centers_, weighed.cluster_centers_)
    assert np.array_equal(4.0 * plain.cluster_counts_, weighed.cluster_counts_)
    assert plain.privacy_.epsilon == weighed.privacy_.epsilon


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", RECORD, ids="-".join)
def test_every_algorithm_weighs_rows_in_both_engines(case: Case) -> None:
    weights = weights_of(PARTS)
    direct, through_messages = (
        estimator(case, max_weight=4.0, engine=engine).fit(PARTS, sample_weight=weights)
        for engine in ("direct", "inprocess")
    )
    assert np.array_equal(direct.cluster_centers_, through_messages.cluster_centers_)
    report = direct.privacy_
    assert any("[C18]" in sentence for sentence in report.assumptions)
    assert "units of weight" in str(direct.model_)
    assert type(report).from_dict(report.to_dict()) == report
    plain = estimator(case, n_examples="private").fit(PARTS)
    assert not np.array_equal(plain.cluster_centers_, direct.cluster_centers_)


@pytest.mark.parametrize("unit", ["record", "person"])
def test_whole_weights_are_rows_that_are_there_so_often(unit: str) -> None:
    """Of exact sums; all persons have one row."""
    generator = np.random.default_rng(2)
    repeats = [generator.integers(0, 5, len(part)) for part in PARTS]
    options: dict[str, Any] = {"algorithm": "lloyd", "bounds": (-1, 1)} | SEEDED
    persons = [np.arange(len(part)) for part in PARTS] if unit == "person" else None
    weighed = FederatedKMeans(3, max_weight=4.0, **options)
    weighed.fit(PARTS, sample_weight=repeats, persons=persons)
    often = [np.repeat(*pair, axis=0) for pair in zip(PARTS, repeats, strict=True)]
    plain = FederatedKMeans(3, **options).fit(often)
    assert np.allclose(weighed.cluster_centers_, plain.cluster_centers_, atol=1e-3)
    assert np.array_equal(weighed.cluster_counts_, plain.cluster_counts_)


def test_heavier_rows_count_as_the_maximum_and_their_holder_hears_of_it() -> None:
    rows = PARTS[0]
    (weights,) = weights_of([rows])
    model = DPKMeans(2, bounds=(-1, 1), max_weight=2.0, noise="seeded", random_state=1)
    with pytest.warns(InputWarning, match="weigh more than max_weight, 2, and count"):
        heavy = model.fit(rows, sample_weight=weights).cluster_centers_
    cut = model.fit(rows, None, np.minimum(weights, 2.0)).cluster_centers_
    assert np.array_equal(heavy, cut)


@pytest.mark.parametrize(
    ("values", "weights", "sentence"),
    [
        ({"max_weight": None}, 1.0, "max_weight was not, which is public"),
        ({"max_weight": -1.0}, 1.0, "max_weight is -1.0, but it must be"),
        ({"unit": "client"}, 1.0, "unit is 'client', where a client's rows have no"),
        ({"n_examples": 200}, 1.0, "a private count finds the total: leave n_examples"),
        ({"algorithm": "max_cover"}, 1.0, "'max_cover', which has no such option"),
        ({}, -1.0, r"sample_weight\[0\]: sample_weight is -1 at row 0"),
        ({}, np.nan, "is nan at row 0, but a row weighs a finite number of at least 0"),
        ({}, np.inf, "is inf at row 0"),
        ({}, "heavy", "has entries that are no numbers"),
    ],
)
def test_what_cannot_be_weighed_is_refused_before_it_costs(
    values: dict[str, Any], weights: Any, sentence: str
) -> None:
    options: dict[str, Any] = {"bounds": (-1, 1), "max_weight": 2.0} | values
    alike = [np.full(len(part), weights) for part in PARTS]
    budget = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises((ConfigurationError, DataError), match=sentence):
        FederatedKMeans(2, **options).fit(PARTS, sample_weight=alike, budget=budget)
    assert budget.spent == 0.0


def test_there_is_one_weight_for_each_row() -> None:
    model = FederatedKMeans(2, bounds=(-1, 1), max_weight=2.0)
    with pytest.raises(DataError, match=r"has shape \(3,\), but there are 40 rows"):
        model.fit(PARTS, sample_weight=[np.ones(3)] * len(PARTS))
    with pytest.raises(DataError, match="one array of weights for each of the 5"):
        model.fit(PARTS, sample_weight=[np.ones(40)] * 2)


@pytest.mark.parametrize("rows_per_person", [None, 1, 3])
def test_weights_of_a_person_add_up_to_at_most_one(rows_per_person: int | None) -> None:
    generator = np.random.default_rng(7)
    numbers = generator.integers(1, 40, 300)
    persons = Persons(np.stack([numbers, np.zeros(300)], axis=1).astype(float))
    values = [-1.0, 0.0, 1e-9, 1.0, 3.0, 1e300, np.inf, np.nan]
    units = RowUnits(persons, generator.choice(values, 300))
    settings = Settings(
        bounds=((-1.0,), (1.0,)),
        unit="person",  # type: ignore[arg-type]
        max_weight=3.0,
        rows_per_person=rows_per_person,
    )
    rows, weights = units.counted(settings, 300)
    assert np.bincount(numbers[rows], weights).max() <= 1.0
    assert np.array_equal(weights * 2**16, np.rint(weights * 2**16))
    assert weights.min() == 0.0


FULL = [np.full(len(part), 4.0) for part in PARTS]
LABELS = [np.arange(len(part)) % 2 for part in PARTS]


@pytest.mark.parametrize(
    ("task", "values", "counts"),
    [
        ("moments", {}, "rows"),
        ("histograms", {"bins": 3}, "counts"),
        ("radii", {"centers": [[0.0] * 3, [0.5] * 3]}, "rows"),
    ],
)
def test_statistics_count_in_units_of_weight(
    task: str, values: dict[str, Any], counts: str
) -> None:
    options = {"bounds": (-1, 1), "n_examples": "private"} | SEEDED | values
    plain = federate(task, PARTS, **options)
    full = federate(task, PARTS, sample_weight=FULL, max_weight=4.0, **options)
    for name, array in plain.result.arrays.items():
        unit = 4.0 if name == counts else 1.0
        assert np.array_equal(unit * array, full[name])
        if name in plain.errors:
            assert np.array_equal(unit * plain.errors[name], full.errors[name])
    weighed = federate(
        task, PARTS, sample_weight=weights_of(PARTS), max_weight=4.0, **options
    )
    assert weighed[counts].sum() < 0.8 * full[counts].sum()


def test_classes_weigh_what_their_rows_do() -> None:
    """Of two classes that have the same number of rows."""
    options: dict[str, Any] = {"bounds": (-1, 1), "epsilon": 20.0, "max_weight": 4.0}
    weights = [1.0 + 3.0 * labels for labels in LABELS]
    model = FederatedNaiveBayes(2, **options, **SEEDED).fit(PARTS, LABELS, weights)
    assert np.allclose(model.class_prior_, [0.2, 0.8], atol=0.05)
    alone = DPNaiveBayes(2, **options).fit(PARTS[0], LABELS[0], weights[0])
    assert alone.class_prior_[1] > 0.6


def test_an_evaluation_counts_in_units_of_weight() -> None:
    options: dict[str, Any] = {"bounds": (-1, 1), "evaluation": Evaluation(n_classes=2)}
    plain = FederatedKMeans(2, n_examples="private", **options, **SEEDED)
    weighed = FederatedKMeans(2, max_weight=4.0, **options, **SEEDED)
    one = plain.fit(PARTS, LABELS).evaluation_
    other = weighed.fit(PARTS, LABELS, FULL).evaluation_
    assert np.array_equal(4.0 * np.array(one.cells), other.cells)
    assert np.array_equal(4.0 * np.array(one.counts), other.counts)
    assert other.counts_noise == 4.0 * one.counts_noise
    assert other.n_units.value == 4.0 * one.n_units.value
    assert (other.cost, other.accuracy) == (one.cost, one.accuracy)
    assert "cost per unit of weight" in str(other)


def test_k_is_chosen_by_weights() -> None:
    model = FederatedKMeans(
        algorithm="feddp_kmeans",
        bounds=(-1, 1),
        max_weight=4.0,
        server_data=mixture().server_points,
        **SEEDED,
    )
    choices = [
        model.choose_k(PARTS, 4, sample_weight=weights).costs
        for weights in (FULL, weights_of(PARTS))
    ]
    assert not np.array_equal(*choices)


def test_a_score_counts_rows_by_their_weights() -> None:
    model = DPKMeans(2, bounds=(-1, 1)).fit(PARTS[0])
    repeats = np.arange(40) % 3
    often = model.score(np.repeat(PARTS[0], repeats, axis=0))
    assert model.score(PARTS[0], sample_weight=repeats) == pytest.approx(often)
    with pytest.raises(ConfigurationError, match="was given for parties' tables"):
        model.score(PARTS, sample_weight=weights_of(PARTS))


def test_weights_reach_an_estimator_in_a_pipeline_and_a_search() -> None:
    rows = np.concatenate(PARTS)
    weights = np.concatenate(weights_of(PARTS))
    options: dict[str, Any] = {"bounds": (-1, 1), "noise": "seeded", "random_state": 1}
    alone = DPKMeans(2, max_weight=4.0, **options)
    expected = alone.fit(rows, sample_weight=weights).cluster_centers_
    with config_context(enable_metadata_routing=True):
        asks = clone(alone).set_fit_request(sample_weight=True)
        asks = asks.set_score_request(sample_weight=True)
        pipe = make_pipeline("passthrough", asks).fit(rows, sample_weight=weights)
        assert np.array_equal(pipe[-1].cluster_centers_, expected)
        search = GridSearchCV(asks, {"n_clusters": [2]}, cv=2)
        search.fit(rows, sample_weight=weights)
    assert np.array_equal(search.best_estimator_.cluster_centers_, expected)


def test_report_page_and_forecast_say_what_is_counted(tmp_path: Path) -> None:
    model = FederatedKMeans(2, bounds=(-1, 1), max_weight=4.0, **SEEDED)
    model.fit(PARTS, sample_weight=FULL)
    assert "in rows of weight 4 (private count)" in str(model.privacy_)
    model.write(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "of weight 4 (private count)" in page
    assert "units of weight" in page
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["noisy_counts"] == model.cluster_counts_.tolist()
    loaded = FederatedKMeans.load(tmp_path / "run" / "model.json")
    assert np.array_equal(loaded.cluster_counts_, model.cluster_counts_)
    assert np.array_equal(model.model_.hierarchy.sizes(2), model.cluster_counts_)
    forecast = model.plan(2_000, 2, 3, seeds=2, algorithms=["fastlloyd"])
    assert any("rows of weight 4" in note for note in forecast.notes)
    assert any("counted privately" in note for note in forecast.notes)


# -- files -----------------------------------------------------------------------------

WEIGHT_CELLS = ["1.5", "0", "9", "-1", "", "many", "inf", "4"]


def write_rows(folder: Path) -> Path:
    """Rows of a survey, a quarter of which have no weight that one could read."""
    rows = np.concatenate(PARTS)[:80]
    lines = [
        f"{a:.3f},{WEIGHT_CELLS[number % 8]},{b:.3f},{number % 20}"
        for number, (a, b, _) in enumerate(rows)
    ]
    path = folder / "survey.csv"
    path.write_text("\n".join(["a,calibration,b,who", *lines]) + "\n")
    return path


def node_of(path: Path, **values: str) -> Context:
    node = {"data-path": str(path), "columns": "a,b", **values}
    return Context(7, 3, node, RecordDict(), {})  # type: ignore[arg-type]


NODES = (FIRST_NODE_ID, FIRST_NODE_ID + 1)


def config_of(**values: Any) -> Any:
    weighed = {"max_weight": 4.0, "n_examples": None, "feature_names": ("a", "b")}
    return small_config(**(weighed | values))


@pytest.mark.parametrize("table_bytes", [None, 64])
def test_a_node_reads_what_its_rows_weigh(
    tmp_path: Path, table_bytes: int | None, set_limits: Any
) -> None:
    if table_bytes is not None:
        set_limits(table_bytes=table_bytes)
    path = write_rows(tmp_path)
    units = UnitColumns("who", b"key", "calibration")
    number = {"kind": "number", "bounds": (-1, 1)}
    schema = Schema(columns={"a": number, "b": number})
    tables = [
        load_declared(path, Layout(("a", "calibration", "b", "who"), units=units)),
        load_by_schema(path, schema, Layout(units=units)),
        load_source(str(path), units=units),
    ]
    for table in tables:
        client = KMeansClient(**held_by(table))
        assert client.points.shape == (80, 2)
        assert client.persons.n_persons == 20
        assert np.array_equal(
            np.asarray(client.weights)[:8],
            [1.5, 0.0, 9.0, -1.0, np.nan, np.nan, np.inf, 4.0],
            equal_nan=True,
        )


def test_cells_that_are_no_weights_count_as_nothing_on_a_node(tmp_path: Path) -> None:
    context = node_of(write_rows(tmp_path), **{"weight-column": "calibration"})
    client = load_client(context)
    read = np.asarray(client.weights)
    centres = []
    for weights in (read, np.nan_to_num(np.clip(read, 0.0, 4.0)), np.ones(80)):
        client.weights = weights
        federation = make_federation(
            [np.zeros((3, 2))] * 2,
            loaders=dict.fromkeys(NODES, lambda _: client),
        )
        federation.start(config_of(noise="seeded"))
        centres.append(client.cluster_centers_)
    assert np.array_equal(*centres[:2])
    assert not np.array_equal(*centres[1:])


def test_a_schema_names_the_column_of_weights(tmp_path: Path) -> None:
    number = {"kind": "number", "bounds": (-1, 1)}
    schema = Schema(columns={"a": number, "b": number}, weight_column="calibration")
    assert Schema(**schema.to_dict()) == schema
    assert schema.digest == Schema(columns={"a": number, "b": number}).digest
    with pytest.raises(ValueError, match="weight_column is 'a', which is a column"):
        Schema(columns={"a": number}, weight_column="a")
    table = pd.DataFrame(PARTS[0], columns=["a", "b", "calibration"]).abs()
    weights = table["calibration"]
    options = {"max_weight": 2.0, "noise": "seeded", "random_state": 1}
    model = DPKMeans(2, bounds=schema, **options)
    named = model.fit(table).cluster_centers_
    assert np.array_equal(named, model.fit(table, None, weights).cluster_centers_)
    with pytest.warns(InputWarning, match="this run counted each row once"):
        model.set_params(max_weight=None).fit(table)
    path = tmp_path / "schema.toml"
    path.write_text(
        "weight_column = 'calibration'\n"
        + "".join(f"[columns.{c}]\nkind = 'number'\nbounds = [-1, 1]\n" for c in "ab")
    )
    context = node_of(write_rows(tmp_path), schema=str(path))
    del context.node_config["columns"]
    assert np.asarray(load_client(context).weights)[0] == 1.5


def test_a_node_says_to_itself_which_rows_count_otherwise(tmp_path: Path) -> None:
    client = load_client(
        node_of(write_rows(tmp_path), **{"weight-column": "calibration"})
    )
    loaders = dict.fromkeys(NODES, lambda _: client)
    for values, sentences in (
        ({}, ["weigh more than max_weight, 4,", "have no number of"]),
        ({"max_weight": None}, ["this run counted each row once"]),
    ):
        federation = make_federation([np.zeros((3, 2))] * 2, loaders=loaders)
        federation.start(config_of(**values))
        for sentence in sentences:
            assert any(sentence in text for text in client.local_warnings_)


def test_a_node_without_a_weight_column_answers_no_such_plan() -> None:
    federation = make_federation([part[:, :2] for part in PARTS])
    with pytest.raises(Exception, match="this client's table has no weights"):
        federation.start(config_of())
    assert all(not ledger.entries() for ledger in federation.ledgers.values())


def test_rows_on_a_cluster_have_no_weights(tmp_path: Path) -> None:
    context = node_of(tmp_path, **{"weight-column": "w"})
    context.node_config["data-path"] = "ray:///rows"
    with pytest.raises(ConfigurationError, match="weight-column is 'w' for rows on"):
        load_client(context)


def test_a_simulation_names_its_weight_column(tmp_path: Path) -> None:
    path = write_rows(tmp_path)
    run: dict[str, Any] = {
        "data": str(path),
        "columns": "a,b",
        "bounds": "-1,1",
        "n-clusters": 2,
        "num-clients": 2,
        "max-weight": 4.0,
    }
    weighed = run | {"weight-column": "calibration"}
    with pytest.raises(DataError, match="weight-column is -1 at row 3"):
        checked_strategy(weighed, 2, simulated=True)
    path.write_text("a,calibration,b\n" + "0.1,2,0.3\n" * 80)
    assert checked_strategy(weighed, 2, simulated=True).config.max_weight == 4.0
    part = simulated_part(str(path), weighed, {"partition-id": 0, "num-partitions": 2})
    assert part.names == ("a", "b")
    assert part.weights.tolist() == [2.0] * 40
    with pytest.raises(DataError, match="weight_column is 'wait', but"):
        checked_strategy(run | {"weight-column": "wait"}, 2, simulated=True)
    with pytest.raises(RefusalError, match="has no weights"):
        checked_strategy(run | {"columns": "a,b"}, 2, simulated=True)
