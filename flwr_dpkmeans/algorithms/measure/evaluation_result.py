"""What an evaluation says of a result."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from flwr_dpkmeans.algorithms.measure.cell_table import CellTable
from flwr_dpkmeans.algorithms.measure.evaluated_state import (
    CELL_COUNTS,
    CLIPPED_COST,
    EVALUATION_ARRAYS,
    ROWS_BEYOND,
)
from flwr_dpkmeans.algorithms.measure.evaluation_round import clip_distance
from flwr_dpkmeans.algorithms.measure.measured import Measured
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.outcome import COUNT
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.settings import EvaluationKind

PRIVATE = "private"
NOISY = "noisy"
EXACT = "exact"


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of a run's centroids over all clients' rows."""

    kind: str
    """``private``, ``exact``, or ``noisy``.

    Sums with noise in a run that is not private (exact releases, a seed).
    """
    averaged_over: str
    """``rows``; at client level ``clients``, each by the mean over its own rows (one
    without rows counts as 0); ``units of weight`` where rows have weights, in which
    counts and cells are then.
    """
    n_units: Measured
    n_units_source: str
    """``known``: as declared, counted privately, or the cohort (of the last sum, times
    the rate of client sampling); or ``released``: the table's total, where nothing is
    known, is far from it, or left with a client that dropped out.
    """
    clip_distance: float
    """Rows farther from their centroid count as if they were there; in scaled units."""
    cost: Measured
    """Mean squared distance to the nearest centroid (NICV), so clipped, in squared
    scaled units.
    """
    cost_in_units: Measured | None
    """The same in the squared units of the data.

    None where features have bounds of different widths.
    """
    clipped: Measured
    """Share of rows beyond the clip distance: what clipping costs."""
    counts: tuple[float, ...]
    """Rows (or clients that took part) of each cluster, with noise."""
    counts_noise: float
    """Its standard deviation on each of them.

    Over sampled clients a bound that holds for the largest one, too.
    """
    cells: tuple[tuple[float, ...], ...]
    """Rows (or clients) by cluster and label class, with noise.

    The last column has those without a class.
    """
    cells_noise: float
    """On each of them."""
    accuracy: Measured | None = None
    """With labels: share of all rows whose class is that of their cluster, for the best
    one-to-one matching; rows without a class are counted too.
    """
    purity: Measured | None = None
    """With labels: share of all rows whose class is their cluster's largest one."""
    matching: tuple[tuple[int, int], ...] = ()
    """The one-to-one matching, as pairs (cluster, class)."""

    def to_dict(self) -> dict[str, object]:
        """Plain values with stable keys, for JSON."""
        return dict(json.loads(json.dumps(asdict(self))))

    def __str__(self) -> str:
        unit = self.averaged_over.replace("units", "unit").removesuffix("s")
        parts = [f"cost per {unit} {self.cost} (scaled units"]
        parts[0] += (
            ")"
            if self.cost_in_units is None
            else f"; {self.cost_in_units} in squared units of the data)"
        )
        parts.append(f"share clipped {self.clipped.as_share}")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy.as_share}")
        if self.purity is not None:
            parts.append(f"purity {self.purity.as_share}")
        warning = " (the run is NOT PRIVATE)" if self.kind == NOISY else ""
        return f"{self.kind} evaluation{warning}: " + ", ".join(parts)


# a known number of units is not used if the table's own total is so many deviations
# away from it
_FAR = 5.0


