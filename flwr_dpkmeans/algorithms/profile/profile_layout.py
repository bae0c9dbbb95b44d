"""Which entries of a profile's sums belong to which column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels import grid, label_sums
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Settings

Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
COUNTS = "group_counts"
SUMS = "group_sums"
SQUARES = "group_squares"
CELLS = "profile_cells"
PRESENT = "present_cells"
PROFILE_ARRAYS = COUNTS, SUMS, SQUARES, CELLS, PRESENT
"""Names of the released arrays, and of the extras that hold them in the state."""


@dataclass(frozen=True)
class ProfileLayout:
    """Which columns beside the points are what."""

    n_numbers: int
    n_flags: int
    values: tuple[int, ...]
    """Of each category, how many there are."""
    gaps: tuple[int, ...]
    """`Settings.gap_columns`."""

    @classmethod
    def of(cls, settings: Settings) -> ProfileLayout:
        """Read the layout off a run's settings."""
        n_numbers, n_flags, *values = settings.profile_widths or (0, 0)
        return cls(
            n_numbers,
            n_flags,
            tuple(values),
            settings.gap_columns,
        )

    @property
    def n_columns(self) -> int:
        """How many columns are profiled."""
        return self.n_numbers + self.n_flags + len(self.values)

    @property
    def category_of(self) -> Indices:
        """The category of each value's column."""
        return np.repeat(np.arange(len(self.values)), self.values)

    @property
    def column_of_cells(self) -> Indices:
        """For each column of `CELLS`, which of the profiled columns it is of."""
        flags = self.n_numbers + np.arange(self.n_flags)
        return np.concatenate([flags, self.n_numbers + self.n_flags + self.category_of])

    @property
    def profiled_gaps(self) -> list[tuple[int, int]]:
        """Of those `gaps` that are of profiled columns.

        Their own index, and that of the column.
        """
        return [(gap, column) for gap, column in enumerate(self.gaps) if column >= 0]

    def present(self, block: Array) -> tuple[Array, Array]:
        """Whether each cell is there, as 1 or 0.

        Of the columns whose gaps are counted, and of the profiled ones.
        """
        # By its sign alone: no row counts as more than there or missing.
        counted = (block[:, block.shape[1] - len(self.gaps) :] > 0.0).astype(np.float64)
        profiled = np.ones((len(block), self.n_columns))
        for gap, column in self.profiled_gaps:
            profiled[:, column] = counted[:, gap]
        return counted, profiled

    def cells(self, block: Array) -> Array:
        """Each row's flags less one half, and its shares of a category's values, which
        add up to at most 1.
        """
        first, last = (
            self.n_numbers + self.n_flags,
            self.n_numbers + self.n_flags + sum(self.values),
        )
        flags, shares = (
            block[:, self.n_numbers : first] / 2.0,
            (block[:, first:last] + 1.0) / 2.0,
        )
        category = self.category_of
        totals = label_sums.sum_by_label(
            shares.T, category.astype(np.int32), len(self.values)
        ).T
        return grid.toward_zero(
            np.hstack([flags, shares / np.maximum(1.0, totals)[:, category]])
        )
