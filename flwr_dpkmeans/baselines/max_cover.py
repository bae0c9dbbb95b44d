"""Central differentially private k-means by max cover (Nguyen, Chaturvedi and Xu 2021, AAAI), as a baseline.

What differs from the paper, and why:

* Grid points cover cubes, not balls (``grid_cover``): simple and fast, at the price of a factor sqrt(m) in the radius.
* Radii double from the finest grid to the coarsest, and each grid gets n_clusters selections: constants that the
  paper leaves open.
* The price of the selections is a sharper theorem with a proof of its own (``selection``), and their sampling is exact.
* All noise but that of the selections is Gaussian, so that it composes exactly; small clusters fall back to the overall
  average instead of a random point (``noisy_average``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines._inputs import FloatArray, require_count, require_enough, require_points, run_kmeans
from flwr_dpkmeans.baselines.cover_budget import CoverBudget, ReleaseLine, draft_budget
from flwr_dpkmeans.baselines.grid_cover import cover_centres
from flwr_dpkmeans.baselines.noisy_average import add_gaussian_noise, noisy_averages
from flwr_dpkmeans.baselines.projection import clip_to_ball, default_components, project_to_box
from flwr_dpkmeans.baselines.selection import LARGEST_NUMBER_OF_CANDIDATES, CoverageSampler, byte_source
from flwr_dpkmeans.errors import ConfigurationError, LocalMisuseError, require_positive
from flwr_dpkmeans.kmeans import nearest_centroids, round_to_grid
from flwr_dpkmeans.privacy.events import Event
from flwr_dpkmeans.privacy.noise import NoiseSource

_RESTARTS = 10
_SMALLEST_RADIUS = 2.0**-10  # points live on multiples of 2^-16


@dataclass(frozen=True, eq=False)
class MaxCoverResult:
    """What max cover releases.

    Parameters
    ----------
    centroids : array of shape (n_clusters, n_features)
        In [-1, 1], on the 2^-16 grid.
    counts : array of shape (n_clusters,)
        Noisy numbers of points in the clusters before the last Lloyd step; may be negative.
    events : tuple of Event
        For `flwr_dpkmeans.privacy.accounting.compose_epsilon`.
    lines : tuple of ReleaseLine
        Name, sensitivity, noise scale and theorem of each release.
    """

    centroids: FloatArray
    counts: FloatArray
    events: tuple[Event, ...]
    lines: tuple[ReleaseLine, ...]


def max_cover(
    points: npt.ArrayLike,
    n_clusters: int,
    *,
    epsilon: float,
    delta: float,
    source: NoiseSource,
    generator: np.random.Generator,
    data_radius: float | None = None,
    n_examples: int | None = None,
    n_components: int | None = None,
    n_levels: int = 7,
) -> MaxCoverResult:
    """Cluster points in one place by private max cover, noisy averages, and one private Lloyd step.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        Scaled to [-1, 1]; clipped to it.
    n_clusters : int
        Number of centroids, at least 1.
    epsilon, delta : float
        The total under the add-or-remove-one-record relation.
    source : NoiseSource
        Noise. With a private one the selections draw from the operating system's entropy, too.
    generator : numpy.random.Generator
        The random projection and the starts of k-means, which protect nothing; and the selections beside a seeded
        source.
    data_radius : float, optional
        Points are clipped to the ball of this public radius around the origin; default the box's, sqrt(n_features).
    n_examples : int, optional
        The number of records, which is public; default the number of points, thereby declared public.
    n_components : int, optional
        Dimensions of the projection, from 1 to n_features; default about ``log(n_examples) / 2``.
    n_levels : int
        Number of grids; the finest has spacing ``2^-(n_levels - 1)`` in the projected box [-1, 1]^n_components.

    Returns
    -------
    MaxCoverResult
        Its events cost at most `epsilon` at `delta`.

    Raises
    ------
    ConfigurationError
        If a count is out of its range, or the grids have more than 2^62 points.
    DataError
        If the points are not a finite table or fewer than clusters.
    LocalMisuseError
        If `epsilon`, `delta`, `data_radius` or `generator` is out of its range.
    PlanError
        If the budget is too small.

    Notes
    -----
    Every label and every cell is a function of one record and of earlier releases, to the last bit; so are clipped
    points, all on the 2^-16 grid, and their sums are exact. Sensitivities therefore hold without slack. The time is
    some ``n_points 2^n_components`` operations per level.

    References
    ----------
    Nguyen, Chaturvedi and Xu 2021, "Differentially private k-means via exponential mechanism and max cover".

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.noise import SeededNoise
    >>> generator = np.random.default_rng(0)
    >>> points = np.repeat([[-0.75], [0.5]], 5000, axis=0)
    >>> result = max_cover(points, 2, epsilon=1.0, delta=1e-6, source=SeededNoise(generator), generator=generator)
    >>> np.sort(result.centroids[:, 0]).round(1).tolist()
    [-0.8, 0.5]
    """
    n_clusters, table = require_count("n_clusters", n_clusters), require_points(points)
    n_examples = len(table) if n_examples is None else require_count("n_examples", n_examples)
    require_enough(n_examples, n_clusters)
    n_features = table.shape[1]
    n_components = _require_components(n_components, n_examples, n_features)
    n_levels = _require_levels(n_levels, n_components)
    if not isinstance(generator, np.random.Generator):
        raise LocalMisuseError(
            f"generator is of type {type(generator).__name__!r}, but it must be a numpy Generator: "
            "give numpy.random.default_rng(seed)."
        )
    radius = math.nextafter(math.sqrt(n_features), math.inf)
    if data_radius is not None:
        radius = min(radius, _require_radius(data_radius))
    budget = draft_budget(
        epsilon, delta, radius=radius, n_clusters=n_clusters, n_features=n_features, n_levels=n_levels
    )
    clipped = clip_to_ball(table, radius)
    projected = project_to_box(clipped, radius, n_components, generator)
    sampler = CoverageSampler(budget.rate, byte_source(source, generator))
    cover = cover_centres(projected, n_clusters, n_levels, sampler)
    proxies = _proxy_centres(projected, cover, n_clusters, budget, source, generator)
    return _average_twice(clipped, projected, proxies, budget, source)


def _average_twice(
    points: FloatArray, projected: FloatArray, proxies: FloatArray, budget: CoverBudget, source: NoiseSource
) -> MaxCoverResult:
    """Average the clusters of the projected centres, then those of the averages."""
    n_clusters, stds = len(proxies), budget.stds
    averages = noisy_averages(
        points,
        nearest_centroids(projected, proxies)[0],
        previous=None,
        n_clusters=n_clusters,
        sum_std=stds["average sums"],
        count_std=stds["average counts"],
        source=source,
    )
    final = noisy_averages(
        points,
        nearest_centroids(points, averages.centroids)[0],
        previous=averages.centroids,
        n_clusters=n_clusters,
        sum_std=stds["Lloyd sums"],
        count_std=stds["Lloyd counts"],
        source=source,
    )
    return MaxCoverResult(final.centroids, final.counts, budget.events, budget.lines)


def _proxy_centres(
    projected: FloatArray,
    cover: FloatArray,
    n_clusters: int,
    budget: CoverBudget,
    source: NoiseSource,
    generator: np.random.Generator,
) -> FloatArray:
    """Cluster the cover's centres, weighted by noisy counts of the points nearest to each.

    One record changes one count by 1. Counts of at most two standard deviations are dropped. Fewer centres than
    clusters are filled up by uniform points.
    """
    labels, _ = nearest_centroids(projected, cover)
    counts = np.bincount(labels, minlength=len(cover)).astype(np.float64)
    std = budget.stds["cover counts"]
    weights = add_gaussian_noise(counts, std, source)
    kept = weights > 2.0 * std
    n_found = min(n_clusters, int(kept.sum()))
    filling = generator.uniform(-1.0, 1.0, (n_clusters - n_found, cover.shape[1]))
    if n_found:
        seed = int(generator.integers(2**31))
        found = run_kmeans(cover[kept], n_found, n_init=_RESTARTS, random_state=seed, weights=weights[kept])
        filling = np.concatenate([found, filling])
    return round_to_grid(np.clip(filling, -1.0, 1.0))


def _require_radius(data_radius: float) -> float:
    """Return the radius of the ball to clip to, or raise if the points' grid is too coarse for it."""
    radius = require_positive("data_radius", data_radius)
    if radius < _SMALLEST_RADIUS:
        raise ConfigurationError(
            f"data_radius is {radius}, but it must be at least {_SMALLEST_RADIUS} in a box of half-width 1: "
            "give tighter bounds to scale the points by."
        )
    return radius


def _require_components(n_components: int | None, n_examples: int, n_features: int) -> int:
    """Return the number of dimensions of the projection."""
    if n_components is None:
        return default_components(n_examples, n_features)
    number = require_count("n_components", n_components)
    if number > n_features:
        raise ConfigurationError(
            f"n_components is {number}, but it must be at most the number of features, {n_features}: "
            "give a smaller one or leave it out."
        )
    return number


def _require_levels(n_levels: int, n_components: int) -> int:
    """Return the number of grids, or raise if the finest has too many points."""
    number = require_count("n_levels", n_levels)
    # Compared by logarithms first: a huge number of levels would take all memory.
    if number * n_components > 62 or (2**number + 1) ** n_components > LARGEST_NUMBER_OF_CANDIDATES:
        raise ConfigurationError(
            f"n_levels is {number}, but (2^n_levels + 1)^{n_components} must be at most 2^62: "
            "give a smaller n_levels or n_components."
        )
    return number
