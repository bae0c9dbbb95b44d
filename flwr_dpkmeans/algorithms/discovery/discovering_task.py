"""Tasks that find bounds, and how many rows there are, before their first round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import divided
from flwr_dpkmeans.algorithms.discovery.discovered_bounds import (
    require_bounded,
    require_within,
)
from flwr_dpkmeans.algorithms.discovery.discovery_blocks import (
    MAGNITUDES,
    MAGNITUDES_PART,
    PRELIMINARY_TRUST,
    RANGES,
    count_block,
    domain_of,
    histogram_block,
)
from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_parts
from flwr_dpkmeans.algorithms.statistics.standard_scale import moments_of, standard_box
from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.kmeans.ranges.coarse import find_coarse_ranges
from flwr_dpkmeans.kmeans.ranges.fine import find_ranges
from flwr_dpkmeans.kmeans.ranges.histograms import (
    N_BINS,
    magnitude_histogram,
    one_vote,
    range_histogram,
)
from flwr_dpkmeans.kmeans.ranges.magnitudes import N_MAGNITUDES
from flwr_dpkmeans.privacy.release import Block, ReleasedSum
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.outcome import COUNT, Discoveries
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.price import whole_multiplier
from flwr_dpkmeans.sums.round import Array, RowWeights
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.trust import trust_model


@dataclass(frozen=True, kw_only=True)
class DiscoveringTask(Task):
    """A task with a private count and private bounds, where these are not public."""

    def preliminary(
        self,
        config: RunConfig,
        delta: float,
        n_features: int | None,
    ) -> tuple[PlannedRound, ...]:
        """None, a private count, or two histograms (without a width: missing).

        The first with the count.
        """
        settings = config.settings
        counts = self.counts(settings.unit)
        counted = counts and settings.n_examples is None
        if settings.preliminary_share(counts=counts) == 0.0:
            return ()
        entire = whole_multiplier(config, delta)
        trust = (
            settings.trust if trust_model(settings.trust).alone else PRELIMINARY_TRUST
        )
        count = (
            [count_block(config, entire / math.sqrt(settings.count_share))]
            if counted
            else []
        )
        if not settings.private_bounds:
            return (PlannedRound(COUNT, trust, tuple(count)),)
        if settings.standard_columns:
            blocks = divided(
                [] if n_features is None else moment_parts(1, n_features),
                settings.bounds_share,
                entire,
            )
            name = " and ".join([COUNT] * counted + ["spreads"])
            return (PlannedRound(name, trust, (*count, *blocks)),)

        def histograms(
            name: str,
            n_bins: int,
            part: float,
        ) -> list[Block]:
            multiplier = entire / math.sqrt(settings.bounds_share * part)
            return (
                []
                if n_features is None
                else [
                    histogram_block(
                        config,
                        name,
                        (n_features, n_bins),
                        multiplier,
                    )
                ]
            )

        first = (*count, *histograms(MAGNITUDES, N_MAGNITUDES, MAGNITUDES_PART))
        second = tuple(histograms(RANGES, N_BINS, 1.0 - MAGNITUDES_PART))
        name = " and ".join([COUNT] * counted + [MAGNITUDES])
        return PlannedRound(name, trust, first), PlannedRound(RANGES, trust, second)

    def preliminary_statistic(
        self,
        plan: Plan,
        index: int,
        points: Array,
        discoveries: Discoveries,
        weights: RowWeights | None = None,
    ) -> list[Array]:
        """One client's exact part of it, from its rows, (n_points, n_features).

        In the data's units, on the grid. Weights, (n_points,), are for units of rows:
        at client level each client is one.

        Within each block's sensitivity whatever the coarse ranges are; a
        `ProtocolError` if these are not released yet.
        """
        settings, names = (
            plan.settings,
            [block.name for block in plan.round_at(index).blocks],
        )

        def of(
            name: str,
            rows: Array,
            moments: Mapping[str, Array],
            of_rows: RowWeights | None,
        ) -> Array:
            if name == COUNT:
                one_group = np.zeros(len(rows), np.int32)
                return counts_by_label(one_group, 1, of_rows)
            if name == MAGNITUDES:
                domain = domain_of(plan.config, plan.n_features)
                return magnitude_histogram(rows, domain, of_rows)
            if name in moments:
                return moments[name]
            if discoveries.box is None:
                raise ProtocolError(
                    "ranges were asked for before magnitudes: stop the run and check"
                    " the server."
                )
            return range_histogram(rows, discoveries.box, of_rows)

        def summed(part: slice) -> Sequence[Array]:
            rows = points[part]
            of_rows = None if weights is None else weights[part]
            moments: Mapping[str, Array] = {}
            if settings.standard_columns:
                moments = moments_of(plan, rows, of_rows)
            return [of(name, rows, moments, of_rows) for name in names]

        arrays = sum_over_blocks(summed, len(points), points.shape[1])
        if settings.unit.by_row:
            return arrays
        most = float(settings.examples_per_client)
        pairs = zip(names, arrays, strict=True)
        return [
            np.minimum(array, most) if name == COUNT else one_vote(array)
            for name, array in pairs
        ]

    def take_preliminary(
        self,
        plan: Plan,
        index: int,
        released: ReleasedSum,
        discoveries: Discoveries,
    ) -> Discoveries:
        """Add what it tells to what was known before.

        The same on the server and on every client.

        A `PlanError` if counted rows are too few, or a column's values are beyond
        finding: nothing more is spent then.
        """
        planned, domain = plan.round_at(index), domain_of(plan.config, plan.n_features)
        for block in planned.blocks:
            std = plan.released_std(planned, block)
            if block.name == COUNT:
                discoveries = replace(
                    discoveries,
                    n_examples=self.counted_examples(float(released[COUNT][0])),
                )
            elif block.name == "group_squares":
                box, unclear = standard_box(plan, released, std)
                discoveries = replace(discoveries, box=box, unclear=unclear)
            elif block.name == MAGNITUDES:
                n_examples = discoveries.n_examples or plan.settings.n_examples
                by_row = plan.settings.unit.by_row
                coarse = find_coarse_ranges(
                    released[block.name],
                    domain,
                    std,
                    n_examples if by_row else None,
                )
                require_bounded(
                    plan,
                    coarse.silent,
                    domain,
                    std,
                )
                require_within(plan, coarse.ranges, domain)
                unclear = tuple(sorted(coarse.silent + coarse.zero))
                discoveries = replace(discoveries, box=coarse.ranges, unclear=unclear)
            elif discoveries.box is not None:
                discoveries = replace(
                    discoveries,
                    box=find_ranges(
                        released[block.name],
                        discoveries.box,
                        std,
                        domain,
                    ),
                )
        return discoveries

    def require_box(
        self,
        config: RunConfig,
        box: Box | None,
        n_features: int | None,
    ) -> None:
        """Refuse a box that no release can have led to, by a `PlanError`.

        Bounds are declared, or the box has another width, no extent, or reaches beyond
        the public domain.
        """
        if not config.settings.private_bounds:
            super().require_box(config, box, n_features)
        if box is None:
            return
        if (
            n_features is None
            or {len(box[0]), len(box[1])} != {n_features}
            or len(config.settings.bounds[0]) not in (1, n_features)
        ):
            raise PlanError(
                f"the plan's box has {len(box[0])} features, but tables have"
                f" {n_features}: stop the run."
            )
        domain = domain_of(config, n_features)
        for feature, (least, low, high, most) in enumerate(
            zip(
                domain[0],
                *box,
                domain[1],
                strict=True,
            )
        ):
            if config.settings.standard_columns:
                # The stated bounds lie in the box.
                least, low = low, least
                high, most = most, high
            if not least <= low < high <= most:
                raise PlanError(
                    f"the plan's box has [{low:g}, {high:g}] for feature {feature}, but"
                    f" it must lie in the public domain [{least:g}, {most:g}]: stop the"
                    " run and check the server."
                )
