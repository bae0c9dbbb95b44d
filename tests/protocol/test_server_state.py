"""Runs in which the server alone goes from release to release.

Dropouts, retries, and states that no client takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from numpy.typing import NDArray
from support.messages import RECORD, Stage, stage_of
from support.protocol_federation import (
    Federation,
    make_federation,
    off_grid,
    outside,
    small_config,
)
from support.states import with_extras

from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import CohortError, ProtocolError
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

CENTERS = np.array([[-0.5, -0.5, 0.0], [0.5, 0.5, 0.0], [0.5, -0.5, 0.5]])


def drawn(n: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return np.clip(
        CENTERS[generator.integers(0, 3, n)] + 0.05 * generator.standard_normal((n, 3)),
        -1.0,
        1.0,
    )


def federation(n_clients: int = 5) -> Federation:
    return make_federation([drawn(200, seed) for seed in range(n_clients)])


def start(running: Federation, **values: Any) -> Any:
    config = read_config(
        **(
            {
                "n_clusters": 3,
                "bounds": ((-1.0,), (1.0,)),
                "algorithm": "feddp_kmeans",
                "epsilon": 8.0,
                "delta": 1e-4,
                "n_examples": 1000,
                "random_state": 3,
                "n_init": 3,
                "max_iter": 1,
            }
            | values
        )
    )
    running.strategy = PrivateKMeans.from_config(
        config, server_points=drawn(60, 99), on_step=lambda _: None
    )
    with running.grid.running():
        return running.strategy.start(running.grid)


def header_of(message: Message) -> str:
    return str(message.content.config_records[RECORD]["header"])


def is_request(message: Message, round_index: int, attempt: int = 0) -> bool:
    return stage_of(
        message.content
    ) is Stage.SUM and f'"round": {round_index}, "attempt": {attempt}' in header_of(
        message
    )


def near_truth(centers: NDArray[np.float64]) -> bool:
    distances = np.linalg.norm(centers[:, None] - CENTERS[None], axis=2).min(axis=0)
    return bool((distances < 0.15).all())


@pytest.mark.parametrize("trust", ["distributed", "central"])
@pytest.mark.parametrize("round_index", [1, 2, 3, 4])
def test_a_client_lost_in_any_round_is_survived_and_charged(
    trust: str, round_index: int
) -> None:
    running = federation()
    running.faults.on_request = lambda m: (
        not (m.metadata.dst_node_id == 3 and is_request(m, round_index))
    )
    result = start(running, trust=trust)
    survivors = [node for node in running.clients if node != 3]
    centers = [running.clients[node].cluster_centers_ for node in survivors]
    assert all(
        center is not None and np.array_equal(center, centers[0]) for center in centers
    )
    assert near_truth(np.asarray(centers[0]))
    assert np.array_equal(result.arrays["centroids"].numpy(), centers[0])
    attempts = [(r, 0) for r in range(1, round_index + 1)] + [
        (r, 1) for r in range(round_index, 5)
    ]
    assert all(running.attempts_in_ledger(node) == attempts for node in survivors)
    assert running.attempts_in_ledger(3) == attempts[: round_index - 1]
    assert result.privacy.n_attempts == 5
    assert (
        running.plan.epsilon
        < result.privacy.epsilon
        <= running.plan.epsilon_worst_case * (1 + 1e-9)
    )


@pytest.mark.parametrize(
    ("n_clients", "max_silent", "lost", "released"),
    [
        (6, None, (3,), True),
        (6, None, (3, 4), False),
        (6, 2, (3, 4), True),
        (6, 2, (3, 4, 5), False),
    ],
)
def test_no_sum_is_released_of_fewer_clients_than_the_shares_count_on(
    n_clients: int, max_silent: int | None, lost: tuple[int, ...], released: bool
) -> None:
    running = federation(n_clients)
    running.faults.on_request = lambda m: (
        not (m.metadata.dst_node_id in lost and is_request(m, 2))
    )
    if released:
        assert near_truth(
            np.asarray(
                start(running, max_silent=max_silent).arrays["centroids"].numpy()
            )
        )
        return
    with pytest.raises(
        CohortError, match=r"nodes answered within .* \(silent: nodes \["
    ):
        start(running, max_silent=max_silent)
    assert running.clients[2].cluster_centers_ is None


def too_many(state: State) -> State:
    return state.changed(centroids=np.zeros((4, 3)), counts=np.zeros(4))


def another_width(state: State) -> State:
    return state.changed(centroids=state.centroids[:, :2])


def stretched(state: State) -> State:
    return with_extras(
        state, {**state.extras, "projection": state.extras["projection"] * 2.0}
    )


def without_projection(state: State) -> State:
    return with_extras(
        state, {k: v for k, v in state.extras.items() if k != "projection"}
    )


def more_points(state: State) -> State:
    points = np.vstack([state.extras["projected_points"]] * 2)
    return with_extras(state, {**state.extras, "projected_points": points})


def far_points(state: State) -> State:
    return with_extras(
        state,
        {**state.extras, "projected_points": state.extras["projected_points"] + 64.0},
    )


def more_movements(state: State) -> State:
    # Four rounds; a million more would keep every node busy for seconds.
    return replace(state, movements=(0.0,) * 5)


@pytest.mark.parametrize(
    "change",
    [
        *(
            off_grid,
            outside,
            too_many,
            another_width,
            stretched,
            without_projection,
            more_points,
            far_points,
        ),
        more_movements,
    ],
)
def test_a_state_that_does_not_fit_the_plan_gets_no_answer(
    change: Callable[[State], State],
) -> None:
    running = federation()

    def tamper(message: Message) -> bool:
        if is_request(message, 2):
            record = message.content.config_records[RECORD]
            record["state"] = change(unpack_state(record["state"])).packed
        return True

    running.faults.on_request = tamper
    with pytest.raises(CohortError):
        start(running)
    # Nothing was computed or charged for the second round.
    assert all(running.attempts_in_ledger(node) == [(1, 0)] for node in running.clients)


def test_a_state_that_is_missing_or_torn_gets_no_answer() -> None:
    for change in (
        lambda blob: b"",
        lambda blob: blob[:-8],
        lambda blob: b"{}\n",
        lambda blob: b"\xff" * 40,
    ):
        running = federation()

        def tamper(message: Message, change: Callable[[bytes], bytes] = change) -> bool:
            if is_request(message, 2):
                record = message.content.config_records[RECORD]
                record["state"] = change(record["state"])
                if not record["state"]:
                    del record["state"]
            return True

        running.faults.on_request = tamper
        with pytest.raises(CohortError):
            start(running)
        assert all(
            running.attempts_in_ledger(node) == [(1, 0)] for node in running.clients
        )


def test_clients_that_compute_their_own_state_take_none_from_the_server() -> None:
    running = federation()
    state = cluster_state(np.zeros((3, 3)), np.zeros(3)).packed

    def tamper(message: Message) -> bool:
        if is_request(message, 1):
            message.content.config_records[RECORD]["state"] = state
        return True

    running.faults.on_request = tamper
    with pytest.raises(CohortError):
        running.start(small_config(n_features=3, n_examples=1000))
    assert running.charges() == 0


def test_a_client_sees_a_round_only_with_what_it_reads() -> None:
    seen: dict[int, set[str]] = {}
    running = federation()

    def look(message: Message) -> bool:
        for index in range(1, 5):
            if is_request(message, index):
                seen[index] = set(
                    unpack_state(message.content.config_records[RECORD]["state"]).extras
                )
        return True

    running.faults.on_request = look
    start(running)
    assert seen == {
        1: set(),
        2: {"projection", "projected_points"},
        3: {"projection", "projected_centers"},
        4: set(),
    }


def test_a_second_state_for_a_round_that_is_repeated_gets_no_answer() -> None:
    """Else one client answers a round under two states at a retry's price."""
    running = federation()
    kept: list[bytes] = []

    def tamper(message: Message) -> bool:
        if is_request(message, 2):
            kept.append(bytes(message.content.config_records[RECORD]["state"]))
        if is_request(message, 2, attempt=1):
            assert "state" not in message.content.config_records[RECORD]
            message.content.config_records[RECORD]["state"] = kept[0]
        return not (message.metadata.dst_node_id == 3 and is_request(message, 2))

    running.faults.on_request = tamper
    with pytest.raises(CohortError):
        start(running)
    assert all(
        (2, 1) not in running.attempts_in_ledger(node) for node in running.clients
    )


