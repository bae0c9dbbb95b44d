"""What happens to centroids that leave the box [-1, 1]^d."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import as_floats


class PostProcessing(enum.Enum):
    """What happens to centroids outside the box [-1, 1]^d.

    FastLloyd, section 5.3.5 and appendix B.
    """

    FOLD = "fold"
    TRUNCATE = "truncate"
    NONE = "none"


def fold(values: npt.ArrayLike) -> FloatArray:
    """Reflect finite values at the walls -1 and 1 until they lie between them.

    Values inside are unchanged.

    FastLloyd, section 5.3.5. The paper's text takes the remainder modulo 2, which would
    mirror values that are inside already (0.5 to -0.5); the period of a reflection is
    4, and that is what its code uses.

    Examples
    --------
    >>> fold([0.5, 1.25, -1.25, 3.5]).tolist()
    [0.5, 0.75, -0.75, -0.5]
    """
    original = as_floats(values)
    remainder = np.mod(original + 1.0, 4.0)
    is_on_way_back = remainder > 2.0
    mirrored = 4.0 - remainder
    folded = np.where(is_on_way_back, mirrored, remainder)
    is_inside = np.abs(original) <= 1.0
    return np.where(is_inside, original, folded - 1.0)


def truncate(values: npt.ArrayLike) -> FloatArray:
    """Move values outside [-1, 1] to the nearer wall."""
    floats = as_floats(values)
    return np.clip(floats, -1.0, 1.0)
