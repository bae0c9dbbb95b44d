"""ProxyLloyd's sensitivities by brute force.

No neighbour, and no state, moves a vector beyond its bound.

States are those that follow from arbitrary releases, and those that a hostile server
may make up. Everything is compared in integers, as in `test_feddp_sensitivity`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.grid_values import GRID, on_grid
from support.moved_vectors import changes, drawn_rows, norm_over_bound, sent

from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_CENTERS,
    SEED,
    cluster_state,
)
from flwr_dpkmeans.errors import DPKMeansError, ProtocolError
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import (
    Block,
    PrivacyUnit,
    ReleasedSum,
    as_released,
)
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State

# Names in the state that clients read.
CENTRE, CLIP, SPREAD, AXES, SUBSPACE_SPREAD = (
    "centre",
    "clip",
    "spread",
    "axes",
    "subspace_spread",
)
PROXIES, PROXY_RADIUS, RADIUS = "proxies", "proxy_radius", "radius"

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
STEP = 1.0 / GRID
RADII = (-3.0, 0.0, 2.0**-17, 2.0**-12, 0.1234567, 1e300)
"""Radii, and spreads, that a hostile server may name."""
FRACTION_BITS = 16

quick = settings(max_examples=25)

# d, k, N: three looks, or (9, 20) one round in their place; one pass, three passes, and
# none.
PLANS = [
    (1, 1, 2000),
    (1, 3, 2000),
    (2, 4, 4000),
    (8, 3, 20_000),
    (9, 4, 20_000),
    (100, 3, 50_000),
    (3, 5, 20),
]


@cache
def plan_of(
    d: int,
    k: int,
    n: int,
    unit: str = "record",
    n_clients: int = 5,
    *,
    with_server: bool = False,
) -> Plan:
    facts = ServerFacts(
        50,
        tuple(float(c) for c in on_grid(np.linspace(-0.3, 0.4, d))),
        0.7000001,
        0.3141593,
    )
    values: dict[str, Any] = (
        {"examples_per_client": 40} if unit == "client" else {"n_examples": n}
    )
    config = parse_config(
        unit=unit,
        n_clusters=k,
        bounds=((-1.0,), (1.0,)),
        algorithm="proxy_lloyd",
        trust="central",
        epsilon=2.0,
        delta=1e-5,
        n_init=1,
        **values,
    )
    server = facts if with_server else None
    return draft_plan(
        config, run_id=1, n_clients=n_clients, seed=3, n_features=d, server=server
    )


def rounds_of(plan: Plan) -> list[PrivateSum]:
    """Without passes and refinements that are like the one before."""
    alike = (
        "look-2",
        "look-3",
        "proxies-2",
        "proxies-3",
        *(f"refinement-{t}" for t in range(3, 10)),
    )
    rounds = build_algorithm(plan).rounds
    # The last refinement may release what it clips, too.
    return [
        private_sum
        for private_sum in rounds
        if private_sum.name not in alike or private_sum is rounds[-1]
    ]


def moved(
    private_sum: PrivateSum, old: list[Steps], new: list[Steps]
) -> Iterator[tuple[Block, float]]:
    for block, ratio, entry in changes(private_sum, old, new):
        # One step of rounding is not the row's own.
        assert entry <= block.entry_bound * GRID + 1.0
        yield block, ratio


def tables(d: int, generator: np.random.Generator, many: int) -> list[Floats]:
    """No, one, a few and many other rows, all different or all equal."""
    if many < 30:
        return [np.empty((0, d)), drawn_rows(generator, many, d), np.ones((2, d))]
    return [
        np.empty((0, d)),
        drawn_rows(generator, 1, d),
        drawn_rows(generator, 7, d, "blobs"),
        drawn_rows(generator, many, d),
        np.asfortranarray(drawn_rows(generator, many // 2, d, "blobs")),
        np.ones((many, d)),
        drawn_rows(generator, many, d, "copies"),
    ]


def reference_points(state: State, private_sum: PrivateSum, d: int) -> Floats:
    """What rows are compared with in this round, in the space of the data, as far as
    there is such a thing.
    """
    found = [np.zeros((1, d)), state.centroids[:3]]
    if CENTRE in private_sum.reads and CENTRE in state.extras:
        found.append(state.extras[CENTRE][None])
    if PROXIES in private_sum.reads and state.extras[PROXIES].shape[1] == d:
        found.append(state.extras[PROXIES][:3])
    return np.concatenate(found)


def adversarial_rows(
    state: State, private_sum: PrivateSum, d: int, generator: np.random.Generator
) -> list[Floats]:
    """Corners, the middle, the reference points, rows at the radius from them, and one
    grid step on either side.
    """
    rows: list[Any] = [
        np.ones(d),
        -np.ones(d),
        np.eye(d)[0],
        np.full(d, STEP),
        generator.choice([-1.0, 1.0], d),
    ]
    named = [
        name
        for name in (CLIP, SPREAD, PROXY_RADIUS, RADIUS)
        if name in state.extras and name in private_sum.reads
    ]
    radii = [length for name in named for length in state.extras[name][:2].tolist()] + [
        private_sum.radius or 0.5
    ]
    for place, radius in itertools.product(
        reference_points(state, private_sum, d), radii[:2]
    ):
        rows.append(place)
        reach = min(abs(radius), 4.0)
        direction = generator.normal(size=d)
        # Twice the radius is the end of the first shell.
        for length in (reach, reach - STEP, reach + STEP, 1.2 * reach, 2.0 * reach):
            rows.append(place + direction / np.linalg.norm(direction) * length)
            rows.append(place + np.eye(d)[int(generator.integers(d))] * length)
    rows += list(drawn_rows(generator, 3, d))
    return [on_grid(np.clip(row, -1.0, 1.0)) for row in rows]


def require_bounds(
    private_sum: PrivateSum,
    state: State,
    d: int,
    generator: np.random.Generator,
    many: int,
) -> dict[str, float]:
    """Largest change of each block, over its bound, by one row more.

    Next to every table, at any place of it.
    """
    largest: dict[str, float] = {}
    rows = adversarial_rows(state, private_sum, d, generator)
    for table in tables(d, generator, many):
        old = sent(private_sum, table, state)
        # Next to other rows some suffice: what these do there does not depend on which
        # row it is.
        n_rows = min(
            len(rows) if len(table) == 0 else 16 if len(table) < 10 else 4, len(rows)
        )
        few = [rows[i] for i in generator.choice(len(rows), n_rows, replace=False)]
        for row in few:
            more = np.insert(
                table, int(generator.integers(len(table) + 1)), row, axis=0
            )
            for block, ratio in moved(private_sum, old, sent(private_sum, more, state)):
                assert ratio <= 1.0, (
                    private_sum.name,
                    block.name,
                    len(table),
                    row,
                    ratio,
                )
                largest[block.name] = max(largest.get(block.name, 0.0), ratio)
    return largest


def released(private_sum: PrivateSum, values: Floats) -> ReleasedSum:
    words = np.rint(values * GRID).astype(np.int64).view(np.uint64)
    return as_released(words, private_sum.blocks, FRACTION_BITS)


def any_release(
    private_sum: PrivateSum, size: str, generator: np.random.Generator
) -> ReleasedSum:
    """Whatever may come out of an aggregation, noise alone or a hostile server's
    numbers.
    """
    parts = []
    for block in private_sum.blocks:
        scale = {
            "nothing": 0.0,
            "noise": block.noise_scale,
            "large": 1e6,
            "vast": 2.0**44,
        }.get(size, 1e3)
        values = generator.normal(0.0, scale, block.size)
        fixed = {
            "negative": -np.abs(values),
            "positive": np.abs(values),
            "equal": np.full(block.size, 1e9),
        }
        parts.append(fixed.get(size, values))
    return released(private_sum, np.concatenate(parts))


SIZES = ("nothing", "noise", "large", "vast", "negative", "positive", "equal")


# -- states that follow from releases --------------------------------------------------


# Every size in the plane, and those that go furthest elsewhere.
@pytest.mark.parametrize(
    ("d", "k", "n", "size"),
    [
        (*plan, size)
        for plan in PLANS
        for size in (SIZES if plan[0] == 2 else ("nothing", "noise", "vast"))
    ],
)
def test_one_row_never_moves_a_vector_beyond_its_bound_whatever_was_released(
    d: int, k: int, n: int, size: str
) -> None:
    generator = np.random.default_rng(17 * d + k)
    plan = plan_of(d, k, n)
    algorithm = build_algorithm(plan)
    state = algorithm.initial_state(plan.seed)
    largest: dict[str, float] = {}
    new = {private_sum.name for private_sum in rounds_of(plan)}
    for private_sum in algorithm.rounds:
        # A client takes the state also where the server alone goes on and sends it.
        assert accepted(plan, private_sum, state.view(private_sum.reads))
        # Rounds that are like the one before differ in their state only: with noise,
        # what follows from it.
        if size == "noise" or private_sum.name in new:
            found = require_bounds(private_sum, state, d, generator, 40)
            largest = {
                name: max(largest.get(name, 0.0), found.get(name, 0.0))
                for name in {*largest, *found}
            }
        state = private_sum.advance(state, any_release(private_sum, size, generator))
        require_sound(state, k, d)
    # The bounds are not empty words: some row comes near each, where all rounds were
    # looked at.
    for name, ratio in largest.items() if size == "noise" else ():
        # The ends of shells may lie beyond the box.
        assert ratio > (0.5 if name == "excess_sums" else 0.98), name
        if name in ("counts", "proxy_counts", "row_distances"):
            assert ratio == 1.0


def require_sound(state: State, k: int, d: int) -> None:
    """On the grid and in the ranges in which distances are exact."""
    for name, array in state.extras.items():
        assert np.isfinite(array).all(), name
        assert np.array_equal(np.rint(array * GRID), array * GRID), name
    assert np.array_equal(np.rint(state.centroids * GRID), state.centroids * GRID)
    assert np.abs(state.centroids).max() <= 1.0
    assert state.centroids.shape == (k, d)
    assert np.isfinite(state.counts).all()
    assert all(map(math.isfinite, state.movements))
    assert np.abs(state.extras.get(CENTRE, np.zeros(1))).max() <= 1.0
    assert (
        np.square(state.extras.get(AXES, np.zeros((1, 1)))).sum(axis=0).max() <= 1.01**2
    )
    for name in (PROXIES, PROJECTED_CENTERS):
        if name in state.extras:
            assert np.square(state.extras[name]).sum(axis=1).max() <= (2.02**2) * d, (
                name
            )
    for name in (CLIP, SPREAD, SUBSPACE_SPREAD, PROXY_RADIUS, RADIUS):
        lengths = state.extras.get(name, np.ones(1))
        assert 0.0 < lengths.min() <= lengths.max() <= 4.0 * math.sqrt(d), name


# -- states that a server makes up -----------------------------------------------------


def n_radii(plan: Plan) -> int:
    squares = (
        block
        for one in plan.rounds
        for block in one.blocks
        if block.name == "residual_squares"
    )
    return int(next(squares).shape[0])


def made_up_state(
    plan: Plan, generator: np.random.Generator, radius: float, kind: str
) -> State:
    """Arbitrary axes, proxies and centroids, on the grid and within the ranges that
    clients accept.
    """
    k, d = plan.config.n_clusters, plan.n_features
    assert d is not None
    algorithm = build_algorithm(plan)
    n_proxies, width = next(
        (b.shape for s in algorithm.rounds for b in s.blocks if b.name == "proxy_sums"),
        (3 * k, min(d, 12)),
    )
    reach = {"usual": 0.5, "tied": 0.25, "far": 1e3}[kind]

    def points(rows: int, columns: int, farthest: float) -> Floats:
        if kind == "tied":
            # Many equal ones, and a lattice whose midpoints are on the grid.
            return generator.integers(-2, 3, (rows, columns)) * 0.25
        return clip_rows(
            on_grid(generator.normal(0.0, reach, (rows, columns))), farthest
        )

    farthest = 2.0 * math.sqrt(d)
    named = {
        name: np.array([radius]) for name in (CLIP, SPREAD, RADIUS, SUBSPACE_SPREAD)
    }
    # One of its own for each proxy, and for each cluster where these have some.
    for name, number in ((PROXY_RADIUS, n_proxies), (RADIUS, n_radii(plan))):
        named[name] = np.minimum(
            radius * 2.0 ** (np.arange(number) % 3), 4.0 * math.sqrt(d)
        )
    extras = {
        SEED: np.zeros(1),
        CENTRE: on_grid(np.clip(generator.normal(0.0, reach, d), -1.0, 1.0)),
        PROXIES: points(n_proxies, width, farthest),
        PROJECTED_CENTERS: points(k, width, farthest),
    }
    if width != d or not any(s.name.startswith("proxies") for s in algorithm.rounds):
        extras[AXES] = clip_rows(on_grid(generator.normal(0.0, 1.0, (width, d))), 1.0).T
    centroids = np.clip(points(k, d, farthest), -1.0, 1.0)
    return cluster_state(centroids, np.zeros(k), (), extras | named)


@pytest.mark.parametrize("kind", ["usual", "tied", "far"])
@pytest.mark.parametrize(("d", "k", "n"), PLANS)
def test_one_row_never_moves_a_vector_beyond_its_bound_whatever_a_server_makes_up(
    d: int, k: int, n: int, kind: str
) -> None:
    generator = np.random.default_rng(31 * d + k)
    plan = plan_of(d, k, n)
    # Each radius on a lattice in the plane, and with one kind of points elsewhere.
    turn = ("usual", "tied", "far").index(kind)
    for radius in RADII if (d, kind) == (2, "tied") else RADII[turn::3]:
        state = made_up_state(plan, generator, radius, kind)
        for private_sum in rounds_of(plan):
            require_bounds(private_sum, state, d, generator, 20)


@pytest.mark.parametrize("kind", ["usual", "tied", "far"])
@pytest.mark.parametrize(("d", "k", "n"), PLANS)
def test_one_row_adds_its_clipped_square_to_one_entry(
    d: int, k: int, n: int, kind: str
) -> None:
    """At most 1, and nothing below 0, where the row is counted."""
    generator = np.random.default_rng(13 * d + k)
    plan = plan_of(d, k, n)
    # Each cluster has its own where there is enough to tell them apart, else all have
    # one.
    assert n_radii(plan) == (1 if n < 1000 else k)
    largest = 0
    for radius in RADII:
        state = made_up_state(plan, generator, radius, kind)
        private_sum = next(
            one for one in build_algorithm(plan).rounds if one.name == "refinement-1"
        )
        for table in tables(d, generator, 20):
            old = sent(private_sum, table, state)
            for row in adversarial_rows(state, private_sum, d, generator)[:30]:
                new = sent(private_sum, np.vstack([table, row]), state)
                _, counts, squares = (
                    after - before for before, after in zip(old, new, strict=True)
                )
                assert counts.sum() == GRID
                assert squares.min() >= 0
                assert len(squares) == 1 or not squares[counts == 0].any()
                assert np.count_nonzero(squares) <= 1
                assert squares.sum() <= GRID
                largest = max(largest, int(squares.sum()))
    assert largest > 0.98 * GRID


@pytest.mark.parametrize(("d", "k", "n"), PLANS)
def test_bounds_hold_where_the_server_has_points(d: int, k: int, n: int) -> None:
    """Then the location round has their centre and radius, which are public."""
    generator = np.random.default_rng(d)
    plan = plan_of(d, k, n, with_server=True)
    for radius in (0.0, 0.5):
        state = made_up_state(plan, generator, radius, "usual")
        for private_sum in build_algorithm(plan).rounds[: 1 if radius else None]:
            require_bounds(private_sum, state, d, generator, 20)


# d, k, M: one pass, three passes, and none.
CLIENT_PLANS = [(1, 1, 2000), (2, 4, 3000), (9, 4, 20_000), (30, 3, 20_000), (3, 5, 20)]


@pytest.mark.parametrize("kind", ["usual", "tied", "far"])
@pytest.mark.parametrize(("d", "k", "n_clients"), CLIENT_PLANS)
def test_one_client_never_moves_a_vector_beyond_its_bound(
    d: int, k: int, n_clients: int, kind: str
) -> None:
    """Its table is replaced by the empty one."""
    generator = np.random.default_rng(7 * d + k)
    plan = plan_of(d, k, 0, "client", n_clients)
    for radius in (*RADII, 0.375):
        state = made_up_state(plan, generator, radius, kind)
        for private_sum in rounds_of(plan):
            nothing = sent(private_sum, np.empty((0, d)), state)
            rows = np.array(adversarial_rows(state, private_sum, d, generator))
            for table in [
                *tables(d, generator, 60),
                rows,
                np.repeat(rows[-1:], 40, axis=0),
                rows[:1],
            ]:
                for block, ratio in moved(
                    private_sum, nothing, sent(private_sum, table, state)
                ):
                    assert block.sensitivity.unit is PrivacyUnit.CLIENT
                    assert ratio <= 1.0, (
                        private_sum.name,
                        block.name,
                        len(table),
                        ratio,
                    )


@quick
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(0, 40),
    shape=st.sampled_from(("box", "corners", "tiny", "copies", "blobs")),
    case=st.sampled_from(PLANS[:5]),
    kind=st.sampled_from(("usual", "tied", "far")),
    radius=st.floats(-1.0, 1e6) | st.floats(0.0, 2.0),
)
def test_bounds_hold_for_whatever_is_drawn(
    seed: int,
    n_rows: int,
    shape: str,
    case: tuple[int, int, int],
    kind: str,
    radius: float,
) -> None:
    generator = np.random.default_rng(seed)
    plan, d = plan_of(*case), case[0]
    state = made_up_state(plan, generator, radius, kind)
    table = drawn_rows(generator, n_rows, d, shape)
    row = drawn_rows(
        generator, 1, d, str(generator.choice(["box", "corners", "tiny", "blobs"]))
    )
    more = np.insert(table, int(generator.integers(n_rows + 1)), row[0], axis=0)
    for private_sum in rounds_of(plan):
        for block, ratio in moved(
            private_sum, sent(private_sum, table, state), sent(private_sum, more, state)
        ):
            assert ratio <= 1.0, (private_sum.name, block.name)


@pytest.mark.parametrize(("d", "k", "n"), PLANS)
def test_one_rows_part_does_not_depend_on_the_others(d: int, k: int, n: int) -> None:
    """The statistic of a table is the sum of its rows' own."""
    generator = np.random.default_rng(d)
    plan = plan_of(d, k, n)
    for kind, radius in (("usual", 0.6), ("tied", 0.25), ("far", 2.0**-12)):
        state = made_up_state(plan, generator, radius, kind)
        table = drawn_rows(generator, 60, d, "blobs" if kind == "usual" else "box")
        for private_sum in build_algorithm(plan).rounds:
            whole = sent(private_sum, np.asfortranarray(table), state)
            single = [sent(private_sum, row[None], state) for row in table]
            for block, together, *parts in zip(
                private_sum.blocks, whole, *single, strict=True
            ):
                slack = len(table) if block.name == "unit_outer_product" else 0
                assert np.abs(together - np.sum(parts, axis=0)).max() <= slack, (
                    block.name
                )


