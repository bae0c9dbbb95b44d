"""Distances of rows from centers, and rows that are far from all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.algorithms.statistics.group_counts import LEAST, group_counts
from flwr_dpkmeans.algorithms.statistics.in_weight import in_weight
from flwr_dpkmeans.algorithms.statistics.moment_errors import of_spreads
from flwr_dpkmeans.algorithms.statistics.noise_errors import (
    constant,
    noise_of,
    of_roots,
)
from flwr_dpkmeans.algorithms.statistics.one_round import CLEAR, OneRoundTask
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.data.frame_names import frame_columns
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.validated import validate_columns
from flwr_dpkmeans.errors import ConfigurationError, listed
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid, toward_zero
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.kernels.vectors import weighted
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.checks.columns import agreed_names
from flwr_dpkmeans.sums.option_rules import Options, as_numbers, option, real
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State
from flwr_dpkmeans.sums.settings import Box

_MOST_CENTERS = 10_000


def _as_centers(value: object) -> object:
    """Tuples of numbers from an array, from lists.

    Or from text such as ``"0.1,2;0.3,4"``.
    """
    rows = value.split(";") if isinstance(value, str) else value
    return (
        tuple(map(as_numbers, rows))
        if isinstance(rows, list | tuple | np.ndarray)
        else value
    )


def _require_centers(name: str, value: object) -> None:
    rows = value if isinstance(value, tuple) else ()
    widths = {len(row) if isinstance(row, tuple) else 0 for row in rows}
    shaped = 1 <= len(rows) <= _MOST_CENTERS and len(widths) == 1 and 0 not in widths
    if not shaped or not np.isfinite(np.array(rows, dtype=float)).all():
        raise ConfigurationError(
            f"{name} must be 1 to {_MOST_CENTERS} rows of finite numbers: give a fitted"
            " model's cluster_centers_."
        )


@dataclass(frozen=True)
class RadiiOptions(Options):
    """Options of clusters' radii."""

    centers: tuple[tuple[float, ...], ...] | None = option(
        None,
        _require_centers,
        "public centers in the units of the data, such as those of a private"
        " clustering: '0.1,2;0.3,4'",
        _as_centers,
    )
    reach: float = real(
        1.0,
        2.0**-16,
        1e3,
        "1.0",
        "distance, in the box, at which a row's own is cut off",
    )


@dataclass(frozen=True, kw_only=True)
class RadiiTask(OneRoundTask):
    """Root mean square distance of the rows of each cluster from its center.

    ``radii`` in the box, and ``rows``.
    """

    name = "radii"
    options: RadiiOptions = RadiiOptions()

    def planned(self, public: PublicFacts) -> PlannedSum:
        """Plan rows and their squared distances, by nearest centre."""
        centers, square = (
            self.scaled_centers(public.settings.bounds, public.n_features),
            self.options.reach**2,
        )
        n = len(centers)
        because = "S28: one row adds a number from 0 to 1 to one cluster"
        cost = Sensitivity(
            Norm.L2,
            1.0,
            PrivacyUnit.RECORD,
            because,
            True,
        )

        @in_blocks
        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            labels, squared = nearest_centroids(points, centers)
            shares = toward_zero(np.minimum(squared / square, 1.0))
            return [
                counts_by_label(labels, n, weights),
                counts_by_label(labels, n, weighted(shares, weights)),
            ]

        def advance(state: State, released: ReleasedSum) -> State:
            rows = released["group_counts"]
            shares = np.clip(released["spreads"] / np.maximum(rows, 1.0), 0.0, 1.0)
            return state.changed(
                rows=rows, radii=round_to_grid(self.options.reach * np.sqrt(shares))
            )

        parts = [
            group_counts(n),
            ReleasePart(
                "spreads",
                (n,),
                cost,
                1.0,
                1.0,
            ),
        ]
        return parts, PrivateSum(
            "radii",
            (),
            statistic,
            advance,
            weighted=weighing(public.settings.unit, statistic),
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """One number of rows and one radius for each centre."""
        return dict.fromkeys(("rows", "radii"), (len(self.options.centers or ()),))

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Clusters whose squared radius is not told from 0.

        It is within two deviations of its noise, where that of counts is nothing.
        """
        rows = np.maximum(state["rows"], 1.0)
        sums = np.square(state["radii"] / self.options.reach) * rows
        planned = plan.rounds[0]
        noise = plan.released_std(planned, planned.blocks[1])
        blurred = np.flatnonzero(sums <= CLEAR * noise).tolist()
        if not blurred:
            return ()
        clusters = listed(map(str, blurred))
        return (report_sentence("blurred", what=f"radius of cluster {clusters}"),)

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``radii`` in the box, (n_clusters,), and ``rows``, with their errors."""
        reach, noise = self.options.reach, noise_of(plan)
        shares = np.square(state["radii"] / reach)
        spreads = of_spreads(shares, state["rows"], noise)
        errors = {
            "radii": reach * of_roots(np.sqrt(shares), spreads),
            "rows": constant(state["rows"], noise["group_counts"]),
        }
        axes = {"radii": ("cluster",), "rows": ("cluster",)}
        result = Result(dict(state.arrays), errors, axes)
        return in_weight(plan, result, "rows")

    def scaled_centers(
        self,
        box: Box,
        width: int,
    ) -> Array:
        """The centers in the box, on the grid."""
        if self.options.centers is None:
            raise ConfigurationError(
                "centers are not given: give a fitted model's cluster_centers_."
            )
        centers = np.array(self.options.centers, dtype=float)
        if centers.shape[1] != width:
            raise ConfigurationError(
                f"centers have {centers.shape[1]} columns, but the table has {width}."
            )
        bounds = Bounds(*box).for_features(width)
        lower, upper = np.array(bounds.lower), np.array(bounds.upper)
        # `LEAST` is a part of a grid step.
        outside = np.maximum(lower - centers, centers - upper) > (upper - lower) * LEAST
        if outside.any():  # Scaling would clip them, to other centers.
            center, column = np.argwhere(outside)[0]
            raise ConfigurationError(
                f"center {center} has {centers[center, column]:g} in column {column},"
                " which is outside the bounds: widen these, or move the center."
            )
        return round_to_grid(bounds.scale(centers))


def far_rows(
    points: ArrayLike,
    plan: Plan,
    radii: Result,
    times: float = 2.0,
) -> NDArray[np.bool_]:
    """Flag rows that are farther from the nearest center than some radii; local.

    Rows are (n_rows, n_features), in the units of the data.

    Plan and radii are those of one run of `RadiiTask`; a data frame's columns are put
    in its order.
    """
    task = plan.task
    assert isinstance(task, RadiiTask)
    points = validate_columns(points, agreed_names(plan, frame_columns(points)))
    scaled = round_to_grid(plan_bounds(plan, points.shape[1]).scale(points))
    labels, squared = nearest_centroids(
        scaled, task.scaled_centers(plan.bounds, points.shape[1])
    )
    return np.asarray(np.sqrt(squared) > times * radii["radii"][labels])
