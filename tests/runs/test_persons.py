"""One person is protected: at every door, in every engine, by every algorithm."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict
from numpy.typing import NDArray
from support.protocol_federation import make_federation, small_config
from test_contract import FITS, Case, estimator, mixture

from flwr_dpkmeans import (
    DPKMeans,
    DPNaiveBayes,
    Evaluation,
    FederatedKMeans,
    FederatedNaiveBayes,
    PersonLevel,
    Schema,
    federate,
)
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.person_ids import (
    SIMULATED_KEY,
    id_texts,
    person_digests,
)
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.loading.unit_columns import UnitColumns
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    InputWarning,
    PlanError,
    RefusalError,
)
from flwr_dpkmeans.flower.client.node_persons import key_of_node
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client.simulated_tables import simulated_part
from flwr_dpkmeans.flower.kmeans_client import KMeansClient, held_by
from flwr_dpkmeans.flower.run_config import checked_strategy
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config, read_config
from flwr_dpkmeans.privacy.release import PrivacyUnit, as_released
from flwr_dpkmeans.resources import limits
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.neighbours import share_of_bound
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.person_rows import arrays_of_units
from flwr_dpkmeans.sums.persons.row_units import RowUnits
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import Array, PrivateSum, State

STEPS = 2.0**16
Points = NDArray[np.float64]
RECORD = [case for case in FITS if case[2] == "record"]


def ids_of(parts: list[Points], most: int = 4) -> list[NDArray[np.int64]]:
    """Ids of persons with 1 to so many rows each, in no order."""
    generator = np.random.default_rng(8)
    ids = []
    for part in parts:
        sizes = generator.integers(1, most + 1, len(part))
        ids.append(generator.permutation(np.repeat(np.arange(len(part)), sizes)))
    return [of_part[: len(part)] for of_part, part in zip(ids, parts, strict=True)]


def persons_of(ids: Sequence[str | None], key: bytes = b"key") -> Persons:
    return Persons(person_digests(ids, key))


def of_person(case: Case, **values: Any) -> FederatedKMeans:
    algorithm, trust, _, kind = case
    return estimator((algorithm, trust, "person", kind), **values)


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", RECORD, ids="-".join)
def test_one_row_of_each_person_is_a_run_at_record_level(case: Case) -> None:
    """Bit by bit, but for the words: noise, price and result are the same."""
    parts = list(mixture().clients)
    alone = [np.arange(len(part)) for part in parts]
    rows = estimator(case).fit(parts)
    persons = of_person(case, rows_per_person=1).fit(parts, persons=alone)
    assert np.array_equal(rows.cluster_centers_, persons.cluster_centers_)
    assert np.array_equal(rows.cluster_counts_, persons.cluster_counts_)
    assert rows.privacy_.epsilon == persons.privacy_.epsilon
    assert persons.privacy_.unit == "person"


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", RECORD, ids="-".join)
def test_every_algorithm_protects_persons_in_both_engines(case: Case) -> None:
    parts = list(mixture().clients)
    ids = ids_of(parts)
    direct = of_person(case).fit(parts, persons=ids)
    through_messages = of_person(case, engine="inprocess").fit(parts, persons=ids)
    assert np.array_equal(direct.cluster_centers_, through_messages.cluster_centers_)
    report = direct.privacy_
    assert report.unit == "person"
    assert "all rows of one person at one party" in report.neighbours
    n_persons = sum(len(np.unique(of_part)) for of_part in ids)
    assert report.n_examples == n_persons
    assert f"The number of persons, {n_persons}, is public knowledge." in (
        report.assumptions
    )
    assert any("[C16]" in sentence for sentence in report.assumptions)


def frames_of(parts: list[Points], ids: list[NDArray[np.int64]]) -> list[pd.DataFrame]:
    return [
        pd.DataFrame({"a": part[:, 0], "patient_id": of_part, "b": part[:, 1]})
        for part, of_part in zip(parts, ids, strict=True)
    ]


@pytest.fixture(scope="module")
def parts() -> list[Points]:
    generator = np.random.default_rng(2)
    return [generator.uniform(-1.0, 1.0, (300, 2)) for _ in range(3)]


def test_doors_of_a_notebook_say_the_same(parts: list[Points]) -> None:
    ids = ids_of(parts)
    frames = frames_of(parts, ids)
    options: dict[str, Any] = {"epsilon": 8.0, "noise": "seeded", "random_state": 3}
    model = FederatedKMeans(3, bounds=(-1, 1), **options)
    by_array = model.fit(parts, persons=ids).cluster_centers_
    assert np.array_equal(
        model.fit(frames, persons="patient_id").cluster_centers_, by_array
    )
    assert model.feature_names_in_.tolist() == ["a", "b"]
    labels = model.fit_predict(frames, persons="patient_id")
    assert [len(of_part) for of_part in labels] == [300, 300, 300]
    named = {"x": frames[0], "y": frames[1], "z": frames[2]}
    assert np.array_equal(
        model.fit(named, persons="patient_id").cluster_centers_, by_array
    )
    groups = np.repeat(["x", "y", "z"], 300)
    table = pd.concat(frames, ignore_index=True)
    model.fit(table, persons="patient_id", groups=groups)
    assert np.array_equal(model.cluster_centers_, by_array)
    number = {"kind": "number", "bounds": (-1, 1)}
    schema = Schema(columns={"a": number, "b": number}, person_column="patient_id")
    of_schema = FederatedKMeans(3, bounds=schema, **options).fit(frames)
    assert of_schema.privacy_.unit == "person"


def test_one_table_naive_bayes_and_statistics_protect_persons(
    parts: list[Points],
) -> None:
    ids = ids_of(parts)
    labels = [(part[:, 0] > 0).astype(int) for part in parts]
    n_persons = len(np.unique(ids[0]))
    reports = [
        DPKMeans(2, bounds=(-1, 1)).fit(parts[0], persons=ids[0]).privacy_,
        DPNaiveBayes(2, bounds=(-1, 1))
        .fit(parts[0], labels[0], persons=ids[0])
        .privacy_,
        FederatedNaiveBayes(2, bounds=(-1, 1)).fit(parts, labels, persons=ids).privacy_,
        federate("moments", parts, bounds=(-1, 1), persons=ids).privacy,
        federate(
            "histograms", parts, bounds=(-1, 1), unit="person", persons=ids
        ).privacy,
    ]
    assert {report.unit for report in reports} == {"person"}
    assert all(report.is_private for report in reports)
    assert reports[0].n_examples == n_persons


@pytest.mark.parametrize("most", [1, None])
@pytest.mark.parametrize("engine", ["direct", "inprocess"])
def test_persons_are_counted_profiled_and_evaluated(
    parts: list[Points], engine: str, most: int | None
) -> None:
    """At an epsilon that leaves little noise beside twice as many rows."""
    ids = ids_of(parts)
    labels = [(part[:, 0] > 0).astype(int) for part in parts]
    n_persons = sum(len(np.unique(of_part)) for of_part in ids)
    model = FederatedKMeans(
        2,
        bounds="private",
        epsilon=60.0,
        delta=1e-6,
        unit=PersonLevel(rows_per_person=most),
        evaluation=Evaluation(n_classes=2),
        noise="seeded",
        random_state=3,
        engine=engine,
    ).fit([part * (1.0, 0.1) for part in parts], labels, persons=ids)
    assert abs(model.privacy_.n_examples - n_persons) <= 20
    assert abs(model.cluster_counts_.sum() - n_persons) <= 20.0
    assert model.evaluation_.averaged_over == "persons"
    assert model.evaluation_.accuracy.value > 0.8
    assert abs(np.sum(model.evaluation_.cells) - n_persons) <= 20.0
    number = {"kind": "number", "bounds": (-1, 1)}
    schema = Schema(
        columns={"a": number, "b": number | {"weight": 0}},
        profile=("b",),
        person_column="patient_id",
    )
    described = FederatedKMeans(
        2,
        bounds=schema,
        epsilon=60.0,
        delta=1e-6,
        n_examples=n_persons,
        unit=PersonLevel(rows_per_person=most),
        noise="seeded",
        random_state=3,
        engine=engine,
    ).fit(frames_of(parts, ids))
    means = described.profile_.set_index(["cluster", "figure"])["estimate"]
    of_rows = [
        pd.Series(part[:, 1]).groupby(of_part).mean()
        for part, of_part in zip(parts, ids, strict=True)
    ]
    expected = pd.concat(of_rows).mean()
    assert means["all", "mean"] == pytest.approx(expected, abs=0.15 if most else 0.02)


def test_without_ids_nothing_is_spent(parts: list[Points]) -> None:
    with pytest.raises(ConfigurationError, match="nothing says whose rows these are"):
        FederatedKMeans(2, bounds=(-1, 1), unit="person").fit(parts)
    with pytest.raises(ConfigurationError, match="but unit is 'client': choose"):
        FederatedKMeans(2, bounds=(-1, 1), unit="client").fit(
            parts, persons=ids_of(parts)
        )
    with pytest.raises(DataError, match=r"has 4 ids, but the table has 300 rows"):
        DPKMeans(2, bounds=(-1, 1)).fit(parts[0], persons=[1, 2, 3, 4])
    with pytest.raises(DataError, match="one array of ids for each of the 3 tables"):
        FederatedKMeans(2, bounds=(-1, 1)).fit(parts, persons=ids_of(parts)[:2])
    with pytest.raises(ConfigurationError, match="rows_per_person is 3, but unit is"):
        parse_and_check(unit="record", rows_per_person=3)
    number = {"kind": "number", "bounds": (-1, 1)}
    with pytest.raises(ConfigurationError, match="which is a column of it"):
        Schema(columns={"a": number}, person_column="a")


def parse_and_check(**values: Any) -> None:
    read_config(n_clusters=2, bounds=((-1.0,), (1.0,)), **values)


def test_a_node_without_a_person_column_answers_no_such_plan(
    parts: list[Points],
) -> None:
    federation = make_federation(parts)
    with pytest.raises(Exception, match="has no person column"):
        federation.start(small_config(unit="person", n_examples=200))
    assert all(not ledger.entries() for ledger in federation.ledgers.values())


def test_a_policy_may_ask_for_persons(parts: list[Points]) -> None:
    federation = make_federation(parts, policy=ClientPolicy(allowed_units=["person"]))
    with pytest.raises(Exception, match="privacy unit"):
        federation.start(small_config(n_examples=900))


# -- no statistic moves beyond its bound -----------------------------------------------

PLANS: dict[str, dict[str, Any]] = {
    "proxy_lloyd": {"evaluation": "private", "n_classes": 2},
    "fastlloyd": {"max_iter": 2, "evaluation": "private", "n_classes": 2},
    "glloyd": {"max_iter": 2},
    "sulloyd": {"max_iter": 2},
    "sphere_packing": {"max_iter": 1},
    "naive_bayes": {"classes": 2},
    "moments": {},
    "histograms": {},
}


def plan_for(algorithm: str, **values: Any) -> Plan:
    options: dict[str, Any] = {"bounds": ((-1.0,), (1.0,)), "epsilon": 8.0}
    if algorithm not in ("naive_bayes", "moments", "histograms"):
        options["n_clusters"] = 2
    options |= PLANS[algorithm] | {"algorithm": algorithm, "unit": "person"} | values
    config = parse_config(n_examples=500, **options)
    return draft_plan(config, run_id=1, n_clients=2, seed=1, n_features=2)


def arrays(
    plan: Plan, step: PrivateSum, points: Points, ids: list[str], state: State
) -> list[Array]:
    """Of one party; labels follow from the rows."""
    persons = persons_of(ids, b"key")
    labels = (points[:, 0] > 0.0).astype(np.int64)
    return arrays_of_units(plan, step, RowUnits(persons), points, state, labels, None)


def table_of_persons(seed: int) -> tuple[Points, list[str]]:
    generator = np.random.default_rng(seed)
    sizes = [1, 60, 7, 2, *generator.integers(1, 9, 12)]
    ids = np.repeat([f"P{number}" for number in range(len(sizes))], sizes)
    ids = generator.permutation(ids)
    kinds = [
        generator.integers(-(2**16), 2**16 + 1, (len(ids), 2)) / STEPS,
        generator.choice([-1.0, 1.0], (len(ids), 2)),
    ]
    return kinds[seed % 2], ids.tolist()


@pytest.mark.parametrize("algorithm", PLANS)
def test_a_person_moves_no_statistic_beyond_its_bound(algorithm: str) -> None:
    """Against the table without the person, with its rows once, twice and shuffled."""
    plan = plan_for(algorithm)
    for seed in range(4):
        points, ids = table_of_persons(seed)
        state = initial_state(plan)
        for index, step in enumerate(build_algorithm(plan).rounds):
            for person in ("P0", "P1", "P2"):
                is_other = np.array([text != person for text in ids])
                others = [text for text in ids if text != person]
                rows = points[~is_other]
                without = arrays(plan, step, points[is_other], others, state)
                for n_times in (1, 2, 5):
                    table = np.vstack([points[is_other], *[rows] * n_times])
                    names = others + [person] * (len(rows) * n_times)
                    added = arrays(plan, step, table, names, state)
                    for block, before, after in zip(
                        plan.rounds[index].blocks, without, added, strict=True
                    ):
                        steps = np.rint((after - before) * STEPS).astype(np.int64)
                        assert share_of_bound(block, steps.ravel()) <= 1.0
            exact = np.concatenate(
                [np.ravel(a) for a in arrays(plan, step, points, ids, state)]
            )
            whole = np.rint(exact * STEPS).astype(np.int64).astype(np.uint64)
            blocks = plan.rounds[index].blocks
            state = step.advance(state, as_released(whole, blocks, plan.fraction_bits))


def test_a_statistic_that_takes_all_rows_of_a_person_is_found() -> None:
    """The bug that the test above must see: a person's rows counted one by one."""
    plan = plan_for("moments")
    (step, *_) = build_algorithm(plan).rounds
    points, ids = table_of_persons(1)
    is_other = np.array([text != "P1" for text in ids])
    state = initial_state(plan)
    whole = step.arrays_of(points, state)
    without = step.arrays_of(points[is_other], state)
    changes = [
        np.rint((after - before) * STEPS).astype(np.int64).ravel()
        for before, after in zip(without, whole, strict=True)
    ]
    with pytest.raises(PlanError, match="moves by"):
        list(map(share_of_bound, plan.rounds[0].blocks, changes))


