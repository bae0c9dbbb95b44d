"""Histograms, moments, radii and outliers.

By hand, at their noise level, and against the bounds that they declare.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans, PrivateBounds, federate
from flwr_dpkmeans.algorithms.statistics.group_counts import deviations_of
from flwr_dpkmeans.algorithms.statistics.moment_sums import (
    moment_arrays,
    moment_parts,
    read_moments,
)
from flwr_dpkmeans.algorithms.statistics.moments_task import MomentsTask
from flwr_dpkmeans.algorithms.statistics.one_round import noise_caution
from flwr_dpkmeans.algorithms.statistics.radii_task import (
    RadiiOptions,
    RadiiTask,
    far_rows,
)
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    PlanError,
    PrivacyWarning,
)
from flwr_dpkmeans.options import parse_config, read_config
from flwr_dpkmeans.privacy.release import (
    PROOF_PAGE,
    PrivacyUnit,
    ReleasedSum,
    as_released,
)
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import PrivateSum, State

Array = NDArray[np.float64]
CENTERS = ((-0.5, 0.0), (0.5, 0.5))
TASKS: dict[str, dict[str, Any]] = {
    "moments": {},
    "histograms": {"bins": 4},
    "quantiles": {"halvings": 3},
    "radii": {"centers": CENTERS},
    "naive_bayes": {"classes": 3, "categories": (0, 4),
                    "bounds": ((-1.0, 0.0), (1.0, 3.0))},
}  # fmt: skip
NOWHERE = 1e6


def plan_of(task: str, **values: Any) -> Plan:
    settings: dict[str, Any] = {
        "algorithm": task,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 900,
    }
    run = read_config(**settings | TASKS[task] | values)
    return draft_plan(run, run_id=1, n_clients=2, seed=7, n_features=2)


def step_of(task: str) -> PrivateSum:
    (step,) = build_algorithm(plan_of(task)).rounds
    return step


def arrays_of(task: str, points: Array) -> Sequence[Array]:
    return step_of(task).arrays_of(points, State({}))


def tables() -> list[Array]:
    generator = np.random.default_rng(0)
    return [
        np.clip(
            generator.normal((20.0, 300.0), (5.0, 40.0), (1500, 2)),
            (0.0, 0.0),
            (100.0, 1000.0),
        )
        for _ in "ab"
    ]


# -- by hand ---------------------------------------------------------------------------


def test_sums_and_squares_by_hand() -> None:
    rows, sums, squares = arrays_of(
        "moments", np.array([[1.0, -0.5], [0.5, 0.25], [-1.0, 0.0]])
    )
    assert rows.tolist() == [3.0]
    assert sums.tolist() == [[0.5, -0.25]]
    assert squares.tolist() == [[2.25 - 1.5, 0.3125 - 1.5]]


def test_bins_by_hand() -> None:
    """Four bins of width a half."""
    (bins,) = arrays_of(
        "histograms", np.array([[-1.0, -0.5], [-0.75, 0.0], [1.0, 0.49], [0.5, 0.5]])
    )
    assert bins.tolist() == [[2.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 1.0]]


def test_radii_by_hand() -> None:
    """Two rows near the first center, at squared distances 1/4 and 1/16."""
    rows, spreads = arrays_of(
        "radii", np.array([[-0.5, 0.5], [-0.25, 0.0], [1.0, -0.75]])
    )
    assert rows.tolist() == [2.0, 1.0]
    assert spreads.tolist() == [0.3125, 1.0]


def test_results_are_in_the_units_of_the_data() -> None:
    points = tables()
    both = np.concatenate(points)
    box = {"bounds": ((0, 0), (100, 1000)), "epsilon": NOWHERE, "engine": "direct"}
    moments = federate("moments", points, **box)
    np.testing.assert_allclose(moments["mean"], both.mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(moments["deviation"], both.std(axis=0), rtol=0.03)
    histograms = federate("histograms", points, bins=10, **box)
    assert list(histograms) == list(histograms.keys()) == ["counts", "edges"]
    assert "bins" not in histograms
    assert dict(histograms)["counts"].tolist() == histograms["counts"].tolist()
    np.testing.assert_allclose(
        histograms["edges"], [np.linspace(0, 100, 11), np.linspace(0, 1000, 11)]
    )
    for column in range(2):
        counted, _ = np.histogram(both[:, column], histograms["edges"][column])
        np.testing.assert_allclose(histograms["counts"][column], counted, atol=3.0)


# -- noise -----------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_the_noise_is_that_of_the_whole_budget_split_by_shares(task: str) -> None:
    """Squared sensitivities over squared scales add up to the mu^2 of (1, delta)."""
    plan = plan_of(task, epsilon=1.0)
    assert 0.999 < plan.epsilon <= 1.0
    (planned,) = plan.rounds
    mu = (
        sum(
            (block.sensitivity.bound / block.noise_scale) ** 2
            for block in planned.blocks
        )
        ** 0.5
    )
    (single,) = plan_of("histograms", epsilon=1.0).rounds
    assert mu == pytest.approx(
        single.blocks[0].sensitivity.bound / single.blocks[0].noise_scale, rel=1e-3
    )


def test_released_counts_scatter_as_the_plan_says() -> None:
    found = [
        federate(
            "histograms", tables(), bins=40, bounds=((0, 0), (100, 1000)),
            engine="direct",
        )
        for _ in range(15)
    ]  # fmt: skip
    (planned,) = found[0].plan.rounds
    exact = np.median([one["counts"] for one in found], axis=0)
    errors = np.array([one["counts"] for one in found]) - exact
    assert errors.std() == pytest.approx(planned.blocks[0].noise_scale, rel=0.12)


# -- bounds ----------------------------------------------------------------------------


def labelled(task: str) -> tuple[PrivateSum, Any]:
    """A round, and its statistic of tables whose last column, if any, is a label."""
    step = step_of(task)
    if task != "naive_bayes":
        return step, lambda rows: step.arrays_of(rows, State({}))
    return step, lambda rows: step.arrays_of(
        rows[:, :2], State({}), np.rint(rows[:, 2] + 1.0).astype(np.int64)
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("task", TASKS)
def test_no_neighbours_move_a_table_beyond_what_it_declares(task: str) -> None:
    step, statistic = labelled(task)
    width = 3 if task == "naive_bayes" else 2
    found = check_sensitivity(step.blocks, statistic, width)
    assert min(found.values()) > 0.99, found
    for place, block in enumerate(step.blocks):
        half = replace(
            block,
            sensitivity=replace(block.sensitivity, bound=block.sensitivity.bound / 2.0),
        )
        with pytest.raises(PlanError, match=f"'{block.name}' moves by"):
            check_sensitivity(
                [*step.blocks[:place], half, *step.blocks[place + 1 :]],
                statistic,
                width,
            )


@pytest.mark.parametrize("task", TASKS)
def test_the_page_of_proofs_lists_every_release(task: str) -> None:
    from pathlib import Path

    page = (Path(__file__).resolve().parents[3] / PROOF_PAGE).read_text()
    (planned,) = plan_of(task).rounds
    (line,) = [
        line for line in page.splitlines() if line.startswith(f"| `{task}` (record) |")
    ]
    told = f"{planned.name}: {', '.join(f'`{block.name}`' for block in planned.blocks)}"
    assert f"| {told} |" in line
    for block in planned.blocks:
        proof = block.sensitivity.proof
        assert proof is not None
        assert proof[0] in re.findall(r"S\d+", line)
        (row,) = [row for row in page.splitlines() if row.startswith(f"| {proof[0]} |")]
        assert f"`{block.name}`" in row
        signed = ("group_sums", "group_squares", "half_differences")
        nonnegative = block.name not in signed
        assert block.sensitivity.nonnegative is nonnegative


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("task", ["moments", "quantiles", "pca", "radii"])
def test_every_trust_model_gives_a_result_through_flowers_messages(
    task: str, trust: str
) -> None:
    own = {"centers": ((20.0, 300.0),)} if task == "radii" else {}
    found = federate(
        task, tables(), bounds=((0, 0), (100, 1000)), epsilon=2.0, trust=trust, **own
    )
    assert found.privacy.is_private
    assert found.privacy.epsilon == pytest.approx(2.0, rel=1e-3)
    assert found.privacy.trust == trust
    assert all(np.isfinite(array).all() for array in found.result.arrays.values())


# -- columns ---------------------------------------------------------------------------


def test_columns_are_named_and_put_in_order(tmp_path: Path) -> None:
    frames = [pd.DataFrame(table, columns=["age", "pay"]) for table in tables()]
    frames[1] = frames[1][["pay", "age"]]
    bounds = tmp_path / "bounds.csv"
    bounds.write_text("feature,lower,upper\npay,0,1000\nage,0,100\n")
    found = federate("moments", frames, bounds=bounds, epsilon=NOWHERE)
    assert found.columns == ("age", "pay")
    np.testing.assert_allclose(found["mean"], [20.0, 300.0], rtol=0.02)


# -- outliers --------------------------------------------------------------------------


def test_rows_beyond_z_private_deviations_are_flagged_at_the_party() -> None:
    parts = tables()
    parts[0][7] = (99.0, 300.0)
    parts[1][3] = (20.0, 999.0)
    moments = federate(
        "moments", parts, bounds=((0, 0), (100, 1000)), epsilon=8.0
    ).result
    flags = [
        (np.abs(part - moments["mean"]) > 6.0 * moments["deviation"]).any(axis=1)
        for part in parts
    ]
    assert [np.flatnonzero(one).tolist() for one in flags] == [[7], [3]]


def test_rows_beyond_their_clusters_private_radius_are_flagged_at_the_party() -> None:
    generator = np.random.default_rng(1)
    middles = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 500, axis=0)
    parts = [middles + generator.normal(0.0, 0.05, middles.shape) for _ in range(3)]
    parts[2][10] = (0.4, -0.9)
    model = FederatedKMeans(2, algorithm="glloyd", bounds=(-1.0, 1.0), epsilon=4.0).fit(
        parts
    )
    task = RadiiTask(options=RadiiOptions(model.cluster_centers_, reach=0.5))
    found = federate(task, parts, bounds=(-1.0, 1.0), epsilon=2.0)
    np.testing.assert_allclose(found["radii"], 0.05 * np.sqrt(2.0), atol=0.04)
    flags = [far_rows(part, found.plan, found.result, times=5.0) for part in parts]
    assert [np.flatnonzero(one).tolist() for one in flags] == [[], [], [10]]


def test_flags_of_a_frame_do_not_depend_on_the_order_of_its_columns() -> None:
    generator = np.random.default_rng(2)
    parts = [
        pd.DataFrame(generator.normal((2, 30), (0.3, 3), (500, 2)), columns=["b", "a"])
        for _ in range(2)
    ]
    found = federate(
        "radii", parts, bounds=((0, 0), (10, 100)), centers=[[2, 30]], epsilon=8.0
    )
    flags = far_rows(parts[0].to_numpy(), found.plan, found.result)
    assert 0.0 < flags.mean() < 0.1
    assert (
        far_rows(parts[0][["a", "b"]], found.plan, found.result).tolist()
        == flags.tolist()
    )
    with pytest.raises(DataError, match="the points have no column 'a'"):
        far_rows(parts[0].rename(columns={"a": "c"}), found.plan, found.result)


@pytest.mark.parametrize(
    ("lower", "upper", "bins"),
    [
        (0.0, 10.0, 10), (0.0, 120.0, 12), (-3.0, 4.0, 7), (0.0, 1000.0, 1000),
        (0.0, 365.0, 73), (1.0, 1001.0, 3),
    ],
)  # fmt: skip
def test_a_value_at_an_edge_is_counted_in_the_bin_that_it_begins(
    lower: float, upper: float, bins: int
) -> None:
    """Rounding to the grid took integers to the bin before."""
    rows = np.arange(lower, upper + 1.0)[:, None]
    options: dict[str, Any] = {
        "bins": bins, "epsilon": 1e6, "noise": "seeded", "random_state": 1,
        "engine": "direct",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        found = federate("histograms", [rows, rows], bounds=(lower, upper), **options)
    assert found["edges"][0].tolist() == np.linspace(lower, upper, bins + 1).tolist()
    expected, _ = np.histogram(np.concatenate([rows, rows]), found["edges"][0])
    assert found["counts"][0].round().tolist() == expected.tolist()


# -- refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "values", "sentence"),
    [
        ("means", {}, "algorithm is 'means', which is not known"),
        (3, {}, "task is 3, but it must be a registered name or a Task"),
        ("histograms", {"bins": 0}, "but it must be an integer of at least 1"),
        ("radii", {"centers": ()}, "centers must be 1 to 10000 rows of finite numbers"),
        ("radii", {"centers": "0.1,2;0.3,x"}, "centers must be 1 to 10000 rows"),
        ("radii", {"centers": ((0.0,),)}, "centers have 1 columns, but the table"),
        ("radii", {"centers": ((0.0, 0.0), (0.5, 9.0))}, "center 1 has 9 in column 1"),
        ("moments", {"bins": 3}, "bins is 3, but the algorithm is 'moments'"),
        ("moments", {"engine": "ray"}, "engine is 'ray', which is not known"),
        ("moments", {"unit": "client"}, "but 'moments' protects 'record', 'person'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(
    task: Any, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ConfigurationError, PlanError), match=sentence):
        federate(task, [np.zeros((5, 2))] * 2, **{"bounds": (-1, 1)} | values)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (np.zeros((5, 2)), r"shape \(5, 2\), but there must be one for each client"),
        ([np.zeros((5, 2))], r"parts has 1 client\(s\), but masks need at least 2"),
        ([np.zeros((5, 2)), np.zeros((5, 3))], r"the clients' arrays have \[2, 3\]"),
        ([pd.DataFrame({"a": [1.0]}), np.zeros((5, 1))], "1 of 2 tables in parts"),
    ],
)  # fmt: skip
def test_tables_that_do_not_go_together_are_refused(parts: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        federate("moments", parts, bounds=(-1, 1))


@pytest.mark.parametrize("bounds", [None, "private", PrivateBounds()])
@pytest.mark.parametrize("task", ["moments", "histograms"])
def test_bounds_that_nobody_finds_are_refused(task: str, bounds: Any) -> None:
    """In a box of 10^12 units every column looks like a constant."""
    with pytest.raises(ConfigurationError, match="does not find them by itself"):
        federate(task, [np.zeros((20, 1))] * 2, bounds=bounds)


def test_counts_and_spreads_of_radii_have_the_same_noise() -> None:
    """A row adds at most 1 to either, and neither is worth more of the budget."""
    counts, spreads = plan_of("radii").rounds[0].blocks
    assert counts.noise_scale == spreads.noise_scale


def test_more_bins_than_the_noise_leaves_rows_for_are_warned_of() -> None:
    few = [np.full((10, 2), 0.5)] * 3
    with pytest.warns(
        PrivacyWarning,
        match=r"^For 30 rows in 20 bins, noise is about \d+% of what one of them adds",
    ):
        found = federate("histograms", few, bounds=(0, 1), epsilon=1.0)
    assert (
        repr(found)
        == "Federated('counts' (2, 20), 'edges' (2, 21); histograms, epsilon 1)"
    )


def test_means_of_fewer_rows_than_the_noise_leaves_room_for_are_warned_of() -> None:
    few, many = plan_of("moments", n_examples=10), plan_of("moments")
    (sentence,) = few.task.cautions(few)
    assert re.match(
        r"For 10 rows, noise is about \d+% of what they add to a sum, and above 10% .*"
        r" fewer columns\.",
        sentence,
    )
    assert many.task.cautions(many) == ()


def test_radii_without_centers_have_nothing_to_be_about() -> None:
    with pytest.raises(ConfigurationError, match="centers are not given"):
        RadiiTask(options=RadiiOptions()).scaled_centers(((-1.0,), (1.0,)), 2)


def test_no_radius_is_longer_than_the_reach_whatever_noise_adds() -> None:
    plan = plan_of("radii", reach=0.5)
    (step,) = build_algorithm(plan).rounds
    values = np.array([4.0, 4.0, 16.0, 1.0]) * 2.0**plan.fraction_bits
    released = as_released(values.astype(np.uint64), step.blocks, plan.fraction_bits)
    assert step.advance(State({}), released)["radii"].tolist() == [0.5, 0.25]


# -- formulas --------------------------------------------------------------------------


def blocks_released(plan: Plan, *arrays: Any) -> ReleasedSum:
    """A release whose noise happened to be zero."""
    flat = np.concatenate(
        [np.ravel(np.asarray(array, dtype=float)) for array in arrays]
    )
    steps = np.rint(np.ldexp(flat, plan.fraction_bits)).astype(np.int64)
    return as_released(steps.view(np.uint64), plan.rounds[0].blocks, plan.fraction_bits)


@pytest.mark.parametrize(
    ("rows", "sums", "squares", "mean", "variance"),
    [
        (4.0, 1.0, 0.5, 0.25, 0.125 + 0.5 - 0.0625),
        # Of less than one row there is one; means stay in the box, squares between 0
        # and 1.
        (0.5, 0.5, -0.25, 0.5, 0.25 - 0.25),
        (-3.0, 0.25, 0.0, 0.25, 0.5 - 0.0625),
        (2.0, 7.0, 5.0, 1.0, 0.0),
        (2.0, -7.0, -5.0, -1.0, -1.0),
    ],
)
def test_means_and_variances_of_noisy_sums_by_hand(
    rows: float, sums: float, squares: float, mean: float, variance: float
) -> None:
    plan = plan_of("moments")
    found = read_moments(blocks_released(plan, [rows], [[sums, 0.0]], [[squares, 0.0]]))
    assert (found[0].tolist(), found[1][0, 0], found[2][0, 0]) == (
        [rows],
        mean,
        variance,
    )
    (step,) = build_algorithm(plan).rounds
    state = step.advance(
        State({}), blocks_released(plan, [rows], [[sums, 0.0]], [[squares, 0.0]])
    )
    deviation = max(2.0**-16, np.rint(np.sqrt(max(variance, 0.0)) * 2**16) / 2**16)
    assert (
        state["means"][0, 0],
        state["deviations"][0, 0],
        state["rows"].tolist(),
    ) == (mean, deviation, [rows])


@pytest.mark.parametrize(
    ("variance", "least", "deviation"),
    [
        (0.25, 0.125, 0.5),
        (0.25, 0.75, 0.75),
        (-9.0, 0.125, 0.125),
        (0.0, 2.0**-18, 2.0**-16),
        (4.0**-17, 0.0, 2.0**-16),
    ],
)
def test_deviations_have_a_floor_and_are_above_zero(
    variance: float, least: float, deviation: float
) -> None:
    assert deviations_of(np.array([variance]), least).tolist() == [deviation]


@pytest.mark.parametrize(
    ("scales", "n_groups", "n_examples", "most", "said"),
    [
        # The largest noise, of 3 on the 50 rows that each of 4 groups has.
        ([1.0, 3.0], 4, 200, 0.06, None),
        ([1.0, 3.0], 4, 200, 0.059,
         "For 200 rows in 4 groups, noise is about 6% of what one of them adds"
         " to a sum"),
        ([1.0, 3.0], 1, 50, 0.059,
         "For 50 rows, noise is about 6% of what they add to a sum, and above 6%"),
        ([9.0], 1, None, 0.0, None),
        ([], 1, 50, 0.0, None),
    ],
)  # fmt: skip
def test_noise_is_compared_with_the_rows_of_a_group(
    scales: list[float], n_groups: int, n_examples: int | None, most: float,
    said: str | None,
) -> None:  # fmt: skip
    rounds = [SimpleNamespace(blocks=scales)] if scales else []
    # All noise that is released counts.
    plan: Any = SimpleNamespace(
        n_examples=n_examples,
        rounds=rounds,
        released_std=lambda planned, block: block,
        unit=PrivacyUnit.RECORD,
    )
    plan.settings = plan
    found = noise_caution(plan, n_groups, "groups", most)
    assert len(found) == (said is not None)
    assert all(one.startswith(str(said)) for one in found)
    assert all(
        one.endswith("fewer columns or groups." if n_groups > 1 else "fewer columns.")
        for one in found
    )


def test_what_groups_declare_and_how_they_share_the_budget() -> None:
    """Of four columns: counts move by 1, sums by 2, squares less one half by 1."""
    counts, sums, squares = moment_parts(3, 4)
    assert [one.shape for one in (counts, sums, squares)] == [(3,), (3, 4), (3, 4)]
    assert [one.sensitivity.bound for one in (counts, sums, squares)] == [1.0, 2.0, 1.0]
    assert [one.entry_bound for one in (counts, sums, squares)] == [1.0, 1.0, 0.5]
    assert [one.share for one in (counts, sums, squares)] == [1.0, 2.0, 2.0]
    assert [one.sensitivity.nonnegative for one in (counts, sums, squares)] == [
        True,
        False,
        False,
    ]
    assert [
        one.tolist() for one in moment_arrays(np.zeros((3, 0)), np.array([0, 2, 2]), 3)
    ] == [[1.0, 0.0, 2.0]]
    assert [one.entry_bound for one in plan_of("histograms").rounds[0].blocks] == [1.0]
    (alone,) = moment_parts(3, 0)
    assert (alone.name, alone.shape, alone.share, alone.entry_bound) == (
        "group_counts",
        (3,),
        1.0,
        1.0,
    )


@pytest.mark.parametrize(
    ("spread", "rows", "radius"),
    [(1.0, 4.0, 0.25), (0.25, 0.25, 0.25), (-1.0, 4.0, 0.0), (1.0, -2.0, 0.5)],
)
def test_radii_of_noisy_sums_by_hand(spread: float, rows: float, radius: float) -> None:
    """0.5 times the root of the mean share of the squared reach."""
    plan = plan_of("radii", reach=0.5, centers=((0.0, 0.0),))
    (step,) = build_algorithm(plan).rounds
    # Half of the reach away a row adds a quarter.
    assert [
        one.tolist() for one in step.arrays_of(np.array([[0.25, 0.0]]), State({}))
    ] == [[1.0], [0.25]]
    state = step.advance(State({}), blocks_released(plan, [rows], [spread]))
    assert [
        plan.task.admits(plan, one, known)
        for one in (step, None)
        for known in (State({}), state)
    ] == [
        *[True, False],
        *[False, True],
    ]
    assert (state["radii"].tolist(), state["rows"].tolist()) == ([radius], [rows])
    counts, spreads = plan.rounds[0].blocks
    assert [one.sensitivity.bound for one in (counts, spreads)] == [1.0, 1.0]
    assert [one.entry_bound for one in (counts, spreads)] == [1.0, 1.0]
    assert [one.sensitivity.nonnegative for one in (counts, spreads)] == [True, True]


@pytest.mark.parametrize(
    ("value", "scaled"),
    [
        (12.0, 1.0), (12.0 + 2.0**-13, 1.0), (12.0 + 2.0**-12, None), (4.0, -1.0),
        (4.0 - 2.0**-12, None),
    ],
)  # fmt: skip
def test_centers_are_at_most_a_grid_step_outside(
    value: float, scaled: float | None
) -> None:
    """A step of the bounds' width of 8 is 2^-13."""
    radii, box = RadiiTask(options=RadiiOptions(((8.0, value),) * 2)), ((4.0,), (12.0,))
    if scaled is None:
        with pytest.raises(ConfigurationError, match=r"center 0 has .* in column 1"):
            radii.scaled_centers(box, 2)
    else:
        assert radii.scaled_centers(box, 2).tolist() == [[0.0, scaled]] * 2


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("0.1,2;0.3,4", ((0.1, 2.0), (0.3, 4.0))),
        ([[1, 2]], ((1.0, 2.0),)),
        (np.array([[1.0], [2.0]]), ((1.0,), (2.0,))),
        (((0.5,),) * 10_000, ((0.5,),) * 10_000),
        (((0.5,),) * 10_001, None),
        ((), None),
        (((),), None),
        (((1.0,), (1.0, 2.0)), None),
        (((1.0, float("nan")),), None),
        ((1.0,), None),
        (3, None),
    ],
)
def test_centers_that_are_taken(given: Any, taken: Any) -> None:
    (rule,) = [rule_of(one) for one in fields(RadiiOptions) if one.name == "centers"]
    if taken is None:
        with pytest.raises(ConfigurationError, match="centers must be 1 to 10000 rows"):
            rule.take("centers", given)
    else:
        assert rule.take("centers", given) == taken


