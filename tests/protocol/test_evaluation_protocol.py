"""Evaluations in the whole protocol: hostile states, missing labels, deployments, dropouts, an oblivious server."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from protocol_federation import (
    Federation,
    Truth,
    all_bytes,
    count_readable,
    grid_parts,
    make_federation,
    received_vectors,
    small_config,
    truth,
)

from flwr_dpkmeans.algorithms import parse_run
from flwr_dpkmeans.errors import CohortError, RefusalError
from flwr_dpkmeans.flower.client import KMeansClient
from flwr_dpkmeans.flower.records import RECORD, Stage, stage_of
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.plan import price
from flwr_dpkmeans.privacy.policy import ClientPolicy
from flwr_dpkmeans.rounds.state import ClusterState, pack_state, unpack_state

__all__ = ["truth"]

SIZES = [80, 70, 90, 60]


def federation(**values: Any) -> Federation:
    return make_federation(grid_parts(SIZES), **values)


def labelled(n_classes: int = 3, without: int | None = None) -> Federation:
    """Every client has labels, except one."""
    running = federation()
    for node, client in running.clients.items():
        if node != without:
            client._labels = np.arange(len(client._points)) % n_classes
    return running


def with_server_points(running: Federation, **values: Any) -> Any:
    """A run in which the server alone goes from release to release."""
    config = parse_run(
        **{
            "n_clusters": 3,
            "bounds": ((-1.0,), (1.0,)),
            "algorithm": "feddp_kmeans",
            "epsilon": 8.0,
            "delta": 1e-4,
            "n_examples": sum(SIZES),
            "random_state": 3,
            "n_init": 2,
            "evaluation": "private",
            **values,
        }
    )
    points = grid_parts([40], seed=9)[0]
    running.strategy = PrivateKMeans.from_config(config, server_points=points, on_step=lambda _: None)
    with running.grid.running():
        return running.strategy.start(running.grid)


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_everybody_who_may_know_has_the_same_evaluation(trust: str) -> None:
    running = labelled()
    result = running.start(trust=trust, evaluation="private", n_classes=3, epsilon=4.0)
    found = [client.evaluation_ for client in running.clients.values()]
    assert found[0] is not None
    assert found[0].accuracy is not None
    assert all(other == found[0] for other in found)
    assert result.evaluation == (None if trust == "oblivious" else found[0])
    assert result.privacy is not None
    assert result.privacy.epsilon <= 4.0 * (1.0 + 1e-9)
    assert [line.array for line in result.privacy.releases if line.round_name == "evaluation"] == [
        "clipped_cost",
        "rows_beyond",
        "cell_counts",
    ]
    assert result.steps[-1].movement is None


def test_a_server_with_points_of_its_own_sends_the_evaluation_with_the_result() -> None:
    running = federation()
    result = with_server_points(running)
    assert result.evaluation is not None
    assert all(client.evaluation_ == result.evaluation for client in running.clients.values())
    clients = list(running.clients.values())
    assert all(np.array_equal(client.cluster_centers_, clients[0].cluster_centers_) for client in clients)


def test_an_oblivious_server_reads_no_metric(truth: Truth) -> None:
    running = federation()
    running.start(evaluation="private", trust="oblivious")
    index = running.plan.last_round
    client = running.clients[2]
    assert client.evaluation_ is not None
    vectors = received_vectors(running.grid.received)[index, 0]
    assert sum(count_readable(vector) for vector in vectors.values()) == 0
    assert truth.released[index].tobytes() not in b"".join(map(all_bytes, running.grid.received))


def off_grid(state: ClusterState) -> ClusterState:
    return replace(state, centroids=state.centroids + 2.0**-18)


def outside(state: ClusterState) -> ClusterState:
    return replace(state, centroids=state.centroids + 3.0)


def too_many(state: ClusterState) -> ClusterState:
    return replace(state, centroids=np.zeros((4, 2)), counts=np.zeros(4))


def with_more(state: ClusterState) -> ClusterState:
    return replace(state, extras={"seed": np.zeros(1)})


@pytest.mark.parametrize("change", [off_grid, outside, too_many, with_more])
def test_hostile_centroids_get_no_evaluation(change: Callable[[ClusterState], ClusterState]) -> None:
    running = federation()

    def tamper(message: Message) -> bool:
        if stage_of(message.content) is Stage.SUM:
            record = message.content.config_records[RECORD]
            if '"round": 4' in str(record["header"]):
                record["state"] = pack_state(change(unpack_state(record["state"])))
        return True

    running.faults.on_request = tamper
    with pytest.raises(CohortError):
        with_server_points(running)
    assert running.plan.rounds[3].name == "evaluation"
    assert all(running.attempts_in_ledger(node) == [(1, 0), (2, 0), (3, 0)] for node in running.clients)


@pytest.mark.parametrize("name", ["clipped_cost", "cell_counts"])
def test_a_result_without_its_evaluation_is_not_taken(name: str) -> None:
    running = federation()

    def tamper(message: Message) -> bool:
        if stage_of(message.content) is Stage.FINISH:
            record = message.content.config_records[RECORD]
            state = unpack_state(record["state"])
            extras = {key: value for key, value in state.extras.items() if key != name}
            record["state"] = pack_state(replace(state, extras=extras))
        return True

    running.faults.on_request = tamper
    result = with_server_points(running)
    assert result.confirmed == ()
    assert all(client.cluster_centers_ is None for client in running.clients.values())


def test_a_dropout_in_the_evaluation_is_survived_and_charged() -> None:
    running = federation()
    last = 3

    def lose(message: Message) -> bool:
        header = str(message.content.config_records[RECORD]["header"])
        first = f'"round": {last}, "attempt": 0' in header
        return not (message.metadata.dst_node_id == 3 and stage_of(message.content) is Stage.SUM and first)

    running.faults.on_request = lose
    result = running.start(algorithm="glloyd", max_iter=2, evaluation="private", epsilon=60.0, trust="central")
    assert running.plan.last_round == last
    assert running.attempts_in_ledger(2) == [(1, 0), (2, 0), (3, 0), (3, 1)]
    assert running.plan.epsilon < result.privacy.epsilon <= running.plan.epsilon_worst_case * (1 + 1e-9)
    assert result.evaluation is not None
    # 70 of 300 rows are missing, which the table itself says.
    assert result.evaluation.n_units_source == "released"
    assert result.evaluation.n_units.value == pytest.approx(230, abs=5 * result.evaluation.n_units.noise)
    assert abs(result.evaluation.n_units.value - 300) > 5 * result.evaluation.n_units.noise


def test_laplace_and_gaussian_prices_do_not_fall() -> None:
    running = federation()
    running.start(algorithm="sulloyd", evaluation="private", trust="central", epsilon=2.0, max_iter=7)
    # Seven Laplace releases alone are priced by addition: at more than with the evaluation.
    assert price(running.plan.events(range(1, 8)), running.plan.delta) > running.plan.epsilon
    for node in running.clients:
        spent = [entry.epsilon for entry in running.ledgers[node].entries()]
        assert spent == sorted(spent)
        assert spent[-1] == pytest.approx(running.plan.epsilon)
        assert spent[-1] <= 2.0


def test_a_client_without_labels_refuses_before_anything_is_charged() -> None:
    running = labelled(without=3)
    with pytest.raises(RefusalError, match=r"labels of 3 classes, but this client has no labels"):
        running.start(evaluation="private", n_classes=3)
    assert running.charges() == 0


def test_a_label_beyond_the_declared_classes_stops_the_run_but_is_not_told() -> None:
    running = labelled(n_classes=4)
    with pytest.raises(RefusalError, match="DataError") as caught:
        running.start(evaluation="private", n_classes=3)
    assert "largest label" not in str(caught.value)
    assert running.charges() == 0


@pytest.mark.parametrize("evaluation", ["none", "private"])
def test_without_classes_nobody_asks_for_labels(evaluation: str) -> None:
    running = labelled(n_classes=4, without=3)
    running.start(evaluation=evaluation, n_classes=0 if evaluation == "private" else 3)
    assert running.clients[3].cluster_centers_ is not None


def test_deployed_nodes_refuse_an_exact_evaluation_whatever_their_policy_is() -> None:
    running = federation(policy=ClientPolicy(allow_non_private=True))
    with pytest.raises(RefusalError, match=r"exact.*simulation only: choose evaluation='private'"):
        running.start(evaluation="exact")
    assert running.charges() == 0


def test_a_policy_may_forbid_evaluations() -> None:
    running = federation(policy=ClientPolicy.from_mapping({"allowed-evaluation": ["none"]}))
    with pytest.raises(RefusalError, match=r"the plan's evaluation is 'private', but this client allows only 'none'"):
        running.start(evaluation="private")
    running.start(small_config(evaluation="none"))
    assert running.clients[2].evaluation_ is None


def test_labels_of_a_client_are_checked_when_they_are_given() -> None:
    rows = np.zeros((3, 2))
    for labels, text in (
        ([0, 1], r"labels have shape \(2,\), but the table has 3 rows"),
        ([0.5, 1, 2], "whole numbers"),
        (["a", "b", "c"], "whole numbers"),
        ([0, -1, 2], "from -1 to 2, but they must be at least 0"),
        ([math.nan, 1, 2], "whole numbers"),
    ):
        with pytest.raises(ValueError, match=text):
            KMeansClient(rows, labels=labels)
