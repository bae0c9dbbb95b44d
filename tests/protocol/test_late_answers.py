"""Requests that a node finds too late, and servers that wait in vain.

Nobody pays, and a sentence says why.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message
from support.machine import replace_time
from support.messages import RECORD, WAIT, Stage, stage_of
from support.protocol_federation import Federation, grid_parts, make_federation
from support.watching import watch

from flwr_dpkmeans.errors import CohortError, RefusalError
from flwr_dpkmeans.flower.client.wrapped import Wrapped
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategies.timeouts import Timeouts
from flwr_dpkmeans.flower.strategy import PrivateKMeans

SIZES = (120, 80, 60, 40, 30, 20)
NODES = (2, 3, 4, 5, 6, 7)


def start(federation: Federation, **values: Any) -> None:
    settings = {
        "bounds": (-1, 1),
        "n_examples": 300,
        "timeouts": Timeouts(round=60.0),
    } | values
    made = PrivateKMeans(3, algorithm="fastlloyd", on_step=lambda _: None, **settings)
    with federation.grid.running():
        made.start(federation.grid)


def aged(
    federation: Federation, stage: Stage, seconds: float, nodes: tuple[int, ...] = NODES
) -> None:
    """Requests of one phase are so old when some nodes find them."""

    def on_request(message: Message) -> bool:
        if stage_of(message.content) is stage and message.metadata.dst_node_id in nodes:
            message.metadata.created_at -= seconds
        return True

    federation.faults.on_request = on_request


@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_a_request_that_is_found_when_the_server_has_given_up_costs_nothing(
    dropout: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation = make_federation(grid_parts(SIZES))
    aged(federation, Stage.SUM, 61.0)
    with pytest.raises(CohortError, match="look at their logs"):
        start(federation, dropout=dropout)
    assert federation.charges() == 0
    assert (
        "the request was made 61 s ago, but the server waits 60 s for answers"
        in caplog.text
    )


def test_an_answer_that_took_too_long_to_compute_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation = make_federation(grid_parts(SIZES))
    now = time.time
    watch(
        Wrapped.compute,
        begin=lambda _: replace_time(monkeypatch, lambda: now() + 61.0),
    )
    with pytest.raises(CohortError):
        start(federation)
    assert federation.charges() == 0


def test_a_result_is_taken_however_late_it_is() -> None:
    federation = make_federation(grid_parts(SIZES))
    aged(federation, Stage.FINISH, 3600.0)
    start(federation)
    assert all(
        client.cluster_centers_ is not None for client in federation.clients.values()
    )


@pytest.mark.parametrize("seconds", [-9.0, 9.0])
def test_clocks_that_differ_by_seconds_stop_no_run_that_waits_for_less(
    seconds: float,
) -> None:
    federation = make_federation(grid_parts(SIZES))
    aged(federation, Stage.SUM, seconds)
    start(federation, timeouts=Timeouts(round=5.0))
    assert federation.charges() > 0


@pytest.mark.parametrize("wait", [0.0, -1.0, float("nan"), float("inf"), "60", True])
def test_a_malformed_wait_is_refused(
    wait: Any, caplog: pytest.LogCaptureFixture
) -> None:
    federation = make_federation(grid_parts(SIZES))

    def on_request(message: Message) -> bool:
        message.content.config_records[RECORD][WAIT] = wait
        return True

    federation.faults.on_request = on_request
    with pytest.raises(RefusalError):
        start(federation)
    assert federation.charges() == 0
    assert "field 'wait' is not a positive" in caplog.text


@pytest.mark.parametrize(
    ("stage", "charged"),
    [
        (Stage.KEYS, "nobody has charged anything"),
        (Stage.SUM, "what those that answered charged stays charged"),
    ],
)
def test_a_server_that_waits_in_vain_says_who_is_silent_and_what_it_cost(
    stage: Stage, charged: str
) -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_request = lambda message: (
        stage_of(message.content) is not stage
    )
    with pytest.raises(CohortError) as caught:
        start(federation)
    sentence = str(caught.value)
    assert (
        "0 of 6 nodes answered within 60 s (silent: nodes [2, 3, 4, 5, 6, 7])"
        in sentence
    )
    assert charged in sentence
    assert "off, overloaded or busy with another run" in sentence
    assert sentence.endswith("raise round-timeout.")


def test_whom_the_superlink_gives_up_is_not_said_to_have_been_waited_for() -> None:
    """It answers in their place, long before the round's bound."""
    federation = make_federation(grid_parts(SIZES))
    sent: list[Message] = []

    def on_request(message: Message) -> bool:
        sent.append(message)
        return True

    def given_up(_: Message) -> list[Message]:
        reply = Message(Error(5), reply_to=sent[-1])
        reply.metadata.__dict__["_src_node_id"] = 1
        return [reply]

    federation.faults.on_request = on_request
    federation.faults.on_reply = given_up
    with pytest.raises(CohortError, match="0 of 6 nodes answered within 0 s"):
        start(federation)


def test_a_wait_that_the_whole_run_bounds_names_that_option() -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_request = lambda _: False
    with pytest.raises(CohortError, match=r"within 30 s .* or raise run-timeout\.$"):
        start(federation, timeouts=Timeouts(run=30.0))


def test_a_node_that_could_not_write_its_result_says_so_before_anybody_pays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    parts = grid_parts(SIZES)
    client = KMeansClient(parts[1], output_dir=tmp_path / "file" / "run-1" / "client-3")
    federation = make_federation(parts, loaders={3: lambda _: client})
    with pytest.raises(RefusalError, match="node 3 refused"):
        start(federation)
    assert federation.charges() == 0
    assert (
        f"{tmp_path / 'file'} is no folder that this user may write into" in caplog.text
    )
