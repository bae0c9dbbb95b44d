"""What every source of integer noise draws, and of which scales."""

from __future__ import annotations

from abc import ABC, abstractmethod

from flwr_dpkmeans.errors import LocalMisuseError, require_whole
from flwr_dpkmeans.privacy.closeness import require_at_least
from flwr_dpkmeans.privacy.exact_gaussian import Integers

# OpenDP moves noise beyond int64 to its ends, where a neighbour's could not be: what
# lies there must be nothing. Beyond 40 standard deviations of a Gaussian lies
# exp(-800), beyond 128 scales of a Laplace variable exp(-128).
_LARGEST_STD = 2.0**63 / 40.0
_LARGEST_LAPLACE_SCALE = 2.0**63 / 128.0
_MEND_OF_SIZE = "give a size such as 45"


class NoiseSource(ABC):
    """A source of integer noise, which checks arguments before it draws anything."""

    def discrete_gaussian(self, std: float, size: int) -> Integers:
        """Return independent discrete Gaussians.

        k has a probability proportional to exp(-k^2 / (2 std^2)).

        Parameters
        ----------
        std : float
            In grid units, from 1 to 2^63 / 40; else `LocalMisuseError`.
        size : int
            How many.
        """
        std = _require_scale("std", std, _LARGEST_STD)
        size = require_whole(
            "size",
            size,
            0,
            _MEND_OF_SIZE,
        )
        return self._draw("gaussian", std, size)

    def discrete_laplace(self, scale: float, size: int) -> Integers:
        """Return independent discrete Laplace variables.

        k has a probability proportional to exp(-|k| / scale).

        Parameters
        ----------
        scale : float
            In grid units, from 1 to 2^63 / 128; else `LocalMisuseError`.
        size : int
            How many.
        """
        scale = _require_scale("scale", scale, _LARGEST_LAPLACE_SCALE)
        size = require_whole(
            "size",
            size,
            0,
            _MEND_OF_SIZE,
        )
        return self._draw("laplace", scale, size)

    def require_available(self, family: str) -> None:  # noqa: B027
        """Refuse a family of noise that cannot be drawn in this environment.

        Parameters
        ----------
        family : str
            ``gaussian`` or ``laplace``.

        Raises
        ------
        ConfigurationError
            If the package that draws it is not installed.
        """

    @abstractmethod
    def _draw(self, family: str, scale: float, size: int) -> Integers:
        """Return ``gaussian`` or ``laplace`` noise of a scale that is in its range."""


def _require_scale(
    name: str,
    value: float,
    largest: float,
) -> float:
    """Return a scale as a float.

    One below a grid step, or whose tails could leave int64, is a `LocalMisuseError`.
    """
    if type(value) is float and 1.0 <= value <= largest:
        # As all plans give it.
        return value
    scale = require_at_least(
        name,
        value,
        1,
        "grid step: use a finer grid",
    )
    if scale > largest:
        raise LocalMisuseError(
            f"{name} is {scale:.3g}, but it must be at most {largest:.3g} grid steps"
            " (64 bits): use a coarser grid."
        )
    return scale
