"""Google's private clustering by locality-sensitive hashing (Chang and Kamath 2021),
central: an own short version.

Rows are split by the signs of random projections as long as noisy counts are large, and
the noisy average of each leaf is one weighted point of a k-means. As in Google's
library, counts get Laplace noise on each of 21 levels and sums Gaussian noise,
calibrated together by the accountant of privacy loss distributions; unlike there the
number of rows is public, as in the comparison of the PE-means paper. Noise is NumPy's:
for experiments only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.baselines.pooled import run_kmeans
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier

Array = NDArray[np.float64]

_DEPTH = 20
_COUNT_NOISE = 20.0
"""Scale of the counts' Laplace noise over the noise multiplier of the sums."""
_LOW_NOISE = 10.0
"""Rows of a leaf over sqrt(d) noise multipliers, from which on noise moves its average
by a tenth of the radius.
"""
_BRANCHING = 3
_RESTARTS = 10


def lsh_clustering(
    points: Array,
    n_clusters: int,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    generator: np.random.Generator,
) -> Array:
    """Cluster rows, (n, d), of a ball around the origin.

    The (n_clusters, d) centroids are (epsilon, delta)-private.

    Rows outside the ball of `radius` are pulled into it. Fewer leaves than clusters
    give repeated centroids.
    """
    multiplier = noise_multiplier(epsilon, delta)
    n, d = points.shape
    inside = (
        points
        * np.minimum(1.0, radius / np.maximum(np.linalg.norm(points, axis=1), 1e-300))[
            :, None
        ]
    )
    least = max(
        1, min(int(_LOW_NOISE * math.sqrt(d) * multiplier), n // (2 * n_clusters))
    )
    hashes = generator.standard_normal((_DEPTH, d))
    centres, weights = [], []
    for leaf, count in _leaves(
        inside, n, 0, hashes, least, _COUNT_NOISE * multiplier, generator
    ):
        noise = generator.normal(0.0, multiplier * radius, d)
        centres.append((leaf.sum(axis=0) + noise) / count)
        weights.append(count)
    leaves = np.array(centres)
    norms = np.maximum(np.linalg.norm(leaves, axis=1), 1e-300)
    leaves *= np.minimum(1.0, radius / norms)[:, None]
    n_copies = math.ceil(n_clusters / len(leaves))
    seed = int(generator.integers(2**31))
    return run_kmeans(
        np.tile(leaves, (n_copies, 1)),
        n_clusters,
        n_init=_RESTARTS,
        random_state=seed,
        weights=np.tile(np.array(weights, dtype=np.float64), n_copies),
    )


def _leaves(
    rows: Array,
    count: int,
    level: int,
    hashes: Array,
    least: int,
    scale: float,
    generator: np.random.Generator,
) -> Iterator[tuple[Array, int]]:
    """Rows and noisy count of each leaf below a node.

    Children with too small counts are dropped with their rows.
    """
    children = []
    if level < len(hashes) and count >= _BRANCHING * least:
        positive = rows @ hashes[level] >= 0.0
        for side in (rows[positive], rows[~positive]):
            noisy = len(side) + discrete_laplace(scale, generator)
            if noisy >= least:
                children.append((side, noisy))
    if not children:
        yield rows, max(1, count)
    for side, noisy in children:
        yield from _leaves(side, noisy, level + 1, hashes, least, scale, generator)


def discrete_laplace(scale: float, generator: np.random.Generator) -> int:
    """An integer with probability proportional to exp(-|x| / scale)."""
    success = -math.expm1(-1.0 / scale)
    first, second = generator.geometric(success, 2).tolist()
    return int(first - second)


@lru_cache(maxsize=64)
def noise_multiplier(epsilon: float, delta: float) -> float:
    """The least noise of sums, over their sensitivity, with which these and the counts
    of all levels cost epsilon.
    """
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def event(multiplier: float) -> dp_accounting.DpEvent:
        counts = dp_accounting.SelfComposedDpEvent(
            dp_accounting.LaplaceDpEvent(_COUNT_NOISE * multiplier), _DEPTH + 1
        )
        return dp_accounting.ComposedDpEvent(
            [dp_accounting.GaussianDpEvent(multiplier), counts]
        )

    alone = gaussian_noise_multiplier(epsilon, delta)
    bracket = dp_accounting.ExplicitBracketInterval(alone, 2.0 * alone)
    calibrated = dp_accounting.calibrate_dp_mechanism(
        PLDAccountant, event, epsilon, delta, bracket, tol=1e-3 * alone
    )
    return float(calibrated)
