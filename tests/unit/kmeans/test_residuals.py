"""Clipped residuals: toys by hand, exact norms and sums, and radii that nobody should
send.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.limits import SetLimits
from support.on_the_grid import on_grid

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.residual_sums import residual_sums, unit_residuals
from flwr_dpkmeans.kmeans.residuals.radii import RadiusRule, next_radii

Floats = NDArray[np.float64]
GRID = 2.0**16
STEP = 1.0 / GRID


def labels_of(*values: int) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def squares_in_steps(rows: Floats) -> list[int]:
    """Squared norms of rows on the grid, in squared steps, exactly."""
    steps = np.rint(rows * GRID).astype(np.int64)
    assert np.array_equal(steps / GRID, rows)
    return [int(value) for value in (steps * steps).sum(axis=1)]


# -- unit residuals --------------------------------------------------------------------


def test_residuals_are_parts_of_the_radius_and_longer_ones_have_length_one() -> None:
    found = unit_residuals(
        np.array([[0.25, 0.0], [0.0, -0.5], [3.0, 4.0], [-30.0, 40.0], [0.0, 0.0]]), 0.5
    )
    assert found == pytest.approx(
        np.array([[0.5, 0.0], [0.0, -1.0], [0.6, 0.8], [-0.6, 0.8], [0.0, 0.0]]),
        abs=2 * STEP,
    )
    # Toward zero, never beyond what is due.
    assert (
        np.abs(found)
        <= np.array([[0.5, 0.0], [0.0, 1.0], [0.6, 0.8], [0.6, 0.8], [0.0, 0.0]])
    ).all()


def test_what_is_rounded_to_zero_is_a_positive_zero() -> None:
    found = unit_residuals(np.array([[-STEP / 4, 0.0, -0.0]]), 1.0)
    assert (found.tolist(), np.signbit(found).any()) == ([[0.0] * 3], False)


RADII = [
    -1.0, 0.0, -0.0, 1e-300, 2.0**-17, 2.0**-16, 0.3, 1.0, 1e9, 1e300, math.inf,
    math.nan,
]  # fmt: skip


@pytest.mark.parametrize(
    ("d", "radius"),
    [*zip(itertools.cycle([1, 2, 8, 100]), RADII), (2, 0.3), (100, 0.3)],
)
def test_no_residual_is_longer_than_one_whatever_the_radius_is(
    d: int, radius: float
) -> None:
    generator = np.random.default_rng(d)
    rows = [
        np.ones(d), -2.0 * np.ones(d), np.zeros(d), np.full(d, STEP), np.eye(d)[0],
        np.full(d, 1e200),
    ]  # fmt: skip
    direction = generator.normal(size=d)
    if 0.0 < radius < 10.0:
        rows += [
            direction / np.linalg.norm(direction) * length
            for length in (radius, radius * (1 + 1e-15), radius - STEP)
        ]
    rows += list(on_grid(generator.uniform(-2.0, 2.0, (20, d))))
    with np.errstate(over="ignore"):
        found = unit_residuals(np.array(rows), radius)
    assert np.isfinite(found).all()
    assert max(squares_in_steps(found)) <= 2**32


def test_a_residual_of_exactly_the_radius_stays_below_one() -> None:
    """3, 4, 5: its exact length is 1, and no rounding may make it more."""
    for radius in (1.25, math.nextafter(1.25, 0.0), math.nextafter(1.25, 2.0)):
        (square,) = squares_in_steps(unit_residuals(np.array([[0.75, 1.0]]), radius))
        assert 0.9999 * 2**32 < square <= 2**32


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 30),
    n=st.integers(1, 30),
    radius=st.floats(2.0**-14, 4.0),
)
def test_one_rows_residual_does_not_depend_on_the_others_or_the_layout(
    seed: int, d: int, n: int, radius: float
) -> None:
    generator = np.random.default_rng(seed)
    rows = on_grid(generator.uniform(-2.0, 2.0, (n, d)))
    together = unit_residuals(rows, radius)
    assert np.array_equal(together, unit_residuals(np.asfortranarray(rows), radius))
    for row, own in zip(rows, together, strict=True):
        assert np.array_equal(unit_residuals(row[None], radius)[0], own)


# -- sums ------------------------------------------------------------------------------


def test_sums_counts_and_squares_by_hand() -> None:
    points = np.array([[0.5, 0.0], [0.25, 0.0], [0.0, 1.0], [1.0, 1.0]])
    centers = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    found = residual_sums(points, labels_of(0, 0, 0, 1), centers, radius=0.5, n_rows=4)
    # In radii: (1, 0), (0.5, 0), (0, 2) -> (0, 1); (0, 2) -> (0, 1).
    assert found.sums == pytest.approx(
        np.array([[1.5, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), abs=4 * STEP
    )
    assert found.counts.tolist() == [3.0, 1.0, 0.0, 0.0]
    assert found.squares == pytest.approx(
        np.array([1.0 + 0.25 + 1.0, 1.0, 0.0, 0.0]), abs=8 * STEP
    )
    # In radii of their own: (0.5, 0), (0.25, 0), (0, 1); (0, 4) -> (0, 1).
    found = residual_sums(
        points, labels_of(0, 0, 0, 1), centers, radius=np.array([1.0, 0.25, 0.5]),
        n_rows=4,
    )  # fmt: skip
    assert found.sums == pytest.approx(
        np.array([[0.75, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), abs=4 * STEP
    )
    assert found.squares == pytest.approx(
        np.array([0.25 + 0.0625 + 1.0, 1.0, 0.0, 0.0]), abs=8 * STEP
    )


def test_dropping_leaves_far_rows_out_of_all_three() -> None:
    points, centers = np.array([[0.5], [0.25], [1.0], [-0.5 - STEP]]), np.zeros((1, 1))
    found = residual_sums(
        points, labels_of(0, 0, 0, 0), centers, radius=0.5, n_rows=1, drop=True
    )
    assert found.counts.tolist() == [2.0]
    assert found.sums == pytest.approx(np.array([[1.5]]), abs=4 * STEP)
    assert found.squares == pytest.approx(np.array([1.25]), abs=4 * STEP)


@pytest.mark.parametrize("d", [1, 3, 9])
def test_blocks_do_not_matter(set_limits: SetLimits, d: int) -> None:
    generator = np.random.default_rng(d)
    points, centers = (
        on_grid(generator.uniform(-1, 1, (500, d))),
        on_grid(generator.uniform(-1, 1, (7, d))),
    )
    labels = generator.integers(0, 7, 500).astype(np.int32)
    whole = residual_sums(points, labels, centers, 0.4, 9)
    set_limits(block_bytes=8 * 16)
    parts = residual_sums(points, labels, centers, 0.4, 9)
    for name in ("sums", "counts", "squares"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    # The rows one by one, in integers.
    units = np.rint(unit_residuals(points - centers[labels], 0.4) * GRID).astype(
        np.int64
    )
    expected = np.zeros((9, d), dtype=np.int64)
    np.add.at(expected, labels, units)
    assert np.array_equal(expected / GRID, whole.sums)
    assert np.array_equal(np.bincount(labels, minlength=9), whole.counts)
    # Each row's square is rounded toward zero by itself.
    each = np.zeros(9, dtype=np.int64)
    np.add.at(each, labels, (units * units).sum(axis=1) >> 16)
    assert np.array_equal(each / GRID, whole.squares)


def test_a_million_rows_add_up_exactly() -> None:
    rows = np.array([[1.0, 1.0 - STEP], [-0.3, 0.7]])
    points = on_grid(np.repeat(rows, 500_000, axis=0))
    found = residual_sums(
        points, np.zeros(len(points), dtype=np.int32), np.zeros((1, 2)), 0.9, 1
    )
    units = np.rint(unit_residuals(on_grid(rows), 0.9) * GRID).astype(np.int64)
    assert (found.sums[0] * GRID).tolist() == (units.sum(axis=0) * 500_000).tolist()
    assert found.counts.tolist() == [1e6]
    assert (
        float(found.squares[0] * GRID)
        == int(((units * units).sum(axis=1) >> 16).sum()) * 500_000
    )


def test_no_rows_give_zeros() -> None:
    found = residual_sums(np.empty((0, 3)), labels_of(), np.zeros((2, 3)), 0.5, 4)
    assert found.sums.shape == (4, 3)
    assert not found.sums.any()
    assert found.counts.tolist() == [0.0] * 4
    assert found.squares.tolist() == [0.0] * 4


def test_arguments_stay_as_they_are() -> None:
    points, labels, centers = np.array([[0.5]]), labels_of(0), np.array([[0.25]])
    residual_sums(points, labels, centers, 0.1, 2)
    assert (points.tolist(), labels.tolist(), centers.tolist()) == (
        [[0.5]],
        [0],
        [[0.25]],
    )


@pytest.mark.parametrize("n_rows", [0, 1, 5])
@pytest.mark.parametrize("n_centers", [0, 3])
def test_a_wrong_number_of_centers_is_refused_whatever_the_rows_are(
    n_rows: int, n_centers: int
) -> None:
    labels = np.zeros(n_rows, dtype=np.int32)
    with pytest.raises(
        DataError, match=f"there are {n_centers} centers, but there must be from 1 to 2"
    ):
        residual_sums(np.zeros((n_rows, 1)), labels, np.zeros((n_centers, 1)), 1.0, 2)


def test_a_label_without_a_center_is_no_error_that_would_tell_of_the_row() -> None:
    found = residual_sums(np.zeros((2, 1)), labels_of(0, 7), np.zeros((2, 1)), 1.0, 3)
    assert found.counts.tolist() == [1.0, 1.0, 0.0]


# -- the next radii --------------------------------------------------------------------

RULE = RadiusRule(width=1.3, prior_variance=0.06, floor=0.05)


def next_one(
    radius: float, mean_square: float, noise: float, explained: float = 0.0
) -> float:
    """That of all clusters, from a mean over 100 rows."""
    squares, counts = np.array([100.0 * mean_square]), np.array([100.0])
    options: dict[str, Any] = {
        "rule": RULE,
        "noise": 100.0 * noise,
        "counts_noise": 0.0,
    }
    return float(
        next_radii(
            np.array([radius]), squares, counts, np.array([explained]), **options
        )[0]
    )


def test_the_next_radius_of_all_by_hand() -> None:
    # Without noise: 1.3 root mean squares.
    assert next_one(2.0, 0.25, 0.0) == pytest.approx(2.0 * 1.3 * 0.5)
    # Noise as large as the prior is wide: the mean of 0.25 and 1 / 1.3^2.
    noise = math.sqrt(0.06)
    assert next_one(2.0, 0.25, noise) == pytest.approx(
        2.6 * math.sqrt((0.25 + 1 / 1.69) / 2)
    )
    # Noise that drowns everything: the radius is right as it is.
    assert next_one(2.0, 0.25, 1e9) == pytest.approx(2.0)
    # Steps took 0.4 off the mean square 0.25 * 4, and at most nine tenths.
    assert next_one(2.0, 0.25, 0.0, 0.4) == pytest.approx(1.3 * math.sqrt(0.6))
    assert next_one(2.0, 0.25, 0.0, 7.0) == pytest.approx(1.3 * math.sqrt(0.1))


@pytest.mark.parametrize("mean_square", [-1e30, -1.0, 0.0, 0.3, 1.0, 1e30])
@pytest.mark.parametrize("noise", [0.0, 1e-12, 0.1, 1e12])
def test_the_next_radius_of_all_shrinks_within_its_limits(
    mean_square: float, noise: float
) -> None:
    assert 0.7 * 0.05 * (1 - 1e-12) <= next_one(0.7, mean_square, noise) <= 0.7


def naive_radii(
    radii: Any, squares: Any, counts: Any, explained: Any, noise: float,
    counts_noise: float,
) -> list[float]:  # fmt: skip
    """One cluster after another, as the page has it."""
    k, n, h = len(radii), sum(counts), RULE.width
    each = []
    for radius, square, count, step in zip(
        radii, squares, counts, explained, strict=True
    ):
        mean = square / count
        error = (
            math.sqrt(noise**2 + (min(max(mean, 0.0), 1.0) * counts_noise) ** 2) / count
        )
        left = mean - min(step / radius**2, 0.9 * max(mean, 0.0))
        each.append((mean, left * radius**2, error * radius**2))
    usual = sum(c * r**2 for c, r in zip(counts, radii, strict=True)) / n
    whole = max(
        0.0, sum(c * left for c, (_, left, _) in zip(counts, each, strict=True)) / n
    )
    own, prior = sum((noise * r**2 / n) ** 2 for r in radii), 0.06 * usual**2
    whole = (prior * whole + own * usual / h**2) / (prior + own)
    scatter = max(
        0.0, sum((left - whole) ** 2 - error**2 for _, left, error in each) / k
    )
    found = []
    for radius, (mean, left, error) in zip(radii, each, strict=True):
        estimate = (scatter * max(left, whole) + error**2 * whole) / (
            scatter + error**2
        )
        told = scatter > error**2
        factor = 4.0 if told and mean > 0.75 else h * math.sqrt(estimate) / radius
        found.append(radius * max(0.05, min(factor, 4.0 if told else 1.0)))
    return found


RADII_OF = np.array([0.5, 0.125, 0.25, 0.25, 0.375])
SUMS_OF = np.array([300.0, 180.0, 85.0, -3.0, 20.0])
ROWS_OF = np.array([2000.0, 200.0, 100.0, 400.0, 200.0])
TAKEN_OFF = np.array([0.01, 0.001, 0.0, 0.0, 0.002])


@pytest.mark.parametrize(
    "noise", [1.0, 3.0, 8.0, 15.0, 20.0, 30.0, 45.0, 60.0, 100.0, 1e4]
)
@pytest.mark.parametrize("counts_noise", [0.0, 15.0])
def test_next_radii_are_those_of_a_loop_over_clusters(
    noise: float, counts_noise: float
) -> None:
    options: dict[str, Any] = {
        "rule": RULE,
        "noise": noise,
        "counts_noise": counts_noise,
    }
    found = next_radii(RADII_OF, SUMS_OF, ROWS_OF, TAKEN_OFF, **options)
    expected = naive_radii(RADII_OF, SUMS_OF, ROWS_OF, TAKEN_OFF, noise, counts_noise)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_radius_grows_with_its_own_cluster_where_that_is_told_from_the_others() -> (
    None
):
    """A tight cluster, a wide one that is mostly clipped, one of hardly any rows."""
    squares, counts = np.array([40.0, 90.0, 2.0]), np.array([4000.0, 100.0, 4.0])
    options: dict[str, Any] = {"rule": RULE, "noise": 2.0, "counts_noise": 1.0}
    found = next_radii(np.full(3, 0.25), squares, counts, np.zeros(3), **options)
    # That of all, four times as long, and nearly so: noise of half a squared radius
    # hides most of the last one's mean.
    common = 0.25 * 1.3 * math.sqrt(132.0 / 4104.0)
    assert found[:2] == pytest.approx([common, 1.0], rel=1e-3)
    assert common < found[2] < 0.25
    # Noise that hides which is which: one radius for all, and none grows.
    found = next_radii(
        np.full(3, 0.25), squares, counts, np.zeros(3), **options | {"noise": 1e3}
    )
    assert np.ptp(found) == pytest.approx(0.0, abs=1e-12)
    assert found[0] <= 0.25
    # Clusters of one size, by hand: means 0.25 and 0.75 in radii, noise 0.1; scatter
    # (0.25^2 - 0.01) around 0.5.
    options |= {"noise": 10.0, "counts_noise": 0.0}
    found = next_radii(
        np.ones(2), np.array([25.0, 75.0]), np.full(2, 100.0), np.zeros(2), **options
    )
    error = 0.01 / 2.0
    whole = (0.5 * 0.06 + error / 1.69) / (0.06 + error)
    scatter = ((0.25 - whole) ** 2 + (0.75 - whole) ** 2) / 2.0 - 0.01
    own = whole + scatter / (scatter + 0.01) * (0.75 - whole)
    assert found == pytest.approx(1.3 * np.sqrt([whole, own]))


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6, 2.0**47])
def test_no_release_makes_a_radius_that_is_none(size: float) -> None:
    generator = np.random.default_rng(0)
    for noise, sign in itertools.product((1e-3, 10.0, 1e9), (-1.0, 0.0, 1.0)):
        squares, counts = (
            size * (generator.standard_normal(6) + sign),
            1.0 + size * generator.random(6),
        )
        explained = generator.random(6) * 10.0 ** generator.integers(-5, 3)
        radii = generator.uniform(2.0**-15, 3.0, 6)
        with np.errstate(all="raise", under="ignore"):
            found = next_radii(
                radii, squares, counts, explained, rule=RULE, noise=noise,
                counts_noise=noise,
            )  # fmt: skip
        assert (found >= 0.05 * radii * (1 - 1e-12)).all()
        assert (found <= 4.0 * radii).all()
