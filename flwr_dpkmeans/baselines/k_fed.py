"""One-shot federated clustering without privacy: the server sees every client's centres."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines._inputs import FloatArray, require_count, require_enough, require_parts, run_kmeans
from flwr_dpkmeans.errors import ConfigurationError, DataError


def k_fed(
    parts: Sequence[npt.ArrayLike],
    n_clusters: int,
    *,
    k_local: int | None = None,
    n_init: int = 10,
    random_state: int | None = None,
) -> FloatArray:
    """Cluster by k-FED: local k-means, farthest-first starts, and one Lloyd step on the clients' centres. NOT private.

    Each client sends the centres of its own k-means with ``min(k_local, n_i)`` clusters. The server starts from the
    first client's centres, adds the received centre farthest from those chosen until there are `n_clusters`, assigns
    every received centre to the nearest start (ties to the lowest index), and averages. Centres are not weighted by
    the sizes of their local clusters.

    Parameters
    ----------
    parts : sequence of arrays of shape (n_i, n_features)
        One per client, in any common unit; empty parts send nothing.
    n_clusters : int
        Number of centroids, at least 1.
    k_local : int, optional
        Most centres of one client, from 1 to `n_clusters`, which is the default.
    n_init : int
        Number of restarts of each local k-means, at least 1.
    random_state : int, optional
        Seed of all local k-means; None draws one.

    Returns
    -------
    float64 array of shape (n_clusters, n_features)
        The centroids, in the units of the parts.

    Raises
    ------
    ConfigurationError
        If a count is out of its range.
    DataError
        If the parts are not finite tables of one width, or there are fewer points or received centres than clusters.

    References
    ----------
    Dennis, Li and Smith 2021, "Heterogeneity for the win: one-shot federated clustering" (here the local
    solver is plain k-means instead of Awasthi and Sheffet's).

    Examples
    --------
    >>> k_fed([[[0.0], [0.25]], [[1.0], [0.75]]], 2, k_local=1, random_state=0).tolist()
    [[0.125], [0.875]]
    """
    n_clusters, n_init = require_count("n_clusters", n_clusters), require_count("n_init", n_init)
    k_local = n_clusters if k_local is None else require_count("k_local", k_local)
    if k_local > n_clusters:
        raise ConfigurationError(
            f"k_local is {k_local}, but it must be at most n_clusters = {n_clusters}: give a smaller k_local."
        )
    tables = [table for table in require_parts(parts) if len(table)]
    require_enough(sum(map(len, tables)), n_clusters)
    sent = [run_kmeans(table, min(k_local, len(table)), n_init=n_init, random_state=random_state) for table in tables]
    return combine_centres(sent, n_clusters)


def combine_centres(sent: Sequence[FloatArray], n_clusters: int) -> FloatArray:
    """Return the server's centroids from the centres that each client sent.

    Parameters
    ----------
    sent : sequence of arrays of shape (k_i, n_features)
        The centres of each client; the first has from 1 to `n_clusters` rows.
    n_clusters : int
        Number of centroids.

    Returns
    -------
    float64 array of shape (n_clusters, n_features)
        Averages of the received centres nearest to each start; a start that repeats another stays as it is.

    Raises
    ------
    DataError
        If fewer centres than clusters were sent.

    Examples
    --------
    >>> combine_centres([np.array([[0.0]]), np.array([[0.5], [4.0]])], 2).tolist()
    [[0.25], [4.0]]
    """
    received = np.concatenate(sent)
    if len(received) < n_clusters:
        raise DataError(
            f"the clients sent {len(received)} centres in all, but there must be at least n_clusters = {n_clusters}: "
            "raise k_local or ask for fewer clusters."
        )
    starts = received[_farthest_first(received, len(sent[0]), n_clusters)]
    labels = _squared_distances(received, starts).argmin(axis=1)
    centroids = starts.copy()
    for cluster in np.unique(labels):
        centroids[cluster] = received[labels == cluster].mean(axis=0)
    return centroids


def _farthest_first(received: FloatArray, n_first: int, n_clusters: int) -> list[int]:
    """Return the indices of the first rows, then repeatedly of the row farthest from all chosen ones."""
    chosen = list(range(n_first))
    nearest = _squared_distances(received, received[chosen]).min(axis=1)
    nearest[chosen] = -1.0  # never chosen twice, even where all others coincide with a chosen one
    while len(chosen) < n_clusters:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, _squared_distances(received, received[chosen[-1:]])[:, 0])
        nearest[chosen] = -1.0
    return chosen


def _squared_distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Return the (n_points, n_centres) squared distances, by differences: exact for equal rows."""
    columns = [((points - centre) ** 2).sum(axis=1) for centre in centres]
    return np.stack(columns, axis=1)
