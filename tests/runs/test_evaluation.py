"""From a released evaluation to metrics, and where a caller meets them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.flat import flat_estimator

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.measure.cell_table import CellTable
from flwr_dpkmeans.algorithms.measure.evaluated_state import (
    CELL_COUNTS,
    CLIPPED_COST,
    ROWS_BEYOND,
)
from flwr_dpkmeans.algorithms.measure.evaluation_result import (
    EvaluationResult,
    read_evaluation,
)
from flwr_dpkmeans.algorithms.measure.measured import Measured
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import ConfigurationError, DataError, PlanError
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.planner import PlanningRequest
from flwr_dpkmeans.planner.centroid_noise import centroid_noise
from flwr_dpkmeans.planner.traffic import deployment_of
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.results.writer import METRICS_FILE
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import build_report

Floats = NDArray[np.float64]
MIDDLES = np.array([[-0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])
NO_EVALUATION: dict[str, Any] = {"evaluation": "none", "evaluation_radius": None}


def plan_of(**values: Any) -> Plan:
    settings: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "glloyd",
        "n_examples": 100,
        "delta": 1e-6,
        "max_iter": 2,
        "evaluation": "private",
        "evaluation_radius": 0.5,
    }
    counted = values.pop("counted", None)
    plan = draft_plan(
        read_config(**(settings | values)),
        run_id=1,
        n_clients=5,
        seed=0,
        n_features=2,
        n_examples=counted,
    )
    assert plan.is_final
    return plan


def found(
    plan: Plan,
    cost: float,
    beyond: float,
    cells: list[list[float]],
    n_clients: int | None = None,
) -> EvaluationResult:
    extras = {
        CLIPPED_COST: np.array([cost]),
        ROWS_BEYOND: np.array([beyond]),
        CELL_COUNTS: np.array(cells),
    }
    k = len(cells)
    result = read_evaluation(
        plan, cluster_state(np.zeros((k, 2)), np.zeros(k), (), extras), n_clients
    )
    assert result is not None
    return result


@pytest.mark.parametrize(("deviations", "n_told"), [(1.9, 1), (2.1, 0), (-3.0, 1)])
def test_a_cost_that_is_not_told_from_noise_is_warned_of(
    deviations: float, n_told: int
) -> None:
    plan = plan_of()
    noise = {block.name: block.noise_scale for block in plan.rounds[-1].blocks}
    extras = {CLIPPED_COST: np.array([deviations * noise[CLIPPED_COST]])}
    state = cluster_state(np.zeros((3, 2)), np.full(3, 1e6), (), extras)
    told = [
        one
        for one in build_report(plan, [(1, 1)], state=state).warnings
        if "The evaluation's cost" in one
    ]
    assert len(told) == n_told
    none = plan_of(**NO_EVALUATION)
    assert (
        none.task.doubts(none, cluster_state(np.zeros((3, 2)), np.zeros(3)), ()) == ()
    )


def test_an_exact_cost_of_nothing_is_no_noise() -> None:
    plan = plan_of(evaluation="exact", evaluation_radius=None)
    extras = {CLIPPED_COST: np.zeros(1)}
    state = cluster_state(np.zeros((3, 2)), np.full(3, 1e6), (), extras)
    assert plan.task.doubts(plan, state, ()) == ()


# -- post-processing -------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    plan = plan_of(n_classes=3, bounds=((0.0,), (4.0,)), n_examples=100)
    result = found(
        plan,
        40.0,
        10.0,
        [[20.0, 30.0, 0.0, 0.0], [24.0, 1.0, 5.0, 1.0], [6.0, 4.0, 10.0, -1.0]],
    )
    noise = {block.name: block.noise_scale for block in plan.rounds[-1].blocks}
    assert (result.n_units.value, result.n_units.noise, result.n_units_source) == (
        100.0,
        0.0,
        "known",
    )
    assert (result.cost.value, result.cost.noise) == pytest.approx(
        (0.1, 0.0025 * noise[CLIPPED_COST])
    )
    assert result.cost_in_units is not None
    assert result.cost_in_units.value == pytest.approx(0.4)
    assert result.cost_in_units.noise == pytest.approx(4.0 * result.cost.noise)
    assert (result.clipped.value, result.clipped.noise) == pytest.approx(
        (0.1, noise[ROWS_BEYOND] / 100.0)
    )
    assert result.counts == (50.0, 31.0, 19.0)
    assert result.counts_noise == pytest.approx(noise[CELL_COUNTS] * 2.0)
    assert result.accuracy is not None
    assert result.purity is not None
    assert result.matching == ((0, 1), (1, 0), (2, 2))
    assert (result.accuracy.value, result.purity.value) == pytest.approx((0.64, 0.64))
    assert result.accuracy.noise == pytest.approx(
        noise[CELL_COUNTS] * math.sqrt(3.0) / 100.0
    )


def test_two_clusters_of_one_class_are_matched_once_but_pure_twice() -> None:
    result = found(
        plan_of(n_classes=2),
        1.0,
        0.0,
        [[50.0, 0.0, 0.0], [30.0, 5.0, 0.0], [0.0, 15.0, 0.0]],
    )
    assert result.accuracy is not None
    assert result.purity is not None
    assert (result.accuracy.value, result.purity.value) == pytest.approx((0.65, 0.95))
    assert result.matching == ((0, 0), (2, 1))


def test_a_total_that_says_something_else_than_what_is_known_is_used() -> None:
    plan = plan_of(epsilon=50.0, n_examples=100_000)
    few = found(plan, 100.0, 0.0, [[400.0], [300.0], [300.0]])
    assert (few.n_units.value, few.n_units_source) == (1000.0, "released")
    assert few.cost.value == pytest.approx(0.025)
    # Part of the noise is the divisor's.
    assert few.cost.noise > 0.25 * plan.rounds[-1].blocks[0].noise_scale / 1000.0
    assert found(plan, 100.0, 0.0, [[99_999.8], [0.0], [0.0]]).n_units_source == "known"


@pytest.mark.parametrize(
    ("deviations", "source"),
    [(4.5, "known"), (-4.5, "known"), (5.5, "released"), (-5.5, "released")],
)
def test_a_total_five_deviations_away_says_something_else(
    deviations: float, source: str
) -> None:
    """Three cells of independent noise: the total has sqrt(3) of the noise of one."""
    plan = plan_of(epsilon=50.0, n_examples=100_000)
    (block,) = [block for block in plan.rounds[-1].blocks if block.name == CELL_COUNTS]
    total = 100_000.0 + deviations * math.sqrt(3.0) * plan.released_std(
        plan.rounds[-1], block
    )
    assert found(plan, 100.0, 0.0, [[total], [0.0], [0.0]]).n_units_source == source


def test_the_divisor_is_the_total_where_nothing_is_known() -> None:
    plan = plan_of(algorithm="sphere_packing", n_examples=None)
    result = found(plan, 10.0, 0.0, [[40.0], [-2.0], [12.0]])
    assert (result.n_units.value, result.n_units_source) == (50.0, "released")
    assert result.n_units.noise == pytest.approx(math.sqrt(3.0) * result.cells_noise)
    # Nothing is divided by zero or less.
    assert found(plan, 10.0, 0.0, [[-40.0], [-2.0], [12.0]]).n_units.value == 1.0


def test_a_private_count_is_a_divisor_with_noise() -> None:
    plan = plan_of(n_examples=None, counted=1000, count_share=0.3)
    (count,) = plan.preliminary[0].blocks
    result = found(plan, 10.0, 0.0, [[400.0], [300.0], [300.0]])
    assert result.n_units.value == 1000.0
    assert result.n_units.noise == pytest.approx(count.noise_scale * plan.shares.excess)


@pytest.mark.parametrize(("rate", "noise"), [(1.0, 0.0), (0.5, math.sqrt(1.25))])
def test_clients_are_counted_by_their_cohort(rate: float, noise: float) -> None:
    values = {
        "algorithm": "sphere_packing",
        "unit": "client",
        "n_examples": None,
        "client_sampling_rate": rate,
    }
    result = found(plan_of(**values), 1.0, 0.0, [[2.0], [0.5], [0.0]])
    assert result.averaged_over == "clients"
    assert (result.n_units.value, result.n_units.noise) == pytest.approx(
        (5.0 * rate, noise)
    )


@pytest.mark.parametrize("counted", [None, 100])
def test_rows_of_clients_that_left_are_not_in_the_divisor(counted: int | None) -> None:
    plan = plan_of(n_examples=None if counted else 100, counted=counted)
    cells = [[50.0], [30.0], [19.0]]
    assert found(plan, 10.0, 0.0, cells).n_units_source == "known"
    left = found(plan, 10.0, 0.0, cells, n_clients=4)
    assert (left.n_units.value, left.n_units_source) == (99.0, "released")
    assert left.cost.noise > found(plan, 10.0, 0.0, cells).cost.noise


def test_sampled_clients_add_their_own_noise_by_hand() -> None:
    """The largest variance of numbers from 0 to 1 with this mean."""
    values = {
        "algorithm": "sphere_packing",
        "unit": "client",
        "n_examples": None,
        "client_sampling_rate": 0.5,
    }
    plan = draft_plan(
        plan_of(**values, epsilon=60.0, n_classes=1).config,
        run_id=1,
        n_clients=2000,
        seed=0,
        n_features=2,
    )
    noise = {
        block.name: plan.released_std(plan.rounds[-1], block)
        for block in plan.rounds[-1].blocks
    }
    cells = noise[CELL_COUNTS]
    result = found(plan, 250.0, 0.0, [[400.0, 0.0], [300.0, 0.0], [300.0, 0.0]])
    assert (result.n_units.value, result.n_units_source) == (1000.0, "released")
    divisor = 0.25 * math.sqrt(6.0) * cells
    variance = noise[CLIPPED_COST] ** 2 + divisor**2 + 0.5 * 0.25 * 0.75 * 1000.0
    assert result.cost.noise == pytest.approx(0.25 * math.sqrt(variance) / 1000.0)
    assert result.counts_noise == pytest.approx(math.sqrt(2.0 * cells**2 + 0.5 * 400.0))
    assert result.cells_noise == pytest.approx(math.sqrt(cells**2 + 0.5 * 400.0))


TABLE = CellTable(
    np.array([[30.0, 10.0], [20.0, 40.0]]), 3.0, Measured(100.0, 6.0), True, 0.5
)


@pytest.mark.parametrize(
    ("arguments", "value", "variance"),
    [
        # Of the sum, of the divisor times the quotient, twice what they share, and of
        # half of 100 units left out.
        ((25.0, 4.0, 8.0), 0.25, 16.0 + 2.25 - 4.0 + 0.5 * 0.25 * 0.75 * 100.0),
        ((25.0, 4.0), 0.25, 16.0 + 2.25 + 9.375),
        # Beyond 0 and 1, where noise alone leads, units that are left out add nothing.
        ((150.0, 4.0), 1.5, 16.0 + 81.0),
        ((-10.0, 4.0), -0.1, 16.0 + 0.36),
        # Less than no variance is none.
        ((50.0, 0.0, 100.0), 0.5, 12.5),
    ],
)
def test_a_quotients_noise_by_hand(
    arguments: tuple[float, ...], value: float, variance: float
) -> None:
    found = TABLE.per_unit(*arguments)
    assert (found.value, found.noise) == pytest.approx(
        (value, math.sqrt(variance) / 100.0)
    )


@pytest.mark.parametrize(
    ("of_cells", "shared"), [(True, 2.0 * 0.7 * 18.0), (False, 0.0)]
)
def test_a_share_of_the_tables_own_total_has_less_noise(
    of_cells: bool, shared: float
) -> None:
    """70 of 100 rows in two cells of variance 9, and a divisor with noise of 6."""
    share = replace(TABLE, units_are_cells=of_cells).share([(0, 0), (1, 1)])
    of_sampling = 0.5 * 0.7 * 0.3 * 100.0
    variance = 18.0 + 0.49 * 36.0 - shared + of_sampling
    assert share.value == pytest.approx(0.7)
    assert share.noise == pytest.approx(math.sqrt(variance) / 100.0)


def test_units_left_out_add_noise_to_the_largest_sum_and_none_below_zero() -> None:
    largest = math.sqrt(9.0 + 0.5 * 20.0)
    assert TABLE.noise_of(3.0, np.array([5.0, 20.0])) == pytest.approx(largest)
    assert TABLE.noise_of(3.0, np.array([-5.0, -20.0])) == 3.0


@pytest.mark.parametrize(("share", "source"), [(0.3, "known"), (0.002, "released")])
def test_a_private_count_with_more_noise_than_the_table_is_not_the_divisor(
    share: float, source: str
) -> None:
    plan = plan_of(
        n_examples=None, counted=1000, count_share=share, evaluation_share=0.3
    )
    result = found(plan, 10.0, 0.0, [[400.0], [300.0], [300.0]])
    (count,) = plan.preliminary[0].blocks
    noise = {
        "known": count.noise_scale * plan.shares.excess,
        "released": math.sqrt(3.0) * result.cells_noise,
    }
    assert (result.n_units_source, result.n_units.noise) == (
        source,
        pytest.approx(min(noise.values())),
    )
    assert noise[source] == min(noise.values())


@pytest.mark.parametrize(
    ("unit", "averaged_over"), [("record", "rows"), ("client", "clients")]
)
def test_the_sentence_says_over_what_is_averaged(unit: str, averaged_over: str) -> None:
    result = found(
        plan_of(unit=unit, n_classes=1, algorithm="sphere_packing"),
        1.0,
        0.0,
        [[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]],
    )
    assert result.averaged_over == averaged_over
    assert str(result).startswith(
        f"private evaluation: cost per {averaged_over[:-1]} {result.cost} (scaled units"
    )
    assert str(result).endswith(
        f", accuracy {result.accuracy.as_share}, purity {result.purity.as_share}"
    )


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ({}, "private", "private evaluation: "),
        ({"evaluation": "exact"}, "exact", "exact evaluation: "),
        ({"algorithm": "lloyd"}, "noisy", "noisy evaluation (the run is NOT PRIVATE):"),
        ({"noise": "seeded"}, "noisy", "noisy evaluation (the run is NOT PRIVATE): "),
        ({"masking": False}, "noisy", "noisy evaluation (the run is NOT PRIVATE): "),
    ],
)
def test_only_a_private_runs_evaluation_is_called_private(
    values: dict[str, Any], kind: str, words: str
) -> None:
    result = found(plan_of(**values), 10.0, 0.0, [[50.0], [30.0], [20.0]])
    assert result.kind == kind
    assert str(result).startswith(words)


def test_clusters_that_were_not_chosen_are_left_out() -> None:
    plan = plan_of()
    extras = {
        CLIPPED_COST: np.ones(1),
        ROWS_BEYOND: np.zeros(1),
        CELL_COUNTS: np.array([[60.0], [38.0], [77.0]]),
    }
    result = read_evaluation(
        plan, cluster_state(np.zeros((2, 2)), np.zeros(2), (), extras)
    )
    assert result is not None
    assert result.counts == (60.0, 38.0)


def test_all_shares_add_noise() -> None:
    plan = plan_of(trust="distributed")
    result = found(plan, 1.0, 0.0, [[50.0], [30.0], [20.0]])
    assert result.cells_noise == pytest.approx(
        plan.rounds[-1].blocks[2].noise_scale * math.sqrt(5 / 4)
    )


def test_a_plan_without_evaluation_has_none_and_one_with_it_needs_its_state() -> None:
    state = cluster_state(np.zeros((3, 2)), np.zeros(3))
    assert read_evaluation(plan_of(**NO_EVALUATION), state) is None
    with pytest.raises(PlanError, match="the state has no evaluation"):
        read_evaluation(plan_of(), state)


# -- the plan --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", ["fastlloyd", "glloyd", "sphere_packing", "proxy_lloyd"]
)
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_total_is_exactly_epsilon(algorithm: str, share: float) -> None:
    plan = plan_of(algorithm=algorithm, n_examples=1000, evaluation_share=share)
    assert 0.999 <= plan.epsilon <= 1.0
    squares = [
        math.fsum(block.noise_multiplier**-2 for block in planned.blocks)
        for planned in plan.rounds
    ]
    assert squares[-1] / math.fsum(squares) == pytest.approx(share, rel=1e-3)
    alone = plan_of(algorithm=algorithm, n_examples=1000, **NO_EVALUATION)
    assert len(plan.rounds) == len(alone.rounds) + 1
    for block, other in zip(plan.rounds[0].blocks, alone.rounds[0].blocks, strict=True):
        assert block.noise_multiplier == pytest.approx(
            other.noise_multiplier / math.sqrt(1.0 - share), rel=1e-3
        )


@pytest.mark.nightly
@pytest.mark.parametrize("rate", [0.3])
def test_an_evaluation_over_sampled_clients_takes_about_its_share(rate: float) -> None:
    values = {
        "algorithm": "sphere_packing",
        "unit": "client",
        "n_examples": None,
        "client_sampling_rate": rate,
    }
    plan = plan_of(evaluation_share=0.2, **values)
    assert 0.99 <= plan.epsilon <= 1.0
    # Alone it costs what an evaluation over all clients would.
    everybody = plan_of(
        evaluation_share=0.2, **(values | {"client_sampling_rate": 1.0})
    )
    cost = compose_epsilon(everybody.events([everybody.last_round]), plan.delta)
    assert compose_epsilon(plan.events([plan.last_round]), plan.delta) == pytest.approx(
        cost, rel=1e-3
    )
    assert (
        plan.rounds[-1].blocks[0].noise_multiplier
        < everybody.rounds[-1].blocks[0].noise_multiplier
    )
    alone = plan_of(**NO_EVALUATION, **values)
    ratio = (
        plan.rounds[0].blocks[0].noise_multiplier
        / alone.rounds[0].blocks[0].noise_multiplier
    )
    assert 1.0 < ratio < 1.0 / math.sqrt(1.0 - 0.4)


def test_laplace_rounds_get_what_is_left_of_epsilon() -> None:
    plan = plan_of(
        algorithm="sulloyd",
        trust="central",
        evaluation_share=0.1,
        n_examples=None,
        counted=900,
    )
    per_round = math.fsum(
        1.0 / block.noise_multiplier for block in plan.rounds[0].blocks
    )
    assert 2.0 * per_round >= 1.0 - 0.12
    gaussian = compose_epsilon(plan.events((0, plan.last_round)), plan.delta)
    assert 0.99 * 0.12 < gaussian <= 0.12
    assert 0.999 < plan.epsilon <= 1.0


def test_an_exact_evaluation_takes_nothing_and_is_not_private() -> None:
    plan, alone = plan_of(evaluation="exact"), plan_of(**NO_EVALUATION)
    assert plan.rounds[:-1] == alone.rounds
    assert math.isinf(plan.epsilon)


def test_an_exact_evaluation_is_not_private_before_its_round_stands_in_the_plan() -> (
    None
):
    """A node that wants privacy refuses the plan while rows are still to be counted."""
    values = {"n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "algorithm": "glloyd"}
    for evaluation, private in (("private", True), ("exact", False)):
        config = read_config(**values, evaluation=evaluation)
        plan = draft_plan(config, run_id=1, n_clients=5, seed=0, n_features=2)
        assert not plan.is_final
        assert plan.is_private is private


def test_the_planner_knows_of_it() -> None:
    """Of one cluster in one dimension its table has the shape of the sums."""
    options = {"n_clusters": 1, "bounds": (-1, 1), "epsilon": 1.0}
    plain = PlanningRequest(1000, 1, 5, options).draft("glloyd")
    with_it = options | {"evaluation": "private"}
    evaluated = PlanningRequest(1000, 1, 5, with_it).draft("glloyd")
    n_trips = deployment_of(plain).n_round_trips
    assert deployment_of(evaluated).n_round_trips == n_trips + 1
    before, after = centroid_noise(plain), centroid_noise(evaluated)
    assert before is not None
    assert after is not None
    expected = before.sums_std / math.sqrt(0.95)
    assert after.sums_std == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"evaluation": "privat"},
            "evaluation is 'privat', which is not known: did you mean 'private'",
        ),
        ({"evaluation_share": 0.5}, "is 0.5, but it must be a finite number strictly"),
        ({"n_classes": -1}, "n_classes is -1, but it must be an integer of at least 0"),
        # Each client would spend minutes on matching them.
        ({"n_classes": 33_334}, "3 clusters and 33334 classes make a table of 100002"),
        # Their squares would leave the range of a float, and the statistic its bound.
        ({"evaluation_radius": 1e-200}, "evaluation_radius is 1e-200, but it must be"),
        ({"evaluation_radius": 1e200}, "is 1e+200, but it must be a finite number"),
        (
            {
                "evaluation_share": 0.45,
                "bounds_share": 0.45,
                "count_share": 0.2,
                "private_bounds": True,
                "n_examples": None,
            },
            "together are 1.1, but they must leave the algorithm a part of the budget",
        ),
        (
            {
                "evaluation": "exact",
                "unit": "client",
                "client_sampling_rate": 0.5,
                "algorithm": "sphere_packing",
            },
            "evaluation is 'exact', but client_sampling_rate is 0.5",
        ),
    ],
)
def test_bad_values_have_one_sentence(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_of(**values)
    assert text in str(caught.value)


# -- the estimator ---------------------------------------------------------------------


def parts_and_labels(
    sizes: tuple[int, ...] = (400, 0, 350, 250),
) -> tuple[list[Floats], list[NDArray[np.int64]]]:
    generator = np.random.default_rng(0)
    labels = [generator.integers(0, 3, size) for size in sizes]
    return [
        MIDDLES[own] + 0.1 * generator.standard_normal((len(own), 2)) for own in labels
    ], labels


def estimator(**values: Any) -> FederatedKMeans:
    settings: dict[str, Any] = {
        "n_clusters": 3,
        "epsilon": 8.0,
        "bounds": (-1.0, 1.0),
        "evaluation": "private",
        "n_classes": 3,
        "noise": "seeded",
        "random_state": 4,
        "engine": "direct",
    }
    return flat_estimator(**(settings | values))


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_both_engines_give_the_same_evaluation(trust: str) -> None:
    parts, labels = parts_and_labels()
    first = estimator(trust=trust).fit(parts, labels).evaluation_
    assert (
        first
        == estimator(trust=trust, engine="inprocess").fit(parts, labels).evaluation_
    )
    assert first is not None
    assert first.accuracy is not None
    assert abs(first.accuracy.value - 1.0) < 5.0 * first.accuracy.noise < 0.3


@pytest.mark.parametrize("unit", ["record", "client"])
def test_an_exact_evaluation_is_that_of_all_rows(unit: str) -> None:
    parts, labels = parts_and_labels((400, 350, 250))
    km = estimator(evaluation="exact", unit=unit, epsilon=50.0).fit(parts, labels)
    result = km.evaluation_
    assert result is not None
    exact = [cost_per_point(part, km.cluster_centers_) for part in parts]
    weights = [len(part) for part in parts] if unit == "record" else None
    assert result.cost.value == pytest.approx(
        np.average(exact, weights=weights), abs=3e-4
    )
    assert (result.cost.noise, result.clipped.value) == (0.0, 0.0)
    assert math.isinf(km.privacy_.epsilon)
    assert not km.privacy_.is_private
    assert (
        "The evaluation is exact: sums over all rows are released without noise."
        in km.privacy_.warnings
    )
    # The algorithm's own rounds had noise.
    assert not any("adds no noise" in warning for warning in km.privacy_.warnings)
    assert [
        line.noise for line in km.privacy_.releases if line.round_name == "evaluation"
    ] == ["none"] * 3


def test_a_runs_files_have_it(tmp_path: Path) -> None:
    parts, labels = parts_and_labels()
    km = estimator(algorithm="fastlloyd", max_iter=2).fit(parts, labels)
    assert km.evaluation_ is not None
    km.write(tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / METRICS_FILE).read_text())
    assert metrics["evaluation"] == km.evaluation_.to_dict()
    movements = [entry["movement"] for entry in km.history_]
    assert [entry.get("movement") for entry in metrics["rounds"]] == movements
    assert movements[-1] is None
    assert metrics["n_iterations"] == km.n_iter_ == 2
    text = "noisy evaluation (the run is NOT PRIVATE): cost per row "
    assert str(km.evaluation_).startswith(text)


def test_without_an_evaluation_labels_are_left_alone() -> None:
    parts, _ = parts_and_labels()
    km = estimator(evaluation="none", n_classes=0, algorithm="glloyd")
    labels: Any = "what ever"
    assert km.fit(parts, labels).evaluation_ is None
    measured = estimator(n_classes=0, algorithm="glloyd").fit(parts).evaluation_
    assert measured is not None
    assert measured.accuracy is None


@pytest.mark.parametrize(
    ("values", "labels", "text"),
    [
        ({}, None, "n_classes is 3, but no labels were given"),
        ({"n_classes": 0}, [[0], [1], [2]], "n_classes does not say how many classes"),
        ({}, [[0] * 4, [1] * 3], "y must have one array of labels for each of the 3"),
        ({}, 5, "y must have one array of labels for each of the 3 clients"),
        ({}, [[0] * 4, [1] * 3, [2]], "y[2]: labels have shape (1,), but the table"),
        ({}, [[0] * 4, [1, 1, 3], [2, 2]], "y[1]: labels go from 0 to 3, but they"),
        ({}, [[0] * 4, [1, -1, 2], [2, 2]], "y[1]: labels go from -1 to 2, but they"),
        ({}, [[0.5] * 4, [1, 1, 2], [2, 2]], "y[0]: labels must be whole numbers"),
        ({"algorithm": "optimal", "n_classes": 0}, None, "evaluation is 'private'"),
    ],
)
def test_bad_labels_have_one_sentence(
    values: dict[str, Any], labels: Any, text: str
) -> None:
    parts = [np.zeros((4, 2)), np.zeros((3, 2)), np.ones((2, 2))]
    with pytest.raises((ConfigurationError, DataError)) as caught:
        estimator(**values).fit(parts, labels)
    sentence = str(caught.value)
    assert text in sentence
    assert sentence.endswith(".")
    assert sentence.count(": ") <= 2


def test_choose_k_spends_everything_on_the_choice() -> None:
    generator = np.random.default_rng(0)
    parts = [
        np.clip(MIDDLES[generator.integers(0, 3, 50)] + 0.05, -1, 1) for _ in range(3)
    ]
    km = estimator(
        algorithm="feddp_kmeans", server_data=MIDDLES.repeat(5, axis=0), n_init=2
    )
    releases = km.choose_k(parts, 4).privacy.releases
    assert {line.round_name for line in releases} == {"outer-product", "weights"}


def test_every_algorithm_has_a_theorem_for_it() -> None:
    from flwr_dpkmeans.privacy.release import theorem

    for unit in ("record", "client"):
        name = next(
            name
            for name, entry in clusterings().items()
            if unit in {u.value for u in entry.units}
        )
        plan = plan_of(
            algorithm=name if unit == "record" else "sphere_packing", unit=unit
        )
        assert all("evaluation" in theorem(block) for block in plan.rounds[-1].blocks)
        assert all(
            replace(block, noise_multiplier=1.0).noise_scale == 1.0
            for block in plan.rounds[-1].blocks
        )


def test_the_sentence_has_the_units_of_the_data_where_all_columns_share_one() -> None:
    cells = [[50.0], [30.0], [20.0]]
    shared = found(plan_of(bounds=((0.0,), (4.0,)), n_examples=100), 40.0, 10.0, cells)
    assert (
        f"(scaled units; {shared.cost_in_units} in squared units of the data), share"
        " clipped" in str(shared)
    )
    unequal = found(
        plan_of(bounds=((0.0, 0.0), (4.0, 5.0)), n_examples=100), 40.0, 10.0, cells
    )
    assert str(unequal).endswith(
        f"(scaled units), share clipped {unequal.clipped.as_share}"
    )
