"""Rows with weights, in every round of every registered algorithm.

Rows of one unit, such as a person, have weights that add up to at most 1: then the unit
moves no array by more than its declared bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.drafts import draft_of
from support.limits import SetLimits
from test_contract import SERVER_DATA, SUPPORTED
from test_declared_sensitivities import WIDTH, seen_of

from flwr_dpkmeans import Schema
from flwr_dpkmeans.algorithms.feddp.appendix.parting import PARTS, SHIFTS, ZOOM
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_POINTS,
    SERVER_POINTS,
    cluster_state,
    seeded_state,
)
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kernels.grid import round_to_grid, toward_zero
from flwr_dpkmeans.kernels.outer_products import outer_product_sums
from flwr_dpkmeans.kernels.residual_sums import unit_residuals
from flwr_dpkmeans.kernels.triangles import triangle_of
from flwr_dpkmeans.kernels.vectors import weighted
from flwr_dpkmeans.options import flat_options, read_config, schema_settings
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State
from flwr_dpkmeans.sums.task import TASKS
from simulations.audit.watched import Seen, run_watched

Array = NDArray[np.float64]
Arrays = Sequence[Array]
GRID = 2.0**16
NO_TABLES = {"array_sum", "exact_array_sum"}
"""Sums of what an app answers, which are of no rows."""
ROUNDED_ONCE = {"outer_product", "unit_outer_product"}
"""Of these a client's whole sum is rounded, for which its bound has room."""


@dataclass(frozen=True)
class Weighed:
    """One round at one state."""

    name: str
    blocks: Sequence[Block]
    width: int
    arrays: Callable[[Array, Array | None], Arrays]
    """``arrays(points, weights) -> arrays``; labels are the last column, if any."""


def of_step(
    name: str,
    step: PrivateSum,
    state: State,
    width: int,
    *,
    n_classes: int = 0,
) -> Weighed:
    """A round whose tables have a last column of labels, if there are classes."""

    def arrays(points: Array, weights: Array | None) -> Arrays:
        if not n_classes:
            return step.arrays_of(points, state, weights=weights)
        # Labels from -1, which is none, to one that is not declared.
        labels = np.rint((points[:, -1] + 1.0) / 2.0 * (n_classes + 1)) - 1.0
        of_rows = labels.astype(np.int64)
        return step.arrays_of(points[:, :-1], state, of_rows, weights=weights)

    return Weighed(f"{name}: {step.name}", step.blocks, width, arrays)


def of_clustering(algorithm: str, kind: str) -> Iterator[Weighed]:
    """All rounds of a run, with those that find bounds where it can."""
    discovers = algorithm not in SERVER_DATA
    for one in seen_of((algorithm, "record", kind), discovers=discovers):
        if isinstance(one.state, Discoveries):
            yield of_discovery(algorithm, one.plan, one.round_index, one.state)
            continue
        step = build_algorithm(one.plan).rounds[one.round_index - 1]
        yield of_step(algorithm, step, one.state, WIDTH)


def of_proxy_lloyd(width: int, **values: Any) -> Iterator[Weighed]:
    """ProxyLloyd where it has other rounds: a location, a subspace, tails."""
    plan = draft_of(
        algorithm="proxy_lloyd",
        n_clusters=3,
        width=width,
        noise="seeded",
        trust="distributed",
        max_iter=2,
        **values,
    )
    generator = np.random.default_rng(2)
    centres = generator.uniform(-0.7, 0.7, (3, width))
    parts = []
    for _ in range(plan.n_clients):
        tails = generator.standard_t(3, (40, width)) * 0.05
        rows = np.clip(centres[generator.integers(0, 3, 40)] + tails, -1.0, 1.0)
        parts.append(round_to_grid(rows))
    seen: list[Seen] = []
    run_watched(plan, parts, watch=seen.append)
    for one in seen:
        assert isinstance(one.state, State)
        step = build_algorithm(one.plan).rounds[one.round_index - 1]
        yield of_step("proxy", step, one.state, width)


def of_discovery(
    name: str,
    plan: Plan,
    index: int,
    state: Discoveries,
) -> Weighed:
    planned = plan.round_at(index)

    def arrays(points: Array, weights: Array | None) -> Arrays:
        task = plan.task
        return task.preliminary_statistic(plan, index, points, state, weights)

    return Weighed(f"{name}: {planned.name}", planned.blocks, WIDTH, arrays)


