"""The proof table is complete: every release and every line of a report has its row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.pages import PAGES, ROOT, name_of
from test_contract import SUPPORTED, Case, estimator, fitted, mixture
from test_threats import defined_tests

from flwr_dpkmeans import FederatedKMeans, Schema
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.privacy.release import PROOF_PAGE
from flwr_dpkmeans.privacy.report import PrivacyReport

PAGE = ROOT / PROOF_PAGE
LETTERS = "SMCFT"
ROW = re.compile(rf"\b[{LETTERS}]\d+\b")
# Only these pages name rows: whoever reads them looks rows up.
NAMING = "flwr_dpkmeans/docs/reference/"
CITED = re.compile(rf"\[([{LETTERS}]\d+(?:(?:, | to )[{LETTERS}]\d+)*)\](?!\()")


def cells_of(line: str) -> list[str]:
    """Cells of one line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


@cache
def section(title: str) -> str:
    """Text below one heading of the page."""
    return PAGE.read_text().split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]


def table(title: str) -> list[list[str]]:
    """Rows of the table below a heading, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [cells_of(line) for line in lines[2:]]


@cache
def rows() -> dict[str, list[str]]:
    """All rows of the proof table by name."""
    titles = re.findall(rf"^## ([{LETTERS}]: .*)$", PAGE.read_text(), re.MULTILINE)
    found = [row for title in titles for row in table(title)]
    assert len({row[0] for row in found}) == len(found), "two rows have one name"
    return {row[0]: row for row in found}


def names_in(text: str) -> set[str]:
    """Names of rows in a text; `S1 to S4` are four."""
    found = set(ROW.findall(text))
    for letter, first, letter_again, last in re.findall(
        rf"\b([{LETTERS}])(\d+) to ([{LETTERS}])(\d+)\b", text
    ):
        assert letter == letter_again
        found |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    return found


def test_rows_are_counted_without_gaps() -> None:
    for letter in LETTERS:
        numbers = [int(name[1:]) for name in rows() if name[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


@pytest.mark.parametrize("name", sorted(rows()))
def test_every_row_has_a_derivation_and_a_test_that_exists(name: str) -> None:
    row = rows()[name]
    assert len(row) == (5 if name.startswith("S") else 4), row
    assert all(len(cell) > 2 for cell in row[1:])
    named = re.findall(r"`(test_\w+)`", row[-1])
    assert named
    assert set(named) <= defined_tests()


def test_only_rows_that_exist_are_named() -> None:
    assert names_in(PAGE.read_text()) <= set(rows())


def released(report: PrivacyReport) -> Iterator[tuple[str, str, set[str]]]:
    """Round, array and rows of every line of a report."""
    for line in report.releases:
        found = re.search(r"\[([^\]]*)\]\.$", line.theorem)
        assert found is not None, line.theorem
        yield re.sub(r"-\d+$", "-t", line.round_name), line.array, names_in(found[1])


def arrays_of_row(name: str) -> set[str]:
    """Arrays that a row of S speaks of, also by other rows."""
    text = rows()[name][1]
    others = [
        f"S{i}"
        for first, last in re.findall(r"S(\d+) to S(\d+)", text)
        for i in range(int(first), int(last) + 1)
    ]
    others += [f"S{int(name[1:]) - 1}"] if text.startswith("the same") else []
    return set(
        re.findall(
            r"`(\w+)`", " ".join([text, *(rows()[other][1] for other in others)])
        )
    )


def require_row(array: str, unit: str, names: set[str]) -> None:
    """The row that a release's reason names is one about this array and unit."""
    for name in names:
        assert array in arrays_of_row(name), (array, name)
        assert f"({unit})" in rows()[name][1] or "(both)" in rows()[name][1], (
            array,
            unit,
            name,
        )


def described(case: Case) -> str:
    return f"`{case[0]}` ({case[2]})"


@cache
def report_of(case: Case) -> PrivacyReport:
    """A run of one combination, with as many kinds of releases as it has."""
    return fitted(case, **options_of(case)).privacy_


def options_of(case: Case) -> dict[str, object]:
    """Options under which a case has as many kinds of releases as it can."""
    more: dict[str, object] = {}
    if case[0] not in ("lloyd", "feddp_choose_k"):
        more["evaluation"] = "private"
    if case[0] == "feddp_kmeans":
        more["max_iter"] = 1
    return more


