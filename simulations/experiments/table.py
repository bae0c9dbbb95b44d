"""The table of a sweep: a journal while it runs, one Parquet file at its end.

The journal has one JSON line per finished run, so a killed sweep loses at most the runs
that were under way.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from flwr_dpkmeans.errors import ConfigurationError, DataError, LocalMisuseError
from flwr_dpkmeans.results.whole_files import write_whole

TABLE_FILE = "table.parquet"
JOURNAL_FILE = "journal.jsonl"
_LOCK_FILE = ".lock"


@contextmanager
def only_sweep(folder: Path) -> Iterator[None]:
    """Keep a second sweep out of a folder while one is running.

    Parameters
    ----------
    folder : Path
        Made if it is not there.

    Raises
    ------
    ConfigurationError
        If another process is at work in it.
    LocalMisuseError
        If it cannot be written.
    """
    with ExitStack() as opened:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = opened.enter_context((folder / _LOCK_FILE).open("w"))
        except OSError as error:
            raise _unwritable(folder, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"another sweep is at work in {folder.absolute()}: wait for it, or"
                " choose another folder by output=..."
            ) from error
        yield


class Journal:
    """Finished runs of a folder.

    Parameters
    ----------
    folder : Path
        Where the journal is, or will be.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder))
    ...     row = {"job": "a", "status": "done", "davies_bouldin": float("inf")}
    ...     journal.add([row])
    ...     Journal(Path(folder)).finished()
    {'a': {'job': 'a', 'status': 'done', 'davies_bouldin': inf}}
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL_FILE

    def finished(self) -> dict[str, dict[str, Any]]:
        """Rows by job; the last one of a job counts.

        A torn last line, left by a kill, is no row.
        """
        if not self.path.is_file():
            return {}
        rows = {}
        for line in self.path.read_bytes().split(b"\n"):
            try:
                row = json.loads(line)
                rows[str(row["job"])] = row
            except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
                continue
        return rows

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows and make sure that they are on the disk.

        A full disk is a `LocalMisuseError`.
        """
        # Infinity and NaN are written as Python reads them, which is not JSON's
        # standard.
        text = "".join(json.dumps(row) + "\n" for row in rows)
        try:
            if self.path.is_file() and not _ends_line(self.path):
                text = "\n" + text
            with self.path.open("a") as journal:
                journal.write(text)
                journal.flush()
                os.fsync(journal.fileno())
        except OSError as error:
            raise _unwritable(self.path.parent, error) from error


def write_table(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    experiment: str | None,
    figures: Sequence[Any],
    missing: Sequence[str] = (),
) -> Path:
    """Write rows as a Parquet table that carries its figures' specifications.

    Parameters
    ----------
    folder : Path
    rows : sequence of mapping
        One for each run; where a name is missing, the cell is empty.
    experiment : str or None
        Name of the experiment.
    figures : sequence
        Specifications, see `simulations.figures.specs`.
    missing : sequence of str
        Data sets that the experiment names and that were not there, for the figures to
        say so.

    Returns
    -------
    Path
        Of the table; whole or not there at all.
    """
    metadata = {
        "experiment": experiment or "",
        "figures": json.dumps(list(figures)),
        "missing": json.dumps(list(missing)),
    }
    table = table_of(rows).replace_schema_metadata(metadata)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return write_whole(folder / TABLE_FILE, buffer.getvalue())


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table; where a row lacks a name, the cell is empty."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        columns[name] = _column([row.get(name) for row in rows])
    return pa.table(columns)


def read_table(path: Path) -> tuple[pd.DataFrame, str, list[Any]]:
    """Read a table.

    Parameters
    ----------
    path : Path
        Of a Parquet file, a CSV file, or of the folder of a sweep.

    Returns
    -------
    DataFrame
        One row per run.
    str
        Name of the experiment, or "".
    list
        Specifications of its figures.

    Raises
    ------
    DataError
        If there is no readable table.
    """
    if path.is_dir():
        path = path / TABLE_FILE
    try:
        if path.suffix == ".csv":
            return pd.read_csv(path), "", []
        table = pq.read_table(path)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DataError(
            f"{str(path.absolute())!r} is no readable table: give a sweep's"
            f" {TABLE_FILE}, its folder or a CSV file."
        ) from error
    metadata = table.schema.metadata or {}
    experiment = metadata.get(b"experiment", b"").decode()
    figures = json.loads(metadata.get(b"figures", b"[]"))
    return table.to_pandas(), experiment, figures


def missing_sets(path: Path) -> tuple[str, ...]:
    """Data sets that were not there for the table's sweep.

    None for CSV and tables that do not say it.
    """
    if path.is_dir():
        path = path / TABLE_FILE
    if path.suffix == ".csv":
        return ()
    metadata = pq.read_schema(path).metadata or {}
    return tuple(json.loads(metadata.get(b"missing", b"[]")))


def _unwritable(folder: Path, error: OSError) -> LocalMisuseError:
    """What is said of a folder that takes no file, or no more of one."""
    return LocalMisuseError(
        f"the folder {folder.absolute()} cannot be written ({error.strerror}): choose"
        " another by output=..."
    )


def _column(values: Sequence[Any]) -> pa.Array:
    """A column of one type; mixed ones (a k of 10 and "auto") as text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        stated = [value for value in values if value is not None]
        are_numbers = all(
            isinstance(value, int | float) and not isinstance(value, bool)
            for value in stated
        )
        kind = float if are_numbers else str
        return pa.array([None if value is None else kind(value) for value in values])


def _ends_line(path: Path) -> bool:
    """Whether the last line of a file, if it has some, is complete."""
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
