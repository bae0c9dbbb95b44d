"""The private picture before clustering.

By hand, when noise hides everything, and on machines that round otherwise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from support.cases import pairs
from support.on_the_grid import is_on_grid

from flwr_dpkmeans.kmeans.proxies.ellipsoid import ellipsoid_of, shrunk_centre

Floats = NDArray[np.float64]
GRID = 2.0**16


def in_single_precision(values: Floats) -> bool:
    """Lengths without the last digits of the noise's scale."""
    return bool((values.astype(np.float32) == values).all())


def symmetric_noise(generator: np.random.Generator, d: int, noise: float) -> Floats:
    """Standard deviation `noise` on the diagonal and noise / sqrt(2) off it."""
    upper = np.triu(generator.normal(0.0, noise / math.sqrt(2.0), (d, d)), 1)
    found: Floats = upper + upper.T + np.diag(generator.normal(0.0, noise, d))
    return found


# -- centre and variance ---------------------------------------------------------------


def test_centre_by_hand() -> None:
    # Mean square 0.25 of which noise explains 0.01: factor 0.24 / 0.25.
    found = shrunk_centre(np.array([0.7, 0.1]), 0.1)
    assert found == pytest.approx(np.array([0.7, 0.1]) * 0.24 / 0.25, abs=1 / GRID)
    assert is_on_grid(found)


def test_centre_is_the_middle_where_noise_explains_it_and_stays_in_the_box() -> None:
    assert shrunk_centre(np.array([0.3, -0.3]), 0.31).tolist() == [0.0, 0.0]
    assert shrunk_centre(np.zeros(3), 0.0).tolist() == [0.0] * 3
    far = shrunk_centre(np.array([1e12, -1e12]), 1.0)
    assert far == pytest.approx(np.array([0.95, -0.95]), abs=1 / GRID)


# -- the ellipsoid ---------------------------------------------------------------------


def test_without_noise_the_covariance_comes_back_with_its_trace_scaled() -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    matrix = turn @ np.diag([0.3, 0.1]) @ turn.T
    found = ellipsoid_of(matrix, 0.0, 0.2)
    assert found.variances == pytest.approx(np.array([0.3, 0.1]), abs=1e-4)
    # The largest entry of each is positive.
    assert found.axes == pytest.approx(turn, abs=1e-4)
    assert found.spread == pytest.approx(math.sqrt(0.4), abs=1e-4)
    # The mean of the diagonal is what the square said, whatever the matrix says: rows
    # were clipped.
    assert ellipsoid_of(matrix, 0.0, 0.4).variances.sum() == pytest.approx(
        0.8, abs=1e-4
    )
    assert is_on_grid(found.axes)
    assert in_single_precision(found.variances)


def test_an_off_diagonal_part_is_shrunk_by_half_the_width_of_the_noise() -> None:
    """Eigenvalues +-c, the edge is the noise itself: sqrt(c^2 - s^2) is kept."""
    variance, c, s = 0.2, 0.1, 0.06
    found = ellipsoid_of(np.array([[variance, c], [c, variance]]), s, variance)
    kept = math.sqrt(c**2 - s**2)
    assert found.variances == pytest.approx(
        np.array([variance + kept, variance - kept]), abs=2 / GRID
    )
    assert found.axes == pytest.approx(
        np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2.0), abs=1 / GRID
    )


def test_the_width_of_the_noise_grows_with_the_root_of_the_columns() -> None:
    """All off-diagonal c, d = 8: eigenvalues 7 c and -c, the edge twice the noise."""
    c, s = 0.02, 0.03
    found = ellipsoid_of(np.full((8, 8), c) + (0.2 - c) * np.eye(8), s, 0.2)
    kept = math.sqrt((7.0 * c) ** 2 - (2.0 * s) ** 2)
    expected = np.array([0.2 + kept, *np.full(7, 0.2)]) * 1.6 / (1.6 + kept)
    assert found.variances == pytest.approx(expected, abs=1 / GRID)


def test_the_diagonal_is_pulled_to_the_average_by_how_much_noise_explains() -> None:
    # Variance of (0.3, 0.1) is 0.01; noise 0.08 explains 0.0064 of it: factor 0.0036 /
    # 0.01.
    found = ellipsoid_of(np.diag([0.3, 0.1]), 0.08, 0.2)
    assert found.variances == pytest.approx(np.array([0.236, 0.164]), abs=2 / GRID)


@pytest.mark.parametrize("d", [1, 2, 8, 9, 100])
def test_where_nothing_stands_out_the_axes_are_the_coordinates(d: int) -> None:
    """A multiple of the identity has arbitrary eigenvectors."""
    for matrix in (
        np.eye(d) * 0.2,
        symmetric_noise(np.random.default_rng(d), d, 1e-9),
        np.zeros((d, d)),
    ):
        found = ellipsoid_of(matrix, 1.0, 0.2)
        assert np.array_equal(found.axes, np.eye(d))
        assert found.variances == pytest.approx(np.full(d, 0.2), abs=1 / GRID)


@pytest.mark.parametrize("d", [2, 8, 30])
def test_a_constant_column_and_a_perfect_correlation_are_no_trouble(d: int) -> None:
    direction = np.ones(d)
    direction[0] = 0.0
    found = ellipsoid_of(np.outer(direction, direction) * 0.2, 0.0, 0.2)
    assert found.variances.min() > 0.0
    assert found.variances[0] == found.variances.max()
    assert np.abs(found.axes[0, 0]) < 0.5
    assert found.axes.T @ found.axes == pytest.approx(np.eye(d), abs=1e-3)


