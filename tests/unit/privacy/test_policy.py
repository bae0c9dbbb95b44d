"""A client's policy: what it lets pass, what it refuses, and in which words."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.asked_plans import PlanValues, asked

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    DPKMeansError,
    ProtocolError,
    RefusalError,
)
from flwr_dpkmeans.node import policy as policy_module
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.limits import has_bounds_by_name
from flwr_dpkmeans.node.policy import LIMITS, REQUIRED, ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.draft import draft_plan

PLAN = PlanValues(
    algorithm="dp-lloyd", trust="secure-aggregation", unit="record", epsilon=1.0,
    epsilon_worst_case=1.5, delta=1e-6, n_clients=5, min_clients=3, noise="secure",
    bounds_lower=(0.0, -1.0), bounds_upper=(1.0, 1.0),
)  # fmt: skip
BASELINE = replace(
    PLAN, algorithm="lloyd", epsilon=math.inf, epsilon_worst_case=math.inf, delta=0.0,
    noise="seeded",
)  # fmt: skip


@pytest.mark.parametrize("plan", [PLAN, BASELINE])
def test_default_policy_allows_a_simulation(plan: PlanValues) -> None:
    ClientPolicy().check(asked(plan, spent_total=0.0))
    ClientPolicy().check(asked(plan, spent_total=math.inf))


def test_policy_allows_a_plan_exactly_at_every_limit() -> None:
    policy = ClientPolicy(
        max_epsilon_per_run=1.5, max_epsilon_total=2.5, max_delta=1e-6,
        allowed_trust=("secure-aggregation",), allowed_algorithms=("dp-lloyd", "other"),
        allowed_units=("record",), min_cohort=3, require_secure_noise=True,
        allow_non_private=False, allowed_bounds=((0.0, 1.0), (-1.0, 1.0)),
    )  # fmt: skip
    policy.check(asked(PLAN, spent_total=1.0))


REFUSALS: list[tuple[dict[str, Any], type[DPKMeansError], str]] = [
    ({"max_epsilon_per_run": 1.25}, BudgetError,
     "the plan's worst-case epsilon is 1.5, but this client's"
     " max_epsilon_per_run is 1.25: lower the plan's epsilon or its number of"
     " retries."),
    ({"max_epsilon_total": 1.52, "max_delta_total": 1e-6}, BudgetError,
     "the plan's worst-case epsilon is 1.5, but it does not fit into what is"
     " left of this client's max_epsilon_total of 1.52: lower the plan's epsilon or"
     " leave this client out."),
    ({"max_delta": 1e-7}, BudgetError,
     "the plan's delta is 1e-06, but this client's max_delta is 1e-07: lower the"
     " plan's delta."),
    ({"max_delta_total": 1.5e-6}, BudgetError,
     "the plan's delta is 1e-06, but it does not fit into what is left of this"
     " client's max_delta_total of 1.5e-06: lower the plan's delta or leave this"
     " client out."),
    ({"allowed_algorithms": ["a", "b"]}, RefusalError,
     "the plan's algorithm is 'dp-lloyd', but this client allows only 'a', 'b':"
     " plan with one of them."),
    ({"allowed_trust": ["local"]}, RefusalError,
     "the plan's trust model is 'secure-aggregation', but this client allows"
     " only 'local': plan with one of them."),
    ({"allowed_units": ["patient"]}, RefusalError,
     "the plan's privacy unit is 'record', but this client allows only"
     " 'patient': plan with one of them."),
    ({"min_cohort": 4}, RefusalError,
     "the plan goes on with 3 clients, but this client's min_cohort is 4: raise"
     " the plan's min_clients."),
    ({"allowed_bounds": [[0, 1], [-0.5, 1]]}, RefusalError,
     "the plan's bounds of feature 1 are [-1, 1], but this client allows only"
     " [-0.5, 1]: plan with bounds inside these."),
    ({"allowed_bounds": [[0, 1]] * 3}, RefusalError,
     "the plan's box has 2 features, but this client's allowed_bounds has 3:"
     " plan for the features that were agreed on."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "error", "sentence"),
    REFUSALS,
    ids=[next(iter(case[0])) for case in REFUSALS],
)
def test_each_limit_refuses_in_one_sentence_without_the_spent_epsilon(
    limits: dict[str, Any], error: type[DPKMeansError], sentence: str
) -> None:
    with pytest.raises(error) as caught:
        ClientPolicy.from_mapping(limits).check(
            asked(PLAN, spent_total=0.734521, spent_delta=0.734e-6)
        )
    assert str(caught.value) == sentence
    assert "734" not in sentence


def test_one_pair_of_bounds_holds_for_every_feature() -> None:
    ClientPolicy(allowed_bounds=((-1.0, 1.0),)).check(asked(PLAN, 0.0))
    for too_narrow in ((0.0, 1.0), (-1.0, 0.5)):
        with pytest.raises(RefusalError, match="feature"):
            ClientPolicy(allowed_bounds=(too_narrow,)).check(asked(PLAN, 0.0))


@pytest.mark.parametrize("n_features", [None, 2])
def test_one_pair_in_the_plan_is_held_against_every_feature(
    n_features: int | None,
) -> None:
    plan = replace(
        PLAN, bounds_lower=(-1.0,), bounds_upper=(1.0,), n_features=n_features
    )
    ClientPolicy(allowed_bounds=((-1.0, 1.0), (-2.0, 2.0))).check(asked(plan, 0.0))
    ClientPolicy(allowed_bounds=((-1.0, 1.0),)).check(asked(plan, 0.0))
    with pytest.raises(RefusalError, match=r"bounds of feature 1 are \[-1, 1\]"):
        ClientPolicy(allowed_bounds=((-1.0, 1.0), (0.0, 1.0))).check(asked(plan, 0.0))


def test_one_pair_in_a_plan_of_another_width_is_refused() -> None:
    plan = replace(PLAN, bounds_lower=(-1.0,), bounds_upper=(1.0,), n_features=1)
    with pytest.raises(RefusalError, match="but this client's allowed_bounds has 2"):
        ClientPolicy(allowed_bounds=((-1.0, 1.0), (-2.0, 2.0))).check(asked(plan, 0.0))


def test_a_total_delta_may_be_filled() -> None:
    ClientPolicy(max_delta_total=2e-6).check(asked(PLAN, 0.0, spent_delta=1e-6))
    ClientPolicy().check(asked(PLAN, 0.0, spent_delta=math.inf))


def test_a_base_gives_what_a_file_leaves_out() -> None:
    strict = ClientPolicy(require_secure_noise=True, min_cohort=7)
    assert ClientPolicy.from_mapping({"min-cohort": 3}, base=strict) == replace(
        strict, min_cohort=3
    )
    assert ClientPolicy.from_mapping({}, base=strict) == strict
    assert ClientPolicy.from_mapping({}) == ClientPolicy()


def test_secure_noise_can_be_required() -> None:
    seeded = replace(PLAN, noise="seeded")
    ClientPolicy().check(asked(seeded, 0.0))
    with pytest.raises(RefusalError, match="requires 'secure'"):
        ClientPolicy(require_secure_noise=True).check(asked(seeded, 0.0))


def test_non_private_plan_is_refused_by_the_switch_and_by_any_finite_limit() -> None:
    with pytest.raises(RefusalError, match="private runs only"):
        ClientPolicy(allow_non_private=False).check(asked(BASELINE, 0.0))
    with pytest.raises(BudgetError, match="max_epsilon_per_run"):
        ClientPolicy(max_epsilon_per_run=1e9).check(asked(BASELINE, 0.0))
    with pytest.raises(BudgetError, match="max_epsilon_total"):
        ClientPolicy(max_epsilon_total=1e9).check(asked(BASELINE, 0.0))


def test_a_non_private_past_leaves_nothing_of_a_finite_total() -> None:
    with pytest.raises(BudgetError, match="max_epsilon_total"):
        ClientPolicy(max_epsilon_total=1e9).check(asked(PLAN, math.inf))


def test_only_the_worst_case_counts() -> None:
    with pytest.raises(BudgetError):
        ClientPolicy(max_epsilon_per_run=1.0).check(asked(PLAN, 0.0))


def test_a_plan_over_the_limit_by_rounding_only_passes() -> None:
    summed = replace(PLAN, epsilon=0.2, epsilon_worst_case=0.1 + 0.1)
    ClientPolicy(max_epsilon_total=0.3, max_epsilon_per_run=0.2).check(
        asked(summed, spent_total=0.1 + 1e-17)
    )
    single = replace(PLAN, epsilon=0.1, epsilon_worst_case=0.1)
    ClientPolicy(max_epsilon_total=0.3).check(asked(single, 0.1 + 0.1 + 1e-16))


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_worst_case": math.nan},
        {"delta": math.nan},
        {"delta": 1.0},
        {"min_clients": 0},
        {"min_clients": 6},
    ],
)
def test_malformed_plan_is_refused_by_the_most_permissive_policy(
    change: dict[str, Any],
) -> None:
    """A number that is none is within no limit, also where the limit is infinite."""
    with pytest.raises((RefusalError, BudgetError)):
        ClientPolicy(min_cohort=1, max_delta=0.999).check(
            asked(replace(PLAN, **change), 0.0)
        )


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"min_clients": 0},
        {"noise": "none"},
        {"bounds": ((0.0,), (1.0, 1.0))},
        {"bounds": ((math.nan, 0.0), (1.0, 1.0))},
        {"bounds": ((0.0, 0.0), (math.inf, 1.0))},
        {"bounds": ((0.0, 0.0), (0.0, 1.0))},
        {"delta": math.nan},
        {"delta": -1e-9},
        {"delta": 1.0},
    ],
)
def test_what_no_honest_plan_has_never_reaches_a_policy(change: dict[str, Any]) -> None:
    """Settings that cannot be, or a delta that does not follow from them."""
    config = parse_config(n_clusters=2, bounds=((0.0, 0.0), (1.0, 1.0)), n_examples=100)
    plan = draft_plan(config, run_id=1, n_clients=3, seed=1, n_features=2)
    verify_plan(plan)
    with pytest.raises(ConfigurationError):
        replace(plan.settings, **change)
    if "delta" in change:
        with pytest.raises(ProtocolError, match="does not follow from its own"):
            verify_plan(replace(plan, **change))


def test_hostile_name_is_escaped_and_cut() -> None:
    plan = replace(PLAN, algorithm="\x1b[31m\n" + "x" * 10_000)
    with pytest.raises(RefusalError) as caught:
        ClientPolicy(allowed_algorithms=("dp-lloyd",)).check(asked(plan, 0.0))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


def test_spent_costs_that_are_no_numbers_fit_into_no_limit() -> None:
    with pytest.raises(BudgetError, match="max_epsilon_total of 9"):
        ClientPolicy(max_epsilon_total=9.0).check(asked(PLAN, math.nan))
    with pytest.raises(BudgetError, match=r"max_delta_total of 0\.9"):
        ClientPolicy(max_delta_total=0.9).check(asked(PLAN, 0.0, math.nan))


@pytest.mark.parametrize(
    "limits",
    [
        {"max_epsilon_per_run": -1.0},
        {"max_epsilon_per_run": "1.0"},
        {"max_epsilon_total": math.nan},
        {"max_epsilon_total": True},
        {"max_delta": 1.0},
        {"max_delta": -1e-9},
        {"max_delta_total": -1e-9},
        {"max_delta_total": math.nan},
        {"min_cohort": 0},
        {"min_cohort": 2.5},
        {"min_cohort": True},
        {"min_cohort": None},
        {"min_max_silent": -1},
        {"runs_per_day": 0},
        {"require_secure_noise": "no"},
        {"allow_non_private": 0},
        {"allowed_trust": "local"},
        {"allowed_algorithms": [1]},
        {"allowed_bounds": []},
        {"allowed_bounds": [[1.0, 0.0]]},
        {"allowed_bounds": [[0.0, 1.0, 2.0]]},
        {"allowed_bounds": [[0.0, math.nan]]},
        {"allowed_bounds": 1.0},
    ],
)
def test_invalid_limit_is_named(limits: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=next(iter(limits)) + " is .*, but it must be .*: "
    ):
        ClientPolicy.from_mapping(limits)


def test_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="'max-epsilon-per-runs' is not known"):
        ClientPolicy.from_mapping({"max-epsilon-per-runs": 1.0})


def test_key_given_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="given twice"):
        ClientPolicy.from_mapping({"min-cohort": 3, "min_cohort": 4})


def test_from_toml_reads_both_spellings(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        "max-epsilon-per-run = 2\nmax_epsilon_total = inf\nmax-delta = 1e-6\nmin-cohort"
        ' = 4\nallowed-trust = ["secure-aggregation"]\nrequire-secure-noise ='
        " true\nallowed-bounds = [[0, 1], [-1.5, 2]]\n"
    )
    assert ClientPolicy.from_toml(path) == ClientPolicy(
        max_epsilon_per_run=2.0, max_epsilon_total=math.inf, max_delta=1e-6,
        min_cohort=4, allowed_trust=("secure-aggregation",), require_secure_noise=True,
        allowed_bounds=((0.0, 1.0), (-1.5, 2.0)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [None, b"max-delta = ", b"\xff"],
    ids=["missing", "not TOML", "not UTF-8"],
)
def test_unreadable_file_never_becomes_the_default_policy(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "policy.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"policy\.toml"):
        ClientPolicy.from_toml(path)


# -- pinned peers ----------------------------------------------------------------------

KEY_A, KEY_B = "a0" * 32, "b1" * 32


def test_pinned_peers_are_a_table_or_a_list(tmp_path: Path) -> None:
    named, listed = tmp_path / "named.toml", tmp_path / "listed.toml"
    named.write_text(
        f'min-cohort = 3\n[pinned-peers]\nward-7 = "{KEY_A.upper()}"\n"St. Anna" ='
        f' "{KEY_B}"\n'
    )
    listed.write_text(f'pinned-peers = ["{KEY_A}", "{KEY_B}"]\n')
    assert ClientPolicy.from_toml(named).pinned_peers == (
        ("ward-7", KEY_A),
        ("St. Anna", KEY_B),
    )
    assert ClientPolicy.from_toml(named).min_cohort == 3
    assert ClientPolicy.from_toml(listed).pinned_peers == (("", KEY_A), ("", KEY_B))
    assert ClientPolicy().pinned_peers is None
    again = replace(ClientPolicy.from_toml(named), min_cohort=2)
    assert again.pinned_peers == (("ward-7", KEY_A), ("St. Anna", KEY_B))


@pytest.mark.parametrize(
    ("peers", "sentence"),
    [
        ([], "pinned_peers is [], but it must be a table of names and keys or a list"),
        ({}, "pinned_peers is {}, but it must be"),
        (KEY_A, "but it must be a table of names and keys or a list of keys"),
        (7, "pinned_peers is 7, but it must be"),
        ([KEY_A[:-1]], "but a key has 64 hexadecimal digits: copy what"),
        ([KEY_A[:-1] + "\n"], "64 hexadecimal digits"),
        ([KEY_A + "\n"], "64 hexadecimal digits"),
        ([KEY_A[:-1] + "\u0663"], "64 hexadecimal digits"),
        ([7], "pinned_peers has the key 7, but"),
        ([[KEY_A]], "64 hexadecimal digits"),
        ({"ward-7": [KEY_A]}, "64 hexadecimal digits"),
        ({"ward-7": ""}, "pinned_peers has the key '', but"),
        ({"x" * 61: KEY_A}, "a name has at most 60 printable characters"),
        ({"two\nlines": KEY_A}, "a name has at most 60 printable characters"),
        ([KEY_A, KEY_B, KEY_A.upper()], "has the key 'a0a0"),
        ({"a": KEY_A, "b": KEY_A}, "twice, but each party has one of its own"),
        ([("a", KEY_A), ("a", KEY_B)], "pinned_peers has the name 'a' twice"),
    ],
)  # fmt: skip
def test_malformed_pinned_peers_are_named(peers: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ClientPolicy.from_mapping({"pinned-peers": peers})
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


# Numbers that would look the same with six digits.


@pytest.mark.parametrize(
    "limit",
    ["max_epsilon_per_run", "max_epsilon_total", "max_delta", "max_delta_total"],
)
@pytest.mark.parametrize("factor", [1 + 1e-8, 1 + 3e-7, 1.5])
def test_a_refusal_prints_a_value_that_differs_from_its_bound(
    limit: str, factor: float
) -> None:
    most = 4.0 if "epsilon" in limit else 1e-3
    limits = {limit: most}
    if limit == "max_epsilon_total":
        limits["max_delta_total"] = 1e-9
    cost = (
        {"epsilon": 4.0 * factor, "delta": 1e-9}
        if "epsilon" in limit
        else {"epsilon": 1.0, "delta": most * factor}
    )
    plan = replace(PLAN, epsilon_worst_case=cost["epsilon"], **cost)
    with pytest.raises(BudgetError) as caught:
        ClientPolicy(**limits).check(asked(plan, 0.0))  # type: ignore[arg-type]
    value, bound = re.findall(
        rf"is ([0-9.e-]+),.*{limit} (?:is|of) ([0-9.e-]+):", str(caught.value)
    )[0]
    assert float(value) > float(bound) == most


def test_a_limit_that_has_no_sentence_refuses_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever adds a limit and forgets its words has not opened the door."""
    silent = replace(
        LIMITS["min_cohort"],
        refuse=lambda least, asked: (
            "" if asked.plan.config.min_clients < least else None
        ),
    )
    monkeypatch.setitem(LIMITS, "min_cohort", silent)
    ClientPolicy(min_cohort=3).check(asked(PLAN))
    with pytest.raises(RefusalError):
        ClientPolicy(min_cohort=4).check(asked(PLAN))


