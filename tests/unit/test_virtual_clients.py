"""What a virtual client does otherwise than a deployed one.

Its number in seeded streams, and its files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from support.engines import join_ray, simulate_server
from support.machine import type_command

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client.node_config import node_settings, stream_number
from flwr_dpkmeans.flower.client.ray_nodes import is_simulation
from flwr_dpkmeans.flower.client.result_folders import result_folder
from flwr_dpkmeans.flower.mod import warn_without_app_guard
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID


def context(node_config: dict[str, Any], **run: Any) -> Context:
    return Context(
        run_id=3, node_id=987, node_config=node_config, state=RecordDict(),
        run_config={"output": "/out"} | run,
    )  # fmt: skip


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    join_ray(monkeypatch)


@pytest.mark.usefixtures("simulated")
def test_virtual_clients_count_by_partition_as_the_other_engines_nodes_do() -> None:
    assert (
        stream_number(context({"partition-id": 0, "num-partitions": 9}))
        == FIRST_NODE_ID
    )
    assert (
        stream_number(context({"partition-id": 4, "num-partitions": 9}))
        == FIRST_NODE_ID + 4
    )
    assert stream_number(context({})) == 987


def test_a_deployed_nodes_number_is_its_id_whatever_it_is_configured_with() -> None:
    assert stream_number(context({"partition-id": 4})) == 987


@pytest.mark.usefixtures("simulated")
def test_only_the_first_partition_writes_if_asked() -> None:
    first, other = {"partition-id": 0}, {"partition-id": 1}
    assert result_folder(context(other)) == Path("/out/run-3/client-987")
    assert result_folder(context(first, **{"output-files": "first"})) == Path(
        "/out/run-3/client-987"
    )
    assert result_folder(context(other, **{"output-files": "first"})) is None


def test_a_server_cannot_keep_a_deployed_node_from_writing_its_result() -> None:
    folder = result_folder(
        context({"partition-id": 1, "output": "/own"}, **{"output-files": "first"})
    )
    assert folder == Path("/own/run-3/client-987")


def test_a_deployed_node_that_uses_ray_itself_is_no_virtual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    join_ray(monkeypatch)
    deployed, virtual = (
        context({"output": str(tmp_path), **own}, **{"output-files": "first"})
        for own in ({}, {"partition-id": 0, "num-partitions": 2})
    )
    assert (is_simulation(deployed), is_simulation(virtual)) == (False, True)
    settings = node_settings(context({"ledger": str(tmp_path / "ledger")}))
    assert not settings.simulated
    assert settings.policy.require_secure_noise
    assert settings.policy == DEPLOYED
    assert node_settings(virtual).simulated
    assert node_settings(virtual).policy == ClientPolicy()


def test_a_deployed_node_with_a_partition_that_joins_a_cluster_is_no_virtual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flower's own guides start nodes with one; its rows may be on a Ray cluster."""
    join_ray(monkeypatch, as_actor=False)
    deployed = context({"partition-id": 0, "num-partitions": 2})
    assert not is_simulation(deployed)
    assert result_folder(deployed) != Path("/out/run-3/client-987")


@pytest.mark.parametrize(
    ("program", "is_unguarded"),
    [
        ("/usr/bin/flwr-clientapp", True),
        ("flwr-clientapp", True),
        ("/flwr-clientapp/guard", False),
        ("flwr", False),
    ],
)
def test_a_node_that_flowers_own_program_runs_is_warned_that_it_has_no_guard(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str,
    is_unguarded: bool,
) -> None:
    type_command(monkeypatch, [program, "--insecure"])
    warn_without_app_guard()
    assert [record.__dict__["event"] for record in caplog.records] == [
        "unguarded"
    ] * is_unguarded


def test_another_choice_of_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_server(monkeypatch)
    config = {
        "data": "iris", "algorithm": "glloyd", "n-clusters": 3, "output-files": "frist",
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="output-files is 'frist'"):
        strategy_from_run_config(config)
