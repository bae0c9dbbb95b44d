"""A public schema that all parties share: which columns are clustered, what stands in them, and how much each weighs.

It turns a table of numbers, text, dates and gaps into points and their public bounds, each row by itself: so one row
changes one point or none, whatever the others are. Weights, and the scale of categories, are bounds that are wider than
the values: what fills a part of its bounds has that part of the distance.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.points import Bounds, check_ranges
from flwr_dpkmeans.data.readers import RawColumn, RawTable, frame_table
from flwr_dpkmeans.errors import ColumnError, ConfigurationError, DataError, nearest
from flwr_dpkmeans.log import placed_logger

_logger = placed_logger("flwr_dpkmeans.data")
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)
_SHORT_RANGE = 31.0
_MOST_CLIPPED = 0.01
_LARGEST_WEIGHT_RATIO = 1e6
_ONE_HOT_UNIT = 2.0
"""Half of a number's scale: two one-hot rows differ by sqrt(2), and are so 1/sqrt(2) of a full range apart."""
_Choice = TypeVar("_Choice", bound=StrEnum)


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


@dataclass(frozen=True)
class Column:
    """One column that is clustered; a ConfigurationError names it and what is wrong.

    Examples
    --------
    >>> Column("origin", "category", values=("EWR", "JFK"), missing="centre").features
    ('origin=EWR', 'origin=JFK')
    """

    name: str
    kind: Kind | str
    """number, flag, category, date."""
    bounds: tuple[Any, Any] | None = None
    """Public range of a number, or of a date as ISO 8601 text; values outside are clipped."""
    values: tuple[str | float, ...] = ()
    """Public values of a category: text is compared with the cell as it is written, numbers as numbers."""
    missing: Missing | str = Missing.DROP
    """drop: the row is left out; fill: with a public value; centre: without pull, in the middle of the bounds."""
    fill: Any = None
    """The value, in the column's own units."""
    weight: float = 1.0
    """The column's scale in a distance beside the others'."""

    def __post_init__(self) -> None:
        kind, missing = self._choice("kind", Kind), self._choice("missing", Missing)
        ranged = kind in (Kind.NUMBER, Kind.DATE)
        for key, needed, given in (
            ("bounds", ranged, self.bounds is not None),
            ("values", kind is Kind.CATEGORY, bool(self.values)),
            ("fill", missing is Missing.FILL, self.fill is not None),
        ):
            if needed != given:
                has, mend = ("no", "add it") if needed else ("a", "leave it out")
                why = f"missing is {missing.value!r}" if key == "fill" else f"it is a {kind.value}"
                raise self._wrong(f"has {has} {key!r}, but {why}: {mend}")
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float) or not 0 < self.weight < math.inf:
            raise self._wrong(f"has weight {self.weight!r}, but it must be a positive number: give 1.0")
        if isinstance(self.bounds, str) or (self.bounds is not None and len(self.bounds) != 2):
            raise self._wrong(f"has bounds {self.bounds!r}, but they are a lower and an upper one: give [0, 100]")
        if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in self.values):
            raise self._wrong("has values that are neither text nor numbers: write them in quotes")
        if self.bounds is not None:
            low, high = map(self._public, self.bounds)
            check_ranges((low,), (high,), (self.name,))
            object.__setattr__(self, "bounds", tuple(map(self._shown, (low, high))))
        object.__setattr__(self, "values", tuple(one.strip() if isinstance(one, str) else one for one in self.values))
        object.__setattr__(self, "weight", float(self.weight))
        if missing is Missing.FILL:
            filled = self.read(RawColumn.of_cells(self.name, [self.fill]))
            if np.isnan(filled).any() or (ranged and self._public(self.fill) != filled[0, 0]):
                raise self._wrong(f"is filled with {self.fill!r}, which it may not hold: give one of its values")

    def _choice(self, key: str, kinds: type[_Choice]) -> _Choice:
        """Turn a word into one of an enum's."""
        word = getattr(self, key)
        if word not in list(kinds):
            raise self._wrong(f"has {key} {word!r}, which is not known: {nearest(word, kinds)[:-1]}")
        object.__setattr__(self, key, kinds(word))
        return kinds(word)

    def _wrong(self, problem: str) -> ConfigurationError:
        """An error about this column."""
        return ConfigurationError(f"the schema's column {self.name!r} {problem}.")

    def _public(self, value: Any) -> float:
        """A bound or filling as a number."""
        if self.kind is Kind.DATE:
            number = days_of(value.isoformat() if isinstance(value, date) else str(value))
        else:
            number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if math.isnan(number):
            wanted = "an ISO date such as '2013-01-31'" if self.kind is Kind.DATE else "a number"
            raise self._wrong(f"has the bound or filling {value!r}, but it must be {wanted}")
        return number

    def _shown(self, value: float) -> Any:
        """A number in the column's own units, as it is written down."""
        return date_of(value) if self.kind is Kind.DATE else value

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the points' columns that it becomes."""
        return tuple(f"{self.name}={value}" for value in self.values) or (self.name,)

    @cached_property
    def range(self) -> tuple[float, float]:
        """What the numbers in these columns lie between."""
        return (0.0, 1.0) if self.bounds is None else (self._public(self.bounds[0]), self._public(self.bounds[1]))

    @property
    def middle(self) -> float:
        """A cell without pull: as far from the one end as from the other, or from each of the values."""
        return 1.0 / len(self.values) if self.values else sum(self.range) / 2.0

    def read(self, cells: RawColumn) -> NDArray[np.float64]:
        """Numbers, (n_rows, n_features), of a column's cells; NaN where one is missing, or nothing that it may hold."""
        if self.kind is Kind.CATEGORY:
            texts, numbers = np.array(cells.text(), dtype=object), cells.numbers()
            which = [(texts if isinstance(one, str) else numbers) == one for one in self.values]
            one_hot = np.stack(which, axis=1).astype(np.float64)
            one_hot[one_hot.max(axis=1) == 0.0] = math.nan
            return one_hot
        if self.kind is Kind.DATE:
            values = np.array([math.nan if cell is None else days_of(cell) for cell in cells.text()], dtype=float)
        else:
            values = np.where(np.isfinite(numbers := cells.numbers()), numbers, math.nan)
        if self.kind is Kind.FLAG:
            values = np.where((values == 0.0) | (values == 1.0), values, math.nan)
        return values[:, None]

    def to_dict(self) -> dict[str, Any]:
        """What a file says of it: only what differs from the defaults."""
        said: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)[1:]}
        said |= {"kind": str(self.kind), "missing": str(self.missing)}
        said |= {"bounds": self.bounds and list(self.bounds), "values": list(self.values)}
        if isinstance(self.fill, date):
            said["fill"] = self.fill.isoformat()
        plain: dict[str, Any] = {"bounds": None, "values": [], "missing": "drop", "fill": None, "weight": 1.0}
        return {key: value for key, value in said.items() if key not in plain or value != plain[key]}


