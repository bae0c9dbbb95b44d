"""What an evaluation leaves in the state."""

from __future__ import annotations

from flwr_dpkmeans.kernels import grid
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.settings import EvaluationKind

COST_CURVE = "cost_curve"
"""Name of the extra that a run leaves which chose its number of clusters."""
CLIPPED_COST = "clipped_cost"
ROWS_BEYOND = "rows_beyond"
CELL_COUNTS = "cell_counts"
EVALUATION_ARRAYS = (CLIPPED_COST, ROWS_BEYOND, CELL_COUNTS)
"""Names of the released arrays, and of the extras that hold them in the state."""


def shape_of(config: RunConfig, name: str) -> tuple[int, ...]:
    """Shape of an array: cost and rows beyond are one number.

    Cells are by cluster and class, or none.
    """
    return (
        (config.n_clusters, config.settings.n_classes + 1)
        if name == CELL_COUNTS
        else (1,)
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
    for name in EVALUATION_ARRAYS:
        array = state.arrays.get(name)
        if array is None or array.shape != shape_of(config, name):
            return False
        if not grid.is_on_grid(array):
            return False
    return True
