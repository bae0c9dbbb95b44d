"""Clipping by hand, and its one promise.

Never a grid step above the bound, in exact arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.on_the_grid import is_on_grid, on_grid

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.clipping import clip_rows, largest_square_within
from flwr_dpkmeans.kernels.grid import toward_zero
from flwr_dpkmeans.kernels.vector_clipping import clip_factor, clip_vector

Floats = NDArray[np.float64]
GRID = 2.0**16
STEP = 1.0 / GRID


def square_of(vector: Floats) -> Fraction:
    return sum((Fraction(v) ** 2 for v in np.ravel(vector).tolist()), Fraction(0))


def magnitude_of(vector: Floats) -> Fraction:
    return sum((abs(Fraction(v)) for v in np.ravel(vector).tolist()), Fraction(0))


def within(vector: Floats, bound: float, order: int) -> bool:
    if order == 1:
        return magnitude_of(vector) <= Fraction(bound)
    return square_of(vector) <= Fraction(bound) ** 2


# -- by hand ---------------------------------------------------------------------------


def test_rows_by_hand() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0], [2.5, 0.0]])
    rows = on_grid(rows)
    clipped = clip_rows(rows, 2.5)
    assert clipped == pytest.approx(
        np.array([[1.5, 2.0], [0.3, 0.4], [0.0, 0.0], [-1.5, 2.0], [2.5, 0.0]]),
        abs=STEP,
    )
    # What is inside, the rim included, is not touched at all; what is outside keeps its
    # direction.
    assert np.array_equal(clipped[[1, 2, 4]], rows[[1, 2, 4]])
    assert np.array_equal(rows[0], [3.0, 4.0])


def test_rows_that_all_fit_come_back_as_they_are() -> None:
    rows = on_grid(np.random.default_rng(0).uniform(-1, 1, (50, 3)))
    assert np.array_equal(clip_rows(rows, 2.0), rows)
    assert np.array_equal(clip_rows(rows, math.inf), rows)
    assert clip_rows(np.empty((0, 3)), 0.5).shape == (0, 3)


def test_radius_zero_leaves_nothing() -> None:
    assert clip_rows([[0.5, -0.5], [0.0, 0.0]], 0.0).tolist() == [
        [0.0, 0.0],
        [0.0, 0.0],
    ]


def test_vectors_by_hand() -> None:
    assert clip_vector([3.0, 4.0], 2.5) == pytest.approx(np.array([1.5, 2.0]), abs=STEP)
    assert clip_vector([3.0, -4.0], 3.5, order=1) == pytest.approx(
        np.array([1.5, -2.0]), abs=STEP
    )
    assert clip_vector([3.0, 4.0], 6.0).tolist() == [3.0, 4.0]
    assert clip_vector([3.0, 4.0], 6.0, order=1) == pytest.approx(
        np.array([3.0, 4.0]) * 6 / 7, abs=STEP
    )
    assert clip_vector(np.zeros((2, 2)), 1e-9).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert clip_vector([], 1.0).tolist() == []


def test_factors_by_hand() -> None:
    assert clip_factor([3.0, 4.0], 10.0) == 1.0
    assert clip_factor([3.0, 4.0], 1.0) == pytest.approx(0.2, rel=1e-8)
    assert clip_factor([3.0, -4.0], 3.5, order=1) == pytest.approx(0.5, rel=1e-8)
    assert clip_factor([[1.0, 1.0], [1.0, 1.0]], 1.0) == pytest.approx(0.5, rel=1e-8)
    # Always on the small side.
    assert clip_factor([3.0, 4.0], 1.0) < 0.2
    assert clip_factor([0.0], 1.0) == 1.0


def test_rounding_toward_zero_by_hand() -> None:
    values = np.array([0.0, 0.9, -0.9, 1.0, -1.0, 1.1, -1.1, 2.999]) / GRID
    assert (toward_zero(values) * GRID).tolist() == [
        0.0, 0.0, 0.0, 1.0, -1.0, 1.0, -1.0, 2.0,
    ]  # fmt: skip
    # One zero only: two bit patterns would be two states.
    assert not np.signbit(toward_zero([-0.5 / GRID, -0.0])).any()


@pytest.mark.parametrize("radius", [-1e-300, -1.0, math.nan, -math.inf])
def test_a_radius_that_is_no_distance_is_refused(radius: float) -> None:
    with pytest.raises(ConfigurationError, match="radius is"):
        clip_rows([[1.0]], radius)
    with pytest.raises(ConfigurationError):
        largest_square_within(radius)


@pytest.mark.parametrize(
    "radius", [0.1, 0.3, 0.7, 1.1, 1 / 3, 2**0.5, 1e-5, 1e-170, 1e150, 0.0]
)
def test_the_largest_square_within_is_the_largest_float_below_the_square(
    radius: float,
) -> None:
    square = largest_square_within(radius)
    assert Fraction(square) <= Fraction(radius) ** 2
    assert Fraction(math.nextafter(square, math.inf)) > Fraction(radius) ** 2
    assert largest_square_within(math.inf) == math.inf


def test_not_a_number_is_no_number_inside() -> None:
    """A row that is not a number must not slip through as being inside."""
    with np.errstate(invalid="ignore"):
        clipped = clip_rows(np.array([[np.nan, 0.0], [0.25, 0.0]]), 1.0)
    assert not np.array_equal(clipped[0], [0.0, 0.0])
    assert np.isnan(clipped[0]).any()  # and is refused when it is encoded
    assert clipped[1].tolist() == [0.25, 0.0]


# -- invariants ------------------------------------------------------------------------

entries = st.integers(-(2**17), 2**17)
radii = st.one_of(
    st.floats(1e-7, 300.0, allow_nan=False),
    st.integers(1, 2**18).map(lambda steps: steps / GRID),
    st.sampled_from((STEP, 0.1, 0.7, 1.25, math.sqrt(2.0), math.sqrt(3.0))),
)


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(entries, min_size=3, max_size=3), max_size=8), radius=radii
)
def test_no_row_is_ever_longer_than_the_radius(
    rows: list[list[int]], radius: float
) -> None:
    points = np.array(rows, dtype=np.float64).reshape(-1, 3) / GRID
    before = points.copy()
    clipped = clip_rows(points, radius)
    assert np.array_equal(points, before)
    assert is_on_grid(clipped)
    for row, old in zip(clipped, points, strict=True):
        assert square_of(row) <= Fraction(radius) ** 2
        if square_of(old) <= Fraction(radius) ** 2 * (1 - Fraction(1, 2**50)):
            assert np.array_equal(row, old)
        # No sign changes, nothing grows, and no more is lost than rounding takes.
        assert (np.abs(row) <= np.abs(old)).all()
        assert (row * old >= 0.0).all()
        lost = math.sqrt(3) * STEP + 1e-9 * radius
        assert (
            math.sqrt(square_of(row)) >= min(radius, math.sqrt(square_of(old))) - lost
        )


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(-1e6, 1e6, allow_nan=False), max_size=12),
    bound=st.one_of(radii, st.floats(1e-3, 1e7)),
    order=st.sampled_from((1, 2)),
)
def test_no_vector_is_ever_longer_than_the_bound(
    values: list[float], bound: float, order: int
) -> None:
    clipped = clip_vector(values, bound, order=order)
    assert is_on_grid(clipped)
    assert within(clipped, bound, order)
    assert (np.abs(clipped) <= np.abs(np.array(values))).all()


@pytest.mark.parametrize("order", [1, 2])
def test_vectors_within_the_last_digit_of_the_bound(order: int) -> None:
    """The computed norm of a vector may be a little too small."""
    generator = np.random.default_rng(order)
    for size in (1, 2, 3, 7, 100, 5000):
        for _ in range(10 if size < 5000 else 2):
            vector = on_grid(generator.normal(0.0, 1.0, size))
            norm = (
                float(np.abs(vector).sum())
                if order == 1
                else math.sqrt(float(square_of(vector)))
            )
            for bound in (
                norm,
                math.nextafter(norm, 0.0),
                math.nextafter(norm, math.inf),
                norm * (1 - 1e-13),
            ):
                if bound <= 0.0:
                    continue
                assert within(clip_vector(vector, bound, order=order), bound, order)


@pytest.mark.parametrize("order", [1, 2])
def test_no_more_is_lost_than_a_trillionth_and_rounding(order: int) -> None:
    vector = np.random.default_rng(3).uniform(-5.0, 5.0, 200)
    for bound in (0.5, 3.0, 20.0):
        clipped = clip_vector(vector, bound, order=order)
        norm = np.abs(clipped).sum() if order == 1 else np.linalg.norm(clipped)
        loss = 200 * STEP if order == 1 else math.sqrt(200) * STEP
        assert bound - loss - 1e-9 <= norm <= bound
        # Its direction is the vector's own.
        assert clipped / norm == pytest.approx(
            vector / np.linalg.norm(vector, 1 if order == 1 else 2), abs=1e-4
        )


def test_a_row_at_a_point_of_the_grid_is_pulled_to_the_one_before_it() -> None:
    """A half itself would be kept."""
    assert clip_rows(np.array([[2.0, 0.0], [0.5, 0.0]]), 0.5).tolist() == [
        [0.5 - 2.0**-16, 0.0],
        [0.5, 0.0],
    ]