# -- weights ---------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3, 59, 2**16])
def test_weights_of_a_person_add_up_to_one_on_the_grid(most: int) -> None:
    _, ids = table_of_persons(3)
    ids = ids + ["many"] * 70_000
    persons = persons_of(ids, b"key")
    rows, weights = persons.counted(most)
    steps = weights * STEPS
    assert np.array_equal(steps, np.rint(steps))
    assert weights.min() > 0.0
    assert np.all(np.diff(rows) > 0)
    names = np.array(ids)[rows]
    for name in np.unique(ids):
        of_person = weights[names == name]
        assert of_person.sum() == 1.0
        assert len(of_person) == min(most, ids.count(name))


def test_what_becomes_of_a_person_depends_on_its_own_rows_alone() -> None:
    _, ids = table_of_persons(2)
    whole = persons_of(ids, b"key")
    kept = np.array([place for place, text in enumerate(ids) if text != "P2"])
    without = whole.part(kept)
    for most in (1, 3, 2**16):
        counted = whole.counted(most)
        is_kept = np.isin(counted.rows, kept)
        rows, weights = without.counted(most)
        assert np.array_equal(kept[rows], counted.rows[is_kept])
        assert np.array_equal(weights, counted.weights[is_kept])


def test_any_row_of_a_person_may_be_the_one_that_counts() -> None:
    drawn = [
        persons_of(["a"] * 4, key.to_bytes(4, "big")).counted(1).rows[0]
        for key in range(400)
    ]
    assert np.bincount(drawn).min() > 60


