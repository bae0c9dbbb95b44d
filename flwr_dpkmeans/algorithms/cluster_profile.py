"""Federated profiles: one more private sum after the algorithm's last round, of what
the rows of each cluster are like.

Columns need not be clustered: they stand beside the points in a block that no other
round sees. Record level: every row adds 1, its numbers, their squares less one half,
its flags less one half and its categories, to the cluster of its nearest centroid. A
cell that is missing, and stays in the clustering (``missing = "centre"``), adds nothing
of these, and how many cells of such a column are there is one more sum. Client level:
every client adds the mean of these over its own rows, so that clients weigh alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.noise_budget import divided
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.moments import moment_arrays, moment_parts
from flwr_dpkmeans.data.columns.column import Column
from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.dates import iso_date
from flwr_dpkmeans.data.columns.in_units import figure_in_units
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.kernels import assignment, grid, label_sums
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.privacy.release import (
    Block,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.report import PROFILE_ROUND
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Settings

Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

COUNTS, SUMS, SQUARES, CELLS = (
    "group_counts",
    "group_sums",
    "group_squares",
    "profile_cells",
)
PRESENT = "present_cells"
_ALL = COUNTS, SUMS, SQUARES, CELLS, PRESENT
"""Names of the released arrays, and of the extras that hold them in the state."""
MISSING = "missing"
SHARE = "share"
"""The figure that says which share of a column's cells is missing."""


def profile_blocks(config: RunConfig, multiplier: float) -> tuple[Block, ...]:
    """Arrays of a profile, by their joint noise multiplier, with bounds of one row that
    hold for a mean over rows too.

    Shares are such that each number, flag and category has about the noise that it
    would have alone beside the counts; so has each count of cells, which needs less
    than they.
    """
    k, settings = config.n_clusters, config.settings
    n, n_flags, *values = settings.profile_widths or (0, 0)
    parts = [
        replace(one, share=1.0 if one.name == COUNTS else 2.0 * n)
        for one in moment_parts(k, n)
    ]
    if n_flags or values:
        because = (
            "S29: a row's flags, less one half, are at most one half, its shares of a"
            " category add up to 1"
        )
        moved = Sensitivity(
            Norm.L2,
            root_at_least(n_flags + 4 * len(values)) / 2.0,
            PrivacyUnit.RECORD,
            because,
        )
        parts.append(
            ReleasePart(
                CELLS,
                (k, n_flags + sum(values)),
                moved,
                2.0 * (n_flags + len(values)),
                1.0,
            )
        )
    if n_gappy := len(settings.gap_columns):
        # Less one half, as flags, they need half the noise of ones and zeros; the
        # counts undo it.
        because = (
            "S34: each of a row's cells counts as one half if it is there, and else as"
            " minus one half"
        )
        moved = Sensitivity(
            Norm.L2,
            root_at_least(n_gappy) / 2.0,
            PrivacyUnit.RECORD,
            because,
        )
        parts.append(
            ReleasePart(
                PRESENT,
                (k, n_gappy),
                moved,
                float(n_gappy),
                0.5,
            )
        )
    blocks, unit = divided(parts, 1.0, multiplier), settings.unit
    if unit is PrivacyUnit.RECORD:
        return blocks
    because = (
        "S30: one client's mean over its rows of vectors of at most this norm has at"
        " most this norm (profile)"
    )
    return tuple(
        replace(one, sensitivity=replace(one.sensitivity, unit=unit, because=because))
        for one in blocks
    )


def profile_shapes(config: RunConfig) -> Mapping[str, tuple[int, ...]]:
    """Shapes of the extras that a profile leaves in the state, by name."""
    return {one.name: one.shape for one in profile_blocks(config, 1.0)}


