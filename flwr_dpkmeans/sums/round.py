"""A private-sum round, an algorithm as a list of them, and the state that they carry on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.release import Block, ReleasedSum, vector_length
from flwr_dpkmeans.sums.state import Array, State

__all__ = ["Algorithm", "Array", "InitialState", "Labels", "PrivateSum", "State"]

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class PrivateSum:
    """One round: what clients sum, how it is protected, and what follows from the released sum.

    Parameters
    ----------
    name : str
        For reports.
    blocks : tuple of Block
        The arrays of the vector, each with its sensitivity, why that holds, and its noise;
        `neighbours.check_sensitivity` holds a statistic against them.
    statistic : callable
        ``statistic(points, state) -> arrays``, one per block; run by each client. It enforces each block's bound by
        clipping and returns values on the grid.
    advance : callable
        ``advance(state, released) -> state``; run by whoever may see the released sum. Ends on the grid and avoids
        reductions whose result depends on their order, except where a step cannot (eigenvectors, k-means).
    radius : float or None
        The radius in force, in scaled units, for reports.
    reads : tuple of str
        Names of the state's extras that the statistic reads; nothing else is sent to clients where the server runs
        `advance`.
    admits : callable or None
        ``admits(state) -> bool``: whether what a server sent of these extras, all of which are there, fits the plan;
        None where there are none. `verify.require_server_state` asks for it.
    labelled : callable or None
        ``labelled(points, state, labels) -> arrays``: the statistic of rows with labels, where the round has one.
    """

    name: str
    blocks: tuple[Block, ...]
    statistic: Callable[[Array, State], Sequence[Array]]
    advance: Callable[[State, ReleasedSum], State]
    radius: float | None = None
    reads: tuple[str, ...] = ()
    admits: Callable[[State], bool] | None = None
    labelled: Callable[[Array, State, Labels], Sequence[Array]] | None = None

    def arrays_of(self, points: Array, state: State, labels: Labels | None = None) -> Sequence[Array]:
        """Return one client's arrays; its labels, (n_points,), are looked at where the round has a use for them."""
        if self.labelled is None or labels is None:
            return self.statistic(points, state)
        return self.labelled(points, state, labels)

    @property
    def length(self) -> int:
        """Entries of the vector."""
        return vector_length(self.blocks)


class InitialState(Protocol):
    """The state before the first round, from public randomness and the server's own points only."""

    def __call__(self, seed: int, server_points: Array | None = None, /) -> State:
        """Return the state that round 1 starts from."""


@dataclass(frozen=True)
class Algorithm:
    """An ordered list of private-sum rounds, and the state they start from.

    ``initial_state(seed, server_points=None)`` follows from public randomness and the server's own points only.
    """

    name: str
    rounds: tuple[PrivateSum, ...]
    initial_state: InitialState
