"""From a run's released evaluation to metrics with their noise: post-processing, which costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.measure_round import (
    CELL_COUNTS,
    CLIPPED_COST,
    EVALUATION_ARRAYS,
    ROWS_BEYOND,
    clip_distance,
)
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Evaluation
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.statement import is_private_plan

PRIVATE, NOISY, EXACT = "private", "noisy", "exact"
"""Kinds of evaluations."""


@dataclass(frozen=True)
class Measured:
    """A number and the standard deviation of the noise in it, to first order; over sampled clients a bound of it.

    Parameters
    ----------
    value : float
        Noise may carry it out of its range, such as below 0. Sums and counts are unbiased up to rounding; ratios are so
        to first order only, and the largest of noisy numbers are too high.
    noise : float
        0 for an exact evaluation.
    """

    value: float
    noise: float

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.noise:.2g}"


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of a run's centroids over all clients' rows.

    Parameters
    ----------
    kind : str
        ``private``; ``noisy`` if its sums have noise in a run that is not private (an algorithm without noise, a seed);
        ``exact``.
    averaged_over : str
        ``rows``; at client level ``clients``, each by the mean over its own rows (one without rows counts as 0).
    n_units : Measured
        What the sums were divided by.
    n_units_source : str
        ``known``: the number that is declared public, was counted privately, or is the cohort; ``released``: the total
        of the table itself, where nothing else is known, where that is far from it, or where rows left with a client
        that dropped out. At client level the cohort is that of the last sum, times the rate of client sampling.
    clip_distance : float
        Rows farther from their centroid count as if they were there; in scaled units.
    cost : Measured
        Mean squared distance to the nearest centroid (NICV), so clipped, in squared scaled units.
    cost_in_units : Measured or None
        The same in the squared units of the data; None where features have bounds of different widths.
    clipped : Measured
        Share of rows beyond the clip distance: what clipping costs.
    counts : tuple of float
        Rows (or clients that took part) of each cluster, with noise.
    counts_noise : float
        Its standard deviation on each of them; over sampled clients a bound that holds for the largest one, too.
    cells : tuple of tuples of float
        Rows (or clients) by cluster and label class, with noise; the last column has those without a class, which are
        all without labels.
    cells_noise : float
        On each of them.
    accuracy, purity : Measured or None
        With labels: share of all rows (those without a class included) whose class is that of their cluster, for the
        best one-to-one matching of clusters and classes, and for each cluster's largest class. Both choose the largest
        of noisy numbers, so where a cell is as small as its noise they are too high.
    matching : tuple of (cluster, class)
        The one-to-one matching.
    """

    kind: str
    averaged_over: str
    n_units: Measured
    n_units_source: str
    clip_distance: float
    cost: Measured
    cost_in_units: Measured | None
    clipped: Measured
    counts: tuple[float, ...]
    counts_noise: float
    cells: tuple[tuple[float, ...], ...]
    cells_noise: float
    accuracy: Measured | None = None
    purity: Measured | None = None
    matching: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys, for JSON."""
        plain: dict[str, Any] = _lists(asdict(self))
        return plain

    def __str__(self) -> str:
        """One line for people."""
        unit = self.averaged_over.removesuffix("s")
        parts = [f"cost per {unit} {self.cost} (scaled units"]
        parts[0] += ")" if self.cost_in_units is None else f"; {self.cost_in_units} in squared units of the data)"
        parts.append(f"share clipped {self.clipped}")
        if self.accuracy is not None and self.purity is not None:
            parts += [f"accuracy {self.accuracy}", f"purity {self.purity}"]
        warning = " (the run is NOT PRIVATE)" if self.kind == NOISY else ""
        return f"{self.kind} evaluation{warning}: " + ", ".join(parts)


def quotient(
    sum_value: float, sum_noise: float, units: Measured, covariance: float = 0.0, *, sampled_out: float = 0.0
) -> Measured:
    """Divide a noisy sum by a noisy number of units, to first order.

    Parameters
    ----------
    sum_value, sum_noise : float
    units : Measured
        Above 0.
    covariance : float
        Of the noise in both.
    sampled_out : float
        Part of the units that sat out by coins of their own: the sum is over the others, each adding 0 to 1. Adds the
        largest variance that this can have around the mean R over all units, (1 - p) R (1 - R) / n with n sampled ones.

    Returns
    -------
    Measured

    Examples
    --------
    >>> quotient(50.0, 3.0, Measured(100.0, 8.0))
    Measured(value=0.5, noise=0.05)
    >>> quotient(50.0, 0.0, Measured(100.0, 0.0), sampled_out=0.64)
    Measured(value=0.5, noise=0.04)
    """
    value = sum_value / units.value
    variance = sum_noise**2 + (value * units.noise) ** 2 - 2.0 * value * covariance
    share = min(1.0, max(0.0, value))
    sampling = sampled_out * share * (1.0 - share) * units.value
    return Measured(value, math.sqrt(max(0.0, variance) + sampling) / units.value)


def _lists(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


Array = NDArray[np.float64]

_FAR = 5.0
"""A known number of units is not used if the table's own total is so many deviations away from it."""
_SAME_WIDTH = 1.0 + 1e-6


def read_evaluation(plan: Plan, state: State, n_clients: int | None = None) -> EvaluationResult | None:
    """Compute the metrics of a run that is over.

    Parameters
    ----------
    plan : Plan
        The final one.
    state : State
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
    if config.settings.evaluation is Evaluation.NONE:
        return None
    if not set(EVALUATION_ARRAYS) <= set(state.extras) or plan.n_features is None:
        raise PlanError("the state has no evaluation, but the plan has one: finish the run first.")
    planned = plan.rounds[-1]
    noise = {block.name: plan.released_std(planned, block) for block in planned.blocks}
    # Where the run chose k there are fewer centroids than rows of the table; the others hold noise alone.
    cells = state.extras[CELL_COUNTS][: len(state.centroids)]
    cell_noise = noise[CELL_COUNTS]
    units, source = _units(plan, cells, cell_noise, plan.n_clients if n_clients is None else n_clients)
    left_out = 1.0 - config.settings.client_sampling_rate
    square = clip_distance(config, plan.n_features) ** 2
    in_clips = quotient(float(state.extras[CLIPPED_COST][0]), noise[CLIPPED_COST], units, sampled_out=left_out)
    cost = Measured(in_clips.value * square, in_clips.noise * square)
    in_units = _squared_unit(plan)
    labelled = config.settings.n_classes > 0
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
        averaged_over="rows" if config.settings.unit is PrivacyUnit.RECORD else "clients",
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
    if plan.settings.evaluation is Evaluation.EXACT:
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
    if known is None or plan.settings.evaluation is Evaluation.EXACT:
        return total, "released"
    far = abs(known.value - total.value) > _FAR * math.hypot(known.noise, total.noise)
    return (total, "released") if far or total.noise < known.noise else (known, "known")


def _known_units(plan: Plan, n_clients: int) -> Measured | None:
    """N as declared or counted privately, if nobody has left; at client level the clients that take part on average."""
    config = plan.config
    if config.settings.unit is PrivacyUnit.CLIENT:
        rate = config.settings.client_sampling_rate
        return Measured(n_clients * rate, math.sqrt(n_clients * rate * (1.0 - rate)))
    if plan.n_examples is None or n_clients < plan.n_clients:
        return None
    counted = [
        plan.released_std(planned, block)
        for planned in plan.preliminary
        for block in planned.blocks
        if block.name == "count" and config.settings.n_examples is None
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
