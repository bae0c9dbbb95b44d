"""The hierarchy of released clusters: which of them are merged first.

Made of released centroids and counts alone, so it costs no privacy (post-processing).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import require_whole

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_LEAST_COUNT = 1e-9
"""Of a cluster that noise has left with none: it is merged first, and moves nothing."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Ward's hierarchy of clusters that count by their rows.

    At each step the two clusters are merged that add least to the sum of squared
    distances of rows from their centres (Ward 1963), in the fitted space.

    Examples
    --------
    >>> corners = np.array([[0.0, 0.0], [0.1, 0.0], [1.0, 1.0]])
    >>> hierarchy = Hierarchy(corners, counts=np.array([30.0, 10.0, 40.0]))
    >>> hierarchy.labels(2).tolist(), hierarchy.centres(2).tolist()
    ([0, 0, 1], [[0.025, 0.0], [1.0, 1.0]])
    """

    scaled: Array
    """(n_clusters, n_features): centroids in the fitted space."""
    counts: Array
    """(n_clusters,): released counts, with noise."""

    @cached_property
    def merges(self) -> Array:
        """(n_clusters - 1, 4), as SciPy writes a hierarchy (``linkage``).

        The numbers of the two clusters that are merged, the lower first, at which
        height, and of how many released clusters the new one consists; it has the next
        number. The height is the root of twice what the sum of squares grows by.
        ``scipy.cluster.hierarchy.dendrogram`` draws it.
        """
        n_clusters = len(self.scaled)
        centres = self.scaled.copy()
        counts = np.maximum(self.counts, _LEAST_COUNT)
        numbers = np.arange(n_clusters)
        sizes = np.ones(n_clusters)
        growth = _growth(centres, counts)
        merges = np.zeros((n_clusters - 1, 4))
        highest = 0.0
        for step in range(n_clusters - 1):
            pair = np.unravel_index(growth.argmin(), growth.shape)
            first, second = sorted(map(int, pair))
            # Heights rise, but for the last digits.
            height = float(np.sqrt(2.0 * growth[first, second]))
            highest = max(highest, height)
            both = sorted((numbers[first], numbers[second]))
            size = sizes[first] + sizes[second]
            merges[step] = (*both, highest, size)
            count = counts[first] + counts[second]
            share = counts[second] / count
            centres[first] += share * (centres[second] - centres[first])
            counts[first] = count
            sizes[first] = size
            numbers[first] = n_clusters + step
            growth[second, :] = np.inf
            growth[:, second] = np.inf
            is_left = np.isfinite(growth[first])
            of_first = _growth_with(centres, counts, first)
            growth[first, is_left] = of_first[is_left]
            growth[is_left, first] = of_first[is_left]
        return merges

    def labels(self, n_clusters: int) -> Labels:
        """Say in which of so many clusters each released one is, (n_released,).

        Numbered in the order of their first released cluster.
        """
        n_released = len(self.scaled)
        wanted = require_whole("n_clusters", n_clusters, 1, most=n_released)
        numbers = np.arange(2 * n_released - 1)
        for step in range(n_released - wanted):
            merged = self.merges[step, :2].astype(int)
            is_merged = np.isin(numbers, numbers[merged])
            numbers[is_merged] = n_released + step
        _, first, labels = np.unique(
            numbers[:n_released], return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return ranks[labels].astype(np.int64)

    def centres(self, n_clusters: int) -> Array:
        """Return the centres of so many clusters, (n_clusters, n_features)."""
        labels = self.labels(n_clusters)
        counts = np.maximum(self.counts, _LEAST_COUNT)
        centres = np.zeros((labels.max() + 1, self.scaled.shape[1]))
        np.add.at(centres, labels, counts[:, None] * self.scaled)
        totals = np.bincount(labels, counts)
        return centres / totals[:, None]

    def sizes(self, n_clusters: int) -> Array:
        """Return the released counts of so many clusters, (n_clusters,)."""
        return np.bincount(self.labels(n_clusters), self.counts)


def _growth(centres: Array, counts: Array) -> Array:
    """What the sum of squares grows by where two clusters are merged, (k, k)."""
    rows = [_growth_with(centres, counts, index) for index in range(len(centres))]
    growth = np.array(rows)
    np.fill_diagonal(growth, np.inf)
    return growth


def _growth_with(centres: Array, counts: Array, index: int) -> Array:
    """The same of one cluster with each other, (k,)."""
    differences = centres - centres[index]
    squares = np.square(differences).sum(axis=1)
    count = counts[index]
    return squares * (counts * count / (counts + count))
