"""What a node makes of its configuration, its table and its wrapped client's answers,
by hand.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    RecordDict,
)
from support.engines import join_ray

from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import (
    BudgetError,
    ColumnError,
    ConfigurationError,
    DataError,
    LocalMisuseError,
    RefusalError,
)
from flwr_dpkmeans.flower.client.clean_rows import client_of
from flwr_dpkmeans.flower.client.node_config import (
    default_ledger,
    node_settings,
    stream_number,
)
from flwr_dpkmeans.flower.client.ray_nodes import OutputFiles
from flwr_dpkmeans.flower.client.result_folders import output_folder, result_folder
from flwr_dpkmeans.flower.client.simulated_tables import mixture_of, simulated_part
from flwr_dpkmeans.flower.client.wrapped import Wrapped
from flwr_dpkmeans.flower.client.wrapped_app import secure_sum_mod
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid
from flwr_dpkmeans.flower.messages.message_records import packet_of
from flwr_dpkmeans.flower.mod import (
    INTERNAL_SENTENCE,
    TABLE_SENTENCE,
    SecureAggregation,
)
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.sums.client.injected import TableFacts
from flwr_dpkmeans.sums.wire import Failure, Status


def context(run: dict[str, Any] | None = None, **node: Any) -> Context:
    own = {name.replace("_", "-"): value for name, value in node.items()}
    return Context(
        run_id=3, node_id=987, node_config=own, state=RecordDict(), run_config=run or {}
    )


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    join_ray(monkeypatch)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "flwr-dpkmeans"


# -- folders and settings --------------------------------------------------------------


@pytest.mark.usefixtures("simulated")
def test_a_virtual_clients_results_and_ledger_lie_where_the_run_says(
    home: Path, tmp_path: Path
) -> None:
    run = {"output": str(tmp_path / "out")}
    virtual, deployed = context(run, partition_id=0), context(run)
    assert output_folder(virtual) == tmp_path / "out" / "run-3" / "client-987"
    assert output_folder(context(run, partition_id=0, output="/own")) == Path(
        "/own/run-3/client-987"
    )
    assert output_folder(deployed) == home / "run-3" / "client-987"
    assert (
        default_ledger(virtual, "rows")
        == tmp_path / "out" / "run-3" / "ledgers" / "client-987.jsonl"
    )
    assert (tmp_path / "out" / "run-3" / "ledgers").is_dir()
    first, same, other = (
        default_ledger(deployed, name) for name in ("rows", "rows", "other rows")
    )
    assert first == same != other
    assert {path.parent for path in (first, other)} == {home}
    for partition, files, is_written in (
        (0, "first", True),
        (1, "first", False),
        (1, "all", True),
        (1, None, True),
    ):
        own = run if files is None else run | {"output-files": files}
        assert (
            result_folder(context(own, partition_id=partition)) is not None
        ) is is_written
    assert result_folder(context(run | {"output-files": OutputFiles.FIRST})) is not None
    assert [stream_number(context(partition_id=which)) for which in (0, 3, "3")] == [
        2,
        5,
        987,
    ]


@pytest.mark.usefixtures("simulated")
def test_a_nodes_settings_follow_from_its_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("allow-anything = true\n")
    ledger = {"ledger": str(tmp_path / "ledger")}
    for own, data_id in (
        ({}, "default"),
        ({"data_path": "/rows.csv"}, "/rows.csv"),
        ({"data_path": "/rows.csv", "data_id": "ward 7"}, "ward 7"),
    ):
        for virtual in ({}, {"partition_id": 0}):
            settings = node_settings(context(**ledger, **own, **virtual))
            assert (settings.data_id, settings.simulated, settings.identity) == (
                data_id,
                bool(virtual),
                None,
            )
            assert settings.policy == (ClientPolicy() if virtual else DEPLOYED)
    settings = node_settings(context(**ledger, policy="~/policy.toml"))
    assert (settings.policy.allow_anything, settings.policy.require_secure_noise) == (
        True,
        True,
    )
    assert not node_settings(
        context(**ledger, policy="~/policy.toml", partition_id=0)
    ).policy.require_secure_noise
    assert node_settings(
        context(**ledger, data_path="ray:///rows", data_id="rows")
    ).policy.allowed_units == ("record",)
    for cluster in (
        "ray:///rows",
        "dask:///rows",
    ):  # It would begin a new budget for a table that had one.
        with pytest.raises(ConfigurationError, match="their name in the ledger"):
            node_settings(context(**ledger, data_path=cluster))
    for place in ("~/missing.toml", "~"):
        with pytest.raises(ConfigurationError, match=r"the policy file /.* does"):
            node_settings(context(**ledger, policy=place))
    with pytest.raises(ConfigurationError):
        node_settings(context(**ledger, identity="~/missing"))


# -- tables ----------------------------------------------------------------------------

LARGEST = sys.float_info.max


@pytest.mark.parametrize(
    ("data", "rows", "told"),
    [
        (np.array([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]], ""),
        (np.array([[1.0, np.nan], [3.0, 4.0], [np.inf, 0.0]]), [[3.0, 4.0]],
         "left out rows with a value"),
        (np.array([[np.nan, 2.0], [3.0, -np.inf]]), [],
         "left out ALL rows, each with a value"),
        (np.array([[1, 2]]), [[1.0, 2.0]], ""),
        (pd.DataFrame({"a": [1, None, "x", 4], "b": [1.5, 2.0, 3.0, True]}),
         [[1.0, 1.5], [4.0, 1.0]], "left out rows"),
        ([[np.float32(np.inf), 1.0], [np.float32(2.0), None], [np.float32(3.0), 4.0]],
         [[3.0, 4.0]], "left out rows"),
        # One cell of a list, or of a frame, gave all cells its type, and the node was
        # seen to fail.
        *(
            (
                [[1.0, 2.0], [cell, 0.0], [3.0, 4.0]],
                [[1.0, 2.0], [3.0, 4.0]],
                "left out rows",
            )
            for cell in (
                "x",
                "0.5",
                "",
                1j,
                b"1",
                None,
                [1.0],
                [[1.0], [2.0]],
                Decimal(1),
                np.array([1.0]),
            )
        ),
        ([[1.0, 2.0], [3.0, 4.0], [3.0, 4.0, 5.0], 6.0, "67", [7.0]],
         [[1.0, 2.0], [3.0, 4.0]], "left out rows"),
        ([[np.array(1.0), np.array(2.0)], [np.array(3.0), 4]], [[1.0, 2.0], [3.0, 4.0]],
         ""),
        ([[np.array(1.0), np.array(2.0)], [np.array(3.0), "x"]], [[1.0, 2.0]],
         "left out rows"),
        (((1, 2), [3, 4], np.array([5, 6])), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], ""),
        (pd.DataFrame({"a": [1.0, 1j, 2.0], "b": [3.0, 4.0, 5.0]}),
         [[1.0, 3.0], [2.0, 5.0]], "left out rows"),
        # Beside objects all of its real cells were taken for none.
        (pd.DataFrame({"a": pd.array([1, 2], "Int64"), "b": pd.Series([2.0, 1j])}),
         [[1.0, 2.0]], "left out rows"),
        (np.array([[1.0, 2.0], [LARGEST, 1.0]], dtype=np.longdouble) * [2, 1],
         [[2.0, 2.0]], "left out rows"),
        (pd.DataFrame({"a": [1, 2], "b": [True, False]}), [[1.0, 1.0], [2.0, 0.0]], ""),
        (np.zeros((0, 2)), [], ""),
    ],
)  # fmt: skip
def test_rows_with_a_gap_are_left_out_and_nobody_but_the_log_hears_it(
    data: Any, rows: list[list[float]], told: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    client = client_of(data, tmp_path)
    assert (client.points.tolist(), client.points.shape[1], client.output_dir) == (
        rows,
        2,
        tmp_path,
    )
    assert client.feature_names == (
        ("a", "b") if isinstance(data, pd.DataFrame) else ()
    )
    assert [record.getMessage()[: len(told)] for record in caplog.records] == [
        told
    ] * bool(told)


def test_tables_that_are_none_are_refused_as_ever(tmp_path: Path) -> None:
    for wrong in (
        np.array([1.0, np.nan]),
        np.full((1, 1, 1), np.nan),
        np.array([["a"]]),
    ):
        with pytest.raises(DataError):
            client_of(wrong, tmp_path)
    schema = Schema(columns={"age": {"kind": "number", "bounds": (0, 100)}})
    encoded = schema.encode(pd.DataFrame({"age": [0.0, 50.0]}))
    assert client_of(encoded, tmp_path).schema == schema


def test_a_virtual_clients_part_is_what_the_run_says(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "x": np.arange(12.0),
            "y": np.arange(12.0) % 5,
            "z": 1.0,
            "kind": list("aaabbbcccddd"),
        }
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    source, run = str(tmp_path / "rows.csv"), {"columns": "y, x", "partition-seed": 0}

    def part(which: int, **more: Any) -> list[float]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        table = simulated_part(
            source, run | named, {"partition-id": which, "num-partitions": 4}
        )
        assert table.names == ("x", "y")
        return sorted(table.points[:, 0].tolist())

    whole = simulated_part(source, run | {"label-column": "kind"}, {})
    assert (whole.points[:, 0].tolist(), whole.labels is not None) == (
        frame["x"].tolist(),
        True,
    )
    for looks in ({"n-classes": 4}, {"algorithm": "naive_bayes"}):
        with pytest.raises(DataError, match="no cell of the label column 'kind'"):
            simulated_part(source, run | looks | {"label-column": "kind"}, {})
        assert (
            simulated_part(
                source, {"partition-seed": 0} | looks | {"label-column": "y"}, {}
            ).labels
            is not None
        )
    assert simulated_part(source, run, {"num-partitions": 4}).labels is None
    iid = [part(which) for which in range(4)]
    assert sorted(row for rows in iid for row in rows) == frame["x"].tolist()
    assert iid == [part(which, partition="iid", partition_seed=0) for which in range(4)]
    assert iid != [part(which, partition_seed=1) for which in range(4)]
    assert [
        len(part(which, partition="fixed_sizes", partition_sizes="1,2,3,4"))
        for which in range(4)
    ] == [1, 2, 3, 4]
    assert part(2, partition="one_client_per_value", partition_column="kind") == [
        6.0,
        7.0,
        8.0,
    ]
    own = {"partition": "dirichlet", "partition_column": "kind"}
    drawn = [
        [part(which, **own, **more) for which in range(4)]
        for more in ({}, {"partition_alpha": 0.5})
    ]
    mixed = [
        mixture_of(run).client_points(1).tolist()
        for run in ({}, {"partition-seed": 0}, {"partition-seed": 1})
    ]
    assert mixed[0] == mixed[1] != mixed[2]
    assert (
        drawn[0]
        == drawn[1]
        != [part(which, **own, partition_alpha=50.0) for which in range(4)]
    )


# -- the mod ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RefusalError("No."), Failure(Status.REFUSED, "RefusalError", "No.")),
        (BudgetError("secret"),
         Failure(Status.FAILED, "BudgetError", INTERNAL_SENTENCE)),
        (DataError("secret"), Failure(Status.FAILED, "DataError", TABLE_SENTENCE)),
        (ColumnError("secret", 1, 5), None),
        (KeyError("secret"),
         Failure(Status.FAILED, "InternalError", INTERNAL_SENTENCE)),
    ],
)  # fmt: skip
def test_of_what_goes_wrong_only_a_fixed_sentence_travels(
    error: Exception, failure: Failure | None
) -> None:
    def fails(_: Context) -> None:
        raise error

    told = packet_of(
        answer(RecordDict({}), SecureAggregation(show_logs=fails)).content
    ).failure
    if failure is None:
        assert told is not None
        assert (told.status, told.code) == (Status.FAILED, "ColumnError")
        assert "has not, or not once, column 2 of the schema's 5" in told.sentence
    else:
        assert told == failure


def answer(content: RecordDict | Error, mod: SecureAggregation) -> Message:
    def inner(*_: object) -> Message:
        raise AssertionError("the wrapped client was asked")

    with InProcessGrid([]).running():
        asked = Message(RecordDict({}), 2, "train")
        message = (
            Message(content, reply_to=asked)
            if isinstance(content, Error)
            else Message(content, 2, "train")
        )
        return mod(message, context(), inner)


def wrapped(
    reply: Any, asked: list[Any] | None = None, allowed: tuple[str, ...] = ()
) -> Wrapped:
    """Around a client that replies so."""
    with InProcessGrid([]).running():
        message = Message(
            RecordDict({"of": ConfigRecord({"the": "server"})}), 2, "train"
        )
        message.metadata.__dict__["_message_id"] = "asked"
        answered = (
            reply
            if isinstance(reply, SimpleNamespace)
            else Message(reply, reply_to=message)
        )

    def inner(received: Message, _: Context) -> Any:
        (asked if asked is not None else []).append(received.content)
        return answered

    guard: Any = SimpleNamespace(
        settings=SimpleNamespace(
            policy=ClientPolicy(allowed_columns=allowed), belonging=None
        )
    )
    return Wrapped(message, context(), inner, guard)


def metrics(**values: Any) -> RecordDict:
    return RecordDict({"fitres.metrics": ConfigRecord(values)})


def test_a_wrapped_clients_words_on_its_table() -> None:
    assert wrapped(metrics(n_features=3)).describe() == TableFacts(
        3, (), has_labels=False, schema=""
    )
    told = {
        "feature_names": '["a", "b"]',
        "has_labels": True,
        "has_persons": True,
        "has_weights": True,
        "schema": "ab",
        "used": '["a", "c"]',
    }
    assert wrapped(metrics(n_features=2, **told)).describe() == TableFacts(
        2,
        ("a", "b"),
        has_labels=True,
        schema="ab",
        has_persons=True,
        has_weights=True,
    )
    assert wrapped(metrics(n_features=2, **told), allowed=("a", "c")).describe()[0] == 2
    with pytest.raises(RefusalError, match="allows 1 columns, and its table of 2"):
        wrapped(metrics(n_features=2, **told), allowed=("a",)).describe()
    for wrong in (metrics(), metrics(n_features="3"), RecordDict({})):
        with pytest.raises(LocalMisuseError, match="does not tell its number"):
            wrapped(wrong).describe()


@pytest.mark.parametrize("code", [0, 1, -1])
def test_a_wrapped_clients_failure_is_one_and_its_words_are_not_repeated(
    code: int,
) -> None:
    status = RecordDict(
        {"fitres.status": ConfigRecord({"code": code, "message": "row 7"})}
    )
    if code == 0:
        assert wrapped(status)._call("fit", [], {}) == ([], {})
        return
    with pytest.raises(LocalMisuseError, match=f"failed with status code {code}\\.$"):
        wrapped(status)._call("fit", [], {})


@pytest.mark.parametrize(
    ("has_error", "has_content"),
    [(True, True), (True, False), (False, False)],
    ids=["both", "error", "nothing"],
)
def test_a_wrapped_client_without_an_answer_fails_and_the_message_is_as_it_was(
    has_error: bool, has_content: bool
) -> None:
    reply = SimpleNamespace(
        has_error=lambda: has_error,
        has_content=lambda: has_content,
        content=RecordDict({}),
    )
    around = wrapped(reply)
    with pytest.raises(LocalMisuseError, match="wrapped client answered with an error"):
        around.reply_of_app({})
    assert list(around._message.content) == ["of"]


def test_a_statistic_is_asked_with_what_was_released_before() -> None:
    """Of a preliminary round the ranges so far."""
    arrays = ArrayRecord(
        {
            "0": Array(np.array([1, 2])),
            "_empty": Array(np.zeros(0)),
            "1": Array(np.array([[0.5]])),
        }
    )
    reply, asked = RecordDict({"fitres.parameters": arrays}), list[Any]()
    state = SimpleNamespace(
        arrays={"b": np.ones((1, 2)), "a": np.zeros(1)}, movements=(0.25, 0.5)
    )
    plan = SimpleNamespace(is_preliminary=lambda index: index < 1)
    memory: Any = SimpleNamespace(
        plan=plan,
        plan_blob=b"plan",
        clusters=state,
        discoveries=SimpleNamespace(box=None),
    )
    client = wrapped(reply, asked)
    for index in (0, 1):
        found = client.compute(memory, index)
        assert [(each.dtype, each.tolist()) for each in found] == [
            (np.float64, [1.0, 2.0]),
            (np.float64, [[0.5]]),
        ]
    memory.discoveries.box = ((0.0,), (2.0,))
    client.compute(memory, 0)
    sent = [
        [each.numpy().tolist() for each in one["fitins.parameters"].values()]
        for one in asked
    ]
    assert sent == [[], [[[1.0, 1.0]], [0.0], [0.25, 0.5]], [[0.0], [2.0]]]
    configs = [dict(one["fitins.config"]) for one in asked]
    known = {"task": "statistic", "plan": b"plan"}
    assert configs[0] == configs[2] == known | {"round": 0}
    assert configs[1] == known | {"round": 1, "arrays": json.dumps(["b", "a"])}
    memory.clusters = None
    with pytest.raises(LocalMisuseError, match="before the plan was final"):
        client.compute(memory, 1)


def test_a_client_app_takes_no_mod_that_wraps_another_class() -> None:
    """It would be called as a `KMeansClient` all the same."""
    with pytest.raises(ConfigurationError, match="this mod is for an app of its own"):
        client_app(lambda _: [[0.0, 1.0]], mod=secure_sum_mod)
