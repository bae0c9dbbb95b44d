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
        """What may be divided by: the values, or their noise where that is larger."""
        return np.maximum(self.values, self.std)

    @property
    def is_clear(self) -> Flags:
        """Whether counts are told from noise."""
        return self.values >= COUNT_DEVIATIONS * self.std

    def over(self, counts: NoisyCells) -> NoisyCells:
        """Quotients by counts, and the deviations of their noise, to first order."""
        divisors = counts.at_least_noise
        quotients = self.values / divisors
        of_counts = quotients * counts.std
        of_both = np.hypot(self.std, of_counts)
        deviations = of_both / divisors
        return NoisyCells(quotients, deviations)

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
        deviations = {
            block.name: plan.released_std(planned, block) for block in planned.blocks
        }
        # The sum over clusters has the noise of all of them.
        n_summed = np.ones((1 + k, 1))
        n_summed[0] = k
        factors = np.sqrt(n_summed)
        arrays = list[NoisyCells]()
        for name in PROFILE_ARRAYS:
            by_cluster = np.zeros((k, 0))
            if name in deviations:
                by_cluster = state[name][:k].reshape(k, -1)
            of_all = by_cluster.sum(axis=0)
            values = np.vstack([of_all, by_cluster])
            deviation = deviations.get(name, 0.0) * factors
            cells = NoisyCells(values, np.broadcast_to(deviation, values.shape))
            arrays.append(cells)
        layout = ProfileLayout.of(plan.settings)
        return cls(layout, *arrays)

    @property
    def present(self) -> NoisyCells:
        """How many cells of each profiled column are there.

        All of the rows' where its gaps are not counted.
        """
        counts = self.counts
        halves = self.halves
        n_columns = self.layout.n_columns
        values = np.repeat(counts.values, n_columns, axis=1)
        std = np.repeat(counts.std, n_columns, axis=1)
        n_rows = counts.values[:, 0]
        rows_noise = counts.std[:, 0]
        half_of_rows = n_rows / 2.0
        half_of_noise = rows_noise / 2.0
        for gap, column in self.layout.profiled_gaps:
            values[:, column] = halves.values[:, gap] + half_of_rows
            std[:, column] = np.hypot(halves.std[:, gap], half_of_noise)
        return NoisyCells(values, std)

    def estimates(self, schema: Schema) -> list[Estimates]:
        """Means and spreads of numbers, then shares, then what is missing of cells."""
        return [*self._moments(schema), self._shares(), self._missing()]

    def _moments(self, schema: Schema) -> list[Estimates]:
        n = self.layout.n_numbers
        numbers = np.arange(n)
        present = self.present.columns(numbers)
        cells = present.at_least_noise
        of_sums = self.sums.over(present)
        mean = of_sums.values
        of_mean = of_sums.std
        mean_square = mean**2
        # Of a variance at most: had it been 0, so that no luck of the noise makes it
        # look clear.
        square_of_mean = 2.0 * mean * self.sums.std
        of_square = np.hypot(self.squares.std, square_of_mean)
        largest_square = mean_square + 0.5
        square_of_counts = largest_square * present.std
        of_both = np.hypot(of_square, square_of_counts)
        of_variance = of_both / cells
        # Squares were summed less one half.
        square = self.squares.values / cells
        whole_square = square + 0.5
        # The square of a noisy mean is too large by the variance of its noise.
        too_large = of_mean**2
        variance = whole_square - mean_square + too_large
        at_least_noise = np.maximum(variance, of_variance)
        spread = np.sqrt(at_least_noise)
        twice_spread = 2.0 * spread
        of_spread = of_variance / twice_spread
        columns = schema.profiled[:n]
        ranges = [column.range for column in columns]
        low, high = np.array(ranges).reshape(n, 2).T
        width = high - low
        half = width / 2.0
        sized = present.is_clear & self.counts.is_clear
        mean_in_box = np.clip(mean, -1.0, 1.0)
        variance_in_box = np.clip(variance, 0.0, 1.0)
        above_low = half * (1.0 + mean_in_box)
        mean_in_units = low + above_low
        spread_in_units = half * np.sqrt(variance_in_box)
        mean_is_clear = COUNT_DEVIATIONS * of_mean < 1.0
        spread_is_clear = variance > COUNT_DEVIATIONS * of_variance
        means = (
            mean_in_units,
            half * of_mean,
            sized & mean_is_clear,
        )
        spreads = (
            spread_in_units,
            half * of_spread,
            sized & spread_is_clear,
        )
        return [means, spreads]

    def _shares(self) -> Estimates:
        present = self.present.columns(self.layout.column_of_cells)
        shares = self.cells.over(present)
        deviation = shares.std
        n_shares = deviation.shape[1]
        is_flag = np.arange(n_shares) < self.layout.n_flags
        # Flags were summed less one half.
        taken_off = np.where(is_flag, 0.5, 0.0)
        whole = shares.values + taken_off
        share = np.clip(whole, 0.0, 1.0)
        sized = present.is_clear & self.counts.is_clear
        is_clear = share > COUNT_DEVIATIONS * deviation
        return share, deviation, sized & is_clear

    def _missing(self) -> Estimates:
        counts = self.counts
        above_half = self.halves.over(counts)
        deviation = above_half.std
        below_half = 0.5 - above_half.values
        missing = np.clip(below_half, 0.0, 1.0)
        is_clear = missing > COUNT_DEVIATIONS * deviation
        return missing, deviation, counts.is_clear & is_clear