def other_data() -> list[NDArray[np.float64]]:
    """Tables of the sizes of those that every case is fitted to, with nothing in common
    with them.
    """
    generator = np.random.default_rng(99)
    return [
        np.clip(generator.exponential(2.0, part.shape) - 3.0, -1.0, 2.0)
        for part in mixture().clients
    ]


CASES = [
    (name, trusts[-1], unit, kind) for (name, unit, kind), trusts in SUPPORTED.items()
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_page_lists_every_release_of_a_run(case: Case) -> None:
    listed = {row[0]: row for row in table("Releases of every algorithm")}
    own, evaluated = listed[described(case)], listed[f"any, evaluated ({case[2]})"]
    seen: dict[str, list[str]] = {}
    for round_name, array, names in released(report_of(case)):
        row = evaluated if round_name == "evaluation" else own
        assert f"`{array}`" in row[1]
        sensitivity = {name for name in names if name[0] == "S"}
        assert sensitivity <= names_in(row[2])
        assert len(sensitivity) == (0 if "M7" in names else 1)
        require_row(array, case[2], sensitivity)
        assert names <= set(rows())
        assert ("M4" in names) == (case[1] == "distributed" and "M7" not in names)
        assert len(names & {"M1", "M2", "M7"}) == 1
        if array not in seen.setdefault(round_name, []):
            seen[round_name].append(array)
    told = "; ".join(
        f"{name}: {', '.join(f'`{array}`' for array in arrays)}"
        for name, arrays in seen.items()
        if name != "evaluation"
    )
    # The table of this run is too small for looks and proxies at client level, so they
    # need not be seen there.
    more = told.replace(
        "; refinement", "; proxies-t: `proxy_sums`, `proxy_counts`; refinement"
    )
    more = more.replace(
        "location: `row_sums`, `row_squares`",
        "look-t: `row_sums`, `row_squares`, `row_distances`",
    )
    # Nor what the last refinement clips.
    assert own[1].removesuffix(", `excess_sums`") in (told, more)


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_nothing_of_a_plan_depends_on_the_data(case: Case) -> None:
    """Rounds, radii, noise, lengths and delta are the same for any rows."""
    one = report_of(case)
    model = estimator(case, **options_of(case)).fit(other_data())
    assert (one.delta, one.n_examples, one.epsilon, one.releases) == (
        model.privacy_.delta,
        model.privacy_.n_examples,
        model.privacy_.epsilon,
        model.privacy_.releases,
    )


@pytest.mark.parametrize("algorithm", ["fastlloyd", "proxy_lloyd", "max_cover"])
def test_whether_a_run_starts_depends_on_public_numbers_only(algorithm: str) -> None:
    """Not even an error tells of hardly any rows."""
    trust = "central"
    for rows in (1, 50):
        model = FederatedKMeans(
            3,
            algorithm=algorithm,
            trust=trust,
            n_examples=100,
            bounds=(-1.0, 1.0),
            epsilon=8.0,
            engine="direct",
        )
        report = model.fit([np.full((rows, 2), 0.25), np.full((1, 2), -0.25)]).privacy_
        assert report.n_examples == 100


def test_the_page_lists_what_comes_before_the_first_round() -> None:
    listed = {row[0]: row for row in table("Releases of every algorithm")}
    model = FederatedKMeans(
        2,
        algorithm="fastlloyd",
        epsilon=5.0,
        bounds="private",
        n_examples="private",
        noise="seeded",
        random_state=0,
    )
    found = list(released(model.fit(list(mixture().clients)).privacy_))
    before = {
        array: names for name, array, names in found if not name.startswith("lloyd")
    }
    assert sorted(before) == ["count", "magnitudes", "ranges"]
    for array, names in before.items():
        row = next(
            row
            for title, row in listed.items()
            if title.startswith("any") and f"`{array}`" in row[1]
        )
        sensitivity = {name for name in names if name[0] == "S"}
        assert sensitivity <= names_in(row[2])
        require_row(array, "record", sensitivity)
        assert "M4" in names


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_page_lists_a_profile(unit: str) -> None:
    kinds = {
        "x": {"kind": "number"},
        "y": {"kind": "number", "weight": 0},
        "sick": {"kind": "flag", "weight": 0},
    }
    columns = {
        name: one | ({"bounds": (-1, 2)} if one["kind"] == "number" else {})
        for name, one in kinds.items()
    }
    model = FederatedKMeans(
        2, epsilon=5.0, unit=unit, bounds=Schema(columns=columns, profile=["sick", "y"])
    )
    found = list(
        released(
            model.fit(
                [{"x": [0.1, 1.0], "y": [0.2, 0.3], "sick": [0, 1]}] * 20
            ).privacy_
        )
    )
    told = ", ".join(f"`{array}`" for name, array, _ in found if name == "profile")
    (row,) = [
        row
        for row in table("Releases of every algorithm")
        if row[0] == f"any, profiled ({unit})"
    ]
    assert row[1] == f"profile: {told}"
    for _, array, names in [one for one in found if one[0] == "profile"]:
        sensitivity = {name for name in names if name[0] == "S"}
        assert sensitivity <= names_in(row[2])
        require_row(array, unit, sensitivity)


@pytest.mark.sample(2)
@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("profile", [(), ("x",)])
def test_the_page_lists_counts_of_gaps(unit: str, profile: tuple[str, ...]) -> None:
    column = {"kind": "number", "bounds": (-1, 2), "missing": "centre"}
    model = FederatedKMeans(
        2, epsilon=5.0, unit=unit, bounds=Schema(columns={"x": column}, profile=profile)
    )
    found = list(released(model.fit([{"x": [0.1, None, 1.0]}] * 20).privacy_))
    title = f"any, a schema with gaps that stay in the clustering ({unit})"
    (row,) = [row for row in table("Releases of every algorithm") if row[0] == title]
    lines = [(array, names) for name, array, names in found if name == "profile"]
    assert {"group_counts", "present_cells"} <= {array for array, _ in lines}
    for array, names in lines:
        sensitivity = {name for name in names if name[0] == "S"}
        assert sensitivity <= names_in(row[2])
        require_row(array, unit, sensitivity)


@pytest.mark.parametrize("algorithm", NOT_FEDERATED)
def test_the_page_lists_the_baselines_in_one_place(algorithm: str) -> None:
    listed = {row[0]: row for row in table("Releases of every algorithm")}
    row = next(row for title, row in listed.items() if f"`{algorithm}`" in title)
    report = FederatedKMeans(
        2, algorithm=algorithm, bounds=(-1.0, 2.0), epsilon=5.0
    ).fit(list(mixture().clients))
    for _, array, names in released(report.privacy_):
        assert f"`{array}`" in row[1]
        assert {name for name in names if name[0] == "S"} <= names_in(row[2])
        assert names <= set(rows())


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_runs_without_real_noise_promise_nothing(case: Case) -> None:
    report = report_of(case)
    # Seeded runs promise nothing; the same plan with secure noise does.
    assert report.guarantee.startswith("None")


@pytest.mark.parametrize("trust", ["oblivious", "distributed", "central"])
def test_a_private_runs_guarantee_names_rows_about_its_trust_model(trust: str) -> None:
    model = FederatedKMeans(
        2,
        algorithm="fastlloyd",
        epsilon=5.0,
        bounds=(-1.0, 2.0),
        trust=trust,
        n_examples=200,
    )
    report = model.fit(list(mixture().clients)).privacy_
    named = names_in(report.guarantee)
    assert "T5" in named
    assert PROOF_PAGE in report.guarantee
    assert all(name == "T5" or f"`{trust}`" in rows()[name][1] for name in named)
    brackets = names_in(
        " ".join(re.findall(r"\[[^\]]*\]", " ".join(report.assumptions)))
    )
    assert "C5" in brackets
    assert brackets <= set(rows())


@pytest.mark.parametrize("page", PAGES, ids=[name_of(page) for page in PAGES])
def test_rows_are_named_on_reference_pages_and_exist(page: Path) -> None:
    cited = CITED.findall(page.read_text())
    if not name_of(page).startswith(NAMING):
        assert cited == []
    assert names_in(" ".join(cited)) <= set(rows())
