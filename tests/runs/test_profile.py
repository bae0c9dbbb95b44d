"""A profile of a party's own rows by cluster.

Right by hand, and never out of the party's folder.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from flwr.app import Context, Message, RecordDict
from support.engines import join_ray

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.files.whole_tables import whole_frame
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.profile import as_frame, profile

SECRET, TOLD = "Xylophagidae", 7331.25
SCHEMA = """[columns]
bmi = { kind = "number", bounds = [10, 50], weight = 0.5 }
age = { kind = "number", bounds = [0, 100] }
"""
POLICY = (
    "allow-anything = true\nallow-non-private = true\nrequire-secure-noise = false\n"
)


def test_shares_means_quantiles_and_commonest_texts_by_hand() -> None:
    columns = {
        "n": [1.0, 3.0, None, 9.0],
        "t": ["x", " y", "x", "z"],
        "i": ["1", "NA", "5", "7"],
    }
    table = pd.DataFrame(
        {**columns, "b": [True, False, True, True], "mixed": ["1", "x", "1", "3"]}
    )
    found = profile(table, np.array([0, 0, 1, -1]), 3).set_index(["cluster", "column"])
    assert found.loc["all", "rows"].tolist() == [3] * 5
    assert found.loc["0", "share"].tolist() == pytest.approx([2 / 3] * 5)
    of_n = found.loc[("0", "n")]
    assert of_n[["count", "mean", "std", "5%", "50%", "95%"]].tolist() == pytest.approx(
        [2, 2, 1, 1.1, 2, 2.9]
    )
    assert found.loc[("all", "t"), "commonest"] == "x (66.7%); y (33.3%)"
    assert found.loc[("1", "t"), ["count", "commonest"]].tolist() == [1, "x (100.0%)"]
    assert found.loc[("all", "i"), ["count", "mean"]].tolist() == [2, 3.0]
    assert found.loc[("0", "b"), "mean"] == 0.5
    assert found.loc[("all", "mixed"), "commonest"] == "1 (66.7%); x (33.3%)"
    assert np.isnan(found.loc[("all", "mixed"), "mean"])
    assert found.loc["2", "rows"].tolist() == [0] * 5
    assert found.loc[("2", "t"), "commonest"] == ""


def test_one_slip_makes_no_text_of_numbers_and_different_texts_are_counted() -> None:
    table = pd.DataFrame(
        {
            "dose": [*map(str, range(20)), "3,5"],
            "note": [f"patient {i}" for i in range(21)],
        }
    )
    found = profile(table, np.zeros(21, dtype=np.int64), 1).set_index(
        ["cluster", "column"]
    )
    assert found.loc[("0", "dose"), ["count", "mean", "commonest"]].tolist() == [
        20,
        9.5,
        "1 cells are no numbers",
    ]
    assert found.loc[("all", "note"), "commonest"] == "21 values, each once"
    table["dose"] = [*map(str, range(18)), *["3,5"] * 3]
    found = profile(table, np.zeros(21, dtype=np.int64), 1).set_index(
        ["cluster", "column"]
    )
    assert found.loc[("0", "dose"), "commonest"].startswith("3,5 (14.3%); ")


class Watched(InProcessGrid):
    """A grid that keeps the bytes of all that is sent."""

    sent: bytes = b""

    def deliver(self, message: Message) -> list[Message]:
        replies = super().deliver(message)
        for one in (message, *replies):
            content = one.content if one.has_content() else {}
            for record in content.values():
                self.sent += repr(record).encode()
                self.sent += b"".join(
                    getattr(value, "data", b"") for value in record.values()
                )
        return replies


def people(seed: int, n: int = 300) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    columns = {
        "note": [SECRET] * n,
        "income": [TOLD] * n,
        "age": generator.normal(50, 20, n).round(1),
    }
    return pd.DataFrame({**columns, "bmi": generator.normal(28, 5, n).round(2)})


@pytest.fixture
def caught() -> Iterator[list[str]]:
    """Every line of every logger."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.getMessage()} {record.__dict__}")

    handler, root = Handler(logging.DEBUG), logging.getLogger()
    level, own = root.level, logging.getLogger("flwr_dpkmeans").level
    for logger in (root, logging.getLogger("flwr_dpkmeans")):
        logger.addHandler(handler)
    root.setLevel(logging.DEBUG)
    logging.getLogger("flwr_dpkmeans").setLevel(logging.DEBUG)
    yield lines
    for logger in (root, logging.getLogger("flwr_dpkmeans")):
        logger.removeHandler(handler)
    root.setLevel(level)
    logging.getLogger("flwr_dpkmeans").setLevel(own)


