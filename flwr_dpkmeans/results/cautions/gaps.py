"""What missing cells do to a centre, and how that is undone where a run counts them.

It does so for columns with ``missing = "centre"``. In the clustering a gap counts as
the middle of its column's bounds, and draws a centre there. What people read are the
means of the cells that are there: with a share p of them, a centre c and the middle m,
that is m + (c - m) / p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.profile.profile_reading import MISSING, Figure
from flwr_dpkmeans.data.columns.column import Column
from flwr_dpkmeans.data.columns.treatment import Missing
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import listed
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.clear_centres import Array, Cautions

MANY_MISSING = 0.05
"""Part of a clustered column's cells above which a report says what gaps do to the
clustering.
"""
_ALL = "all"
"""What a figure of all clusters has in place of a cluster."""


@dataclass(frozen=True)
class Gaps:
    """The gaps of the columns that are clustered, by cluster and feature.

    In units of the data.
    """

    present: Array = field(repr=False)
    """(n_clusters, n_features): share of the cells that are there, with noise.

    1 where gaps are not counted.
    """
    deviations: Array = field(repr=False)
    """(n_clusters, n_features): standard deviation of the noise in it.

    0 where gaps are not counted.
    """
    middles: Array = field(repr=False)
    """(n_features,): what a gap counts as."""
    ranges: tuple[Array, Array] = field(repr=False)
    """(n_features,) each: what cells lie between; infinite where gaps are not counted.
    """
    columns: tuple[str, ...] = ()
    """Names of the columns whose gaps are counted."""

    @classmethod
    def of(
        cls,
        schema: Schema | None,
        figures: Sequence[Figure],
        n_clusters: int,
        n_features: int,
    ) -> Gaps:
        """Read from a run's `figures` which shares of cells are missing."""
        present = np.ones((n_clusters, n_features))
        deviations = np.zeros_like(present)
        middles = np.zeros(n_features)
        low = np.full(n_features, -np.inf)
        high = np.full(n_features, np.inf)
        columns = list[str]()
        for column, features in _clustered(schema):
            by_cluster = _missing_by_cluster(figures, column.name)
            if not by_cluster:
                continue
            columns.append(column.name)
            # A file with figures of too few or too many clusters is a ValueError.
            shares = [float(figure.estimate) for figure in by_cluster]
            missing = np.array(shares)
            noise = np.array([figure.deviation for figure in by_cluster])
            present[:, features] = 1.0 - missing[:, None]
            deviations[:, features] = noise[:, None]
            middles[features] = column.stand_in()
            low[features], high[features] = column.range
        ranges = (low, high)
        return cls(
            present=present,
            deviations=deviations,
            middles=middles,
            ranges=ranges,
            columns=tuple(columns),
        )

    @property
    def clear(self) -> NDArray[np.bool_]:
        """(n_clusters, n_features): whether it is clear that some cells are there."""
        noise = COUNT_DEVIATIONS * self.deviations
        return self.present > noise

    def means(self, centroids: Array) -> Array:
        """Means of the cells that are there, (n_clusters, n_features).

        NaN where it is not clear that any are.
        """
        if not self.columns:
            return centroids
        pulled = centroids - self.middles
        means = self.middles + pulled / self._clear_present()
        lowest, highest = self.ranges
        means = np.clip(means, lowest, highest)
        is_counted = np.isfinite(lowest)
        return np.where(is_counted, means, centroids)

    def noise(
        self,
        centroids: Array,
        noise: Array,
    ) -> Array:
        """Noise in the `means`, to first order, of that in the centroids.

        Both (n_clusters, n_features).
        """
        present = self._clear_present()
        of_centroids = noise / present
        pulled = self.means(centroids) - self.middles
        of_shares = pulled * self.deviations / present
        return np.hypot(of_centroids, of_shares)

    def _clear_present(self) -> Array:
        """`present`, and NaN where it is not clear that any cells are there."""
        return np.where(self.clear, self.present, np.nan)


def gap_cautions(schema: Schema | None, figures: Sequence[Figure]) -> Cautions:
    """Warn where many cells of a column are missing, or nobody counted them."""
    counts_gaps = [
        column.name
        for column, _ in _clustered(schema)
        if column.missing == Missing.CENTRE
    ]
    of_all = {
        figure.column: figure
        for figure in figures
        if figure.figure == MISSING and figure.cluster == _ALL
    }
    uncounted = [repr(name) for name in counts_gaps if name not in of_all]
    if uncounted:
        return (report_sentence("uncounted_gaps", columns=listed(uncounted)),)
    many = list[str]()
    for name in counts_gaps:
        figure = of_all[name]
        if figure.noise:
            continue
        share = float(figure.estimate)
        if share > MANY_MISSING:
            many.append(f"{name!r} ({share:.0%})")
    if not many:
        return ()
    return (report_sentence("gaps", columns=listed(many)),)


def _clustered(schema: Schema | None) -> tuple[tuple[Column, slice], ...]:
    """The columns that are clustered, with their features."""
    if schema is None:
        return ()
    return schema.features_of_columns


def _missing_by_cluster(figures: Sequence[Figure], column: str) -> list[Figure]:
    """Of one column, the share of missing cells in each cluster."""
    shares = [figure for figure in figures if figure.figure == MISSING]
    of_column = [figure for figure in shares if figure.column == column]
    return [figure for figure in of_column if figure.cluster != _ALL]
