"""Checked inputs, and scikit-learn's k-means behind one door."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.threads import one_thread

FloatArray = npt.NDArray[np.float64]


def require_count(name: str, value: object) -> int:
    """Return a count as an int, or raise if it is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigurationError(
            f"{name} is {value!r}, but it must be a whole number of at least 1: give one such as 8."
        )
    return int(value)


def require_points(points: npt.ArrayLike) -> FloatArray:
    """Return points as a float64 table, or raise if they are not a finite one with at least one column."""
    table = np.asarray(points, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] == 0:
        raise DataError(
            f"points have shape {table.shape}, but they must be a table with at least 1 column: "
            "give an array of shape (rows, features)."
        )
    n_broken = int(np.count_nonzero(~np.isfinite(table).all(axis=1)))
    if n_broken:
        raise DataError(f"{n_broken} of {len(table)} rows are not finite, but all must be: remove these rows.")
    return table


def require_parts(parts: Sequence[npt.ArrayLike]) -> list[FloatArray]:
    """Return the clients' tables, or raise if there is none or their widths differ."""
    tables = [require_points(part) for part in parts]
    if not tables:
        raise DataError("the number of parts is 0, but it must be at least 1: give one array per client.")
    widths = sorted({table.shape[1] for table in tables})
    if len(widths) > 1:
        raise DataError(
            f"the parts have from {widths[0]} to {widths[-1]} columns, but all must have the same number: "
            "give every client the same features."
        )
    return tables


def require_enough(n_points: int, n_clusters: int) -> None:
    """Raise if there are fewer points than clusters."""
    if n_points < n_clusters:
        raise DataError(
            f"the number of points is {n_points}, but it must be at least n_clusters = {n_clusters}: "
            "give more rows or ask for fewer clusters."
        )


def run_kmeans(
    points: FloatArray,
    n_clusters: int,
    *,
    n_init: int,
    random_state: int | None,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Return the (n_clusters, n_features) centres of scikit-learn's k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(n_clusters=n_clusters, n_init=n_init, random_state=random_state)
    # Entered after the import, which loads OpenMP.
    with one_thread(), warnings.catch_warnings():
        # Fewer distinct points than clusters give repeated centres, which is what is wanted here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points, sample_weight=weights)
    centres: FloatArray = np.asarray(model.cluster_centers_, dtype=np.float64)
    return centres
