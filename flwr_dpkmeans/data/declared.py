"""Read the table of a deployed node under a schema that its owner declared, so that no cell decides anything visible.

A server sees whether a node answers, and with how many features. Where the file decided that (is the first row a
header, is a column text, can all cells be read), one row could change the answer, at no charge to any budget. Here each
line is a row and is read by itself, and one that has a cell that is no finite number is left out: what the server gets
is then, but for the noised sums, the same with any row and without it.
"""

from __future__ import annotations

import csv
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.readers import RawColumn, RawTable, open_table, separator_of
from flwr_dpkmeans.data.tables import Table, require_names
from flwr_dpkmeans.errors import ConfigurationError, DataError

_logger = logging.getLogger("flwr_dpkmeans.data")
_BLOCK = 4096
_TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Schema:
    """What a node's owner says of its table."""

    columns: tuple[str, ...] = ()
    """The columns that are clustered, by name. Of a file without names (.npy, .npz, .csv without header): the names of
    all its columns in their order; empty for an array whose columns have none."""
    label_column: str = ""
    """Column of classes, by name (or, without names, by index), which is left out; empty for none."""
    header: bool = True
    """Whether the first row of a .csv file holds names; without, its cells are separated by commas."""

    @classmethod
    def of(cls, columns: object, label_column: object = "", header: object = None) -> Schema:
        """Read it from scalars, as a node's configuration has them: names separated by commas."""
        names = next(csv.reader([str(columns)], skipinitialspace=True), [])
        said = parse_header(header) is not False
        return cls(tuple(name.strip() for name in names if name.strip()), str(label_column), said)


def parse_header(value: object) -> bool | None:
    """Whether a .csv file is said to have a header; None where nothing is said."""
    said = {"": None, "auto": None, "none": None, "yes": True, "true": True, "no": False, "false": False}
    if str(value).lower() not in said:
        raise ConfigurationError(f"header is {value!r}, but it says whether a file has one: give 'yes' or 'no'.")
    return said[str(value).lower()]


def load_declared(path: str | Path, schema: Schema) -> Table:
    """Load the rows of a file in which every declared column is a finite number, with their labels if it has some.

    A `DataError` is raised if the file is missing or of no known format, or has other columns than declared.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "people.csv"
    ...     _ = file.write_text("name,age,height\\nA,31,170\\nB,>89,160\\n")
    ...     load_declared(file, Schema.of("age,height")).points.tolist()
    [[31.0, 170.0]]
    """
    raw = open_table(path, partial(_read_csv, schema=schema))
    if schema.columns and not raw.named:
        raw = _renamed(raw, schema.columns)
    _require_declared(raw, schema)
    label = raw.place_of("label_column", schema.label_column)
    wanted = _wanted(raw, schema, label)
    points = np.stack([_numbers(column, raw) for column in wanted], axis=1)
    finite = np.isfinite(points)
    kept = finite.all(axis=1)
    if not kept.all():
        bad = [column.name for column, fine in zip(wanted, np.all(finite, axis=0).tolist(), strict=True) if not fine]
        _say_left_out(raw.path, ", ".join(map(repr, bad)), nothing_left=not kept.any())
    labels: NDArray[np.generic] | None = None
    if label is not None:
        labels = _numbers(raw.columns[label], raw)[kept]
    elif schema.label_column:
        beside = raw.array_beside(schema.label_column)
        labels = beside[kept] if beside.shape == kept.shape else np.zeros(0)
    names = tuple(column.name for column in wanted)
    return Table(np.ascontiguousarray(points[kept]), names, named=raw.named, labels=labels)


def _require_declared(raw: RawTable, schema: Schema) -> None:
    """Refuse a file of which nothing is declared, or that lacks a declared column."""
    if raw.named and not schema.columns:
        raise DataError(
            f"nothing says which columns of {str(raw.path)!r} are clustered, and what stands in them may not decide "
            "it: name them in the node's configuration, as in columns='age,height'."
        )
    times = Counter(column.name for column in raw.columns)
    missing = [name for name in schema.columns if times[name] != 1]
    if missing:
        raise DataError(
            f"columns has {missing[0]!r}, but {str(raw.path)!r} does not have one column of that name: correct the "
            "node's configuration, or the header."
        )
    require_names(schema.columns, len(schema.columns))


