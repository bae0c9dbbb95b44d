"""Rows in the order of the fit."""

from __future__ import annotations

import warnings
from typing import Protocol

from numpy.typing import ArrayLike

from flwr_dpkmeans.data.frame_names import frame_columns
from flwr_dpkmeans.data.schema import Encoded, Schema
from flwr_dpkmeans.data.table_labels import column_labels, require_same_labels
from flwr_dpkmeans.data.validated import validate_columns
from flwr_dpkmeans.errors import DataError, frames_to_caller
from flwr_dpkmeans.sums.round import Array

CURATED = {"unit": "record", "trust": "curator", "masking": False, "max_retries": 0}
"""Settings of a run over one table."""


class FittedModel(Protocol):
    """What an estimator has after its fit."""

    schema_: Schema | None
    n_features_in_: int
    _columns: tuple[object, ...]
    """Of the columns of frames, also where they are no names."""


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
