"""What a run finds: at first, in the end, and how many rows it counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box


@dataclass(frozen=True)
class Discoveries:
    """What preliminary releases have told so far."""

    n_examples: int | None = None
    box: Box | None = None
    """Coarse ranges after the first histogram; the plan's box after the second."""
    unclear: tuple[int, ...] = ()
    """Columns in which nothing, or zeros alone, stood out of the noise."""

    def digest(self) -> bytes:
        """SHA-256 of the numbers, equal on all machines that found the same."""
        numbers = (self.n_examples, self.box)
        text = repr(numbers)
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True)
class Result:
    """What a run found, as people want it: arrays by name, ``result["mean"]``.

    In the units that the task says.

    >>> import numpy as np
    >>> Result({"mean": np.array([3.0])})["mean"]
    array([3.])
    """

    arrays: Mapping[str, Array] = field(repr=False)
    """In the units of the data where `Task.result` brings them there
    (`algorithms.server.box_units.plan_bounds`).
    """
    errors: Mapping[str, Array] = field(default_factory=dict, repr=False)
    """Of some arrays, how far noise may have moved each entry.

    Half of a 95% interval, in the entry's unit.
    """
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Of some arrays, what each axis counts.

    "column", "number" (a column of numbers), "cluster", "class", "category" or "bin".
    """

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def keys(self) -> KeysView[str]:
        """Names of the arrays."""
        return self.arrays.keys()


@dataclass(frozen=True)
class CountedRows:
    """How many rows a run's last counts add up to."""

    array: str
    """Name of the released array that they were taken from."""
    total: float
    n_added: float
    """How many times the variance of the noise in one of its entries the total has."""
    least_part: float = 1.0
    """Of all rows, the least part that takes part in the counts of a sound run."""
    others: str = ""
    """What else leaves rows out, as the end of a sentence after "unless"."""


COUNT = "count"
"""Name of the released number of rows."""
