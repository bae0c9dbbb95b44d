"""The project's own Flower app: its run configuration, its clients' data, and a whole
run in process.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict
from flwr.app.exception import AppExitException
from flwr.common.config import flatten_dict, fuse_dicts, parse_config_args
from flwr.supercore.exit import ExitCode
from support.engines import join_ray, simulate_server
from support.flat import run_config as of_keys
from support.quiet_grid import forbid_messages

from flwr_dpkmeans.__main__ import main as command
from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import FastLloydOptions, Schedule
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.server.server_facts import bounds_from_server
from flwr_dpkmeans.data.bundled import BUNDLED, load_bundled
from flwr_dpkmeans.data.loading.class_labels import as_classes
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS, MixtureClients
from flwr_dpkmeans.deploy.run_folders import read_progress
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.flower import server_app
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client.ray_nodes import is_simulation
from flwr_dpkmeans.flower.client.result_folders import output_folder
from flwr_dpkmeans.flower.client_app import app as clients
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.run_keys import run_keys
from flwr_dpkmeans.flower.run_progress import LOG_FILE, PROGRESS_FILE, Outcome
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.options import option_defaults
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.shown import rounded_text
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import ServerData
from simulations.sources.mixture import draw_gaussian_mixture

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main job is a simulation; the tests of a deployment say so."""
    simulate_server(monkeypatch)


def defaults() -> dict[str, Any]:
    """The run configuration that `flwr run` starts with."""
    with open(PROJECT / "pyproject.toml", "rb") as file:
        return flatten_dict(tomllib.load(file)["tool"]["flwr"]["app"]["config"])


def configured(**values: Any) -> RunConfig:
    return strategy_from_run_config(
        defaults() | {"num-clients": 10} | of_keys(**values)
    ).config


