"""Public bounds as a caller states them, by column or in one pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flwr_dpkmeans.data.arrays_of import to_floats
from flwr_dpkmeans.data.bounds.bounds_file import READERS, read_bounds_file
from flwr_dpkmeans.data.bounds.named_ranges import NamedRanges, to_ranges
from flwr_dpkmeans.data.points import Bounds, broadcast
from flwr_dpkmeans.data.table_labels import column_labels
from flwr_dpkmeans.errors import (
    ConfigurationError,
    require_ranges,
)


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
        return to_ranges(columns, "the data frame of bounds")
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
        return to_ranges(sides, "the mapping of bounds")
    if isinstance(value, Path) or (
        isinstance(value, str) and Path(value).suffix.lower() in READERS
    ):
        return read_bounds_file(value)
    lower, upper = _split(value) if isinstance(value, str) else _pair(value)
    _require_possible(value)
    return NamedRanges(*broadcast(lower, upper))


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


def _shown(value: object) -> str:
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
