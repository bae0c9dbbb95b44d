"""Public bounds per feature, and the scaling to [-1, 1] that they define.

Bounds are public knowledge, such as the range of a sensor. Nothing here computes them from points: bounds
taken from private rows would reveal the extreme rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data._bounds_files import BOUNDS_SUFFIXES, read_bounds_file
from flwr_dpkmeans.data._ranges import broadcast, check_ranges, to_floats
from flwr_dpkmeans.data.tables import validate_points
from flwr_dpkmeans.errors import ConfigurationError


@dataclass(frozen=True)
class Bounds:
    """The public range of every feature.

    Parameters
    ----------
    lower, upper : tuple of float
        Length 1 (the same range for every feature) or d, in the units of the data. Each lower bound
        is finite and smaller than its upper bound.

    Raises
    ------
    ConfigurationError
        If a range is reversed, empty or not finite, or the two lengths differ.

    Examples
    --------
    >>> bounds = Bounds(lower=(0.0, -10.0), upper=(100.0, 10.0))
    >>> bounds.scale([[50.0, 10.0], [0.0, 99.0]]).tolist()
    [[0.0, 1.0], [-1.0, 1.0]]
    >>> bounds.unscale([[0.0, 1.0]]).tolist()
    [[50.0, 10.0]]
    >>> bounds.count_outside([[50.0, 10.0], [0.0, 99.0]])
    1
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", to_floats(self.lower, "lower"))
        object.__setattr__(self, "upper", to_floats(self.upper, "upper"))
        check_ranges(self.lower, self.upper)

    def for_features(self, n_features: int) -> Bounds:
        """Return bounds with one range for each of `n_features` features.

        Raises
        ------
        ConfigurationError
            If there are several ranges, but not `n_features`.
        """
        if len(self.lower) == n_features:
            return self
        if len(self.lower) != 1 or n_features < 1:
            raise ConfigurationError(
                f"the bounds have {len(self.lower)} ranges, but the points have {n_features} features: "
                "give one range per feature, or a single one for all."
            )
        return Bounds(self.lower * n_features, self.upper * n_features)

    def scale(self, points: object) -> NDArray[np.float64]:
        """Clip points to the bounds and map each feature to [-1, 1].

        Every value is computed from its own cell and bounds alone, by single IEEE operations, so that the
        result does not depend on the other rows, on their order or on the machine.

        Parameters
        ----------
        points : array-like, shape (n, d)
            Finite values in the units of the bounds.

        Returns
        -------
        ndarray of float64, shape (n, d)
            A new array with values in [-1, 1].

        Raises
        ------
        DataError
            If the points are not finite real numbers in two dimensions.
        ConfigurationError
            If the number of features does not fit.
        """
        values = validate_points(points)
        lower, upper = self._arrays(values.shape[1])
        return _to_box(np.clip(values, lower, upper), lower, upper)

    def scale_unclipped(self, values: object) -> NDArray[np.float64]:
        """Map each feature to the scale of [-1, 1] and clip nothing: the inverse of `unscale`.

        For what is compared with released values, which may lie outside the bounds.

        Parameters
        ----------
        values : array-like, shape (n, d)
            Finite values in the units of the bounds.

        Returns
        -------
        ndarray of float64, shape (n, d)
            A new array; the same as `scale` gives within the bounds.
        """
        checked = validate_points(values)
        return _to_box(checked.copy(), *self._arrays(checked.shape[1]))

    def unscale(self, scaled: object) -> NDArray[np.float64]:
        """Map values from the scale of [-1, 1] back to the units of the data.

        Values outside [-1, 1], such as noisy centres, are continued linearly and not clipped.

        Parameters
        ----------
        scaled : array-like, shape (n, d)

        Returns
        -------
        ndarray of float64, shape (n, d)
            A new array; -1 and 1 give exactly the bounds.
        """
        values = validate_points(scaled)
        lower, upper = self._arrays(values.shape[1])
        # Both weights are exact at the ends, unlike lower + share * (upper - lower), which may miss `upper`.
        return lower * (0.5 * (1.0 - values)) + upper * (0.5 * (1.0 + values))

    def count_outside(self, points: object) -> int:
        """Count the rows with any value outside the bounds.

        The count depends on private rows: it is for the eyes of the owner of the data only.

        Parameters
        ----------
        points : array-like, shape (n, d)

        Returns
        -------
        int
            From 0 to n; a value on a bound is inside.
        """
        values = validate_points(points)
        lower, upper = self._arrays(values.shape[1])
        return int(((values < lower) | (values > upper)).any(axis=1).sum())

    def _arrays(self, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return lower and upper bounds of shape (d,)."""
        fitted = self.for_features(n_features)
        return np.array(fitted.lower), np.array(fitted.upper)


def _to_box(values: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map values to the scale of [-1, 1] in place."""
    values -= lower
    values /= upper - lower
    values *= 2.0
    values -= 1.0
    return values


def parse_bounds(value: object, *, feature_names: Sequence[str] | None = None) -> Bounds:
    """Read bounds in any of the forms that a caller may give.

    Parameters
    ----------
    value : Bounds, pair, str or Path
        * a ``Bounds``;
        * a pair ``(lower, upper)`` in which each part is one number for all features or a sequence of
          one number per feature. The outer pair is always lower and upper, as for two features a list
          of (lower, upper) pairs would look the same: transpose such a list by ``tuple(zip(*pairs))``;
        * text such as ``"0,100"``, one range for all features;
        * a path that ends in .csv, .json, .toml or .npz. A .csv file has the header ``lower,upper`` or
          ``feature,lower,upper`` and one row per feature (other columns are ignored); the other formats
          have the keys ``lower`` and ``upper`` (numbers or lists) and optionally ``feature`` (names).
    feature_names : sequence of str, optional
        The names of the features of the points. The result then has one range for each of them; a file
        with names is matched by name, and its rows for other features are ignored. Without them, the
        ranges stay in the order of the file.

    Returns
    -------
    Bounds

    Raises
    ------
    ConfigurationError
        If the value cannot be understood, a feature has no range, or a range is reversed, empty or not
        finite. Features are counted from 0.

    Examples
    --------
    >>> parse_bounds("0,100")
    Bounds(lower=(0.0,), upper=(100.0,))
    >>> parse_bounds(((0, 0), (1, 5)))
    Bounds(lower=(0.0, 0.0), upper=(1.0, 5.0))
    >>> parse_bounds((-1, 1), feature_names=["a", "b"])
    Bounds(lower=(-1.0, -1.0), upper=(1.0, 1.0))
    """
    bounds = _parse(value, feature_names)
    return bounds if feature_names is None else bounds.for_features(len(feature_names))


def bounds_feature_names(value: object) -> tuple[str, ...]:
    """Return the feature names in a bounds file, in its order; empty for any other form of bounds.

    Examples
    --------
    >>> bounds_feature_names("0,100")
    ()
    """
    if isinstance(value, str | Path) and Path(value).suffix.lower() in BOUNDS_SUFFIXES:
        return read_bounds_file(value).names or ()
    return ()


def _parse(value: object, feature_names: Sequence[str] | None) -> Bounds:
    """Choose the form by the type of `value`."""
    if isinstance(value, Bounds):
        return value
    if isinstance(value, str) and Path(value).suffix.lower() not in BOUNDS_SUFFIXES:
        return _parse_text(value)
    if isinstance(value, str | Path):
        ranges = read_bounds_file(value)
        return Bounds(*(ranges if feature_names is None else ranges.matched(feature_names)).as_pair())
    return _parse_pair(value)


def _parse_text(text: str) -> Bounds:
    """Read "lower,upper"."""
    try:
        lower, upper = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(
            f"the bounds are {text!r}, but they must be two numbers or a file: give lower and upper as in '0,100', or "
            "the path of a .csv, .json, .toml or .npz file."
        ) from None
    return Bounds((lower,), (upper,))


def _parse_pair(value: object) -> Bounds:
    """Read (lower, upper), each a number or a sequence; one number stands for all features."""
    if not isinstance(value, Sequence | np.ndarray):
        raise ConfigurationError(
            f"the bounds are of type {type(value).__name__}, but they must be a pair (lower, upper), text or a path: "
            "give for example (0, 100)."
        )
    if len(value) != 2:
        raise ConfigurationError(
            f"the bounds have {len(value)} parts, but they must be the pair (lower, upper): "
            "turn a list of one pair per feature into it by tuple(zip(*pairs))."
        )
    return Bounds(*broadcast(to_floats(value[0], "lower"), to_floats(value[1], "upper")))
