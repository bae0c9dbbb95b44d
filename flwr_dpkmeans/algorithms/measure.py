"""Evaluation: one more private sum after the algorithm's last round, which measures the
result and does not change it.

What one row, or one client, adds to each of three arrays is at most 1 whatever the
centroids are; that the other rows' parts stay as they are takes centroids on the grid
and in the box, which clients check (`has_exact_centroids`). ``measure.md`` says what
is released, and how it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms.server_points import squared_unit
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kernels import assignment, grid
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.grid import LabelArray
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND
from flwr_dpkmeans.privacy.shown import share_text
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.outcome import COUNT
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, State
from flwr_dpkmeans.sums.settings import EvaluationKind

COST_CURVE = "cost_curve"
"""Name of the extra that a run leaves which chose its number of clusters."""
CLIPPED_COST = "clipped_cost"
ROWS_BEYOND = "rows_beyond"
CELL_COUNTS = "cell_counts"
EVALUATION_ARRAYS = (CLIPPED_COST, ROWS_BEYOND, CELL_COUNTS)
"""Names of the released arrays, and of the extras that hold them in the state."""
_ARRAYS = {
    CLIPPED_COST: (
        0.45,
        (
            "S18: one row's squared distance to its nearest centroid, divided by the"
            " squared clip distance and clipped, is at most 1 (evaluation)"
        ),
        (
            "S19: one client's mean over its rows of clipped squared distances, in"
            " squared clip distances, is at most 1 (evaluation)"
        ),
    ),
    ROWS_BEYOND: (
        0.1,
        "S18: one row lies beyond the clip distance or not (evaluation)",
        (
            "S19: one client's share of rows beyond the clip distance is at most 1"
            " (evaluation)"
        ),
    ),
    CELL_COUNTS: (
        0.45,
        "S18: one row has one cluster and at most one label (evaluation)",
        (
            "S19: one client's shares of rows by cluster and label add up to at most 1"
            " (evaluation)"
        ),
    ),
}
"""Of each array its part of the evaluation's share, and why one row and one client move
it by no more than 1.