@dataclass(frozen=True)
class _Layout:
    """Which columns beside the points are what."""

    n_numbers: int
    n_flags: int
    values: tuple[int, ...]
    """Of each category, how many there are."""
    gaps: tuple[int, ...]
    """`Settings.gap_columns`."""

    @classmethod
    def of(cls, settings: Settings) -> _Layout:
        n_numbers, n_flags, *values = settings.profile_widths or (0, 0)
        return cls(
            n_numbers,
            n_flags,
            tuple(values),
            settings.gap_columns,
        )

    @property
    def n_columns(self) -> int:
        """How many columns are profiled."""
        return self.n_numbers + self.n_flags + len(self.values)

    @property
    def category_of(self) -> Indices:
        """The category of each value's column."""
        return np.repeat(np.arange(len(self.values)), self.values)

    @property
    def column_of_cells(self) -> Indices:
        """For each column of `CELLS`, which of the profiled columns it is of."""
        flags = self.n_numbers + np.arange(self.n_flags)
        return np.concatenate([flags, self.n_numbers + self.n_flags + self.category_of])

    @property
    def profiled_gaps(self) -> list[tuple[int, int]]:
        """Of those `gaps` that are of profiled columns.

        Their own index, and that of the column.
        """
        return [(gap, column) for gap, column in enumerate(self.gaps) if column >= 0]

    def present(self, block: Array) -> tuple[Array, Array]:
        """Whether each cell is there, as 1 or 0.

        Of the columns whose gaps are counted, and of the profiled ones.
        """
        # By its sign alone: no row counts as more than there or missing.
        counted = (block[:, block.shape[1] - len(self.gaps) :] > 0.0).astype(np.float64)
        profiled = np.ones((len(block), self.n_columns))
        for gap, column in self.profiled_gaps:
            profiled[:, column] = counted[:, gap]
        return counted, profiled

    def cells(self, block: Array) -> Array:
        """Each row's flags less one half, and its shares of a category's values, which
        add up to at most 1.
        """
        first, last = (
            self.n_numbers + self.n_flags,
            self.n_numbers + self.n_flags + sum(self.values),
        )
        flags, shares = (
            block[:, self.n_numbers : first] / 2.0,
            (block[:, first:last] + 1.0) / 2.0,
        )
        category = self.category_of
        totals = label_sums.sum_by_label(
            shares.T, category.astype(np.int32), len(self.values)
        ).T
        return grid.toward_zero(
            np.hstack([flags, shares / np.maximum(1.0, totals)[:, category]])
        )


def profile_round(public: PublicFacts) -> PrivateSum:
    """Describe the clusters that the algorithm ended with.

    The released arrays are added to the state.
    """
    config, by_client = public.config, public.settings.unit is PrivacyUnit.CLIENT
    layout = _Layout.of(config.settings)
    names = [one.name for one in public.profile]

    def statistic(points: Array, state: State) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            own, beside = np.split(points[rows], [public.n_features], axis=1)
            groups = np.minimum(
                assignment.nearest_centroids(own, state.centroids)[0],
                config.n_clusters - 1,
            )
            block = grid.round_to_grid(np.clip(beside, -1.0, 1.0))
            counted, present = layout.present(block)
            n = layout.n_numbers
            moments = moment_arrays(
                block[:, :n],
                groups.astype(np.int64),
                config.n_clusters,
                present[:, :n],
            )
            arrays = dict(zip(_ALL, moments, strict=False))
            cells = layout.cells(block) * present[:, layout.column_of_cells]
            arrays[CELLS] = label_sums.sum_by_label(cells, groups, config.n_clusters)
            arrays[PRESENT] = label_sums.sum_by_label(
                counted - 0.5, groups, config.n_clusters
            )
            return [arrays[name] for name in names]

        arrays = sum_over_blocks(summed, len(points), points.shape[1])
        # Rounding toward zero keeps a mean within the bound.
        return (
            [grid.toward_zero(one / max(1, len(points))) for one in arrays]
            if by_client
            else arrays
        )

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(**{one.name: released[one.name] for one in public.profile})

    return PrivateSum(
        PROFILE_ROUND,
        public.profile,
        statistic,
        advance,
        in_blocks=True,
        profiles=True,
    )


