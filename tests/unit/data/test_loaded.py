"""A table is parsed once in a process, and again when its file changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from flwr_dpkmeans.data.bundled import MOST_TABLES
from flwr_dpkmeans.data.loading.source import load_source_once
from flwr_dpkmeans.errors import DataError


def write(path: Path, first: float) -> str:
    path.write_text(f"a,b\n{first},1\n2,3\n")
    return str(path)


def test_a_file_is_parsed_once_and_shared_read_only(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", 0.0)
    table = load_source_once(source)
    assert load_source_once(source) is table
    with pytest.raises(ValueError, match="read-only"):
        table.points[0, 0] = 5.0


def test_a_changed_file_is_parsed_again(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", 0.0)
    load_source_once(source)
    before = os.stat(source)
    write(tmp_path / "t.csv", 7.0)
    # The same size, only the time of change tells.
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert load_source_once(source).points[0, 0] == 7.0


def test_other_columns_are_another_table() -> None:
    plain, labelled = (
        load_source_once("iris"),
        load_source_once("iris", partition_column="target"),
    )
    assert plain.partition_values is None
    assert labelled.partition_values is not None
    assert not labelled.partition_values.flags.writeable
    np.testing.assert_array_equal(plain.points, labelled.points)
    assert load_source_once("iris") is plain


def test_memory_is_bounded(tmp_path: Path) -> None:
    """The oldest table is forgotten once so many newer ones were asked for."""
    sources = [write(tmp_path / f"t{i}.csv", i) for i in range(MOST_TABLES + 1)]
    tables = [load_source_once(source) for source in sources]
    assert load_source_once(sources[-1]) is tables[-1]
    assert load_source_once(sources[0]) is not tables[0]


def test_one_relative_path_in_two_folders_is_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / "t.csv", number)
        os.utime(folder / "t.csv", ns=(1, 1))
        monkeypatch.chdir(folder)
        assert load_source_once("t.csv").points[0, 0] == number


def test_a_failure_is_not_remembered(tmp_path: Path) -> None:
    source = str(tmp_path / "t.csv")
    with pytest.raises(DataError):
        load_source_once(source)
    write(tmp_path / "t.csv", 1.0)
    assert load_source_once(source).points.shape == (2, 2)
