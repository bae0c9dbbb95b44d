"""Write conversation_*.json: everything that one client of a run was sent, and what it
answered, from fixed entropy and seeded noise.

Run ``python tests/vectors/generate_conversations.py`` after a deliberate change of the
protocol (and raise its version), then ``generate_refusals.py``.
`test_conversations.py` leads the package's client and the second one through them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from flwr.app import Message

sys.path.insert(0, str(Path(__file__).parents[1]))

from conversations import (
    CONVERSATIONS,
    Entropy,
    Json,
    drawn_from,
    stored_content,
    without_release,
    write_json,
)
from support.faulty_grid import Faults, FaultyGrid
from support.messages import RECORD
from support.protocol_federation import grid_parts, small_config

from flwr_dpkmeans.flower.client_app import SecureAggregation, client_app
from flwr_dpkmeans.flower.engines import Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.node.settings import NodeSettings

RUN_ID = 2**62 + 11
LABEL = "known answers of a conversation"
NODES = (2, 3, 4, 5, 6)
SIZES = (12, 9, 8, 7, 6)
LEAVES = 6
"""Its vector of round 2 is lost."""
INTERVIEWED = 3
"""Where sums are blinded, it is a key author in the first attempt only."""


def config_of(trust: str) -> Any:
    """Three rounds of FastLloyd, with one retry."""
    return small_config(
        algorithm="fastlloyd",
        max_iter=3,
        noise="seeded",
        trust=trust,
        min_clients=4,
        n_examples=sum(SIZES),
        epsilon=8.0,
    )


class Recorded(FaultyGrid):
    """A grid whose nodes draw from known entropy, and that keeps what one is told."""

    def __init__(self, nodes: list[Node], interviewed: int) -> None:
        super().__init__(nodes, run_id=RUN_ID, faults=Faults(on_reply=self.kept))
        self.interviewed = interviewed
        self.sources = {node: Entropy(LABEL, node) for node in NODES}
        self.asked: int | None = None
        self.steps: list[Json] = []

    def deliver(self, message: Message) -> list[Message]:
        """Run one node's app."""
        self.asked = message.metadata.dst_node_id
        if self.asked == self.interviewed:
            self.steps.append({"request": request_of(message)})
        try:
            return super().deliver(message)
        finally:
            self.asked = None

    def kept(self, reply: Message) -> list[Message]:
        """Record a reply, or lose it."""
        node = reply.metadata.src_node_id
        if node == self.interviewed:
            reply_message = without_release(stored_content(reply.content))
            self.steps[-1]["reply"] = reply_message
        header = json.loads(str(reply.content.config_records[RECORD]["header"]))
        is_lost = node == LEAVES and header.get("round") == 2
        return [] if is_lost else [reply]

    def entropy(self) -> Entropy | None:
        """That of the node that is asked."""
        return None if self.asked is None else self.sources[self.asked]


def request_of(message: Message) -> Json:
    """A request, with the release of a package that will not change."""
    stored = stored_content(message.content)
    header = json.loads(stored["fields"]["header"])
    if "package" in header:
        header["package"] = "1.0.0"
    stored["fields"]["header"] = json.dumps(header)
    return stored


def build(trust: str) -> Json:
    """One conversation, as JSON values."""
    parts = grid_parts(SIZES)
    nodes = []
    for part in parts:
        settings = NodeSettings(ClientPolicy(), MemoryLedger(), "rows")
        mod = SecureAggregation(lambda _, settings=settings: settings)
        client = KMeansClient(part)
        nodes.append(Node(client_app(lambda _, client=client: client, mod=mod)))
    grid = Recorded(nodes, INTERVIEWED)
    strategy = PrivateKMeans.from_config(config_of(trust), on_step=lambda _: None)
    with grid.running(), drawn_from(grid.entropy):
        strategy.start(grid)
    return {
        "about": (
            f"What node {INTERVIEWED} of {len(NODES)} is sent and answers in a run of"
            f" FastLloyd under trust {trust!r}; node {LEAVES} leaves in round 2. Draw i"
            " (from 0 on) of n bytes by this node, for keys (32) and nonces (12), is"
            " SHAKE-256 of the text '<entropy>, <n> bytes, number <i>'. Replies leave"
            " 'package' out."
        ),
        "run_id": RUN_ID,
        "node_id": INTERVIEWED,
        "entropy": grid.sources[INTERVIEWED].label,
        "rows": parts[NODES.index(INTERVIEWED)].tolist(),
        "steps": grid.steps,
    }


if __name__ == "__main__":
    for name in CONVERSATIONS:
        write_json(f"conversation_{name}", build(name))
