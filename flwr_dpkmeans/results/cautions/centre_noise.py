"""How far noise moves each centre."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.privacy.released_counts import counts_deviation
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
    Radius,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

_RELATIVE_SUMS = ("residual_sums", "relative_sums")
_SUMS_FROM_A_MIDDLE = ("clipped_sums", "means")
_SUMS = (*_RELATIVE_SUMS, *_SUMS_FROM_A_MIDDLE, "sums")


def centre_noise(model: Model, radius: Radius = None) -> Array | None:
    """Length of the noise in each centre, (k,), root mean square, in scaled units.

    Of the last released sums, to first order in the noise over the count; `radius` is
    what residuals were divided by, of all or of each. None if it is unknown.
    """
    privacy = model.privacy
    releases = [line for line in privacy.releases if line.array in _SUMS]
    deviation_of_counts = counts_deviation(privacy)
    if not releases or deviation_of_counts is None:
        return None
    last = releases[-1]
    unit = radius if last.array == "residual_sums" else 1.0
    if unit is None:
        return None
    n_features = model.scaled.shape[1]
    root = math.sqrt(n_features)
    of_sums = last.standard_deviation * unit * root
    of_counts: float | Array = 0.0
    if last.array not in _RELATIVE_SUMS:
        # A sum that is not relative to its own centre moves with the noise of its
        # count, too.
        is_from_middle = last.array in _SUMS_FROM_A_MIDDLE
        reach = _reach(model.scaled, is_from_middle=is_from_middle)
        of_counts = deviation_of_counts * reach
    noise = np.hypot(of_sums, of_counts)
    counts = np.maximum(model.counts, 1.0)
    lengths: Array = noise / counts
    # No centre is farther off than the box is wide, nor known more finely than the grid
    # of the rows.
    return np.clip(lengths, root / GRID, 2.0 * root)


def _reach(centres: Array, *, is_from_middle: bool) -> Array:
    """Length of each centre, (k,), in what its sum is relative to.

    That is the middle of the box or, `is_from_middle`, the mean of a server's points,
    which is not known here: about that of the centroids.
    """
    lengths: Array = np.linalg.norm(centres, axis=1)
    if not is_from_middle:
        return lengths
    from_mean = centres - centres.mean(axis=0)
    lengths_from_mean = np.linalg.norm(from_mean, axis=1)
    return np.asarray(np.maximum(lengths, lengths_from_mean))
