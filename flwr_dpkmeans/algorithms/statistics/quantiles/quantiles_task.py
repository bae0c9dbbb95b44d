"""Quantiles of all columns, medians among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.client_means import means_of_rows, parts_for_unit
from flwr_dpkmeans.algorithms.discovery.discovering_task import DiscoveringTask
from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.algorithms.statistics.noise_errors import constant, noise_of
from flwr_dpkmeans.algorithms.statistics.one_round import (
    AxisNames,
    OneRoundTask,
    noise_caution,
)
from flwr_dpkmeans.algorithms.statistics.quantiles.dyadic_sums import (
    DIFFERENCES,
    cumulated,
    dyadic_arrays,
    dyadic_parts,
    variances_below,
)
from flwr_dpkmeans.algorithms.statistics.quantiles.noisy_distribution import (
    NoisyDistribution,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.privacy.release import PrivacyUnit, ReleasedSum
from flwr_dpkmeans.sums.option_rules import Options, as_numbers, option, whole
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

_MOST_NOISE_OF_RANKS = 0.05
_MOST_QUANTILES = 1_000


def _require_quantiles(name: str, value: object) -> None:
    levels = value if isinstance(value, tuple) else ()
    are_within = [isinstance(level, float) and 0.0 < level < 1.0 for level in levels]
    if not 1 <= len(levels) <= _MOST_QUANTILES or not all(are_within):
        raise ConfigurationError(
            f"{name} are {value!r}, but they must be 1 to {_MOST_QUANTILES} numbers"
            " strictly between 0 and 1: give such as (0.25, 0.5, 0.75)."
        )


@dataclass(frozen=True)
class QuantilesOptions(Options):
    """Options of quantiles."""

    quantiles: tuple[float, ...] | None = option(
        None,
        _require_quantiles,
        "levels of quantiles, such as '0.5,0.9'; automatic: quartiles",
        as_numbers,
    )
    halvings: int = whole(
        10,
        1,
        10,
        "how often bounds are halved; noise grows in proportion",
        most=16,
    )

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles, strictly between 0 and 1."""
        return self.quantiles or (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class QuantilesTask(DiscoveringTask, OneRoundTask):
    """Quantiles of every column, each with a 95% interval.

    The interval is for the quantile of all rows (at client level, of a distribution in
    which each client counts as much as any other), and has the noise in it. The state
    has the number of ``rows`` and the ``half_differences`` of the parts of each column.
    """

    name = "quantiles"
    units = (PrivacyUnit.RECORD, PrivacyUnit.CLIENT)
    clips_clients = False
    options: QuantilesOptions = QuantilesOptions()

    def planned(self, public: PublicFacts) -> PlannedSum:
        """Plan the number of rows, and of each part the difference of its halves."""
        halvings = self.options.halvings
        unit = public.settings.unit
        half_step = 2.0 ** -(public.fraction_bits + 1)

        @in_blocks
        def sums_of_block(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            return dyadic_arrays(
                points,
                halvings,
                half_step,
                weights,
            )

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
            arrays = {
                "rows": released["group_counts"],
                DIFFERENCES: released[DIFFERENCES],
            }
            return state.changed(**arrays)

        parts = dyadic_parts(public.n_features, halvings)
        return parts_for_unit(parts, unit, self.name), PrivateSum(
            "halves",
            (),
            statistic,
            advance,
            weighted=weighing(unit, statistic),
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """All rows, and one difference for each part of each column."""
        n_parts = 2**self.options.halvings - 1
        return {"rows": (1,), DIFFERENCES: (n_features, n_parts)}

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where the noise moves ranks by more than a part of the rows."""
        return noise_caution(
            plan,
            1,
            "",
            _MOST_NOISE_OF_RANKS,
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``quantiles``, ``lower`` and ``upper``, (n_features, n_quantiles).

        In the units of the data, and ``rows``. The error of a quantile is the longer
        side of its interval from ``lower`` to ``upper``.
        """
        levels = self.options.levels
        by_column = [
            [column.quantile(level) for level in levels]
            for column in self.distributions(plan, state)
        ]
        estimates, lower, upper = np.moveaxis(np.array(by_column), 2, 0)
        rows = state["rows"]
        errors = {
            "quantiles": np.maximum(estimates - lower, upper - estimates),
            "rows": constant(rows, noise_of(plan)["group_counts"]),
        }
        arrays = {
            "quantiles": estimates,
            "lower": lower,
            "upper": upper,
            "rows": rows,
        }
        names = ("quantiles", "lower", "upper")
        return Result(arrays, errors, dict.fromkeys(names, ("column", "quantile")))

    def distributions(self, plan: Plan, state: State) -> list[NoisyDistribution]:
        """Each column's distribution, from which all its quantiles follow."""
        noise = noise_of(plan)
        variances = variances_below(self.options.halvings) * noise[DIFFERENCES] ** 2
        below = cumulated(float(state["rows"][0]), state[DIFFERENCES])
        bounds = plan_bounds(plan, len(below))
        ranges = zip(bounds.lower, bounds.upper, strict=True)
        return [
            NoisyDistribution.of(
                of_column,
                variances,
                noise["group_counts"],
                column_range,
            )
            for of_column, column_range in zip(below, ranges, strict=True)
        ]

    def axis_names(self, columns: Sequence[str], n_features: int) -> AxisNames:
        """Name the quantiles by their levels."""
        return {"quantile": [f"{level:.4g}" for level in self.options.levels]}
