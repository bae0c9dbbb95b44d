"""The state that a task carries from round to round: named arrays, and how they are written down."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ProtocolError

Array = NDArray[np.float64]

_GRID = 2.0**16
_LONGEST_HEADER = 10_000
_RESULT = ("centroids", "counts")
"""What a clustering is read for, and every round of one may see."""


@dataclass(frozen=True)
class State:
    """What is known to whoever may see the released sums.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        By name, on the grid, of one or two dimensions.
    movements : tuple of float
        How far each iteration so far moved the result.
    """

    arrays: Mapping[str, Array] = field(repr=False)
    movements: tuple[float, ...] = field(default=(), repr=False)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    @property
    def centroids(self) -> Array:
        """Of a clustering: (n_clusters, n_features), zeros before it has found any."""
        return self.arrays["centroids"]

    @property
    def counts(self) -> Array:
        """Of a clustering: noisy counts of the last release, (n_clusters,); zeros before the first."""
        return self.arrays["counts"]

    @property
    def extras(self) -> Mapping[str, Array]:
        """What steps carry on besides, such as a projection."""
        return {name: array for name, array in self.arrays.items() if name not in _RESULT}

    def changed(self, **arrays: Array) -> State:
        """The same with other arrays under some names."""
        return replace(self, arrays={**self.arrays, **arrays})

    def digest(self) -> bytes:
        """SHA-256 of names, shapes and grid values, equal on all machines whose states are equal."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        """Computed once, since all virtual clients of one process may share a state."""
        names = sorted(self.arrays)
        shapes = [size for name in names for size in (self.arrays[name].ndim, *self.arrays[name].shape)]
        grid = [np.rint(self.arrays[name] * _GRID).astype("<i8").tobytes() for name in names]
        return hashlib.sha256(json.dumps([names, shapes]).encode() + b"\n" + b"".join(grid)).digest()

    def view(self, names: Collection[str]) -> State:
        """Return the state with only the named arrays, and the result so far: what one round's statistic reads."""
        return replace(self, arrays={name: a for name, a in self.arrays.items() if name in names or name in _RESULT})

    def frozen(self) -> State:
        """Return the state with read-only arrays, for sharing."""
        for array in self.arrays.values():
            array.flags.writeable = False
        return replace(self, arrays=MappingProxyType(dict(self.arrays)))


def pack_state(state: State) -> bytes:
    """Write a state as one blob: a JSON line with names and shapes, then little-endian doubles.

    Examples
    --------
    >>> state = State({"sums": np.zeros((2, 3)), "counts": np.ones(2)}, (0.5,))
    >>> again = unpack_state(pack_state(state))
    >>> again.digest() == state.digest(), again.movements
    (True, (0.5,))
    """
    shapes = {name: list(array.shape) for name, array in state.arrays.items()}
    header = {"movements": len(state.movements), "arrays": shapes}
    arrays = [np.asarray(state.movements, dtype=np.float64), *state.arrays.values()]
    values = np.concatenate([np.ravel(array) for array in arrays]).astype("<f8")
    return json.dumps(header).encode() + b"\n" + values.tobytes()


@lru_cache(maxsize=4)
def unpack_state(blob: bytes, most_movements: int | None = None) -> State:
    """Undo `pack_state`; anything else is a `ProtocolError`. The arrays are read-only, as they are shared.

    Movements become Python numbers, of which millions would take half a minute: from a peer, no more of them are read
    than the plan has rounds.
    """
    end = blob.find(b"\n", 0, _LONGEST_HEADER)
    if end < 0:
        raise ProtocolError("a state's header is missing or too long: use the same version of flwr-dpkmeans.")
    # Without a copy: the arrays may be large, and may be rubbish.
    data = memoryview(blob)[end + 1 :]
    try:
        header = json.loads(blob[:end])
        n_movements = _size(header["movements"])
        shapes = {str(name): tuple(map(_size, shape)) for name, shape in header["arrays"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError("a state's header is malformed: use the same version of flwr-dpkmeans.") from error
    if most_movements is not None and n_movements > most_movements:
        raise ProtocolError(
            f"a state has {n_movements} movements, but there are {most_movements} rounds at most: message discarded."
        )
    sizes = [n_movements, *(math.prod(shape) for shape in shapes.values())]
    if len(data) != 8 * sum(sizes) or any(len(shape) not in (1, 2) for shape in shapes.values()):
        raise ProtocolError("a state's arrays do not have the sizes that its header says: message discarded.")
    values: Any = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not bool(np.all(np.isfinite(values))):
        raise ProtocolError("a state has values that are not finite: message discarded.")
    movements, *parts = np.split(values, np.cumsum(sizes)[:-1])
    arrays = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    return State(arrays, tuple(movements.tolist())).frozen()


def _size(value: object) -> int:
    """A length in a header."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 2**31:
        raise ValueError(f"{value!r} is no size")
    return value
