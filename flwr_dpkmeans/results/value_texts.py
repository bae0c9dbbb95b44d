"""Values of centres as people read them, with their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.in_units import errors_in_units
from flwr_dpkmeans.privacy.shown import error_text, rounded_text

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

_MISSING = "missing"
_SHARES = (Kind.FLAG, Kind.CATEGORY)
Number = float | None
Texts = list[list[str]]
"""n_features lists of n_clusters."""


def error_texts(model: Model) -> Texts:
    """Say beside each value of `Model.shown` how far it may be off.

    In the column's units: dates have days, flags and categories percent. Where nothing
    is known of one centre, that is said; where nothing is known of any, nothing is.
    """
    has_errors = bool(np.isfinite(model.cell_means_error).any())
    texts: Texts = []
    for errors, kind in zip(_errors(model), _kinds(model), strict=True):
        if has_errors:
            texts.append([_text(error, kind) for error in errors])
        else:
            texts.append([""] * len(errors))
    return texts


def with_errors(model: Model) -> Texts:
    """Write values of centres with their errors.

    A value has as many digits as its error says are of use.
    """
    shown = model.shown()
    numbers = _numbers(model)
    errors = _errors(model)
    kinds = _kinds(model)
    error_words = error_texts(model)
    rows: Texts = []
    for feature, texts in enumerate(shown):
        is_share = kinds[feature] in _SHARES
        cells = list[str]()
        for cluster, text in enumerate(texts):
            if text == _MISSING:
                cells.append(text)
                continue
            number = numbers[feature][cluster]
            error = errors[feature][cluster]
            value = _rounded(
                text,
                number,
                error,
                is_share=is_share,
            )
            cells.append(value + error_words[feature][cluster])
        rows.append(cells)
    return rows


def _kinds(model: Model) -> list[Kind]:
    """What stands in each of the rows of `Model.shown`."""
    schema = model.schema
    if schema is None:
        n_features = model.scaled.shape[1]
        return [Kind.NUMBER] * n_features
    kinds = list[Kind]()
    for column, features in schema.features_of_columns:
        width = features.stop - features.start
        kinds += [column.kind] * width
    return kinds


def _errors(model: Model) -> list[list[float]]:
    """Half-widths of the values of `Model.shown`, in the column's units."""
    half_widths = model.cell_means_error
    schema = model.schema
    rows = list[list[float]]()
    if schema is None:
        rows += half_widths.T.tolist()
        return rows
    means = model.placed_means
    for column, features in schema.features_of_columns:
        column_means = means[:, features]
        column_widths = half_widths[:, features]
        errors = errors_in_units(column, column_means, column_widths)
        rows += errors.T.tolist()
    return rows


def _numbers(model: Model) -> Sequence[Sequence[Number]]:
    """Values of `Model.shown` as numbers, dates as None."""
    means = model.placed_means
    schema = model.schema
    rows = list[list[Number]]()
    if schema is None:
        rows += means.T.tolist()
        return rows
    decoded = schema.decode(means)
    for column, features in schema.features_of_columns:
        values = decoded[column.name]
        if column.kind == Kind.CATEGORY:
            for category in column.values:
                rows.append([shares[str(category)] for shares in values])
        elif column.kind == Kind.DATE:
            rows.append([None] * len(values))
        else:
            rows.append(values)
        if column.kind == Kind.CYCLE:
            distances = np.hypot(*means[:, features].T)
            rows.append(distances.tolist())
    return rows


def _rounded(
    text: str,
    value: Number,
    error: float,
    *,
    is_share: bool,
) -> str:
    """A value's text, with the digits of its error where there is one."""
    if value is None or not math.isfinite(error):
        return text
    if error == 0.0:
        return text
    if is_share:
        percent = rounded_text(100.0 * value, 100.0 * error)
        return f"{percent}%"
    return rounded_text(value, error)


def _text(error: float, kind: Kind) -> str:
    """A value's error, with its unit where that is not the column's."""
    if not math.isfinite(error):
        return " ± unknown"
    if kind in _SHARES:
        return f" ± {error_text(100.0 * error)}%"
    words = f" ± {error_text(error)}"
    if kind == Kind.DATE:
        return f"{words} days"
    return words
