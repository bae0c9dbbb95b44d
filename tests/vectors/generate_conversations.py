"""Write conversation_*.json: everything that one client of a run was sent, and what it
answered, from fixed entropy and seeded noise.

Run ``python tests/vectors/generate_conversations.py`` after a deliberate change of the
protocol (and raise its version), then ``generate_refusals.py``.
`test_conversations.py` leads the package's client and the second one through them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Message

sys.path.insert(0, str(Path(__file__).parents[1]))

from conversations import (
    VECTOR,
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

from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID

RUN_ID = 2**62 + 11
LABEL = "known answers of a conversation"
SIZES = (12, 9, 8, 7, 6)
MORE_SIZES = (12, 9, 8, 7, 6, 5, 5)
INTERVIEWED = 3
"""Where sums are blinded, it is a key author in the first attempt only."""
FASTLLOYD = {
    "algorithm": "fastlloyd",
    "max_iter": 3,
    "noise": "seeded",
    "epsilon": 8.0,
    "min_clients": 3,
    "n_examples": sum(SIZES),
}


@dataclass(frozen=True)
class Case:
    """One run: its options, and what happens in it."""

    about: str
    options: dict[str, Any]
    sizes: tuple[int, ...] = SIZES
    server_rows: int = 0
    lost_round: int | None = 2
    """In which the vector of the last node is lost."""

    @property
    def nodes(self) -> range:
        """Ids of all nodes."""
        return range(FIRST_NODE_ID, FIRST_NODE_ID + len(self.sizes))


CASES = {
    "oblivious": Case(
        "FastLloyd under trust 'oblivious', with a retry in round 2",
        FASTLLOYD | {"trust": "oblivious"},
    ),
    "distributed": Case(
        "FastLloyd under trust 'distributed', with a retry in round 2",
        FASTLLOYD | {"trust": "distributed"},
    ),
    "counted": Case(
        "FastLloyd under trust 'oblivious', whose rows are counted privately before",
        FASTLLOYD | {"trust": "oblivious", "n_examples": None, "epsilon": 50.0},
        lost_round=None,
    ),
    "server_points": Case(
        "FedDP-KMeans under trust 'distributed', with a retry in round 2",
        FASTLLOYD
        | {"algorithm": "feddp_kmeans", "trust": "distributed", "max_iter": 1},
        server_rows=12,
    ),
    "recovered": Case(
        "FastLloyd under trust 'oblivious', with sums that are recovered in round 2",
        FASTLLOYD
        | {
            "trust": "oblivious",
            "max_iter": 2,
            "dropout": "recover",
            "max_silent": 1,
            "n_examples": sum(MORE_SIZES),
        },
        sizes=MORE_SIZES,
    ),
}


class Recorded(FaultyGrid):
    """A grid whose nodes draw from known entropy, and that keeps what one is told."""

    def __init__(self, nodes: list[Node], case: Case) -> None:
        super().__init__(nodes, run_id=RUN_ID, faults=Faults(on_reply=self.kept))
        self.case = case
        self.sources = {node: Entropy(LABEL, node) for node in case.nodes}
        self.asked: int | None = None
        self.steps: list[Json] = []

    def deliver(self, message: Message) -> list[Message]:
        """Run one node's app."""
        self.asked = message.metadata.dst_node_id
        if self.asked == INTERVIEWED:
            self.steps.append({"request": request_of(message)})
        try:
            return super().deliver(message)
        finally:
            self.asked = None

    def kept(self, reply: Message) -> list[Message]:
        """Record a reply, or lose it."""
        node = reply.metadata.src_node_id
        if node == INTERVIEWED:
            reply_message = without_release(stored_content(reply.content))
            self.steps[-1]["reply"] = reply_message
        header = json.loads(str(reply.content.config_records[RECORD]["header"]))
        is_vector = VECTOR in reply.content
        is_in_round = is_vector and header.get("round") == self.case.lost_round
        is_lost = is_in_round and node == self.case.nodes[-1]
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


def build(name: str) -> Json:
    """One conversation, as JSON values."""
    case = CASES[name]
    parts = grid_parts(case.sizes)
    nodes = []
    for part in parts:
        settings = NodeSettings(ClientPolicy(), MemoryLedger(), "rows")
        mod = SecureAggregation(lambda _, settings=settings: settings)
        client = KMeansClient(part)
        nodes.append(Node(client_app(lambda _, client=client: client, mod=mod)))
    grid = Recorded(nodes, case)
    server_points = None
    if case.server_rows:
        (server_points,) = grid_parts([case.server_rows], seed=1)
    strategy = PrivateKMeans.from_config(
        small_config(**case.options),
        server_points=server_points,
        on_step=lambda _: None,
    )
    with grid.running(), drawn_from(grid.entropy):
        strategy.start(grid)
    return {
        "about": (
            f"What node {INTERVIEWED} of {list(case.nodes)} is sent and answers in a"
            f" run of {case.about}. Draw i (from 0 on) of n bytes by this node is"
            " SHAKE-256 of the text '<entropy>, <n> bytes, number <i>'. Replies leave"
            " 'package' out."
        ),
        "run_id": RUN_ID,
        "node_id": INTERVIEWED,
        "entropy": grid.sources[INTERVIEWED].label,
        "rows": parts[INTERVIEWED - FIRST_NODE_ID].tolist(),
        "steps": grid.steps,
    }


if __name__ == "__main__":
    for name in CASES:
        write_json(f"conversation_{name}", build(name))
