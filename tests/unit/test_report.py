"""The report that people read and programs parse."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
from support.drafts import draft_of

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.release import GaussianRelease
from flwr_dpkmeans.privacy.released_counts import counts_deviation, faint_clusters
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.sums.statement import build_report, epsilon_after

KEYS = [
    *(
        "is_private",
        "epsilon",
        "delta",
        "epsilon_requested",
        "epsilon_worst_case",
        "unit",
        "neighbours",
        "trust",
    ),
    *(
        "guarantee",
        "algorithm",
        "noise",
        "n_clients",
        "n_attempts",
        "n_examples",
        "n_examples_source",
        "slack",
    ),
    *("assumptions", "warnings", "releases", "version", "provenance"),
]
LINE_KEYS = [
    *(
        "round_index",
        "attempt",
        "round_name",
        "array",
        "norm",
        "sensitivity",
        "trust",
        "noise",
    ),
    *(
        "noise_scale",
        "noise_multiplier",
        "theorem",
        "epsilon_so_far",
        "radius",
        "surplus",
    ),
]


plan_of = partial(
    draft_of, algorithm="fastlloyd", n_clusters=3, bounds=((0.0,), (16.0,)),
    n_examples=1000, max_iter=2, run_id=4,
)  # fmt: skip


def report_of(
    attempts: tuple[tuple[int, int], ...] = ((1, 0), (2, 0)), **values: Any
) -> PrivacyReport:
    return build_report(plan_of(**values), attempts)


REPORTS = {
    "fastlloyd": report_of(),
    "proxy_lloyd": report_of(
        tuple((index, 0) for index in range(1, 8)), algorithm="proxy_lloyd"
    ),
    "central glloyd": report_of(algorithm="glloyd", trust="central"),
    "sulloyd": report_of(algorithm="sulloyd"),
    "distributed": report_of(trust="distributed", max_silent=2),
    "retried": report_of(((1, 0), (1, 1), (2, 1))),
    "counted": report_of(((0, 0), (1, 0), (2, 0)), n_examples=None, counted=980),
    "lloyd": report_of(algorithm="lloyd"),
    "seeded": report_of(noise="seeded", random_state=3),
    "nothing released": report_of(()),
}


@pytest.mark.parametrize("name", REPORTS)
def test_round_trip_through_json(name: str) -> None:
    report = REPORTS[name]
    text = report.to_json()
    assert PrivacyReport.from_dict(json.loads(text)) == report
    assert PrivacyReport.from_dict(report.to_dict()) == report
    assert "Infinity" not in text
    assert "NaN" not in text


@pytest.mark.parametrize("name", REPORTS)
def test_keys_are_stable(name: str) -> None:
    plain = REPORTS[name].to_dict()
    assert list(plain) == KEYS
    assert all(list(line) == LINE_KEYS for line in plain["releases"])
    assert [field.name for field in fields(ReleaseLine)] == LINE_KEYS
    assert plain["version"] == 1


def test_infinite_epsilon_is_null_in_json() -> None:
    plain = json.loads(REPORTS["lloyd"].to_json())
    assert plain["epsilon"] is None
    assert plain["epsilon_worst_case"] is None
    assert plain["releases"][0]["epsilon_so_far"] is None
    restored = PrivacyReport.from_dict(plain)
    assert (
        restored.epsilon
        == restored.epsilon_worst_case
        == restored.releases[0].epsilon_so_far
        == math.inf
    )


def test_slack_is_the_part_of_epsilon_that_discrete_noise_costs() -> None:
    plan = plan_of(epsilon=1.0)
    closeness = [
        event.closeness for event in plan.events() if isinstance(event, GaussianRelease)
    ]
    once = sum(part.log_ratio for part in closeness)
    assert 0.0 < once < 1e-6
    assert report_of().slack == pytest.approx(once, rel=1e-12, abs=0.0)
    continuous = [
        GaussianRelease(e.name, e.noise_multiplier)
        for e in plan.events()
        if isinstance(e, GaussianRelease)
    ]
    assert plan.epsilon - compose_epsilon(continuous, plan.delta) == pytest.approx(
        once, rel=0.5
    )
    assert REPORTS["retried"].slack > REPORTS["fastlloyd"].slack
    assert (
        REPORTS["sulloyd"].slack
        == REPORTS["lloyd"].slack
        == REPORTS["nothing released"].slack
        == 0.0
    )


def test_a_report_of_a_later_version_says_so() -> None:
    """It was a TypeError for the first keyword that nobody knows."""
    plain = {**REPORTS["lloyd"].to_dict(), "version": 2, "new": 1}
    with pytest.raises(ConfigurationError, match="of version 2, but 1 is the last"):
        PrivacyReport.from_dict(plain)


def test_from_dict_leaves_its_argument_alone() -> None:
    plain = REPORTS["lloyd"].to_dict()
    before = json.dumps(plain)
    PrivacyReport.from_dict(plain)
    assert json.dumps(plain) == before


@pytest.mark.parametrize("name", REPORTS)
def test_text_says_what_was_protected_from_whom_at_which_cost(name: str) -> None:
    report = REPORTS[name]
    text = report.details()
    head = text.splitlines()[0]
    assert head.startswith("PRIVATE: " if report.is_private else "NOT PRIVATE: ")
    assert report.algorithm in head
    assert repr(report.trust) in head
    assert f"{'no' if name == 'lloyd' else report.noise} noise" in head
    epsilon = "infinite" if math.isinf(report.epsilon) else f"{report.epsilon:.4g}"
    assert f"epsilon {epsilon} at delta {report.delta:.3g}" in text
    assert f"one {report.unit}: {report.neighbours}" in text
    assert report.guarantee in text
    assert f"{report.n_clients} clients, {report.n_attempts} aggregations" in text
    assert f"({report.n_examples_source})" in text
    for sentence in (*report.warnings, *report.assumptions):
        assert sentence in text
    lines = text.splitlines()[-len(report.releases) :] if report.releases else []
    for line, release in zip(lines, report.releases, strict=True):
        assert line.split()[:2] == [
            f"{release.round_index}/{release.attempt}",
            release.array,
        ]
        assert f"{release.norm} {release.sensitivity:.4g}" in line
        assert line.split()[-1] == (
            "infinite"
            if math.isinf(release.epsilon_so_far)
            else f"{release.epsilon_so_far:.4g}"
        )


def test_long_names_of_arrays_leave_the_columns_where_they_are() -> None:
    lines = REPORTS["proxy_lloyd"].details().splitlines()
    (place,) = [
        index for index, line in enumerate(lines) if line.startswith("  releases")
    ]
    rows = lines[place + 1 :]
    assert {"unit_outer_product", "residual_squares"} <= {
        row.split()[1] for row in rows
    }
    assert {row.index("l2 1") for row in rows} == {lines[place].index("sensitivity")}


def test_what_is_not_private_says_why() -> None:
    assert not REPORTS["lloyd"].is_private
    assert (
        "The algorithm 'lloyd' adds no noise: exact sums are released."
        in REPORTS["lloyd"].warnings
    )
    assert not REPORTS["seeded"].is_private
    assert any(
        "whoever knows the seed can subtract it" in warning
        for warning in REPORTS["seeded"].warnings
    )
    both = report_of(algorithm="lloyd", noise="seeded")
    assert len(both.warnings) == 2
    for name in (
        "proxy_lloyd",
        "fastlloyd",
        "central glloyd",
        "sulloyd",
        "distributed",
        "retried",
        "counted",
    ):
        assert REPORTS[name].is_private
        assert REPORTS[name].warnings == ()
    assert not plan_of(algorithm="lloyd", n_examples=None).is_private
    assert not plan_of(noise="seeded").is_private


def test_every_attempt_is_listed_and_charged() -> None:
    plain, retried = REPORTS["fastlloyd"], REPORTS["retried"]
    assert [(line.round_index, line.attempt) for line in retried.releases] == [
        (1, 0)
    ] * 2 + [(1, 1)] * 2 + [(2, 1)] * 2
    assert retried.n_attempts == 3
    assert plain.epsilon < retried.epsilon == pytest.approx(retried.epsilon_worst_case)
    so_far = [line.epsilon_so_far for line in retried.releases]
    assert so_far == sorted(so_far)
    assert so_far[0] == so_far[1] < so_far[2]
    assert so_far[-1] == pytest.approx(retried.epsilon)
    assert epsilon_after(plan_of(), []) == 0.0


def test_report_says_where_n_comes_from() -> None:
    assert REPORTS["fastlloyd"].n_examples_source == "declared public"
    assert any(
        "number of rows, 1000, is public" in sentence
        for sentence in REPORTS["fastlloyd"].assumptions
    )
    assert (REPORTS["counted"].n_examples_source, REPORTS["counted"].n_examples) == (
        "private count",
        980,
    )
    assert (
        report_of(algorithm="lloyd", n_examples=None).n_examples_source == "not needed"
    )
    assert "N = unknown (not needed)" in str(
        report_of(algorithm="lloyd", n_examples=None)
    )
    count = REPORTS["counted"].releases[0]
    assert (count.array, count.sensitivity, count.norm) == ("count", 1.0, "l2")


def test_bounds_are_listed_as_an_assumption() -> None:
    assert any(
        "The bounds (0 to 16) are public knowledge" in s
        for s in REPORTS["fastlloyd"].assumptions
    )
    many = report_of(bounds=((0.0, 0.0), (1.0, 2.0)))
    assert any("given for each of 2 features" in s for s in many.assumptions)
    assert any("Identities are not pinned" in s for s in many.assumptions)
    assert any("Up to 1 aggregation(s) may be repeated" in s for s in many.assumptions)
    assert not any("may be repeated" in s for s in report_of(max_retries=0).assumptions)


@pytest.mark.parametrize(
    ("trust", "words"),
    [
        ("oblivious", "only clients see released sums"),
        ("central", "everyone except the server, which is trusted"),
        ("distributed", "up to 2 of 5 clients"),
    ],
)
def test_guarantee_follows_the_trust_model(trust: str, words: str) -> None:
    assert words in report_of(trust=trust, max_silent=2).guarantee


def test_guarantee_of_a_run_that_protects_nobody_says_so() -> None:
    for name in ("lloyd", "seeded"):
        assert REPORTS[name].guarantee.startswith("None: this run is not private")


def test_the_private_count_has_a_trust_model_of_its_own() -> None:
    assert [line.trust for line in REPORTS["counted"].releases] == ["distributed"] + [
        "oblivious"
    ] * 4
    assert (
        "The noisy number of rows is released to everybody"
        in REPORTS["counted"].guarantee
    )
    assert "number of rows" not in REPORTS["fastlloyd"].guarantee


def test_each_release_names_its_theorem() -> None:
    for report in REPORTS.values():
        for line in report.releases:
            assert line.theorem
            expected = {
                "gaussian": "Dong, Roth, Su 2022",
                "laplace": "Dwork et al. 2006",
                "none": "no noise",
            }
            assert expected[line.noise] in line.theorem


def test_equal_reports_are_equal_and_cannot_change() -> None:
    report = REPORTS["fastlloyd"]
    assert report == replace(report)
    with pytest.raises(AttributeError):
        report.epsilon = 0.0  # type: ignore[misc]


def test_provenance_comes_back_from_a_file_and_leaves_out_what_is_new() -> None:
    written = Provenance.of(7, "the server", bytes(32), cohort=("2 (abcd)", "3 (ef01)"))
    read = json.loads(json.dumps(written.to_dict() | {"of a later version": 1}))
    assert Provenance.from_dict(read) == written
    assert (written.run_id, written.cohort) == ("7", ("2 (abcd)", "3 (ef01)"))


@pytest.mark.parametrize(
    ("n_clients", "words"), [(0, "0 clients"), (1, "one table"), (2, "2 clients")]
)
def test_one_client_is_one_table(n_clients: int, words: str) -> None:
    report = replace(REPORTS["fastlloyd"], n_clients=n_clients)
    assert report.cohort == words
    assert f", {words}, trust" in report.line
    assert f"  cohort      {words}, " in str(report)


def test_faint_clusters_follow_from_the_last_release_of_counts() -> None:
    """Of a scale of 20, of which half is priced, after one of 5."""
    report = REPORTS["fastlloyd"]
    line = report.releases[0]
    lines = [("counts", 5.0), ("counts", 20.0), ("sums", 1.0)]
    releases = tuple(
        replace(line, array=array, noise_scale=scale / 2.0, surplus=2.0)
        for array, scale in lines
    )
    assert faint_clusters(
        [59.9, 60.0, -1.0, 1e6], replace(report, releases=releases)
    ) == (0, 2)
    assert faint_clusters([-1.0], replace(report, releases=releases[2:])) == ()


@pytest.mark.parametrize(
    ("lines", "deviation"),
    [
        (
            [
                ("counts", "gaussian", 5.0),
                ("counts", "gaussian", 20.0),
                ("sums", "gaussian", 1.0),
            ],
            20.0,
        ),
        (
            [("counts", "gaussian", 5.0), ("Lloyd counts", "laplace", 3.0)],
            3.0 * math.sqrt(2.0),
        ),
        ([("indicators", "none", 0.0)], 0.0),
        ([("sums", "laplace", 5.0)], None),
        ([], None),
    ],
)
def test_the_deviation_of_counts_is_that_of_their_last_release(
    lines: list[tuple[str, str, float]], deviation: float | None
) -> None:
    """Laplace noise of scale b has the variance 2 b^2."""
    report = REPORTS["fastlloyd"]
    releases = tuple(
        replace(
            report.releases[0], array=array, noise=noise, noise_scale=scale / 4.0,
            surplus=4.0,
        )
        for array, noise, scale in lines
    )  # fmt: skip
    assert counts_deviation(replace(report, releases=releases)) == deviation
