"""Random faults on the in-process transport, and what must hold whatever they are.

A node may stop for ever (before it answers, or after) and lose its memory; requests and
replies may be delayed by several batches, repeated and put into another order. A run
then ends with the exact sums of those that answered, and with equal states, or it stops
with one sentence of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from support.protocol_federation import (
    Federation,
    ModOf,
    grid_parts,
    make_federation,
    plain_lloyd,
    small_config,
    start_of,
)

Centroids = NDArray[np.float64]
COHORTS = {"retry": (3, 12), "recover": (6, 12)}
"""Smallest and largest cohort; sums of fewer cannot be recovered."""
LONGEST_DELAY = 4


@dataclass(frozen=True)
class Rates:
    """Probability of each fault, for one message (or one node in one batch)."""

    kill: float
    forget: float
    delay: float
    repeat: float

    @classmethod
    def draw(cls, generator: np.random.Generator) -> Rates:
        """Some runs are quiet, some are stormy.

        Each fault is absent from a part of them.
        """
        most = {"kill": 0.05, "forget": 0.02, "delay": 0.06, "repeat": 0.15}
        storm = float(generator.choice([0.3, 1.0, 1.0, 2.0]))
        present = {name: generator.random() < 0.75 for name in most}
        return cls(
            **{
                name: storm * rate * float(generator.random()) * present[name]
                for name, rate in most.items()
            }
        )


class Storm:
    """The faults of one run, installed on its grid."""

    def __init__(
        self, federation: Federation, rates: Rates, generator: np.random.Generator
    ) -> None:
        self.faults = 0
        self._federation, self._rates, self._generator = federation, rates, generator
        self._dead: set[int] = set()
        self._requests: list[tuple[int, Message]] = []
        self._replies: list[tuple[int, Message]] = []
        self._batch = 0
        federation.faults.on_send, federation.faults.on_receive = (
            self._send,
            self._receive,
        )

    def _happens(self, rate: float) -> bool:
        happened = bool(self._generator.random() < rate)
        self.faults += happened
        return happened

    def _send(self, messages: list[Message]) -> list[Message]:
        """What of a batch of requests arrives now, and what of older ones."""
        self._batch += 1
        for node in self._federation.clients:
            if self._happens(self._rates.forget):
                self._federation.grid.contexts[node].state = RecordDict()
            if self._happens(self._rates.kill / 2):
                self._dead.add(node)
        arriving = self._scattered(messages, self._requests)
        return [
            message
            for message in arriving
            if message.metadata.dst_node_id not in self._dead
        ]

    def _receive(self, replies: list[Message]) -> list[Message]:
        """What of a batch of replies arrives now, and what of older ones.

        Some nodes die after they have answered.
        """
        for node in self._federation.clients:
            if self._happens(self._rates.kill / 2):
                self._dead.add(node)
        alive = [
            reply for reply in replies if reply.metadata.src_node_id not in self._dead
        ]
        return self._scattered(alive, self._replies)

    def _scattered(
        self, messages: list[Message], held: list[tuple[int, Message]]
    ) -> list[Message]:
        """Delay some, repeat some now or later, add what was held back, and shuffle."""
        due = [message for batch, message in held if batch <= self._batch]
        held[:] = [(batch, message) for batch, message in held if batch > self._batch]
        for message in messages:
            delayed = self._happens(self._rates.delay)
            if not delayed:
                due.append(message)
            if delayed or self._happens(self._rates.repeat):
                # A delay of 0 batches is a second copy in the same one.
                least = 1 if delayed else 0
                batch = self._batch + int(
                    self._generator.integers(least, LONGEST_DELAY + 1)
                )
                if batch == self._batch:
                    due.append(message)
                else:
                    held.append((batch, message))
        return [due[place] for place in self._generator.permutation(len(due))]


@dataclass
class Witness:
    """What every client was told in each round, seen where the mod asks the wrapped
    client.
    """

    states: dict[int, dict[int, list[Centroids]]] = field(default_factory=dict)
    """By round and node."""

    def install(self, federation: Federation) -> None:
        for node, client in federation.clients.items():
            client.fit = self._recording(node, client.fit)  # type: ignore[method-assign]

    def _recording(self, node: int, fit: Callable[..., Any]) -> Callable[..., Any]:
        def recording(parameters: Any, config: Any) -> Any:
            # Rounds that find something out before there are centroids start from
            # nothing.
            if config["task"] == "statistic" and parameters:
                self.states.setdefault(config["round"], {}).setdefault(node, []).append(
                    np.array(parameters[0])
                )
            return fit(parameters, config)

        return recording


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    faults: int
    result: KMeansResult | None
    sentence: str = ""


def included_nodes(strategy: PrivateKMeans) -> tuple[int, ...]:
    """Whose vectors are in the sum that was just finished."""
    session: Any = strategy.run.session
    return tuple(getattr(session, "survivors", session.roster.node_ids))


def run_in_a_storm(
    seed: int, trust: str, dropout: str, mod_of: ModOf | None = None
) -> Outcome:
    """Run once under faults that follow from the seed, and check the result.

    An `AssertionError` is a wrong one. ``mod_of(client, settings)`` makes other mods
    than honest ones.
    """
    generator = np.random.default_rng(seed)
    least, most = COHORTS[dropout]
    size = int(generator.integers(least, most + 1))
    parts = grid_parts([int(n) for n in generator.integers(4, 9, size)], seed=seed)
    federation = make_federation(parts, **({"mod_of": mod_of} if mod_of else {}))
    noisy = bool(generator.random() < 0.2)
    # A private count needs more rows than it has noise.
    noise = {
        "algorithm": "glloyd",
        "epsilon": 100.0,
        "noise": "seeded",
        "n_examples": None if size % 2 else 200,
    }
    exact = {"algorithm": "lloyd", "n_examples": None}
    # Less than a third of the clients, which is what sums can be recovered without.
    silent = int(generator.integers(int(dropout == "recover"), (size + 2) // 3))
    values = (noise if noisy else exact) | {
        "max_retries": int(generator.integers(1, 4)),
        "max_silent": silent,
    }
    config = small_config(
        trust=trust,
        max_iter=int(generator.integers(1, 5)),
        n_clusters=2,
        dropout=dropout,
        **values,
    )
    witness, included = Witness(), []
    witness.install(federation)
    storm = Storm(federation, Rates.draw(generator), generator)
    strategy = PrivateKMeans.from_config(
        config, on_step=lambda _: included.append(included_nodes(strategy))
    )
    federation.strategy = strategy
    result, sentence = None, ""
    try:
        with federation.grid.running():
            result = strategy.start(federation.grid)
    except DPKMeansError as error:
        sentence = str(error)
        assert sentence.endswith((".", "?"))
        assert "\n" not in sentence
    require_single_charges(federation)
    require_equal_states(witness)
    if not noisy and included:
        require_exact_sums(federation, parts, included, witness)
    if result is not None:
        require_equal_results(federation, result)
    return Outcome(storm.faults, result, sentence)


def require_single_charges(federation: Federation) -> None:
    """No client answers one aggregation twice."""
    for node in federation.clients:
        answered = federation.attempts_in_ledger(node)
        assert len(answered) == len(set(answered))


def require_equal_states(witness: Witness) -> None:
    """All clients that were asked in a round, in whatever attempt and however late,
    started from the same state.
    """
    for index, by_node in witness.states.items():
        told = {state.tobytes() for states in by_node.values() for state in states}
        assert len(told) == 1, f"round {index} started from {len(told)} states"


def require_exact_sums(
    federation: Federation,
    parts: list[Any],
    included: list[tuple[int, ...]],
    witness: Witness,
) -> None:
    """Every state that a client was told is that of Lloyd's algorithm on exactly the
    rows that are in the sums.
    """
    rounds = [[parts[node - 2] for node in nodes] for nodes in included]
    start = start_of(federation.plan)
    for index, by_node in witness.states.items():
        expected, _ = plain_lloyd(start, rounds[: index - 1])
        for states in by_node.values():
            assert all(np.array_equal(state, expected) for state in states), (
                f"wrong sum before round {index}"
            )
    expected, counts = plain_lloyd(start, rounds)
    for node, client in federation.clients.items():
        if client.cluster_centers_ is not None:
            assert np.array_equal(client.cluster_centers_, expected), (
                f"node {node} has a wrong result"
            )
            assert np.array_equal(client.counts_, counts), (
                f"node {node} has wrong counts"
            )


def require_equal_results(federation: Federation, result: KMeansResult) -> None:
    """Every client that confirmed has the result, and whoever has one has the same."""
    results = {
        n: c.cluster_centers_.tobytes()
        for n, c in federation.clients.items()
        if c.cluster_centers_ is not None
    }
    assert set(result.confirmed) <= set(results)
    assert len(set(results.values())) <= 1
