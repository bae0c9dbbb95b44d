"""Counts of a result, in the units of weights."""

from __future__ import annotations

from dataclasses import replace

from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan


def in_weight(plan: Plan, result: Result, name: str) -> Result:
    """The same result, whose counts of that name say what the rows weigh.

    Sums count a row of full weight as one. Without weights nothing changes.
    """
    unit = plan.settings.weight_unit
    arrays = dict(result.arrays)
    errors = dict(result.errors)
    arrays[name] = unit * arrays[name]
    errors[name] = unit * errors[name]
    return replace(
        result,
        arrays=arrays,
        errors=errors,
    )
