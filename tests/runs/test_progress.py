"""What a run's program says of it while it is under way, and after it was killed."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.supercore.privacy_accounting import PrivacySpent
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)

from flwr_dpkmeans.deploy.run_folders import read_progress, runs_below
from flwr_dpkmeans.errors import CohortError
from flwr_dpkmeans.flower.progress import recorded_progress
from flwr_dpkmeans.flower.run_progress import (
    LOG_FILE,
    PROGRESS_FILE,
    Outcome,
    RunProgress,
)
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.durable_files import lock
from flwr_dpkmeans.node.policy import ClientPolicy


def watched(folder: Path, federation: Federation, **values: Any) -> list[RunProgress]:
    """What stood in the file after each aggregation, and at the end."""
    seen: list[RunProgress] = []
    look = lambda *_: seen.append(read_progress(folder))  # noqa: E731
    config = small_config(
        **{"algorithm": "fastlloyd", "max_iter": 2, "epsilon": 2.0} | values
    )
    strategy = PrivateKMeans.from_config(config, on_step=look)
    try:
        with (
            recorded_progress(federation.grid.run.run_id, folder) as strategy.progress,
            federation.grid.running(),
        ):
            strategy.start(federation.grid)
    finally:
        look()
    return seen


def test_a_run_can_be_watched(tmp_path: Path) -> None:
    federation = make_federation(grid_parts((20, 20, 20)))
    first, second, last = watched(tmp_path / "run-1", federation)
    assert [known.outcome for known in (first, second, last)] == [
        Outcome.RUNNING,
        Outcome.RUNNING,
        Outcome.COMPLETED,
    ]
    assert last.run == str(federation.grid.run.run_id)
    assert (last.algorithm, last.trust, last.unit) == (
        "fastlloyd",
        "oblivious",
        "record",
    )
    assert (first.round, first.n_rounds, first.attempt, first.stage) == (1, 2, 0, "sum")
    assert (last.nodes, last.missing, last.notices) == (("2", "3", "4"), (), ())
    assert [trip.stage for trip in last.trips] == ["keys", "sum", "sum", "finish"]
    assert {(trip.n_asked, trip.n_answered) for trip in last.trips} == {(3, 3)}
    assert all(trip.sent > 0 < trip.received for trip in last.trips)
    # A vector of k (d + 1) words of 8 bytes from each of 3 clients.
    assert last.trips[1].received >= 3 * 8 * 3 * 3
    assert (last.n_left, last.epsilon, last.epsilon_planned) == (
        0,
        pytest.approx(2.0),
        pytest.approx(2.0),
    )
    # It is looked at before the file has the step's own cost.
    assert 0.0 == first.epsilon < (second.epsilon or 0.0) < (last.epsilon or 0.0)
    assert (last.epsilon_worst or 0.0) > 2.0
    entry = next(iter(federation.ledgers.values())).entries()[0]
    assert entry.plan_digest == last.plan
    assert os.stat(tmp_path / "run-1" / PROGRESS_FILE).st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("options", "left"),
    [({}, [6, 5, 4, 3, 2, 1]), ({"tolerance": 1e9}, [6, 1])],
    ids=["all of its rounds", "ended by its first movement"],
)
def test_round_trips_left_are_one_for_each_round_and_the_last_release(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    left: list[int],
) -> None:
    caplog.set_level(logging.INFO)
    watched(
        tmp_path,
        make_federation(grid_parts((20, 20, 20))),
        max_iter=5,
        trust="central",
        **options,
    )
    lines = map(json.loads, (tmp_path / LOG_FILE).read_text().splitlines())
    assert [
        line["round_trips_left"] for line in lines if line.get("event") == "progress"
    ] == left


def test_the_servers_lines_are_in_the_folder_as_json_and_in_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        for index in (1, 2):
            watched(
                tmp_path / f"run-{index}",
                make_federation(grid_parts((20, 20)), run_id=index),
            )
    for index in (1, 2):
        lines = [
            json.loads(line)
            for line in (tmp_path / f"run-{index}" / LOG_FILE).read_text().splitlines()
        ]
        assert {line["run"] for line in lines} == {str(index)}
        assert {"start", "progress", "finished"} <= {
            line.get("event") for line in lines
        }
        assert not any("node" in line for line in lines)
    assert os.stat(tmp_path / "run-1" / LOG_FILE).st_mode & 0o077 == 0


def test_who_is_silent_is_named_and_the_repetition_counted(tmp_path: Path) -> None:
    federation = make_federation(grid_parts((20, 20, 20, 20)))
    federation.faults.on_reply = lambda reply: [] if drops(reply) else [reply]
    dropped: list[int] = []

    def drops(reply: Any) -> bool:
        if (
            not dropped
            and "dpkmeans.vector" in reply.content.array_records
            and reply.metadata.src_node_id == 4
        ):
            dropped.append(4)
        return reply.metadata.src_node_id == 4 and bool(dropped)

    *_, last = watched(tmp_path, federation)
    assert (last.outcome, last.missing) == (Outcome.COMPLETED, ("4",))
    assert [(trip.n_asked, trip.n_answered) for trip in last.trips] == [
        (4, 4),
        (4, 3),
        (3, 3),
        (3, 3),
        (3, 3),
    ]
    (notice,) = last.notices
    assert notice.event == "retry"
    assert "nodes [4] did not answer" in notice.sentence


def test_a_refusal_is_there_with_its_sentence(tmp_path: Path) -> None:
    federation = make_federation(
        grid_parts((20, 20, 20)), policies={3: ClientPolicy(max_epsilon_per_run=0.5)}
    )
    with pytest.raises(Exception, match="max_epsilon_per_run"):
        watched(tmp_path, federation)
    known = read_progress(tmp_path)
    assert (known.outcome, known.epsilon) == (Outcome.STOPPED, 0.0)
    assert known.sentence.startswith("RefusalError: node 3 refused")
    last = json.loads((tmp_path / LOG_FILE).read_text().splitlines()[-1])
    assert (last["event"], last["message"]) == ("stopped", known.sentence)
    (notice,) = known.notices
    assert (notice.event, notice.reason) == ("refused", "RefusalError")
    assert "0.5" in notice.sentence


def test_who_does_not_answer_is_late_when_the_run_ends(tmp_path: Path) -> None:
    federation = make_federation(grid_parts((20, 20)))
    federation.faults.on_reply = lambda reply: (
        [] if reply.metadata.src_node_id == 3 else [reply]
    )
    with pytest.raises(CohortError):
        watched(tmp_path, federation)
    known = read_progress(tmp_path)
    assert (known.stage, known.answered, known.late) == ("keys", ("2",), ("3",))


def test_a_killed_program_leaves_a_run_that_says_so(tmp_path: Path) -> None:
    there, said = os.pipe()
    if (
        child := os.fork()
    ) == 0:  # a program of its own would take seconds to import what this one has
        with recorded_progress(7, tmp_path) as progress:
            progress.tell(stage="sum", round=3)
            os.write(said, b"x")
            signal.pause()
    os.read(there, 1)
    assert read_progress(tmp_path).outcome is Outcome.RUNNING
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    known = read_progress(tmp_path)
    assert (known.outcome, known.stage, known.round) == (Outcome.DIED, "sum", 3)
    assert "without a word" in known.sentence
    assert json.loads((tmp_path / PROGRESS_FILE).read_text())["outcome"] == "running"


def test_another_error_is_told_by_its_kind_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4711"), recorded_progress(7, tmp_path):
        raise ValueError("4711")
    known = read_progress(tmp_path)
    assert known.outcome is Outcome.FAILED
    assert known.sentence.startswith("ValueError: ")
    assert "4711" not in known.sentence
    with (
        pytest.raises(SystemExit),
        recorded_progress(7, tmp_path),
    ):  # as Flower ends a ServerApp that it is told to stop
        raise SystemExit(3)
    known = read_progress(tmp_path)
    assert (known.outcome, "from outside" in known.sentence) == (Outcome.STOPPED, True)


def test_a_folder_that_cannot_be_written_stops_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    federation = make_federation(grid_parts((20, 20)))
    strategy = PrivateKMeans.from_config(
        small_config(algorithm="fastlloyd", max_iter=1)
    )
    with (
        recorded_progress(
            federation.grid.run.run_id, tmp_path / "file" / "run-1"
        ) as strategy.progress,
        federation.grid.running(),
    ):
        result = strategy.start(federation.grid)
    assert len(result.confirmed) == 2
    assert (
        sum("progress is not kept" in record.getMessage() for record in caplog.records)
        == 1
    )


def test_runs_are_found_by_their_files(tmp_path: Path) -> None:
    for index, place in enumerate(("run-1", "results/run-2")):
        with recorded_progress(index, tmp_path / place):
            pass
        os.utime(tmp_path / place / PROGRESS_FILE, (index, index))
    (tmp_path / "run-3").mkdir()
    assert runs_below(tmp_path) == [tmp_path / "results" / "run-2", tmp_path / "run-1"]
    (tmp_path / "run-1" / PROGRESS_FILE).write_text("{}")
    known = read_progress(tmp_path / "run-1")
    assert (known.run, known.outcome) == ("1", Outcome.UNREADABLE)
    assert "run-1/progress.json cannot be read" in known.sentence


def plain(folder: Path, parts: list[Any], **values: Any) -> dict[str, Any]:
    """The last file but for times."""
    known = watched(folder, make_federation(parts, run_id=5), **values)[-1]
    told = known.model_dump(exclude={"started", "updated", "plan"})
    return told | {
        "trips": [trip.model_copy(update={"seconds": 0}) for trip in known.trips]
    }


@pytest.mark.parametrize(
    ("trust", "algorithm"), [("oblivious", "fastlloyd"), ("central", "glloyd")]
)
def test_nothing_in_the_file_depends_on_rows(
    tmp_path: Path, trust: str, algorithm: str
) -> None:
    """As unlike as tables can be, an empty one included."""
    one = [np.array(part) for part in grid_parts((150, 100, 50))]
    other = [np.full((300, 2), 0.875), np.zeros((0, 2)), np.full((90, 2), -0.5)]
    first, second = (
        plain(tmp_path / str(i), parts, trust=trust, algorithm=algorithm)
        for i, parts in enumerate((one, other))
    )
    # The two runs are made one after the other, so that their clocks differ.
    nodes = [sorted(run.pop("answered_at")) for run in (first, second)]
    assert nodes[0] == nodes[1] != []
    assert first["trips"]
    if trust == "central":
        # What a server that sees noisy counts is warned of is in its log as well.
        assert [one.pop("notices") for one in (first, second)]
    assert first == second


def test_what_a_run_costs_is_told_in_flowers_own_type() -> None:
    """The report's price, which is the whole plan's from the first aggregation on."""
    seen: list[PrivacySpent | None] = []
    strategy = PrivateKMeans.from_config(
        small_config(algorithm="fastlloyd", max_iter=2, epsilon=2.0),
        on_step=lambda _: seen.append(strategy.privacy_spent()),
    )
    assert strategy.privacy_spent() is None
    federation = make_federation(grid_parts((20, 20, 20)))
    with federation.grid.running():
        result = strategy.start(federation.grid)
    spent = strategy.privacy_spent()
    assert isinstance(spent, PrivacySpent)
    assert result.privacy is not None
    assert (spent.epsilon, spent.delta, spent.num_releases) == (
        result.privacy.epsilon,
        result.privacy.delta,
        2,
    )
    assert [one and (one.epsilon, one.num_releases) for one in seen] == [
        (spent.epsilon, 1),
        (spent.epsilon, 2),
    ]
    each = [float(result.train_metrics_clientapp[index]["epsilon"]) for index in (1, 2)]  # type: ignore[arg-type]
    assert 0.0 < each[0] < each[1] == pytest.approx(spent.epsilon)


def test_a_log_that_is_kept_is_locked_for_readers_too_until_the_end(
    tmp_path: Path,
) -> None:
    """Shared."""
    with recorded_progress(7, tmp_path), (tmp_path / LOG_FILE).open("rb") as file:
        assert [
            lock(file.fileno(), exclusive=alone, wait=False) for alone in (True, False)
        ] == [False, True]
    with (tmp_path / LOG_FILE).open("rb") as file:
        assert lock(file.fileno(), wait=False)
    known = read_progress(tmp_path)
    assert (known.outcome, known.n_left, known.sentence) == (Outcome.COMPLETED, 0, "")
    # Of a run that has ended nobody asks for its log.
    (tmp_path / LOG_FILE).unlink()
    assert read_progress(tmp_path) == known
    assert os.stat(tmp_path / PROGRESS_FILE).st_mode & 0o777 == 0o600
