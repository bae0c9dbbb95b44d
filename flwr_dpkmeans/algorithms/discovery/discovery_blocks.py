"""What a run releases before its plan is complete."""

from __future__ import annotations

import math

from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.outcome import COUNT
from flwr_dpkmeans.sums.settings import Box

# They come before round 1. What follows from them is computed alike by the server and
# by every client, which compares it with the final plan.

PRELIMINARY_TRUST = "distributed"
"""What steers the plan must be seen by everybody.

Its noise comes from the clients, where there are several.
"""
MAGNITUDES = "magnitudes"
RANGES = "ranges"
MAGNITUDES_PART = 0.8
"""Of `bounds_share`, for the first histogram, which small tables need.

The second only narrows what it found.
"""


def domain_of(config: RunConfig, n_features: int | None) -> Box:
    """The public domain of every column: one pair of bounds holds for all."""
    lower, upper = config.settings.bounds
    n = n_features or 0
    return (lower * n, upper * n) if len(lower) == 1 else (lower, upper)


def count_block(config: RunConfig, multiplier: float) -> Block:
    """The private count: one entry.

    At client level each client counts no more rows than are declared.
    """
    settings = config.settings
    bound, because = 1.0, "S16: one row changes the number of rows by one"
    if settings.unit is PrivacyUnit.CLIENT:
        bound = float(settings.examples_per_client)
        because = (
            "S16: one client's number of rows is clipped to the declared"
            " examples_per_client"
        )
    moved = Sensitivity(
        Norm.L2,
        bound,
        settings.unit.bounded,
        because,
        nonnegative=True,
    )
    return Block(
        COUNT,
        (1,),
        moved,
        NoiseShape.GAUSSIAN,
        multiplier,
        bound,
    )


def histogram_block(
    config: RunConfig,
    name: str,
    shape: tuple[int, int],
    multiplier: float,
) -> Block:
    """Histograms of all columns together.

    One row, or one client's vote, adds a norm of sqrt(n_features) at most.
    """
    # A one in one bin of each of d columns has norm sqrt(d), which is rounded up (S17).
    bound, entry = math.nextafter(math.sqrt(shape[0]), math.inf), 1.0
    bins = "one bin, by sign and power of two, of each column's histogram"
    if name == RANGES:
        bins = "at most one of each column's equal bins"
    because = f"S17: one row is in {bins}: a norm of sqrt(number of columns)"
    if config.settings.unit is PrivacyUnit.CLIENT:
        entry, because = (
            bound,
            (
                "S17: one client's histograms are scaled down to the norm of a single"
                " row's"
            ),
        )
    moved = Sensitivity(
        Norm.L2,
        bound,
        config.settings.unit.bounded,
        because,
        nonnegative=True,
    )
    return Block(
        name,
        shape,
        moved,
        NoiseShape.GAUSSIAN,
        multiplier,
        entry,
    )