def test_ids_are_compared_as_text_and_missing_ones_are_persons_of_their_own() -> None:
    texts = persons_of(id_texts([" 7", "7", "7.0", "a", "A"]))
    assert texts.n_persons == 4
    numbers = persons_of(id_texts([7, 7.0, "7", np.int64(7)]))
    assert numbers.n_persons == 1
    missing = persons_of(id_texts([None, float("nan"), "", "x"]))
    assert missing.n_persons == 4
    assert missing.counted(1).weights.tolist() == [1.0] * 4


class _Weighted:
    """A round that can weigh rows, of a foreign algorithm."""

    @staticmethod
    def weighted(
        points: Array, state: State, labels: object, weights: Array
    ) -> list[Array]:
        return [np.array([weights.sum()])]


def test_a_round_that_weighs_rows_looks_at_all_of_them() -> None:
    plan = plan_for("moments")
    (step, *_) = build_algorithm(plan).rounds
    weighing = PrivateSum(
        step.name,
        step.blocks,
        step.statistic,
        step.advance,
        weighted=_Weighted.weighted,
    )
    points, ids = table_of_persons(3)
    (total,) = arrays(plan, weighing, points, ids, initial_state(plan))
    assert total.item() == len(set(ids))
    unweighed = replace(step, weighted=None)
    n_counted, *_ = arrays(plan, unweighed, points, ids, initial_state(plan))
    assert n_counted.item() == len(set(ids))
    with pytest.raises(PlanError, match="cannot weigh rows"):
        unweighed.arrays_of(points, initial_state(plan), weights=np.ones(len(points)))


