"""The planner's answer.

One forecast per candidate, a recommendation, and what was assumed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from flwr_dpkmeans.errors import BudgetError, LocalMisuseError, listed
from flwr_dpkmeans.planner.centroid_noise import centroid_noise, noise_in_units
from flwr_dpkmeans.planner.excess import (
    Curve,
    Excess,
    epsilon_for_target,
    expected_points,
    n_clusters_for_target,
)
from flwr_dpkmeans.planner.present import described, draw_forecast
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.simulate import Simulator
from flwr_dpkmeans.planner.synthetic_data import (
    CENTRE_RANGE,
    scaled_spread,
    simulated_size,
)
from flwr_dpkmeans.planner.traffic import Deployment, deployment_of
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost
from flwr_dpkmeans.results.rendering import CONSOLE, HTML, rendered
from flwr_dpkmeans.results.whole_files import write_whole
from flwr_dpkmeans.sums.draft import worst_case, worst_cost
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import plan_cautions


@dataclass(frozen=True)
class AlgorithmForecast:
    """What to expect of one algorithm.

    What is None is unknown, or does not apply to its releases.
    """

    algorithm: str
    trust: str
    epsilon: float
    delta: float
    epsilon_worst_case: float
    """With all retries used; infinite where delta leaves no room for them."""
    max_retries: int
    noise_per_centroid: tuple[float, ...]
    """Deviation of an average cluster's centroid from the last release, in the caller's
    units: one number, or one per feature where their bounds differ; empty where no
    release has this form.
    """
    scaled_noise_per_centroid: float | None
    """The same in the box [-1, 1]^d."""
    excess_of_noise: float | None
    """What that noise alone would add to the cost of the synthetic clusters, as a
    fraction: its variance over theirs, to first order (where it is large, the box and
    the radius keep the true excess smaller).
    """
    smallest_cluster: int | None
    """Rows (client level: clients) from which a cluster survives."""
    n_clusters_range: tuple[int, int] | None
    """Numbers of clusters, of those that were simulated, whose excess is at most the
    target; None if it never is.
    """
    excess: Excess | None
    """Simulated, at the epsilon and k that were asked about."""
    excess_by_epsilon: Curve
    excess_by_n_clusters: Curve
    epsilon_for_target: float | None
    """Smallest epsilon whose simulated excess is at most the target.

    None if even the largest is not enough.
    """
    deployment: Deployment
    epsilon_of_a_year: float | None = None
    """Of 52 such runs on one table, at 52 times the delta, as ledgers add them up."""


@dataclass(frozen=True)
class Forecast:
    """The whole answer; no private row was involved.

    Candidates come best first, by simulated excess at the asked epsilon and k;
    `left_out` names those from which no plan follows, and why; notes say what was
    assumed and how it was simulated; the version is that of `to_dict`.
    """

    request: PlanningRequest
    algorithms: tuple[AlgorithmForecast, ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    version: int = 2

    @property
    def recommended(self) -> str:
        """The candidate with the smallest simulated excess."""
        return self.algorithms[0].algorithm

    @property
    def n_clusters_range(self) -> tuple[int, int] | None:
        """Sensible numbers of clusters for the recommended algorithm.

        Those that meet the target; None if none does.
        """
        return self.algorithms[0].n_clusters_range

    @property
    def epsilon_for_target(self) -> float | None:
        """Epsilon that the recommended algorithm needs for the target."""
        return self.algorithms[0].epsilon_for_target

    def to_dict(self) -> dict[str, object]:
        """Plain values with stable keys that strict JSON can hold.

        What is infinite or unknown is None.
        """
        allowed = self.n_clusters_range
        return {
            "version": self.version,
            "request": self.request.to_dict(),
            "recommended": self.recommended,
            "n_clusters_range": None if allowed is None else list(allowed),
            "epsilon_for_target": self.epsilon_for_target,
            "algorithms": [_plain(asdict(forecast)) for forecast in self.algorithms],
            "left_out": [
                {"algorithm": name, "reason": reason} for name, reason in self.left_out
            ],
            "notes": list(self.notes),
        }

    def plot(self, path: str | Path) -> Path:
        """Draw expected excess against epsilon and k as a PNG, whole or not at all.

        Returns its absolute path.
        """
        return write_whole(Path(path), draw_forecast(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.recommended!r} of {len(self.algorithms)})"

    def __str__(self) -> str:
        return described(self, CONSOLE)

    def _repr_html_(self) -> str:
        return described(self, HTML)


def make_forecast(
    request: PlanningRequest,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Forecast:
    """Draft every candidate's plan, simulate it on synthetic data, and recommend one.

    `on_step` is told which of about how many points of the curves is being simulated.
    If no candidate has a plan, the error of the first is raised.
    """
    plans: dict[str, Plan] = {}
    left_out: dict[str, LocalMisuseError | BudgetError] = {}
    for name in request.candidates():
        try:
            plans[name] = request.draft(name)
        except (LocalMisuseError, BudgetError) as error:
            left_out[name] = error
    if not plans:
        raise next(iter(left_out.values()))
    total = expected_points(request, len(plans))
    done = itertools.count(1)
    simulator = Simulator(request, lambda: on_step(min(next(done), total), total))
    forecasts = [
        _forecast_one(
            request,
            name,
            plan,
            simulator,
        )
        for name, plan in plans.items()
    ]
    on_step(total, total)
    forecasts.sort(key=_mean_excess)
    reasons = tuple((name, str(error)) for name, error in left_out.items())
    return Forecast(
        request,
        tuple(forecasts),
        reasons,
        notes_on(request, forecasts),
    )


def _mean_excess(forecast: AlgorithmForecast) -> float:
    """Mean excess, infinite where no plan follows from the request."""
    if forecast.excess is None:
        return math.inf
    return forecast.excess.mean


def _forecast_one(
    request: PlanningRequest,
    name: str,
    plan: Plan,
    simulator: Simulator,
) -> AlgorithmForecast:
    spread, units = scaled_spread(request), request.units_per_cluster()
    noise = centroid_noise(plan, spread)
    scaled = None if noise is None else noise.per_coordinate(units)
    smallest = None if noise is None else noise.smallest_cluster(spread)
    by_epsilon, by_n_clusters = (
        simulator.by_epsilon(name),
        simulator.by_n_clusters(name),
    )
    at, k, target = (
        partial(simulator.excess, name, request.epsilon),
        request.n_clusters,
        request.target_excess,
    )
    return AlgorithmForecast(
        algorithm=name,
        trust=plan.config.trust,
        epsilon=plan.epsilon,
        delta=plan.delta,
        epsilon_worst_case=worst_case(plan),
        epsilon_of_a_year=_of_a_year(plan),
        max_retries=plan.config.max_retries,
        noise_per_centroid=() if scaled is None else noise_in_units(plan, scaled),
        scaled_noise_per_centroid=scaled,
        excess_of_noise=None if scaled is None else (scaled / spread) ** 2,
        smallest_cluster=smallest,
        n_clusters_range=n_clusters_for_target(
            by_n_clusters,
            at,
            target,
            k,
        ),
        excess=at(k),
        excess_by_epsilon=by_epsilon,
        excess_by_n_clusters=by_n_clusters,
        epsilon_for_target=epsilon_for_target(
            by_epsilon, lambda epsilon: simulator.excess(name, epsilon, k), target
        ),
        deployment=deployment_of(plan),
    )


def notes_on(
    request: PlanningRequest, forecasts: Sequence[AlgorithmForecast]
) -> tuple[str, ...]:
    """What the numbers rest on, best candidate first in `forecasts`."""
    best = forecasts[0]
    close: list[str] = []
    if best.excess is not None:
        limit = best.excess.mean + best.excess.standard_error
        close = [
            forecast.algorithm
            for forecast in forecasts[1:]
            if _mean_excess(forecast) <= limit
        ]
    noises = best.noise_per_centroid if len(best.noise_per_centroid) > 1 else ()
    text = rendered(
        "notes.j2",
        CONSOLE,
        request=request,
        size=simulated_size(request),
        things=request.unit.things,
        centre_range=CENTRE_RANGE,
        best=best,
        close=close,
        each_noise=listed(
            f"{name} {noise:.3g}"
            for name, noise in zip(request.feature_names, noises, strict=False)
        ),
    )
    return (
        *filter(None, text.splitlines()),
        *plan_cautions(request.draft(best.algorithm)),
    )


_WEEKS = 52


def _of_a_year(plan: Plan) -> float:
    """Return the epsilon of a run in each week of a year."""
    cost = worst_cost(plan)
    year = GaussianCost(math.sqrt(_WEEKS) * cost.mu, _WEEKS * cost.own_delta)
    return year.epsilon(_WEEKS * plan.delta)


def _plain(value: object) -> object:
    return json.loads(json.dumps(value), parse_constant=lambda _: None)
