"""A deployed node's schema is its own configuration's.

No cell changes what it answers at no charge.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.machine import counting_bytes, replace_entropy
from support.messages import ServerRun, parse_failure
from support.protocol_federation import all_bytes, grid_parts, small_config

from flwr_dpkmeans.flower.client.clean_rows import client_of
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy

SECRET = "s3cr3t"
ROWS = ["0.1,0.2,w1,0", "0.3,0.4,w2,1", "0.5,0.6,w3,1"]
HEADER = "age,income,ward,kind"
FILES = {
    "as it should be": [HEADER, *ROWS],
    "no rows": [HEADER],
    "one row": [HEADER, ROWS[0]],
    "a censored cell": [HEADER, ">89,0.2,w1,0", *ROWS],
    "a number in a text column": [HEADER, "0.1,0.2,007,0", *ROWS],
    "an infinite one": [HEADER, "0.1,0.2,Infinity,0", "1e999,0,w,0", *ROWS],
    "a blank cell in each column": [HEADER, ",0.2,w,0", "0.1,,w,0", "0.1,0.2,,0",
                                    "0.1,0.2,w,", *ROWS],
    "rows of other lengths": [HEADER, "1", "1,2,3,4,5,6", *ROWS],
    "an open quote": [HEADER, '"0.1,0.2,w,0', *ROWS],
    "text only": [HEADER, "a,b,c,d"],
}  # fmt: skip
OWN = {"columns": "age,income", "label-column": "kind"}
RUNS: list[dict[str, Any]] = [
    {"label-column": name, "columns": name, "header": "no"}
    for name in (*HEADER.split(","), "")
]


def answers(
    monkeypatch: pytest.MonkeyPatch, folder: Path, own: dict[str, Any],
    run: dict[str, Any], lines: list[str],
) -> list[bytes]:  # fmt: skip
    """What the server gets of two nodes, the first of which has this file."""
    replace_entropy(monkeypatch, counting_bytes())
    nodes, policy = [], folder / "policy.toml"
    policy.write_text("allow-anything = true\n")
    for index, content in enumerate((lines, FILES["as it should be"])):
        path = folder / f"rows{index}.csv"
        path.write_text("".join(f"{line}\n" for line in content))
        config = {
            "data-path": str(path),
            "ledger": str(folder / f"ledger{index}"),
            "policy": str(policy),
        } | own
        nodes.append(Node(client_app(load_client), config))
    grid = InProcessGrid(nodes, run_id=79, run_config=run)
    config = small_config(n_clusters=2, n_features=None)
    server = ServerRun(config, run_id=79, seed=0, node_ids=grid.get_node_ids())
    with grid.running():
        replies = list(grid.send_and_receive(server.keys_messages()))
    return [all_bytes(reply) for reply in replies] + [
        repr(parse_failure(reply.content)).encode() for reply in replies
    ]


@pytest.mark.parametrize(
    "own", [OWN, {"columns": "age,income"}, OWN | {"header": True}], ids=str
)
def test_no_cell_changes_what_a_node_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, Any]
) -> None:
    expected = answers(monkeypatch, tmp_path, own, {}, FILES["as it should be"])
    assert b"Status.OK" in expected[2]
    for lines in FILES.values():
        assert answers(monkeypatch, tmp_path, own, {}, lines) == expected


def test_the_run_cannot_ask_for_one_column_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = FILES["a blank cell in each column"]
    expected = answers(monkeypatch, tmp_path, OWN, {}, lines)
    assert b"Status.OK" in expected[2]
    for run in RUNS:
        assert answers(monkeypatch, tmp_path, OWN, run, lines) == expected


BROKEN = {
    "names that are a row": ([f">89,{SECRET},w,1", *ROWS], OWN),
    "one name too few": (["age,ward,kind", *ROWS], OWN),
    "an empty file": ([], OWN),
    "nothing declared": (FILES["as it should be"], {}),
    "a label column that is not there": (
        FILES["as it should be"],
        OWN | {"label-column": SECRET},
    ),
}


def test_a_table_that_cannot_be_read_has_one_sentence_and_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = set()
    for lines, own in BROKEN.values():
        with caplog.at_level(logging.WARNING, logger="flwr_dpkmeans"):
            first, _, told, _ = answers(monkeypatch, tmp_path, own, {}, lines)
        assert SECRET.encode() not in first
        assert str(tmp_path).encode() not in first
        found.add((first, told))
    assert len(found) == 1
    assert (
        b"this client's table cannot be read as its configuration says"
        in found.pop()[0]
    )
    assert "columns has 'age', but" in caplog.text


def test_a_row_that_cannot_be_used_is_missing_in_the_sums_alone(tmp_path: Path) -> None:
    results = []
    for lines in (
        FILES["as it should be"],
        FILES["a censored cell"],
        FILES["rows of other lengths"],
    ):
        nodes = []
        for index in range(2):
            (tmp_path / f"rows{index}.csv").write_text("\n".join(lines) + "\n")
            own = {
                "data-path": str(tmp_path / f"rows{index}.csv"),
                "output": str(tmp_path / f"out{index}"),
            }
            ledger = {
                "ledger": str(tmp_path / f"ledger{index}-{len(results)}"),
                "policy": str(tmp_path / "policy.toml"),
            }
            nodes.append(
                Node(client_app(load_client), own | ledger | {"columns": "age,income"})
            )
        (tmp_path / "policy.toml").write_text(
            "allow-anything = true\nallow-non-private = true\nrequire-secure-noise ="
            " false\n"
        )
        config = small_config(n_clusters=2, algorithm="lloyd", n_examples=1000)
        grid = InProcessGrid(nodes, run_id=80 + len(results))
        with grid.running():
            PrivateKMeans.from_config(config, on_step=lambda _: None).start(grid)
        with np.load(
            next((tmp_path / f"out0/run-{grid.run.run_id}").rglob("centroids.npz"))
        ) as archive:
            assert archive["feature_names"].tolist() == ["age", "income"]
            results.append(archive["centroids"])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("names", [(), ("age", "income")])
def test_a_row_of_ones_own_array_that_is_not_finite_is_no_error(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    parts = [
        np.vstack([part, [[np.nan, 0.0], [0.0, np.inf]]])
        for part in grid_parts((40, 40))
    ]
    tables = [
        pd.DataFrame(part, columns=list(names)) if names else part for part in parts
    ]
    settings = [NodeSettings(ClientPolicy(), MemoryLedger(), "rows") for _ in tables]
    nodes = [
        Node(
            client_app(lambda _, t=table: t, mod=SecureAggregation(lambda _, s=own: s)),
            {"output": str(tmp_path / str(index))},
        )
        for index, (table, own) in enumerate(zip(tables, settings, strict=True))
    ]
    grid = InProcessGrid(nodes, run_id=81)
    with grid.running():
        strategy = PrivateKMeans.from_config(
            small_config(n_clusters=2, n_examples=80), on_step=lambda _: None
        )
        assert strategy.start(grid).confirmed
    with np.load(next((tmp_path / "0").rglob("centroids.npz"))) as archive:
        assert tuple(archive["feature_names"]) == names


HOLES: dict[str, Any] = {
    "columns of two types": pd.DataFrame(
        {"a": [1.0, np.nan, np.inf, 0.5], "b": [True, False, True, True]}
    ),
    "whole numbers": pd.DataFrame(
        {"a": pd.array([1, None, None, 2], dtype="Int64"), "b": [1.0, 2.0, 3.0, 4.0]}
    ),
    "objects": np.array(
        [[1.0, 2], [None, 3], ["rare", 1.0], [0.5, np.bool_(True)]], dtype=object
    ),
    "a mask": np.ma.masked_array(np.ones((4, 2)), mask=np.eye(4, 2, -1) > 0),
    "largest": [[sys.float_info.max, 2.0], [None, 1.0], [0.5, -sys.float_info.max]],
    "too large": [[1.0, 2.0], [10**400, 3], [-(10**400), 1], [0.5, 1.0]],
}


@pytest.mark.parametrize("kind", HOLES)
def test_a_gap_in_ones_own_table_is_no_error_whatever_its_columns_are(
    kind: str, tmp_path: Path
) -> None:
    """The server would see that a row has one."""
    assert (
        client_of(HOLES[kind], tmp_path).fit([], {"task": "describe"})[2]["n_features"]
        == 2
    )
    assert len(client_of(HOLES[kind], tmp_path).points) == 2
