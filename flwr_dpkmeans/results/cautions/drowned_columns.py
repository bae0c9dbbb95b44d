"""Columns in which the noise, or the grid, hides how centres differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.kernels.grid import GRID
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.clear_centres import (
    Cautions,
    Radius,
    clear_clusters,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

_FEW_STEPS = 64.0
"""Steps within which the grid moves a difference of centroids by up to 1.6%."""
_DROWNED = 0.25
"""Part of a column's range; the deviation of values that are spread over all of it is
0.29.
"""


def drowned_cautions(model: Model, radius: Radius = None) -> Cautions:
    """Warn of columns where noise moves a clear centre by a quarter of the range.

    A column that weighs little in a schema fills little of its box, and the noise is as
    large in all of them. Of bounds so wide that the grid itself hides what the
    centroids differ in, warn instead.
    """
    if is_coarse(model):
        sentence = report_sentence("coarse", steps=_steps(model))
        return (sentence,)
    columns = drowned_columns(model, radius)
    if not columns:
        return ()
    names = column_names(columns, model.feature_names)
    sentence = report_sentence("drowned", columns=names)
    return (sentence,)


def is_coarse(model: Model) -> bool:
    """Whether bounds are so wide that the grid hides how the centroids differ."""
    return 0.0 < _steps(model) < _FEW_STEPS


def _steps(model: Model) -> float:
    """Steps of the grid that the centroids are apart, at most in any column."""
    widths = np.ptp(model.scaled, axis=0)
    return float(widths.max() * GRID)


def drowned_columns(model: Model, radius: Radius = None) -> list[int]:
    """Columns in which noise moves a clear centre by a quarter of the range."""
    noise = centre_noise(model, radius)
    clear = clear_clusters(model)
    if noise is None or len(clear) == 0:
        return []
    low: Sequence[float] = model.bounds.lower
    high: Sequence[float] = model.bounds.upper
    if model.schema is not None:
        low = []
        high = []
        for column in model.schema.clustered.columns:
            column_low, column_high = column.range
            n_features = len(column.features)
            low += [column_low] * n_features
            high += [column_high] * n_features
    ends = model.bounds.scale([low, high])
    widths = np.ptp(ends, axis=0)
    largest = noise[clear].max()
    coordinate_noise = largest / math.sqrt(len(widths))
    is_drowned = coordinate_noise > _DROWNED * widths
    columns = np.flatnonzero(is_drowned)
    return list(columns.tolist())
