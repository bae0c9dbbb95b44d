"""Histograms of all columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.algorithms.statistics.in_weight import in_weight
from flwr_dpkmeans.algorithms.statistics.noise_errors import constant, noise_of
from flwr_dpkmeans.algorithms.statistics.one_round import OneRoundTask, noise_caution
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.option_rules import Options, whole
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

_MOST_NOISE_OF_A_BIN = 1.0


@dataclass(frozen=True)
class HistogramsOptions(Options):
    """Options of histograms."""

    bins: int = whole(
        20,
        1,
        20,
        "bins of equal width between each column's bounds",
        most=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class HistogramsTask(OneRoundTask):
    """Noisy counts of every column's values in bins."""

    name = "histograms"
    options: HistogramsOptions = HistogramsOptions()

    def planned(self, public: PublicFacts) -> PlannedSum:
        """Plan the bins of all columns as one block."""
        d, n = shape = (public.n_features, self.options.bins)
        because = "S26: one row lies in one bin of each of d columns"
        moved = Sensitivity(
            Norm.L2,
            root_at_least(d),
            PrivacyUnit.RECORD,
            because,
            nonnegative=True,
        )
        half_step = 2.0 ** -(public.fraction_bits + 1)

        @in_blocks
        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            # From [-1, 1] to bins 0 to n - 1; the upper bound belongs to the last one.
            # Half a step of the grid is added as a value at the beginning of a bin may
            # have been rounded down.
            bins = np.minimum((points + (1.0 + half_step)) * (n / 2.0), n - 1).astype(
                np.int64
            )
            counts = [counts_by_label(column, n, weights) for column in bins.T]
            return [np.stack(counts)]

        def advance(state: State, released: ReleasedSum) -> State:
            return state.changed(bins=released["bins"])

        return [
            ReleasePart(
                "bins",
                shape,
                moved,
                1.0,
                1.0,
            )
        ], PrivateSum(
            "histograms",
            (),
            statistic,
            advance,
            weighted=weighing(public.settings.unit, statistic),
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """One row of bins for each column."""
        return {"bins": (n_features, self.options.bins)}

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where the noise leaves bins hardly any rows."""
        return noise_caution(
            plan,
            self.options.bins,
            "bins",
            _MOST_NOISE_OF_A_BIN,
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``counts``, (n_features, bins), and ``edges``, (n_features, bins + 1).

        In the units of the data.
        """
        d, n = state["bins"].shape
        bounds = plan_bounds(plan, d)
        arrays = {
            "counts": state["bins"],
            "edges": np.linspace(
                bounds.lower,
                bounds.upper,
                n + 1,
                axis=1,
            ),
        }
        errors = {"counts": constant(state["bins"], noise_of(plan)["bins"])}
        result = Result(arrays, errors, {"counts": ("column", "bin")})
        return in_weight(plan, result, "counts")
