"""FastLloyd's masked secure aggregation (MSA, figure 1 of the paper), whose clients
share one seed: for Table 3 only.

**Not for data that anybody owns.** All masks follow from one seed that every client
knows: any client that sees what another one sends, or works with the server, reads that
client's exact sums (`opened_by_a_client`). The package's masks are pairwise: a client
knows those that it shares with others, and no third pair's.

Both are timed bare and alike: statistics, grid, masks, the server's noise, unmasking
and the step, without Flower's messages, plans, ledgers and checks, so that what differs
is the masks.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.noise import NoiseKind, noise_source
from flwr_dpkmeans.privacy.release import as_released, draw_noise
from flwr_dpkmeans.secagg.ciphers import stream
from flwr_dpkmeans.secagg.keys import derive_key, generate_group_key
from flwr_dpkmeans.secagg.ring import Ring, encode
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from simulations.papers.fastlloyd.round_cost import Estimate, Problem

_WARM_UPS = 2


class Masks(ABC):
    """What hides each client's vector, and their sum, until a client takes it off."""

    @abstractmethod
    def hide(
        self,
        client: int,
        index: int,
        values: Ring,
    ) -> Ring:
        """One client's vector of a round, masked."""

    @abstractmethod
    def open(
        self,
        index: int,
        total: Ring,
    ) -> Ring:
        """The sum of a round, without masks: what each client computes."""


@dataclass(frozen=True)
class SharedSeed(Masks):
    """The paper's masks: one seed makes those of all clients.

    So each client knows those of all others.

    Parameters
    ----------
    n_clients : int
        M.
    seed : bytes
        PublicFacts to every client and, if the sums are to be hidden at all, not to the
        server.

    Examples
    --------
    >>> masks = SharedSeed(3)
    >>> vector = np.arange(4, dtype=np.uint64)
    >>> sent = [masks.hide(client, 1, vector) for client in range(3)]
    >>> masks.open(1, sum(sent[1:], start=sent[0])).tolist()
    [0, 3, 6, 9]
    """

    n_clients: int
    seed: bytes = field(default_factory=generate_group_key, repr=False)

    def hide(
        self,
        client: int,
        index: int,
        values: Ring,
    ) -> Ring:
        masks = self.of_round(index, len(values))
        return np.asarray(values + masks[client])

    def open(
        self,
        index: int,
        total: Ring,
    ) -> Ring:
        masks = self.of_round(index, len(total))
        return np.asarray(total - masks.sum(axis=0, dtype=np.uint64))

    def of_round(
        self,
        index: int,
        length: int,
    ) -> Ring:
        """PRNG(seed, t): the masks of all clients, (n_clients, length)."""
        key = derive_key(self.seed, "masked secure aggregation")
        words = stream(key, (index, 0), self.n_clients * length)
        return words.reshape(self.n_clients, length)


@dataclass(frozen=True)
class Pairwise(Masks):
    """The package's masks: a key for each pair, whose streams cancel.

    And streams of two key authors, which hide the sum.
    """

    n_clients: int
    pairs: dict[tuple[int, int], bytes] = field(default_factory=dict, repr=False)
    authors: tuple[bytes, ...] = field(
        default_factory=lambda: (generate_group_key(), generate_group_key()), repr=False
    )

    def __post_init__(self) -> None:
        for pair in combinations(range(self.n_clients), 2):
            self.pairs[pair] = generate_group_key()

    def hide(
        self,
        client: int,
        index: int,
        values: Ring,
    ) -> Ring:
        masked = values.copy()
        for (low, high), key in self.pairs.items():
            if client == low:
                masked += stream(key, (index, 0), len(values))
            elif client == high:
                masked -= stream(key, (index, 0), len(values))
        if client < len(self.authors):
            masked += stream(self.authors[client], (index, 0), len(values))
        return masked

    def open(
        self,
        index: int,
        total: Ring,
    ) -> Ring:
        values = total.copy()
        for key in self.authors:
            values -= stream(key, (index, 0), len(total))
        return values


def opened_by_a_client(
    masks: SharedSeed,
    other: int,
    index: int,
    sent: Ring,
) -> Ring:
    """The exact vector of another client, from what it sent to the server.

    And from the seed that all clients have.
    """
    every = masks.of_round(index, len(sent))
    return np.asarray(sent - every[other])


def plan_of(
    problem: Problem,
    epsilon: float,
    n_iterations: int,
    noise: NoiseKind,
) -> Plan:
    """FastLloyd's plan, in the box."""
    n_rows, n_features = problem.points.shape
    config = parse_config(
        algorithm="fastlloyd",
        n_clusters=problem.n_clusters,
        bounds=((-1.0,), (1.0,)),
        n_features=n_features,
        n_examples=n_rows,
        epsilon=epsilon,
        noise=noise.value,
        max_iter=n_iterations,
    )
    return draft_plan(
        config,
        run_id=1,
        n_clients=problem.n_clients,
        seed=0,
        n_features=n_features,
    )


def iterate(
    plan: Plan,
    parts: Sequence[np.ndarray[tuple[int, int], np.dtype[np.float64]]],
    masks: Masks,
) -> State:
    """All iterations: every client masks its statistic, the server adds noise.

    One client's unmasking and step.
    """
    bits = plan.fraction_bits
    seed = 0 if plan.settings.noise is NoiseKind.SEEDED else None
    source = noise_source(plan.settings.noise, seed)
    state = initial_state(plan)
    for index, step in enumerate(build_algorithm(plan).rounds, start=1):
        sent = []
        for client, points in enumerate(parts):
            arrays = step.arrays_of(points, state)
            flat = np.concatenate([np.ravel(array) for array in arrays])
            vector = encode(flat, bits).values
            sent.append(masks.hide(client, index, vector))
        noise = draw_noise(step.blocks, source, bits)
        total = (
            np.sum(
                sent,
                axis=0,
                dtype=np.uint64,
            )
            + noise
        )
        # Each client takes the masks off and makes the step itself.
        for _ in parts:
            opened = masks.open(index, total)
        state = step.advance(state, as_released(opened, step.blocks, bits))
    return state


def measure_masks(
    problem: Problem,
    *,
    epsilon: float = 1.0,
    noise: str = "secure",
    n_iterations: int = 7,
    repeats: int = 30,
) -> dict[str, Estimate]:
    """CPU milliseconds of an iteration under either kind of masks, by name.

    The runs of both take turns.
    """
    plan = plan_of(problem, epsilon, n_iterations, NoiseKind(noise))
    grid = 2.0**plan.fraction_bits
    parts = [np.rint(part * grid) / grid for part in problem.parts]
    n_clients = len(parts)
    spent: dict[str, list[float]] = {"shared_seed": [], "pairwise": []}
    for _ in range(_WARM_UPS + repeats):
        kinds = {"shared_seed": SharedSeed(n_clients), "pairwise": Pairwise(n_clients)}
        for name, masks in kinds.items():
            start = time.process_time()
            iterate(plan, parts, masks)
            seconds = time.process_time() - start
            spent[name].append(1e3 * seconds / n_iterations)
    return {name: Estimate.of(values[_WARM_UPS:]) for name, values in spent.items()}
