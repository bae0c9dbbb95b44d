"""How small a sum can be that a server opens, and that it opens one only.

Gaps, exact chances, integer programming.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.secagg.graph import RecoveryGraph, recovery_graph

COHORTS = [
    (33, 1), (33, 3), (40, 5), (64, 8), (100, 12), (257, 40), (300, 30), (500, 62),
    (1000, 125), (5000, 600),
]  # fmt: skip
# Circles that integer programming decides: clients, degree, colluders allowed for in
# two halves, all colluders.
SMALL = [
    (8, 4, 1, 2), (9, 4, 1, 1), (10, 4, 2, 3), (12, 6, 1, 2), (12, 6, 2, 2),
    (13, 6, 2, 3), (12, 6, 3, 3),
]  # fmt: skip


def fewest_by_gaps(n: int, graph: RecoveryGraph, max_silent: int) -> int:
    """The least |A| + t that the counts allow."""
    half, least, f = graph.degree // 2, np.full(n + 1, -(10**9)), graph.threshold + 1
    # Largest shortfall over total lengths of gaps, first with short ones only; a gap of
    # L falls short by this.
    short = [(length + 1) ** 2 // 4 for length in range(2 * half)]
    worst = least.copy()
    worst[0] = 0
    for total in range(1, n + 1):
        worst[total] = max(
            (
                worst[total - length] + short[length]
                for length in range(1, min(half - 1, total) + 1)
            ),
            default=-(10**9),
        )
    with_long = worst.copy()
    for length in range(half, 2 * half):
        with_long[length:] = np.maximum(
            with_long[length:], worst[: n + 1 - length] + short[length]
        )
    possible = (
        a
        for a in range(1, n + 1)
        if (graph.degree + 1) * (a + max_silent) >= n * f - with_long[n - a]
    )
    return next(possible) + max_silent


@pytest.mark.parametrize(("n_clients", "max_silent"), COHORTS)
def test_a_long_gap_is_charged_once(n_clients: int, max_silent: int) -> None:
    graph = recovery_graph(n_clients, max_silent)
    counted = graph.fewest_open(n_clients, max_silent)
    # Gaps in fractions of places are never better for the server than whole ones, and
    # little worse.
    assert (
        counted
        <= fewest_by_gaps(n_clients, graph, max_silent)
        <= counted + 8 + n_clients // 60
    )


def test_honest_shares_that_are_counted_on() -> None:
    assert recovery_graph(1000, 125).fewest_open(1000, 125) - 125 == 495
    assert recovery_graph(100, 12).fewest_open(100, 12) - 12 == 45


@pytest.mark.parametrize(
    ("degree", "threshold"), [(2, 2), (4, 3), (6, 5), (8, 6), (30, 21), (200, 130)]
)
def test_the_fewest_are_what_the_proof_says(degree: int, threshold: int) -> None:
    """(6): least |A|, (k + 1) (|A| + t) >= n (threshold + 1) - w (n - |A|) - x."""
    graph, h = RecoveryGraph(degree, threshold, certain=False), Fraction(degree, 2)
    w = h**2 / (4 * (h - 1)) if h > 1 else Fraction(1)
    x = h**2 - w * (2 * h - 1)
    for n in range(2 * degree, 2 * degree + 40):
        for t in (0, 1, 2, n // 8, n):
            least = (n * (threshold + 1) - w * n - x - (degree + 1) * t) / (
                degree + 1 - w
            )
            assert graph.fewest_open(n, t) == max(0, least // 1) + t
    assert RecoveryGraph(degree, threshold, certain=True).fewest_open(50, 3) == 50


def at_least(n: int, marked: int, drawn: int, number: int) -> Fraction:
    hits = sum(
        comb(marked, k) * comb(n - marked, drawn - k)
        for k in range(number, min(marked, drawn) + 1)
    )
    return Fraction(hits, comb(n, drawn))


@pytest.mark.parametrize(("n_clients", "max_silent"), COHORTS)
def test_two_heavy_halves_are_as_rare_as_promised(
    n_clients: int, max_silent: int
) -> None:
    graph = recovery_graph(n_clients, max_silent)
    half, heavy = graph.degree // 2, graph.threshold - graph.degree // 2
    # All pairs of arcs of h places that do not overlap, exactly: both have threshold -
    # h colluders.
    everything, pair = comb(n_clients, max_silent), 0
    rest = n_clients - 2 * half
    for first in range(heavy, min(half, max_silent) + 1):
        for second in range(heavy, min(half, max_silent - first) + 1):
            pair += (
                comb(half, first)
                * comb(half, second)
                * comb(rest, max_silent - first - second)
            )
    n_pairs = n_clients * (n_clients - 2 * half + 1) // 2
    assert Fraction(pair * n_pairs, everything) <= Fraction(1, 2**40)


def test_one_heavy_half_is_not_rare_and_so_neither_is_one_long_gap() -> None:
    for (n, t), least in (
        ((1000, 125), Fraction(1, 2**24)),
        ((100, 12), Fraction(1, 2**10)),
    ):
        graph = recovery_graph(n, t)
        half = graph.degree // 2
        # Of one given arc; there are n of them.
        assert at_least(n, t, half, graph.threshold - half) * n > least


def solved(
    n: int, degree: int, counted_on: int, colluding: int, *, twice: bool
) -> int | None:
    """The smallest part that can be read, as a whole program."""
    half, threshold = degree // 2, (degree + counted_on) // 2 + 1
    parts = (1, 2) if twice else (1,)
    rows: list[tuple[dict[int, int], float, float]] = []

    def places(group: int, where: Iterable[int], factor: int = 1) -> dict[int, int]:
        return {group * n + place % n: factor for place in where}

    def around(place: int) -> list[int]:
        return [place + step for step in range(-half, half + 1) if step]

    for place in range(n):
        rows.append(({place: 1} | {part * n + place: 1 for part in parts}, 0, 1))
        rows.append((places(0, around(place)) | {place: -degree}, -np.inf, counted_on))
        for part in parts:
            needed = (
                places(0, around(place))
                | places(part, around(place))
                | {part * n + place: -threshold}
            )
            rows.append((needed, 0, np.inf))
        for step in range(half, n - half + 1):
            halves = places(0, range(place, place + half)) | places(
                0, range(place + step, place + step + half)
            )
            rows.append((halves, 0, counted_on))
    rows.append((places(0, range(n)), 0, colluding))
    rows += [(places(part, range(n)), 1, n) for part in parts]
    matrix = np.zeros((len(rows), (1 + len(parts)) * n))
    for row, (entries, _, _) in enumerate(rows):
        matrix[row, list(entries)] = list(entries.values())
    goal = np.zeros(matrix.shape[1])
    goal[n : 2 * n] = 1
    limits = LinearConstraint(
        matrix, [low for _, low, _ in rows], [high for _, _, high in rows]
    )
    # Some client is in A; the circle can be turned so that it is the first one.
    least = np.zeros(len(goal))
    least[n] = 1
    found = milp(
        goal,
        constraints=limits,
        integrality=np.ones(len(goal)),
        bounds=Bounds(least, 1),
    )
    assert found.status in (0, 2)
    return None if found.status == 2 else round(found.fun)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("n", "degree", "counted_on", "colluding"), SMALL)
def test_no_part_is_smaller_and_no_two_are_read(
    n: int, degree: int, counted_on: int, colluding: int
) -> None:
    graph = RecoveryGraph(degree, (degree + counted_on) // 2 + 1, certain=False)
    smallest = solved(n, degree, counted_on, colluding, twice=False)
    assert smallest is not None
    assert smallest + colluding >= graph.fewest_open(n, colluding)
    assert solved(n, degree, counted_on, colluding, twice=True) is None


def test_no_part_is_smaller_by_brute_force() -> None:
    n, degree, counted_on, n_found = 9, 4, 1, 0
    threshold = (degree + counted_on) // 2 + 1
    graph = RecoveryGraph(degree, threshold, certain=False)
    near = [[(place + step) % n for step in (-2, -1, 1, 2)] for place in range(n)]
    for colluding in ({0}, {0, 3}, {0, 4}):
        heavy = [
            start
            for start in range(n)
            if start in colluding or (start + 1) % n in colluding
        ]
        if any(
            (a - b) % n >= 2 and (b - a) % n >= 2 for a, b in combinations(heavy, 2)
        ):
            continue
        honest = [place for place in range(n) if place not in colluding]
        for size in range(1, len(honest) + 1):
            for part in combinations(honest, size):
                helping = colluding.union(part)
                if all(
                    sum(peer in helping for peer in near[place]) >= threshold
                    for place in part
                ):
                    n_found += 1
                    assert size + len(colluding) >= graph.fewest_open(n, len(colluding))
    assert n_found > 0


@pytest.mark.parametrize("n_clients", [33, 40, 64, 100, 256, 300, 1000])
def test_circles_are_twice_as_long_as_a_neighbourhood(n_clients: int) -> None:
    # The proof that one sum at most is read needs two transitions with halves that do
    # not overlap.
    for max_silent in range(0, n_clients // 3, max(1, n_clients // 40)):
        with suppress(PlanError):
            graph = recovery_graph(n_clients, max_silent)
            assert graph.certain or 2 * graph.degree <= n_clients
