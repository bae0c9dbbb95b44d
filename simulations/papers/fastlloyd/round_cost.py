"""What one iteration of the masked protocol costs in process.

Milliseconds and bytes, for `simulations.papers.fastlloyd.table3`.

Strategy, ClientApps, secure-aggregation mod and messages are those of a deployment;
only the transport is missing.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Context, Message
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.messages.message_records import VECTOR_RECORD
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.privacy.noise import NoiseKind

Array = NDArray[np.float64]

WORD_BYTES = 8
"""Of one number in the ring of integers modulo 2^64."""
_WARM_UPS = 2
# Both directions: a client sends its masked vector, and gets the masked sum back.
_DIRECTIONS = 2
# Pairs agree on keys in the first iteration and open group keys in the second: neither
# is part of the others.
_FIRST_TIMED = 3


@dataclass(frozen=True)
class Problem:
    """What is clustered.

    Parameters
    ----------
    points : ndarray, (n, d)
        In [-1, 1]^d, in random order: clients get equal parts of consecutive rows.
    n_clusters : int
        k.
    n_clients : int
        Clients.
    """

    points: Array
    n_clusters: int
    n_clients: int = 2

    @property
    def parts(self) -> list[Array]:
        """One table for each client."""
        return np.array_split(self.points, self.n_clients)


@dataclass(frozen=True)
class Sizes:
    """Bytes of all clients together, both directions.

    Parameters
    ----------
    vectors : int
        Masked vectors of one iteration, up and down: what the paper counts.
    messages : int
        The whole messages that carry them, as Flower serialises them, without HTTP.
    rest : int
        Everything else in a run: plan, keys, roster, sealed group keys, confirmations.
    """

    vectors: int
    messages: int
    rest: int


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% confidence interval (Student's t).

    Parameters
    ----------
    mean, half_width : float
        The interval is mean - half_width to mean + half_width; nan for the half width
        of a single value.
    """

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Estimate the mean of independent values.

        Parameters
        ----------
        values : sequence of float
            At least one.

        Returns
        -------
        Estimate

        Examples
        --------
        >>> Estimate.of([1.0, 2.0, 3.0]).mean
        2.0
        """
        if len(values) < 2:
            return cls(float(values[0]), math.nan)
        from scipy.stats import t

        quantile = float(t.ppf(0.975, len(values) - 1))
        return cls(
            statistics.fmean(values),
            quantile * statistics.stdev(values) / math.sqrt(len(values)),
        )


@dataclass(frozen=True)
class RoundCost:
    """What was measured of one problem.

    Parameters
    ----------
    iteration, iteration_cpu : Estimate
        Milliseconds of one iteration, over repetitions: by the clock, and of this
        process, which other work on the machine changes less.
    setup : Estimate
        Milliseconds of the rest of a run: plan, policy, key exchange, first scaling of
        the rows, the result.
    n_iterations : int
        T of a run.
    sizes : Sizes
        Bytes.
    """

    iteration: Estimate
    iteration_cpu: Estimate
    setup: Estimate
    n_iterations: int
    sizes: Sizes


@dataclass(frozen=True)
class _Exchange:
    """One round trip: when it began by the clock and in time of this process, what was
    asked, what was answered.
    """

    start: float
    cpu: float
    requests: list[Message]
    replies: list[Message]


class _ObservedGrid(InProcessGrid):
    """Keeps every exchange with the time it began at."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        super().__init__(nodes, run_id=secrets.randbits(62))
        self.exchanges: list[_Exchange] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        start, cpu, requests = time.perf_counter(), time.process_time(), list(messages)
        replies = super().send_and_receive(requests, timeout=timeout)
        self.exchanges.append(_Exchange(start, cpu, requests, replies))
        return replies


@dataclass(frozen=True)
class _Run:
    """One run: its exchanges (keys, T sums, the last release) and when it began and
    ended.
    """

    exchanges: list[_Exchange]
    start: float
    end: float

    @property
    def n_iterations(self) -> int:
        return len(self.exchanges) - 2

    @property
    def iteration(self) -> float:
        """Milliseconds of an iteration, the mean over the third to the last one."""
        return self._per_iteration(
            self.exchanges[-1].start - self.exchanges[_FIRST_TIMED].start
        )

    @property
    def iteration_cpu(self) -> float:
        """The same in time of this process."""
        return self._per_iteration(
            self.exchanges[-1].cpu - self.exchanges[_FIRST_TIMED].cpu
        )

    @property
    def setup(self) -> float:
        """Milliseconds of everything that is not an iteration."""
        return 1e3 * (self.end - self.start) - self.n_iterations * self.iteration

    def _per_iteration(self, seconds: float) -> float:
        """Milliseconds of each of the timed iterations."""
        return 1e3 * seconds / (self.n_iterations - _FIRST_TIMED + 1)


