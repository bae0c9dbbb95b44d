"""Sizes of the neighbourhoods: tails against fractions and sampling, and what they
promise against brute force.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import pytest

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.secagg import graph as graph_module
from flwr_dpkmeans.secagg.graph import RecoveryGraph, recovery_graph

SPARSE = [
    (33, 1), (33, 2), (33, 10), (34, 9), (64, 15), (100, 10), (257, 40), (300, 30),
    (1000, 125), (5000, 600),
]  # fmt: skip


def exceeding(n_others: int, marked: int, drawn: int, number: int) -> Fraction:
    """Probability that more than `number` of `drawn` are marked."""
    # Counts are walked through one draw at a time, which is another way than binomial
    # coefficients.
    states = {0: Fraction(1)}
    for step in range(drawn):
        following: dict[int, Fraction] = {}
        for count, probability in states.items():
            hit = Fraction(marked - count, n_others - step)
            following[count + 1] = (
                following.get(count + 1, Fraction(0)) + probability * hit
            )
            following[count] = following.get(count, Fraction(0)) + probability * (
                1 - hit
            )
        states = following
    return sum(
        (probability for count, probability in states.items() if count > number),
        Fraction(0),
    )


@pytest.mark.parametrize(
    ("n_clients", "marked", "degree", "odds"),
    [
        (20, 5, 6, 10), (40, 13, 12, 1 << 12), (60, 9, 20, 1 << 30), (50, 0, 8, 9),
        (12, 11, 11, 5),
    ],
)  # fmt: skip
def test_quantiles_are_the_least_that_do(
    n_clients: int, marked: int, degree: int, odds: int
) -> None:
    number = graph_module.rarely_exceeded(n_clients, marked, degree, odds)
    assert exceeding(n_clients - 1, marked, degree, number) * odds <= 1
    assert (
        number == 0 or exceeding(n_clients - 1, marked, degree, number - 1) * odds > 1
    )


def test_a_quantile_may_be_exceeded_as_often_as_the_odds_say() -> None:
    """One of the others is marked and half of them are drawn."""
    for n_others in (2, 4, 10):
        assert [
            graph_module.rarely_exceeded(n_others + 1, 1, n_others // 2, odds)
            for odds in (2, 3)
        ] == [0, 1]
    assert graph_module.rarely_exceeded(3, 0, 1, 10**6) == 0


@pytest.mark.parametrize("n_clients", [33, 34, 38, 40, 44, 48, 256, 257])
def test_neighbourhoods_are_the_first_that_keep_the_promises(n_clients: int) -> None:
    """Of an even degree up to half the circle and 255 holders."""
    others = n_clients - 1

    def promised(t: int) -> RecoveryGraph | None:
        for degree in range(2, min(n_clients // 2, 255) + 1, 2):
            ways = [
                comb(t, k) * comb(others - t, degree - k)
                for k in range(min(t, degree) + 1)
            ]

            def least(times: int, ways: list[int] = ways, degree: int = degree) -> int:
                return next(
                    k
                    for k in range(len(ways))
                    if sum(ways[k + 1 :]) * times <= comb(others, degree)
                )

            colluding = least(n_clients * (n_clients + 1) // 2 * 2**40)
            threshold = (degree + colluding) // 2 + 1
            if degree - least(n_clients * 2**20) >= threshold:
                return RecoveryGraph(degree, threshold, certain=False)
        threshold = (others + t) // 2 + 1
        fits = others <= 255 and others - t >= threshold
        return RecoveryGraph(others, threshold, certain=True) if fits else None

    for t in range(n_clients // 3 + 2) if n_clients < 100 else (0, 39, 84, 85):
        expected = promised(t)
        if expected is not None:
            assert recovery_graph(n_clients, t) == expected
        else:
            with pytest.raises(
                PlanError, match=f"max_silent is {t} of {n_clients} clients"
            ):
                recovery_graph(n_clients, t)


@pytest.mark.parametrize(("n_clients", "max_silent"), SPARSE)
def test_large_cohorts_keep_every_promise(n_clients: int, max_silent: int) -> None:
    found = recovery_graph(n_clients, max_silent)
    degree, threshold = found.degree, found.threshold
    assert threshold <= degree <= 255
    n_others = n_clients - 1
    everything = comb(n_others, degree)

    def tail(least: int) -> Fraction:
        number = range(least, min(max_silent, degree) + 1)
        return Fraction(
            sum(
                comb(max_silent, k) * comb(n_others - max_silent, degree - k)
                for k in number
            ),
            everything,
        )

    # Both keys of one client: the server misses one share unless 2 * threshold - degree
    # of its neighbours collude. Both ends of a part that could be read: as many among
    # any two halves.
    places = n_clients + comb(n_clients, 2)
    assert tail(2 * threshold - degree) * places <= Fraction(1, 2**40)
    halves_each = threshold - degree // 2
    assert 2 * halves_each >= 2 * threshold - degree
    # Enough share-holders stay.
    assert tail(degree - threshold + 1) * n_clients <= Fraction(1, 2**20)
    assert not found.certain or degree == n_others
    # No smaller neighbourhood would do.
    if not found.certain:
        assert all(
            graph_module.sparse_graph(n_clients, max_silent, less) is None
            for less in range(2, degree, 2)
        )


@pytest.mark.parametrize("n_clients", range(6, 33))
def test_everybody_neighbours_everybody_in_small_cohorts(n_clients: int) -> None:
    for max_silent in range(n_clients):
        others = n_clients - 1
        possible = [
            t
            for t in range(1, others + 1)
            if 2 * t > others + max_silent and t <= others - max_silent
        ]
        if not possible:
            # A third of them: no threshold would do.
            assert 3 * max_silent >= others - 1
            with pytest.raises(PlanError, match="max_silent or choose dropout='retry'"):
                recovery_graph(n_clients, max_silent)
        else:
            assert recovery_graph(n_clients, max_silent) == RecoveryGraph(
                others, possible[0], certain=True
            )


@pytest.mark.parametrize(("n_clients", "max_silent"), [(-1, 0), (0, 0), (2, 0), (5, 1)])
def test_few_clients_are_refused(n_clients: int, max_silent: int) -> None:
    with pytest.raises(PlanError, match="needs at least 6"):
        recovery_graph(n_clients, max_silent)


@pytest.mark.parametrize(
    ("n_clients", "max_silent"),
    [(33, 33), (40, 1000), (1000, 200), (1000, 999), (10, 10**6), (300, 150)],
)
def test_too_many_silent_are_refused(n_clients: int, max_silent: int) -> None:
    with pytest.raises(PlanError, match="max_silent is"):
        recovery_graph(n_clients, max_silent)


def test_nobody_silent() -> None:
    assert (
        recovery_graph(8, 0)
        == recovery_graph(8, -3)
        == RecoveryGraph(7, 4, certain=True)
    )
    assert (
        recovery_graph(7, 0)
        == recovery_graph(7, -3)
        == RecoveryGraph(6, 4, certain=True)
    )
    assert recovery_graph(100, 0) == RecoveryGraph(2, 2, certain=False)


def test_everybody_holds_shares_where_there_are_coordinates_for_all() -> None:
    """(255 + 84) // 2 + 1 of 255 others."""
    assert recovery_graph(256, 84) == RecoveryGraph(255, 170, certain=True)
    with pytest.raises(PlanError, match="max_silent is 84 of 257"):
        recovery_graph(257, 84)


