"""Clip bounds of clients, from the server's points dealt out to simulated ones."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.budget.count_norms import count_order
from flwr_dpkmeans.kernels import outer_products, projected_sums
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.label_sums import counts_of_each
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
        generator.integers(0, len(points), size) for _ in range(SIMULATED_CLIENTS)
    ]

    def quantile(vectors: Array, order: int = 2) -> float:
        return float(
            np.quantile(
                [np.linalg.norm(vector.ravel(), order) for vector in vectors],
                CLIENT_STATISTIC_QUANTILE,
            )
        )

    rows = clipped[np.concatenate(samples)]
    sizes = np.full(SIMULATED_CLIENTS, size)
    sums, counts = sums_and_counts(
        rows,
        nearest_projected(rows, None, centers),
        config.n_clusters,
        sizes,
    )
    means, _ = projected_sums.means_and_indicators(sums, counts)
    nearest_points = nearest_projected(rows, None, points)
    return {
        "data_radius": radius,
        "outer_product_bound": quantile(
            outer_products.outer_products_of_each(rows, sizes)
        ),
        "weights_bound": quantile(
            counts_of_each(nearest_points, len(points), sizes), order
        ),
        "means_bound": quantile(means),
        "indicators_bound": float(min(config.n_clusters, size)) ** (1.0 / order),
        "sums_bound": quantile(sums),
        "counts_bound": quantile(counts, order),
    }
