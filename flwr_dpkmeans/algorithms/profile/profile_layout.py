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
        widths = settings.profile_widths
        if not widths:
            widths = (0, 0)
        n_numbers, n_flags, *values = widths
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
        first_category = self.n_numbers + self.n_flags
        categories = first_category + self.category_of
        return np.concatenate([flags, categories])

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
        n_rows, width = block.shape
        first_gap = width - len(self.gaps)
        is_present = block[:, first_gap:] > 0.0
        counted = is_present.astype(np.float64)
        profiled = np.ones((n_rows, self.n_columns))
        for gap, column in self.profiled_gaps:
            profiled[:, column] = counted[:, gap]
        return counted, profiled

    def cells(self, block: Array) -> Array:
        """Each row's flags less one half, and its shares of a category's values.

        A row's shares of one category add up to at most 1.
        """
        first_value = self.n_numbers + self.n_flags
        end = first_value + sum(self.values)
        flags = block[:, self.n_numbers : first_value] / 2.0
        shares = (block[:, first_value:end] + 1.0) / 2.0
        category = self.category_of
        labels = category.astype(np.int32)
        totals = label_sums.sum_by_label(shares.T, labels, len(self.values)).T
        divisors = np.maximum(1.0, totals)
        shares = shares / divisors[:, category]
        return grid.toward_zero(np.hstack([flags, shares]))
