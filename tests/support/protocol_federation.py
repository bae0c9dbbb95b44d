"""A small federation for protocol tests.

Real strategy, ClientApps, mod and records, and the truth inside.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from numpy.typing import NDArray

from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums import build
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import State
from support.faulty_grid import Faults, FaultyGrid
from support.messages import RECORD, VECTOR_RECORD
from support.watching import Call, watch
from support.wrong_trust import watch_noise

Words = NDArray[np.uint64]
GRID = 2.0**16


@dataclass
class Federation:
    """Clients with their ledgers on one grid, and the strategy started last."""

    clients: dict[int, KMeansClient]
    ledgers: dict[int, MemoryLedger]
    grid: FaultyGrid
    faults: Faults
    strategy: PrivateKMeans | None = None
    strategy_class: type[PrivateKMeans] = PrivateKMeans
    """The server's program; a hostile one is a subclass."""
    settings: dict[int, NodeSettings] = field(default_factory=dict)
    """Of each node, read at each message."""

    def start(self, config: RunConfig | None = None, **values: Any) -> KMeansResult:
        """Run the whole protocol."""
        self.strategy = self.strategy_class.from_config(
            config or small_config(**values), on_step=lambda _: None
        )
        with self.grid.running():
            return self.strategy.start(self.grid)

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        assert self.strategy is not None
        return self.strategy.run.plan

    def attempts_in_ledger(self, node: int) -> list[tuple[int, int]]:
        """What one client's ledger was charged for."""
        entries = self.ledgers[node].entries()
        return [
            (entry.round_index, entry.attempt) for entry in entries if entry.is_release
        ]

    def charges(self) -> int:
        """Entries in all ledgers."""
        return sum(len(ledger.entries()) for ledger in self.ledgers.values())


ModOf = Callable[[KMeansClient, Callable[[Any], NodeSettings]], SecureAggregation]
_run_ids = itertools.count(1000)


def make_federation(
    parts: Sequence[NDArray[np.float64]],
    *,
    policy: ClientPolicy | None = None,
    policies: dict[int, ClientPolicy] | None = None,
    loaders: dict[int, Callable[..., Any]] | None = None,
    ledgers: dict[int, MemoryLedger] | None = None,
    run_id: int | None = None,
    identities: dict[int, Identity] | None = None,
    mod_of: ModOf = lambda _, settings: SecureAggregation(settings),
) -> Federation:
    """Build a federation of one node per part.

    `loaders` replaces ``load_data`` of single nodes; ``mod_of(client, settings)`` makes
    each node's mod.
    """
    clients, own_ledgers, nodes = {}, {}, []
    own_settings: dict[int, NodeSettings] = {}
    for node_id, part in enumerate(parts, start=FIRST_NODE_ID):
        client = KMeansClient(part)
        ledger = (ledgers or {}).get(node_id) or MemoryLedger()
        own_policy = (policies or {}).get(node_id) or policy or ClientPolicy()
        own_settings[node_id] = NodeSettings(
            own_policy, ledger, "rows", identity=(identities or {}).get(node_id)
        )
        load = (loaders or {}).get(node_id) or (lambda _, client=client: client)
        nodes.append(
            Node(
                client_app(
                    load,
                    mod=mod_of(client, lambda _, node=node_id: own_settings[node]),
                )
            )
        )
        clients[node_id], own_ledgers[node_id] = client, ledger
    faults = Faults()
    return Federation(
        clients,
        own_ledgers,
        FaultyGrid(nodes, run_id=run_id or next(_run_ids), faults=faults),
        faults,
        settings=own_settings,
    )


def small_config(**values: Any) -> RunConfig:
    """Three clusters in the plane, the default algorithm, unless told otherwise."""
    defaults: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "n_features": 2,
        "n_examples": 300,
        "random_state": 11,
    }
    return parse_config(**(defaults | values))


def grid_parts(
    sizes: Sequence[int], n_features: int = 2, seed: int = 0
) -> list[NDArray[np.float64]]:
    """Uniform rows on a grid coarse enough that every sum and distance is exact in
    float64.
    """
    generator = np.random.default_rng(seed)
    return [
        generator.integers(-1000, 1001, (size, n_features)) / 1024.0 for size in sizes
    ]


