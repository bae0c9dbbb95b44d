"""Federated profiles: what a client adds, how far a neighbour moves it, and what is
read from the noisy sums.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import ClientLevel, DPKMeans, FederatedKMeans, Schema, federate
from flwr_dpkmeans.algorithms.profile.profile_reading import (
    profile_cautions,
    read_profile,
)
from flwr_dpkmeans.algorithms.profile.profile_round import profile_shapes
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import ConfigurationError, DataError, PlanError
from flwr_dpkmeans.options import flat_options, read_config, schema_settings
from flwr_dpkmeans.privacy.report import PROFILE_ROUND
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import PrivateSum, State

COLUMNS: dict[str, Any] = {
    "size": {"kind": "number", "bounds": [0, 10]},
    "age": {"kind": "number", "bounds": [0, 100], "weight": 0, "missing": "centre"},
    "ward": {"kind": "category", "values": ["A", "B", "C"], "weight": 0,
             "missing": "centre"},
    "sick": {"kind": "flag", "weight": 0},
    "since": {"kind": "date", "bounds": ["2020-01-01", "2020-12-31"], "weight": 0,
              "missing": "fill", "fill": "2020-07-01"},
}  # fmt: skip
PROFILE = ("sick", "ward", "age", "since")
SCHEMA = Schema(columns=COLUMNS, profile=PROFILE, profile_share=0.2)
ROWS = pd.DataFrame(
    {
        "sick": [1, 0, 1, None],
        "age": [100, None, 25, 50],
        "ward": ["A", None, "C", "A"],
        "size": [1, 2, 9, 9],
        "since": ["2020-01-01", "2020-12-31", "x", "2020-12-31"],
    }
)
STATE = cluster_state(np.array([[-0.75], [0.75]]), np.zeros(2))


def plan_of(schema: Schema = SCHEMA, n_clients: int = 5, **options: Any) -> Plan:
    given = {
        "bounds": schema, "n_clusters": 2, "n_examples": 1000,
        "algorithm": "sphere_packing", **options,
    }  # fmt: skip
    box = schema.bounds
    values = (
        flat_options(given)
        | schema_settings(schema)
        | {"bounds": (box.lower, box.upper)}
    )
    return draft_plan(
        read_config(**values), run_id=1, n_clients=n_clients, seed=1,
        n_features=len(box.lower),
    )  # fmt: skip


def round_of(plan: Plan) -> PrivateSum:
    (found,) = [
        one for one in build_algorithm(plan).rounds if one.name == PROFILE_ROUND
    ]
    return found


def summed(plan: Plan) -> list[np.ndarray]:
    encoded = SCHEMA.encode(ROWS)
    points = SCHEMA.bounds.scale(encoded.points[:, :1])
    return list(round_of(plan).arrays_of(points, STATE, None, encoded.points[:, 1:]))


def test_a_block_beside_the_points_is_scaled_by_its_own_bounds() -> None:
    found = SCHEMA.encode(ROWS)
    assert found.rows.tolist() == [0, 1, 2]  # a flag is missing
    assert found.points[:, 0].tolist() == [1.0, 2.0, 9.0]
    third = -1 / 3
    fill = 2 * 182 / 365 - 1
    expected = [
        [1, -1, 1, 1, -1, -1],
        [0, 1, -1, third, third, third],
        [-0.5, fill, 1, -1, -1, 1],
    ]
    # Last, whether the age and the ward are there.
    expected = [
        [*row, present, present]
        for row, present in zip(expected, (1, -1, 1), strict=True)
    ]
    np.testing.assert_allclose(found.points[:, 1:], expected, atol=1e-12)
    assert SCHEMA.profile_widths == (2, 1, 3)
    assert SCHEMA.gap_columns == (0, 3)
    assert SCHEMA.n_beside == 8
    assert SCHEMA.feature_names == ("size",)


def test_an_encoded_table_with_gaps_is_refused_before_anything_is_spent() -> None:
    found = SCHEMA.encode(ROWS)
    found.points[1, 4] = np.nan
    for fit in (
        DPKMeans(2, bounds=SCHEMA).fit,
        lambda table: FederatedKMeans(2, bounds=SCHEMA).fit([table, table]),
    ):
        with pytest.raises(DataError, match="1 rows with a missing or infinite value"):
            fit(found)


def test_a_share_that_is_next_to_nothing_is_refused_with_a_sentence() -> None:
    with pytest.raises(PlanError, match="'group_counts' could reach"):
        plan_of(
            Schema(
                columns=COLUMNS, profile=PROFILE, profile_share=5e-324, gap_share=0.0
            )
        )


def test_one_client_by_hand() -> None:
    counts, sums, squares, cells, present = summed(plan_of())
    fill = np.rint((2 * 182 / 365 - 1) * 2**16) / 2**16
    assert counts.tolist() == [2.0, 1.0]
    assert sums.tolist() == [[1.0, 0.0], [-0.5, fill]]
    # 1 - 1/2 and nothing; twice 1 - 1/2; 1/4 - 1/2, and nearly 0 - 1/2, toward zero.
    assert squares[0].tolist() == [0.5, 1.0]
    assert squares[1, 0] == -0.25
    assert squares[1, 1] == np.trunc((fill**2 - 0.5) * 2**16) / 2**16
    assert cells[0].tolist() == [
        0.0,
        1.0,
        0.0,
        0.0,
    ]  # one half and minus one half; one ward, and nothing
    assert cells[1].tolist() == [0.5, 0.0, 0.0, 1.0]
    assert present.tolist() == [[0.0, 0.0], [0.5, 0.5]]  # of two rows, one is there


def test_a_client_adds_means_at_client_level() -> None:
    client = plan_of(unit=ClientLevel(50), algorithm="proxy_lloyd", n_examples=None)
    for mean, total in zip(summed(client), summed(plan_of()), strict=True):
        np.testing.assert_allclose(mean, total / 3, atol=2**-16)
        assert (np.abs(mean) <= np.abs(total / 3)).all()
    empty = round_of(client).statistic(np.zeros((0, 9)), STATE)
    assert not any(one.any() for one in empty)


LEVELS: list[dict[str, Any]] = [
    {},
    {"unit": ClientLevel(50), "algorithm": "proxy_lloyd", "n_examples": None},
]


@pytest.mark.parametrize("options", LEVELS)
def test_no_neighbours_move_a_profile_beyond_what_it_declares(
    options: dict[str, Any],
) -> None:
    plan = plan_of(**options)
    step = round_of(plan)
    used = check_sensitivity(
        step.blocks, lambda points: step.statistic(points, STATE), 9
    )
    assert min(used.values()) > 0.9, used
    for place in range(len(step.blocks)):
        moved = step.blocks[place].sensitivity
        wrong = list(step.blocks)
        wrong[place] = replace(
            wrong[place], sensitivity=replace(moved, bound=0.9 * moved.bound)
        )
        with pytest.raises(PlanError, match="moves by"):
            check_sensitivity(wrong, lambda points: step.statistic(points, STATE), 9)


@pytest.mark.parametrize("options", LEVELS)
def test_no_neighbours_move_a_count_of_gaps_beyond_what_it_declares(
    options: dict[str, Any],
) -> None:
    """Where nothing is profiled, there are the counts alone."""
    gappy = {"kind": "number", "bounds": [0, 10], "missing": "centre"}
    schema = Schema(
        columns={"size": gappy, "age": gappy | {"kind": "flag", "bounds": None}}
    )
    plan = plan_of(schema, **options)
    assert plan.settings.gap_columns == (-1, -1)
    step, start = (
        round_of(plan),
        cluster_state(np.array([[-0.75, 0.0], [0.75, 0.0]]), np.zeros(2)),
    )
    assert [one.name for one in step.blocks] == ["group_counts", "present_cells"]
    used = check_sensitivity(
        step.blocks, lambda points: step.statistic(points, start), 4
    )
    assert min(used.values()) > 0.9, used


@pytest.mark.parametrize("by_client", [False, True])
def test_one_raw_row_moves_each_sum_by_no_more_than_it_declares(
    by_client: bool,
) -> None:
    """Brute force over all gaps of a row, from its cells to what a client adds."""
    plan = plan_of(**LEVELS[by_client])
    step = round_of(plan)
    cells = {
        "sick": [0, 1],
        "ward": ["A", "C", None],
        "age": [0, 100, 50, None],
        "since": ["2020-01-01", None],
    }
    rows = pd.DataFrame(
        [*itertools.product([1.0, 9.0], *cells.values())], columns=["size", *cells]
    )

    def arrays_of(table: pd.DataFrame) -> list[np.ndarray]:
        encoded = SCHEMA.encode(table)
        points = SCHEMA.bounds.scale(encoded.points[:, :1])
        return list(step.arrays_of(points, STATE, None, encoded.points[:, 1:]))

    before = arrays_of(rows[:0] if by_client else rows)
    largest = dict.fromkeys((block.name for block in step.blocks), 0.0)
    for index in range(len(rows)):
        # A client's rows are replaced by none; a record disappears.
        after = arrays_of(
            rows[index : index + 1] if by_client else rows.drop(index=index)
        )
        for block, one, other in zip(step.blocks, before, after, strict=True):
            moved = float(np.linalg.norm(one - other)) / block.sensitivity.bound
            largest[block.name] = max(largest[block.name], moved)
    assert all(0.9 < moved <= 1.0 + 1e-9 for moved in largest.values()), largest


def test_sensitivities_by_hand() -> None:
    blocks = {one.name: one for one in round_of(plan_of()).blocks}
    bounds = {name: one.sensitivity.bound for name, one in blocks.items()}
    assert bounds["group_counts"] == 1.0
    assert bounds["group_sums"] == pytest.approx(2**0.5, rel=1e-12)
    assert bounds["group_squares"] == pytest.approx(0.5 * 2**0.5, rel=1e-12)
    assert bounds["profile_cells"] == pytest.approx(
        (1 + 0.25) ** 0.5, rel=1e-12
    )  # one category, one flag
    assert bounds["present_cells"] == pytest.approx(0.5 * 2**0.5, rel=1e-12)
    # Together they are as a release that takes a fifth of the squared budget, and a
    # fiftieth for gaps.
    whole = plan_of()
    squares = sum(one.noise_multiplier**-2 for one in blocks.values())
    own = sum(
        one.noise_multiplier**-2 for planned in whole.rounds for one in planned.blocks
    )
    assert squares / own == pytest.approx(0.22, rel=1e-6)
    assert 0.999 < whole.epsilon <= 1.0


def noiseless(
    plan: Plan, counts: Any, sums: Any, squares: Any, cells: Any, missing: Any = 0.0
) -> State:
    """Released sums; of a row's cells that count gaps, `missing` are not there."""
    present = np.repeat(np.array(counts, dtype=float)[:, None], 2, axis=1) * (
        0.5 - np.array(missing)
    )
    arrays = zip(
        profile_shapes(plan.config),
        (counts, sums, squares, cells, present),
        strict=True,
    )
    return STATE.changed(
        **{name: np.array(array, dtype=float) for name, array in arrays}
    )


