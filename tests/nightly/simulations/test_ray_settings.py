"""What Flower and Ray are told, and what is read off a failed run's output.

No process is started.
"""

from __future__ import annotations

import math
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flwr_dpkmeans.errors import ConfigurationError, RefusalError
from simulations.flower.ray_engine import failure_of, run_on_ray
from simulations.flower.ray_settings import (
    RayBackend,
    app_file,
    connection_file,
    environment,
    federation_config,
)
from simulations.flower.ray_superlink import EngineError

LOG = Path("flwr.log")
CONFIG: dict[str, Any] = {"data": "iris", "algorithm": "glloyd", "n-clusters": 3}


@pytest.mark.parametrize(
    "value",
    [
        "",
        'it\'s "quoted" \\ here',
        "tab\tline\nend\x7f\x01",
        "café 😀",
        0,
        -1,
        2**40,
        0.1,
        1e-7,
        1e300,
        True,
        False,
    ],
)
def test_every_scalar_survives_the_apps_file(value: Any) -> None:
    read = tomllib.loads(app_file({"some-key": value}))["tool"]["flwr"]["app"][
        "config"
    ]["some-key"]
    assert read == value
    assert type(read) is type(value)


def test_infinity_survives_too() -> None:
    assert (
        tomllib.loads(app_file({"epsilon": math.inf}))["tool"]["flwr"]["app"]["config"][
            "epsilon"
        ]
        == math.inf
    )


def test_the_app_names_components_that_exist() -> None:
    components = tomllib.loads(app_file({}))["tool"]["flwr"]["app"]["components"]
    with open(Path(__file__).parents[3] / "pyproject.toml", "rb") as file:
        assert components == tomllib.load(file)["tool"]["flwr"]["app"]["components"]


def test_a_running_cluster_keeps_its_own_resources() -> None:
    assert "init-args" not in federation_config(2, RayBackend(address="10.0.0.1:6379"))
    with pytest.raises(ConfigurationError, match="leave init_args out"):
        RayBackend(address="10.0.0.1:6379", init_args_num_cpus=2)
    with pytest.raises(ConfigurationError, match="host:port"):
        RayBackend(address="ray://10.0.0.1:10001")


def test_everything_stays_in_the_home_and_below_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    monkeypatch.setenv("FLWR_HOME", "/the/users/own")
    own = environment(tmp_path, RayBackend(object_store_bytes=10**8))
    assert own["FLWR_HOME"] == own["RAY_TMPDIR"] == str(tmp_path)
    assert own["RAY_ADDRESS"] == "local"
    assert own["RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"] == "100000000"
    assert own["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert own["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert environment(tmp_path, RayBackend(address="a:1"))["RAY_ADDRESS"] == "a:1"
    assert (
        tomllib.loads(connection_file(4711))["superlink"]["local"]["address"]
        == "127.0.0.1:4711"
    )


def test_the_apps_own_error_comes_back_with_its_class() -> None:
    output = (
        "\x1b[92mINFO \x1b[0m: Starting\nplan: 3 rounds\nWARNING:"
        " x\nConfigurationError: algorithm is 'fastloyd', which is not known: did you"
        " mean 'fastlloyd'?\nINFO: end\n"
    )
    error = failure_of(output, LOG)
    assert type(error) is ConfigurationError
    assert (
        str(error)
        == "algorithm is 'fastloyd', which is not known: did you mean 'fastlloyd'?"
    )


def test_a_clients_reason_is_added() -> None:
    output = (
        "\x1b[36m(ClientAppActor pid=77)\x1b[0m cannot answer: x.csv has no rows: add"
        " some.\nRefusalError: node 5 refused (DataError): this client could not"
        " answer.\n"
    )
    error = failure_of(output, LOG)
    assert type(error) is RefusalError
    assert str(error).endswith(
        "this client could not answer. The first client's reason: x.csv has no rows:"
        " add some."
    )


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            (
                "Traceback\n  File\nValueError: a: b\nRuntimeError: An error was"
                " encountered.\n"
            ),
            "RuntimeError: An error was",
        ),
        ("ray.exceptions.RayActorError: the actor died\n", "RayActorError: the actor"),
        ("Error: no SuperLink\n", "Error: no SuperLink"),
        ("", "it left no error"),
    ],
)
def test_other_failures_name_the_last_error_and_the_log(
    output: str, expected: str
) -> None:
    error = failure_of(output, LOG)
    assert type(error) is EngineError
    assert expected in str(error)
    assert "flwr.log" in str(error)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilom": 1.0}, "did you mean 'epsilon'"),
        ({"output": "somewhere"}, "leave it out"),
        ({"data": None}, "data is None of type NoneType"),
    ],
)
def test_a_wrong_configuration_starts_nothing(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        run_on_ray(CONFIG | change, n_nodes=2, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_data_source_is_never_left_to_a_default(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no data"):
        run_on_ray(
            {"algorithm": "glloyd", "n-clusters": 3}, n_nodes=2, folder=tmp_path / "run"
        )
