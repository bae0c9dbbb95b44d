"""A private-sum round, an algorithm as a list of them, and the state that they carry on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.mechanisms import Block, ReleasedSum, vector_length

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClusterState:
    """What is known to whoever may see the released sums: centroids and what came with them.

    Parameters
    ----------
    centroids : ndarray, (n_clusters, n_features)
        On the grid, in the box [-1, 1]^d.
    counts : ndarray, (n_clusters,)
        Noisy counts of the last release; NaN-free zeros before the first.
    movements : tuple of float
        Largest step of a centroid in each iteration so far.
    """

    centroids: Array
    counts: Array
    movements: tuple[float, ...] = ()

    def digest(self) -> bytes:
        """SHA-256 of the grid values, equal on all machines whose states are equal."""
        grid = np.rint(np.concatenate([self.centroids.ravel(), self.counts.ravel()]) * 2.0**16).astype("<i8")
        shape = np.asarray(self.centroids.shape, dtype="<i8")
        return hashlib.sha256(shape.tobytes() + grid.tobytes()).digest()


@dataclass(frozen=True)
class PrivateSum:
    """One round: what clients sum, how it is protected, and what follows from the released sum.

    Parameters
    ----------
    name : str
        For reports.
    blocks : tuple of Block
        The arrays of the vector, with sensitivity and noise.
    statistic : callable
        ``statistic(points, state) -> arrays``, one per block; run by each client. It enforces each block's bound by
        clipping and returns values on the grid.
    advance : callable
        ``advance(state, released) -> state``; run by whoever may see the released sum. Ends on the grid and avoids
        reductions whose result depends on their order.
    radius : float or None
        The radius in force, in scaled units, for reports.
    """

    name: str
    blocks: tuple[Block, ...]
    statistic: Callable[[Array, ClusterState], Sequence[Array]]
    advance: Callable[[ClusterState, ReleasedSum], ClusterState]
    radius: float | None = None

    @property
    def length(self) -> int:
        """Entries of the vector."""
        return vector_length(self.blocks)


@dataclass(frozen=True)
class Algorithm:
    """An ordered list of private-sum rounds and the data-independent state they start from.

    Parameters
    ----------
    name : str
        Registered name.
    rounds : tuple of PrivateSum
        In order.
    initial_state : callable
        ``initial_state(seed) -> ClusterState`` from public randomness only.
    """

    name: str
    rounds: tuple[PrivateSum, ...]
    initial_state: Callable[[int], ClusterState]
