"""A client that imports nothing of the package takes part in a run, and neither the
result nor any message tells which one it is.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from support.faulty_grid import Faults, FaultyGrid
from support.protocol_federation import Federation, grid_parts, small_config

from flwr_dpkmeans import KMeansClient
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from second_client.algorithm import discrete_gaussian
from second_client.client import Ledger, SecondClient
from second_client.flower_app import SecondApp, read_content

SIZES = (90, 70, 60, 50, 30)
NODES = (2, 3, 4, 5, 6)
SECOND = 4
RUN_ID = 2**62 + 5
FOLDER = Path(__file__).parent


class Run:
    """A seeded run over Flower's messages, of package clients but for one perhaps."""

    def __init__(
        self, second: Path | None, sizes: tuple[int, ...] = SIZES, **values: Any
    ) -> None:
        parts = grid_parts(sizes)
        self.clients: dict[int, KMeansClient] = {}
        self.ledgers: dict[int, MemoryLedger] = {}
        self.second: SecondClient | None = None
        nodes = []
        for node, part in enumerate(parts, start=NODES[0]):
            if node == SECOND and second is not None:
                ledger = Ledger(second / "ledger.jsonl")
                self.second = SecondClient(RUN_ID, node, part, ledger)
                nodes.append(Node(SecondApp(self.second)))
            else:
                nodes.append(self._package_node(node, part))
        self.faults = Faults()
        self.grid = FaultyGrid(nodes, run_id=RUN_ID, faults=self.faults)
        self.federation = Federation(self.clients, self.ledgers, self.grid, self.faults)
        options = {"algorithm": "fastlloyd", "max_iter": 3, "noise": "seeded"}
        self.config = small_config(**(options | values))

    def _package_node(self, node: int, part: Any) -> Node:
        client, ledger = KMeansClient(part), MemoryLedger()
        settings = NodeSettings(ClientPolicy(), ledger, "rows")
        self.clients[node], self.ledgers[node] = client, ledger
        mod = SecureAggregation(lambda _: settings)
        return Node(client_app(lambda _: client, mod=mod))

    def play(self) -> Run:
        self.federation.start(self.config)
        return self

    def results(self) -> list[bytes]:
        """Centroids of all clients that have a result, to the last bit."""
        centroids = [client.cluster_centers_ for client in self.clients.values()]
        if self.second is not None:
            centroids.append(self.second.centroids)
        return [array.tobytes() for array in centroids if array is not None]

    def shapes(self, node: int) -> dict[str, set[Any]]:
        """Types and sizes of everything that a node sent, by stage and role."""
        shapes = defaultdict(set)
        for reply in self.grid.received:
            if reply.metadata.src_node_id == node:
                stage, shape = shape_of(reply)
                shapes[stage].add(shape)
        return dict(shapes)


def shape_of(reply: Message) -> tuple[str, Any]:
    """What is to be seen of a reply by who cannot open it."""
    fields, vector = read_content(reply.content)
    header = json.loads(fields["header"])
    sizes = [(name, type(value), len(value)) for name, value in fields.items()]
    entries = [(name, type(value)) for name, value in header.items()]
    words = None if vector is None else (vector.dtype.str, vector.shape)
    if "public_key" in fields:
        stage = "keys"
    elif vector is not None:
        stage = f"sum {header['round']}/{header['attempt']}, {len(fields)} fields"
    else:
        stage = "finish"
    return stage, (tuple(sizes), tuple(entries), words, reply.metadata.message_type)


def drop_in_round(run: Run, index: int, node: int) -> None:
    """Lose one node's first vector of a round."""

    def on_reply(reply: Message) -> list[Message]:
        fields, vector = read_content(reply.content)
        is_of_round = json.loads(fields["header"]).get("round") == index
        is_lost = reply.metadata.src_node_id == node and is_of_round
        return [] if is_lost and vector is not None else [reply]

    run.faults.on_reply = on_reply


TRUSTS = ("oblivious", "central", "distributed")


@pytest.mark.parametrize("trust", TRUSTS)
def test_the_result_is_the_same_to_the_last_bit(trust: str, tmp_path: Path) -> None:
    package_only = Run(None, trust=trust).play().results()
    with_second = Run(tmp_path, trust=trust).play()
    assert with_second.second is not None
    assert with_second.results() == package_only
    assert len(set(package_only)) == 1
    pairs = {(index, 0) for index in (1, 2, 3)}
    assert with_second.second.ledger.pairs(RUN_ID) == pairs


def test_it_masks_with_its_neighbours_in_a_large_cohort(tmp_path: Path) -> None:
    options = {"sizes": (8,) * 36, "n_examples": 8 * 36, "epsilon": 20.0}
    run = Run(tmp_path, **options).play()
    assert run.second is not None
    assert run.second.plan.max_silent == 3
    assert set(run.results()) == set(Run(None, **options).play().results())


@pytest.mark.parametrize("index", [1, 2])
def test_it_stays_in_a_run_that_somebody_leaves(index: int, tmp_path: Path) -> None:
    results = []
    for second in (None, tmp_path):
        run = Run(second)
        drop_in_round(run, index, 6)
        run.play()
        results += run.results()
        if run.second is not None:
            before = {(1, 0), (index, 0)}
            pairs = before | {(later, 1) for later in range(index, 4)}
            assert run.second.ledger.pairs(RUN_ID) == pairs
    assert len(results) == 8
    assert len(set(results)) == 1


def test_its_messages_have_the_sizes_and_types_of_the_others(tmp_path: Path) -> None:
    # Key authors' replies are longer, so runs go on until it was one, and was none.
    seen: dict[str, set[Any]] = defaultdict(set)
    others: dict[str, set[Any]] = defaultdict(set)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Run(folder).play()
        for node in NODES:
            target = seen if node == SECOND else others
            for stage, shapes in run.shapes(node).items():
                target[stage] |= shapes
        if set(seen) == set(others):
            break
    assert len(seen) == 6
    assert seen == others
    assert all(len(shapes) == 1 for shapes in seen.values())


def test_it_draws_the_noise_that_the_plan_says(tmp_path: Path) -> None:
    draws = np.array([discrete_gaussian(3.0) for _ in range(3000)])
    assert abs(draws.mean()) < 0.4
    assert 2.7 < draws.std() < 3.3
    run = Run(tmp_path, noise="secure", trust="distributed").play()
    assert len(set(run.results())) == 1


def test_a_plan_dearer_than_its_limit_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.second is not None
    run.second.most_epsilon = 0.5
    with pytest.raises(Exception, match="the plan costs too much"):
        run.play()
    assert not run.second.ledger.entries()


def test_it_imports_nothing_of_the_package() -> None:
    imported = set()
    for path in FOLDER.glob("*.py"):
        if path.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    assert imported & {"numpy", "cryptography", "flwr", "second_client"}
    assert not imported & {"flwr_dpkmeans", "support", "simulations"}