@pytest.mark.parametrize("kind", ["tied", "usual"])
@pytest.mark.parametrize(("d", "k", "n"), [(2, 4, 4000), (9, 4, 20_000)])
def test_another_search_for_large_tables_finds_the_same_labels(
    kind: str, d: int, k: int, n: int
) -> None:
    """Beyond 2^20 distances another is used; one row more moves no other's label."""
    plan = plan_of(d, k, n)
    private_sum = next(s for s in build_algorithm(plan).rounds if s.name == "proxies-1")
    n_rows = 2**20 // private_sum.blocks[0].shape[0]
    generator = np.random.default_rng(0)
    state = made_up_state(plan, generator, 0.4, kind)
    table = drawn_rows(generator, n_rows + 1, d, "box")
    if kind == "tied":
        table[:] = 0.125
    old = sent(private_sum, table[:-1], state)
    new = sent(private_sum, table, state)
    for block, ratio in moved(private_sum, old, new):
        assert ratio <= 1.0, block.name


def test_sums_over_a_million_rows_are_exact() -> None:
    """One row more changes them by that row's own part, to the last bit."""
    plan = plan_of(2, 4, 4000)
    generator = np.random.default_rng(1)
    state = made_up_state(plan, generator, 0.3, "usual")
    table, row = drawn_rows(generator, 1_000_000, 2), np.array([[1.0, -0.3]])
    row = on_grid(row)
    more = np.vstack([table, row])
    for private_sum in build_algorithm(plan).rounds[2:6]:
        old, new, own = (sent(private_sum, part, state) for part in (table, more, row))
        for block, before, after, single in zip(
            private_sum.blocks, old, new, own, strict=True
        ):
            assert int(np.abs(after - before - single).max()) <= int(
                block.name == "unit_outer_product"
            ), block.name
            assert norm_over_bound(after - before, block) <= 1.0


