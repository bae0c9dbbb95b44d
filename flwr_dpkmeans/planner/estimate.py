"""What follows from a plan's noise alone: noise on a centroid, the smallest cluster that survives, the largest k."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions
from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.planner.request import DEFAULT_SPREAD, PlanningRequest
from flwr_dpkmeans.privacy.report import COUNT_DEVIATIONS, EVALUATION_ROUND
from flwr_dpkmeans.sums.plan import Plan

MEAN_SQUARED_COORDINATE = 1.0 / 3.0
"""Of a centroid that is anywhere in [-1, 1] alike: what noise on a count does to an absolute mean."""
MOST_CLUSTERS = 1_000
"""Largest k that is looked at."""


@dataclass(frozen=True)
class CentroidNoise:
    """The noise of the last release that carries centroids.

    Parameters
    ----------
    sums_std, counts_std : float
        Standard deviation on one entry of the sums and of the counts, in scaled units.
    relative : bool
        Whether sums are relative to the centroid; of absolute ones the count's noise moves the mean as well.
    """

    sums_std: float
    counts_std: float
    relative: bool

    @property
    def total_std(self) -> float:
        """Standard deviation of a centroid's coordinate times the size of its cluster, in scaled units."""
        if self.relative:
            return self.sums_std
        return math.hypot(self.sums_std, self.counts_std * math.sqrt(MEAN_SQUARED_COORDINATE))

    def per_coordinate(self, units: float) -> float:
        """Standard deviation of a coordinate of the centroid of a cluster of so many rows (or clients), to first order.

        Examples
        --------
        >>> CentroidNoise(30.0, 4.0, relative=True).per_coordinate(100)
        0.3
        """
        return self.total_std / units

    def smallest_cluster(self, spread: float) -> int:
        """Rows (or clients) from which a cluster survives.

        Its centroid's noise is then at most the spread of its own rows in each coordinate, and its count is three
        deviations of the count's noise above zero.

        Parameters
        ----------
        spread : float
            Standard deviation of its rows in each coordinate, in scaled units.

        Returns
        -------
        int

        Examples
        --------
        >>> CentroidNoise(30.0, 4.0, relative=True).smallest_cluster(0.2)
        150
        >>> CentroidNoise(0.3, 40.0, relative=True).smallest_cluster(0.2)
        120
        """
        # The tolerance keeps a quotient that is whole from being rounded up by its last digit.
        return max(1, math.ceil(max(self.total_std / spread, COUNT_DEVIATIONS * self.counts_std) * (1.0 - 1e-12)))


def centroid_noise(plan: Plan, spread: float = DEFAULT_SPREAD) -> CentroidNoise | None:
    """Find the last release of sums and counts per cluster in a final plan.

    Parameters
    ----------
    plan : Plan
        Final.
    spread : float
        Standard deviation of a cluster's rows in each coordinate, in scaled units: residuals that are released in
        radii, as ProxyLloyd's are, are taken to have the radius that this leads to.

    Returns
    -------
    CentroidNoise or None
        None if no round releases a (k, d) and a (k,) array together.
    """
    k, d = plan.config.n_clusters, plan.n_features
    for planned in reversed([planned for planned in plan.rounds if planned.name != EVALUATION_ROUND]):
        sums = [block for block in planned.blocks if block.shape == (k, d)]
        counts = [block for block in planned.blocks if block.shape == (k,)]
        if sums and counts:
            in_radii = sums[0].name == "residual_sums"
            unit = ProxyOptions().residual_width * spread * math.sqrt(plan.n_features or 1) if in_radii else 1.0
            return CentroidNoise(
                plan.released_std(planned, sums[0]) * unit,
                plan.released_std(planned, counts[0]),
                in_radii or sums[0].name.startswith("relative"),
            )
    return None


def noise_in_units(plan: Plan, per_coordinate: float) -> tuple[float, ...]:
    """A scaled standard deviation in the caller's units: one number, or one per feature if their bounds differ.

    With private bounds their width is unknown, so it stays a fraction of half of what they will be.
    """
    if plan.config.private_bounds:
        return (per_coordinate,)
    lower, upper = plan.config.bounds
    widths = [0.5 * (high - low) * per_coordinate for low, high in zip(lower, upper, strict=True)]
    return (widths[0],) if len(set(widths)) == 1 else tuple(widths)


def largest_n_clusters(request: PlanningRequest, algorithm: str) -> int:
    """Largest k at which a cluster of half the average size still survives; 0 if not even one cluster does.

    Parameters
    ----------
    request : PlanningRequest
    algorithm : str

    Returns
    -------
    int
        At most 1,000, and found by bisection.
    """
    low, high = 0, min(MOST_CLUSTERS, request.n_examples)
    while low < high:
        middle = (low + high + 1) // 2
        if half_survives(request, algorithm, middle):
            low = middle
        else:
            high = middle - 1
    return low


def half_survives(request: PlanningRequest, algorithm: str, n_clusters: int) -> bool:
    """Whether a cluster of half the average size survives with k clusters; one that has no plan does not."""
    try:
        noise = centroid_noise(request.draft(algorithm, n_clusters=n_clusters), request.spread)
    except LocalMisuseError:
        return False
    return noise is not None and 0.5 * request.units_per_cluster(n_clusters) >= noise.smallest_cluster(request.spread)
