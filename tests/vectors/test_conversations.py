"""The package's client and the second one answer known conversations to the last bit,
and refuse every message that is known to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import generate_conversations
import numpy as np
import pytest
from conversations import (
    CONVERSATIONS,
    KINDS,
    Entropy,
    Interview,
    Json,
    mutated,
    read_json,
)
from second_client.client import Ledger, SecondClient
from second_client.flower_app import SecondApp

from flwr_dpkmeans.flower.client_app import SecureAggregation, client_app
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.node.settings import NodeSettings


class PackageInterview(Interview):
    """The package's client."""

    def __init__(self, conversation: Json, folder: Path) -> None:
        client = KMeansClient(np.array(conversation["rows"]))
        self.ledger = MemoryLedger()
        settings = NodeSettings(ClientPolicy(), self.ledger, "rows")
        mod = SecureAggregation(lambda _: settings)
        app = client_app(lambda _: client, mod=mod)
        entropy = Entropy(generate_conversations.LABEL, conversation["node_id"])
        super().__init__(app, conversation, entropy)

    def remembered(self) -> Any:
        """State and ledger."""
        return self.state, self.ledger.entries()

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

    def n_charged(self) -> int:
        """Releases in the ledger."""
        return len(self.client.ledger.entries())


CLIENTS: dict[str, Callable[[Json, Path], Any]] = {
    "package": PackageInterview,
    "second": SecondInterview,
}


def negatives() -> Iterator[tuple[str, Json]]:
    """Every message that is to be refused, with its file."""
    for kind in KINDS:
        for entry in read_json(f"refused_{kind}")["refused"]:
            yield kind, entry


NEGATIVES = list(negatives())


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("trust", CONVERSATIONS)
def test_a_conversation_is_answered_to_the_last_bit(
    client: str, trust: str, tmp_path: Path
) -> None:
    interview = CLIENTS[client](read_json(f"conversation_{trust}"), tmp_path)
    interview.lead(len(interview.steps))
    assert interview.n_charged() == 4


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("trust", CONVERSATIONS)
def test_a_request_is_refused_at_every_other_time(
    client: str, trust: str, tmp_path: Path
) -> None:
    interview = CLIENTS[client](read_json(f"conversation_{trust}"), tmp_path)
    steps = interview.steps
    for index in range(len(steps) + 1):
        before = interview.remembered()
        for other, step in enumerate(steps):
            if other != index:
                interview.require_refused(step["request"])
        assert interview.remembered() == before
        if index < len(steps):
            interview.require_accepted(steps[index])


@pytest.mark.parametrize("trust", CONVERSATIONS)
def test_the_generator_writes_the_conversations(trust: str) -> None:
    assert generate_conversations.build(trust) == read_json(f"conversation_{trust}")


def test_every_refusal_says_what_it_stops() -> None:
    assert len(NEGATIVES) > 200
    assert all(len(entry["stops"].split()) >= 3 for _, entry in NEGATIVES)
