"""Ranges from noisy histograms: bins, edges and thresholds by hand, and what one row
can change.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from flwr_dpkmeans.kmeans.ranges.coarse import find_coarse_ranges
from flwr_dpkmeans.kmeans.ranges.fine import MOST_OUTSIDE, find_ranges
from flwr_dpkmeans.kmeans.ranges.histograms import (
    N_BINS,
    magnitude_histogram,
    one_vote,
    range_histogram,
)
from flwr_dpkmeans.kmeans.ranges.magnitudes import (
    LEVELS,
    N_MAGNITUDES,
    WIDEST_DOMAIN,
    Ranges,
    magnitude_edges,
)
from flwr_dpkmeans.kmeans.ranges.thresholds import COARSE_FAILURE, noise_threshold
from flwr_dpkmeans.kmeans.ranges.windows import (
    BULK_DEVIATIONS,
    TAIL_DEVIATIONS,
    bulk_and_tails,
    outermost,
)

WIDE = ((-WIDEST_DOMAIN,), (WIDEST_DOMAIN,))
GRID = 2**16


def words(*counts: float) -> NDArray[np.int64]:
    return np.array([round(count * GRID) for count in counts], dtype=np.int64)


# -- bins ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "edge"),
    [
        (1.0, 1.0), (1.999, 1.0), (2.0, 2.0), (3.0, 2.0), (0.5, 0.5), (100.0, 64.0),
        (2.0**39, 2.0**39),
    ],
)  # fmt: skip
def test_a_value_lies_between_two_powers_of_two(value: float, edge: float) -> None:
    edges = magnitude_edges(-WIDEST_DOMAIN, WIDEST_DOMAIN)
    (place,) = np.flatnonzero(magnitude_histogram(np.array([[value]]), WIDE)[0])
    assert edges[place] == edge
    assert edges[place + 1] == 2.0 * edge
    (mirrored,) = np.flatnonzero(magnitude_histogram(np.array([[-value]]), WIDE)[0])
    assert mirrored == N_MAGNITUDES - 1 - place


def test_zero_and_tiny_values_share_the_middle_bin() -> None:
    edges = magnitude_edges(-WIDEST_DOMAIN, WIDEST_DOMAIN)
    assert (edges[LEVELS], edges[LEVELS + 1]) == (-(2.0**-20), 2.0**-20)
    counts = magnitude_histogram(
        np.array([[0.0], [1e-7], [-1e-7], [-0.0], [5e-324]]), WIDE
    )
    assert counts[0, LEVELS] == 5.0


@pytest.mark.parametrize(
    "domain",
    [
        (-4.0, 4.0), (0.0, 8.0), (-8.0, -4.0), (-8.0, 4.0), (5.0, 9.0), (3.0, 4.0),
        (-1e9, 1.0), (7.0, 7.5), (-1.0, 0.0),
    ],
)  # fmt: skip
def test_every_value_is_in_one_bin_that_meets_the_domain(
    domain: tuple[float, float],
) -> None:
    low, high = domain
    values = np.array([low, high, (low + high) / 2, low - 1e12, high + 1e12, 0.0])[
        :, None
    ]
    for row in range(len(values)):
        counts = magnitude_histogram(values[row : row + 1], ((low,), (high,)))
        assert counts.sum() == 1.0
        (place,) = np.flatnonzero(counts[0])
        edges = magnitude_edges(low, high)
        assert max(edges[place], low) < min(edges[place + 1], high)


def test_equal_bins_by_hand() -> None:
    coarse = ((0.0,), (float(N_BINS),))
    values = np.array([0.0, 0.5, 1.0, N_BINS - 1.0, N_BINS, -0.1, N_BINS + 0.1])[
        :, None
    ]
    counts = range_histogram(values, coarse)[0]
    assert counts[[0, 1, N_BINS - 1]].tolist() == [
        3.0,
        1.0,
        3.0,
    ]  # also what lies beyond
    assert counts.sum() == 7.0


# -- what one row, or one client, can change -------------------------------------------


def tables() -> list[NDArray[np.float64]]:
    generator = np.random.default_rng(3)
    rows = np.concatenate(
        [
            generator.normal(0, 10.0 ** generator.integers(-8, 9, (40, 3))),
            np.zeros((2, 3)),
        ]
    )
    rows[0] = [2.0**50, -(2.0**50), 1e-300]
    return [rows[:size] for size in (0, 1, 5, 42)]


COARSE = ((-1.0, 0.0, -1e9), (1.0, 1e-3, 1e9))
DOMAIN = ((-WIDEST_DOMAIN, 0.0, -3.0), (WIDEST_DOMAIN, 8.0, 3.0))


def both(points: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return [magnitude_histogram(points, DOMAIN), range_histogram(points, COARSE)]


def test_one_row_moves_a_histogram_by_the_root_of_the_number_of_columns_at_most() -> (
    None
):
    largest = 0.0
    for table in tables():
        for row in range(len(table)):
            less = np.delete(table, row, axis=0)
            for before, after in zip(both(table), both(less), strict=True):
                largest = max(largest, float(np.linalg.norm(before - after)))
    assert largest == math.sqrt(3.0)  # attained, and never more


def test_one_client_moves_the_sum_of_votes_by_no_more_than_a_row() -> None:
    """At client level a neighbour has none of the client's rows."""
    for table, copies in itertools.product(tables(), (1, 7, 1000)):
        for histogram in both(np.repeat(table, copies, axis=0)):
            vote = one_vote(histogram)
            assert math.fsum((vote.ravel() * GRID) ** 2) <= 3.0 * GRID**2
            assert np.array_equal(vote * GRID, np.rint(vote * GRID))
            assert np.array_equal(
                one_vote(np.zeros_like(histogram)), np.zeros_like(histogram)
            )


