"""Where rows lie, and then the outer products of their differences from there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.client_means import means_of_rows, parts_for_unit
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_rounding
from flwr_dpkmeans.algorithms.statistics.moment_sums import (
    moment_arrays,
    moment_parts,
    read_moments,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels import outer_products
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import is_on_grid, round_to_grid
from flwr_dpkmeans.kernels.residual_sums import UnitResiduals
from flwr_dpkmeans.kernels.triangles import rounded_triangle, triangle_of
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

ROWS = "rows"
MEAN = "mean"
REACH = "reach"
"""Rows farther from the mean are pulled back to it, (1,), in the box."""
PRODUCTS = "unit_outer_product"
_SHARE = 5.0
"""Of the outer products, where counts have 1, sums and squares 2 each."""
_SHORTEST = 2.0**-12


def location_round(public: PublicFacts, reach: float) -> PlannedSum:
    """Release how many rows there are, their means and their spread.

    Rows are pulled back later from beyond `reach` spreads.
    """
    unit = public.settings.unit

    @in_blocks
    def sums_of_block(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        one_group = np.zeros(len(points), dtype=np.int64)
        return moment_arrays(points, one_group, 1, weights=weights)

    def statistic(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        arrays = sums_of_block(points, state, weights)
        if unit is PrivacyUnit.CLIENT:
            return means_of_rows(arrays, len(points))
        return arrays

    def advance(state: State, released: ReleasedSum) -> State:
        rows, means, variances = read_moments(released)
        block = released.blocks[-1]
        noise = public.released_std(block) / max(1.0, float(rows[0]))
        # Variances that are noise must not cut rows: that of all is no smaller.
        least = noise * math.sqrt(public.n_features)
        spread = math.sqrt(max(math.fsum(variances[0]), least))
        farthest = 2.0 * math.sqrt(public.n_features)
        length = min(max(reach * spread, _SHORTEST), farthest)
        return state.changed(
            **{
                ROWS: rows,
                MEAN: round_to_grid(means[0]),
                REACH: round_to_grid(np.array([length])),
            }
        )

    parts = moment_parts(1, public.n_features)
    return parts_for_unit(parts, unit, "location"), PrivateSum(
        "location",
        (),
        statistic,
        advance,
        weighted=weighing(unit, statistic),
    )


def covariance_round(public: PublicFacts) -> PlannedSum:
    """Release outer products of differences from the mean, in parts of the reach."""
    unit = public.settings.unit
    is_of_clients = unit is PrivacyUnit.CLIENT
    size = outer_products.triangle_size(public.n_features)

    def summed(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        residuals = UnitResiduals(state[MEAN], float(state[REACH][0]))
        return [outer_products.outer_product_sums(points, residuals, weights)]

    def statistic(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        (products,) = summed(points, state, weights)
        if is_of_clients:
            return means_of_rows([triangle_of(products)], len(points))
        return [rounded_triangle(products)]

    def advance(state: State, released: ReleasedSum) -> State:
        return state.changed(**{PRODUCTS: released[PRODUCTS]})

    def admits(state: State) -> bool:
        return admits_location(state, public.n_features)

    because = (
        "S12: one row's difference from the released mean, divided by the reach and"
        " clipped to length 1, adds a matrix of Frobenius norm at most 1, plus one grid"
        " step of rounding in each entry"
    )
    bound = 1.0 + outer_product_rounding(size)
    moved = Sensitivity(
        Norm.L2,
        bound,
        PrivacyUnit.RECORD,
        because,
    )
    part = ReleasePart(
        PRODUCTS,
        (size,),
        moved,
        _SHARE,
        bound,
    )
    return parts_for_unit([part], unit, "covariance"), PrivateSum(
        "covariance",
        (),
        statistic,
        advance,
        reads=(MEAN, REACH),
        admits=admits,
        weighted=weighing(unit, statistic),
        unrounded=None if is_of_clients else (summed, rounded_triangle),
    )


def admits_location(state: State, n_features: int) -> bool:
    """Whether a mean and a reach that a server sent are in the box and on the grid."""
    mean = state[MEAN]
    reach = state[REACH]
    if mean.shape != (n_features,) or reach.shape != (1,):
        return False
    if not is_on_grid(mean) or not is_on_grid(reach):
        return False
    farthest = 2.0 * math.sqrt(n_features) + 1.0
    return bool(np.abs(mean).max() <= 1.0 and 0.0 < reach[0] <= farthest)
