"""Eigenvectors that are equal bit for bit on all machines.

Each client goes from release to release by itself. LAPACK's and BLAS's last digits
depend on processor and threads, and where eigenvalues are close (a covariance that
noise has hidden) eigenvectors are arbitrary. Here are only elementwise operations that
IEEE 754 rounds alike everywhere (+, -, *, /, square roots), in an order that is fixed.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray

MOST_COMPONENTS = 64
"""Eigenpairs that are found of a wide matrix."""
# Up to so many features all eigenpairs are found, which takes a tenth of a second.
_NARROW = 128
_SWEEPS = 40
_CONVERGED = 2.0**-48
_POWER_STEPS = 6
# Part of a column that may be left of it by rounding alone.
_DEPENDENT = 1e-10


def eigenpairs(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
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
        basis = _leading_range(matrix)
        image = product(matrix, basis)
        values, inner = _jacobi(product(np.ascontiguousarray(basis.T), image))
        vectors = product(basis, inner)
    order = np.argsort(-values, kind="stable")
    return values[order], with_positive_peaks(vectors[:, order])


def with_positive_peaks(vectors: FloatArray) -> FloatArray:
    """Turn columns, whose sign is free, so that the largest entry of each is positive."""
    largest = np.abs(vectors).argmax(axis=0)
    peaks = vectors[largest, np.arange(vectors.shape[1])]
    signs = np.where(peaks < 0.0, -1.0, 1.0)
    return np.asarray(vectors * signs, dtype=np.float64)


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply two matrices with a fixed order of summation."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for column, row in zip(left.T, right, strict=True):
        total += column[:, None] * row
    return total


def _jacobi(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find all eigenpairs, unsorted, by Jacobi's method.

    n / 2 rotations of disjoint pairs at a time (Brent and Luk 1985).
    """
    n = len(matrix)
    even = n + n % 2
    half = even // 2
    # A row of zeros more has no partner to be mixed with.
    a = np.zeros((even, even))
    a[:n, :n] = 0.5 * (matrix + matrix.T)
    rows = np.eye(even)
    order = np.arange(even)
    for _ in range(_SWEEPS):
        off = np.abs(a)
        np.fill_diagonal(off, 0.0)
        largest = float(np.abs(a).max(initial=0.0))
        if float(off.max(initial=0.0)) <= _CONVERGED * largest:
            break
        for _ in range(even - 1):
            _rotate(
                a,
                rows,
                order[:half],
                order[half:][::-1],
            )
            # Round robin: the first stays, the others move on by one place.
            order = np.concatenate([order[:1], order[-1:], order[1:-1]])
    return np.diag(a)[:n].copy(), np.ascontiguousarray(rows[:n, :n].T)


def _rotate(
    a: FloatArray,
    rows: FloatArray,
    p: npt.NDArray[np.intp],
    q: npt.NDArray[np.intp],
) -> None:
    """Make the entries (p, q) of a symmetric matrix zero, in place."""
    off = a[p, q]
    with np.errstate(all="ignore"):
        # No rotation where the entry is zero, or nothing beside the diagonal.
        ratio = (a[q, q] - a[p, p]) / (2.0 * off)
        root = np.sqrt(1.0 + ratio * ratio)
        tangent = np.where(ratio < 0.0, -1.0, 1.0) / (np.abs(ratio) + root)
    tangent = np.where((off == 0.0) | ~np.isfinite(tangent), 0.0, tangent)
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    c = cosine[:, None]
    s = sine[:, None]
    for table in (a, rows):
        first = table[p]
        second = table[q]
        table[p] = c * first - s * second
        table[q] = s * first + c * second
    first = a[:, p]
    second = a[:, q]
    a[:, p] = cosine * first - sine * second
    a[:, q] = sine * first + cosine * second
    a[p, q] = 0.0
    a[q, p] = 0.0


def _leading_range(matrix: FloatArray) -> FloatArray:
    """Orthonormal columns that span the eigenvectors of the largest eigenvalues.

    The largest by size.
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