def test_rounding_moves_the_outer_product_by_more_than_the_row_does() -> None:
    """Entries just below half a step."""
    d = 9
    plan = plan_of(9, 4, 20_000)
    private_sum = next(
        s for s in build_algorithm(plan).rounds if s.name == "covariance"
    )
    size = d * (d + 1) // 2
    bound = Fraction(private_sum.blocks[0].sensitivity.bound)
    assert (
        1 + Fraction(math.sqrt(size)) / 2**16
        <= bound
        <= 1 + Fraction(1.06 * math.sqrt(size)) / 2**16
    )
    state = made_up_state(plan, np.random.default_rng(0), 1.0 / 1.2, "usual")
    state.extras[CENTRE][:] = 0.0
    # Divided by a radius of 1, shaded and rounded toward zero: 152 and 9 steps.
    table, row = np.full((1, d), 153 / GRID), np.full((1, d), 10 / GRID)
    old, new = (
        sent(private_sum, table, state),
        sent(private_sum, np.vstack([table, row]), state),
    )
    change = new[0] - old[0]
    assert change.max() == 1
    # The row's own outer product is far below one step in each entry.
    assert d * (9 / GRID) ** 2 < 0.1 * math.sqrt(int((change**2).sum())) / GRID


def test_duplicates_move_a_vector_as_often_as_they_are_counted() -> None:
    plan = plan_of(2, 4, 4000)
    state = made_up_state(plan, np.random.default_rng(2), 0.4, "usual")
    row = on_grid([[0.9, -1.0]])
    for private_sum in build_algorithm(plan).rounds:
        nothing = sent(private_sum, np.empty((0, 2)), state)
        for n in (1, 2, 50):
            new = sent(private_sum, np.repeat(row, n, axis=0), state)
            for block, before, after in zip(
                private_sum.blocks, nothing, new, strict=True
            ):
                ratio = norm_over_bound(after - before, block)
                assert ratio <= n
                # A row within the radius has no excess.
                assert ratio > 0.0 or block.name == "excess_sums"


