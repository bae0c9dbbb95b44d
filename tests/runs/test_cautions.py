"""What a result says against itself: one list of sentences, in every place where
somebody looks.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from support.flat import flat_estimator

from flwr_dpkmeans import DPKMeans, FederatedKMeans, KMeansClient
from flwr_dpkmeans.algorithms.first_plan import first_plan
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import (
    ConfigurationError,
    PlanError,
    PrivacyWarning,
    warn_once,
)
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.server_app import report_result
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config, read_config
from flwr_dpkmeans.planner.forecast import notes_on
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import LOCAL, plan_cautions

ENGINES = ("direct", "inprocess")


def test_centroids_of_clear_rows_alone_are_told() -> None:
    server = np.random.default_rng(0).normal(size=(40, 2))
    said = []
    for margin, rounds in ((0.333, 0), (0.333, 2), (1.0, 0)):
        options = {
            "margin": margin,
            "max_iter": rounds,
            "n_clusters": 2,
            "n_examples": 10_000,
            "bounds": ((-3.0,), (3.0,)),
        }
        config = read_config(has_server_data=True, algorithm="feddp_kmeans", **options)
        held = hold_points(config, server)
        plan = draft_plan(
            config,
            run_id=1,
            n_clients=3,
            seed=7,
            n_features=2,
            server=held.facts,
            public_points=held.public,
        )
        said.append(
            "margin is 0.333: the first centroids are of"
            in " ".join(plan_cautions(plan))
        )
    assert said == [True, True, False]


@pytest.fixture(autouse=True)
def forget_what_was_said() -> None:
    warn_once.cache_clear()


def uniform_parts(
    n: int = 300, d: int = 2, n_clients: int = 3, scale: float = 1.0
) -> list[NDArray[np.float64]]:
    generator = np.random.default_rng(0)
    return [generator.uniform(-scale, scale, (n, d)) for _ in range(n_clients)]


def warnings_of(parts: Any = None, **options: Any) -> tuple[str, ...]:
    """The report's warnings of one fit, of which Python's warnings are the same."""
    defaults: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": (-1.0, 1.0),
        "engine": "direct",
    }
    warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        km = flat_estimator(**(defaults | options)).fit(
            uniform_parts() if parts is None else parts
        )
    told = tuple(str(one.message) for one in caught if one.category is PrivacyWarning)
    assert told == km.privacy_.warnings
    return km.privacy_.warnings


def plan_warnings(n_clients: int = 20, **values: Any) -> str:
    config = parse_config(
        **(
            {"n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "n_examples": 100_000}
            | values
        )
    )
    return " ".join(
        plan_cautions(
            draft_plan(config, run_id=1, n_clients=n_clients, seed=7, n_features=2)
        )
    )


# -- what is said ----------------------------------------------------------------------


def test_a_good_run_has_nothing_against_it() -> None:
    assert warnings_of(uniform_parts(20_000), epsilon=1.0) == ()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"epsilon": 20.0}, "epsilon is 20, a weak guarantee"),
        ({"epsilon": 100.0}, "of the 100 that was asked for"),
        ({"epsilon": 1e-6}, "is no smaller than the 3.33e+04 rows that a cluster has"),
        ({"n_examples": 100}, "hides where the data lie in wide bounds: these may be"),
        ({"unit": "client", "n_clients": 3}, "The unit is the client, and there are 3"),
        ({"unit": "client", "n_clients": 3}, "is no smaller than the 1 clients"),
    ],
)
def test_what_a_plan_says_against_itself(values: dict[str, Any], sentence: str) -> None:
    assert sentence in plan_warnings(values.pop("n_clients", 20), **values)


def test_noise_on_rows_is_compared_with_rows_where_clients_are_protected() -> None:
    """Sizes in rows are no numbers of clients."""
    server = np.random.default_rng(0).normal(size=(40, 2))
    own: dict[str, Any] = {
        "unit": "client",
        "epsilon": 10.0,
        "n_clusters": 2,
        "bounds": ((-10.0,), (10.0,)),
    }
    for algorithm, options in (
        ("server_lloyd", {}),
        ("sphere_packing", {}),
        ("feddp_kmeans", {"max_iter": 2}),
    ):
        config = read_config(
            has_server_data=True,
            algorithm=algorithm,
            examples_per_client=40,
            **own,
            **options,
        )
        for n_clients, said in ((200, False), (5, True)):
            plan, _ = first_plan(config, server, run_id=1, n_clients=n_clients)
            warned = [
                one for one in plan_cautions(plan) if "noise on each cluster" in one
            ]
            assert bool(warned) == said, (algorithm, n_clients)
            assert not warned or "the 100 rows that a cluster" in warned[0]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"epsilon": 10.0},
        {"epsilon": 0.01, "n_examples": 10**6},
        {"unit": "client", "n_clients": 5000, "epsilon": 2.0},
    ],
)
def test_an_ordinary_plan_says_nothing(values: dict[str, Any]) -> None:
    assert plan_warnings(values.pop("n_clients", 20), **values) == ""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("trust", ["oblivious", "distributed"])
def test_clusters_that_are_mostly_noise_are_counted(engine: str, trust: str) -> None:
    [*_, last] = warnings_of(
        epsilon=1e-3, engine=engine, trust=trust, algorithm="fastlloyd"
    )
    assert "of 3 clusters are mostly noise (number" in last


def test_max_cover_uses_its_budget_and_says_which_clusters_are_noise() -> None:
    options: dict[str, Any] = {"algorithm": "max_cover", "trust": "central"}
    assert not any(
        "that was asked for" in sentence
        for sentence in warnings_of(epsilon=1.0, **options)
    )
    assert any(
        "mostly noise" in sentence for sentence in warnings_of(epsilon=0.01, **options)
    )


def test_exact_and_seeded_runs_say_why_they_protect_nobody() -> None:
    [sentence] = warnings_of(algorithm="lloyd", epsilon=50.0)
    assert "adds no noise" in sentence
    [sentence] = warnings_of(
        uniform_parts(20_000), noise="seeded", random_state=1, epsilon=50.0
    )
    assert "seeded generator" in sentence
    # What is said against the result is true of the same noise from a seed.
    [seeded, noisy] = warnings_of(
        uniform_parts(20_000), noise="seeded", random_state=1, epsilon=1e-6, max_iter=1
    )[:2]
    assert "seeded generator" in seeded
    assert "the result is mostly noise" in noisy


# -- what only the holder of the rows may know -----------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_declared_number_below_the_rows_that_are_there(engine: str) -> None:
    said = warnings_of(
        n_examples=100, engine=engine, algorithm="fastlloyd", epsilon=5.0
    )
    local = [sentence for sentence in said if sentence.startswith(LOCAL)]
    assert "n_examples is declared as 100, but there are more rows" in local[0]
    assert "delta is 0.00217, which is not below 1/N" in local[1]
    assert "900" not in " ".join(local)


def test_a_given_delta_above_one_over_the_rows_that_are_there() -> None:
    said = warnings_of(
        unit="record", n_examples=100, delta=0.005, algorithm="fastlloyd"
    )
    assert any(
        "delta is 0.005, which is not below 1/N" in sentence for sentence in said
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_clipped_share_is_said_by_column(engine: str) -> None:
    pandas = pytest.importorskip("pandas")
    parts = [
        pandas.DataFrame(part * [0.5, 2.0], columns=["age", "pay"])
        for part in uniform_parts(5000)
    ]
    [sentence] = warnings_of(parts, engine=engine, epsilon=5.0)
    assert sentence.startswith(LOCAL)
    assert "More than 5% of the rows lie outside the bounds of column 'pay'" in sentence
    assert warnings_of(uniform_parts(5000), engine=engine, epsilon=5.0) == ()


def test_a_party_with_other_units_is_named() -> None:
    """In all that is 1% of the rows, of which nothing else is said."""
    table = pd.DataFrame(uniform_parts(9000, n_clients=1)[0], columns=["age", "pay"])
    parts = {"ward 7": table, "ward 8": table[:90] * [1.0, 1000.0], "empty": table[:0]}
    assert [one.split(LOCAL)[-1] for one in warnings_of(parts, epsilon=5.0)] == [
        "Most rows of party 'ward 8' lie outside the bounds of column 'pay' and were"
        " clipped, but hardly any of another party's: look at the units there."
    ]
    [sentence] = warnings_of([table * 3.0, table * 3.0], epsilon=5.0)
    assert "More than 5%" in sentence


def own_node(client: KMeansClient) -> Node:
    """A node with a ledger of its own."""
    settings = NodeSettings(ClientPolicy(), MemoryLedger(), "own")
    return Node(client_app(lambda _: client, mod=SecureAggregation(lambda _: settings)))


def run_in_process(
    tmp_path: Path, parts: list[NDArray[np.float64]], **options: Any
) -> tuple[Any, Any, list[KMeansClient]]:
    """One run of a Flower strategy over clients with folders of their own."""
    clients = [
        KMeansClient(part, output_dir=tmp_path / f"client-{i}")
        for i, part in enumerate(parts)
    ]
    grid = InProcessGrid([own_node(client) for client in clients], run_id=5)
    defaults: dict[str, Any] = {
        "n_clusters": 3,
        "n_features": 2,
        "bounds": (-1.0, 1.0),
        "n_examples": 900,
    }
    strategy = FastLloyd(**(defaults | options))
    with grid.running():
        result = strategy.start(grid)
    return strategy, result, clients


def test_what_one_clients_rows_say_stays_in_its_own_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside, outside = (
        uniform_parts(300, n_clients=2)[0],
        uniform_parts(300, scale=3.0)[0],
    )
    strategy, result, clients = run_in_process(
        tmp_path, [inside, outside], trust="distributed", epsilon=5.0
    )
    assert [len(client.local_warnings_) for client in clients] == [0, 1]
    written = json.loads((tmp_path / "client-1" / "privacy_report.json").read_text())
    assert clients[1].local_warnings_[0] in written["warnings"]
    assert LOCAL not in (tmp_path / "client-0" / "privacy_report.json").read_text()
    assert not [
        s
        for report in (result.privacy, strategy.run.report)
        for s in report.warnings
        if LOCAL in s
    ]
    assert not [
        r
        for r in caplog.records
        if LOCAL in r.getMessage() and r.name != "flwr_dpkmeans.client"
    ]


# -- who is told -----------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("trust", "server_knows"),
    [("oblivious", False), ("central", True), ("distributed", True)],
)
def test_the_server_hears_of_released_sums_only_where_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trust: str, server_knows: bool
) -> None:
    caplog.set_level(logging.INFO)
    strategy, result, clients = run_in_process(
        tmp_path, uniform_parts(), trust=trust, epsilon=0.01
    )
    report_result(strategy, result, tmp_path, {})
    said = " ".join(result.privacy.warnings)
    server_log = " ".join(
        r.getMessage() for r in caplog.records if r.name == "flwr_dpkmeans.server"
    )
    own = (tmp_path / "client-0" / "privacy_report.json").read_text()
    for text in (
        said,
        server_log,
        (tmp_path / "server" / "privacy_report.json").read_text(),
    ):
        assert ("mostly noise (number" in text) == server_knows
        assert "rows that a cluster has on average" in text
    assert "mostly noise (number" in own
    assert isinstance(result.arrays, ArrayRecord)
    assert clients[0].privacy_ is not None


def test_what_a_release_says_is_told_at_once_and_what_was_known_before_it_once() -> (
    None
):
    told: list[Any] = []
    options: dict[str, Any] = {
        "n_features": 2,
        "n_examples": 900,
        "max_iter": 3,
        "epsilon": 0.01,
    }
    run = read_config(
        n_clusters=3,
        bounds=((-1.0,), (1.0,)),
        algorithm="fastlloyd",
        trust="central",
        **options,
    )
    strategy = PrivateKMeans.from_config(
        run, on_step=lambda step: told.append(step.round_index), on_warning=told.append
    )
    grid = InProcessGrid(
        [own_node(KMeansClient(part)) for part in uniform_parts()], run_id=5
    )
    with grid.running():
        n_steps = len(strategy.start(grid).steps)
    steps = [place for place, one in enumerate(told) if isinstance(one, int)]
    assert len(steps) == n_steps > 1
    assert all("mostly noise (number" not in one for one in told[: steps[0]])
    assert steps == [*range(steps[0], steps[-1] + 1)]
    [last] = told[steps[-1] + 1 :]
    assert "mostly noise (number" in last


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("files", "n_elsewhere"), [("first", 0), ("all", 2), (None, 2)]
)
def test_clients_without_files_here_are_named_unless_the_first_alone_writes_some(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    files: str | None,
    n_elsewhere: int,
) -> None:
    strategy, result, _ = run_in_process(tmp_path, uniform_parts(), epsilon=5.0)
    page = tmp_path / f"client-{result.node_ids[0]}" / "report.html"
    page.parent.mkdir(exist_ok=True)
    page.touch()
    caplog.set_level(logging.INFO)
    report_result(
        strategy, result, tmp_path, {} if files is None else {"output-files": files}
    )
    said = [record.getMessage() for record in caplog.records]
    assert (
        f"page of client {result.node_ids[0]}, with all files beside it: {page}" in said
    )
    assert (
        sum("its own log says where the files are, or why" in one for one in said)
        == n_elsewhere
    )


def test_the_server_says_what_an_evaluation_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    strategy, result, _ = run_in_process(
        tmp_path, uniform_parts(), trust="central", evaluation="private"
    )
    report_result(strategy, result, tmp_path, {})
    said = [r.getMessage() for r in caplog.records if r.name == "flwr_dpkmeans.server"]
    assert str(result.evaluation) in "\n".join(said)
    assert not any("was chosen, of at most" in one for one in said)  # k was given


def test_a_forecast_says_what_its_plan_says_against_itself() -> None:
    request = FederatedKMeans(3, epsilon=20.0).plan(
        2000, 2, 3, seeds=2, algorithms=["fastlloyd"]
    )
    assert any(
        "epsilon is 20, a weak guarantee" in note
        for note in notes_on(request.request, request.algorithms)
    )


# -- private bounds --------------------------------------------------------------------


def table_parts(bunch: Any) -> list[Any]:
    """A bundled table's rows for three clients."""
    rows = bunch.data.sample(frac=1.0, random_state=0)
    return [rows.iloc[i::3] for i in range(3)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("load", "epsilon"), [(load_wine, 0.5), (load_iris, 0.25)])
