"""FedDP-KMeans' sensitivities by brute force.

No neighbour, and no server state, moves a vector beyond its bound.

Everything is compared in integers: the vectors are the ones that are put into the ring,
and bounds are fractions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.grid_values import GRID, on_grid
from support.moved_vectors import changes, drawn_rows, sent

from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import DPKMeansError, ProtocolError
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.outer_products import outer_product_triangle
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import Block
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.verify import require_server_state, verify_plan
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
STEP = 1.0 / GRID
UNITS = ("record", "client")
KINDS = ("gaussian", "paper")
WIDE = 50.0
"""A radius that reaches beyond every corner of the box, seen from every centre."""

quick = settings(max_examples=30)


def facts_of(
    d: int,
    n_points: int,
    *,
    clip: bool,
    unit: str,
    centre: Sequence[float] | None = None,
) -> ServerFacts:
    """Bounds that cut off much of the box, or nothing of it."""
    place = (
        tuple(centre)
        if centre is not None
        else tuple(float(c) for c in on_grid(np.linspace(-0.3, 0.4, d)))
    )
    if not clip:
        reach = 4.0 * d
        return ServerFacts(
            n_points, place, WIDE, WIDE**2, 1e6, reach * 10, 100.0, reach * 1e4, 1e6
        )
    if unit == "record":
        return ServerFacts(n_points, place, 0.7000001, 0.3141593)
    return ServerFacts(
        n_points,
        place,
        0.7000001,
        1.2345678,
        2.7182818,
        0.5772157,
        1.4142136,
        0.6931472,
        1.6180340,
    )


def plan_of(
    d: int,
    k: int,
    n_points: int,
    *,
    unit: str,
    kind: str = "gaussian",
    facts: ServerFacts,
    **values: Any,
) -> Plan:
    config = parse_config(
        **(
            {
                "n_clusters": k,
                "bounds": ((-1.0,), (1.0,)),
                "algorithm": "feddp_kmeans",
                "trust": "central",
                "unit": unit,
                "noise_kind": kind,
                "max_iter": 1,
            }
            | values
        )
    )
    assert facts.n_points == n_points
    return draft_plan(config, run_id=1, n_clients=5, seed=3, n_features=d, server=facts)


def hostile_state(
    plan: Plan,
    generator: np.random.Generator,
    scale: float,
    *,
    n_centers: int | None = None,
) -> Any:
    """Whatever a client takes from a server.

    No projection in any sense, points and centroids anywhere in range.
    """
    k, d = plan.config.n_clusters, plan.n_features
    assert d is not None
    assert plan.server is not None
    columns = min(k, d)
    rows = k if n_centers is None else n_centers
    farthest = 2.0 * math.sqrt(d)
    extras = {
        "projection": (
            clip_rows(on_grid(generator.normal(0.0, scale, (columns, d))), 1.0).T
        ),
        "projected_points": clip_rows(
            on_grid(generator.normal(0.0, scale, (plan.server.n_points, columns))),
            farthest,
        ),
        "projected_centers": clip_rows(
            on_grid(generator.normal(0.0, scale, (rows, columns))), farthest
        ),
    }
    centroids = on_grid(np.clip(generator.normal(0.0, scale, (rows, d)), -1.0, 1.0))
    return cluster_state(centroids, np.zeros(rows), (), extras)


def accepted(plan: Plan, state: State) -> bool:
    """Whether a client takes this state from the server, for every round what its
    statistic reads.
    """
    try:
        for index, private_sum in enumerate(build_algorithm(plan).rounds, start=1):
            require_server_state(plan, index, state.view(private_sum.reads))
    except ProtocolError:
        return False
    return True


def moved(
    private_sum: PrivateSum, before: Floats, after: Floats, state: State
) -> Iterator[tuple[Block, float, int]]:
    """The same from one table to another one."""
    return changes(
        private_sum, sent(private_sum, before, state), sent(private_sum, after, state)
    )


def adversarial_rows(
    facts: ServerFacts, radii: Sequence[float], generator: np.random.Generator
) -> Floats:
    """Corners, the middle, the centre, rows at each radius from the centre and one grid
    step on either side.
    """
    d = len(facts.centre)
    centre = np.asarray(facts.centre)
    rows: list[Any] = [
        list(corner)
        for corner in itertools.islice(itertools.product((-1.0, 1.0), repeat=d), 16)
    ]
    rows += [[0.0] * d, centre, [1.0] + [0.0] * (d - 1), [STEP] * d]
    for radius, _ in itertools.product(radii, range(2)):
        direction = generator.normal(size=d)
        for length in (radius, radius - STEP, radius + STEP, radius / 2):
            rows.append(centre + direction / np.linalg.norm(direction) * length)
            rows.append(centre + np.eye(d)[int(generator.integers(d))] * length)
    return on_grid(np.clip(rows, -1.0, 1.0))


CASES = [(1, 1, 3), (2, 2, 5), (2, 4, 7), (5, 3, 9)]


def base_tables(d: int, generator: np.random.Generator) -> list[Floats]:
    return [
        np.empty((0, d)),
        on_grid(generator.uniform(-1, 1, (1, d))),
        on_grid(generator.uniform(-1, 1, (13, d))),
        np.ones((7, d)),
    ]


# -- record level ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize(("d", "k", "n_points"), CASES)
def test_one_row_never_moves_a_vector_beyond_its_bound(
    d: int, k: int, n_points: int, clip: bool, kind: str
) -> None:
    generator = np.random.default_rng(17 * d + k)
    facts = facts_of(d, n_points, clip=clip, unit="record")
    plan = plan_of(
        d,
        k,
        n_points,
        unit="record",
        kind=kind,
        facts=facts,
        margin=0.6 if d == 5 else 1.0,
    )
    radii = (facts.data_radius, math.sqrt(facts.outer_product_bound))
    rows = adversarial_rows(facts, radii if clip else (1.0,), generator)
    largest: dict[str, float] = {}
    for scale in (0.5, 1e5):
        state = hostile_state(plan, generator, scale)
        assert accepted(plan, state)
        for private_sum in build_algorithm(plan).rounds:
            for table in base_tables(d, generator):
                old = sent(private_sum, table, state)
                for row in rows:
                    place = int(generator.integers(len(table) + 1))
                    more = np.insert(table, place, row, axis=0)
                    for block, ratio, entry in changes(
                        private_sum, old, sent(private_sum, more, state)
                    ):
                        assert ratio <= 1.0, (private_sum.name, block.name, row, ratio)
                        # One step of rounding is not the row's own.
                        assert entry <= block.entry_bound * GRID + 1.0
                        largest[block.name] = max(largest.get(block.name, 0.0), ratio)
    assert set(largest) == {"outer_product", "weights", "clipped_sums", "counts"}
    assert largest["weights"] == 1.0
    assert largest["counts"] == 1.0
    if clip:
        # The bounds are not empty words: some row comes near each.
        assert all(value > 0.99 for value in largest.values())


def test_rounding_moves_the_outer_product_by_more_than_the_row_does() -> None:
    """Every entry off the diagonal is just below half a step."""
    d = 11
    facts = ServerFacts(4, (0.0,) * d, 1.0, 2.0**-14)
    plan = plan_of(d, 2, 4, unit="record", facts=facts)
    private_sum = build_algorithm(plan).rounds[0]
    state = hostile_state(plan, np.random.default_rng(0), 1.0)
    size = d * (d + 1) // 2
    bound = Fraction(private_sum.blocks[0].sensitivity.bound) * 2**16
    assert (
        4 + Fraction(math.sqrt(size)) <= bound <= 4 + Fraction(1.05 * math.sqrt(size))
    )
    table, row = np.full((1, d), 152 / GRID), np.full((1, d), 9 / GRID)
    (_, ratio, entry), *_ = moved(private_sum, table, np.vstack([table, row]), state)
    assert entry == 1
    # Beyond the row's own largest Frobenius norm, four steps: the slack is needed, and
    # it suffices.
    assert 4 < ratio * bound <= math.sqrt(size)


@pytest.mark.parametrize("kind", KINDS)
def test_duplicates_move_a_vector_as_often_as_they_are_counted(kind: str) -> None:
    """n copies of one row move it by at most n bounds, as group privacy says."""
    facts = facts_of(3, 6, clip=True, unit="record")
    plan = plan_of(3, 2, 6, unit="record", kind=kind, facts=facts)
    state = hostile_state(plan, np.random.default_rng(2), 0.7)
    row = on_grid([[0.9, -1.0, 1.0]])
    for private_sum in build_algorithm(plan).rounds:
        for n in (1, 2, 50):
            for _, ratio, _ in moved(
                private_sum, np.empty((0, 3)), np.repeat(row, n, axis=0), state
            ):
                assert 0.0 < ratio <= n


tables = st.integers(0, 2**32 - 1).flatmap(
    lambda seed: st.tuples(
        st.just(seed),
        st.integers(0, 30),
        st.sampled_from(("box", "corners", "tiny", "copies")),
    )
)


def drawn_facts(
    generator: np.random.Generator, d: int, n_points: int, unit: str
) -> ServerFacts:
    def size(low: float = -7.0, high: float = 2.5) -> float:
        return float(f"{10.0 ** generator.uniform(low, high):.12g}")

    centre = tuple(float(c) for c in on_grid(generator.uniform(-1.0, 1.0, d)))
    if unit == "record":
        return ServerFacts(n_points, centre, size(-3), size(-5))
    return ServerFacts(
        n_points,
        centre,
        size(-3),
        size(-3),
        size(-2, 3),
        size(-3),
        size(-2, 2),
        size(-3),
        size(-2, 3),
    )


@quick
@given(
    table=tables,
    d=st.integers(1, 6),
    k=st.integers(1, 5),
    scale=st.sampled_from((1e-4, 0.3, 1.0, 1e3, 1e9)),
    kind=st.sampled_from(KINDS),
    margin=st.sampled_from((1.0, 0.5, 1e-3)),
)
def test_record_level_bounds_hold_for_whatever_is_drawn(
    table: tuple[int, int, str], d: int, k: int, scale: float, kind: str, margin: float
) -> None:
    seed, n, shape = table
    generator = np.random.default_rng(seed)
    n_points = k + int(generator.integers(0, 6))
    facts = drawn_facts(generator, d, n_points, "record")
    plan = plan_of(
        d,
        k,
        n_points,
        unit="record",
        kind=kind,
        facts=facts,
        margin=margin,
        epsilon=1e-2,
    )
    state = hostile_state(
        plan, generator, scale, n_centers=int(generator.integers(1, k + 1))
    )
    points = drawn_rows(generator, n, d, shape)
    row = drawn_rows(generator, 1, d, str(generator.choice(["box", "corners", "tiny"])))
    more = np.insert(points, int(generator.integers(n + 1)), row[0], axis=0)
    for private_sum in build_algorithm(plan).rounds:
        for block, ratio, _ in moved(private_sum, points, more, state):
            assert ratio <= 1.0, (private_sum.name, block.name)


# -- client level ----------------------------------------------------------------------


def client_tables(
    d: int, facts: ServerFacts, generator: np.random.Generator
) -> list[Floats]:
    rows = adversarial_rows(facts, (facts.data_radius,), generator)
    corners = on_grid(generator.choice([-1.0, 1.0], (400, d)))
    found = [
        rows,
        corners,
        np.ones((5000, d)),
        np.repeat(rows[:1], 3, axis=0),
        rows * 0.0,
        rows * STEP,
    ]
    return [on_grid(table) for table in found] + [on_grid(row[None]) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize(("d", "k", "n_points"), CASES)
def test_one_client_never_moves_a_vector_beyond_its_bound(
    d: int, k: int, n_points: int, clip: bool, kind: str
) -> None:
    generator = np.random.default_rng(31 * d + k)
    facts = facts_of(d, n_points, clip=clip, unit="client")
    plan = plan_of(d, k, n_points, unit="client", kind=kind, facts=facts)
    largest: dict[str, float] = {}
    for scale in (0.5, 1e5):
        state = hostile_state(plan, generator, scale)
        assert accepted(plan, state)
        for private_sum in build_algorithm(plan).rounds:
            nothing = sent(private_sum, np.empty((0, d)), state)
            for table in client_tables(d, facts, generator):
                for block, ratio, entry in changes(
                    private_sum, nothing, sent(private_sum, table, state)
                ):
                    assert ratio <= 1.0, (private_sum.name, block.name, ratio)
                    assert entry <= block.entry_bound * GRID
                    largest[block.name] = max(largest.get(block.name, 0.0), ratio)
    assert set(largest) == {
        "outer_product",
        "weights",
        "means",
        "indicators",
        "clipped_sums",
        "counts",
    }
    if clip:
        # Means and indicators share one factor, so with few clusters only one of the
        # two reaches its bound.
        assert largest["outer_product"] > 0.999
        assert largest["weights"] > 0.999
        assert max(largest["means"], largest["indicators"]) > 0.999
        assert max(largest["clipped_sums"], largest["counts"]) > 0.999
    else:
        assert largest["weights"] < 1.0


@quick
@given(
    table=tables,
    d=st.integers(1, 6),
    k=st.integers(1, 5),
    scale=st.sampled_from((1e-4, 0.3, 1.0, 1e3, 1e9)),
    kind=st.sampled_from(KINDS),
)
def test_client_level_bounds_hold_for_whatever_is_drawn(
    table: tuple[int, int, str], d: int, k: int, scale: float, kind: str
) -> None:
    seed, n, shape = table
    generator = np.random.default_rng(seed)
    n_points = k + int(generator.integers(0, 6))
    facts = drawn_facts(generator, d, n_points, "client")
    plan = plan_of(d, k, n_points, unit="client", kind=kind, facts=facts, epsilon=1e-2)
    state = hostile_state(
        plan, generator, scale, n_centers=int(generator.integers(1, k + 1))
    )
    points = drawn_rows(generator, n * 10, d, shape)
    for private_sum in build_algorithm(plan).rounds:
        for block, ratio, _ in moved(private_sum, np.empty((0, d)), points, state):
            assert ratio <= 1.0, (private_sum.name, block.name)


@pytest.mark.parametrize("nudge", [-1e-9, 0.0, 1e-9])
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_exactly_at_the_bound(kind: str, nudge: float) -> None:
    """Norms that are right triangles: 0.75, 1, 1.25."""
    order = 1 if kind == "paper" else 2
    histogram = 7.0 if order == 1 else 5.0
    facts = ServerFacts(
        *(2, (0.0, 0.0), 1.25, 1.5625 * (1 + nudge), histogram * (1 + nudge)),
        *(1.25 * (1 + nudge), 2.0 * (1 + nudge), 1.25 * (1 + nudge), 2.0 * (1 + nudge)),
    )
    plan = plan_of(2, 2, 2, unit="client", kind=kind, facts=facts)
    extras = {
        "projection": np.eye(2),
        "projected_points": np.array([[0.75, 1.0], [-1.0, -1.0]]),
        "projected_centers": np.array([[0.75, 1.0], [-1.0, -1.0]]),
    }
    state = cluster_state(extras["projected_centers"], np.zeros(2), (), extras)
    outer, weights, centers, lloyd = build_algorithm(plan).rounds
    row = np.array([[0.75, 1.0]])
    # Three rows near the first server point, four near the second one.
    rows = np.repeat([[0.75, 1.0], [-1.0, -0.75]], [3, 4], axis=0)
    nothing = np.empty((0, 2))
    for private_sum, table in (
        (outer, row),
        (weights, rows),
        (centers, row),
        (lloyd, row),
        (centers, rows),
    ):
        for block, ratio, _ in moved(private_sum, nothing, table, state):
            assert ratio <= 1.0
            assert block.name in ("indicators", "counts") or ratio > 0.99


def test_a_row_exactly_at_the_radius_is_kept_and_one_step_beyond_is_pulled_in() -> None:
    at, beyond = np.array([[0.75, 1.0]]), np.array([[0.75, 1.0 + STEP]])
    assert np.array_equal(clip_rows(at, 1.25), at)
    pulled = clip_rows(beyond, 1.25)
    assert not np.array_equal(pulled, beyond)
    for radius, row in ((1.25, pulled), (1.25 - 1e-12, clip_rows(at, 1.25 - 1e-12))):
        assert sum(Fraction(v) ** 2 for v in row.ravel()) <= Fraction(radius) ** 2


# -- nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("margin", [1.0, 0.3])
def test_an_empty_client_sends_exact_zeros(unit: str, kind: str, margin: float) -> None:
    facts = facts_of(3, 6, clip=True, unit=unit)
    plan = plan_of(
        3, 4, 6, unit=unit, kind=kind, facts=facts, margin=margin, max_iter=2
    )
    state = hostile_state(plan, np.random.default_rng(1), 3.0, n_centers=2)
    for private_sum in build_algorithm(plan).rounds:
        for array in private_sum.statistic(np.empty((0, 3)), state):
            assert not encode(np.ravel(array)).values.any()


# -- what a server may not do ----------------------------------------------------------


def near_tie_state(plan: Plan, n_points: int) -> tuple[State, Floats]:
    """An ordinary state on the grid, and a row whose two nearest server points differ
    by 2^-48 in their scores.
    """
    projection = np.array([[STEP], [1.0]])
    points = np.full((n_points, 1), 0.9)
    points[0], points[1] = 0.0, STEP
    centers = on_grid(points[: plan.config.n_clusters])
    extras = {
        "projection": projection,
        "projected_points": on_grid(points),
        "projected_centers": centers,
    }
    row = np.array([[(2**15 + 1) / GRID, 0.0]])
    return (
        cluster_state(np.zeros((len(centers), 2)), np.zeros(len(centers)), (), extras),
        row,
    )


def test_one_row_never_moves_labels_of_others_when_a_table_grows_beyond_a_block() -> (
    None
):
    """1024 copies of a row and 1024 server points are 2^20 distances."""
    n_points, n_rows = 1024, 1024
    facts = ServerFacts(n_points, (0.0, 0.0), 2.0, 1.0)
    plan = plan_of(2, 1, n_points, unit="record", facts=facts)
    state, row = near_tie_state(plan, n_points)
    assert accepted(plan, state)
    table = np.repeat(row, n_rows, axis=0)
    weights = build_algorithm(plan).rounds[1]
    (_, ratio, _), *_ = moved(weights, table, np.vstack([table, [[0.0, 0.0]]]), state)
    assert ratio <= 1.0


def test_no_state_that_a_client_accepts_lets_a_row_move_other_rows_labels() -> None:
    """A hostile server sends centres that differ by rounding errors only."""
    d, k, n_points = 20, 5, 50
    facts = ServerFacts(n_points, (0.0,) * d, 9.0, 1.0)
    plan = plan_of(d, k, n_points, unit="record", facts=facts)
    weights = build_algorithm(plan).rounds[1]
    worst = 0.0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        extras = {
            "projection": generator.normal(size=(d, k)),
            "projected_points": (
                generator.normal(size=k)
                * (1.0 + generator.normal(size=(n_points, 1)) * 2e-16)
            ),
            "projected_centers": generator.normal(size=(k, k)),
        }
        state = cluster_state(np.zeros((k, d)), np.zeros(k), (), extras)
        if not accepted(plan, state):
            continue
        for n in (1, 3, 4, 7, 8, 15):
            table = on_grid(generator.uniform(-1, 1, (n + 1, d)))
            worst = max(
                worst,
                *(ratio for _, ratio, _ in moved(weights, table[1:], table, state)),
            )
    assert worst <= 1.0


def test_no_plan_makes_whether_a_client_can_answer_depend_on_its_rows() -> None:
    """Between grid points odd sums cannot be sent."""
    try:
        facts = facts_of(2, 4, clip=False, unit="record", centre=(STEP / 2, 0.0))
        plan = plan_of(2, 2, 4, unit="record", facts=facts)
        verify_plan(plan)
    except DPKMeansError:
        return
    state = hostile_state(plan, np.random.default_rng(0), 1.0)
    answers = []
    for n in (1, 2, 3, 4):
        try:
            for private_sum in build_algorithm(plan).rounds:
                sent(private_sum, np.full((n, 2), 0.25), state)
            answers.append(True)
        except DPKMeansError:
            answers.append(False)
    assert len(set(answers)) == 1


def test_the_outer_product_of_a_large_table_is_exact_before_it_is_rounded() -> None:
    """Within half of 0.001 of a grid step."""
    n, d = 2**20, 6
    integers = (
        np.random.default_rng(0).integers(131072 - 400, 131073, (n, d)).astype(np.int32)
    )
    triangle = outer_product_triangle(integers / GRID)
    # Diagonal entries need no square root of two.
    places = np.cumsum([0, *range(d, 1, -1)])
    exact = [int((integers[:, j].astype(np.int64) ** 2).sum()) for j in range(d)]
    errors = [
        abs(Fraction(float(triangle[p])) * 2**32 - e) / 2**16
        for p, e in zip(places, exact, strict=True)
    ]
    assert max(errors) <= Fraction(1, 2000)