def sentence(**values: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        configured(**values)
    return str(caught.value)


# -- the run configuration -------------------------------------------------------------


def test_every_declared_key_is_known_and_every_known_key_is_declared() -> None:
    assert set(defaults()) == {key.name for key in run_keys()}


def test_the_block_of_pyproject_is_generated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (PROJECT / "pyproject.toml").read_text()
    assert command(["options", "--toml"]) == 0
    assert text[text.index("[tool.flwr.app.config]") :] == capsys.readouterr().out
    assert command(["options"]) == 0
    assert "fastlloyd.alpha = 0.8: radius over half" in capsys.readouterr().out


def test_one_word_leaves_an_option_to_the_run() -> None:
    automatic = {key: value for key, value in defaults().items() if value == "auto"}
    assert {
        "delta",
        "trust",
        "random-state",
        "cohort.max-silent",
        "fastlloyd.post-processing",
    } <= set(automatic)
    given = {
        "n-clusters": 10,
        "algorithm": "proxy_lloyd",
        "data": "digits",
        "epsilon": 2.0,
    }
    assert (
        strategy_from_run_config(given | automatic).config
        == strategy_from_run_config(given).config
    )
    for key in ("delta", "n-features", "random-state"):
        assert f"{key.replace('-', '_')} is " in sentence(**{key: -1})


def test_tables_are_joined_as_flower_joins_them() -> None:
    text = (
        "algorithm='fastlloyd' fastlloyd.alpha=0.6 fastlloyd.schedule='constant'"
        " cohort.max-silent=1"
    )
    config = strategy_from_run_config(
        fuse_dicts(defaults(), parse_config_args([text]))
    ).config
    assert config.task.options == FastLloydOptions(
        alpha=0.6, schedule=Schedule.CONSTANT
    )
    assert config.settings.max_silent == 1
    default = fuse_dicts(
        defaults(),
        parse_config_args(["glloyd.packing='bisect' fastlloyd.post-processing='auto'"]),
    )
    assert strategy_from_run_config(default).config.algorithm == "proxy_lloyd"
    with pytest.raises(ConfigurationError, match="no run-config key 'packing'"):
        strategy_from_run_config({"n-clusters": 3, "packing": "halve"})
    with pytest.raises(ConfigurationError, match=r"no run-config key 'fastloyd.alpha'"):
        strategy_from_run_config({"n-clusters": 3, "fastloyd.alpha": 0.6})


def test_defaults_are_the_main_job() -> None:
    config = configured()
    assert (
        config.algorithm,
        config.n_clusters,
        config.n_examples,
        config.n_features,
    ) == ("proxy_lloyd", 10, 1797, 64)
    assert (config.epsilon, config.delta, config.unit.value) == (2.0, None, "record")
    assert (config.trust, config.noise.value, config.n_clients) == (
        "oblivious",
        "secure",
        10,
    )
    assert config.bounds == ((0.0,) * 64, (16.0,) * 64)
    assert config.max_retries == 1


def test_zero_empty_and_minus_one_mean_automatic() -> None:
    config = configured(data="table.csv", bounds="0,1")
    assert (config.n_examples, config.n_features) == (None, None)
    assert (config.max_iter, config.delta, config.max_epsilon) == (None, None, None)
    assert (config.random_state, config.max_silent) == (None, None)
    config = configured(algorithm="fastlloyd", data="table.csv", bounds="0,1")
    assert (config.post_processing, config.max_iter) == (None, None)


def test_only_a_simulation_knows_how_many_clients_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert defaults()["num-clients"] == "auto"
    assert configured(num_clients="auto").n_clients is None
    simulate_server(monkeypatch, simulated=False)
    assert sentence(num_clients="auto").startswith(
        "num-clients is 'auto', but outside a simulation nobody knows how many"
    )


def test_nothing_is_assumed_of_the_files_of_deployed_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulate_server(monkeypatch, simulated=False)
    assert sentence(data="digits").startswith("no bounds were given")
    config = configured(data="digits", bounds="0,16")
    assert config.n_examples is None
    assert config.n_features is None


def test_values_are_taken_over() -> None:
    given: dict[str, Any] = {
        "n_clusters": 4, "n_features": 3, "n_examples": 500, "max_iter": 6,
        "algorithm": "fastlloyd", "alpha": 0.5, "radius_clipping": False,
        "random_state": 0, "epsilon": 1, "delta": 1e-7, "trust": "central",
        "max_epsilon": 3.0, "min_clients": 3, "max_silent": 0, "max_retries": 2,
    }  # fmt: skip
    words = {"schedule": "constant", "post_processing": "none", "packing": "halve"}
    words["noise"] = "seeded"
    config = configured(
        data="table.csv", bounds="-5,100", num_clients=7, **given, **words
    )
    assert {name: getattr(config, name) for name in given} == given
    assert {name: getattr(config, name).value for name in words} == words
    assert (config.bounds, config.n_clients) == (((-5.0,), (100.0,)), 7)
    counted = configured(data="table.csv", bounds="0,1", count_share=0.1)
    assert counted.count_share == 0.1


def test_timeouts_are_taken_over() -> None:
    given = {"num-clients": 3, "join-timeout": 5, "round-timeout": 6.5}
    timeouts = strategy_from_run_config(
        defaults() | given | {"run-timeout": 70}
    ).timeouts
    assert (timeouts.joining, timeouts.round, timeouts.run) == (5, 6.5, 70)


FEDDP = {
    "algorithm": "feddp_kmeans",
    "max-iter": 1,
    "noise-kind": "paper",
    "budget-shares": "0.3, 0.1,0.45,0.15",
    "lloyd-share": 0.25,
    "weight-threshold": 0,
    "n-init": 3,
    "margin": 0.9,
    "data-radius": 11.0,
    "outer-product-bound": 121,
    "weights-bound": 7.5,
    "means-bound": 21.0,
    "indicators-bound": 4.5,
    "sums-bound": 300.0,
    "counts-bound": 28.0,
    "examples-per-client": 64,
    "client-sampling-rate": 0.5,
    "unit": "client",
    "trust": "central",
}


def test_every_option_of_feddp_kmeans_is_taken_over() -> None:
    config = configured(**FEDDP)
    expected = {key.replace("-", "_"): value for key, value in FEDDP.items()}
    expected |= {"budget_shares": (0.3, 0.1, 0.45, 0.15), "unit": PrivacyUnit.CLIENT}
    expected["noise_kind"] = NoiseFamily.PAPER
    assert {name: getattr(config, name) for name in expected} == expected


def test_declared_defaults_of_feddp_kmeans_are_the_configurations_own() -> None:
    keys = FEDDP.keys() - {"algorithm", "unit", "trust"}
    config = configured(algorithm="feddp_kmeans")
    for name in (key.replace("-", "_") for key in keys):
        assert getattr(config, name) == option_defaults()[name], name


@pytest.mark.parametrize("algorithm", sorted(clusterings()))
def test_trust_is_the_algorithms_own_unless_one_is_given(algorithm: str) -> None:
    assert configured(algorithm=algorithm).trust == clusterings()[algorithm].trust
    assert configured(algorithm=algorithm, trust="central").trust == "central"
    assert (
        configured(algorithm="fastlloyd").trust
        != configured(algorithm="feddp_kmeans").trust
    )


def test_number_of_clusters_may_be_chosen_by_the_run() -> None:
    overrides = parse_config_args(
        [
            "algorithm='feddp_kmeans' n-clusters='auto' max-clusters=15"
            " feddp_kmeans.n-init=3"
        ]
    )
    # Flower puts an override in place of a default of another type.
    run_config_of_run = fuse_dicts(defaults(), overrides)
    assert isinstance(defaults()["n-clusters"], int)
    config = strategy_from_run_config(run_config_of_run).config
    assert (config.choose_n_clusters, config.n_clusters, config.n_init) == (True, 15, 3)
    assert (
        configured(n_clusters="auto").n_clusters
        == defaults()["max-clusters"]
        == DEFAULT_MAX_CLUSTERS
    )
    assert not configured(n_clusters=4).choose_n_clusters
    assert configured(n_clusters="4").n_clusters == 4


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_size_and_bounds_of_bundled_data_are_known(name: str) -> None:
    config = configured(data=name, n_clusters=2)
    assert (config.n_examples, config.n_features) == (
        BUNDLED[name].n_examples,
        BUNDLED[name].n_features,
    )
    assert config.bounds == (BUNDLED[name].bounds.lower, BUNDLED[name].bounds.upper)
    declared = configured(data=name, n_clusters=2, n_examples=140, bounds="0,9")
    assert declared.n_examples == 140
    assert declared.bounds == ((0.0,), (9.0,))


def test_bounds_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text(
        "feature,lower,upper\nage,0,120\nheight,40,250\n"
    )
    config = configured(data="table.csv", bounds=str(tmp_path / "bounds.csv"))
    assert config.bounds == ((0.0, 40.0), (120.0, 250.0))


def test_a_file_without_bounds_is_refused() -> None:
    text = sentence(data="table.csv")
    assert text.startswith("no bounds were given, and they may not be taken from priv")
    assert "bounds='0,100'" in text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"epsilonn": 1.0}, "there is no run-config key 'epsilonn': did you mean"),
        ({"alpha": 0.6}, "fastlloyd.alpha is 0.6, but the algorithm is"),
        ({"fastlloyd.max-iter": 4}, "there is no run-config key 'fastlloyd.max-iter'"),
        ({"algorithm": "fastloyd"}, "algorithm is 'fastloyd', which is not known"),
        ({"noise-kind": "papr"}, "noise_kind is 'papr', which is not known"),
        ({"partition": "iidd"}, "partition is 'iidd', which is not known"),
        ({"partition": "by_value"}, "partition is 'by_value', but partition-column"),
        ({"partition": "fixed_sizes"}, "the sizes of the parts are '', but they must"),
        ({"partition-alpha": 0.0}, "partition-alpha is 0.0, but it must be greater"),
        ({"data": "mixture", "partition": "contiguous"}, "partition is 'contiguous',"),
        ({"data": "mixture", "mixture-rows-per-client": -1}, "the number of rows of"),
        ({"data": "digit"}, "data is 'digit', but it must be a bundled data set,"),
        ({"server-data": "iriss"}, "server-data is 'iriss', but it must be a bundled"),
        ({"n-clusters": "automatic"}, "n_clusters is 'automatic', but it must be an"),
        ({"bounds": "wide"}, "the bounds are 'wide', but they must be two numbers or"),
        ({"delta": 0.001}, "delta is 0.001, but it must be below 1/N = 0.000556483 "),
        ({"radius-clipping": "false"}, "radius_clipping is 'false', but it must be a"),
        ({"join-timeout": "x"}, "the joining timeout in seconds is 'x', but it must"),
        ({"n-features": 3}, "there are bounds for 64 features, but the table has 3"),
    ],
    ids=str,
)
def test_bad_values_have_one_sentence(values: dict[str, Any], text: str) -> None:
    assert sentence(**values).startswith(text)


