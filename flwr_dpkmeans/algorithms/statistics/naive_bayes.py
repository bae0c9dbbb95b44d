"""Private naive Bayes: each class's count, sums and squares of numbers.

And counts of categories, in one round.

Numbers are Gaussian in each class, categories have a table. With labels of classes from
0 on; a row whose label is no class adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.client_means import means_of_rows, parts_for_unit
from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.algorithms.statistics.class_columns import (
    Columns,
    class_arrays,
    codes_of,
)
from flwr_dpkmeans.algorithms.statistics.class_estimates import (
    likely_variances,
    pulled_together,
)
from flwr_dpkmeans.algorithms.statistics.group_counts import deviations_of
from flwr_dpkmeans.algorithms.statistics.moment_errors import of_means, of_variances
from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_parts, read_moments
from flwr_dpkmeans.algorithms.statistics.moments_task import DEVIATIONS
from flwr_dpkmeans.algorithms.statistics.noise_errors import noise_of, of_shares
from flwr_dpkmeans.algorithms.statistics.one_round import (
    AxisNames,
    OneRoundTask,
    noise_caution,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.option_rules import Options, option, real, whole
from flwr_dpkmeans.sums.outcome import CountedRows, Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, RowWeights, State
from flwr_dpkmeans.sums.settings import Settings

CELLS = "cells"
_MOST_CELLS = 100_000
_CELL_SHARE = 2.0
_MOST_NOISE = 0.03
"""Of a class's rows: accuracy on 333 penguins is 0.25 to 0.98 at 0.07, 0.22 to 0.97 at
0.04, 0.90 to 0.97 at 0.02.
"""


def _as_categories(value: object) -> object:
    """A tuple from a list, an array, or text such as ``"0,2,7"``."""
    if isinstance(value, str):
        texts = [text.strip() for text in value.split(",") if text.strip()]
        return tuple(int(text) if text.isdigit() else text for text in texts)
    if isinstance(value, list | np.ndarray):
        return tuple(
            [item.item() if isinstance(item, np.integer) else item for item in value]
        )
    return value


def _is_category_count(value: object) -> bool:
    """Whether a value is 0, or a number of categories that a table can have."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value == 0 or 2 <= value <= _MOST_CELLS


