"""How a column's values tell clusters apart, as shades."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
    Radius,
)
from flwr_dpkmeans.results.cautions.sureness import unsure_columns

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model


_CLEAR = 3.0
"""Deviations of its noise above which a centre's difference from the others is told
from noise.
"""


def column_shades(model: Model, radius: Radius = None) -> Array:
    """Differences between clusters by column, (n_columns, n_clusters), from -1 to 1.

    Each column is compared with itself, not with its bounds; where noise may make all
    of the difference it stays pale, and where it makes all of it there is no shade.
    """
    n_clusters, n_features = model.scaled.shape
    middle = model.scaled.mean(axis=0)
    differences = (model.scaled - middle).T
    lengths = centre_noise(model, radius)
    noise = np.zeros(n_clusters)
    if lengths is not None:
        noise = lengths / math.sqrt(n_features)
    amounts = np.abs(differences)
    clear_amounts = np.where(amounts > _CLEAR * noise, amounts, 0.0)
    largest = clear_amounts.max(axis=1, initial=0.0)
    palest = 2.0 * _CLEAR * noise
    whole = np.maximum(largest[:, None], palest)
    divisors = np.where(whole > 0.0, whole, 1.0)
    shades: Array = differences / divisors
    unsure = unsure_columns(model, radius)
    shades[unsure] = 0.0
    return shades
