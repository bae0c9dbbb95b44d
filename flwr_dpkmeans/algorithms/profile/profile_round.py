"""What a profile sums beside the points of a clustering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import divided
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.client_means import means_of_rows, parts_for_unit
from flwr_dpkmeans.algorithms.profile.profile_layout import (
    CELLS,
    COUNTS,
    PRESENT,
    PROFILE_ARRAYS,
    ProfileLayout,
)
from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_arrays, moment_parts
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels import assignment, grid, vectors
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.privacy.release import (
    Block,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.privacy.report import PROFILE_ROUND
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State


def profile_blocks(config: RunConfig, multiplier: float) -> tuple[Block, ...]:
    """Arrays of a profile, by their joint noise multiplier.

    With bounds of one row that hold for a mean over rows too.

    Shares are such that each number, flag and category has about the noise that it
    would have alone beside the counts; so has each count of cells, which needs less
    than they.
    """
    k, settings = config.n_clusters, config.settings
    n, n_flags, *values = settings.profile_widths or (0, 0)
    parts = [
        replace(part, share=1.0 if part.name == COUNTS else 2.0 * n)
        for part in moment_parts(k, n)
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
    by_unit = parts_for_unit(parts, settings.unit, "profile")
    return divided(by_unit, 1.0, multiplier)


def profile_shapes(config: RunConfig) -> Mapping[str, tuple[int, ...]]:
    """Shapes of the extras that a profile leaves in the state, by name."""
    return {block.name: block.shape for block in profile_blocks(config, 1.0)}


def profile_round(public: PublicFacts) -> PrivateSum:
    """Describe the clusters that the algorithm ended with.

    The released arrays are added to the state.
    """
    config, by_client = public.config, public.settings.unit is PrivacyUnit.CLIENT
    layout = ProfileLayout.of(config.settings)
    names = [block.name for block in public.profile]

    def statistic(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        def summed(rows: slice) -> Sequence[Array]:
            coordinates, beside = np.split(points[rows], [public.n_features], axis=1)
            groups = np.minimum(
                assignment.nearest_centroids(coordinates, state.centroids)[0],
                config.n_clusters - 1,
            )
            block = grid.round_to_grid(np.clip(beside, -1.0, 1.0))
            counted, present = layout.present(block)
            n = layout.n_numbers
            of_rows = None if weights is None else weights[rows]
            moments = moment_arrays(
                block[:, :n],
                groups.astype(np.int64),
                config.n_clusters,
                present[:, :n],
                of_rows,
            )
            arrays = dict(zip(PROFILE_ARRAYS, moments, strict=False))
            cells = layout.cells(block) * present[:, layout.column_of_cells]
            by_name = {CELLS: cells, PRESENT: counted - 0.5}
            for name, of_each in by_name.items():
                of_units = vectors.weighted(of_each, of_rows)
                arrays[name] = sum_by_label(of_units, groups, config.n_clusters)
            return [arrays[name] for name in names]

        arrays = sum_over_blocks(summed, len(points), points.shape[1])
        return means_of_rows(arrays, len(points)) if by_client else arrays

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(
            **{block.name: released[block.name] for block in public.profile}
        )

    return PrivateSum(
        PROFILE_ROUND,
        public.profile,
        statistic,
        advance,
        in_blocks=True,
        profiles=True,
        weighted=weighing(public.settings.unit, statistic),
    )
