"""Expected excess cost, simulated on public synthetic data, and its curves.

No private row is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, lru_cache, partial

import numpy as np

from flwr_dpkmeans.errors import BudgetError, LocalMisuseError
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.planner.excess import FACTORS, Curve, Excess, n_clusters_grid
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.synthetic_data import (
    Array,
    draw_mixture,
    optimal_cost,
    simulated_size,
)
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import as_released, draw_noise
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.plan import Plan, make_noise_source
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.threads import one_thread

_MOST_BYTES = 256_000_000


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
        share = planned.trust_model.released_factor(plan.shares)
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
        epsilons = [self._request.epsilon * factor for factor in FACTORS]
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
