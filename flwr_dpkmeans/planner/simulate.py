"""Expected excess cost, simulated on public synthetic data, and its curves.

No private row is involved.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.schema import Scale, Schema
from flwr_dpkmeans.errors import BudgetError, LocalMisuseError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import PrivacyUnit, as_released, draw_noise
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.plan import Plan, make_noise_source
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.threads import one_thread

Array = NDArray[np.float64]

CENTRE_RANGE = 0.7
"""Centres of the synthetic clusters are uniform in [-0.7, 0.7]^d, so that few rows meet
the walls of the box.
"""
MOST_ROWS = 20_000
_MOST_CELLS = 2_000_000
_MOST_CLIENTS = 500
_MOST_BYTES = 256_000_000
_SMALLEST_COST = 2.0**-32

_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MOST_EPSILON = 100.0
"""Where the search gives up, unless the curve itself goes beyond."""
_DOUBLINGS = 6
_BISECTIONS = 4
"""Of a factor of two: the answer is within 2^(1/16), or 4%, which is finer than the
simulation's own spread.
"""


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
    """Points, (n_rows, n_features) on the grid of the box, of a mixture of equal
    clusters with these centres.
    """

    points: Array
    centres: Array
    size: SimulatedSize

    @property
    def parts(self) -> tuple[Array, ...]:
        """One table at record level, where it does not matter who holds a row.

        Else one per simulated client.
        """
        return tuple(np.split(self.points, self.size.n_parts))


@dataclass(frozen=True)
class Excess:
    """How far the cost is above the optimum, as a fraction of it, over the seeds.

    `low` is the best.
    """

    mean: float
    standard_error: float
    low: float
    high: float


Curve = tuple[tuple[float, Excess], ...]
"""Excess by epsilon or by number of clusters, ascending."""


def simulated_size(request: PlanningRequest) -> SimulatedSize:
    """Choose how many rows to draw.

    Above the cap each row (at client level each client) stands for several equal ones:
    its statistic is multiplied before the noise of the full size is added. Sums are
    linear, so only the sampling of the mixture is coarser.
    """
    most_rows = min(MOST_ROWS, _MOST_CELLS // request.n_features)
    cap = max(most_rows, 20 * request.n_clusters)
    if request.unit is PrivacyUnit.RECORD:
        repeats = math.ceil(request.n_examples / cap)
        return SimulatedSize(1, round(request.n_examples / repeats), repeats)
    repeats = math.ceil(request.n_clients / _MOST_CLIENTS)
    clients = round(request.n_clients / repeats)
    average = request.n_examples // request.n_clients
    rows = max(1, average)
    rows_per_client = min(rows, max(20, cap // clients))
    return SimulatedSize(clients, rows_per_client, repeats)


def draw_mixture(
    request: PlanningRequest,
    n_clusters: int,
    seed: int,
) -> SyntheticData:
    """Draw one public data set of the asked shape, but with so many clusters."""
    size = simulated_size(request)
    n_rows, d = size.n_rows, request.n_features
    generator = np.random.default_rng([seed, n_clusters, d])
    shape = (n_clusters, d)
    centres = generator.uniform(-CENTRE_RANGE, CENTRE_RANGE, shape)
    labels = generator.integers(0, n_clusters, n_rows)
    offsets = generator.normal(0.0, request.spread, (n_rows, d))
    points = np.clip(centres[labels] + offsets, -1.0, 1.0)
    if request.schema is not None:
        points = _by_schema(request.schema, points)
        centres = _by_schema(request.schema, centres)
    return SyntheticData(round_to_grid(points), centres, size)


def _by_schema(schema: Schema, points: Array) -> Array:
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
            cells[:] = np.eye(width)[values]
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
    seed = int(request.options.get("random_state", 0))
    data = draw_mixture(request, request.n_clusters, seed)
    variance = optimal_cost(data) / request.n_features
    # Radii shrink by steps, so they stay wide of clusters whose rows are all alike.
    return max(math.sqrt(variance), request.spread / 10.0)


def optimal_cost(data: SyntheticData) -> float:
    """Cost per row of the non-private optimum.

    Lloyd's algorithm from the mixture's own centres, until it settles.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # With hardly more rows than clusters some are empty, which is no concern here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(len(data.centres), init=data.centres, n_init=1).fit(data.points)
    # As many clusters as rows cost nothing, of which no fraction can be said.
    return max(cost_per_point(data.points, model.cluster_centers_), _SMALLEST_COST)


