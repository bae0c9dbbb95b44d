"""Labels of rows by their nearest projected centre (FedDP-KMeans).

Points are on the 2^-16 grid, relative to a public centre and clipped to the data radius
(`clip_rows`). Projections and projected points are the server's: a client's assignment
may depend on them in any way, the bounds do not.
"""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels import assignment, blocks, compiled, grid
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray


def project(
    points: FloatArray,
    projection: FloatArray | None,
) -> FloatArray:
    """Project rows (n, d) by (d, c), if at all, all on the grid.

    Exactly, so that no row depends on those beside it.
    """
    if projection is None:
        return points
    return project_from(points, projection, np.zeros(projection.shape[1]))


def project_from(
    points: FloatArray,
    projection: FloatArray,
    projected_centre: FloatArray,
) -> FloatArray:
    """Project the offsets of rows (n, d) from a centre, whose own is (c,), onto axes.

    All on the grid, and exactly: so the centre can be taken off what has fewer columns.
    """
    outcome = compiled.projected_rows(points, projection, projected_centre)
    if outcome is not None:
        return outcome
    return grid.round_to_grid(points @ projection - projected_centre)


def nearest_projected(
    points: FloatArray,
    projection: FloatArray | None,
    centers: FloatArray,
) -> LabelArray:
    """Index, int32 (n,), of the nearest projected centre (k, c) of each row.

    Ties go to the lowest index. All is on the grid and all sums are exact: each label
    is a function of its row and the centres alone, to the last bit. No projection
    measures distances in the space of the data.
    """
    projected = project(points, projection)
    return assignment.nearest_labels(projected, centers)


def clear_labels(
    points: FloatArray,
    projection: FloatArray | None,
    centers: FloatArray,
    margin: float,
) -> LabelArray:
    """Index of the nearest projected centre of each row, where it is clear.

    It is the number of centres where another one is almost as near: `margin`, above 0,
    is the largest ratio of the distances to the nearest and to the second nearest
    centre: at most 1/3 in Awasthi and Sheffet 2012; 1 keeps every row, as FedDP-KMeans,
    Algorithm 1, line 20, does.
    """
    labels = nearest_projected(points, projection, centers)
    if margin >= 1.0 or len(centers) < 2:
        return labels
    n_clusters = len(centers)
    values_each = points.shape[1] + n_clusters
    for rows in blocks.row_blocks(len(points), values_each):
        projected = project(points[rows], projection)
        squares = _all_squares(projected, centers)
        squares.partition(1, axis=1)
        nearest = squares[:, 0]
        second_nearest = squares[:, 1]
        unclear = nearest > margin**2 * second_nearest
        labels[rows][unclear] = n_clusters
    return labels


def _all_squares(points: FloatArray, centers: FloatArray) -> FloatArray:
    """Squared distances (n, k) from points (n, c) to centres (k, c).

    From differences, which are rows times centres times width: of as many centres at
    once as fit into a block, or of one.
    """
    n_clusters = len(centers)
    squares = np.empty((len(points), n_clusters))
    step = blocks.block_length(points.size)
    for start in range(0, n_clusters, step):
        some = slice(start, start + step)
        differences = points[:, None] - centers[some]
        np.square(differences, out=differences)
        squares[:, some] = differences.sum(axis=2)
    return squares
