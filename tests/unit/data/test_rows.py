"""Rows beyond memory: the same bits as in memory, in files of their owner's that do not
stay.
"""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.limits import SetLimits
from support.machine import replace_call, replace_user

from flwr_dpkmeans import FederatedKMeans, federate
from flwr_dpkmeans.data import rows
from flwr_dpkmeans.data.files import raw_table
from flwr_dpkmeans.data.files.raw_column import RawColumn, joined_column
from flwr_dpkmeans.data.files.split_column import values_of
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.store import Store
from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.errors import DataError, LocalMisuseError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient

N = 303
FRAME = pd.DataFrame(
    {
        "b": np.random.default_rng(1).normal(size=N).astype(np.float32),
        "kind": np.random.default_rng(2).choice(["x", "y", "?"], N),
        "a": np.random.default_rng(0).normal(size=N),
        "class": np.arange(N) % 3,
        "note": [None] * 200 + ["text"] * (N - 200),
    }
)
FRAME.loc[[0, 99, 100, N - 1], "a"] = np.nan
SCHEMA = Schema(
    columns={
        "a": {"kind": "number", "bounds": (-2, 2), "missing": "centre"},
        "kind": {"kind": "category", "values": ["x", "y"]},
    }
)
LAYOUT = Layout.of("a,b", "class")


def declared(path: Path, store: Store) -> Table:
    return load_declared(path, LAYOUT, store)


def by_schema(path: Path, store: Store) -> Table:
    return load_by_schema(path, SCHEMA, Layout(label_column="class"), store)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """One table as a file, as two files of other types and orders, as text."""
    FRAME.to_parquet(tmp_path / "one.parquet", row_group_size=30)
    (tmp_path / "parts").mkdir()
    FRAME[:200].to_parquet(tmp_path / "parts" / "0.parquet")
    FRAME[200:][["class", "a", "note", "b", "kind"]].astype(
        {"class": float}
    ).to_parquet(tmp_path / "parts" / "1.parquet")
    FRAME.to_csv(tmp_path / "one.csv", index=False)
    return [tmp_path / "one.parquet", tmp_path / "parts", tmp_path / "one.csv"]


@pytest.mark.sample(6)
@pytest.mark.parametrize("load", [declared, by_schema])
@pytest.mark.parametrize("block", [1, 7, 100, N])
def test_a_table_has_the_same_bits_however_it_is_read(
    load: Callable[[Path, Store], Table], block: int, files: list[Path], tmp_path: Path,
    set_limits: SetLimits,
) -> None:  # fmt: skip
    whole = load(files[0], Store())
    assert isinstance(whole.points, np.ndarray)
    by_hand = (
        FRAME[FRAME["a"].notna()] if load is declared else FRAME[FRAME["kind"] != "?"]
    )
    assert (
        whole.points[:, 0].tolist()
        == by_hand["a"]
        .fillna(0.0)
        .clip(*((-9, 9), (-2, 2))[load is by_schema])
        .tolist()
    )
    assert whole.labels is not None
    assert whole.labels.tolist() == by_hand["class"].tolist()
    set_limits(rows_read=block, table_bytes=100, window_numbers=50)
    for path in files if block > 1 else files[:1]:
        store = Store(tmp_path / "rows", f"{path.name}x")
        for table in (
            load(path, store),
            load(Path("/nowhere.csv"), store),
        ):  # the second from what the first kept
            assert isinstance(table.points, Rows)
            assert isinstance(table.labels, Rows)
            assert table.names == whole.names
            np.testing.assert_array_equal(np.asarray(table.labels), whole.labels)
            if path.suffix != ".csv":
                assert np.asarray(table.points).tobytes() == whole.points.tobytes()
            chosen = np.flatnonzero(np.arange(len(whole.points)) % 3 == 1)
            np.testing.assert_allclose(
                np.asarray(table.part(chosen).points), whole.points[chosen], atol=1e-7
            )