def run_plan(
    plan: Plan,
    parts: tuple[Array, ...],
    repeats: int = 1,
    source: NoiseSource | None = None,
) -> State:
    """Play a final plan on synthetic parts, with seeded noise.

    With one repeat, one part per client and ``dropout="retry"`` these are the centroids
    of ``FederatedKMeans(engine="direct")``. Parts, (n_i, n_features), lie in the scaled
    box, on the grid.
    """
    state = initial_state(plan)
    source = source or make_noise_source(plan, "server")
    for index, step in enumerate(build_algorithm(plan).rounds, start=1):
        if step.profiles:
            continue  # synthetic rows have nothing beside the points
        planned = plan.round_at(index)
        # All noises together have the variance of so many of one.
        share = planned.model.released_factor(plan.shares)
        noise = draw_noise(
            planned.blocks,
            source,
            plan.fraction_bits,
            share=share,
        )
        encoded = []
        for part in parts:
            visible = state.view(step.reads)
            arrays = step.statistic(part, visible)
            vector = np.concatenate([np.ravel(array) for array in arrays])
            elements = encode(vector, plan.fraction_bits)
            encoded.append(elements.values)
        total = np.sum(encoded, axis=0, dtype=np.uint64)
        noised = total * np.uint64(repeats) + noise
        released = as_released(noised, planned.blocks, plan.fraction_bits)
        state = step.advance(state, released)
    return state