@pytest.mark.sample(1)
@pytest.mark.parametrize("by_schema", [False, True])
def test_a_nodes_own_file_is_profiled_and_stays_there(
    tmp_path: Path, caught: list[str], by_schema: bool
) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    bounds: Any = str(tmp_path / "schema.toml") if by_schema else ((0, 10), (100, 50))
    (tmp_path / "policy.toml").write_text(POLICY)
    nodes, tables = [], [people(0), people(1)[["age", "bmi"]]]
    for index, table in enumerate(tables):
        table.loc[:9, "age"] = None  # rows that are left out
        table.to_csv(tmp_path / f"rows{index}.csv", index=False, header=not index)
        paths = {
            "data-path": f"rows{index}.csv",
            "output": f"out{index}",
            "ledger": f"ledger{index}",
        }
        own = {
            key: str(tmp_path / name)
            for key, name in {**paths, "policy": "policy.toml"}.items()
        }
        own |= {
            "columns": "age,bmi",
            "header": "no" if index else "yes",
            "profile-columns": "note,income",
        }
        if by_schema:
            own |= {"schema": bounds, "columns": own["columns"] if index else ""}
        nodes.append(Node(client_app(load_client), {**own, "verbose": True}))
    grid = Watched(nodes)
    with grid.running():
        assert (
            FastLloyd(2, bounds=bounds, n_examples=600, max_iter=2)
            .start(grid)
            .confirmed
        )
    (folder,) = (tmp_path / "out0").glob("run-*/client-*")
    found = pd.read_csv(folder / "profile.csv").set_index(["cluster", "column"])
    assert found.loc[("all", "note"), ["rows", "commonest"]].tolist() == [
        290,
        f"{SECRET} (100.0%)",
    ]
    assert found.loc[("all", "income"), "mean"] == TOLD
    # The same in a notebook, and the same labels, by every party's file.
    km = FederatedKMeans.load(folder / "model.json")
    again = pd.read_csv(
        io.StringIO(km.profile(tables[0]).to_csv(index=False))
    ).set_index(["cluster", "column"])
    pd.testing.assert_frame_equal(again.loc[found.index], found)
    (other,) = (tmp_path / "out1").glob("run-*/client-*/model.json")
    assert (
        pd.read_csv(other.with_name("profile.csv"))["column"].tolist()
        == ["age", "bmi"] * 3
    )
    kept = tables[0].dropna()
    assert (
        Model.load(other).predict(kept).tolist()
        == km.predict(kept[["age", "bmi"]]).tolist()
    )
    assert (
        km.predict(kept[["age", "bmi"]]).tolist()
        == Model.load(folder / "model.json").predict(kept).tolist()
    )
    texts = (
        (folder / "model.json").read_text()
        + "".join(caught)
        + grid.sent.decode(errors="replace")
    )
    assert len(grid.sent) > 10_000
    assert len(caught) > 20
    for secret in (
        SECRET,
        str(TOLD),
        np.float64(TOLD).tobytes().decode(errors="replace"),
    ):
        assert secret not in texts