# -- what stands out -------------------------------------------------------------------


def test_single_bins_by_hand() -> None:
    assert outermost(words(0, 6, 0, 0, 6, 0, 0, 0), 5.0) == (1, 4)
    assert outermost(words(0, 4.9, 0, 0, 4.9, 0, 0, 0), 5.0) is None
    # A full bin does not draw its empty neighbours in, although they exceed the
    # threshold with it.
    assert outermost(words(0, 0, 0, 0, 900, 0, 0, 0), 5.0) == (4, 4)


def test_what_is_just_as_high_as_the_noise_does_not_stand_out() -> None:
    assert outermost(words(0, 5, 0, 0, 0, 0, 0, 0), 5.0) is None
    assert outermost(words(0, 9, 0, 5, 0, 0, 0, 0), 5.0) == (1, 1)
    assert bulk_and_tails(words(0, 0, 0, BULK_DEVIATIONS, 0, 0, 0, 0), 1.0) is None
    assert bulk_and_tails(
        words(0, 0, 0, BULK_DEVIATIONS + 2.0**-16, 0, 0, 0, 0), 1.0
    ) == (3, 3)


def test_neighbours_stand_out_together() -> None:
    assert outermost(words(0, 4, 4, 0, 0, 0, 0, 0), 5.0) == (1, 2)  # 8 > 5 sqrt(2)
    assert outermost(words(0, 3.5, 3.5, 0, 0, 0, 0, 0), 5.0) is None  # 7 < 5 sqrt(2)
    assert outermost(words(9, 0, 0, 4, 4, 0, 0, 0), 5.0) == (
        0,
        4,
    )  # a tail beside what stands out
    assert outermost(words(0, 0, 0, 5.1, 3, 0, 0, 0), 5.0) == (
        3,
        3,
    )  # narrow first, also where two are more
    assert outermost(words(6, 0, 7, 0, 9, 0, 8, 0, 7), 5.0) == (
        0,
        8,
    )  # the farthest of several
    assert outermost(words(0, 0, 7, 9, 8, 0, 0, 0, 0), 5.0) == (2, 4)  # right beside


