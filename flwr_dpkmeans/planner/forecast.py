"""The planner's answer: one forecast per candidate, a recommendation, and what was assumed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flwr_dpkmeans.algorithms import algorithm_entry
from flwr_dpkmeans.errors import BudgetError, LocalMisuseError
from flwr_dpkmeans.planner.estimate import (
    Deployment,
    centroid_noise,
    deployment_of,
    half_survives,
    largest_n_clusters,
    noise_in_units,
)
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.simulate import (
    BEYOND_GRID,
    CENTRE_RANGE,
    Curve,
    Excess,
    Simulator,
    curve,
    epsilon_for_target,
    epsilon_grid,
    expected_points,
    n_clusters_grid,
    simulated_size,
)
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.results.writer import write_whole
from flwr_dpkmeans.sums.cautions import plan_cautions
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan

FORECAST_VERSION = 1


@dataclass(frozen=True)
class AlgorithmForecast:
    """What to expect of one algorithm; what is None is unknown, or does not apply to its releases."""

    algorithm: str
    title: str
    trust: str
    epsilon: float
    """Cost of a run without dropouts."""
    delta: float
    epsilon_worst_case: float
    """With all retries used; infinite where delta leaves no room for them."""
    max_retries: int
    noise_per_centroid: tuple[float, ...]
    """Deviation of an average cluster's centroid from the last release, in the caller's units: one number, or one per
    feature where their bounds differ; empty where no release has this form."""
    scaled_noise_per_centroid: float | None
    """The same in the box [-1, 1]^d."""
    excess_of_noise: float | None
    """What that noise alone would add to the cost of the synthetic clusters, as a fraction: its variance over theirs,
    to first order (where it is large, the box and the radius keep the true excess smaller)."""
    smallest_cluster: int | None
    """Rows (client level: clients) from which a cluster survives."""
    survives: bool | None
    """Whether an average cluster is that large."""
    largest_n_clusters: int | None
    """Largest k at which a cluster of half the average size survives."""
    excess: Excess | None
    """Simulated, at the epsilon and k that were asked about."""
    excess_by_epsilon: Curve
    excess_by_n_clusters: Curve
    epsilon_for_target: float | None
    """Smallest epsilon whose simulated excess is at most the target; None if even the largest is not enough."""
    deployment: Deployment


@dataclass(frozen=True)
class Forecast:
    """The whole answer; no private row was involved.

    Candidates come best first, by simulated excess at the asked epsilon and k; `left_out` names those from which no
    plan follows, and why; notes say what was assumed and how it was simulated; the version is that of `to_dict`.
    """

    request: PlanningRequest
    algorithms: tuple[AlgorithmForecast, ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    version: int = FORECAST_VERSION

    @property
    def recommended(self) -> str:
        """The candidate with the smallest simulated excess."""
        return self.algorithms[0].algorithm

    @property
    def n_clusters_range(self) -> tuple[int, int] | None:
        """Sensible numbers of clusters for the recommended algorithm; None if not even two clusters survive."""
        most = self.algorithms[0].largest_n_clusters
        return (2, most) if most is not None and most >= 2 else None

    @property
    def epsilon_for_target(self) -> float | None:
        """Epsilon that the recommended algorithm needs for the target."""
        return self.algorithms[0].epsilon_for_target

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys that strict JSON can hold; what is infinite or unknown is None."""
        allowed = self.n_clusters_range
        return {
            "version": self.version,
            "request": self.request.to_dict(),
            "recommended": self.recommended,
            "n_clusters_range": None if allowed is None else list(allowed),
            "epsilon_for_target": self.epsilon_for_target,
            "algorithms": [_plain(asdict(forecast)) for forecast in self.algorithms],
            "left_out": [{"algorithm": name, "reason": reason} for name, reason in self.left_out],
            "notes": list(self.notes),
        }

    def plot(self, path: str | Path) -> Path:
        """Draw expected excess against epsilon and k as a PNG, whole or not at all; returns its absolute path."""
        from flwr_dpkmeans.planner.present import draw_forecast

        return write_whole(Path(path), draw_forecast(self))

    def __str__(self) -> str:
        from flwr_dpkmeans.planner.present import as_text

        return as_text(self)


