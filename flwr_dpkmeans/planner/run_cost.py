"""What a run costs whom, by the model of `results.md`.

From what one core was measured to take.

A tree's aggregators add vectors modulo 2^64, in any order; whoever adds masked vectors
needs no trust.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.sums.plan import Plan

AGREEMENT = 31e-6
WORD = 8e-9
ADDITION = 0.15e-9
MESSAGE = 28e-6
"""Seconds of one core: an X25519 agreement, a word of a mask, one that a server adds, a
message with its reply through Flower's objects.
"""
FAN = 320
"""Vectors that one aggregator of a tree adds."""
LINE = 12.5e6
"""Bytes a second into an aggregator: 100 Mbit."""
_ENTRY_BYTES = 8


@dataclass(frozen=True)
class Tier:
    """One level of a tree of aggregators, from the clients up, for one sum."""

    n_nodes: int
    vectors: int
    """That one of them adds."""
    n_bytes: int
    """Of these, if all are kept."""
    seconds: float
    """Until one of them has them all and has added them."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one core, and bytes.

    a party's statistic, which depends on its rows, comes on top.
    """

    party: float
    server: float
    server_bytes_in: int
    server_memory: int
    """Where all vectors of a sum are kept; a server that adds as they come takes one.
    """
    tiers: tuple[Tier, ...]
    """Of a tree for the longest sum; a single one is the server itself."""

    @property
    def tree_seconds(self) -> float:
        """Of one sum through all tiers."""
        return math.fsum(tier.seconds for tier in self.tiers)


def cost_of(
    plan: Plan,
    n_messages: int,
    bytes_up: int,
) -> Cost:
    """What a final plan's run costs.

    So many of its messages are sent, and so many bytes by each client.
    """
    lengths = [
        plan.round_at(index).length
        for index in range(plan.first_round, plan.last_round + 1)
    ]
    n_neighbours = n_agreements = 0
    if plan.settings.masking:
        n_neighbours, n_agreements = plan.aggregator.mask_pairs(plan)
    masks = n_neighbours * WORD * sum(lengths) + n_agreements * AGREEMENT
    longest = max(lengths)
    return Cost(
        party=masks + MESSAGE * n_messages / (2 * plan.n_clients),
        server=plan.n_clients * ADDITION * sum(lengths) + MESSAGE * n_messages / 2,
        server_bytes_in=plan.n_clients * bytes_up,
        server_memory=plan.n_clients * _ENTRY_BYTES * longest,
        tiers=tiers_of(plan.n_clients, longest),
    )


def tiers_of(n_clients: int, length: int) -> tuple[Tier, ...]:
    """The least number of tiers in which nobody adds more than `FAN` vectors.

    Examples
    --------
    >>> [(tier.n_nodes, tier.vectors) for tier in tiers_of(100_000, 200)]
    [(313, 320), (1, 313)]
    """
    tiers: list[Tier] = []
    n_vectors = n_clients
    while n_vectors > 1:
        vectors = min(FAN, n_vectors)
        n_nodes = -(-n_vectors // FAN)
        n_bytes = _ENTRY_BYTES * length * vectors
        tiers.append(
            Tier(
                n_nodes,
                vectors,
                n_bytes,
                n_bytes / LINE + vectors * length * ADDITION,
            )
        )
        n_vectors = n_nodes
    return tuple(tiers)
