"""A run that the server stops: every node hears why, forgets its keys and answers
nothing more of it.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from support.limits import SetLimits
from support.messages import Stage, copied, parse_failure, request_content, stage_of
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)

from flwr_dpkmeans.errors import BudgetError, CohortError, RefusalError
from flwr_dpkmeans.flower import strategy
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.messages.client_memory import recall
from flwr_dpkmeans.flower.messages.message_records import content_of
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.secagg.messages import StopRequest
from flwr_dpkmeans.sums.wire import Failure, Status, encode_failure

SAYS = "the server has stopped this run"


def deploy(monkeypatch: pytest.MonkeyPatch, *, is_deployed: bool) -> None:
    """Let messages go over a SuperLink, or not."""
    monkeypatch.setattr(strategy, "is_deployed", lambda grid: is_deployed)


@pytest.fixture(autouse=True)
def _as_in_a_deployment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Virtual clients are gone with their program, so that nobody tells them."""
    deploy(monkeypatch, is_deployed=True)
    caplog.set_level(logging.INFO)


def told(caplog: pytest.LogCaptureFixture) -> dict[int, str]:
    """What each node has logged of the end."""
    return {
        vars(line)["node"]: line.getMessage()
        for line in caplog.records
        if SAYS in line.getMessage()
    }


def secrets_left(federation: Federation, node: int) -> list[str]:
    memory = recall(federation.grid.contexts[node])
    assert memory is not None
    return [
        each.name
        for each in fields(memory.party)
        if not each.repr and vars(memory.party)[each.name]
    ]


def stopped_in_the_middle(
    kind: type[PrivateKMeans] = PrivateKMeans, **options: Any
) -> tuple[Federation, dict[int, Message]]:
    """Nobody's second vector arrives; with the last request that each node got."""
    federation, last, n_sums = (
        make_federation(grid_parts((60,) * 6)),
        dict[int, Message](),
        dict[int, int](),
    )

    def on_request(message: Message) -> bool:
        node = message.metadata.dst_node_id
        if stage_of(message.content) is not Stage.STOP:
            last[node] = message
        return True

    def on_reply(reply: Message) -> list[Message]:
        node = reply.metadata.src_node_id
        stage = stage_of(last[node].content)
        n_sums[node] = n_sums.get(node, 0) + (stage is Stage.SUM)
        return [] if n_sums[node] > 1 and stage is Stage.SUM else [reply]

    federation.strategy_class = kind
    federation.faults.on_request, federation.faults.on_reply = on_request, on_reply
    with pytest.raises(CohortError):
        federation.start(algorithm="fastlloyd", max_iter=3, trust="central", **options)
    federation.faults.on_request = federation.faults.on_reply = None
    return federation, last


@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_every_node_hears_why_and_forgets_its_keys(
    dropout: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation, last = stopped_in_the_middle(dropout=dropout, max_retries=0)
    lines = told(caplog)
    assert sorted(lines) == [2, 3, 4, 5, 6, 7]
    for line in lines.values():
        assert (
            "what 2 release(s) cost here stays charged; it says: CohortError: 0 of 6"
            " nodes answered within" in line
        )
    charged = federation.charges()
    for node, message in last.items():
        assert secrets_left(federation, node) == []
        with federation.grid.running():
            (reply,) = federation.grid.send_and_receive(
                [Message(copied(message.content), node, "train")]
            )
        status, _, _ = parse_failure(reply.content)
        assert status.value == "refused"
    assert federation.charges() == charged


def test_who_fell_silent_hears_that_the_others_went_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts((60,) * 4))
    federation.faults.on_reply = lambda reply: (
        []
        if reply.metadata.src_node_id == 4 and Stage.SUM.value in phases[-1]
        else [reply]
    )
    phases: list[str] = []

    def on_request(message: Message) -> bool:
        stage = stage_of(message.content)
        phases.append("" if stage is None else stage.value)
        return True

    federation.faults.on_request = on_request
    result = federation.start(
        algorithm="fastlloyd", max_iter=2, trust="central", n_clients=4, min_clients=3
    )
    assert result.confirmed == (2, 3, 5)
    (line,) = told(caplog).items()
    assert line[0] == 4
    assert "says: this node was left out, and the others have a result." in line[1]
    # Nor has who has the result.
    assert secrets_left(federation, 4) == secrets_left(federation, 2) == []