def of_statistics(task: str) -> Iterator[Weighed]:
    """The rounds of a task besides clusterings."""
    values: dict[str, Any] = {
        "moments": {},
        "histograms": {"bins": 4},
        "quantiles": {"halvings": 3},
        "pca": {},
        "radii": {"centers": ((-0.5, 0.0), (0.5, 0.5))},
        "naive_bayes": {
            "classes": 3,
            "categories": (0, 4),
            "bounds": ((-1.0, 0.0), (1.0, 3.0)),
        },
    }[task]
    settings = {"algorithm": task, "bounds": ((-1.0,), (1.0,)), "n_examples": 900}
    plan = draft_plan(
        read_config(**settings | values), run_id=1, n_clients=2, seed=7, n_features=2
    )
    n_classes = 3 if task == "naive_bayes" else 0
    width = 3 if n_classes else 2
    location = State({"mean": np.array([0.25, -0.5]), "reach": np.array([0.75])})
    for step in build_algorithm(plan).rounds:
        yield of_step(task, step, location, width, n_classes=n_classes)


COLUMNS: dict[str, Any] = {
    "size": {"kind": "number", "bounds": [0, 10]},
    "age": {"kind": "number", "bounds": [0, 9], "weight": 0, "missing": "centre"},
    "ward": {
        "kind": "category",
        "values": ["A", "B", "C"],
        "weight": 0,
        "missing": "centre",
    },
    "sick": {"kind": "flag", "weight": 0},
}
SCHEMA = Schema(columns=COLUMNS, profile=("sick", "ward", "age"), profile_share=0.2)


def of_closing_rounds() -> Iterator[Weighed]:
    """A profile, and evaluations with labels, private and exact."""
    box = SCHEMA.bounds
    given = {"bounds": SCHEMA, "n_clusters": 2, "n_examples": 1000}
    options = flat_options(given) | schema_settings(SCHEMA)
    options |= {"bounds": (box.lower, box.upper), "n_classes": 2}
    state = cluster_state(np.array([[-0.75], [0.75]]), np.zeros(2))
    for evaluation in ("private", "exact"):
        config = read_config(**options | {"evaluation": evaluation})
        plan = draft_plan(config, run_id=1, n_clients=5, seed=1, n_features=1)
        for step in build_algorithm(plan).rounds:
            if step.name not in CLOSING_ROUNDS:
                continue
            n_classes = 0 if step.profiles else 2
            width = 1 + plan.settings.n_beside if step.profiles else 2
            yield of_step(evaluation, step, state, width, n_classes=n_classes)


def of_standard_scale() -> Weighed:
    schema = Schema(
        columns={"size": COLUMNS["size"], "sick": {"kind": "flag"}}, scale="standard"
    )
    box = schema.bounds
    given = {"bounds": schema, "n_clusters": 2, "n_examples": 1000}
    options = flat_options(given) | schema_settings(schema)
    config = read_config(**options | {"bounds": (box.lower, box.upper)})
    width = len(box.lower)
    plan = draft_plan(config, run_id=1, n_clients=2, seed=1, n_features=width)
    discovery = of_discovery("standard scale", plan, 0, Discoveries())

    def arrays(points: Array, weights: Array | None) -> Arrays:
        return discovery.arrays(Bounds(*plan.settings.bounds).unscale(points), weights)

    return replace(discovery, width=width, arrays=arrays)


def of_appendix() -> Iterator[Weighed]:
    """FedDP-KMeans with Lemma 17 and Algorithm 4."""
    facts = ServerFacts(6, (0.0, 0.0), 1.2, 1.44)
    config = read_config(
        n_clusters=4,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        trust="distributed",
        n_examples=4000,
        least_weight=0.25,
        reduce_diameter=True,
        simplify_server_data=True,
        deviation=0.02,
        max_iter=1,
        has_server_data=True,
    )
    plan = draft_plan(config, run_id=1, n_clients=3, seed=0, n_features=2, server=facts)
    generator = np.random.default_rng(1)
    points, parts, projected = (
        round_to_grid(generator.uniform(-1.0, 1.0, (6, 2))) for _ in range(3)
    )
    state = seeded_state(points[:4], 0, points).changed(
        **{
            PARTS: parts,
            SHIFTS: round_to_grid(generator.uniform(-1.0, 1.0, (6, 2))),
            ZOOM: np.array([2.0]),
            "projection": np.eye(2),
            PROJECTED_POINTS: projected,
            "projected_centers": projected[:4],
        }
    )
    assert SERVER_POINTS in state.arrays
    for step in build_algorithm(plan).rounds:
        yield of_step("appendix", step, state, 2)