# -- the example -----------------------------------------------------------------------


LINE = r"(?m)^(?:# )?(?:([a-z-]+) = (.*)|\[(pinned-peers)\].*)$"


def test_the_example_has_a_line_for_every_limit_and_says_which_are_required() -> None:
    text = (Path(policy_module.__file__).with_name("policy.example.toml")).read_text()
    lines = {key or table: line for key, line, table in re.findall(LINE, text)}
    assert set(lines) == {name.replace("_", "-") for name in LIMITS}
    assert {key for key, line in lines.items() if "# REQUIRED" in line} == {
        name.replace("_", "-") for name in REQUIRED
    }
    # Its lines that are commented out hold as well.
    stated = re.sub(r"(?m)^# (?=[\w-]+ = |\[)", "", text).replace(
        "<64 hexadecimal digits>", KEY_A
    )
    assert set(tomllib.loads(stated)) == set(lines)
    ClientPolicy.from_mapping(tomllib.loads(stated))


@pytest.mark.parametrize(
    ("names", "lower", "expected"),
    [
        (("age", "height"), (0.0, 1.0), True),
        (("age", "height"), (0.0,), False),
        ((), (0.0, 1.0), False),
    ],
)
def test_bounds_belong_to_names_where_there_are_several_of_both(
    names: Any, lower: Any, expected: bool
) -> None:
    """One pair of bounds is that of every column, in whatever order they come."""
    plan: Any = SimpleNamespace(
        settings=SimpleNamespace(feature_names=names, bounds=(lower, lower))
    )
    assert has_bounds_by_name(plan) is expected