@dataclass(frozen=True)
class Encoded:
    """The rows of a table as points in units, (n_kept, n_features).

    Rows with a missing cell that is dropped are not among them: `rows`, (n_kept,), says which of `n_rows` are.
    """

    schema: Schema
    points: NDArray[np.float64] = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)
    n_rows: int

    def spread(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """One label for each row of the table, (n_rows,); -1 where the row was left out."""
        whole = np.full(self.n_rows, -1, dtype=np.int64)
        whole[self.rows] = labels
        return whole


@dataclass(frozen=True)
class Schema:
    """The columns that are clustered, in an order of their own, and what one unit of distance is.

    Parameters
    ----------
    columns : sequence of Column
        Other columns of a table are left out.
    scale : str
        ``"bounds"``: each column's full range is as long as its weight; ``"none"``: columns keep their units;
        ``"standard"``: private standard deviations are the units.

    Raises
    ------
    ConfigurationError
        If two columns would have one name, or none is there.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", (0, 100)), Column("ward", "category", values=("A", "B"), weight=0.5)))
    >>> encoded = schema.encode({"ward": ["B", "A", "C"], "name": ["x", "y", "z"], "age": [50, 120, 1]})
    >>> encoded.points.tolist(), encoded.rows.tolist()
    ([[50.0, 0.0, 1.0], [100.0, 1.0, 0.0]], [0, 1])
    >>> schema.feature_names, schema.bounds
    (('age', 'ward=A', 'ward=B'), Bounds(lower=(0.0, -1.5, -1.5), upper=(100.0, 2.5, 2.5)))
    >>> schema.decode([[40.0, 0.25, 1.02]])
    {'age': [40.0], 'ward': [{'A': 0.25, 'B': 1.0}]}
    """

    columns: tuple[Column, ...]
    scale: Scale | str = Scale.BOUNDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.scale not in list(Scale):
            raise ConfigurationError(f"scale is {self.scale!r}, which is not known: {nearest(self.scale, Scale)}")
        object.__setattr__(self, "scale", Scale(self.scale))
        if not self.columns:
            raise ConfigurationError("the schema has no columns, but at least 1 is clustered: add it.")
        for names in ([column.name for column in self.columns], list(self.feature_names)):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ConfigurationError(f"the schema has {twice!r} twice, but columns are told by name: rename one.")
        weights = [column.weight for column in self.columns]
        if max(weights) > _LARGEST_WEIGHT_RATIO * min(weights):
            raise ConfigurationError(
                f"the schema's weights go from {min(weights):g} to {max(weights):g}, of which the smallest says "
                "nothing beside the largest: leave such columns out."
            )

    # -- a file -------------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML file; a ConfigurationError has its path."""
        try:
            return cls.from_dict(tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8-sig")))
        except OSError as error:
            raise ConfigurationError(
                f"the schema {path} cannot be read ({error.strerror}): correct the path."
            ) from error
        except ValueError as error:  # TOML, UTF-8, and what a schema may not say
            raise ConfigurationError(f"the schema {path}: {error}") from error

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Schema:
        """Build it from what a file, or `to_dict`, says."""
        _require_keys("the schema", said, ("scale", "columns"))
        columns = said.get("columns", {})
        if not isinstance(columns, Mapping) or not all(isinstance(one, Mapping) for one in columns.values()):
            raise ConfigurationError("the schema's columns are no tables: write age = { kind = 'number', ... }.")
        keys = [one.name for one in fields(Column)][1:]
        built = []
        for name, one in columns.items():
            _require_keys(f"the schema's column {name!r}", one, keys)
            if "kind" not in one:
                raise ConfigurationError(f"the schema's column {name!r} has no kind: give {', '.join(Kind)}.")
            plain: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in one.items()
            }
            built.append(Column(name, **plain))
        return cls(tuple(built), said.get("scale", Scale.BOUNDS))

    def to_dict(self) -> dict[str, Any]:
        """What a file says, in plain values of JSON and TOML."""
        return {"scale": str(self.scale), "columns": {column.name: column.to_dict() for column in self.columns}}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it says, in hexadecimal."""
        return hashlib.sha256(json.dumps(["flwr-dpkmeans schema", self.to_dict()]).encode()).hexdigest()

    # -- points -------------------------------------------------------------------------------------------------------

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the points' columns: a category has one for each value, as ``origin=EWR``."""
        return tuple(name for column in self.columns for name in column.features)

    @cached_property
    def bounds(self) -> Bounds:
        """The points' public bounds, in units: those that are stated, widened where a column weighs less."""
        return self._widened([_ONE_HOT_UNIT if column.values else _width(column) for column in self.columns])

    def _widened(self, units: Sequence[float]) -> Bounds:
        """Bounds around each column's middle in which lengths, in units of their own times weight, have one scale."""
        longest = max(c.weight * _width(c) / unit for c, unit in zip(self.columns, units, strict=True))
        lower, upper = list[float](), list[float]()
        for column, unit in zip(self.columns, units, strict=True):
            low, high = column.range
            more = (longest * unit / column.weight - (high - low)) / 2.0
            more = max(0.0, more) if more > 1e-12 * (high - low) else 0.0
            lower += [low - more] * len(column.features)
            upper += [high + more] * len(column.features)
        return Bounds(tuple(lower), tuple(upper))

    def encode(self, table: Any) -> Encoded:
        """Turn a table into points; what it holds never is an error, only which columns it has.

        Parameters
        ----------
        table : data frame, mapping of columns, RawTable or Encoded
            pandas, polars, pyarrow or anything with the dataframe interchange; columns in any order.

        Raises
        ------
        ColumnError
            If a column of the schema is missing, or there twice: by name, and by position for others.
        """
        if isinstance(table, Encoded):
            if table.schema != self:
                raise DataError("the table was encoded by another schema: encode it by this one.")
            return table
        raw = table if isinstance(table, RawTable) else frame_table(table)
        blocks, kept = list[NDArray[np.float64]](), np.ones(raw.n_rows, dtype=bool)
        lacking, clipped = dict[str, int](), list[str]()
        for column, cells in zip(self.columns, self._own(raw), strict=True):
            block = column.read(cells)
            gaps = np.isnan(block[:, 0])
            low, high = column.range
            if np.count_nonzero((block < low) | (block > high)) > _MOST_CLIPPED * raw.n_rows:
                clipped.append(column.name)
            if column.missing is Missing.DROP:
                kept &= ~gaps
            elif gaps.any():
                fill = RawColumn.of_cells(column.name, [column.fill])
                block[gaps] = column.middle if column.missing is Missing.CENTRE else column.read(fill)
            lacking |= {column.name: int(gaps.sum())} if gaps.any() else {}
            blocks.append(np.clip(block, low, high))
        rows = np.flatnonzero(kept)
        self._tell(raw, lacking, clipped, len(rows))
        return Encoded(self, np.ascontiguousarray(np.concatenate(blocks, axis=1)[rows]), rows, raw.n_rows)

    def _own(self, raw: RawTable) -> list[RawColumn]:
        """The table's columns in the schema's order."""
        names = [column.name for column in raw.columns]
        if not raw.named:
            raise DataError(
                f"{raw} has no column names, but a schema tells columns by name: name them (a data frame, a header, or "
                "'columns')."
            )
        for position, column in enumerate(self.columns):
            if (n := names.count(column.name)) != 1:
                problem = f"{n or 'no'} columns named {column.name!r}, but the schema needs one"
                hint = "rename the others" if n else nearest(column.name, names)
                raise ColumnError(f"{raw} has {problem}: {hint}", position, len(self.columns))
        return [raw.columns[names.index(column.name)] for column in self.columns]

    @staticmethod
    def _tell(raw: RawTable, lacking: Mapping[str, int], clipped: Sequence[str], n_kept: int) -> None:
        """Say in this party's own log how many rows have gaps: it is a private number."""
        if lacking:
            counts = ", ".join(f"{name!r} {n}" for name, n in lacking.items())
            left_out = raw.n_rows - n_kept
            level = _logger.info if n_kept else _logger.error
            level("%s: of %d rows, cells are missing in %s; %d rows left out", raw, raw.n_rows, counts, left_out)
        if clipped:
            _logger.warning("%s: more than 1%% of the cells lie outside the bounds of %s", raw, ", ".join(clipped))

    # -- for people ---------------------------------------------------------------------------------------------------

    def decode(self, centroids: ArrayLike) -> dict[str, list[Any]]:
        """What centroids in units, (k, n_features), say of each column, k entries each.

        Numbers as they are, dates as ISO text, flags as shares, categories as shares by value; noise may put a share
        outside of [0, 1], and it is shown at the nearer end.
        """
        table, shown, place = np.atleast_2d(np.asarray(centroids, dtype=float)), dict[str, list[Any]](), 0
        for column in self.columns:
            own = table[:, place : place + len(column.features)]
            place += len(column.features)
            if column.kind is Kind.CATEGORY:
                shares = np.clip(own, 0.0, 1.0).tolist()
                shown[column.name] = [dict(zip(map(str, column.values), row, strict=True)) for row in shares]
            elif column.kind is Kind.DATE:
                minutes = _width(column) < _SHORT_RANGE
                shown[column.name] = [date_of(one, minutes=minutes) for one in own[:, 0].tolist()]
            else:
                values = np.clip(own[:, 0], 0.0, 1.0) if column.kind is Kind.FLAG else own[:, 0]
                shown[column.name] = values.tolist()
        return shown


def schema_of(value: Any) -> Schema | None:
    """A schema, or a file of one, where bounds may stand; None for other bounds."""
    if isinstance(value, Schema):
        return value
    if not isinstance(value, str | Path) or Path(value).suffix.lower() != ".toml":
        return None
    try:
        said = tomllib.loads(Path(value).expanduser().read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return None  # what reads bounds has a sentence
    return Schema.load(value) if "columns" in said else None


def agreement(digest: str, names: Sequence[str], bounds: tuple[Sequence[float], Sequence[float]]) -> str:
    """What all sides of a run must have alike: a schema's digest, with the names and bounds that follow from it."""
    lower, upper = map(list, bounds)
    return hashlib.sha256(json.dumps([digest, list(names), lower, upper]).encode()).hexdigest() if digest else ""


def days_of(text: str) -> float:
    """Days since 1970 of an ISO 8601 date, or date and time (UTC where it says a zone); NaN if it is none."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return math.nan
    when = when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None)
    return (when - _EPOCH) / _DAY


def date_of(days: float, *, minutes: bool | None = None) -> str:
    """ISO 8601 text of days since 1970, to the day or to the minute; None: as exact as it is."""
    try:
        when = _EPOCH + timedelta(days=days)
    except OverflowError:
        return f"{days:+.0f} days from 1970"
    if minutes is None:
        return when.isoformat() if when.time() != _EPOCH.time() else when.date().isoformat()
    return when.isoformat(timespec="minutes") if minutes else (when + _DAY / 2).date().isoformat()


def _width(column: Column) -> float:
    """Of a column's range."""
    return column.range[1] - column.range[0]


def _require_keys(what: str, said: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a key that there is not."""
    for key in said:
        if key not in known:
            raise ConfigurationError(f"{what} has {key!r}, which is not known: {nearest(key, known)}")