def test_neighbourhoods_grow_with_the_silent() -> None:
    degrees = [recovery_graph(500, t).degree for t in range(0, 100, 5)]
    assert degrees == sorted(degrees)


def test_a_large_cohort_is_answered_quickly() -> None:
    # A server may announce a roster of any size that the transport lets through.
    assert recovery_graph(100_000, 10_000).degree < 256


# What the promise about parts comes to: sampling with weak odds, and brute force.


def window(place: int, half: int, size: int) -> list[int]:
    """Places of the neighbours of a place on the circle."""
    return [(place + step) % size for step in range(-half, half + 1) if step]


def readable_arcs(
    size: int, degree: int, threshold: int, colluding: set[int]
) -> list[tuple[int, int]]:
    """Closed arcs whose honest members all have enough votes in them."""
    arcs, windows = [], [window(place, degree // 2, size) for place in range(size)]
    for start, length in itertools.product(range(size), range(1, size - degree)):
        arc = {(start + step) % size for step in range(length)}
        helping = arc | colluding
        if all(
            len(helping.intersection(windows[place])) >= threshold
            for place in arc - colluding
        ):
            arcs.append((start, length))
    return arcs


def test_a_part_that_can_be_read_needs_more_colluders_than_are_counted_on() -> None:
    size, degree = 40, 8
    chooser = random.Random(1)
    n_found = 0
    for _ in range(60):
        colluding = set(chooser.sample(range(size), 8))
        counted_on = 2
        threshold = (degree + counted_on) // 2 + 1
        for start, length in readable_arcs(size, degree, threshold, colluding):
            arc = {(start + step) % size for step in range(length)}
            if arc <= colluding:
                continue
            # An end may be colluding itself: the outermost honest ones count.
            honest = [
                (start + step) % size
                for step in range(length)
                if (start + step) % size not in colluding
            ]
            first, last = honest[0], honest[-1]
            before = {(first - step) % size for step in range(1, degree // 2 + 1)}
            after = {(last + step) % size for step in range(1, degree // 2 + 1)}
            if before & after or (before | after) & set(honest):
                continue
            n_found += 1
            assert len((before | after) & colluding) > counted_on
    assert n_found > 0


def test_weak_odds_are_kept_on_random_circles() -> None:
    # With 2^-4 instead of 2^-40 failures can be counted; the union bound makes them
    # rarer still.
    size, marked = 60, 9
    found = recovery_graph(size, marked, privacy_bits=4, liveness_bits=3)
    assert found.degree < 30
    counted_on = 2 * found.threshold - found.degree - 1
    half, chooser = found.degree // 2, random.Random(7)
    n_private = n_live = 0
    for _ in range(400):
        colluding = set(chooser.sample(range(size), marked))
        rings = [
            sum(p in colluding for p in window(place, half, size))
            for place in range(size)
        ]
        # The marked are others than the node itself.
        honest = [count for place, count in enumerate(rings) if place not in colluding]
        runs = [
            sum((start + step) % size in colluding for step in range(half))
            for start in range(size)
        ]
        pairs = [
            runs[a] + runs[b]
            for a in range(size)
            for b in range(a + half, size)
            if (a - b) % size >= half
        ]
        n_private += max(honest) > counted_on or max(pairs) > counted_on
        n_live += max(honest) > found.degree - found.threshold
    assert n_private <= 400 / 2**4
    assert n_live <= 400 / 2**3
    assert n_live > 0


# A server that tells clients different things, played on the graph alone: who can be
# read, by the rules of the tickets.


@dataclass(frozen=True)
class Told:
    """A circle, its colluding places, and what each place was told."""

    size: int
    found: RecoveryGraph
    colluding: frozenset[int]
    views: dict[int, tuple[frozenset[int], frozenset[int]]]
    ticketed: bool

    def around(self, place: int) -> list[int]:
        return window(place, self.found.degree // 2, self.size)

    def agree(self, one: int, other: int, parts: slice) -> bool:
        """Whether two honest places were told the same cohort (and survivors)."""
        return not self.ticketed or self.views[one][parts] == self.views[other][parts]

    def known_keys(self) -> tuple[set[int], set[int]]:
        """Honest places whose self masks and whose pairwise keys the server has."""
        honest = [place for place in range(self.size) if place not in self.colluding]
        threshold = self.found.threshold

        def helped(place: int, by: Callable[[int], bool]) -> bool:
            return (
                sum(peer in self.colluding or by(peer) for peer in self.around(place))
                >= threshold
            )

        unlocked = {
            p
            for p in honest
            if helped(p, lambda peer, p=p: self.agree(peer, p, slice(2)))
        }
        selves, privates = set(), set()
        for p in honest:
            if helped(
                p,
                lambda h, p=p: (
                    h in unlocked
                    and p in self.views[h][1]
                    and self.agree(h, p, slice(1))
                ),
            ):
                selves.add(p)
            if helped(
                p,
                lambda h, p=p: (
                    h in unlocked
                    and p in self.views[h][0]
                    and p not in self.views[h][1]
                ),
            ):
                privates.add(p)
        return selves, privates

    def readable(self) -> list[set[int]]:
        """The smallest sets of honest places whose sum the server reads."""
        selves, privates = self.known_keys()
        assert not selves & privates
        honest = [place for place in range(self.size) if place not in self.colluding]
        leads = {
            p: set(self.around(p)) & self.views[p][0] - privates - self.colluding
            for p in honest
        }
        leads |= {p: set() for p in privates}
        parts, seen = [], set()
        for start in honest:
            part, todo = set(), [start] if start not in seen else []
            while todo:
                place = todo.pop()
                if place not in part:
                    part.add(place)
                    todo.extend(
                        {
                            *leads[place],
                            *(other for other in honest if place in leads[other]),
                        }
                    )
            seen |= part
            cancels = all(
                self.views[p][:1] == self.views[peer][:1]
                for p in part
                for peer in leads[p]
            )
            if part and part <= selves and cancels:
                parts.append(part)
        return parts


def told_at_random(chooser: random.Random, *, ticketed: bool) -> tuple[Told, int]:
    """Up to three cohorts and sets of survivors, each on an arc of its own."""
    size, max_silent = chooser.choice([(33, 2), (36, 3), (40, 4), (50, 5)])
    everybody = frozenset(range(size))
    cuts = sorted(chooser.sample(range(size), chooser.randrange(1, 4)))
    pairs = []
    for cut in cuts:
        gone = [
            (cut + chooser.choice((-1, 1)) * step) % size for step in range(max_silent)
        ]
        n_before = chooser.randrange(max_silent + 1)
        cohort = everybody - set(gone[:n_before])
        pairs.append((cohort, cohort - set(gone[n_before:])))
    views = {}
    for place in range(size):
        arc = max((index for index, cut in enumerate(cuts) if cut <= place), default=-1)
        cohort, survivors = pairs[
            arc if chooser.random() < 0.95 else chooser.randrange(len(pairs))
        ]
        cohort = cohort if place in cohort else everybody
        views[place] = (
            cohort,
            survivors if place in survivors and survivors <= cohort else cohort,
        )
    colluding = frozenset(
        chooser.sample(range(size), chooser.randrange(max_silent + 1))
    )
    return (
        Told(size, recovery_graph(size, max_silent), colluding, views, ticketed),
        max_silent,
    )


def test_whatever_clients_are_told_one_sum_of_nearly_all_can_be_read() -> None:
    chooser = random.Random(11)
    n_read = 0
    for _ in range(250):
        told, max_silent = told_at_random(chooser, ticketed=True)
        parts = told.readable()
        assert len(parts) <= 1
        assert all(
            len(part) >= told.size - max_silent - len(told.colluding) for part in parts
        )
        n_read += len(parts)
    assert n_read > 10


def told_to_cut(chooser: random.Random, *, ticketed: bool) -> tuple[Told, int]:
    """Some beside an arc are said to be gone, so that each in it has votes."""
    size, max_silent = chooser.choice([(40, 3), (50, 4), (64, 5), (64, 8)])
    found = recovery_graph(size, max_silent)
    half, everybody = found.degree // 2, frozenset(range(size))
    length = chooser.randrange(1, size - 2 * half)
    border = [
        place % size for place in (*range(-half, 0), *range(length, length + half))
    ]
    colluding = frozenset(
        chooser.sample(range(size), chooser.randrange(max_silent + 1))
    )
    votes, views = dict.fromkeys(border, 0), {}
    for place in chooser.sample(range(size), size):
        near = set(window(place, half, size))
        candidates = [
            b for b in border if b in near and b != place and b not in colluding
        ]
        gone = sorted(
            candidates,
            key=lambda b: (votes[b] >= found.threshold, votes[b], chooser.random()),
        )[:max_silent]
        for one in gone:
            votes[one] += place not in colluding
        views[place] = (everybody, everybody - set(gone))
    return Told(size, found, colluding, views, ticketed), max_silent


def test_nobody_cuts_the_circle_by_telling_everybody_something_else() -> None:
    chooser = random.Random(12)
    for _ in range(60):
        told, max_silent = told_to_cut(chooser, ticketed=True)
        assert all(
            len(part) >= told.size - max_silent - len(told.colluding)
            for part in told.readable()
        )


def test_without_tickets_the_circle_is_cut() -> None:
    chooser = random.Random(12)
    missing = []
    for _ in range(60):
        told, max_silent = told_to_cut(chooser, ticketed=False)
        missing += [
            told.size - max_silent - len(told.colluding) - len(part)
            for part in told.readable()
        ]
    assert max(missing) > 0