def test_number_of_clusters_is_needed() -> None:
    run_config = defaults() | {"num-clients": 3}
    del run_config["n-clusters"]
    with pytest.raises(ConfigurationError, match="give it, such as n-clusters=10"):
        strategy_from_run_config(run_config)


# -- the server's own points -----------------------------------------------------------


def points_of(**values: Any) -> np.ndarray | None:
    given = {key.replace("_", "-"): value for key, value in values.items()}
    return strategy_from_run_config(
        defaults() | {"num-clients": 10} | given
    )._server_points


@pytest.fixture
def server_file(tmp_path: Path) -> Path:
    """Three public rows of two features, with a label and one column more."""
    path = tmp_path / "server.csv"
    path.write_text("age,group,height,ward\n0,x,0,4\n2,7,0,5\n1,,0,6\n")
    return path


@pytest.mark.parametrize("simulated", [True, False])
def test_server_data_is_read_on_the_server_and_gives_the_bounds(
    server_file: Path, simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_server(monkeypatch, simulated=simulated)
    values = {
        "data": "table.csv",
        "algorithm": "feddp_kmeans",
        "server_data": str(server_file),
        "label_column": "group",
        "partition_column": "ward",
    }
    points = points_of(**values)
    assert points is not None
    assert points.tolist() == [[0.0, 0.0], [2.0, 0.0], [1.0, 0.0]]
    assert configured(**values).bounds == ((0.0, -1.0), (2.0, 1.0))
    assert configured(**values, bounds="-5,5").bounds == ((-5.0,), (5.0,))


def test_server_data_need_not_have_the_clients_label(server_file: Path) -> None:
    server_file.write_text("age,height\n0,0\n2,0\n")
    options = {"data": "table.csv", "algorithm": "feddp_kmeans", "n_clusters": 2}
    points = points_of(**options, server_data=str(server_file), label_column="group")
    assert points is not None
    assert points.shape == (2, 2)


def test_server_data_may_be_bundled_and_its_bounds_win_over_the_documented_ones() -> (
    None
):
    config = configured(
        data="iris", algorithm="feddp_kmeans", server_data="iris", n_clusters=3
    )
    widths = np.subtract(*reversed(config.bounds))
    assert np.ptp(widths) < 1e-9
    assert config.bounds != (BUNDLED["iris"].bounds.lower, BUNDLED["iris"].bounds.upper)
    assert (config.n_examples, config.n_features) == (150, 4)


def test_server_data_that_cannot_be_used_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        points_of(algorithm="feddp_kmeans", server_data=str(tmp_path / "nothing.csv"))
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="the server's data have 0 rows"):
        points_of(algorithm="feddp_kmeans", server_data=str(tmp_path / "empty.csv"))
    refused = sentence(
        server_data="iris", data="iris", n_clusters=3, algorithm="fastlloyd"
    )
    assert refused.startswith(
        "server_data was given, but 'fastlloyd' starts without it"
    )


def test_without_server_data_there_are_no_server_points() -> None:
    assert points_of() is None
    assert points_of(data="digits", algorithm="feddp_kmeans") is None


@pytest.mark.parametrize("algorithm", sorted(clusterings()))
def test_mixture_has_server_points_for_the_algorithms_that_need_them(
    algorithm: str,
) -> None:
    values = {"data": "mixture", "algorithm": algorithm, "partition_seed": 3}
    points, config = points_of(**values), configured(**values)
    assert (config.n_features, config.n_examples) == (100, None)
    needs = clusterings()[algorithm].server_data
    if needs is not ServerData.NONE:
        assert np.array_equal(
            points_of(**values, server_data="mixture"),
            MixtureClients(3).server_points(),
        )
    if needs is ServerData.NEEDED:
        assert points is not None
        assert np.array_equal(points, MixtureClients(3).server_points())
        assert config.bounds == bounds_from_server(points)
    else:
        assert points is None
        assert config.bounds == ((-2.7,), (3.7,))


def test_a_deployed_server_assumes_no_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_server(monkeypatch, simulated=False)
    assert sentence(data="mixture", algorithm="feddp_kmeans").startswith(
        "no bounds were given"
    )
    assert points_of(data="mixture", algorithm="feddp_kmeans", bounds="0,1") is None
    assert configured(data="mixture", bounds="0,1").n_features is None


