"""Steps of centroids: posterior means, and their deviations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import as_column, as_floats, squared_lengths

_TAUS = as_floats(2.0 ** np.arange(-20, 3))
"""Variances of a step, in variances of the data along an axis.

From a thousandth to four.
"""


@dataclass(frozen=True, eq=False, repr=False)
class StepPosterior:
    """What noisy relative sums say of every centroid's step.

    ``proxy_lloyd.md``, shrunk steps, has the model.
    """

    sums: FloatArray
    """(k, d)."""
    counts: FloatArray
    """Likely ones, (k,)."""
    sums_noise: float | FloatArray
    """Standard deviation of all sums, or of each."""
    counts_noise: float
    gains: FloatArray
    """Factors that turn sums into posterior means, by tau, (n_taus, k)."""
    weights: FloatArray
    """Of each tau, (n_taus, 1), by what all sums show."""
    gain: FloatArray
    """Over all taus, (k,)."""

    @classmethod
    def of(
        cls,
        sums: FloatArray,
        counts: FloatArray,
        *,
        sums_noise: float | FloatArray,
        counts_noise: float,
        axis_variance: float,
        least_tau: float,
    ) -> StepPosterior:
        """Weigh each tau by all clusters' sums.

        Counts are at least 1, as those of `likely_counts`. `axis_variance` is the
        model's v, and tau is at least `least_tau`, which is large in early rounds, when
        centroids still have far to go.
        """
        n_features = sums.shape[1]
        least = min(least_tau, _TAUS[-1])
        taus = _TAUS[least <= _TAUS]
        step_variances = as_column(taus) * axis_variance
        # Of a sum's entry, (n_taus, k).
        variances = counts**2 * step_variances + sums_noise**2
        gains = step_variances * counts / variances
        scores = squared_lengths(sums) / variances
        log_densities = n_features * np.log(variances) + scores
        evidence = np.log(taus) - 0.5 * log_densities.sum(axis=1)
        weights = np.exp(evidence - evidence.max())
        weighted = as_column(weights) * gains
        gain = weighted.sum(axis=0) / weights.sum()
        return cls(
            sums,
            counts,
            sums_noise,
            counts_noise,
            gains,
            as_column(weights),
            gain,
        )

    def means(self, radius: float | FloatArray) -> FloatArray:
        """Posterior mean of every step, (k, d), at most `radius` long."""
        steps = self.sums * as_column(self.gain)
        return clip_steps(steps, radius)

    def deviations(self) -> FloatArray:
        """Posterior standard deviation of every step, (k, d): what noise leaves unsure.

        Under each tau it is a formula; steps differ between taus, and with the noise of
        the count, to first order.
        """
        gain = self.gain
        counts = self.counts
        differences = np.square(self.gains - gain)
        weighted = self.weights * differences
        scatter = weighted.sum(axis=0) / self.weights.sum()
        of_noise = gain * np.square(self.sums_noise) / counts
        of_counts = gain * self.counts_noise / counts
        of_steps = scatter + np.square(of_counts)
        by_sums = as_column(of_steps) * np.square(self.sums)
        variances = as_column(of_noise) + by_sums
        return np.asarray(np.sqrt(variances))
