"""One file is one table at every door: simulation, Hydra, node, schema, draft, check and prediction."""

from __future__ import annotations

import bz2
import gzip
import logging
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flwr_dpkmeans import Schema
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.bundled import load_source
from flwr_dpkmeans.data.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.schema import say_once
from flwr_dpkmeans.data.tables import Layout, load_by_schema, load_declared
from flwr_dpkmeans.errors import DataError

NAMES = ("age", "kg")
ROWS = [[30.0 + i, 60.5 + i] for i in range(40)]
LINES = [f"{age:g},{kg:g}" for age, kg in ROWS]


def text_of(lines: list[str], header: str = "age,kg") -> str:
    return "\n".join([header, *lines]) + "\n"


@dataclass(frozen=True)
class File:
    """A file, and the table that every door must find in it."""

    content: str | bytes
    rows: list[list[float]] = field(default_factory=lambda: ROWS)
    names: tuple[str, str] = NAMES
    n_records: int = 40
    doubt: str = ""
    name: str = "table.csv"
    dialect: Dialect = UNSTATED

    def written(self, folder: Path) -> Path:
        path = folder / self.name
        content = self.content
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


NOTE = "\n".join(f"{i},{i}" for i in range(60))
GERMAN = Dialect(separator=";", decimal=",", thousands=".")

FILES = {
    "plain": File(text_of(LINES)),
    "without an end": File(text_of(LINES).rstrip("\n")),
    "lines of Windows": File(text_of(LINES).replace("\n", "\r\n")),
    "lines of old Macs": File(text_of(LINES).replace("\n", "\r")),
    "a line break in a name": File(text_of(LINES, 'age,"kg\n(at night)"'), names=("age", "kg\n(at night)")),
    "a text cell with an unclosed quote": File(
        text_of([f'{line},"note' if i % 10 == 0 else f"{line},note" for i, line in enumerate(LINES)], "age,kg,note"),
        rows=[row for i, row in enumerate(ROWS) if i % 10],
        doubt="4 of 40 records are left out: they have a quote that does not close",
    ),
    "a separator at the end of each record": File(
        text_of([f"{line}," for line in LINES]), doubt="40 records end with a separator"
    ),
    "a separator at the end of each line": File(text_of([f"{line}," for line in LINES], "age,kg,")),
    "names of rows as R writes them": File(
        text_of([f'"{i}",{line}' for i, line in enumerate(LINES)], '"age","kg"'),
        doubt="40 records have one cell more than the header, and begin with it",
    ),
    "stated names of rows": File(
        text_of([f"r{i},{line}" for i, line in enumerate(LINES)]), dialect=Dialect(row_names=True)
    ),
    "an index as pandas writes it": File(text_of([f"{i},{line}" for i, line in enumerate(LINES)], ",age,kg")),
    "a name that is a number in Python's eyes": File(text_of(LINES, "inf,kg"), names=("inf", "kg")),
    "names without letters": File(text_of(LINES, "25%,0-9"), names=("25%", "0-9")),
    "stated years": File(text_of(LINES, "2019,2020"), names=("2019", "2020"), dialect=Dialect(header=True)),
    "an unnamed column in the middle": File(
        text_of([line.replace(",", ",7,") for line in LINES], "age,,kg"), names=NAMES
    ),
    "a note of 60 lines": File(
        text_of([f'{line},"{NOTE}"' if i == 3 else f"{line},x" for i, line in enumerate(LINES)], "age,kg,note")
    ),
    "a note of 60 lines with as many cells": File(
        text_of([f'{line},"{NOTE}"' if i == 3 else f"{line},x" for i, line in enumerate(LINES)], "age,kg,note")
    ),
    "doubled quotes": File(text_of([f'{line},"say ""a,b"" twice"' for line in LINES], "age,kg,note")),
    "quotes within cells": File(text_of([f'{line},5" pipe' for line in LINES], "age,kg,note")),
    "quotes behind a space": File(text_of([f'{line}, "a,b"' for line in LINES], "age, kg, note")),
    "all cells quoted": File(text_of(['"' + line.replace(",", '","') + '"' for line in LINES], '"age","kg"')),
    "bars": File(text_of([line.replace(",", "|") for line in LINES], "age|kg")),
    "semicolons": File(text_of([line.replace(",", ";") for line in LINES], "age;kg")),
    "tabs": File(text_of([line.replace(",", "\t") for line in LINES], "age\tkg"), name="table.tsv"),
    "a spreadsheet's first line": File("sep=;\n" + text_of([line.replace(",", ";") for line in LINES], "age;kg")),
    "a byte order mark": File(b"\xef\xbb\xbf" + text_of(LINES).encode()),
    "UTF-16": File(text_of(LINES).encode("utf-16")),
    "stated Latin 1": File(
        text_of(LINES, "größe,kg").encode("latin-1"), names=("größe", "kg"), dialect=Dialect(encoding="latin-1")
    ),
    "bytes that are no text": File(
        text_of([f"{line},x" for line in LINES], "age,kg,note").encode().replace(b"x\n", b"\xff\n", 1),
        doubt="it has bytes that are no utf-8",
    ),
    "gzip": File(gzip.compress(text_of(LINES).encode()), name="table.csv.gz"),
    "bzip2": File(bz2.compress(text_of(LINES).encode()), name="table.csv.bz2"),
    "a stated German export": File(
        text_of([f"{age:g};{1000 * kg:,.1f}".translate(str.maketrans(",.", ".,")) for age, kg in ROWS], "age;kg"),
        rows=[[age, 1000 * kg] for age, kg in ROWS],
        dialect=GERMAN,
    ),
    "stated lines to skip and comments": File(
        "Ward 7\n\n# made in May\n" + text_of([*LINES, "# the end"]), dialect=Dialect(skip_lines=1, comment="#")
    ),
    "stated markers of missing cells": File(
        text_of(["-999,1", *LINES]), n_records=41, dialect=Dialect(missing=("-999",)), rows=ROWS
    ),
    "records that are too short": File(
        text_of([*LINES, "7", "8"]), n_records=42, doubt="2 of 42 records are left out: they have fewer cells"
    ),
    "records that are too long": File(
        text_of([*LINES, "7,8,9,10"]), n_records=41, doubt="1 of 41 records are left out: they have more cells"
    ),
    "a record with one more": File(
        text_of([*LINES, "7,8,9"]), n_records=41, doubt="1 of 41 records are left out: they have one cell more"
    ),
    "blank lines": File(text_of(["", *LINES, "  ", ""])),
    "cells in spaces": File(text_of([line.replace(",", " , ") for line in LINES], " age , kg ")),
    "a cell that is longer than a record may be": File(
        text_of([*(f"{line},x" for line in LINES), '7,8,"' + "a word\n" * 30_000 + '"'], "age,kg,note"),
        rows=ROWS,
        n_records=-1,
        doubt="are longer than a record may be",
    ),
}