def _wanted(raw: RawTable, schema: Schema, label: int | None) -> list[RawColumn]:
    """The columns that are clustered, in the declared order."""
    others = {column.name: column for place, column in enumerate(raw.columns) if place != label}
    wanted = [others[name] for name in schema.columns or others if name in others]
    if not wanted:
        raise DataError(f"no column of {str(raw.path)!r} is left to be clustered: name one in columns.")
    return wanted


def _renamed(raw: RawTable, names: Sequence[str]) -> RawTable:
    """A table without names under declared ones."""
    if len(names) != len(raw.columns):
        raise DataError(
            f"columns has {len(names)} names, but {str(raw.path)!r} has {len(raw.columns)} columns: name all of them."
        )
    renamed = [replace(column, name=name) for name, column in zip(names, raw.columns, strict=True)]
    return replace(raw, columns=tuple(renamed), named=True)


def _numbers(column: RawColumn, raw: RawTable) -> NDArray[np.float64]:
    """The values of a column; none of a column of text is a number."""
    return np.full(raw.n_rows, math.nan) if column.values is None else column.values


@lru_cache(maxsize=64)
def _say_left_out(path: Path, names: str, *, nothing_left: bool) -> None:
    """Say once in a process which columns cost rows, on the node only; how many rows is for the owner to count."""
    if nothing_left:
        _logger.error("%s: NO row has a finite number in each of the columns; look at %s.", path, names)
    else:
        _logger.warning("%s: left out rows with cells that are no finite number, in %s.", path, names)


def _read_csv(path: Path, schema: Schema) -> RawTable:
    """Read the declared columns of a .csv file, line by line: a quote or a bad byte spoils its own line only.

    An empty file has no header, so not one of its columns is found.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = (line for line in file if line.strip())
            header = next(lines, "") if schema.header else ""
            separator = separator_of(header)
            names = [name.strip() for name in _cells(header, separator)] if schema.header else list(schema.columns)
            used = {*schema.columns, schema.label_column}
            places = [place for place, name in enumerate(names) if name in used]
            values = _parsed(lines, separator, len(names), places)
    except OSError as error:
        raise DataError(
            f"the table {str(path)!r} cannot be read ({type(error).__name__}): check its rights."
        ) from error
    columns = (RawColumn(names[place], values[:, order]) for order, place in enumerate(places))
    return RawTable(path, tuple(columns), named=True)


def _parsed(lines: Iterator[str], separator: str, width: int, places: Sequence[int]) -> NDArray[np.float64]:
    """One row of numbers for each line."""
    blocks = [np.zeros((0, max(1, len(places))))]
    while places and (block := list(islice(lines, _BLOCK))):
        numbers = _plain(block, separator, width, places)
        blocks.append(_one_by_one(block, separator, width, places) if numbers is None else numbers)
    return np.concatenate(blocks)


def _plain(lines: list[str], separator: str, width: int, places: Sequence[int]) -> NDArray[np.float64] | None:
    """The same numbers at once and faster, where all lines have nothing but plain ones; else None."""
    if any(line.count(separator) != width - 1 or '"' in line for line in lines):
        return None
    try:
        return np.loadtxt(lines, delimiter=separator, usecols=places, comments=None, ndmin=2)
    except ValueError:
        return None


def _one_by_one(lines: list[str], separator: str, width: int, places: Sequence[int]) -> NDArray[np.float64]:
    """Each line for itself; NaN in all of one that has another number of cells, and where a cell is no number."""
    rows = []
    for line in lines:
        cells = _cells(line, separator)
        whole = len(cells) == width
        rows.append([_number(cells[place]) if whole else math.nan for place in places])
    return np.array(rows)


def _cells(line: str, separator: str) -> list[str]:
    """The cells of one line."""
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return []


def _number(cell: str) -> float:
    """The number or truth value in a cell; NaN if it is none (float reads "1_000" as 1000).

    Each cell is what NumPy, which reads whole blocks, takes it for: else one row's text would decide about the others.
    """
    try:
        return float(cell.strip()) if "_" not in cell else math.nan  # float alone keeps the ASCII separators
    except ValueError:
        return _TRUTH.get(cell.strip().lower(), math.nan)
