"""A strategy's own decisions, over a server and a grid of which only what is looked at
is there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ArrayRecord

from flwr_dpkmeans import (
    FastLloyd,
    GLloyd,
    Lloyd,
    PrivateKMeans,
    ServerLloyd,
)
from flwr_dpkmeans.errors import CohortError, ConfigurationError, RefusalError
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid
from flwr_dpkmeans.flower.messages.message_records import packet_of
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult, step_metrics
from flwr_dpkmeans.flower.strategies.timeouts import Timeouts
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.wire import decode_request


def config(**values: Any) -> Any:
    return parse_config(
        **({"n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "n_examples": 300} | values)
    )


class Grid:
    """Three nodes of which none answers: complete, unless it is a deployment."""

    def __init__(self, *, is_complete: bool = True) -> None:
        self.run = SimpleNamespace(run_id=7, fab_hash="")
        self.is_complete = is_complete
        self.sent: list[Any] = []

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=node, name="") for node in (2, 3, 4)]

    def send_and_receive(self, messages: Any, *, timeout: float) -> list[Any]:
        self.sent += messages
        return []

    def push_messages(self, messages: Any) -> list[str]:
        self.sent += messages
        return [str(message.metadata.dst_node_id) for message in messages]

    def pull_messages(self, names: Any) -> list[Any]:
        return []


class Hasty(PrivateKMeans):
    """Which hardly waits for those that it tells of a run's end."""

    stop_seconds = 0.5


def failed_start(grid: Grid, sentence: str, **seconds: float) -> None:
    strategy = Hasty.from_config(config(n_clients=3), timeouts=Timeouts(**seconds))
    with (
        InProcessGrid([], run_id=7).running(),
        pytest.raises(CohortError, match=sentence),
    ):
        strategy.start(grid)  # type: ignore[arg-type]


def test_a_run_without_time_asks_nobody() -> None:
    grid = Grid()
    failed_start(
        grid,
        "the run took longer than 1e-09 s, and what its clients charged stays",
        run=1e-9,
    )
    assert grid.sent == []


@pytest.mark.parametrize("is_complete", [False, True])
def test_nodes_are_told_of_the_end_of_a_run_that_they_take_part_in(
    is_complete: bool,
) -> None:
    """Virtual clients end with their program."""
    grid = Grid(is_complete=is_complete)
    failed_start(grid, "0 of 3 nodes answered", round=0.2)
    nodes = [message.metadata.dst_node_id for message in grid.sent]
    if is_complete:
        assert nodes == [2, 3, 4]
        return
    assert nodes == [2, 3, 4, 2, 3, 4]
    for message in grid.sent[3:]:
        request: Any = decode_request(packet_of(message.content))
        assert (request.stage, request.run_id) == (Stage.STOP, 7)
        assert request.body.sentence.startswith("CohortError: 0 of 3 nodes answered")


def test_what_a_step_moved_is_among_its_metrics() -> None:
    step = Step(1, 2, 3, "lloyd", 4, 0.5, (("counts", 2.0),), 0.25, 0.0)
    assert dict(step_metrics(step)) == {
        "epsilon": 0.5, "n-clients": 4, "attempt": 3, "noise-counts": 2.0,
        "radius": 0.25, "movement": 0.0,
    }  # fmt: skip


def test_simulated_clients_refusals_are_said_before_anybody_is_asked() -> None:
    def rehearse(n_clients: int, width: int, *names: str, **values: Any) -> None:
        strategy = PrivateKMeans.from_config(
            config(algorithm="fastlloyd", n_features=2, **values)
        )
        strategy.rehearse(n_clients, width, names, has_labels=False)

    rehearse(4, 2)
    rehearse(4, 2, "a", "b", feature_names=("b", "a"))
    with pytest.raises(RefusalError, match="table has 3 features, but the plan has 2"):
        rehearse(4, 3)
    with pytest.raises(RefusalError, match="this client's table of 2 lacks 1"):
        rehearse(4, 2, "a", "c", feature_names=("b", "a"))
    with pytest.raises(RefusalError, match="looks at labels of 2 classes, but this"):
        rehearse(4, 2, evaluation="private", n_classes=2)
    with pytest.raises(ConfigurationError, match="min_clients"):
        rehearse(2, 2, min_clients=3)


class Noted(PrivateKMeans, algorithm="fastlloyd"):
    """Starts nothing."""

    def _conduct(self, grid: Any, evaluate_fn: Any) -> KMeansResult:
        return KMeansResult()


def test_a_start_takes_rounds_and_seconds_and_no_arrays() -> None:
    strategy, grid = Noted(3, bounds=(-1, 1), n_examples=300), Grid()
    strategy.start(grid, ArrayRecord(), num_rounds=4, timeout=12.5)  # type: ignore[arg-type]
    assert (strategy.config.max_iter, strategy.timeouts) == (4, Timeouts(round=12.5))
    strategy.start(grid)  # type: ignore[arg-type]
    assert (strategy.config.max_iter, strategy.timeouts.round) == (4, 12.5)
    with pytest.raises(ConfigurationError, match="no run has been started"):
        _ = strategy.run
    assert strategy.privacy_spent() is None
    for algorithm, more, sentence in (
        (FastLloyd, {"server_data": [[0.0, 0.0], [1.0, 1.0]]}, "server_data was given"),
        (GLloyd, {"masking": False}, "clients of a Flower run always mask"),
        (
            ServerLloyd,
            {"server_data": [[0.0], [1.0], [0.5]], "feature_names": ("a",)},
            "server_data has no column names",
        ),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            algorithm(3, bounds=(-1, 1), **more)
    own = type("Own", (Lloyd,), {})
    assert own(3, bounds=(-1, 1)).config.algorithm == "lloyd"
