"""Private statistics of columns, one round of sums each.

Means and deviations, histograms, and who is far from them.

`HistogramsTask` is the smallest private sum: one array. Rows are far from what all
parties' rows are like by the moments, or by a private radius of each cluster
(`RadiiTask`); who is flagged is known at the party alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.algorithms.statistics.group_counts import LEAST, deviations_of
from flwr_dpkmeans.algorithms.statistics.in_weight import in_weight
from flwr_dpkmeans.algorithms.statistics.moment_errors import of_means, of_variances
from flwr_dpkmeans.algorithms.statistics.moment_sums import (
    moment_arrays,
    moment_parts,
    read_moments,
)
from flwr_dpkmeans.algorithms.statistics.noise_errors import (
    constant,
    noise_of,
    of_roots,
)
from flwr_dpkmeans.algorithms.statistics.one_round import (
    CLEAR,
    OneRoundTask,
    noise_caution,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.errors import column_names
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

DEVIATIONS = "deviations"
_MOST_NOISE_OF_A_MEAN = 0.1


@dataclass(frozen=True, kw_only=True)
class MomentsTask(OneRoundTask):
    """Mean and standard deviation of every column, and the number of rows."""

    name = "moments"

    def planned(self, public: PublicFacts) -> PlannedSum:
        """Plan counts, sums and squares of all rows as one group."""

        @in_blocks
        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            one_group = np.zeros(len(points), dtype=np.int64)
            return moment_arrays(points, one_group, 1, weights=weights)

        def advance(state: State, released: ReleasedSum) -> State:
            rows, means, variances = read_moments(released)
            return state.changed(
                rows=rows,
                means=round_to_grid(means),
                deviations=deviations_of(variances, LEAST),
            )

        return moment_parts(1, public.n_features), PrivateSum(
            "moments",
            (),
            statistic,
            advance,
            weighted=weighing(public.settings.unit, statistic),
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """Rows, and a mean and a deviation of each column."""
        return {"rows": (1,), "means": (1, n_features), DEVIATIONS: (1, n_features)}

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where the noise leaves hardly any rows."""
        return noise_caution(
            plan,
            1,
            "",
            _MOST_NOISE_OF_A_MEAN,
        )

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Also columns whose variance is within two deviations of its noise.

        To first order, of 0.
        """
        doubts = super().doubts(plan, state, names)
        first = plan.rounds[0]
        (mean,), variance = state["means"], np.square(state[DEVIATIONS][0])
        counts, sums, squares = (
            plan.released_std(first, block) for block in first.blocks
        )
        # Of squares less one half over rows, less the mean's square.
        noise = np.sqrt(
            squares**2
            + (2.0 * mean * sums) ** 2
            + ((mean**2 - variance + 0.5) * counts) ** 2
        )
        columns = np.flatnonzero(
            variance * max(1.0, state["rows"][0]) <= CLEAR * noise
        ).tolist()
        return (
            (
                *doubts,
                report_sentence(
                    "blurred", what=f"deviation of {column_names(columns, names)}"
                ),
            )
            if columns
            else doubts
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``mean`` and ``deviation`` of every column, (n_features,).

        In the units of the data, and ``rows``; errors.
        """
        bounds = plan_bounds(plan, state["means"].shape[1])
        widths = (np.array(bounds.upper) - np.array(bounds.lower)) / 2.0
        (mean,) = bounds.unscale(state["means"])
        deviations, rows, noise = (
            state[DEVIATIONS],
            state["rows"],
            noise_of(plan),
        )
        spread = of_variances(
            state["means"],
            np.square(deviations),
            rows,
            noise,
        )
        errors = {
            "mean": of_means(state["means"], rows, noise)[0] * widths,
            "deviation": of_roots(deviations, spread)[0] * widths,
            "rows": constant(rows, noise["group_counts"]),
        }
        arrays = {"mean": mean, "deviation": deviations[0] * widths, "rows": rows}
        axes = {"mean": ("column",), "deviation": ("column",)}
        return in_weight(plan, Result(arrays, errors, axes), "rows")
