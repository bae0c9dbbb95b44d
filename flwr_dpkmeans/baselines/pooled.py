"""Clusterings without privacy, by scikit-learn's k-means.

Of all rows together, and k-FED of each client's centres.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.threads import one_thread

FloatArray = npt.NDArray[np.float64]

_MOST_ROUNDS = 5
_APART = 1009
"""Between the seeds of rounds of restarts, so that runs with neighbouring seeds share
none.
"""
_SAME = 1e-6
"""Relative difference of costs below which two clusterings are equally good."""


def optimal(
    parts: Sequence[npt.ArrayLike],
    n_clusters: int,
    *,
    n_init: int = 20,
    random_state: int | None = None,
) -> FloatArray:
    """Cluster the pooled parts by scikit-learn's k-means. NOT private.

    Parts are (n_i, n_features) in any common unit.

    "Optimal" is the usual name of this baseline in the literature; it is the best of
    `n_init` restarts of k-means++ (Arthur and Vassilvitskii 2007; Lloyd 1982) and of as
    many in the plane of the `n_clusters` leading directions (Ding and He 2004), each
    followed by Lloyd's method on all points. Where many clusters share a centroid, the
    second kind is the better one. Where the two do not agree, both are restarted until
    a round finds nothing better. Counts below 1 are a ConfigurationError; parts that
    are not finite tables of one width, or hold fewer points than clusters, a DataError.
    `k_fed` raises the same.
    """
    n_clusters, n_init = (
        require_count("n_clusters", n_clusters),
        require_count("n_init", n_init),
    )
    points = np.concatenate(_require_parts(parts))
    require_enough(len(points), n_clusters)
    best: FloatArray | None = None
    lowest, again = np.inf, 0
    while again < _MOST_ROUNDS:
        # No seed stays no seed: each round draws its own.
        seed = (
            random_state
            if random_state is None or not again
            else (random_state + again * _APART) % 2**32
        )
        plain = run_kmeans(
            points,
            n_clusters,
            n_init=n_init,
            random_state=seed,
        )
        leading = _from_leading_directions(
            points,
            n_clusters,
            n_init=n_init,
            random_state=seed,
        )
        costs = [
            float(_squared_distances(points, centers).min(axis=1).sum())
            for centers in (plain, leading)
        ]
        better = min(costs) < lowest * (1.0 - _SAME)
        if better:
            # Of two that agree the usual one is kept.
            lowest, best = (
                min(costs),
                plain if costs[0] <= costs[1] * (1.0 + _SAME) else leading,
            )
        if not better or abs(costs[0] - costs[1]) <= _SAME * costs[0]:
            break
        again += 1
    assert best is not None
    return best


def _from_leading_directions(
    points: FloatArray,
    n_clusters: int,
    *,
    n_init: int,
    random_state: int | None,
) -> FloatArray:
    """Centres of k-means in the plane of the leading directions.

    And then of Lloyd's method from there.
    """
    middle = points.mean(axis=0)
    _, directions = np.linalg.eigh((points - middle).T @ (points - middle))
    plane = directions[:, -n_clusters:]
    start = run_kmeans(
        (points - middle) @ plane,
        n_clusters,
        n_init=n_init,
        random_state=random_state,
    )
    return run_kmeans(
        points,
        n_clusters,
        n_init=1,
        random_state=random_state,
        start=start @ plane.T + middle,
    )


def k_fed(
    parts: Sequence[npt.ArrayLike],
    n_clusters: int,
    *,
    k_local: int | None = None,
    n_init: int = 10,
    random_state: int | None = None,
) -> FloatArray:
    """Cluster by k-FED: local k-means, farthest-first starts.

    And one Lloyd step on the clients' centres. NOT private.

    Each client sends the centres of its own k-means with ``min(k_local, n_i)``
    clusters; `k_local` is `n_clusters` by default, and at most that. The server starts
    from the first client's centres, adds the received centre farthest from those chosen
    until there are `n_clusters`, assigns every received centre to the nearest start
    (ties to the lowest index), and averages. Centres are not weighted by the sizes of
    their local clusters.

    Source: Dennis, Li and Smith 2021, "Heterogeneity for the win: one-shot federated
    clustering" (here the local solver is plain k-means instead of Awasthi and
    Sheffet's).
    """
    n_clusters, n_init = (
        require_count("n_clusters", n_clusters),
        require_count("n_init", n_init),
    )
    k_local = n_clusters if k_local is None else require_count("k_local", k_local)
    if k_local > n_clusters:
        raise ConfigurationError(
            f"k_local is {k_local}, but it must be at most n_clusters = {n_clusters}:"
            " give a smaller k_local."
        )
    tables = [table for table in _require_parts(parts) if len(table)]
    require_enough(sum(map(len, tables)), n_clusters)
    sent = [
        run_kmeans(
            table,
            min(k_local, len(table)),
            n_init=n_init,
            random_state=random_state,
        )
        for table in tables
    ]
    return combine_centres(sent, n_clusters)


def combine_centres(sent: Sequence[FloatArray], n_clusters: int) -> FloatArray:
    """The server's centroids, (n_clusters, n_features).

    From the (k_i, n_features) centres that each client sent.

    They are averages of the received centres nearest to each start; a start that
    repeats another stays as it is. Fewer centres than clusters are a DataError.
    """
    received = np.concatenate(sent)
    if len(received) < n_clusters:
        raise DataError(
            f"the clients sent {len(received)} centres in all, but there must be at"
            f" least n_clusters = {n_clusters}: raise k_local or ask for fewer"
            " clusters."
        )
    starts = received[_farthest_first(received, len(sent[0]), n_clusters)]
    labels = _squared_distances(received, starts).argmin(axis=1)
    centroids = starts.copy()
    for cluster in np.unique(labels):
        centroids[cluster] = received[labels == cluster].mean(axis=0)
    return centroids


def run_kmeans(
    points: FloatArray,
    n_clusters: int,
    *,
    n_init: int,
    random_state: int | None,
    weights: FloatArray | None = None,
    start: FloatArray | None = None,
) -> FloatArray:
    """The (n_clusters, n_features) centres of scikit-learn's k-means.

    By default from k-means++.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    init = "k-means++" if start is None else start
    model = KMeans(
        n_clusters=n_clusters,
        init=init,
        n_init=n_init,
        random_state=random_state,
    )
    # Entered after the import, which loads OpenMP.
    with one_thread(), warnings.catch_warnings():
        # Fewer distinct points than clusters give repeated centres, which is what is
        # wanted here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points, sample_weight=weights)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


