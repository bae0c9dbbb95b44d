"""Weighted k-means of public points: restarts, the cost curve over k, and its elbow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.assignment import FloatArray
from flwr_dpkmeans.threads import one_thread

# Weight of a point that nobody counted, relative to the mean, where there are too few others to make k clusters.
_FAINT = 1e-9


def weighted_kmeans(
    points: npt.ArrayLike, weights: npt.ArrayLike, n_clusters: int, *, n_init: int, seed: int
) -> tuple[FloatArray, float]:
    """Cluster points (n, c) by weights (n,), best of `n_init` starts by k-means++: centers (k, c) and weighted cost.

    Where fewer than k weights are positive, the others get a faint one; fewer points than clusters are a `DataError`.
    """
    rows = np.asarray(points, dtype=np.float64)
    usable = usable_weights(weights, n_clusters)
    if len(rows) < n_clusters:
        raise DataError(
            f"there are {len(rows)} server points, but {n_clusters} clusters need at least as many: give more server "
            "points or choose fewer clusters."
        )
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    kept = usable > 0.0
    model = KMeans(n_clusters, n_init=n_init, random_state=seed % 2**32)
    # With several threads the sums' last digits depend on their timing, and clients must agree.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows[kept], sample_weight=usable[kept])
    return np.asarray(model.cluster_centers_, dtype=np.float64), float(model.inertia_)


def usable_weights(weights: npt.ArrayLike, n_clusters: int) -> FloatArray:
    """Return weights of which at least `n_clusters` are positive, where there are so many."""
    values = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    if int((values > 0.0).sum()) >= n_clusters:
        return values
    total = float(values.sum())
    if total == 0.0:
        return np.ones_like(values)
    return np.maximum(values, _FAINT * (total / len(values)))


def cost_curve(
    points: npt.ArrayLike, weights: npt.ArrayLike, largest: int, *, n_init: int, seed: int
) -> tuple[FloatArray, list[FloatArray]]:
    """Weighted k-means cost, per unit of weight and never rising, and centers for k = 1 to `largest`.

    FedDP-KMeans, appendix H.3: weighted server points stand for the clients' data, so the curve costs no privacy.
    """
    costs: list[float] = []
    centers: list[FloatArray] = []
    for k in range(1, largest + 1):
        found, cost = weighted_kmeans(points, weights, k, n_init=n_init, seed=seed)
        # A restart that ended badly must not look like an elbow.
        costs.append(min(cost, costs[-1]) if costs else cost)
        centers.append(found)
    total = float(usable_weights(weights, largest).sum())
    return np.asarray(costs) / total, centers


def elbow(costs: Sequence[float] | FloatArray, *, logarithmic: bool = False) -> int:
    """Number of clusters at the bend of a cost curve over k = 1, 2, ...: the point farthest below its chord.

    1 for a curve that does not fall or has fewer than three points. `logarithmic` looks at the logarithms: in few
    dimensions costs fall like k^(-2/d) before the bend as well, and the first few clusters would hide it; not for
    curves that come down to 0. Satopaa, Albrecht, Irwin and Raghavan 2011, "Finding a 'kneedle' in a haystack".

    Examples
    --------
    >>> costs = [8.0, 3.0, 1.6, 1.0, 0.1, 0.095, 0.09, 0.085]
    >>> elbow(costs), elbow(costs, logarithmic=True)
    (3, 5)
    """
    values = np.asarray(costs, dtype=np.float64)
    if logarithmic:
        values = np.log(np.maximum(values, 1e-6 * values.max(initial=0.0)) + 1e-300)
    if len(values) < 3 or not values[0] > values[-1]:
        return 1
    heights = (values - values[-1]) / (values[0] - values[-1])
    steps = np.linspace(0.0, 1.0, len(values))
    return int(np.argmax(1.0 - steps - heights)) + 1