def test_the_bulk_is_the_likeliest_window() -> None:
    assert bulk_and_tails(words(0, 0, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0), 0.5) == (2, 5)
    weak = BULK_DEVIATIONS / 2.0 - 0.01  # four bins of it stand out by less than needed
    assert bulk_and_tails(words(0, 0, weak, weak, weak, weak, 0, 0), 1.0) is None
    tail = TAIL_DEVIATIONS + 0.1
    assert bulk_and_tails(words(*([0] * 4), 50, 50, 0, tail, *([0] * 4)), 1.0) == (4, 7)
    assert bulk_and_tails(
        words(*([0] * 4), 50, 50, 0, tail - 0.2, *([0] * 4)), 1.0
    ) == (4, 5)
    assert bulk_and_tails(
        words(*([0] * 4), 50, 50, 0, 0.5 * tail, *([0] * 4)), 0.5
    ) == (4, 7)
    assert bulk_and_tails(
        words(*([0] * 4), 50, 50, 0, 0.5 * tail - 0.1, *([0] * 4)), 0.5
    ) == (4, 5)
    # One bin, or all: 8 / sqrt(8) are 5.66 deviations of a half, and 7 / sqrt(7) only
    # 5.29.
    assert bulk_and_tails(words(0, 0, 0, 50, 0, 0, 0, 0), 0.5) == (3, 3)
    assert bulk_and_tails(words(*([1] * 8)), 0.5) == (0, 7)
    assert bulk_and_tails(words(*([1] * 7), 0), 0.5) is None


def released(
    *values: tuple[float, float], domain: Ranges = WIDE
) -> NDArray[np.float64]:
    """A magnitude histogram with so many rows of each value."""
    return sum(
        count * magnitude_histogram(np.array([[value]]), domain)
        for value, count in values
    )  # type: ignore[return-value]


def test_the_threshold_is_a_union_bound_over_windows() -> None:
    """Windows of 1, 2, 4, 8 and 16 of 121 bins, in each column."""
    n_tests = 3 * (121 + 120 + 118 + 114 + 106)
    assert noise_threshold(3, 2.0) == pytest.approx(
        2.0 * norm.isf(COARSE_FAILURE / n_tests), rel=1e-6
    )


def test_coarse_range_is_twice_as_wide_as_what_was_heard() -> None:
    found = find_coarse_ranges(released((3.0, 500.0), (5.0, 500.0)), WIDE, 10.0)
    assert found.ranges == ((-1.0,), (11.0,))  # 2 to 8
    assert (found.silent, found.zero) == ((), ())
    found = find_coarse_ranges(released((3.0, 500.0), (-20.0, 500.0)), WIDE, 10.0)
    assert found.ranges == ((-50.0,), (22.0,))  # -32 to 4
    domain = ((2.5,), (7.5,))
    found = find_coarse_ranges(
        released((3.0, 500.0), (5.0, 500.0), domain=domain), domain, 10.0
    )
    assert found.ranges == domain


@pytest.mark.parametrize(
    ("mirrored", "lower"), [(290.0, 1.0), (300.0, 1.0), (310.0, -8.0)]
)
def test_a_side_that_is_not_heard_counts_where_it_mirrors_the_other(
    mirrored: float, lower: float
) -> None:
    """Less than 400 are not heard by themselves, but 310 are 0.31 of 1000."""
    noise = 400.0 / noise_threshold(1, 1.0)
    for sign in (1.0, -1.0):
        found = find_coarse_ranges(
            released((3.0 * sign, 1000.0), (-3.0 * sign, mirrored)), WIDE, noise
        )
        expected = sorted((lower * sign, (8.0 if lower < 0.0 else 5.0) * sign))
        assert [found.ranges[0][0], found.ranges[1][0]] == expected


