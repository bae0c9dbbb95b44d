"""A private-sum round, an algorithm as a list of them, and their state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import Block, ReleasedSum

Array = NDArray[np.float64]
_GRID = 2.0**16
_RESULT = ("centroids", "counts")
"""What a clustering is read for, and every round of one may see."""


@dataclass(frozen=True, eq=False)
class State:
    """What is known to whoever may see the released sums.

    Named arrays, which a round's `advance` replaces.

    Never changed in place, since parties share it. Its values are multiples of 2^-16
    (`kmeans.lloyd.round_to_grid`), so that its digest, by which states are compared, is
    the same on all machines.

    Examples
    --------
    >>> state = State({"means": np.zeros((2, 3))}).changed(rows=np.ones(2))
    >>> sorted(state.arrays), state["rows"]
    (['means', 'rows'], array([1., 1.]))
    """

    arrays: Mapping[str, Array] = field(repr=False)
    """By name, on the grid, of one or two dimensions."""
    movements: tuple[float, ...] = field(default=(), repr=False)
    """How far each iteration so far moved the result."""

    def __getitem__(self, name: str) -> Array:
        """An array that an earlier step, or the server, must have put there."""
        if name not in self.arrays:
            raise PlanError(
                f"the state has no {name.replace('_', ' ')}: run the step that makes it"
                " first."
            )
        return self.arrays[name]

    @property
    def centroids(self) -> Array:
        """Of a clustering: (n_clusters, n_features), zeros before it has found any."""
        return self.arrays["centroids"]

    @property
    def counts(self) -> Array:
        """Of a clustering: noisy counts of the last release, (n_clusters,).

        Zeros before the first.
        """
        return self.arrays["counts"]

    @property
    def extras(self) -> Mapping[str, Array]:
        """What steps carry on besides, such as a projection."""
        carried: dict[str, Array] = {}
        for name, array in self.arrays.items():
            if name not in _RESULT:
                carried[name] = array
        return carried

    def changed(self, **arrays: Array) -> State:
        """The same with other arrays under some names."""
        both = {**self.arrays, **arrays}
        return replace(self, arrays=both)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of names, shapes and grid values.

        Equal on all machines whose states are equal.
        """
        names = sorted(self.arrays)
        sizes: list[int] = []
        grid: list[bytes] = []
        for name in names:
            array = self.arrays[name]
            sizes += [array.ndim, *array.shape]
            on_grid = np.rint(array * _GRID)
            integers = on_grid.astype("<i8")
            grid.append(integers.tobytes())
        header = json.dumps([names, sizes])
        hashed = hashlib.sha256(header.encode())
        hashed.update(b"\n")
        for steps in grid:
            hashed.update(steps)
        return hashed.digest()

    @cached_property
    def packed(self) -> bytes:
        """The state as one blob, for `unpack_state`.

        A JSON line with names and shapes, then little-endian doubles.

        Examples
        --------
        >>> from flwr_dpkmeans.sums.wire.packed_state import unpack_state
        >>> state = State({"sums": np.zeros((2, 3)), "counts": np.ones(2)}, (0.5,))
        >>> again = unpack_state(state.packed)
        >>> again.digest == state.digest, again.movements
        (True, (0.5,))
        """
        shapes: dict[str, list[int]] = {}
        movements = np.asarray(self.movements, dtype=np.float64)
        values = [movements]
        for name, array in self.arrays.items():
            shapes[name] = list(array.shape)
            values.append(np.ravel(array))
        header = {"movements": len(self.movements), "arrays": shapes}
        line = json.dumps(header) + "\n"
        doubles = np.concatenate(values).astype("<f8")
        return line.encode() + doubles.tobytes()

    def view(self, names: Collection[str]) -> State:
        """Return the state with only the named arrays, and the result so far.

        What one round's statistic reads.
        """
        seen = {}
        for name, array in self.arrays.items():
            if name in names or name in _RESULT:
                seen[name] = array
        return replace(self, arrays=seen)

    def frozen(self) -> State:
        """Return the state with read-only arrays, for sharing."""
        for array in self.arrays.values():
            array.flags.writeable = False
        arrays = MappingProxyType(dict(self.arrays))
        return replace(self, arrays=arrays)


Labels = NDArray[np.int64]
RoundStatistic = Callable[[Array, State], Sequence[Array]]
"""``statistic(points, state) -> arrays`` of one client."""
UnroundedStatistic = tuple[RoundStatistic, Callable[[Array], Array]]
"""An exact sum, and what is made of it as one vector."""
RowWeights = NDArray[np.float64]
"""(n_points,), multiples of 2^-16 in [0, 1]."""
WeightedStatistic = Callable[[Array, State, Labels | None, RowWeights], Sequence[Array]]
"""The same of rows of which each counts by its weight."""
StatisticOfEach = Callable[[Array, NDArray[np.int64], State], Sequence[Array]]
"""The same of each of many clients, from the rows of all and how many each has."""
LabelledStatistic = Callable[[Array, State, Labels], Sequence[Array]]
"""The same of rows with labels: ``labelled(points, state, labels) -> arrays``."""


