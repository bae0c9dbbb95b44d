"""A run that is paid for asks once more for what it lacks, and charges it once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from flwr.app import Message
from support.ledger_entries import verify_ledger
from support.messages import stage_and_round
from support.protocol_federation import grid_parts, small_config

from flwr_dpkmeans.errors import CohortError
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategies.timeouts import Timeouts
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger_file import FileLedger

N_CLIENTS = 3


class BusyGrid(InProcessGrid):
    """A deployment in which nobody hears, or answers, one stage in time.

    Requests are lost, or answers to them come when the stage is asked for again.
    """

    is_complete = False

    def __init__(self, folder: Path, busy: str, fault: str) -> None:
        (folder / "policy.toml").write_text(
            "allow-anything = true\nmax-epsilon-per-run = 9\nmax-epsilon-total = 9\n"
        )
        nodes = []
        for index, part in enumerate(grid_parts((120, 80, 60))):
            config = {
                "ledger": str(folder / f"ledger-{index}"),
                "data-id": "ward",
                "policy": str(folder / "policy.toml"),
            }
            client = KMeansClient(part)
            nodes.append(Node(client_app(lambda _, client=client: client), config))
        super().__init__(nodes, run_id=7)
        self.busy, self.fault = busy, fault
        self.asked: list[tuple[str, int]] = []
        self.delayed: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        listed = list(messages)
        place = stage_and_round(listed[0])
        is_first_time = self.asked.count(place) == 0
        self.asked.append(place)
        stage, index = place
        is_busy = self.busy == f"{stage} {index}" and self.fault != "none"
        if is_busy and (is_first_time or self.fault == "gone"):
            if self.fault != "late":
                return [f"lost-{node}" for node in range(len(listed))]
            self.delayed = super().push_messages(listed)
            return self.delayed
        return super().push_messages(listed)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        is_again = len(self.asked) > len(set(self.asked))
        waiting = [
            name
            for name in message_ids
            if not name.startswith("lost") and (is_again or name not in self.delayed)
        ]
        return super().pull_messages(waiting)


def run(folder: Path, busy: str, fault: str) -> tuple[BusyGrid, KMeansResult]:
    folder.mkdir()
    grid = BusyGrid(folder, busy, fault)
    config = small_config(n_clients=N_CLIENTS, max_retries=0)
    strategy = PrivateKMeans.from_config(config, on_step=lambda _: None)
    strategy.timeouts = Timeouts(round=0.3, concurrent=True)
    with grid.running():
        return grid, strategy.start(grid)


def charges(folder: Path) -> list[tuple[int, int, float]]:
    entries = []
    for index in range(N_CLIENTS):
        path = folder / f"ledger-{index}"
        verify_ledger(path)
        entries += [
            (entry.round_index, entry.attempt, entry.epsilon)
            for entry in FileLedger(path).entries()
        ]
    return entries


@pytest.mark.parametrize("busy", ["sum 1", "sum 10", "finish -1"])
@pytest.mark.parametrize("fault", ["lost", "late"])
def test_a_paid_run_ends_as_if_nobody_had_been_busy(
    tmp_path: Path, busy: str, fault: str
) -> None:
    run(tmp_path / "calm", busy, "none")
    grid, _ = run(tmp_path / "busy", busy, fault)
    assert len(grid.asked) == len(set(grid.asked)) + 1, grid.asked
    assert charges(tmp_path / "busy") == charges(tmp_path / "calm")


def test_a_paid_run_is_given_up_when_the_second_time_is_over_too(
    tmp_path: Path,
) -> None:
    with pytest.raises(CohortError, match=r"0 of 3 nodes answered within [12] s"):
        run(tmp_path / "gone", "sum 2", "gone")
