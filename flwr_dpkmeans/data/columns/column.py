"""What one column of a schema means: how it is read, and which features it becomes.

Each cell is read by itself, and none is an error: a node answers alike whatever stands
in its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from flwr_dpkmeans.data.columns.categories import positions_among
from flwr_dpkmeans.data.columns.column_cells import (
    Form,
    each,
    replaced,
    without_numbers,
)
from flwr_dpkmeans.data.columns.column_kind import Kind, Transform
from flwr_dpkmeans.data.columns.column_rules import require_fitting
from flwr_dpkmeans.data.columns.dates import days_of, hours_of
from flwr_dpkmeans.data.columns.stated import Stated
from flwr_dpkmeans.data.columns.treatment import Missing, Outside
from flwr_dpkmeans.data.columns.written_cells import Value, written
from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.files.raw_column import RawColumn

Array = NDArray[np.float64]
Limits = tuple[float, float]
Names = tuple[str, ...]
Pairs = tuple[tuple[str, Value], ...]
Values = tuple[str | int | float, ...]

_HOURS = 24.0
"""The period of a cycle whose cells may be times of day."""
_OFFSET_SHARE = 1000.0
"""Part of the bounds' width that a logarithm starts from, where the lower bound is 0 or
less.
"""


class Cells(NamedTuple):
    """The cells of a column as it reads them."""

    points: Array
    """(n_rows, n_features), within the column's range.

    NaN in a row whose cell is a gap.
    """
    values: Array
    """(n_rows,): numbers in the column's units.

    Of a category the position of the value; NaN if it is none.
    """
    n_outside: int
    """How many values lie outside the bounds."""


class Column(Stated):
    """One column that is clustered.

    Examples
    --------
    >>> Column(name="origin", kind="category", values=["EWR", "JFK"]).features
    ('origin=EWR', 'origin=JFK')
    >>> lactate = Column(
    ...     name="lactate",
    ...     kind="number",
    ...     bounds=(0.1, 100),
    ...     transform="log",
    ...     missing_values=[-999],
    ... )
    >>> cells = RawColumn.of_cells("lactate", [1.0, 0.01, -999])
    >>> lactate.read(cells).round(3).tolist()
    [[0.0], [-2.303], [nan]]
    >>> hour = Column(name="hour", kind="cycle", period=24)
    >>> cells = RawColumn.of_cells("hour", ["0", "6", "2026-01-31T18:00"])
    >>> hour.read(cells).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [-0.0, -1.0]]
    """

    name: str
    kind: Kind
    bounds: Limits | tuple[str, str] | None = None
    """Public range of a number, or of a date as ISO 8601 text."""
    values: Values = ()
    """Public values of a category, compared with the cell as it is written.

    1, "1" and 1.0 are one.
    """
    missing: Missing = Missing.DROP
    """drop: the row is left out.

    Fill: with a public value; centre: in the middle of the bounds, or of the values,
    for the clustering alone: means, shares and spreads are those of the cells that are
    there.
    """
    fill: str | float | None = None
    """The value, in the column's own units."""
    weight: float = Field(1.0, ge=0.0, le=1e3)
    """The column's scale in a distance beside the others', at least 0.001.

    0: it is not clustered, but in a profile.
    """
    transform: Transform = Transform.NONE
    """log: distances of a number are those of its logarithms, so that ratios count, and
    not differences.
    """
    offset: float | None = Field(None, allow_inf_nan=False)
    """What is added before the logarithm.

    By default 0, or just so much that the lower bound's logarithm is there.
    """
    outside: Outside = Outside.CLIP
    """clip: a number or date outside the bounds counts as the nearer one.

    Missing: as a missing cell.
    """
    period: float | None = Field(None, gt=0.0, allow_inf_nan=False)
    """After what the values of a cycle begin again: 24 hours, 7 days, 360 degrees."""
    start: float = Field(0.0, allow_inf_nan=False)
    """The first value of a cycle: 1 where weekdays are 1 to 7."""
    map: Pairs = ()
    """What cells mean that are written otherwise, as ja = true.

    Compared as the values of a category are.
    """
    missing_values: Values = ()
    """Cells that are no values but say that one is missing, as -999.

    Compared as the values of a category are.
    """

    @field_validator("bounds", "fill", mode="before")
    @classmethod
    def _as_text(cls, stated: object) -> object:
        """TOML has dates of its own."""
        if not isinstance(stated, list | tuple):
            return _plain(stated)
        if len(stated) != 2:
            raise ValueError(
                "a lower and an upper one are needed: give both, from what is public of"
                " the column"
            )
        return list(map(_plain, stated))

    @field_validator("map", mode="before")
    @classmethod
    def _as_pairs(cls, stated: object) -> object:
        """A file has a table of texts, whose values may be dates."""
        if not isinstance(stated, Mapping):
            return stated
        pairs = []
        for key, meaning in stated.items():
            text = key if isinstance(key, str) else text_of(key)
            pairs.append((text, _plain(meaning)))
        return pairs

    @field_validator("map")
    @classmethod
    def _in_order(cls, pairs: Pairs) -> Pairs:
        """Equal tables have one digest."""
        in_order = sorted(pairs, key=lambda pair: pair[0])
        return tuple(in_order)

    @model_validator(mode="after")
    def _fits(self) -> Column:
        require_fitting(self)
        return self

    def to_dict(self) -> dict[str, object]:
        """Return what a file says of it below its name, but for defaults."""
        omitted = {"name", "map"}
        keys = self.model_dump(mode="json", exclude_defaults=True, exclude=omitted)
        if self.map:
            keys["map"] = dict(self.map)
        return keys

    @property
    def features(self) -> Names:
        """Names of the points' columns that it becomes."""
        if self.kind == Kind.CYCLE:
            return f"{self.name} (cos)", f"{self.name} (sin)"
        if self.transform == Transform.LOG:
            return (f"{self.name} (log)",)
        if self.kind == Kind.CATEGORY:
            return tuple(f"{self.name}={value}" for value in self.values)
        return (self.name,)

    @property
    def shown_names(self) -> Names:
        """What stands before a centre's values in units, for each feature."""
        if self.kind == Kind.CYCLE:
            return self.name, f"{self.name}: how alike, from 0 to 1"
        if self.transform == Transform.LOG:
            return (f"{self.name} (geometric mean)",)
        return self.features

    @cached_property
    def limits(self) -> Limits:
        """Smallest and largest value in its units.

        Of a category, positions of its values; of a cycle, one turn.
        """
        if self.kind == Kind.CYCLE:
            return self.start, self.start + self.length
        if self.kind == Kind.CATEGORY:
            return -1.0, float(len(self.values))
        if self.bounds is None:
            return 0.0, 1.0
        limits = self.values_of(self.bounds)
        low, high = limits.tolist()
        return low, high

    @cached_property
    def range(self) -> Limits:
        """Smallest and largest number in the points' columns."""
        if self.kind == Kind.CYCLE:
            return -1.0, 1.0
        if self.kind == Kind.CATEGORY:
            return 0.0, 1.0
        if self.transform == Transform.LOG:
            low, high = self.limits
            shift = self.shift
            return _exact_log(low, shift), _exact_log(high, shift)
        return self.limits

    @property
    def length(self) -> float:
        """After what the values of a cycle begin again; 1 of what is none."""
        return 1.0 if self.period is None else self.period

    @property
    def width(self) -> float:
        """Width of its range."""
        low, high = self.range
        return high - low

    @property
    def shift(self) -> float:
        """What is added before a logarithm."""
        if self.offset is not None:
            return self.offset
        low, high = self.limits
        if low > 0.0:
            return 0.0
        return (high - low) / _OFFSET_SHARE - low

    @property
    def reads_text(self) -> bool:
        """Whether cells have to be read as they are written, not as numbers."""
        if self.map or self._is_of_text:
            return True
        return any(isinstance(value, str) for value in self.missing_values)

    @property
    def _is_of_text(self) -> bool:
        """Whether values are texts, dates, or times of day."""
        is_clock = self.period == _HOURS
        return is_clock or self.kind in (Kind.CATEGORY, Kind.DATE)

    def stand_in(self) -> float | Array:
        """Return what a missing cell becomes, in the points' columns.

        Without `fill` it has no pull: it is as far from one end, or value, as from the
        others.
        """
        if self.missing == Missing.FILL:
            values = self.values_of([self.fill])
            return _points_of(self, values)
        if self.values:
            return 1.0 / len(self.values)
        return sum(self.range) / 2.0

    def read(self, cells: RawColumn) -> Array:
        """Return numbers, (n_rows, n_features), of a column's cells.

        NaN where one is missing, or nothing that it may hold.
        """
        meant = self.meant(cells)
        return self.look(meant).points

    def look(self, meant: RawColumn) -> Cells:
        """Return numbers and values of cells that `meant` has replaced already."""
        values = self._values(meant)
        low, high = self.limits
        is_outside = (values < low) | (values > high)
        clustered = values
        if self.outside == Outside.MISSING:
            clustered = np.where(is_outside, math.nan, values)
        points = _points_of(self, clustered)
        n_outside = int(is_outside.sum())
        return Cells(points, values, n_outside)

    def meant(self, cells: RawColumn) -> RawColumn:
        """Replace cells by what `map` says that they mean.

        And by gaps where `missing_values` says that one is missing.
        """
        has_numbers = self.kind != Kind.CATEGORY
        if self.map:
            cells = replaced(
                cells,
                self._meanings,
                has_numbers=has_numbers,
            )
        has_words = cells.values is None or self.reads_text
        if self.missing_values and has_words:
            gaps = dict.fromkeys(self.missing_cells)
            cells = replaced(
                cells,
                gaps,
                has_numbers=has_numbers,
            )
        elif self.missing_values:
            cells = without_numbers(cells, self.missing_cells)
        if self._is_of_text and cells.values is not None and cells.n_unparsable:
            # Among numbers, texts and times of day would count as nothing that the
            # column may hold.
            cells = replace(
                cells,
                values=None,
                n_unparsable=0,
                numeric=cells.values,
            )
        return cells

    @cached_property
    def _meanings(self) -> dict[Form, str | None]:
        meanings = {}
        for text, meaning in self.map:
            form = written(text)
            meanings[form] = text_of(meaning)
        return meanings

    @cached_property
    def missing_cells(self) -> frozenset[Form]:
        """What the cells that say that one is missing have in common."""
        return frozenset(map(written, self.missing_values))

    def values_of(self, cells: Iterable[object]) -> Array:
        """Numbers in the column's units, (n_cells,), of stated cells."""
        column = RawColumn.of_cells(self.name, cells)
        return self._values(column)

    def _values(self, cells: RawColumn) -> Array:
        """Numbers in the column's units, (n_rows,), wherever they lie.

        NaN where a cell is none.
        """
        if self.kind == Kind.CATEGORY:
            return positions_among(self.values, cells.text())
        if self.kind == Kind.DATE:
            return each(days_of, cells.dates())
        numbers = cells.numbers()
        is_finite = np.isfinite(numbers)
        values = np.where(is_finite, numbers, math.nan)
        if self.kind == Kind.FLAG:
            is_flag = (values == 0.0) | (values == 1.0)
            return np.where(is_flag, values, math.nan)
        if self.period == _HOURS and cells.values is None:
            hours = each(hours_of, cells.text())
            is_no_number = np.isnan(values)
            return np.where(is_no_number, hours, values)
        return values


