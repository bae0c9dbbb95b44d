"""Federated profiles: one more private sum after the algorithm's last round, of what the rows of each cluster are like.

Columns need not be clustered: they stand beside the points in a block that no other round sees. Record level: every row
adds 1, its numbers, their squares less one half, its flags less one half and its categories, to the cluster of its
nearest centroid. Client level: every client adds the mean of these over its own rows, so that clients weigh alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.moments import moment_arrays, moment_parts
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, divided, root_at_least
from flwr_dpkmeans.data.schema import Column, Kind, Schema, iso_date
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kmeans import lloyd
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.privacy.report import COUNT_DEVIATIONS, PROFILE_ROUND
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Array, PrivateSum, State
from flwr_dpkmeans.sums.task import Known, Run

COUNTS, SUMS, SQUARES, CELLS = "group_counts", "group_sums", "group_squares", "profile_cells"
"""Names of the released arrays, and of the extras that hold them in the state."""
_SHARE = 2.0
"""Of the profile's budget for each number's sum, each one's squares, and each flag or category; 1 for all counts."""


@dataclass(frozen=True)
class _Layout:
    """Where a profile's columns stand in the block beside the points."""

    numbers: tuple[int, ...]
    flags: tuple[int, ...]
    categories: tuple[slice, ...]

    @classmethod
    def of(cls, config: Run) -> _Layout:
        columns = config.settings.profile_columns
        ends = itertools.accumulate(width for _, width in columns)
        places = [(kind, end - width, end) for (kind, width), end in zip(columns, ends, strict=True)]
        numbers, flags = (tuple(low for one, low, _ in places if one == kind) for kind in ("number", "flag"))
        return cls(numbers, flags, tuple(slice(low, high) for one, low, high in places if one == "category"))

    @property
    def n_cells(self) -> int:
        """Entries of the cells of a cluster: flags, then values of categories."""
        return len(self.flags) + sum(int(own.stop - own.start) for own in self.categories)

    def cells_of(self, block: Array) -> Array:
        """Each row's flags less one half, and its shares of values, which add up to at most 1; row by row on the grid.

        Shares are one-hot, or equal where a gap counts as the centre.
        """
        parts = [block[:, list(self.flags)] / 2.0]
        for own in self.categories:
            shares = (block[:, own] + 1.0) / 2.0
            parts.append(shares / np.maximum(1.0, shares.sum(axis=1, keepdims=True)))
        return lloyd.toward_zero(np.concatenate(parts, axis=1))


def _parts(config: Run) -> list[ReleasePart]:
    """What is released, with bounds that hold for one row, and so for a mean over one client's rows."""
    layout, k = _Layout.of(config), config.n_clusters
    n, n_flags, n_categories = len(layout.numbers), len(layout.flags), len(layout.categories)
    parts = [replace(one, share=_SHARE * n if one.name != COUNTS else 1.0) for one in moment_parts(k, n)]
    if layout.n_cells:
        because = "S29: a row's flags, less one half, are at most one half, its shares of a category add up to 1"
        moved = Sensitivity(Norm.L2, root_at_least(n_flags + 4 * n_categories) / 2.0, PrivacyUnit.RECORD, because)
        parts.append(ReleasePart(CELLS, (k, layout.n_cells), moved, _SHARE * (n_flags + n_categories), 1.0))
    if config.settings.unit is PrivacyUnit.RECORD:
        return parts
    because = "S30: one client's mean over its rows of vectors of at most this norm has at most this norm (profile)"
    by_client = [replace(one.sensitivity, unit=PrivacyUnit.CLIENT, because=because) for one in parts]
    return [replace(one, sensitivity=moved) for one, moved in zip(parts, by_client, strict=True)]


def profile_blocks(config: Run, multiplier: float) -> tuple[Block, ...]:
    """Arrays of a profile, by their joint noise multiplier."""
    return divided(_parts(config), 1.0, multiplier)