def test_a_simulated_table_is_the_same_and_its_gaps_are_counted_in_all_blocks(
    files: list[Path], set_limits: SetLimits
) -> None:
    whole = load_table(
        files[0], label_column="class", partition_column="kind", columns=["b"]
    )
    set_limits(rows_read=100, table_bytes=100)
    found = load_table(
        files[1], label_column="class", partition_column="kind", columns=["b"]
    )
    assert np.asarray(found.points).tobytes() == whole.points.tobytes()
    assert found.partition_values is not None
    assert found.partition_values.tolist() == FRAME["kind"].tolist()
    assert load_table(files[1], ignored=["a", "kind", "class"]).names == (
        "b",
    )  # what is null in one file is no number
    kept = load_by_schema(files[1], SCHEMA)
    assert kept.rows is not None
    assert kept.rows.tolist() == np.flatnonzero(FRAME["kind"] != "?").tolist()
    with pytest.raises(DataError, match=r"'a' of .* has 4 rows with a value"):
        load_table(files[0], columns=["a"])


PARTS = [np.random.default_rng(9).normal(size=(n, 3)).round(3) for n in (900, 700, 1)]


@pytest.mark.parametrize(
    ("algorithm", "engine"),
    [("proxy_lloyd", "direct"), ("feddp_kmeans", "direct"), ("fastlloyd", "inprocess")],
)
def test_a_fit_has_the_same_bits_in_blocks(
    algorithm: str, engine: str, set_limits: SetLimits
) -> None:
    def fit() -> bytes:
        known: dict[str, Any] = (
            {"server_data": PARTS[0][:40]} if algorithm == "feddp_kmeans" else {}
        )
        if algorithm == "proxy_lloyd":
            known = {"bounds": "private", "n_examples": "private"}
        given = {
            "bounds": (-3, 3),
            "epsilon": 30.0,
            "noise": "seeded",
            "random_state": 1,
            **known,
        }
        km = FederatedKMeans(3, algorithm=algorithm, engine=engine, **given).fit(PARTS)
        return bytes(km.cluster_centers_.tobytes())

    whole = fit()
    set_limits(table_bytes=100, block_bytes=8 * 3 * 70)
    assert fit() == whole


@pytest.mark.parametrize("task", ["moments", "histograms", "naive_bayes"])
def test_a_statistic_has_the_same_bits_in_blocks(
    task: str, set_limits: SetLimits
) -> None:
    labels = (
        [np.arange(len(part)) % 2 for part in PARTS] if task == "naive_bayes" else None
    )
    more: dict[str, Any] = {"classes": 2} if labels else {}

    def found() -> list[bytes]:
        given = {
            "bounds": (-3, 3),
            "noise": "seeded",
            "random_state": 1,
            "labels": labels,
            **more,
        }
        return [
            array.tobytes()
            for array in federate(task, PARTS, **given).result.arrays.values()
        ]

    whole = found()
    set_limits(table_bytes=100, block_bytes=8 * 3 * 7)
    assert found() == whole


def test_a_client_gives_columns_in_the_agreed_order_and_deletes_its_rows(
    set_limits: SetLimits,
    tmp_path: Path,
) -> None:
    table = np.arange(12.0).reshape(4, 3)
    store = Store(tmp_path, "run")
    store_of_all = Store(tmp_path, "run")
    set_limits(table_bytes=8)
    kept = store.keep([table[:3], table[3:]], "a table")
    client = KMeansClient(kept, feature_names=["x", "y", "z"])
    assert client.fit([], {"task": "describe"})[2]["n_features"] == 3
    np.testing.assert_array_equal(
        np.asarray(client.points[:, [2, 0]]), table[:, [2, 0]]
    )
    assert store_of_all.stored() is not None
    kept[:, :2].then(np.square).forget()
    kept.forget()
    assert store_of_all.stored() is None
    assert np.asarray(kept).tolist() == table.tolist()  # whoever reads goes on


KEEPER = """
import sys, time
import numpy as np
from pathlib import Path
from flwr_dpkmeans.resources import ResourceLimits, resource_limits
from flwr_dpkmeans.data.store import Store
low = resource_limits(ResourceLimits(table_bytes=100))
low.__enter__()
def blocks():
    for _ in range(3):
        yield np.ones((50, 2))
    print("reading", flush=True)
    if sys.argv[2] == "killed":
        time.sleep(60)
Store(Path(sys.argv[1]), sys.argv[2]).keep(blocks(), "t")
"""