def test_mixture_of_clients_is_the_papers_and_no_client_depends_on_another() -> None:
    mixture = MixtureClients(seed=4, rows_per_client=2000)
    paper = draw_gaussian_mixture(
        np.random.default_rng(4), n_clients=1, points_per_client=0
    )
    assert np.array_equal(mixture.means(), paper.means)
    assert np.array_equal(mixture.server_points(), paper.server_points)
    first, other = mixture.client_points(0), mixture.client_points(1)
    assert np.array_equal(
        first, MixtureClients(seed=4, rows_per_client=2000).client_points(0)
    )
    assert not np.isin(first[:, 0], other[:, 0]).any()
    assert (
        len({MixtureClients(4, 1).client_points(client)[0, 0] for client in range(300)})
        == 300
    )
    assert not np.array_equal(
        first, MixtureClients(seed=5, rows_per_client=2000).client_points(0)
    )
    squares = np.min(
        [np.square(first - mean).sum(axis=1) for mean in paper.means], axis=0
    )
    assert squares.mean() / 100 == pytest.approx(0.5, rel=0.02)
    nearest_mean = np.argmin(
        [np.square(first - mean).sum(axis=1) for mean in paper.means], axis=0
    )
    assert np.bincount(nearest_mean, minlength=10).min() > 100
    with pytest.raises(ConfigurationError, match="the number of the mixture's client"):
        mixture.client_points(-1)
    assert MixtureClients(0, 0).client_points(0).shape == (0, 100)
    for wrong in ({"seed": -1}, {"rows_per_client": -1}):
        with pytest.raises(ConfigurationError, match=r"of the mixture.* is -1"):
            MixtureClients(**wrong)
    lower, upper = MIXTURE_BOUNDS.lower[0], MIXTURE_BOUNDS.upper[0]
    assert ((first < lower) | (first > upper)).any(axis=1).sum() <= 10


# -- what a client loads ---------------------------------------------------------------


def context(
    node_config: dict[str, Any], run_config: dict[str, Any], node_id: int = 5
) -> Context:
    return Context(
        run_id=1,
        node_id=node_id,
        node_config=node_config,
        state=RecordDict(),
        run_config=run_config,
    )


def rows(client: Any) -> np.ndarray:
    return np.asarray(client.points)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file with six rows of two features and a label."""
    path = tmp_path / "people.csv"
    path.write_text(
        "age,group,height\n" + "".join(f"{i},{i % 2},{170 + i}\n" for i in range(6))
    )
    return path


def test_server_may_not_choose_a_file_in_a_deployment(table: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_client(context({}, {"data": str(table)}))
    assert str(caught.value).startswith(
        "this node has no 'data-path' in its node configuration, and the server may not"
    )
    assert "--node-config" in str(caught.value)


def test_a_node_loads_its_own_file_whatever_the_server_says(
    table: Path, tmp_path: Path
) -> None:
    own = {
        "data-path": str(table),
        "output": str(tmp_path / "mine"),
        "columns": "age,group,height",
    }
    client = load_client(
        context(
            own,
            {
                "data": "digits",
                "output": str(tmp_path / "other"),
                "label-column": "group",
            },
        )
    )
    assert rows(client).shape == (6, 3)
    labelled = load_client(
        context(
            own | {"columns": "age, height"},
            {"label-column": "age", "columns": "group"},
        )
    )
    assert rows(labelled).tolist() == [[i, 170 + i] for i in range(6)]
    assert labelled.feature_names == ("age", "height")
    assert labelled.output_dir == tmp_path / "mine" / "run-1" / "client-5"
    assert client.image_shape is None


def test_missing_file_and_unknown_label_have_a_sentence(table: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_client(context({"data-path": str(table) + "x.csv"}, {}))
    with pytest.raises(DataError, match="nothing says which columns of"):
        load_client(context({"data-path": str(table)}, {}))
    for own in ({"columns": "age", "label-column": "grup"}, {"columns": "age,grup"}):
        with pytest.raises(DataError, match="grup"):
            load_client(context({"data-path": str(table)} | own, {}))


def test_the_runs_columns_choose_those_of_a_simulated_file(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    cells = [f"{i},{i % 2},{170 + i},NA" for i in range(5)] + ["5,1,175,3"]
    table.write_text("\n".join(["age,group,height,gust", *cells]) + "\n")
    part = {"partition-id": 0, "num-partitions": 1}
    run = {"data": str(table), "columns": "height, age", "label-column": "group"}
    client = load_client(context(part, run))
    # In the order of the file, as without the option; the run puts them in its own.
    assert client.feature_names == ("age", "height")
    assert sorted(rows(client).tolist()) == [[i, 170 + i] for i in range(6)]
    assert client.labels is not None
    with pytest.raises(DataError, match=r"but the table .* did you mean 'height'"):
        load_client(context(part, run | {"columns": "age,heigth"}))
    with pytest.raises(DataError, match=r"'gust' .* has 5 rows with a value"):
        load_client(context(part, run | {"columns": ""}))


def test_bundled_data_are_split_into_disjoint_parts(tmp_path: Path) -> None:
    run = {"data": "iris", "partition": "iid", "partition-seed": 3}
    parts = [
        load_client(
            context(
                {"partition-id": i, "num-partitions": 4, "output": str(tmp_path)}, run
            )
        )
        for i in range(4)
    ]
    assert [len(rows(part)) for part in parts] == [38, 38, 37, 37]
    together = np.concatenate([rows(part) for part in parts])
    everything = load_bundled("iris").points
    assert sorted(map(tuple, together)) == sorted(map(tuple, everything))
    digits = load_client(
        context({"partition-id": 0, "num-partitions": 9}, {"data": "digits"})
    )
    assert digits.image_shape == (8, 8)


def test_a_simulations_header_is_guessed_unless_it_is_said(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    for header, names in (
        ("", ("age", "group", "height")),
        ("yes", ("age", "group", "height")),
    ):
        run = {"data": str(table), "partition": "contiguous", "header": header}
        assert (
            load_client(
                context({"partition-id": 0, "num-partitions": 2}, run)
            ).feature_names
            == names
        )
    table.write_text("1,2\n3,4\n5,6\n")
    parts = [
        load_client(
            context(
                {"partition-id": 0, "num-partitions": 1},
                {"data": str(table), "header": header},
            )
        )
        for header in ("no", "yes")
    ]
    assert [(part.feature_names, len(rows(part))) for part in parts] == [
        ((), 3),
        (("1", "2"), 2),
    ]


def test_names_of_columns_come_from_the_run_bounds_server_data_or_documentation(
    tmp_path: Path,
) -> None:
    bounds, points = tmp_path / "bounds.csv", tmp_path / "server.csv"
    bounds.write_text("feature,lower,upper\nb,0,2\na,0,1\n")
    points.write_text("a,b\n0.1,1.5\n0.4,0.5\n")
    files = {"bounds": str(bounds), "server-data": str(points), "data": "rows.csv"}
    assert configured(**files).feature_names == ("b", "a")
    named = configured(columns="a, b", **files)
    assert (named.feature_names, named.bounds) == (("a", "b"), ((0.0, 0.0), (1.0, 2.0)))
    assert configured(**files | {"bounds": "auto"}).feature_names == ("a", "b")
    assert configured(data="rows.csv", bounds="0,1").feature_names == ()
    assert configured(data="iris").feature_names == BUNDLED["iris"].feature_names
    assert configured(**{"allow-unnamed": True}).allow_unnamed
    assert "feature 'c' has no row in the bounds file" in sentence(
        columns="a,c", **files | {"server-data": ""}
    )
    bounds.write_text("feature,lower,upper\nb,0,2\n")
    assert "server_data has, besides the run's columns, a column 'a'" in sentence(
        **files
    )


COLUMNS = {"ward": ["b", "a", "b", "c", "a", "b"], "code": [3, 1, 2, 10, 1, 2]}


@pytest.fixture(params=["csv", "parquet", "npz"])
def split_table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Six rows of one feature, with a text column and a numeric one to split by."""
    frame = pd.DataFrame(
        {"ward": COLUMNS["ward"], "x0": np.arange(6.0), "code": COLUMNS["code"]}
    )
    path = tmp_path / f"split.{request.param}"
    if request.param == "csv":
        frame.to_csv(path)  # with the unnamed index that pandas writes
    elif request.param == "parquet":
        frame.to_parquet(path)
    else:
        np.savez(
            path,
            X=frame[["x0"]].to_numpy(),
            **{name: np.array(values) for name, values in COLUMNS.items()},
        )
    return path


