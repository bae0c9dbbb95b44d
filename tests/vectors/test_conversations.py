"""The package's client and the second one answer known conversations to the last bit,
and refuse every message that is known to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import generate_conversations
import generate_other_refusals
import generate_refusals
import numpy as np
import pytest
from conversations import (
    CONVERSATIONS,
    KINDS,
    OTHER_KINDS,
    OTHERS,
    Entropy,
    Interview,
    Json,
    mutated,
    read_json,
    without_release,
)
from flwr.app import ConfigRecord, RecordDict
from second_client.client import Ledger, SecondClient
from second_client.flower_app import SecondApp

from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy


class PackageInterview(Interview):
    """The package's client."""

    def __init__(
        self, conversation: Json, folder: Path, ledger: MemoryLedger | None = None
    ) -> None:
        client = KMeansClient(np.array(conversation["rows"]))
        self.ledger = MemoryLedger() if ledger is None else ledger
        settings = NodeSettings(ClientPolicy(), self.ledger, "rows")
        mod = SecureAggregation(lambda _: settings)
        app = client_app(lambda _: client, mod=mod)
        entropy = Entropy(generate_conversations.LABEL, conversation["node_id"])
        super().__init__(app, conversation, entropy)

    def remembered(self) -> Any:
        """State and ledger."""
        return self.state, self.ledger.entries()

    def put_back(self, remembered: Any) -> None:
        """Restore an older state, but not the ledger."""
        state, _ = remembered
        records = {name: ConfigRecord(record) for name, record in state.items()}
        self.grid.contexts[self.node].state = RecordDict(records)

    def again(self, folder: Path) -> PackageInterview:
        """A client without memory, with the same ledger."""
        return PackageInterview(self.conversation, folder, self.ledger)

    def n_charged(self) -> int:
        """Releases in the ledger."""
        return sum([entry.is_release for entry in self.ledger.entries()])


class SecondInterview(Interview):
    """The client that imports nothing of the package."""

    def __init__(self, conversation: Json, folder: Path) -> None:
        label = generate_conversations.LABEL
        entropy = Entropy(label, conversation["node_id"])
        rows = np.array(conversation["rows"])
        run_id, node = conversation["run_id"], conversation["node_id"]
        ledger = Ledger(folder / "ledger.jsonl")
        self.client = SecondClient(run_id, node, rows, ledger, entropy=entropy)
        super().__init__(SecondApp(self.client), conversation, entropy)

    def remembered(self) -> Any:
        """State and ledger."""
        return self.client.state, self.client.ledger.entries()

    def put_back(self, remembered: Any) -> None:
        """Restore an older state, but not the ledger."""
        self.client.state, _ = remembered

    def again(self, folder: Path) -> SecondInterview:
        """A client without memory, with the same ledger."""
        return SecondInterview(self.conversation, folder)

    def n_charged(self) -> int:
        """Releases in the ledger."""
        return len(self.client.ledger.entries())


CLIENTS: dict[str, Callable[[Json, Path], Any]] = {
    "package": PackageInterview,
    "second": SecondInterview,
}


TALKS = [
    *[(client, name) for client in CLIENTS for name in CONVERSATIONS],
    *[("package", name) for name in OTHERS],
]
REFUSED = [
    *[(client, kind) for client in CLIENTS for kind in KINDS],
    *[("package", kind) for kind in OTHER_KINDS],
]


@pytest.mark.parametrize(("client", "name"), TALKS)
def test_a_conversation_is_answered_to_the_last_bit(
    client: str, name: str, tmp_path: Path
) -> None:
    interview = CLIENTS[client](read_json(f"conversation_{name}"), tmp_path)
    interview.lead(len(interview.steps))
    n_vectors = sum(step["reply"]["vector"] is not None for step in interview.steps)
    assert interview.n_charged() == n_vectors


