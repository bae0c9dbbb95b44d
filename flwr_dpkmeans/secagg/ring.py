"""Fixed point numbers in the ring Z_2^64, in which masked vectors are added up.

Whole multiples of ``2**-FRACTION_BITS`` become integers modulo 2^64, so that masks
cancel bit for bit and no sum is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError

FRACTION_BITS = 16
"""Fractional bits of every number on the wire."""
HALF_RING = 2**63
"""Sums must stay below this magnitude, or they wrap around."""
_LARGEST_EXACT = 2.0**53
"""Up to here float64 holds every integer."""
_NOISE_REACH = 91.0
"""Deviations of noise that must fit into the ring; 128 Laplace scales are as many."""

Ring = NDArray[np.uint64]


@dataclass(frozen=True)
class FixedPointVector:
    """A client's clipped statistic on the grid.

    It is readable, so it never leaves the client: messages hold a `MaskedVector`.
    """

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class AggregateVector:
    """The sum of all masked vectors of one attempt."""

    values: Ring = field(repr=False)
    blinded: bool
    """Whether the streams of key authors are still in it."""


def encode(
    values: NDArray[np.float64], fraction_bits: int = FRACTION_BITS
) -> FixedPointVector:
    """Put grid values into the ring, exactly.

    Parameters
    ----------
    values : array of any shape
        Multiples of ``2**-fraction_bits``; read in C order.
    fraction_bits : int
        Fractional bits of the grid.

    Raises
    ------
    LocalMisuseError
        If an entry is not on the grid, or float64 cannot hold it exactly there.
    """
    scaled = np.ravel(values) * float(2**fraction_bits)
    integers = np.rint(scaled)
    # Written so that NaN fails as well.
    is_exact = np.abs(scaled) <= _LARGEST_EXACT
    if not is_exact.all():
        raise LocalMisuseError(
            f"a statistic has an entry outside +-2^{53 - fraction_bits} (or not"
            " finite), which float64 cannot hold exactly on the grid: use fewer rows"
            " per client."
        )
    is_on_grid = integers == scaled
    if not is_on_grid.all():
        raise LocalMisuseError(
            f"a statistic has entries between two grid points of 2^-{fraction_bits}:"
            " round each row's contribution toward zero on the grid before summing."
        )
    return FixedPointVector(integers.astype(np.int64).view(np.uint64))


def require_no_wrap(
    largest_sum: float,
    noise_scale: float,
    name: str,
    fraction_bits: int = FRACTION_BITS,
) -> None:
    """Refuse a round whose sum and noise could leave the ring, by a `PlanError`.

    A sum that wraps is noise, which must be refused before anybody is charged; 91
    deviations (128 Laplace scales) are more than any noise source draws.

    Parameters
    ----------
    largest_sum : float
        Magnitude that an entry of the exact sum can reach.
    noise_scale : float
        Standard deviation of the noise in it.
    name : str
        Name of the sum, for the sentence.
    fraction_bits : int
        Fractional bits of the grid.
    """
    largest_entry = largest_sum + _NOISE_REACH * noise_scale
    reach = largest_entry * float(2**fraction_bits)
    # Written so that NaN fails as well.
    if not reach < HALF_RING:
        raise PlanError(
            f"the sum {name!r} could reach {reach:.3g} grid steps, but the ring wraps"
            f" at {HALF_RING:.3g}: use fewer clients, fewer rows per client or a larger"
            " epsilon."
        )