@cache
def rounds_of(group: str) -> tuple[Weighed, ...]:
    name, _, kind = group.partition(", ")
    if name in clusterings():
        return tuple(of_clustering(name, kind))
    if name in PROXY_RUNS:
        width, values, has = PROXY_RUNS[name]
        rounds = tuple(of_proxy_lloyd(width, **values))
        names = {block.name for weighed in rounds for block in weighed.blocks}
        steps = {weighed.name.partition(": ")[2] for weighed in rounds}
        assert has in names | steps, (names, steps)
        return rounds
    if name == "closing rounds":
        return tuple(of_closing_rounds())
    if name == "appendix":
        return tuple(of_appendix())
    if name == "standard scale":
        return (of_standard_scale(),)
    return tuple(of_statistics(name))


PROXY_RUNS: dict[str, tuple[int, dict[str, Any], str]] = {
    "proxies after one location": (2, {"n_examples": 200, "epsilon": 0.1}, "location"),
    "proxies in a subspace": (10, {"n_examples": 20_000}, "proxies-1"),
    "tails": (2, {"n_examples": 20_000, "epsilon": 20.0}, "excess_sums"),
}
"""Width, settings, and what must be among the rounds or arrays."""
RECORD_CASES = [case for case in SUPPORTED if case[1] == "record"]
GROUPS = [
    *[f"{algorithm}, {kind}" for algorithm, _, kind in RECORD_CASES],
    *("moments", "histograms", "quantiles", "pca", "radii", "naive_bayes"),
    *("closing rounds", "appendix", "standard scale"),
    *PROXY_RUNS,
]


def test_every_registered_algorithm_is_here() -> None:
    of_rows = {name for name, task in TASKS.items() if PrivacyUnit.RECORD in task.units}
    from_here = {group.partition(", ")[0] for group in GROUPS}
    assert of_rows - from_here - set(ONE_PLACE) == set()
    assert set(TASKS) - of_rows == NO_TABLES


ONE_PLACE = ("max_cover", "balcan", "k_fed", "optimal")
"""Of all rows together, by `flwr_dpkmeans.baselines`: they have no rounds."""


def some_table(weighed: Weighed, n: int, seed: int = 3) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    points = round_to_grid(generator.uniform(-1.0, 1.0, (n, weighed.width)))
    points[: n // 4] = generator.choice([-1.0, 1.0], (n // 4, weighed.width))
    points[-3:] = 0.0
    weights = generator.integers(0, int(GRID) + 1, n) / GRID
    weights[::7] = 1.0
    weights[1::7] = 0.0
    return points, weights


@pytest.mark.sample(6)
@pytest.mark.parametrize("group", GROUPS)
def test_weights_of_one_change_no_bit(group: str) -> None:
    for weighed in rounds_of(group):
        for n in (0, 1, 60):
            points, _ = some_table(weighed, max(n, 4))
            rows = points[:n]
            plain = weighed.arrays(rows, None)
            ones = weighed.arrays(rows, np.ones(n))
            for block, without, with_ones in zip(
                weighed.blocks, plain, ones, strict=True
            ):
                assert without.tobytes() == with_ones.tobytes(), (weighed.name, block)


@pytest.mark.sample(6)
@pytest.mark.parametrize("group", GROUPS)
def test_a_row_adds_itself_times_its_weight_toward_zero(group: str) -> None:
    for weighed in rounds_of(group):
        points, weights = some_table(weighed, 40)
        together = weighed.arrays(points, weights)
        pairs = zip(points, weights, strict=True)
        alone = [
            [np.trunc(array * weight * GRID) / GRID for array in arrays]
            for arrays, weight in (
                (weighed.arrays(row[None], None), weight) for row, weight in pairs
            )
        ]
        for index, block in enumerate(weighed.blocks):
            expected = sum(arrays[index] for arrays in alone)
            steps = np.abs(together[index] - expected) * GRID
            if block.name in ROUNDED_ONCE or block.noise.value == "none":
                # Where single rows' sums are rounded, too, nobody does it row by row.
                assert steps.max() <= 1.5 * len(points)
            else:
                assert steps.max() == 0.0, (weighed.name, block.name)


@pytest.mark.sample(4)
@pytest.mark.parametrize("group", GROUPS)
def test_no_unit_of_several_rows_moves_a_round_beyond_what_it_declares(
    group: str,
) -> None:
    for weighed in rounds_of(group):
        check_sensitivity(
            weighed.blocks,
            lambda points, one=weighed: one.arrays(points, None),
            weighed.width,
            n_tables=1,
            weighted=weighed.arrays,
        )


@pytest.mark.sample(6)
@pytest.mark.parametrize("group", GROUPS)
def test_blocks_and_threads_do_not_show(group: str, set_limits: SetLimits) -> None:
    rounds = rounds_of(group)
    tables = [some_table(weighed, 300) for weighed in rounds]
    pairs = list(zip(rounds, tables, strict=True))
    in_one = [weighed.arrays(*table) for weighed, table in pairs]
    set_limits(n_processors=3, block_bytes=8 * 40)
    in_parts = [weighed.arrays(*table) for weighed, table in pairs]
    for weighed, whole, parts in zip(rounds, in_one, in_parts, strict=True):
        for one, other in zip(whole, parts, strict=True):
            assert one.tobytes() == other.tobytes(), weighed.name


CLIENT_CASES = [case for case in SUPPORTED if case[1] == "client"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CLIENT_CASES, ids=str)
def test_where_clients_are_protected_no_row_has_a_weight(case: Any) -> None:
    for one in seen_of(case, discovers=False):
        step = build_algorithm(one.plan).rounds[one.round_index - 1]
        assert step.weighted is None
        with pytest.raises(PlanError, match=f"round {step.name!r} cannot weigh rows"):
            step.arrays_of(np.zeros((2, WIDTH)), one.state, weights=np.ones(2))


# -- what the check of units finds -----------------------------------------------------

UNIT = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "it is said to")
BLOCKS = (
    Block("sums", (3,), UNIT, NoiseShape.GAUSSIAN, 9.0, 1.0),
    Block("rows", (1,), UNIT, NoiseShape.GAUSSIAN, 9.0, 1.0),
)


