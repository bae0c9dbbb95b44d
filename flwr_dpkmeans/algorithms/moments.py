"""Private statistics of columns, one round of sums each.

Means and deviations, histograms, and who is far from them.

`HistogramsTask` is the smallest private sum: one array. Rows are far from what all parties'
rows are like by the moments, or by a private radius of each cluster (`RadiiTask`); who is
flagged is known at the party alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.algorithms import noise_errors
from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum, private_sums
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.server_points import plan_bounds
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.table_labels import frame_columns
from flwr_dpkmeans.data.validated import validate_columns
from flwr_dpkmeans.errors import ConfigurationError, column_names, listed
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import is_on_grid, round_to_grid, toward_zero
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.checks.columns import agreed_names
from flwr_dpkmeans.sums.option_rules import Options, as_numbers, option, real, whole
from flwr_dpkmeans.sums.outcome import CountedRows, Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, Labels, PrivateSum, State
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.task import Task

DEVIATIONS = "deviations"
_MOST_NOISE_OF_A_BIN = 1.0
_MOST_NOISE_OF_A_MEAN = 0.1
_CLEAR = 2.0
_LEAST = 2.0**-16
_MOST_CENTERS = 10_000


class OneRoundTask(Task):
    """A task that learns everything in one round, from nothing."""

    @abstractmethod
    def planned(self, public: PublicFacts) -> PlannedSum:
        """The round."""

    @abstractmethod
    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """Shapes of what it learns, by name in the state."""

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Cautions of the released counts, where the number of rows is not public.

        a negative one is noise.
        """
        sizes = state.arrays.get("rows", state.arrays.get("bins"))
        if sizes is None or plan.n_examples is not None:
            return ()
        return self.cautions(
            replace(
                plan,
                n_examples=max(1, round(abs(np.atleast_2d(sizes).sum(axis=1).mean()))),
            )
        )

    def counted_rows(self, state: State) -> CountedRows | None:
        """Groups' counts, or each column's bins, of which the average of all columns is
        taken.
        """
        bins = state.arrays.get("bins", np.zeros(()))
        if bins.ndim == 2 and bins.size:
            n_columns, n_bins = bins.shape
            return CountedRows(
                "bins", float(bins.sum()) / n_columns, n_bins / n_columns
            )
        rows = state.arrays.get("rows", np.zeros(()))
        # Another package's task may have another array of this name.
        if rows.ndim != 1:
            return None
        return CountedRows("group_counts", float(rows.sum()), rows.size)

    def build(self, public: PublicFacts) -> Algorithm:
        return Algorithm(
            self.name,
            private_sums(public, [self.planned(public)]),
            lambda *_: State({}),
        )

    def admits(
        self,
        plan: Plan,
        step: PrivateSum | None,
        state: State,
    ) -> bool:
        """Nothing is known before, then just these arrays, on the grid.

        a server may tell clients no more.
        """
        shapes = {} if step is not None else dict(self.shapes(plan.n_features or 0))
        found = {name: array.shape for name, array in state.arrays.items()}
        return found == shapes and all(map(is_on_grid, state.arrays.values()))


def noise_caution(
    plan: Plan,
    n_groups: int,
    groups: str,
    most: float,
) -> tuple[str, ...]:
    """Say so if noise is more than a part `most` of a group's average number of rows,
    public or counted with noise.
    """
    if plan.n_examples is None or not plan.rounds:
        return ()
    first = plan.rounds[0]
    noise = (
        max(plan.released_std(first, block) for block in first.blocks)
        * n_groups
        / plan.n_examples
    )
    if noise <= most:
        return ()
    whose, fewer = (
        (f" in {n_groups} {groups}", f" or {groups}") if n_groups > 1 else ("", "")
    )
    adds = "one of them adds" if whose else "they add"
    return (
        (
            f"For {'' if plan.settings.n_examples else 'about '}{plan.n_examples}"
            f" rows{whose}, noise is about {noise:.0%} of what {adds} to a sum, and"
            f" above {most:.0%} the result differs much from run to run: have more"
            f" rows, raise epsilon, or use fewer columns{fewer}."
        ),
    )


def group_counts(n_groups: int) -> ReleasePart:
    """Rows of each group."""
    one = Sensitivity(
        Norm.L2,
        1.0,
        PrivacyUnit.RECORD,
        "S23: one row lies in at most one group",
        nonnegative=True,
    )
    return ReleasePart(
        "group_counts",
        (n_groups,),
        one,
        share=1.0,
        entry_bound=1.0,
    )


