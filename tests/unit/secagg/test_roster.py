"""Rosters: well formed or refused, the same for everybody, and a mask graph that t
removals cannot split.
"""

from __future__ import annotations

import hashlib
import itertools
import random

import pytest

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Roster, mask_degree


def key_of(node: int) -> bytes:
    return (node + 1).to_bytes(32, "little")


def cohort(size: int, attempt: int = 0, start: int = 2) -> Roster:
    return Roster.of(
        attempt, {node: key_of(node) for node in range(start, start + size)}
    )


def graph(roster: Roster, max_silent: int) -> dict[int, set[int]]:
    return {node: set(roster.neighbours(node, max_silent)) for node in roster.node_ids}


def is_connected(edges: dict[int, set[int]], without: frozenset[int]) -> bool:
    left = set(edges) - without
    reached, todo = set(), [min(left)]
    while todo:
        node = todo.pop()
        if node not in reached:
            reached.add(node)
            todo.extend(edges[node] & left)
    return reached == left


@pytest.mark.parametrize(
    ("attempt", "members", "sentence"),
    [
        (0, (), "has 0 member"),
        (0, ((1, key_of(1)),), "has 1 member"),
        (0, ((2, key_of(2)), (1, key_of(1))), "out of order or twice"),
        (0, ((1, key_of(1)), (1, key_of(2))), "out of order or twice"),
        # One pair is out of order, or equal, and the others are not.
        (0, ((1, key_of(1)), (3, key_of(3)), (2, key_of(2))), "out of order or twice"),
        (0, ((1, key_of(1)), (2, key_of(2)), (2, key_of(3))), "out of order or twice"),
        (-1, ((1, key_of(1)), (2, key_of(2))), "of attempt -1, but attempts count"),
        (0, ((1, key_of(1)), (2, bytes(31))), "not 32 bytes"),
        (0, ((1, key_of(1)), (2, key_of(1))), "one public key for two nodes"),
        (0, ((-1, key_of(1)), (2, key_of(2))), "outside 0 to"),
        (0, ((1, key_of(1)), (2**64, key_of(2))), "outside 0 to"),
    ],
)
def test_malformed_rosters_are_refused(
    attempt: int, members: tuple[tuple[int, bytes], ...], sentence: str
) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        Roster(attempt, members)


def test_the_smallest_and_largest_node_ids_are_accepted() -> None:
    assert Roster.of(0, {2**64 - 1: key_of(1), 0: key_of(0)}).node_ids == (0, 2**64 - 1)


def test_without_keeps_keys_and_order() -> None:
    later = cohort(5).without(3, [4, 99])
    assert later.attempt == 3
    assert later.members == tuple((node, key_of(node)) for node in (2, 3, 5, 6))
    with pytest.raises(ProtocolError, match="has 1 member"):
        cohort(3).without(1, [2, 3])


def test_the_digest_covers_attempt_nodes_and_keys() -> None:
    base = {2: key_of(2), 3: key_of(3), 4: key_of(4)}
    rosters = [
        Roster.of(0, base),
        Roster.of(1, base),
        Roster.of(0, {2: key_of(2), 3: key_of(3)}),
        Roster.of(0, base | {4: key_of(5)}),
        Roster.of(0, {2: key_of(3), 3: key_of(2), 4: key_of(4)}),
        Roster.of(0, {2: key_of(2), 3: key_of(3), 5: key_of(4)}),
    ]
    assert len({roster.digest for roster in rosters}) == len(rosters)
    assert Roster.of(0, dict(reversed(base.items()))).digest == rosters[0].digest


def test_a_packed_roster_is_node_ids_of_8_bytes_and_keys() -> None:
    roster = Roster.of(0, {2**64 - 1: key_of(1), 258: key_of(2)})
    assert roster.packed == b"\x02\x01" + bytes(6) + key_of(2) + b"\xff" * 8 + key_of(1)


def test_the_hashed_order_is_a_fresh_permutation_of_each_attempt() -> None:
    orders = [cohort(40, attempt).hashed_order for attempt in range(30)]
    assert all(sorted(order) == list(range(2, 42)) for order in orders)
    assert len(set(orders)) == 30


def test_the_hashed_order_is_of_digest_and_node_in_8_bytes() -> None:
    roster = Roster.of(
        2, {node: key_of(place) for place, node in enumerate((0, 1, 256, 2**64 - 1))}
    )
    written = {
        0: bytes(8),
        1: b"\x01" + bytes(7),
        256: b"\x00\x01" + bytes(6),
        2**64 - 1: b"\xff" * 8,
    }
    hashed = {
        hashlib.sha256(roster.digest + number).digest(): node
        for node, number in written.items()
    }
    assert list(roster.hashed_order) == [hashed[found] for found in sorted(hashed)]


def test_every_node_becomes_an_author_about_equally_often() -> None:
    counts = dict.fromkeys(range(2, 12), 0)
    for attempt in range(1000):
        for author in cohort(10, attempt).authors(0):
            counts[author] += 1
    # 200 expected, standard deviation 12.6: 6 of them.
    assert all(abs(count - 200) < 76 for count in counts.values())


@pytest.mark.parametrize(
    ("size", "max_silent", "expected"),
    [(2, 0, 2), (10, 0, 2), (10, 1, 3), (10, 5, 7), (4, 9, 4)],
)
def test_authors_are_t_plus_2_and_at_least_two(
    size: int, max_silent: int, expected: int
) -> None:
    roster = cohort(size)
    assert roster.authors(max_silent) == roster.hashed_order[:expected]
    assert len(roster.authors(max_silent)) == expected


