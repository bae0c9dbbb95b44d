"""What a FedDP-KMeans client sums: outer products, histograms over server points, sums
or means by projected centre.

Points are on the 2^-16 grid, relative to a public centre and clipped to the data radius
(`clip_rows`). Projections and projected points are the server's: a client's assignment
may depend on them in any way, the bounds do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import assignment, blocks, grid, label_sums
from flwr_dpkmeans.kernels.clipping import clip_factor
from flwr_dpkmeans.kernels.grid import GRID, FloatArray, LabelArray, toward_zero

_ROOT_TWO = math.sqrt(2.0)
# The server's errors are not spread over all directions as noise is, but lie in its own
# leading ones, where they do more harm: they count as twice as large.
_PRIOR_CAUTION = 4.0
# Sums of multiples of 2^-32 below it are exact in float64.
_EXACT_SUM = 2.0**20


def triangle_size(n_features: int) -> int:
    """Number of entries of a symmetric matrix that have to be sent."""
    return n_features * (n_features + 1) // 2


def outer_product_triangle(
    points: FloatArray, prepare: Callable[[FloatArray], FloatArray] = lambda x: x
) -> FloatArray:
    """Sum the outer products of rows (n, d), as the upper triangle of the matrix, row
    by row: (d (d + 1) / 2,).

    Off-diagonal entries are multiplied by sqrt(2), so that the vector's Euclidean norm
    is the matrix's Frobenius norm and noise of equal size on all entries is isotropic
    over symmetric matrices, with 1/sqrt(2) of the size off the diagonal. FedDP-KMeans,
    Algorithm 1, line 4. ``prepare(rows) -> rows``, such as clipping, is called on
    blocks of rows, and takes each row by itself. The result is in squared data units,
    not rounded to the grid.
    """
    return triangle_of(outer_product_sums(points, prepare))


def outer_product_sums(
    points: FloatArray, prepare: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """What `triangle_of` makes `outer_product_triangle` of, (2, d (d + 1) / 2).

    Sums over rows that are exact.
    """
    d = points.shape[1]
    places, _ = _triangle(d)

    # Products of grid values are multiples of 2^-32. A block's sums are exact; the
    # blocks are added up as whole grid steps and the rest, both exact, so that no row's
    # contribution depends on how many others there are.
    def summed(part: slice) -> Sequence[FloatArray]:
        steps, rests = np.zeros(len(places)), np.zeros(len(places))
        rows = prepare(points[part])
        largest = float(np.einsum("ij,ij->i", rows, rows).max(initial=1.0))
        n_exact = max(1, int(_EXACT_SUM / largest))
        for first in range(0, len(rows), n_exact):
            block = rows[first : first + n_exact]
            scaled = (block.T @ block).ravel()[places] * GRID
            whole = np.floor(scaled)
            steps += whole
            rests += scaled - whole
        return [steps, rests]

    # Up to d rows are no larger than their product.
    return np.stack(blocks.sum_over_blocks(summed, len(points), d, least=d))


def triangle_of(sums: FloatArray) -> FloatArray:
    """Make a triangle of whole grid steps and the rests, both without factors, one
    behind the other.
    """
    steps, rests = sums.reshape(2, -1)
    _, factors = _triangle(math.isqrt(2 * len(steps)))
    return np.asarray((steps + rests) * (factors / GRID), dtype=np.float64)


def rounded_triangle(sums: FloatArray) -> FloatArray:
    """The same on the grid."""
    return grid.round_to_grid(triangle_of(sums))


def symmetric_from_triangle(triangle: npt.ArrayLike, n_features: int) -> FloatArray:
    """Undo `outer_product_triangle`: the symmetric matrix (d, d) of a triangle."""
    places, factors = _triangle(n_features)
    matrix = np.zeros(n_features * n_features)
    matrix[places] = np.asarray(triangle, dtype=np.float64) / factors
    upper = matrix.reshape(n_features, n_features)
    return np.asarray(upper + upper.T - np.diag(np.diag(upper)), dtype=np.float64)


def shrink_to_server(
    matrix: FloatArray, server_points: FloatArray, noise: float
) -> tuple[FloatArray, float]:
    """Average a noisy outer product (d, d) with that of the server's points (m, d), by
    precision; and the noise left.

    The server's matrix is brought to the same trace. An entry of the released matrix
    has a known variance (`noise` is its standard deviation on the diagonal); one of the
    server's has a sampling variance, estimated from its points, and a mismatch, by
    which the two matrices differ more than both variances explain. The less the
    server's points, clipped as rows are, resemble the clients', the less they weigh,
    and the weight vanishes with the noise.
    """
    n_features = len(matrix)
    product: FloatArray = server_points.T @ server_points
    if n_features < 2 or not np.trace(matrix) > 0.0 or not np.trace(product) > 0.0:
        return matrix.copy(), noise
    scale = float(np.trace(matrix) / np.trace(product))
    squares = np.square(server_points)
    # Means over all entries, so that nothing depends on the axes.
    sampling = (
        squares.T @ squares - np.square(product) / len(server_points)
    ).mean() * scale**2
    released = 0.5 * noise**2 * (n_features + 1) / n_features
    difference = np.square(matrix - scale * product).mean()
    mismatch = max(0.0, float(difference - sampling - released))
    weight = released / max(
        released + _PRIOR_CAUTION * (float(sampling) + mismatch), 1e-300
    )
    return (1.0 - weight) * matrix + weight * (scale * product), (1.0 - weight) * noise


def standing_out(matrix: FloatArray, noise: float, most: int) -> int:
    """Count the eigenvalues of a noisy symmetric matrix that stand out of its bulk,
    from 1 to `most`.

    Symmetric noise of standard deviation s on and s / sqrt(2) off the diagonal spreads
    an eigenvalue over a semicircle of radius s sqrt(2 d) (Wigner); rows of many
    directions of equal variance add a bulk around the median.
    """
    values = np.linalg.eigvalsh(matrix)
    median = float(np.median(values))
    # Eigenvalues of the bulk lie as far above the median as below it.
    edge = median + max(noise * math.sqrt(2.0 * len(values)), median - float(values[0]))
    return int(np.clip((values > edge).sum(), 1, most))


def leading_eigenvectors(matrix: FloatArray, n_components: int) -> FloatArray:
    """Leading eigenvectors (d, n_components) of a symmetric matrix, their largest
    entries positive, on the grid.
    """
    _, vectors = np.linalg.eigh(matrix)
    return (
        grid.round_to_grid(with_positive_peaks(vectors[:, ::-1][:, :n_components]))
        + 0.0
    )


def project(points: FloatArray, projection: FloatArray | None) -> FloatArray:
    """Project rows (n, d) by (d, c), if at all, all on the grid.

    Exactly, so that no row depends on those beside it.
    """
    return points if projection is None else grid.round_to_grid(points @ projection)


def nearest_projected(
    points: FloatArray, projection: FloatArray | None, centers: FloatArray
) -> LabelArray:
    """Index, int32 (n,), of the nearest projected centre (k, c) of each row.

    Ties go to the lowest index.

    All is on the grid and all sums are exact: each label is a function of its row and
    the centres alone, to the last bit. No projection measures distances in the space of
    the data.
    """
    return assignment.nearest_labels(project(points, projection), centers)


def clear_labels(
    points: FloatArray,
    projection: FloatArray | None,
    centers: FloatArray,
    margin: float,
) -> LabelArray:
    """Nearest projected centre of each row.

    The number of centres where another one is almost as near.

    `margin`, above 0, is the largest ratio of the distances to the nearest and to the
    second nearest centre: at most 1/3 in Awasthi and Sheffet 2012; 1 keeps every row,
    as FedDP-KMeans, Algorithm 1, line 20, does.
    """
    labels = nearest_projected(points, projection, centers)
    if margin >= 1.0 or len(centers) < 2:
        return labels
    for rows in blocks.row_blocks(len(points), points.shape[1] + len(centers)):
        part = project(points[rows], projection)
        squares = np.empty((len(part), len(centers)))
        # Differences are rows times centres times width: of as many centres at once as
        # fit, or of one.
        step = blocks.block_length(part.size)
        for start in range(0, len(centers), step):
            differences = part[:, None, :] - centers[None, start : start + step, :]
            squares[:, start : start + step] = np.square(
                differences, out=differences
            ).sum(axis=2)
        squares.partition(1, axis=1)
        labels[rows][squares[:, 0] > margin**2 * squares[:, 1]] = len(centers)
    return labels


def sums_and_counts(
    points: FloatArray, labels: LabelArray, n_clusters: int
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the rows of each label below k.

    Rows with the label k itself are left out.
    """
    sums = label_sums.sum_by_label(points, labels, n_clusters + 1)[:-1]
    counts = np.bincount(labels, minlength=n_clusters + 1)[:-1].astype(np.float64)
    return sums, counts


