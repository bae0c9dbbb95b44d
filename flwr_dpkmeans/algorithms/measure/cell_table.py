"""Classes by cluster, and indices of agreement that follow from their counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.measure.measured import Measured
from flwr_dpkmeans.sums.round import Array


@dataclass(frozen=True, repr=False)
class CellTable:
    """The released cells, and what sums are divided by.

    Noise is followed to first order.
    """

    cells: Array
    cell_noise: float
    units: Measured
    units_are_cells: bool
    """Whether the units are the table's own total, so that the noise of both goes
    together.
    """
    left_out: float
    """Part of the units that sat out by coins of their own.

    Sums are over the others, each adding 0 to 1.
    """

    def per_unit(
        self,
        total: float,
        noise: float,
        covariance: float = 0.0,
    ) -> Measured:
        """Divide a noisy sum by the units; `covariance` is of the noise in both.

        Sampling adds its largest variance.
        """
        value = total / self.units.value
        variance = noise**2 + (value * self.units.noise) ** 2 - 2.0 * value * covariance
        share = min(1.0, max(0.0, value))
        sampling = self.left_out * share * (1.0 - share) * self.units.value
        return Measured(
            value, math.sqrt(max(0.0, variance) + sampling) / self.units.value
        )

    def share(self, chosen: Sequence[tuple[int, int]]) -> Measured:
        """Rows in the chosen cells over all rows."""
        variance = len(chosen) * self.cell_noise**2
        total = math.fsum(float(self.cells[cell]) for cell in chosen)
        return self.per_unit(
            total, math.sqrt(variance), variance if self.units_are_cells else 0.0
        )

    def noise_of(
        self,
        noise: float,
        sums: Array,
    ) -> float:
        """Noise on each of some sums over sampled clients, at most.

        One adds 1 - p times its part of the sum.
        """
        return math.sqrt(noise**2 + self.left_out * max(0.0, float(sums.max())))