def moment_parts(n_groups: int, width: int) -> list[ReleasePart]:
    """What is released of `width` columns of rows in groups.

    Counts, sums, and squares less one half.

    A square of a number in [-1, 1] lies in [0, 1], so that less one half it needs half
    the noise. Counts have the smallest share of the budget: their error is divided by
    far more than it moves a mean.
    """
    if not width:
        return [group_counts(n_groups)]
    root, because = (
        root_at_least(width),
        "S24: one row of [-1, 1]^d has L2 norm at most sqrt(d)",
    )
    sums = Sensitivity(
        Norm.L2,
        root,
        PrivacyUnit.RECORD,
        because,
    )
    because = "S25: each of a row's d squares, less one half, is at most one half"
    squares = Sensitivity(
        Norm.L2,
        root / 2.0,
        PrivacyUnit.RECORD,
        because,
    )
    return [
        group_counts(n_groups),
        ReleasePart(
            "group_sums",
            (n_groups, width),
            sums,
            2.0,
            1.0,
        ),
        ReleasePart(
            "group_squares",
            (n_groups, width),
            squares,
            2.0,
            0.5,
        ),
    ]


def moment_arrays(
    points: Array,
    groups: Labels,
    n_groups: int,
    present: Array | None = None,
) -> list[Array]:
    """One client's exact part of them, on the grid.

    `groups` are from 0 to `n_groups` - 1.

    `present`, (n_points, width), is 0 where a cell is missing, which then adds to
    neither sum, and 1 elsewhere.
    """
    counts = np.bincount(groups, minlength=n_groups).astype(np.float64)
    if not points.shape[1]:
        return [counts]
    narrow = groups.astype(np.int32)
    halved = toward_zero(np.square(points) - 0.5)
    if present is not None:
        points, halved = points * present, halved * present
    return [
        counts,
        sum_by_label(points, narrow, n_groups),
        sum_by_label(halved, narrow, n_groups),
    ]


def read_moments(released: ReleasedSum) -> tuple[Array, Array, Array]:
    """Counts, means in the box, and variances, of which noise may make some too small
    or negative.
    """
    counts = released["group_counts"]
    rows = np.maximum(counts, 1.0)[:, None]
    means = np.clip(released["group_sums"] / rows, -1.0, 1.0)
    squares = np.clip(released["group_squares"] / rows + 0.5, 0.0, 1.0)
    return counts, means, squares - np.square(means)


def deviations_of(variances: Array, least: float) -> Array:
    """Standard deviations of at least `least`, on the grid and above 0."""
    return np.maximum(round_to_grid(np.sqrt(np.maximum(variances, least**2))), _LEAST)