@pytest.mark.parametrize(("count", "heard"), [(72.0, True), (70.0, False)])
def test_both_sides_stand_out_together(count: float, heard: bool) -> None:
    """Neither does alone."""
    noise = 100.0 / noise_threshold(1, 1.0)
    found = find_coarse_ranges(released((3.0, count), (-3.0, count)), WIDE, noise)
    assert found.ranges == (((-8.0,), (8.0,)) if heard else WIDE)
    assert found.silent == (() if heard else (0,))


@pytest.mark.parametrize(("count", "heard"), [(51.0, True), (49.0, False)])
def test_two_octaves_of_both_sides_stand_out_together(
    count: float, heard: bool
) -> None:
    """100 sqrt(2) sqrt(2) = 200 are needed of the four."""
    noise = 100.0 / noise_threshold(1, 1.0)
    values = [(value, count) for value in (3.0, 5.0, -3.0, -5.0)]
    assert find_coarse_ranges(released(*values), WIDE, noise).ranges == (
        ((-16.0,), (16.0,)) if heard else WIDE
    )


@pytest.mark.parametrize(
    ("sides", "low", "high"),
    [((1.0,), -126.5, 383.5), ((1.0, -1.0), -512.0, 512.0)],
    ids=["one side", "both"],
)
@pytest.mark.parametrize(("margin", "heard"), [(1.0, True), (-1.0, False)])
def test_all_rows_must_nearly_stand_out_of_a_windows_noise(
    sides: tuple[float, ...], low: float, high: float, margin: float, heard: bool
) -> None:
    """Of 1 to 2^8 the noise is sqrt(8) times as large."""
    noise = 100.0 / noise_threshold(1, 1.0)
    root = math.sqrt(8.0 * len(sides))
    values = [
        (side * 1.5 * 2.0**power, 104.0 * root / 8.0 / len(sides))
        for power in range(8)
        for side in sides
    ]
    n_examples = round((100.0 - 2.0 * noise) * root + margin)
    assert find_coarse_ranges(released(*values), WIDE, noise).ranges == (
        (low,),
        (high,),
    )
    found = find_coarse_ranges(released(*values), WIDE, noise, n_examples)
    assert (found.ranges, found.silent) == (
        (((low,), (high,)), ()) if heard else (WIDE, (0,))
    )


def test_zeros_alone_give_a_range_next_to_zero() -> None:
    found = find_coarse_ranges(released((0.0, 500.0), (3.0, 20.0)), WIDE, 10.0)
    assert found.ranges == ((-(2.0**-19),), (2.0**-19,))
    assert (found.silent, found.zero) == ((), (0,))
    found = find_coarse_ranges(released((0.0, 500.0), (3.0, 200.0)), WIDE, 10.0)
    assert found.ranges[1][0] == pytest.approx(6.0)  # from zero to 4
    assert found.zero == ()
    least = ((-5e-324,), (5e-324,))  # next to zero there is no smaller number
    assert (
        find_coarse_ranges(released((0.0, 500.0), domain=least), least, 10.0).ranges
        == least
    )


NINE = ((-WIDEST_DOMAIN,) * 9, (WIDEST_DOMAIN,) * 9)


@pytest.mark.parametrize(
    ("value", "count", "zeros", "bounds"),
    [
        # Zeros fit as well, so there are two bins: 3 * 10 * sqrt(2) = 42.4 are needed.
        (3.0, 43.0, 0.0, (1.0, 5.0)),
        (3.0, 42.0, 0.0, None),
        (3.0, 22.0, 21.0, (1.0, 5.0)),
        (3.0, 21.0, 21.0, None),
        # Where zeros were heard they say nothing of the rest.
        (3.0, 31.0, 900.0, (-2.0, 6.0)),
        (3.0, 30.0, 900.0, (-(2.0**-19), 2.0**-19)),
        (3.0, 29.0, 900.0, (-(2.0**-19), 2.0**-19)),
        # Values elsewhere are not cut off.
        (900.0, 45.0, 0.0, None),
    ],
)
def test_a_column_is_looked_for_where_the_others_are(
    value: float, count: float, zeros: float, bounds: tuple[float, float] | None
) -> None:
    counts = np.repeat(released((3.0, 800.0)), 9, axis=0)
    counts[8] = released((value, count), (0.0, zeros))
    found = find_coarse_ranges(counts, NINE, 10.0)
    assert found.ranges[0][:8] == (1.0,) * 8
    assert found.silent == ((8,) if bounds is None else ())
    assert (found.ranges[0][8], found.ranges[1][8]) == pytest.approx(
        bounds or (-WIDEST_DOMAIN, WIDEST_DOMAIN)
    )


