"""A public schema that all parties share: which columns are clustered, what stands in them, and how much each weighs.

It turns a table of numbers, text, dates and gaps into points and their public bounds, each row by itself: so one row
changes one point or none, whatever the others are. Weights, and the scale of categories, are bounds that are wider than
the values: what fills a part of its bounds has that part of the distance.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from flwr_dpkmeans.data.points import Bounds, read_ranges, validate_points
from flwr_dpkmeans.data.readers import RawColumn, RawTable, frame_table, plain_number, text_of
from flwr_dpkmeans.errors import ConfigurationError, DataError, finding, nearest
from flwr_dpkmeans.log import placed_logger

_logger = placed_logger("flwr_dpkmeans.data")
_EPOCH = datetime(1970, 1, 1)
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?(e[+-]\d+)?|true|false", re.ASCII | re.IGNORECASE)
_MOST_CLIPPED, _MANY = 0.01, 0.1
"""Parts of a column's cells whose owner is warned: clipped ones, missing ones."""
MOST_OUTSIDE = 0.25
"""Part of a column's cells outside its bounds above which its owner is asked for another unit."""
_MOST_SPELLINGS = 1000
_USUAL_GAP_SHARE = 0.02
_ONE_HOT_UNIT = 2.0
"""Half of a number's scale: two one-hot rows differ by sqrt(2), and are so 1/sqrt(2) of a full range apart."""


class Kind(StrEnum):
    """What stands in a column."""

    NUMBER = "number"
    FLAG = "flag"
    CATEGORY = "category"
    DATE = "date"


class Missing(StrEnum):
    """What becomes of a row whose cell is missing, or is nothing that the column may hold."""

    DROP = "drop"
    FILL = "fill"
    CENTRE = "centre"


class Scale(StrEnum):
    """What one unit of distance is."""

    BOUNDS = "bounds"
    STANDARD = "standard"
    NONE = "none"