def test_one_row_of_a_client_may_move_its_vector_by_two_bounds() -> None:
    """Client level is about a table or none."""
    plan = plan_of(2, 1, 0, "client", 1000)
    state = cluster_state(np.zeros((1, 2)), np.zeros(1), (), {RADIUS: np.array([1.0])})
    private_sum = next(
        one for one in build_algorithm(plan).rounds if one.name == "refinement-1"
    )
    before, after = (
        sent(private_sum, on_grid(rows), state)
        for rows in ([[0.5, 0.0]], [[0.5, 0.0], [-1.0, 0.0]])
    )
    ratios = [
        norm_over_bound(b - a, block)
        for block, a, b in zip(private_sum.blocks, before, after, strict=True)
    ]
    assert 1.99 < max(ratios) <= 2.0


@pytest.mark.parametrize(("d", "k", "n"), PLANS)
def test_an_empty_client_sends_exact_zeros(d: int, k: int, n: int) -> None:
    plan = plan_of(d, k, n)
    state = made_up_state(plan, np.random.default_rng(2), 0.4, "usual")
    for private_sum in build_algorithm(plan).rounds:
        assert not any(
            array.any() for array in sent(private_sum, np.empty((0, d)), state)
        )


# -- states that do not fit the plan at all --------------------------------------------


