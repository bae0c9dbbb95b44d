"""What one column of a schema means: how it is read, and which features it becomes.

Each cell is read by itself, and none is an error: a node answers alike whatever stands
in its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from flwr_dpkmeans.data.columns.column_kind import Kind, Transform
from flwr_dpkmeans.data.columns.column_rules import require_fitting
from flwr_dpkmeans.data.columns.dates import days_of, hours_of, iso_date
from flwr_dpkmeans.data.columns.stated import Stated
from flwr_dpkmeans.data.columns.treatment import Missing, Outside
from flwr_dpkmeans.data.columns.written_cells import Value, written
from flwr_dpkmeans.data.files.cells import plain_number, text_of
from flwr_dpkmeans.data.files.raw_table import RawColumn

Array = NDArray[np.float64]

_HOURS = 24.0
"""The period of a cycle whose cells may be times of day."""
_LARGEST_WHOLE = 2**53
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
    bounds: tuple[float, float] | tuple[str, str] | None = None
    """Public range of a number, or of a date as ISO 8601 text."""
    values: tuple[str | int | float, ...] = ()
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
    map: tuple[tuple[str, Value], ...] = ()
    """What cells mean that are written otherwise, as ja = true.

    Compared as the values of a category are.
    """
    missing_values: tuple[str | int | float, ...] = ()
    """Cells that are no values but say that one is missing, as -999.

    Compared as the values of a category are.
    """

    @field_validator("bounds", "fill", mode="before")
    @classmethod
    def _as_text(cls, stated: Any) -> Any:
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
    def _as_pairs(cls, stated: Any) -> Any:
        """A file has a table of texts, whose values may be dates."""
        if not isinstance(stated, Mapping):
            return stated
        texts = [key if isinstance(key, str) else text_of(key) for key in stated]
        meanings = list(map(_plain, stated.values()))
        return list(zip(texts, meanings, strict=True))

    @field_validator("map")
    @classmethod
    def _in_order(
        cls, pairs: tuple[tuple[str, Value], ...]
    ) -> tuple[tuple[str, Value], ...]:
        """Equal tables have one digest."""
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    @model_validator(mode="after")
    def _fits(self) -> Column:
        require_fitting(self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return what a file says of it below its name, but for defaults."""
        omitted = {"name", "map"}
        keys = self.model_dump(mode="json", exclude_defaults=True, exclude=omitted)
        if self.map:
            keys["map"] = dict(self.map)
        return keys

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the points' columns that it becomes."""
        if self.kind == Kind.CYCLE:
            return f"{self.name} (cos)", f"{self.name} (sin)"
        if self.transform == Transform.LOG:
            return (f"{self.name} (log)",)
        if self.kind == Kind.CATEGORY:
            return tuple(f"{self.name}={value}" for value in self.values)
        return (self.name,)

    @property
    def shown_names(self) -> tuple[str, ...]:
        """What stands before a centre's values in units, for each feature."""
        if self.kind == Kind.CYCLE:
            return self.name, f"{self.name}: how alike, from 0 to 1"
        if self.transform == Transform.LOG:
            return (f"{self.name} (geometric mean)",)
        return self.features

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value in its units.

        Of a category, positions of its values; of a cycle, one turn.
        """
        if self.kind == Kind.CYCLE:
            return self.start, self.start + (self.period or 0.0)
        if self.kind == Kind.CATEGORY:
            return -1.0, float(len(self.values))
        if self.bounds is None:
            return 0.0, 1.0
        low, high = self.values_of(self.bounds).tolist()
        return low, high

    @cached_property
    def range(self) -> tuple[float, float]:
        """Smallest and largest number in the points' columns."""
        if self.kind == Kind.CYCLE:
            return -1.0, 1.0
        if self.kind == Kind.CATEGORY:
            return 0.0, 1.0
        if self.transform == Transform.LOG:
            low, high = self.limits
            return _exact_log(low, self.shift), _exact_log(high, self.shift)
        return self.limits

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
        if self.kind in (Kind.CATEGORY, Kind.DATE) or self.map:
            return True
        has_words = any(isinstance(value, str) for value in self.missing_values)
        return has_words or self.period == _HOURS

    def stand_in(self) -> float | Array:
        """Return what a missing cell becomes, in the points' columns.

        Without `fill` it has no pull: it is as far from one end, or value, as from the
        others.
        """
        if self.missing == Missing.FILL:
            return self._points(self.values_of([self.fill]))
        if self.values:
            return 1.0 / len(self.values)
        return sum(self.range) / 2.0

    def read(self, cells: RawColumn) -> Array:
        """Return numbers, (n_rows, n_features), of a column's cells.

        NaN where one is missing, or nothing that it may hold.
        """
        return self.look(self.meant(cells)).points

    def look(self, meant: RawColumn) -> Cells:
        """Return numbers and values of cells that `meant` has replaced already."""
        values = self._values(meant)
        low, high = self.limits
        is_outside = (values < low) | (values > high)
        clustered = values
        if self.outside == Outside.MISSING:
            clustered = np.where(is_outside, math.nan, values)
        points = self._points(clustered)
        return Cells(points, values, int(is_outside.sum()))

    def meant(self, cells: RawColumn) -> RawColumn:
        """Replace cells by what `map` says that they mean.

        And by gaps where `missing_values` says that one is missing.
        """
        if self.map:
            has_numbers = self.kind != Kind.CATEGORY
            cells = _replaced(cells, self._meanings, has_numbers=has_numbers)
        if self.missing_values:
            cells = self._with_gaps(cells)
        is_of_text = self.kind in (Kind.CATEGORY, Kind.DATE) or self.period == _HOURS
        if is_of_text and cells.values is not None and cells.n_unparsable:
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
    def _meanings(self) -> dict[float | str, str | None]:
        return {written(text): text_of(meaning) for text, meaning in self.map}

    @cached_property
    def missing_cells(self) -> frozenset[float | str]:
        return frozenset(map(written, self.missing_values))

    def _with_gaps(self, cells: RawColumn) -> RawColumn:
        if cells.values is None or self.reads_text:
            gaps = dict.fromkeys(self.missing_cells)
            return _replaced(cells, gaps, has_numbers=self.kind != Kind.CATEGORY)
        # A file's numbers may not be there as they are written.
        numbers = [value for value in self.missing_cells if not isinstance(value, str)]
        is_gap = np.isin(cells.values, numbers)
        values = np.where(is_gap, math.nan, cells.values)
        return replace(cells, values=values, numeric=values)

    def values_of(self, cells: Iterable[Any]) -> Array:
        """Numbers in the column's units, (n_cells,), of stated cells."""
        return self._values(RawColumn.of_cells(self.name, cells))

    def _values(self, cells: RawColumn) -> Array:
        """Numbers in the column's units, (n_rows,), wherever they lie.

        NaN where a cell is none.
        """
        if self.kind == Kind.CATEGORY:
            return self._positions(cells)
        if self.kind == Kind.DATE:
            return _each(days_of, cells.dates())
        numbers = cells.numbers()
        values = np.where(np.isfinite(numbers), numbers, math.nan)
        if self.kind == Kind.FLAG:
            is_flag = (values == 0.0) | (values == 1.0)
            return np.where(is_flag, values, math.nan)
        if self.period == _HOURS and cells.values is None:
            hours = _each(hours_of, cells.text())
            return np.where(np.isnan(values), hours, values)
        return values

    def _positions(self, cells: RawColumn) -> Array:
        """Which of the values a category's cells are."""
        of_texts: dict[float | str, int] = {}
        of_numbers: dict[float, int] = {}
        for position, value in enumerate(self.values):
            of_texts[written(value)] = position
            # Larger numbers are compared as text.
            if not isinstance(value, str) and abs(value) < _LARGEST_WHOLE:
                of_numbers[float(value)] = position
        # Not by pandas: older releases take texts for equal that are so up to a NUL,
        # other rows' with them.
        texts = cells.text()

        def position_of(text: str | None) -> float:
            if text is None:
                return math.nan
            number = plain_number(text)
            position = of_numbers.get(number, math.nan)
            return of_texts.get(written(text), position)

        positions = {text: position_of(text) for text in set(texts)}
        return np.array([positions[text] for text in texts], dtype=float)

    def _points(self, values: Array) -> Array:
        """The points' columns, (n_rows, n_features), of values in units.

        NaN where one is.
        """
        if self.kind == Kind.CATEGORY:
            n_values = len(self.values)
            # The last row is for gaps.
            one_hot = np.full((n_values + 1, n_values), math.nan)
            one_hot[:n_values] = np.eye(n_values)
            rows = np.where(np.isnan(values), -1, values).astype(np.intp)
            return np.asarray(one_hot[rows])
        if self.kind == Kind.CYCLE:
            return self._on_circle(values)
        clipped = np.clip(values, *self.limits)
        if self.transform == Transform.LOG:
            # Not NumPy's own, whose last bit may differ by where in a block, and on
            # which machine, a cell stands.
            shifted = (clipped + self.shift).tolist()
            logarithms = [math.log(value) for value in shifted]
            clipped = np.clip(logarithms, *self.range)
        return clipped[:, None]

    def _on_circle(self, values: Array) -> Array:
        """Cosine and sine of each value's angle.

        Opposite ones are a diameter apart, as the ends of bounds are.
        """
        period = self.period or 1.0
        turns = np.mod(values - self.start, period) / period
        angles = (2.0 * math.pi * turns).tolist()
        pairs = [(math.cos(angle), math.sin(angle)) for angle in angles]
        return np.array(pairs, dtype=float).reshape(-1, 2)

    def decode(self, centres: Array) -> list[Any]:
        """Return what centres, (k, n_features), say in units, one entry for each.

        The mean of a logarithm is a geometric mean; the mean of a cycle is where its
        values gather.
        """
        first = centres[:, 0]
        if self.kind == Kind.CATEGORY:
            shares = np.clip(centres, 0.0, 1.0).tolist()
            names = list(map(str, self.values))
            return [dict(zip(names, row, strict=True)) for row in shares]
        if self.kind == Kind.DATE:
            return [iso_date(days, *self.range) for days in first]
        if self.kind == Kind.CYCLE:
            period = self.period or 1.0
            angles = np.arctan2(centres[:, 1], first)
            turns = np.mod(angles / (2.0 * math.pi), 1.0)
            values = self.start + turns * period
            return list(values.tolist())
        if self.kind == Kind.FLAG:
            return list(np.clip(first, 0.0, 1.0).tolist())
        if self.transform == Transform.LOG:
            logarithms = [min(value, _LARGEST_LOG) for value in first.tolist()]
            return [math.exp(value) - self.shift for value in logarithms]
        return list(first.tolist())

    def errors_in_units(
        self,
        centres: Array,
        errors: Array,
    ) -> Array:
        """Return how far values that `decode` gives may be off, (k, n_features).

        `centres` and `errors` are in the points' columns, (k, n_features). Of
        logarithms the upper end counts, which is farther away; of a cycle the first is
        of its value.
        """
        if self.transform == Transform.LOG:
            lower = np.minimum(centres, _LARGEST_LOG)
            upper = np.minimum(centres + errors, _LARGEST_LOG)
            difference = np.exp(upper) - np.exp(lower)
            return np.where(np.isfinite(errors), difference, np.inf)
        if self.kind == Kind.CYCLE:
            period = self.period or 1.0
            length = np.hypot(centres[:, 0], centres[:, 1])
            length = np.maximum(length, 1e-12)
            farthest = errors.max(axis=1)
            angle = np.minimum(farthest / length, math.pi)
            turned = angle * period / (2.0 * math.pi)
            turned = np.where(np.isfinite(farthest), turned, np.inf)
            return np.stack([turned, farthest], axis=1)
        return errors

    def in_units(
        self,
        figure: str,
        estimate: float,
        deviation: float,
    ) -> tuple[str, float, float]:
        """Return a profile's figure with its noise's deviation, to first order.

        Both are those of the points' columns. Of logarithms, the mean is a geometric
        mean, and the spread a factor between this and a usual value.
        """
        if self.transform != Transform.LOG or figure not in ("mean", "spread"):
            return figure, estimate, deviation
        factor = math.exp(min(estimate, _LARGEST_LOG))
        if figure == "mean":
            return "geometric mean", factor - self.shift, factor * deviation
        return "spread as a factor", factor, factor * deviation


_LARGEST_LOG = 700.0


def _plain(value: Any) -> Any:
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


def _each(reader: Callable[[str], float], texts: Iterable[str | None]) -> Array:
    """What each text is read as; NaN where there is none."""
    values = [math.nan if text is None else reader(text) for text in texts]
    return np.array(values, dtype=float)


def _replaced(
    cells: RawColumn,
    others: Mapping[float | str, str | None],
    *,
    has_numbers: bool,
) -> RawColumn:
    """The cells, of which some have another text, or none.

    Numbers of others stay what they are.
    """
    texts = cells.text()
    new: dict[str | None, str | None] = {None: None}
    for text in set(texts):
        if text is not None:
            new[text] = others.get(written(text), text)
    new_texts = [new[text] for text in texts]
    numbers = None
    if has_numbers:
        is_new = np.array([new[text] != text for text in texts], dtype=bool)
        new_numbers = _each(plain_number, new_texts)
        numbers = np.where(is_new, new_numbers, cells.numbers())
    return replace(
        cells,
        values=None,
        n_unparsable=0,
        text=lambda: new_texts,
        numeric=numbers,
    )
