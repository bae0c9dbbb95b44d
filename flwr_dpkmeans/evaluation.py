"""From a run's released evaluation to metrics with their noise: post-processing, which costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.evaluation import CELL_COUNTS, CLIPPED_COST, EVALUATION_ARRAYS, ROWS_BEYOND, clip_distance
from flwr_dpkmeans.config import Evaluation
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.plan import Plan
from flwr_dpkmeans.privacy.sensitivity import PrivacyUnit
from flwr_dpkmeans.reporting import is_private_plan
from flwr_dpkmeans.results.evaluation import EXACT, NOISY, PRIVATE, EvaluationResult, Measured, quotient
from flwr_dpkmeans.rounds.state import ClusterState

Array = NDArray[np.float64]

_FAR = 5.0
"""A known number of units is not used if the table's own total is so many deviations away from it."""
_SAME_WIDTH = 1.0 + 1e-6


def read_evaluation(plan: Plan, state: ClusterState, n_clients: int | None = None) -> EvaluationResult | None:
    """Compute the metrics of a run that is over.

    Parameters
    ----------
    plan : Plan
        The final one.
    state : ClusterState
        After its last round.
    n_clients : int, optional
        In the last sum, which everybody knows; None: all of the plan's.

    Returns
    -------
    EvaluationResult or None
        None if the plan has no evaluation.

    Raises
    ------
    PlanError
        If the state does not have what the plan's evaluation released.
    """
    config = plan.config
    if config.evaluation is Evaluation.NONE:
        return None
    if not set(EVALUATION_ARRAYS) <= set(state.extras) or plan.n_features is None:
        raise PlanError("the state has no evaluation, but the plan has one: finish the run first.")
    planned = plan.rounds[-1]
    noise = {block.name: plan.released_std(planned, block) for block in planned.blocks}
    # Where the run chose k there are fewer centroids than rows of the table; the others hold noise alone.
    cells = state.extras[CELL_COUNTS][: len(state.centroids)]
    cell_noise = noise[CELL_COUNTS]
    units, source = _units(plan, cells, cell_noise, plan.n_clients if n_clients is None else n_clients)
    left_out = 1.0 - config.client_sampling_rate
    square = clip_distance(config, plan.n_features) ** 2
    in_clips = quotient(float(state.extras[CLIPPED_COST][0]), noise[CLIPPED_COST], units, sampled_out=left_out)
    cost = Measured(in_clips.value * square, in_clips.noise * square)
    in_units = _squared_unit(plan)
    labelled = config.n_classes > 0
    # The last column is of rows without a class, which no cluster can be matched with.
    classes = cells[:, :-1] if labelled else cells
    matching = _matching(classes) if labelled else ()
    leading = [(row, int(classes[row].argmax())) for row in range(len(cells))]
    counts = cells.sum(axis=1)

    def share(chosen: Sequence[tuple[int, int]]) -> Measured:
        """Rows in the chosen cells over all rows; where these are the table's total, the two share noise."""
        variance = len(chosen) * cell_noise**2
        covariance = variance if source == "released" else 0.0
        found = math.fsum(float(cells[cell]) for cell in chosen)
        return quotient(found, math.sqrt(variance), units, covariance, sampled_out=left_out)

    return EvaluationResult(
        kind=_kind(plan),
        averaged_over="rows" if config.unit is PrivacyUnit.RECORD else "clients",
        n_units=units,
        n_units_source=source,
        clip_distance=math.sqrt(square),
        cost=cost,
        cost_in_units=None if in_units is None else Measured(cost.value * in_units, cost.noise * in_units),
        clipped=quotient(float(state.extras[ROWS_BEYOND][0]), noise[ROWS_BEYOND], units, sampled_out=left_out),
        counts=tuple(float(count) for count in counts),
        counts_noise=_sum_noise(cell_noise * math.sqrt(cells.shape[1]), counts, left_out),
        cells=tuple(tuple(float(cell) for cell in row) for row in cells),
        cells_noise=_sum_noise(cell_noise, cells, left_out),
        accuracy=share(matching) if labelled else None,
        purity=share(leading) if labelled else None,
        matching=matching,
    )


def _kind(plan: Plan) -> str:
    """What the run makes of the evaluation: noise alone is not privacy, as with a seed or after exact releases."""
    if plan.config.evaluation is Evaluation.EXACT:
        return EXACT
    return PRIVATE if is_private_plan(plan) else NOISY


def _sum_noise(noise: float, sums: Array, sampled_out: float) -> float:
    """Noise on each of some sums over sampled clients, at most.

    With a part p of the clients sampled, one with x from 0 to 1 adds p (1 - p) x^2 <= (1 - p) p x of variance: 1 - p
    times its part of the sum.
    """
    return math.sqrt(noise**2 + sampled_out * max(0.0, float(sums.max())))


def _units(plan: Plan, cells: Array, cell_noise: float, n_clients: int) -> tuple[Measured, str]:
    """What to divide by: the known number of units, or the table's own total if that says something else."""
    total = Measured(max(1.0, float(cells.sum())), cell_noise * math.sqrt(cells.size))
    known = _known_units(plan, n_clients)
    if known is None or plan.config.evaluation is Evaluation.EXACT:
        return total, "released"
    far = abs(known.value - total.value) > _FAR * math.hypot(known.noise, total.noise)
    return (total, "released") if far or total.noise < known.noise else (known, "known")


def _known_units(plan: Plan, n_clients: int) -> Measured | None:
    """N as declared or counted privately, if nobody has left; at client level the clients that take part on average."""
    config = plan.config
    if config.unit is PrivacyUnit.CLIENT:
        rate = config.client_sampling_rate
        return Measured(n_clients * rate, math.sqrt(n_clients * rate * (1.0 - rate)))
    if plan.n_examples is None or n_clients < plan.n_clients:
        return None
    counted = [
        plan.released_std(planned, block)
        for planned in plan.preliminary
        for block in planned.blocks
        if block.name == "count" and config.n_examples is None
    ]
    return Measured(float(plan.n_examples), counted[0] if counted else 0.0)


def _matching(cells: Array) -> tuple[tuple[int, int], ...]:
    """One class for each cluster and the other way round, with as many rows as possible."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cells, maximize=True)
    return tuple((int(row), int(column)) for row, column in zip(rows, columns, strict=True))


def _squared_unit(plan: Plan) -> float | None:
    """The caller's squared units in a squared scaled one, where it is the same for all features."""
    widths = [high - low for low, high in zip(*plan.bounds, strict=True)]
    return (widths[0] / 2.0) ** 2 if max(widths) <= min(widths) * _SAME_WIDTH else None