def answers(
    private_sum: PrivateSum, state: State, all_tables: list[Floats]
) -> list[list[Steps] | None]:
    found: list[list[Steps] | None] = []
    for table in all_tables:
        try:
            found.append(sent(private_sum, table, state))
        except DPKMeansError:
            found.append(None)
    return found


@pytest.mark.parametrize("which", [PROXIES, PROJECTED_CENTERS, "centroids"])
@pytest.mark.parametrize(("d", "k", "n"), [(2, 4, 4000), (9, 4, 20_000)])
def test_whether_a_client_can_answer_never_depends_on_its_rows(
    d: int, k: int, n: int, which: str
) -> None:
    """More proxies, centres or centroids than planned."""
    plan = plan_of(d, k, n)
    generator = np.random.default_rng(0)
    for private_sum in build_algorithm(plan).rounds[4:6]:
        state = made_up_state(plan, generator, 0.4, "usual")
        extra = state.extras.get(which, state.centroids)
        wide = np.concatenate([extra, np.full((1, extra.shape[1]), 0.9)])
        if which == "centroids":
            state = cluster_state(wide, np.zeros(len(wide)), (), state.extras)
        else:
            state = cluster_state(
                state.centroids, state.counts, (), {**state.extras, which: wide}
            )
        rows = [
            np.empty((0, d)),
            np.zeros((3, d)),
            np.full((3, d), 0.9),
            drawn_rows(generator, 200, d),
        ]
        found = answers(private_sum, state, rows)
        assert len({answer is None for answer in found}) == 1, (private_sum.name, which)