@pytest.mark.parametrize(("total", "shared"), [(1.01, True), (0.99, False)])
def test_columns_share_what_stands_out_of_the_noise_of_them_all(
    total: float, shared: bool
) -> None:
    """As one column would, of noise sqrt(9) as large."""
    counts = np.repeat(
        released((3.0, (total * noise_threshold(1, 30.0) - 86.0) / 7.0)), 9, axis=0
    )
    counts[7:] = released((3.0, 43.0))
    assert find_coarse_ranges(counts, NINE, 10.0).silent == tuple(
        range(7 if shared else 9)
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_columns_share_is_joined_to_zeros_from_either_side(sign: float) -> None:
    """From 2 to 8, and zeros: from 0 to 8, and half as far again on both sides."""
    octaves = [(sign * 3.0, 500.0), (sign * 5.0, 500.0)]
    counts = np.repeat(released(*octaves), 9, axis=0)
    counts[8] = released((0.0, 900.0), *((value, 32.0) for value, _ in octaves))
    found = find_coarse_ranges(counts, NINE, 10.0)
    assert sorted(
        (sign * found.ranges[0][8], sign * found.ranges[1][8])
    ) == pytest.approx([-4.0, 12.0], abs=1e-5)


def test_what_columns_share_may_be_four_octaves_and_is_never_zero() -> None:
    """In one octave the last column has 1.6 deviations, in two 2.3, in all 3.2."""
    octaves = (1.0, 2.0, 4.0, 8.0)
    counts = np.repeat(
        released((0.0, 5000.0), *((value, 500.0) for value in octaves)), 9, axis=0
    )
    counts[8] = released(*((value, 16.0) for value in octaves))
    found = find_coarse_ranges(counts, NINE, 10.0)
    assert found.silent == (8,)  # with the bin of zero by 2.9
    counts[8] = released((0.0, 8.0), *((value, 16.0) for value in octaves))
    found = find_coarse_ranges(counts, NINE, 10.0)
    assert (found.ranges[0][8], found.ranges[1][8]) == (-6.5, 23.5)  # 1 to 16


@pytest.mark.parametrize("domain", [(0.0, 8.0), (4.0, 16.0), (-16.0, -4.0)])
def test_noise_outside_of_the_domain_is_not_heard(domain: tuple[float, float]) -> None:
    """Also not from a bin that ends where the domain begins."""
    low, high = domain
    edges = magnitude_edges(low, high)
    counts = np.where((edges[1:] <= low) | (edges[:-1] >= high), 900.0, 0.0)[None]
    assert counts.any()
    for noise in (10.0, 1e-9):
        assert find_coarse_ranges(counts, ((low,), (high,)), noise).silent == (0,)


def test_columns_that_are_not_alike_share_nothing() -> None:
    """The largest's range would drown the others, theirs would cut it off."""
    counts = np.concatenate(
        [released((2.0 ** (3 * column), 40.0)) for column in range(9)]
    )
    found = find_coarse_ranges(counts, NINE, 10.0)
    assert found.silent == tuple(range(9))
    assert found.ranges == NINE


def test_nothing_stands_out_at_all() -> None:
    """Then the fullest bin is noise, and the domain is kept."""
    narrow = ((-50.0,), (900.0,))
    for domain in (WIDE, narrow):
        found = find_coarse_ranges(
            released((30.0, 1.0), (1e-3, 9.0), domain=domain), domain, 10.0
        )
        assert (found.ranges, found.silent, found.zero) == (domain, (0,), ())


def test_noise_alone_is_hardly_ever_taken_for_data() -> None:
    generator = np.random.default_rng(5)
    domain = ((-WIDEST_DOMAIN,) * 4, (WIDEST_DOMAIN,) * 4)
    clear = sum(
        len(
            find_coarse_ranges(
                generator.normal(0.0, 7.0, (4, N_MAGNITUDES)), domain, 7.0
            ).silent
        )
        < 4
        for _ in range(300)
    )
    assert clear <= 3  # 0.3 expected


def test_range_is_widened_by_a_bin() -> None:
    counts = np.zeros((1, N_BINS))
    counts[:, 4:9] = 100.0
    coarse = ((0.0,), (float(N_BINS),))
    assert find_ranges(counts, coarse, 1.0, coarse) == ((3.0,), (10.0,))
    assert find_ranges(np.full((1, N_BINS), 50.0), coarse, 1.0, coarse) == coarse
    # But not beyond the coarse range, nor down to no width.
    for first, bounds in (
        (0, (0.0, 6.0)),
        (1, (0.0, 7.0)),
        (N_BINS - 5, (26.0, 32.0)),
        (N_BINS - 6, (25.0, 32.0)),
    ):
        counts[:] = 0.0
        counts[:, first : first + 5] = 100.0
        assert find_ranges(counts, coarse, 1.0, coarse) == ((bounds[0],), (bounds[1],))
    narrow = ((1.0,), (math.nextafter(1.0, 2.0),))
    counts = np.zeros((1, N_BINS))
    counts[:, 3] = 100.0
    assert find_ranges(counts, narrow, 1.0, narrow) == narrow


@pytest.mark.parametrize(("outside", "kept"), [(0.99, False), (1.01, True)])
def test_a_range_that_rows_may_lie_outside_of_is_not_narrowed(
    outside: float, kept: bool
) -> None:
    """Two bins hold 2000 rows, 30 others noise, and rows too thin to be heard."""
    counts = np.zeros((1, N_BINS))
    counts[:, 10:12] = 1000.0
    counts[:, ~np.isin(np.arange(N_BINS), (10, 11))] = (
        outside * (MOST_OUTSIDE * 2000.0 - 40.0 * math.sqrt(30.0)) / 30.0
    )
    coarse = ((0.0,), (float(N_BINS),))
    assert find_ranges(counts, coarse, 40.0, coarse) == (
        coarse if kept else ((9.0,), (13.0,))
    )


def test_just_as_many_rows_outside_as_are_allowed_are_no_more() -> None:
    """16 bins of 20 rows."""
    counts = np.full((1, N_BINS), 2.5)
    counts[:, 8:24] = 20.0
    coarse = ((0.0,), (float(N_BINS),))
    assert find_ranges(counts, coarse, 10.0, coarse) == ((7.0,), (25.0,))
    counts[:, 0] += 2.0**-16
    assert find_ranges(counts, coarse, 10.0, coarse) == coarse


@pytest.mark.parametrize("deviations", [1.4, 1.6])
def test_a_range_reaches_past_zero_where_values_seem_to_lie_beyond_its_near_end(
    deviations: float,
) -> None:
    """From 8 to 16 was heard, which was widened by half."""
    counts = np.zeros((1, N_BINS))
    counts[:, 10:12] = 300.0
    for sign in (1.0, -1.0):
        coarse, tight = (((4.0,), (20.0,)), ((8.5,), (10.5,)))
        wide, past = ((-100.0,), (100.0,)), ((-8.0,), (20.0,))
        found = counts.copy()
        found[:, 0] = deviations * 10.0
        if sign < 0.0:
            coarse, tight, past = (
                tuple((-end,) for (end,) in pair[::-1])
                for pair in (coarse, tight, past)
            )
            found = found[:, ::-1]
        assert find_ranges(found, coarse, 10.0, wide) == (
            past if deviations > 1.5 else tight
        )
        # Not beyond the domain, nor for a fiftieth of all values.
        near = ((3.0,), (21.0,)) if sign > 0.0 else ((-21.0,), (-3.0,))
        clamped = ((3.0,), (20.0,)) if sign > 0.0 else ((-20.0,), (-3.0,))
        assert find_ranges(found, coarse, 10.0, near) == (
            clamped if deviations > 1.5 else tight
        )
        assert (
            find_ranges(found + 1000.0 * (found > 100.0), coarse, 10.0, wide) == tight
        )
        # What lies beyond the other end, of larger magnitudes, would have been heard.
        far = counts.copy() if sign > 0.0 else counts[:, ::-1].copy()
        far[:, -1 if sign > 0.0 else 0] = 50.0
        kept = ((8.5,), (20.0,)) if sign > 0.0 else ((-20.0,), (-8.5,))
        assert find_ranges(far, coarse, 10.0, wide) == kept


def test_values_beyond_the_coarse_range_are_counted_at_its_ends() -> None:
    points = np.array([[4.0], [3.9], [-100.0], [11.9], [20.0], [21.0]])
    counts = range_histogram(points, ((4.0,), (20.0,)))[0]
    assert counts.nonzero()[0].tolist() == [0, 15, 31]
    assert counts[[0, 15, 31]].tolist() == [3.0, 1.0, 2.0]


def test_a_cluster_around_zero_of_whose_magnitudes_none_is_heard_is_not_cut_off() -> (
    None
):
    generator = np.random.default_rng(4)
    points = np.concatenate(
        [generator.normal(0.0, 0.5, 333), generator.normal(10.0, 0.5, 667)]
    )[:, None]
    for _ in range(20):
        magnitudes = magnitude_histogram(points, WIDE) + generator.normal(
            0.0, 40.0, (1, N_MAGNITUDES)
        )
        coarse = find_coarse_ranges(magnitudes, WIDE, 40.0).ranges
        counts = range_histogram(points, coarse) + generator.normal(
            0.0, 40.0, (1, N_BINS)
        )
        (low,), (high,) = find_ranges(counts, coarse, 40.0, WIDE)
        assert ((points < low) | (points > high)).mean() < 0.02


def test_a_range_that_stays_unclear_is_the_coarse_one() -> None:
    coarse = ((-3.0,), (5.0,))
    assert find_ranges(np.zeros((1, N_BINS)), coarse, 1.0, coarse) == coarse


@pytest.mark.parametrize("value", [0.0, 1.0, -7.25, 1e-9, 1e11, -(2.0**45), 2.0**40])
def test_a_constant_column_gets_a_positive_width(value: float) -> None:
    points = np.full((5000, 1), value)
    coarse = find_coarse_ranges(magnitude_histogram(points, WIDE), WIDE, 1.0).ranges
    ranges = find_ranges(
        range_histogram(np.clip(points, -WIDEST_DOMAIN, WIDEST_DOMAIN), coarse),
        coarse,
        1.0,
        WIDE,
    )
    assert -WIDEST_DOMAIN <= ranges[0][0] < ranges[1][0] <= WIDEST_DOMAIN
    assert ranges[0][0] <= np.clip(value, -WIDEST_DOMAIN, WIDEST_DOMAIN) <= ranges[1][0]


@pytest.mark.parametrize("fill", [0.0, 1.0, -1.0, 2.0**46, -(2.0**46)])
@pytest.mark.parametrize(
    "domain",
    [
        (-WIDEST_DOMAIN, WIDEST_DOMAIN),
        (0.0, 8.0),
        (-8.0, 4.0),
        (5.0, 5.0000001),
        (-1e-300, 1e-300),
        (-5e-324, 5e-324),
    ],
)
def test_whatever_is_released_gives_a_box_in_the_domain(
    fill: float, domain: tuple[float, float]
) -> None:
    """A hostile server may say that anything was released."""
    limits = ((domain[0],) * 2, (domain[1],) * 2)
    generator = np.random.default_rng(1)
    for scale in (0.0, 1.0, 2.0**46):
        noise = np.rint(generator.normal(0.0, scale, (2, N_MAGNITUDES)))
        coarse = find_coarse_ranges(noise + fill, limits, 1.0).ranges
        ranges = find_ranges(noise[:, :N_BINS] + fill, coarse, 1.0, limits)
        for low, high in (
            *zip(coarse[0], coarse[1], strict=True),
            *zip(ranges[0], ranges[1], strict=True),
        ):
            assert domain[0] <= low < high <= domain[1]


def test_real_ranges_are_found() -> None:
    generator = np.random.default_rng(8)
    points = generator.uniform((20.0, -3e5, 0.001), (95.0, 7e5, 0.009), (20_000, 3))
    domain = ((-WIDEST_DOMAIN,) * 3, (WIDEST_DOMAIN,) * 3)
    noise = generator.normal(0.0, 20.0, (3, N_MAGNITUDES))
    coarse = find_coarse_ranges(
        magnitude_histogram(points, domain) + noise, domain, 20.0
    ).ranges
    found = find_ranges(
        range_histogram(points, coarse) + noise[:, :N_BINS], coarse, 20.0, domain
    )
    for low, high, least, most in zip(
        found[0], found[1], points.min(axis=0), points.max(axis=0), strict=True
    ):
        width = most - least
        assert least - 0.25 * width < low <= least + 0.01 * width
        assert most - 0.01 * width <= high < most + 0.25 * width


def test_a_mirrored_range_reaches_as_far_as_its_farther_end() -> None:
    """From 2 to 32 was heard, and a third of it on the other side."""
    noise = 400.0 / noise_threshold(1, 1.0)
    found = find_coarse_ranges(
        released((3.0, 1000.0), (20.0, 1000.0), (-3.0, 350.0), (-20.0, 350.0)),
        WIDE,
        noise,
    )
    assert found.ranges == ((-64.0,), (64.0,))


@pytest.mark.parametrize(
    ("low", "high", "mirrored"),
    [(100.0, 250.0, True), (200.0, 50.0, False), (50.0, 200.0, False)],
)
def test_the_mirror_of_all_that_was_heard_is_compared(
    low: float, high: float, mirrored: bool
) -> None:
    """Two octaves of 500 each, on the other side 0.35 or 0.25 of both."""
    noise = 400.0 / noise_threshold(1, 1.0)
    found = find_coarse_ranges(
        released((3.0, 500.0), (5.0, 500.0), (-3.0, low), (-5.0, high)), WIDE, noise
    )
    assert found.ranges == (((-16.0,), (16.0,)) if mirrored else ((-1.0,), (11.0,)))
    # And nothing beside it.
    for sign in (1.0, -1.0):
        for beside in (5.0, 1.5):
            found = find_coarse_ranges(
                released((3.0 * sign, 1000.0), (-beside * sign, 350.0)), WIDE, noise
            )
            assert sorted((sign * found.ranges[0][0], sign * found.ranges[1][0])) == [
                1.0,
                5.0,
            ]


def test_what_columns_share_may_be_two_octaves() -> None:
    """With zero they are three bins: 3 * 10 * sqrt(3) = 51.96 are needed."""
    counts = np.repeat(released((3.0, 500.0), (5.0, 500.0)), 9, axis=0)
    for each, unheard in ((27.0, ()), (25.5, (8,))):
        counts[8] = released((3.0, each), (5.0, each))
        found = find_coarse_ranges(counts, NINE, 10.0)
        assert found.silent == unheard
        assert (found.ranges[0][8], found.ranges[1][8]) == (
            (-WIDEST_DOMAIN, WIDEST_DOMAIN) if unheard else (-1.0, 11.0)
        )
