"""The project's own Flower app: its run configuration, its clients' data, and a whole run in process."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from flwr_dpkmeans.config import KMeansConfig, Schedule
from flwr_dpkmeans.data.bundled import BUNDLED, load_bundled
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.flower import app_data, node, server_app
from flwr_dpkmeans.flower.app_data import load_client
from flwr_dpkmeans.flower.client_app import app as clients
from flwr_dpkmeans.flower.inprocess import InProcessGrid, Node
from flwr_dpkmeans.flower.server_app import RUN_CONFIG_KEYS, strategy_from_run_config
from flwr_dpkmeans.kmeans.packing import PackingMethod
from flwr_dpkmeans.kmeans.update import PostProcessing
from flwr_dpkmeans.privacy.report import PrivacyReport

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main job is a simulation; the tests of a deployment say so."""
    monkeypatch.setattr(server_app, "is_simulated_server", lambda: True)


def defaults() -> dict[str, Any]:
    """The run configuration that `flwr run` starts with."""
    with open(PROJECT / "pyproject.toml", "rb") as file:
        return dict(tomllib.load(file)["tool"]["flwr"]["app"]["config"])


def configured(**values: Any) -> KMeansConfig:
    given = {key.replace("_", "-"): value for key, value in values.items()}
    return strategy_from_run_config(defaults() | {"num-clients": 10} | given).config


def sentence(**values: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        configured(**values)
    return str(caught.value)


# -- the run configuration ----------------------------------------------------------------------------------------


def test_every_declared_key_is_known_and_every_known_key_is_declared() -> None:
    assert set(defaults()) == set(RUN_CONFIG_KEYS)


def test_defaults_are_the_main_job() -> None:
    config = configured()
    assert (config.algorithm, config.n_clusters, config.n_examples, config.n_features) == ("fastlloyd", 10, 1797, 64)
    assert (config.epsilon, config.delta, config.unit.value) == (2.0, None, "record")
    assert (config.trust, config.noise.value, config.n_clients) == ("oblivious", "secure", 10)
    assert config.bounds == ((0.0,) * 64, (16.0,) * 64)
    assert config.max_retries == 1


def test_zero_empty_and_minus_one_mean_automatic() -> None:
    config = configured(data="table.csv", bounds="0,1")
    assert config.n_examples is config.n_features is config.max_iter is config.delta is None
    assert config.max_epsilon is config.post_processing is config.random_state is config.max_silent is None
    assert config.random_state is None


def test_only_a_simulation_knows_how_many_clients_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert defaults()["num-clients"] == 0
    assert configured(num_clients=0).n_clients is None
    monkeypatch.setattr(server_app, "is_simulated_server", lambda: False)
    assert sentence(num_clients=0).startswith("num-clients is 0, but outside a simulation nobody knows how many")


def test_nothing_is_assumed_of_the_files_of_deployed_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "is_simulated_server", lambda: False)
    assert sentence(data="digits").startswith("no bounds were given")
    config = configured(data="digits", bounds="0,16")
    assert config.n_examples is None
    assert config.n_features is None


def test_a_simulated_server_is_told_by_flowers_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "flwr.simulation.run_simulation", raising=False)
    assert not node.is_simulated_server()
    monkeypatch.setitem(sys.modules, "flwr.simulation.run_simulation", sys)
    assert node.is_simulated_server()


def test_values_are_taken_over() -> None:
    config = configured(
        data="table.csv",
        bounds="-5,100",
        n_clusters=4,
        n_features=3,
        n_examples=500,
        algorithm="glloyd",
        max_iter=6,
        alpha=0.5,
        schedule="constant",
        post_processing="none",
        radius_clipping=False,
        packing="halve",
        random_state=0,
        epsilon=1,
        delta=1e-7,
        trust="central",
        noise="seeded",
        count_share=0.1,
        max_epsilon=3.0,
        num_clients=7,
        min_clients=3,
        max_silent=0,
        max_retries=2,
    )
    assert (config.n_clusters, config.n_features, config.n_examples, config.max_iter) == (4, 3, 500, 6)
    assert config.bounds == ((-5.0,), (100.0,))
    assert (config.algorithm, config.alpha, config.schedule) == ("glloyd", 0.5, Schedule.CONSTANT)
    assert (config.post_processing, config.radius_clipping) == (PostProcessing.NONE, False)
    assert (config.packing, config.random_state) == (PackingMethod.HALVE, 0)
    assert (config.epsilon, config.delta, config.trust, config.noise.value) == (1.0, 1e-7, "central", "seeded")
    assert (config.count_share, config.max_epsilon) == (0.1, 3.0)
    assert (config.n_clients, config.min_clients, config.max_silent, config.max_retries) == (7, 3, 0, 2)


