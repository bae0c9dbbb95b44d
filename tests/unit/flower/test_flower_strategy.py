"""A strategy's own decisions, over a server and a grid of which only what is looked at
is there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

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
from flwr_dpkmeans.flower import strategy as strategy_module
from flwr_dpkmeans.flower.engines import InProcessGrid
from flwr_dpkmeans.flower.messages.message_records import packet_of
from flwr_dpkmeans.flower.strategy import (
    KMeansResult,
    Timeouts,
    _step_metrics,
)
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.wire import LONGEST_SENTENCE, decode_request


def config(**values: Any) -> Any:
    return parse_config(
        **({"n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "n_examples": 300} | values)
    )


def plan_of(n_clients: int = 4, **values: Any) -> Plan:
    return draft_plan(
        config(**values), run_id=7, n_clients=n_clients, seed=1, n_features=2
    )


class Grid:
    """Complete, unless it is a deployment.

    It notes what is sent, and answers for some nodes.
    """

    def __init__(
        self,
        answering: tuple[int, ...] = (2, 3),
        run_id: int = 7,
        is_complete: bool = True,
    ) -> None:
        self.run = SimpleNamespace(run_id=run_id, fab_hash="")
        self.is_complete, self._answering = is_complete, answering
        self.sent: list[Any] = []
        self.timeouts: list[float] = []

    def send_and_receive(self, messages: Any, *, timeout: float) -> list[Any]:
        self.sent += messages
        self.timeouts.append(timeout)
        return [reply(node) for node in self._answering]

    def push_messages(self, messages: Any) -> list[str]:
        self.sent += messages
        return [str(message.metadata.dst_node_id) for message in messages]

    def pull_messages(self, names: Any) -> list[Any]:
        return [reply(int(name)) for name in names]


def reply(node: int) -> Any:
    metadata = SimpleNamespace(src_node_id=node, reply_to_message_id=str(node))
    return SimpleNamespace(metadata=metadata, has_content=lambda: False)


def strategy_at(
    due: Stage | None, plan: Plan | None = None, **values: Any
) -> tuple[Any, list[Any]]:
    """A strategy whose server waits for nodes 2, 3 and 4, and what is required of their
    answers.
    """
    required: list[Any] = []
    strategy: Any = PrivateKMeans.from_config(config(), **values)
    known = {
        "due": due,
        "nodes": (2, 3, 4),
        "joined": (2, 3, 4),
        "attempts": (),
        "plan": plan or plan_of(),
    }
    strategy._run = SimpleNamespace(
        **known, require_answers=lambda *told: required.append(told)
    )
    return strategy, required


def test_who_misses_the_result_stops_nobody_and_a_run_without_time_asks_nobody() -> (
    None
):
    strategy, required = strategy_at(Stage.FINISH)
    strategy._exchange(Grid(()), lambda *_: [reply(2)], time.monotonic() + 60.0)
    assert required == []
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    with mock.patch.object(strategy_module, "time", clock):
        grid = Grid(())
        with pytest.raises(
            CohortError,
            match=(
                "the run took longer than 86400 s, and what its clients charged stays"
            ),
        ):
            strategy._exchange(grid, lambda *_: [reply(2)], 100.0)
        assert grid.timeouts == []
        strategy._exchange(grid, lambda *_: [reply(2)], 100.5)
        assert grid.timeouts == [0.5]


@pytest.mark.parametrize(
    ("due", "run_id", "is_complete", "told"),
    [
        (Stage.SUM, 7, False, 3),
        (Stage.FINISH, 7, False, 3),
        (None, 7, False, 0),  # the run is over
        (Stage.SUM, 8, False, 0),  # another run failed before it asked anybody
        (Stage.SUM, 7, True, 0),  # virtual clients end with their program
    ],
)
@pytest.mark.parametrize(
    "error", [CohortError("too few. " * 1000), ValueError("/home/secret")]
)
def test_nodes_are_told_of_the_end_of_a_run_that_they_take_part_in(
    due: Stage | None, run_id: int, is_complete: bool, told: int, error: Exception
) -> None:
    strategy, _ = strategy_at(due)
    grid = Grid(run_id=run_id, is_complete=is_complete)
    with InProcessGrid([], run_id=7).running():
        strategy._stop(grid, error)
    assert [message.metadata.dst_node_id for message in grid.sent] == [2, 3, 4][:told]
    for message in grid.sent:
        asked: Any = decode_request(packet_of(message.content))
        sentence = (
            f"CohortError: {error}"
            if isinstance(error, CohortError)
            else "its program failed (ValueError)."
        )
        assert (asked.stage, asked.run_id) == (Stage.STOP, 7)
        assert asked.body.sentence == sentence[:LONGEST_SENTENCE]


@pytest.mark.parametrize(
    ("index", "due", "warned"),
    [
        (0, Stage.SUM, 1),
        (-1, Stage.SUM, 0),
        (1, Stage.SUM, 0),
        (1, Stage.FINISH, 1),
        (0, Stage.FINISH, 1),
    ],
)
def test_a_count_and_the_last_release_may_be_followed_by_warnings(
    index: int, due: Stage, warned: int
) -> None:
    said: list[str] = []
    step = Step(index, 2, 3, "count", 4, 0.5, (("counts", 2.0),), None, None)
    strategy, _ = strategy_at(due, on_warning=said.append, on_step=lambda _: None)
    strategy._run.report = SimpleNamespace(warnings=("Odd.",))
    strategy._run.take, strategy._run.clusters = lambda answers: step, None
    arrays, metrics = strategy.aggregate_train(0, [])
    assert (arrays, dict(metrics)) == (
        None,
        {"epsilon": 0.5, "n-clients": 4, "attempt": 3, "noise-counts": 2.0},
    )
    assert (len(said), strategy._steps) == (warned, [step])
    strategy._run.take = lambda answers: None
    assert strategy.aggregate_train(0, []) == (None, None)
    moved = replace(step, radius=0.25, movement=0.0)
    assert dict(_step_metrics(moved)) == dict(metrics) | {
        "radius": 0.25,
        "movement": 0.0,
    }


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
    with pytest.raises(
        RefusalError,
        match="looks at labels of 2 classes, but this client has no labels",
    ):
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