def test_figures_by_hand() -> None:
    """Of 400 rows three quarters, and of 100 none, are sick."""
    plan = plan_of(epsilon=50.0)
    of_ages = 400 * (0.25 + 0.04 - 0.5)
    state = noiseless(
        plan, [400, 100], [[200, 0], [0, -100]], [[of_ages, -200], [-50, 50]],
        [[100, 400, 0, 0], [-50, 25, 25, 50]],
    )  # fmt: skip
    found = {
        (one.cluster, one.column, one.figure, one.value): one
        for one in read_profile(plan, state, SCHEMA)
    }
    assert [key[1:] for key in found][:9] == [
        ("sick", "share", "1"),
        *[("ward", "share", ward) for ward in "ABC"],
        ("ward", "missing", ""),
        *[("age", figure, "") for figure in ("mean", "spread", "missing")],
        ("since", "mean", ""),
    ]
    assert [key[0] for key in found][:: len(found) // 3] == ["all", "0", "1"]
    assert [found[one, "sick", "share", "1"].estimate for one in ("all", "0", "1")] == [
        0.6,
        0.75,
        0.0,
    ]
    assert found["1", "ward", "share", "C"].estimate == 0.5
    age = found["0", "age", "mean", ""]
    assert age.estimate == 75.0
    assert found["0", "age", "spread", ""].estimate == pytest.approx(10.0, abs=0.1)
    assert found["1", "since", "mean", ""].estimate == "2020-01-01"
    assert [found[one, "age", "mean", ""].noise for one in ("0", "1")] == [False, False]
    assert found["1", "sick", "share", "1"].noise  # not told from zero
    assert not found["0", "sick", "share", "1"].noise
    assert found["1", "age", "spread", ""].noise
    # The mean's noise by hand: of its sum, and of the count that it is divided by.
    std = {
        one.name: plan.released_std(plan.rounds[-1], one)
        for one in plan.rounds[-1].blocks
    }
    of_present = np.hypot(std["present_cells"], std["group_counts"] / 2)
    by_hand = np.hypot(std["group_sums"], 0.5 * of_present) / 400 * 50
    assert age.deviation == pytest.approx(by_hand, rel=1e-12)


def test_deviations_of_a_spread_and_of_all_clusters_by_hand() -> None:
    plan = plan_of()
    planned = plan.rounds[-1]
    rows_std, sums_std, squares_std, _, halves_std = (
        plan.released_std(planned, one) for one in planned.blocks
    )
    counts_std = (
        halves_std**2 + (rows_std / 2) ** 2
    ) ** 0.5  # of the ages that are there
    n, mean, variance = 500, 0.4, 0.2
    squares = n * (variance + mean**2 - 0.5)
    state = noiseless(
        plan, [n, n], [[mean * n, 0]] * 2, [[squares, 0]] * 2, [[0] * 4] * 2
    )
    found = {
        (one.cluster, one.column, one.figure): one
        for one in read_profile(plan, state, SCHEMA)
    }
    for cluster, rows, scale in (("all", 2 * n, 2**0.5), ("1", n, 1.0)):
        of_mean = scale * (sums_std**2 + (mean * counts_std) ** 2) ** 0.5 / rows
        assert found[cluster, "age", "mean"].deviation == pytest.approx(
            50 * of_mean, rel=1e-9
        )
        parts = [squares_std, 2 * mean * sums_std, (mean**2 + 0.5) * counts_std]
        of_variance = scale * sum(one**2 for one in parts) ** 0.5 / rows
        spread = (variance + of_mean**2) ** 0.5
        assert found[cluster, "age", "spread"].estimate == pytest.approx(
            50 * spread, rel=1e-9
        )
        assert found[cluster, "age", "spread"].deviation == pytest.approx(
            50 * of_variance / (2 * spread), rel=1e-9
        )
    # Where the run chose fewer clusters, other rows hold noise alone.
    fewer = read_profile(plan, state.changed(centroids=np.zeros((1, 1))), SCHEMA)
    assert [one.cluster for one in fewer][:: len(fewer) // 2] == ["all", "0"]
    assert fewer[0].deviation == fewer[len(fewer) // 2].deviation


def test_what_lies_beyond_the_block_is_clipped() -> None:
    points = np.array([[0.5, 7.0, -7.0, 7.0, 7.0, -7.0, -7.0, 7.0, -7.0]])
    step = round_of(plan_of())
    for far, near in zip(
        step.statistic(points, STATE),
        step.statistic(np.clip(points, -1, 1), STATE),
        strict=True,
    ):
        assert far.tolist() == near.tolist()


def test_a_cluster_that_is_mostly_noise_is_marked_in_all_figures() -> None:
    plan = plan_of()
    std = plan.released_std(plan.rounds[-1], plan.rounds[-1].blocks[0])
    state = noiseless(
        plan, [2.9 * std, 1e5], [[0, 0], [0, 0]], np.zeros((2, 2)),
        [[0] * 4, [0, 5e4, 5e4, 0]],
    )  # fmt: skip
    found = read_profile(plan, state, SCHEMA)
    assert all(one.noise for one in found if one.cluster == "0")
    # Nobody lives in ward C, and nothing is missing.
    assert {one.figure for one in found if one.cluster == "1" and one.noise} == {
        "share",
        "missing",
    }


@pytest.mark.nightly
def test_errors_are_of_the_size_that_is_said() -> None:
    generator = np.random.default_rng(5)
    n = 6000
    old = generator.random(n) < 0.4
    rows = pd.DataFrame(
        {
            "size": np.where(old, 8, 2) + generator.normal(0, 0.3, n),
            "since": "2020-03-01",
        }
    )
    rows = rows.assign(
        age=np.where(old, 70, 30) + generator.normal(0, 12, n),
        sick=generator.random(n) < 0.2 + 0.6 * old,
    )
    rows = rows.assign(ward=np.where(old, generator.choice(["A", "B"], n), "C"))
    parts = [rows[:2500][["ward", "sick", "size", "since", "age"]], rows[2500:]]
    errors = []
    for seed in range(6):
        options: dict[str, Any] = {
            "noise": "seeded",
            "random_state": seed,
            "engine": "direct" if seed else "inprocess",
        }
        km = FederatedKMeans(
            2, epsilon=1.0, bounds=SCHEMA, trust=["oblivious", "distributed"][seed % 2],
            **options,
        ).fit(parts)  # fmt: skip
        labels, told = km.predict(rows), km.profile_
        for line in told[
            (told.cluster != "all") & told.figure.isin(["mean", "share"])
        ].itertuples():
            own = rows[labels == int(line.cluster)]
            if line.column == "since":
                continue
            exact = (
                own.age.mean()
                if line.column == "age"
                else (own[line.column].astype(str).isin([line.value, "True"])).mean()
            )
            if 0 < line.estimate < 100 and (line.figure == "mean" or line.estimate < 1):
                errors.append((line.estimate - exact) / line.deviation)
        lines = [
            line for line in km.privacy_.releases if line.round_name == PROFILE_ROUND
        ]
        assert [line.array for line in lines] == [
            *(
                "group_counts",
                "group_sums",
                "group_squares",
                "profile_cells",
                "present_cells",
            )
        ]
        assert km.privacy_.epsilon <= 1.0
    assert len(errors) > 30
    assert 0.6 < np.sqrt(np.mean(np.square(errors))) < 1.4


def test_labels_and_points_are_those_of_the_clustered_columns_alone(
    tmp_path: Path,
) -> None:
    rows = pd.concat([ROWS.assign(sick=1)] * 50, ignore_index=True)
    options: dict[str, Any] = {
        "epsilon": 50.0, "noise": "seeded", "random_state": 1, "bounds": SCHEMA,
    }  # fmt: skip
    km = DPKMeans(2, **options).fit(rows)
    bare = rows[["size"]]
    labels = km.predict(bare)
    assert (labels == km.predict(rows)).all()
    assert (labels == km.predict(SCHEMA.encode(rows))).all()
    assert km.transform(bare).shape == (200, 2)
    model = Model.load(km.save(tmp_path / "model.json"))
    assert (model.predict(bare) == labels).all()
    pd.testing.assert_frame_equal(
        FederatedKMeans.load(tmp_path / "model.json").profile_, km.profile_
    )
    said = json.loads((tmp_path / "model.json").read_text())
    assert said["version"] == 2
    # A file of before there were profiles is read, and one whose figures are none is
    # not.
    (tmp_path / "old.json").write_text(
        json.dumps(
            {key: one for key, one in said.items() if key != "federated_profile"}
            | {"version": 1}
        )
    )
    assert Model.load(tmp_path / "old.json").federated_profile == ()
    said["federated_profile"][0]["deviation"] = "?"
    (tmp_path / "wrong.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="cannot be read"):
        Model.load(tmp_path / "wrong.json")
    plain = Schema(columns={"size": COLUMNS["size"]})
    with pytest.raises(DataError, match="by another schema"):
        SCHEMA.encode(plain.encode(bare))
    assert Schema(**SCHEMA.to_dict()) == SCHEMA
    assert "profile" not in plain.to_dict()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"profile": ["agee"]},
     "profile has 'agee', which is no column of it: did you mean 'age'?"),
    ({"profile": ["age", "ward", "sick"]},
     "weight is 0 for 'since', which is in no profile: add it there"),
    (
        {
            "columns": COLUMNS | {"size": COLUMNS["size"] | {"weight": 0}},
            "profile": (*PROFILE, "size"),
        },
        "weight is 0 for all",
    ),
    ({"columns": {"size": COLUMNS["size"]}, "profile": ()},
     "profile_share is 0.2, but profile names no column"),
    ({"profile_share": 0.5}, "profile_share is 0.5"),
    ({"columns": COLUMNS | {"size": COLUMNS["size"] | {"weight": 1e-4}}},
     "weight is 0.0001, but it must be 0 or"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_schema_whose_profile_cannot_be_is_one_sentence(
    change: dict[str, Any], sentence: str
) -> None:
    said = {"columns": COLUMNS, "profile": PROFILE, "profile_share": 0.2} | change
    with pytest.raises(ConfigurationError, match=sentence.replace("?", r"\?")):
        Schema(**said)


def test_what_has_no_profile_refuses_it_before_anything_is_sent() -> None:
    rows = pd.concat([ROWS] * 20)
    with pytest.raises(ConfigurationError, match="a profile, but 'moments' has none"):
        federate("moments", [rows, rows], bounds=SCHEMA)
    with pytest.raises(ConfigurationError, match="a profile, but 'optimal' has none"):
        FederatedKMeans(2, algorithm="optimal", bounds=SCHEMA).fit([rows, rows])
    with pytest.raises(ConfigurationError, match="profile_widths is no argument"):
        FederatedKMeans(2, bounds=SCHEMA, profile_widths=(1, 0))
    for widths in ((1,), (0, 0), (-1, 2), (1, 0, 0), (1, 0)):
        with pytest.raises(ConfigurationError, match="profile_widths follow from"):
            read_config(n_clusters=2, bounds=((0.0,), (1.0,)), profile_widths=widths)
    for wrong in (
        {"profile_widths": ()},
        {"profile_share": 0.5},
        {"profile_share": 0.0},
        {"schema_digest": ""},
    ):
        said = {
            "profile_widths": (1, 0),
            "profile_share": 0.2,
            "schema_digest": "0" * 64,
        } | wrong
        with pytest.raises(ConfigurationError, match="profile_widths follow from"):
            read_config(n_clusters=2, bounds=((0.0,), (1.0,)), **said)


def test_a_plan_whose_profile_is_mostly_noise_says_so_from_public_numbers() -> None:
    planned = plan_of().rounds[-1]
    std = plan_of().released_std(planned, planned.blocks[0])
    for n, told in ((30, 1), (2 * round(2 * std), 1), (30_000, 0)):
        plan = plan_of(n_examples=n)
        said = [
            one
            for one in plan.task.cautions(plan)
            if "The profile is mostly noise" in one
        ]
        assert len(said) == told
        assert all(
            f"on the {n // 2} rows that a cluster has on average" in one for one in said
        )
    (sentence,) = profile_cautions(plan_of(**LEVELS[1]), 1.5)
    assert "on the 1.5 clients that a cluster has on average" in sentence


def test_a_result_without_the_profile_or_with_another_one_is_refused() -> None:
    plan = plan_of(trust="distributed")
    sums = {
        name: np.zeros(shape) for name, shape in profile_shapes(plan.config).items()
    }
    require_server_state(plan, plan.last_round + 1, STATE.changed(**sums))
    for wrong in (
        STATE,
        STATE.changed(**sums, more=np.zeros(1)),
        STATE.changed(**sums | {"group_counts": np.zeros(3)}),
    ):
        with pytest.raises(Exception, match="does not fit the plan"):
            require_server_state(plan, plan.last_round + 1, wrong)


def test_a_profile_shares_its_part_of_the_budget_by_hand() -> None:
    """Counts 1, sums and squares of two numbers 4 each, labels 4, gaps 1 each."""
    for profile, shares in (
        (PROFILE, [1, 4, 4, 4, 2]),
        (("age",), [1, 2, 2, 1]),
        (("ward", "sick"), [1, 4, 1]),
    ):
        columns = {
            name: column
            for name, column in COLUMNS.items()
            if name in ("size", *profile)
        }
        schema = Schema(columns=columns, profile=profile, profile_share=0.2)
        blocks = round_of(plan := plan_of(schema)).blocks
        nothing = {
            name: np.zeros(shape) for name, shape in profile_shapes(plan.config).items()
        }
        assert {
            one.column for one in read_profile(plan, STATE.changed(**nothing), schema)
        } == set(profile)
        found = [
            one.noise_multiplier**-2 / blocks[0].noise_multiplier ** -2
            for one in blocks
        ]
        assert found == pytest.approx(shares, rel=1e-9)
        entries = {
            "group_counts": 1.0,
            "group_sums": 1.0,
            "group_squares": 0.5,
            "profile_cells": 1.0,
        }
        entries["present_cells"] = 0.5
        assert [one.entry_bound for one in blocks] == [
            entries[one.name] for one in blocks
        ]
        assert [one.sensitivity.nonnegative for one in blocks] == [
            one.name == "group_counts" for one in blocks
        ]
    for options, unit in zip(LEVELS, ("record", "client"), strict=True):
        moved = [one.sensitivity for one in round_of(plan_of(**options)).blocks]
        assert {one.unit.value for one in moved} == {unit}
        assert {one.because.startswith("S30: one client's mean") for one in moved} == {
            unit == "client"
        }


@pytest.mark.parametrize(("sign", "mean", "share"), [(1, 100.0, 1.0), (-1, 0.0, 0.0)])
def test_no_noise_carries_a_figure_out_of_its_range(
    sign: int, mean: float, share: float
) -> None:
    n, plan = 1e6, plan_of()
    sums, cells = [[1.5 * sign * n, 0]] * 2, [[sign * n, 1.5 * sign * n, 0, 0]] * 2
    found = read_profile(
        plan, noiseless(plan, [n, n], sums, [[0, 5 * n]] * 2, cells), SCHEMA
    )
    estimates = {(one.column, one.figure, one.value): one.estimate for one in found}
    assert [estimates[name, "spread", ""] for name in ("age", "since")] == [0.0, 182.5]
    assert (
        estimates["age", "mean", ""],
        estimates["sick", "share", "1"],
        estimates["ward", "share", "A"],
    ) == (
        *(mean, share),
        share,
    )
    # Of fewer cells than their noise there are as many as that.
    std = plan.released_std(plan.rounds[-1], plan.rounds[-1].blocks[0])
    halves_std = plan.released_std(plan.rounds[-1], plan.rounds[-1].blocks[4])
    moved = 50 * 0.25 * sign * std / np.hypot(halves_std, std / 2)
    few = noiseless(
        plan, [0, 0], [[0, 0], [0.25 * sign * std, 0]], np.zeros((2, 2)),
        np.zeros((2, 4)),
    )  # fmt: skip
    means = [
        one.estimate
        for one in read_profile(plan, few, SCHEMA)
        if (one.column, one.figure) == ("age", "mean")
    ]
    assert means == pytest.approx([50.0 + moved / 2**0.5, 50.0, 50.0 + moved])
