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
from flwr_dpkmeans.secagg.keys import (
    Ring,
    derive_key,
    encode,
    generate_group_key,
    stream,
)
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from simulations.round_cost import Estimate, Problem

_WARM_UPS = 2


class Masks(ABC):
    """What hides each client's vector from the server, and their sum, until a client
    takes it off.
    """

    @abstractmethod
    def hide(self, client: int, index: int, values: Ring) -> Ring:
        """One client's vector of a round, masked."""

    @abstractmethod
    def open(self, index: int, total: Ring) -> Ring:
        """The sum of a round, without masks: what each client computes."""


@dataclass(frozen=True)
class SharedSeed(Masks):
    """The paper's: one seed makes the masks of all clients, so each client knows those
    of all others.

    Parameters
    ----------
    n_clients : int
        M.
    seed : bytes
        Known to every client and, if the sums are to be hidden at all, not to the
        server.

    Examples
    --------
    >>> masks, own = SharedSeed(3), np.arange(4, dtype=np.uint64)
    >>> sent = [masks.hide(client, 1, own) for client in range(3)]
    >>> masks.open(1, sum(sent[1:], start=sent[0])).tolist()
    [0, 3, 6, 9]
    """

    n_clients: int
    seed: bytes = field(default_factory=generate_group_key, repr=False)

    def hide(self, client: int, index: int, values: Ring) -> Ring:
        return np.asarray(values + self.of_round(index, len(values))[client])

    def open(self, index: int, total: Ring) -> Ring:
        return np.asarray(
            total - self.of_round(index, len(total)).sum(axis=0, dtype=np.uint64)
        )

    def of_round(self, index: int, length: int) -> Ring:
        """PRNG(seed, t): the masks of all clients, (n_clients, length)."""
        key = derive_key(self.seed, "masked secure aggregation")
        return stream(key, (index, 0), self.n_clients * length).reshape(
            self.n_clients, length
        )


@dataclass(frozen=True)
class Pairwise(Masks):
    """The package's: a key for each pair, whose streams cancel, and streams of two key
    authors that hide the sum.
    """

    n_clients: int
    pairs: dict[tuple[int, int], bytes] = field(default_factory=dict, repr=False)
    authors: tuple[bytes, ...] = field(
        default_factory=lambda: (generate_group_key(), generate_group_key()), repr=False
    )

    def __post_init__(self) -> None:
        self.pairs.update(
            {
                pair: generate_group_key()
                for pair in combinations(range(self.n_clients), 2)
            }
        )

    def hide(self, client: int, index: int, values: Ring) -> Ring:
        masked = values.copy()
        for (low, high), key in self.pairs.items():
            if client in (low, high):
                masked += stream(key, (index, 0), len(values)) * np.uint64(
                    1 if client == low else 2**64 - 1
                )
        if client < len(self.authors):
            masked += stream(self.authors[client], (index, 0), len(values))
        return masked

    def open(self, index: int, total: Ring) -> Ring:
        values = total.copy()
        for key in self.authors:
            values -= stream(key, (index, 0), len(total))
        return values


def opened_by_a_client(masks: SharedSeed, other: int, index: int, sent: Ring) -> Ring:
    """The exact vector of another client, from what it sent to the server and the seed
    that all clients have.
    """
    return np.asarray(sent - masks.of_round(index, len(sent))[other])


def plan_of(
    problem: Problem, epsilon: float, n_iterations: int, noise: NoiseKind
) -> Plan:
    """FastLloyd's plan, in the box."""
    n, d = problem.points.shape
    known = {
        "n_features": d,
        "n_examples": n,
        "n_clusters": problem.n_clusters,
        "max_iter": n_iterations,
    }
    run = parse_config(
        algorithm="fastlloyd",
        bounds=((-1.0,), (1.0,)),
        epsilon=epsilon,
        noise=noise.value,
        **known,
    )
    return draft_plan(run, run_id=1, n_clients=problem.n_clients, seed=0, n_features=d)


def iterate(
    plan: Plan,
    parts: Sequence[np.ndarray[tuple[int, int], np.dtype[np.float64]]],
    masks: Masks,
) -> State:
    """All iterations: every client masks its statistic, the server adds noise, one
    client's unmasking and step.
    """
    seed = 0 if plan.settings.noise is NoiseKind.SEEDED else None
    source, state = noise_source(plan.settings.noise, seed), initial_state(plan)
    for index, step in enumerate(build_algorithm(plan).rounds, start=1):
        sent = []
        for client, points in enumerate(parts):
            flat = np.concatenate(
                [np.ravel(array) for array in step.arrays_of(points, state)]
            )
            sent.append(
                masks.hide(client, index, encode(flat, plan.fraction_bits).values)
            )
        total = np.sum(sent, axis=0, dtype=np.uint64) + draw_noise(
            step.blocks, source, plan.fraction_bits
        )
        # Each client takes the masks off and makes the step itself.
        opened = [masks.open(index, total) for _ in parts][-1]
        state = step.advance(
            state, as_released(opened, step.blocks, plan.fraction_bits)
        )
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
    plan, parts = (
        plan_of(problem, epsilon, n_iterations, NoiseKind(noise)),
        problem.parts,
    )
    rounded = [
        np.rint(part * 2.0**plan.fraction_bits) / 2.0**plan.fraction_bits
        for part in parts
    ]
    spent: dict[str, list[float]] = {"shared_seed": [], "pairwise": []}
    for _ in range(_WARM_UPS + repeats):
        for name, masks in (
            ("shared_seed", SharedSeed(len(parts))),
            ("pairwise", Pairwise(len(parts))),
        ):
            start = time.process_time()
            iterate(plan, rounded, masks)
            spent[name].append(1e3 * (time.process_time() - start) / n_iterations)
    return {name: Estimate.of(values[_WARM_UPS:]) for name, values in spent.items()}