def plain_lloyd(
    start: NDArray[np.float64], rounds: Sequence[Sequence[NDArray[np.float64]]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lloyd's algorithm in integers, with the parts that take part in each round.

    Returns centroids and counts.
    """
    centroids = np.rint(start * GRID).astype(object)
    counts = np.zeros(len(start), dtype=object)
    for parts in rounds:
        points = np.rint(np.concatenate(list(parts)) * GRID).astype(object)
        distances = np.stack(
            [((points - c) ** 2).sum(axis=1) for c in centroids], axis=1
        )
        labels = np.array([int(np.argmin(row)) for row in distances])
        counts = np.array(
            [int((labels == j).sum()) for j in range(len(centroids))], dtype=object
        )
        for j in range(len(centroids)):
            if counts[j]:
                mean = [
                    float(total) / counts[j]
                    for total in points[labels == j].sum(axis=0)
                ]
                centroids[j] = [int(np.rint(value)) for value in mean]
    return (centroids / GRID).astype(np.float64), counts.astype(np.float64)


def start_of(plan: Plan) -> NDArray[np.float64]:
    """The public start."""
    return np.array(build.initial_state(plan).centroids)


# -- what really happened --------------------------------------------------------------


@dataclass
class Truth:
    """Recorded inside clients and trust models.

    Exact statistics, noise and releases, which the server may not know.
    """

    statistics: dict[tuple[int, int], dict[int, Words]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    sent: dict[tuple[int, int], dict[int, Words]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    server_noise: list[Words] = field(default_factory=list)
    released: dict[int, Words] = field(default_factory=dict)

    def exact_sum(self, key: tuple[int, int]) -> Words:
        """Sum of the exact statistics of one (round, attempt)."""
        return np.sum(list(self.statistics[key].values()), axis=0, dtype=np.uint64)


@pytest.fixture
def truth() -> Truth:
    """Record the truth during a test."""
    return record_truth()


def record_truth() -> Truth:
    """Watch the places where exact values exist, until the test ends."""
    kept = Truth()
    last: list[Words] = []

    def encoded(call: Call) -> None:
        last[:] = [call.result.values.copy()]

    def answered(call: Call) -> None:
        state, request, vector = [*call.arguments.values()][:3]
        key = (request.round_index, request.attempt)
        kept.statistics[key][state.node_id] = last[0]
        kept.sent[key][state.node_id] = vector.values.copy()

    def read(call: Call) -> None:
        plan, index, _ = call.arguments.values()
        blocks = plan.round_at(index).blocks
        flat = np.concatenate([np.ravel(call.result[block.name]) for block in blocks])
        kept.released[index] = np.rint(flat * GRID).astype(np.int64).view(np.uint64)

    watch(encode, encoded)
    watch(Party.answer, begin=answered)
    watch(build.as_arrays, read)
    watch_noise(lambda noise, _: kept.server_noise.append(noise.copy()))
    return kept


# -- what the server received ----------------------------------------------------------


def received_vectors(
    messages: Sequence[Message],
) -> dict[tuple[int, int], dict[int, Words]]:
    """Masked vectors among the replies, by (round, attempt) and sender."""
    found: dict[tuple[int, int], dict[int, Words]] = defaultdict(dict)
    for message in messages:
        if message.has_error() or VECTOR_RECORD not in message.content.array_records:
            continue
        header = json.loads(str(message.content.config_records[RECORD]["header"]))
        data = message.content.array_records[VECTOR_RECORD]["vector"].data
        found[header["round"], header["attempt"]][message.metadata.src_node_id] = (
            np.frombuffer(data, dtype="<u8")
        )
    return found


def all_bytes(message: Message) -> bytes:
    """Everything in a reply, error text included, as one string of bytes."""
    if message.has_error():
        return f"{message.error.code} {message.error.reason}".encode()
    return b"|".join(_flat(message.content))


def _flat(content: RecordDict) -> Iterator[bytes]:
    for name, config in content.config_records.items():
        yield name.encode()
        for key, value in config.items():
            yield (
                key.encode()
                + b"="
                + (value if isinstance(value, bytes) else str(value).encode())
            )
    for name, arrays in content.array_records.items():
        yield name.encode()
        for key, array in arrays.items():
            yield key.encode() + b"=" + array.data
    for name, metrics in content.metric_records.items():
        yield name.encode() + str(dict(metrics)).encode()


def signed(words: Words) -> NDArray[np.int64]:
    """Ring elements as signed numbers."""
    return np.ascontiguousarray(words).view(np.int64)


READABLE = 2**34
"""Every statistic, sum and noised sum of these tests is smaller (in grid steps).

a masked word rarely is.
"""


def count_readable(words: Words) -> int:
    """How many words are small enough to be a statistic; by chance one in 2^29 is."""
    return int((np.abs(signed(words).astype(np.float64)) < READABLE).sum())


def without_identities(report: PrivacyReport) -> dict[str, Any]:
    """A report but for its writer: what that one knows of the others' identities, its
    name, data set and times.
    """
    values = report.to_dict()
    values["assumptions"] = [
        line for line in values["assumptions"] if "dentities" not in line
    ]
    for own in ("party", "data_id", "started", "finished"):
        del values["provenance"][own]
    return values


def off_grid(state: State) -> State:
    """A state that no release can have led to: between the grid's points."""
    return state.changed(centroids=state.centroids + 2.0**-18)


def outside(state: State) -> State:
    """Likewise: beyond the box."""
    return state.changed(centroids=state.centroids + 3.0)
