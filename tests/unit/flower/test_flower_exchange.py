"""What is sent at a time, how long is waited for it, and how large it is, over grids
that note what they are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from support.engines import simulate_server
from support.machine import replace_clock

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid
from flwr_dpkmeans.flower.messages import exchange, message_records
from flwr_dpkmeans.flower.messages.exchange import (
    DEPLOYED_POLL_SECONDS,
    IN_FLIGHT,
    send_in_waves,
)
from flwr_dpkmeans.flower.messages.message_records import content_of, packet_of
from flwr_dpkmeans.flower.messages.server_kind import is_deployed
from flwr_dpkmeans.sums.wire import Packet


def sent(content: RecordDict) -> Message:
    with InProcessGrid([]).running():
        return Message(content, 2, "train")


def test_records_of_another_kind_are_not_looked_into() -> None:
    good = content_of(Packet({"header": "{}"}, np.arange(2, dtype=np.uint64)))
    for wrong in (
        RecordDict({}),
        RecordDict({message_records.RECORD: good[message_records.VECTOR_RECORD]}),
        RecordDict(
            dict(good) | {message_records.VECTOR_RECORD: good[message_records.RECORD]}
        ),
    ):
        with pytest.raises(ProtocolError, match=r"carries no record 'dpkmeans'|is"):
            packet_of(wrong)


class Kept:
    """A grid that notes how many messages come at a time."""

    def __init__(self, at_a_time: int = 10**6, gone: int = 0) -> None:
        self.pushed: list[int] = []
        self.looked: list[int] = []
        self.own: list[int] = []
        self._at_a_time, self._gone, self._n = at_a_time, gone, 0

    def push_messages(self, messages: Sequence[Any]) -> list[str]:
        self.pushed.append(len(messages))
        first, self._n = self._n, self._n + len(messages)
        return [f"{i}" if i >= self._gone else "" for i in range(first, self._n)]

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        waiting = sorted(names)
        self.looked.append(len(waiting))
        return [
            SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name))
            for name in waiting[: self._at_a_time]
        ]

    def send_and_receive(
        self, messages: Sequence[Any], *, timeout: float
    ) -> tuple[Any, ...]:
        self.own.append(len(messages))
        return tuple(messages)


def asked(
    grid: Any, n: int, timeout: float = 10.0, **options: Any
) -> tuple[list[Any], float]:
    """Replies to so many messages, and how long they took."""
    now = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        replace_clock(
            patch,
            lambda: now[0],
            lambda seconds: now.__setitem__(0, now[0] + seconds),
        )
        found = (
            send_in_waves(grid, [None] * n, timeout, **options)
            if options
            else exchange.exchange(grid, [None] * n, timeout)  # type: ignore[list-item]
        )
    return found, now[0]


def test_a_deployments_messages_go_all_at_once_and_a_simulations_in_waves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulate_server(monkeypatch, simulated=False)
    deployed, complete, mute = Kept(), Kept(), Kept(at_a_time=0)
    complete.is_complete = True  # type: ignore[attr-defined]
    assert [is_deployed(grid) for grid in (deployed, complete)] == [True, False]  # type: ignore[arg-type]
    assert (
        len(asked(deployed, IN_FLIGHT + 1)[0])
        == len(asked(complete, IN_FLIGHT + 1)[0])
        == IN_FLIGHT + 1
    )
    assert (deployed.pushed, deployed.own) == ([IN_FLIGHT + 1], [])
    assert (complete.pushed, complete.own) == ([], [IN_FLIGHT + 1])
    assert asked(mute, 1, timeout=1.0) == ([], 1.0)
    assert len(mute.looked) == 1.0 / DEPLOYED_POLL_SECONDS
    simulate_server(monkeypatch)
    virtual = Kept()
    assert [is_deployed(grid) for grid in (virtual, complete)] == [False, False]  # type: ignore[arg-type]
    assert [len(asked(virtual, n)[0]) for n in (IN_FLIGHT, IN_FLIGHT + 1)] == [
        IN_FLIGHT,
        IN_FLIGHT + 1,
    ]
    assert (virtual.own, virtual.pushed) == ([IN_FLIGHT], [IN_FLIGHT, 1])