def simulation(path: Path, file: File) -> list[list[float]]:
    columns = () if set(file.names) == set(NAMES) else file.names
    table = load_source(str(path), dialect=file.dialect, columns=columns or file.names)
    assert table.names == file.names
    return table.points.tolist()  # type: ignore[no-any-return]


def node(path: Path, file: File) -> list[list[float]]:
    return load_declared(path, Layout(file.names, dialect=file.dialect)).points.tolist()  # type: ignore[no-any-return]


def node_with_schema(path: Path, file: File) -> list[list[float]]:
    return load_by_schema(path, schema_of(file)).points.tolist()  # type: ignore[no-any-return]


def schema_of(file: File) -> Schema:
    columns = {name: {"kind": "number", "bounds": (-1e6, 1e6)} for name in file.names}
    return Schema(columns=columns, file=file.dialect)


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("door", [simulation, node, node_with_schema])
def test_rows_are_the_same_at_every_door(
    what: str, door: Callable[[Path, File], list[list[float]]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = FILES[what]
    path = file.written(tmp_path)
    if what == "stated markers of missing cells" and door is simulation:
        pytest.skip("a gap ends a simulation, which is a rule of its own")
    say_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans.data"):
        rows = door(path, file)
    assert rows[: len(file.rows)] == file.rows
    assert len(rows) == len(file.rows)
    assert file.doubt in caplog.text


def flags_of(dialect: Dialect) -> list[str]:
    flags = []
    for name, value in dialect.stated().items():
        shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
        shown = ",".join(shown) if isinstance(shown, list) else str(shown)
        flags.append(f"--{name.replace('_', '-')}={shown}")
    return flags


@pytest.mark.parametrize("what", FILES)
def test_owners_commands_find_the_same_table(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = FILES[what]
    path = file.written(tmp_path)
    flags = flags_of(file.dialect)
    assert main(["schema", "draft", str(path), *flags]) == 0
    out = capsys.readouterr().out
    assert file.doubt in out
    drafted = tomllib.loads((tmp_path / "table.toml").read_text())
    listed = re.findall(r"^(?:# )?\"((?:[^\"\\]|\\.)*)\" = ", (tmp_path / "table.toml").read_text(), re.MULTILINE)
    assert {name.replace("\n", "\\n") for name in file.names} <= set(listed)
    assert Dialect(**drafted.get("file", {})) == file.dialect
    schema = tmp_path / "schema.toml"
    columns = "\n".join(f'"{name}" = {{ kind = "number", bounds = [-1e6, 1e6] }}' for name in file.names)
    schema.write_text("[columns]\n" + columns.replace("\n(", "\\n(") + "\n")
    code = main(["schema", "check", str(schema), str(path), *flags])
    out = capsys.readouterr().out
    assert file.doubt in out
    assert code == int("left out" in file.doubt or "longer" in file.doubt) or "missing" in what
    if file.n_records >= 0:
        assert f"of {file.n_records} records are rows" in out


def test_a_guess_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "years.csv").write_text(text_of(LINES, "2019,2020"))
    say_once.cache_clear()
    assert load_source(str(tmp_path / "years.csv")).points.shape == (41, 2)
    said = "the first record was taken for data: state header = true if it is names"
    assert said in caplog.text
    main(["schema", "draft", str(tmp_path / "years.csv")])
    assert said in capsys.readouterr().out
    main(["schema", "draft", str(tmp_path / "years.csv"), "--header", "yes"])
    (tmp_path / "years.toml").unlink()
    assert main(["schema", "draft", str(tmp_path / "years.csv"), "--header", "yes"]) == 0
    assert '"2019"' in (tmp_path / "years.toml").read_text()


def folder_of(tmp_path: Path) -> tuple[Path, list[str]]:
    folder = tmp_path / "parts"
    names = ["a.parquet", "b.pq", "c.PARQUET", "2024/d.parquet"]
    (folder / "2024").mkdir(parents=True)
    for index, name in enumerate(names):
        rows = ROWS[10 * index : 10 * index + 10]
        pq.write_table(pa.table(dict(zip(NAMES, zip(*rows, strict=True), strict=True))), folder / name)
    return folder, names


def test_all_parquet_files_of_a_folder_are_read_and_others_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = folder_of(tmp_path)
    (folder / "._a.parquet").write_bytes(b"a shadow of macOS")
    (folder / "_SUCCESS").touch()
    (folder / "notes.txt").write_text("x")
    say_once.cache_clear()
    for table in (load_source(str(folder)), load_declared(folder, Layout(NAMES))):
        assert sorted(table.points.tolist()) == ROWS
    assert "passed over the file 'notes.txt'" in caplog.text
    assert "._a" not in caplog.text


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("_delta_log/0.json", "a Delta Lake table"),
        (".hoodie/hoodie.properties", "an Apache Hudi table"),
        ("metadata/v1.metadata.json", "an Apache Iceberg table"),
    ],
)
def test_a_folder_in_which_files_have_deleted_rows_is_refused(tmp_path: Path, name: str, what: str) -> None:
    folder, _ = folder_of(tmp_path)
    (folder / name).parent.mkdir()
    (folder / name).touch()
    for load in (lambda: load_source(str(folder)), lambda: load_declared(folder, Layout(NAMES))):
        with pytest.raises(DataError, match=f"is {what}, whose files also have rows that are deleted or replaced"):
            load()


