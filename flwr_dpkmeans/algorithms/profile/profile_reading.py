"""Figures of a profile: a line for each cluster, column and value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.profile.noisy_figures import ReleasedProfile
from flwr_dpkmeans.algorithms.profile.profile_layout import COUNTS
from flwr_dpkmeans.data.columns.column import Column
from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.dates import iso_date
from flwr_dpkmeans.data.columns.in_units import figure_in_units
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.report import PROFILE_ROUND
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

MISSING = "missing"
SHARE = "share"
"""The figure that says which share of a column's cells is missing."""


def profile_cautions(plan: Plan, units: float) -> tuple[str, ...]:
    """Say so where the profile would be mostly noise.

    For a cluster of so many rows, or clients; from public numbers only.
    """
    std = max(
        [
            plan.released_std(planned, planned.blocks[0])
            for planned in plan.rounds
            if planned.name == PROFILE_ROUND
        ],
        default=0.0,
    )
    if units >= COUNT_DEVIATIONS * std:
        return ()
    unit = plan.settings.unit.things
    subject, mend = (
        "The profile",
        "raise epsilon or profile_share, profile fewer columns",
    )
    if not plan.settings.profile_widths:
        subject, mend = "The count of gaps by cluster", "raise epsilon or gap_share"
    return (
        (
            f"{subject} is mostly noise, with a standard deviation of {std:.3g} on the"
            f" {units:.3g} {unit} that a cluster has on average: {mend}, have more data"
            " or fewer clusters."
        ),
    )


@dataclass(frozen=True)
class Figure:
    """One figure of a profile, in the units of the data.

    Of a cluster, by its number from 0 on, or of ``all``.
    """

    cluster: str
    column: str
    figure: str
    """``mean`` or ``spread`` (standard deviation) of a number or date, ``share`` of a
    flag or of a category's value, of the cells that are there; ``missing``: the share
    of those that are not, where gaps stay in the clustering.

    Of a number whose transform is log: ``geometric mean``, ``spread as a factor``.
    """
    value: str
    estimate: float | str
    """With noise; the mean of dates is ISO 8601."""
    deviation: float
    """Standard deviation of the noise in it, to first order (of a spread at most).

    Of dates in days.
    """
    noise: bool
    """Whether it cannot be told from noise.

    Three deviations of a mean reach the ends of the bounds from their middle, those of
    a share, or of a spread's square, zero; or the cluster's size in this release, or
    how many of its cells are there, cannot.
    """


def read_profile(
    plan: Plan,
    state: State,
    schema: Schema | None,
) -> tuple[Figure, ...]:
    """Figures of all clusters, then of each, by column of the schema.

    Empty if the run released no profile.
    """
    rounds = [planned for planned in plan.rounds if planned.name == PROFILE_ROUND]
    if schema is None or not rounds or COUNTS not in state.arrays:
        return ()
    names = _figure_names(schema)
    columns = [*schema.profile, *(column.name for column in schema.columns)]
    order = sorted(
        range(len(names)), key=lambda index: columns.index(names[index][0].name)
    )
    parts = ReleasedProfile.of(plan, rounds[0], state).estimates(schema)
    estimates, deviations, clear = (
        np.hstack(arrays) for arrays in zip(*parts, strict=True)
    )
    figures = list[Figure]()
    for line in range(len(estimates)):
        cluster = str(line - 1) if line else "all"
        for index in order:
            column, figure, value = names[index]
            estimate: float | str = float(estimates[line, index])
            deviation, noise = float(deviations[line, index]), not clear[line, index]
            name, estimate, deviation = figure_in_units(
                column, figure, float(estimate), deviation
            )
            if figure == "mean" and column.kind == Kind.DATE:
                estimate = iso_date(estimate, *column.range)
            figures.append(
                Figure(
                    cluster,
                    column.name,
                    name,
                    value,
                    estimate,
                    deviation,
                    noise,
                )
            )
    return tuple(figures)


def _figure_names(schema: Schema) -> list[tuple[Column, str, str]]:
    """Column, figure and value of all that is estimated.

    In the order of `ReleasedProfile.estimates`.
    """
    n = schema.profile_widths[0] if schema.profile else 0
    names = [
        (column, figure, "")
        for figure in ("mean", "spread")
        for column in schema.profiled[:n]
    ]
    names += [
        (column, SHARE, str(value))
        for column in schema.profiled[n:]
        for value in column.values or (1,)
    ]
    return names + [(column, MISSING, "") for column in schema.gappy]
