"""How sure the values of centres are, as it is shown beside them.

Errors, columns that tell no clusters apart, and centres that are too close for the
noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column import Kind
from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.kmeans.centre_errors import NORMAL_QUANTILE
from flwr_dpkmeans.privacy.report import faint_clusters, told
from flwr_dpkmeans.privacy.shown import error_text, rounded_text

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

APART = 3.0
"""Centres that are so many times their noise apart are told apart."""
_CLEAR = 3.0
"""Deviations of its noise above which a centre's difference from the others is told
from noise.
"""
_MISSING = "missing"
_SHARES = (Kind.FLAG, Kind.CATEGORY)

Array = NDArray[np.float64]
Radius = float | NDArray[np.float64] | None
"""What residuals were divided by, of all clusters or of each; see `Model.centre_noise`.
"""


def error_texts(model: Model) -> list[list[str]]:
    """Say beside each value of `Model.shown` how far it may be off, n_features lists of
    n_clusters.

    In the column's units: dates have days, flags and categories percent. Where nothing
    is known of one centre, that is said; where nothing is known of any, nothing is.
    """
    has_errors = bool(np.isfinite(model.cell_means_error).any())
    texts = list[list[str]]()
    for errors, kind in zip(_errors(model), _kinds(model), strict=True):
        texts.append([_text(error, kind) if has_errors else "" for error in errors])
    return texts


def with_errors(model: Model) -> list[list[str]]:
    """Write values of centres with their errors, n_features lists of n_clusters.

    A value has as many digits as its error says are of use.
    """
    shown = model.shown()
    numbers = _numbers(model)
    errors = _errors(model)
    error_words = error_texts(model)
    rows = list[list[str]]()
    for feature, texts in enumerate(shown):
        is_share = _kinds(model)[feature] in _SHARES
        cells = list[str]()
        for cluster, text in enumerate(texts):
            if text == _MISSING:
                cells.append(text)
                continue
            value = _rounded(
                text, numbers[feature][cluster], errors[feature][cluster], is_share
            )
            cells.append(value + error_words[feature][cluster])
        rows.append(cells)
    return rows


def unsure_columns(model: Model, radius: Radius = None) -> list[int]:
    """List the columns in which no two centres differ by more than their errors.

    Clusters that are mostly noise are left out. Where an error is not known, the noise
    alone stands in its place, if that is; else nothing is said of such a centre, nor of
    columns whose sums are exact.
    """
    if model.privacy.is_exact:
        return []
    clear = np.delete(np.arange(len(model.counts)), _faint(model))
    errors = _least_errors(model, radius)[clear]
    values = model.placed_means[clear]
    columns = list[int]()
    for column in range(values.shape[1]):
        is_known = np.isfinite(errors[:, column])
        if np.count_nonzero(is_known) < 2:
            continue
        if not _are_apart(values[is_known, column], errors[is_known, column]):
            columns.append(column)
    return columns


def untold(model: Model, radius: Radius = None) -> tuple[str, ...]:
    """Warn of columns that noise drowns, and of those in which no two centres differ by
    more than their errors.
    """
    if model.is_coarse:
        return model.drowned(radius)
    drowned = model.drowned_columns(radius)
    columns = [one for one in unsure_columns(model, radius) if one not in drowned]
    if not columns:
        return model.drowned(radius)
    names = column_names(columns, model.feature_names)
    return *model.drowned(radius), told("unsure", columns=names)


def close_clusters(model: Model, radius: Radius = None) -> list[int]:
    """List those of the clear clusters whose centre is less than three times the noise
    away from another clear one.
    """
    lengths = model.centre_noise(radius)
    clear = np.delete(np.arange(len(model.counts)), _faint(model))
    if lengths is None or len(clear) < 2:
        return []
    centres, noise = model.scaled[clear], lengths[clear]
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1)
    least = APART * np.hypot(noise, noise[nearest])
    close: list[int] = clear[apart.min(axis=1) < least].tolist()
    return close


def too_close(model: Model, radius: Radius = None) -> tuple[str, ...]:
    """Warn of clusters that the noise may have made of one: so many were asked for."""
    clusters = close_clusters(model, radius)
    if not clusters:
        return ()
    numbers = ", ".join(map(str, clusters))
    return (
        told("close", n=len(clusters), n_clusters=len(model.counts), listed=numbers),
    )


def column_shades(model: Model, radius: Radius = None) -> Array:
    """How clusters differ from one another by column, (n_columns, n_clusters), from -1
    to 1.

    Each column is compared with itself, not with its bounds; where noise may make all
    of the difference it stays pale, and where it makes all of it there is no shade.
    """
    differences = (model.scaled - model.scaled.mean(axis=0)).T
    lengths = model.centre_noise(radius)
    noise = np.zeros(len(model.scaled))
    if lengths is not None:
        noise = lengths / math.sqrt(len(differences))
    is_clear = np.abs(differences) > _CLEAR * noise
    largest = np.where(is_clear, np.abs(differences), 0.0).max(axis=1, initial=0.0)
    whole = np.maximum(largest[:, None], 2.0 * _CLEAR * noise)
    shades: Array = differences / np.where(whole > 0.0, whole, 1.0)
    shades[unsure_columns(model, radius)] = 0.0
    return shades


def _faint(model: Model) -> list[int]:
    return list(faint_clusters(model.counts, model.privacy))


def _least_errors(model: Model, radius: Radius) -> Array:
    """Half-widths, (n_clusters, n_features), and where none is known that of the noise
    alone; infinity where that is not known, either.
    """
    errors = model.cell_means_error
    lengths = model.centre_noise(radius)
    if lengths is None:
        return errors
    lower, upper = np.array(model.bounds.lower), np.array(model.bounds.upper)
    each = lengths / math.sqrt(len(lower))
    in_units = np.outer(each, (upper - lower) / 2.0)
    noise = NORMAL_QUANTILE * model.gaps.noise(model.centroids, in_units)
    is_stand_in = np.isinf(errors) & np.isfinite(noise)
    return np.where(is_stand_in, noise, errors)


def _are_apart(values: Array, errors: Array) -> bool:
    """Whether the lower end of some interval is above the upper end of another one."""
    return bool((values - errors).max() > (values + errors).min())


def _kinds(model: Model) -> list[Kind]:
    """What stands in each of the rows of `Model.shown`."""
    if model.schema is None:
        return [Kind.NUMBER] * model.scaled.shape[1]
    kinds = list[Kind]()
    for column, features in model.schema.features_of_columns:
        kinds += [column.kind] * (features.stop - features.start)
    return kinds


def _errors(model: Model) -> list[list[float]]:
    """Half-widths of the values of `Model.shown`, in the column's units."""
    half_widths = model.cell_means_error
    if model.schema is None:
        rows: list[list[float]] = half_widths.T.tolist()
        return rows
    means = model.placed_means
    rows = []
    for column, features in model.schema.features_of_columns:
        errors = column.errors_in_units(means[:, features], half_widths[:, features])
        rows += errors.T.tolist()
    return rows