def means_and_indicators(
    sums: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Turn a client's sums (k, d) and counts (k,) into its cluster means and indicators
    of non-empty clusters.

    FedDP-KMeans, appendix G.4, for step 3 alone.
    """
    return sums / np.maximum(counts, 1.0)[:, None], (counts > 0.0).astype(np.float64)


def clipped_together(
    vectors: FloatArray,
    numbers: FloatArray,
    vectors_bound: float,
    numbers_bound: float,
    *,
    order: int = 2,
) -> tuple[FloatArray, FloatArray]:
    """Scale a client's vectors (k, d) and numbers (k,) down to their bounds, on the
    grid, toward zero.

    FedDP-KMeans, appendix G.4, by one common factor, so that the quotient of their sums
    over clients is a weighted mean of the clients' quotients. `vectors_bound` holds for
    the Euclidean norm of all vectors together, `numbers_bound` for the norm of order 1
    or 2 of the numbers.
    """
    factor = min(
        clip_factor(vectors, vectors_bound),
        clip_factor(numbers, numbers_bound, order=order),
    )
    return toward_zero(vectors * factor), toward_zero(numbers * factor)


@lru_cache(maxsize=16)
def _triangle(n_features: int) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Flat places of the upper triangle and the factors of its entries."""
    rows, columns = np.triu_indices(n_features)
    return rows * n_features + columns, np.where(rows == columns, 1.0, _ROOT_TWO)


# -- eigenvectors that are equal bit for bit on all machines: each client goes from release to release by itself ---
# LAPACK's and BLAS's last digits depend on processor and threads, and where eigenvalues
# are close (a covariance that noise has hidden) eigenvectors are arbitrary. Here are
# only elementwise operations that IEEE 754 rounds alike everywhere (+, -, *, /, square
# roots), in an order that is fixed.

MOST_COMPONENTS = 64
"""Eigenpairs that are found of a wide matrix."""
_NARROW = 128  # up to so many features all eigenpairs are found: a tenth of a second
_SWEEPS = 40
_CONVERGED = 2.0**-48
_POWER_STEPS = 6
_DEPENDENT = 1e-10  # part of a column that may be left of it by rounding alone


def eigenpairs(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find the eigenvalues, falling, and eigenvectors (columns) of a symmetric, finite
    matrix (d, d), reproducibly.

    All of them for up to 128 features; of a wider matrix the 64 that are largest in
    size, nearly (a randomized range finder, Halko, Martinsson and Tropp 2011). The
    largest entry of each vector is positive; where the matrix is a multiple of the
    identity, they are the coordinate axes in order.
    """
    if len(matrix) <= _NARROW:
        values, vectors = _jacobi(matrix)
    else:
        basis = _leading_range(matrix)
        values, inner = _jacobi(
            product(np.ascontiguousarray(basis.T), product(matrix, basis))
        )
        vectors = product(basis, inner)
    order = np.argsort(-values, kind="stable")
    return values[order], with_positive_peaks(vectors[:, order])


def with_positive_peaks(vectors: FloatArray) -> FloatArray:
    """Turn columns, whose sign is free, so that the largest entry of each is positive."""
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0.0, -1.0, 1.0)
    return np.asarray(vectors * signs, dtype=np.float64)


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply two matrices with a fixed order of summation."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for column, row in zip(left.T, right, strict=True):
        total += column[:, None] * row
    return total


def _jacobi(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Jacobi's method, n / 2 rotations of disjoint pairs at a time (Brent and Luk
    1985): all pairs, unsorted.
    """
    n = len(matrix)
    even = n + n % 2
    # A row of zeros more has no partner to be mixed with.
    a, rows = np.zeros((even, even)), np.eye(even)
    a[:n, :n] = 0.5 * (matrix + matrix.T)
    order = np.arange(even)
    for _ in range(_SWEEPS):
        off = np.abs(a)
        np.fill_diagonal(off, 0.0)
        if float(off.max(initial=0.0)) <= _CONVERGED * float(
            np.abs(a).max(initial=0.0)
        ):
            break
        for _ in range(even - 1):
            _rotate(a, rows, order[: even // 2], order[even // 2 :][::-1])
            # Round robin: the first stays, the others move on by one place.
            order = np.concatenate([order[:1], order[-1:], order[1:-1]])
    return np.diag(a)[:n].copy(), np.ascontiguousarray(rows[:n, :n].T)


def _rotate(
    a: FloatArray, rows: FloatArray, p: npt.NDArray[np.intp], q: npt.NDArray[np.intp]
) -> None:
    """Make the entries (p, q) of a symmetric matrix zero, in place."""
    off = a[p, q]
    with np.errstate(
        all="ignore"
    ):  # No rotation where the entry is zero, or nothing beside the diagonal.
        ratio = (a[q, q] - a[p, p]) / (2.0 * off)
        tangent = np.where(ratio < 0.0, -1.0, 1.0) / (
            np.abs(ratio) + np.sqrt(1.0 + ratio * ratio)
        )
    tangent = np.where((off == 0.0) | ~np.isfinite(tangent), 0.0, tangent)
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    c, s = cosine[:, None], (tangent * cosine)[:, None]
    for table in (a, rows):
        first, second = table[p], table[q]
        table[p], table[q] = c * first - s * second, s * first + c * second
    first, second = a[:, p], a[:, q]
    a[:, p], a[:, q] = (
        c[:, 0] * first - s[:, 0] * second,
        s[:, 0] * first + c[:, 0] * second,
    )
    a[p, q] = a[q, p] = 0.0


def _leading_range(matrix: FloatArray) -> FloatArray:
    """Orthonormal columns that span the eigenvectors of the largest eigenvalues, by
    size.
    """
    size = float(np.abs(matrix).max()) or 1.0
    start = np.random.default_rng(0).standard_normal((len(matrix), MOST_COMPONENTS))
    # On a coarse grid: a logarithm's last digit in a tail does not matter.
    basis = _orthonormal(np.rint(start * 2.0**10))
    for _ in range(_POWER_STEPS):
        basis = _orthonormal(product(matrix / size, basis))
    return basis


def _orthonormal(columns: FloatArray) -> FloatArray:
    """Gram-Schmidt, twice; a column that is in the span of those before becomes zero."""
    basis = np.zeros_like(columns)
    for j in range(columns.shape[1]):
        column = columns[:, j].copy()
        before = math.sqrt(math.fsum(np.square(column)))
        for _ in range(2):
            column -= (basis * (column[:, None] * basis).sum(axis=0)).sum(axis=1)
        length = math.sqrt(math.fsum(np.square(column)))
        if length > _DEPENDENT * before:
            basis[:, j] = column / length
    return basis
