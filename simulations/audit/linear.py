"""Fisher's linear discriminant: a linear score that is learnt from runs of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_RIDGE = 1e-6
"""Of the mean variance: noise that cancels exactly leaves a direction without any."""


@dataclass(frozen=True)
class Direction:
    """A linear score.

    Parameters
    ----------
    centre, weights : ndarray, (n_features,)
    """

    centre: Array = field(repr=False)
    weights: Array = field(repr=False)

    def scores(self, vectors: Array) -> Array:
        """Score each row of (n, n_features).

        Of rows that are shorter or longer than those that were learnt from, what both
        have counts.
        """
        n_shared = min(len(self.weights), vectors.shape[1])
        offsets = vectors[:, :n_shared] - self.centre[:n_shared]
        return np.asarray(offsets @ self.weights[:n_shared])


def learn_direction(absent: Array, present: Array) -> Direction:
    """Fisher's linear discriminant with a small ridge.

    Parameters
    ----------
    absent, present : ndarray, (n, n_features)
        Training runs of both kinds.

    Returns
    -------
    Direction

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(200, 1))
    >>> absent = np.hstack([noise, noise])  # the same twice: their difference has none
    >>> present = absent + np.array([1.0, 0.0])
    >>> direction = learn_direction(absent, present)
    >>> bool(direction.scores(absent).max() < direction.scores(present).min())
    True
    """
    mean_absent = absent.mean(axis=0)
    mean_present = present.mean(axis=0)
    centred = np.concatenate([absent - mean_absent, present - mean_present])
    deviations = np.sqrt(np.square(centred).mean(axis=0))
    scale = np.where(deviations > 0.0, deviations, 1.0)
    standardized = centred / scale
    covariance = standardized.T @ standardized / len(centred)
    covariance += _RIDGE * np.eye(len(scale))
    shift = (mean_present - mean_absent) / scale
    weights = np.linalg.solve(covariance, shift) / scale
    return Direction(0.5 * (mean_absent + mean_present), weights)
