"""Public bounds by the names of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.data.points import Bounds, broadcast
from flwr_dpkmeans.errors import (
    ConfigurationError,
    nearest,
    require_ranges,
)


@dataclass(frozen=True)
class NamedRanges:
    """Ranges in the order of a file, with the names of their features if there are."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    names: tuple[str, ...] = ()
    source: str = "the bounds"
    """As a sentence calls it."""

    def matched(self, feature_names: Sequence[str] | None) -> Bounds:
        """The ranges in the order of `feature_names`, others left out.

        Without names on either side, as they are.
        """
        lower, upper, names = self.lower, self.upper, self.names
        if names and feature_names is not None:
            for name in feature_names:
                if name not in names:
                    raise ConfigurationError(
                        f"feature {name!r} has no row in {self.source}, but every"
                        " feature needs a range:"
                        f" {nearest(name, set(names) - set(feature_names))}"
                    )
            indexes = [names.index(name) for name in feature_names]
            lower = tuple([lower[index] for index in indexes])
            upper = tuple([upper[index] for index in indexes])
            names = tuple(feature_names)
        require_ranges(lower, upper, names)
        return Bounds(lower, upper)


def to_ranges(content: object, source: str) -> NamedRanges:
    """Read the ranges of columns from a mapping of ``lower`` and ``upper``."""
    keys = list(content) if isinstance(content, Mapping) else []
    missing = [key for key in ("lower", "upper") if key not in keys]
    if missing or not isinstance(content, Mapping):
        raise ConfigurationError(
            f"{source} has no {missing[0]!r}, but it needs 'lower' and 'upper': name"
            " them so, in the first row of a .csv file, with commas between them, or"
            " as keys in the other formats."
        )
    lower, upper = broadcast(content["lower"], content["upper"])
    if "feature" not in keys:
        return NamedRanges(
            lower,
            upper,
            (),
            source,
        )
    features = content["feature"]
    if isinstance(features, str) or not isinstance(features, Sequence | np.ndarray):
        features = [features]
    names = tuple(map(str, features))
    if len(lower) == len(upper) == 1:
        lower = lower * len(names)
        upper = upper * len(names)
    if not len(names) == len(lower) == len(upper):
        raise ConfigurationError(
            f"{source} has {len(names)} features, {len(lower)} lower and {len(upper)}"
            " upper values, but each feature needs one of both: make the three equally"
            " long."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"{source} has {names.count(twice[0])} rows for the feature {twice[0]!r},"
            " but it must have one: remove the others."
        )
    return NamedRanges(
        lower,
        upper,
        names,
        source,
    )
