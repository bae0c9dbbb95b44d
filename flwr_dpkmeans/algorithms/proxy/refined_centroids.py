"""What a refinement makes of its release: deviations, and clusters without rows."""

from __future__ import annotations

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
    """How far the new centres may be from the means of the rows that they label, (k,
    d), on the grid.

    `of_steps` is what noise leaves unsure, `mean_squares`, (k,), are those of the
    clipped residuals.
    """
    moved = moved_labels(before, after, mean_squares / before.shape[1])
    return on_grid(of_steps, cut, moved)


def without_empty_clusters(
    setting: Setting,
    centroids: Array,
    average: Array,
    radii: Array,
    noise: float,
    total: float,
    mean_squares: Array,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Centroids that likely have no rows, each beside the one that costs most.

    With the average counts that go with it.

    `noise` is that of the average counts, `total` the sum of all squared residuals;
    both halves get the radius.
    """
    n, least = setting.public.n_units, setting.options.least_count
    if n < least * noise * len(centroids):
        # An average cluster is not to be told from none.
        return centroids, average
    (likely, missing), average = (
        expected_rows(average, noise, n),
        average.copy(),
    )
    # Noise far below an average cluster hardly made the proxies believe in rows: what
    # looks empty is few rows far away.
    missing *= noise * len(centroids) > setting.options.unsure_noise * n
    while split := split_largest(
        centroids,
        likely,
        missing,
        mean_squares,
        total,
        generator,
    ):
        centroids, empty, largest = split
        missing[[empty, largest]] = 0.0
        for counts in (likely, average):
            counts[[empty, largest]] = counts[largest] / 2.0
        for of_whole in (radii, mean_squares):
            of_whole[empty] = of_whole[largest]
    return round_to_grid(truncate(centroids)), average
