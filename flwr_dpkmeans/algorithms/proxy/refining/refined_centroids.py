"""What a refinement makes of its release: deviations, and clusters without rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import on_grid
from flwr_dpkmeans.kmeans.centre_errors.moved_labels import moved_labels
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.split_clusters import split_largest
from flwr_dpkmeans.kmeans.proxies.weights import expected_rows
from flwr_dpkmeans.sums.round import Array


def centre_deviations(
    before: Array,
    after: Array,
    of_steps: Array,
    mean_squares: Array,
    cut: Array,
) -> Array:
    """How far new centres may be off the means of their rows, (k, d), on the grid.

    `of_steps` is what noise leaves unsure, `mean_squares`, (k,), are those of the
    clipped residuals.
    """
    moved = moved_labels(before, after, mean_squares / before.shape[1])
    return on_grid(of_steps, cut, moved)


@dataclass(frozen=True, repr=False)
class RefinedClusters:
    """What is estimated of k clusters after a step."""

    centroids: Array
    """(k, d), on the grid."""
    average_counts: Array
    """Averages of their noisy counts so far, (k,)."""
    radii: Array
    """That residuals are clipped to in the next refinement, (k,)."""
    mean_squares: Array
    """Of clipped residuals, (k,)."""
    total_square: float
    """Of all clipped residuals."""


def without_empty_clusters(
    setting: Setting,
    clusters: RefinedClusters,
    noise: float,
    generator: np.random.Generator,
) -> RefinedClusters:
    """Put each centroid that likely has no rows beside the one that costs most.

    `noise` is the standard deviation on the average counts. Both halves get half of the
    rows, and the radius and the mean square of the whole.
    """
    centroids = clusters.centroids
    n_clusters, n_rows = len(centroids), setting.public.n_units
    options = setting.options
    all_noise = noise * n_clusters
    if n_rows < options.least_count * noise * n_clusters:
        # An average cluster is not to be told from none.
        return clusters
    average_counts = clusters.average_counts.copy()
    radii = clusters.radii.copy()
    mean_squares = clusters.mean_squares.copy()
    likely, missing = expected_rows(average_counts, noise, n_rows)
    # Noise far below an average cluster hardly made the proxies believe in rows: what
    # looks empty is few rows far away.
    missing *= all_noise > options.unsure_noise * n_rows
    while split := split_largest(
        centroids,
        likely,
        missing,
        mean_squares,
        clusters.total_square,
        generator,
    ):
        centroids, empty, largest = split
        halves = [empty, largest]
        missing[halves] = 0.0
        likely[halves] = likely[largest] / 2.0
        average_counts[halves] = average_counts[largest] / 2.0
        radii[empty] = radii[largest]
        mean_squares[empty] = mean_squares[largest]
    return RefinedClusters(
        centroids=round_to_grid(truncate(centroids)),
        average_counts=average_counts,
        radii=radii,
        mean_squares=mean_squares,
        total_square=clusters.total_square,
    )
