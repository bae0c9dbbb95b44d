"""Rows by group, and deviations of what was summed."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.round import Array

LEAST = 2.0**-16
"""A deviation, or a distance in parts of the bounds, below which there is none."""


def group_counts(n_groups: int) -> ReleasePart:
    """Rows of each group."""
    sensitivity = Sensitivity(
        Norm.L2,
        1.0,
        PrivacyUnit.RECORD,
        "S23: one row lies in at most one group",
        nonnegative=True,
    )
    return ReleasePart(
        "group_counts",
        (n_groups,),
        sensitivity,
        share=1.0,
        entry_bound=1.0,
    )


def deviations_of(variances: Array, least: float) -> Array:
    """Standard deviations of at least `least`, on the grid and above 0."""
    at_least = np.maximum(variances, least**2)
    deviations = round_to_grid(np.sqrt(at_least))
    return np.maximum(deviations, LEAST)
