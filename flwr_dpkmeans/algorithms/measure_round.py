"""Evaluation: one more private sum after the algorithm's last round, which measures the result and does not change it.

Record level: every row adds its squared distance to the nearest centroid, in squared clip distances and at most 1; 1 if
it lies beyond the clip distance; and 1 to one cell of a table, that of its cluster and its label; the table's last
column is of rows without a class. Client level: every client adds the means of these over its own rows, so that the
metrics are averages over clients. Each of the three arrays has sensitivity 1: what one row, or one client, adds is at
most 1 whatever the centroids are; that the other rows' parts stay as they are takes centroids on the grid and in the
box, which clients check (`received.has_exact_centroids`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.feddp_steps import COST_CURVE
from flwr_dpkmeans.algorithms.received import cluster_state
from flwr_dpkmeans.kmeans.assignment import LabelArray, is_on_grid, nearest_centroids
from flwr_dpkmeans.kmeans.blocks import sum_over_blocks
from flwr_dpkmeans.kmeans.clipping import toward_zero
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum
from flwr_dpkmeans.sums.settings import Evaluation
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.task import Known, Run

CLIPPED_COST, ROWS_BEYOND, CELL_COUNTS = "clipped_cost", "rows_beyond", "cell_counts"
EVALUATION_ARRAYS = (CLIPPED_COST, ROWS_BEYOND, CELL_COUNTS)
"""Names of the released arrays, and of the extras that hold them in the state."""
_BECAUSE = {
    (CLIPPED_COST, PrivacyUnit.RECORD): (
        "S18: one row's squared distance to its nearest centroid, divided by the squared clip distance and clipped, is "
        "at most 1 (evaluation)"
    ),
    (ROWS_BEYOND, PrivacyUnit.RECORD): "S18: one row lies beyond the clip distance or not (evaluation)",
    (CELL_COUNTS, PrivacyUnit.RECORD): "S18: one row has one cluster and at most one label (evaluation)",
    (CLIPPED_COST, PrivacyUnit.CLIENT): (
        "S19: one client's mean over its rows of clipped squared distances, in squared clip distances, is at most 1 "
        "(evaluation)"
    ),
    (ROWS_BEYOND, PrivacyUnit.CLIENT): (
        "S19: one client's share of rows beyond the clip distance is at most 1 (evaluation)"
    ),
    (CELL_COUNTS, PrivacyUnit.CLIENT): (
        "S19: one client's shares of rows by cluster and label add up to at most 1 (evaluation)"
    ),
}
"""Why no array moves by more than 1."""
_PARTS = {CLIPPED_COST: 0.45, ROWS_BEYOND: 0.1, CELL_COUNTS: 0.45}
"""Of the evaluation's share. The cost is one number, but small beside its bound; accuracy has the noise of k cells, but
is of the size of 1: both want the same. How many rows were clipped need not be known to more than some percent."""


def clip_distance(config: Run, n_features: int) -> float:
    """Return the distance from which on rows count as if they were there, in scaled units.

    By default sqrt(d) / k^(1/d): half the diagonal of one of k equal cubes that fill the box. If k centroids cover the
    box, no row lies beyond; the noise of the released cost is proportional to its square. Where the run chooses k, the
    whole box is one cube. An exact evaluation has no noise to keep low: it takes the box's diagonal and clips nothing
    as long as the centroids are in the box, which post_processing='none' does not promise.

    Parameters
    ----------
    config : Run
    n_features : int

    Returns
    -------
    float

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> config = parse_config(n_clusters=16, bounds=((-1,), (1,)))
    >>> round(clip_distance(config, 4), 6)
    1.0
    """
    if config.settings.evaluation_radius is not None:
        return config.settings.evaluation_radius
    if config.settings.evaluation is Evaluation.EXACT:
        # The box's diagonal, with room for the last digit of its square.
        return 2.0 * math.sqrt(n_features) * (1.0 + 2.0**-40)
    k = 1 if config.choose_n_clusters else config.n_clusters
    # Twelve digits, as two machines' pow may differ in the last one.
    return float(f"{math.sqrt(n_features) / k ** (1.0 / n_features):.12g}")


def evaluation_blocks(config: Run, multiplier: float) -> tuple[Block, ...]:
    """Describe the arrays of an evaluation.

    Parameters
    ----------
    config : Run
    multiplier : float
        Noise multiplier of all arrays together.

    Returns
    -------
    tuple of Block
        Each of sensitivity 1; without noise for an exact evaluation.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> config = parse_config(n_clusters=3, bounds=((-1,), (1,)), evaluation="private", n_classes=2)
    >>> [(block.name, block.shape, round(block.noise_multiplier, 1)) for block in evaluation_blocks(config, 1.0)]
    [('clipped_cost', (1,), 1.5), ('rows_beyond', (1,), 3.2), ('cell_counts', (3, 3), 1.5)]
    """
    exact, unit = config.settings.evaluation is Evaluation.EXACT, config.settings.unit
    noise = NoiseShape.NONE if exact else NoiseShape.GAUSSIAN
    blocks = []
    for name, part in _PARTS.items():
        shape = (config.n_clusters, config.settings.n_classes + 1) if name == CELL_COUNTS else (1,)
        sensitivity = Sensitivity(Norm.L2, 1.0, unit, _BECAUSE[name, unit], nonnegative=True)
        blocks.append(Block(name, shape, sensitivity, noise, 0.0 if exact else multiplier / math.sqrt(part), 1.0))
    return tuple(blocks)


def evaluation_round(public: Known) -> PrivateSum:
    """Measure the centroids that the algorithm ended with.

    Parameters
    ----------
    public : Known
        With the evaluation's blocks.

    Returns
    -------
    PrivateSum
        Its `advance` keeps the centroids and adds the released arrays to the state's extras.
    """
    config, d = public.config, public.n_features
    k, n_classes = config.n_clusters, config.settings.n_classes
    clip = clip_distance(config, d)
    per_client = config.settings.unit is PrivacyUnit.CLIENT
    exact = config.settings.evaluation is Evaluation.EXACT

    def labelled(points: Array, state: State, labels: Labels | None) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            nearest, squares = nearest_centroids(points[rows], state.centroids)
            # Negated where it matters, so that a distance that is not a number is clipped as well.
            near = squares <= clip * clip
            parts = np.where(near, squares, clip * clip) / (clip * clip)
            # Row by row on the grid, so that one row's part does not depend on the others.
            cost = np.array([parts.sum() if exact else toward_zero(parts).sum()])
            beyond = np.array([float(np.count_nonzero(~near))])
            own = None if labels is None else labels[rows]
            return cost, beyond, _cells(np.minimum(nearest, k - 1), own, k, n_classes)

        arrays = sum_over_blocks(summed, len(points), d)
        if per_client:
            # The shares of rows add up to 1, and so have a norm of at most 1; rounding toward zero keeps it.
            return [toward_zero(array / max(1, len(points))) for array in arrays]
        return [round_to_grid(array) for array in arrays]

    def advance(state: State, released: ReleasedSum) -> State:
        found = {name: released[name] for name in EVALUATION_ARRAYS}
        return cluster_state(state.centroids, state.counts, state.movements, dict(state.extras) | found)

    def statistic(points: Array, state: State) -> Sequence[Array]:
        return labelled(points, state, None)

    return PrivateSum(EVALUATION_ROUND, public.evaluation, statistic, advance, clip, labelled=labelled)


def result_extras(config: Run) -> tuple[str, ...]:
    """Names of the extras that belong to a run's result: the cost curve if k was chosen, and an evaluation's arrays."""
    return (COST_CURVE, *(() if config.settings.evaluation is Evaluation.NONE else EVALUATION_ARRAYS))


def admits_evaluation(config: Run, state: State) -> bool:
    """Whether the extras of a server's result are an evaluation of the plan's shape."""
    shapes = dict.fromkeys(EVALUATION_ARRAYS, (1,)) | {CELL_COUNTS: (config.n_clusters, config.settings.n_classes + 1)}
    extras = state.extras
    return all(name in extras and extras[name].shape == shapes[name] and is_on_grid(extras[name]) for name in shapes)


def _cells(nearest: LabelArray, labels: Labels | None, n_clusters: int, n_classes: int) -> Array:
    """Rows by cluster and class; the last column has those without a class, or with another one than declared."""
    width = n_classes + 1
    classes = np.full(len(nearest), n_classes)
    if labels is not None:
        known = (labels >= 0) & (labels < n_classes)
        classes[known] = labels[known]
    places = nearest.astype(np.int64) * width + classes
    return np.bincount(places, minlength=n_clusters * width).astype(np.float64).reshape(n_clusters, width)
