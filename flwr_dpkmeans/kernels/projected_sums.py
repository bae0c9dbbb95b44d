"""Sums and counts of rows by their nearest projected centre (FedDP-KMeans).

Points are on the 2^-16 grid, relative to a public centre and clipped to the data radius
(`clip_rows`). Projections and projected points are the server's: a client's assignment
may depend on them in any way, the bounds do not.
"""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels import assignment, blocks, grid, label_sums
from flwr_dpkmeans.kernels.clipping import clip_factor
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, toward_zero
from flwr_dpkmeans.kernels.vectors import as_column, as_floats


def project(
    points: FloatArray,
    projection: FloatArray | None,
) -> FloatArray:
    """Project rows (n, d) by (d, c), if at all, all on the grid.

    Exactly, so that no row depends on those beside it.
    """
    if projection is None:
        return points
    return grid.round_to_grid(points @ projection)


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


def sums_and_counts(
    points: FloatArray,
    labels: LabelArray,
    n_clusters: int,
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the rows of each label below k.

    Rows with the label k itself are left out.
    """
    n_labels = n_clusters + 1
    sums = label_sums.sum_by_label(points, labels, n_labels)
    counts = np.bincount(labels, minlength=n_labels)
    return sums[:-1], as_floats(counts[:-1])


def means_and_indicators(
    sums: FloatArray,
    counts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Turn a client's sums (k, d) and counts (k,) into means and indicators.

    Indicators say which clusters are not empty. FedDP-KMeans, appendix G.4, for step 3
    alone.
    """
    rows = np.maximum(counts, 1.0)
    means = sums / as_column(rows)
    indicators = counts > 0.0
    return means, as_floats(indicators)


def clipped_together(
    vectors: FloatArray,
    numbers: FloatArray,
    vectors_bound: float,
    numbers_bound: float,
    *,
    order: int = 2,
) -> tuple[FloatArray, FloatArray]:
    """Scale a client's vectors (k, d) and numbers (k,) down to their bounds.

    On the grid, toward zero. FedDP-KMeans, appendix G.4, by one common factor, so that
    the quotient of their sums over clients is a weighted mean of the clients'
    quotients. `vectors_bound` holds for the Euclidean norm of all vectors together,
    `numbers_bound` for the norm of order 1 or 2 of the numbers.
    """
    vectors_factor = clip_factor(vectors, vectors_bound)
    numbers_factor = clip_factor(numbers, numbers_bound, order=order)
    factor = min(vectors_factor, numbers_factor)
    clipped_vectors = toward_zero(vectors * factor)
    clipped_numbers = toward_zero(numbers * factor)
    return clipped_vectors, clipped_numbers