def require_count(name: str, value: object) -> int:
    """Return a count as an int, or raise if it is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigurationError(
            f"{name} is {value!r}, but it must be a whole number of at least 1: give"
            " one such as 8."
        )
    return int(value)


def require_points(points: npt.ArrayLike) -> FloatArray:
    """Return points as a float64 table.

    Or raise if they are not a finite one with at least one column.
    """
    table = np.asarray(points, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] == 0:
        raise DataError(
            f"points have shape {table.shape}, but they must be a table with at least 1"
            " column: give an array of shape (rows, features)."
        )
    n_broken = int(np.count_nonzero(~np.isfinite(table).all(axis=1)))
    if n_broken:
        raise DataError(
            f"{n_broken} of {len(table)} rows are not finite, but all must be: remove"
            " these rows."
        )
    return table


def require_enough(n_points: int, n_clusters: int) -> None:
    """Raise if there are fewer points than clusters."""
    if n_points < n_clusters:
        raise DataError(
            f"the number of points is {n_points}, but it must be at least n_clusters ="
            f" {n_clusters}: give more rows or ask for fewer clusters."
        )


def _require_parts(parts: Sequence[npt.ArrayLike]) -> list[FloatArray]:
    """Return the clients' tables, or raise if there is none or their widths differ."""
    tables = [require_points(part) for part in parts]
    if not tables:
        raise DataError(
            "the number of parts is 0, but it must be at least 1: give one array per"
            " client."
        )
    widths = sorted({table.shape[1] for table in tables})
    if len(widths) > 1:
        raise DataError(
            f"the parts have from {widths[0]} to {widths[-1]} columns, but all must"
            " have the same number: give every client the same features."
        )
    return tables


def _farthest_first(
    received: FloatArray,
    n_first: int,
    n_clusters: int,
) -> list[int]:
    """Indices of the first rows, then always of the row farthest from all of these.

    From all that were chosen before it.
    """
    chosen = list(range(n_first))
    nearest = _squared_distances(received, received[chosen]).min(axis=1)
    nearest[
        chosen
    ] = -1.0  # never chosen twice, even where all others coincide with a chosen one
    while len(chosen) < n_clusters:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(
            nearest, _squared_distances(received, received[chosen[-1:]])[:, 0]
        )
        nearest[chosen] = -1.0
    return chosen


def _squared_distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """The (n_points, n_centres) squared distances, by differences.

    Exact for equal rows.
    """
    return np.stack(
        [((points - centre) ** 2).sum(axis=1) for centre in centres], axis=1
    )