# -- files, and what leaves a node -----------------------------------------------------


def write_stays(folder: Path, n_rows: int = 200) -> Path:
    generator = np.random.default_rng(4)
    lines = [
        f"{age:.2f},SECRET-{number:03d},{kg:.2f}"
        for age, kg, number in zip(
            generator.uniform(-1, 1, n_rows),
            generator.uniform(-1, 1, n_rows),
            generator.integers(0, 40, n_rows),
            strict=True,
        )
    ]
    path = folder / "stays.csv"
    path.write_text("\n".join(["age,patient,kg", *lines]) + "\n")
    return path


@pytest.mark.parametrize("table_bytes", [None, 64])
def test_a_node_reads_its_person_column(
    tmp_path: Path, table_bytes: int | None, set_limits: Any
) -> None:
    if table_bytes is not None:
        set_limits(table_bytes=table_bytes)
    path = write_stays(tmp_path)
    person = UnitColumns("patient", SIMULATED_KEY)
    layout = Layout(("age", "kg"), units=person)
    declared = load_declared(path, layout)
    number = {"kind": "number", "bounds": (-1, 1)}
    schema = Schema(columns={"age": number, "kg": number})
    by_schema = load_by_schema(path, schema, Layout(units=person))
    simulated = load_source(str(path), units=person)
    clients = [
        KMeansClient(**held_by(table)) for table in (declared, by_schema, simulated)
    ]
    counted = [client.persons.counted(1).rows.tolist() for client in clients]
    assert counted[0] == counted[1] == counted[2]
    assert all(client.points.shape == (200, 2) for client in clients)
    assert clients[0].persons.n_persons == len(
        set(re.findall(r"SECRET-\d+", path.read_text()))
    )
    assert limits().table_bytes == (table_bytes or limits().table_bytes)


