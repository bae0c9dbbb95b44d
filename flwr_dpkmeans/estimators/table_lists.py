"""Tables of parties in memory, their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from flwr_dpkmeans.estimators.inputs import PartyTables


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


def n_rows_of(X: object) -> int:
    """Rows of a table as its own kind counts them; 1 where that is not known."""
    shape = getattr(X, "shape", None)
    if shape:
        return int(shape[0])
    return len(X) if hasattr(X, "__len__") else 1
