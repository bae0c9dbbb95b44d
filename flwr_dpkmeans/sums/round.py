"""A private-sum round, an algorithm as a list of them, and the state that they carry
on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.privacy.release import Block, ReleasedSum

Array = NDArray[np.float64]

_GRID = 2.0**16
_LONGEST_HEADER = 10_000
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
        """An array that an earlier step, or the server, must have put into the state."""
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
        return {
            name: array for name, array in self.arrays.items() if name not in _RESULT
        }

    def changed(self, **arrays: Array) -> State:
        """The same with other arrays under some names."""
        return replace(self, arrays={**self.arrays, **arrays})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of names, shapes and grid values, equal on all machines whose states
        are equal.
        """
        names = sorted(self.arrays)
        shapes = [
            size
            for name in names
            for size in (self.arrays[name].ndim, *self.arrays[name].shape)
        ]
        grid = [
            np.rint(self.arrays[name] * _GRID).astype("<i8").tobytes() for name in names
        ]
        return hashlib.sha256(
            json.dumps([names, shapes]).encode() + b"\n" + b"".join(grid)
        ).digest()

    @cached_property
    def packed(self) -> bytes:
        """The state as one blob, for `unpack_state`.

        a JSON line with names and shapes, then little-endian doubles.

        Examples
        --------
        >>> state = State({"sums": np.zeros((2, 3)), "counts": np.ones(2)}, (0.5,))
        >>> again = unpack_state(state.packed)
        >>> again.digest == state.digest, again.movements
        (True, (0.5,))
        """
        shapes = {name: list(array.shape) for name, array in self.arrays.items()}
        header = {"movements": len(self.movements), "arrays": shapes}
        arrays = [np.asarray(self.movements, dtype=np.float64), *self.arrays.values()]
        values = np.concatenate([np.ravel(array) for array in arrays]).astype("<f8")
        return json.dumps(header).encode() + b"\n" + values.tobytes()

    def view(self, names: Collection[str]) -> State:
        """Return the state with only the named arrays, and the result so far.

        What one round's statistic reads.
        """
        return replace(
            self,
            arrays={
                name: a
                for name, a in self.arrays.items()
                if name in names or name in _RESULT
            },
        )

    def frozen(self) -> State:
        """Return the state with read-only arrays, for sharing."""
        for array in self.arrays.values():
            array.flags.writeable = False
        return replace(self, arrays=MappingProxyType(dict(self.arrays)))


@lru_cache(maxsize=4)
def unpack_state(blob: bytes, most_movements: int | None = None) -> State:
    """Undo `State.packed`; anything else is a `ProtocolError`.

    The arrays are read-only, as they are shared.

    Movements become Python numbers, of which millions would take half a minute: from a
    peer, no more of them are read than the plan has rounds.
    """
    end = blob.find(b"\n", 0, _LONGEST_HEADER)
    if end < 0:
        raise ProtocolError(
            "a state's header is missing or too long: use the same version of"
            " flwr-dpkmeans."
        )
    # Without a copy: the arrays may be large, and may be rubbish.
    data = memoryview(blob)[end + 1 :]
    try:
        header = json.loads(blob[:end])
        n_movements = _size(header["movements"])
        shapes = {
            str(name): tuple(map(_size, shape))
            for name, shape in header["arrays"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(
            "a state's header is malformed: use the same version of flwr-dpkmeans."
        ) from error
    if most_movements is not None and n_movements > most_movements:
        raise ProtocolError(
            f"a state has {n_movements} movements, but there are {most_movements}"
            " rounds at most: message discarded."
        )
    sizes = [n_movements, *map(math.prod, shapes.values())]
    if len(data) != 8 * sum(sizes) or not {*map(len, shapes.values())} <= {1, 2}:
        raise ProtocolError(
            "a state's arrays do not have the sizes that its header says: message"
            " discarded."
        )
    values: Any = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not bool(np.all(np.isfinite(values))):
        raise ProtocolError(
            "a state has values that are not finite: message discarded."
        )
    movements, *parts = np.split(values, np.cumsum(sizes)[:-1])
    arrays = {
        name: part.reshape(shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
    return State(arrays, tuple(movements.tolist())).frozen()


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 2**31:
        raise ValueError(f"{value!r} is no size")
    return value


Labels = NDArray[np.int64]


@dataclass(frozen=True)
class PrivateSum:
    """One round: what clients sum, how it is protected, and what follows from the
    released sum.

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
    statistic: Callable[[Array, State], Sequence[Array]]
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
    labelled: Callable[[Array, State, Labels], Sequence[Array]] | None = None
    """``labelled(points, state, labels) -> arrays``.

    The statistic of rows with labels, where the round has one.
    """

    in_blocks: bool = False
    """Whether the statistic, of its points and labels, takes nothing but shape and
    slices: one of a table beyond memory has each block of it at a time. At record level
    it is then a sum over rows, so that blocks may be summed elsewhere. Others get an
    array.
    """
    unrounded: (
        tuple[Callable[[Array, State], Sequence[Array]], Callable[[Array], Array]]
        | None
    ) = None
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
    ) -> Sequence[Array]:
        """Return one client's arrays.

        Its labels, (n_points,), and the columns of a profile that stand `beside` its
        points, are looked at where the round has a use for them.
        """
        if not self.in_blocks:
            points, labels = (
                np.asarray(points),
                None if labels is None else np.asarray(labels),
            )
        elif self.profiles and beside is not None:
            points = (
                np.hstack([points, beside])
                if isinstance(points, np.ndarray)
                else points.beside(beside)
            )
        if self.labelled is None or labels is None:
            return self.statistic(points, state)
        return self.labelled(points, state, labels)


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
