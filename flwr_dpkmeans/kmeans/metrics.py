"""How good a set of centroids is: the cost per point."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.assignment import iterate_assigned_blocks
from flwr_dpkmeans.threads import one_thread


@one_thread()
def cost_per_point(points: npt.ArrayLike, centroids: npt.ArrayLike) -> float:
    """Return the mean squared distance to the nearest centroid.

    FastLloyd calls it the normalised intra-cluster variance (NICV). It is computed from the data without noise:
    whoever publishes it pays no privacy budget and has no guarantee.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        In data units.
    centroids : array of shape (n_clusters, n_features)

    Returns
    -------
    float
        In squared data units.

    Raises
    ------
    DataError
        There is no point, or the shapes do not fit each other.

    Examples
    --------
    >>> cost_per_point([[0.0], [0.5], [1.0]], [[0.0], [1.0]])
    0.08333333333333333
    """
    points = np.asarray(points)
    if len(points) == 0:
        raise DataError("the number of points is 0, but a cost per point needs at least 1: give at least one row.")
    blocks = iterate_assigned_blocks(points, centroids)
    return math.fsum(float(block.squared_distances().sum()) for block in blocks) / len(points)
