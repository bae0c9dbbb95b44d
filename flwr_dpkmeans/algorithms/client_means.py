"""Means over a client's rows, where clients are protected and no bound is tighter.

Each row weighs 1/n of its client's n, so that a client is one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.kernels.grid import toward_zero
from flwr_dpkmeans.privacy.release import PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.round import Array


def means_of_rows(sums: Sequence[Array], n_rows: int) -> list[Array]:
    """Divide sums over a client's rows by their number, toward zero.

    The sums are exact, so that there is one rounding of each entry.
    """
    divisor = max(1, n_rows)
    return [toward_zero(array / divisor) for array in sums]


def for_unit(moved: Sensitivity, unit: PrivacyUnit, what: str) -> Sensitivity:
    """Turn a bound of one row into that of what a run protects.

    At client level `what` a client adds is a mean over its rows.
    """
    if unit is not PrivacyUnit.CLIENT:
        return moved
    because = (
        "S30: one client's mean over its rows of vectors of at most this norm has at"
        f" most this norm ({what})"
    )
    return replace(moved, unit=unit, because=because)


def parts_for_unit(
    parts: Sequence[ReleasePart],
    unit: PrivacyUnit,
    what: str,
) -> list[ReleasePart]:
    """Turn the bounds of several arrays into those of what a run protects."""
    by_unit = []
    for part in parts:
        moved = for_unit(part.sensitivity, unit, what)
        by_unit.append(replace(part, sensitivity=moved))
    return by_unit
