"""Rows in the box [-1, 1]^d, on the grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.grid import FloatArray

_MOST_NUMBERS = 1 << 16
"""Of the sides, repeated for several rows: a row alone is too short to be fast."""


@dataclass(frozen=True, eq=False)
class GridBox:
    """A box of the data's units, cut into steps.

    Examples
    --------
    >>> box = GridBox(np.zeros(1), np.full(1, 10.0), fraction_bits=1)
    >>> box.to_grid([[0.0], [4.9], [6.3], [12.0]]).ravel().tolist()
    [-1.0, 0.0, 0.5, 1.0]
    """

    lower: FloatArray = field(repr=False)
    """(d,)."""
    upper: FloatArray = field(repr=False)
    """(d,), each above its lower one."""
    fraction_bits: int
    """A step is 2^-fraction_bits of half a side."""

    @property
    def half(self) -> float:
        """Steps in half a side."""
        return 2.0**self.fraction_bits

    @cached_property
    def step(self) -> FloatArray:
        """Width of a step in the data's units, (d,)."""
        n_steps = 2.0 * self.half
        return np.asarray((self.upper - self.lower) / n_steps)

    @cached_property
    def _inverse(self) -> FloatArray:
        """Steps in a unit of the data, nearly, (d,)."""
        with np.errstate(all="ignore"):
            return np.asarray(1.0 / self.step)

    @cached_property
    def _sides(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Lower, upper and step, (height, d), of as many rows as NumPy scales at once.

        One box serves all virtual clients of a process.
        """
        height = max(1, _MOST_NUMBERS // max(1, len(self.lower)))
        copies = (height, 1)
        return (
            np.tile(self.lower, copies),
            np.tile(self.upper, copies),
            np.tile(self.step, copies),
        )

    def to_grid(self, rows: npt.ArrayLike) -> FloatArray:
        """Clip rows (n, d) to the box, and round them to its steps, in units of it."""
        table = np.asarray(rows, np.float64)
        outcome = compiled.scaled_rows(
            table,
            self.lower,
            self.upper,
            self.step,
            self._inverse,
            self.half,
        )
        if outcome is not None:
            return outcome
        return self._by_numpy(table)

    def _by_numpy(self, table: FloatArray) -> FloatArray:
        """Scale as many rows at once as stay in the processor's cache."""
        lower, upper, step = self._sides
        in_steps = np.empty(table.shape)
        for first in range(0, len(table), len(lower)):
            rows = slice(first, first + len(lower))
            part = in_steps[rows]
            n_rows = len(part)
            np.maximum(table[rows], lower[:n_rows], out=part)
            np.minimum(part, upper[:n_rows], out=part)
            part -= lower[:n_rows]
            part /= step[:n_rows]
            part -= self.half
            np.rint(part, out=part)
            part *= 1.0 / self.half
            # Zeros have no sign, whoever rounds.
            part += 0.0
        return in_steps