def test_files_are_private_and_go_with_their_run_or_an_hour_after_a_kill(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    folder = tmp_path / "rows"
    keepers = [
        subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(folder), name], stdout=subprocess.PIPE
        )
        for name in ("killed", "first", "first", "second")
    ]
    for one in keepers[1:]:  # two runs at once, and one of them twice
        assert one.wait(60) == 0
    assert keepers[0].stdout is not None
    assert keepers[0].stdout.readline() == b"reading\n"
    keepers[0].send_signal(signal.SIGKILL)
    keepers[0].wait(60)
    left = sorted(folder.iterdir())
    assert [path.name for path in left][:2] != []
    assert {stat.S_IMODE(path.stat().st_mode) for path in left} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {"first-150-2.rows", "second-150-2.rows"} < {
        path.name for path in left
    }  # and what the killed one left
    set_limits(table_bytes=100)
    for path in left:
        if path.name != "second-150-2.rows":
            os.utime(path, (0, time.time() - 3601))
    # Also where the run that finds them has a small table.
    assert Store(folder, "third").stored() is None
    kept = Store(folder, "third").keep([np.ones((50, 2))], "t")
    del kept
    assert sorted(path.name for path in folder.iterdir()) == [
        "second-150-2.rows",
        "third-50-2.rows",
    ]
    assert np.asarray(Store(folder, "second").stored()).shape == (150, 2)
    # What cannot be deleted, and names of another version, keep nobody from the own
    # rows.
    (folder / "other.rows").mkdir()
    os.utime(folder / "other.rows", (0, 0))
    (folder / "second-2.rows").touch()
    assert np.asarray(Store(folder, "second").stored()).shape == (150, 2)
    (folder / "other.rows").rmdir()
    (folder / "second-2.rows").unlink()
    os.truncate(folder / "second-150-2.rows", 800)
    assert Store(folder, "second").stored() is None
    assert sorted(path.name for path in folder.iterdir()) == ["third-50-2.rows"]
    with pytest.raises(DataError, match="t was replaced as it was read, 2 columns"):
        Store(folder, "other").keep([np.ones((50, 2)), np.ones((9, 3))], "t")
    assert isinstance(
        Store(folder, "off", keeps=False).keep([np.ones((50, 2))], "t"), np.ndarray
    )


@pytest.mark.parametrize("columns", ["a,b,class", "class,a,b"])
def test_a_label_among_the_columns_is_none_of_the_kept_points(
    columns: str, tmp_path: Path, set_limits: SetLimits
) -> None:
    """A second process found three names of two columns."""
    set_limits(table_bytes=100)
    table = pd.DataFrame(
        {"a": np.arange(50.0), "b": np.arange(50.0), "class": np.arange(50) % 3}
    )
    table[columns.split(",")].to_csv(tmp_path / "t.csv", index=False)
    found = [
        load_declared(
            tmp_path / "t.csv",
            Layout.of(columns, "class"),
            Store(tmp_path / "kept", "x"),
        )
        for _ in range(2)
    ]
    assert [one.names for one in found] == [("a", "b")] * 2
    assert found[0].points[:].tolist() == found[1].points[:].tolist()


