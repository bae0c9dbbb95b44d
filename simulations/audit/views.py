"""What an adversary really gets of a run, and what it must add up itself.

===================  =============================================================
trust, adversary     its view
===================  =============================================================
any, clients         released sums; under ``distributed`` less what max(1, t)
                     colluding clients put in themselves
distributed, server  the aggregates, less what t colluding clients put in; every
                     masked vector
oblivious, server    every masked vector, the blinded aggregates, its own noise:
                     nothing that it can read
central, server      not audited: that server is trusted
===================  =============================================================

So the noise that is left in a sum under ``distributed`` is exactly what the guarantee
counts on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.trust import trust_model
from simulations.audit.watched import Seen

Array = NDArray[np.float64]


class Adversary(Enum):
    """Who looks."""

    SERVER = "server"
    CLIENTS = "clients"


@dataclass(frozen=True)
class ReadableSum:
    """A noised sum over some clients, as the adversary can read it.

    Parameters
    ----------
    plan : Plan
        In force.
    round_index, attempt : int
        Which aggregation.
    state : State or Discoveries
        What the statistics were taken at.
    values : ndarray of uint64
        Ring elements.
    members : tuple of int
        Positions of the clients whose statistics, and shares of the noise, are still in
        it.
    cohort : int
        How many clients there were in the attempt.
    """

    plan: Plan = field(repr=False)
    round_index: int
    attempt: int
    state: State | Discoveries = field(repr=False)
    values: Ring = field(repr=False)
    members: tuple[int, ...]
    cohort: int


@dataclass(frozen=True)
class HiddenWords:
    """A vector that should be unreadable.

    Parameters
    ----------
    name : str
        What it is.
    round_index, attempt : int
        Which aggregation.
    members : tuple of int
        Whose statistics are in it.
    values : ndarray of uint64
        Ring elements.
    """

    name: str
    round_index: int
    attempt: int
    members: tuple[int, ...]
    values: Ring = field(repr=False)


@dataclass(frozen=True)
class View:
    """Everything that one adversary got of one run.

    Parameters
    ----------
    sums : tuple of ReadableSum
        In order.
    words : tuple of HiddenWords
        In order; empty for clients.
    result : ndarray, (n,)
        Final centroids and counts, or nothing where they are hidden.
    plan : Plan
        The final one.
    attempts : tuple of (round, attempt)
        Every aggregation that the run is charged for.
    claimed : float
        Epsilon by the run's own account; 0 where there is none, which allows nothing.
    """

    sums: tuple[ReadableSum, ...]
    words: tuple[HiddenWords, ...]
    result: Array = field(repr=False)
    plan: Plan = field(repr=False)
    attempts: tuple[tuple[int, int], ...]
    claimed: float = 0.0


def resolve_adversary(name: str, trust: str) -> Adversary:
    """Turn ``auto`` into the strongest adversary that the trust model's guarantee holds
    against.

    Examples
    --------
    >>> resolve_adversary("auto", "distributed")
    <Adversary.SERVER: 'server'>
    """
    if name == "auto":
        return (
            Adversary.SERVER if trust_model(trust).shared_noise else Adversary.CLIENTS
        )
    names = [adversary.value for adversary in Adversary]
    if name not in names:
        raise ConfigurationError(
            f"adversary is {name!r}, which is not known:"
            f" {nearest(name, ('auto', *names))}"
        )
    adversary = Adversary(name)
    model = trust_model(trust)
    if adversary is Adversary.SERVER and model.server_reads and not model.shared_noise:
        raise ConfigurationError(
            f"adversary is 'server', but trust {trust!r} trusts the server with exact"
            " sums: choose 'clients'."
        )
    return adversary


def colluding(plan: Plan, adversary: Adversary, n_clients: int) -> tuple[int, ...]:
    """Positions of the clients that work with the adversary.

    The last ones, never the target's.

    Against a lone client, and against up to t of them, the guarantee counts on as many
    shares: max(1, t) are known.
    """
    shared = trust_model(plan.config.trust).shared_noise
    by_server = plan.max_silent if shared else 0
    n = by_server if adversary is Adversary.SERVER else max(1, plan.max_silent)
    return tuple(range(n_clients - n, n_clients))


def view_of(
    seen: Sequence[Seen],
    adversary: Adversary,
    final: Plan,
    state: State | None,
    attempts: tuple[tuple[int, int], ...],
    claimed: float = 0.0,
) -> View:
    """Cut one party's view out of everything that passed by.

    Parameters
    ----------
    seen : sequence of Seen
        In order.
    adversary : Adversary
    final : Plan
    state : State or None
        After the last round, if the adversary looks that far.
    attempts : tuple of (round, attempt)
    claimed : float
        Epsilon by the run's own account.

    Returns
    -------
    View
    """
    sums: list[ReadableSum] = []
    words: list[HiddenWords] = []
    for aggregation in seen:
        model = trust_model(aggregation.plan.round_at(aggregation.round_index).trust)
        n = len(aggregation.sent)
        if adversary is Adversary.CLIENTS or model.server_reads:
            sums.append(_readable_sum(aggregation, adversary))
        if adversary is Adversary.SERVER:
            words += [
                HiddenWords(
                    f"client {position}",
                    aggregation.round_index,
                    aggregation.attempt,
                    (position,),
                    vector,
                )
                for position, vector in enumerate(aggregation.received)
            ]
            if not model.server_reads:
                everybody = tuple(range(n))
                words.append(
                    HiddenWords(
                        "aggregate",
                        aggregation.round_index,
                        aggregation.attempt,
                        everybody,
                        aggregation.aggregate.values,
                    )
                )
                noise = aggregation.broadcast - aggregation.aggregate.values
                words.append(
                    HiddenWords(
                        "own noise",
                        aggregation.round_index,
                        aggregation.attempt,
                        (),
                        noise,
                    )
                )
    reads = (
        adversary is Adversary.CLIENTS or trust_model(final.config.trust).server_reads
    )
    result = np.zeros(0)
    if reads and state is not None:
        result = np.concatenate([state.centroids.ravel(), state.counts.ravel()])
    return View(tuple(sums), tuple(words), result, final, attempts, claimed)


def _readable_sum(aggregation: Seen, adversary: Adversary) -> ReadableSum:
    """The sum that the adversary reads, less what colluding clients put in."""
    plan = aggregation.plan
    n = len(aggregation.sent)
    colluders: Sequence[int] = ()
    if trust_model(plan.round_at(aggregation.round_index).trust).shared_noise:
        colluders = colluding(plan, adversary, n)
    remainder = aggregation.broadcast.copy()
    if adversary is Adversary.CLIENTS:
        remainder = aggregation.released.copy()
    for position in colluders:
        remainder -= aggregation.sent[position]
    return ReadableSum(
        plan,
        aggregation.round_index,
        aggregation.attempt,
        aggregation.state,
        remainder,
        tuple(position for position in range(n) if position not in colluders),
        n,
    )
