"""Reproducible eigenpairs: against LAPACK, in degenerate cases, and without anything
that depends on the machine.
"""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.kmeans import eigenvectors
from flwr_dpkmeans.kmeans.eigenvectors import eigenpairs, product

Floats = NDArray[np.float64]


def symmetric(generator: np.random.Generator, d: int) -> Floats:
    table = generator.normal(size=(d, d))
    found: Floats = (table + table.T) / 2.0
    return found


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 8, 9, 30, 65])
def test_all_pairs_are_those_of_lapack(d: int) -> None:
    matrix = symmetric(np.random.default_rng(d), d)
    values, vectors = eigenpairs(matrix)
    expected, theirs = np.linalg.eigh(matrix)
    assert values == pytest.approx(expected[::-1], abs=1e-11)
    assert np.abs(vectors.T @ vectors - np.eye(d)).max() < 1e-12
    assert np.abs(matrix @ vectors - vectors * values).max() < 1e-11
    # The same directions; here the largest entry is positive.
    assert np.abs(np.abs((theirs[:, ::-1] * vectors).sum(axis=0)) - 1.0).max() < 1e-9
    assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(d)] > 0.0).all()


@pytest.mark.parametrize("d", [1, 2, 5, 9, 100])
@pytest.mark.parametrize("value", [0.0, 0.2, -3.0, 1e-300])
def test_a_multiple_of_the_identity_has_the_coordinate_axes_in_order(
    d: int, value: float
) -> None:
    values, vectors = eigenpairs(np.eye(d) * value)
    assert values.tolist() == [value] * d
    assert np.array_equal(vectors, np.eye(d))


def test_equal_values_beside_others_keep_the_coordinate_axes() -> None:
    values, vectors = eigenpairs(np.diag([1.0, 3.0, 1.0, 1.0, 2.0]))
    assert values.tolist() == [3.0, 2.0, 1.0, 1.0, 1.0]
    assert np.array_equal(vectors, np.eye(5)[:, [1, 4, 0, 2, 3]])


def test_one_direction_that_stands_out_of_equal_ones() -> None:
    """The others are arbitrary, but always the same and at right angles."""
    direction = np.array([3.0, -4.0, 0.0, 0.0, 0.0]) / 5.0
    values, vectors = eigenpairs(np.eye(5) + 2.0 * np.outer(direction, direction))
    assert values == pytest.approx(np.array([3.0, 1.0, 1.0, 1.0, 1.0]))
    assert vectors[:, 0] == pytest.approx(-direction)
    assert np.abs(vectors.T @ vectors - np.eye(5)).max() < 1e-14
    assert np.array_equal(vectors[:, 2:], np.eye(5)[:, 2:])


def test_nothing_but_elementwise_arithmetic_is_used() -> None:
    """LAPACK, BLAS and einsum round differently on other machines."""
    inexact = {"dot", "einsum", "inner", "vdot", "tensordot", "matmul"}
    inexact |= {"eigh", "eigvalsh", "eig", "svd", "qr", "norm", "cholesky"}
    called = ["eigenpairs"]
    for function in called:
        tree = ast.parse(inspect.getsource(getattr(eigenvectors, function)))
        nodes = list(ast.walk(tree))
        assert not any(isinstance(node, ast.MatMult) for node in nodes)
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        assert not inexact & (names | attributes)
        called += sorted(
            name
            for name in names - {*called}
            if inspect.isfunction(getattr(eigenvectors, name, None))
        )
    used = {"product", "_jacobi", "_rotate", "_leading_range", "_orthonormal"}
    assert used <= {*called}


def test_entries_of_one_are_turned_away_as_others_are() -> None:
    values, vectors = eigenpairs(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert values == pytest.approx([1.0, -1.0])
    assert np.abs(vectors) == pytest.approx(np.full((2, 2), 0.5**0.5))


def test_last_digits_do_not_matter_where_values_are_apart() -> None:
    matrix = symmetric(np.random.default_rng(3), 12)
    values, vectors = eigenpairs(matrix)
    noise = symmetric(np.random.default_rng(4), 12) * 1e-15
    other_values, other_vectors = eigenpairs(matrix + noise)
    assert np.abs(values - other_values).max() < 1e-13
    assert np.abs(vectors - other_vectors).max() < 1e-12


def test_of_a_wide_matrix_the_largest_values_are_found() -> None:
    d, generator = 200, np.random.default_rng(0)
    basis = np.linalg.qr(generator.normal(size=(d, 4)))[0]
    matrix = (basis * [5.0, 4.0, -4.5, 3.0]) @ basis.T + symmetric(generator, d) * (
        0.5 / np.sqrt(d)
    )
    values, vectors = eigenpairs(matrix)
    assert values.shape == (eigenvectors.MOST_COMPONENTS,)
    assert vectors.shape == (d, eigenvectors.MOST_COMPONENTS)
    expected, theirs = np.linalg.eigh(matrix)
    assert values[:3] == pytest.approx(expected[::-1][:3], rel=1e-9)
    assert values[-1] == pytest.approx(expected[0], rel=1e-9)
    assert np.abs(
        (theirs[:, ::-1][:, :3] * vectors[:, :3]).sum(axis=0)
    ) == pytest.approx(np.ones(3), abs=1e-8)
    assert np.abs(vectors.T @ vectors - np.eye(len(values))).max() < 1e-12
    assert np.array_equal(vectors, eigenpairs(matrix.copy())[1])


@pytest.mark.filterwarnings("error")  # nothing is divided by zero
def test_wide_matrices_of_low_rank_are_no_trouble() -> None:
    for matrix in (np.zeros((150, 150)), np.ones((150, 150)), np.eye(150)):
        values, vectors = eigenpairs(matrix)
        assert np.isfinite(values).all()
        assert np.isfinite(vectors).all()
        assert values.max() == pytest.approx(np.linalg.eigvalsh(matrix)[-1], abs=1e-9)


def test_products_are_added_up_in_order() -> None:
    left, right = np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1))
    assert product(left, right).tolist() == [[0.0]]
    assert product(left[:, [0, 2, 1]], right).tolist() == [[1.0]]
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(5, 7)), generator.normal(size=(7, 3))
    assert product(a, b) == pytest.approx(a @ b)