def test_a_file_that_is_cut_off_or_finds_no_room_is_one_sentence(
    files: list[Path],
    tmp_path: Path,
    set_limits: SetLimits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    np.save(tmp_path / "t.npy", np.zeros((100, 2)))
    set_limits(table_bytes=100)
    for path in (files[0], tmp_path / "t.npy"):
        path.write_bytes(path.read_bytes()[:-600])
        with pytest.raises(
            DataError, match=rf"'{path}' cannot be read as {path.suffix}"
        ):
            load_declared(path, Layout() if path.suffix == ".npy" else LAYOUT)
    (tmp_path / "taken").write_text("")
    # An answer would tell that the rows are so many, and not one fewer: they stay in
    # memory, which the own log says.
    whole = load_declared(files[2], LAYOUT, Store(tmp_path / "kept", "x")).points
    found = load_declared(
        files[2], LAYOUT, Store(tmp_path / "taken" / "rows", "x")
    ).points
    assert isinstance(found, np.ndarray)
    assert found.tolist() == whole[:].tolist()
    assert any(
        "as none can be kept in" in record.getMessage() for record in caplog.records
    )


def test_a_column_of_several_blocks_has_their_numbers_and_no_text_is_read() -> None:
    def never() -> list[str | None]:
        raise AssertionError("numbers need no text")

    parts = [
        RawColumn("a", np.array(values), 1, never) for values in ([1.0, 2.0], [3.0])
    ]
    whole = joined_column(parts)
    assert (whole.numbers().tolist(), whole.n_unparsable) == ([1.0, 2.0, 3.0], 2)
    assert (
        joined_column([parts[0], RawColumn("a", None, 0, lambda: ["x"])]).values is None
    )


@pytest.mark.parametrize(
    ("shape", "between", "cuts"),
    [
        ((0, 3), (), []),
        ((3, 2**17), (), [(0, 1), (1, 2), (2, 3)]),
        ((2, 2**15 + 1), (), [(0, 1), (1, 2)]),
        ((5, 2**15), (), [(0, 2), (2, 4), (4, 5)]),
        ((5, 2**15), (1, 4), [(1, 3), (3, 4)]),
        ((5, 2**14, 2), (4,), [(4, 5)]),
        ((2**16 + 1,), (), [(0, 2**16), (2**16, 2**16 + 1)]),
        ((2**16, 0), (), [(0, 2**16)]),
    ],
)
def test_a_window_has_as_many_whole_rows_as_65536_numbers_are_and_at_least_one(
    shape: tuple[int, ...], between: tuple[int, ...], cuts: list[tuple[int, int]]
) -> None:
    assert [(one.start, one.stop) for one in rows.windows(shape, *between)] == cuts


def test_a_table_of_over_16_mebibytes_is_large() -> None:
    assert list(
        map(rows.is_large, [(2**21,), (2**20, 2), (2**21 + 1,), (2**20 + 1, 2)])
    ) == [False, False, True, True]


def test_a_block_has_65536_rows_or_262144_cells_and_at_least_one_row() -> None:
    widths = [0, 1, 4, 5, 2**17, 2**17 + 1, 2**18, 2**18 + 1]
    assert list(map(raw_table.block_rows, widths)) == [
        65536, 65536, 65536, 52428, 2, 1, 1, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("label", ["", "class"])
def test_rows_that_are_kept_have_labels_only_where_a_column_of_them_is_named(
    label: str, tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(table_bytes=64)
    path = tmp_path / "t.csv"
    path.write_text(
        "a,b,class\n" + "".join(f"{row},{row + 0.5},{row % 3}\n" for row in range(6))
    )
    schema = Schema(
        columns={name: {"kind": "number", "bounds": (0, 9)} for name in "ab"}
    )
    for place in (0, 1):
        store = Store(tmp_path / "new" / "rows", f"run{place}")
        for source in (path, tmp_path / "gone.csv"):
            own = Layout(("a", "b") * (not place), label)
            table = (
                load_by_schema(source, schema, own, store)
                if place
                else load_declared(source, own, store)
            )
            assert np.asarray(table.points).tolist() == [
                [row, row + 0.5] for row in range(6)
            ]
            assert (None if table.labels is None else list(table.labels[:])) == (
                [0, 1, 2, 0, 1, 2] if label else None
            )


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (RawColumn("c", np.array([1.0, 2.0])), [1.0, 2.0]),
        (RawColumn("c", None, text=lambda: ["1", "2.0"]), [1.0, 2.0]),
        (RawColumn("c", None, text=lambda: ["1", "x"]), ["1", "x"]),
        (RawColumn("c", np.array([1.0, np.nan]), 1, lambda: ["1", "x"]), ["1", "x"]),
        (RawColumn("c", np.array([1.0, np.nan])),
         "has 1 rows with a value that is missing or infinite"),
        (RawColumn("c", np.array([-np.inf, np.nan])),
         "has 2 rows with a value that is missing or infinite"),
        (RawColumn("c", None, text=lambda: [None, "x"]),
         "has 1 rows with a value that is missing or infinite"),
        (RawColumn("c", np.array([1.0])), "that is not 2 numbers or texts"),
    ],
)  # fmt: skip
def test_rows_are_split_by_numbers_where_there_is_nothing_else(
    column: RawColumn, values: Any
) -> None:
    if isinstance(values, str):
        with pytest.raises(DataError, match=values):
            values_of([column], "c", 2, "t.csv")
    else:
        found = values_of([column], "c", 2, "t.csv")
        assert found is not None
        assert found.tolist() == values


def test_rows_that_are_kept_are_for_their_user_alone_in_a_folder_that_was_open(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(table_bytes=64)  # eight numbers
    folder = tmp_path / "rows"
    folder.mkdir(mode=0o755)
    table = np.arange(10.0).reshape(5, 2)
    assert isinstance(
        Store(folder, "few").keep([table[:2], table[2:4]], "t"), np.ndarray
    )
    assert Store(folder, "few").keep([few := table[:4]], "t") is few
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    kept = Store(folder, "run").keep([table[:2], table[2:]], "t")
    assert [kept.shape, kept[1:3].tolist(), kept[5:].shape] == [
        (5, 2),
        table[1:3].tolist(),
        (0, 2),
    ]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.glob("run-5-2.rows")
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_size) == (0o600, 80)
    assert Store(folder, "run", keeps=False).stored() is None


def test_how_many_rows_are_read_is_said_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter([100.0, 104.0, 110.0, 112.0, 122.0, 122.5])
    replace_call(monkeypatch, "monotonic", lambda: next(clock), of=time)
    with caplog.at_level("INFO", logger="flwr_dpkmeans"):
        Store().keep([np.ones((3, 1))] * 5, "t")
    told = ["t: 9 rows read, 0.75 a second", "t: 15 rows read, 0.667 a second"]
    assert [record.message for record in caplog.records] == told


@pytest.mark.parametrize(
    ("name", "in_folder"), [("run", False), ("", True), ("", False)]
)
def test_rows_are_kept_for_later_processes_by_a_name_in_a_folder_only(
    name: str, in_folder: bool, tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(table_bytes=64)
    store = Store(tmp_path / "rows" if in_folder else None, name)
    kept = store.keep([np.ones((5, 2))], "t")
    assert (type(kept), np.asarray(kept).tolist()) == (Rows, [[1.0, 1.0]] * 5)
    assert [path.name for path in tmp_path.glob("*/*-*-2.rows")] == []
    if not in_folder:
        assert store.stored() is None
        store.forget()
        kept.forget()


def test_chosen_rows_that_are_many_are_no_array_either(
    set_limits: SetLimits,
) -> None:
    table, index = np.arange(20.0).reshape(10, 2), np.array([1, 3, 4, 8, 9])
    set_limits(table_bytes=64)  # eight numbers
    chosen = strict(table)[index]
    assert (type(chosen), chosen[:].tolist()) == (Rows, table[index].tolist())
    assert isinstance(strict(table)[index[:4]], np.ndarray)


def strict(table: np.ndarray) -> Rows:
    """Rows that are read within their table, as `Rows.read` promises."""

    def read(asked: slice) -> np.ndarray:
        assert asked.step is None
        assert 0 <= asked.start <= asked.stop <= len(table)
        return table[asked]

    return Rows(table.shape, read)


@pytest.mark.parametrize("index", [[], [0], [4], [0, 4], [0, 1, 2, 3, 4], [1, 3]])
def test_no_row_is_read_that_is_not_there(index: list[int]) -> None:
    table = np.arange(10.0).reshape(5, 2)
    assert (
        strict(table)[np.array(index, dtype=np.int64)].tolist() == table[index].tolist()
    )
    assert strict(table)[-2:].tolist() == table[-2:].tolist()
    empty = strict(np.zeros((0, 3))).then(lambda block: block[:, :1])
    assert (empty.shape, empty[:].shape) == ((0, 1), (0, 1))
    both = strict(table).beside(table[:, :1])
    assert (both.shape, both[3:].tolist()) == (
        (5, 3),
        [[6.0, 7.0, 6.0], [8.0, 9.0, 8.0]],
    )


@pytest.mark.parametrize(
    "index",
    [
        slice(None, None, 2),
        slice(None, None, -1),
        (slice(0, 2), 0),
        (np.array([0, 1]), 0),
        np.array([3, 1]),
        np.array([0, 5]),
        np.array([-1, 0]),
        np.array([True, False, True, False, False]),
    ],
    ids=str,
)
def test_an_index_that_blocks_cannot_answer_is_refused(index: Any) -> None:
    """Steps were ignored, and rows out of order were what memory held before."""
    with pytest.raises(LocalMisuseError, match="from the first to the last"):
        strict(np.arange(10.0).reshape(5, 2))[index]


def test_files_of_others_do_not_stop_a_node_and_the_newest_rows_are_taken(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    """A name with other words for numbers was an error; of two, any one was read."""
    set_limits(table_bytes=64)
    store = Store(tmp_path, "run")
    (tmp_path / "run-x-y.rows").write_text("")
    assert store.stored() is None
    for n_rows, age in ((5, 20), (7, 0), (6, 10)):
        store.keep([np.ones((n_rows, 2))], "t")
        moment = time.time() - age
        os.utime(tmp_path / f"run-{n_rows}-2.rows", (moment, moment))
    for name in ("run-9-9-x.rows", "other-run-3-2.rows"):
        (tmp_path / name).write_text("")
    assert store.stored().shape == (7, 2)


def test_a_file_that_was_cut_short_is_closed_and_goes(
    tmp_path: Path, set_limits: SetLimits, recwarn: pytest.WarningsRecorder
) -> None:
    set_limits(table_bytes=64)
    store = Store(tmp_path, "run")
    store.keep([np.ones((5, 2))], "t")
    file = tmp_path / "run-5-2.rows"
    file.write_bytes(file.read_bytes()[:-8])
    warnings.simplefilter("always", ResourceWarning)
    assert store.stored() is None
    gc.collect()
    assert not [warned for warned in recwarn if warned.category is ResourceWarning]
    assert not file.exists()


def test_a_source_that_fails_is_not_said_to_lack_room(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    """Whoever read "free space there" looked at the wrong disk."""
    set_limits(table_bytes=64)

    def blocks() -> Iterator[np.ndarray]:
        yield np.ones((5, 2))
        raise TimeoutError("the share is gone")

    with pytest.raises(TimeoutError, match="the share is gone"):
        Store(tmp_path, "run").keep(blocks(), "t")


def _opened_to_others(folder: Path) -> None:
    (file,) = folder.glob("*.rows")
    file.chmod(0o644)


def _folder_opened_to_others(folder: Path) -> None:
    folder.chmod(0o755)


def _linked(folder: Path) -> None:
    (file,) = folder.glob("*.rows")
    file.symlink_to(file.rename(folder / "elsewhere"))


def _piped(folder: Path) -> None:
    (file,) = folder.glob("*.rows")
    file.unlink()
    os.mkfifo(file, 0o600)


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows has neither owners as numbers nor such modes",
)
@pytest.mark.parametrize(
    "plant", [_opened_to_others, _folder_opened_to_others, _linked, _piped]
)
def test_rows_that_another_user_could_have_put_there_are_left_alone(
    plant: Callable[[Path], None], tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(table_bytes=100)
    store = Store(tmp_path / "rows", "run")
    store.keep([np.ones((50, 2))], "t")
    assert np.asarray(store.stored()).shape == (50, 2)
    plant(tmp_path / "rows")
    assert store.stored() is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no owners as numbers")
def test_rows_of_another_user_do_not_stand_in_for_the_own_ones(
    tmp_path: Path, set_limits: SetLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(table_bytes=100)
    store = Store(tmp_path / "rows", "run")
    store.keep([np.ones((50, 2))], "t")
    replace_user(monkeypatch, lambda: (tmp_path.stat().st_uid or 1) + 7)
    assert store.stored() is None
