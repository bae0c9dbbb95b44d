"""What values of a configuration must be like: each check is one sentence with the value, the bound and the mend."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.privacy.release import PrivacyUnit

EnumT = TypeVar("EnumT", bound=Enum)
MOST_CELLS = 100_000
"""Clusters times classes: every client matches the two and writes the table down."""


def as_shares(value: object) -> object:
    """Accept a sequence of numbers, or a string of numbers with commas, as budget shares."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(float(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return value


def require_shares(shares: object) -> None:
    """One sentence for budget shares that are not four positive numbers."""
    if shares is None:
        return
    usable = isinstance(shares, tuple) and len(shares) == 4 and all(is_finite(s) and s > 0.0 for s in shares)
    if not usable:
        raise ConfigurationError(
            f"budget_shares are {shares!r}, but they must be four positive numbers (outer product, weights, sums, "
            "counts): give (0.2, 0.2, 0.45, 0.15)."
        )


def require_names(names: tuple[str, ...], n_bounds: int, n_features: int | None) -> None:
    """One sentence for names of columns of which there are too many or too few, or two of which are the same."""
    if len(set(names)) != len(names):
        twice, times = Counter(names).most_common(1)[0]
        raise ConfigurationError(
            f"feature_names has {twice!r} {times} times, but columns are matched by name: rename the others."
        )
    widths = {len(names), n_features or len(names), n_bounds if n_bounds > 1 else len(names)}
    if names and len(widths) > 1:
        raise ConfigurationError(
            f"feature_names has {len(names)} names, but bounds or n_features say {max(widths - {len(names)})}: give "
            "one name for each feature."
        )


def require_cells(n_clusters: int, n_classes: int) -> None:
    """One sentence for a table of clusters and classes that is too large to be matched and written by every client."""
    if n_clusters * n_classes > MOST_CELLS:
        raise ConfigurationError(
            f"{n_clusters} clusters and {n_classes} classes make a table of {n_clusters * n_classes} cells, but it may "
            f"have at most {MOST_CELLS}: lower n_classes, or leave it out."
        )


def require_sampling(rate: float, unit: PrivacyUnit) -> None:
    """One sentence for a sampling rate that is no probability, or that would hide no client."""
    if rate > 1.0:
        raise ConfigurationError(
            f"client_sampling_rate is {rate:g}, but it is a probability: give a number above 0 and at most 1."
        )
    if rate < 1.0 and unit is not PrivacyUnit.CLIENT:
        raise ConfigurationError(
            f"client_sampling_rate is {rate:g}, but sampling clients amplifies client-level privacy only: choose "
            "unit='client' or leave the rate at 1."
        )


def choice(name: str, value: object, kind: type[EnumT]) -> EnumT:
    """Turn a string into a member of an enumeration, or say which one is nearest."""
    if isinstance(value, kind):
        return value
    for member in kind:
        if member.value == value:
            return member
    raise ConfigurationError(f"{name} is {value!r}, which is not known: {nearest(value, (m.value for m in kind))}")


def as_integer(value: object) -> object:
    """Accept NumPy integers and whole floats (a TOML or Hydra number) as integers."""
    index = getattr(value, "__index__", None)
    # Truth values of older NumPy have an index.
    if index is not None and not isinstance(value, np.bool_):
        return index()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def as_real(value: object) -> object:
    """Accept integers and NumPy numbers as floats; an integer beyond their range becomes infinite, and is refused."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf


def require_integer(name: str, value: object, low: int, example: int) -> None:
    """One sentence for a count that is not an integer of at least `low`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigurationError(f"{name} is {value!r}, but it must be an integer of at least {low}: give {example}.")


def require_real(name: str, value: object, low: float, high: float, example: str) -> None:
    """One sentence for a number outside the open interval (low, high)."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low < value < high:
        least = f"greater than {low:g}" if low >= 0.0 else "of at least 0"
        bound = least if math.isinf(high) else f"between {low:g} and {high:g}"
        raise ConfigurationError(f"{name} is {value!r}, but it must be a finite number {bound}: give {example}.")


def require_bounds(bounds: object, n_features: int | None) -> None:
    """One sentence for bounds that are missing, reversed, not finite or of the wrong number."""
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not all(isinstance(b, tuple) for b in bounds):
        raise ConfigurationError(f"bounds are {bounds!r}, but they must be a pair (lower, upper): give (-1.0, 1.0).")
    lower, upper = bounds
    if len(lower) != len(upper) or not lower:
        raise ConfigurationError(
            f"there are {len(lower)} lower and {len(upper)} upper bounds, but each feature needs one of both."
        )
    if n_features is not None and len(lower) not in (1, n_features):
        raise ConfigurationError(
            f"there are bounds for {len(lower)} features, but the table has {n_features}: give one pair for all "
            "features or one pair for each."
        )
    for feature, (low, high) in enumerate(pairs(lower, upper)):
        if not all(map(is_finite, (low, high))) or not low < high:
            raise ConfigurationError(
                f"feature {feature} has lower bound {low!r} and upper bound {high!r}, but the lower one must be finite "
                "and below the upper one: swap or widen them, and leave out a constant column."
            )


def is_finite(value: object) -> bool:
    """Whether a bound is a number at all, and a finite one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def pairs(lower: Iterable[float], upper: Iterable[float]) -> Iterable[tuple[float, float]]:
    """Zip two bound tuples of equal length."""
    return zip(lower, upper, strict=True)
