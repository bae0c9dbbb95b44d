"""FastLloyd's Table 3: how its bytes come about, what an iteration is, and what the
command writes.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower.deployment import LogLine
from simulations.flower.relay import Traffic
from simulations.papers.fastlloyd import table3
from simulations.papers.fastlloyd.round_cost import (
    Estimate,
    Problem,
    measure_rounds,
    vector_bytes,
)
from simulations.papers.fastlloyd.superlink_cost import (
    read_cost,
)


@pytest.fixture
def small() -> Problem:
    return Problem(np.random.default_rng(0).uniform(-1.0, 1.0, (3000, 2)), n_clusters=2)


def test_the_papers_bytes_are_two_directions_of_two_clients() -> None:
    # By hand, for k = 2 and d = 2: 4 sums and 2 counts of 8 bytes, from 2 clients to
    # the server and back to both.
    assert (4 + 2) * 8 * 2 * 2 == 192 == vector_bytes(2, 2)
    assert [
        vector_bytes(case.n_clusters, case.n_features) for case in table3.CASES
    ] == [case.paper_bytes for case in table3.CASES]
    assert vector_bytes(2, 2, word_bytes=4) == 96


def test_what_is_sent_is_what_the_formula_says(small: Problem) -> None:
    with threadpool_limits(1):
        short, long = (
            measure_rounds(small, n_iterations=number, repeats=1) for number in (3, 5)
        )
        wide = measure_rounds(
            Problem(small.points, 7, n_clients=3), n_iterations=3, repeats=1
        )
    assert short.sizes.vectors == long.sizes.vectors == 192
    assert wide.sizes.vectors == 3 * 2 * 8 * 7 * 3
    # Requests and replies of two clients, each with an envelope that does not depend on
    # the vector.
    assert 4 * 500 < short.sizes.messages - 192 < 4 * 1500
    assert abs(short.sizes.messages - long.sizes.messages) < 16
    envelope = (wide.sizes.messages - wide.sizes.vectors) / 6
    assert envelope == pytest.approx((short.sizes.messages - 192) / 4, abs=20)
    # Keys, roster and group keys are sent once, however long the run is; only the plan
    # names two rounds more.
    assert 0 < long.sizes.rest - short.sizes.rest < 2 * 2 * 700
    assert long.iteration.mean > 0.0 < long.iteration_cpu.mean
    assert math.isnan(long.iteration.half_width)


def test_confidence_intervals_are_students() -> None:
    found = Estimate.of([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.302653 / math.sqrt(3.0), rel=1e-6)


def test_rows_are_scaled_by_their_range_and_split_equally(tmp_path: Path) -> None:
    problem = table3.load_problem(table3.CASES[1], None)
    assert problem.points.shape == (10_000, 5)
    assert problem.points.min(axis=0).tolist() == [-1.0] * 5
    assert problem.points.max(axis=0).tolist() == [1.0] * 5
    assert [len(part) for part in problem.parts] == [5000, 5000]
    lsun = next(case for case in table3.CASES if case.name == "lsun")
    np.savez(tmp_path / "lsun.npz", X=np.arange(800.0).reshape(400, 2))
    problem = table3.load_problem(lsun, tmp_path)
    assert sorted(problem.points[:, 0]) == pytest.approx(np.linspace(-1.0, 1.0, 400))
    # Files have their clusters one after the other, and clients are to have random
    # rows.
    assert not np.array_equal(problem.points[:, 0], np.sort(problem.points[:, 0]))
    np.savez(tmp_path / "lsun.npz", X=np.arange(900.0).reshape(300, 3))
    with pytest.raises(ConfigurationError, match="400 of 2"):
        table3.load_problem(lsun, tmp_path)


def test_cases_are_those_with_data(tmp_path: Path) -> None:
    (tmp_path / "s1.npz").touch()
    assert [case.label for case in table3.choose_cases([], tmp_path)][-1] == "s1"
    assert len(table3.choose_cases([], tmp_path)) == 9
    with pytest.raises(ConfigurationError, match="did you mean 'TimeSynth-100K-5-2'"):
        table3.choose_cases(["TimeSynth100K-5-2"], None)


def lines(
    *texts: str, seconds: tuple[float, ...] = (10.0, 30.0, 36.0, 48.0, 55.0)
) -> list[LogLine]:
    """A log whose lines arrive at given times, 100 bytes up and 10 down for each
    second.
    """
    return [
        LogLine(second, text, Traffic(int(100 * second), int(10 * second)))
        for second, text in zip(seconds, texts, strict=False)
    ]


STEPS = tuple(
    f"round {index}/3 (lloyd-{index}); 2 clients; epsilon so far 1"
    for index in (1, 2, 3)
)


def test_round_trips_are_read_from_the_log() -> None:
    found = read_cost(
        [
            LogLine(9.0, "Start `flwr-serverapp`", Traffic()),
            *lines("plan: 3 rounds", *STEPS, "PRIVATE"),
        ]
    )
    assert found.trips == (6.0, 12.0)
    assert (found.trip, found.start, found.keys, found.end) == (9.0, 10.0, 20.0, 7.0)
    assert (found.bytes_up, found.bytes_down) == (900, 90)
    assert found.other_bytes == 55 * 110 - 18 * 110


def test_the_command_writes_table_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--only",
        "TimeSynth-10K-2-2",
        "--repeats",
        "2",
        "--iterations",
        "4",
        "--output",
        str(tmp_path),
    ]
    assert table3.main(arguments) == 0
    assert "192" in capsys.readouterr().out
    with (tmp_path / "table3_in_process.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["n_rows"], row["n_clusters"], row["n_features"], row["n_clients"]) == (
        "10000",
        "2",
        "2",
        "2",
    )
    assert (row["bytes"], row["paper_bytes"], row["bytes_ratio"]) == (
        "192",
        "192",
        "1.0",
    )
    assert float(row["ms_ratio"]) == pytest.approx(float(row["ms"]) / 3.03)
    assert float(row["ms_half_width"]) > 0.0
    written = " ".join((tmp_path / "table3.md").read_text().split())
    assert "3.03 ± 0.02" in written
    assert "over 2 runs" in written
    assert "| 10.5 |" in written  # MohLloyd's seconds
    assert "| 255.7 |" in written
    assert "SuperLink" not in written
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "table3.md",
        "table3_in_process.csv",
        "table3_in_process.json",
    ]
