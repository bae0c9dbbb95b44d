"""What released centres say against the bounds that were stated.

Post-processing, so it costs nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns import Kind
from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.privacy.report import faint_clusters, told

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

Radius = float | NDArray[np.float64] | None


def bound_cautions(model: Model, radius: Radius = None) -> tuple[str, ...]:
    """Say so where clusters lie at a stated bound, or all of them in a small part of
    what the bounds hold.

    `radius` is as in `Model.centre_noise`, without which, or noise, nothing can be
    said.
    """
    noise = model.centre_noise(radius)
    if noise is None:
        return ()
    faint = list(faint_clusters(model.counts, model.privacy))
    centres = np.delete(model.scaled, faint, axis=0)
    lengths = np.delete(noise, faint)
    if not len(centres):
        return ()
    cut = _cut_columns(model, centres, lengths)
    if cut:
        columns = column_names(cut, model.feature_names)
        return (told("at_bound", columns=columns),)
    if _are_wide(centres, lengths):
        return (told("wide_bounds", part=_NEAR / 2.0),)
    return ()


def _cut_columns(
    model: Model, centres: NDArray[np.float64], lengths: NDArray[np.float64]
) -> list[int]:
    """Features in which a centre lies at a bound beyond which there may be values."""
    each = lengths[:, None] / math.sqrt(centres.shape[1])
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(apart, np.inf)
    room = np.minimum(_AT_BOUND, _OF_NEXT * apart.min(axis=1))
    nearest = room[:, None] - _DEVIATIONS * each
    at_lower = (1.0 + centres < nearest).any(axis=0)
    at_upper = (1.0 - centres < nearest).any(axis=0)
    at_lower &= ~np.isin(model.bounds.lower, _NATURAL_LOWER)
    at_upper &= ~np.isin(model.bounds.upper, _NATURAL_UPPER)
    columns = np.flatnonzero(at_lower | at_upper).tolist()
    limited = _limited_features(model)
    return [column for column in columns if column not in limited]


def _limited_features(model: Model) -> set[int]:
    """Features of a schema whose values have no beyond."""
    if model.schema is None:
        return set()
    kinds: list[Kind] = []
    for column in model.schema.clustered.columns:
        kinds += [column.kind] * len(column.features)
    return {index for index, kind in enumerate(kinds) if kind in _LIMITED}


def _are_wide(centres: NDArray[np.float64], lengths: NDArray[np.float64]) -> bool:
    """Whether centres that are told apart are all near each other."""
    if len(centres) < 2:
        return False
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    noise = float(np.hypot(lengths[:, None], lengths).max())
    return bool(apart.max() + _DEVIATIONS * noise < _NEAR)