The cost is one number, but small beside its bound; accuracy has the noise of k cells,
but is of the size of 1.
"""


def clip_distance(config: RunConfig, n_features: int) -> float:
    """The distance, in scaled units, from which on rows count as if they were there.

    By default half the diagonal of one of k equal cubes that fill the box, or of the
    whole box where the run chooses k. An exact evaluation has no noise to keep low: it
    takes the box's diagonal, and clips nothing as long as the centroids are in the box,
    which post_processing='none' does not promise.
    """
    if config.settings.evaluation_radius is not None:
        return config.settings.evaluation_radius
    if config.settings.evaluation is EvaluationKind.EXACT:
        # The box's diagonal, with room for the last digit of its square.
        return 2.0 * math.sqrt(n_features) * (1.0 + 2.0**-40)
    k = 1 if config.choose_n_clusters else config.n_clusters
    # Twelve digits, as two machines' pow may differ in the last one.
    return float(f"{math.sqrt(n_features) / k ** (1.0 / n_features):.12g}")


def evaluation_blocks(config: RunConfig, multiplier: float) -> tuple[Block, ...]:
    """Arrays of an evaluation, each of sensitivity 1, by their joint noise multiplier.

    An exact one has no noise.
    """
    exact, unit = (
        config.settings.evaluation is EvaluationKind.EXACT,
        config.settings.unit,
    )
    noise = NoiseShape.NONE if exact else NoiseShape.GAUSSIAN
    blocks = []
    for name, (part, one_row, one_client) in _ARRAYS.items():
        because = one_row if unit is PrivacyUnit.RECORD else one_client
        # One row adds 1 at most to one entry; a client's means, whose entries add up to
        # 1, have a norm of 1 at most.
        moved = Sensitivity(
            Norm.L2,
            1.0,
            unit,
            because,
            nonnegative=True,
        )
        own = 0.0 if exact else multiplier / math.sqrt(part)
        blocks.append(
            Block(
                name,
                _shape(config, name),
                moved,
                noise,
                own,
                1.0,
            )
        )
    return tuple(blocks)


def _shape(config: RunConfig, name: str) -> tuple[int, ...]:
    """Shape of an array: cost and rows beyond are one number.

    Cells are by cluster and class, or none.
    """
    return (
        (config.n_clusters, config.settings.n_classes + 1)
        if name == CELL_COUNTS
        else (1,)
    )


def evaluation_round(public: PublicFacts) -> PrivateSum:
    """Measure the centroids that the algorithm ended with: they stay.

    The released arrays are added to the state.
    """
    config, d = public.config, public.n_features
    k, n_classes = config.n_clusters, config.settings.n_classes
    clip = clip_distance(config, d)
    farthest = clip * clip
    per_client = config.settings.unit is PrivacyUnit.CLIENT
    exact = config.settings.evaluation is EvaluationKind.EXACT

    def labelled(
        points: Array,
        state: State,
        labels: Labels,
    ) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            nearest, squares = assignment.nearest_centroids(
                points[rows], state.centroids
            )
            # Negated where it matters, so that a distance that is not a number is
            # clipped as well.
            near = squares <= farthest
            parts = np.where(near, squares, farthest) / farthest
            # Row by row on the grid, so that one row's part does not depend on the
            # others.
            cost = np.array([parts.sum() if exact else grid.toward_zero(parts).sum()])
            beyond = np.array([float(np.count_nonzero(~near))])
            return (
                cost,
                beyond,
                _cells(
                    np.minimum(nearest, k - 1),
                    labels[rows],
                    k,
                    n_classes,
                ),
            )

        arrays = sum_over_blocks(summed, len(points), d)
        if per_client:
            # The shares of rows add up to 1, and so have a norm of at most 1; rounding
            # toward zero keeps it.
            return [grid.toward_zero(array / max(1, len(points))) for array in arrays]
        return [grid.round_to_grid(array) for array in arrays]

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(**{name: released[name] for name in EVALUATION_ARRAYS})

    def statistic(points: Array, state: State) -> Sequence[Array]:
        return labelled(points, state, np.broadcast_to(-1, len(points)))

    return PrivateSum(
        EVALUATION_ROUND,
        public.evaluation,
        statistic,
        advance,
        clip,
        labelled=labelled,
        in_blocks=True,
    )


def result_extras(config: RunConfig) -> tuple[str, ...]:
    """Names of the extras that belong to a run's result.

    The cost curve if k was chosen, and an evaluation's arrays.
    """
    return (
        COST_CURVE,
        *(
            ()
            if config.settings.evaluation is EvaluationKind.NONE
            else EVALUATION_ARRAYS
        ),
    )


def admits_evaluation(config: RunConfig, state: State) -> bool:
    """Whether the extras of a server's result are an evaluation of the plan's shape."""
    arrays = [(name, state.arrays.get(name)) for name in EVALUATION_ARRAYS]
    return all(
        one is not None and one.shape == _shape(config, name) and grid.is_on_grid(one)
        for name, one in arrays
    )


def _cells(
    nearest: LabelArray,
    labels: Labels,
    n_clusters: int,
    n_classes: int,
) -> Array:
    """Rows by cluster and class.

    The last column has those without a class, or with another one than declared.
    """
    classes = np.where((labels >= 0) & (labels < n_classes), labels, n_classes)
    places = nearest.astype(np.int64) * (n_classes + 1) + classes
    counts = np.bincount(places, minlength=n_clusters * (n_classes + 1))
    return counts.astype(np.float64).reshape(n_clusters, n_classes + 1)


PRIVATE = "private"
NOISY = "noisy"
EXACT = "exact"


@dataclass(frozen=True)
class Measured:
    """A number and the standard deviation of the noise in it, to first order.

    Over sampled clients a bound of it.

    Noise may carry a value out of its range, such as below 0. Sums and counts are
    unbiased up to rounding; ratios are so to first order only, and the largest of noisy
    numbers are too high.
    """

    value: float
    noise: float
    """0 for an exact evaluation."""

    def times(self, factor: float) -> Measured:
        """The same in another unit."""
        return Measured(self.value * factor, self.noise * factor)

    def __str__(self) -> str:
        """A number that is never negative; below 0 is noise alone."""
        if self.value < 0.0:
            return f"under {2.0 * self.noise:.2g}"
        return f"{self.value:.4g} +- {self.noise:.2g}"

    @property
    def as_share(self) -> str:
        """The same as a share, in per cent."""
        return share_text(self.value, self.noise)


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of a run's centroids over all clients' rows."""

    kind: str
    """``private``, ``exact``, or ``noisy``.

    Sums with noise in a run that is not private (exact releases, a seed).
    """
    averaged_over: str
    """``rows``; at client level ``clients``, each by the mean over its own rows (one
    without rows counts as 0).
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys, for JSON."""
        return dict(json.loads(json.dumps(asdict(self))))

    def __str__(self) -> str:
        unit = self.averaged_over.removesuffix("s")
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
    return EvaluationResult(
        # Noise alone is not privacy, as with a seed or after exact releases.
        kind=(
            EXACT
            if settings.evaluation is EvaluationKind.EXACT
            else PRIVATE
            if plan.is_private
            else NOISY
        ),
        averaged_over="rows" if settings.unit is PrivacyUnit.RECORD else "clients",
        n_units=units,
        n_units_source=source,
        clip_distance=distance,
        cost=cost,
        cost_in_units=None if in_units is None else cost.times(in_units),
        clipped=table.per_unit(float(state[ROWS_BEYOND][0]), noise[ROWS_BEYOND]),
        counts=tuple(counts.tolist()),
        counts_noise=table.noise_of(cell_noise * math.sqrt(cells.shape[1]), counts),
        cells=tuple(map(tuple, cells.tolist())),
        cells_noise=table.noise_of(cell_noise, cells),
        accuracy=table.share(matching) if labelled else None,
        purity=table.share([*enumerate(leading)]) if labelled else None,
        matching=matching,
    )


