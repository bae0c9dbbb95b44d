"""How many clusters the cost curve of weighted points shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import (
    usable_weights,
    weighted_kmeans,
)


def cost_curve(
    points: npt.ArrayLike,
    weights: npt.ArrayLike,
    largest: int,
    *,
    n_init: int,
    seed: int,
) -> tuple[FloatArray, list[FloatArray]]:
    """Weighted k-means cost, per unit of weight and never rising.

    And centers for k = 1 to `largest`.

    FedDP-KMeans, appendix H.3: weighted server points stand for the clients' data, so
    the curve costs no privacy.
    """
    costs: list[float] = []
    centers: list[FloatArray] = []
    for k in range(1, largest + 1):
        chosen_centers, cost = weighted_kmeans(
            points,
            weights,
            k,
            n_init=n_init,
            seed=seed,
        )
        # A restart that ended badly must not look like an elbow.
        costs.append(min(cost, costs[-1]) if costs else cost)
        centers.append(chosen_centers)
    total = float(usable_weights(weights, largest).sum())
    return np.asarray(costs) / total, centers


# By so much of its logarithm a cost falls below that of one cluster where there are
# several.
_SEVERAL = 0.2


def elbow(
    costs: Sequence[float] | FloatArray,
    *,
    n_features: int | None = None,
    n_points: float = math.inf,
) -> int:
    """Number of clusters at the bend of a cost curve over k = 1, 2, ....

    The point farthest below its chord.

    1 for a curve that does not fall or has fewer than three points, and where there are
    no points. Given the rows' number of columns d, it looks at how far the cost has
    fallen, on a logarithmic scale, below that of one cluster cut into k pieces,
    k^(-2/d) (Zador 1982): such pieces are no clusters, and their curve, which bends as
    well, would hide them; of n points, which cost nothing as n pieces, k^(-2/d) -
    n^(-2/d). 1 where that is next to nothing. Satopaa, Albrecht, Irwin and Raghavan
    2011, "Finding a 'kneedle' in a haystack".

    Examples
    --------
    >>> costs = [8.0, 3.0, 1.6, 1.0, 0.1, 0.095, 0.09, 0.085]
    >>> falling = [8.0, 4.0, 2.7, 2.0, 1.6]
    >>> elbow(costs), elbow(costs, n_features=2), elbow(falling, n_features=2)
    (3, 5, 1)
    """
    values = np.asarray(costs, dtype=np.float64)
    least = 0.0
    if n_points < 1:
        return 1
    if n_features is not None:
        pieces = np.arange(1, len(values) + 1) ** (-2.0 / n_features) - n_points ** (
            -2.0 / n_features
        )
        values = np.log(
            np.maximum(values, 1e-6 * values.max(initial=0.0)) + 1e-300
        ) - np.log(np.maximum(pieces, 1e-6))
        values, least = np.minimum.accumulate(values), _SEVERAL
    if len(values) < 3 or not values[0] - values[-1] > least:
        return 1
    heights = (values - values[-1]) / (values[0] - values[-1])
    steps = np.linspace(0.0, 1.0, len(values))
    return int(np.argmax(1.0 - steps - heights)) + 1
