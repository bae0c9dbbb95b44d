"""What released centres say against the bounds that were stated.

Post-processing, so it costs nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
    Cautions,
    Radius,
    clear_clusters,
    distances_to_others,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

_AT_BOUND = 0.05
"""Distance from a bound, in halves of the bounds' width, within which most rows of a
cluster lie beyond or at it.
"""
_OF_NEXT = 0.25
"""The same of the distance to the next centre.

Of rows that are spread up to a bound, the outermost of many centres lies about half as
far from it as from the next one.
"""
_NEAR = 0.1
"""Distance between all centres, in halves of the bounds' width, below which bounds are
some ten times too wide.
"""
_DEVIATIONS = 3.0
_NATURAL_LOWER = (0.0, 1.0)
_NATURAL_UPPER = (0.0, 1.0, 100.0)
"""Ends at which values often lie, and none beyond: of amounts, shares and flags."""
_LIMITED = (Kind.FLAG, Kind.CATEGORY, Kind.CYCLE)


def bound_cautions(model: Model, radius: Radius = None) -> Cautions:
    """Warn of clusters at a stated bound, or of bounds that are far too wide.

    `radius` is as in `centre_noise`, without which, or noise, nothing can be
    said.
    """
    noise = centre_noise(model, radius)
    clear = clear_clusters(model)
    if noise is None or len(clear) == 0:
        return ()
    centres = model.scaled[clear]
    lengths = noise[clear]
    cut = _cut_columns(model, centres, lengths)
    if cut:
        columns = column_names(cut, model.feature_names)
        return (report_sentence("at_bound", columns=columns),)
    if _are_wide(centres, lengths):
        return (report_sentence("wide_bounds", part=_NEAR / 2.0),)
    return ()


def _cut_columns(
    model: Model,
    centres: Array,
    lengths: Array,
) -> list[int]:
    """Features in which a centre lies at a bound beyond which there may be values."""
    n_features = centres.shape[1]
    coordinate_noise = lengths[:, None] / math.sqrt(n_features)
    to_next = distances_to_others(centres).min(axis=1)
    room = np.minimum(_AT_BOUND, _OF_NEXT * to_next)
    nearest = room[:, None] - _DEVIATIONS * coordinate_noise
    is_low = 1.0 + centres < nearest
    is_high = 1.0 - centres < nearest
    low_is_natural = np.isin(model.bounds.lower, _NATURAL_LOWER)
    high_is_natural = np.isin(model.bounds.upper, _NATURAL_UPPER)
    at_lower = is_low.any(axis=0) & ~low_is_natural
    at_upper = is_high.any(axis=0) & ~high_is_natural
    columns = np.flatnonzero(at_lower | at_upper).tolist()
    limited = _limited_features(model)
    return [column for column in columns if column not in limited]


def _limited_features(model: Model) -> set[int]:
    """Features of a schema whose values have no beyond."""
    if model.schema is None:
        return set()
    limited = set[int]()
    n_features = 0
    for column in model.schema.clustered.columns:
        first = n_features
        n_features += len(column.features)
        if column.kind in _LIMITED:
            limited.update(range(first, n_features))
    return limited


def _are_wide(centres: Array, lengths: Array) -> bool:
    """Whether centres that are clear of the noise are all near each other."""
    if len(centres) < 2:
        return False
    distances = distances_to_others(centres)
    farthest = distances[np.isfinite(distances)].max()
    noise_of_pairs = np.hypot(lengths[:, None], lengths)
    noise = float(noise_of_pairs.max())
    return bool(farthest + _DEVIATIONS * noise < _NEAR)