def _numbers(model: Model) -> Sequence[Sequence[float | None]]:
    """Values of `Model.shown` as numbers, dates as None."""
    means = model.placed_means
    if model.schema is None:
        whole: list[list[float | None]] = means.T.tolist()
        return whole
    decoded = model.schema.decode(means)
    rows = list[list[float | None]]()
    for column, features in model.schema.features_of_columns:
        values = decoded[column.name]
        if column.kind == Kind.CATEGORY:
            rows += [[shares[str(one)] for shares in values] for one in column.values]
        elif column.kind == Kind.DATE:
            rows.append([None] * len(values))
        else:
            rows.append(values)
        if column.kind == Kind.CYCLE:
            rows.append(np.hypot(*means[:, features].T).tolist())
    return rows


def _rounded(text: str, value: float | None, error: float, is_share: bool) -> str:
    """A value's text, with the digits of its error where there is one."""
    if value is None or not math.isfinite(error) or error == 0.0:
        return text
    if is_share:
        return f"{rounded_text(100.0 * value, 100.0 * error)}%"
    return rounded_text(value, error)


def _text(error: float, kind: Kind) -> str:
    if not math.isfinite(error):
        return " ± unknown"
    if kind in _SHARES:
        return f" ± {error_text(100.0 * error)}%"
    return f" ± {error_text(error)}" + (" days" if kind == Kind.DATE else "")