def profile_cautions(plan: Plan, units: float) -> tuple[str, ...]:
    """Say so where the profile would be mostly noise for a cluster of so many rows, or
    clients; public numbers only.
    """
    std = max(
        [
            plan.released_std(one, one.blocks[0])
            for one in plan.rounds
            if one.name == PROFILE_ROUND
        ],
        default=0.0,
    )
    if units >= COUNT_DEVIATIONS * std:
        return ()
    unit = "clients" if plan.settings.unit is PrivacyUnit.CLIENT else "rows"
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
    rounds = [one for one in plan.rounds if one.name == PROFILE_ROUND]
    if schema is None or not rounds or COUNTS not in state.arrays:
        return ()
    names = _figure_names(schema)
    columns = [*schema.profile, *(column.name for column in schema.columns)]
    order = sorted(
        range(len(names)), key=lambda index: columns.index(names[index][0].name)
    )
    parts = _Released.of(plan, rounds[0], state).estimates(schema)
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
    """Column, figure and value of all that is estimated, in the order of
    `_Released.estimates`.
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


_Estimates = tuple[Array, Array, Flags]
"""Some figures, (1 + k, n) each, the deviations of their noise, and whether they are
clear of it.
"""


@dataclass(frozen=True)
class _Noisy:
    """Released sums, (1 + k, n): of all clusters first, then of each.

    And the deviation of the noise in each.
    """

    values: Array = field(repr=False)
    std: Array = field(repr=False)

    @property
    def at_least_noise(self) -> Array:
        """The values, or their noise where that is larger: what may be divided by."""
        return np.maximum(self.values, self.std)

    @property
    def is_clear(self) -> Flags:
        """Whether counts are told from noise."""
        return self.values >= COUNT_DEVIATIONS * self.std

    def columns(self, index: Indices) -> _Noisy:
        """Some of the columns."""
        return _Noisy(self.values[:, index], self.std[:, index])


@dataclass(frozen=True)
class _Released:
    """What the round released of all clusters, and of each."""

    layout: _Layout
    counts: _Noisy
    """(1 + k, 1)."""
    sums: _Noisy
    squares: _Noisy
    cells: _Noisy
    halves: _Noisy
    """Of each column whose gaps are counted.

    Half of the cells that are there, less half of those that are not.
    """

    @classmethod
    def of(
        cls,
        plan: Plan,
        planned: PlannedRound,
        state: State,
    ) -> _Released:
        # Where the run chose k, other rows hold noise alone.
        k = len(state.centroids)
        std = {
            block.name: plan.released_std(planned, block) for block in planned.blocks
        }
        # The sum over clusters has the noise of all of them.
        factors = np.sqrt(np.array([k, *[1] * k]))[:, None]
        arrays = list[_Noisy]()
        for name in _ALL:
            by_cluster = (
                state[name][:k].reshape(k, -1) if name in std else np.zeros((k, 0))
            )
            values = np.vstack([by_cluster.sum(axis=0), by_cluster])
            arrays.append(
                _Noisy(
                    values, np.broadcast_to(std.get(name, 0.0) * factors, values.shape)
                )
            )
        return cls(_Layout.of(plan.settings), *arrays)

    @property
    def present(self) -> _Noisy:
        """How many cells of each profiled column are there.

        All of the rows' where its gaps are not counted.
        """
        values = np.repeat(self.counts.values, self.layout.n_columns, axis=1)
        std = np.repeat(self.counts.std, self.layout.n_columns, axis=1)
        for gap, column in self.layout.profiled_gaps:
            values[:, column] = (
                self.halves.values[:, gap] + self.counts.values[:, 0] / 2.0
            )
            std[:, column] = np.hypot(
                self.halves.std[:, gap], self.counts.std[:, 0] / 2.0
            )
        return _Noisy(values, std)

    def estimates(self, schema: Schema) -> list[_Estimates]:
        """Means, then spreads of numbers, then shares, then which shares of cells are
        missing.
        """
        return [*self._moments(schema), self._shares(), self._missing()]

    def _moments(self, schema: Schema) -> list[_Estimates]:
        n = self.layout.n_numbers
        present = self.present.columns(np.arange(n))
        cells = present.at_least_noise
        mean, square = self.sums.values / cells, self.squares.values / cells
        of_mean = np.hypot(self.sums.std, mean * present.std) / cells
        # Of a variance at most: had it been 0, so that no luck of the noise makes it
        # look clear.
        of_square = np.hypot(self.squares.std, 2.0 * mean * self.sums.std)
        of_variance = np.hypot(of_square, (mean**2 + 0.5) * present.std) / cells
        # The square of a noisy mean is too large by the variance of its noise.
        variance = square + 0.5 - mean**2 + of_mean**2
        of_spread = of_variance / (2.0 * np.sqrt(np.maximum(variance, of_variance)))
        low, high = (
            np.array([column.range for column in schema.profiled[:n]]).reshape(n, 2).T
        )
        half = (high - low) / 2.0
        sized = present.is_clear & self.counts.is_clear
        means = low + half * (1.0 + np.clip(mean, -1.0, 1.0))
        spreads = half * np.sqrt(np.clip(variance, 0.0, 1.0))
        mean_is_clear = sized & (COUNT_DEVIATIONS * of_mean < 1.0)
        spread_is_clear = sized & (variance > COUNT_DEVIATIONS * of_variance)
        return [
            (means, half * of_mean, mean_is_clear),
            (spreads, half * of_spread, spread_is_clear),
        ]

    def _shares(self) -> _Estimates:
        present = self.present.columns(self.layout.column_of_cells)
        share = self.cells.values / present.at_least_noise
        deviation = (
            np.hypot(self.cells.std, share * present.std) / present.at_least_noise
        )
        is_flag = np.arange(share.shape[1]) < self.layout.n_flags
        share = np.clip(share + np.where(is_flag, 0.5, 0.0), 0.0, 1.0)
        sized = present.is_clear & self.counts.is_clear
        return share, deviation, sized & (share > COUNT_DEVIATIONS * deviation)

    def _missing(self) -> _Estimates:
        rows = self.counts.at_least_noise
        above_half = self.halves.values / rows
        deviation = np.hypot(self.halves.std, above_half * self.counts.std) / rows
        missing = np.clip(0.5 - above_half, 0.0, 1.0)
        return (
            missing,
            deviation,
            self.counts.is_clear & (missing > COUNT_DEVIATIONS * deviation),
        )