@dataclass(frozen=True, repr=False)
class CellTable:
    """The released cells, and what sums are divided by.

    Noise is followed to first order.
    """

    cells: Array
    cell_noise: float
    units: Measured
    units_are_cells: bool
    """Whether the units are the table's own total, so that the noise of both goes
    together.
    """
    left_out: float
    """Part of the units that sat out by coins of their own.

    Sums are over the others, each adding 0 to 1.
    """

    def per_unit(
        self,
        total: float,
        noise: float,
        covariance: float = 0.0,
    ) -> Measured:
        """Divide a noisy sum by the units; `covariance` is of the noise in both.

        Sampling adds its largest variance.
        """
        value = total / self.units.value
        variance = noise**2 + (value * self.units.noise) ** 2 - 2.0 * value * covariance
        share = min(1.0, max(0.0, value))
        sampling = self.left_out * share * (1.0 - share) * self.units.value
        return Measured(
            value, math.sqrt(max(0.0, variance) + sampling) / self.units.value
        )

    def share(self, chosen: Sequence[tuple[int, int]]) -> Measured:
        """Rows in the chosen cells over all rows."""
        variance = len(chosen) * self.cell_noise**2
        total = math.fsum(float(self.cells[cell]) for cell in chosen)
        return self.per_unit(
            total, math.sqrt(variance), variance if self.units_are_cells else 0.0
        )

    def noise_of(
        self,
        noise: float,
        sums: Array,
    ) -> float:
        """Noise on each of some sums over sampled clients, at most.

        One adds 1 - p times its part of the sum.
        """
        return math.sqrt(noise**2 + self.left_out * max(0.0, float(sums.max())))


def _units(
    plan: Plan,
    cells: Array,
    cell_noise: float,
    n_clients: int,
) -> tuple[Measured, str]:
    """What to divide by: the known number of units, or the table's own total if that
    says something else.
    """
    total = Measured(max(1.0, float(cells.sum())), cell_noise * math.sqrt(cells.size))
    known = _known_units(plan, n_clients)
    if known is None or plan.settings.evaluation is EvaluationKind.EXACT:
        return total, "released"
    far = abs(known.value - total.value) > _FAR * math.hypot(known.noise, total.noise)
    return (total, "released") if far or total.noise < known.noise else (known, "known")


def _known_units(plan: Plan, n_clients: int) -> Measured | None:
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
    """One class for each cluster and the other way round, with as many rows as
    possible.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cells, maximize=True)
    return tuple(zip(rows.tolist(), columns.tolist(), strict=True))
