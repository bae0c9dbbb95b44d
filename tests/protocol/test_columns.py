"""Columns are matched by name wherever a run begins.

Names stay on the node, and a server that lies is found out.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Message
from support.messages import ServerRun
from support.protocol_federation import (
    Federation,
    all_bytes,
    grid_parts,
    make_federation,
    small_config,
)

from flwr_dpkmeans.errors import DPKMeansError, ProtocolError, RefusalError
from flwr_dpkmeans.flower.strategies.proxy_strategy import ProxyLloyd
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.checks.columns import columns_digest
from flwr_dpkmeans.sums.checks.verify import require_next, verify_plan
from flwr_dpkmeans.sums.draft import draft_plan, redraft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.wire import dump_plan, load_plan

NAMES = ("secret_age", "secret_income")
OTHER = ("secret_age", "secret_rent")
SIZES = (60, 50, 50, 40, 40, 30, 30)
FIRST, SECOND, THIRD = range(FIRST_NODE_ID, FIRST_NODE_ID + 3)


def frames(*names: tuple[str, ...]) -> list[Any]:
    """One table for each client, with its columns in this order."""
    tables = []
    for part, own in zip(
        grid_parts(SIZES),
        (*names, *[names[0]] * (len(SIZES) - len(names))),
        strict=True,
    ):
        frame = pd.DataFrame(
            part, columns=list(NAMES if set(own) == set(NAMES) else own or NAMES)
        )
        tables.append(frame[list(own)] if own else part)
    return tables


def federated(*names: tuple[str, ...], **options: Any) -> Federation:
    return make_federation(frames(*names), **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "all known": {},
    "width asked": {"n_features": None},
    "rows counted": {"n_examples": None, "epsilon": 50.0},
    "private bounds": {"private_bounds": True, "bounds": ((-8.0,), (8.0,)),
                       "n_features": None, "epsilon": 50.0},
    "both": {"private_bounds": True, "bounds": ((-8.0,), (8.0,)), "n_examples": None,
             "epsilon": 50.0},
    "recovered": {"dropout": "recover"},
    "central": {"trust": "central"},
    "distributed, named by the server": {"trust": "distributed",
                                         "feature_names": NAMES},
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_tables_with_the_same_names_in_any_order_are_put_in_order(
    options: dict[str, Any],
) -> None:
    results = []
    for order in (NAMES, NAMES[::-1]):
        running = federated(NAMES, order, order, run_id=77)
        running.start(small_config(noise="seeded", **options))
        results.append(running.clients[SECOND].cluster_centers_)
        assert running.plan.columns_digest == columns_digest(77, NAMES)
        report = running.clients[THIRD].privacy_
        assert report is not None
        assert any("matched by name" in line for line in report.assumptions)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_other_names_end_the_run_before_any_release(options: dict[str, Any]) -> None:
    running = federated(NAMES, OTHER, NAMES)
    with pytest.raises(RefusalError) as caught:
        running.start(**options)
    assert str(SECOND) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert running.charges() == 0


def test_no_name_leaves_a_node() -> None:
    for tables in ((NAMES, NAMES[::-1], NAMES), (NAMES, OTHER, NAMES)):
        running = federated(*tables)
        try:
            running.start()
        except RefusalError:
            assert tables[1] == OTHER
        assert running.grid.received
        assert not any(b"secret" in all_bytes(reply) for reply in running.grid.received)


def test_equal_columns_have_another_digest_in_another_run() -> None:
    assert columns_digest(1, NAMES) != columns_digest(2, NAMES)
    assert (columns_digest(1, ["age", "income"])[:8], columns_digest(1, [])) == (
        "937120d2",
        "",
    )
    assert columns_digest(1, ["a", "b"]) != columns_digest(1, ["a,b"])


BY_POSITION = {"bounds": ((-1.0, -2.0), (1.0, 2.0))}


def test_bounds_by_position_take_one_order_only() -> None:
    running = federated(NAMES[::-1], NAMES[::-1], NAMES[::-1])
    running.start(**BY_POSITION)
    assert running.plan.columns_digest == columns_digest(
        running.plan.run_id, NAMES[::-1]
    )
    running = federated(NAMES, NAMES[::-1], NAMES)
    with pytest.raises(
        RefusalError,
        match=rf"order that cannot be made the same \(nodes \[{SECOND}\]; nodes",
    ):
        running.start(**BY_POSITION)
    assert running.charges() == 0


def test_tables_without_names_say_so_and_mix_only_if_that_is_asked_for() -> None:
    running = federated((), (), ())
    running.start()
    report = running.clients[FIRST].privacy_
    assert report is not None
    assert (
        "The tables' columns have no names and were matched by position."
        in report.assumptions
    )
    for options, sentence in (
        ({}, rf"tables of nodes \[{SECOND}\] have no column names, but others have"),
        (
            {"feature_names": NAMES},
            "this client's table has no column names, but the plan names 2",
        ),
    ):
        running = federated(NAMES, (), NAMES)
        with pytest.raises(RefusalError, match=sentence):
            running.start(**options)
        assert running.charges() == 0
        running = federated(NAMES, (), NAMES)
        running.start(allow_unnamed=True, **options)
        report = running.clients[SECOND].privacy_
        assert report is not None
        assert any(
            "those of tables without names by position" in line
            for line in report.assumptions
        )


def test_a_table_without_names_is_not_held_against_sorted_ones() -> None:
    running = federated(NAMES, (), NAMES[::-1])
    with pytest.raises(RefusalError, match="an order that cannot be made the same"):
        running.start(allow_unnamed=True)


def test_points_of_the_server_without_names_do_not_mix_with_named_tables() -> None:
    running = federated(NAMES, NAMES, NAMES)
    points = np.array(grid_parts((50,), seed=9)[0])
    for server_data, refused in (
        (points, True),
        (pd.DataFrame(points, columns=NAMES[::-1]), False),
    ):
        strategy = ProxyLloyd(
            3, bounds=(-1, 1), n_examples=300, server_data=server_data
        )
        with running.grid.running():
            if refused:
                with pytest.raises(RefusalError, match="points have no column names"):
                    strategy.start(running.grid)
                running = federated(NAMES, NAMES, NAMES)
            else:
                strategy.start(running.grid)
                assert strategy.config.feature_names == NAMES[::-1]


# -- a server that lies ----------------------------------------------------------------


def lying(running: Federation, change: Any) -> None:
    """A server that compares nothing, and changes what it announces to each node."""

    class Lying(PrivateKMeans):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            answers = list(replies)
            if self.run.due is Stage.KEYS:
                for message in answers:
                    record = message.content["dpkmeans"]
                    header = json.loads(record["header"])
                    record["header"] = json.dumps(header | {"columns": ""})
            return super().aggregate_train(server_round, answers)

        def configure_train(self, *args: Any) -> list[Message]:
            messages = super().configure_train(*args)
            if self.run.due is not Stage.SUM:
                return messages
            for message in messages:
                change(self.run, message)
            return messages

    running.strategy_class = Lying


@pytest.mark.parametrize("says", ["nothing", "the columns of another node"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_each_node_compares_for_itself(options: dict[str, Any], says: str) -> None:
    running = federated(NAMES, OTHER, NAMES)

    def change(run: ServerRun, message: Message) -> None:
        if says == "nothing":
            return
        told = replace(
            run.plan, columns_digest=columns_digest(run.plan.run_id, sorted(NAMES))
        )
        message.content["dpkmeans"]["plan"] = dump_plan(told)

    lying(running, change)
    with pytest.raises(DPKMeansError, match="columns"):
        running.start(**options)
    assert running.ledgers[SECOND].entries() == ()


def test_a_server_that_shows_each_node_its_own_columns_gets_a_sum_of_noise() -> None:
    """Masks of nodes with different plans do not cancel."""
    running = federated(NAMES, OTHER, NAMES)

    def change(run: ServerRun, message: Message) -> None:
        names = OTHER if message.metadata.dst_node_id == SECOND else NAMES
        told = replace(
            run.plan, columns_digest=columns_digest(run.plan.run_id, sorted(names))
        )
        if run.session.round_index == run.plan.first_round:
            message.content["dpkmeans"]["plan"] = dump_plan(told)

    lying(running, change)
    with pytest.raises(DPKMeansError, match="no data within the plan's bounds add up"):
        running.start(trust="central")


def test_columns_do_not_change_once_they_are_agreed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = federated(NAMES, NAMES, NAMES)

    class Repeating(PrivateKMeans):
        def configure_train(self, *args: Any) -> list[Message]:
            messages = super().configure_train(*args)
            if self.run.due is not Stage.SUM:
                return messages
            if self.run.session.round_index == 2:
                for message in messages:
                    message.content["dpkmeans"]["plan"] = dump_plan(self.run.plan)
            return messages

    running.strategy_class = Repeating
    with pytest.raises(DPKMeansError, match="0 clients are left"):
        running.start()
    assert "another plan came although the one in force says the same" in caplog.text
    assert all(len(ledger.entries()) <= 1 for ledger in running.ledgers.values())


def test_a_final_plan_has_the_columns_that_were_agreed_on() -> None:
    config = small_config(n_examples=None)
    first, other = (columns_digest(1, names) for names in (NAMES, OTHER))
    plan = draft_plan(
        config, run_id=1, n_clients=3, seed=1, n_features=2, columns=first
    )
    require_next(
        plan, redraft_plan(plan, n_features=2, n_examples=300), Discoveries(300),
        begun=True, released=0,
    )  # fmt: skip
    later = redraft_plan(plan, n_features=2, n_examples=300, columns=other)
    with pytest.raises(ProtocolError, match="columns_digest than the one in force"):
        require_next(plan, later, Discoveries(300), begun=True, released=0)
    with pytest.raises(ProtocolError, match="columns_digest than the one in force"):
        require_next(
            plan, replace(plan, columns_digest=other), Discoveries(), begun=False,
            released=None,
        )  # fmt: skip
    unnamed = replace(plan, columns_digest="")
    require_next(unnamed, plan, Discoveries(), begun=False, released=None)


def test_a_digest_that_is_none_is_malformed() -> None:
    running = federated((), (), ())
    running.start()
    plan = load_plan(dump_plan(replace(running.plan, columns_digest="../../x")))
    with pytest.raises(ProtocolError, match="digest of columns is no SHA-256"):
        verify_plan(plan)


# -- what a node says of its own columns -----------------------------------------------


def test_a_node_holds_its_columns_in_the_agreed_order_against_the_bounds() -> None:
    tables = [frame * [1.0, 100.0] for frame in frames(NAMES)]
    tables[1] = tables[1][list(NAMES[::-1])]
    running = make_federation(tables)
    running.start(feature_names=NAMES, bounds=((-1.0, -100.0), (1.0, 100.0)))
    assert [client.local_warnings_ for client in running.clients.values()] == [
        ()
    ] * len(tables)


def test_a_node_names_the_column_that_private_bounds_did_not_find() -> None:
    parts = [
        np.column_stack([np.full(n, 3.0), np.linspace(-8.0, 8.0, n)]) for n in SIZES
    ]
    tables = [pd.DataFrame(part, columns=list(NAMES)) for part in parts]
    tables[1] = tables[1][list(NAMES[::-1])]
    running = make_federation(tables)
    config = small_config(
        noise="seeded", private_bounds=True, bounds=((-8.0,), (8.0,)), n_features=None,
        epsilon=0.35,
    )  # fmt: skip
    running.start(config)
    for client in running.clients.values():
        assert client.privacy_ is not None
        (said,) = (
            sentence
            for sentence in client.privacy_.warnings
            if "Private bounds" in sentence
        )
        assert "secret_income" in said
        assert "secret_age" not in said