@pytest.mark.parametrize("most", [1, 3, None])
def test_tables_beyond_memory_have_the_same_persons(
    tmp_path: Path, most: int | None, set_limits: Any
) -> None:
    path = write_stays(tmp_path)
    layout = Layout(("age", "kg"), units=UnitColumns("patient", b"key"))
    centroids = []
    for table_bytes in (None, 64):
        if table_bytes is not None:
            set_limits(table_bytes=table_bytes, block_bytes=8 * 40)
        clients = [
            KMeansClient(**held_by(load_declared(path, layout))) for _ in range(3)
        ]
        federation = make_federation(
            [np.zeros((3, 2))] * 3,
            loaders={
                node: lambda _, client=client: client
                for node, client in enumerate(clients, start=FIRST_NODE_ID)
            },
        )
        config = small_config(
            unit="person",
            n_examples=120,
            noise="seeded",
            random_state=1,
            rows_per_person=most,
        )
        federation.start(config)
        centroids.append(clients[0].state_.centroids)
    assert isinstance(clients[0].points, Rows)
    assert np.array_equal(*centroids)


def test_a_local_profile_leaves_the_person_column_out(tmp_path: Path) -> None:
    path = write_stays(tmp_path)
    node: dict[str, Any] = {
        "data-path": str(path),
        "columns": "age,kg",
        "person-column": "patient",
        "profile-columns": "*",
    }
    client = load_client(Context(7, 3, node, RecordDict(), {}))
    assert client.persons is not None
    assert client.profile_table is not None
    assert list(client.profile_table()) == ["age", "kg"]
    with pytest.raises(ConfigurationError, match="for rows on a cluster"):
        load_client(
            Context(7, 3, node | {"data-path": "ray:///rows"}, RecordDict(), {})
        )


