"""One more round that measures a result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.client_means import means_of_rows
from flwr_dpkmeans.algorithms.measure.evaluated_state import (
    CELL_COUNTS,
    CLIPPED_COST,
    EVALUATION_ARRAYS,
    ROWS_BEYOND,
    shape_of,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels import assignment, grid, vectors
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, RowWeights, State
from flwr_dpkmeans.sums.settings import EvaluationKind

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
        config.settings.unit.bounded,
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
        block_multiplier = 0.0 if exact else multiplier / math.sqrt(part)
        blocks.append(
            Block(
                name,
                shape_of(config, name),
                moved,
                noise,
                block_multiplier,
                1.0,
            )
        )
    return tuple(blocks)


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
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            nearest, squares = assignment.nearest_centroids(
                points[rows], state.centroids
            )
            # Negated where it matters, so that a distance that is not a number is
            # clipped as well.
            near = squares <= farthest
            are_far = (~near).astype(np.int32)
            parts = np.where(near, squares, farthest) / farthest
            of_rows = None if weights is None else weights[rows]
            if not exact:
                # Row by row on the grid, so that one row's part does not depend on the
                # others.
                parts = vectors.weighted(grid.toward_zero(parts), of_rows)
            elif of_rows is not None:
                parts *= of_rows
            groups = np.minimum(nearest, k - 1).astype(np.int64)
            cells = groups * (n_classes + 1) + _classes(labels[rows], n_classes)
            counts = counts_by_label(cells, k * (n_classes + 1), of_rows)
            return (
                np.array([parts.sum()]),
                counts_by_label(are_far, 2, of_rows)[1:],
                counts.reshape(k, n_classes + 1),
            )

        arrays = sum_over_blocks(summed, len(points), d)
        if per_client:
            # The shares of rows add up to 1, and so have a norm of at most 1.
            return means_of_rows(arrays, len(points))
        return [grid.round_to_grid(array) for array in arrays]

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(**{name: released[name] for name in EVALUATION_ARRAYS})

    def statistic(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        return labelled(points, state, np.broadcast_to(-1, len(points)), weights)

    return PrivateSum(
        EVALUATION_ROUND,
        public.evaluation,
        statistic,
        advance,
        clip,
        labelled=labelled,
        weighted=weighing(config.settings.unit, statistic, labelled),
        in_blocks=True,
    )


def _classes(labels: Labels, n_classes: int) -> Labels:
    """Classes of rows; those with none, or with another than declared, are the last."""
    return np.where((labels >= 0) & (labels < n_classes), labels, n_classes)