# -- limits from both sides ------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "fitting", "refused", "words"),
    [
        ({"min_cohort": 3}, {"min_clients": 3}, {"min_clients": 2},
         "goes on with 2 clients"),
        ({}, {"min_clients": 5}, {"min_clients": 6}, "1 and its n_clients of 5"),
        ({"min_max_silent": 2}, {"max_silent": 2}, {"max_silent": 1},
         "the plan's max_silent is 1"),
        ({"allow_server_data": False}, {"server": None}, {"server": 5},
         "starts from the server's own points"),
        ({"allow_server_data": True}, {"server": 5}, None, ""),
        ({"max_delta": 1e-6}, {"delta": 1e-6 * (1 + 0.9e-9)},
         {"delta": 1e-6 * (1 + 1.1e-9)}, "the plan's delta is"),
    ],
)  # fmt: skip
def test_a_limit_lets_pass_what_it_says(
    limits: Any, fitting: Any, refused: Any, words: str
) -> None:
    for values, refuses in ((fitting, False), (refused, True)):
        question = asked(PLAN)
        vars(question.plan.settings).update(values or {})
        vars(question.plan).update(values or {})
        if refuses and values:
            with pytest.raises(DPKMeansError, match=re.escape(words)):
                ClientPolicy(**limits).check(question)
        else:
            ClientPolicy(**limits).check(question)


