"""Bounded waiting, with a clock and a grid that the test moves."""

from __future__ import annotations

import contextvars
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from support.machine import replace_clock

from flwr_dpkmeans.errors import CohortError, ConfigurationError
from flwr_dpkmeans.flower.messages.joining import turn, wait_for_nodes
from flwr_dpkmeans.flower.messages.parties import ANYBODY, Parties
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.strategies.timeouts import Timeouts
from flwr_dpkmeans.log import named

RUN_CONFIG: dict[str, str | int] = {"bounds": "0,1", "n-clusters": 3}


class World(logging.Handler):
    """A clock that advances by sleeping, and a grid that depends on the time.

    Hears what the server logs meanwhile.
    """

    def __init__(self, nodes_at: Callable[[float], list[int]]) -> None:
        super().__init__()
        self.now = 1000.0
        self._start = self.now
        self._nodes_at = nodes_at
        self.said: list[str] = []
        self.names: dict[int, str] = {}
        self.asked = 0

    def get_nodes(self) -> list[NodeInfo]:
        self.asked += 1
        return [
            NodeInfo(node_id=node, name=self.names.get(node, ""))
            for node in self._nodes_at(self.now - self._start)
        ]

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    @contextmanager
    def passing(self, sleep: Callable[[float], None]) -> Iterator[None]:
        """Let the program wait in this world."""
        logger = logging.getLogger("flwr_dpkmeans")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        with pytest.MonkeyPatch.context() as patch:
            replace_clock(patch, lambda: self.now, sleep)
            yield
        logger.removeHandler(self)

    def wait(
        self,
        n_clients: int | None,
        min_clients: int = 2,
        timeout: float = 60.0,
        parties: Parties = ANYBODY,
    ) -> list[int]:
        grid: Any = self
        with self.passing(self.sleep):
            return wait_for_nodes(
                grid, n_clients, min_clients, timeout, parties=parties
            )

    @property
    def waited(self) -> float:
        return self.now - self._start


def one_each(seconds: float) -> Callable[[float], list[int]]:
    """A node joins every so many seconds; the grid lists them in no order."""
    return lambda now: list(range(2, 3 + int(now / seconds)))[::-1]


def test_exactly_the_expected_number_is_taken() -> None:
    assert World(lambda _: [9, 4, 7, 2]).wait(3) == [2, 4, 7]
    assert World(lambda _: [9, 4, 7]).wait(3) == [4, 7, 9]


def test_nothing_is_waited_for_when_all_are_there() -> None:
    world = World(lambda _: [2, 3])
    world.wait(2)
    assert (world.waited, world.asked, world.said) == (0.0, 1, [])


def test_late_nodes_are_waited_for() -> None:
    world = World(one_each(5.0))
    assert world.wait(10) == list(range(2, 12))
    assert 45.0 <= world.waited <= 45.5
    assert world.said[0] == "waiting for 10 clients: 1 joined so far"
    assert world.said[-1] == "waiting for 10 clients: 9 joined so far"
    assert len(world.said) == 9


def test_too_few_in_time_is_an_error_that_names_the_numbers() -> None:
    world = World(one_each(5.0))
    with pytest.raises(CohortError) as caught:
        world.wait(10, timeout=20.0)
    assert world.waited == 20.0
    assert str(caught.value).startswith(
        "5 of 10 clients joined within 20 s: start more nodes"
    )
    assert '--federation-config "num-supernodes=10"' in str(caught.value)
    assert str(caught.value).endswith("or lower num-clients.")


def test_a_cohort_of_any_size_is_taken_once_it_has_settled() -> None:
    world = World(lambda now: [2, 3] if now < 2.0 else [2, 3, 4])
    assert world.wait(None) == [2, 3, 4]
    assert 5.0 <= world.waited <= 5.5


def test_a_node_in_exchange_for_another_unsettles_the_cohort() -> None:
    world = World(lambda now: [2, 3] if now < 2.0 else [2, 4])
    assert world.wait(None) == [2, 4]
    assert world.waited >= 5.0


def test_a_complete_grid_needs_no_settling() -> None:
    world = World(lambda _: [3, 2])
    world.is_complete = True  # type: ignore[attr-defined]
    assert world.wait(None) == [2, 3]
    assert world.waited == 0.0


@pytest.mark.parametrize("timeout", [1.0, 20.0])
def test_when_the_time_is_up_whoever_is_there_takes_part(timeout: float) -> None:
    world = World(one_each(0.5))
    nodes = world.wait(None, timeout=timeout)
    assert world.waited == timeout
    assert nodes == list(range(2, 3 + int(timeout / 0.5)))


def test_fewer_than_the_minimum_is_an_error() -> None:
    world = World(lambda _: [2])
    with pytest.raises(CohortError, match="1 of 2 clients joined within 7 s"):
        world.wait(None, timeout=7.0)
    assert world.waited == 7.0
    assert world.said == ["waiting for 2 clients: 1 joined so far"]
    with pytest.raises(CohortError, match="0 of 3 clients"):
        World(lambda _: []).wait(None, min_clients=3)


def test_nodes_that_leave_are_not_counted() -> None:
    world = World(lambda now: [2, 3, 4] if 1.0 <= now < 2.0 else [2])
    with pytest.raises(CohortError, match="1 of 4"):
        world.wait(4, timeout=10.0)


def test_who_waits_is_reminded_each_thirty_seconds_after_the_last_news() -> None:
    world = World(lambda now: [2] if now < 10.0 else [2, 3])
    with pytest.raises(CohortError):
        world.wait(3, timeout=101.0)
    assert [line.split(" clients")[1] for line in world.said] == [
        ": 1 joined so far",
        ": 2 joined so far",
        *(f" after {n} of 101 s: 2 joined so far, nodes [2, 3]" for n in (40, 70, 100)),
    ]