def _plain(value: object) -> object:
    """A value of TOML as JSON has it."""
    return value.isoformat() if isinstance(value, date) else value


def _exact_log(limit: float, shift: float) -> float:
    """The logarithm with all of its digits right.

    Bounds have to be equal on all machines of a run.
    """
    if limit + shift <= 0.0:
        return -math.inf
    shifted = Decimal(limit) + Decimal(shift)
    return float(shifted.ln())


def _points_of(column: Column, values: Array) -> Array:
    """The points' columns, (n_rows, n_features), of values in units.

    NaN where one is.
    """
    if column.kind == Kind.CATEGORY:
        return _one_hot(values, len(column.values))
    if column.kind == Kind.CYCLE:
        return _on_circle(column, values)
    low, high = column.limits
    points = np.clip(values, low, high)
    if column.transform == Transform.LOG:
        # Not NumPy's own, whose last bit may differ by where in a block, and on which
        # machine, a cell stands.
        shifted = points + column.shift
        logarithms = list(map(math.log, shifted.tolist()))
        low, high = column.range
        points = np.clip(logarithms, low, high)
    return points[:, None]


def _one_hot(values: Array, n_values: int) -> Array:
    """Rows with a 1 where the position of a category's value is; NaN for gaps."""
    one_hot = np.eye(n_values)
    gap = np.full(n_values, math.nan)
    # The last row is for gaps.
    table = np.vstack([one_hot, gap])
    is_gap = np.isnan(values)
    positions = np.where(is_gap, -1, values)
    rows = positions.astype(np.intp)
    return np.asarray(table[rows])


def _on_circle(column: Column, values: Array) -> Array:
    """Cosine and sine of each value's angle.

    Opposite ones are a diameter apart, as the ends of bounds are.
    """
    length = column.length
    since_start = values - column.start
    turns = np.mod(since_start, length) / length
    angles = 2.0 * math.pi * turns
    points = np.empty((len(angles), 2))
    for row, angle in enumerate(angles.tolist()):
        points[row, 0] = math.cos(angle)
        points[row, 1] = math.sin(angle)
    return points