def accepted(plan: Plan, private_sum: PrivateSum, state: State) -> bool:
    """Whether a client takes this state from the server for this round."""
    index = next(
        i
        for i, planned in enumerate(build_algorithm(plan).rounds, start=1)
        if planned.name == private_sum.name
    )
    try:
        require_server_state(plan, index, state)
    except ProtocolError:
        return False
    return True


def whole(private_sum: PrivateSum, points: Floats, state: State) -> list[Steps]:
    """What is sent if a client hands the statistic everything that the server sent."""
    return [
        encode(np.ravel(array)).values.view(np.int64)
        for array in private_sum.statistic(points, state)
    ]


def worst_change(
    plan: Plan, private_sum: PrivateSum, state: State, generator: np.random.Generator
) -> float:
    """Largest change by one row, over the bound.

    0 where the state is refused before rows are looked at.
    """
    if not accepted(plan, private_sum, state):
        return 0.0
    worst, d = 0.0, state.centroids.shape[1]
    for n in (1, 3, 4, 7, 8, 15):
        table = drawn_rows(generator, n + 1, d)
        old, new = (
            whole(private_sum, table[1:], state),
            whole(private_sum, table, state),
        )
        worst = max(worst, *(ratio for _, ratio in moved(private_sum, old, new)))
    return worst