def split_of(path: Path, n_parts: int, **run: Any) -> list[list[float]]:
    """The rows of each part, by their only feature."""
    values = {"data": str(path)} | {
        key.replace("_", "-"): value for key, value in run.items()
    }
    clients_of_parts = [
        load_client(context({"partition-id": i, "num-partitions": n_parts}, values))
        for i in range(n_parts)
    ]
    if not str(path).endswith(".npz"):
        assert {client.feature_names for client in clients_of_parts} == {("x0",)}
    return [rows(client)[:, 0].tolist() for client in clients_of_parts]


@pytest.mark.parametrize("label", ["code", "ward"])
def test_a_file_may_be_split_by_a_text_column(
    split_table: Path,
    label: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    join_ray(monkeypatch)
    if label == "ward" and split_table.suffix != ".npz":
        frame = (
            pd.read_csv(split_table)
            if split_table.suffix == ".csv"
            else pd.read_parquet(split_table)
        )
        frame[["ward", "x0"]].to_csv(split_table.with_suffix(".csv"), index=False)
        split_table = split_table.with_suffix(".csv")
    run = {"label_column": label, "partition_column": "ward"}
    assert split_of(split_table, 3, partition="one_client_per_value", **run) == [
        [1, 4],
        [0, 2, 5],
        [3],
    ]
    assert split_of(split_table, 2, partition="by_value", **run) == [
        [0, 1, 4],
        [2, 3, 5],
    ]
    assert "left out" not in caplog.text


def test_a_file_may_be_split_by_a_numeric_column(
    split_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    run = {"partition_column": "code"}
    # 10 comes after 3, as a number does.
    assert split_of(split_table, 4, partition="one_client_per_value", **run) == [
        [1, 4],
        [2, 5],
        [0],
        [3],
    ]
    assert split_of(split_table, 2, partition="by_value", **run) == [
        [1, 2, 4],
        [0, 3, 5],
    ]


def test_a_file_may_be_split_by_shares_of_labels_and_in_given_sizes(
    split_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    options = {
        "partition": "dirichlet",
        "partition_column": "ward",
        "label_column": "code",
        "partition_seed": 1,
    }
    skewed = split_of(split_table, 3, partition_alpha=1e-3, **options)
    wards = [{COLUMNS["ward"][int(row)] for row in part} for part in skewed]
    assert sorted(row for part in skewed for row in part) == list(range(6))
    assert all(sum(ward in part for part in wards) == 1 for ward in "abc")
    large = [
        split_of(split_table, 3, partition_alpha=alpha, **options)
        for alpha in (1e-3, 1e6)
    ]
    assert large[0] != large[1]
    sized = {
        "partition": "fixed_sizes",
        "label_column": "code",
        "partition_column": "ward",
    }
    assert [
        len(part)
        for part in split_of(split_table, 3, partition_sizes="3, 0,1", **sized)
    ] == [3, 0, 1]


def test_bundled_data_may_be_split_by_their_labels() -> None:
    run = {
        "data": "iris",
        "partition": "one_client_per_value",
        "partition-column": "target",
    }
    parts = [
        rows(load_client(context({"partition-id": i, "num-partitions": 3}, run)))
        for i in range(3)
    ]
    everything = load_bundled("iris").points
    assert [part.tolist() for part in parts] == [
        everything[50 * i : 50 * (i + 1)].tolist() for i in range(3)
    ]
    with pytest.raises(ConfigurationError, match="can be split by 'target' only"):
        load_client(
            context(
                {"partition-id": 0, "num-partitions": 3},
                run | {"partition-column": "species"},
            )
        )


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (
            "war",
            (
                "partition_column is 'war', but the table .* has no such column: did"
                " you mean 'ward'?"
            ),
        ),
        ("mixed", "the partition column 'mixed' of .* has 1 rows with a value that"),
        ("hole", "the partition column 'hole' of .* has 2 rows with a value that is"),
    ],
)
def test_partition_columns_that_cannot_be_used(
    tmp_path: Path, column: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    table = tmp_path / "holes.csv"
    table.write_text("x,ward,mixed,hole\n1,secret,7,1\n2,b,secret,\n3,c,,\n")
    with pytest.raises(DataError, match=text) as caught:
        split_of(table, 2, partition="by_value", partition_column=column)
    assert "secret" not in str(caught.value)


def test_partition_column_that_is_no_array_of_one_value_per_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    np.savez(
        tmp_path / "a.npz",
        X=np.zeros((3, 1)),
        y=np.zeros(2),
        z=np.array([[], None, 1], dtype=object),
    )
    for name in "yz":
        with pytest.raises(
            DataError,
            match=(
                f"the partition column '{name}' is an array of .* that is not 3 numbers"
            ),
        ):
            split_of(tmp_path / "a.npz", 2, partition="by_value", partition_column=name)


def test_a_node_of_the_mixture_draws_its_own_rows_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = {"data": "mixture", "partition-seed": 6, "mixture-rows-per-client": 8}
    with pytest.raises(ConfigurationError, match="no 'data-path'"):
        load_client(context({"partition-id": 0, "num-partitions": 9000}, run))
    join_ray(monkeypatch)
    drawn = [
        rows(load_client(context({"partition-id": i, "num-partitions": 9000}, run)))
        for i in (0, 8999)
    ]
    assert np.array_equal(drawn[1], MixtureClients(6, 8).client_points(8999))
    assert not np.array_equal(drawn[0], drawn[1])


def test_output_of_the_run_counts_in_a_simulation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = context({}, {"output": str(tmp_path / "server")}, node_id=8)
    assert output_folder(asked) == Path.home() / "flwr-dpkmeans" / "run-1" / "client-8"
    assert not is_simulation(asked)
    join_ray(monkeypatch)
    # A deployed node may use Ray for itself.
    assert output_folder(asked) == Path.home() / "flwr-dpkmeans" / "run-1" / "client-8"
    asked.node_config["partition-id"] = 0
    assert output_folder(asked) == tmp_path / "server" / "run-1" / "client-8"
    asked.node_config["output"] = str(tmp_path / "own")
    assert output_folder(asked) == tmp_path / "own" / "run-1" / "client-8"


# -- a whole run in process ------------------------------------------------------------


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


def run_app(
    tmp_path: Path,
    run_id: int = 31,
    grid_of: type[InProcessGrid] = InProcessGrid,
    **values: Any,
) -> Path:
    """Run the app of three nodes; the folder of the run."""
    run_config = defaults() | {"num-clients": 3, "output": str(tmp_path)} | values
    policy = tmp_path.with_name(f"{tmp_path.name}-policy.toml")
    policy.write_text("allow-anything = true\n")
    nodes = [
        Node(
            clients,
            {
                "partition-id": i,
                "num-partitions": 3,
                "output": str(tmp_path),
                "ledger": str(tmp_path / f"ledger-{i}"),
                "policy": str(policy),
            },
        )
        for i in range(3)
    ]
    grid = grid_of(nodes, run_id=run_id, run_config=run_config)
    with grid.running():
        server_app.app(grid, Context(run_id, 1, {}, RecordDict(), run_config))
    return tmp_path / f"run-{run_id}"


def test_whole_run_says_where_everything_is(tmp_path: Path, log: list[str]) -> None:
    tmp_path = run_app(tmp_path, data="iris", **{"n-clusters": 3})
    for i in range(2, 5):
        for name in (
            "centroids.npz",
            "privacy_report.json",
            "metrics.json",
            "summary.png",
            "report.html",
        ):
            path = tmp_path / f"client-{i}" / name
            assert path.stat().st_size > 0
        assert log[i - 7] == f"page of client {i}, with all files beside it: {path}"
    first = tmp_path / "client-2" / "report.html"
    assert log[-2].startswith("The server does not see what came out")
    assert log[-1] == f"Look at the first client's page: {first}"
    names = [
        "deployment.json",
        "metrics.json",
        "privacy_report.json",
        "report.html",
        "report.md",
    ]
    assert sorted(path.name for path in (tmp_path / "server").iterdir()) == names
    assert all(f"  {tmp_path / 'server' / name}" in log for name in names)
    archive = np.load(tmp_path / "client-2" / "centroids.npz")
    values, errors = archive["centroids"].flat, archive["cluster_centers_error"].flat
    shown = {
        rounded_text(value, error) for value, error in zip(values, errors, strict=True)
    }
    own, server = (
        (tmp_path / who / "report.md").read_text() for who in ("client-2", "server")
    )
    cells = [set(re.findall(r"[\d.]+", text)) for text in (own, server)]
    assert shown <= cells[0]
    assert len(shown & cells[1]) < 3
    # With all retries.
    assert "By this party's ledger this run cost epsilon 2.404 at most" in own
    assert "What is left is not known here" in server
    assert "does not see the clusters" in server
    assert "This party's own rows by cluster" in own
    assert "own rows by cluster" not in server
    report = PrivacyReport.from_dict(
        json.loads((tmp_path / "server" / "privacy_report.json").read_text())
    )
    assert 1.99 <= report.epsilon <= 2.0
    steps = [line for line in log if line.startswith("round ")]
    assert len(steps) >= 2
    assert all("epsilon so far" in line and "noise " in line for line in steps)
    assert not any("movement" in line for line in steps)
    said = [line for line in log if line.startswith("PRIVATE: ")]
    assert len(said) == 1
    assert said[0].endswith(
        "per record; proxy_lloyd, 3 clients, trust 'oblivious', secure noise"
    )
    assert not any(
        "| size" in line or "residual_sums" in line
        for line in log[log.index(said[0]) :]
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.nightly
def test_no_run_touches_the_result_of_another_one(tmp_path: Path) -> None:
    """Two runs with one output folder, and a third that has the first one's id."""
    first = run_app(tmp_path, run_id=31, data="iris", **{"n-clusters": 3})
    before = {
        name: content
        for name, content in contents(first).items()
        if name not in (PROGRESS_FILE, LOG_FILE)
    }
    second = run_app(tmp_path, run_id=32, data="iris", **{"n-clusters": 2})
    assert {
        name: content for name, content in contents(first).items() if name in before
    } == before
    for ledger in tmp_path.glob("ledger-*"):
        ledger.unlink()
    run_app(tmp_path, run_id=31, data="iris", **{"n-clusters": 2})
    assert {
        name: content for name, content in contents(first).items() if name in before
    } == before
    for folder, k in (
        (first / "client-2", 3),
        (second / "client-2", 2),
        (first / "client-2-2", 2),
    ):
        assert len(np.load(folder / "centroids.npz")["centroids"]) == k


def test_report_metrics_centroids_ledger_and_log_can_be_matched(
    tmp_path: Path, log: list[str]
) -> None:
    root = run_app(tmp_path, data="iris", trust="central", **{"n-clusters": 3})
    parties = ("server", "client-2")
    server, own = (
        json.loads((root / who / "metrics.json").read_text())["provenance"]
        for who in parties
    )
    for who, told in zip(parties, (server, own), strict=True):
        assert (
            json.loads((root / who / "privacy_report.json").read_text())["provenance"]
            == told
        )
        assert (
            json.loads(str(np.load(root / who / "centroids.npz")["provenance"])) == told
        )
        assert (
            Model.load(root / who / "model.json").privacy.to_dict()["provenance"]
            == told
        )
        assert any(str(Provenance.from_dict(told)) in line for line in log)
    differing = {name for name in own if own[name] != server[name]}
    assert differing - {"started", "finished"} == {"party", "data_id"}
    assert (own["run_id"], own["party"], server["party"]) == (
        "31",
        "client 2",
        "server",
    )
    entries = FileLedger(tmp_path / "ledger-0").entries()
    assert {(entry.run_id, entry.data_id, entry.plan_digest) for entry in entries} == {
        ("31/2", own["data_id"], own["plan_digest"])
    }
    assert [line.split(" key ")[0] for line in own["cohort"]] == ["2", "3", "4"]
    assert own["started"] <= own["finished"]
    assert own["started"].endswith("+00:00")
    assert any(version.startswith("flwr-dpkmeans ") for version in own["versions"])


def test_server_and_clients_write_one_model_with_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    frame = pd.DataFrame({"ward": ["01", "1"] * 150, "age": range(300), "note": "x"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    ward, age = (
        '{ kind = "category", values = ["01", "1"] }',
        '{ kind = "number", bounds = [0, 300] }',
    )
    (tmp_path / "schema.toml").write_text(f"[columns]\nward = {ward}\nage = {age}\n")
    given = {
        "data": str(tmp_path / "rows.csv"),
        "bounds": str(tmp_path / "schema.toml"),
        "n-clusters": 2,
    }
    root = run_app(tmp_path, trust="central", **given)
    models = [
        Model.load(root / who / "model.json")
        for who in ("server", "client-2", "client-4")
    ]
    assert {tuple(model.predict(frame)) for model in models} == {
        tuple(models[0].predict(frame[["age", "ward"]]))
    }
    assert not (root / "server" / "profile.csv").exists()
    rows = sum(
        int(pd.read_csv(root / f"client-{i}" / "profile.csv")["rows"][0])
        for i in range(2, 5)
    )
    assert rows == 300


@pytest.mark.nightly
@pytest.mark.drawn
def test_whole_run_under_central_trust_gives_the_server_a_picture(
    tmp_path: Path, log: list[str]
) -> None:
    tmp_path = run_app(tmp_path, data="iris", trust="central", **{"n-clusters": 3})
    for who in ("server", "client-2"):
        assert (tmp_path / who / "summary.png").read_bytes().startswith(b"\x89PNG\r\n")
    steps = [line for line in log if line.startswith("round ")]
    assert len(steps) >= 4
    assert all(
        ("largest movement" in line) is ("(refinement-" in line) for line in steps
    )
    with (
        np.load(tmp_path / "server" / "centroids.npz") as own,
        np.load(tmp_path / "client-3/centroids.npz") as other,
    ):
        assert np.array_equal(own["centroids"], other["centroids"])
        # What it takes to label one's own rows as they were clustered.
        for found in (own, other):
            assert Bounds(*found["bounds"]).unscale(found["scaled"]) == pytest.approx(
                found["centroids"]
            )


@pytest.mark.nightly
def test_whole_run_that_chooses_k_draws_its_curve(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    chosen = {
        "n-clusters": "auto",
        "max-clusters": 12,
        "feddp_kmeans.n-init": 2,
        "mixture-rows-per-client": 2000,
    }
    tmp_path = run_app(
        tmp_path, data="mixture", algorithm="feddp_kmeans", epsilon=4.0, **chosen
    )
    shapes, curves = set(), []
    for folder in [
        tmp_path / "server",
        *(tmp_path / f"client-{i}" for i in range(2, 5)),
    ]:
        assert (folder / "cost_curve.png").read_bytes().startswith(b"\x89PNG\r\n")
        metrics = json.loads((folder / "metrics.json").read_text())
        curves.append(metrics["costs"])
        with np.load(folder / "centroids.npz") as archive:
            shapes.add((metrics["n_clusters"], archive["centroids"].shape))
        assert metrics["noisy_counts"]
    ((k, shape),) = shapes
    assert shape == (k, 100)
    assert 1 <= k <= 12
    assert all(curve == curves[0] for curve in curves)
    # In the data's own squared units: of 100 coordinates, 10 are left after the
    # projection.
    assert len(curves[0]) == 12
    assert 5.0 < curves[0][0] < 25.0
    table = next(
        place for place, line in enumerate(log) if line.startswith("| size in records")
    )
    line = next(place for place, line in enumerate(log) if line.startswith("PRIVATE: "))
    assert "; feddp_kmeans, 3 clients, trust 'distributed'" in log[line]
    # Numbers, then privacy, then warnings, and paths last.
    assert (
        table
        < line
        < log.index(f"  {tmp_path / 'server' / 'cost_curve.png'}")
        < len(log)
    )
    assert any(
        line.startswith("feddp_kmeans: k = 'auto', at most 12, N = ") for line in log
    )
    assert f"k = {k} was chosen, of at most 12" in log


def test_whole_run_with_given_k_has_no_curve(tmp_path: Path, log: list[str]) -> None:
    start = {"n-clusters": 3, "feddp_kmeans.n-init": 2, "server-data": "iris"}
    root = run_app(tmp_path, data="iris", algorithm="feddp_kmeans", **start)
    assert (root / "server" / "centroids.npz").is_file()
    assert not list(root.rglob("cost_curve.png"))


def test_a_bad_configuration_ends_the_run_before_anything_is_sent(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_messages()
    # As an error, which Flower's simulation tells from success, unlike an exit.
    with pytest.raises(server_app.EndedError, match="ConfigurationError: epsilon"):
        run_app(tmp_path, epsilon=-1.0)
    assert log == [
        "ConfigurationError: epsilon is -1.0, but it must be a finite number greater"
        " than 0: give 1.0."
    ]
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
        PROGRESS_FILE,
        LOG_FILE,
    }
    known = read_progress(tmp_path / "run-31")
    assert (known.outcome, known.trips) == (Outcome.STOPPED, ())
    assert known.sentence == log[0]


def test_another_exception_ends_a_run_by_its_kind_and_place(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text may hold what was released."""

    class Failing(InProcessGrid):
        def get_node_ids(self) -> list[int]:
            raise KeyError("adv [14.82]")

    place = r"^KeyError at test_server_app.py:\d+ in get_node_ids$"
    with pytest.raises(server_app.EndedError, match=place):
        run_app(tmp_path, grid_of=Failing)
    assert any(one.startswith("the run has ended: KeyError at ") for one in log)
    assert not any("14.82" in one for one in log)


# -- labels for an evaluation ----------------------------------------------------------


def labels_of(client: Any) -> list[int] | None:
    return (
        None
        if client.labels is None
        else as_classes(client.labels(), len(client.points)).tolist()
    )


def test_labels_of_bundled_data_go_with_their_rows() -> None:
    run = {"data": "iris", "partition": "by_value", "partition-column": "target"}
    for index in range(3):
        # What the run says of an evaluation decides nothing here: the approved plan
        # does.
        for options in (
            {},
            {"evaluation": "none"},
            {"evaluation": "private", "n-classes": 2},
        ):
            client = load_client(
                context({"partition-id": index, "num-partitions": 3}, run | options)
            )
            assert labels_of(client) == [index] * 50
            assert client.profile_table is None


def test_labels_of_a_deployed_nodes_file_are_in_the_column_that_it_names(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,kind,name\n1,2,0,x\n3,4,2,y\n5,6,,z\n")
    own = {"data-path": str(path), "columns": "a,b,kind"}
    run = {"label-column": "a", "evaluation": "private", "n-classes": 3}
    client = load_client(context(own | {"label-column": "kind"}, run))
    assert labels_of(client) == [0, 2, -1]
    assert rows(client).tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    path.write_text(path.read_text().replace("6,,z", "6,1,z"))
    unnamed = load_client(context(own, run))
    assert labels_of(unnamed) is None
    assert unnamed.feature_names == ("a", "b", "kind")
    assert labels_of(load_client(context(own | {"label-column": "name"}, run))) == [
        -1,
        -1,
        -1,
    ]
    with pytest.raises(DataError, match="label_column is 'kin', but the table"):
        load_client(context(own | {"label-column": "kin"}, run))


def test_an_exact_evaluation_is_refused_outside_a_simulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert configured(evaluation="exact").evaluation.value == "exact"
    simulate_server(monkeypatch, simulated=False)
    with pytest.raises(ConfigurationError, match="choose evaluation='private'"):
        configured(evaluation="exact", **{"num-clients": 3, "bounds": "0,1"})
    assert (
        configured(
            **{"evaluation": "private", "num-clients": 3, "bounds": "0,1"}
        ).evaluation.value
        == "private"
    )


def test_evaluation_options_are_taken_over() -> None:
    keys = {"evaluation-share": 0.1, "n-classes": 10, "evaluation-radius": 0.5}
    config = configured(evaluation="private", **keys)
    assert (config.evaluation_share, config.n_classes) == (0.1, 10)
    assert config.evaluation_radius == 0.5
    assert configured().evaluation_radius is None


def test_a_refused_run_ends_with_its_sentence_and_no_lines_of_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = InProcessGrid([])
    context = Context(
        1,
        1,
        {},
        RecordDict(),
        {**defaults(), "algorithm": "fastloyd", "num-clients": 3},
    )
    with caplog.at_level(logging.ERROR), grid.running():
        try:
            server_app.main(grid, context)
        except (
            AppExitException
        ) as error:  # as Flower's processes do, which then show what the exception says
            logging.getLogger("flwr").error("raised", exc_info=error)
            said, code = str(error), error.exit_code
    assert said.startswith("ConfigurationError: ")
    assert "did you mean 'fastlloyd'?" in said
    assert said in logging.Formatter().format(caplog.records[-1])
    assert "Traceback" not in logging.Formatter().format(caplog.records[-1])
    # Another one's text would be "An unhandled exception occurred".
    assert code not in (-1, ExitCode.SERVERAPP_EXCEPTION)
