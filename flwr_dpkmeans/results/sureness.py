"""How sure the values of centres are, as it is shown beside them.

Errors, and columns that tell no clusters apart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.data.columns import Kind
from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.privacy.report import faint_clusters, told

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model


def error_texts(model: Model) -> list[list[str]]:
    """Say beside each value of `Model.shown` how far it may be off, n_features lists of
    n_clusters.

    In the column's units: dates have days, flags and categories percent. Nothing is
    said where nothing is known.
    """
    if model.schema is None:
        return [
            [_text(error, None) for error in errors]
            for errors in model.cell_means_error.T.tolist()
        ]
    means, half_widths = model.placed_means, model.cell_means_error
    texts = list[list[str]]()
    for column, features in model.schema.features_of_columns:
        errors = column.errors_in_units(means[:, features], half_widths[:, features])
        texts += [
            [_text(error, column.kind) for error in of_feature]
            for of_feature in errors.T.tolist()
        ]
    return texts


def with_errors(model: Model) -> list[list[str]]:
    """Write values of centres with their errors, n_features lists of n_clusters."""
    pairs = zip(model.shown(), error_texts(model), strict=True)
    return [
        [value + error for value, error in zip(values, errors, strict=True)]
        for values, errors in pairs
    ]


def unsure_columns(model: Model) -> list[int]:
    """List the columns in which no two centres differ by more than their errors.

    Clusters that are mostly noise are left out, and columns that are not told to be
    unsure: where errors are not known, or are those of exact sums.
    """
    errors = np.delete(model.cell_means_error, _faint(model), axis=0)
    values = np.delete(model.placed_means, _faint(model), axis=0)
    if len(values) < 2 or model.privacy.is_exact or not np.isfinite(errors).all():
        return []
    return [
        column
        for column in range(values.shape[1])
        if not _are_apart(values[:, column], errors[:, column])
    ]


def untold(model: Model) -> tuple[str, ...]:
    """Name the columns in which no two centres differ by more than their errors."""
    columns = unsure_columns(model)
    if not columns:
        return ()
    return (told("unsure", columns=column_names(columns, model.feature_names)),)


def _faint(model: Model) -> list[int]:
    return list(faint_clusters(model.counts, model.privacy))


def _are_apart(values: np.ndarray, errors: np.ndarray) -> bool:
    """Whether the lower end of some interval is above the upper end of another one."""
    return bool((values - errors).max() > (values + errors).min())


def _text(error: float, kind: Kind | None) -> str:
    if not math.isfinite(error):
        return ""
    if kind in (Kind.FLAG, Kind.CATEGORY):
        return f" ± {100.0 * error:.2g}%"
    number = f"{error:,.0f}" if error >= 99.5 else f"{error:.2g}"
    return f" ± {number}" + (" days" if kind == Kind.DATE else "")
