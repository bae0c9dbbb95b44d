"""Central k-means without privacy: the yardstick from below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines._inputs import FloatArray, require_count, require_enough, require_parts, run_kmeans


def optimal(
    parts: Sequence[npt.ArrayLike], n_clusters: int, *, n_init: int = 20, random_state: int | None = None
) -> FloatArray:
    """Cluster the pooled parts by scikit-learn's k-means. NOT private.

    "Optimal" is the usual name of this baseline in the literature; it is the best of `n_init` restarts.

    Parameters
    ----------
    parts : sequence of arrays of shape (n_i, n_features)
        One per client, in any common unit; empty parts are fine.
    n_clusters : int
        Number of centroids, at least 1.
    n_init : int
        Number of k-means++ restarts, at least 1.
    random_state : int, optional
        Seed of the restarts; None draws one.

    Returns
    -------
    float64 array of shape (n_clusters, n_features)
        The centroids, in the units of the parts.

    Raises
    ------
    ConfigurationError
        If a count is not a whole number of at least 1.
    DataError
        If the parts are not tables of one width, hold fewer points than clusters, or are not finite.

    References
    ----------
    Arthur and Vassilvitskii 2007, "k-means++: the advantages of careful seeding"; Lloyd 1982.

    Examples
    --------
    >>> optimal([[[0.0], [0.25]], [[1.0]]], 2, random_state=0).round(3).tolist()
    [[0.125], [1.0]]
    """
    n_clusters, n_init = require_count("n_clusters", n_clusters), require_count("n_init", n_init)
    points = np.concatenate(require_parts(parts))
    require_enough(len(points), n_clusters)
    return run_kmeans(points, n_clusters, n_init=n_init, random_state=random_state)
