"""What missing cells do to a centre, and how that is undone where a run counted them
(``missing = "centre"``).

In the clustering a gap counts as the middle of its column's bounds, and draws a centre
there. What people read are the means of the cells that are there: with a share p of
them, a centre c and the middle m, that is m + (c - m) / p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.cluster_profile import MISSING, Figure
from flwr_dpkmeans.data.columns import Column, Missing
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import listed
from flwr_dpkmeans.privacy.report import COUNT_DEVIATIONS, told

MANY_MISSING = 0.05
"""Part of a clustered column's cells above which a report says what gaps do to the
clustering.
"""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gaps:
    """The gaps of the columns that are clustered, by cluster and feature, in units of
    the data.
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
        cls, schema: Schema | None, figures: Sequence[Figure], shape: tuple[int, int]
    ) -> Gaps:
        """The gaps that a run's `figures` tell of, for `shape` clusters and features."""
        present, deviations = np.ones(shape), np.zeros(shape)
        middles, low, high = (
            np.zeros(shape[1]),
            np.full(shape[1], -np.inf),
            np.full(shape[1], np.inf),
        )
        columns = list[str]()
        for column, features in _clustered(schema):
            of_column = [
                figure for figure in _missing(figures) if figure.column == column.name
            ]
            by_cluster = [figure for figure in of_column if figure.cluster != "all"]
            if not by_cluster:
                continue
            columns.append(column.name)
            present[:, features] = [
                [1.0 - float(figure.estimate)] for figure in by_cluster
            ]
            deviations[:, features] = [[figure.deviation] for figure in by_cluster]
            middles[features] = column.stand_in()
            low[features], high[features] = column.range
        return cls(present, deviations, middles, (low, high), tuple(columns))

    @property
    def clear(self) -> NDArray[np.bool_]:
        """(n_clusters, n_features): whether it is clear that some cells are there at
        all.
        """
        return self.present > COUNT_DEVIATIONS * self.deviations

    def means(self, centroids: Array) -> Array:
        """Means of the cells that are there, (n_clusters, n_features).

        NaN where it is not clear that any are.
        """
        if not self.columns:
            return centroids
        present = np.where(self.clear, self.present, np.nan)
        means = self.middles + (centroids - self.middles) / present
        means = np.clip(means, *self.ranges)
        counted = np.isfinite(self.ranges[0])
        return np.where(counted, means, centroids)

    def noise(self, centroids: Array, noise: Array) -> Array:
        """Noise in the `means`, to first order, of that in the centroids.

        Both (n_clusters, n_features).
        """
        present = np.where(self.clear, self.present, np.nan)
        pulled = self.means(centroids) - self.middles
        return np.hypot(noise / present, pulled * self.deviations / present)


def _clustered(schema: Schema | None) -> tuple[tuple[Column, slice], ...]:
    """The columns that are clustered, with their features."""
    return () if schema is None else schema.features_of_columns


def gap_cautions(schema: Schema | None, figures: Sequence[Figure]) -> tuple[str, ...]:
    """Say what gaps do to the clustering where many cells of a column are missing, or
    that nobody counted them.
    """
    names = [
        column.name
        for column, _ in _clustered(schema)
        if column.missing == Missing.CENTRE
    ]
    of_all = {
        figure.column: figure for figure in _missing(figures) if figure.cluster == "all"
    }
    uncounted = [name for name in names if name not in of_all]
    if uncounted:
        return (told("uncounted_gaps", columns=listed(map(repr, uncounted))),)
    shares = {
        name: float(of_all[name].estimate) for name in names if not of_all[name].noise
    }
    many = {name: share for name, share in shares.items() if share > MANY_MISSING}
    if not many:
        return ()
    columns = listed(f"{name!r} ({share:.0%})" for name, share in many.items())
    return (told("gaps", columns=columns),)


def _missing(figures: Sequence[Figure]) -> list[Figure]:
    """Of a run's figures, those that say which share of the cells is missing."""
    return [figure for figure in figures if figure.figure == MISSING]
