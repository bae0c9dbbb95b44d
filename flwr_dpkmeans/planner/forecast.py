"""The planner's answer: one forecast per candidate, a recommendation, and what was
assumed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import BudgetError, LocalMisuseError, listed
from flwr_dpkmeans.planner.cost import Cost, cost_of
from flwr_dpkmeans.planner.present import described, draw_forecast
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.simulate import (
    CENTRE_RANGE,
    Curve,
    Excess,
    Simulator,
    epsilon_for_target,
    expected_points,
    n_clusters_for_target,
    scaled_spread,
    simulated_size,
)
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.results.rendering import CONSOLE, HTML, rendered
from flwr_dpkmeans.results.whole_files import write_whole
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, Plan, round_trips
from flwr_dpkmeans.sums.statement import plan_cautions
from flwr_dpkmeans.sums.wire import dump_plan

MEAN_SQUARED_COORDINATE = 1.0 / 3.0
"""Of a centroid that is anywhere in [-1, 1] alike.

What noise on a count does to an absolute mean.
"""
START_UP_SECONDS = 20.0
"""From `flwr run` to the first message, with the app's dependencies installed."""
# Bytes around the numbers in each of the six messages as Flower serialises their
# content, measured in process.
_PLAN_REQUEST = 280
_KEYS_REPLY = 380
_ROSTER_REQUEST = 250
_ROSTER_MEMBER = 40
_SUM_REQUEST = 772
_SUM_REPLY = 773
_FINISH_REQUEST = 749
_FINISH_REPLY = 249
_BOX = 80
_BYTES_PER_ENTRY = 8


@dataclass(frozen=True)
class CentroidNoise:
    """The noise of the last release that carries centroids.

    Deviations of one entry of sums and counts, scaled units.

    Of sums that are not relative to the centroid the count's noise moves the mean as
    well.
    """

    sums_std: float
    counts_std: float
    relative: bool

    @property
    def total_std(self) -> float:
        """Standard deviation of a centroid's coordinate times the size of its cluster,
        in scaled units.
        """
        if self.relative:
            return self.sums_std
        return math.hypot(
            self.sums_std, self.counts_std * math.sqrt(MEAN_SQUARED_COORDINATE)
        )

    def per_coordinate(self, units: float) -> float:
        """Deviation of a centroid's coordinate, to first order, for a cluster of so
        many rows (or clients).
        """
        return self.total_std / units

    def smallest_cluster(self, spread: float) -> int:
        """Rows (or clients) from which a cluster survives.

        Its centroid's noise is then at most the spread (standard deviation) of its own
        rows in each coordinate, and its count is three deviations of the count's noise
        above zero.
        """
        # The tolerance keeps a quotient that is whole from being rounded up by its last
        # digit.
        return max(
            1,
            math.ceil(
                max(self.total_std / spread, COUNT_DEVIATIONS * self.counts_std)
                * (1.0 - 1e-12)
            ),
        )


def centroid_noise(
    plan: Plan, spread: float = PlanningRequest.spread
) -> CentroidNoise | None:
    """Noise of a final plan's last release of sums and counts per cluster.

    None if no round releases both.

    Residuals that are released in radii, as ProxyLloyd's are, are taken to have the
    radius that the spread of a cluster's rows leads to.
    """
    k, d = plan.config.n_clusters, plan.n_features
    for planned in reversed(
        [planned for planned in plan.rounds if planned.name not in CLOSING_ROUNDS]
    ):
        sums = [block for block in planned.blocks if block.shape == (k, d)]
        counts = [block for block in planned.blocks if block.shape == (k,)]
        if sums and counts:
            in_radii = sums[0].name == "residual_sums"
            unit = spread * math.sqrt(plan.n_features or 1) if in_radii else 1.0
            return CentroidNoise(
                plan.released_std(planned, sums[0]) * unit,
                plan.released_std(planned, counts[0]),
                in_radii or sums[0].name.startswith("relative"),
            )
    return None


def noise_in_units(plan: Plan, per_coordinate: float) -> tuple[float, ...]:
    """A scaled standard deviation in the caller's units.

    One number, or one per feature if their bounds differ.

    With private bounds their width is unknown, so it stays a fraction of half of what
    they will be.
    """
    if plan.config.private_bounds:
        return (per_coordinate,)
    lower, upper = plan.config.bounds
    widths = [
        0.5 * (high - low) * per_coordinate
        for low, high in zip(lower, upper, strict=True)
    ]
    return (widths[0],) if len(set(widths)) == 1 else tuple(widths)


@dataclass(frozen=True)
class Deployment:
    """What one run without dropouts sends, and how long it takes."""

    n_rounds: int
    """Aggregations without those that steer the plan (a private count, private bounds).
    """
    n_round_trips: int
    n_messages: int
    bytes_down: int
    """Payload for one client on average, without transport and TLS; so is `bytes_up`.
    """
    bytes_up: int
    minutes: float
    """Start-up and polling; a client's own computation comes on top."""
    cost: Cost | None = None
    """Of processors, memory and aggregators, by a model.

    None of what was not planned here.
    """


def deployment_of(plan: Plan) -> Deployment:
    """Count what a final plan's run sends."""
    planned_rounds = [
        plan.round_at(index) for index in range(plan.first_round, plan.last_round + 1)
    ]
    vectors = [_BYTES_PER_ENTRY * planned.length for planned in planned_rounds]
    trips = round_trips(plan)
    # Every author seals a box for every other client: on average each client sends as
    # many as it receives.
    boxed = any(planned.model.hides_sums() for planned in plan.rounds)
    boxes = (
        _BOX * (plan.max_silent + 2) * (plan.n_clients - 1) // plan.n_clients
        if boxed
        else 0
    )
    # Before releases that steer it, the plan travels without its rounds.
    first = replace(
        plan,
        rounds=(),
        n_examples=plan.config.n_examples,
        box=None,
    )
    sent_plans = [first, plan] if plan.preliminary else [plan]
    down = sum(len(dump_plan(sent)) + _PLAN_REQUEST for sent in sent_plans) + boxes
    down += _ROSTER_REQUEST + _ROSTER_MEMBER * plan.n_clients
    down += (
        sum(vector + _SUM_REQUEST for vector in vectors[:-1])
        + vectors[-1]
        + _FINISH_REQUEST
    )
    up = (
        _KEYS_REPLY
        + sum(vector + _SUM_REPLY for vector in vectors)
        + _FINISH_REPLY
        + boxes
    )
    more_down, more_up = plan.aggregator.bytes_besides(plan, len(vectors))
    down, up = down + more_down, up + more_up
    minutes = (START_UP_SECONDS + SECONDS_PER_ROUND_TRIP * trips) / 60.0
    n_messages = 2 * plan.n_clients * trips
    return Deployment(
        len(plan.rounds),
        trips,
        n_messages,
        down,
        up,
        minutes,
        cost_of(plan, n_messages, up),
    )


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

    def to_dict(self) -> dict[str, Any]:
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
        things="rows" if request.unit is PrivacyUnit.RECORD else "clients",
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


def _plain(value: object) -> Any:
    return json.loads(json.dumps(value), parse_constant=lambda _: None)
