"""From a request to the planner's answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from flwr_dpkmeans.algorithms import algorithm_entry
from flwr_dpkmeans.errors import BudgetError, LocalMisuseError
from flwr_dpkmeans.planner.estimate import centroid_noise, largest_n_clusters, noise_in_units
from flwr_dpkmeans.planner.notes import notes_on
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.result import AlgorithmForecast, Forecast
from flwr_dpkmeans.planner.search import curve, epsilon_for_target, epsilon_grid, expected_points, n_clusters_grid
from flwr_dpkmeans.planner.simulate import Excess, Simulator
from flwr_dpkmeans.planner.traffic import deployment_of
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan


def make_forecast(request: PlanningRequest, on_step: Callable[[int, int], None] = lambda done, total: None) -> Forecast:
    """Draft every candidate's plan, simulate it on synthetic data, and recommend one.

    Parameters
    ----------
    request : PlanningRequest
    on_step : callable
        Told which of about how many points of the curves is being simulated.

    Returns
    -------
    Forecast

    Raises
    ------
    ConfigurationError, PlanError, BudgetError
        If no candidate has a plan.

    Examples
    --------
    >>> request = PlanningRequest(2_000, 2, 3, {"n_clusters": 3, "bounds": (0, 10)}, seeds=2, algorithms=("glloyd",))
    >>> forecast = make_forecast(request)
    >>> forecast.recommended, forecast.algorithms[0].survives
    ('glloyd', True)
    """
    plans: dict[str, Plan] = {}
    left_out: list[tuple[str, str]] = []
    errors: list[LocalMisuseError | BudgetError] = []
    for name in request.candidates():
        try:
            plans[name] = request.draft(name)
        except (LocalMisuseError, BudgetError) as error:
            left_out.append((name, str(error)))
            errors.append(error)
    if not plans:
        raise errors[0]
    total, done = expected_points(request, len(plans)), itertools.count(1)
    found = []
    simulator = Simulator(request, lambda: on_step(min(next(done), total), total))
    for name, plan in plans.items():
        found.append(_forecast_one(request, name, plan, simulator))
    on_step(total, total)
    found.sort(key=lambda one: math.inf if one.excess is None else one.excess.mean)
    return Forecast(request, tuple(found), tuple(left_out), notes_on(request, found))


def _forecast_one(request: PlanningRequest, name: str, plan: Plan, simulator: Simulator) -> AlgorithmForecast:
    """One candidate's forecast."""
    noise = centroid_noise(plan, request.spread)
    units = request.units_per_cluster()
    scaled = None if noise is None else noise.per_coordinate(units)
    smallest = None if noise is None else noise.smallest_cluster(request.spread)
    k, epsilon = request.n_clusters, request.epsilon

    def at_epsilon(value: float) -> Excess | None:
        return simulator.excess(name, value, k)

    def at_n_clusters(value: int) -> Excess | None:
        return simulator.excess(name, epsilon, value)

    by_epsilon = curve(epsilon_grid(epsilon), at_epsilon)
    by_n_clusters = curve(n_clusters_grid(request), at_n_clusters)
    return AlgorithmForecast(
        algorithm=name,
        title=algorithm_entry(name).title,
        trust=plan.config.trust,
        epsilon=plan.epsilon,
        delta=plan.delta,
        epsilon_worst_case=worst_case(plan),
        max_retries=plan.config.max_retries,
        noise_per_centroid=() if scaled is None else noise_in_units(plan, scaled),
        scaled_noise_per_centroid=scaled,
        excess_of_noise=None if scaled is None else (scaled / request.spread) ** 2,
        smallest_cluster=smallest,
        survives=None if smallest is None else units >= smallest,
        largest_n_clusters=None if noise is None else largest_n_clusters(request, name),
        excess=at_epsilon(epsilon),
        excess_by_epsilon=by_epsilon,
        excess_by_n_clusters=by_n_clusters,
        epsilon_for_target=epsilon_for_target(by_epsilon, at_epsilon, request.target_excess),
        deployment=deployment_of(plan),
    )
