"""Clipping and projection: bounds hold exactly, and no record's image depends on other
records.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from flwr_dpkmeans.baselines.cover_points import (
    clip_to_ball,
    default_components,
    project_to_box,
)


@pytest.mark.parametrize(
    "radius", [2.0**-10, 0.1, 1.0, math.nextafter(math.sqrt(7), math.inf)]
)
def test_no_clipped_point_is_longer_than_the_radius(radius: float) -> None:
    generator = np.random.default_rng(0)
    points = np.concatenate(
        [
            generator.normal(0.0, 3.0, (200, 7)),
            np.ones((1, 7)),
            -np.ones((1, 7)),
            np.zeros((1, 7)),
        ]
    )
    clipped = clip_to_ball(points, radius)
    limit = Fraction(radius) ** 2
    longest = max(sum(Fraction(value) ** 2 for value in row) for row in clipped)
    assert longest <= limit
    # It is not shortened more than the grid demands.
    assert math.sqrt(longest) >= min(radius, math.sqrt(7)) - math.sqrt(7) * 2.0**-16
    assert np.array_equal(np.rint(clipped * 2.0**16), clipped * 2.0**16)
    assert np.abs(clipped).max() <= 1.0


def test_a_root_that_is_rounded_down_to_the_radius_keeps_no_point_beyond_it() -> None:
    """Of rows by the last digit too long, one in two has a root that hides it."""
    generator = np.random.default_rng(3)
    rows = np.trunc(generator.uniform(-1.0, 1.0, (200, 3)) * 2.0**16) / 2.0**16
    beyond = 0
    for row in rows:
        square = sum(Fraction(value) ** 2 for value in row)
        radius = math.sqrt(square)
        beyond += square > Fraction(radius) ** 2
        assert (
            sum(Fraction(value) ** 2 for value in clip_to_ball(row[None], radius)[0])
            <= Fraction(radius) ** 2
        )
    assert beyond > 50


def test_points_inside_are_only_rounded_toward_zero() -> None:
    points = np.array([[0.25, -0.5], [0.3, -0.3]])
    clipped = clip_to_ball(points, 1.0)
    assert clipped[0].tolist() == [0.25, -0.5]
    assert np.all(np.abs(clipped[1]) < 0.3)
    assert np.all(np.abs(clipped[1]) > 0.3 - 2.0**-16)
    assert points[1].tolist() == [0.3, -0.3]


def test_a_record_has_the_same_image_whoever_is_beside_it() -> None:
    generator = np.random.default_rng(1)
    points = generator.uniform(-1.2, 1.2, (501, 93))
    radius = math.sqrt(93)

    def image(rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return project_to_box(
            clip_to_ball(rows, radius), radius, 5, np.random.default_rng(2)
        )

    together = image(points)
    for i in (0, 1, 250, 500):
        assert np.array_equal(together[i], image(points[i : i + 1])[0])
    assert np.array_equal(
        np.delete(together, 17, axis=0), image(np.delete(points, 17, axis=0))
    )


def test_sums_of_products_are_exact_in_any_order() -> None:
    generator = np.random.default_rng(3)
    points = clip_to_ball(generator.uniform(-1.0, 1.0, (40, 64)), 8.0)
    order = generator.permutation(64)
    directions = np.linalg.qr(np.random.default_rng(4).standard_normal((64, 3)))[0]
    matrix = np.rint(directions * 2.0**20) / 2.0**20
    assert np.array_equal(points @ matrix, points[:, order] @ matrix[order])
    expected = np.rint(np.clip(points @ matrix / 3.0, -1.0, 1.0) * 2.0**16) / 2.0**16
    assert np.array_equal(
        project_to_box(points, 8.0, 3, np.random.default_rng(4)), expected
    )


def test_the_box_holds_nearly_all_points_and_distances_survive() -> None:
    generator = np.random.default_rng(5)
    points = clip_to_ball(
        np.sign(generator.standard_normal((2000, 400))), 20.0
    )  # as far out as points can be
    projected = project_to_box(points, 20.0, 4, generator)
    assert np.mean(np.abs(projected).max(axis=1) == 1.0) < 0.03
    # A unit of the box is 3 * 20 / sqrt(400) = 3 units of the points' space, seen along
    # 4 of 400 directions.
    assert np.mean((projected**2).sum(axis=1)) == pytest.approx(
        20.0**2 * 4 / 400 / 9.0, rel=0.1
    )


def test_few_features_are_not_projected() -> None:
    points = np.array([[0.25, -0.125], [0.5, 0.0]])
    assert project_to_box(points, 0.5, 2, np.random.default_rng(0)).tolist() == [
        [0.5, -0.25],
        [1.0, 0.0],
    ]
    assert (
        project_to_box(points, math.sqrt(2), 2, np.random.default_rng(0)).tolist()
        == points.tolist()
    )


def test_the_number_of_dimensions_is_half_the_logarithm() -> None:
    assert [default_components(n, 100) for n in (1, 8, 150, 60_000, 10**9)] == [
        1, 1, 3, 6, 8,
    ]  # fmt: skip
    assert default_components(60_000, 3) == 3
