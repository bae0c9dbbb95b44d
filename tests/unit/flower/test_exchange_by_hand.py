"""What is sent at a time, how long is waited for it, and how large it is, over grids
that note what they are asked.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower import exchange
from flwr_dpkmeans.flower.engines import InProcessGrid
from flwr_dpkmeans.flower.exchange import (
    DEPLOYED_POLL_SECONDS,
    IN_FLIGHT,
    VECTOR_LAYOUT,
    answers_of,
    bytes_of,
    content_of,
    is_deployed,
    log_size,
    message_of,
    packet_of,
    send_in_waves,
)
from flwr_dpkmeans.secagg.messages import Stage, StopRequest
from flwr_dpkmeans.sums.wire import Packet, Request


def sent(content: RecordDict) -> Message:
    with InProcessGrid([]).running():
        return Message(content, 2, "train")


def stored(
    data: bytes,
    dtype: str = "uint64",
    shape: tuple[int, ...] = (2,),
    stype: str = VECTOR_LAYOUT,
) -> Array:
    return Array(dtype=dtype, shape=shape, stype=stype, data=data)


def test_a_messages_size_is_that_of_its_texts_bytes_numbers_and_arrays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = ConfigRecord(
        {"text": "abc", "blob": b"12345", "whole": 7, "part": 0.5, "flag": True}
    )
    arrays = ArrayRecord(
        {"one": stored(bytes(16)), "two": stored(bytes(8), shape=(1,))}
    )
    whole, part = (
        sent(RecordDict({"a": values, "b": arrays})),
        sent(RecordDict({"c": ConfigRecord({"n": 1})})),
    )
    with InProcessGrid([]).running():
        failed = Message(Error(code=2, reason="a long text"), reply_to=part)
    assert [
        bytes_of(messages) for messages in ([], [whole], [part], [whole, part, failed])
    ] == [0, 56, 8, 64]
    for level, lines in (
        (logging.INFO, []),
        (logging.DEBUG, ["sending 64 bytes in 2 messages"]),
    ):
        with caplog.at_level(level, logger="flwr_dpkmeans.server"):
            log_size(exchange.logger, "sending", [whole, part])
        assert [record.getMessage() for record in caplog.records] == lines


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (stored(bytes(16)), ""),
        (stored(b"", shape=(0,)), ""),
        (
            stored(bytes(16), dtype="int64"),
            "is missing or is not of 64-bit ring elements",
        ),
        (
            stored(bytes(16), stype="numpy.ndarray"),
            "is missing or is not of 64-bit ring elements",
        ),
        (None, "is missing or is not of 64-bit ring elements"),
        (stored(bytes(17)), "length does not match its shape"),
        (stored(bytes(15)), "length does not match its shape"),
        (stored(bytes(24)), "length does not match its shape"),
        (stored(bytes(16), shape=(2, 1)), "length does not match its shape"),
    ],
)
def test_a_vector_is_as_many_words_as_its_shape_says(
    array: Array | None, sentence: str
) -> None:
    content = content_of(Packet({"header": "{}"}, np.arange(2, dtype=np.uint64)))
    assert packet_of(content).vector.tolist() == [0, 1]  # type: ignore[union-attr]
    content[exchange.VECTOR_RECORD] = ArrayRecord(
        {} if array is None else {"vector": array}
    )
    if not sentence:
        assert packet_of(content).vector.tolist() == [0] * array.shape[0]  # type: ignore[union-attr]
        return
    with pytest.raises(ProtocolError, match=sentence):
        packet_of(content)


def test_records_of_another_kind_are_not_looked_into() -> None:
    good = content_of(Packet({"header": "{}"}, np.arange(2, dtype=np.uint64)))
    for wrong in (
        RecordDict({}),
        RecordDict({exchange.RECORD: good[exchange.VECTOR_RECORD]}),
        RecordDict(dict(good) | {exchange.VECTOR_RECORD: good[exchange.RECORD]}),
    ):
        with pytest.raises(
            ProtocolError, match=r"carries no record 'dpkmeans'|is not an array record"
        ):
            packet_of(wrong)


def test_every_phase_but_the_last_is_a_train_message() -> None:
    with InProcessGrid([]).running():
        made = {
            stage: message_of(5, Request(stage, StopRequest("over")))
            for stage in (Stage.STOP, Stage.FINISH)
        }
    kinds = {stage: message.metadata.message_type for stage, message in made.items()}
    assert kinds == {Stage.STOP: "train", Stage.FINISH: "evaluate"}
    assert {message.metadata.dst_node_id for message in made.values()} == {5}


def test_flowers_errors_are_no_answers() -> None:
    asked = sent(content_of(Packet({"header": "{}"})))
    with InProcessGrid([]).running():
        failed, come = (
            Message(what, reply_to=asked)
            for what in (Error(code=2, reason=""), asked.content)
        )
    assert [node for node, _ in answers_of([failed, come, failed])] == [2]


class Kept:
    """A grid that notes how many messages come at a time.

    Each look finds at most so many replies.
    """

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
    """Replies to so many messages, and how long they took on a clock that moves by
    waiting only.
    """
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0],
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    )
    with mock.patch.object(exchange, "time", clock):
        found = (
            send_in_waves(grid, [None] * n, timeout, **options)
            if options
            else exchange.exchange(grid, [None] * n, timeout)  # type: ignore[list-item]
        )
    return found, now[0]


def test_waves_are_filled_up_and_replies_told_as_they_come() -> None:
    grid, told = Kept(at_a_time=2), list[int]()
    replies, seconds = asked(
        grid, 7, in_flight=4, heard=lambda come: told.append(len(come))
    )
    assert (len(replies), seconds) == (7, 0.0)
    assert grid.pushed == [4, 2, 1]
    assert grid.looked == [4, 4, 3, 1]
    assert told == [2, 4, 6, 7]


def test_nobody_is_asked_without_time_and_nothing_looked_for_where_all_have_left() -> (
    None
):
    grid = Kept()
    assert asked(grid, 3, timeout=0.0, in_flight=4) == ([], 0.0)
    assert (grid.pushed, grid.looked) == ([], [])
    left = Kept(gone=3)
    replies, seconds = asked(left, 4, in_flight=3, poll=0.5)
    assert (len(replies), seconds, left.pushed, left.looked) == (1, 0.5, [3, 1], [1])
    mute = Kept(at_a_time=0)
    assert asked(mute, 1, timeout=1.0, in_flight=3, poll=0.25) == ([], 1.0)
    assert mute.looked == [1] * 4


def test_a_deployments_messages_go_all_at_once_and_a_simulations_in_waves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "flwr.simulation.run_simulation", raising=False)
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
    monkeypatch.setitem(sys.modules, "flwr.simulation.run_simulation", sys)
    virtual = Kept()
    assert [is_deployed(grid) for grid in (virtual, complete)] == [False, False]  # type: ignore[arg-type]
    assert [len(asked(virtual, n)[0]) for n in (IN_FLIGHT, IN_FLIGHT + 1)] == [
        IN_FLIGHT,
        IN_FLIGHT + 1,
    ]
    assert (virtual.own, virtual.pushed) == ([IN_FLIGHT], [IN_FLIGHT, 1])