def test_no_id_is_in_a_log_a_message_or_a_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    person = UnitColumns("patient", b"a key of the run")
    path = write_stays(tmp_path)
    tables = [load_declared(path, Layout(("age", "kg"), units=person)) for _ in "abc"]
    clients = [KMeansClient(**held_by(table)) for table in tables]
    federation = make_federation(
        [table.points for table in tables],
        loaders={
            node: lambda _, client=client: client
            for node, client in enumerate(clients, start=FIRST_NODE_ID)
        },
    )
    sent: list[bytes] = []

    def note(batch: list[Any]) -> list[Any]:
        sent.extend(repr(message.content).encode() for message in batch)
        return batch

    federation.faults.on_send = note
    federation.faults.on_receive = note
    federation.start(small_config(unit="person", n_examples=120, max_iter=1))
    report = clients[0].privacy_
    assert report is not None
    assert report.unit == "person"
    texts = [caplog.text, json.dumps(report.to_dict()), repr(clients[0].persons)]
    assert len(sent) > 10
    digests = [str(int(number)) for number in np.asarray(tables[0].persons).ravel()]
    for text in (*texts, *(message.decode() for message in sent)):
        assert "SECRET" not in text
        assert not any(len(digest) > 9 and digest in text for digest in digests)
    assert {
        entry.unit
        for ledger in federation.ledgers.values()
        for entry in ledger.entries()
    } == {"person"}


def test_repeated_ids_are_warned_of_without_a_number(parts: list[Points]) -> None:
    frames = frames_of(parts, ids_of(parts))
    number = {"kind": "number", "bounds": (-1, 1)}
    schema = Schema(columns={"a": number, "b": number})
    with pytest.warns(InputWarning, match="say whose row each is") as caught:
        FederatedKMeans(2, bounds=schema, engine="direct").fit(frames)
    (sentence,) = (
        str(warning.message)
        for warning in caught
        if "whose row" in str(warning.message)
    )
    assert not re.search(r"\d", sentence)


def test_the_short_form_and_the_object_say_the_same() -> None:
    model = FederatedKMeans(2, unit="person")
    model.set_params(unit__rows_per_person=1)
    assert model.unit == PersonLevel(rows_per_person=1)


# -- flwr run --------------------------------------------------------------------------


def run_of(path: Path, **values: Any) -> dict[str, Any]:
    return {
        "data": str(path),
        "columns": "age,kg",
        "bounds": "-1,1",
        "n-clusters": 2,
        "num-clients": 2,
        "unit": "person",
        "n-examples": 80,
        **values,
    }


def test_a_simulation_names_its_person_column(tmp_path: Path) -> None:
    path = write_stays(tmp_path)
    run = run_of(path, **{"person-column": "patient"})
    strategy = checked_strategy(run, 2, simulated=True)
    assert strategy.config.unit is PrivacyUnit.PERSON
    node = {"partition-id": 0, "num-partitions": 2}
    table = simulated_part(str(path), run, node)
    assert table.names == ("age", "kg")
    assert len(table.persons) == len(table.points) == 100
    with pytest.raises(RefusalError, match="has no person column"):
        checked_strategy(run_of(path), 2, simulated=True)
    with pytest.raises(DataError, match="person_column is 'patint', but"):
        checked_strategy(run_of(path, **{"person-column": "patint"}), 2, simulated=True)


def test_a_node_keeps_its_key_for_a_run_and_no_longer() -> None:
    context = Context(7, 3, {}, RecordDict(), {})
    key = key_of_node(context)
    assert len(key) == 32
    assert key_of_node(context) == key
    later = Context(8, 3, {}, context.state, {})
    assert key_of_node(later) != key
