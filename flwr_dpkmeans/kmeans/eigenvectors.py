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
            _rotate(
                a,
                rows,
                order[: even // 2],
                order[even // 2 :][::-1],
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
