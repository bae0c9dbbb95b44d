"""A public schema that all parties share: columns, their kinds and their weights.

It turns a table of numbers, text, dates and gaps into points and their public bounds,
each row by itself: so one row changes one point or none, whatever the others are.
Weights, and the scale of categories, are bounds that are wider than the values: what
fills a part of its bounds has that part of the distance.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator, model_validator

from flwr_dpkmeans.data.columns.column import Column
from flwr_dpkmeans.data.columns.column_kind import Kind, Transform
from flwr_dpkmeans.data.columns.dates import days_of, iso_date
from flwr_dpkmeans.data.columns.in_units import decoded
from flwr_dpkmeans.data.columns.seen import MOST_OUTSIDE, Seen, Spread, added
from flwr_dpkmeans.data.columns.stated import Stated
from flwr_dpkmeans.data.columns.treatment import Missing, Outside
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.formats.frames import frame_table
from flwr_dpkmeans.data.files.open_table import ColumnUse, say_doubts
from flwr_dpkmeans.data.files.raw_table import RawTable, source_name
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.data.schema_toml import read_toml
from flwr_dpkmeans.data.schema_widths import widened
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest

__all__ = [
    "MOST_OUTSIDE",
    "Column",
    "Encoded",
    "Kind",
    "Missing",
    "Outside",
    "Scale",
    "Schema",
    "Seen",
    "Transform",
    "added",
    "days_of",
    "iso_date",
]


_MOST_CLIPPED = 0.01
"""Part of a column's cells above which its owner is warned of clipped ones."""


_MANY = 0.1
"""Part of a table's rows above which missing cells are a warning."""


_USUAL_GAP_SHARE = 0.02


_ONE_HOT_UNIT = 2.0
"""Half of a number's scale: two one-hot rows differ by sqrt(2), and are so 1/sqrt(2) of
a full range apart.
"""


class Scale(StrEnum):
    """What one unit of distance is."""

    BOUNDS = "bounds"
    STANDARD = "standard"
    NONE = "none"


ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True)
class Encoded:
    """The rows of a table as points in units, (n_kept, n_features).

    Beside them stands what a profile is made of. Rows with a missing cell that is
    dropped are not among them.
    """

    schema: Schema
    points: NDArray[np.float64] = field(repr=False)
    """With more columns where the schema asks for a profile, those of
    `Schema.profiled`, from -1 to 1; and last, where it counts gaps, one for each of
    `Schema.gappy`: 1 where the cell is there, -1 where it is missing.
    """
    left_out_by: NDArray[np.int64] = field(repr=False)
    """(n_rows,): the first of the schema's columns, from 0 on, for which the row is
    left out; -1 where it is not.
    """
    seen: tuple[Seen, ...] = ()
    """What was read of each column."""

    @property
    def blank(self) -> tuple[str, ...]:
        """Columns of which no cell could be read."""
        if not self.n_rows:
            return ()
        return tuple(column.name for column in self.seen if not column.n_read)

    @property
    def foreign(self) -> tuple[str, ...]:
        """Columns that may be of another unit.

        None where `seen` is of other parties' rows too.
        """
        of_this_table = [column for column in self.seen if column.n_rows == self.n_rows]
        return tuple(column.name for column in of_this_table if column.looks_foreign)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, also of those that are left out."""
        return len(self.left_out_by)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """(n_kept,): which of the table's rows these are."""
        return np.flatnonzero(self.left_out_by < 0)

    def spread(
        self,
        values: NDArray[ScalarT],
        lacking: float = -1,
    ) -> NDArray[ScalarT]:
        """One value, such as a label, for each row of the table, (n_rows, ...).

        `lacking` where a row was left out.
        """
        whole = np.full((self.n_rows, *values.shape[1:]), lacking, dtype=values.dtype)
        whole[self.rows] = values
        return whole