def test_rows_at_twice_the_radius_are_near() -> None:
    """Of each center's own radius, in the box, where 8 is the width of 2."""
    plan = plan_of("radii", centers=((2.0, 4.0), (6.0, 4.0)), bounds=((0.0,), (8.0,)))
    found = Result({"radii": np.array([0.25, 0.125])})
    rows = np.array(
        [
            [0.0, 4.0], [6.0, 5.0], [6.0, 5.0 + 2.0**-12], [2.0, 6.0 + 2.0**-12],
            [2.0, 5.5],
        ]
    )  # fmt: skip
    assert far_rows(rows, plan, found).tolist() == [False, False, True, True, False]
    assert far_rows(rows, plan, found, times=1.0).tolist() == [
        True, True, True, True, True,
    ]  # fmt: skip
    assert far_rows(rows, plan, found, times=1.5).tolist() == [
        True, True, True, True, False,
    ]  # fmt: skip


def test_results_of_moments_by_hand() -> None:
    plan = plan_of("moments", bounds=((0.0, -10.0), (100.0, 30.0)))
    state = State(
        {
            "rows": np.array([7.0]),
            "means": np.array([[0.5, -0.5]]),
            "deviations": np.array([[0.25, 0.5]]),
        }
    )
    found = plan.task.result(plan, state)
    assert (found["mean"].tolist(), found["deviation"].tolist()) == (
        [75.0, 0.0],
        [12.5, 10.0],
    )


