"""A schema's draft and check: what the tool sees in a table's columns, and what it says
to their owner alone.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import Schema
from flwr_dpkmeans.__main__ import main

N_ROWS = 240
GENERATOR = np.random.default_rng(0)


def drafted(
    folder: Path, columns: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], list[str], str]:
    """The columns of a draft, what was said beside it, and its text."""
    pd.DataFrame(columns).to_csv(folder / "t.csv", index=False)
    assert main(["schema", "draft", str(folder / "t.csv")]) == 0
    text = (folder / "t.toml").read_text()
    return (
        tomllib.loads(text)["columns"],
        capsys.readouterr().out.splitlines()[1:],
        text,
    )


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["ja", "nein"], {"ja": True, "nein": False}),
        (["Yes", "No"], {"Yes": True, "No": False}),
        (["Y", "n"], {"Y": True, "N": False, "y": True, "n": False}),
        (["POSITIVE", "NEGATIVE"], {"POSITIVE": True, "NEGATIVE": False}),
        (["true", "false"], None),
        (["0", "1"], None),
    ],
)
def test_two_words_for_yes_and_no_are_a_flag(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    pairs: dict[str, bool] | None,
) -> None:
    columns, _, _ = drafted(tmp_path, {"x": words * 20, "n": np.arange(40) % 7}, capsys)
    assert columns["x"] == {"kind": "flag", "weight": 0.5} | (
        {"map": pairs} if pairs else {}
    )
    schema = Schema(columns={"x": columns["x"]})
    assert schema.encode({"x": words}).points.ravel().tolist() == (
        [0, 1] if words == ["0", "1"] else [1, 0]
    )


def test_other_two_words_are_a_category_whose_values_are_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, remarks, text = drafted(
        tmp_path, {"sex": ["m", "f"] * 20, "n": np.arange(40) % 7}, capsys
    )
    assert columns["sex"] == {"kind": "category", "values": [], "weight": 0.5}
    assert "# two values; or a flag with map" in text
    assert remarks == []


def test_hours_and_weekdays_are_cycles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = GENERATOR.integers(0, 20, N_ROWS)
    table = {
        "arrival_hour": hours,
        "HourOfDay": hours,
        "clock": np.arange(N_ROWS) % 24,
        "seen": [f"{hour:02d}:15" for hour in hours],
        "weekday": 1 + hours % 7,
        "Day of week": hours % 7,
        "stay_hours": hours,
        "time_to_event": hours,
        "duration": 1 + hours,
    }
    columns, remarks, _ = drafted(tmp_path, table, capsys)
    hour, number = {"kind": "cycle", "period": 24}, {"kind": "number", "bounds": []}
    assert columns == {
        "arrival_hour": hour,
        "HourOfDay": hour,
        "clock": hour,
        "seen": hour,
        "weekday": {"kind": "cycle", "period": 7, "start": 1},
        "Day of week": {"kind": "cycle", "period": 7},
        "stay_hours": number,
        "time_to_event": number,
        "duration": number,
    }
    assert len(remarks) == 6
    assert all("begin again" in remark for remark in remarks)


def test_ids_and_indices_are_left_out_and_their_owner_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    persons = GENERATOR.integers(10_000, 99_999, N_ROWS // 3).repeat(3)
    table = {
        "Obs": np.arange(1, N_ROWS + 1),
        "patient_id": persons,
        "case": [f"F{person}" for person in persons],
        "MRN": GENERATOR.permutation(100_000)[:N_ROWS],
        "Unnamed: 3": np.arange(N_ROWS),
        "ward": [f"W{number % 3}" for number in range(N_ROWS)],
        "plz": [f"{number % 50:05d}" for number in range(N_ROWS)],
        "cost": GENERATOR.permutation(100_000)[:N_ROWS],
        "clinic": ["north"] * N_ROWS,
    }
    columns, remarks, text = drafted(tmp_path, table, capsys)
    assert list(columns) == ["ward", "plz", "cost", "clinic"]
    assert '# "patient_id" = { kind = "number"' in text
    by_name = {remark.split("'")[1]: remark for remark in remarks}
    assert list(by_name) == [
        "Obs", "patient_id", "case", "MRN", "Unnamed: 3", "plz", "clinic",
    ]  # fmt: skip
    assert "looks like an index of the rows" in by_name["Obs"]
    for name in ("patient_id", "case"):
        assert "several rows have the same id (at most" in by_name[name]
        assert (
            "persons with several rows are protected less at record level"
            in by_name[name]
        )
    assert "no two rows have the same value" in by_name["MRN"]
    assert "cells begin with 0, as codes do" in by_name["plz"]
    assert (
        "all of its cells are equal here: unless they differ elsewhere, delete its line"
        in by_name["clinic"]
    )


def test_a_draft_says_what_keeps_one_column_from_deciding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, text = drafted(tmp_path, {"x": [1.5, 2.5]}, capsys)
    assert tomllib.loads(text)["scale"] == "standard"
    assert '# So that no column decides alone: with scale = "standard"' in text
    assert "weight = 0.5 keeps categories and flags" in text


def test_numbers_that_say_that_one_is_missing_are_shown_to_their_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pressures = GENERATOR.normal(120, 10, N_ROWS).round()
    pressures[:6] = 999
    ages = np.arange(N_ROWS) % 100
    changes = GENERATOR.normal(0, 3, N_ROWS).round()
    temperatures = GENERATOR.normal(37, 0.5, N_ROWS).round(1)
    temperatures[:3] = -99
    columns, remarks, text = drafted(
        tmp_path,
        {"rr": pressures, "age": ages, "change": changes, "temperature": temperatures},
        capsys,
    )
    assert [remark.partition(":")[0] for remark in remarks] == ["'rr'", "'temperature'"]
    assert "6 cells are 999, far from all others: if that says" in remarks[0]
    assert "add missing_values = [-99]" in remarks[1]
    assert {column["kind"] for column in columns.values()} == {"number"}
    assert "999" not in text


def test_values_that_differ_by_factors_are_shown_to_their_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crp = np.exp(GENERATOR.normal(2, 1.5, N_ROWS))
    crp[:5] = 99999
    table = {
        "crp": crp,
        "kg": GENERATOR.normal(70, 15, N_ROWS),
        "income": GENERATOR.uniform(0, 1e5, N_ROWS),
        "change": GENERATOR.normal(0, 9, N_ROWS),
    }
    _, remarks, _ = drafted(tmp_path, table, capsys)
    assert [remark.partition(":")[0] for remark in remarks] == ["'crp'", "'crp'"]
    assert 'with transform = "log" ratios count' in remarks[1]


def checked(
    folder: Path, schema: str, rows: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, list[str]]:
    """A row for each column, as the command shows them."""
    (folder / "s.toml").write_text(schema)
    (folder / "t.csv").write_text(rows)
    main(["schema", "check", str(folder / "s.toml"), str(folder / "t.csv")])
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    return {row[0]: row[1:] for row in cells}


SCHEMA = """
[columns]
kg = { kind = "number", bounds = [30, 200], missing_values = [-999] }
hour = { kind = "cycle", period = 24 }
crp = { kind = "number", bounds = [0.1, 500], transform = "log" }
when = { kind = "date", bounds = [2020-01-01, 2021-01-01] }
smokes = { kind = "flag", map = { ja = true, nein = false } }
"""


def test_their_owner_sees_values_beside_the_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["kg,hour,crp,when,smokes"]
    rows += [
        "150,22:30,5,2020-03-01,ja",
        "-999,6,0.01,2020-05-01,nein",
        "180,4,,2020-04-01,vielleicht",
    ]
    assert checked(tmp_path, SCHEMA, "\n".join(rows) + "\n", capsys) == {
        "kg": ["number", "2", "1 (33.3%)", "0", "0", "30 to 200", "150", "165", "180"],
        "hour": ["cycle", "3", "0", "0", "0", "0 to 24", "4", "6", "22.5"],
        "crp": ["number", "2", "1 (33.3%)", "0", "1 (33.3%)", "0.1 to 500", "0.01",
                "2.505", "5"],
        "when": ["date", "3", "0", "0", "0", "2020-01-01 to 2021-01-01", "2020-03-01",
                 "2020-04-01", "2020-05-01"],
        "smokes": ["flag", "2", "0", "1 (33.3%)", "0", "", "", "", ""],
    }  # fmt: skip


def test_the_middle_of_a_table_in_many_blocks_is_about_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second half of the rows is in another unit, and read in other blocks."""
    weights = np.concatenate(
        [GENERATOR.uniform(60, 70, 150_000), GENERATOR.uniform(140, 150, 100_000)]
    )
    schema = '[columns]\nkg = { kind = "number", bounds = [30, 200] }\n'
    rows = "\n".join(["kg", *(f"{weight:.3f}" for weight in weights)]) + "\n"
    shown = checked(tmp_path, schema, rows, capsys)["kg"]
    assert shown[:6] == ["number", "250000", "0", "0", "0", "30 to 200"]
    least, median, largest = map(float, shown[6:])
    assert (least, largest) == (round(weights.min(), 3), round(weights.max(), 3))
    assert median == pytest.approx(np.median(weights), abs=0.3)