class _Stated(BaseModel):
    """What a file or a caller states; what is wrong with it is a ConfigurationError of one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **stated: Any) -> None:
        try:
            super().__init__(**stated)
        except ValidationError as error:
            what = f"the schema's column {stated['name']!r}: " if "name" in stated else ""
            raise ConfigurationError(what + finding(error, type(self).model_fields)) from None


class Column(_Stated):
    """One column that is clustered.

    Examples
    --------
    >>> Column(name="origin", kind="category", values=["EWR", "JFK"], missing="centre").features
    ('origin=EWR', 'origin=JFK')
    """

    name: str
    kind: Kind
    bounds: tuple[float, float] | tuple[str, str] | None = None
    """Public range of a number, or of a date as ISO 8601 text; values outside are clipped."""
    values: tuple[str | int | float, ...] = ()
    """Public values of a category, compared with the cell as it is written; 1, "1" and 1.0 are one."""
    missing: Missing = Missing.DROP
    """drop: the row is left out; fill: with a public value; centre: in the middle of the bounds, or of the values, for
    the clustering alone: means, shares and spreads are those of the cells that are there."""
    fill: str | float | None = None
    """The value, in the column's own units."""
    weight: float = Field(1.0, ge=0.0, le=1e3)
    """The column's scale in a distance beside the others', at least 0.001; 0: it is not clustered, but in a profile."""

    @field_validator("bounds", "fill", mode="before")
    @classmethod
    def _as_text(cls, said: Any) -> Any:
        """TOML has dates of its own."""
        if isinstance(said, list | tuple):
            if len(said) != 2:
                raise ValueError("a lower and an upper one are needed: give both, from what is public of the column")
            return [one.isoformat() if isinstance(one, date) else one for one in said]
        return said.isoformat() if isinstance(said, date) else said

    @model_validator(mode="after")
    def _fits(self) -> Column:
        for key, needed, why in (
            ("bounds", self.kind in (Kind.NUMBER, Kind.DATE), f"it is a {self.kind}"),
            ("values", self.kind is Kind.CATEGORY, f"it is a {self.kind}"),
            ("fill", self.missing is Missing.FILL, f"missing is '{self.missing}'"),
        ):
            if needed != (getattr(self, key) not in (None, ())):
                raise ValueError(f"{why}, so {key} must {'be given: add it' if needed else 'not be: leave it out'}")
        if gaps := [value for value in self.values if text_of(value) is None]:
            raise ValueError(f"values has {gaps[0]!r}, which is a missing cell in all tables: rename it there and here")
        if len({_written(value) for value in self.values}) < len(self.values):
            raise ValueError(f'values {list(self.values)} are not all different, as 1, "1" and 1.0: leave one out')
        if not (math.isfinite(_width(self)) and _width(self) > 0.0):
            raise ValueError(f"bounds are {self.bounds}, but a {self.kind} has a lower, then an upper one: give both")
        if 0.0 < self.weight < 0.001:
            raise ValueError(f"weight is {self.weight}, but it must be 0 or at least 0.001: give 1.0")
        filled = [] if self.fill is None else self.read(RawColumn.of_cells(self.name, [self.fill]))[0]
        if not all(self.range[0] <= value <= self.range[1] for value in filled):
            raise ValueError(f"it is filled with {self.fill!r}, which it may not hold: give one of its values")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the points' columns that it becomes."""
        return tuple(f"{self.name}={value}" for value in self.values) or (self.name,)

    @cached_property
    def range(self) -> tuple[float, float]:
        """What the numbers in these columns lie between."""
        if self.bounds is None:
            return 0.0, 1.0
        low, high = self.read(RawColumn.of_cells(self.name, self.bounds))[:, 0].tolist()
        return low, high

    def stand_in(self) -> float | NDArray[np.float64]:
        """What a missing cell becomes: without pull, it is as far from one end, or value, as from the others."""
        if self.missing is Missing.FILL:
            return self.read(RawColumn.of_cells(self.name, [self.fill]))
        return 1.0 / len(self.values) if self.values else sum(self.range) / 2.0

    def read(self, cells: RawColumn) -> NDArray[np.float64]:
        """Numbers, (n_rows, n_features), of a column's cells; NaN where one is missing, or nothing that it may hold."""
        if self.kind is Kind.CATEGORY:
            written = {_written(one): place for place, one in enumerate(self.values)}
            stated = {place: one for place, one in enumerate(self.values) if not isinstance(one, str)}
            numeric = {float(one): place for place, one in stated.items() if abs(one) < 2**53}  # others as text
            # Not by pandas: older releases take texts for equal that are so up to a NUL, other rows' with them.
            found = cells.text()
            places = {
                cell: -1 if cell is None else written.get(_written(cell), numeric.get(plain_number(cell), -1))
                for cell in set(found)
            }
            # The last row is for gaps, and for what is no value.
            one_hot = np.vstack([np.eye(len(self.values)), np.full(len(self.values), math.nan)])
            return np.asarray(one_hot[np.array([places[cell] for cell in found], dtype=np.intp)])
        if self.kind is Kind.DATE:
            values = np.array([math.nan if cell is None else days_of(cell) for cell in cells.text()], dtype=float)
        else:
            values = np.where(np.isfinite(numbers := cells.numbers()), numbers, math.nan)
        if self.kind is Kind.FLAG:
            values = np.where((values == 0.0) | (values == 1.0), values, math.nan)
        return values[:, None]


class Seen(NamedTuple):
    """How many cells of a column are what, and how those are spelt that it may not hold: for its owner alone."""

    name: str
    n_read: int
    n_missing: int
    n_unknown: int
    n_outside: int
    """Of those that were read, how many lie outside the bounds."""
    spellings: tuple[str, ...]
    """Of unknown cells, the most frequent first; empty where a file's numbers are not kept as they are written."""

    @property
    def looks_foreign(self) -> bool:
        """Whether so many cells lie outside that they may be of another unit."""
        return self.n_outside > MOST_OUTSIDE * self.n_read

    def plus(self, other: Seen) -> Seen:
        """The same of both."""
        spellings = tuple(dict.fromkeys(self.spellings + other.spellings))[:_MOST_SPELLINGS]
        n_read, n_missing, n_unknown, n_outside = map(sum, zip(self[1:5], other[1:5], strict=True))
        return Seen(self.name, n_read, n_missing, n_unknown, n_outside, spellings)

    @classmethod
    def of(cls, cells: RawColumn, gaps: NDArray[np.int64], n_outside: int, n_rows: int) -> Seen:
        """`gaps` are the rows whose cell is missing or unknown."""
        # A number that the column may not hold is no empty cell, also where nothing says how it was written.
        unknown = gaps if cells.values is None else gaps[np.isfinite(cells.values[gaps])]
        written = cells.text() if len(unknown) else []
        spelt = Counter(text for row in (unknown if written else ()) if (text := written[row]) is not None)
        n_unknown = cells.n_unparsable + (spelt.total() if cells.values is None else len(unknown))
        spellings = tuple(text for text, _ in spelt.most_common())
        return cls(cells.name, n_rows - len(gaps), len(gaps) - n_unknown, n_unknown, n_outside, spellings)


