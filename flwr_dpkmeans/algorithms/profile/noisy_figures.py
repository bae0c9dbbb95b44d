"""Figures with their errors, from noisy sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flwr_dpkmeans.algorithms.profile.profile_layout import (
    PROFILE_ARRAYS,
    Flags,
    Indices,
    ProfileLayout,
)
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Array, State

Estimates = tuple[Array, Array, Flags]
"""Some figures, (1 + k, n) each, the deviations of their noise, and whether they are
clear of it.
"""


@dataclass(frozen=True)
class NoisyCells:
    """Released sums, (1 + k, n): of all clusters first, then of each.

    And the deviation of the noise in each.
    """

    values: Array = field(repr=False)
    std: Array = field(repr=False)

    @property
    def at_least_noise(self) -> Array:
        """The values, or their noise where that is larger: what may be divided by."""
        return np.maximum(self.values, self.std)

    @property
    def is_clear(self) -> Flags:
        """Whether counts are told from noise."""
        return self.values >= COUNT_DEVIATIONS * self.std

    def columns(self, index: Indices) -> NoisyCells:
        """Some of the columns."""
        return NoisyCells(self.values[:, index], self.std[:, index])


@dataclass(frozen=True)
class ReleasedProfile:
    """What the round released of all clusters, and of each."""

    layout: ProfileLayout
    counts: NoisyCells
    """(1 + k, 1)."""
    sums: NoisyCells
    squares: NoisyCells
    cells: NoisyCells
    halves: NoisyCells
    """Of each column whose gaps are counted.

    Half of the cells that are there, less half of those that are not.
    """

    @classmethod
    def of(
        cls,
        plan: Plan,
        planned: PlannedRound,
        state: State,
    ) -> ReleasedProfile:
        """Read the released arrays and their noise off a plan and a state."""
        # Where the run chose k, other rows hold noise alone.
        k = len(state.centroids)
        std = {
            block.name: plan.released_std(planned, block) for block in planned.blocks
        }
        # The sum over clusters has the noise of all of them.
        factors = np.sqrt(np.array([k, *[1] * k]))[:, None]
        arrays = list[NoisyCells]()
        for name in PROFILE_ARRAYS:
            by_cluster = (
                state[name][:k].reshape(k, -1) if name in std else np.zeros((k, 0))
            )
            values = np.vstack([by_cluster.sum(axis=0), by_cluster])
            arrays.append(
                NoisyCells(
                    values, np.broadcast_to(std.get(name, 0.0) * factors, values.shape)
                )
            )
        return cls(ProfileLayout.of(plan.settings), *arrays)

    @property
    def present(self) -> NoisyCells:
        """How many cells of each profiled column are there.

        All of the rows' where its gaps are not counted.
        """
        values = np.repeat(self.counts.values, self.layout.n_columns, axis=1)
        std = np.repeat(self.counts.std, self.layout.n_columns, axis=1)
        for gap, column in self.layout.profiled_gaps:
            values[:, column] = (
                self.halves.values[:, gap] + self.counts.values[:, 0] / 2.0
            )
            std[:, column] = np.hypot(
                self.halves.std[:, gap], self.counts.std[:, 0] / 2.0
            )
        return NoisyCells(values, std)

    def estimates(self, schema: Schema) -> list[Estimates]:
        """Means, then spreads of numbers, then shares, then which shares of cells are
        missing.
        """
        return [*self._moments(schema), self._shares(), self._missing()]

    def _moments(self, schema: Schema) -> list[Estimates]:
        n = self.layout.n_numbers
        present = self.present.columns(np.arange(n))
        cells = present.at_least_noise
        mean, square = self.sums.values / cells, self.squares.values / cells
        of_mean = np.hypot(self.sums.std, mean * present.std) / cells
        # Of a variance at most: had it been 0, so that no luck of the noise makes it
        # look clear.
        of_square = np.hypot(self.squares.std, 2.0 * mean * self.sums.std)
        of_variance = np.hypot(of_square, (mean**2 + 0.5) * present.std) / cells
        # The square of a noisy mean is too large by the variance of its noise.
        variance = square + 0.5 - mean**2 + of_mean**2
        of_spread = of_variance / (2.0 * np.sqrt(np.maximum(variance, of_variance)))
        low, high = (
            np.array([column.range for column in schema.profiled[:n]]).reshape(n, 2).T
        )
        half = (high - low) / 2.0
        sized = present.is_clear & self.counts.is_clear
        means = low + half * (1.0 + np.clip(mean, -1.0, 1.0))
        spreads = half * np.sqrt(np.clip(variance, 0.0, 1.0))
        mean_is_clear = sized & (COUNT_DEVIATIONS * of_mean < 1.0)
        spread_is_clear = sized & (variance > COUNT_DEVIATIONS * of_variance)
        return [
            (means, half * of_mean, mean_is_clear),
            (spreads, half * of_spread, spread_is_clear),
        ]

    def _shares(self) -> Estimates:
        present = self.present.columns(self.layout.column_of_cells)
        share = self.cells.values / present.at_least_noise
        deviation = (
            np.hypot(self.cells.std, share * present.std) / present.at_least_noise
        )
        is_flag = np.arange(share.shape[1]) < self.layout.n_flags
        share = np.clip(share + np.where(is_flag, 0.5, 0.0), 0.0, 1.0)
        sized = present.is_clear & self.counts.is_clear
        return share, deviation, sized & (share > COUNT_DEVIATIONS * deviation)

    def _missing(self) -> Estimates:
        rows = self.counts.at_least_noise
        above_half = self.halves.values / rows
        deviation = np.hypot(self.halves.std, above_half * self.counts.std) / rows
        missing = np.clip(0.5 - above_half, 0.0, 1.0)
        return (
            missing,
            deviation,
            self.counts.is_clear & (missing > COUNT_DEVIATIONS * deviation),
        )