def test_a_cohort_settles_three_seconds_after_the_last_change() -> None:
    world = World(lambda now: [2, 3] if now < 2.0 else [2, 3, 4])
    assert (world.wait(None), world.waited, world.said) == ([2, 3, 4], 5.0, [])
    late = World(one_each(1.0))
    assert (late.wait(None, min_clients=4, timeout=3.25), late.waited) == (
        [2, 3, 4, 5],
        3.25,
    )
    assert late.said == [f"waiting for 4 clients: {n} joined so far" for n in (1, 2, 3)]
    enough = World(lambda now: [2] if now < 29.0 else [2, 3])
    assert (enough.wait(None), enough.waited, len(enough.said)) == ([2, 3], 32.0, 1)


def test_the_superlinks_names_stand_for_nodes_from_then_on() -> None:
    world = World(lambda now: [8836284626031169334, 3412860526946820869])
    world.names = {3412860526946820869: "ward-8"}

    def sentence() -> str:
        with pytest.raises(CohortError):
            world.wait(3, timeout=31.0)
        return named(world.said[-1])

    told = (
        "still waiting for 3 clients after 30 of 31 s: 2 joined so far, nodes [ward-8,"
        " 8836284626031169334]"
    )
    assert contextvars.copy_context().run(sentence) == told


def test_a_run_waits_for_the_end_of_another_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    world, grid = World(lambda _: []), cast(Grid, SimpleNamespace())
    other = turn(grid, concurrent=False)

    def sleep(seconds: float) -> None:
        world.now += seconds
        if world.waited == 62.0:
            other.__exit__(None, None, None)

    with world.passing(sleep):
        other.__enter__()
        with turn(grid, concurrent=True):
            assert world.waited == 0.0
        with turn(cast(Grid, SimpleNamespace(is_complete=True)), concurrent=False):
            assert world.waited == 0.0
        with turn(grid, concurrent=False):
            assert world.waited == 62.0
        with turn(grid, concurrent=False):
            assert world.waited == 62.0
    seconds = [
        re.findall(r"waiting for another run's end, for (\d+) s so far", line)[0]
        for line in world.said
    ]
    assert seconds == ["0", "30", "60"]


def test_what_is_no_boolean_does_not_let_runs_meet() -> None:
    with pytest.raises(ConfigurationError, match="concurrent is 'no', but it must"):
        Timeouts(concurrent="no")  # type: ignore[arg-type]


WARDS = {2: "ward-7", 3: "ward-8", 4: "ward-9", 5: ""}


def wards(*nodes: int) -> World:
    world = World(lambda _: list(nodes))
    world.names = WARDS
    return world


def test_parties_that_are_named_take_part_and_nobody_else() -> None:
    """Lower ids do not push in front of them."""
    parties = Parties.of_texts("ward-9, ward-7")
    assert wards(2, 3, 4, 5).wait(None, parties=parties) == [2, 4]


def test_a_party_that_is_missing_is_named_while_waiting_and_at_the_end() -> None:
    world = wards(2, 3)
    with pytest.raises(CohortError) as caught:
        world.wait(None, parties=Parties(("ward-7", "ward-9")), timeout=40.0)
    assert world.waited == 40.0
    assert world.said[0].startswith("waiting for ward-9: 1 joined so far")
    assert "still waiting for ward-9" in world.said[1]
    assert str(caught.value).startswith("ward-9 did not join within 40 s")


def test_who_has_joined_is_named_where_too_few_have() -> None:
    with pytest.raises(CohortError, match="2 of 3 clients joined within 5 s"):
        wards(2, 4).wait(3, timeout=5.0)


def test_a_node_is_left_out_by_name() -> None:
    without = Parties(without=("ward-8",))
    assert wards(2, 3, 4).wait(2, parties=without) == [2, 4]
    with pytest.raises(CohortError, match="2 of 3"):
        wards(2, 3, 4).wait(3, parties=without, timeout=5.0)


def test_two_nodes_of_one_name_are_no_party() -> None:
    """Whoever registers a second key under a name would otherwise take its place."""
    world = World(lambda _: [2, 3, 4])
    world.names = {2: "ward-7", 3: "ward-7", 4: "ward-9"}
    with pytest.raises(CohortError, match="2 nodes are named 'ward-7'"):
        world.wait(None, parties=Parties(("ward-7", "ward-9")))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"parties": "a, b", "without": "c"}, "give one of them"),
        ({"parties": "a, b, a"}, "name each once"),
        ({"parties": "a, b", "num-clients": 3}, "leave num-clients out"),
    ],
)
def test_names_that_do_not_fit_are_refused_before_anybody_is_asked(
    keys: dict[str, str | int], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        strategy_from_run_config(RUN_CONFIG | keys, simulated=False)


def test_a_configuration_with_names_needs_no_number() -> None:
    keys = {"parties": "ward-7, ward-8, ward-9"}
    strategy = strategy_from_run_config(RUN_CONFIG | keys, simulated=False)
    assert strategy.config.n_clients == 3
    assert strategy.parties.names == ("ward-7", "ward-8", "ward-9")
    with pytest.raises(ConfigurationError, match="or name them"):
        strategy_from_run_config(RUN_CONFIG, simulated=False)


def test_a_name_that_nobody_has_been_invited_under_is_refused_with_the_nearest() -> (
    None
):
    invited = ["ward-7", "ward-8", "ward-9"]
    assert Parties(without=("ward-8",)).chosen(invited) == ("ward-7", "ward-9")
    with pytest.raises(ConfigurationError, match="did you mean 'ward-9'"):
        Parties(("ward_9",)).chosen(invited)