def profile_shapes(config: Run) -> Mapping[str, tuple[int, ...]]:
    """Shapes of the extras that a profile leaves in the state, by name; none without one."""
    return {one.name: one.shape for one in _parts(config)} if config.settings.profile_columns else {}


def profile_round(known: Known) -> PrivateSum:
    """Describe the clusters that the algorithm ended with: the released arrays are added to the state."""
    config, layout, names = known.config, _Layout.of(known.config), tuple(one.name for one in known.profile)
    k, by_client = config.n_clusters, config.settings.unit is PrivacyUnit.CLIENT

    def profiled(points: Array, state: State, beside: Array) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            groups = np.minimum(lloyd.nearest_centroids(points[rows], state.centroids)[0], k - 1)
            block = lloyd.round_to_grid(np.clip(beside[rows], -1.0, 1.0))
            arrays = moment_arrays(block[:, list(layout.numbers)], groups.astype(np.int64), k)
            cells = [lloyd.sum_by_label(layout.cells_of(block), groups, k)] if layout.n_cells else []
            return arrays + cells

        arrays = lloyd.sum_over_blocks(summed, len(points), points.shape[1] + beside.shape[1])
        # Rounding toward zero keeps a mean within the bound.
        return [lloyd.toward_zero(one / max(1, len(points))) for one in arrays] if by_client else arrays

    def statistic(points: Array, state: State) -> Sequence[Array]:
        raise PlanError("the plan asks for a profile, but no columns stand beside the points: encode them by a schema.")

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(**{name: released[name] for name in names})

    return PrivateSum(PROFILE_ROUND, known.profile, statistic, advance, profiled=profiled)


def _planned(plan: Plan) -> PlannedRound | None:
    return next((one for one in plan.rounds if one.name == PROFILE_ROUND), None)


def profile_cautions(plan: Plan, units: float) -> tuple[str, ...]:
    """Say so where the profile would be mostly noise for a cluster of so many rows, or clients; public numbers only."""
    planned = _planned(plan)
    std = 0.0 if planned is None else plan.released_std(planned, planned.blocks[0])
    if units >= COUNT_DEVIATIONS * std:
        return ()
    return (
        f"The profile's noise on each cluster's size (standard deviation {std:.3g}) is more than a third of the "
        f"{units:.3g} {'clients' if plan.settings.unit is PrivacyUnit.CLIENT else 'rows'} that a cluster has on "
        "average: the profile is mostly noise; raise epsilon or profile_share, profile fewer columns, add data or "
        "choose fewer clusters.",
    )


# -- reading it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One figure of a profile, in the units of the data."""

    cluster: str
    """Its number from 0 on, or ``all``."""
    column: str
    figure: str
    """``mean`` or ``spread`` (standard deviation) of a number or date, ``share`` of a flag's or category's value."""
    value: str
    """Whose share it is; else empty."""
    estimate: float | str
    """With noise; the mean of dates is ISO 8601."""
    deviation: float
    """Standard deviation of the noise in it, to first order; of dates in days."""
    noise: bool
    """Whether it cannot be told from noise: three deviations reach from the middle of the bounds to their ends (a mean),
    or down to zero (a spread's square, a share); or the cluster's size in this release cannot."""


def read_profile(plan: Plan, state: State, schema: Schema | None) -> tuple[Figure, ...]:
    """Figures of all clusters, then of each, by column of the schema; empty if the run released no profile."""
    planned = _planned(plan)
    if schema is None or planned is None or not {one.name for one in planned.blocks} <= set(state.arrays):
        return ()
    table = _Sums.of({one.name: (state[one.name], plan.released_std(planned, one)) for one in planned.blocks}, state)
    layout, read = _Layout.of(plan.config), list[tuple[Figure, ...]]()
    numbers, flags = itertools.count(), itertools.count()
    cells = itertools.count(len(layout.flags))
    for column in schema.profiled:
        if column.kind is Kind.FLAG:
            read.append(table.shares(column, next(flags), "1", 0.5))
        elif column.kind is Kind.CATEGORY:
            read += [table.shares(column, next(cells), str(value), 0.0) for value in column.values]
        else:
            read += table.moments(column, next(numbers))
    return tuple(itertools.chain.from_iterable(zip(*read, strict=True)))


