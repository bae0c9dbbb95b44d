"""How sure centres are: which columns tell clusters apart, and which are too close."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.kmeans.centre_errors.intervals import NORMAL_QUANTILE
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
    Cautions,
    Radius,
    clear_clusters,
)
from flwr_dpkmeans.results.cautions.drowned_columns import (
    drowned_cautions,
    drowned_columns,
    is_coarse,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model


APART = 3.0
"""Centres that are so many times their noise apart are told apart."""


def unsure_columns(model: Model, radius: Radius = None) -> list[int]:
    """List the columns in which no two centres differ by more than their errors.

    Clusters that are mostly noise are left out. Where an error is not known, the noise
    alone stands in its place, if that is; else nothing is said of such a centre, nor of
    columns whose sums are exact.
    """
    if model.privacy.is_exact:
        return []
    clear = clear_clusters(model)
    errors = _least_errors(model, radius)[clear]
    values = model.placed_means[clear]
    columns = list[int]()
    n_features = model.scaled.shape[1]
    for column in range(n_features):
        column_errors = errors[:, column]
        has_error = np.isfinite(column_errors)
        if np.count_nonzero(has_error) < 2:
            continue
        column_values = values[has_error, column]
        if not _are_apart(column_values, column_errors[has_error]):
            columns.append(column)
    return columns


def column_cautions(model: Model, radius: Radius = None) -> Cautions:
    """Warn of columns that noise drowns, and of those that tell no clusters apart."""
    cautions = drowned_cautions(model, radius)
    if is_coarse(model):
        return cautions
    drowned = drowned_columns(model, radius)
    unsure = unsure_columns(model, radius)
    columns = [column for column in unsure if column not in drowned]
    if not columns:
        return cautions
    names = column_names(columns, model.feature_names)
    return (*cautions, report_sentence("unsure", columns=names))


def _least_errors(model: Model, radius: Radius) -> Array:
    """Half-widths, (n_clusters, n_features); where none is known, of the noise alone.

    Infinite where that is not known, either.
    """
    errors = model.cell_means_error
    lengths = centre_noise(model, radius)
    if lengths is None:
        return errors
    in_units = noise_in_units(model, lengths)
    noise = NORMAL_QUANTILE * in_units
    is_stand_in = np.isinf(errors) & np.isfinite(noise)
    return np.where(is_stand_in, noise, errors)


def noise_in_units(model: Model, lengths: Array) -> Array:
    """Noise in each value of each centre, (n_clusters, n_features), in its unit.

    `lengths` are those of `centre_noise`, (n_clusters,).
    """
    lower = np.array(model.bounds.lower)
    upper = np.array(model.bounds.upper)
    coordinate_noise = lengths / math.sqrt(len(lower))
    half_ranges = (upper - lower) / 2.0
    in_units = np.outer(coordinate_noise, half_ranges)
    return model.gaps.noise(model.centroids, in_units)


def _are_apart(values: Array, errors: Array) -> bool:
    """Whether the lower end of some interval is above the upper end of another one."""
    lower_ends = values - errors
    upper_ends = values + errors
    highest = lower_ends.max()
    return bool(highest > upper_ends.min())
