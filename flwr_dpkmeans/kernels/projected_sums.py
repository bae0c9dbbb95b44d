"""Sums and counts of rows by their nearest projected centre (FedDP-KMeans)."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels import label_sums
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, Sizes
from flwr_dpkmeans.kernels.vector_clipping import clip_factors, scaled_each
from flwr_dpkmeans.kernels.vectors import as_floats


def sums_and_counts(
    points: FloatArray,
    labels: LabelArray,
    n_clusters: int,
    sizes: Sizes,
    weights: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Sum (m, k, d) and count (m, k) each client's rows of each label below k.

    Rows with the label k itself are left out. Weights (n,) are as in
    `flwr_dpkmeans.kernels.vectors.weighted`.
    """
    n_clients = len(sizes)
    n_labels = n_clusters + 1
    n_entries = n_clients * n_labels
    entries = label_sums.entries_of(labels, n_labels, sizes)
    sums, counts = label_sums.sums_and_counts(
        points,
        entries,
        n_entries,
        weights,
    )
    sums_of_each = sums.reshape(n_clients, n_labels, -1)
    counts_of_each = counts.reshape(n_clients, n_labels)
    return sums_of_each[:, :-1], counts_of_each[:, :-1]


def means_and_indicators(
    sums: FloatArray,
    counts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Turn clients' sums (..., k, d) and counts (..., k) into means and indicators.

    Indicators say which clusters are not empty. FedDP-KMeans, appendix G.4, for step 3
    alone.
    """
    rows = np.maximum(counts, 1.0)
    means = sums / rows[..., None]
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
    """Scale each client's vectors (m, k, d) and numbers (m, k) down to their bounds.

    On the grid, toward zero. FedDP-KMeans, appendix G.4, by one common factor, so that
    the quotient of their sums over clients is a weighted mean of the clients'
    quotients. `vectors_bound` holds for the Euclidean norm of all of a client's vectors
    together, `numbers_bound` for the norm of order 1 or 2 of its numbers.
    """
    vectors_factors = clip_factors(vectors, vectors_bound)
    numbers_factors = clip_factors(numbers, numbers_bound, order=order)
    factors = np.minimum(vectors_factors, numbers_factors)
    return scaled_each(vectors, factors), scaled_each(numbers, factors)