def added(blocks: Iterable[Sequence[Seen]]) -> list[Seen]:
    """What was read of each column of a table that came in blocks."""
    return [reduce(Seen.plus, parts) for parts in zip(*blocks, strict=True)]


@dataclass(frozen=True)
class Encoded:
    """The rows of a table as points in units, (n_kept, n_features), and beside them what a profile is made of.

    Rows with a missing cell that is dropped are not among them.
    """

    schema: Schema
    points: NDArray[np.float64] = field(repr=False)
    """With more columns where the schema asks for a profile, those of `Schema.profiled`, from -1 to 1; and last, where
    it counts gaps, one for each of `Schema.gappy`: 1 where the cell is there, -1 where it is missing."""
    left_out_by: NDArray[np.int64] = field(repr=False)
    """(n_rows,): the first of the schema's columns, from 0 on, for which the row is left out; -1 where it is not."""
    seen: tuple[Seen, ...] = ()
    """What was read of each column."""

    @property
    def blank(self) -> tuple[str, ...]:
        """Columns of which no cell could be read."""
        return tuple(one.name for one in self.seen if self.n_rows and not one.n_read)

    @property
    def foreign(self) -> tuple[str, ...]:
        """Columns that may be of another unit; none where `seen` is of other parties' rows too."""
        own = [one for one in self.seen if one.n_read + one.n_missing + one.n_unknown == self.n_rows]
        return tuple(one.name for one in own if one.looks_foreign)

    @property
    def n_rows(self) -> int:
        """Of the table."""
        return len(self.left_out_by)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """(n_kept,): which of the table's rows these are."""
        return np.flatnonzero(self.left_out_by < 0)

    def spread(self, values: NDArray[Any], lacking: float = -1) -> NDArray[Any]:
        """One value, such as a label, for each row of the table, (n_rows, ...); `lacking` where a row was left out."""
        whole = np.full((self.n_rows, *values.shape[1:]), lacking, dtype=values.dtype)
        whole[self.rows] = values
        return whole


