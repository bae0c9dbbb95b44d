"""Where a table comes from: a data set of scikit-learn with bounds, or a file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.reader import SHOWN_SUFFIXES
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.table_labels import frame_columns, require_names
from flwr_dpkmeans.data.tables import (
    Layout,
    Table,
    load_by_schema,
    load_table,
)
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest

MOST_TABLES = 2
"""Tables that a process keeps parsed."""
TARGET_COLUMN = "target"
"""What scikit-learn calls the labels: rows of a bundled data set may be split by them.
"""


@dataclass(frozen=True)
class BundledData:
    """What is publicly known about a bundled data set, with scikit-learn's names.

    `n_clusters` counts its classes.

    Bounds are chosen from what a feature can plausibly be and never from its rows;
    images are height times width.
    """

    n_examples: int
    n_features: int
    n_clusters: int
    bounds: Bounds
    feature_names: tuple[str, ...]
    image_shape: tuple[int, int] | None = None


def _read_descriptions() -> Mapping[str, BundledData]:
    """What ``bundled.toml`` says.

    Pixels, whose names and ranges follow from the shape, are not written out there.
    """
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    descriptions = {}
    for name, keys in tomllib.loads(text).items():
        shape = None
        ranges = keys.get("ranges")
        if "image_shape" in keys:
            height, width = keys["image_shape"]
            shape = (height, width)
            ranges = {
                f"pixel_{row}_{column}": keys["pixel"]
                for row in range(height)
                for column in range(width)
            }
        descriptions[name] = BundledData(
            keys["n_examples"],
            len(ranges),
            keys["n_clusters"],
            Bounds(*zip(*ranges.values(), strict=True)),
            tuple(ranges),
            shape,
        )
    return MappingProxyType(descriptions)


BUNDLED = _read_descriptions()


def load_bundled(name: str, *, partition_column: str = "") -> Table:
    """Load a key of ``BUNDLED`` with its labels, in scikit-learn's order.

    The only partition column is ``"target"``.
    """
    if partition_column not in ("", TARGET_COLUMN):
        raise ConfigurationError(
            f"partition_column is {partition_column!r}, but the rows of the bundled"
            f" data set {name!r} can be split by {TARGET_COLUMN!r} only: give it, or"
            " another partition."
        )
    from sklearn import datasets

    loaded = getattr(datasets, f"load_{name}")()
    values = loaded.target if partition_column else None
    return Table(
        validate_points(loaded.data),
        BUNDLED[name].feature_names,
        values,
        loaded.target,
    )


def load_source(
    source: str,
    *,
    label_column: str = "",
    partition_column: str = "",
    schema: Schema | None = None,
    **options: Any,
) -> Table:
    """Load a key of ``BUNDLED`` or else a file by path, as `load_table` does.

    a file of such a name is ``./iris``.

    With a schema it decides on the columns, as in `load_by_schema`.
    """
    if source in BUNDLED:
        if label_column:
            raise DataError(
                f"label_column is {label_column!r}, but the bundled data set {source!r}"
                " is loaded without its labels: leave label_column empty."
            )
        table = load_bundled(source, partition_column=partition_column)
        if schema is None:
            return table
        encoded = schema.encode(dict(zip(table.names, table.points.T, strict=True)))
        return Table.of(encoded, table.partition_values, table.labels)
    require_source("the data source", source)
    if schema is not None:
        layout = Layout(
            tuple(options["columns"]), label_column, options.get("dialect", Dialect())
        )
        return load_by_schema(
            source,
            schema,
            layout,
            partition_column=partition_column,
        )
    return load_table(
        source,
        label_column=label_column,
        partition_column=partition_column,
        **options,
    )


def require_source(
    what: str,
    source: str,
    *others: str,
) -> None:
    """Refuse a mistyped name.

    One that is not known, has no suffix and no separator, and that no file has.
    """
    names = (*BUNDLED, *others)
    if (
        source in names
        or Path(source).suffix
        or {"/", "\\"} & set(source)
        or (source and Path(source).exists())
    ):
        return
    choices = ", ".join(("a bundled data set", *map(repr, others)))
    raise ConfigurationError(
        f"{what} is {source!r}, but it must be {choices} or the path of a file"
        f" ({', '.join(SHOWN_SUFFIXES)}): {nearest(source, names)}"
    )


def load_source_once(source: str, **options: Any) -> Table:
    """Load a data source once in a process, in which a simulation plays many clients.

    Shared, so read-only.

    At most two tables are kept, and a file that has changed (time of change or size) is
    read again.
    """
    path = Path(source).expanduser()
    if source in BUNDLED or not path.is_file():
        return _parsed(source, None, **options)
    status = path.stat()
    return _parsed(
        source, (str(path.absolute()), status.st_mtime_ns, status.st_size), **options
    )


@lru_cache(maxsize=MOST_TABLES)
def _parsed(
    source: str,
    state: tuple[str, int, int] | None,
    **options: Any,
) -> Table:
    """Parse; which file it is and in which state is a part of the key only."""
    table = load_source(source, **options)
    for array in (table.points, table.partition_values, table.labels):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return table


def load_server_table(
    source: Any,
    *,
    ignored: Collection[str] = (),
    schema: Schema | None = None,
) -> Table:
    """Load and check the server's public points, at least one, with the names of their
    columns where they have some.

    The source is an array, a data frame, a `Table`, the path of a file or a bundled
    name. Files are read as the clients' tables are, so that the server's features are
    those of the clients; a public file need not have the clients' `ignored` columns.
    With a schema, the points are encoded by it.
    """
    # Nothing is profiled of the server's points.
    schema = None if schema is None else schema.clustered
    if isinstance(source, Table) and source.schema == schema:
        table = source
    elif schema is not None:
        of_file = isinstance(source, str | Path)
        table = (
            load_by_schema(source, schema)
            if of_file
            else Table.of(schema.encode(source))
        )
    elif isinstance(source, str):
        table = load_source(source, ignored=ignored)
    elif isinstance(source, Path):
        table = load_table(source, ignored=ignored)
    else:
        points = validate_points(source)
        table = Table(points, require_names(frame_columns(source), points.shape[1]))
    if len(table.points) == 0:
        raise DataError(
            "the server's data have 0 rows, but at least 1 is needed: give public"
            " points to the server."
        )
    return table


_LARGEST_CLASS = 2**31


def as_classes(values: object, n_rows: int) -> NDArray[np.int64]:
    """Turn whatever stands in a label column into classes (n_rows,), without an error.

    A server that could make a node fail over its labels would learn about them at no
    charge, so what is no class of a row (text, a missing value, a fraction, a negative
    number) becomes -1, and all do without one value for each row.
    """
    none = np.full(n_rows, -1, dtype=np.int64)
    if isinstance(values, list | tuple):
        # Each label by itself: NumPy would make text of all of them for one.
        values = np.fromiter(values, dtype=object, count=len(values))
    array = np.asarray(values)
    if array.dtype.kind == "c":
        array = np.where(array.imag == 0.0, array.real, -1.0)
    if array.shape != (n_rows,):
        return none
    if array.dtype.kind == "O":
        array = np.array([_number(value) for value in array])
    if array.dtype.kind not in "biuf":
        return none
    is_in_range = (array >= 0) & (array <= _LARGEST_CLASS)
    is_class = is_in_range & (np.rint(array) == array)
    # A narrow type need not hold -1.
    classes = np.where(is_class, array, 0).astype(np.int64)
    return np.where(is_class, classes, -1)


def _number(value: object) -> float:
    """A Python object as a number; NaN if it is none, or too large to be a class."""
    if not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    return float(value) if -1 <= value <= _LARGEST_CLASS else math.nan