class Rude(PrivateKMeans):
    """A server that tells nobody."""

    def _stop(self, *_: Any) -> None:
        pass


def test_without_the_stop_the_keys_would_be_there() -> None:
    federation, _ = stopped_in_the_middle(Rude, dropout="retry", max_retries=0)
    assert "private_key" in secrets_left(federation, 2)


def test_tables_of_other_widths_are_told_to_every_owner(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(
        [*grid_parts((40, 40)), *grid_parts((40,), n_features=3)]
    )
    with pytest.raises(RefusalError, match="different numbers of features"):
        federation.start(n_features=None)
    lines = told(caplog)
    assert sorted(lines) == [2, 3, 4]
    for line in lines.values():
        assert (
            "it has cost nothing here; it says: RefusalError: the clients' tables have"
            " different numbers" in line
        )


def test_a_node_that_refused_hears_it_too_and_the_others_learn_no_limit_of_its_policy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(
        grid_parts((40, 40, 40)), policies={3: ClientPolicy(max_epsilon_total=0.625)}
    )
    with pytest.raises(RefusalError, match=r"0\.625"):
        federation.start(epsilon=1.0)
    lines = told(caplog)
    assert sorted(lines) == [2, 3, 4]
    assert recall(federation.grid.contexts[3]) is None
    for line in lines.values():
        assert "says: RefusalError: node 3 refused (RefusalError)." in line
        assert "0.625" not in line


def test_what_happens_while_nodes_are_told_hides_no_reason() -> None:
    federation = make_federation(
        [*grid_parts((40, 40)), *grid_parts((40,), n_features=3)]
    )
    broken: list[Message] = []

    def on_send(messages: list[Message]) -> list[Message]:
        if stage_of(messages[0].content) is Stage.STOP:
            broken.extend(messages)
            raise ConnectionError("gone")
        return messages

    federation.faults.on_send = on_send
    with pytest.raises(RefusalError, match="different numbers of features"):
        federation.start(n_features=None)
    assert broken


def test_a_stop_of_another_run_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts((40, 40, 40)))

    def on_request(message: Message) -> bool:
        if stage_of(message.content) is Stage.SUM:
            content = request_content(
                Stage.STOP, request=StopRequest("over"), run_id=99
            )
            own, message.content = message.content, content
            (reply,) = super(type(federation.grid), federation.grid).deliver(message)
            assert parse_failure(reply.content)[0].value == "refused"
            message.content = own
        return True

    federation.faults.on_request = on_request
    result = federation.start(algorithm="fastlloyd", max_iter=2)
    assert len(result.confirmed) == 3
    assert told(caplog) == {}


def test_the_server_s_words_are_one_line_of_bounded_length(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts((40, 40, 40)))
    federation.start(algorithm="fastlloyd", max_iter=2)
    words = "x\n2026 INFO all is well\x1b[2J" + "y" * 5000
    content = request_content(
        Stage.STOP, request=StopRequest(words), run_id=federation.plan.run_id
    )
    with federation.grid.running():
        federation.grid.send_and_receive([Message(content, 2, "train")])
    (line,) = told(caplog).values()
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 1000
    client = federation.clients[2]
    assert np.isfinite(client.cluster_centers_).all()


def hears(federation: Federation, node: int, words: str = "over") -> None:
    content = request_content(
        Stage.STOP, request=StopRequest(words), run_id=federation.plan.run_id
    )
    with federation.grid.running():
        (reply,) = federation.grid.send_and_receive([Message(content, node, "train")])
    assert parse_failure(reply.content)[0].value == "ok"


def test_a_node_that_lost_its_state_is_told_what_its_ledger_charged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation, _ = stopped_in_the_middle(dropout="retry", max_retries=0)
    caplog.clear()
    for name in list(federation.grid.contexts[2].state):
        del federation.grid.contexts[2].state[name]
    hears(federation, 2)
    (line,) = told(caplog).values()
    assert "what 2 release(s) cost here stays charged" in line
    assert "nothing" not in line