def said_of(task: str, parts: Sequence[Array], **values: Any) -> tuple[str, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        found = federate(task, parts, noise="seeded", random_state=1, **values)
    return found.privacy.warnings


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
def test_deviations_and_radii_that_are_noise_are_warned_of(engine: str) -> None:
    """A column came out as one step, or as noise 1,000 times it, without a word."""
    generator = np.random.default_rng(0)
    parts = [
        np.c_[generator.pareto(1.2, n).round(), generator.uniform(0, 1e5, n)]
        for n in (5000, 3000)
    ]
    frames: Any = [pd.DataFrame(part, columns=["gain", "area"]) for part in parts]
    (sentence,) = [
        one
        for one in said_of("moments", frames, bounds=(0, 1e5), engine=engine)
        if "not told" in one
    ]
    assert (
        sentence
        == "The deviation of column 'gain' is not told from noise: give narrower"
        " bounds, raise epsilon, or have more rows."
    )
    assert not any(
        "not told" in one
        for one in said_of("moments", [part[:, 1:] for part in parts], bounds=(0, 1e5))
    )
    near, centers = (
        [generator.normal(0, 1, (n, 2)) for n in (5000, 3000)],
        [[0.0, 0.0], [500.0, 500.0]],
    )
    far = [np.r_[part, 500 + generator.uniform(-200, 200, (2000, 2))] for part in near]
    said = said_of("radii", far, bounds=(-1000, 1000), centers=centers, engine=engine)
    assert [
        one
        for one in said
        if one.startswith("The radius of cluster 0 is not told from noise: ")
    ]
    assert not any(
        "not told" in one
        for one in said_of("radii", near, bounds=(-4, 4), centers=centers[:1])
    )


@pytest.mark.parametrize(
    ("task", "values", "whose"),
    [
        ("histograms", {"bins": 20}, " in 20 bins"),
        ("moments", {}, ""),
        ("naive_bayes", {}, " in 2 classes"),
    ],
)
def test_counts_that_were_released_stand_in_for_a_number_of_rows_that_is_not_public(
    task: str, values: dict[str, Any], whose: str
) -> None:
    generator = np.random.default_rng(0)
    for n_rows, warned in ((20, True), (200_000, False)):
        parts = [
            generator.normal(0, 1, (n_rows, 1)),
            generator.normal(0, 1, (n_rows // 2, 1)),
        ]
        labels = (
            {"labels": [(part[:, 0] > 0).astype(int) for part in parts]}
            if task == "naive_bayes"
            else {}
        )
        own: dict[str, Any] = {
            "bounds": (-4, 4),
            "epsilon": 0.1,
            "n_examples": "private",
            **values,
            **labels,
        }
        said = [
            one
            for one in said_of(task, parts, **own)
            if re.match(rf"For about \d+ rows{whose}, noise is", one)
        ]
        assert bool(said) == warned


def test_moments_are_given_on_in_their_shapes_only() -> None:
    plan = draft_plan(
        parse_config(
            algorithm="moments", bounds=((-1.0, -1.0), (1.0, 1.0)), n_examples=100
        ),
        run_id=1,
        n_clients=2,
        seed=0,
        n_features=2,
    )
    task = plan.task
    assert isinstance(task, MomentsTask)
    arrays = {
        "rows": np.ones(1),
        "means": np.zeros((1, 2)),
        "deviations": np.ones((1, 2)),
    }
    assert task.admits(plan, None, State(arrays))
    for name, array in arrays.items():
        assert not task.admits(plan, None, State({**arrays, name: array[:0]}))
    assert not task.admits(
        plan, None, State({name: arrays[name] for name in ("rows", "means")})
    )
