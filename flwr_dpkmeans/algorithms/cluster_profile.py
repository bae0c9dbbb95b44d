"""Federated profiles: one more private sum after the algorithm's last round, of what the rows of each cluster are like.

Columns need not be clustered: they stand beside the points in a block that no other round sees. Record level: every row
adds 1, its numbers, their squares less one half, its flags less one half and its categories, to the cluster of its
nearest centroid. Client level: every client adds the mean of these over its own rows, so that clients weigh alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flwr_dpkmeans.algorithms.moments import moment_arrays, moment_parts
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, divided, root_at_least
from flwr_dpkmeans.data.schema import Kind, Schema, iso_date
from flwr_dpkmeans.kmeans import lloyd
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.privacy.report import COUNT_DEVIATIONS, PROFILE_ROUND
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Array, PrivateSum, State
from flwr_dpkmeans.sums.task import Known, Run

_ALL = COUNTS, _, _, CELLS = "group_counts", "group_sums", "group_squares", "profile_cells"
"""Names of the released arrays, and of the extras that hold them in the state."""


def profile_blocks(config: Run, multiplier: float) -> tuple[Block, ...]:
    """Arrays of a profile, by their joint noise multiplier, with bounds of one row that hold for a mean over rows too.

    Shares are such that each number, flag and category has about the noise that it would have alone beside the counts.
    """
    k, (n, n_flags, *values) = config.n_clusters, config.settings.profile_widths
    parts = [replace(one, share=1.0 if one.name == COUNTS else 2.0 * n) for one in moment_parts(k, n)]
    if n_flags or values:
        because = "S29: a row's flags, less one half, are at most one half, its shares of a category add up to 1"
        moved = Sensitivity(Norm.L2, root_at_least(n_flags + 4 * len(values)) / 2.0, PrivacyUnit.RECORD, because)
        parts.append(ReleasePart(CELLS, (k, n_flags + sum(values)), moved, 2.0 * (n_flags + len(values)), 1.0))
    blocks, unit = divided(parts, 1.0, multiplier), config.settings.unit
    if unit is PrivacyUnit.RECORD:
        return blocks
    because = "S30: one client's mean over its rows of vectors of at most this norm has at most this norm (profile)"
    return tuple(replace(one, sensitivity=replace(one.sensitivity, unit=unit, because=because)) for one in blocks)


def profile_shapes(config: Run) -> Mapping[str, tuple[int, ...]]:
    """Shapes of the extras that a profile leaves in the state, by name."""
    return {one.name: one.shape for one in profile_blocks(config, 1.0)}


def profile_round(known: Known) -> PrivateSum:
    """Describe the clusters that the algorithm ended with: the released arrays are added to the state."""
    config, by_client = known.config, known.settings.unit is PrivacyUnit.CLIENT
    n, n_flags, *values = config.settings.profile_widths
    owner = np.repeat(np.arange(len(values)), values)

    def cells_of(block: Array) -> Array:
        """Each row's flags less one half, and its shares of a category's values: one-hot, or equal for a gap."""
        flags, shares = block[:, n : n + n_flags] / 2.0, (block[:, n + n_flags :] + 1.0) / 2.0
        most_one = np.maximum(1.0, lloyd.sum_by_label(shares.T, owner.astype(np.int32), len(values)).T)
        return lloyd.toward_zero(np.hstack([flags, shares / most_one[:, owner]]))

    def statistic(points: Array, state: State) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            own, beside = np.split(points[rows], [known.n_features], axis=1)
            groups = np.minimum(lloyd.nearest_centroids(own, state.centroids)[0], config.n_clusters - 1)
            block = lloyd.round_to_grid(np.clip(beside, -1.0, 1.0))
            arrays = moment_arrays(block[:, :n], groups.astype(np.int64), config.n_clusters)
            cells = lloyd.sum_by_label(cells_of(block), groups, config.n_clusters)
            return [*arrays, cells][: len(known.profile)]

        arrays = lloyd.sum_over_blocks(summed, len(points), points.shape[1])
        # Rounding toward zero keeps a mean within the bound.
        return [lloyd.toward_zero(one / max(1, len(points))) for one in arrays] if by_client else arrays

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(**{one.name: released[one.name] for one in known.profile})

    return PrivateSum(PROFILE_ROUND, known.profile, statistic, advance, in_blocks=True, profiles=True)


def profile_cautions(plan: Plan, units: float) -> tuple[str, ...]:
    """Say so where the profile would be mostly noise for a cluster of so many rows, or clients; public numbers only."""
    std = max([plan.released_std(one, one.blocks[0]) for one in plan.rounds if one.name == PROFILE_ROUND], default=0.0)
    if units >= COUNT_DEVIATIONS * std:
        return ()
    what = "clients" if plan.settings.unit is PrivacyUnit.CLIENT else "rows"
    return (
        f"The profile is mostly noise, with a standard deviation of {std:.3g} on the {units:.3g} {what} that a cluster "
        "has on average: raise epsilon or profile_share, profile fewer columns, have more data or fewer clusters.",
    )


@dataclass(frozen=True)
class Figure:
    """One figure of a profile, in the units of the data: of a cluster, by its number from 0 on, or of ``all``."""

    cluster: str
    column: str
    figure: str
    """``mean`` or ``spread`` (standard deviation) of a number or date, ``share`` of a flag or of a category's value.

    Of a number whose transform is log: ``geometric mean``, ``spread as a factor``."""
    value: str
    estimate: float | str
    """With noise; the mean of dates is ISO 8601."""
    deviation: float
    """Standard deviation of the noise in it, to first order (of a spread at most); of dates in days."""
    noise: bool
    """Whether it cannot be told from noise: three deviations of a mean reach the ends of the bounds from their middle,
    those of a share, or of a spread's square, zero; or the cluster's size in this release cannot."""


def read_profile(plan: Plan, state: State, schema: Schema | None) -> tuple[Figure, ...]:
    """Figures of all clusters, then of each, by column of the schema; empty if the run released no profile."""
    rounds = [one for one in plan.rounds if one.name == PROFILE_ROUND]
    if schema is None or not rounds or COUNTS not in state.arrays:
        return ()
    n = plan.settings.profile_widths[0]
    names = [(one, figure, "") for figure in ("mean", "spread") for one in schema.profiled[:n]]
    names += [(one, "share", str(value)) for one in schema.profiled[n:] for value in one.values or (1,)]
    order = sorted(range(len(names)), key=lambda place: schema.profile.index(names[place][0].name))
    figures = list[Figure]()
    for line, found in enumerate(zip(*_estimates(plan, rounds[0], state, schema), strict=True)):
        cluster, listed = str(line - 1) if line else "all", [own.tolist() for own in found]
        for place in order:
            (column, figure, value), (estimate, deviation, told) = names[place], (own[place] for own in listed)
            figure, estimate, deviation = column.in_units(figure, estimate, deviation)
            shown = iso_date(estimate, *column.range) if figure == "mean" and column.kind is Kind.DATE else estimate
            figures.append(Figure(cluster, column.name, figure, value, shown, deviation, not told))
    return tuple(figures)


def _estimates(plan: Plan, planned: PlannedRound, state: State, schema: Schema) -> list[Array]:
    """Means and spreads of numbers, then shares, (1 + k, n_figures), their deviations, and 1 where they are clear."""
    k, (n, n_flags, *_) = len(state.centroids), plan.settings.profile_widths
    std = {one.name: plan.released_std(planned, one) for one in planned.blocks}
    # Where the run chose k, other rows hold noise alone. The first line is of all clusters.
    own = {name: state[name][:k].reshape(k, -1) if name in std else np.zeros((k, 0)) for name in _ALL}
    counts, sums, squares, cells = (np.vstack([own[name].sum(axis=0), own[name]]) for name in _ALL)
    noise = [std.get(name, 0.0) * np.sqrt([[k], *[[1]] * k]) for name in _ALL]
    rows = np.maximum(counts, noise[0])
    mean, square, share = sums / rows, squares / rows, cells / rows
    of_mean, of_share = (np.hypot(own, one * noise[0]) / rows for own, one in ((noise[1], mean), (noise[3], share)))
    # Of a variance at most: had it been 0, so that no luck of the noise makes it look clear.
    of_variance = np.hypot(np.hypot(noise[2], 2.0 * mean * noise[1]), (mean**2 + 0.5) * noise[0]) / rows
    # The square of a noisy mean is too large by the variance of its noise.
    variance = square + 0.5 - mean**2 + of_mean**2
    share = np.clip(share + np.where(np.arange(share.shape[1]) < n_flags, 0.5, 0.0), 0.0, 1.0)
    low, high = np.array([one.range for one in schema.profiled[:n]]).reshape(n, 2).T
    half, spread = (high - low) / 2.0, np.sqrt(np.clip(variance, 0.0, 1.0))
    of_spread = of_variance / (2.0 * np.sqrt(np.maximum(variance, of_variance)))
    estimates = np.hstack([low + half * (1.0 + np.clip(mean, -1.0, 1.0)), half * spread, share])
    compared, with_noise = np.hstack([np.ones_like(mean), variance, share]), np.hstack([of_mean, of_variance, of_share])
    told = (compared > COUNT_DEVIATIONS * with_noise) & (counts >= COUNT_DEVIATIONS * noise[0])
    return [estimates, np.hstack([half * of_mean, half * of_spread, of_share]), told.astype(float)]