def test_timeouts_are_taken_over() -> None:
    strategy = strategy_from_run_config(
        defaults() | {"num-clients": 3, "join-timeout": 5, "round-timeout": 6.5, "run-timeout": 70}
    )
    assert (strategy.timeouts.joining, strategy.timeouts.round, strategy.timeouts.run) == (5, 6.5, 70)


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_size_and_bounds_of_bundled_data_are_known(name: str) -> None:
    config = configured(data=name, n_clusters=2)
    assert (config.n_examples, config.n_features) == (BUNDLED[name].n_examples, BUNDLED[name].n_features)
    assert config.bounds == (BUNDLED[name].bounds.lower, BUNDLED[name].bounds.upper)
    declared = configured(data=name, n_clusters=2, n_examples=140, bounds="0,9")
    assert declared.n_examples == 140
    assert declared.bounds == ((0.0,), (9.0,))


def test_bounds_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text("feature,lower,upper\nage,0,120\nheight,40,250\n")
    config = configured(data="table.csv", bounds=str(tmp_path / "bounds.csv"))
    assert config.bounds == ((0.0, 40.0), (120.0, 250.0))


def test_a_file_without_bounds_is_refused() -> None:
    text = sentence(data="table.csv")
    assert text.startswith("no bounds were given, and they may not be taken from private data")
    assert "bounds='0,100'" in text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"epsilonn": 1.0}, "there is no run-config key 'epsilonn': did you mean 'epsilon'?"),
        ({"n-client": 4}, "there is no run-config key 'n-client': did you mean 'num-clients'?"),
        ({"algorithm": "fastloyd"}, "algorithm is 'fastloyd', which is not known: did you mean 'fastlloyd'?"),
        ({"trust": "obliv"}, "trust is 'obliv', which is not known: did you mean 'oblivious'?"),
        ({"noise": "seedy"}, "noise is 'seedy', which is not known: did you mean 'seeded'?"),
        ({"partition": "iidd"}, "partition is 'iidd', which is not known here: did you mean 'iid'?"),
        ({"partition": "by_value"}, "partition is 'by_value', which is not known here: "),
        ({"data": "digit"}, "data is 'digit', but it must be a bundled data set or the path of a "),
        ({"bounds": "100,0"}, "every feature has lower bound 100.0 and upper bound 0.0, but the lower one must be "),
        ({"bounds": "wide"}, "the bounds are 'wide', but they must be two numbers or a file"),
        ({"n-clusters": 0}, "n_clusters is 0, but it must be an integer of at least 1: give 10."),
        ({"epsilon": -2.0}, "epsilon is -2.0, but it must be a finite number greater than 0: give 1.0."),
        ({"delta": 0.001}, "delta is 0.001, but it must be below 1/N = 0.000556483 "),
        ({"num-clients": 1}, "n_clients is 1, but it must be an integer of at least 2: give 10."),
        ({"radius-clipping": "false"}, "radius_clipping is 'false', but it must be a boolean: give True or False."),
        (
            {"round-timeout": 0},
            "the round timeout is 0 s, but it must be a positive, finite number: give seconds such as 60.0.",
        ),
        ({"join-timeout": "x"}, "the joining timeout is 'x' s, but it must be a positive, finite number"),
        ({"n-features": 3}, "there are bounds for 64 features, but the table has 3"),
    ],
    ids=str,
)
def test_bad_values_have_one_sentence(values: dict[str, Any], text: str) -> None:
    assert sentence(**values).startswith(text)


def test_number_of_clusters_is_needed() -> None:
    run_config = defaults() | {"num-clients": 3}
    del run_config["n-clusters"]
    with pytest.raises(ConfigurationError, match="no n-clusters: give it, such as n-clusters=10"):
        strategy_from_run_config(run_config)


# -- what a client loads ------------------------------------------------------------------------------------------


def context(node_config: dict[str, Any], run_config: dict[str, Any], node_id: int = 5) -> Context:
    return Context(run_id=1, node_id=node_id, node_config=node_config, state=RecordDict(), run_config=run_config)


