"""Rows in the order of the fit, and what every estimator refuses."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from flwr_dpkmeans.data.schema import Encoded, Schema
from flwr_dpkmeans.data.table_labels import (
    column_labels,
    frame_columns,
    require_same_labels,
)
from flwr_dpkmeans.data.validated import validate_columns
from flwr_dpkmeans.errors import ConfigurationError, DataError, frames_to_caller
from flwr_dpkmeans.estimators.inputs import PartyTables
from flwr_dpkmeans.sums.checks.plausible import DECLARED_ROOM
from flwr_dpkmeans.sums.round import Array

CURATED = {"unit": "record", "trust": "curator", "masking": False, "max_retries": 0}
"""Settings of a run over one table."""


class FittedModel(Protocol):
    """What an estimator has after its fit."""

    schema_: Schema | None
    n_features_in_: int
    _columns: tuple[object, ...]
    """Of the columns of frames, also where they are no names."""


def tables_in(X: PartyTables) -> list[ArrayLike] | None:
    """The parties' tables in memory, from a list or by name; None of one table."""
    tables = list(X.values()) if isinstance(X, Mapping) else X
    if not isinstance(tables, list | tuple) or not tables:
        return None
    return list(tables) if np.ndim(tables[0]) == 2 else None


def name_columns(model: BaseEstimator, names: tuple[str, ...]) -> None:
    """Set ``feature_names_in_``, which exists only where there are names."""
    if names:
        model.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_


def lacks_names(model: object, X: ArrayLike) -> bool:
    """Whether either a table or the fit has names of columns, and the other none."""
    return bool(frame_columns(X)) != hasattr(model, "feature_names_in_")


def ordered(
    model: FittedModel,
    X: ArrayLike,
    *,
    quiet: bool = False,
) -> tuple[Array, Encoded | None]:
    """Rows with the fitted columns, a data frame's in order by name.

    With what the fit's schema made of the table, where there is one.
    """
    if model.schema_ is not None:
        encoded = model.schema_.clustered.encode(X)
        return encoded.points, encoded
    fitted = tuple(getattr(model, "feature_names_in_", ()))
    kind = type(model).__name__
    if lacks_names(model, X) and not quiet:
        # scikit-learn's own sentences.
        message = f"X has feature names, but {kind} was fitted without feature names"
        if fitted:
            message = (
                f"X does not have valid feature names, but {kind} was fitted with"
                " feature names"
            )
        warnings.warn(message, UserWarning, stacklevel=frames_to_caller())
    if not fitted:
        require_same_labels(
            "X has the columns",
            column_labels(X),
            "the fit",
            model._columns,
        )
    points = validate_columns(X, fitted)
    n_features = points.shape[1]
    if n_features != model.n_features_in_:
        raise DataError(
            f"X has {n_features} features, but {kind} is expecting"
            f" {model.n_features_in_} features as input: give those of the fit, in"
            " their order."
        )
    return points, None


def n_rows_of(X: object) -> int:
    """Rows of a table as its own kind counts them; 1 where that is not known."""
    shape = getattr(X, "shape", None)
    if shape:
        return int(shape[0])
    return len(X) if hasattr(X, "__len__") else 1


def require_rows(X: object) -> None:
    """Refuse a table without rows, as scikit-learn's estimators do."""
    if n_rows_of(X) == 0:
        raise DataError(
            "X has 0 rows, but at least 1 is needed to predict for: leave the call out,"
            " or give a row."
        )


def require_declared(declared: object, n_rows: int) -> None:
    """Refuse a declared number of rows that one table far exceeds.

    A reader of exact sums would refuse it later.
    """
    if not isinstance(declared, int) or n_rows <= DECLARED_ROOM * declared:
        return
    raise DataError(
        f"n_examples is declared as {declared}, but the table has {n_rows} rows, more"
        " than twice as many: declare their number, from which delta and noise follow,"
        " or leave it out."
    )


def require_no_others(arguments: Mapping[str, object]) -> None:
    """Refuse arguments that a fit does not take, and say why there are no weights.

    scikit-learn passes None on.
    """
    if arguments.get("sample_weight") is not None:
        raise ConfigurationError(
            "sample_weight was given, but noise hides rows that count once each, and a"
            " weight would multiply how far its row can move a sum: leave it out."
        )
    for name in arguments.keys() - {"sample_weight"}:
        raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
