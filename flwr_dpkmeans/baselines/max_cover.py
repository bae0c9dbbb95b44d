"""Central differentially private k-means by max cover.

Nguyen, Chaturvedi and Xu 2021 (AAAI), as a baseline.

What differs from the paper, and why:

* Grid points cover cubes, not balls (``selection``): simple and fast, at the price of a
  factor sqrt(m) in the radius.
* Radii double from 2^-6 to 1, and each grid gets n_clusters selections. Selections get
  .35 of epsilon; counts, averages and Lloyd rounds .05, .275 and .675 of the rest's
  square: constants that the paper leaves open.
* The scale after the projection is three deviations of the box; the paper's code
  divides by the largest exact norm.
* The price of the selections is a sharper theorem with a proof of its own
  (``selection``), and their sampling is exact.
* All noise but that of the selections is Gaussian, so that it composes exactly; small
  clusters fall back to the overall average instead of a random point
  (`noisy_averages`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.cover_budget import CoverBudget, draft_budget
from flwr_dpkmeans.baselines.cover_points import Draws, Table
from flwr_dpkmeans.baselines.noisy_averages import (
    MaxCoverResult,
    add_gaussian_noise,
    average_twice,
)
from flwr_dpkmeans.baselines.pooled import (
    FloatArray,
    run_kmeans,
)
from flwr_dpkmeans.baselines.selection import (
    LARGEST_NUMBER_OF_CANDIDATES,
    CoverageSampler,
    byte_source,
    cover_centres,
)
from flwr_dpkmeans.errors import (
    ConfigurationError,
)
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid

_RESTARTS = 10


def max_cover(
    points: npt.ArrayLike,
    n_clusters: int,
    *,
    epsilon: float,
    delta: float,
    draws: Draws,
    n_examples: int | None = None,
    n_components: int | None = None,
    n_levels: int = 7,
) -> MaxCoverResult:
    """Cluster points in one place by max cover and one private Lloyd step.

    Points are (n_points, n_features); averages are noisy.

    Points are scaled to [-1, 1], and clipped to it. The number of records,
    `n_examples`, is public; by default it is thereby declared public. Points are
    projected to `n_components` dimensions, by default about ``log(n_examples) / 2``;
    the finest of `n_levels` grids there has spacing 2^-(n_levels - 1). With a private
    source the selections draw from the operating system's entropy, too; else from the
    generator, which also draws the projection and the starts of k-means, which protect
    nothing. The result's events cost at most `epsilon` at `delta` under the
    add-or-remove-one-record relation.

    Every label and every cell is a function of one record and of earlier releases, to
    the last bit; so are clipped points, all on the 2^-16 grid, and their sums are
    exact. Sensitivities therefore hold without slack. The time is some ``n_points
    2^n_components`` operations per level.

    Source: Nguyen, Chaturvedi and Xu 2021, "Differentially private k-means via
    exponential mechanism and max cover".

    Examples
    --------
    >>> from flwr_dpkmeans.baselines.cover_points import Draws
    >>> from flwr_dpkmeans.privacy.noise import SeededNoise
    >>> generator = np.random.default_rng(0)
    >>> points = np.repeat([[-0.75], [0.5]], 5000, axis=0)
    >>> result = max_cover(
    ...     points,
    ...     2,
    ...     epsilon=1.0,
    ...     delta=1e-6,
    ...     draws=Draws(SeededNoise(generator), generator),
    ... )
    >>> np.sort(result.centroids[:, 0]).round(1).tolist()
    [-0.8, 0.5]
    """
    table = Table.of(
        points,
        n_clusters,
        n_examples,
        n_components,
        draws.generator,
    )
    if (2**n_levels + 1) ** table.n_components > LARGEST_NUMBER_OF_CANDIDATES:
        raise ConfigurationError(
            f"n_levels is {n_levels} and n_components {table.n_components}, but grids"
            " may have at most 2^62 points: choose fewer of either."
        )
    budget = draft_budget(
        epsilon,
        delta,
        radius=table.radius,
        n_clusters=n_clusters,
        n_features=table.points.shape[1],
        n_levels=n_levels,
    )
    clipped, projected = table.clipped_and_projected(draws.generator)
    sampler = CoverageSampler(budget.rate, byte_source(draws.source, draws.generator))
    cover = cover_centres(
        projected,
        n_clusters,
        n_levels,
        sampler,
    )
    proxies = _proxy_centres(
        projected,
        cover,
        n_clusters,
        budget,
        draws,
    )
    return average_twice(
        clipped,
        projected,
        proxies,
        budget.lines,
        draws.source,
    )


def _proxy_centres(
    projected: FloatArray,
    cover: FloatArray,
    n_clusters: int,
    budget: CoverBudget,
    draws: Draws,
) -> FloatArray:
    """Cluster the cover's centres by their weights.

    Weights are noisy counts of the points nearest to each.

    One record changes one count by 1. Counts of at most two standard deviations are
    dropped. Fewer centres than clusters are filled up by uniform points.
    """
    labels, _ = nearest_centroids(projected, cover)
    counts = np.bincount(labels, minlength=len(cover)).astype(np.float64)
    std = budget.stds["cover counts"]
    weights = add_gaussian_noise(counts, std, draws.source)
    is_clear = weights > 2.0 * std
    n_found = min(n_clusters, int(is_clear.sum()))
    filling = draws.generator.uniform(-1.0, 1.0, (n_clusters - n_found, cover.shape[1]))
    if n_found:
        seed = int(draws.generator.integers(2**31))
        centers = run_kmeans(
            cover[is_clear],
            n_found,
            n_init=_RESTARTS,
            random_state=seed,
            weights=weights[is_clear],
        )
        filling = np.concatenate([centers, filling])
    return round_to_grid(np.clip(filling, -1.0, 1.0))
