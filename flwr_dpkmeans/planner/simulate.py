"""Expected excess cost, simulated on public synthetic data of the asked shape: no private row is involved."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import BudgetError, LocalMisuseError
from flwr_dpkmeans.kmeans.metrics import cost_per_point
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.privacy.release import PrivacyUnit, draw_noise
from flwr_dpkmeans.secagg.ring import Ring, encode
from flwr_dpkmeans.sums.draft import build_algorithm, initial_state
from flwr_dpkmeans.sums.plan import Plan, make_noise_source
from flwr_dpkmeans.sums.round import PrivateSum
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.trust import as_released, trust_model
from flwr_dpkmeans.threads import one_thread

Array = NDArray[np.float64]

CENTRE_RANGE = 0.7
"""Centres of the synthetic clusters are uniform in [-0.7, 0.7]^d, so that few rows meet the walls of the box."""
MOST_ROWS = 20_000
_MOST_CELLS = 2_000_000
_MOST_CLIENTS = 500
_MOST_BYTES = 256_000_000
_SMALLEST_COST = 2.0**-32


@dataclass(frozen=True)
class SimulatedSize:
    """How many rows are simulated, and how often each counts.

    Parameters
    ----------
    n_parts, rows_per_part, repeats : int
    """

    n_parts: int
    rows_per_part: int
    repeats: int

    @property
    def n_rows(self) -> int:
        """Rows that are drawn."""
        return self.n_parts * self.rows_per_part


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """A Gaussian mixture of equal clusters in the box.

    Parameters
    ----------
    points : ndarray, (n_rows, n_features)
        On the grid.
    centres : ndarray, (n_clusters, n_features)
        Of the mixture.
    size : SimulatedSize
        How the rows are held, and how often they count.
    """

    points: Array
    centres: Array
    size: SimulatedSize

    @property
    def parts(self) -> tuple[Array, ...]:
        """One table at record level, where it does not matter who holds a row; else one per simulated client."""
        return tuple(np.split(self.points, self.size.n_parts))


@dataclass(frozen=True)
class Excess:
    """How far the cost is above the optimum, as a fraction of the optimum.

    Parameters
    ----------
    mean, standard_error : float
        Over the seeds.
    low, high : float
        Best and worst of them.
    """

    mean: float
    standard_error: float
    low: float
    high: float


def simulated_size(request: PlanningRequest) -> SimulatedSize:
    """Choose how many rows to draw.

    Above the cap each row (at client level each client) stands for several equal ones: its statistic is multiplied
    before the noise of the full size is added. Sums are linear, so only the sampling of the mixture is coarser.

    Examples
    --------
    >>> options = {"n_clusters": 10, "bounds": (-1, 1)}
    >>> simulated_size(PlanningRequest(1_000_000, 8, 5, options))
    SimulatedSize(n_parts=1, rows_per_part=20000, repeats=50)
    """
    cap = max(min(MOST_ROWS, _MOST_CELLS // request.n_features), 20 * request.n_clusters)
    if request.unit is PrivacyUnit.RECORD:
        repeats = math.ceil(request.n_examples / cap)
        return SimulatedSize(1, round(request.n_examples / repeats), repeats)
    repeats = math.ceil(request.n_clients / _MOST_CLIENTS)
    clients = round(request.n_clients / repeats)
    rows = max(1, request.n_examples // request.n_clients)
    return SimulatedSize(clients, min(rows, max(20, cap // clients)), repeats)


def draw_mixture(request: PlanningRequest, n_clusters: int, seed: int) -> SyntheticData:
    """Draw one public data set of the asked shape.

    Parameters
    ----------
    request : PlanningRequest
    n_clusters : int
        Clusters of the mixture.
    seed : int

    Returns
    -------
    SyntheticData
    """
    size, d = simulated_size(request), request.n_features
    generator = np.random.default_rng([seed, n_clusters, d])
    centres = generator.uniform(-CENTRE_RANGE, CENTRE_RANGE, (n_clusters, d))
    labels = generator.integers(0, n_clusters, size.n_rows)
    points = centres[labels] + generator.normal(0.0, request.spread, (size.n_rows, d))
    return SyntheticData(round_to_grid(np.clip(points, -1.0, 1.0)), centres, size)


def optimal_cost(data: SyntheticData) -> float:
    """Cost per row of the non-private optimum: Lloyd's algorithm from the mixture's own centres, until it settles."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # With hardly more rows than clusters some are empty, which is no concern here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(len(data.centres), init=data.centres, n_init=1).fit(data.points)
    # As many clusters as rows cost nothing, of which no fraction can be said.
    return max(cost_per_point(data.points, model.cluster_centers_), _SMALLEST_COST)


