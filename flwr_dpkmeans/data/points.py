"""Points as a caller gives them, and the public bounds that scale them to [-1, 1].

Bounds are public knowledge, such as the range of a sensor. Nothing here computes them
from points: bounds taken from private rows would reveal the extreme rows.
"""

from __future__ import annotations

import csv
import json
import math
import numbers
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cells import number_of
from flwr_dpkmeans.data.files.reader import UNREADABLE, reader_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    listed,
    nearest,
    require_ranges,
)

_NUMBERS = (numbers.Real, np.bool_, Decimal)
"""What a cell of a frame of objects may be.

a database's decimals are no `numbers.Real`.
"""


def validate_points(points: object) -> NDArray[np.float64]:
    """Check a caller's points (n, d), n >= 0 and d >= 1.

    As C-contiguous float64, itself if it has this form already.

    An array, nested sequences or a data frame; a `DataError` without 2 dimensions, or
    for a value that is not finite.
    """
    array = as_array(points)
    if array.ndim == 0:
        raise DataError(
            f"the points are a {type(points).__name__}, but they must be a table:"
            f" {_mend_of(points)}."
        )
    if array.ndim != 2:
        mend = (
            "points.reshape(-1, 1) for a single feature or points.reshape(1, -1) for a"
            " single row"
        )
        if array.ndim > 2:
            mend = "np.concatenate(points) for a list of tables"
        raise DataError(
            f"the points have {array.ndim} dimensions, but they must have 2 (rows and"
            f" features). Reshape your data: {mend}."
        )
    if array.shape[1] == 0:
        raise DataError(
            f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is"
            " required: add a column."
        )
    labels = column_labels(points) or range(array.shape[1])
    values = np.ascontiguousarray(_as_real(array, labels), dtype=np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        n_bad = int((~finite.all(axis=1)).sum())
        column = int(np.flatnonzero(~finite.all(axis=0))[0])
        raise DataError(
            f"the points have {n_bad} rows with a missing or infinite value (the first"
            f" such feature is {labels[column]!r}), but every value must be finite:"
            " fill in the values or remove the rows."
        )
    return values


def _mend_of(points: object) -> str:
    """How to make a table of what is none."""
    if isinstance(points, str | Path):
        return "read the file, as pandas.read_csv does"
    if isinstance(points, Mapping):
        return "give pandas.DataFrame(points)"
    if hasattr(points, "collect"):
        return "give points.collect()"
    if hasattr(points, "to_table"):
        return "give points.to_table()"
    if hasattr(points, "__arrow_c_stream__"):
        return "give pyarrow.table(points)"
    if hasattr(points, "__iter__"):
        return "give list(points)"
    return "give an array of shape (rows, features)"


def column_labels(points: object) -> list[Any]:
    """Labels of a data frame's columns, whatever they are; none of an array's."""
    # pyarrow's `columns` are their cells.
    return list(getattr(points, "column_names", ()) or getattr(points, "columns", ()))


def require_same_labels(
    says: str,
    labels: Sequence[Any],
    whose: str,
    others: Sequence[Any],
) -> None:
    """Refuse columns that are labelled in another way than as many others'.

    Positions would be wrong.
    """
    if len(labels) == len(others) and list(labels) != list(others):
        raise DataError(
            f"{says} {listed(map(repr, labels))}, but those of {whose} are"
            f" {listed(map(repr, others))}: put them in the same order, or make the"
            " names text, as in frame.columns.astype(str)."
        )


def frame_columns(points: object) -> tuple[str, ...]:
    """Names of a data frame's columns, as scikit-learn reads them.

    Empty for arrays and for numbered columns.
    """
    names = column_labels(points)
    n_texts = sum(isinstance(name, str) for name in names)
    if 0 < n_texts < len(names):
        raise DataError(
            f"{n_texts} of {len(names)} column names are text and the others are not,"
            " but columns are matched by name: make all of them text, as in"
            " frame.columns.astype(str)."
        )
    return tuple(str(name) for name in names) if n_texts else ()


def require_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Refuse names that do not tell the columns of a table apart.

    None are always accepted.
    """
    times = Counter(names)
    twice = sorted(name for name, n_columns in times.items() if n_columns > 1)
    if twice:
        raise DataError(
            f"{times[twice[0]]} of {len(names)} columns have the name {twice[0]!r}, but"
            " each needs one of its own: rename them."
        )
    if names and len(names) != n_features:
        raise DataError(
            f"{n_features} columns have {len(names)} names, but each needs one: name"
            " all of them."
        )
    return tuple(str(name) for name in names)


def validate_columns(points: object, names: Sequence[str]) -> NDArray[np.float64]:
    """Check points as `validate_points` does, and put a data frame's columns in the
    order of `names`.

    What has no column names stays in its order; no names allow any names in any order.
    Other names are a `DataError`.
    """
    columns = frame_columns(points)
    if not columns or not names or columns == tuple(names):
        return validate_points(points)
    indexes = {name: index for index, name in enumerate(columns)}
    lacking = [name for name in names if name not in indexes]
    more = sorted(set(columns) - set(names))
    if lacking:
        mend = "add it."
        if more:
            mend = f"add it or rename this table's; {nearest(lacking[0], more)}"
        raise DataError(
            f"the points have no column {lacking[0]!r}, but the first table, or the"
            f" fit, had one: {mend}"
        )
    if more:
        raise DataError(
            f"the points have a column {more[0]!r} that was not there before: leave it"
            " out."
        )
    require_names(columns, len(names))
    in_order = [indexes[name] for name in names]
    return np.ascontiguousarray(validate_points(points)[:, in_order])


def validate_labels(
    labels: object,
    n_rows: int,
    n_classes: int | None = None,
    option: str = "n_classes",
) -> NDArray[np.int64]:
    """Check a caller's class labels (n_rows,).

    Whole numbers from 0 on, below `n_classes` if an `option` says it.
    """
    try:
        array = (
            as_array(labels)
            if isinstance(labels, np.ma.MaskedArray)
            else np.asarray(labels)
        )
    except ValueError:
        array = np.empty((n_rows, 0))  # entries of different lengths
    if array.shape != (n_rows,):
        raise DataError(
            f"labels have shape {array.shape}, but the table has {n_rows} rows: give"
            " one for each row."
        )
    if array.dtype.kind == "O" and all(isinstance(cell, Decimal) for cell in array):
        array = np.array([number_of(cell) for cell in array])
    if array.dtype.kind not in "iufb" or not np.array_equal(np.rint(array), array):
        raise DataError(
            "labels must be whole numbers, but some are not: code the classes as 0, 1,"
            " 2 and so on, the same way on every client."
        )
    whole = array.astype(np.int64)
    least, most = int(whole.min(initial=0)), int(whole.max(initial=0))
    if least < 0 or (n_classes is not None and n_rows and most >= n_classes):
        bound = "at least 0" if n_classes is None else f"from 0 to {n_classes - 1}"
        raise DataError(
            f"labels go from {least} to {most}, but they must be {bound}: code the"
            f" classes so, or declare {option} as large as they need."
        )
    return whole


def as_array(points: object) -> NDArray[Any]:
    """Turn array-likes and frames into an array of any dtype."""
    if isinstance(points, np.ma.MaskedArray):
        plain = np.asarray(points.data)
        # Only numbers can be marked as missing; other types are refused afterwards in
        # any case.
        return (
            np.where(np.ma.getmaskarray(points), np.nan, plain)
            if plain.dtype.kind in "biufO"
            else plain
        )
    types = getattr(getattr(points, "schema", None), "types", "")  # pyarrow's
    dtypes = np.atleast_1d(getattr(points, "dtypes", types))
    kinds = [str(kind).lower() for kind in dtypes]
    # Beside numbers polars makes numbers of them, in a unit that nobody named, and
    # pyarrow cannot.
    for index, kind in enumerate(kinds):
        if not kind.startswith(("date", "time", "duration")):
            continue
        labels = column_labels(points) or [0]
        raise DataError(
            f"the points have values in feature {labels[index]!r} of type {kind},"
            " but all must be real numbers: turn it into a number in a unit of your"
            " own, or let a schema read dates."
        )
    if hasattr(points, "to_numpy"):
        if "category" in kinds:
            # As integers pandas makes the least one of gaps.
            points = points.astype(object)  # type: ignore[attr-defined]
        return np.asarray(points.to_numpy())
    if hasattr(points, "toarray"):
        raise DataError(
            f"the points are a sparse {type(points).__name__}, but they must be dense:"
            " give points.toarray(), or, in a pipeline,"
            " OneHotEncoder(sparse_output=False) and"
            " ColumnTransformer(sparse_threshold=0)."
        )
    try:
        return np.asarray(points)
    except ValueError:
        pass
    raise DataError(
        "the points have rows of different lengths, but each row must have the same"
        " features: give (n, d)."
    )


def _as_real(array: NDArray[Any], labels: Sequence[object]) -> NDArray[Any]:
    """Accept real numbers and truth values; a frame with both has dtype object."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        which = "Complex data not supported: " if array.dtype.kind == "c" else ""
        raise DataError(
            f"{which}the points have dtype {array.dtype}, but they must be real"
            " numbers: convert them with points.astype('float64')."
        )
    for label, column in zip(labels, array.T, strict=True):
        # NumPy calls its time differences integers.
        spans = any(isinstance(cell, np.timedelta64) for cell in column)
        if spans or not all(isinstance(cell, _NUMBERS) for cell in column):
            raise DataError(
                f"the points have values in feature {label!r} which are no numbers, but"
                " all must be real numbers: leave the feature out, encode it as"
                " numbers and fill in what is missing, or let a schema do so."
            )
    try:
        return array.astype(np.float64)
    except ValueError:  # a Decimal that signals that it is no number
        return np.array([[number_of(cell) for cell in row] for row in array])
    except OverflowError:
        pass
    raise DataError(
        "the points have an integer beyond float64's range, but every value must be"
        " finite: rescale it."
    )


@dataclass(frozen=True)
class Bounds:
    """The public range of every feature, one for all or d, in the units of the data.

    Not reversed, empty or infinite.

    Examples
    --------
    >>> bounds = Bounds(lower=(0.0, -10.0), upper=(100.0, 10.0))
    >>> bounds.scale([[50.0, 10.0], [0.0, 99.0]]).tolist()
    [[0.0, 1.0], [-1.0, 1.0]]
    >>> bounds.unscale([[0.0, 1.0]]).tolist()
    [[50.0, 10.0]]
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", to_floats(self.lower, "lower"))
        object.__setattr__(self, "upper", to_floats(self.upper, "upper"))
        require_ranges(self.lower, self.upper)

    def for_features(self, n_features: int) -> Bounds:
        """Return bounds with one range per feature.

        ConfigurationError if there are several, but not `n_features`.
        """
        if len(self.lower) == n_features:
            return self
        if len(self.lower) != 1 or not n_features:
            raise ConfigurationError(
                f"the bounds have {len(self.lower)} ranges, but the points have"
                f" {n_features} features: give one range per feature, or a single one"
                " for all."
            )
        return Bounds(self.lower * n_features, self.upper * n_features)

    def scale(self, points: object) -> NDArray[np.float64]:
        """Clip points (n, d) to the bounds and map each feature to [-1, 1].

        Every value is computed from its own cell and bounds alone, by single IEEE
        operations: it does not depend on other rows, on their order or on the machine.
        """
        values = validate_points(points)
        lower, upper = self._arrays(values.shape[1])
        scaled = np.clip(values, lower, upper)
        scaled -= lower
        scaled /= upper - lower
        scaled *= 2.0
        scaled -= 1.0
        return scaled

    def unscale(self, scaled: object) -> NDArray[np.float64]:
        """Map values, (n, d), from [-1, 1] to the units of the data.

        Linearly, also outside of [-1, 1].
        """
        values = validate_points(scaled)
        lower, upper = self._arrays(values.shape[1])
        # Both weights are exact at the ends, unlike lower + share * (upper - lower),
        # which may miss `upper`.
        return lower * (0.5 * (1.0 - values)) + upper * (0.5 * (1.0 + values))

    def _arrays(
        self, n_features: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        bounds = self.for_features(n_features)
        return np.array(bounds.lower), np.array(bounds.upper)


def read_ranges(value: Any) -> NamedRanges:
    """Read bounds, with the names of features where they have some.

    A caller may give them in any of these forms:

    * a ``Bounds``, or text such as ``"0,100"``, one range for all features;
    * a pair ``(lower, upper)``, each part one number for all features or a sequence of
      one number per feature;
    * a mapping of each feature's name to its pair, or a data frame with what a .csv
      file has (names also as its index);
    * a path that ends in .csv, .json, .toml or .npz. A .csv file has the header
      ``lower,upper`` or ``feature,lower,upper`` and one row per feature (other columns
      are ignored); the other formats have the keys ``lower`` and ``upper`` (numbers or
      lists) and optionally ``feature`` (names).

    What cannot be understood and a wrong range are a `ConfigurationError`; features are
    counted from 0.
    """
    if isinstance(value, Bounds):
        return NamedRanges(value.lower, value.upper)
    if hasattr(value, "columns"):
        columns: dict[str, object] = {
            str(name): np.asarray(value[name]) for name in column_labels(value)
        }
        index = list(getattr(value, "index", ()))
        if "feature" not in columns and any(isinstance(name, str) for name in index):
            columns["feature"] = index
        return _to_ranges(columns, "the data frame of bounds")
    if isinstance(value, Mapping):
        for name, pair in value.items():
            is_sequence = isinstance(pair, Sequence | np.ndarray)
            if not is_sequence or isinstance(pair, str) or len(pair) != 2:
                raise ConfigurationError(
                    f"the bounds of {name!r} are {pair!r}, but they must be a pair:"
                    " give (0, 100)."
                )
        sides = {
            "lower": [pair[0] for pair in value.values()],
            "upper": [pair[1] for pair in value.values()],
            "feature": list(value),
        }
        return _to_ranges(sides, "the mapping of bounds")
    if isinstance(value, Path) or (
        isinstance(value, str) and Path(value).suffix.lower() in _READERS
    ):
        return _read_bounds_file(value)
    lower, upper = _split(value) if isinstance(value, str) else _pair(value)
    _require_possible(value)
    return NamedRanges(*_broadcast(lower, upper))


def _split(text: str) -> tuple[float, float]:
    try:
        lower, upper = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(
            f"the bounds are {text!r}, but they must be two numbers or a file: give"
            " lower and upper as in '0,100', or the path of a .csv, .json, .toml or"
            " .npz file."
        ) from None
    return lower, upper


def _pair(value: object) -> Sequence[object] | np.ndarray:
    if not isinstance(value, Sequence | np.ndarray):
        raise ConfigurationError(
            f"the bounds are of type {type(value).__name__}, but they must be a pair"
            " (lower, upper), text or a path: give for example (0, 100)."
        )
    # Of two features, a list of tuples is taken for what it is of three: read as two
    # ends, it would be another box.
    if len(value) != 2 or (
        type(value) is list and all(type(part) is tuple for part in value)
    ):
        raise ConfigurationError(
            f"the bounds have {len(value)} parts, but they must be the pair (lower,"
            " upper): turn a list of one pair per feature into it by"
            " tuple(zip(*pairs))."
        )
    return value


def doubtful_pairs(value: object) -> str:
    """Say how two pairs were read, if one pair for each column would be other bounds.

    Empty where there is no doubt.

    Examples
    --------
    >>> doubtful_pairs([[0, 10], [5, 20]])[:67]
    'the bounds [[0, 10], [5, 20]] were read as lower=(0, 10), upper=(5,'
    >>> doubtful_pairs([[0, 0], [5, 20]]), doubtful_pairs(Bounds((0, 10), (5, 20)))
    ('', '')
    """
    sides = _two_pairs(value)
    columns = tuple(zip(*sides, strict=True))
    if sides == columns or not _are_ranges(sides) or not _are_ranges(columns):
        return ""
    return (
        f"the bounds {_shown(value)} were read as {_as_sides(sides)}, so that the"
        f" columns go {_as_ranges(columns)}, but one pair for each column would go"
        f" {_as_ranges(sides)}: make sure by a mapping of names to pairs, or by"
        f" flwr_dpkmeans.data.points.Bounds({_as_sides(sides)}) for the former,"
        f" Bounds({_as_sides(columns)}) for the latter."
    )


def _require_possible(value: object) -> None:
    """Refuse two pairs that are no lower and upper ends, but ranges of two columns.

    Others have their own sentence.

    So has a tuple of tuples, the form of ``bounds_``, which most likely has a constant
    column.
    """
    sides = _two_pairs(value)
    columns = tuple(zip(*sides, strict=True))
    if isinstance(value, tuple) and all(isinstance(side, tuple) for side in value):
        return
    if _are_ranges(columns) and not _are_ranges(sides):
        raise ConfigurationError(
            f"the bounds {_shown(value)} are read as {_as_sides(sides)}, but each lower"
            " bound must be smaller than its upper one: turn one pair per feature,"
            f" {_as_ranges(sides)}, into it by tuple(zip(*pairs))."
        )


def _as_sides(sides: Sequence[Sequence[float]]) -> str:
    """Two lower and two upper ends, as arguments."""
    lower, upper = (f"({_plain(first)}, {_plain(second)})" for first, second in sides)
    return f"lower={lower}, upper={upper}"


def _as_ranges(pairs: Sequence[Sequence[float]]) -> str:
    """Two ranges in words."""
    return " and ".join(f"from {_plain(low)} to {_plain(high)}" for low, high in pairs)


def _plain(value: float) -> str:
    """A number as one writes it, with all of its digits."""
    return str(int(value)) if value.is_integer() else repr(value)


def _shown(value: Any) -> str:
    """Two pairs as a caller would write them."""
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def _two_pairs(value: object) -> tuple[tuple[float, ...], ...]:
    """Two pairs of numbers as floats; empty of all else."""
    if (
        not isinstance(value, Sequence | np.ndarray)
        or isinstance(value, str)
        or len(value) != 2
    ):
        return ()
    if type(value) is list and all(type(part) is tuple for part in value):
        return ()
    if not all(
        isinstance(part, Sequence | np.ndarray) and len(part) == 2 for part in value
    ):
        return ()
    try:
        return to_floats(value[0], "lower"), to_floats(value[1], "upper")
    except ConfigurationError:  # whoever reads them says so
        return ()


def _are_ranges(sides: Sequence[Sequence[float]]) -> bool:
    """Whether these are lower and upper ends of ranges, of which there are some."""
    if not sides:
        return False
    lower, upper = sides
    try:
        require_ranges(lower, upper)
    except ConfigurationError:
        return False
    return True


def to_floats(value: object, side: str) -> tuple[float, ...]:
    """Turn a number or a flat sequence of numbers into floats.

    `side` is "lower" or "upper".
    """
    cells = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    flat = (
        list(cells)
        if isinstance(cells, Sequence) and not isinstance(cells, str | bytes)
        else [cells]
    )
    return tuple(
        [cell if type(cell) is float else _to_float(cell, side) for cell in flat]
    )


def _broadcast(
    lower: object, upper: object
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Both ends as floats.

    A single number on one side is repeated to the length of the other.
    """
    low = to_floats(lower, "lower")
    high = to_floats(upper, "upper")
    if len(low) == 1:
        return low * len(high), high
    if len(high) == 1:
        return low, high * len(low)
    return low, high


def _to_float(cell: object, side: str) -> float:
    """Turn one number into a float; text and truth values are no numbers here."""
    plain = cell.item() if isinstance(cell, np.generic) else cell
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        shown = (
            f"a {type(plain).__name__}" if "\n" in repr(plain) else repr(plain)
        )  # a table's text
        raise ConfigurationError(
            f"the {side} bounds hold {shown}, but they must be one number or a flat"
            " sequence of numbers: give for example 0.0 or (0.0, 10.0)."
        )
    try:
        return float(plain)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf if plain > 0 else -math.inf


@dataclass(frozen=True)
class NamedRanges:
    """Ranges in the order of a file, with the names of their features if there are."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    names: tuple[str, ...] = ()
    source: str = "the bounds"
    """As a sentence calls it."""

    def matched(self, feature_names: Sequence[str] | None) -> Bounds:
        """The ranges in the order of `feature_names`, others left out.

        Without names on either side, as they are.
        """
        lower, upper, names = self.lower, self.upper, self.names
        if names and feature_names is not None:
            for name in feature_names:
                if name not in names:
                    raise ConfigurationError(
                        f"feature {name!r} has no row in {self.source}, but every"
                        " feature needs a range:"
                        f" {nearest(name, set(names) - set(feature_names))}"
                    )
            indexes = [names.index(name) for name in feature_names]
            lower = tuple([lower[index] for index in indexes])
            upper = tuple([upper[index] for index in indexes])
            names = tuple(feature_names)
        require_ranges(lower, upper, names)
        return Bounds(lower, upper)


def _read_bounds_file(path: str | Path) -> NamedRanges:
    located, reader = reader_of(
        path,
        "bounds file",
        _READERS,
        ConfigurationError,
    )
    try:
        content = reader(located)
    except ConfigurationError:
        raise
    except (*UNREADABLE, csv.Error) as error:
        raise ConfigurationError(
            f"the bounds file {str(located)!r} cannot be read as"
            f" {located.suffix.lower()} ({error}), but its content must match its"
            " suffix: correct the file."
        ) from error
    return _to_ranges(content, f"the bounds file {str(located)!r}")


def _to_ranges(content: object, source: str) -> NamedRanges:
    keys = list(content) if isinstance(content, Mapping) else []
    missing = [key for key in ("lower", "upper") if key not in keys]
    if missing or not isinstance(content, Mapping):
        raise ConfigurationError(
            f"{source} has no {missing[0]!r}, but it needs 'lower' and 'upper': name"
            " them so, in the first row of a .csv file, with commas between them, or"
            " as keys in the other formats."
        )
    lower, upper = _broadcast(content["lower"], content["upper"])
    if "feature" not in keys:
        return NamedRanges(
            lower,
            upper,
            (),
            source,
        )
    features = content["feature"]
    if isinstance(features, str) or not isinstance(features, Sequence | np.ndarray):
        features = [features]
    names = tuple(map(str, features))
    if len(lower) == len(upper) == 1:
        lower = lower * len(names)
        upper = upper * len(names)
    if not len(names) == len(lower) == len(upper):
        raise ConfigurationError(
            f"{source} has {len(names)} features, {len(lower)} lower and {len(upper)}"
            " upper values, but each feature needs one of both: make the three equally"
            " long."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"{source} has {names.count(twice[0])} rows for the feature {twice[0]!r},"
            " but it must have one: remove the others."
        )
    return NamedRanges(
        lower,
        upper,
        names,
        source,
    )


def _read_csv(path: Path) -> Mapping[str, object]:
    """Read the columns lower, upper and feature, and ignore the others."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        stripped = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    rows = [row for row in stripped if any(row)]
    header = [name.lower() for name in rows[0]] if rows else []
    longer = [row for row in rows if len(row) > len(header)]
    if longer:
        raise ConfigurationError(
            f"a row of the bounds file {str(path)!r} has {len(longer[0])} cells, but"
            f" the first one has {len(header)}: write decimal points, and quote names"
            " that have commas."
        )
    columns: dict[str, object] = {}
    for key in ("feature", "lower", "upper"):
        if key not in header:
            continue
        position = header.index(key)
        cells = [row[position] if position < len(row) else "" for row in rows[1:]]
        columns[key] = cells
        if key != "feature":
            columns[key] = [
                _cell(
                    cell,
                    key,
                    index,
                    path,
                )
                for index, cell in enumerate(cells)
            ]
    return columns


def _cell(
    cell: str,
    side: str,
    index: int,
    path: Path,
) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ConfigurationError(
            f"the {side} bound in row {index} of the bounds file {str(path)!r} is"
            f" {cell!r}, but it must be a number: write it with a decimal point, as in"
            " 12.5."
        ) from None


def _read_npz(path: Path) -> Mapping[str, object]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: np.atleast_1d(archive[name]) for name in archive.files}


_READERS: Mapping[str, Callable[[Path], Mapping[str, object]]] = MappingProxyType(
    {
        ".csv": _read_csv,
        ".json": lambda path: json.loads(path.read_text(encoding="utf-8-sig")),
        ".toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8-sig")),
        ".npz": _read_npz,
    }
)
