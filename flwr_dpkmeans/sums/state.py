"""The state that an algorithm carries from round to round, and how it is written down."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ProtocolError

Array = NDArray[np.float64]

_GRID = 2.0**16
_LONGEST_HEADER = 10_000


@dataclass(frozen=True)
class ClusterState:
    """What is known to whoever may see the released sums: centroids and what came with them.

    Parameters
    ----------
    centroids : ndarray, (n_clusters, n_features)
        On the grid, in the box [-1, 1]^d; zeros before an algorithm has found any.
    counts : ndarray, (n_clusters,)
        Noisy counts of the last release; NaN-free zeros before the first.
    movements : tuple of float
        Largest step of a centroid in each iteration so far.
    extras : mapping of str to ndarray
        What an algorithm's own steps carry on, such as a projection; on the grid, of one or two dimensions.
    """

    centroids: Array = field(repr=False)
    counts: Array = field(repr=False)
    movements: tuple[float, ...] = field(default=(), repr=False)
    extras: Mapping[str, Array] = field(default_factory=dict, repr=False)

    def digest(self) -> bytes:
        """SHA-256 of the grid values, equal on all machines whose states are equal."""
        parts = [self.centroids.ravel(), self.counts.ravel()]
        shapes: list[int] = list(self.centroids.shape)
        names = sorted(self.extras)
        for name in names:
            parts.append(self.extras[name].ravel())
            shapes += [self.extras[name].ndim, *self.extras[name].shape]
        grid = np.rint(np.concatenate(parts) * _GRID).astype("<i8")
        named = "\0".join(names).encode()
        return hashlib.sha256(np.asarray(shapes, dtype="<i8").tobytes() + named + grid.tobytes()).digest()

    def view(self, names: Collection[str]) -> ClusterState:
        """Return the state with only the named extras: what one round's statistic reads."""
        return replace(self, extras={name: array for name, array in self.extras.items() if name in names})

    def frozen(self) -> ClusterState:
        """Return the state with read-only arrays, for sharing."""
        for array in (self.centroids, self.counts, *self.extras.values()):
            array.flags.writeable = False
        return replace(self, extras=MappingProxyType(dict(self.extras)))


def pack_state(state: ClusterState) -> bytes:
    """Write a state as one blob: a JSON line with names and shapes, then little-endian doubles.

    Examples
    --------
    >>> state = ClusterState(np.zeros((2, 3)), np.ones(2), (0.5,), {"projection": np.eye(3, 2)})
    >>> again = unpack_state(pack_state(state))
    >>> again.digest() == state.digest(), again.movements
    (True, (0.5,))
    """
    header = {
        "centroids": list(state.centroids.shape),
        "movements": len(state.movements),
        "extras": {name: list(array.shape) for name, array in state.extras.items()},
    }
    arrays = [state.centroids, state.counts, np.asarray(state.movements, dtype=np.float64), *state.extras.values()]
    values = np.concatenate([np.ravel(array) for array in arrays]).astype("<f8")
    return json.dumps(header).encode() + b"\n" + values.tobytes()


@lru_cache(maxsize=4)
def unpack_state(blob: bytes, most_movements: int | None = None) -> ClusterState:
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
        k, d = (_size(value) for value in header["centroids"])
        n_movements = _size(header["movements"])
        shapes = {str(name): tuple(_size(value) for value in shape) for name, shape in header["extras"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError("a state's header is malformed: use the same version of flwr-dpkmeans.") from error
    if most_movements is not None and n_movements > most_movements:
        raise ProtocolError(
            f"a state has {n_movements} movements, but there are {most_movements} rounds at most: message discarded."
        )
    sizes = [k * d, k, n_movements, *(math.prod(shape) for shape in shapes.values())]
    if len(data) != 8 * sum(sizes) or any(len(shape) not in (1, 2) for shape in shapes.values()):
        raise ProtocolError("a state's arrays do not have the sizes that its header says: message discarded.")
    values: Any = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not bool(np.all(np.isfinite(values))):
        raise ProtocolError("a state has values that are not finite: message discarded.")
    parts = np.split(values, np.cumsum(sizes)[:-1])
    extras = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts[3:], strict=True)}
    movements = tuple(float(step) for step in parts[2])
    return ClusterState(parts[0].reshape(k, d), parts[1], movements, extras).frozen()


def _size(value: object) -> int:
    """A length in a header."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 2**31:
        raise ValueError(f"{value!r} is no size")
    return value
