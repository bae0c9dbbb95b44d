"""One file is one table at every door: simulation, Hydra, node, schema, draft, check
and prediction.
"""

from __future__ import annotations

import bz2
import gzip
import logging
import lzma
import re
import time
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from support.limits import SetLimits

from flwr_dpkmeans import Schema
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.text.quoting import CellEnds
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.errors import ConfigurationError, DataError

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

LONG = '7,8,"' + "1,2,3\n" * 100_000 + 'say ""so"" ",9'.replace(",9", "")
"""A record whose cell has lines that look like records."""

FILES = {
    "plain": File(text_of(LINES)),
    "without an end": File(text_of(LINES).rstrip("\n")),
    "lines of Windows": File(text_of(LINES).replace("\n", "\r\n")),
    "lines of old Macs": File(text_of(LINES).replace("\n", "\r")),
    "a line break in a name": File(
        text_of(LINES, 'age,"kg\n(at night)"'), names=("age", "kg\n(at night)")
    ),
    "a text cell with an unclosed quote": File(
        text_of(
            [
                f'{line},"note' if i % 10 == 0 else f"{line},note"
                for i, line in enumerate(LINES)
            ],
            "age,kg,note",
        ),
        rows=[row for i, row in enumerate(ROWS) if i % 10],
        doubt="4 of 40 records are left out: they have a quote that does not close",
    ),
    "a separator at the end of each record": File(
        text_of([f"{line}," for line in LINES]), doubt="40 records end with a separator"
    ),
    "a separator at the end of each line": File(
        text_of([f"{line}," for line in LINES], "age,kg,")
    ),
    "names of rows as R writes them": File(
        text_of([f'"{i}",{line}' for i, line in enumerate(LINES)], '"age","kg"'),
        doubt="40 records have one cell more than the header, and begin with it",
    ),
    "stated names of rows": File(
        text_of([f"r{i},{line}" for i, line in enumerate(LINES)]),
        dialect=Dialect(row_names=True),
    ),
    "an index as pandas writes it": File(
        text_of([f"{i},{line}" for i, line in enumerate(LINES)], ",age,kg")
    ),
    "a name that is a number in Python's eyes": File(
        text_of(LINES, "inf,kg"), names=("inf", "kg")
    ),
    "names without letters": File(text_of(LINES, "25%,0-9"), names=("25%", "0-9")),
    "stated years": File(
        text_of(LINES, "2019,2020"),
        names=("2019", "2020"),
        dialect=Dialect(header=True),
    ),
    "an unnamed column in the middle": File(
        text_of([line.replace(",", ",7,") for line in LINES], "age,,kg"), names=NAMES
    ),
    "a note of 60 lines": File(
        text_of(
            [
                f'{line},"{NOTE}"' if i == 3 else f"{line},x"
                for i, line in enumerate(LINES)
            ],
            "age,kg,note",
        )
    ),
    "a note of 60 lines with as many cells": File(
        text_of(
            [
                f'{line},"{NOTE}"' if i == 3 else f"{line},x"
                for i, line in enumerate(LINES)
            ],
            "age,kg,note",
        )
    ),
    "doubled quotes": File(
        text_of([f'{line},"say ""a,b"" twice"' for line in LINES], "age,kg,note")
    ),
    "quotes within cells": File(
        text_of([f'{line},5" pipe' for line in LINES], "age,kg,note")
    ),
    "quotes behind a space": File(
        text_of([f'{line}, "a,b"' for line in LINES], "age, kg, note")
    ),
    "all cells quoted": File(
        text_of(['"' + line.replace(",", '","') + '"' for line in LINES], '"age","kg"')
    ),
    "bars": File(text_of([line.replace(",", "|") for line in LINES], "age|kg")),
    "semicolons": File(text_of([line.replace(",", ";") for line in LINES], "age;kg")),
    "tabs": File(
        text_of([line.replace(",", "\t") for line in LINES], "age\tkg"),
        name="table.tsv",
    ),
    "a spreadsheet's first line": File(
        "sep=;\n" + text_of([line.replace(",", ";") for line in LINES], "age;kg")
    ),
    "a spreadsheet's first line in capitals": File(
        "SEP=;\n" + text_of([line.replace(",", ";") for line in LINES], "age;kg")
    ),
    "a spreadsheet's first line within quotes": File(
        '"sep=;"\r\n' + text_of([line.replace(",", ";") for line in LINES], "age;kg")
    ),
    "a byte order mark": File(b"\xef\xbb\xbf" + text_of(LINES).encode()),
    "UTF-16": File(text_of(LINES).encode("utf-16")),
    "stated Latin 1": File(
        text_of(LINES, "größe,kg").encode("latin-1"),
        names=("größe", "kg"),
        dialect=Dialect(encoding="latin-1"),
    ),
    "bytes that are no text": File(
        text_of([f"{line},x" for line in LINES], "age,kg,note")
        .encode()
        .replace(b"x\n", b"\xff\n", 1),
        doubt="it has bytes that are no utf-8",
    ),
    "gzip": File(gzip.compress(text_of(LINES).encode()), name="table.csv.gz"),
    "bzip2": File(bz2.compress(text_of(LINES).encode()), name="table.csv.bz2"),
    "a stated German export": File(
        text_of(
            [
                f"{age:g};{1000 * kg:,.1f}".translate(str.maketrans(",.", ".,"))
                for age, kg in ROWS
            ],
            "age;kg",
        ),
        rows=[[age, 1000 * kg] for age, kg in ROWS],
        dialect=GERMAN,
    ),
    "stated lines to skip and comments": File(
        "Ward 7\n\n# made in May\n" + text_of([*LINES, "# the end"]),
        dialect=Dialect(skip_lines=1, comment="#"),
    ),
    "stated markers of missing cells": File(
        text_of(["-999,1", *LINES]),
        n_records=41,
        dialect=Dialect(missing=("-999",)),
        rows=ROWS,
    ),
    "records that are too short": File(
        text_of([*LINES, "7", "8"]),
        n_records=42,
        doubt="2 of 42 records are left out: they have fewer cells",
    ),
    "records that are too long": File(
        text_of([*LINES, "7,8,9,10"]),
        n_records=41,
        doubt="1 of 41 records are left out: they have more cells",
    ),
    "a record with one more": File(
        text_of([*LINES, "7,8,9"]),
        n_records=41,
        doubt="1 of 41 records are left out: they have one cell more",
    ),
    "blank lines": File(text_of(["", *LINES, "  ", ""])),
    "cells in spaces": File(
        text_of([line.replace(",", " , ") for line in LINES], " age , kg ")
    ),
    "decimal commas in the first of two columns": File(
        text_of([f"{age:g};{kg:g}".replace(".", ",") for kg, age in ROWS], "age;kg"),
        rows=[[age, kg] for kg, age in ROWS],
        dialect=Dialect(decimal=","),
    ),
    "Indian numbers": File(
        text_of([f'{age:g},"1,23,4{age:g}.5"' for age, _ in ROWS]),
        rows=[[age, 123_400.5 + age] for age, _ in ROWS],
        dialect=Dialect(thousands=","),
    ),
    "several separators at the end of each line": File(
        text_of([f"{line},,," for line in LINES], "age,kg,,,"),
        doubt="columns 3, 4, 5 have no name in the header",
    ),
    "several columns in front of names": File(
        text_of([f"w{i},{i},{line}" for i, line in enumerate(LINES)], ",,age,kg"),
        doubt="columns 1, 2 have no name in the header",
    ),
    "quotes in comments": File(
        '# a, "b\n' + text_of([*LINES[:5], '# in May, "x', *LINES[5:], ' # say "y"']),
        dialect=Dialect(comment="#"),
    ),
    "a comment's sign behind an empty cell": File(
        text_of([f"\t#7\t{age:g}\t{kg:g}" for age, kg in ROWS], "ward\tbed\tage\tkg"),
        name="table.tsv",
        dialect=Dialect(comment="#"),
    ),
    "the end of a file of MS-DOS": File(text_of(LINES).replace("\n", "\r\n") + "\x1a"),
    "UTF-16 in gzip": File(
        gzip.compress(text_of(LINES).encode("utf-16")), name="table.csv.gz"
    ),
    "UTF-32": File(text_of(LINES).encode("utf-32")),
    "xz": File(lzma.compress(text_of(LINES).encode()), name="table.csv.xz"),
    "stated spaces, as R writes them": File(
        text_of(
            [f'"{i}" {age:g} {kg:g}' for i, (age, kg) in enumerate(ROWS)], '"age" "kg"'
        ),
        name="table.txt",
        dialect=Dialect(separator=" "),
        doubt="40 records have one cell more than the header, and begin with it",
    ),
    "stated spaces, of which there are several": File(
        text_of([f"  {age:g}   {kg:g}" for age, kg in ROWS], "age    kg"),
        dialect=Dialect(separator=" "),
    ),
    "Unicode's ends of lines within cells": File(
        text_of(
            [f"{line},a\x85b\u2028c\u2029d\ve\ff\x1cg\x00h" for line in LINES],
            "age,kg,note",
        )
    ),
    "a cell that is longer than a record may be": File(
        text_of(
            [
                *(f"{line},x" for line in LINES[:30]),
                LONG,
                *(f"{line},x" for line in LINES[30:]),
            ],
            "age,kg,note",
        ),
        n_records=41,
        doubt="1 of 41 records are left out: they are longer than a record may be",
    ),
    "two cells that are longer than a record may be": File(
        text_of([*(f"{line},x" for line in LINES), LONG, LONG], "age,kg,note"),
        n_records=42,
        doubt="2 of 42 records are left out: they are longer than a record may be",
    ),
    "an unclosed quote in a long file without others": File(
        text_of(['7,8,"x', *(f"{line},{'y' * 5000}" for line in LINES)], "age,kg,note"),
        n_records=41,
        doubt="1 of 41 records are left out: they have a quote that does not close",
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


@pytest.mark.sample(65)
@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("door", [simulation, node, node_with_schema])
def test_rows_are_the_same_at_every_door(
    what: str,
    door: Callable[[Path, File], list[list[float]]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
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
        shown = (
            {True: "yes", False: "no"}.get(value, value)
            if isinstance(value, bool)
            else value
        )
        shown = ",".join(shown) if isinstance(shown, list) else str(shown)
        flags.append(f"--{name.replace('_', '-')}={shown}")
    return flags


@pytest.mark.sample(23)
@pytest.mark.parametrize("what", FILES)
def test_owners_commands_find_the_same_table(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = FILES[what]
    path = file.written(tmp_path)
    flags = flags_of(file.dialect)
    assert main(["schema", "draft", str(path), *flags]) == 0
    out = capsys.readouterr().out
    assert file.doubt in out
    drafted = tomllib.loads((tmp_path / "table.toml").read_text())
    listed = re.findall(
        r"^(?:# )?\"((?:[^\"\\]|\\.)*)\" = ",
        (tmp_path / "table.toml").read_text(),
        re.MULTILINE,
    )
    assert {name.replace("\n", "\\n") for name in file.names} <= set(listed)
    assert Dialect(**drafted.get("file", {})) == file.dialect
    schema = tmp_path / "schema.toml"
    columns = "\n".join(
        f'"{name}" = {{ kind = "number", bounds = [-1e6, 1e6] }}' for name in file.names
    )
    schema.write_text("[columns]\n" + columns.replace("\n(", "\\n(") + "\n")
    code = main(["schema", "check", str(schema), str(path), *flags])
    out = capsys.readouterr().out
    assert file.doubt in out
    assert (
        code == int("left out" in file.doubt or "longer" in file.doubt)
        or "missing" in what
    )
    if file.n_records >= 0:
        assert f"of {file.n_records} records are rows" in out


def test_a_guess_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "years.csv").write_text(text_of(LINES, "2019,2020"))
    say_once.cache_clear()
    assert load_source(str(tmp_path / "years.csv")).points.shape == (41, 2)
    said = "the first record was taken for data: state header = true if it is names"
    assert said in caplog.text
    main(["schema", "draft", str(tmp_path / "years.csv")])
    assert said in capsys.readouterr().out
    main(["schema", "draft", str(tmp_path / "years.csv"), "--header", "yes"])
    (tmp_path / "years.toml").unlink()
    assert (
        main(["schema", "draft", str(tmp_path / "years.csv"), "--header", "yes"]) == 0
    )
    assert '"2019"' in (tmp_path / "years.toml").read_text()


def folder_of(tmp_path: Path) -> tuple[Path, list[str]]:
    folder = tmp_path / "parts"
    names = ["a.parquet", "b.pq", "c.PARQUET", "2024/d.parquet"]
    (folder / "2024").mkdir(parents=True)
    for index, name in enumerate(names):
        rows = ROWS[10 * index : 10 * index + 10]
        pq.write_table(
            pa.table(dict(zip(NAMES, zip(*rows, strict=True), strict=True))),
            folder / name,
        )
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
def test_a_folder_in_which_files_have_deleted_rows_is_refused(
    tmp_path: Path, name: str, what: str
) -> None:
    folder, _ = folder_of(tmp_path)
    (folder / name).parent.mkdir()
    (folder / name).touch()
    for load in (
        lambda: load_source(str(folder)),
        lambda: load_declared(folder, Layout(NAMES)),
    ):
        with pytest.raises(
            DataError,
            match=f"is {what}, whose files also have rows that are deleted or replaced",
        ):
            load()


@pytest.mark.parametrize(
    "name", ["table.xlsx", "table.dta", "table.feather", "table.ods"]
)
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


@pytest.mark.parametrize(
    ("content", "dialect", "sentence"),
    [
        (
            "age,kg\n",
            {"encoding": "utf-16"},
            "begins without the mark that utf-16 needs",
        ),
        (
            b"\xef\xbb\xbfage,kg\n",
            {"encoding": "latin-1"},
            "begins with the mark of utf-8, but encoding is 'iso8859-1'",
        ),
        ('"age,kg\n1,2\n', {}, "has a quote that does not close"),
        (
            "age\n1;2\n",
            {"decimal": ","},
            "ALL 1 records are left out: they have one cell more",
        ),
    ],
)
def test_a_refusal_says_the_reason_at_every_door(
    content: str | bytes,
    dialect: dict[str, str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = File(content, dialect=Dialect(**dialect))
    path = file.written(tmp_path)
    with pytest.raises(DataError, match=sentence):
        load_source(str(path), dialect=file.dialect)
    assert main(["schema", "draft", str(path), *flags_of(file.dialect)]) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("dates", ["%Q.%m", "%", "%d.%d.%Y", "\0", "day"])
def test_a_format_by_which_no_date_can_be_read_is_refused(dates: str) -> None:
    """Every date was silently none, or a node answered as long as no cell had text."""
    with pytest.raises(ConfigurationError, match=r'dates is .*no date.*"%d\.%m\.%Y"'):
        Dialect(dates=dates)


@pytest.mark.parametrize(
    "dates", ["%d.%m.%Y", "%d/%m/%y %H:%M", "%I:%M %p", "%Y-%m-%dT%H:%M:%S%z", "%b %Z"]
)
def test_a_format_that_reads_what_it_writes_is_taken(dates: str) -> None:
    assert Dialect(dates=dates).dates == dates


@pytest.mark.parametrize(
    "encoding",
    ["hex", "rot13", "unicode_escape", "iso2022_jp", "hz", "utf-7", "no such"],
)
def test_an_encoding_by_which_one_line_decides_about_others_is_refused(
    encoding: str,
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"encoding is '{encoding}': .*UTF-8|encoding is .*utf-8",
    ):
        Dialect(encoding=encoding)


@pytest.mark.parametrize(
    "name",
    [
        f"table.{suffix}"
        for suffix in ("csv.xz", "csv.bz2", "xlsx", "dta", "npy", "xpt")
    ],
)
@pytest.mark.parametrize("content", [b"", b"age,kg\n30,60\n", b"PK"])
def test_a_file_of_another_format_is_refused_in_one_sentence(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if content == b"PK":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("table.txt", "30,60")
    if name == "table.csv.bz2" and not content:
        pytest.skip("nothing is nothing, compressed or not")
    with pytest.raises(DataError, match=r"cannot be read as \.\w+ \(\w+\)"):
        load_declared(path, Layout(NAMES))


@pytest.mark.parametrize("separator", ["\0", '"', "\n", ";;"])
def test_a_separator_that_cannot_be_one_is_refused(separator: str) -> None:
    with pytest.raises(ConfigurationError, match=r"separator is .*: it must"):
        Dialect(separator=separator)


def test_a_header_may_be_longer_than_a_chunk(
    tmp_path: Path, set_limits: SetLimits
) -> None:

    set_limits(text_bytes=64)
    path = tmp_path / "wide.csv"
    names = [f"c{i}" for i in range(100)]
    path.write_text(
        "a title\n" + ",".join(names) + "\n" + ",".join(map(str, range(100))) + "\n"
    )
    stated = Dialect(skip_lines=1)
    for table in (
        load_source(str(path), dialect=stated),
        load_declared(path, Layout(tuple(names), dialect=stated)),
    ):
        assert table.names == tuple(names)
        assert table.points.tolist() == [list(range(100))]


@pytest.mark.parametrize(
    "name", ["a\x7fb", 'say "x"', "a\\b", "\U0001f600", "a\u2028b", "#", "[x]"]
)
def test_a_drafted_schema_is_toml_whatever_names_are(tmp_path: Path, name: str) -> None:
    quoted = name.replace('"', '""')
    (tmp_path / "t.csv").write_text(text_of(LINES, f'age,"{quoted}"'))
    assert (
        main(
            ["schema", "draft", str(tmp_path / "t.csv"), "--missing", "\U0001f600,\x7f"]
        )
        == 0
    )
    drafted = tomllib.loads((tmp_path / "t.toml").read_text())
    assert drafted["file"]["missing"] == ["\U0001f600", "\x7f"]
    assert name in drafted["columns"]


def test_names_with_commas_and_line_breaks_can_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text_of(LINES, '"a,b","say ""x""\n#"'))
    table = load_declared(path, Layout.of('"a,b", "say ""x""\n#"'))
    assert table.names == ("a,b", 'say "x"\n#')
    assert table.points.tolist() == ROWS
    with pytest.raises(ConfigurationError, match="columns has a line break outside"):
        Layout.of("age\nkg")


def workbook(path: Path, *sheets: pd.DataFrame) -> Path:
    with pd.ExcelWriter(path) as writer:
        for index, sheet in enumerate(sheets):
            sheet.to_excel(writer, sheet_name=f"S{index}", index=False, header=False)
    return path


def test_workbooks_are_read_as_text_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Skipped lines are of the sheet, and NA is a name."""
    pytest.importorskip("openpyxl")
    numbers = [[age, f"{kg}".replace(".", ",") if age % 2 else kg] for age, kg in ROWS]
    sheet = pd.DataFrame([["Ward 7", None], [None, None], ["NA", "kg"], *numbers])
    path = workbook(tmp_path / "t.xlsx", sheet, sheet)
    stated = Dialect(skip_lines=2, decimal=",")
    say_once.cache_clear()
    for table in (
        load_source(str(path), dialect=stated),
        load_declared(path, Layout(("NA", "kg"), dialect=stated)),
    ):
        assert table.names == ("NA", "kg")
        assert table.points.tolist() == ROWS
    assert "passed over the sheet 'S1'" in caplog.text


def test_numbers_in_dictionaries_are_numbers_at_every_door(tmp_path: Path) -> None:
    columns = [pa.array(cells).dictionary_encode() for cells in zip(*ROWS, strict=True)]
    feather.write_feather(pa.table(columns, names=list(NAMES)), tmp_path / "t.feather")
    assert load_source(str(tmp_path / "t.feather")).points.tolist() == ROWS
    assert load_declared(tmp_path / "t.feather", Layout(NAMES)).points.tolist() == ROWS


def test_a_linked_folder_is_passed_over_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = folder_of(tmp_path)
    (tmp_path / "other").mkdir()
    (folder / "2024" / "link").symlink_to(tmp_path / "other")
    say_once.cache_clear()
    assert len(load_declared(folder, Layout(NAMES)).points) == 40
    assert "passed over the folder 'link', which is a link" in caplog.text


@pytest.mark.parametrize(
    "record", ["sep=;", "sep=.", 'sep="', "\ufeff1,2", "#", "1,2,3"]
)
def test_no_first_record_decides_about_others_where_there_is_no_header(
    tmp_path: Path, record: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([record, *LINES]))
    rows = load_declared(
        path, Layout(NAMES, dialect=Dialect(header=False))
    ).points.tolist()
    assert rows[-40:] == ROWS
    assert len(rows) <= 41


def test_a_mark_within_a_cell_is_read_alike_wherever_it_stands(tmp_path: Path) -> None:
    """Behind the header it is a part of its cell."""
    path = tmp_path / "t.csv"
    path.write_text(text_of(["\ufeff1,2", *LINES]))
    assert load_declared(path, Layout(NAMES)).points.tolist() == ROWS
    path.write_text(text_of(["5", "\ufeff1,2", *LINES]))
    assert load_declared(path, Layout(NAMES)).points.tolist() == ROWS


def test_cells_between_spaces_are_cut_alike_beside_any_record(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    columns = {
        name: {"kind": "number", "bounds": (0, 100), "missing": "centre"}
        for name in NAMES
    }
    schema = Schema(columns=columns, file=Dialect(separator=" "))
    lines = [f"{line.replace(',', ' ')} x" for line in LINES]
    for others in ([], ["7"]):
        path.write_text(text_of(["1  2", *lines, *others], "age kg note"))
        assert load_by_schema(path, schema).points[:, :2].tolist() == ROWS, others


ODD_CELLS = (
    *(
        "1.",
        ".5",
        "+5",
        "1e3",
        "1e400",
        "0x1A",
        "1_000",
        "٣",
        "１２",
        "½",
        "inf",
        "-Infinity",
        "nan(1)",
        "NAN",
        "NA",
    ),
    *(
        "",
        " ",
        "NA ",
        "$5",
        "5%",
        "1 000",
        "1,0",
        "1,",
        ",5",
        "1.0",
        "TRUE",
        " true",
        "−5",
        "-",
        "\ufeff7",
        "7\u00a0",
    ),
    *(
        " 7",
        "7\x1c",
        "0001",
        "9" * 400,
        "5\x1a",
        "5\x00",
        "1.e5",
        "e5",
        "1.234,5",
        "٣٫٥",
    ),
)


@pytest.mark.nightly
@pytest.mark.parametrize("decimal", [".", ","])
def test_a_cell_is_read_alike_whatever_stands_in_other_records(
    tmp_path: Path, decimal: str
) -> None:
    """Blocks of plain numbers are read together, others one by one."""
    dialect = Dialect(separator=";", decimal=decimal)
    columns = {name: {"kind": "number", "bounds": (-1e300, 1e300)} for name in NAMES}
    schema = Schema(columns=columns, file=dialect)
    path = tmp_path / "t.csv"
    for cell in ODD_CELLS:
        readings = set()
        for others in ([], ["7"], ['7;8;"x"y'], ["x;1"], ["5;x"]):
            path.write_text(text_of([f"3;{cell}", "4;5", *others], "age;kg"))
            declared = load_declared(
                path, Layout(NAMES, dialect=dialect)
            ).points.tolist()
            by_schema = load_by_schema(path, schema).points.tolist()
            readings |= {
                str([row for row in rows if row[0] == 3])
                for rows in (declared, by_schema)
            }
        assert len(readings) == 1, cell


@pytest.mark.parametrize(("first", "decimal"), [(";0", "."), ("0;0", ","), (";0", ",")])
def test_gaps_and_decimal_commas_cost_little_time(
    tmp_path: Path, first: str, decimal: str
) -> None:
    """Read record by record they would take 10 times as long."""
    plain = seconds_of(tmp_path / "plain.csv", "0;0", ".")
    assert seconds_of(tmp_path / "t.csv", first, decimal) < 3 * plain


@pytest.mark.nightly
def test_many_columns_that_are_named_cost_as_much_as_all(tmp_path: Path) -> None:
    """Names are not looked for one by one among all others."""
    names = tuple(f"c{i}" for i in range(5_000))
    (tmp_path / "wide.csv").write_text(
        ",".join(names) + "\n" + ",".join(map(str, range(5_000))) + "\n"
    )
    seconds = []
    for columns in ((), (), names):  # the first is to warm up
        start = time.process_time()
        assert load_source(str(tmp_path / "wide.csv"), columns=columns).names == names
        seconds.append(time.process_time() - start)
    assert seconds[2] < 3 * seconds[1]


def seconds_of(path: Path, first: str, decimal: str) -> float:
    lines = [f"{i / 7};{i / 11}".replace(".", decimal) for i in range(40_000)]
    path.write_text(text_of([first, *lines], "age;kg"))
    times = []
    for _ in range(3):
        start = time.process_time()
        load_declared(path, Layout(NAMES, dialect=Dialect(decimal=decimal)))
        times.append(time.process_time() - start)
    return min(times)


def test_a_line_without_end_is_one_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A long line is passed over as a whole."""
    path = tmp_path / "t.csv"
    path.write_text(
        text_of(
            [
                *LINES[:20],
                "7," * 100_000 + "7\n8," + "x" * 400_000 + ",5,6",
                *LINES[20:],
            ]
        )
    )
    say_once.cache_clear()
    assert load_declared(path, Layout(NAMES)).points.tolist() == ROWS
    assert (
        "2 of 42 records are left out: they are longer than a record may be"
        in caplog.text
    )


def test_no_record_decides_about_another_one_whatever_stands_in_it(
    tmp_path: Path,
) -> None:
    """Every record of a list of hostile ones, in front of, among and behind others."""
    hostile = [
        '"',
        '""',
        '"""',
        '1,"',
        '1,2,"',
        '"1,2',
        "1,2,3",
        "1",
        ",",
        ",,",
        '1,2"',
        '1,""2',
        "#",
        "\x00",
    ]
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
    tmp_path: Path, set_limits: SetLimits
) -> None:

    generator = np.random.default_rng(0)
    pieces = [
        "1",
        "x",
        '"',
        '""',
        ",",
        "\n",
        "\r\n",
        " ",
        '"a\nb"',
        '"a""b"',
        "é",
        "2.5",
    ]
    for _ in range(60):
        text = "age,kg\n" + "".join(generator.choice(pieces, 300))
        path = tmp_path / "t.csv"
        path.write_bytes(text.encode())
        found = []
        for size in (1 << 20, 64, 7):
            set_limits(text_bytes=size)
            columns = {
                name: {"kind": "number", "bounds": (-9, 9), "missing": "centre"}
                for name in NAMES
            }
            found.append(load_by_schema(path, Schema(columns=columns)).points.tolist())
        assert found[0] == found[1] == found[2], text


@pytest.mark.parametrize("size", [1 << 12, 1 << 16, 1 << 20])
def test_a_long_cell_is_passed_over_however_a_file_is_cut_into_chunks(
    tmp_path: Path, set_limits: SetLimits, size: int
) -> None:
    """Its lines looked like records, and whoever wrote the cell wrote 38,000 rows."""
    set_limits(text_bytes=size)
    unclosed = '7,"' + "a,b\n" * 50_000
    others = [f"{line},x" for line in LINES]
    for long in (
        LONG,
        LONG + "  ",
        LONG + ',"a\nb"',
        LONG.replace("7,8,", "7,"),
        unclosed,
    ):
        path = tmp_path / "t.csv"
        path.write_text(text_of([*others[:20], long, *others[20:]], "age,kg,note"))
        rows = load_declared(path, Layout(NAMES)).points.tolist()
        assert [row for row in rows if row in ROWS] == ROWS
        assert [1.0, 2.0] not in rows


def test_lines_between_an_open_quote_and_the_next_that_closes_are_one_cell(
    tmp_path: Path,
) -> None:
    """What threats.md says of a writer who does not double quotes, and no more."""
    path = tmp_path / "t.csv"
    path.write_text(text_of([*LINES[:9], '"1,2', *LINES[9:], '3,4"', "5,6"]))
    assert load_declared(path, Layout(NAMES)).points.tolist() == [*ROWS[:9], [5.0, 6.0]]
    path.write_text(text_of([*LINES[:9], '"1,2', *LINES[9:]]))
    assert load_declared(path, Layout(NAMES)).points.tolist() == ROWS


def test_any_number_of_long_cells_are_passed_over(tmp_path: Path) -> None:
    """The lines of the 51st one were rows: one record more added thousands."""
    note = "\n".join(["1,2,x"] * 30_000)
    path = tmp_path / "t.csv"
    for n_notes in (50, 51):
        notes = [f'7,8,"{note}"'] * n_notes
        path.write_text(text_of([*notes, "3,4,x"], "age,kg,note"))
        assert load_declared(path, Layout(NAMES)).points.tolist() == [[3.0, 4.0]]


def test_ends_of_long_cells_are_the_same_however_they_are_asked_for() -> None:
    """Of a text in pieces, in any order: of a doubled quote, spaces, and slips."""
    text = b'1,"a""b"' + b" " * 90 + b',2\n3,"c"x\n4,""","5"\n"'
    starts = [3, 3 + len(b'a""b"') + 96, 0, len(text) - 1, len(text), 4]
    answers = []
    for size in (1, 2, 7, 64, 1000):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        ends = CellEnds(lambda pieces=pieces: iter(pieces), ",")  # type: ignore[misc]
        answers.append([ends.behind(start) for start in starts])
    assert answers == [answers[0]] * 5
    assert answers[0][0] == text.index(b'b"') + 2
    assert answers[0][1] is None
    for start, answer in zip(starts, answers[0], strict=True):
        assert CellEnds(lambda: iter([text]), ",").behind(start) == answer


def test_what_r_writes_is_read_at_every_door(tmp_path: Path) -> None:
    """write.table puts names in quotes, and spaces between them."""
    table = tmp_path / "r.txt"
    rows = [f'"{index}" {age:g} {kg:g}' for index, (age, kg) in enumerate(ROWS)]
    table.write_text(text_of(rows, '"age" "kg"'))
    for points in (load_source(str(table)), load_declared(table, Layout(NAMES))):
        assert points.names == NAMES
        assert points.points.tolist() == ROWS


def test_no_row_closes_a_quote_of_a_header_between_spaces(tmp_path: Path) -> None:
    table = tmp_path / "r.txt"
    table.write_text('"age" "kg\n1 2" "3"\n1 2\n')
    with pytest.raises(DataError, match="close the quote, or state the separator"):
        load_declared(table, Layout(NAMES))


@pytest.mark.parametrize(
    ("beginning", "sentence"),
    [
        ("Ward 4, printed 12.03.2026, page 1\n\nage\tkg\n", "tabs begin below line 1"),
        ("Ward 4\nall beds\nage;kg;ward\n", "3 cells between semicolons begin below"),
        ("Ward 4\nage;kg\n", "if a title stands above the names, state skip_lines = 1"),
        ("age kg\n", 'if its cells stand between spaces, state separator = "space"'),
    ],
)
def test_a_title_above_the_header_is_named(
    beginning: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = next((mark for mark in "\t;" if mark in beginning), " ")
    width = beginning.splitlines()[-1].count(mark) + (2 if mark == " " else 1)
    (tmp_path / "t.txt").write_text(
        beginning + "".join(mark.join(["7"] * width) + "\n" for _ in ROWS)
    )
    main(["schema", "draft", str(tmp_path / "t.txt")])
    printed = capsys.readouterr()
    assert sentence in printed.out + printed.err


@pytest.mark.parametrize(
    "header", ["age;kg\n", "sep=;\nage;kg\n", '"age";"kg"\n', ";age;kg\n", "age\n"]
)
def test_a_header_is_taken_for_no_title(
    header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = header.splitlines()[-1]
    (tmp_path / "t.csv").write_text(
        header + f"{';'.join('7' * len(names.split(';')))}\n" * 40
    )
    assert main(["schema", "draft", str(tmp_path / "t.csv")]) == 0
    assert "skip_lines" not in capsys.readouterr().out


def test_a_workbooks_texts_and_dates_are_read_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were counted as cells that their columns may not hold."""
    pytest.importorskip("openpyxl")
    days = pd.date_range("2026-03-01", periods=40).to_pydatetime()
    rows = [
        [age, "Serum" if age % 2 else "EDTA", day]
        for (age, _), day in zip(ROWS, days, strict=True)
    ]
    rows[3][1] = "Urin"
    sheet = pd.DataFrame([["age", "material", "taken"], *rows])
    path = workbook(tmp_path / "t.xlsx", sheet, sheet)
    (tmp_path / "s.toml").write_text(
        '[columns]\nage = { kind = "number", bounds = [0, 110] }\n'
        'material = { kind = "category", values = ["Serum", "EDTA"] }\n'
        'taken = { kind = "date", bounds = [2026-01-01, 2027-01-01] }\n'
    )
    assert main(["schema", "check", str(tmp_path / "s.toml"), str(path)]) == 1
    out = capsys.readouterr().out
    counts = {
        line.split("│")[1].strip(): line.split("│")[3:6]
        for line in out.splitlines()
        if "│" in line
    }
    assert [cell.strip() for cell in counts["material"]] == ["39", "0", "1 (2.5%)"]
    assert [cell.strip() for cell in counts["taken"]] == ["40", "0", "0"]
    assert "'material' may not hold 'Urin'" in out
    assert "only the first sheet is read, so put the rows there" in out


def test_what_cannot_be_read_comes_with_the_key_that_says_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("kg;seen;smoker\n" + "1 234,5;31/12/2026 07:45;n.d.\n" * 40)
    assert main(["schema", "draft", str(table)]) == 0
    drafted = capsys.readouterr().out
    assert "state how the file writes them (decimal, thousands, missing)" in drafted
    assert "state how the file writes them (dates, missing)" in drafted
    (tmp_path / "s.toml").write_text(
        '[columns]\nkg = { kind = "number", bounds = [0, 9999] }\nsmoker = { kind ='
        ' "flag" }\nseen = { kind = "date", bounds = [2026-01-01, 2027-01-01] }\n'
    )
    assert main(["schema", "check", str(tmp_path / "s.toml"), str(table)]) == 1
    checked = capsys.readouterr().out
    for mend in (
        "state decimal, thousands",
        "state dates under [file]",
        "list it in missing under [file]",
    ):
        assert mend in checked


def test_the_last_evening_of_a_year_is_shown_on_its_own_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("seen\n2026-03-01T20:00\n2026-12-31T20:00\n")
    (tmp_path / "s.toml").write_text(
        '[columns]\nseen = { kind = "date", bounds = [2026-01-01, 2027-01-01] }\n'
    )
    assert (
        main(["schema", "check", str(tmp_path / "s.toml"), str(tmp_path / "t.csv")])
        == 0
    )
    (row,) = [
        line.split("│")
        for line in capsys.readouterr().out.splitlines()
        if "│ seen" in line
    ]
    assert [cell.strip() for cell in row[7:11]] == [
        "2026-01-01 to 2027-01-01",
        "2026-03-01",
        "2026-08-01",
        "2026-12-31",
    ]