def right(points: Array, weights: Array) -> list[Array]:
    units = unit_residuals(points, 0.5)
    return [weighted(units, weights).sum(axis=0), weights.sum(keepdims=True)]


def nearest_rounding(points: Array, weights: Array) -> list[Array]:
    products = unit_residuals(points, 0.5) * weights[:, None]
    return [round_to_grid(products).sum(axis=0), weights.sum(keepdims=True)]


def weights_before_the_clip(points: Array, weights: Array) -> list[Array]:
    units = unit_residuals(toward_zero(points * weights[:, None]), 0.5)
    return [units.sum(axis=0), weights.sum(keepdims=True)]


def forgotten_in_counts(points: Array, weights: Array) -> list[Array]:
    sums, _ = right(points, weights)
    return [sums, np.array([float(np.count_nonzero(weights))])]


def over_other_rows(points: Array, weights: Array) -> list[Array]:
    """Weights that are made to add up to the number of rows."""
    total = max(float(weights.sum()), GRID**-1)
    return right(points, toward_zero(weights / total * len(weights)))


def checked(wrong: Callable[[Array, Array], list[Array]]) -> dict[str, float]:
    return check_sensitivity(
        BLOCKS,
        lambda points: right(points, np.ones(len(points))),
        3,
        weighted=wrong,
    )


def test_weights_toward_zero_keep_the_bound_and_come_near_it() -> None:
    assert min(checked(right).values()) > 0.999


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (nearest_rounding, "sums"),
        (weights_before_the_clip, "sums"),
        (forgotten_in_counts, "rows"),
        (over_other_rows, "sums"),
    ],
)
def test_a_statistic_that_weighs_wrongly_is_found(
    wrong: Callable[[Array, Array], list[Array]], name: str
) -> None:
    with pytest.raises(PlanError, match=f"{name!r} moves by"):
        checked(wrong)


def test_an_outer_product_with_weights_is_exact_before_its_one_rounding() -> None:
    generator = np.random.default_rng(5)
    # So many that sums of whole products would not be exact.
    steps = generator.integers(60_000, 2**16, (30_000, 2))
    weights = generator.integers(0, 2**16 + 1, len(steps))
    products = outer_product_sums(steps / GRID, lambda rows: rows, weights / GRID)
    found = triangle_of(products)
    pairs = zip(steps.tolist(), weights.tolist(), strict=True)
    sums = [0, 0]
    for row, weight in pairs:
        sums[0] += weight * row[0] ** 2
        sums[1] += weight * row[1] ** 2
    assert found[[0, 2]].tolist() == [exact / 2**48 for exact in sums]