def test_an_axis_that_leans_by_less_than_half_a_step_has_positive_zeros() -> None:
    """One relative step leans the axis by 0.37, to either side."""
    for sign in (-1.0, 1.0):
        matrix = np.diag([0.56, 0.02, 0.02])
        matrix[0, 1] = matrix[1, 0] = sign * 0.2 / GRID
        axes = ellipsoid_of(matrix, 0.0, 0.2).axes
        assert (np.abs(axes).max(axis=0).tolist(), np.count_nonzero(axes)) == (
            [1.0] * 3,
            3,
        )
        assert not np.signbit(axes).any()


SIZES = [0.0, 1e-6, 1.0, 1e9]
VARIANCES = [1e-4, 0.2, 1.0, 2.0**-24 / 60]
# In many dimensions each size and each variance once.
RELEASED = [
    *pairs([1, 2, 9], SIZES, VARIANCES),
    *zip([8, 60, 60, 60], SIZES, VARIANCES, strict=True),
]
RELEASED += [(140, 0.0, 0.2), (140, 1e9, 0.2)]


@pytest.mark.sample(14)
@pytest.mark.parametrize(("d", "size", "variance"), RELEASED)
def test_whatever_was_released_gives_an_ellipsoid(
    d: int, size: float, variance: float
) -> None:
    generator = np.random.default_rng(d)
    for noise in (1e-12, 1e-3, 1e6) if d < 60 else (1e-3,):
        matrix = symmetric_noise(generator, d, size)
        found = ellipsoid_of(matrix, noise, variance)
        assert found.variances.shape == (d,)
        assert found.variances.min() >= 2.0**-28
        assert found.variances.sum() <= d * 1.001
        assert in_single_precision(found.variances)
        assert is_on_grid(found.axes)
        assert np.square(found.axes).sum(axis=0).max() < 1.01**2
        again = ellipsoid_of(np.asfortranarray(matrix), noise, variance)
        assert np.array_equal(found.axes, again.axes)
        assert np.array_equal(found.variances, again.variances)


def data_covariance(
    generator: np.random.Generator, d: int, n_directions: int
) -> Floats:
    directions = np.linalg.qr(generator.normal(size=(d, n_directions)))[0]
    found: Floats = (
        np.eye(d) * 0.05
        + (directions * np.linspace(0.5, 0.2, n_directions)) @ directions.T
    )
    return found


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("d", "noise", "n_directions"), pairs([2, 8, 9, 40], [1e-4, 0.02, 0.5], [1, 2])
)
def test_last_digits_of_the_noise_change_no_bit(
    d: int, noise: float, n_directions: int
) -> None:
    """Another machine's numerical search ends a few last digits away."""
    generator = np.random.default_rng(100 * d + n_directions)
    for _ in range(5 if d < 40 else 1):
        matrix = data_covariance(generator, d, n_directions) + symmetric_noise(
            generator, d, noise
        )
        found = ellipsoid_of(matrix, noise, 0.2)
        for factor in (1.0 - 4e-16, 1.0 + 4e-16, 1.0 + 2e-15):
            other = ellipsoid_of(matrix, noise * factor, 0.2)
            assert np.array_equal(found.axes, other.axes)
            assert np.array_equal(found.variances, other.variances)


def test_directions_that_stand_out_are_found_and_noise_is_not() -> None:
    d, noise, generator = 40, 0.005, np.random.default_rng(5)
    matrix = data_covariance(generator, d, 2)
    directions = np.linalg.eigh(matrix)[1][:, ::-1][:, :2]
    found = ellipsoid_of(
        matrix + symmetric_noise(generator, d, noise),
        noise,
        float(np.trace(matrix)) / d,
    )
    overlap = np.linalg.svd(directions.T @ found.axes[:, :2])[1]
    assert overlap.min() > 0.98
    assert found.variances[:2] == pytest.approx(np.array([0.55, 0.25]), rel=0.15)
    # In noise alone no axis is much longer than another one.
    blank = ellipsoid_of(
        np.eye(d) * 0.2 + symmetric_noise(generator, d, noise), noise, 0.2
    )
    assert blank.variances[0] < 1.25 * 0.2


def test_a_wide_table_gets_its_leading_axes_and_all_its_variance() -> None:
    d, generator = 140, np.random.default_rng(6)
    matrix = data_covariance(generator, d, 2)
    variance = float(np.trace(matrix)) / d
    found = ellipsoid_of(matrix, 1e-6, variance)
    assert found.axes.shape == (d, 64)
    assert found.variances.shape == (d,)
    assert found.variances.sum() == pytest.approx(np.trace(matrix), rel=0.01)
    assert found.variances[:2] == pytest.approx(np.array([0.55, 0.25]), rel=0.02)
    assert found.variances[70:] == pytest.approx(np.full(70, 0.05), rel=0.1)


@pytest.mark.parametrize(
    ("power", "least"), [(-26, 2.0**-26), (-28, 2.0**-28), (-30, 2.0**-28)]
)
def test_no_axis_is_shorter_than_the_grid_of_a_small_table(
    power: int, least: float
) -> None:
    found = ellipsoid_of(np.zeros((2, 2)), 0.0, 2.0**power)
    assert found.variances.tolist() == [least, least]