def measure_rounds(
    problem: Problem,
    *,
    epsilon: float = 1.0,
    noise: str = NoiseKind.SECURE.value,
    n_iterations: int = 7,
    repeats: int = 30,
) -> RoundCost:
    """Run FastLloyd with masks several times and measure its iterations.

    Parameters
    ----------
    problem : Problem
        What is clustered.
    epsilon : float
        Total of a run; delta is 1/(N ln N).
    noise : str
        "secure" or "seeded".
    n_iterations : int
        Of a run, at least 3. FastLloyd's own number is 2 to 7, and an iteration costs
        the same with any of them.
    repeats : int
        Timed runs, after two that are not timed.

    Returns
    -------
    RoundCost

    Raises
    ------
    ConfigurationError
        If `repeats` is below 1 or `n_iterations` below 3, or what FastLloyd refuses.

    Notes
    -----
    An iteration is: all clients take the last masked sum in (unmask, divide, clip,
    fold), assign their rows, make their sums and counts, charge their ledgers, mask and
    answer; the server adds the vectors and its noise. Clients work one after the other.
    The mean is over the third to the last iteration of a run (pairs agree on keys in
    the first, and open what was sealed with them in the second), and over runs.
    """
    if n_iterations < _FIRST_TIMED:
        raise ConfigurationError(
            f"a run has {n_iterations} iterations, but the first {_FIRST_TIMED - 1} are"
            f" not timed: give at least {_FIRST_TIMED}."
        )
    if repeats < 1:
        raise ConfigurationError(
            f"repeats is {repeats}, but at least 1 is needed: give one such as 30."
        )
    seeds = range(_WARM_UPS + repeats)
    runs = [_play(problem, epsilon, noise, n_iterations, seed) for seed in seeds][
        _WARM_UPS:
    ]
    return RoundCost(
        Estimate.of([run.iteration for run in runs]),
        Estimate.of([run.iteration_cpu for run in runs]),
        Estimate.of([run.setup for run in runs]),
        n_iterations,
        _sizes(runs[0].exchanges),
    )


def vector_bytes(
    n_clusters: int, n_features: int, n_clients: int = 2, word_bytes: int = WORD_BYTES
) -> int:
    """Bytes of all masked vectors of one iteration.

    Parameters
    ----------
    n_clusters, n_features, n_clients : int
        k, d and the number of clients.
    word_bytes : int
        Of one number.

    Returns
    -------
    int
        ``n_clients * 2 * k (d + 1) * word_bytes``: k d sums and k counts from every
        client, and as many back to each.

    Examples
    --------
    >>> vector_bytes(2, 2), vector_bytes(15, 2)
    (192, 1440)
    """
    return n_clients * _DIRECTIONS * n_clusters * (n_features + 1) * word_bytes


def _play(
    problem: Problem, epsilon: float, noise: str, n_iterations: int, seed: int
) -> _Run:
    """One run; its seed is that of the public start."""
    clients = [KMeansClient(part) for part in problem.parts]
    grid = _ObservedGrid(_node(client) for client in clients)
    strategy = FastLloyd(
        problem.n_clusters,
        n_features=problem.points.shape[1],
        n_examples=len(problem.points),
        n_clients=problem.n_clients,
        bounds=(-1.0, 1.0),
        epsilon=epsilon,
        noise=noise,
        max_iter=n_iterations,
        random_state=seed,
        on_step=lambda _: None,
    )
    start = time.perf_counter()
    with grid.running():
        strategy.start(grid)
    return _Run(grid.exchanges, start, time.perf_counter())


def _node(client: KMeansClient) -> Node:
    """A node with its rows and ledger in memory, and the mod around it."""
    settings = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)

    def own_client(_: Context) -> KMeansClient:
        return client

    return Node(client_app(own_client, mod=SecureAggregation(lambda _: settings)))


def _sizes(exchanges: Sequence[_Exchange]) -> Sizes:
    """Bytes of an iteration and of the rest of a run."""
    later = exchanges[_FIRST_TIMED:-1]
    n_iterations = len(exchanges) - 2
    vectors = sum(
        _vector_size(message)
        for exchange in exchanges
        for message in _messages(exchange)
    )
    per_exchange = [
        sum(_size(message) for message in _messages(exchange)) for exchange in exchanges
    ]
    messages = sum(per_exchange[_FIRST_TIMED:-1]) // len(later)
    return Sizes(
        vectors // n_iterations, messages, sum(per_exchange) - n_iterations * messages
    )


def _messages(exchange: _Exchange) -> list[Message]:
    """Requests and replies of an exchange."""
    return [*exchange.requests, *exchange.replies]


def _vector_size(message: Message) -> int:
    """Bytes of the masked vector in a message, if there is one."""
    record: Any = message.content.get(VECTOR_RECORD)
    return 0 if record is None else len(record["vector"].data)


def _size(item: Any) -> int:
    """Bytes of an object as Flower serialises it, with everything inside."""
    return len(item.deflate()) + sum(
        _size(child) for child in (item.children or {}).values()
    )
