"""Which plans follow from what is known, and which of those that arrive are refused, at the edge of each check."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.noise import Closeness
from flwr_dpkmeans.privacy.release import (
    Block,
    GaussianRelease,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    as_released,
)
from flwr_dpkmeans.sums import draft
from flwr_dpkmeans.sums.draft import (
    _agree,
    _known,
    build_algorithm,
    check_plan,
    draft_plan,
    initial_state,
    redraft_plan,
    require_next,
    require_plausible,
    require_server_state,
    verify_plan,
    whole_multiplier,
    worst_case,
)
from flwr_dpkmeans.sums.plan import Plan, PublicPoints, columns_digest
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.task import Found, ServerFacts

BOX = ((-1.0,), (1.0,))
TWO = ((-1.0, 0.0), (1.0, 2.0))
FACTS = ServerFacts(3, (0.0, 0.0), 0.5, 0.2)
POINTS = PublicPoints.of(np.array([[0.5, 0.0], [-0.5, 0.25], [0.0, -0.25]]))
FEDDP: dict[str, Any] = {"algorithm": "feddp_kmeans", "n_examples": 5000}
SAMPLED: dict[str, Any] = {"algorithm": "proxy_lloyd", "unit": "client", "trust": "central"}


def plan_of(n_clients: int = 5, width: int | None = 2, known: dict[str, Any] | None = None, **values: Any) -> Plan:
    settings = {"algorithm": "glloyd", "n_clusters": 2, "bounds": BOX, "n_examples": 1000}
    settings |= {"max_iter": 2} if values.get("algorithm") != "feddp_kmeans" else {}
    config = parse_config(**(settings | values))
    return draft_plan(config, run_id=4, n_clients=n_clients, seed=11, n_features=width, **(known or {}))


# -- what is drafted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "facts", "points", "sentence"),
    [
        ("oblivious", FACTS, POINTS, None),
        ("distributed", FACTS, None, None),
        ("distributed", FACTS, POINTS, "server points are in the plan, but trust 'distributed' keeps them"),
        ("central", FACTS, POINTS, "server points are in the plan, but trust 'central' keeps them on the server"),
        ("oblivious", None, None, "'feddp_kmeans' starts from the server's own points: give server_data"),
    ],
)
def test_points_are_in_the_plan_where_clients_need_them(
    trust: str, facts: ServerFacts | None, points: PublicPoints | None, sentence: str | None
) -> None:
    known = {"server": facts, "public_points": points}
    if sentence is None:
        assert plan_of(known=known, trust=trust, **FEDDP).public_points is points
    else:
        with pytest.raises(ConfigurationError, match=sentence):
            plan_of(known=known, trust=trust, **FEDDP)


@pytest.mark.parametrize(
    ("values", "known", "sentence"),
    [
        ({}, {"public_points": POINTS}, "server points are in the plan, but trust 'oblivious' keeps them"),
        ({}, {"server": FACTS}, "server_data was given, but 'glloyd' starts without it"),
        (FEDDP | {"private_bounds": True}, {"server": FACTS}, "bounds follow from the server's own points"),
        ({"tolerance": 0.5}, {}, "tolerance is 0.5, but under trust 'oblivious' the server knows the noise"),
        ({"unit": "client"}, {}, "unit is 'client', but 'glloyd' protects 'record' only: choose unit='record', or the"),
        ({"n_features": 3}, {}, "n_features is declared as 3, but the clients' tables have 2 features"),
        ({"bounds": TWO}, {"n_features": 3}, "there are bounds for 2 features, but the table has 3"),
        ({"masking": True, "trust": "curator"}, {}, "trust is 'curator', where one party holds all rows"),
        ({}, {"box": BOX}, "box"),
    ],
)
def test_what_no_plan_follows_from(values: dict[str, Any], known: dict[str, Any], sentence: str) -> None:
    width = known.pop("n_features", 2) if "n_features" in known else 2
    with pytest.raises((ConfigurationError, PlanError), match=sentence):
        plan_of(width=width, known=known, **values)


def test_an_algorithm_for_the_unit_is_named_in_a_refusal() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_of(unit="client")
    named = re.search("or the algorithm '([a-z_]+)' for 'client'", str(caught.value))
    assert named is not None
    assert PrivacyUnit.CLIENT in draft.TASKS[named[1]].units


@pytest.mark.parametrize(
    ("values", "width", "known", "final"),
    [
        ({}, 2, {}, True),
        ({}, None, {}, False),
        ({"n_features": 3}, None, {}, True),
        ({"n_examples": None}, 2, {}, False),
        ({"n_examples": None}, 2, {"n_examples": 900}, True),
        ({"n_examples": None, "algorithm": "lloyd"}, 2, {}, True),
        ({"private_bounds": True}, 2, {}, False),
        ({"private_bounds": True}, 2, {"box": ((-0.5,) * 2, (0.5,) * 2)}, True),
        ({"private_bounds": True, "n_examples": None}, 2, {"box": ((-0.5,) * 2, (0.5,) * 2)}, False),
    ],
)
def test_a_plan_is_final_once_rows_width_and_box_are_known(
    values: dict[str, Any], width: int | None, known: dict[str, Any], final: bool
) -> None:
    plan = plan_of(width=width, known=known, **values)
    assert plan.is_final is final
    assert plan.n_features == values.get("n_features", width)
    declared = values.get("n_examples", 1000)
    assert plan.n_examples == (declared if declared is not None else known.get("n_examples"))


def test_names_of_the_configuration_win_over_what_clients_answer() -> None:
    answered = {"columns": "7" * 64}
    assert plan_of(known=answered).columns_digest == "7" * 64
    named = plan_of(known=answered, feature_names=("a", "b"))
    assert named.columns_digest == columns_digest(4, ("a", "b")) != "7" * 64
    again = redraft_plan(plan_of(known=answered), n_features=2)
    assert again == plan_of(known=answered)
    assert redraft_plan(plan_of(known=answered), n_features=2, columns="8" * 64).columns_digest == "8" * 64


@pytest.mark.parametrize(
    ("values", "known", "expected"),
    [
        ({"algorithm": "lloyd"}, {}, "infinite"),
        ({"evaluation": "exact", "n_examples": None}, {}, "infinite"),
        ({"evaluation": "exact"}, {}, "infinite"),
        ({}, {}, "its own"),
        ({"private_bounds": True}, {}, "the final plan's"),
        ({"n_examples": None, "max_retries": 0}, {}, "epsilon"),
        ({"n_examples": None, "max_retries": 1}, {}, "two of the whole"),
        ({"n_examples": None, "max_retries": 1}, {"n_examples": 700}, "two of the whole"),
        ({"n_examples": None, "max_retries": 1, "max_epsilon": 1.3}, {}, "limit"),
        ({"n_examples": None, "max_retries": 1, "max_epsilon": 9.0}, {}, "two of the whole"),
    ],
)
def test_what_ledgers_are_charged_first(values: dict[str, Any], known: dict[str, Any], expected: str) -> None:
    plan = plan_of(known=known, **values)
    box = {"box": ((-1.0,) * 2, (1.0,) * 2)}
    whole = whole_multiplier(plan.config, 1e-6)
    prices = {
        "infinite": lambda: math.inf,
        "its own": lambda: plan.epsilon_worst_case,
        "the final plan's": lambda: plan_of(known=box, **values).epsilon_worst_case,
        "epsilon": lambda: 1.0,
        "limit": lambda: 1.3,
        "two of the whole": lambda: compose_epsilon([GaussianRelease("a", whole)] * 2, 1e-6),
    }
    assert worst_case(plan) == pytest.approx(prices[expected](), rel=1e-6)


def squares_of(plan: Plan, index: int) -> float:
    return math.fsum(block.noise_multiplier**-2 for block in plan.round_at(index).blocks)


def test_all_gaussian_releases_besides_are_one() -> None:
    """Count and histograms as they are planned; an evaluation of a twentieth of the budget."""
    plan = plan_of(known={"n_examples": 900, "box": ((-0.5,) * 2, (0.5,) * 2)}, n_examples=None, private_bounds=True)
    before = math.fsum(squares_of(plan, index) for index in range(plan.first_round, 1))
    found = _known(plan)
    assert found.released_multiplier == pytest.approx(before**-0.5, rel=1e-12)
    assert (found.evaluation, found.profile, found.sampled) == ((), (), ())
    assert found.released_closeness.log_ratio > 0.0
    measured = plan_of(evaluation="private")
    found = _known(measured)
    assert found.released_multiplier == pytest.approx(squares_of(measured, 3) ** -0.5, rel=1e-12)
    own = whole_multiplier(measured.config, measured.delta) / math.sqrt(0.05)
    assert found.released_multiplier == pytest.approx(own, rel=1e-9)
    assert measured.rounds[-1].blocks == found.evaluation
    bare = _known(plan_of(evaluation="exact"))
    assert (bare.released_multiplier, bare.released_closeness) == (None, Closeness(0.0, 0.0, 0.0))
    assert bare.evaluation


@pytest.mark.parametrize("algorithm", ["sulloyd", "glloyd", "lloyd"])
def test_an_exact_evaluation_takes_no_part_of_the_budget_from_any_noise(algorithm: str) -> None:
    """Also beside Laplace rounds and declared rows, where nothing has a share."""
    exact, without = plan_of(algorithm=algorithm, evaluation="exact"), plan_of(algorithm=algorithm)
    assert exact.rounds[:-1] == without.rounds
    assert {block.noise for block in exact.rounds[-1].blocks} == {NoiseShape.NONE}
    assert (exact.delta, exact.epsilon, exact.is_private) == (without.delta, math.inf, False)
    verify_plan(exact)


def test_an_evaluation_of_a_sample_costs_what_it_would_of_all() -> None:
    plan = plan_of(20, **SAMPLED, evaluation="private", client_sampling_rate=0.5)
    found = _known(plan)
    (sampled,) = found.sampled
    assert (sampled.sampling_rate, found.released_multiplier) == (0.5, None)
    all_of_them = whole_multiplier(plan.config, plan.delta) / math.sqrt(0.05)
    cost = compose_epsilon([GaussianRelease("all", all_of_them)], plan.delta)
    joint = 1.0 / math.sqrt(squares_of(plan, plan.last_round))
    assert joint < all_of_them
    assert compose_epsilon([GaussianRelease("some", joint, sampling_rate=0.5)], plan.delta) == pytest.approx(
        cost, rel=1e-5
    )


def test_a_start_follows_from_the_points_that_the_plan_holds_or_that_are_given() -> None:
    plan = plan_of(known={"server": FACTS, "public_points": POINTS}, trust="oblivious", **FEDDP)
    kept = plan_of(known={"server": FACTS}, trust="distributed", **FEDDP)
    shown, given = initial_state(plan), initial_state(kept, POINTS.table)
    assert shown.digest == given.digest
    assert not any(array.flags.writeable for state in (shown, given) for array in state.arrays.values())
    with pytest.raises(PlanError, match="the number of features is not known yet"):
        build_algorithm(plan_of(width=None))


# -- what arrives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({"columns_digest": "0" * 64}, None),
        ({"columns_digest": "0" * 63}, "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"columns_digest": "0" * 65}, "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"columns_digest": "A" * 64}, "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"columns_digest": "0" * 64 + "\n"}, "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"server": FACTS, "n_features": 3}, "the server points' centre has another width than the plan"),
        ({"public_points": POINTS}, "the plan's server points have another shape than it says"),
        ({"delta": 2e-4}, "the plan does not follow from its own configuration"),
        ({"rounds": ()}, "the plan does not follow from its own configuration"),
        ({"version": 6}, "the plan does not follow from its own configuration"),
    ],
)
def test_a_plan_that_does_not_follow_from_itself(change: dict[str, Any], sentence: str | None) -> None:
    plan = replace(plan_of(), **change)
    if sentence is None:
        verify_plan(plan)
    else:
        with pytest.raises(ProtocolError, match=sentence):
            verify_plan(plan)


def test_a_schemas_digest_is_one() -> None:
    config = plan_of().config
    for digest, sentence in (("f" * 64, None), ("g" * 64, "the plan's digest of its schema is no SHA-256")):
        plan = replace(plan_of(), config=replace(config, settings=replace(config.settings, schema_digest=digest)))
        if sentence is None:
            verify_plan(plan)
        else:
            with pytest.raises(ProtocolError, match=sentence):
                verify_plan(plan)


def test_rows_that_nobody_declared_or_counted_are_no_part_of_a_plan() -> None:
    plan = plan_of(n_examples=None, algorithm="lloyd")
    verify_plan(plan)
    with pytest.raises(ProtocolError, match="the plan has N = 1000, which is neither declared nor counted"):
        verify_plan(replace(plan, n_examples=1000))
    with pytest.raises(ProtocolError, match="the plan is for nobody"):
        verify_plan(replace(plan_of(), n_examples=0))


def test_points_in_a_plan_are_as_many_and_as_wide_as_it_says() -> None:
    plan = plan_of(known={"server": FACTS, "public_points": POINTS}, trust="oblivious", **FEDDP)
    verify_plan(plan)
    for points in (np.zeros((2, 2)), np.zeros((4, 2)), np.zeros((3, 1)), np.zeros((2, 3))):
        with pytest.raises(ProtocolError, match="the plan's server points have another shape than it says"):
            verify_plan(replace(plan, public_points=PublicPoints.of(points)))
    with pytest.raises(ProtocolError, match="keeps the server's points back, but under trust 'oblivious'"):
        verify_plan(replace(plan, public_points=None))


def test_the_first_round_that_differs_is_named() -> None:
    plan = plan_of(n_examples=None, known={"n_examples": 900})

    def noisier(index: int) -> Plan:
        rounds = list(plan.all_rounds)
        block = rounds[index].blocks[0]
        block = replace(block, noise_multiplier=block.noise_multiplier * (1.0 + 2e-9))
        rounds[index] = replace(rounds[index], blocks=(block, *rounds[index].blocks[1:]))
        return replace(plan, preliminary=tuple(rounds[:1]), rounds=tuple(rounds[1:]))

    for index, name in ((0, "count"), (1, "lloyd-1"), (2, "lloyd-2")):
        with pytest.raises(ProtocolError, match=f"round '{name}' of the plan has other sensitivities or noise"):
            verify_plan(noisier(index))


@pytest.mark.parametrize(
    ("mine", "theirs", "agree"),
    [
        (1.0, 1.0 + 0.9e-9, True),
        (1.0, 1.0 + 1.1e-9, False),
        (1e-300, 0.0, False),
        (math.inf, math.inf, True),
        (7, 7, True),
        (7, 8, False),
        (10**12, 10**12 + 1, False),
        (1.0, 1, True),  # equal all the same
        (2.0, 3, False),
        ("a", "a", True),
        ("a", "b", False),
        (None, 0.0, False),
        ((1.0, 2.0), (1.0, 2.0 + 1e-12), True),
        ((1.0, 2.0), (1.0, 2.1), False),
        ((1.0, 2.0), (1.1, 2.0), False),
        ((1.0,), (1.0 + 1e-12, 2.0), False),
        ((1.0, 2.0), (1.0 + 1e-12,), False),
        ((1.0, "a"), (1.0 + 1e-12, "a"), True),
        ((1.0, "a"), (1.0 + 1e-12, "b"), False),
        (Closeness(0.1, 0.2, 0.3), Closeness(0.1, 0.2 + 1e-13, 0.3), True),
        (Closeness(0.1, 0.2, 0.3), Closeness(0.1, 0.2, 0.4), False),
        (Closeness(0.1, 0.2, 0.3), FACTS, False),
    ],
)
def test_numbers_agree_up_to_a_billionth_and_all_else_exactly(mine: Any, theirs: Any, agree: bool) -> None:
    assert _agree(mine, theirs) is agree
    assert _agree(theirs, mine) is agree


@pytest.mark.parametrize(
    ("changes", "begun", "released", "taken"),
    [
        ({}, False, None, "says the same"),
        ({"delta": 2e-6}, False, None, "says the same"),
        ({"n_features": 2}, False, None, True),
        ({"n_features": 2}, True, 0, True),
        ({"n_features": 2}, True, None, "another n_features than"),
        ({"n_features": 2}, True, -1, "another n_features than"),
        ({"n_features": 2, "columns_digest": "0" * 64}, False, None, True),
        ({"columns_digest": "0" * 64}, True, 0, "another columns_digest than"),
        ({"n_examples": 800}, True, 0, True),
        ({"n_examples": 800}, False, 0, True),
        ({"n_examples": 800}, True, None, "another n_examples than"),
        ({"n_examples": 801}, True, 0, "N = 801, but the private count released 800"),
        ({"n_examples": 800, "n_features": 2}, True, 0, True),
        ({"n_examples": 800, "seed": 3}, True, 0, "another seed than"),
        ({"seed": 3, "run_id": 5}, False, None, "another run_id, seed than"),
    ],
)
def test_a_later_plan_says_what_was_still_to_be_found(
    changes: dict[str, Any], begun: bool, released: int | None, taken: bool | str
) -> None:
    plan = plan_of(width=None, n_examples=None)
    found = Found(800 if "n_examples" in changes else None)
    if taken is True:
        require_next(plan, replace(plan, **changes), found, begun=begun, released=released)
    else:
        with pytest.raises(ProtocolError, match=re.escape(str(taken))):
            require_next(plan, replace(plan, **changes), found, begun=begun, released=released)


def test_width_and_columns_that_are_known_stay_as_they_are() -> None:
    plan = plan_of(n_examples=None, known={"columns": "0" * 64})
    for changes in ({"n_features": 3}, {"columns_digest": "1" * 64}):
        for begun, released in ((False, None), (True, 0)):
            with pytest.raises(ProtocolError, match=f"another {next(iter(changes))} than the one in force"):
                require_next(plan, replace(plan, **changes), Found(), begun=begun, released=released)
    box = ((-0.5,) * 2, (0.5,) * 2)
    waiting = plan_of(private_bounds=True)
    require_next(waiting, replace(waiting, box=box), Found(box=box), begun=True, released=0)
    for said, told, released in ((box, BOX, 0), (None, box, 0), (box, None, 0)):
        with pytest.raises(ProtocolError, match="another box than the private histograms released"):
            require_next(waiting, replace(waiting, box=said), Found(box=told), begun=True, released=released)
    with pytest.raises(ProtocolError, match="another box than the one in force"):
        require_next(waiting, replace(waiting, box=box), Found(box=box), begun=True, released=None)


def test_a_server_sends_what_the_round_reads_and_after_the_last_one_the_result() -> None:
    """An outer product, weights, centres, two iterations and an evaluation; its metrics are part of the result."""
    plan = plan_of(known={"server": FACTS}, trust="distributed", max_iter=2, evaluation="private", **FEDDP)
    bare = State({"centroids": np.zeros((2, 2)), "counts": np.zeros(2)})
    weighed = bare.changed(projection=np.eye(2), projected_points=np.zeros((3, 2)))
    for state, rounds in ((bare, (1, 4, 5, 6)), (weighed, (2,))):
        for index in range(1, 8):
            if index in rounds:
                require_server_state(plan, index, state)
            else:
                with pytest.raises(ProtocolError, match=f"the server's state for round {index} does not fit the plan"):
                    require_server_state(plan, index, state)


# -- what is released --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nonnegative", "unit", "entry", "taken"),
    [
        (True, PrivacyUnit.RECORD, 0.0, True),
        (True, PrivacyUnit.RECORD, -(2.0**-16), False),
        (True, PrivacyUnit.RECORD, 0.5 * 2000, True),
        (True, PrivacyUnit.RECORD, 0.5 * 2000 + 2.0**-16, False),
        (False, PrivacyUnit.RECORD, -0.5 * 2000, True),
        (False, PrivacyUnit.RECORD, -0.5 * 2000 - 2.0**-16, False),
        (False, PrivacyUnit.CLIENT, 0.5 * 4, True),
        (False, PrivacyUnit.CLIENT, 0.5 * 4 + 2.0**-16, False),
        (False, PrivacyUnit.CLIENT, -0.5 * 4 - 2.0**-16, False),
    ],
)
def test_entries_that_rows_within_the_bounds_add_up_to(
    nonnegative: bool, unit: PrivacyUnit, entry: float, taken: bool
) -> None:
    """Of four clients, or twice the 1000 rows that are declared, each adds a half at most; without noise."""
    bound = Sensitivity(Norm.L2, 1.0, unit, "so", nonnegative=nonnegative)
    block = Block("sums", (2,), bound, NoiseShape.NONE, 0.0, 0.5)
    plan = plan_of()
    plan = replace(plan, rounds=(replace(plan.rounds[0], blocks=(block,)),))
    values = np.array([0, round(entry * 2**16)], dtype=np.int64).view(np.uint64)
    if taken:
        require_plausible(plan, 1, as_released(values, (block,), plan.fraction_bits), 4)
    else:
        with pytest.raises(ProtocolError, match="1 of 2 entries of 'sums' in round 1 lie outside"):
            require_plausible(plan, 1, as_released(values, (block,), plan.fraction_bits), 4)


@pytest.mark.parametrize(
    ("noise", "norm", "scales"), [(NoiseShape.GAUSSIAN, Norm.L2, 12.0), (NoiseShape.LAPLACE, Norm.L1, 40.0)]
)
def test_noise_has_room_for_so_many_scales(noise: NoiseShape, norm: Norm, scales: float) -> None:
    """Of 2, on counts of at least 0."""
    bound = Sensitivity(norm, 1.0, PrivacyUnit.RECORD, "so", nonnegative=True)
    block = Block("counts", (1,), bound, noise, 2.0, 1.0)
    plan = plan_of(n_examples=None, known={"n_examples": 900})
    plan = replace(plan, rounds=(replace(plan.rounds[0], blocks=(block,)),))
    assert plan.count is not None
    counted = plan.count.blocks[0]
    # Twice the rows that were counted, with the count's own noise, and never more than clients may hold.
    shares = plan.count.model.released_factor(plan.shares)
    rows = 2.0 * (900 + 12.0 * counted.noise_multiplier * counted.sensitivity.bound * shares)
    assert draft._most_rows(plan, 1, 5) == pytest.approx(rows, rel=1e-14)
    assert (
        draft._most_rows(plan, 0, 5) == draft._most_rows(plan_of(algorithm="lloyd", n_examples=None), 1, 5) == 5 * 2**28
    )
    assert draft._most_rows(plan_of(n_examples=10**9), 1, 2) == 2 * 2**28
    assert draft._most_rows(plan_of(n_examples=7_000), 1, 2) == 14_000
    for entry, taken in ((-2.0 * scales, True), (-2.0 * scales - 1.0, False), (rows + 2.0 * scales + 1.0, False)):
        values = np.array([round(entry * 2**16)], dtype=np.int64).view(np.uint64)
        released = as_released(values, (block,), plan.fraction_bits)
        if taken:
            require_plausible(plan, 1, released, 5)
        else:
            with pytest.raises(ProtocolError, match="1 of 1 entries of 'counts'"):
                require_plausible(plan, 1, released, 5)


def test_a_sensitivity_that_nothing_says_the_reason_of_is_refused() -> None:
    plan = plan_of()
    for because, taken in (("so", True), ("S1: so", True), ("", False), ("  ", False), ("S1:  ", False)):
        bound = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, because)
        block = Block("sums", (2,), bound, NoiseShape.GAUSSIAN, 3.0, 1.0)
        again = replace(plan, rounds=(plan.rounds[0], replace(plan.rounds[1], blocks=(block,))))
        if taken:
            check_plan(again)
        else:
            with pytest.raises(PlanError, match="the sensitivity of 'sums' is 1, but nothing says why"):
                check_plan(again)


def test_the_evaluation_alone_looks_at_labels() -> None:
    *own, last = build_algorithm(plan_of(evaluation="private", n_classes=2)).rounds
    assert [step.labelled is None for step in (*own, last)] == [True] * len(own) + [False]