class Schema(Stated):
    """The columns that are clustered or profiled, and what one unit of distance is.

    Parameters
    ----------
    columns : sequence of Column, or mapping of names to what is said of them
        Other columns of a table are left out.
    scale : str
        ``"bounds"``: each column's full range is as long as its weight; ``"none"``:
        columns keep their units; ``"standard"``: private standard deviations are the
        units.
    profile, profile_share : sequence of str, float
        Columns of which each cluster's mean and spread, or share of each value, are
        released, and what part of the budget this takes; those with weight 0 are not
        clustered.
    file : Dialect, or mapping
        What is stated of the files: separator, decimal, header and so on. It is no part
        of what parties agree on, and each may state its own.
    person_column : str
        The column that says whose row it is, for ``unit="person"``: neither clustered
        nor profiled, and no part of what parties agree on.
    weight_column : str
        The column that says what a row weighs, for runs with ``max_weight``; as
        `person_column`.
    gap_share : float
        What part of the budget it takes to count the cells that are there, by cluster,
        of each column whose gaps stay in the clustering (``missing = "centre"``); 0:
        only those of the profile are counted.

    Raises
    ------
    ConfigurationError
        One sentence, with the column's name.

    Examples
    --------
    >>> ward = {"kind": "category", "values": ["A", "B"], "weight": 0.5}
    >>> age = {"kind": "number", "bounds": (0, 100)}
    >>> schema = Schema(columns={"age": age, "ward": ward})
    >>> encoded = schema.encode({"ward": ["B", "A", "C"], "age": [50, 120, 1]})
    >>> encoded.points.tolist(), encoded.rows.tolist()
    ([[50.0, 0.0, 1.0], [100.0, 1.0, 0.0]], [0, 1])
    >>> schema.feature_names
    ('age', 'ward=A', 'ward=B')
    >>> schema.bounds
    Bounds(lower=(0.0, -1.5, -1.5), upper=(100.0, 2.5, 2.5))
    >>> schema.decode([[40.0, 0.25, 1.02]])
    {'age': [40.0], 'ward': [{'A': 0.25, 'B': 1.0}]}
    """

    columns: tuple[Column, ...] = Field(min_length=1)
    scale: Scale = Scale.BOUNDS
    profile: tuple[str, ...] = ()
    profile_share: float = Field(0.05, gt=0.0, lt=0.5)
    gap_share: float = Field(_USUAL_GAP_SHARE, ge=0.0, lt=0.5)
    person_column: str = ""
    """Whose row it is: see `Persons`. No part of what parties agree on, as the next."""
    weight_column: str = ""
    file: Dialect = UNSTATED
    """How files of delimited text are written; a party's own file may differ."""

    @field_validator("file", mode="before")
    @classmethod
    def _stated(cls, value: object) -> object:
        """A file has a table of what is stated."""
        return Dialect(**value) if isinstance(value, Mapping) else value

    @field_validator("columns", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """A file names columns by their tables."""
        if not isinstance(value, Mapping) or not value:
            return value
        return [
            Column(name=name, **keys) if isinstance(keys, Mapping) else keys
            for name, keys in value.items()
        ]

    @model_validator(mode="after")
    def _fits(self) -> Schema:
        self._require_clustered_or_profiled()
        self._require_no_cycle_in_profile()
        self._require_shares_with_a_use()
        self._require_apart("person_column", "whose row it is")
        self._require_apart("weight_column", "what a row weighs")
        for names in ([column.name for column in self.columns], self.feature_names):
            if len(set(names)) < len(names):
                raise ValueError(
                    f"the names {list(names)} are not all different, but columns are"
                    " told by them: rename some"
                )
        return self

    def _require_clustered_or_profiled(self) -> None:
        """Refuse columns without a use, and a profile of columns that are not there."""
        names = [column.name for column in self.columns]
        idle = [column.name for column in self.columns if not column.weight]
        for name in set(self.profile) - set(names):
            raise ValueError(
                f"profile has {name!r}, which is no column of it:"
                f" {nearest(name, names)}"
            )
        for name in set(idle) - set(self.profile):
            raise ValueError(
                f"weight is 0 for {name!r}, which is in no profile: add it there, or"
                " leave it out"
            )
        if idle == names:
            raise ValueError(
                "weight is 0 for all columns, but something must be clustered: give one"
                " of them 1.0"
            )

    def _require_no_cycle_in_profile(self) -> None:
        for column in self.columns:
            if column.name in self.profile and column.kind == Kind.CYCLE:
                raise ValueError(
                    f"profile has {column.name!r}, but a cycle has no mean and spread"
                    " as numbers have: leave it out"
                )

    def _require_shares_with_a_use(self) -> None:
        """Refuse parts of the budget that nothing asks for, or that are too large."""
        if not self.profile and "profile_share" in self.model_fields_set:
            raise ValueError(
                f"profile_share is {self.profile_share}, but profile names no column:"
                " name some"
            )
        if self.gap_share != _USUAL_GAP_SHARE and not self._has_gaps:
            raise ValueError(
                f"gap_share is {self.gap_share}, but missing is 'centre' for no column:"
                " leave it out"
            )
        if self.describing_share >= 0.5:
            total = (
                f"profile_share and gap_share together are {self.describing_share:g}"
            )
            raise ValueError(f"{total}, but they must be below 0.5: lower one of them")

    def _require_apart(self, what: str, says: str) -> None:
        """Refuse to cluster or profile a column that says how a row counts."""
        name = getattr(self, what)
        if name in {column.name for column in self.columns}:
            raise ValueError(
                f"{what} is {name!r}, which is a column of it, but {says} says nothing"
                " about the row: leave it out of columns"
            )

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML file; a ConfigurationError has its path."""
        try:
            return cls(**read_toml(path))
        except OSError as error:
            raise ConfigurationError(
                f"the schema {path}: cannot be read ({error.strerror}): correct its"
                " path."
            ) from error
        except ValueError as error:
            sentence = str(error)
            if not sentence.endswith("."):
                sentence += ": mend it."
            raise ConfigurationError(f"the schema {path}: {sentence}") from error

    def to_dict(self) -> dict[str, object]:
        """Return what a file says, in plain values of JSON and TOML.

        ``Schema(**keys)`` reads it.
        """
        keys: dict[str, object] = {"scale": self.scale.value}
        if self.profile:
            keys["profile"] = list(self.profile)
            keys["profile_share"] = self.profile_share
        # Only where it is stated, so that the schema of an older model is still what
        # its file says.
        if self.gap_share != _USUAL_GAP_SHARE:
            keys["gap_share"] = self.gap_share
        if self.person_column:
            keys["person_column"] = self.person_column
        if self.weight_column:
            keys["weight_column"] = self.weight_column
        if self.file != UNSTATED:
            keys["file"] = self.file.stated()
        keys["columns"] = {column.name: column.to_dict() for column in self.columns}
        return keys

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it says of columns, in hexadecimal.

        Parties' files may be written differently.
        """
        own_keys = ("file", "person_column", "weight_column")
        agreed = {
            key: value for key, value in self.to_dict().items() if key not in own_keys
        }
        text = json.dumps(["flwr-dpkmeans schema", agreed])
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the points' columns.

        A category has one for each value, as ``origin=EWR``.
        """
        return tuple(
            name for column in self.clustered.columns for name in column.features
        )

    @property
    def shown_names(self) -> tuple[str, ...]:
        """What stands before a centre's values in units, for each feature."""
        return tuple(
            name for column in self.clustered.columns for name in column.shown_names
        )

    @property
    def text_columns(self) -> frozenset[str]:
        """Columns that have to be read as they are written, not as numbers alone."""
        return frozenset(column.name for column in self.columns if column.reads_text)

    @property
    def number_columns(self) -> frozenset[str]:
        """Columns that are read as numbers, some of them by their text besides."""
        without = (Kind.CATEGORY, Kind.DATE)
        return frozenset(
            column.name for column in self.columns if column.kind not in without
        )

    @property
    def clustered(self) -> Schema:
        """The schema of what labels depend on: nothing that is only described."""
        if not self.profile and not self.gappy:
            return self
        columns = tuple(column for column in self.columns if column.weight)
        parts: dict[str, object] = {
            "columns": columns,
            "scale": self.scale,
            "file": self.file,
            "person_column": self.person_column,
            "weight_column": self.weight_column,
        }
        if any(column.missing == Missing.CENTRE for column in columns):
            parts["gap_share"] = 0.0
        return Schema(**parts)

    @property
    def features_of_columns(self) -> tuple[tuple[Column, slice], ...]:
        """The columns that are clustered, each with where its features stand."""
        columns = self.clustered.columns
        ends = np.cumsum([len(column.features) for column in columns]).tolist()
        slices = map(slice, [0, *ends], ends)
        return tuple(zip(columns, slices, strict=True))

    @cached_property
    def profiled(self) -> tuple[Column, ...]:
        """The columns of the profile: numbers and dates, flags, categories."""
        profiled = [column for column in self.columns if column.name in self.profile]
        flags = [column for column in profiled if column.kind == Kind.FLAG]
        categories = [column for column in profiled if column.kind == Kind.CATEGORY]
        neither = (Kind.FLAG, Kind.CATEGORY)
        numbers = [column for column in profiled if column.kind not in neither]
        return (*numbers, *flags, *categories)

    @property
    def profile_widths(self) -> tuple[int, ...]:
        """How many columns of the profile are numbers, flags, values of each category.

        Empty without a profile.
        """
        if not self.profile:
            return ()
        kinds = [column.kind for column in self.profiled if not column.values]
        n_flags = kinds.count(Kind.FLAG)
        n_values = [len(column.values) for column in self.profiled if column.values]
        return (len(kinds) - n_flags, n_flags, *n_values)

    @property
    def _has_gaps(self) -> bool:
        """Whether a gap stays in the clustering, in some column."""
        return any(column.missing == Missing.CENTRE for column in self.columns)

    @cached_property
    def gappy(self) -> tuple[Column, ...]:
        """The columns whose cells that are there are counted, by cluster.

        They stand last beside the points.
        """
        counted = self.columns if self.gap_share else self.profiled
        return tuple(column for column in counted if column.missing == Missing.CENTRE)

    @property
    def gap_columns(self) -> tuple[int, ...]:
        """Index in `profiled` of each of `gappy`; -1 if it is only clustered."""
        indices = {column.name: index for index, column in enumerate(self.profiled)}
        return tuple(indices.get(column.name, -1) for column in self.gappy)

    @property
    def n_beside(self) -> int:
        """How many columns stand beside the points."""
        return sum(self.profile_widths) + len(self.gappy)

    @property
    def describing_share(self) -> float:
        """What part of the budget the round that describes the clusters takes."""
        if not self.gappy:
            return self.profile_share
        return self.gap_share + (self.profile_share if self.profile else 0.0)

    @cached_property
    def bounds(self) -> Bounds:
        """The points' public bounds, in units.

        Those that are stated, widened where a column weighs less.
        """
        columns = self.clustered.columns
        ranges = [column.range for column in columns for _ in column.features]
        lower, upper = zip(*ranges, strict=True)
        if self.scale == Scale.STANDARD:
            return Bounds(lower, upper)
        units = [self._unit(column) for column in columns]
        return widened(_widths_and_weights(columns), Bounds(lower, upper), units)

    def _unit(self, column: Column) -> float:
        """What is one unit long, in a column's points; of the stated scales."""
        if column.values:
            return _ONE_HOT_UNIT
        if self.scale != Scale.NONE:
            return column.width
        if column.period is not None:
            # Opposite values are half a period apart, as the way around is, and a
            # diameter in the points.
            return column.width / (column.period / 2.0)
        return 1.0

    @property
    def lengths(self) -> NDArray[np.float64]:
        """One unit of distance in each of the points' columns, (n_features,).

        No row is looked at. With ``scale="standard"``, whose units a run works out with
        noise, those of ``scale="bounds"``.
        """
        columns = self.clustered.columns
        lengths = [self._unit(column) / column.weight for column in columns]
        return np.repeat(lengths, [len(column.features) for column in columns])

    @property
    def standard_columns(self) -> tuple[tuple[int, float], ...]:
        """How many features each column has, and its weight.

        Empty unless private deviations are the units.
        """
        if self.scale != Scale.STANDARD:
            return ()
        return tuple(_widths_and_weights(self.clustered.columns))

    def encode(
        self,
        table: object,
        called: str = "",
    ) -> Encoded:
        """Turn a table into points; no cell is an error, only missing columns are.

        Parameters
        ----------
        table : data frame, mapping of columns, path, RawTable or Encoded
            pandas, polars, pyarrow or anything with an Arrow stream or the interchange;
            columns in any order. A path's file is read as `file` states.
        called : str
            What the party's own log calls the table; by default its file.

        Raises
        ------
        ColumnError
            If a column of the schema is missing, or there twice: by name, and by
            position for others.
        """
        if isinstance(table, Encoded):
            if self not in (table.schema, table.schema.clustered):
                raise DataError(
                    "the table was encoded by another schema: encode it by this one."
                )
            width = len(self.feature_names) + self.n_beside
            points = validate_points(table.points)[:, :width]
            return Encoded(
                self,
                points,
                table.left_out_by,
                table.seen,
            )
        if isinstance(table, str | Path):
            encoded = self._encoded_file(table)
            called = called or f"the table {source_name(table)!r}"
        else:
            raw = table if isinstance(table, RawTable) else frame_table(table)
            encoded = self.encoded(raw)
            called = called or str(raw)
        self.tell(
            called,
            encoded.n_rows,
            encoded.seen,
            len(encoded.points),
        )
        return encoded

    def _encoded_file(self, path: str | Path) -> Encoded:
        """All rows of a file, with what its owner should know of how it was read."""
        names = {column.name for column in self.columns}
        opened = open_table(path, self.file, names_in_header=names)
        use = ColumnUse(self.number_columns, self.text_columns, keeps_text=False)
        blocks = [self.encoded(raw) for raw in opened.blocks(use)]
        say_doubts(opened)
        points = np.concatenate([block.points for block in blocks])
        left_out_by = np.concatenate([block.left_out_by for block in blocks])
        seen = added(block.seen for block in blocks)
        return Encoded(
            self,
            points,
            left_out_by,
            tuple(seen),
        )

    def encoded(self, raw: RawTable) -> Encoded:
        """Turn a block of a table into points, without a word in the log."""
        values: dict[str, NDArray[np.float64]] = {}
        is_there: dict[str, NDArray[np.float64]] = {}
        left_out_by = np.full(raw.n_rows, -1)
        seen = []
        for index, (column, numbers, seen_of_column) in enumerate(self.read(raw)):
            seen.append(seen_of_column)
            gaps = np.isnan(numbers[:, 0])
            is_there[column.name] = np.where(gaps, -1.0, 1.0)[:, None]
            if column.missing == Missing.DROP:
                left_out_by[gaps & (left_out_by < 0)] = index
            else:
                numbers[gaps] = column.stand_in()
            values[column.name] = np.clip(numbers, *column.range)
        blocks = [values[column.name] for column in self.clustered.columns]
        for column in self.profiled:
            above_low = values[column.name] - column.range[0]
            blocks.append(above_low / (column.width / 2.0) - 1.0)
        blocks += [is_there[column.name] for column in self.gappy]
        points = np.concatenate(blocks, axis=1)[left_out_by < 0]
        return Encoded(
            self,
            points,
            left_out_by,
            tuple(seen),
        )

    def read(
        self,
        raw: RawTable,
        *,
        with_spreads: bool = False,
    ) -> Iterator[tuple[Column, NDArray[np.float64], Seen]]:
        """Yield each column, its cells as numbers, and how many cells are what.

        Cells are read as `Column.read` does; raises as `encode` does. `with_spreads`
        also says of numbers, dates and cycles which values there are.
        """
        if not raw.named:
            raise DataError(
                f"{raw} has no column names, but a schema tells columns by name: name"
                " them (a data frame, a header, or 'columns')."
            )
        names = [column.name for column in self.columns]
        columns_of_table = raw.one_each(names, "the schema")
        for column, cells in zip(self.columns, columns_of_table, strict=True):
            meant = column.meant(cells)
            look = column.look(meant)
            gaps = np.flatnonzero(np.isnan(look.values))
            seen = Seen.of(
                meant,
                gaps,
                look.n_outside,
                raw.n_rows,
            )
            if with_spreads and column.kind not in (Kind.CATEGORY, Kind.FLAG):
                seen = seen._replace(spread=Spread.of(look.values))
            yield column, look.points, seen

    @staticmethod
    def tell(
        table: str,
        n_rows: int,
        seen: Sequence[Seen],
        n_kept: int,
    ) -> None:
        """Say in this party's own log how many rows have gaps, a private number."""
        most_gaps = max(n_rows - column.n_read for column in seen)
        n_left_out = n_rows - n_kept
        if most_gaps:
            _say_gaps(
                table,
                n_rows,
                seen,
                n_left_out,
            )
        elif n_left_out:
            is_much = n_left_out > _MANY * n_rows
            say_once(
                logging.WARNING if is_much else logging.INFO,
                f"{table}: {n_left_out} of {n_rows} rows left out for cells"
                " outside the bounds",
            )
        most_outside = _MOST_CLIPPED * n_rows
        clipped = [column.name for column in seen if column.n_outside > most_outside]
        if clipped:
            say_once(
                logging.WARNING,
                f"{table}: over 1% of the cells lie outside the bounds of"
                f" {', '.join(clipped)}",
            )

    def decode(self, centroids: ArrayLike) -> dict[str, list[Any]]:
        """Say what centroids in units, (k, n_features), mean: k entries a column.

        Numbers as they are (with a log transform their geometric mean), dates as ISO
        text, of cycles where their values gather, flags as shares, categories as shares
        by value; noise may put a share outside of [0, 1], and it is shown at the nearer
        end. In centroids themselves gaps count as the middle: give `Model.cell_means`
        for what the cells that are there say.
        """
        table = np.atleast_2d(np.asarray(centroids, dtype=float))
        n_features = len(self.clustered.feature_names)
        if table.shape[1] != n_features:
            raise DataError(
                f"the centroids have {table.shape[1]} columns, but the schema"
                f" {n_features}: give those of a fit."
            )
        return {
            column.name: decoded(column, table[:, features])
            for column, features in self.features_of_columns
        }


def _say_gaps(
    table: str,
    n_rows: int,
    seen: Sequence[Seen],
    n_left_out: int,
) -> None:
    """Say how many cells of which columns are missing.

    Louder where cells are spelt in another way, and loudest without any cell.
    """
    gaps = {column.name: n_rows - column.n_read for column in seen}
    lacking = ", ".join(f"{name!r} {n}" for name, n in gaps.items() if n)
    others = ", ".join(
        f"{column.name!r} {column.n_unknown}" for column in seen if column.n_unknown
    )
    sentence = (
        f"{table}: of {n_rows} rows, cells are missing in {lacking};"
        f" {n_left_out} rows left out"
    )
    if others:
        sentence += (
            f"; of these cells, spelt as nothing that the column may hold: {others}"
        )
    most_gaps = max(gaps.values())
    level = logging.INFO
    if others or most_gaps > _MANY * n_rows:
        level = logging.WARNING
    if most_gaps == n_rows:
        level = logging.ERROR
    say_once(level, sentence)


def _widths_and_weights(columns: Sequence[Column]) -> list[tuple[int, float]]:
    """How many features each column has, and its weight."""
    return [(len(column.features), column.weight) for column in columns]
