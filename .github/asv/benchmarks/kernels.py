"""Passes over the rows, on one thread."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.assignment import nearest_labels
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics, relative_statistics
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.outer_products import outer_product_triangle
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.threads import one_thread

N_ROWS, N_COLUMNS, N_CLUSTERS = 100_000, 20, 20
RADIUS = 0.5


class RowKernels:
    """100,000 rows in 20 dimensions and 20 clusters."""

    def setup(self) -> None:
        """Draw rows and centres on the grid."""
        generator = np.random.default_rng(0)
        shapes = ((N_ROWS, N_COLUMNS), (N_CLUSTERS, N_COLUMNS))
        drawn = [generator.uniform(-1.0, 1.0, shape) for shape in shapes]
        self.rows, self.centers = map(round_to_grid, drawn)
        self.labels = nearest_labels(self.rows, self.centers)

    def time_nearest_labels(self) -> None:
        """Assign each row to its nearest centre."""
        with one_thread():
            nearest_labels(self.rows, self.centers)

    def time_absolute_statistics(self) -> None:
        """Sum and count the rows of each cluster."""
        with one_thread():
            absolute_statistics(self.rows, self.centers)

    def time_relative_statistics(self) -> None:
        """Sum what is near its centroid, as FastLloyd does."""
        with one_thread():
            relative_statistics(self.rows, self.centers, RADIUS)

    def time_residual_sums(self) -> None:
        """Sum clipped residuals, as ProxyLloyd does."""
        with one_thread():
            residual_sums(self.rows, self.labels, self.centers, RADIUS, N_CLUSTERS)

    def time_outer_products(self) -> None:
        """Sum the rows' outer products, as FedDP-KMeans does."""
        with one_thread():
            outer_product_triangle(self.rows)
