"""Real numbers of whatever a caller gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.table_labels import column_labels
from flwr_dpkmeans.errors import ConfigurationError, DataError


def as_array(points: object) -> NDArray[np.generic]:
    """Turn array-likes and frames into an array of any dtype."""
    if type(points) is np.ndarray:
        return points
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


def _to_float(cell: object, side: str) -> float:
    """Turn one number into a float; text and truth values are no numbers here."""
    plain = cell.item() if isinstance(cell, np.generic) else cell
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        # A table's text.
        shown = f"a {type(plain).__name__}" if "\n" in repr(plain) else repr(plain)
        raise ConfigurationError(
            f"the {side} bounds hold {shown}, but they must be one number or a flat"
            " sequence of numbers: give for example 0.0 or (0.0, 10.0)."
        )
    try:
        return float(plain)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf if plain > 0 else -math.inf