class Schema(_Stated):
    """The columns that are clustered or profiled, in an order of their own, and what one unit of distance is.

    Parameters
    ----------
    columns : sequence of Column, or mapping of names to what is said of them
        Other columns of a table are left out.
    scale : str
        ``"bounds"``: each column's full range is as long as its weight; ``"none"``: columns keep their units;
        ``"standard"``: private standard deviations are the units.
    profile, profile_share : sequence of str, float
        Columns of which each cluster's mean and spread, or share of each value, are released, and what part of the
        budget this takes; those with weight 0 are not clustered.
    gap_share : float
        What part of the budget it takes to count the cells that are there, by cluster, of each column whose gaps stay
        in the clustering (``missing = "centre"``); 0: only those of the profile are counted.

    Raises
    ------
    ConfigurationError
        One sentence, with the column's name.

    Examples
    --------
    >>> ward = {"kind": "category", "values": ["A", "B"], "weight": 0.5}
    >>> schema = Schema(columns={"age": {"kind": "number", "bounds": (0, 100)}, "ward": ward})
    >>> encoded = schema.encode({"ward": ["B", "A", "C"], "name": ["x", "y", "z"], "age": [50, 120, 1]})
    >>> encoded.points.tolist(), encoded.rows.tolist()
    ([[50.0, 0.0, 1.0], [100.0, 1.0, 0.0]], [0, 1])
    >>> schema.feature_names, schema.bounds
    (('age', 'ward=A', 'ward=B'), Bounds(lower=(0.0, -1.5, -1.5), upper=(100.0, 2.5, 2.5)))
    >>> schema.decode([[40.0, 0.25, 1.02]])
    {'age': [40.0], 'ward': [{'A': 0.25, 'B': 1.0}]}
    """

    columns: tuple[Column, ...] = Field(min_length=1)
    scale: Scale = Scale.BOUNDS
    profile: tuple[str, ...] = ()
    profile_share: float = Field(0.05, gt=0.0, lt=0.5)
    gap_share: float = Field(_USUAL_GAP_SHARE, ge=0.0, lt=0.5)

    @field_validator("columns", mode="before")
    @classmethod
    def _named(cls, said: Any) -> Any:
        """A file names columns by their tables."""
        tables = said.items() if isinstance(said, Mapping) else ()
        return [Column(name=name, **one) if isinstance(one, Mapping) else one for name, one in tables] or said

    @model_validator(mode="after")
    def _fits(self) -> Schema:
        names, idle = [one.name for one in self.columns], [one.name for one in self.columns if not one.weight]
        for name in set(self.profile) - set(names):
            raise ValueError(f"profile has {name!r}, which is no column of it: {nearest(name, names)}")
        for name in set(idle) - set(self.profile):
            raise ValueError(f"weight is 0 for {name!r}, which is in no profile: add it there, or leave it out")
        if idle == names:
            raise ValueError("weight is 0 for all columns, but something must be clustered: give one of them 1.0")
        if not self.profile and "profile_share" in self.model_fields_set:
            raise ValueError(f"profile_share is {self.profile_share}, but profile names no column: name some")
        if self.gap_share != _USUAL_GAP_SHARE and not self._has_gaps:
            raise ValueError(f"gap_share is {self.gap_share}, but missing is 'centre' for no column: leave it out")
        if self.describing_share >= 0.5:
            total = f"profile_share and gap_share together are {self.describing_share:g}"
            raise ValueError(f"{total}, but they must be below 0.5: lower one of them")
        for alike in (names, list(self.feature_names)):
            if len(set(alike)) < len(alike):
                raise ValueError(f"the names {alike} are not all different, but columns are told by them: rename some")
        return self

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML file; a ConfigurationError has its path."""
        try:
            return cls(**_read_toml(path))
        except (OSError, ValueError) as error:
            said = f"cannot be read ({error.strerror}): correct its path." if isinstance(error, OSError) else str(error)
            raise ConfigurationError(f"the schema {path}: {said}{'' if said[-1:] == '.' else ': mend it.'}") from error

    def to_dict(self) -> dict[str, Any]:
        """What a file says, in plain values of JSON and TOML; ``Schema(**said)`` reads it."""
        said = [column.model_dump(mode="json", exclude_defaults=True) for column in self.columns]
        profile = {"profile": list(self.profile), "profile_share": self.profile_share} if self.profile else {}
        # Only where it is stated, so that the schema of an older model is still what its file says.
        gaps = {} if self.gap_share == _USUAL_GAP_SHARE else {"gap_share": self.gap_share}
        return {"scale": self.scale.value, **profile, **gaps, "columns": {one.pop("name"): one for one in said}}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it says, in hexadecimal."""
        return hashlib.sha256(json.dumps(["flwr-dpkmeans schema", self.to_dict()]).encode()).hexdigest()

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the points' columns: a category has one for each value, as ``origin=EWR``."""
        return tuple(name for column in self.clustered.columns for name in column.features)

    @property
    def clustered(self) -> Schema:
        """The same without what is only profiled or counted: what labels are found by."""
        if not self.profile and not self.gappy:
            return self
        columns = tuple(one for one in self.columns if one.weight)
        uncounted = {"gap_share": 0.0} if any(one.missing is Missing.CENTRE for one in columns) else {}
        return Schema(columns=columns, scale=self.scale, **uncounted)

    @cached_property
    def profiled(self) -> tuple[Column, ...]:
        """The columns of the profile: numbers and dates, flags, categories."""
        own = [one for one in self.columns if one.name in self.profile]
        return tuple(sorted(own, key=lambda one: (one.kind is Kind.FLAG) + 2 * (one.kind is Kind.CATEGORY)))

    @property
    def profile_widths(self) -> tuple[int, ...]:
        """How many columns beside the points are numbers, flags, and values of each category; empty without any."""
        kinds = [one.kind for one in self.profiled if not one.values]
        first = len(kinds) - kinds.count(Kind.FLAG), kinds.count(Kind.FLAG)
        return (*first, *(len(one.values) for one in self.profiled if one.values)) if self.profile else ()

    @property
    def _has_gaps(self) -> bool:
        """Whether a gap stays in the clustering, in some column."""
        return any(one.missing is Missing.CENTRE for one in self.columns)

    @cached_property
    def gappy(self) -> tuple[Column, ...]:
        """The columns of which is counted, by cluster, how many cells are there; the last ones beside the points."""
        counted = self.columns if self.gap_share else self.profiled
        return tuple(one for one in counted if one.missing is Missing.CENTRE)

    @property
    def gap_columns(self) -> tuple[int, ...]:
        """For each of them, which one of `profiled` it is; -1 if it is only clustered."""
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
        """The points' public bounds, in units: those that are stated, widened where a column weighs less."""
        own = self.clustered.columns
        lower, upper = zip(*(one.range for one in own for _ in one.features), strict=True)
        if self.scale is Scale.STANDARD:
            return Bounds(lower, upper)
        lengths = [1.0 if self.scale is Scale.NONE else _width(one) for one in own]
        units = [_ONE_HOT_UNIT if one.values else length for one, length in zip(own, lengths, strict=True)]
        return widened([(len(one.features), one.weight) for one in own], Bounds(lower, upper), units)

    @property
    def standard_columns(self) -> tuple[tuple[int, float], ...]:
        """Where private deviations are the units: how many features each column has, and its weight."""
        standard = self.scale is Scale.STANDARD
        return tuple((len(one.features), one.weight) for one in self.clustered.columns) if standard else ()

    def encode(self, table: Any, called: str = "") -> Encoded:
        """Turn a table into points; what it holds never is an error, only which columns it has.

        Parameters
        ----------
        table : data frame, mapping of columns, RawTable or Encoded
            pandas, polars, pyarrow or anything with an Arrow stream or the interchange; columns in any order.
        called : str
            What the party's own log calls the table; by default its file.

        Raises
        ------
        ColumnError
            If a column of the schema is missing, or there twice: by name, and by position for others.
        """
        if isinstance(table, Encoded):
            if self not in (table.schema, table.schema.clustered):
                raise DataError("the table was encoded by another schema: encode it by this one.")
            width = len(self.feature_names) + self.n_beside
            return Encoded(self, validate_points(table.points)[:, :width], table.left_out_by, table.seen)
        raw = table if isinstance(table, RawTable) else frame_table(table)
        found = self.encoded(raw)
        self.tell(called or str(raw), found.n_rows, found.seen, len(found.points))
        return found

    def encoded(self, raw: RawTable) -> Encoded:
        """The same of a block of a table, without a word in the log."""
        blocks, left_out_by = dict[str, NDArray[np.float64]](), np.full(raw.n_rows, -1)
        seen, there = list[Seen](), dict[str, NDArray[np.float64]]()
        for place, (column, block, one) in enumerate(self.read(raw)):
            seen.append(one)
            gaps = np.isnan(block[:, 0])
            there[column.name] = np.where(gaps, -1.0, 1.0)[:, None]
            if column.missing is Missing.DROP:
                left_out_by[gaps & (left_out_by < 0)] = place
            else:
                block[gaps] = column.stand_in()
            blocks[column.name] = np.clip(block, *column.range)
        kept = left_out_by < 0
        points = [blocks[one.name] for one in self.clustered.columns]
        beside = [(blocks[one.name] - one.range[0]) / (_width(one) / 2.0) - 1.0 for one in self.profiled]
        beside += [there[one.name] for one in self.gappy]
        return Encoded(self, np.concatenate(points + beside, axis=1)[kept], left_out_by, tuple(seen))

    def read(self, raw: RawTable) -> Iterator[tuple[Column, NDArray[np.float64], Seen]]:
        """Each column's cells as numbers, see `Column.read`, and how many are what; raises as `encode` does."""
        if not raw.named:
            raise DataError(
                f"{raw} has no column names, but a schema tells columns by name: name them (a data frame, a header, or "
                "'columns')."
            )
        found = raw.one_each([one.name for one in self.columns], "the schema")
        for column, cells in zip(self.columns, found, strict=True):
            block, (low, high) = column.read(cells), column.range
            n_outside = int(((block < low) | (block > high)).sum())
            yield column, block, Seen.of(cells, np.flatnonzero(np.isnan(block[:, 0])), n_outside, raw.n_rows)

    @staticmethod
    def tell(table: str, n_rows: int, seen: Sequence[Seen], n_kept: int) -> None:
        """Say in this party's own log how many rows have gaps: it is a private number."""
        if most := max(n_rows - one.n_read for one in seen):
            lacking = ", ".join(f"{one.name!r} {n_rows - one.n_read}" for one in seen if one.n_read < n_rows)
            others = ", ".join(f"{one.name!r} {one.n_unknown}" for one in seen if one.n_unknown)
            said = f"{table}: of {n_rows} rows, cells are missing in {lacking}; {n_rows - n_kept} rows left out"
            said += f"; of these cells, spelt as nothing that the column may hold: {others}" if others else ""
            loud = logging.WARNING if others or most > _MANY * n_rows else logging.INFO
            say_once(logging.ERROR if most == n_rows else loud, said)
        if clipped := [one.name for one in seen if one.n_outside > _MOST_CLIPPED * n_rows]:
            say_once(logging.WARNING, f"{table}: over 1% of the cells lie outside the bounds of {', '.join(clipped)}")

    def decode(self, centroids: ArrayLike) -> dict[str, list[Any]]:
        """What centroids in units, (k, n_features), say of each column, k entries each.

        Numbers as they are, dates as ISO text, flags as shares, categories as shares by value; noise may put a share
        outside of [0, 1], and it is shown at the nearer end. In centroids themselves gaps count as the middle: give
        `Model.cell_means` for what the cells that are there say.
        """
        table, shown, place = np.atleast_2d(np.asarray(centroids, dtype=float)), dict[str, list[Any]](), 0
        if table.shape[1] != (d := len(self.clustered.feature_names)):
            raise DataError(f"the centroids have {table.shape[1]} columns, but the schema {d}: give those of a fit.")
        for column in self.clustered.columns:
            own = table[:, place : place + len(column.features)]
            place += len(column.features)
            if column.kind is Kind.CATEGORY:
                shares = np.clip(own, 0.0, 1.0).tolist()
                shown[column.name] = [dict(zip(map(str, column.values), row, strict=True)) for row in shares]
            elif column.kind is Kind.DATE:
                shown[column.name] = [iso_date(days, *column.range) for days in own[:, 0]]
            else:
                values = np.clip(own[:, 0], 0.0, 1.0) if column.kind is Kind.FLAG else own[:, 0]
                shown[column.name] = values.tolist()
        return shown


