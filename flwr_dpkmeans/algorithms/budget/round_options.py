"""Options that all methods with Lloyd rounds declare."""

from __future__ import annotations

import math

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseSchedule
from flwr_dpkmeans.sums.option_rules import choice, real


def tolerance_option() -> float | None:
    """Declare the movement below which Lloyd rounds end."""
    return real(
        None,
        0.0,
        math.inf,
        "0.01",
        "end the rounds once no centroid moved farther, in the box [-1, 1] of the data"
        " (distributed, central); automatic: never",
    )


def noise_schedule_option() -> NoiseSchedule:
    """Declare how Lloyd rounds share their budget."""
    return choice(
        NoiseSchedule,
        NoiseSchedule.EQUAL,
        "budget of the Lloyd rounds: equal, growing as 1, 2, 3, ... or geometric as 1,"
        " 2, 4, ...",
    )