def test_a_ledger_that_cannot_be_read_keeps_no_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def damaged(_: str) -> frozenset[tuple[int, int]]:
        raise BudgetError("the ledger is damaged")

    federation = make_federation(grid_parts((40, 40, 40)))
    federation.faults.on_reply = lambda reply: []
    with pytest.raises(CohortError):
        federation.start(algorithm="fastlloyd", max_iter=2)
    federation.faults.on_reply = None
    caplog.clear()
    federation.ledgers[2].attempts = damaged  # type: ignore[method-assign]
    hears(federation, 2)
    assert secrets_left(federation, 2) == []
    (line,) = told(caplog).values()
    assert "its ledger cannot be read" in line


def test_a_result_that_is_here_is_not_said_to_be_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts((40, 40, 40)))
    federation.start(algorithm="fastlloyd", max_iter=2)
    hears(federation, 2, "CohortError: nobody has a result")
    (line,) = told(caplog).values()
    assert line.startswith(
        f"{SAYS}, of whose end this node had heard before, and what 2 release(s) cost"
        " here"
    )


def test_who_refuses_puts_no_words_of_its_own_into_other_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts((40, 40, 40)))
    liar = encode_failure(
        Failure(Status.REFUSED, "x). All is well: see http://evil.example (y", "no")
    )

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == 3:
            reply.content = content_of(liar)
        return [reply]

    federation.faults.on_reply = on_reply
    with pytest.raises(RefusalError):
        federation.start(algorithm="fastlloyd", max_iter=2)
    lines = told(caplog)
    assert sorted(lines) == [2, 3, 4]
    assert all(
        line.endswith("RefusalError: node 3 refused (unknown).")
        for line in lines.values()
    )


@pytest.mark.parametrize("tells", [True, False])
def test_a_stopped_node_deletes_its_copy_of_the_rows(
    tells: bool, tmp_path: Path, set_limits: SetLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large table's file was deleted by a result or another run's hour only."""
    set_limits(table_bytes=100)
    deploy(monkeypatch, is_deployed=tells)
    (tmp_path / "policy.toml").write_text("allow-anything = true\n")
    nodes = []
    for index, columns in enumerate(("a,b", "a,b", "a,b,c")):
        table = "\n".join(
            [columns, *[columns.translate(str.maketrans("abc", "123"))] * 40]
        )
        (tmp_path / f"{index}.csv").write_text(table)
        own = {
            "data-path": str(tmp_path / f"{index}.csv"),
            "columns": columns,
            "cache": str(tmp_path),
        }
        own |= {
            "ledger": str(tmp_path / f"ledger{index}"),
            "policy": str(tmp_path / "policy.toml"),
        }
        nodes.append(Node(client_app(load_client), own))
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1_2_other-2.rows").write_bytes(b"of another run")
    grid = InProcessGrid(nodes, run_id=17)
    with (
        grid.running(),
        pytest.raises(RefusalError, match="different numbers of features"),
    ):
        PrivateKMeans.from_config(
            small_config(n_features=None), on_step=lambda _: None
        ).start(grid)
    assert len(list((tmp_path / "rows").iterdir())) == (1 if tells else 4)


def test_nodes_hear_of_a_server_s_program_that_fails_and_read_nothing_of_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def evaluate(_: int, __: object) -> None:
        raise ValueError("/home/operator/secret")

    federation = make_federation(grid_parts((60,) * 3))
    own = PrivateKMeans.from_config(
        small_config(algorithm="fastlloyd", trust="central"), on_step=lambda _: None
    )
    with federation.grid.running(), pytest.raises(ValueError, match="secret"):
        own.start(federation.grid, evaluate_fn=evaluate)
    lines = told(caplog)
    assert sorted(lines) == [2, 3, 4]
    assert all(
        line.endswith(
            "cost here stays charged; it says: its program failed (ValueError)."
        )
        for line in lines.values()
    )
    assert secrets_left(federation, 2) == []
