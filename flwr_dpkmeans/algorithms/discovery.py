"""Releases that steer the plan: the number of rows and the range of each column, where nobody declares them.

They come before round 1 and have `distributed` noise, as everybody must see them. What follows from them is computed
alike by the server and by every client, which compares it with the final plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.errors import PlanError, ProtocolError, column_names
from flwr_dpkmeans.kmeans.ranges import (
    N_BINS,
    N_MAGNITUDES,
    WIDEST,
    Ranges,
    find_coarse_ranges,
    find_ranges,
    magnitude_histogram,
    noise_threshold,
    one_vote,
    range_histogram,
)
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.draft import whole_multiplier
from flwr_dpkmeans.sums.plan import COUNT, Plan, PlannedRound
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.task import Found, Run

PRELIMINARY_TRUST = "distributed"
"""What steers the plan must be seen by everybody: its noise comes from the clients."""
MAGNITUDES, RANGES = "magnitudes", "ranges"
"""Names of the released arrays."""
MAGNITUDES_PART = 0.8
"""Of `bounds_share`, for the first histogram, which small tables need; the second only narrows what it found."""


def preliminary_rounds(config: Run, delta: float, n_features: int | None) -> tuple[PlannedRound, ...]:
    """Plan the releases that come before round 1: none, a private count, or two histograms, the first with the count.

    Without a width the histograms are missing from their rounds.
    """
    settings = config.settings
    counts = config.task.counts(settings.unit)
    counted = counts and settings.n_examples is None
    if settings.preliminary_share(counts=counts) == 0.0:
        return ()
    whole = whole_multiplier(config, delta)
    count = [_count_block(config, whole / math.sqrt(settings.count_share))] if counted else []
    if not settings.private_bounds:
        return (PlannedRound(COUNT, PRELIMINARY_TRUST, tuple(count)),)

    def histograms(name: str, n_bins: int, part: float) -> list[Block]:
        multiplier = whole / math.sqrt(settings.bounds_share * part)
        return [] if n_features is None else [_histogram_block(config, name, (n_features, n_bins), multiplier)]

    first = (*count, *histograms(MAGNITUDES, N_MAGNITUDES, MAGNITUDES_PART))
    second = tuple(histograms(RANGES, N_BINS, 1.0 - MAGNITUDES_PART))
    name = " and ".join([COUNT] * counted + [MAGNITUDES])
    return PlannedRound(name, PRELIMINARY_TRUST, first), PlannedRound(RANGES, PRELIMINARY_TRUST, second)


def preliminary_statistic(plan: Plan, index: int, points: Array, found: Found) -> list[Array]:
    """One client's exact part of a preliminary release, from its rows, (n_points, n_features), in the data's units.

    On the grid, and within each block's sensitivity whatever the coarse ranges are; a `ProtocolError` if the second
    histogram is asked for before these are released.
    """
    settings, arrays = plan.settings, list[Array]()
    for block in plan.round_at(index).blocks:
        if block.name == COUNT:
            most = len(points) if settings.unit is PrivacyUnit.RECORD else settings.examples_per_client
            arrays.append(np.array([float(min(len(points), most))]))
            continue
        if block.name == MAGNITUDES:
            histogram = magnitude_histogram(points, _domain(plan.config, plan.n_features))
        elif found.box is None:
            raise ProtocolError("the ranges were asked for before the magnitudes: stop the run and check the server.")
        else:
            histogram = range_histogram(points, Ranges(*found.box))
        arrays.append(histogram if settings.unit is PrivacyUnit.RECORD else one_vote(histogram))
    return arrays


def take_preliminary(plan: Plan, index: int, released: ReleasedSum, found: Found) -> Found:
    """Add what a preliminary release tells to what was known before: the same on the server and on every client.

    A `PlanError` if the counted rows are too few, or a column's values are beyond finding: nothing more is spent then.
    """
    planned, domain = plan.round_at(index), _domain(plan.config, plan.n_features)
    for block in planned.blocks:
        std = plan.released_std(planned, block)
        if block.name == COUNT:
            found = replace(found, n_examples=plan.task.counted_examples(float(released[COUNT][0])))
        elif block.name == MAGNITUDES:
            coarse = find_coarse_ranges(released[block.name], domain, std)
            _require_bounded(plan, coarse.unheard, domain, std)
            unclear = tuple(sorted(coarse.unheard + coarse.zero))
            found = replace(found, box=(coarse.ranges.lower, coarse.ranges.upper), unclear=unclear)
        elif found.box is not None:
            ranges = find_ranges(released[block.name], Ranges(*found.box), std)
            found = replace(found, box=(ranges.lower, ranges.upper))
    return found


def _require_bounded(plan: Plan, unheard: Sequence[int], domain: Ranges, std: float) -> None:
    """Refuse to go on with columns that neither a histogram nor the domain says anything of."""
    unbounded = [one for one in unheard if max(abs(domain.lower[one]), abs(domain.upper[one])) >= WIDEST]
    if not unbounded:
        return
    columns, needed = column_names(unbounded, plan.settings.feature_names), noise_threshold(len(domain.lower), std)
    public = ""
    if plan.settings.n_examples is None and plan.settings.unit is PrivacyUnit.RECORD:
        public = "; or declare n_examples if the number of rows is public, which allows a larger delta"
    raise PlanError(
        f"the private histograms found no values of {columns} beyond the noise (a standard deviation of {std:.3g} on "
        f"each bin, of which about {needed:.3g} are needed within a factor of two), and no domain bounds them: give "
        f"bounds, or a bounds_domain, or raise epsilon or bounds_share, or add rows{public}."
    )


def _domain(config: Run, n_features: int | None) -> Ranges:
    """The public domain of every column: one pair of bounds holds for all."""
    lower, upper = config.settings.bounds
    n = n_features or 0
    return Ranges(lower * n, upper * n) if len(lower) == 1 else Ranges(lower, upper)


def require_box(config: Run, box: Box | None, n_features: int | None) -> None:
    """Refuse a box that no release can have led to, by a `PlanError`.

    Bounds are declared, or the box has another width, no extent, or reaches beyond the public domain.
    """
    if box is None:
        return
    if not config.settings.private_bounds:
        raise PlanError("the plan has a box besides its declared bounds: stop the run and check the server.")
    if (
        n_features is None
        or {len(box[0]), len(box[1])} != {n_features}
        or len(config.settings.bounds[0]) not in (1, n_features)
    ):
        raise PlanError(f"the plan's box has {len(box[0])} features, but the tables have {n_features}: stop the run.")
    domain = _domain(config, n_features)
    for feature, (least, low, high, most) in enumerate(zip(domain.lower, *box, domain.upper, strict=True)):
        if not least <= low < high <= most:
            raise PlanError(
                f"the plan's box has [{low:g}, {high:g}] for feature {feature}, but it must lie in the public domain "
                f"[{least:g}, {most:g}]: stop the run and check the server."
            )


def _count_block(config: Run, multiplier: float) -> Block:
    """The private count: one entry; at client level each client counts no more rows than are declared."""
    settings = config.settings
    bound, because = 1.0, "S16: one row changes the number of rows by one"
    if settings.unit is PrivacyUnit.CLIENT:
        bound = float(settings.examples_per_client)
        because = "S16: one client's number of rows is clipped to the declared examples_per_client"
    moved = Sensitivity(Norm.L2, bound, settings.unit, because, nonnegative=True)
    return Block(COUNT, (1,), moved, NoiseShape.GAUSSIAN, multiplier, bound)


def _histogram_block(config: Run, name: str, shape: tuple[int, int], multiplier: float) -> Block:
    """Histograms of all columns together: one row, or one client's vote, adds a norm of sqrt(n_features) at most."""
    # A one in one bin of each of d columns has norm sqrt(d), which is rounded up (S17).
    bound, entry = math.nextafter(math.sqrt(shape[0]), math.inf), 1.0
    bins = "one bin, by sign and power of two, of each column's histogram"
    if name == RANGES:
        bins = "at most one of each column's equal bins"
    because = f"S17: one row is in {bins}: a norm of sqrt(number of columns)"
    if config.settings.unit is PrivacyUnit.CLIENT:
        entry, because = bound, "S17: one client's histograms are scaled down to the norm of a single row's"
    moved = Sensitivity(Norm.L2, bound, config.settings.unit, because, nonnegative=True)
    return Block(name, shape, moved, NoiseShape.GAUSSIAN, multiplier, entry)