@pytest.mark.parametrize("size", [2, 3, 17, ALL_PAIRS_UP_TO])
def test_small_cohorts_mask_all_pairs(size: int) -> None:
    assert graph(cohort(size), 0) == {
        n: set(range(2, 2 + size)) - {n} for n in range(2, 2 + size)
    }


@pytest.mark.parametrize("size", [ALL_PAIRS_UP_TO + 1, 40, 101])
@pytest.mark.parametrize("max_silent", [0, 1, 2, 3, 4, 7, 20])
def test_sparse_graphs_are_symmetric_and_regular(size: int, max_silent: int) -> None:
    edges = graph(cohort(size), max_silent)
    degree = next(even for even in range(2, size + 2, 2) if even > max_silent)
    assert all(
        node not in others and len(others) == degree for node, others in edges.items()
    )
    assert all(
        node in edges[other] for node, others in edges.items() for other in others
    )


@pytest.mark.parametrize("max_silent", [36, 37])
def test_a_bound_below_leaves_out_who_stands_opposite(max_silent: int) -> None:
    roster = cohort(40)
    order = roster.hashed_order
    for place, node in enumerate(order):
        assert set(roster.node_ids) - graph(roster, max_silent)[node] == {
            node,
            order[place - 20],
        }


@pytest.mark.parametrize("max_silent", [38, 39, 40, 100])
def test_a_bound_near_the_cohort_masks_all_pairs(max_silent: int) -> None:
    assert all(len(others) == 39 for others in graph(cohort(40), max_silent).values())


@pytest.mark.parametrize(
    ("size", "max_silent"), [(33, 0), (33, 1), (34, 2), (40, 2), (33, 3)]
)
def test_no_t_nodes_split_the_graph_by_brute_force(size: int, max_silent: int) -> None:
    edges = graph(cohort(size), max_silent)
    for gone in itertools.combinations(edges, max_silent):
        assert is_connected(edges, frozenset(gone))


@pytest.mark.parametrize(
    ("size", "max_silent"), [(5, 1), (7, 2), (8, 3), (9, 4), (11, 6)]
)
def test_no_t_nodes_split_small_sparse_graphs(size: int, max_silent: int) -> None:
    degree, roster = mask_degree(ALL_PAIRS_UP_TO + 1, max_silent), cohort(size)
    edges = {node: set(roster.circle(node, degree)) for node in roster.node_ids}
    for gone in itertools.combinations(edges, max_silent):
        assert is_connected(edges, frozenset(gone))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("size", "max_silent"), [(33, 1), (40, 3), (60, 5), (200, 11), (300, 20)]
)
def test_every_pair_has_more_than_t_disjoint_paths(size: int, max_silent: int) -> None:
    edges = graph(cohort(size), max_silent)
    chooser = random.Random(size)
    for _ in range(10):
        source, sink = chooser.sample(sorted(edges), 2)
        assert disjoint_paths(edges, source, sink) > max_silent


def test_the_path_counter_finds_a_cut() -> None:
    # Two triangles that share node 3: one removal splits them, so there is one disjoint
    # path.
    edges = {1: {2, 3}, 2: {1, 3}, 3: {1, 2, 4, 5}, 4: {3, 5}, 5: {3, 4}}
    assert disjoint_paths(edges, 1, 5) == 1
    assert not is_connected(edges, frozenset({3}))


@pytest.mark.parametrize(("size", "max_silent"), [(40, 3), (100, 8), (300, 20)])
def test_runs_of_neighbours_on_the_circle_do_not_split_it(
    size: int, max_silent: int
) -> None:
    # The cheapest cuts of a circulant graph are two arcs: all pairs of arcs of t nodes
    # together.
    roster = cohort(size)
    edges = graph(roster, max_silent)
    order = roster.hashed_order
    for offset in range(1, size - max_silent):
        half = max_silent // 2
        gone = {order[i] for i in range(half)} | {
            order[(half + offset + i) % size] for i in range(max_silent - half)
        }
        assert is_connected(edges, frozenset(gone))


def disjoint_paths(edges: dict[int, set[int]], source: int, sink: int) -> int:
    """Count internally disjoint paths (Menger)."""
    capacity: dict[tuple[int, bool], dict[tuple[int, bool], int]] = {}

    def add(tail: tuple[int, bool], head: tuple[int, bool], units: int) -> None:
        capacity.setdefault(tail, {}).setdefault(head, 0)
        capacity.setdefault(head, {}).setdefault(tail, 0)
        capacity[tail][head] += units

    for node, others in edges.items():
        add((node, False), (node, True), len(edges) if node in (source, sink) else 1)
        for other in others:
            add((node, True), (other, False), 1)
    flow = 0
    while _augment(capacity, (source, True), (sink, False)):
        flow += 1
    return flow


def _augment(
    capacity: dict[tuple[int, bool], dict[tuple[int, bool], int]],
    start: tuple[int, bool],
    end: tuple[int, bool],
) -> bool:
    """Push one unit along a shortest path with capacity left."""
    came_from = {start: start}
    queue = [start]
    for tail in queue:
        for head, units in capacity[tail].items():
            if units > 0 and head not in came_from:
                came_from[head] = tail
                queue.append(head)
    if end not in came_from:
        return False
    head = end
    while head != start:
        tail = came_from[head]
        capacity[tail][head] -= 1
        capacity[head][tail] += 1
        head = tail
    return True


@pytest.mark.parametrize("max_silent", [-1, -2, -9])
def test_nobody_is_without_neighbours_whatever_may_be_silent(max_silent: int) -> None:
    """Of 33 clients each had none, and would have sent its vector unmasked."""
    roster = cohort(ALL_PAIRS_UP_TO + 1)
    assert graph(roster, max_silent) == graph(roster, 0)
    assert {len(neighbours) for neighbours in graph(roster, 0).values()} == {2}
