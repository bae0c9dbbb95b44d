"""Tables of parties, and the grid of one process, by hand."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from flwr_dpkmeans import DPKMeans, FederatedKMeans
from flwr_dpkmeans.algorithms.server_points import in_box
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.flower.engines import (
    InProcessGrid,
    Made,
    Node,
    Tables,
    _cautions,
    federate,
    listed_tables,
)
from flwr_dpkmeans.flower.kmeans_client import STATISTIC, KMeansClient
from flwr_dpkmeans.sums.statement import LOCAL

ROWS = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])


@pytest.mark.parametrize(
    ("given", "n", "sentence"),
    [
        ([ROWS, ROWS], 2, ""),
        ((ROWS[:0],), 1, ""),
        ({"a": ROWS, "b": ROWS}, 2, ""),
        (np.zeros((4, 2, 2)), 4, ""),
        (np.zeros(3), 3, ""),
        (ROWS, 0, r"X is one table of shape \(3, 2\)"),
        ("rows.csv", 0, "X is of type str"),
        (b"", 0, "X is of type bytes"),
        (7, 0, "X is of type int"),
    ],
)
def test_tables_are_given_as_any_collection_but_one_table_or_text(
    given: Any, n: int, sentence: str
) -> None:
    if not sentence:
        assert len(listed_tables(given)) == n
        return
    with pytest.raises(DataError, match=sentence):
        listed_tables(given)


def test_columns_of_parties_are_put_in_the_first_ones_order() -> None:
    first, second = (
        pd.DataFrame(ROWS, columns=["a", "b"]),
        pd.DataFrame(ROWS, columns=["b", "a"]),
    )
    tables = Tables.of({"one": first, "two": second})
    assert (tables.names, tables.one_order, tables.parties) == (
        ("a", "b"),
        False,
        ("'one'", "'two'"),
    )
    assert (tables.total, [part[0].tolist() for part in tables.parts]) == (
        6,
        [[0.0, 1.0], [1.0, 0.0]],
    )
    same = Tables.of([first, first[:0]])
    assert (same.one_order, same.parties, same.total, same.columns) == (
        True,
        ("0", "1"),
        3,
        ("a", "b"),
    )
    plain = Tables.of([ROWS, ROWS])
    assert (plain.names, plain.one_order, plain.columns) == ((), True, ())
    for wrong, sentence in (
        ([ROWS], r"X has 1 client\(s\), but masks need at least 2"),
        ([], r"X has 0 client\(s\)"),
        (
            [first, ROWS, first],
            "2 of 3 tables in X have column names and the others have none",
        ),
        ([ROWS, ROWS[:, :1]], r"the clients' arrays have \[1, 2\] features"),
        ([ROWS, [[np.nan, 0.0]]], r"X\[1\]: "),
    ):
        with pytest.raises(DataError, match=sentence):
            Tables.of(wrong)
    alone = Tables.alone(first)
    assert ([len(part) for part in alone.parts], alone.total, alone.names) == (
        [3, 0],
        3,
        ("a", "b"),
    )
    assert [rows.tolist() for rows in alone.rows] == [[0, 1, 2], []]
    grouped = Tables.of(first, groups=["x", "y", "x"])
    assert [rows.tolist() for rows in grouped.rows] == [[0, 2], [1]]
    assert (grouped.parties, grouped.total) == (("'x'", "'y'"), 3)


def test_tables_that_are_made_are_numbered_from_zero() -> None:
    made = Made(lambda i: ROWS + i, 2)
    assert (len(made), [made[i][0, 0] for i in range(2)], len(list(made))) == (
        2,
        [0.0, 1.0],
        2,
    )
    for place in (-1, 2):
        with pytest.raises(IndexError):
            made[place]


@pytest.mark.parametrize(
    ("lost", "blank", "foreign", "told"),
    [
        ([-1, -1, 0, 1], (), (), []),  # half of them is not most
        (
            [-1, 1, 0, 1],
            (),
            (),
            [
                "leaves out 3 of the 4 rows of a, above all for cells of its column"
                " 'bmi'"
            ],
        ),
        (
            [-1, -1, 0, 1],
            ("age",),
            (),
            ["all cells of 'age' of a are missing or nothing"],
        ),
        (
            [-1, 0, 0, 1],
            ("bmi",),
            (),
            [
                "leaves out 3 of the 4 rows of a, above all for cells of its column"
                " 'age'"
            ],
        ),
        (
            [-1] * 4,
            (),
            ("age", "bmi"),
            ["over 25% of the cells of 'age', 'bmi' of a lie outside"],
        ),
        (
            [-1] * 4,
            ("age",),
            ("bmi",),
            ["all cells of 'age' of a", "over 25% of the cells of 'bmi' of a"],
        ),
    ],
)
def test_what_a_schema_makes_of_a_partys_cells_is_said(
    lost: list[int], blank: tuple[str, ...], foreign: tuple[str, ...], told: list[str]
) -> None:
    columns = [SimpleNamespace(name=name) for name in ("age", "bmi")]
    found: Any = {
        "left_out_by": np.array(lost),
        "n_rows": 4,
        "blank": blank,
        "foreign": foreign,
    }
    sentences = _cautions(
        ["a"], [SimpleNamespace(**found, schema=SimpleNamespace(columns=columns))]
    )  # type: ignore[list-item]
    assert len(sentences) == len(told)
    assert all(
        sentence.startswith(LOCAL) and part in sentence
        for sentence, part in zip(sentences, told, strict=True)
    )


def test_sums_without_messages_need_no_recovery() -> None:
    with pytest.raises(
        ConfigurationError, match="engine='direct' has no messages that could be lost"
    ):
        federate(
            "moments", [ROWS, ROWS], bounds=(0, 10), engine="direct", dropout="recover"
        )
    found = federate(
        "moments", [ROWS, ROWS], bounds=(0, 10), engine="direct", dropout="retry"
    )
    assert found["mean"].shape == (2,)


def test_the_grid_of_one_process_loses_nothing_and_keeps_no_state_of_who_fails() -> (
    None
):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        context.state["seen"] = ConfigRecord({"n": len(context.state) + 1})
        if "fail" in message.content:
            raise ValueError("secret")
        return Message(message.content, reply_to=message)

    grid = InProcessGrid(
        [Node(app), Node(app, {"a": 1})], run_id=5, run_config={"b": 2}
    )
    assert (
        list(grid.get_node_ids()),
        [grid.contexts[node].node_config for node in (2, 3)],
    ) == ([2, 3], [{}, {"a": 1}])
    assert (
        {context.run_id for context in grid.contexts.values()}
        == {grid.run.run_id}
        == {5}
    )
    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    with grid.running():
        assert (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id) == (
            1,
            5,
            1,
        )
        content = {
            name: RecordDict({name: ConfigRecord({})}) for name in ("good", "fail")
        }
        sent = [
            Message(content[name], node, "train")
            for node, name in ((2, "good"), (3, "fail"), (4, "good"))
        ]
        ids = list(grid.push_messages(sent))
        good, failed, absent = grid.pull_messages(ids)
        assert list(grid.pull_messages(ids)) == []
    assert (
        TaskIdentity._task_id,
        TaskIdentity._run_id,
        TaskIdentity._node_id,
    ) == before
    assert len(set(ids)) == 3
    assert (good.metadata.src_node_id, good.has_error()) == (2, False)
    assert [failed.error.code, absent.error.code] == [
        ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
        ErrorCode.NODE_UNAVAILABLE,
    ]
    assert ["seen" in grid.contexts[node].state for node in (2, 3)] == [True, False]


def test_runs_without_messages_say_which_they_are() -> None:
    """Fits of one second had one provenance, whatever their rows, noise and plan were.

    Results depend on none of it.
    """
    rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    own: dict[str, Any] = {
        "bounds": (-1, 1),
        "engine": "direct",
        "noise": "seeded",
        "random_state": 1,
    }
    fits = [
        FederatedKMeans(2, **own, epsilon=epsilon).fit([rows, rows])
        for epsilon in (1.0, 1.0, 2.0)
    ]
    alone = DPKMeans(2, bounds=(-1, 1)).fit(rows)
    told: list[Any] = [fit.privacy_.provenance for fit in (*fits, alone)]
    assert all(re.fullmatch("[0-9a-f]{64}", one.plan_digest) for one in told)
    assert (
        len({one.run_id for one in told}) == len({one.plan_digest for one in told}) == 4
    )
    assert (fits[0].cluster_centers_ == fits[1].cluster_centers_).all()
    central = [
        FederatedKMeans(2, algorithm="optimal", bounds=(-1, 1)).fit([rows, rows])
        for _ in range(2)
    ]
    told = [fit.privacy_.provenance for fit in central]
    assert len({one.run_id for one in told}) == 2
    assert {one.plan_digest for one in told} == {""}


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
def test_a_result_is_there_although_the_first_party_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others paid for it, and one of them has it."""
    original = KMeansClient.fit

    def fit(self: KMeansClient, parameters: Any, config: Any) -> Any:
        if config.get("task") == STATISTIC and self._points[0, 0] == 0.5:
            raise ValueError("no such row")
        return original(self, parameters, config)

    monkeypatch.setattr(KMeansClient, "fit", fit)
    parts = [np.full((200, 2), value) for value in (0.5, 0.25, 0.25, 0.25)]
    given: dict[str, Any] = {
        "bounds": (-1.0, 1.0),
        "epsilon": 50.0,
        "noise": "seeded",
        "random_state": 0,
    }
    found = federate("moments", parts, n_examples=800, **given)
    assert found.privacy.n_attempts > len(found.plan.rounds)
    assert all(np.isfinite(found[name]).all() for name in found.keys())  # noqa: SIM118


def test_no_statistic_can_change_the_rows_that_the_next_round_sees() -> None:
    scaled = in_box(Bounds((-1.0,), (1.0,)), np.full((3, 2), 0.5), 16)
    with pytest.raises(ValueError, match="read-only"):
        scaled *= 0.5
