"""Centroid updates: formulas, the clipping guarantee, equality on all machines."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.folding import PostProcessing, fold, truncate
from flwr_dpkmeans.kmeans.lloyd import absolute_update, relative_update

finite = st.floats(-1e150, 1e150, allow_nan=False)


def exact_square(row: np.ndarray) -> Fraction:
    """The squared norm without rounding."""
    return sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0))


def test_round_to_grid() -> None:
    values = np.array([0.0, 2.0**-17, 3 * 2.0**-17, -0.3, 1.0, -1.0, 12345.678])
    rounded = round_to_grid(values)
    assert np.array_equal(rounded * 65536, np.rint(values * 65536))
    assert rounded[1] == 0.0, "halves go to the even multiple"
    assert rounded[2] == 2 * 2.0**-16
    assert round_to_grid(0.3, fraction_bits=0) == 0.0


def test_fold_bounces_like_a_ball() -> None:
    values = [0.0, 0.5, -0.5, 1.0, -1.0, 1.25, -1.25, 3.0, 3.25, 5.25, -7.0, 1e-20]
    assert fold(values).tolist() == [
        0.0, 0.5, -0.5, 1.0, -1.0, 0.75, -0.75, -1.0, -0.75, 0.75, 1.0, 1e-20,
    ]  # fmt: skip


@given(st.floats(-1e12, 1e12))
def test_fold_stays_between_the_walls_and_is_symmetric(value: float) -> None:
    folded = float(fold(value))
    assert -1.0 <= folded <= 1.0
    assert float(fold(-value)) == pytest.approx(-folded, abs=1e-3)


def test_truncate() -> None:
    assert truncate([0.5, 1.5, -1.5]).tolist() == [0.5, 1.0, -1.0]


@settings(max_examples=150)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=finite,
    ),
    st.data(),
)
def test_clipped_norms_never_exceed_the_radius(
    steps: np.ndarray, data: st.DataObject
) -> None:
    radius = data.draw(st.one_of(st.floats(0.0, 1e3), st.floats(1e-150, 1e150)))
    # Squares of smaller values are below the smallest float: a norm cannot see them,
    # and no step on the grid has any.
    steps = np.where(np.abs(steps) < 1e-150, 0.0, steps)
    clipped = clip_steps(steps, radius)
    for row, original in zip(clipped, steps, strict=True):
        assert exact_square(row) <= Fraction(radius) ** 2
        if exact_square(original) <= Fraction(radius) ** 2:
            assert np.array_equal(row, original)


def test_clipping_keeps_direction_and_nearly_all_of_the_radius() -> None:
    steps = np.random.default_rng(0).normal(size=(200, 7)) * 3.0
    clipped = clip_steps(steps, 0.7)
    np.testing.assert_allclose(np.linalg.norm(clipped, axis=1), 0.7, rtol=1e-14)
    np.testing.assert_allclose(
        clipped / 0.7, steps / np.linalg.norm(steps, axis=1, keepdims=True), rtol=1e-13
    )
    assert np.array_equal(clip_steps(clipped, 0.7), clipped)


def test_norms_just_above_and_at_the_radius() -> None:
    above = np.array([[0.6, math.nextafter(0.8, 1.0)]])
    radius = math.sqrt(0.6**2 + 0.8**2)
    assert (exact_square(above[0]) > Fraction(radius) ** 2) == (
        not np.array_equal(clip_steps(above, radius), above)
    )
    assert clip_steps([[3.0, 4.0]], 5.0).tolist() == [[3.0, 4.0]]
    assert exact_square(clip_steps([[3.0, math.nextafter(4.0, 5.0)]], 5.0)[0]) <= 25


def test_clipping_does_not_depend_on_the_order_of_features() -> None:
    generator = np.random.default_rng(1)
    steps = generator.normal(size=(100, 64)) * 10.0 ** generator.integers(
        -8, 8, (100, 64)
    )
    order = generator.permutation(64)
    assert np.array_equal(
        clip_steps(steps, 0.5)[:, order], clip_steps(steps[:, order], 0.5)
    )


def test_relative_update_divides_by_the_noisy_count_whatever_its_sign() -> None:
    centroids = np.array([[0.5, 0.0], [0.25, -0.5], [0.0, 0.0]])
    sums = np.array([[1.0, -1.0], [1.0, 0.0], [2.0, 2.0]])
    updated = relative_update(
        centroids, sums, [4.0, -8.0, 0.0], clip_radius=None,
        post_processing=PostProcessing.FOLD,
    )  # fmt: skip
    assert updated.tolist() == [[0.75, -0.25], [0.125, -0.5], [0.0, 0.0]]


def test_count_too_small_for_a_finite_step_moves_nothing() -> None:
    for post_processing in PostProcessing:
        arguments = ([[0.5, 0.5]], [[1e10, 0.0]], [1e-310])
        relative = relative_update(
            *arguments, clip_radius=1.0, post_processing=post_processing
        )
        assert relative.tolist() == [[0.5, 0.5]]
        assert absolute_update(
            *arguments, post_processing=post_processing
        ).tolist() == [[0.5, 0.5]]
        nothing = ([[0.5, 0.5]], [[0.0, 0.0]], [0.0])
        assert relative_update(
            *nothing, clip_radius=1.0, post_processing=post_processing
        ).tolist() == [[0.5, 0.5]]


def test_step_is_clipped_before_folding() -> None:
    updated = relative_update(
        [[0.75]], [[100.0]], [1.0], clip_radius=0.5, post_processing=PostProcessing.FOLD
    )
    assert updated.tolist() == [[0.75]]
    updated = relative_update(
        [[0.75]], [[100.0]], [1.0], clip_radius=0.5,
        post_processing=PostProcessing.TRUNCATE,
    )  # fmt: skip
    assert updated.tolist() == [[1.0]]
    updated = relative_update(
        [[0.75]], [[100.0]], [1.0], clip_radius=0.5, post_processing=PostProcessing.NONE
    )
    assert updated.tolist() == [[1.25]]


def test_absolute_update() -> None:
    updated = absolute_update(
        [[0.5], [0.25], [0.0]],
        [[3.0], [1.0], [9.0]],
        [4.0, 0.0, 8.0],
        post_processing=PostProcessing.FOLD,
    )
    assert updated.tolist() == [[0.75], [0.25], [0.875]]


def test_saturation_without_post_processing() -> None:
    arguments = ([[0.0, 0.0]], [[2.0**40, -(2.0**40)]], [2.0**-10])
    expected = [[16.0, -16.0]]
    assert (
        absolute_update(*arguments, post_processing=PostProcessing.NONE).tolist()
        == expected
    )
    assert (
        relative_update(
            *arguments, clip_radius=None, post_processing=PostProcessing.NONE
        ).tolist()
        == expected
    )


@settings(max_examples=100)
@given(
    hnp.arrays(np.float64, (3, 2), elements=st.floats(-1.0, 1.0)),
    hnp.arrays(np.float64, (3, 2), elements=st.floats(-1e6, 1e6)),
    hnp.arrays(np.float64, 3, elements=st.floats(-1e4, 1e4)),
    st.sampled_from(PostProcessing),
)
def test_updates_end_on_the_grid(
    centroids: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    post_processing: PostProcessing,
) -> None:
    for updated in (
        relative_update(
            centroids, sums, counts, clip_radius=0.4, post_processing=post_processing
        ),
        absolute_update(centroids, sums, counts, post_processing=post_processing),
    ):
        assert np.array_equal(updated * 65536, np.rint(updated * 65536))
        if post_processing is not PostProcessing.NONE:
            assert np.abs(updated).max() <= 1.0


def test_arguments_are_not_changed() -> None:
    centroids, sums, counts = np.array([[0.5]]), np.array([[30.0]]), np.array([2.0])
    relative_update(
        centroids, sums, counts, clip_radius=0.1, post_processing=PostProcessing.FOLD
    )
    clip_steps(sums, 0.1)
    assert (centroids.item(), sums.item(), counts.item()) == (0.5, 30.0, 2.0)


def test_each_step_may_have_a_radius_of_its_own() -> None:
    steps, radii = (
        [[3.0, 4.0], [3.0, 4.0], [0.3, 0.4], [0.0, 1.0]],
        np.array([5.0, 1.0, 0.25, 0.0]),
    )
    found = clip_steps(steps, radii)
    assert found == pytest.approx(
        np.array([[3.0, 4.0], [0.6, 0.8], [0.15, 0.2], [0.0, 0.0]])
    )
    alone = [
        clip_steps([step], radius)[0]
        for step, radius in zip(steps, radii.tolist(), strict=True)
    ]
    assert np.array_equal(found, alone)


def test_steps_so_short_that_squares_vanish_are_clipped_as_well() -> None:
    found = clip_steps(
        [[3e-200, 4e-200], [3e200, 4e200], [0.0, 0.0], [0.3, 0.4]], 1e-200
    )
    assert found.tolist() == [
        pytest.approx(row, rel=1e-12, abs=0.0) for row in ([6e-201, 8e-201],) * 2
    ] + [
        [0.0, 0.0],
        pytest.approx([6e-201, 8e-201], rel=1e-12, abs=0.0),
    ]
    assert clip_steps([[3e200, 4e200]], 1e200)[0] == pytest.approx(
        [6e199, 8e199], rel=1e-12
    )
    # Radii that are infinite beside a step leave it as it is.
    assert clip_steps([[2.0**-1000, -(2.0**-1001)]], 1e300).tolist() == [
        [2.0**-1000, -(2.0**-1001)]
    ]
    # Radii below 2^-1000 leave nothing.
    assert clip_steps([[3.0, 4.0]], 2.0**-1000).tolist() == [[0.0, 0.0]]
    assert clip_steps([[3.0, 4.0]], 2.0**-999)[0] == pytest.approx(
        [0.6 * 2.0**-999, 0.8 * 2.0**-999]
    )


@pytest.mark.parametrize(
    ("count", "moved"),
    [(-2.0, 0.0), (-1.0, -0.25), (0.0, 0.25), (1.0, 0.75), (2.0, 0.5)],
)
def test_a_count_of_either_sign_divides_and_a_count_of_zero_moves_no_centre(
    count: float, moved: float
) -> None:
    """A centre at 0.25 and a sum of 0.5; the plain quotients are 0.25 less."""
    how = PostProcessing.NONE
    found = relative_update(
        [[0.25]], [[0.5]], [count], clip_radius=None, post_processing=how
    )
    assert found.tolist() == [[moved]]
    found = absolute_update([[0.25]], [[0.5]], [count], post_processing=how)
    assert found.tolist() == [[moved - 0.25 if count else 0.25]]