class Simulator:
    """Simulated excess over epsilon and k.

    Every candidate sees the same data sets and starts.

    `on_point` is called once for each algorithm, epsilon and k that was simulated.
    """

    def __init__(
        self,
        request: PlanningRequest,
        on_point: Callable[[], None] = lambda: None,
    ) -> None:
        self._request = request
        self._on_point = on_point
        n_rows = simulated_size(request).n_rows
        n_bytes = 8 * n_rows * request.n_features
        n_that_fit = max(1, _MOST_BYTES // n_bytes)
        remembering = lru_cache(maxsize=min(n_that_fit, request.seeds))
        self._data = remembering(partial(draw_mixture, request))
        self._optimum = cache(
            lambda n_clusters, seed: optimal_cost(self._data(n_clusters, seed))
        )
        self.excess = cache(self._simulated)

    def by_epsilon(self, algorithm: str) -> Curve:
        """Excess from an eighth to eight times the requested epsilon.

        Where there is a plan.
        """
        k = self._request.n_clusters
        epsilons = [self._request.epsilon * factor for factor in _FACTORS]
        return _where_planned(
            (epsilon, self.excess(algorithm, epsilon, k)) for epsilon in epsilons
        )

    def by_n_clusters(self, algorithm: str) -> Curve:
        """Excess from a quarter to four times the requested number of clusters.

        Where there is a plan.
        """
        epsilon = self._request.epsilon
        ks = n_clusters_grid(self._request)
        return _where_planned(
            (float(k), self.excess(algorithm, epsilon, k)) for k in ks
        )

    def _simulated(
        self,
        algorithm: str,
        epsilon: float,
        n_clusters: int,
    ) -> Excess | None:
        """Mean and range over the seeds; None if no plan follows from these values."""
        request = self._request
        self._on_point()
        try:
            plan = request.draft(
                algorithm,
                epsilon=epsilon,
                n_clusters=n_clusters,
                noise="seeded",
                max_epsilon=None,
            )
        except (LocalMisuseError, BudgetError):
            return None
        first_seed = int(request.options.get("random_state", 0))
        seeds = range(first_seed, first_seed + request.seeds)
        with one_thread():
            return _summary(
                self._excess_of_seed(plan, n_clusters, seed) for seed in seeds
            )

    def _excess_of_seed(
        self,
        plan: Plan,
        n_clusters: int,
        seed: int,
    ) -> float:
        data = self._data(n_clusters, seed)
        seeded = replace(plan, seed=seed)
        state = run_plan(seeded, data.parts, data.size.repeats)
        cost = cost_per_point(data.points, state.centroids)
        return cost / self._optimum(n_clusters, seed) - 1.0


def _summary(values: Iterable[float]) -> Excess:
    """Mean with its standard error, and range.

    A run below the optimum has found a better one, by a hair.
    """
    listed = np.maximum(0.0, list(values))
    error = float(np.std(listed, ddof=1)) / math.sqrt(len(listed))
    return Excess(
        float(listed.mean()),
        error,
        float(listed.min()),
        float(listed.max()),
    )


def _where_planned(points: Iterable[tuple[float, Excess | None]]) -> Curve:
    """The points of a curve that have a plan."""
    return tuple((value, excess) for value, excess in points if excess is not None)


def n_clusters_grid(request: PlanningRequest) -> tuple[int, ...]:
    """Numbers of clusters of the curve: a quarter to four times the requested one.

    Of at least two rows each.
    """
    k = request.n_clusters
    most = max(k, request.n_examples // 2)
    quarter = max(2, k // 4)
    half = max(2, k // 2)
    values = {quarter, half, k, 2 * k, 4 * k}
    possible = [value for value in values if value <= most]
    return tuple(sorted(possible))


def expected_points(request: PlanningRequest, n_candidates: int) -> int:
    """About how many points are simulated: both grids and the bisection.

    The grids share one point.
    """
    n_numbers = len(n_clusters_grid(request))
    return n_candidates * (len(_FACTORS) + n_numbers + _BISECTIONS)


def n_clusters_for_target(
    curve: Curve,
    excess_at: Callable[[int], Excess | None],
    target: float,
    requested: int,
) -> tuple[int, int] | None:
    """Smallest and largest k with a mean excess of at most `target`.

    Around the `requested` one, or the nearest that does, from a curve; above its
    largest k that does, by bisection to within a tenth. None if no point of it does.
    """
    good = [int(k) for k, excess in curve if excess.mean <= target]
    bad = [int(k) for k, excess in curve if excess.mean > target]
    if not good:
        return None
    nearest = min(good, key=lambda k: abs(k - requested))
    too_few = max((k for k in bad if k < nearest), default=0)
    too_many = min((k for k in bad if k > nearest), default=max(good) + 1)
    fewest = min(k for k in good if k > too_few)
    most = max(k for k in good if k < too_many)
    while too_many - most > max(1, most // 10):
        middle = (most + too_many) // 2
        if _is_enough(excess_at(middle), target):
            most = middle
        else:
            too_many = middle
    return fewest, most


def _is_enough(excess: Excess | None, target: float) -> bool:
    """Whether there is a plan, with a mean excess of at most the target."""
    return excess is not None and excess.mean <= target


def epsilon_for_target(
    curve: Curve,
    excess_at: Callable[[float], Excess | None],
    target: float,
) -> float | None:
    """Smallest epsilon with a mean excess of at most `target`.

    By bisection of its logarithm, from an ascending curve: from a 64th of its smallest
    epsilon to `MOST_EPSILON`. None if the curve is empty, or nothing is enough.
    """
    epsilons = [epsilon for epsilon, _ in curve]
    if not epsilons:
        return None
    smallest = epsilons[0] / 2.0**_DOUBLINGS
    largest = max(MOST_EPSILON, epsilons[-1])
    too_small = None
    for enough in sorted({smallest, *epsilons, largest}):
        if _is_enough(excess_at(enough), target):
            break
        too_small = enough
    else:
        return None
    if too_small is None:
        return enough
    n_octaves = math.log2(enough / too_small)
    n_bisections = math.ceil(_BISECTIONS + math.log2(n_octaves))
    for _ in range(n_bisections):
        middle = math.sqrt(too_small * enough)
        if _is_enough(excess_at(middle), target):
            enough = middle
        else:
            too_small = middle
    return enough
