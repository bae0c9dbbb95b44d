"""Membership scores: what an adversary makes of the released centroids and sums.

Large means "the target is in".

==============  ===================  ================================================
attack          sees                 score
==============  ===================  ================================================
``nearest``     final centroids      minus the distance of the target to the nearest
``average``     all centroids        the same for the mean of all iterates, whose
                                     noise averages out
``movement``    all centroids        steps of the nearest centroid, projected on the
                                     direction to the target
``projection``  all released sums    inner product with what the target would have
                                     added, over the noise
``shadow``      final centroids      likelihood ratio of two Gaussians, fitted to runs
                                     with and without it
``exact``       all released sums,   the likelihood ratio itself: nothing can do
                all other rows       better
==============  ===================  ================================================

``shadow`` is the likelihood-ratio attack of Carlini et al. 2022 ("Membership inference
attacks from first principles") with centroids in place of losses: the adversary runs
the algorithm itself on rows of the same kind. ``projection`` is the attack on noisy
gradients of Nasr et al. 2023, and Andrew et al. 2024 on federated learning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.sums.plan import Plan
from simulations.audit.attack_games import Played, contribution

Array = NDArray[np.float64]

DIRECT = ("nearest", "average", "movement", "projection", "exact")
"""Scores of one run by itself."""
ATTACKS = ("nearest", "average", "movement", "projection", "shadow", "exact")
_RIDGE = 1e-6
_TAIL = 0.05


def direct_scores(
    plan: Plan,
    played: Played,
    target: Array,
    *,
    present: bool,
) -> Array:
    """Score one run by the attacks that need no other runs.

    Parameters
    ----------
    plan : Plan
        Of the run.
    played : Played
        What was released.
    target : ndarray, (d,)
    present : bool
        The truth, which only serves to find the exact sum of the other rows.

    Returns
    -------
    ndarray, (5,)
        In the order of `DIRECT`.
    """
    projection = exact = 0.0
    for release in played.rounds:
        added = contribution(plan, release, target)
        others = release.exact - added if present else release.exact
        noise = release.released - others
        weighted = added / release.scales**2
        projection += float(weighted @ release.released)
        exact += float(weighted @ (noise - 0.5 * added))
    final = played.iterates[-1]
    average = final
    if len(played.iterates) > 1:
        # The first iterate may be the public start, which says nothing.
        average = played.iterates[1:].mean(axis=0)
    return np.array(
        [
            -_distance(final, target),
            -_distance(average, target),
            _movement(played.iterates, target),
            projection,
            exact,
        ]
    )


def shadow_features(played: Played, target: Array) -> Array:
    """The final centroid that is nearest to the target, and its distance.

    All others hardly know of it.
    """
    final = played.iterates[-1]
    distances = np.linalg.norm(final - target, axis=1)
    nearest = int(np.argmin(distances))
    return np.append(final[nearest], distances[nearest])


@dataclass(frozen=True)
class GaussianRatio:
    """Log likelihood ratio of two Gaussians with one covariance.

    Parameters
    ----------
    middle, weights : ndarray, (p,)
        Halfway between the means; what a step of a feature adds to the ratio.
    """

    middle: Array = field(repr=False)
    weights: Array = field(repr=False)

    def scores(self, features: Array) -> Array:
        """Score each row of features, (n, p)."""
        return np.asarray((features - self.middle) @ self.weights)


def fit_ratio(absent: Array, present: Array) -> GaussianRatio:
    """Fit the shadow attack.

    One covariance for both kinds: one target hardly changes it, and the tails of two
    fitted ones would decide.

    Parameters
    ----------
    absent, present : ndarray, (n, p)
        Features of shadow runs.

    Returns
    -------
    GaussianRatio

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(2000, 1))
    >>> ratio = fit_ratio(noise[:1000], noise[1000:] + 2.0)
    >>> ratio.scores(np.array([[0.0], [1.0], [2.0]])).round().tolist()
    [-2.0, 0.0, 2.0]
    """
    # A centroid with hardly a row can be anywhere: without rare values the fit is that
    # of the others.
    every = np.concatenate([absent, present])
    low, high = np.quantile(every, (_TAIL, 1.0 - _TAIL), axis=0)
    absent = np.clip(absent, low, high)
    present = np.clip(present, low, high)
    mean_absent = absent.mean(axis=0)
    mean_present = present.mean(axis=0)
    centred = np.concatenate([absent - mean_absent, present - mean_present])
    covariance = centred.T @ centred / len(centred)
    # Centroids that never move have no variance; a small one keeps the ratio finite.
    ridge = _RIDGE * (1.0 + np.trace(covariance))
    covariance += ridge * np.eye(len(covariance))
    weights = np.linalg.solve(covariance, mean_present - mean_absent)
    return GaussianRatio(0.5 * (mean_absent + mean_present), weights)


def _distance(centroids: Array, target: Array) -> float:
    """To the nearest centroid."""
    return float(np.linalg.norm(centroids - target, axis=1).min())


def _movement(iterates: Array, target: Array) -> float:
    """Steps towards the target of whichever centroid is nearest to it."""
    total = 0.0
    for before, after in pairwise(iterates):
        offsets = target - before
        distances = np.linalg.norm(offsets, axis=1)
        nearest = int(np.argmin(distances))
        distance = distances[nearest]
        if distance > 0.0:
            step = after[nearest] - before[nearest]
            total += float(step @ offsets[nearest] / distance)
    return total
