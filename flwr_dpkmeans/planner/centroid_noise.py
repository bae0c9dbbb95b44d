"""How far the noise of a plan's last release moves centroids."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.sums.plan import Plan

MEAN_SQUARED_COORDINATE = 1.0 / 3.0
"""Of a centroid that is anywhere in [-1, 1] alike.

What noise on a count does to an absolute mean.
"""


@dataclass(frozen=True)
class CentroidNoise:
    """The noise of the last release that carries centroids.

    Deviations of one entry of sums and counts, scaled units.

    Of sums that are not relative to the centroid the count's noise moves the mean as
    well.
    """

    sums_std: float
    counts_std: float
    relative: bool

    @property
    def total_std(self) -> float:
        """Standard deviation of a centroid's coordinate times the size of its cluster.

        In scaled units.
        """
        if self.relative:
            return self.sums_std
        return math.hypot(
            self.sums_std, self.counts_std * math.sqrt(MEAN_SQUARED_COORDINATE)
        )

    def per_coordinate(self, units: float) -> float:
        """Deviation of a centroid's coordinate, to first order.

        For a cluster of so many rows (or clients).
        """
        return self.total_std / units

    def smallest_cluster(self, spread: float) -> int:
        """Rows (or clients) from which a cluster survives.

        Its centroid's noise is then at most the spread (standard deviation) of its own
        rows in each coordinate, and its count is three deviations of the count's noise
        above zero.
        """
        # The tolerance keeps a quotient that is whole from being rounded up by its last
        # digit.
        return max(
            1,
            math.ceil(
                max(self.total_std / spread, COUNT_DEVIATIONS * self.counts_std)
                * (1.0 - 1e-12)
            ),
        )


def centroid_noise(
    plan: Plan, spread: float = PlanningRequest.spread
) -> CentroidNoise | None:
    """Noise of a final plan's last release of sums and counts per cluster.

    None if no round releases both.

    Residuals that are released in radii, as ProxyLloyd's are, are taken to have the
    radius that the spread of a cluster's rows leads to.
    """
    k, d = plan.config.n_clusters, plan.n_features
    for planned in reversed(
        [planned for planned in plan.rounds if planned.name not in CLOSING_ROUNDS]
    ):
        sums = [block for block in planned.blocks if block.shape == (k, d)]
        counts = [block for block in planned.blocks if block.shape == (k,)]
        if sums and counts:
            in_radii = sums[0].name == "residual_sums"
            unit = spread * math.sqrt(plan.n_features or 1) if in_radii else 1.0
            return CentroidNoise(
                plan.released_std(planned, sums[0]) * unit,
                plan.released_std(planned, counts[0]),
                in_radii or sums[0].name.startswith("relative"),
            )
    return None


def noise_in_units(plan: Plan, per_coordinate: float) -> tuple[float, ...]:
    """A scaled standard deviation in the caller's units.

    One number, or one per feature if their bounds differ.

    With private bounds their width is unknown, so it stays a fraction of half of what
    they will be.
    """
    if plan.config.private_bounds:
        return (per_coordinate,)
    lower, upper = plan.config.bounds
    widths = [
        0.5 * (high - low) * per_coordinate
        for low, high in zip(lower, upper, strict=True)
    ]
    return (widths[0],) if len(set(widths)) == 1 else tuple(widths)
