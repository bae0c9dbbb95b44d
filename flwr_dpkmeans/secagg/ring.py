"""Fixed point in the ring Z_2^64: the numbers on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError

FRACTION_BITS = 16
"""Fractional bits of every number on the wire."""

HALF_RING = 2**63
"""Sums must stay below this magnitude, or they wrap around."""

Ring = NDArray[np.uint64]


@dataclass(frozen=True)
class FixedPointVector:
    """One client's clipped statistic on the grid: readable, so it never leaves the client in this type."""

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class MaskedVector:
    """One client's vector under its masks: uniform to everybody who lacks one of its keys."""

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class AggregateVector:
    """The sum of all masked vectors of one attempt; still blinded if key authors added their streams."""

    values: Ring = field(repr=False)
    blinded: bool


def encode(values: NDArray[np.float64], fraction_bits: int = FRACTION_BITS) -> FixedPointVector:
    """Put grid values into the ring, exactly."""
    scaled = np.ravel(values) * float(2**fraction_bits)
    integers = np.rint(scaled)
    if not bool(np.all(np.abs(scaled) <= 2.0**53)):
        raise LocalMisuseError(
            f"a statistic has an entry outside +-2^{53 - fraction_bits} (or not finite), which float64 cannot hold "
            "exactly on the grid: use fewer rows per client."
        )
    if not bool(np.all(integers == scaled)):
        raise LocalMisuseError(
            f"a statistic has entries between two grid points of 2^-{fraction_bits}: round each row's contribution "
            "toward zero on the grid before summing."
        )
    return FixedPointVector(integers.astype(np.int64).view(np.uint64))


def decode(values: Ring, fraction_bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    """Read signed grid values from the ring."""
    signed: NDArray[np.float64] = values.view(np.int64).astype(np.float64)
    return signed / float(2**fraction_bits)


def require_no_wrap(largest_sum: float, noise_scale: float, name: str, fraction_bits: int = FRACTION_BITS) -> None:
    """Refuse a round whose sum plus 12 noise scales could leave the ring, by a `PlanError`."""
    reach = (largest_sum + 12.0 * noise_scale) * float(2**fraction_bits)
    if not reach < HALF_RING:
        raise PlanError(
            f"the sum {name!r} could reach {reach:.3g} grid steps, but the ring wraps at {HALF_RING:.3g}: use fewer "
            "clients, fewer rows per client or a larger epsilon."
        )