@dataclass(frozen=True)
class _Sums:
    """Released sums, (1 + n_clusters, ...), the first for all clusters, and deviations of their noise, (1 + k, 1)."""

    sums: Mapping[str, Array]
    noise: Mapping[str, Array]

    @classmethod
    def of(cls, released: Mapping[str, tuple[Array, float]], state: State) -> _Sums:
        # Where the run chose k, other rows hold noise alone.
        k = len(state.centroids)
        sums = {name: np.concatenate([own[:k].sum(axis=0)[None], own[:k]]) for name, (own, _) in released.items()}
        scales = np.sqrt([k, *[1] * k])
        return cls(sums, {name: scales * std for name, (_, std) in released.items()})

    @property
    def rows(self) -> Array:
        """What sums are divided by: the counts, where they are told from noise."""
        return np.maximum(self.sums[COUNTS], self.noise[COUNTS])

    def _ratio(self, name: str, place: int) -> tuple[Array, Array]:
        """A mean over rows, and the deviation of its noise."""
        mean = self.sums[name][:, place] / self.rows
        return mean, np.hypot(self.noise[name], mean * self.noise[COUNTS]) / self.rows

    def moments(self, column: Column, place: int) -> Iterator[tuple[Figure, ...]]:
        """Mean and spread of a number."""
        (low, high), (mean, noise) = column.range, self._ratio(SUMS, place)
        half, is_date = (high - low) / 2.0, column.kind is Kind.DATE
        means = (low + half * (1.0 + np.clip(mean, -1.0, 1.0))).tolist()
        shown = list(map(iso_date, means)) if is_date else means
        yield self._figures(column, "mean", "", shown, noise * half, COUNT_DEVIATIONS * noise < 1.0)
        square = self.sums[SQUARES][:, place] / self.rows
        parts = [self.noise[SQUARES], 2.0 * mean * self.noise[SUMS], (2.0 * mean**2 - square) * self.noise[COUNTS]]
        of_variance = np.sqrt(np.square(parts).sum(axis=0)) / self.rows
        # The square of a noisy mean is too large by the variance of its noise.
        variance = square + 0.5 - mean**2 + noise**2
        spread = np.sqrt(np.clip(variance, 0.0, 1.0))
        deviation = half * of_variance / (2.0 * np.sqrt(np.maximum(variance, of_variance)))
        clear = variance > COUNT_DEVIATIONS * of_variance
        yield self._figures(column, "spread", "", (half * spread).tolist(), deviation, clear)

    def shares(self, column: Column, place: int, value: str, taken: float) -> tuple[Figure, ...]:
        """Share of rows with a value; `taken` was subtracted from each row's part."""
        mean, noise = self._ratio(CELLS, place)
        share = np.clip(mean + taken, 0.0, 1.0)
        return self._figures(column, "share", value, share.tolist(), noise, share > COUNT_DEVIATIONS * noise)

    def _figures(
        self,
        column: Column,
        figure: str,
        value: str,
        estimates: Sequence[float | str],
        noise: Array,
        clear: NDArray[np.bool_],
    ) -> tuple[Figure, ...]:
        """One for all clusters and one for each."""
        told: NDArray[np.bool_] = clear & (self.sums[COUNTS] >= COUNT_DEVIATIONS * self.noise[COUNTS])
        lines = zip(estimates, noise.tolist(), told.tolist(), strict=True)
        names = ["all", *map(str, range(len(noise) - 1))]
        return tuple(
            Figure(cluster, column.name, figure, value, estimate, deviation, not is_told)
            for cluster, (estimate, deviation, is_told) in zip(names, lines, strict=True)
        )
