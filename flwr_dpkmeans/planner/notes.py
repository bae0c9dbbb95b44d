"""Sentences on what a forecast rests on."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.planner.estimate import half_survives
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.result import AlgorithmForecast
from flwr_dpkmeans.planner.search import BEYOND_GRID
from flwr_dpkmeans.planner.simulate import CENTRE_RANGE, simulated_size
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.cautions import plan_cautions


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
