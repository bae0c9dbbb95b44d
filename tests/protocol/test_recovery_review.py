"""Recovered sums against a server that counts on what a client forgets, and on noise
that is not there.
"""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import Message
from support.messages import (
    Status,
    copied,
    parse_failure,
    parse_unmask_request,
    stage_and_round,
    unmask_request_content,
)
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)
from support.wrong_trust import watch_noise

from flwr_dpkmeans.errors import RefusalError
from flwr_dpkmeans.flower.messages.client_memory import recall
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, SHARES_GIVEN
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.secagg.graph import least_survivors
from flwr_dpkmeans.secagg.messages import UnmaskRequest
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.sums.draft import draft_plan

N, T, VICTIM = 12, 2, 5
TRUSTS = ("oblivious", "central", "distributed")


def run(federation: Federation, **values: Any) -> Any:
    defaults: dict[str, Any] = {
        "algorithm": "lloyd", "max_iter": 3, "n_examples": None, "max_silent": T,
    }  # fmt: skip
    return federation.start(
        **(defaults | {"dropout": "recover", "min_clients": 4} | values)
    )


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize(
    ("n_clients", "max_silent", "min_clients"),
    [(12, 2, 4), (12, 0, 2), (40, 5, 2), (1000, 125, 2)],
)
def test_no_more_shares_are_counted_on_than_can_be_left(
    trust: str, n_clients: int, max_silent: int, min_clients: int
) -> None:
    """The smallest sum that clients help to open, without those who collude."""
    config = small_config(
        dropout="recover", trust=trust, max_silent=max_silent, min_clients=min_clients,
        n_examples=None,
    )  # fmt: skip
    plan = draft_plan(config, run_id=1, n_clients=n_clients, seed=7, n_features=2)
    assert plan.preliminary[0].trust == "distributed"
    fewest = max(plan.min_cohort, n_clients - 2 * max_silent, 6)
    for n_sharers in range(fewest, n_clients + 1, max(1, n_clients // 40)):
        least = least_survivors(n_sharers, max_silent, plan.min_cohort)
        for cohort in {least, (least + n_sharers) // 2, n_sharers}:
            assert plan.shares_of(cohort, n_sharers).n_honest <= least - max(
                1, max_silent
            )


@pytest.mark.sample(1)
@pytest.mark.parametrize("trust", TRUSTS[:2])
def test_a_private_count_has_its_noise_if_some_did_not_even_answer_the_plan(
    trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three never answer."""
    federation = make_federation(grid_parts([40] * N))
    factors: list[float] = []

    # The server's own noise is whole.
    watch_noise(lambda _, share: factors.extend([share] if share < 1.0 else []))
    federation.faults.on_request = lambda message: (
        message.metadata.dst_node_id not in (4, 7, 10)
    )
    run(federation, trust=trust, algorithm="proxy_lloyd", epsilon=20.0, max_iter=None)
    memory = recall(federation.grid.contexts[VICTIM])
    assert memory is not None
    assert isinstance(memory.party, Recover)
    assert memory.party.least == N - 3 - T
    assert len(factors) == N - 3
    assert all(
        factor**2 * (memory.party.least - T) >= 1.0 - 1e-12 for factor in factors
    )


class PutBack:
    """A node's older state, put back after its reply, and a message to it."""

    def __init__(
        self,
        federation: Federation,
        saved_at: tuple[str, int],
        back_at: tuple[str, int],
    ) -> None:
        self.federation, self.saved_at, self.back_at = federation, saved_at, back_at
        self.saved: Any = None
        self.message: Message | None = None
        self.stage = ("", -1)
        self.status: Status | None = None
        self.sentence = ""
        federation.faults.on_request, federation.faults.on_reply = (
            self.on_request,
            self.on_reply,
        )

    def change(self, message: Message) -> Message:
        return message

    def on_request(self, message: Message) -> bool:
        if message.metadata.dst_node_id == VICTIM:
            self.stage = stage_and_round(message)
            if self.stage == self.saved_at and self.saved is None:
                self.saved = copied(self.federation.grid.contexts[VICTIM].state)
                self.message = message
        return True

    def on_reply(self, reply: Message) -> list[Message]:
        if (
            reply.metadata.src_node_id == VICTIM
            and self.stage == self.back_at
            and self.status is None
        ):
            self.status = Status.OK
            grid = self.federation.grid
            real = copied(grid.contexts[VICTIM].state)
            grid.contexts[VICTIM].state = copied(self.saved)
            assert self.message is not None
            (second,) = grid.deliver(self.change(self.message))
            self.status, _, self.sentence = parse_failure(second.content)
            grid.contexts[VICTIM].state = real
        return [reply]


class OtherSurvivors(PutBack):
    def change(self, message: Message) -> Message:
        request = parse_unmask_request(message.content)
        others = tuple(node for node in request.survivors if node != VICTIM - 1)
        message.content = unmask_request_content(
            UnmaskRequest(request.round_index, request.attempt, others)
        )
        return message


def test_a_client_whose_state_is_put_back_gives_shares_once() -> None:
    """A reply is sent before its context is kept."""
    federation = make_federation(grid_parts([30] * 9))
    put_back = OtherSurvivors(federation, ("unmask", 2), ("unmask", 2))
    result = run(federation)
    assert put_back.status is Status.REFUSED
    assert "were given already" in put_back.sentence
    assert VICTIM in result.confirmed
    entries = federation.ledgers[VICTIM].entries()
    given = [entry for entry in entries if SHARES_GIVEN <= entry.attempt < RESULT_TAKEN]
    assert [(entry.round_index, entry.attempt) for entry in given] == [
        (r, SHARES_GIVEN) for r in (1, 2, 3)
    ]
    # They cost nothing.
    assert [entry.epsilon for entry in entries[:-1:2]] == [
        entry.epsilon for entry in given
    ]


@pytest.mark.parametrize("saved_at", [("share", -1), ("unmask", 1)])
def test_an_older_state_gives_neither_keys_nor_shares(
    saved_at: tuple[str, int],
) -> None:
    federation = make_federation(grid_parts([30] * 9))
    put_back = PutBack(federation, saved_at, ("sum", 2))
    run(
        federation, algorithm="glloyd", trust="distributed", n_examples=270, epsilon=5.0
    )
    assert put_back.status is Status.REFUSED
    assert "does not remember" in put_back.sentence


def test_a_policy_allows_one_way_to_go_on_without_clients() -> None:
    for allowed, planned in (("retry", "recover"), ("recover", "retry")):
        federation = make_federation(
            grid_parts([30] * 9),
            policy=ClientPolicy.from_mapping({"allowed-dropout": [allowed]}),
        )
        with pytest.raises(
            RefusalError,
            match=f"dropout is '{planned}', but this client allows only '{allowed}'",
        ):
            run(federation, dropout=planned)
        assert federation.charges() == 0
    federation = make_federation(
        grid_parts([30] * 9), policy=ClientPolicy(allowed_dropout=("recover",))
    )
    assert len(run(federation).confirmed) == 9


def test_what_a_client_remembers_of_many_neighbours_stays_small() -> None:
    """Context travels with every message of a node."""
    federation = make_federation(grid_parts([2] * 40))
    run(federation, max_silent=5, max_iter=2)
    state = federation.grid.contexts[VICTIM].state
    (record,) = state.config_records.values()
    size = sum(
        len(value) for value in record.values() if isinstance(value, bytes | str)
    )
    memory = recall(federation.grid.contexts[VICTIM])
    assert memory is not None
    assert isinstance(memory.party, Recover)
    neighbours = memory.party.graph.degree
    assert neighbours < 39
    assert size < neighbours * (96 * memory.party.slots.number + 44) + 20_000
