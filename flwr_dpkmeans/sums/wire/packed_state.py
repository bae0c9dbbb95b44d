"""A state as it travels, read as a hostile server may have written it."""

from __future__ import annotations

import json
import math
from functools import lru_cache

import numpy as np

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.sums.round import Array, State

_LONGEST_HEADER = 10_000
_LARGEST_SIZE = 2**31


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
    n_movements, shapes = _state_header(blob[:end])
    if most_movements is not None and n_movements > most_movements:
        raise ProtocolError(
            f"a state has {n_movements} movements, but there are {most_movements}"
            " rounds at most: message discarded."
        )
    sizes = [n_movements]
    dimensions = set()
    for shape in shapes.values():
        sizes.append(math.prod(shape))
        dimensions.add(len(shape))
    n_bytes = 8 * sum(sizes)
    if len(data) != n_bytes or not dimensions <= {1, 2}:
        raise ProtocolError(
            "a state's arrays do not have the sizes that its header says: message"
            " discarded."
        )
    doubles = np.frombuffer(data, dtype="<f8")
    values: Array = doubles.astype(np.float64)
    if not np.isfinite(values).all():
        raise ProtocolError(
            "a state has values that are not finite: message discarded."
        )
    ends = np.cumsum(sizes)
    movements, *parts = np.split(values, ends[:-1])
    arrays = {}
    for name, part in zip(shapes, parts, strict=True):
        arrays[name] = part.reshape(shapes[name])
    state = State(arrays, tuple(movements.tolist()))
    return state.frozen()


Shapes = dict[str, tuple[int, ...]]
"""Of arrays, by name."""


def _state_header(text: bytes) -> tuple[int, Shapes]:
    """Number of movements, and shapes by name, in a packed state's first line."""
    try:
        header = json.loads(text)
        n_movements = _size(header["movements"])
        shapes: Shapes = {}
        for name, sizes in header["arrays"].items():
            shapes[str(name)] = tuple(_size(size) for size in sizes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(
            "a state's header is malformed: use the same version of flwr-dpkmeans."
        ) from error
    return n_movements, shapes


def _size(value: object) -> int:
    """A size that came from elsewhere; what is none is a `ValueError`."""
    if type(value) is not int or not 0 <= value <= _LARGEST_SIZE:
        raise ValueError(f"{value!r} is no size")
    return value
