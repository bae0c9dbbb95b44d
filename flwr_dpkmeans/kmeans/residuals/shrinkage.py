"""Steps of centroids: posterior means, and their deviations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import as_column, as_floats, squared_lengths

_TAUS: FloatArray = 2.0 ** np.arange(-20, 3)
"""Variances of a step, in variances of the data along an axis.

From a thousandth to four.
"""


@dataclass(frozen=True, eq=False)
class StepPosterior:
    """What noisy relative sums, (k, d), say of every centroid's step.

    ``proxy_lloyd.md``, shrunk steps, has the model.
    """

    sums: FloatArray
    counts: FloatArray
    """Likely ones, (k,), at least 1: see `likely_counts`."""
    sums_noise: float | FloatArray
    """Standard deviation of all sums, or of each."""
    counts_noise: float
    axis_variance: float
    """v of the model."""
    least_tau: float
    """Large in early rounds, when centroids still have far to go."""

    def means(self, radius: float | FloatArray) -> FloatArray:
        """Posterior mean of every step, (k, d), at most `radius` long."""
        steps = self.sums * as_column(self._gain)
        return clip_steps(steps, radius)

    def deviations(self) -> FloatArray:
        """Posterior standard deviation of every step, (k, d): what noise leaves unsure.

        Under each tau it is a formula; steps differ between taus, and with the noise of
        the count, to first order.
        """
        gain = self._gain
        differences = np.square(self._gains - gain)
        weighted = as_column(self._weights) * differences
        scatter = weighted.sum(axis=0) / self._weights.sum()
        of_noise = gain * np.square(self.sums_noise) / self.counts
        of_counts = gain * self.counts_noise / self.counts
        of_steps = scatter + np.square(of_counts)
        by_sums = as_column(of_steps) * np.square(self.sums)
        variances = as_column(of_noise) + by_sums
        return np.asarray(np.sqrt(variances))

    @cached_property
    def _taus(self) -> FloatArray:
        least = min(self.least_tau, _TAUS[-1])
        return _TAUS[least <= _TAUS]

    @cached_property
    def _step_variances(self) -> FloatArray:
        """Of each tau, (n_taus, 1)."""
        return as_column(self._taus) * self.axis_variance

    @cached_property
    def _variances(self) -> FloatArray:
        """Of a sum's entry, (n_taus, k)."""
        return self.counts**2 * self._step_variances + self.sums_noise**2

    @cached_property
    def _gains(self) -> FloatArray:
        """Factors that turn sums into posterior means, (n_taus, k)."""
        return self._step_variances * self.counts / self._variances

    @cached_property
    def _weights(self) -> FloatArray:
        """Of each tau, (n_taus,), by what all sums show."""
        n_features = self.sums.shape[1]
        scores = squared_lengths(self.sums) / self._variances
        log_densities = n_features * np.log(self._variances) + scores
        evidence = np.log(self._taus) - 0.5 * log_densities.sum(axis=1)
        return as_floats(np.exp(evidence - evidence.max()))

    @cached_property
    def _gain(self) -> FloatArray:
        """Over all taus, (k,)."""
        weighted = as_column(self._weights) * self._gains
        return as_floats(weighted.sum(axis=0) / self._weights.sum())