@pytest.mark.parametrize(("client", "kind"), REFUSED)
def test_what_is_wrong_is_refused_and_forgotten(
    client: str, kind: str, tmp_path: Path
) -> None:
    wrong = read_json(f"refused_{kind}")
    interview = CLIENTS[client](read_json(wrong["conversation"]), tmp_path)
    interview.lead(wrong["step"])
    step = interview.steps[wrong["step"]]
    before = interview.remembered()
    accepted = []
    for entry in wrong["refused"]:
        message = mutated(step["request"], entry)
        try:
            interview.require_refused(message)
        except AssertionError as error:
            accepted.append((entry["name"], str(error)))
        assert interview.remembered() == before, entry["name"]
    assert not accepted
    # So they were refused for what was changed.
    interview.require_accepted(step)


@pytest.mark.parametrize(("client", "name"), TALKS)
def test_a_request_is_refused_at_every_other_time(
    client: str, name: str, tmp_path: Path
) -> None:
    interview = CLIENTS[client](read_json(f"conversation_{name}"), tmp_path)
    steps = interview.steps
    for index in range(len(steps) + 1):
        before = interview.remembered()
        for other, step in enumerate(steps):
            if other != index:
                interview.require_refused(step["request"])
        assert interview.remembered() == before
        if index < len(steps):
            interview.require_accepted(steps[index])


@pytest.mark.parametrize("client", CLIENTS)
def test_an_old_state_that_is_put_back_answers_nothing(
    client: str, tmp_path: Path
) -> None:
    interview = CLIENTS[client](read_json("conversation_oblivious"), tmp_path)
    interview.lead(2)
    before = interview.remembered()
    interview.require_accepted(interview.steps[2])
    charged = interview.n_charged()
    interview.put_back(before)
    for step in interview.steps[2:4]:
        interview.require_refused(step["request"])
    assert interview.n_charged() == charged


@pytest.mark.parametrize("client", CLIENTS)
def test_a_run_that_stands_in_the_ledger_is_not_begun_again(
    client: str, tmp_path: Path
) -> None:
    interview = CLIENTS[client](read_json("conversation_oblivious"), tmp_path)
    interview.lead(2)
    forgetful = interview.again(tmp_path)
    forgetful.require_refused(interview.steps[0]["request"])
    assert forgetful.n_charged() == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_late_request_is_refused(client: str, tmp_path: Path) -> None:
    interview = CLIENTS[client](read_json("conversation_oblivious"), tmp_path)
    for step in interview.steps[:-1]:
        request = mutated(step["request"], {"fields": {"wait": 30.0}})
        before = interview.remembered()
        interview.require_refused(request, age=35.0)
        assert interview.remembered() == before
        interview.require_accepted(step)
    # A result is welcome at any time.
    last = interview.steps[-1]
    assert without_release(interview.ask(last["request"], age=1e6)) == last["reply"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_plan_that_the_second_client_does_not_know_is_refused(
    name: str, tmp_path: Path
) -> None:
    interview = SecondInterview(read_json(f"conversation_{name}"), tmp_path)
    interview.require_refused(interview.steps[0]["request"])


@pytest.mark.parametrize("name", CONVERSATIONS + OTHERS)
def test_the_generator_writes_the_conversations(name: str) -> None:
    assert generate_conversations.build(name) == read_json(f"conversation_{name}")


@pytest.mark.parametrize("kind", KINDS + OTHER_KINDS)
def test_the_generators_write_the_refusals(kind: str) -> None:
    is_other = kind in OTHER_KINDS
    generator = generate_other_refusals if is_other else generate_refusals
    assert generator.build(kind) == read_json(f"refused_{kind}")


@pytest.mark.parametrize("kind", KINDS + OTHER_KINDS)
def test_every_refusal_says_what_it_stops(kind: str) -> None:
    for entry in read_json(f"refused_{kind}")["refused"]:
        assert len(entry["stops"].split()) >= 3
