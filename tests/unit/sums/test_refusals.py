"""What is refused just beyond a limit, and taken at it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.recovery_federation import RecoveryFederation

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    PlanError,
    ProtocolError,
)
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.noise import SecureNoise
from flwr_dpkmeans.privacy.release import (
    Block,
    ExactRelease,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    draw_noise,
)
from flwr_dpkmeans.secagg.messages import NO_ROUND
from flwr_dpkmeans.sums import draft, server
from flwr_dpkmeans.sums.checks import sound
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity, share_of_bound
from flwr_dpkmeans.sums.client import state_changes
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.wire import MAX_INTEGER, dump_plan, load_plan

BOX = ((-1.0,), (1.0,))


@pytest.mark.parametrize(
    "place",
    [(), ("config",), ("config", "task"), ("rounds", 0), ("rounds", 0, "blocks", 0)],
)
def test_a_plan_that_says_more_or_less_than_is_read_is_refused(
    place: tuple[Any, ...],
) -> None:
    blob = dump_plan(final_plan())
    assert load_plan(json.dumps(json.loads(blob), indent=1).encode()) == final_plan()
    for change in (
        lambda found: found.update(more=1),
        lambda found: found.pop(list(found)[-1]),
    ):
        said = json.loads(blob)
        change(reduce(lambda found, key: found[key], place, said))
        with pytest.raises(
            ProtocolError, match=r"malformed|says more or less|computes"
        ):
            load_plan(json.dumps(said).encode())


def test_a_release_before_the_final_plan_is_refused() -> None:
    preliminary = cast(Any, SimpleNamespace(clusters=None))
    with pytest.raises(ProtocolError, match="a release came before the plan was final"):
        state_changes.next_state(preliminary, cast(Any, None))


def test_signatures_are_asked_for_only_after_survivors_were_told_of() -> None:
    """Before that there is nothing that neighbours could have signed."""
    federation = RecoveryFederation.make(6)
    for state in federation.states.values():
        state.require_confirmed({}, {})


def test_a_table_of_clusters_and_classes_has_at_most_100_000_cells() -> None:
    given = {
        "bounds": BOX, "n_examples": 10**6, "evaluation": "private", "n_classes": 1000,
    }  # fmt: skip
    assert parse_config(n_clusters=100, **given).settings.n_classes == 1000
    with pytest.raises(ConfigurationError, match="101 clusters and 1000 classes make"):
        parse_config(n_clusters=101, **given)


def test_a_private_count_is_the_number_of_rows_unless_a_task_needs_more() -> None:
    task = cast(
        Any,
        SimpleNamespace(least_rows=3, why_rows="'a task' needs at least 3: add data."),
    )
    assert Task.counted_examples(task, 3.4) == 3
    assert Task.counted_examples(task, 1234.6) == 1235
    with pytest.raises(PlanError, match="the private count found about 1 rows, but 'a"):
        Task.counted_examples(task, -5.0)


@pytest.mark.parametrize(
    ("norm", "change", "share"),
    [
        (Norm.L1, [2, 2], 1.0),
        (Norm.L1, [3, 2], None),
        (
            Norm.L1,
            [5, 0],
            None,
            # within what a client's rounding may add to an entry, but not within the
            # bound
        ),
        (Norm.L2, [0, -4], 1.0),
        (Norm.L2, [2, 3], pytest.approx(13**0.5 / 4)),
        (Norm.L2, [4, 1], None),
        (Norm.L2, [3, -3], None),
    ],
)
def test_a_change_is_measured_in_the_declared_norm(
    norm: Norm, change: list[int], share: Any
) -> None:
    """Of four steps."""
    bound = Sensitivity(norm, 4.0 / 2**16, PrivacyUnit.RECORD, "four steps")
    noise = NoiseShape.LAPLACE if norm is Norm.L1 else NoiseShape.GAUSSIAN
    block = Block("sums", (2,), bound, noise, 9.0, 4.0 / 2**16)
    if share is None:
        with pytest.raises(PlanError, match="but its sensitivity is declared as"):
            share_of_bound(block, np.array(change))
    else:
        assert share_of_bound(block, np.array(change)) == share


@pytest.mark.parametrize(
    ("unit", "largest"), [(PrivacyUnit.RECORD, 1.0 / 40), (PrivacyUnit.CLIENT, 1.0)]
)
def test_the_largest_change_of_all_tables_is_told(
    unit: PrivacyUnit, largest: float
) -> None:
    """Of a count that may move by 40: by one where a row comes along."""
    counted = Block(
        "rows", (1,), Sensitivity(Norm.L2, 40.0, unit, "so"), NoiseShape.GAUSSIAN, 9.0,
        40.0,
    )  # fmt: skip
    still = Block(
        "still", (1,), Sensitivity(Norm.L2, 1.0, unit, "so"), NoiseShape.GAUSSIAN, 9.0,
        1.0,
    )  # fmt: skip
    most = 40.0 if unit is PrivacyUnit.CLIENT else math.inf
    statistic = lambda rows: [  # noqa: E731
        np.array([min(float(len(rows)), most)]),
        np.zeros(1),
    ]
    assert check_sensitivity([counted, still], statistic, 2, n_tables=1) == {
        "rows": largest,
        "still": 0.0,
    }
    if unit is PrivacyUnit.CLIENT:
        with pytest.raises(PlanError, match="'rows' moves by 4000 between two"):
            check_sensitivity(
                [counted], lambda rows: [np.array([float(len(rows))])], 2, n_tables=1
            )


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        ([0.0], "has shape (1,)"),
        ([0.0, 2.0**-17], "or entries between multiples of 2^-16"),
        ([0.0, -(2.0**-16)], "has an entry below 0, but it is declared nonnegative"),
    ],
)
def test_what_is_not_as_it_was_declared_is_refused(
    array: list[float], sentence: str
) -> None:
    sensitivity = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "so", nonnegative=True)
    block = Block("sums", (2,), sensitivity, NoiseShape.GAUSSIAN, 9.0, 1.0)
    with pytest.raises(PlanError, match=re.escape(sentence)):
        check_sensitivity([block], lambda _: [np.array(array)], 2)
    signed = replace(block, sensitivity=replace(sensitivity, nonnegative=False))
    assert check_sensitivity(
        [signed], lambda _: [np.array([0.0, -(2.0**-16)])], 2, n_tables=1
    ) == {"sums": 0.0}


def final_plan(**values: Any) -> Plan:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), algorithm="glloyd", n_examples=1_000,
        **values,
    )  # fmt: skip
    return draft.draft_plan(config, run_id=1, n_clients=3, seed=0, n_features=2)


@pytest.mark.parametrize(
    ("fitting", "refused", "sentence"),
    [
        ({"seed": 0}, {"seed": -1}, "the plan's seed is -1"),
        ({"n_examples": None, "delta": 1e-5}, {"n_examples": None, "delta": 1.1e-5},
         "it may be at most 1e-05"),
        ({"n_examples": 7, "delta": 5e-4}, {"n_examples": None, "delta": 5e-4},
         "without a declared number of rows"),
    ],
)  # fmt: skip
def test_where_the_numbers_of_a_plan_end(
    fitting: dict[str, Any], refused: dict[str, Any], sentence: str
) -> None:
    plan = final_plan()
    sound.check_plan(replace(plan, **fitting))
    with pytest.raises((PlanError, ConfigurationError), match=sentence):
        sound.check_plan(replace(plan, **refused))


def test_delta_of_clients_is_below_one_over_their_number() -> None:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), algorithm="sphere_packing",
        unit="client", trust="central",
    )  # fmt: skip
    plan = draft.draft_plan(config, run_id=1, n_clients=8, seed=0, n_features=2)
    sound.check_plan(replace(plan, delta=0.124))
    with pytest.raises(ConfigurationError, match="at client level it must be below"):
        sound.check_plan(replace(plan, delta=0.125))


@pytest.mark.parametrize(
    ("unit", "rows"),
    [(PrivacyUnit.RECORD, sound.MAX_ROWS_PER_CLIENT), (PrivacyUnit.CLIENT, 1)],
)
def test_sums_have_room_for_all_rows_of_all_clients(
    unit: PrivacyUnit, rows: int
) -> None:
    """A sum that wraps is noise that was paid for."""
    plan = final_plan()
    if unit is PrivacyUnit.CLIENT:
        client = {
            "algorithm": "sphere_packing",
            "unit": "client",
            "trust": "central",
            "delta": 1e-5,
        }
        config = parse_config(n_clusters=2, bounds=((-1.0,), (1.0,)), **client)
        plan = draft.draft_plan(config, run_id=1, n_clients=3, seed=0, n_features=2)
    because = Sensitivity(Norm.L2, 2.0, unit, "so")
    largest = 2.0 ** (63 - plan.fraction_bits) / (3 * rows)
    for share, fits in ((0.99, True), (1.0, False)):
        block = Block("sums", (2,), because, NoiseShape.GAUSSIAN, 3.0, share * largest)
        planned = PlannedRound("r", "oblivious", (block,))
        if fits:
            sound.check_round(plan, planned)
        else:
            with pytest.raises(PlanError, match="but the ring wraps"):
                sound.check_round(plan, planned)


def test_a_sensitivity_is_for_the_unit_that_the_run_protects() -> None:
    """The report would promise for a client what holds for one of its rows."""
    because = Sensitivity(Norm.L2, 2.0, PrivacyUnit.CLIENT, "so")
    block = Block("sums", (2,), because, NoiseShape.GAUSSIAN, 3.0, 0.25)
    with pytest.raises(PlanError, match="'sums' is bounded for one client"):
        sound.check_round(final_plan(), PlannedRound("r", "oblivious", (block,)))


@pytest.mark.parametrize(
    ("noise", "norm"), [(NoiseShape.GAUSSIAN, Norm.L2), (NoiseShape.LAPLACE, Norm.L1)]
)
def test_noise_that_no_source_draws_is_refused_before_anybody_is_charged(
    noise: NoiseShape, norm: Norm
) -> None:
    """Under trust oblivious the server draws it when clients have charged the round."""
    plan, drawn = final_plan(), 0
    for power in np.arange(36.0, 48.0, 0.125):
        block = Block(
            "counts", (2,), Sensitivity(norm, 1.0, PrivacyUnit.RECORD, "so"), noise,
            2.0**power, 0.0,
        )  # fmt: skip
        try:
            sound.check_round(plan, PlannedRound("r", "oblivious", (block,)))
        except PlanError:
            continue
        drawn += draw_noise([block], SecureNoise(), plan.fraction_bits).size
    assert 0 < drawn < 2 * 96


def test_noise_of_less_than_a_step_and_too_long_rounds_are_refused() -> None:
    plan = final_plan()
    because = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "so")
    step = 2.0**-plan.fraction_bits

    def check(*blocks: Block) -> None:
        sound.check_round(plan, PlannedRound("r", "oblivious", blocks))

    check(Block("sums", (2,), because, NoiseShape.GAUSSIAN, step, 1.0))
    check(*[Block(name, (2**23,), because, NoiseShape.NONE, 0.0, 1.0) for name in "ab"])
    with pytest.raises(PlanError, match="but the grid has steps of"):
        check(
            Block("sums", (2,), because, NoiseShape.GAUSSIAN, step * (1.0 - 1e-15), 1.0)
        )
    with pytest.raises(PlanError, match="has 16777217 entries, but at most 16777216"):
        check(Block("sums", (2**24 + 1,), because, NoiseShape.NONE, 0.0, 1.0))
    with pytest.raises(PlanError, match="releases two arrays of one name"):
        check(*[Block("sums", (2,), because, NoiseShape.GAUSSIAN, 1.0, 1.0)] * 2)


@pytest.mark.parametrize(
    ("epsilon", "worst", "limit", "charged", "sentence"),
    [
        (1.0 + 9e-10, 2.0, None, math.inf, None),
        (1.0 + 1.1e-9, 2.0, None, math.inf,
         "the plan costs epsilon 1.000000001, but the budget is 1"),
        (1.0, 2.0 + 1e-9, 2.0, math.inf, None),
        (1.0, 2.0 + 3e-9, 2.0, math.inf, "but max_epsilon is 2"),
        (1.0, 2.0 + 1e-9, None, 2.0, None),
        (1.0, 2.0 + 3e-9, None, 2.0, "but 2 was charged before the rows were counted"),
        (1.0, math.inf, None, math.inf, None),
    ],
)  # fmt: skip
def test_a_billionth_more_than_a_budget_is_allowed(
    epsilon: float, worst: float, limit: float | None, charged: float,
    sentence: str | None,
) -> None:  # fmt: skip
    settings = SimpleNamespace(epsilon=1.0, max_epsilon=limit, max_retries=1)
    plan: Any = SimpleNamespace(
        settings=settings, epsilon=epsilon, epsilon_worst_case=worst, events=lambda: ()
    )
    if sentence is None:
        sound.check_budget(plan, charged, plan)
    else:
        with pytest.raises(BudgetError, match=re.escape(sentence)):
            sound.check_budget(plan, charged, plan)
        plan.events = lambda: (ExactRelease("sums"),)
        if limit is None:  # what releases a sum as it is has no budget to keep
            sound.check_budget(plan, charged, plan)


@pytest.mark.parametrize(
    "box", [((-1.0,) * 3, (1.0,) * 2), ((-1.0,) * 2, (1.0,) * 3), ((-1.0,), (1.0,))]
)
def test_a_box_has_one_range_for_each_feature(box: Any) -> None:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), private_bounds=True, algorithm="glloyd"
    )
    config.task.require_box(config, ((-1.0,) * 2, (1.0,) * 2), 2)
    config.task.require_box(config, None, None)
    for n_features in (2, None):
        with pytest.raises(PlanError, match="features, but tables have"):
            config.task.require_box(config, box, n_features)


@pytest.mark.parametrize(("n_nodes", "more"), [(0, None), (20, ""), (21, ", ...")])
def test_so_many_nodes_are_named_that_are_left_out(
    n_nodes: int, more: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    silence = SimpleNamespace(
        why="", nodes=tuple(range(n_nodes)), left_out="sent no key shares"
    )
    server.Server._log_silence(SimpleNamespace(session=None), silence)  # type: ignore[arg-type]
    names = ", ".join(map(str, range(20)))
    message = f"{n_nodes} node(s) sent no key shares and are left out: {names}{more}"
    assert caplog.messages == ([] if more is None else [message])


def test_numbers_of_the_format_are_what_other_parties_have() -> None:
    assert (NO_ROUND, MAX_INTEGER) == (-2147483648, 2147483648)