@lru_cache(maxsize=64)
def say_once(level: int, sentence: str) -> None:
    """Say once in a process what costs columns or rows: a client loads its table again for every message."""
    _logger.log(level, "%s", sentence)


def widened(columns: Sequence[tuple[int, float]], stated: Bounds, units: Sequence[float]) -> Bounds:
    """Bounds around the middle of stated ones in which lengths, in each column's unit times weight, have one scale.

    `columns` says how many features each has, which have one range, and its weight.
    """
    sizes, weights = zip(*columns, strict=True)
    first = np.cumsum((0, *sizes[:-1]))
    low, high = np.array(stated.lower)[first], np.array(stated.upper)[first]
    per_unit = np.array(weights) / np.array(units)
    more = ((high - low) * per_unit).max() / per_unit - (high - low)
    more = np.where(more > 1e-12 * (high - low), more / 2.0, 0.0)
    return Bounds(*(tuple(np.repeat(side, sizes).tolist()) for side in (low - more, high + more)))


def schema_of(value: Any) -> Schema | None:
    """A schema, or a file of one, where bounds may stand; None for other bounds."""
    if isinstance(value, Schema):
        return value
    if not isinstance(value, str | Path) or Path(value).suffix.lower() != ".toml":
        return None
    try:
        is_schema = "columns" in _read_toml(value)
    except (OSError, ValueError):
        read_ranges(value)  # has a sentence
        return None
    return Schema.load(value) if is_schema else None