@pytest.mark.parametrize(
    ("hours", "refuses"),
    [((), False), ((23.9,), False), ((23.9, 0.1), True), ((24.1, 1), False)],
)
def test_so_many_runs_may_begin_within_24_hours(
    hours: tuple[float, ...], refuses: bool
) -> None:
    begun = tuple(
        (datetime.now(UTC) - timedelta(hours=one)).isoformat() for one in hours
    )
    question, policy = (
        replace(asked(PLAN), past=Past(begun=begun)),
        ClientPolicy(runs_per_day=2),
    )
    ClientPolicy().check(question)
    if refuses:
        with pytest.raises(RefusalError, match="runs_per_day is 2, and as many others"):
            policy.check(question)
    else:
        policy.check(question)


@pytest.mark.parametrize(
    ("mapping", "unstated"),
    [
        ({}, ("max_delta", "allowed_trust")),
        ({"max-delta": 0.1}, ("allowed_trust",)),
        (
            {"allowed-trust": []},
            ("max_delta", "allowed_trust"),
        ),  # an empty list allows all
        ({"allowed-trust": ["secure-aggregation"], "max-delta": 0.1}, ()),
        ({"allow-anything": True}, ("max_delta", "allowed_trust")),
    ],
)
def test_a_node_takes_part_once_its_policy_states_what_it_must(
    mapping: Any, unstated: tuple[str, ...]
) -> None:
    policy = ClientPolicy.from_mapping(
        mapping, base=ClientPolicy(unstated=("max_delta", "allowed_trust"))
    )
    assert policy.unstated == unstated
    if unstated and not policy.allow_anything:
        names = ", ".join(name.replace("_", "-") for name in unstated)
        with pytest.raises(
            RefusalError, match=f"does not limit {names}, and without that"
        ):
            policy.check(asked(PLAN))
    else:
        policy.check(asked(PLAN))
    assert {
        "max_epsilon_per_run", "max_epsilon_total", "max_delta", "min_cohort",
    } < set(REQUIRED)  # fmt: skip


def test_what_is_refused_whatever_it_costs_is_said_first() -> None:
    with pytest.raises(RefusalError, match="the plan's privacy unit is 'record'"):
        ClientPolicy(max_epsilon_per_run=0.1, allowed_units=("client",)).check(
            asked(PLAN)
        )


def test_names_are_repeated_up_to_sixty_characters() -> None:
    for length, repeated in ((58, "'" + "x" * 58 + "'"), (59, "'" + "x" * 59 + "...")):
        with pytest.raises(RefusalError, match=f"algorithm is {repeated}, but"):
            ClientPolicy(allowed_algorithms=("a",)).check(
                asked(replace(PLAN, algorithm="x" * length))
            )
    assert ClientPolicy(pinned_peers=(("x" * 60, KEY_A),)).pinned_peers == (
        ("x" * 60, KEY_A),
    )
