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
        """Score each row; of rows that are shorter or longer than those that were
        learnt from, what both have.
        """
        n = min(len(self.weights), vectors.shape[1])
        return np.asarray((vectors[:, :n] - self.centre[:n]) @ self.weights[:n])


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
    >>> absent = np.hstack([noise, noise])  # The same noise twice: the difference has none.
    >>> direction = learn_direction(absent, absent + np.array([1.0, 0.0]))
    >>> bool(direction.scores(absent).max() < direction.scores(absent + np.array([1.0, 0.0])).min())
    True
    """
    means = absent.mean(axis=0), present.mean(axis=0)
    centred = np.concatenate([absent - means[0], present - means[1]])
    scale = np.sqrt(np.square(centred).mean(axis=0))
    scale = np.where(scale > 0.0, scale, 1.0)
    covariance = (centred / scale).T @ (centred / scale) / len(centred)
    covariance += _RIDGE * np.eye(len(scale))
    weights = np.linalg.solve(covariance, (means[1] - means[0]) / scale) / scale
    return Direction(0.5 * (means[0] + means[1]), weights)