def test_a_table_that_cannot_be_profiled_changes_nothing_else(
    tmp_path: Path, caught: list[str]
) -> None:
    def unreadable() -> Any:
        raise ValueError(SECRET)

    clients = [
        KMeansClient(
            people(0)[["age", "bmi"]], output_dir=tmp_path / "0", table=unreadable
        ),
        KMeansClient(people(1)[["age", "bmi"]], output_dir=tmp_path / "1"),
    ]
    nodes = []
    for client in clients:
        settings = NodeSettings(ClientPolicy(), MemoryLedger(), "default")
        nodes.append(
            Node(
                client_app(
                    lambda _, c=client: c,
                    mod=SecureAggregation(lambda _, s=settings: s),
                )
            )
        )
    grid = Watched(nodes)
    with grid.running():
        assert (
            len(
                FastLloyd(2, bounds=((0, 10), (100, 50)), n_examples=600, max_iter=2)
                .start(grid)
                .confirmed
            )
            == 2
        )
    assert not (tmp_path / "0" / "profile.csv").exists()
    assert set(pd.read_csv(tmp_path / "1" / "profile.csv")["column"]) == {"age", "bmi"}
    assert any("no local profile was written" in line for line in caught)
    assert SECRET not in "".join(caught) + grid.sent.decode(errors="replace")
    model = json.loads((tmp_path / "0" / "model.json").read_text())
    assert (
        model["centroids"]
        == np.load(tmp_path / "0" / "centroids.npz")["centroids"].tolist()
    )


@pytest.mark.parametrize("by_schema", [False, True])
def test_a_simulated_client_profiles_its_own_rows_of_the_file(
    tmp_path: Path, by_schema: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_ray(monkeypatch)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    frame = people(3)
    frame["note"] = [f"row {place}" for place in range(len(frame))]
    if by_schema:
        frame.loc[::3, "bmi"] = None  # left out
    frame.to_csv(tmp_path / "rows.csv", index=False)
    run: dict[str, Any] = {
        "data": str(tmp_path / "rows.csv"),
        "columns": "auto" if by_schema else "bmi,age",
    }
    run |= {"bounds": str(tmp_path / "schema.toml")} if by_schema else {}
    seen: list[str] = []
    for part in range(3):
        client = load_client(
            Context(
                1, 2, {"partition-id": part, "num-partitions": 3}, RecordDict(), run
            )
        )
        assert client.profile_table is not None
        own = client.profile_table()
        points = pd.DataFrame(client.points, columns=list(client.feature_names))["bmi"]
        assert (
            own["bmi"].astype(float).clip(10, 50).tolist()
            == points.clip(10, 50).tolist()
        )
        seen += own["note"].tolist()
    assert sorted(seen) == sorted(frame.dropna()["note"])


def test_columns_of_an_array_have_numbers_unless_they_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0).reshape(3, 2))
    assert whole_frame(open_table(tmp_path / "rows.npy")).to_dict("list") == {
        0: [0.0, 2.0, 4.0],
        1: [1.0, 3.0, 5.0],
    }
    named = whole_frame(
        open_table(tmp_path / "rows.npy"), names=("a", "b"), rows=[2, 0]
    )
    assert named.to_dict("list") == {"a": [4.0, 0.0], "b": [5.0, 1.0]}
    assert as_frame(pa.table({"a": [1.0], "b": ["x"]})).to_dict("list") == {
        "a": [1.0],
        "b": ["x"],
    }


def test_rows_that_an_own_app_has_encoded_are_profiled_as_they_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema = Schema.load(tmp_path / "schema.toml")
    encoded = [schema.encode(people(seed)) for seed in range(2)]
    km = FederatedKMeans(2, bounds=schema, engine="direct").fit(encoded)
    client = KMeansClient(encoded[0].points, schema=schema)
    found = client.profile(km.model_)
    assert found["column"].tolist() == ["bmi", "age"] * 3
    assert found["rows"].tolist()[::2] == [
        300,
        *np.bincount(km.predict(encoded[0]), minlength=2),
    ]


@pytest.mark.parametrize(
    ("stated", "columns"),
    [
        ("", ["age", "bmi"]),
        ("note", ["note", "age", "bmi"]),
        ("note, gone", ["note", "age", "bmi"]),
        ("*", ["note", "income", "age", "bmi"]),
    ],
)
@pytest.mark.parametrize("by_schema", [False, True])
def test_a_profile_describes_the_columns_that_the_owner_states(
    tmp_path: Path, stated: str, columns: list[str], by_schema: bool
) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    people(0).to_csv(tmp_path / "rows.csv", index=False)
    own = {"data-path": str(tmp_path / "rows.csv"), "profile-columns": stated}
    own |= (
        {"schema": str(tmp_path / "schema.toml")}
        if by_schema
        else {"columns": "bmi,age"}
    )
    client = load_client(Context(1, 2, own, RecordDict(), {}))
    assert client.profile_table is not None
    assert list(client.profile_table().columns) == columns


