"""Eigenvectors that are equal bit for bit on all machines.

Each client goes from release to release by itself. LAPACK's and BLAS's last digits
depend on processor and threads, and where eigenvalues are close (a covariance that
noise has hidden) eigenvectors are arbitrary. Here are only elementwise operations that
IEEE 754 rounds alike everywhere (+, -, *, /, square roots), in an order that is fixed,
and products of wide matrices that no order rounds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kmeans.exact_product import exact_product

_Indices = npt.NDArray[np.intp]
_Pairs = tuple[FloatArray, FloatArray]

MOST_COMPONENTS = 64
"""Eigenpairs that are found of a wide matrix."""
# Up to so many features all eigenpairs are found, which takes a tenth of a second.
_NARROW = 128
_SWEEPS = 40
_CONVERGED = 2.0**-48
_POWER_STEPS = 6
# Part of a column that may be left of it by rounding alone.
_DEPENDENT = 1e-10


def eigenpairs(matrix: FloatArray) -> _Pairs:
    """Find eigenvalues, falling, and eigenvectors (columns), the same on all machines.

    The matrix (d, d) is symmetric and finite. All of them for up to 128 features; of a
    wider matrix the 64 that are largest in size, nearly (a randomized range finder,
    Halko, Martinsson and Tropp 2011). The largest entry of each vector is positive;
    where the matrix is a multiple of the identity, they are the coordinate axes in
    order.
    """
    if len(matrix) <= _NARROW:
        values, vectors = _jacobi(matrix)
    else:
        values, vectors = _leading_pairs(matrix)
    order = np.argsort(-values, kind="stable")
    falling = vectors[:, order]
    return values[order], with_positive_peaks(falling)


def with_positive_peaks(vectors: FloatArray) -> FloatArray:
    """Turn columns, whose sign is free: the largest entry of each is then positive."""
    sizes = np.abs(vectors)
    largest = sizes.argmax(axis=0)
    columns = np.arange(len(largest))
    peaks = vectors[largest, columns]
    turned: FloatArray = vectors * _signs(peaks)
    return turned


def _signs(values: FloatArray) -> FloatArray:
    """1 or -1; that of 0 is 1."""
    is_negative = values < 0.0
    return np.where(is_negative, -1.0, 1.0)


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply two matrices with a fixed order of summation."""
    shape = left.shape[0], right.shape[1]
    total = np.zeros(shape)
    pairs = zip(left.T, right, strict=True)
    for column, row in pairs:
        total += column[:, None] * row
    return total


def _jacobi(matrix: FloatArray) -> _Pairs:
    """Find all eigenpairs, unsorted, by Jacobi's method.

    n / 2 rotations of disjoint pairs at a time (Brent and Luk 1985).
    """
    n = len(matrix)
    even = n + n % 2
    half = even // 2
    # A row of zeros more has no partner to be mixed with.
    work = np.zeros((even, even))
    doubled = matrix + matrix.T
    work[:n, :n] = 0.5 * doubled
    rows = np.eye(even)
    order = np.arange(even)
    for _ in range(_SWEEPS):
        if _is_diagonal(work):
            break
        for _ in range(even - 1):
            first = order[:half]
            others = order[half:]
            second = others[::-1]
            _rotate(work, rows, first, second)
            order = _next_pairs(order)
    diagonal = np.diag(work)
    values = diagonal[:n].copy()
    transposed = rows[:n, :n]
    vectors = np.ascontiguousarray(transposed.T)
    return values, vectors


def _is_diagonal(work: FloatArray) -> bool:
    """Say whether a matrix has nothing beside its diagonal but what rounding leaves."""
    sizes = np.abs(work)
    largest = sizes.max(initial=0.0)
    np.fill_diagonal(sizes, 0.0)
    beside = sizes.max(initial=0.0)
    return bool(beside <= _CONVERGED * largest)


def _next_pairs(order: _Indices) -> _Indices:
    """Move on by one turn, round robin: the first stays, the others move on."""
    stays = order[:1]
    last = order[-1:]
    others = order[1:-1]
    return np.concatenate([stays, last, others])


def _rotate(
    work: FloatArray,
    rows: FloatArray,
    first: _Indices,
    second: _Indices,
) -> None:
    """Make the entries (first, second) of a symmetric matrix zero, in place.

    `rows` are turned along: they become the eigenvectors.
    """
    cosine, sine = _angles(work, first, second)
    c = cosine[:, None]
    s = sine[:, None]
    # The matrix's own columns are the rows of its transpose, which is a view.
    for table in (work, rows, work.T):
        upper = table[first]
        lower = table[second]
        mixed = c * upper - s * lower
        table[second] = s * upper + c * lower
        table[first] = mixed
    work[first, second] = 0.0
    work[second, first] = 0.0


def _angles(
    work: FloatArray,
    first: _Indices,
    second: _Indices,
) -> _Pairs:
    """Cosine and sine of the smaller rotation that makes each entry zero."""
    off = work[first, second]
    before = work[first, first]
    after = work[second, second]
    gap = after - before
    with np.errstate(all="ignore"):
        ratio = gap / (2.0 * off)
        square = ratio * ratio
        root = np.sqrt(1.0 + square)
        size = np.abs(ratio) + root
        tangent = _signs(ratio) / size
    # No rotation where the entry is zero, or nothing beside the diagonal.
    is_idle = off == 0.0
    is_idle |= ~np.isfinite(tangent)
    tangent = np.where(is_idle, 0.0, tangent)
    square = tangent * tangent
    root = np.sqrt(1.0 + square)
    cosine = 1.0 / root
    sine = tangent * cosine
    return cosine, sine


def _leading_pairs(matrix: FloatArray) -> _Pairs:
    """Eigenpairs of a matrix as far as they lie in its leading range."""
    basis = _leading_range(matrix)
    image = exact_product(matrix, basis)
    transposed = np.ascontiguousarray(basis.T)
    inner_matrix = product(transposed, image)
    values, inner_vectors = _jacobi(inner_matrix)
    return values, product(basis, inner_vectors)


def _leading_range(matrix: FloatArray) -> FloatArray:
    """Orthonormal columns that span the eigenvectors of the largest eigenvalues.

    The largest by size.
    """
    generator = np.random.default_rng(0)
    shape = len(matrix), MOST_COMPONENTS
    start = generator.standard_normal(shape)
    # On a coarse grid: a logarithm's last digit in a tail does not matter.
    rounded = np.rint(start * 2.0**10)
    basis = _orthonormal(rounded)
    for _ in range(_POWER_STEPS):
        image = exact_product(matrix, basis)
        basis = _orthonormal(image)
    return basis


def _orthonormal(columns: FloatArray) -> FloatArray:
    """Gram-Schmidt, twice; a column in the span of those before becomes zero."""
    rows = np.zeros_like(columns.T, order="C")
    n_columns = len(rows)
    for index in range(n_columns):
        row = columns[:, index].copy()
        others = rows[:index]
        before = _length(row)
        for _ in range(2):
            products = others * row
            along = products.sum(axis=1)
            in_span = others * along[:, None]
            row -= in_span.sum(axis=0)
        length = _length(row)
        if length > _DEPENDENT * before:
            rows[index] = row / length
    return np.ascontiguousarray(rows.T)


def _length(column: FloatArray) -> float:
    """Euclidean norm, a correctly rounded sum."""
    squares = np.square(column)
    total = math.fsum(squares)
    return math.sqrt(total)