def test_private_bounds_that_no_histogram_supports_end_the_run(
    load: Any, epsilon: float, engine: str
) -> None:
    parts = table_parts(load(as_frame=True))
    # A private count would sometimes find no rows, and say so first; seeded, as some
    # noise would show a column.
    fixed = {"n_examples": sum(map(len, parts)), "noise": "seeded", "random_state": 0}
    km = flat_estimator(3, epsilon=epsilon, bounds="private", engine=engine, **fixed)
    name = re.escape(repr(parts[0].columns[0]))
    with pytest.raises(
        PlanError,
        match=(
            rf"found no values of columns {name}.* give bounds, or a domain of"
            r" PrivateBounds, or raise"
        ),
    ):
        km.fit(parts)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("load", "epsilon"), [(load_wine, 0.5), (load_iris, 0.25)])
def test_a_domain_is_kept_for_columns_that_no_histogram_supports(
    load: Any, epsilon: float, engine: str
) -> None:
    parts = table_parts(load(as_frame=True))
    # A private count would sometimes find no rows, and end the run; seeded, as some
    # noise would show most columns.
    declared = {
        "bounds": "private",
        "bounds_domain": (0.0, 2000.0),
        "n_examples": sum(map(len, parts)),
    }
    declared |= {"noise": "seeded", "random_state": 0}
    km = flat_estimator(3, epsilon=epsilon, engine=engine, **declared)
    with pytest.warns(
        PrivacyWarning, match="Private bounds found no values of columns"
    ):
        km.fit(parts)
    said = next(
        sentence for sentence in km.privacy_.warnings if "Private bounds" in sentence
    )
    lower, upper = np.array(km.bounds_)
    kept = (lower == 0.0) & (upper == 2000.0)
    assert np.count_nonzero(kept) > len(kept) // 2
    assert (
        all(repr(name) in said for name in parts[0].columns[:10][kept[:10]])
        or "in all" in said
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_private_bounds_of_a_large_table_are_found_without_a_word(engine: str) -> None:
    generator = np.random.default_rng(0)
    parts = [
        generator.normal((10.0, 5000.0, -3.0), (2.0, 900.0, 0.1), (20_000, 3))
        for _ in range(3)
    ]
    said = warnings_of(parts, bounds="private", engine=engine, epsilon=1.0)
    assert not [
        sentence
        for sentence in said
        if "Private bounds" in sentence or "mostly noise" in sentence
    ]


WARDS: dict[str, Any] = {
    "age": {"kind": "number", "bounds": (0, 100)},
    "ward": {"kind": "category", "values": ["A", "B"]},
}
AGES = [20.0, 30.0, 70.0, 80.0] * 50


def test_who_holds_all_rows_is_told_of_a_column_that_no_cell_of_a_party_can_be_read_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = Schema(columns=WARDS | {"ward": WARDS["ward"] | {"missing": "centre"}})
    one, two = (
        pd.DataFrame({"age": AGES, "ward": wards})
        for wards in (["A", "B"] * 100, ["a", "b"] * 100)
    )
    km = FederatedKMeans(2, engine="direct", bounds=schema, random_state=0)
    with pytest.warns(
        PrivacyWarning,
        match=r"all cells of 'ward' of X\['south'\] are missing or nothing that",
    ) as said:
        km.fit({"north": one, "south": two})
    assert not [
        str(warned.message) for warned in said if "north" in str(warned.message)
    ]
    assert (
        "X['south']: of 200 rows, cells are missing in 'ward' 200; 0 rows left out"
        in caplog.text
    )


def test_who_holds_all_rows_is_told_of_another_unit_and_of_a_missing_schema() -> None:
    one = pd.DataFrame({"age": AGES, "ward": ["A", "B"] * 100})
    other = one.assign(age=one["age"] * 365)
    km = FederatedKMeans(
        2, engine="direct", bounds=Schema(columns=WARDS), random_state=0
    )
    with pytest.warns(
        PrivacyWarning,
        match=(
            r"over 25% of the cells of 'age' of X\['south'\] lie outside the schema's"
        ),
    ):
        km.fit({"north": one, "south": other})
    assert not [
        sentence
        for sentence in km.fit([one, one]).privacy_.warnings
        if "outside" in sentence
    ]
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml' does not exist"):
        km.set_params(bounds="nowhere.toml").fit([one, other])


@pytest.mark.sample(9)
@pytest.mark.parametrize("way", ["list", "names", "groups", "alone"])
@pytest.mark.parametrize("left_out", [200, 101, 100])
def test_who_holds_all_rows_is_told_of_a_party_that_a_schema_leaves_out(
    left_out: int, way: str
) -> None:
    spelt = ["a"] * left_out + ["A"] * (200 - left_out)
    one, two = (
        pd.DataFrame({"age": AGES, "ward": wards})
        for wards in (["A", "B"] * 100, spelt)
    )
    options: dict[str, Any] = {
        "bounds": Schema(columns=WARDS),
        "random_state": 0,
        "n_examples": 400,
    }
    federated = FederatedKMeans(2, engine="direct", **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if way == "alone":
            model, who = DPKMeans(2, **options).fit(two), "the table"
        elif way == "groups":
            both, groups = pd.concat([two, one]), np.repeat(["north", "south"], 200)
            model, who = federated.fit(both, groups=groups), "party 'north'"
        else:
            given: Any = [one, two] if way == "list" else {"south": one, "north": two}
            model, who = federated.fit(given), "X[1]" if way == "list" else "X['north']"
    said = [
        str(one.message)
        for one in caught
        if "the schema leaves out" in str(one.message)
    ]
    begin = (
        f"{LOCAL}the schema leaves out {left_out} of the 200 rows of {who}, above all"
        " for cells of its column 'ward'"
    )
    assert [sentence.startswith(begin) for sentence in said] == [True] * (
        left_out > 100
    )
    # What one party alone has fitted may be published.
    assert (set(said) <= set(model.privacy_.warnings)) == (way != "alone" or not said)


@pytest.mark.parametrize("algorithm", ["feddp_kmeans", "server_lloyd"])
def test_server_points_that_are_unlike_the_rows_are_doubted(algorithm: str) -> None:
    generator = np.random.default_rng(0)
    places = generator.uniform(0.0, 0.8, (6, 4))
    rows = places[generator.integers(6, size=6000)] + generator.normal(
        0.0, 0.05, (6000, 4)
    )
    alike = rows[generator.choice(6000, 300)]
    tight = np.sign(alike - np.median(rows, axis=0)) * 0.7
    cases = {
        "alike": (rows, alike, False),
        "a narrow part": (
            rows,
            rows.mean(axis=0) + generator.normal(0.0, 0.02, (300, 4)),
            True,
        ),
        "elsewhere": (rows, alike - 0.5, True),
        # All are as far from their mean, so that border and rows coincide.
        "corners": (np.repeat(tight, 10, axis=0), tight, False),
    }
    found = {}
    for name, (table, points, _) in cases.items():
        parts = np.array_split(generator.permutation(table), 3)
        options = {
            "algorithm": algorithm,
            "n_clusters": 6,
            "server_data": points,
            "epsilon": 4.0,
        }
        options |= {"noise": "seeded", "random_state": 0}
        said = [
            one
            for one in warnings_of(parts, **options)
            if "around the server's points" in one
        ]
        found[name] = bool(said)
        assert all(
            "give other server_data or a larger data_radius, or use proxy_lloyd" in one
            for one in said
        )
    assert found == {name: doubted for name, (_, _, doubted) in cases.items()}
    parts = np.array_split(generator.permutation(rows), 3)
    given = {
        "algorithm": algorithm,
        "n_clusters": 6,
        "server_data": alike,
        "epsilon": 4.0,
        "data_radius": 0.4,
    }
    said = [
        one
        for one in warnings_of(parts, noise="seeded", random_state=0, **given)
        if "data_radius" in one
    ]
    assert len(said) == 1


def test_a_table_that_changed_during_a_run_stands_in_its_owner_s_report_alone(
    tmp_path: Path,
) -> None:
    generator, nodes = np.random.default_rng(0), []
    (tmp_path / "policy.toml").write_text("allow-anything = true\n")
    for index in range(3):
        table = pd.DataFrame(generator.uniform(0.0, 1.0, (200, 2)), columns=["a", "b"])
        table.to_csv(tmp_path / f"{index}.csv", index=False)
        own = {name: str(tmp_path / f"{name}{index}") for name in ("ledger", "output")}
        own |= {
            "data-path": str(tmp_path / f"{index}.csv"),
            "columns": "a,b",
            "policy": str(tmp_path / "policy.toml"),
        }
        nodes.append(Node(client_app(load_client), own))
    run = read_config(
        n_clusters=2,
        n_examples=600,
        bounds=((0.0,), (1.0,)),
        algorithm="fastlloyd",
        max_iter=3,
    )
    rounds = []

    def on_step(step: Any) -> None:
        rounds.append(step)
        if len(rounds) == 1:
            table.head(20).to_csv(tmp_path / "2.csv", index=False)

    grid = InProcessGrid(nodes, run_id=5)
    with grid.running():
        PrivateKMeans.from_config(run, on_step=on_step).start(grid)
    said = [
        page.read_text().count("written as the run went on")
        for page in sorted(tmp_path.rglob("report.md"))
    ]
    assert [bool(n) for n in said] == [False, False, True]
