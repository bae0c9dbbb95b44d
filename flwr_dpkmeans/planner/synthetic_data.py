"""Public synthetic data of the shape that a forecast is asked about."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.schema import Scale, Schema
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.planner.request import PlanningRequest

Array = NDArray[np.float64]

CENTRE_RANGE = 0.7
"""Centres of the synthetic clusters are uniform in [-0.7, 0.7]^d, so that few rows meet
the walls of the box.
"""
MOST_ROWS = 20_000
_MOST_CELLS = 2_000_000
_MOST_CLIENTS = 500
_SMALLEST_COST = 2.0**-32


@dataclass(frozen=True)
class SimulatedSize:
    """How many rows are simulated, and how often each counts."""

    n_parts: int
    rows_per_part: int
    repeats: int

    @property
    def n_rows(self) -> int:
        """Rows that are drawn."""
        return self.n_parts * self.rows_per_part


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """Points, (n_rows, n_features) on the grid of the box.

    Of a mixture of equal clusters with these centres.
    """

    points: Array
    centres: Array
    size: SimulatedSize

    @property
    def parts(self) -> tuple[Array, ...]:
        """One table at record level, where it does not matter who holds a row.

        Else one per simulated client.
        """
        parts = np.split(self.points, self.size.n_parts)
        return tuple(parts)


def simulated_size(request: PlanningRequest) -> SimulatedSize:
    """Choose how many rows to draw.

    Above the cap each row (at client level each client) stands for several equal ones:
    its statistic is multiplied before the noise of the full size is added. Sums are
    linear, so only the sampling of the mixture is coarser.
    """
    most_rows = min(MOST_ROWS, _MOST_CELLS // request.n_features)
    cap = max(most_rows, 20 * request.n_clusters)
    if request.unit.by_row:
        repeats = math.ceil(request.n_examples / cap)
        n_rows = round(request.n_examples / repeats)
        return SimulatedSize(1, n_rows, repeats)
    repeats = math.ceil(request.n_clients / _MOST_CLIENTS)
    clients = round(request.n_clients / repeats)
    average = request.n_examples // request.n_clients
    rows = max(1, average)
    share_of_cap = max(20, cap // clients)
    rows_per_client = min(rows, share_of_cap)
    return SimulatedSize(clients, rows_per_client, repeats)


def draw_mixture(
    request: PlanningRequest,
    n_clusters: int,
    seed: int,
) -> SyntheticData:
    """Draw one public data set of the asked shape, but with so many clusters."""
    size = simulated_size(request)
    n_rows = size.n_rows
    d = request.n_features
    seeds = [seed, n_clusters, d]
    generator = np.random.default_rng(seeds)
    shape = (n_clusters, d)
    centres = generator.uniform(-CENTRE_RANGE, CENTRE_RANGE, shape)
    labels = generator.integers(0, n_clusters, n_rows)
    of_all = (n_rows, d)
    offsets = generator.normal(0.0, request.spread, of_all)
    unclipped = centres[labels] + offsets
    points = np.clip(unclipped, -1.0, 1.0)
    if request.schema is not None:
        points = _by_schema(request.schema, points)
        centres = _by_schema(request.schema, centres)
    on_grid = round_to_grid(points)
    return SyntheticData(on_grid, centres, size)


def _by_schema(
    schema: Schema,
    points: Array,
) -> Array:
    """What rows in [-1, 1]^d become under a schema.

    Flags are 0 or 1, a category has one value, columns their weights.

    Private deviations are taken to be equal parts of the columns' ranges, as those of
    these rows are.
    """
    columns = tuple(column for column in schema.columns if column.weight)
    rows = (points + 1.0) / 2.0
    first = 0
    for column in columns:
        width = len(column.features)
        # A view: what is written into it is written into the rows.
        cells = rows[:, first : first + width]
        if column.kind is Kind.CATEGORY:
            values = cells.argmax(axis=1)
            indicators = np.eye(width)
            cells[:] = indicators[values]
        elif column.kind is Kind.FLAG:
            cells.round(out=cells)
        elif column.kind is Kind.CYCLE:
            directions = 2.0 * cells - 1.0
            cosines = directions[:, :1]
            sines = directions[:, 1:]
            lengths = np.hypot(cosines, sines)
            on_circle = directions / np.maximum(lengths, _SMALLEST_COST)
            cells[:] = (on_circle + 1.0) / 2.0
        lowest, highest = column.range
        cells *= highest - lowest
        cells += lowest
        first += width
    scale = schema.scale
    if scale is Scale.STANDARD:
        scale = Scale.BOUNDS
    scaled_schema = Schema(columns=columns, scale=scale)
    return scaled_schema.bounds.scale(rows)


def scaled_spread(request: PlanningRequest) -> float:
    """Deviation of a synthetic cluster's rows per scaled coordinate.

    Under a schema, columns fill a part of the box.
    """
    if request.schema is None:
        return request.spread
    stated = request.options.get("random_state", 0)
    seed = int(stated)
    data = draw_mixture(request, request.n_clusters, seed)
    variance = optimal_cost(data) / request.n_features
    deviation = math.sqrt(variance)
    # Radii shrink by steps, so they stay wide of clusters whose rows are all alike.
    smallest = request.spread / 10.0
    return max(deviation, smallest)


def optimal_cost(data: SyntheticData) -> float:
    """Cost per row of the non-private optimum.

    Lloyd's algorithm from the mixture's own centres, until it settles.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # With hardly more rows than clusters some are empty, which is no concern here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(
            len(data.centres),
            init=data.centres,
            n_init=1,
        )
        model.fit(data.points)
    cost = cost_per_point(data.points, model.cluster_centers_)
    # As many clusters as rows cost nothing, of which no fraction can be said.
    return max(cost, _SMALLEST_COST)
