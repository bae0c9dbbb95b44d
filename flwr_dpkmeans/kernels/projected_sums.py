"""Sums and counts of rows by their nearest projected centre (FedDP-KMeans)."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels import label_sums
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, toward_zero
from flwr_dpkmeans.kernels.vector_clipping import clip_factor
from flwr_dpkmeans.kernels.vectors import as_column, as_floats


def sums_and_counts(
    points: FloatArray,
    labels: LabelArray,
    n_clusters: int,
    weights: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the rows of each label below k.

    Rows with the label k itself are left out. Weights (n,) are as in
    `flwr_dpkmeans.kernels.vectors.weighted`.
    """
    sums, counts = label_sums.sums_and_counts(points, labels, n_clusters + 1, weights)
    return sums[:-1], counts[:-1]


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