def _require_categories(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(map(_is_category_count, value)):
        raise ConfigurationError(
            f"{name} is {value!r}, but it must have a whole number for each column, 0"
            " for numbers and otherwise how many categories there are, at least 2:"
            " give such as (0, 0, 2)."
        )


@dataclass(frozen=True)
class NaiveBayesOptions(Options):
    """Options of naive Bayes."""

    classes: int = whole(
        2,
        2,
        3,
        "public number of classes; labels are 0 to one less",
        most=1_000,
    )
    categories: tuple[int, ...] | None = option(
        None,
        _require_categories,
        "for each column how many categories it has, 0 for numbers, such as '0,0,2';"
        " automatic: numbers only",
        _as_categories,
    )
    smoothing: float = real(
        1.0,
        0.0,
        1e6,
        "1.0",
        "Laplace smoothing: rows added to each class and category",
    )
    least_deviation: float = real(
        0.001,
        2.0**-16,
        1.0,
        "0.001",
        "floor of standard deviations, in halves of the width of a column's bounds",
    )


@dataclass(frozen=True, kw_only=True)
class NaiveBayesTask(OneRoundTask):
    """Naive Bayes of labelled rows.

    Columns of categories have values 0, 1, ... and bounds from 0 to the last one. The
    state has each class's ``rows``, the ``means`` and ``deviations`` of the numbers in
    the box [-1, 1]^d, and ``cells``, the rows of each category.
    """

    name = "naive_bayes"
    units = (PrivacyUnit.RECORD, PrivacyUnit.CLIENT)
    clips_clients = False
    options: NaiveBayesOptions = NaiveBayesOptions()

    def n_classes(self, settings: Settings) -> int:
        """As many as the options say."""
        return self.options.classes

    def check(self, settings: Settings) -> None:
        """Refuse categories that do not fit, and tables of too many cells."""
        super().check(settings)
        categories, n_cells = (
            self.options.categories or (),
            self.options.classes * sum(self.options.categories or ()),
        )
        if n_cells > _MOST_CELLS:
            raise ConfigurationError(
                f"classes and categories make a table of {n_cells} cells, but it may"
                f" have at most {_MOST_CELLS}: leave columns of many categories out."
            )
        lower, upper = settings.bounds
        for column, n in enumerate(categories):
            low, high = (side[min(column, len(side) - 1)] for side in (lower, upper))
            if n and (low, high) != (0, n - 1):
                raise ConfigurationError(
                    f"column {column} has {n} categories, but bounds from {low:g} to"
                    f" {high:g}: code them 0 to {n - 1}, and give bounds from 0 to"
                    f" {n - 1} there."
                )

    def counted_rows(self, state: State) -> CountedRows | None:
        """Rows with a label; how many have none is not known."""
        counted = super().counted_rows(state)
        return None if counted is None else replace(counted, least_part=0.0)

    def planned(self, public: PublicFacts) -> PlannedSum:
        """Plan moments of numbers and counts of categories, by class."""
        columns, n_classes = self.columns(public.n_features), self.options.classes
        unit = public.settings.unit
        parts = moment_parts(n_classes, len(columns.numbers))
        if columns.coded:
            root = root_at_least(len(columns.coded))
            because = (
                "S27: one row lies in one cell of each of its c columns of categories"
            )
            moved = Sensitivity(
                Norm.L2,
                root,
                PrivacyUnit.RECORD,
                because,
                nonnegative=True,
            )
            parts.append(
                ReleasePart(
                    CELLS,
                    (n_classes, columns.n_cells),
                    moved,
                    _CELL_SHARE,
                    1.0,
                )
            )

        @in_blocks
        def sums_of_block(
            points: Array,
            state: State,
            labels: Labels,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            is_class = (labels >= 0) & (labels < n_classes)
            return class_arrays(
                columns,
                points[is_class],
                labels[is_class],
                n_classes,
                None if weights is None else weights[is_class],
            )

        def labelled(
            points: Array,
            state: State,
            labels: Labels,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            arrays = sums_of_block(points, state, labels, weights)
            if unit is PrivacyUnit.CLIENT:
                return means_of_rows(arrays, len(points))
            return arrays

        def unlabelled(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            return labelled(points, state, np.broadcast_to(-1, len(points)), weights)

        def advance(state: State, released: ReleasedSum) -> State:
            rows = released["group_counts"]
            arrays = {"rows": rows}
            if columns.numbers:
                _, means, variances = read_moments(released)
                noise = {}
                for block in released.blocks:
                    noise[block.name] = public.released_std(block)
                counts = np.maximum(rows, 1.0)[:, None]
                of_means = 2.0 * means * noise["group_sums"]
                errors = np.hypot(noise["group_squares"], of_means) / counts
                pulled, remaining = pulled_together(variances, rows, errors)
                variances = likely_variances(pulled, remaining)
                # Without the error of the mean itself, a column that hardly varies
                # would outweigh all others.
                variances += np.square(noise["group_sums"] / counts)
                deviations = deviations_of(variances, self.options.least_deviation)
                arrays["means"] = round_to_grid(means)
                arrays[DEVIATIONS] = deviations
            if columns.coded:
                arrays[CELLS] = np.maximum(released[CELLS], 0.0)
            return state.changed(**arrays)

        return parts_for_unit(parts, unit, self.name), PrivateSum(
            "classes",
            (),
            unlabelled,
            advance,
            labelled=labelled,
            weighted=weighing(unit, unlabelled, labelled),
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """Rows, moments and shares of each class."""
        columns = self.columns(n_features)
        n_classes = self.options.classes
        shapes: dict[str, tuple[int, ...]] = {"rows": (n_classes,)}
        if columns.numbers:
            of_numbers = (n_classes, len(columns.numbers))
            shapes["means"] = of_numbers
            shapes[DEVIATIONS] = of_numbers
        if columns.coded:
            shapes[CELLS] = (n_classes, columns.n_cells)
        return shapes

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """The model in the units of the data.

        ``class_prior``, ``theta`` and ``var`` of numbers, ``chances`` of cells.

        Named as in scikit-learn's GaussianNB where that has them; columns of categories
        are left out of ``theta``. With errors of noise, of ``var`` at most.
        """
        columns = self.columns(plan.n_features or 0)
        noise, rows, smoothing = (
            noise_of(plan),
            state["rows"],
            self.options.smoothing,
        )
        priors = self._priors(state)
        total = float(np.maximum(rows, 0.0).sum()) + smoothing * len(rows)
        estimates: dict[str, Array] = {"class_prior": priors}
        axes: dict[str, tuple[str, ...]] = {"class_prior": ("class",)}
        errors = {"class_prior": of_shares(priors, total, noise["group_counts"])}
        if columns.numbers:
            bounds = plan_bounds(plan, plan.n_features or 0)
            lower, upper = (
                np.array(side)[columns.numbers] for side in (bounds.lower, bounds.upper)
            )
            halves = (upper - lower) / 2.0
            means, variances = state["means"], np.square(state[DEVIATIONS])
            estimates["theta"] = lower + (means + 1.0) * halves
            estimates["var"] = variances * np.square(halves)
            errors["theta"] = of_means(means, rows, noise) * halves
            # Beside noise, what the error of the mean itself has added.
            added = np.square(noise["group_sums"] / np.maximum(rows, 1.0))[:, None]
            errors["var"] = (
                of_variances(
                    means,
                    variances,
                    rows,
                    noise,
                )
                + added
            ) * np.square(halves)
            axes |= dict.fromkeys(("theta", "var"), ("class", "number"))
        if columns.coded:
            chances = [table for _, table in columns.chances(state[CELLS], smoothing)]
            totals = [
                table.sum(axis=1, keepdims=True)
                for table in columns.smoothed(state[CELLS], smoothing)
            ]
            spreads = [
                of_shares(shares, total, noise[CELLS])
                for shares, total in zip(chances, totals, strict=True)
            ]
            estimates["chances"] = np.concatenate(chances, axis=1)
            errors["chances"] = np.concatenate(spreads, axis=1)
            axes["chances"] = ("class", "category")
        return Result(estimates, errors, axes)

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where the noise leaves classes hardly any rows."""
        return noise_caution(
            plan,
            self.options.classes,
            "classes",
            _MOST_NOISE,
        )

    def columns(self, n_features: int) -> Columns:
        """Which columns are numbers and which are categories."""
        categories = self.options.categories or (0,) * n_features
        if len(categories) != n_features:
            raise ConfigurationError(
                f"categories has {len(categories)} entries, but the table has"
                f" {n_features} columns: give one for each, 0 for numbers."
            )
        return Columns(categories)

    def axis_names(self, columns: Sequence[str], n_features: int) -> AxisNames:
        """Name numbers by their columns, categories by these and their codes."""
        return self.columns(n_features).names(columns)

    def _priors(self, state: State) -> Array:
        rows = np.maximum(state["rows"], 0.0) + self.options.smoothing
        return np.asarray(rows / rows.sum())

    def log_joint(
        self,
        state: State,
        points: Array,
    ) -> Array:
        """Logarithm of each class's weight, (n_rows, n_classes), up to one constant.

        Of points in the box [-1, 1]^d.
        """
        columns, priors = self.columns(points.shape[1]), self._priors(state)
        joint = np.tile(np.log(priors), (len(points), 1))
        if columns.numbers:
            for label, (mean, deviation) in enumerate(
                zip(state["means"], state[DEVIATIONS], strict=True)
            ):
                steps = (points[:, columns.numbers] - mean) / deviation
                joint[:, label] -= (
                    0.5 * np.square(steps).sum(axis=1) + np.log(deviation).sum()
                )
        if columns.coded:
            smoothing = self.options.smoothing
            for column, chances in columns.chances(state[CELLS], smoothing):
                codes = codes_of(points[:, column], chances.shape[1])
                joint += np.log(chances).T[codes]
        return joint
