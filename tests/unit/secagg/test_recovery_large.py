"""A thousand clients of which a tenth leaves, at every stage: the exact sum of those that stay."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from support.recovery_federation import PLAN, RecoveryFederation

from flwr_dpkmeans.secagg.messages import Release
from flwr_dpkmeans.secagg.packing import pack_boxes
from flwr_dpkmeans.secagg.recovery.recover import Recover

pytestmark = pytest.mark.statistical

N_CLIENTS, MAX_SILENT, LENGTH = 1000, 125, 650


@dataclass
class Costs:
    """Processor time of the clients' transitions, and of the server's recovery."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def watch(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.process_time() - start
                self.calls[name] += 1

        return timed

    def milliseconds(self, name: str) -> float:
        """Of one call, on average."""
        return 1000 * self.seconds[name] / max(1, self.calls[name])


def play(
    monkeypatch: pytest.MonkeyPatch, n_clients: int, max_silent: int, n_dropping: int
) -> tuple[RecoveryFederation, Costs]:
    """Two rounds; the dropouts are spread over the share exchange and three stages of each round."""
    costs = Costs()
    for name in ("share", "admit", "answer", "unmask"):
        monkeypatch.setattr(Recover, name, costs.watch(name, getattr(Recover, name)))
    federation = RecoveryFederation.make(
        n_clients, max_silent=max_silent, rounds=(1, 2), n_attempts=2, length=LENGTH, seed=1
    )
    recover = costs.watch("recover", federation.session.recover)
    dropping = np.random.default_rng(2).permutation(list(federation.states))[:n_dropping].tolist()
    stages = [dropping[start::7] for start in range(7)]
    federation.share(silent=stages[0])
    for index in (1, 2):
        before, late, mute = stages[3 * index - 2 : 3 * index + 1]
        federation.gone |= set(before)
        federation.session.open_round(index, LENGTH)
        federation.send(silent=late)
        federation.give_shares(silent=mute)
        values = recover(PLAN, blinded=False).values
        assert len(federation.session.survivors) == n_clients - sum(len(stage) for stage in stages[: 3 * index])
        assert values.tolist() == federation.truth().tolist()
        federation.session.require_cohort()
        federation.release = Release(index, 0, values)
    return federation, costs


def test_a_thousand_clients_of_which_a_tenth_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    federation, _ = play(monkeypatch, N_CLIENTS, MAX_SILENT, N_CLIENTS // 10)
    assert len(federation.session.roster.node_ids) == 900
    # What each client sends, without the transport: bounded by the neighbourhood, not by the cohort.
    degree = federation.session.neighbours(10)
    shared = max(len(pack_boxes(reply.boxes)) for reply in federation.shared.values())
    assert shared == len(degree) * (12 + 28 + 96 * 4)
    vector = federation.masked[1, 0]
    assert max(8 * LENGTH + len(pack_boxes(reply.boxes)) for reply in vector.values()) <= 5200 + 44 * len(degree)
    given = federation.unmasked[2, 0]
    assert max(len(pack_boxes(reply.shares)) for reply in given.values()) <= 108 * len(degree)
