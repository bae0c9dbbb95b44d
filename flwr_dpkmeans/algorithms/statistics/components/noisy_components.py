"""Eigenvalues and directions of a noisy covariance, and how far noise moves them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.statistics.noise_errors import Z
from flwr_dpkmeans.kmeans.eigenvectors import with_positive_peaks
from flwr_dpkmeans.sums.round import Array


@dataclass(frozen=True, repr=False)
class NoisyComponents:
    """Principal components of ``scales * (covariance + noise) * scales``.

    The noise is symmetric with independent entries of one deviation on the diagonal and
    a root of 2 less beside it, so that it looks the same from all directions before it
    is scaled.
    """

    covariance: Array
    """(d, d): with noise, of columns in the box."""
    noise: float
    """Standard deviation of its diagonal entries' noise."""
    scales: Array
    """(d,): what columns are multiplied by."""

    @property
    def scaled(self) -> Array:
        """The covariance of the scaled columns, (d, d)."""
        scales = self.scales
        outer = np.outer(scales, scales)
        scaled: Array = self.covariance * outer
        return scaled

    @property
    def floor(self) -> float:
        """What the largest eigenvalue of noise alone stays below.

        For equal scales the semicircle's edge (Wigner), else that of the column with
        the most noise (Bandeira and van Handel 2016), and two deviations.
        """
        largest = float(self.scales.max())
        together = float(np.linalg.norm(self.scales))
        edge = math.sqrt(2.0) * largest * together
        deviations = 2.0 * largest**2
        return self.noise * (edge + deviations)

    def pairs(self) -> tuple[Array, Array]:
        """Eigenvalues, falling, and eigenvectors in columns, their peaks positive."""
        values, vectors = np.linalg.eigh(self.scaled)
        falling = vectors[:, ::-1]
        turned = with_positive_peaks(falling)
        return values[::-1].copy(), turned

    def read(self) -> ReadComponents:
        """What is known of each component."""
        values, vectors = self.pairs()
        n_known = self._n_above(values)
        order = np.arange(len(values))
        is_known = order < n_known
        along = self._along(vectors)
        shifts, turns = _mixing(values, along)
        # Noise drives eigenvalues apart, as it cannot tell the order of close ones.
        nearer = values - shifts.sum(axis=1)
        variances = np.where(is_known, nearer, values)
        # Sums of squares of normal numbers, nearly always below this.
        squared_turns = np.square(turns)
        variance = 2.0 * squared_turns.sum(axis=1)
        spread = 2.0 * np.sqrt(variance)
        squares = turns.sum(axis=1) + spread
        is_settled = is_known & (squares < 1.0)
        sines = np.sqrt(np.minimum(squares, 1.0))
        angles = np.degrees(np.arcsin(sines))
        angles[n_known:] = 90.0
        sizes = np.abs(shifts).sum(axis=1)
        of_others = np.minimum(sizes, self.floor)
        beside = np.where(is_settled, of_others, self.floor)
        errors = Z * along + beside
        return ReadComponents(
            directions=vectors.T,
            variances=np.maximum(variances, 0.0),
            errors=errors,
            angles=angles,
            n_known=n_known,
        )

    def _along(self, vectors: Array) -> Array:
        """Standard deviation of the noise along each vector, (d,).

        In proportion to its squared length before it is scaled.
        """
        weights = np.square(self.scales)
        squares = np.square(vectors)
        lengths: Array = weights @ squares
        along: Array = self.noise * lengths
        return along

    def _n_above(self, values: Array) -> int:
        """How many of falling values stand out of the noise."""
        is_below = values <= self.floor
        below = np.flatnonzero(is_below)
        if not below.size:
            return len(values)
        return int(below[0])


def _mixing(values: Array, along: Array) -> tuple[Array, Array]:
    """What each eigenvector takes of each other one, to second order, (d, d).

    The shift of its eigenvalue, and the expected square of the sine of its turn.
    """
    between = np.outer(along, along) / 2.0
    column = values[:, None]
    gaps = column - values
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore"):
        shifts = between / gaps
        turns = shifts / gaps
    return shifts, turns


@dataclass(frozen=True, repr=False)
class ReadComponents:
    """Components in falling order of their variances."""

    directions: Array
    """(d, d): one in each row, of length 1."""
    variances: Array
    errors: Array
    """Half of a 95% interval of each variance, of noise alone."""
    angles: Array
    """Degrees by which noise turns each direction at most, in 95% of runs."""
    n_known: int
    """How many stand out of the noise; the others are unknown."""