@dataclass(frozen=True, kw_only=True)
class MomentsTask(OneRoundTask):
    """Mean and standard deviation of every column, and the number of rows."""

    name = "moments"

    def planned(self, public: PublicFacts) -> PlannedSum:
        @in_blocks
        def statistic(points: Array, state: State) -> Sequence[Array]:
            return moment_arrays(points, np.zeros(len(points), dtype=np.int64), 1)

        def advance(state: State, released: ReleasedSum) -> State:
            rows, means, variances = read_moments(released)
            return state.changed(
                rows=rows,
                means=round_to_grid(means),
                deviations=deviations_of(variances, _LEAST),
            )

        return moment_parts(1, public.n_features), PrivateSum(
            "moments",
            (),
            statistic,
            advance,
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        return {"rows": (1,), "means": (1, n_features), DEVIATIONS: (1, n_features)}

    def cautions(self, plan: Plan) -> tuple[str, ...]:
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
        """Also columns whose variance is within two deviations of its noise, to first
        order, of 0.
        """
        found, first = super().doubts(plan, state, names), plan.rounds[0]
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
            variance * max(1.0, state["rows"][0]) <= _CLEAR * noise
        ).tolist()
        return (
            (
                *found,
                report_sentence(
                    "blurred", what=f"deviation of {column_names(columns, names)}"
                ),
            )
            if columns
            else found
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``mean`` and ``deviation`` of every column, (n_features,), in the units of
        the data, and ``rows``; errors.
        """
        bounds = plan_bounds(plan, state["means"].shape[1])
        widths = (np.array(bounds.upper) - np.array(bounds.lower)) / 2.0
        (mean,) = bounds.unscale(state["means"])
        deviations, rows, noise = (
            state[DEVIATIONS],
            state["rows"],
            noise_errors.noise_of(plan),
        )
        spread = noise_errors.of_variances(
            state["means"],
            np.square(deviations),
            rows,
            noise,
        )
        errors = {
            "mean": noise_errors.of_means(state["means"], rows, noise)[0] * widths,
            "deviation": noise_errors.of_roots(deviations, spread)[0] * widths,
            "rows": noise_errors.constant(rows, noise["group_counts"]),
        }
        arrays = {"mean": mean, "deviation": deviations[0] * widths, "rows": rows}
        return Result(arrays, errors, {"mean": ("column",), "deviation": ("column",)})


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
        def statistic(points: Array, state: State) -> Sequence[Array]:
            # From [-1, 1] to bins 0 to n - 1; the upper bound belongs to the last one.
            # Half a step of the grid is added as a value at the beginning of a bin may
            # have been rounded down.
            bins = np.minimum((points + (1.0 + half_step)) * (n / 2.0), n - 1).astype(
                np.int64
            )
            return [
                np.stack(
                    [np.bincount(column, minlength=n) for column in bins.T]
                ).astype(np.float64)
            ]

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
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        return {"bins": (n_features, self.options.bins)}

    def cautions(self, plan: Plan) -> tuple[str, ...]:
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
        """``counts``, (n_features, bins), and ``edges``, (n_features, bins + 1), in the
        units of the data.
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
        errors = {
            "counts": noise_errors.constant(
                state["bins"], noise_errors.noise_of(plan)["bins"]
            )
        }
        return Result(arrays, errors, {"counts": ("column", "bin")})


def _as_centers(value: object) -> object:
    """Tuples of numbers from an array, from lists, or from text such as
    ``"0.1,2;0.3,4"``.
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
        def statistic(points: Array, state: State) -> Sequence[Array]:
            labels, squared = nearest_centroids(points, centers)
            shares = toward_zero(np.minimum(squared / square, 1.0))
            return [
                np.bincount(labels, w, minlength=n).astype(float)
                for w in (None, shares)
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
        )

    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        return dict.fromkeys(("rows", "radii"), (len(self.options.centers or ()),))

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Clusters whose squared radius is within two deviations of its noise of 0,
        where that of counts is nothing.
        """
        sums = np.square(state["radii"] / self.options.reach) * np.maximum(
            state["rows"], 1.0
        )
        found = np.flatnonzero(
            sums <= _CLEAR * plan.released_std(plan.rounds[0], plan.rounds[0].blocks[1])
        ).tolist()
        return (
            (
                report_sentence(
                    "blurred", what=f"radius of cluster {listed(map(str, found))}"
                ),
            )
            if found
            else ()
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``radii`` in the box, (n_clusters,), and ``rows``, with their errors."""
        reach, noise = self.options.reach, noise_errors.noise_of(plan)
        shares = np.square(state["radii"] / reach)
        spreads = noise_errors.of_spreads(shares, state["rows"], noise)
        errors = {
            "radii": reach * noise_errors.of_roots(np.sqrt(shares), spreads),
            "rows": noise_errors.constant(state["rows"], noise["group_counts"]),
        }
        return Result(
            dict(state.arrays), errors, {"radii": ("cluster",), "rows": ("cluster",)}
        )

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
        # `_LEAST` is a part of a grid step.
        outside = (
            np.maximum(lower - centers, centers - upper) > (upper - lower) * _LEAST
        )
        if outside.any():  # Scaling would clip them, to other centers.
            center, column = np.argwhere(outside)[0]
            found = (
                f"center {center} has {centers[center, column]:g} in column {column}"
            )
            raise ConfigurationError(
                f"{found}, which is outside the bounds: widen these, or move the"
                " center."
            )
        return round_to_grid(bounds.scale(centers))


def far_rows(
    points: ArrayLike,
    plan: Plan,
    radii: Result,
    times: float = 2.0,
) -> NDArray[np.bool_]:
    """Flag rows, (n_rows, n_features) in the units of the data, farther from the
    nearest center than some radii; local.

    Plan and radii are those of one run of `RadiiTask`; a data frame's columns are put in
    its order.
    """
    task = plan.task
    assert isinstance(task, RadiiTask)
    points = validate_columns(points, agreed_names(plan, frame_columns(points)))
    scaled = round_to_grid(plan_bounds(plan, points.shape[1]).scale(points))
    labels, squared = nearest_centroids(
        scaled, task.scaled_centers(plan.bounds, points.shape[1])
    )
    return np.asarray(np.sqrt(squared) > times * radii["radii"][labels])