def nearly_equal(generator: np.random.Generator, rows: int, width: int) -> Floats:
    """Points that differ by rounding errors only.

    Each row's nearest one is decided by the order in which a matrix product adds up,
    which depends on how many rows there are.
    """
    found: Floats = generator.normal(size=width) * (
        1.0 + generator.normal(size=(rows, 1)) * 2e-16
    )
    return found


@pytest.mark.parametrize("d", [2, 9])
def test_no_state_that_a_client_accepts_lets_a_row_move_other_rows_labels(
    d: int,
) -> None:
    plan = plan_of(d, 4, 4000 if d == 2 else 20_000)
    private_sum = next(s for s in build_algorithm(plan).rounds if s.name == "proxies-1")
    n_proxies, width = private_sum.blocks[0].shape
    for seed in range(20):
        generator = np.random.default_rng(seed)
        state = made_up_state(plan, generator, 0.375, "usual")
        extras = {**state.extras, PROXIES: nearly_equal(generator, n_proxies, width)}
        if AXES in extras:
            extras |= {
                AXES: generator.normal(size=(d, width)),
                CENTRE: generator.normal(size=d),
            }
        state = cluster_state(state.centroids, state.counts, (), extras).view(
            private_sum.reads
        )
        assert worst_change(plan, private_sum, state, generator) <= 1.0


def test_no_extra_that_is_not_asked_for_lets_a_row_move_other_rows_labels() -> None:
    """A narrow table has no axes."""
    d = 8
    plan = plan_of(d, 3, 20_000)
    rounds = build_algorithm(plan).rounds
    n_proxies = rounds[4].blocks[0].shape[0]
    for seed in range(20):
        generator = np.random.default_rng(seed)
        state = made_up_state(plan, generator, 0.375, "usual")
        # All proxies at nearly the same distance from everywhere: only the third last
        # digits of rows matter.
        proxies = np.repeat(
            on_grid(generator.normal(0.0, 0.3, (1, d))), n_proxies, axis=0
        )
        proxies[:, 0] += generator.integers(-1, 2, n_proxies) / GRID
        axes = generator.normal(size=(d, d)) * 1e9
        extras = {**state.extras, PROXIES: proxies, AXES: axes}
        for private_sum in rounds[4:6]:
            smuggled = cluster_state(state.centroids, state.counts, (), extras)
            plain = cluster_state(
                state.centroids,
                state.counts,
                (),
                {n: extras[n] for n in private_sum.reads},
            )
            assert worst_change(plan, private_sum, smuggled, generator) <= 1.0
            assert accepted(plan, private_sum, plain)
            if accepted(plan, private_sum, smuggled):
                table = drawn_rows(generator, 9, d)
                for one, other in zip(
                    whole(private_sum, table, smuggled),
                    whole(private_sum, table, plain),
                    strict=True,
                ):
                    assert np.array_equal(one, other), "what was not asked for was used"