_ASIDE = """
import os, signal, sys, time
from pathlib import Path

import numpy as np

from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.node.guard import NodeSettings
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import ClientPolicy

folder, kind = Path(sys.argv[1]), sys.argv[2]
sys.argv[0] = "guarded flwr-clientapp"
points = np.random.default_rng(0).uniform(0, 1, (300, 2))


def table():
    import pandas as pd

    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "takes all memory":
        return bytearray(3 << 30)
    while kind == "takes long" and not (folder / "go").exists():
        time.sleep(0.05)
    (folder / "by").write_text(f"{os.getpid()} {os.nice(0)}")
    frame = pd.DataFrame({"x0": points[:, 0], "x1": points[:, 1], "note": ["a"] * 300})
    if kind not in (".csv", ".parquet"):
        return frame
    from flwr_dpkmeans.data.files.reader import open_table
    from flwr_dpkmeans.data.files.whole_tables import whole_frame

    file = folder / f"rows{kind}"
    frame.to_csv(file, index=False) if kind == ".csv" else frame.to_parquet(file)
    return whole_frame(open_table(file))


nodes = []
for number in range(2):
    own = {"output_dir": folder / str(number), "feature_names": ("x0", "x1")}
    tables = {"table": table} if number == 0 else {}
    client = KMeansClient(points, **tables, **own)
    settings = NodeSettings(ClientPolicy(), MemoryLedger(), "rows")
    mod = SecureAggregation(lambda _, s=settings: s)
    nodes.append(Node(client_app(lambda _, c=client: c, mod=mod)))
grid = InProcessGrid(nodes)
with grid.running():
    strategy = FastLloyd(2, bounds=((0, 0), (1, 1)), n_examples=600, max_iter=2)
    result = strategy.start(grid)
print("CONFIRMED", len(result.confirmed), os.getpid(), flush=True)
"""


@pytest.mark.sample(2)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limits")
@pytest.mark.parametrize(
    "kind", ["is fine", ".csv", ".parquet", "dies", "takes all memory", "takes long"]
)
def test_what_a_profile_costs_decides_nothing_of_the_reply(
    tmp_path: Path, kind: str
) -> None:
    """A death after payment would tell of rows."""
    words = [sys.executable, "-c", _ASIDE, str(tmp_path), kind]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    log = (tmp_path / "log").open("wb")
    done = subprocess.run(
        words, env=environment, stdout=log, stderr=log, check=False, timeout=300.0
    )
    said = (tmp_path / "log").read_text()
    assert done.returncode == 0, said
    _, n_confirmed, process = next(
        line for line in said.splitlines() if line.startswith("CONFIRMED")
    ).split()
    assert n_confirmed == "2"
    assert (tmp_path / "0" / "report.html").exists()
    profile_file = tmp_path / "0" / "profile.csv"
    if kind == "takes long":
        assert not profile_file.exists()
        (tmp_path / "go").touch()
    if kind in ("is fine", ".csv", ".parquet", "takes long"):
        _wait_for(
            lambda: (
                "note" in (tmp_path / "0" / "report.html").read_text()
                and profile_file.exists()
            )
        )
        assert set(pd.read_csv(profile_file)["column"]) == {"x0", "x1", "note"}
        by, niceness = (tmp_path / "by").read_text().split()
        assert by != process
        assert int(niceness) >= 19
    elif kind == "takes all memory":
        _wait_for(
            lambda: (
                "no local profile was written: MemoryError"
                in (tmp_path / "log").read_text()
            )
        )
        assert not profile_file.exists()
    _wait_for((tmp_path / "1" / "profile.csv").exists)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