def one_extra_more(state: State) -> State:
    return with_extras(state, {**state.extras, "seed": np.zeros(1)})


@pytest.mark.parametrize("round_index", [1, 2, 3, 4])
def test_an_extra_that_the_round_does_not_read_gets_no_answer(round_index: int) -> None:
    """Each client could be told something else by it, and its answers watched."""
    running = federation()

    def tamper(message: Message) -> bool:
        if is_request(message, round_index):
            record = message.content.config_records[RECORD]
            record["state"] = one_extra_more(unpack_state(record["state"])).packed
        return True

    running.faults.on_request = tamper
    with pytest.raises(CohortError):
        start(running)
    assert all(
        len(running.attempts_in_ledger(node)) == round_index - 1
        for node in running.clients
    )


def test_the_result_may_come_with_the_cost_curve_only() -> None:
    running = federation()
    start(running)
    plan, last = running.plan, running.plan.last_round + 1
    state = cluster_state(np.zeros((3, 3)), np.zeros(3))
    require_server_state(plan, last, with_extras(state, {"cost_curve": np.zeros(3)}))
    for name in ("projection", "seed", "server_points"):
        with pytest.raises(ProtocolError, match="does not fit the plan"):
            require_server_state(
                plan, last, with_extras(state, {name: np.zeros((3, 1))})
            )
    # One entry for each number of clusters: millions were drawn into every node's
    # picture.
    for curve in (np.zeros(4), np.zeros((3, 1)), np.full(3, 2.0**-17)):
        with pytest.raises(ProtocolError, match="does not fit the plan"):
            require_server_state(plan, last, with_extras(state, {"cost_curve": curve}))