def read_evaluation(
    plan: Plan,
    state: State,
    n_clients: int | None = None,
) -> EvaluationResult | None:
    """Metrics of a run that is over, from its final plan and last state.

    None if the plan has no evaluation.

    `n_clients` is how many are in the last sum, which everybody knows (None: all of the
    plan's). A `PlanError` if the state does not have what the plan's evaluation
    released.
    """
    settings = plan.settings
    if settings.evaluation is EvaluationKind.NONE:
        return None
    if not set(EVALUATION_ARRAYS) <= set(state.arrays) or plan.n_features is None:
        raise PlanError(
            "the state has no evaluation, but the plan has one: finish the run first."
        )
    planned = plan.rounds[-1]
    noise = {block.name: plan.released_std(planned, block) for block in planned.blocks}
    # Where the run chose k there are fewer centroids than rows of the table; the others
    # hold noise alone.
    cells, cell_noise = state[CELL_COUNTS][: len(state.centroids)], noise[CELL_COUNTS]
    units, source = _units(
        plan,
        cells,
        cell_noise,
        plan.n_clients if n_clients is None else n_clients,
    )
    table = CellTable(
        cells,
        cell_noise,
        units,
        source == "released",
        1.0 - settings.client_sampling_rate,
    )
    distance, in_units = (
        clip_distance(plan.config, plan.n_features),
        squared_unit(plan.bounds),
    )
    cost = table.per_unit(state[CLIPPED_COST].item(), noise[CLIPPED_COST]).times(
        distance**2
    )
    labelled = settings.n_classes > 0
    # The last column is of rows without a class, which no cluster can be matched with.
    matching = _matching(cells[:, :-1]) if labelled else ()
    leading = cells[:, :-1].argmax(axis=1).tolist() if labelled else ()
    counts = cells.sum(axis=1)
    weight_unit = settings.weight_unit
    of_counts = table.noise_of(cell_noise * math.sqrt(cells.shape[1]), counts)
    of_cells = table.noise_of(cell_noise, cells)
    return EvaluationResult(
        # Noise alone is not privacy, as with a seed or after exact releases.
        kind=(
            EXACT
            if settings.evaluation is EvaluationKind.EXACT
            else PRIVATE
            if plan.is_private
            else NOISY
        ),
        averaged_over=settings.things,
        n_units=units.times(weight_unit),
        n_units_source=source,
        clip_distance=distance,
        cost=cost,
        cost_in_units=None if in_units is None else cost.times(in_units),
        clipped=table.per_unit(float(state[ROWS_BEYOND][0]), noise[ROWS_BEYOND]),
        counts=tuple((weight_unit * counts).tolist()),
        counts_noise=weight_unit * of_counts,
        cells=tuple(map(tuple, (weight_unit * cells).tolist())),
        cells_noise=weight_unit * of_cells,
        accuracy=table.share(matching) if labelled else None,
        purity=table.share([*enumerate(leading)]) if labelled else None,
        matching=matching,
    )


def _units(
    plan: Plan,
    cells: Array,
    cell_noise: float,
    n_clients: int,
) -> tuple[Measured, str]:
    """What to divide by: the stated number of units, or the table's own total.

    The total if it says something else.
    """
    total = Measured(max(1.0, float(cells.sum())), cell_noise * math.sqrt(cells.size))
    stated = _stated_units(plan, n_clients)
    if stated is None or plan.settings.evaluation is EvaluationKind.EXACT:
        return total, "released"
    difference = abs(stated.value - total.value)
    is_far = difference > _FAR * math.hypot(stated.noise, total.noise)
    if is_far or total.noise < stated.noise:
        return total, "released"
    return stated, "known"


def _stated_units(plan: Plan, n_clients: int) -> Measured | None:
    """N as declared or counted privately, if nobody has left.

    At client level the clients that take part on average.
    """
    settings = plan.settings
    if settings.unit is PrivacyUnit.CLIENT:
        rate = settings.client_sampling_rate
        return Measured(n_clients * rate, math.sqrt(n_clients * rate * (1.0 - rate)))
    if plan.n_examples is None or n_clients < plan.n_clients:
        return None
    blocks = [
        (planned, block)
        for planned in plan.preliminary
        for block in planned.blocks
        if block.name == COUNT
    ]
    noise = [
        plan.released_std(*block) for block in blocks if settings.n_examples is None
    ]
    return Measured(float(plan.n_examples), noise[0] if noise else 0.0)


def _matching(cells: Array) -> tuple[tuple[int, int], ...]:
    """One class for each cluster and the other way round.

    With as many rows as possible.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cells, maximize=True)
    return tuple(zip(rows.tolist(), columns.tolist(), strict=True))