@pytest.mark.parametrize("name", ["table.xlsx", "table.dta", "table.feather", "table.ods"])
def test_tables_of_other_programs(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame(ROWS, columns=list(NAMES))
    path = tmp_path / name
    if path.suffix in (".xlsx", ".ods"):
        pytest.importorskip("openpyxl" if path.suffix == ".xlsx" else "odf")
        frame.to_excel(path, index=False)
    elif path.suffix == ".dta":
        frame.to_stata(path, write_index=False)
    else:
        frame.to_feather(path)
    assert load_source(str(path)).points.tolist() == ROWS
    assert load_declared(path, Layout(NAMES)).points.tolist() == ROWS


def test_no_record_decides_about_another_one_whatever_stands_in_it(tmp_path: Path) -> None:
    """Every record of a list of hostile ones, in front of, among and behind others."""
    hostile = ['"', '""', '"""', '1,"', '1,2,"', '"1,2', "1,2,3", "1", ",", ",,", '1,2"', '1,""2', "#", "\x00"]
    hostile.append('"1"x,2')
    for record in hostile:
        for position in (0, 20, 40):
            lines = [*LINES[:position], record, *LINES[position:]]
            path = tmp_path / "t.csv"
            path.write_text(text_of(lines))
            rows = load_declared(path, Layout(NAMES)).points.tolist()
            others = [row for row in rows if row in ROWS]
            assert others == ROWS, record
            assert len(rows) <= len(ROWS) + 1, record


def test_records_are_the_same_however_a_file_is_cut_into_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr_dpkmeans.data import delimited

    generator = np.random.default_rng(0)
    pieces = ["1", "x", '"', '""', ",", "\n", "\r\n", " ", '"a\nb"', '"a""b"', "é", "2.5"]
    for _ in range(60):
        text = "age,kg\n" + "".join(generator.choice(pieces, 300))
        path = tmp_path / "t.csv"
        path.write_bytes(text.encode())
        found = []
        for size in (1 << 20, 64, 7):
            monkeypatch.setattr(delimited, "CHUNK_BYTES", size)
            columns = {name: {"kind": "number", "bounds": (-9, 9), "missing": "centre"} for name in NAMES}
            found.append(load_by_schema(path, Schema(columns=columns)).points.tolist())
        assert found[0] == found[1] == found[2], text