def _read_toml(path: str | Path) -> dict[str, Any]:
    return tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8-sig"))


def days_of(text: str) -> float:
    """Days since 1970 of an ISO 8601 date, or date and time (UTC where it says a zone); NaN if it is none."""
    try:
        when = datetime.fromisoformat(text)
        return (when - (_EPOCH if when.tzinfo is None else _EPOCH.replace(tzinfo=UTC))) / timedelta(days=1)
    except ValueError:
        return math.nan


def iso_date(days: float, low: float = -math.inf, high: float = math.inf) -> str:
    """The ISO 8601 date nearest to so many days after 1970 began, as far as there is one; of noon, that of its day.

    The minute, where a column's bounds are a few days apart.
    """
    per_day = 1 if high - low >= 10.0 else 24 * 60
    nearest = math.ceil(min(max(days, -700_000), 2_900_000) * per_day - 0.5)
    moment = _EPOCH + timedelta(minutes=nearest * (1440 // per_day))
    return moment.date().isoformat() if per_day == 1 else moment.isoformat(timespec="minutes")


def _written(value: Any) -> float | str:
    """What equal values of a category have in common: 1, "1" and "1.0" are one number, but "01" is a text."""
    text = text_of(value) or ""
    return plain_number(text) if _NUMBER.fullmatch(text) else text


def _width(column: Column) -> float:
    return column.range[1] - column.range[0]
