"""Parts of an array on the grid, each with its scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.round import Array

REACH = 2.0**8
"""The clip norm in the ring, whose steps are 2^-16.

Values are rounded to 2^-24 of it, as in a float32.
"""
WEIGHT_SENSITIVITY = Sensitivity(
    Norm.L2,
    REACH,
    PrivacyUnit.CLIENT,
    "S31: one client's weight is from 0 to 1",
    nonnegative=True,
)
METRICS_SENSITIVITY = Sensitivity(
    Norm.L2,
    REACH,
    PrivacyUnit.CLIENT,
    "S31: each of m metrics is from 0 to 1, over sqrt(m)",
    nonnegative=True,
)
LEAST_HEIGHT = 2.0**-100
"""Between the middle of a metric's bounds and each of them."""
GRID_STEP = 1.0 / GRID
MOST_MOVED = 2.0**46
"""No honest sum comes near it; beyond, a state's digest would overflow."""


@dataclass(frozen=True)
class ArrayScale:
    """How values stand in the ring: one of `unit` is `reach` there."""

    unit: float
    reach: float

    @property
    def step(self) -> float:
        """What two neighbouring values differ by."""
        return self.unit / self.reach * GRID_STEP


@dataclass(frozen=True)
class ArrayPart:
    """What one client adds in a round, as its app answered it."""

    moves: Array = field(repr=False)
    """(size,): all arrays, one after another, less what they were before."""
    weight: float
    """In a mean: its examples over the most; else 1."""

    @classmethod
    def of(cls, vector: Array) -> ArrayPart:
        """Undo `ArraySumTask.contribution`."""
        moves, weight = np.split(vector, [-1])
        return cls(moves, float(weight[0]))

    @property
    def norm(self) -> float:
        """L2 norm of all arrays together."""
        largest = self.largest
        if not 0.0 < largest < math.inf:
            return largest
        return largest * float(np.linalg.norm(self.moves / largest))

    @property
    def largest(self) -> float:
        """Largest magnitude of an entry."""
        return float(np.abs(self.moves).max())
