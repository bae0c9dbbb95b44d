"""Virtual clients that look up what their peer has agreed on.

The same bytes, from half as many agreements.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from support.machine import replace_entropy
from support.masked_federation import Federation
from support.watching import calls_of

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import LocalRun
from flwr_dpkmeans.sums.virtual.paired import Awaited, Paired
from flwr_dpkmeans.sums.wire import Answer, Request

NODES = (3, 8, 11, 40, 99)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("authored", [False, True])
def test_the_second_of_two_looks_up_the_key_that_it_would_agree_on(
    monkeypatch: pytest.MonkeyPatch, authored: bool, shared: bool
) -> None:
    """Bit for bit, in two rounds and a retry."""
    # More words than clients keep for each other.
    length = 3 if shared else 470_000
    federation = Federation(NODES, authored=authored)
    replace_entropy(monkeypatch, lambda n_bytes: bytes(range(n_bytes)))
    server, alone, table = federation.server, federation.states, Awaited()
    paired = {
        node: Paired(**vars(state), awaited=table) for node, state in alone.items()
    }
    vectors = {
        node: np.arange(length, dtype=np.uint64) + np.uint64(node) for node in NODES
    }
    found: list[tuple[list[Any], int, int]] = []
    for states in (alone, paired):
        federation.states, federation.server = dict(states), copy.deepcopy(server)
        federation.received, federation.release = [], None
        with (
            calls_of(keys.agree_pair_keys) as agreed,
            calls_of(ciphers.stream) as expanded,
        ):
            federation.run_round(1, vectors, np.zeros(length, dtype=np.uint64))
            federation.open(2, length)
            federation.attempt(vectors, silent=(11,))
            federation.server.retry()
            federation.attempt(vectors, repeated=True)
        n_agreed = sum(len(call.arguments["public_keys"]) for call in agreed)
        masked = [reply.masked.values.tobytes() for _, reply in federation.received]
        found.append((masked, n_agreed, len(expanded)))
    assert found[0][0] == found[1][0]
    assert found[0][1] == 2 * found[1][1] == 20
    assert not table
    # Two rounds of five clients' ten pairs, and a retry of the six of four.
    assert found[0][2] - found[1][2] == (10 + 10 + 6 if shared else 0)


def test_few_masks_wait_for_their_other_end() -> None:
    """Clients are asked along their circle, so that no table grows."""
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=500, algorithm="fastlloyd",
        trust="central", max_silent=4,
    )  # fmt: skip
    waiting: list[int] = []

    class Noted(LocalRun):
        def ask(self, node: int, request: Request) -> Answer:
            waiting.append(len(self.awaited))
            return super().ask(node, request)

    for n_clients in (40, 80):
        waiting.clear()
        plan = draft_plan(config, run_id=9, n_clients=n_clients, seed=7, n_features=2)
        run = Noted(
            plan, [np.full((5, 2), place / 128) for place in range(n_clients)]
        ).play()
        # Of each of the first three and the last three: its keys and its mask.
        assert max(waiting) <= 2 * 3 * 6
        assert not run.awaited
