"""Sending in waves: everybody is asked, never too many at once, and in time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from support.machine import replace_clock

from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.messages.exchange import send_in_waves
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID


class SlowGrid(InProcessGrid):
    """Hands out at most three replies at a time, and counts what is in flight."""

    def __init__(self, n_nodes: int, silent: Iterable[int] = ()) -> None:
        app = ClientApp()
        app.train()(lambda message, context: Message(message.content, reply_to=message))
        super().__init__([Node(app) for _ in range(n_nodes)])
        self.silent = {FIRST_NODE_ID + index for index in silent}
        self.most = 0
        self.open: dict[str, int] = {}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        listed = list(messages)
        ids = super().push_messages(listed)
        self.open |= dict(
            zip(ids, (message.metadata.dst_node_id for message in listed), strict=True)
        )
        self.most = max(self.most, len(self.open))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ready = [name for name in message_ids if self.open[name] not in self.silent][:3]
        for name in ready:
            del self.open[name]
        return super().pull_messages(ready)


def ask(
    grid: SlowGrid, n_nodes: int, in_flight: int, timeout: float = 10.0
) -> tuple[list[Message], list[float]]:
    now: list[float] = [0.0]
    with grid.running():
        messages = [
            Message(
                RecordDict({"a": ConfigRecord({"b": index})}),
                FIRST_NODE_ID + index,
                "train",
            )
            for index in range(n_nodes)
        ]
        with pytest.MonkeyPatch.context() as patch:
            replace_clock(
                patch,
                lambda: now[0],
                lambda seconds: now.__setitem__(0, now[0] + seconds),
            )
            replies = send_in_waves(grid, messages, timeout, in_flight=in_flight)
    return replies, now


def test_everybody_answers_once_and_few_are_asked_at_a_time() -> None:
    grid = SlowGrid(25)
    replies, _ = ask(grid, 25, in_flight=7)
    assert sorted(reply.metadata.src_node_id for reply in replies) == [
        FIRST_NODE_ID + index for index in range(25)
    ]
    assert grid.most == 7


def test_a_wave_larger_than_the_cohort_is_one_wave() -> None:
    grid = SlowGrid(4)
    assert len(ask(grid, 4, in_flight=32)[0]) == 4
    assert grid.most == 4


def test_silent_nodes_cost_the_timeout_but_nobody_elses_answer() -> None:
    replies, now = ask(SlowGrid(10, silent=(0, 5)), 10, in_flight=4, timeout=3.0)
    assert len(replies) == 8
    assert 3.0 <= now[0] < 3.1


def test_nobody_is_asked_after_the_time_is_up() -> None:
    grid = SlowGrid(10, silent=range(4))
    replies, _ = ask(grid, 10, in_flight=4, timeout=3.0)
    assert replies == []
    assert grid.most == 4


class LeftGrid(SlowGrid):
    """Flower gives no id to a message for a node that has left the federation."""

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        first, *others = list(messages)
        del first
        return [None, *super().push_messages(others)]  # type: ignore[list-item]


def test_a_node_that_has_left_costs_nobody_elses_answer() -> None:
    replies, now = ask(LeftGrid(4), 4, in_flight=4)
    assert len(replies) == 3
    assert now[0] < 1.0
