"""Fixed point in the ring: exact or refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.secagg.ring import (
    FRACTION_BITS,
    HALF_RING,
    FixedPointVector,
    Ring,
    encode,
    require_no_wrap,
)

STEP = 2.0**-FRACTION_BITS
LIMIT = 2.0 ** (53 - FRACTION_BITS)


def decode(values: Ring, fraction_bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    """Signed grid values."""
    return values.view(np.int64).astype(np.float64) / 2.0**fraction_bits


def test_encode_is_two_s_complement_on_the_grid() -> None:
    values = np.array([[0.0, STEP, -STEP], [1.0, -1.0, 12.5]])
    expected = [0, 1, 2**64 - 1, 65536, 2**64 - 65536, 12 * 65536 + 32768]
    assert encode(values).values.tolist() == expected


@pytest.mark.parametrize(
    "value", [LIMIT, -LIMIT, LIMIT - STEP, STEP - LIMIT, 0.0, -0.0]
)
def test_round_trip_at_the_extremes(value: float) -> None:
    assert decode(encode(np.array([value])).values).tolist() == [value]


@pytest.mark.parametrize(
    "value",
    [math.nextafter(LIMIT, math.inf), -2 * LIMIT, 1e300, math.inf, -math.inf, math.nan],
)
def test_what_float64_cannot_hold_exactly_is_refused(value: float) -> None:
    with pytest.raises(LocalMisuseError, match="which float64 cannot hold"):
        encode(np.array([0.0, value]))


@pytest.mark.parametrize("value", [STEP / 2, 1.0 + STEP / 4, 0.1, -1e-300])
def test_between_two_grid_points_is_refused(value: float) -> None:
    with pytest.raises(LocalMisuseError, match="between two grid points"):
        encode(np.array([value]))


def test_sums_in_the_ring_are_signed_sums() -> None:
    parts = [encode(np.array([x])).values for x in (-3.5, 1.25, -0.75)]
    assert decode(parts[0] + parts[1] + parts[2]).tolist() == [-3.0]


def test_arguments_are_not_changed_and_other_grids_work() -> None:
    values = np.array([0.25, -0.5])
    encoded = encode(values, fraction_bits=2)
    assert values.tolist() == [0.25, -0.5]
    assert encoded.values.view(np.int64).tolist() == [1, -2]
    assert decode(encoded.values, fraction_bits=2).tolist() == [0.25, -0.5]


def test_readable_vectors_do_not_print_their_values() -> None:
    assert "424242" not in repr(FixedPointVector(np.array([424242], dtype=np.uint64)))


@pytest.mark.parametrize(
    ("largest", "noise"),
    [
        (HALF_RING * STEP, 0.0),
        (0.0, HALF_RING * STEP / 91),
        (HALF_RING * STEP / 2, HALF_RING * STEP / 182),
        (math.nan, 0.0),
        (math.inf, 0.0),
        (0.0, math.nan),
    ],
)
def test_a_sum_that_may_wrap_is_refused(largest: float, noise: float) -> None:
    with pytest.raises(PlanError, match="'counts' could reach"):
        require_no_wrap(largest, noise, "counts")


@pytest.mark.parametrize(
    ("largest", "noise"),
    [(0.999 * HALF_RING * STEP, 0.0), (0.0, 0.999 * HALF_RING * STEP / 91)],
)
def test_a_sum_that_cannot_wrap_is_accepted(largest: float, noise: float) -> None:
    require_no_wrap(largest, noise, "counts")
