"""Tables of parties in memory, their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from flwr_dpkmeans.estimators.inputs import PartyTables


def tables_in(X: PartyTables) -> list[ArrayLike] | None:
    """The parties' tables in memory, from a list or by name; None of one table."""
    tables = X
    if isinstance(X, Mapping):
        tables = list(X.values())
    if not isinstance(tables, list | tuple):
        return None
    if not tables or np.ndim(tables[0]) != 2:
        return None
    return list(tables)


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
        n_rows = shape[0]
        return int(n_rows)
    if hasattr(X, "__len__"):
        return len(X)
    return 1
