"""Centres that are clear of the noise, and how far they are from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.released_counts import faint_clusters

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

Array = NDArray[np.float64]
Cautions = tuple[str, ...]
"""Sentences that speak against a result."""
Radius = float | Array | None
"""What residuals were divided by, of all clusters or of each; see `centre_noise`.
"""


def clear_clusters(model: Model) -> NDArray[np.int64]:
    """Indices of the clusters that are not mostly noise."""
    counts = model.counts
    faint = faint_clusters(counts, model.privacy)
    n_clusters = len(counts)
    clusters = np.arange(n_clusters)
    return np.delete(clusters, list(faint))


def distances_to_others(centres: Array) -> Array:
    """Distance of each centre, (k, d), to each other one, (k, k).

    Infinite to itself.
    """
    differences = centres[:, None] - centres
    distances: Array = np.linalg.norm(differences, axis=2)
    np.fill_diagonal(distances, np.inf)
    return distances
