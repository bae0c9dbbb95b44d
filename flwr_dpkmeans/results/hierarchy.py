"""The hierarchy of released clusters: which of them are merged first.

Made of released centroids and counts alone, so it costs no privacy (post-processing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import require_whole
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.vectors import as_column, as_floats
from flwr_dpkmeans.kmeans.public_points.elbow import elbow
from flwr_dpkmeans.results.whole_files import write_whole

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_MOST_STEPS = 100
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

    scaled: Array = field(repr=False)
    """(n_clusters, n_features): centroids in the fitted space."""
    counts: Array = field(repr=False)
    """(n_clusters,): released counts, with noise."""
    weight_unit: float = 1.0
    """What a row of a count is in sizes, where rows have weights."""

    @cached_property
    def merges(self) -> Array:
        """(n_clusters - 1, 4), as SciPy writes a hierarchy (``linkage``).

        The numbers of the two clusters that are merged, the lower first, at which
        height, and of how many released clusters the new one consists; it has the next
        number. The height is the root of twice what the sum of squares grows by.
        ``scipy.cluster.hierarchy.dendrogram`` draws it.
        """
        clusters = _Clusters(self.scaled, self.counts)
        n_merges = len(self.scaled) - 1
        merges = np.zeros((n_merges, 4))
        highest = 0.0
        for step in range(n_merges):
            first, second = clusters.nearest()
            height = clusters.height(first, second)
            # Heights rise, but for the last digits.
            highest = max(highest, height)
            lower, higher = clusters.numbers_of(first, second)
            size = clusters.merge(first, second)
            merges[step] = (
                lower,
                higher,
                highest,
                size,
            )
        return merges

    def labels(self, n_clusters: int) -> Labels:
        """Say in which of so many clusters each released one is, (n_released,).

        Numbered in the order of their first released cluster.
        """
        n_released = len(self.scaled)
        wanted = require_whole("n_clusters", n_clusters, 1, most=n_released)
        numbers = np.arange(n_released)
        n_merges = n_released - wanted
        pairs = self.merges[:n_merges, :2]
        for step, pair in enumerate(pairs):
            is_merged = np.isin(numbers, pair)
            numbers[is_merged] = n_released + step
        return _in_order(numbers)

    def centres(self, n_clusters: int) -> Array:
        """Return the centres of so many clusters, (n_clusters, n_features)."""
        return self._means(self.labels(n_clusters))

    def settled(self, n_clusters: int) -> tuple[Array, Labels]:
        """Centres after Lloyd steps from those of a cut, and where released ones are.

        A merge is never undone, so that a released cluster may lie nearer to another
        centre in the end: with it there, the centres cost less.

        Returns
        -------
        tuple of ndarray, (n_clusters, n_features) and (n_released,)
        """
        labels = self.labels(n_clusters)
        centres = self._means(labels)
        for _ in range(_MOST_STEPS):
            nearest, _ = nearest_centroids(self.scaled, centres)
            members = np.bincount(nearest, minlength=n_clusters)
            if np.array_equal(nearest, labels) or not members.all():
                break
            labels = nearest.astype(np.int64)
            centres = self._means(labels)
        return centres, labels

    @cached_property
    def costs(self) -> Array:
        """(n_clusters,): what each cut, from 1 cluster on, adds to the sum of squares.

        Beside what is inside of the released clusters.
        """
        heights = self.merges[:, 2]
        growth = np.square(heights) / 2.0
        added = np.cumsum(growth)
        return np.concatenate([[0.0], added])[::-1]

    @cached_property
    def sensible_k(self) -> int:
        """The number of clusters at the bend of the costs; 1 where there is none.

        Their fall is compared with that of one cluster cut into pieces, as
        ``n_clusters="auto"`` does. Costs no privacy.
        """
        n_released, n_features = self.scaled.shape
        # In the end the released clusters' own noise is taken apart.
        largest = max(1, 2 * n_released // 3)
        return elbow(
            self.costs[:largest],
            n_features=n_features,
            n_points=n_released,
        )

    def plot(self, path: str | Path) -> Path:
        """Draw which clusters are merged at which height, as a PNG.

        Whole or not at all. Returns its absolute path.
        """
        from flwr_dpkmeans.results.pictures.hierarchy_picture import draw_hierarchy

        drawn = draw_hierarchy(self.merges, self.counts, self.sensible_k)
        return write_whole(Path(path), drawn)

    def _means(self, labels: Labels) -> Array:
        counts = np.maximum(self.counts, _LEAST_COUNT)
        totals = as_floats(np.bincount(labels, counts))
        weights = as_column(counts)
        n_features = self.scaled.shape[1]
        sums = np.zeros((len(totals), n_features))
        np.add.at(
            sums,
            labels,
            weights * self.scaled,
        )
        means: Array = sums / as_column(totals)
        return means

    def sizes(self, n_clusters: int) -> Array:
        """Return the released sizes of so many clusters, (n_clusters,)."""
        labels = self.labels(n_clusters)
        sizes = np.bincount(labels, self.counts * self.weight_unit)
        return as_floats(sizes)


class _Clusters:
    """Clusters while they are merged, one pair after another."""

    def __init__(self, scaled: Array, counts: Array) -> None:
        n_clusters = len(scaled)
        self._centres = scaled.copy()
        self._counts = np.maximum(counts, _LEAST_COUNT)
        self._numbers = list(range(n_clusters))
        self._sizes = [1] * n_clusters
        self._next_number = n_clusters
        growth = list(map(self._growth_with, range(n_clusters)))
        self._growth = np.array(growth)
        """What the sum of squares grows by where two clusters are merged, (k, k)."""
        np.fill_diagonal(self._growth, np.inf)

    def nearest(self) -> tuple[int, int]:
        """The places of the two clusters whose merging costs least."""
        place = int(self._growth.argmin())
        first, second = divmod(place, len(self._growth))
        return min(first, second), max(first, second)

    def height(
        self,
        first: int,
        second: int,
    ) -> float:
        """At which two clusters are merged."""
        growth = self._growth[first, second]
        return math.sqrt(2.0 * growth)

    def numbers_of(
        self,
        first: int,
        second: int,
    ) -> tuple[int, int]:
        """The lower and the higher number of two clusters."""
        number = self._numbers[first]
        other = self._numbers[second]
        return min(number, other), max(number, other)

    def merge(
        self,
        first: int,
        second: int,
    ) -> int:
        """Put the second cluster into the first one's place.

        Returns how many released clusters it consists of.
        """
        counts = self._counts
        more = counts[second]
        counts[first] += more
        share = more / counts[first]
        centre = self._centres[first]
        difference = self._centres[second] - centre
        centre += share * difference
        sizes = self._sizes
        sizes[first] += sizes[second]
        self._numbers[first] = self._next_number
        self._next_number += 1
        self._update_growth(first, second)
        return sizes[first]

    def _update_growth(
        self,
        merged: int,
        gone: int,
    ) -> None:
        growth = self._growth
        growth[gone, :] = np.inf
        growth[:, gone] = np.inf
        before = growth[merged]
        is_left = np.isfinite(before)
        with_each = self._growth_with(merged)
        of_merged = with_each[is_left]
        growth[merged, is_left] = of_merged
        growth[is_left, merged] = of_merged

    def _growth_with(self, index: int) -> Array:
        """What merging one cluster with each other would cost, (k,)."""
        centre = self._centres[index]
        count = self._counts[index]
        differences = self._centres - centre
        squares = np.square(differences)
        distances = squares.sum(axis=1)
        both = self._counts + count
        growth: Array = distances * self._counts
        growth *= count / both
        return growth


def _in_order(numbers: Labels) -> Labels:
    """Number groups from 0 on, in the order of their first members."""
    _, first, groups = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.zeros(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[groups]