def make_forecast(request: PlanningRequest, on_step: Callable[[int, int], None] = lambda done, total: None) -> Forecast:
    """Draft every candidate's plan, simulate it on synthetic data, and recommend one.

    `on_step` is told which of about how many points of the curves is being simulated. If no candidate has a plan, the
    error of the first is raised.
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
    simulator = Simulator(request, lambda: on_step(min(next(done), total), total))
    found = [_forecast_one(request, name, plan, simulator) for name, plan in plans.items()]
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

    by_epsilon = curve(epsilon_grid(epsilon), at_epsilon)
    by_n_clusters = curve(n_clusters_grid(request), lambda value: simulator.excess(name, epsilon, value))
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


def notes_on(request: PlanningRequest, found: Sequence[AlgorithmForecast]) -> tuple[str, ...]:
    """What the numbers rest on, best candidate first in `found`."""
    size = simulated_size(request)
    things = "rows" if request.unit is PrivacyUnit.RECORD else "clients"
    notes = [
        f"Excess costs are means (± standard error) over {request.seeds} synthetic data sets: {request.n_clusters} "
        f"Gaussian clusters of equal size with a deviation of {request.spread:g} per coordinate, their centres uniform "
        f"within {CENTRE_RANGE:g} of the middle (fractions of half the range between the bounds). Real data differ: "
        "use the forecast to compare, not to promise.",
        f"A cluster survives if the noise on its centroid is at most {request.spread:g} (the same unit) in each "
        "coordinate and its noisy count is three deviations above zero; k is sensible up to where clusters of half the "
        "average size survive.",
    ]
    if size.repeats > 1:
        each = "row" if request.unit is PrivacyUnit.RECORD else "client"
        drawn = size.n_rows if request.unit is PrivacyUnit.RECORD else size.n_parts
        notes.append(
            f"{drawn} {things} were simulated and each {each} counted {size.repeats} times, under the noise of the "
            "full size."
        )
    if request.private_count:
        notes.append("The number of rows is counted privately: one more round trip, and its share of the budget.")
    if "bounds" not in request.options:
        notes.append("No bounds were given: noise is given as a fraction of half the range that they will have.")
    if request.options.get("private_bounds"):
        notes.append(
            "Bounds are found privately, at a share of the budget: noise is given as a fraction of half the range that "
            "will be found, and the simulation takes the found box as right."
        )
    best = found[0]
    close = [one.algorithm for one in found[1:] if _as_good(one, best)]
    if close:
        notes.append(f"Within the simulation's standard error as good as {best.algorithm}: {', '.join(close)}.")
    if best.epsilon_for_target is None and best.excess_by_epsilon:
        largest = best.excess_by_epsilon[-1][0] * BEYOND_GRID
        notes.append(
            f"Not even epsilon {largest:g} brings {best.algorithm!r} within {request.target_excess:.0%} of the optimum."
        )
    if best.excess is not None and best.excess_of_noise is not None and best.excess_of_noise < 0.1 * best.excess.mean:
        notes.append(
            "Most of the excess does not come from the last release's noise but from the start and the few rounds: a "
            "larger epsilon helps as far as it buys more rounds."
        )
    if best.largest_n_clusters is not None and not half_survives(request, best.algorithm, request.n_clusters):
        fewer = f"at most {best.largest_n_clusters} clusters or " if best.largest_n_clusters >= 2 else ""
        notes.append(
            f"With {request.n_clusters} clusters those of half the average size drown: choose {fewer}a larger epsilon."
        )
    return (*notes, *plan_cautions(request.draft(best.algorithm)))


def _as_good(one: AlgorithmForecast, best: AlgorithmForecast) -> bool:
    """Whether a candidate's mean is within one standard error of the best one's."""
    if one.excess is None or best.excess is None:
        return False
    return one.excess.mean <= best.excess.mean + best.excess.standard_error


def _plain(value: Any) -> Any:
    """Values that strict JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