def run_plan(plan: Plan, parts: tuple[Array, ...], repeats: int = 1) -> State:
    """Play a final plan on synthetic parts, with the plan's own rounds and seeded noise.

    With one repeat, one part per client and ``dropout="retry"`` these are the centroids of
    ``FederatedKMeans(engine="direct")``.

    Parameters
    ----------
    plan : Plan
        Final, of seeded noise.
    parts : tuple of ndarray, (n_i, n_features)
        In the scaled box, on the grid.
    repeats : int
        How often each part counts.

    Returns
    -------
    State
    """
    state, source = initial_state(plan), make_noise_source(plan, "server")
    for index, step in enumerate(build_algorithm(plan).rounds, start=1):
        planned = plan.round_at(index)
        # Shares of all clients together have the variance of so many of one.
        shared = trust_model(planned.trust).shared_noise
        share = plan.shares.factor * math.sqrt(plan.n_clients) if shared else 1.0
        noise = draw_noise(planned.blocks, source, plan.fraction_bits, share=share)
        total = _total(step, parts, state.view(step.reads), plan.fraction_bits)
        released = as_released(total * np.uint64(repeats) + noise, planned.blocks, plan.fraction_bits)
        state = step.advance(state, released)
    return state


def _total(step: PrivateSum, parts: tuple[Array, ...], shown: State, fraction_bits: int) -> Ring:
    """The parts' statistics together, in the ring."""
    vectors = []
    for part in parts:
        flat = np.concatenate([np.ravel(array) for array in step.statistic(part, shown)])
        vectors.append(encode(flat, fraction_bits).values)
    return np.asarray(np.sum(vectors, axis=0, dtype=np.uint64))


class Simulator:
    """Simulated excess over epsilon and k; every candidate sees the same data sets and starts.

    Parameters
    ----------
    request : PlanningRequest
    on_point : callable
        Called once for each algorithm, epsilon and k that was simulated.
    """

    def __init__(self, request: PlanningRequest, on_point: Callable[[], None] = lambda: None) -> None:
        self._request, self._on_point = request, on_point
        rows = simulated_size(request).n_rows
        kept = max(1, _MOST_BYTES // (8 * rows * request.n_features))
        self._data = lru_cache(maxsize=min(kept, request.seeds))(self._drawn)
        self._optimum = cache(self._found)
        self.excess = cache(self._simulated)

    def _drawn(self, n_clusters: int, seed: int) -> SyntheticData:
        return draw_mixture(self._request, n_clusters, seed)

    def _found(self, n_clusters: int, seed: int) -> float:
        return optimal_cost(self._data(n_clusters, seed))

    def _simulated(self, algorithm: str, epsilon: float, n_clusters: int) -> Excess | None:
        """Mean and range over the seeds; None if no plan follows from these values."""
        request = self._request
        self._on_point()
        try:
            plan = request.draft(algorithm, epsilon=epsilon, n_clusters=n_clusters, noise="seeded", max_epsilon=None)
        except (LocalMisuseError, BudgetError):
            return None
        base = int(request.options.get("random_state", 0))
        with one_thread():
            return _summary(self._one(plan, n_clusters, base + index) for index in range(request.seeds))

    def _one(self, plan: Plan, n_clusters: int, seed: int) -> float:
        data = self._data(n_clusters, seed)
        state = run_plan(replace(plan, seed=seed), data.parts, data.size.repeats)
        return cost_per_point(data.points, state.centroids) / self._optimum(n_clusters, seed) - 1.0


def _summary(values: Iterable[float]) -> Excess:
    """Mean with its standard error, and range; a run below the optimum has found a better one, by a hair."""
    listed = np.maximum(0.0, list(values))
    error = float(np.std(listed, ddof=1)) / math.sqrt(len(listed))
    return Excess(float(listed.mean()), error, float(listed.min()), float(listed.max()))
