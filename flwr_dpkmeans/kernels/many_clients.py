"""Statistics of many clients at once, to the bits of one client after another.

For simulations. Rows (n, d) of all clients lie one client behind the other, `sizes` (m,)
says how many are whose, and every result has a leading axis of clients.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import label_sums
from flwr_dpkmeans.kernels.clipping import SHADE
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, toward_zero
from flwr_dpkmeans.kernels.outer_products import (
    EXACT_SUM,
    outer_product_triangle,
    triangle_entries,
)
from flwr_dpkmeans.kernels.projected_sums import means_and_indicators
from flwr_dpkmeans.kernels.triangles import triangle_factors
from flwr_dpkmeans.kernels.vector_clipping import vector_norm
from flwr_dpkmeans.kernels.vectors import as_floats, squared_lengths

Sizes = npt.NDArray[np.int64]
"""Numbers of rows of clients, (m,), any of which may be 0."""


def outer_products_of_each(rows: FloatArray, sizes: Sizes) -> FloatArray:
    """Sum each client's outer products: triangles, (m, d (d + 1) / 2)."""
    n_features = rows.shape[1]
    tables = np.split(rows, np.cumsum(sizes)[:-1])
    largest = squared_lengths(rows).max(initial=1.0)
    if largest * sizes.max() > EXACT_SUM:
        return np.stack([outer_product_triangle(table) for table in tables])
    entries = triangle_entries(n_features)
    triangles = np.empty((len(tables), len(entries)))
    for table, triangle in zip(tables, triangles, strict=True):
        # Exact, so that nothing has to be added up in two parts.
        product = table.T @ table
        np.take(product.ravel(), entries, out=triangle, mode="clip")
    triangles *= triangle_factors(n_features)
    return triangles


def counts_of_each(
    labels: LabelArray,
    n_labels: int,
    sizes: Sizes,
) -> FloatArray:
    """Count each client's rows of each label, (m, n_labels)."""
    n_clients = len(sizes)
    entries = _entries(labels, n_labels, sizes)
    counts = np.bincount(entries, minlength=n_clients * n_labels)
    return as_floats(counts.reshape(n_clients, n_labels))


def sums_and_counts_of_each(
    rows: FloatArray,
    labels: LabelArray,
    n_clusters: int,
    sizes: Sizes,
) -> tuple[FloatArray, FloatArray]:
    """Sum (m, k, d) and count (m, k) each client's rows of each label below k.

    Rows with the label k itself are left out.
    """
    n_clients = len(sizes)
    n_labels = n_clusters + 1
    entries = _entries(labels, n_labels, sizes)
    sums, counts = label_sums.sums_and_counts(rows, entries, n_clients * n_labels)
    sums_by_client = sums.reshape(n_clients, n_labels, -1)
    counts_by_client = counts.reshape(n_clients, n_labels)
    return sums_by_client[:, :-1], counts_by_client[:, :-1]


def _entries(labels: LabelArray, n_labels: int, sizes: Sizes) -> LabelArray:
    """Number each row by its client and its label."""
    first_entries = np.arange(len(sizes), dtype=np.int32) * n_labels
    return np.asarray(np.repeat(first_entries, sizes) + labels, np.int32)


def means_and_indicators_of_each(
    sums: FloatArray,
    counts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Turn sums (m, k, d) and counts (m, k) into means and indicators."""
    n_clients, n_clusters, n_features = sums.shape
    means, indicators = means_and_indicators(
        sums.reshape(-1, n_features), counts.ravel()
    )
    return means.reshape(sums.shape), indicators.reshape(n_clients, n_clusters)


def clip_factors(
    vectors: FloatArray,
    bound: float,
    *,
    order: int = 2,
) -> FloatArray:
    """The factor of each client's vector, (m,): see `vector_clipping.clip_factor`."""
    # A norm is summed row by row, as its last digit depends on the order.
    flat = vectors.reshape(len(vectors), -1)
    norms = np.array([vector_norm(vector, order) for vector in flat])
    are_short = norms <= bound * SHADE
    divisors = np.where(are_short, 1.0, norms)
    return np.where(are_short, 1.0, bound * SHADE * SHADE / divisors)


def clip_each(
    vectors: FloatArray,
    bound: float,
    *,
    order: int = 2,
) -> FloatArray:
    """Scale each client's vector (m, n) down to its bound, on the grid."""
    factors = clip_factors(vectors, bound, order=order)
    return toward_zero(vectors * factors[:, None])


def clip_each_together(
    vectors: FloatArray,
    numbers: FloatArray,
    vectors_bound: float,
    numbers_bound: float,
    *,
    order: int = 2,
) -> tuple[FloatArray, FloatArray]:
    """Scale each client's vectors (m, k, d) and numbers (m, k) by a common factor.

    See `projected_sums.clipped_together`.
    """
    vectors_factors = clip_factors(vectors, vectors_bound)
    numbers_factors = clip_factors(numbers, numbers_bound, order=order)
    factors = np.minimum(vectors_factors, numbers_factors)
    clipped_vectors = toward_zero(vectors * factors[:, None, None])
    clipped_numbers = toward_zero(numbers * factors[:, None])
    return clipped_vectors, clipped_numbers