def rows(client: Any) -> np.ndarray:
    return np.asarray(client._points)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file with six rows of two features and a label."""
    path = tmp_path / "people.csv"
    path.write_text("age,group,height\n" + "".join(f"{i},{i % 2},{170 + i}\n" for i in range(6)))
    return path


def test_server_may_not_choose_a_file_in_a_deployment(table: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_client(context({}, {"data": str(table)}))
    assert str(caught.value).startswith(
        "this node has no 'data-path' in its node configuration, and the server may not"
    )
    assert "--node-config" in str(caught.value)


def test_a_node_loads_its_own_file_whatever_the_server_says(table: Path, tmp_path: Path) -> None:
    own = {"data-path": str(table), "output": str(tmp_path / "mine")}
    client = load_client(context(own, {"data": "digits", "output": str(tmp_path / "other")}))
    assert rows(client).shape == (6, 3)
    labelled = load_client(context(own, {"label-column": "group"}))
    assert rows(labelled).tolist() == [[i, 170 + i] for i in range(6)]
    assert labelled._feature_names == ("age", "height")
    assert labelled._output_dir == tmp_path / "mine"
    assert client._image_shape is None


def test_missing_file_and_unknown_label_have_a_sentence(table: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_client(context({"data-path": str(table) + "x.csv"}, {}))
    with pytest.raises(DataError, match="grup"):
        load_client(context({"data-path": str(table)}, {"label-column": "grup"}))


def test_bundled_data_are_split_into_disjoint_parts(tmp_path: Path) -> None:
    run = {"data": "iris", "partition": "iid", "partition-seed": 3}
    parts = [
        load_client(context({"partition-id": i, "num-partitions": 4, "output": str(tmp_path)}, run)) for i in range(4)
    ]
    assert [len(rows(part)) for part in parts] == [38, 38, 37, 37]
    together = np.concatenate([rows(part) for part in parts])
    everything = load_bundled("iris").points
    assert sorted(map(tuple, together)) == sorted(map(tuple, everything))
    digits = load_client(context({"partition-id": 0, "num-partitions": 9}, {"data": "digits"}))
    assert digits._image_shape == (8, 8)


def test_a_simulation_splits_the_file_of_the_run(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_data, "is_simulation", lambda: True)
    run = {"data": str(table), "partition": "contiguous", "label-column": "group"}
    parts = [rows(load_client(context({"partition-id": i, "num-partitions": 2}, run))) for i in range(2)]
    assert [part[:, 0].tolist() for part in parts] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_output_of_the_run_counts_in_a_simulation_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = context({}, {"output": str(tmp_path / "server")}, node_id=8)
    assert node.output_folder(asked) == Path.home() / "flwr-dpkmeans" / "run-1" / "client-8"
    assert not node.is_simulation()
    monkeypatch.setattr(node, "is_simulation", lambda: True)
    assert node.output_folder(asked) == tmp_path / "server" / "client-8"
    asked.node_config["output"] = str(tmp_path / "own")
    assert node.output_folder(asked) == tmp_path / "own"


# -- a whole run in process ---------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What the app prints; its handler on standard output is taken away again."""
    logger = logging.getLogger("flwr_dpkmeans")
    saved = (logger.level, logger.propagate, list(logger.handlers))
    lines: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger.handlers = [Keeper()]
    yield lines
    logger.level, logger.propagate, logger.handlers = saved


def run_app(tmp_path: Path, **values: Any) -> InProcessGrid:
    run_config = defaults() | {"num-clients": 3, "output": str(tmp_path)} | values
    nodes = [
        Node(
            clients,
            {
                "partition-id": i,
                "num-partitions": 3,
                "output": str(tmp_path / f"client-{i + 2}"),
                "ledger": str(tmp_path / f"ledger-{i}"),
            },
        )
        for i in range(3)
    ]
    grid = InProcessGrid(nodes, run_id=31, run_config=run_config)
    with grid.running():
        server_app.app(grid, context({}, run_config, node_id=1))
    return grid


def test_whole_run_says_where_everything_is(tmp_path: Path, log: list[str]) -> None:
    run_app(tmp_path, data="iris", **{"n-clusters": 3})
    for i in range(2, 5):
        for name in ("centroids.npz", "privacy_report.json", "metrics.json", "summary.png"):
            path = tmp_path / f"client-{i}" / name
            assert path.stat().st_size > 0
            assert f"  {path}" in log
    assert sorted(path.name for path in (tmp_path / "server").iterdir()) == ["metrics.json", "privacy_report.json"]
    report = PrivacyReport.from_dict(json.loads((tmp_path / "server" / "privacy_report.json").read_text()))
    assert 1.99 <= report.epsilon <= 2.0
    steps = [line for line in log if line.startswith("round ")]
    assert len(steps) >= 2
    assert all("epsilon so far" in line and "noise per cluster" in line for line in steps)
    assert not any("movement" in line for line in steps)
    assert any(line.startswith("PRIVATE: fastlloyd, trust model 'oblivious', secure noise") for line in log)


def test_whole_run_under_central_trust_gives_the_server_a_picture(tmp_path: Path, log: list[str]) -> None:
    run_app(tmp_path, data="iris", trust="central", **{"n-clusters": 3})
    assert (tmp_path / "server" / "summary.png").is_file()
    assert all("largest movement" in line for line in log if line.startswith("round "))
    with np.load(tmp_path / "server" / "centroids.npz") as own, np.load(tmp_path / "client-3/centroids.npz") as other:
        assert np.array_equal(own["centroids"], other["centroids"])


def test_a_bad_configuration_ends_the_run_before_anything_is_sent(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InProcessGrid, "push_messages", lambda *_: pytest.fail("a message was sent"))
    with pytest.raises(SystemExit) as caught:
        run_app(tmp_path, epsilon=-1.0)
    assert caught.value.code == 1
    assert log == [
        "ConfigurationError: epsilon is -1.0, but it must be a finite number greater than 0: give 1.0.",
    ]
    assert list(tmp_path.iterdir()) == []
