"""Clip bounds of clients, from the server's points dealt out to simulated ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.count_norms import count_order
from flwr_dpkmeans.kernels import outer_products, projected_sums
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.projected_sums import sums_and_counts
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import weighted_kmeans
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.threads import one_thread

CLIENT_STATISTIC_QUANTILE = 0.5
"""Of the simulated clients' norms."""
SIMULATED_CLIENTS = 200
_SIMULATION_SEED = 20_250_711


@one_thread()
def client_bounds_of(
    config: RunConfig,
    points: Array,
    radius: float,
) -> dict[str, float]:
    """Clip bounds, by name, that half of the simulated clients stay within.

    Each has as many of the points (n, d) as `examples_per_client` says, drawn with
    replacement, and clipped to `radius`.
    """
    generator = np.random.default_rng(_SIMULATION_SEED)
    clipped = clip_rows(points, radius)
    centers, _ = weighted_kmeans(
        clipped,
        np.ones(len(points)),
        config.n_clusters,
        n_init=3,
        seed=_SIMULATION_SEED,
    )
    size, order = config.settings.examples_per_client, count_order(config)
    samples = [
        clipped[generator.integers(0, len(points), size)]
        for _ in range(SIMULATED_CLIENTS)
    ]

    def quantile(
        vectors: Sequence[NDArray[np.float64] | NDArray[np.int64]], order: int = 2
    ) -> float:
        return float(
            np.quantile(
                [np.linalg.norm(vector.ravel(), order) for vector in vectors],
                CLIENT_STATISTIC_QUANTILE,
            )
        )

    client_sums = [
        sums_and_counts(
            sample, nearest_projected(sample, None, centers), config.n_clusters
        )
        for sample in samples
    ]
    return {
        "data_radius": radius,
        "outer_product_bound": quantile(
            [outer_products.outer_product_triangle(sample) for sample in samples]
        ),
        "weights_bound": quantile(
            [
                np.bincount(nearest_projected(sample, None, points))
                for sample in samples
            ],
            order,
        ),
        "means_bound": quantile(
            [
                projected_sums.means_and_indicators(sums, counts)[0]
                for sums, counts in client_sums
            ]
        ),
        "indicators_bound": float(min(config.n_clusters, size)) ** (1.0 / order),
        "sums_bound": quantile([sums for sums, _ in client_sums]),
        "counts_bound": quantile([counts for _, counts in client_sums], order),
    }
