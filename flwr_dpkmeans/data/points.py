"""Public bounds of points: a box that rows are clipped and scaled by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.arrays_of import to_floats
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import (
    ConfigurationError,
    require_ranges,
)


@dataclass(frozen=True)
class Bounds:
    """The public range of every feature, one for all or d, in the units of the data.

    Not reversed, empty or infinite.

    Examples
    --------
    >>> bounds = Bounds(lower=(0.0, -10.0), upper=(100.0, 10.0))
    >>> bounds.scale([[50.0, 10.0], [0.0, 99.0]]).tolist()
    [[0.0, 1.0], [-1.0, 1.0]]
    >>> bounds.unscale([[0.0, 1.0]]).tolist()
    [[50.0, 10.0]]
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", to_floats(self.lower, "lower"))
        object.__setattr__(self, "upper", to_floats(self.upper, "upper"))
        require_ranges(self.lower, self.upper)

    def for_features(self, n_features: int) -> Bounds:
        """Return bounds with one range per feature.

        ConfigurationError if there are several, but not `n_features`.
        """
        if len(self.lower) == n_features:
            return self
        if len(self.lower) != 1 or not n_features:
            raise ConfigurationError(
                f"the bounds have {len(self.lower)} ranges, but the points have"
                f" {n_features} features: give one range per feature, or a single one"
                " for all."
            )
        return Bounds(self.lower * n_features, self.upper * n_features)

    def scale(self, points: object) -> NDArray[np.float64]:
        """Clip points (n, d) to the bounds and map each feature to [-1, 1].

        Every value is computed from its own cell and bounds alone, by single IEEE
        operations: it does not depend on other rows, on their order or on the machine.
        """
        values = validate_points(points)
        lower, upper = self._arrays(values.shape[1])
        scaled = np.clip(values, lower, upper)
        scaled -= lower
        scaled /= upper - lower
        scaled *= 2.0
        scaled -= 1.0
        return scaled

    def unscale(self, scaled: object) -> NDArray[np.float64]:
        """Map values, (n, d), from [-1, 1] to the units of the data.

        Linearly, also outside of [-1, 1].
        """
        values = validate_points(scaled)
        lower, upper = self._arrays(values.shape[1])
        # Both weights are exact at the ends, unlike lower + share * (upper - lower),
        # which may miss `upper`.
        return lower * (0.5 * (1.0 - values)) + upper * (0.5 * (1.0 + values))

    def _arrays(
        self, n_features: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        bounds = self.for_features(n_features)
        return np.array(bounds.lower), np.array(bounds.upper)


def broadcast(
    lower: object, upper: object
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Both ends as floats.

    A single number on one side is repeated to the length of the other.
    """
    low = to_floats(lower, "lower")
    high = to_floats(upper, "upper")
    if len(low) == 1:
        return low * len(high), high
    if len(high) == 1:
        return low, high * len(low)
    return low, high