@dataclass(frozen=True)
class PrivateSum:
    """One round: what clients sum, its protection, and what follows from the sum.

    Name, blocks (from `allocate`), statistic and advance are enough where every client
    goes from release to release by itself. A statistic that reads arrays beside
    ``centroids`` and ``counts`` names them in `reads`, for trust models under which the
    server sends them.
    """

    name: str
    blocks: tuple[Block, ...]
    """The arrays of the vector, each with its sensitivity, why that holds, and its
    noise; `flwr_dpkmeans.sums.check_sensitivity` holds a statistic against them.
    """
    statistic: RoundStatistic
    """``statistic(points, state) -> arrays``, one per block; run by each client.

    It enforces each block's bound by clipping and returns values on the grid.
    """
    advance: Callable[[State, ReleasedSum], State]
    """``advance(state, released) -> state``; run by whoever may see the released sum.

    Ends on the grid and avoids reductions whose result depends on their order, except
    where a step cannot (eigenvectors, k-means).
    """
    radius: float | None = None
    """The radius in force, in scaled units, for reports."""
    reads: tuple[str, ...] = ()
    """Names of the state's extras that the statistic reads.

    The only ones sent to clients where the server advances.
    """
    admits: Callable[[State], bool] | None = None
    """``admits(state) -> bool``: whether what a server sent of these extras, all of
    which are there, fits the plan; None where there are none.
    `checks.verify.require_server_state` asks for it.
    """
    labelled: LabelledStatistic | None = None
    """``labelled(points, state, labels) -> arrays``.

    The statistic of rows with labels, where the round has one.
    """

    weighted: WeightedStatistic | None = None
    """``weighted(points, state, labels, weights) -> arrays``.

    The statistic with each row's part times its weight, rounded toward zero before
    rows are added; None where the round cannot weigh rows.
    """
    of_each: StatisticOfEach | None = None
    """``of_each(rows, sizes, state) -> arrays``, each with a leading axis of clients.

    The statistic of each of many clients, bit by bit, whose rows lie one client's
    behind the other's and weigh 1. For simulations of thousands of clients, which
    without it are asked one after another, with the same results.
    """
    in_blocks: bool = False
    """Whether the statistic, of its points and labels, takes nothing but shape and
    slices: one of a table beyond memory has each block of it at a time. At record level
    it is then a sum over rows, so that blocks may be summed elsewhere. Others get an
    array.
    """
    unrounded: UnroundedStatistic | None = None
    """Where the statistic rounds a sum of rows at the end.

    An exact sum, and what is made of it as one vector. Blocks are added up so, and
    rounded once, as the sensitivity has room for one rounding of each client's sum.
    """
    profiles: bool = False
    """Whether its points have the columns of a profile behind their own, which no other
    round sees.
    """

    def arrays_of(
        self,
        points: Array,
        state: State,
        labels: Labels | None = None,
        beside: Array | None = None,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        """Return one client's arrays.

        Its labels, (n_points,), and the columns of a profile that stand `beside` its
        points, are looked at where the round has a use for them. With `weights` each
        row counts by its own.
        """
        if not self.in_blocks:
            points = np.asarray(points)
            if labels is not None:
                labels = np.asarray(labels)
        elif self.profiles and beside is not None:
            points = _beside(points, beside)
        if weights is not None:
            if self.weighted is None:
                raise PlanError(
                    f"round {self.name!r} cannot weigh rows: give it a weighted"
                    " statistic, or one row of each person."
                )
            return self.weighted(points, state, labels, weights)
        if self.labelled is None or labels is None:
            return self.statistic(points, state)
        return self.labelled(points, state, labels)


class _LargeTable(Protocol):
    """A table beyond memory."""

    def beside(self, columns: Array) -> Array:
        """The table with further columns behind its own."""


def _beside(points: Array | _LargeTable, columns: Array) -> Array:
    """Put the columns of a profile behind a table's own.

    Also of a table that is beyond memory.
    """
    if isinstance(points, np.ndarray):
        return np.hstack([points, columns])
    return points.beside(columns)


InitialState = Callable[..., State]
"""The state before the first round, from public randomness and the server's own points
only; see `Algorithm`.
"""


@dataclass(frozen=True)
class Algorithm:
    """An ordered list of private-sum rounds, and the state they start from."""

    name: str
    rounds: tuple[PrivateSum, ...]
    """In order; their number and their blocks are public and stand in the plan."""
    initial_state: InitialState
    """``initial_state(seed, server_points=None, /) -> State``; the seed is public."""
