"""What a column's statement must hold, each as one sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flwr_dpkmeans.data.columns.column_kind import Kind, Transform
from flwr_dpkmeans.data.columns.dates import days_of
from flwr_dpkmeans.data.columns.treatment import Missing
from flwr_dpkmeans.data.columns.written_cells import number_or_zero, written
from flwr_dpkmeans.data.files.cells import text_of

if TYPE_CHECKING:
    from flwr_dpkmeans.data.columns.column import Column


def require_fitting(column: Column) -> None:
    """Refuse a statement that no column can have, or whose keys contradict another."""
    _require_keys(column)
    _require_plain_texts(column)
    _require_bounds(column)
    _require_values_of_cells(column)
    if 0.0 < column.weight < 0.001:
        raise ValueError(
            f"weight is {column.weight}, but it must be 0 or at least 0.001: give 1.0"
        )


def _require_keys(column: Column) -> None:
    """Refuse keys that do not go with the kind, and ask for those that it needs."""
    a_kind = f"it is a {column.kind}"
    has_range = column.kind in (Kind.NUMBER, Kind.DATE)
    is_category = column.kind == Kind.CATEGORY
    is_cycle = column.kind == Kind.CYCLE
    is_filled = column.missing == Missing.FILL
    is_log = column.transform == Transform.LOG
    for key, is_needed, why in (
        ("bounds", has_range, a_kind),
        ("values", is_category, a_kind),
        ("fill", is_filled, f"missing is '{column.missing}'"),
        ("period", is_cycle, a_kind),
    ):
        is_stated = getattr(column, key) not in (None, ())
        if is_needed and not is_stated:
            raise ValueError(f"{why}, so {key} must be given: add it")
        if is_stated and not is_needed:
            raise ValueError(f"{why}, so {key} must not be: leave it out")
    for key, is_allowed, why in (
        ("transform", column.kind == Kind.NUMBER, a_kind),
        ("offset", is_log, f"transform is '{column.transform}'"),
        ("outside", has_range, a_kind),
        ("start", is_cycle, a_kind),
    ):
        default = type(column).model_fields[key].default
        if not is_allowed and getattr(column, key) != default:
            raise ValueError(f"{why}, so {key} must not be: leave it out")


def _require_plain_texts(column: Column) -> None:
    """Refuse texts that no cell can be, and those that are one but must differ."""
    mapped = [text for text, _ in column.map]
    for key, texts in (("values", column.values), ("map", mapped)):
        gaps = [text for text in texts if text_of(text) is None]
        if gaps:
            raise ValueError(
                f"{key} has {gaps[0]!r}, which is a missing cell in all tables:"
                " rename it there and here"
            )
        if len({written(text) for text in texts}) < len(texts):
            raise ValueError(
                f'{key} {list(texts)} are not all different, as 1, "1" and 1.0:'
                " leave one out"
            )
    infinite = [
        value
        for value in column.missing_values
        if not math.isfinite(number_or_zero(value))
    ]
    if infinite:
        raise ValueError(
            f"missing_values has {infinite[0]!r}, which is missing anyway: leave it out"
        )
    for value in column.values:
        if written(value) in column.missing_cells:
            raise ValueError(
                f"values has {value!r}, which missing_values has too: leave it out"
                " of one of them"
            )


def _require_bounds(column: Column) -> None:
    """Refuse bounds that are no range, or that have no logarithm."""
    for end in column.bounds or ():
        text = text_of(end) or ""
        if column.kind == Kind.DATE and math.isnan(days_of(text)):
            raise ValueError(
                f"bounds has {text_of(end)!r}, but dates are written as ISO 8601"
                " has them: give 2020-01-31"
            )
    low, high = column.limits
    if not (math.isfinite(high - low) and high > low):
        raise ValueError(
            f"bounds are {column.bounds}, but a {column.kind} has a lower, then an"
            " upper one: give both"
        )
    if column.transform == Transform.LOG and not (
        low + column.shift > 0.0 and column.range[1] > column.range[0]
    ):
        raise ValueError(
            f"the lower bound is {low:g} and offset {column.shift:g}, but a logarithm"
            f" is of what is above 0: give an offset above {-low:g}, or leave"
            " it out"
        )


def _require_values_of_cells(column: Column) -> None:
    """Refuse to put values into cells that the column may not hold."""
    low, high = column.limits
    if column.fill is not None:
        (filled,) = column.values_of([column.fill]).tolist()
        if not low <= filled <= high:
            raise ValueError(
                f"it is filled with {column.fill!r}, which it may not hold: give one"
                " of its values"
            )
    meanings = [meaning for _, meaning in column.map]
    values = column.values_of(meanings).tolist()
    for meaning, value in zip(meanings, values, strict=True):
        if math.isnan(value) or written(meaning) in column.missing_cells:
            raise ValueError(
                f"map has the value {meaning!r}, which it may not hold: give one of"
                " its values"
            )
