"""The NumPyClient: it holds one client's points and computes what the plan asks for."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

from flwr.client import NumPyClient
from numpy.typing import ArrayLike

from flwr_dpkmeans.data.frame_names import frame_columns, require_names
from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.validated import validate_labels, validate_points
from flwr_dpkmeans.errors import ConfigurationError, LocalMisuseError
from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.checks.columns import (
    agreed_names,
    column_positions,
    schema_agreement,
)
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind
from flwr_dpkmeans.sums.statement import LOCAL
from flwr_dpkmeans.sums.wire import load_plan

if TYPE_CHECKING:
    import pandas as pd

    from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.sums.persons.counted_persons import Persons
    from flwr_dpkmeans.sums.persons.row_units import RowUnits

logger = placed_logger("flwr_dpkmeans.client")

_SHORTEST_SECONDS = 1e-9

Scalar = bool | bytes | float | int | str

DESCRIBE = "describe"
STATISTIC = "statistic"
"""What the mod asks of the wrapped client."""


class KMeansClient(NumPyClient):
    """A `flwr.client.NumPyClient` whose ``fit`` returns a clipped statistic.

    It is the plan's, of the own points.

    The statistic is exact: put `secure_aggregation_mod` around this client, or it
    leaves the machine unprotected.

    Parameters
    ----------
    X : array-like or Rows, (n_examples, n_features)
        This client's rows, in the caller's units; may be empty, may not have NaN.
        `flwr_dpkmeans.data.rows.Rows` are read block by block in each round.
    output_dir : path, optional
        Where ``report.html`` and the files that it is made of are written
        (``flwr_dpkmeans.results.writer``), and ``profile.csv``, which is exact as parts
        of the page are.
    image_shape : tuple of int, optional
        Draw centroids as images of this shape.
    feature_names : sequence of str, optional
        Of the columns; left out: those of a data frame. The run puts the columns in the
        order that it agrees on.
    labels : array-like of int, (n_examples,), or callable, optional
        Classes from 0 on, for a run that evaluates against labels; they take no part in
        the clustering. A function without arguments that returns them is called in the
        evaluation's round; what it returns is never an error, and rows whose label is
        no class from 0 to the plan's last one are counted as rows without a class.
    schema : Schema, optional
        What the rows were encoded by: `X` is then ``schema.encode(table).points``; only
        its plans are answered.
    table : callable, optional
        A function without arguments that returns a data frame of the columns that the
        local profile describes. What is wrong with it is said in this client's log
        only; in a deployed node's process it is called after the reply is made, in a
        process of its own with limits. Left out: `X`.

    persons : array-like, (n_examples,), Persons or RowUnits, optional
        Whose row each is, for runs with ``unit="person"``: ids of any type, of which
        none leaves this object. `weigh` says what rows weigh.

    Examples
    --------
    >>> client = KMeansClient([[0.0, 1.0], [2.0, 3.0]])
    >>> client.fit([], {"task": "describe"})[2]
    {'n_features': 2}
    """

    # After a run:
    cluster_centers_: Array | None = None
    cluster_centers_error_: Array | None = None
    """(n_clusters, n_features), in the caller's units."""
    counts_: Array | None = None
    """(n_clusters,): noisy counts of the last release.

    `flwr_dpkmeans.privacy.report.counted` says of what.
    """
    cost_curve_: Array | None = None
    """(largest k,): cost over the number of clusters, if the run chose it."""
    state_: State | None = None
    """The last state, whatever the task: named arrays in scaled units, which its
    ``result`` reads.
    """
    privacy_: PrivacyReport | None = None
    """What the run guaranteed, with the warnings that follow from releases."""
    local_warnings_: tuple[str, ...] = ()
    """What this client's own rows say against the result.

    In its files and its log, never sent.
    """
    bounds_: Box | None = None
    """The box that data were scaled by: as declared, or as private histograms found it.
    """
    evaluation_: EvaluationResult | None = None
    """Metrics of the result, if the run had an evaluation."""

    def __init__(
        self,
        X: ArrayLike,
        *,
        output_dir: str | Path | None = None,
        image_shape: tuple[int, ...] | None = None,
        feature_names: Sequence[str] | None = None,
        labels: ArrayLike | Callable[[], ArrayLike] | None = None,
        schema: Schema | None = None,
        table: Callable[[], object] | None = None,
        persons: ArrayLike | Persons | RowUnits | None = None,
    ) -> None:
        self.schema = schema
        self.agreement = ""
        if schema is not None:
            box = (schema.bounds.lower, schema.bounds.upper)
            columns = (
                schema.standard_columns,
                schema.profile_widths,
                (schema.describing_share,),
            )
            names, gaps = schema.feature_names, schema.gap_columns
            self.agreement = schema_agreement(
                schema.digest,
                names,
                box,
                *columns,
                gaps,
            )
        points: Any = X if isinstance(X, Rows) else validate_points(X)
        n_profile_columns = 0 if schema is None else schema.n_beside
        n_points = points.shape[1] - n_profile_columns
        self.points = points[:, :n_points]
        self.beside = points[:, n_points:]
        self.profile_table = table
        # An array is the caller's own and the same in every run, so its errors tell a
        # server nothing about classes.
        self.labels: Labels | Callable[[], ArrayLike] | None
        if labels is None or callable(labels):
            self.labels = labels
        else:
            self.labels = validate_labels(labels, len(self.points))
        self.persons: Persons | None = None
        self.weights: Array | None = None
        if persons is not None:
            from flwr_dpkmeans.flower.client.node_persons import units_of

            units = units_of(persons, len(self.points))
            self.persons = units.persons
            self.weights = units.weights
        self.output_dir = None if output_dir is None else Path(output_dir)
        if image_shape is not None and (
            len(image_shape) != 2 or math.prod(image_shape) != n_points
        ):
            raise ConfigurationError(
                f"image_shape is {tuple(image_shape)}, but a row has {n_points}"
                " columns: give (height, width) with that product, or leave it out."
            )
        self.image_shape = image_shape
        if feature_names is None:
            feature_names = schema.feature_names if schema else frame_columns(X)
        self.feature_names = require_names(feature_names, self.points.shape[1])
        self._scaled: tuple[Plan, Array] | None = None

    def fit(
        self,
        parameters: list[Array],
        config: dict[str, Scalar],
    ) -> tuple[list[Array], int, dict[str, Scalar]]:
        """Answer one task of the mod.

        `config` has ``task``, and for a statistic ``plan`` (bytes), ``round`` (int) and
        the names of the ``arrays`` (JSON). `parameters` are the state's arrays by these
        names, such as centroids (k, d) and counts, and then the movements, in scaled
        units; of a preliminary release, coarse ranges, lower and upper (d,), in the
        units of the data, if there are any. Returns the statistic's arrays; 0, since
        the number of examples is private; and for ``describe`` what is known of the
        table without a look at its values.
        """
        task = config.get("task")
        if task == DESCRIBE:
            self._require_writable()
            facts = self._described_table()
            rows = self.row_facts() if config.get("rows") else None
            if rows is not None:
                facts["rows"] = json.dumps(rows)
            return [], 0, facts
        if task != STATISTIC:
            raise LocalMisuseError(
                f"KMeansClient.fit was called with task {task!r}, but only"
                " secure_aggregation_mod calls it: put the mod around this client, and"
                " start it from one of this package's strategies."
            )
        plan = plan_of(config)
        index = int(config["round"])
        if plan.is_preliminary(index):
            discoveries = _discoveries(parameters)
            return self._preliminary(plan, index, discoveries), 0, {}
        step = task_round(plan, index)
        if config.get("unrounded") and step.unrounded:
            # Of a block of rows on a cluster: the node rounds once, for all of them.
            step = replace(step, statistic=step.unrounded[0])
        state = _state(parameters, config)
        started = time.monotonic()
        arrays = self._arrays(plan, step, state)
        if isinstance(self.points, Rows):
            n_rows = len(self.points)
            logger.info(
                "%s: %d rows, %.3g a second",
                step.name,
                n_rows,
                a_second(n_rows, started),
            )
        return arrays, 0, {}

    def _preliminary(
        self,
        plan: Plan,
        index: int,
        discoveries: Discoveries,
    ) -> list[Array]:
        """Return the arrays of a round before the task's own."""
        points = self._ordered(plan)
        if plan.settings.weighs_rows:
            from flwr_dpkmeans.sums.persons.person_rows import preliminary_of_units

            units = self._units
            return preliminary_of_units(plan, index, units, points, discoveries)
        return plan.task.preliminary_statistic(plan, index, points, discoveries)

    def _arrays(self, plan: Plan, step: PrivateSum, state: State) -> list[Array]:
        """Return a round's arrays."""
        points = self._grid_points(plan)
        labels = self._classes(plan, step)
        if plan.settings.weighs_rows:
            from flwr_dpkmeans.sums.persons.person_rows import arrays_of_units

            return arrays_of_units(
                plan, step, self._units, points, state, labels, self.beside
            )
        return list(step.arrays_of(points, state, labels, self.beside))

    def weigh(self, sample_weight: ArrayLike) -> Self:
        """Give each row a weight, (n_examples,), for runs with ``max_weight``.

        Weights are finite numbers of at least 0, of which none leaves this object.
        """
        from flwr_dpkmeans.data.loading.row_weights import validate_weights

        self.weights = validate_weights(sample_weight, len(self.points))
        return self

    @property
    def _units(self) -> RowUnits:
        """Whose rows these are, and what they weigh."""
        from flwr_dpkmeans.sums.persons.row_units import RowUnits

        return RowUnits(self.persons, self.weights)

    def _require_writable(self) -> None:
        """Refuse a folder for results that is none, before anything is paid for."""
        from flwr_dpkmeans.results.whole_files import require_writable

        if self.output_dir is not None:
            require_writable(self.output_dir)

    def _described_table(self) -> dict[str, Scalar]:
        """What the mod may know of the table before a plan is agreed on.

        What is empty or false is left out.
        """
        facts: dict[str, Scalar] = {"n_features": self.points.shape[1]}
        if self.feature_names:
            facts["feature_names"] = json.dumps(self.feature_names)
        if self.labels is not None:
            facts["has_labels"] = True
        if self.persons is not None:
            facts["has_persons"] = True
        if self.weights is not None:
            facts["has_weights"] = True
        if self.agreement:
            facts["schema"] = self.agreement
        if self.schema is not None:
            columns = self.schema.columns
            used = [name for column in columns for name in column.features]
            facts["used"] = json.dumps(used)
        return facts

    def row_facts(self) -> RowFacts | None:
        """By what the node knows its table again: asked for by its own mod only."""
        return RowFacts.of(self.points, self.feature_names)

    def evaluate(
        self,
        parameters: list[Array],
        config: dict[str, Scalar],
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Take the result: keep it on this object and write it into ``output_dir``.

        If there is one.

        `parameters` are as in `fit`; `config` has ``plan`` (bytes), ``report`` (JSON),
        ``n_clients`` (int), in the last sum, and ``spent``, what the ledger says.
        Returns ``(0.0, 0, {})``: nothing that depends on data.
        """
        try:
            self._take_result(parameters, config)
        finally:
            # Plain rows may not stay on the disk, whatever went wrong.
            if isinstance(self.points, Rows):
                self.points.forget()
        return 0.0, 0, {}

    # What takes and writes a result is loaded with it, and not with each message.

    def _take_result(
        self,
        parameters: list[Array],
        config: dict[str, Scalar],
    ) -> None:
        plan = plan_of(config)
        state = _state(parameters, config)
        self.state_ = state
        self.bounds_ = plan.bounds
        # Without what the own rows say, which is for the files of this client.
        self.privacy_ = PrivacyReport.from_dict(json.loads(str(config["report"])))
        self.local_warnings_ = self._local_warnings(plan, config)
        if "centroids" in state.arrays:
            n_clients = int(config.get("n_clients", plan.n_clients))
            self._note_centroids(plan, state, n_clients)
        if self.output_dir is not None:
            for sentence in self.local_warnings_:
                logger.warning("%s", sentence)
            self._write_result(
                self.output_dir, plan, state, str(config.get("spent", ""))
            )

    def _local_warnings(
        self,
        plan: Plan,
        config: dict[str, Scalar],
    ) -> tuple[str, ...]:
        """What this client's own rows say against the result."""
        from flwr_dpkmeans.data.doubts.doubt import sentences_about
        from flwr_dpkmeans.data.doubts.doubtful_columns import doubts_about_own_table
        from flwr_dpkmeans.sums.statement.row_cautions import (
            local_cautions,
            weight_doubts,
        )

        names = agreed_names(plan, self.feature_names)
        n_persons = None
        of_persons = plan.settings.unit is PrivacyUnit.PERSON
        if of_persons and self.persons is not None:
            n_persons = self.persons.n_persons
        outside = self.outside(config)
        warnings = local_cautions(plan.config, plan.delta, outside, names, n_persons)
        if self.weights is not None:
            doubts_of_weights = weight_doubts(plan.settings.max_weight, [self.weights])
            warnings += tuple(LOCAL + sentence for sentence in doubts_of_weights)
        # A schema's author has looked at the columns. An image's border is one colour,
        # and its pixels are no measures that somebody chose.
        if self.schema is None and self.image_shape is None:
            doubts = doubts_about_own_table(self.points, self.feature_names)
            sentences = sentences_about(doubts, self.feature_names)
            warnings += tuple(LOCAL + sentence for sentence in sentences)
        return warnings

    def _note_centroids(self, plan: Plan, state: State, n_clients: int) -> None:
        """Keep what a clustering found, in the caller's units."""
        from flwr_dpkmeans.algorithms.kmeans_task import centre_half_widths
        from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
        from flwr_dpkmeans.algorithms.measure.evaluation_result import read_evaluation
        from flwr_dpkmeans.algorithms.server.box_units import in_callers_units

        self.cluster_centers_ = in_callers_units(plan, state.centroids)
        self.cluster_centers_error_ = centre_half_widths(plan, state)
        self.counts_ = state.counts * plan.settings.weight_unit
        self.cost_curve_ = state.extras.get(COST_CURVE)
        self.evaluation_ = None
        if plan.settings.evaluation is not EvaluationKind.NONE:
            self.evaluation_ = read_evaluation(plan, state, n_clients)

    def _write_result(self, folder: Path, plan: Plan, state: State, spent: str) -> None:
        from flwr_dpkmeans.flower.client.written_result import Columns, write_result
        from flwr_dpkmeans.results.aside import can_run_aside

        report = self.privacy_
        assert report is not None
        paths = write_result(
            folder,
            plan,
            state,
            replace(report, warnings=report.warnings + self.local_warnings_),
            Columns(agreed_names(plan, self.feature_names), self.schema),
            self.profile,
            aside=can_run_aside(),
            evaluation=self.evaluation_,
            image_shape=self.image_shape,
            spent=spent,
        )
        for path in paths:
            logger.info("wrote %s", path)

    def outside(self, config: dict[str, Scalar]) -> Array:
        """How many rows there are, and lie outside the plan's box.

        For this client's own eyes.
        """
        from flwr_dpkmeans.kernels.blocks import row_blocks
        from flwr_dpkmeans.sums.statement.row_cautions import count_outside

        plan = plan_of(config)
        points = self._ordered(plan)
        blocks = row_blocks(len(points), points.shape[1])
        return count_outside(plan.bounds, (points[block] for block in blocks))

    def profile(self, model: Model) -> pd.DataFrame | None:
        """Rows of this client by cluster.

        Whatever is wrong with the table decides nothing else.
        """
        from flwr_dpkmeans.results.profile import as_frame

        if isinstance(self.points, Rows):
            logger.info("no local profile is written of a table beyond memory")
            return None

        try:
            if self.profile_table is None:
                return replace(model, schema=None).profile(
                    as_frame(self.points, self.feature_names)
                )
            return model.profile(self.profile_table())
        except Exception as error:
            logger.warning("no local profile was written: %s", where_raised(error))
            return None

    def _classes(
        self,
        plan: Plan,
        step: PrivateSum,
    ) -> Labels | None:
        """The labels, where this round looks at them.

        That some are no class of the plan is said in this log only.
        """
        from flwr_dpkmeans.data.loading.class_labels import as_classes

        if self.labels is None or step.labelled is None:
            return None
        n_classes = plan.task.n_classes(plan.settings)
        if n_classes == 0:
            return None
        stated_labels = self.labels() if callable(self.labels) else self.labels
        if isinstance(stated_labels, Rows):
            labels_of_rows: Labels = stated_labels.then(
                lambda block: as_classes(block, len(block))
            )
            return labels_of_rows
        labels = as_classes(stated_labels, len(self.points))
        foreign = (labels < 0) | (labels >= n_classes)
        if foreign.any():
            logger.warning(
                "labels of %s rows are none of the classes 0 to %d: these rows count as"
                " rows without a class",
                "ALL" if foreign.all() else "some",
                n_classes - 1,
            )
        return labels

    def _ordered(self, plan: Plan) -> Array:
        """The points with their columns in the order that the run agrees on."""
        places = column_positions(
            self.feature_names, agreed_names(plan, self.feature_names)
        )
        ordered: Array = self.points if places is None else self.points[:, places]
        return ordered

    def _grid_points(self, plan: Plan) -> Array:
        """The points in [-1, 1]^d on the grid.

        Computed once for a plan where this object outlives a message, as in a process
        that has all clients.
        """
        from flwr_dpkmeans.algorithms.server.box_units import in_box, plan_bounds

        if self._scaled is None or self._scaled[0] != plan:
            bounds = plan_bounds(plan, self.points.shape[1])
            scaled = in_box(bounds, self._ordered(plan), plan.fraction_bits)
            self._scaled = (plan, scaled)
        return self._scaled[1]


class ClientTable(TypedDict):
    """The arguments of a `KMeansClient` that are its table."""

    X: ArrayLike
    feature_names: Sequence[str]
    schema: Schema | None
    labels: Callable[[], ArrayLike] | None
    persons: RowUnits | None


def held_by(table: Table, salt: int = 0) -> ClientTable:
    """What a `KMeansClient` is made of, from a table that was loaded.

    `salt` chooses among a person's rows.
    """
    units = None
    if table.persons is not None or table.weights is not None:
        from flwr_dpkmeans.sums.persons.row_units import RowUnits

        units = RowUnits.of(table.persons, table.weights, salt)
    labels = table.labels
    read_labels = None if labels is None else lambda: labels
    return {
        "X": table.points,
        "feature_names": table.names,
        "schema": table.schema,
        "labels": read_labels,
        "persons": units,
    }


def a_second(n_rows: float, started: float) -> float:
    """Return how many rows a second were read since then, by `time.monotonic`.

    A coarse clock may not have gone on.
    """
    seconds = time.monotonic() - started
    return n_rows / max(seconds, _SHORTEST_SECONDS)


def plan_of(config: dict[str, Scalar]) -> Plan:
    """The plan that the mod hands along."""
    blob = config.get("plan")
    if not isinstance(blob, bytes):
        raise LocalMisuseError(
            "a task without a plan reached KMeansClient: put secure_aggregation_mod"
            " around it."
        )
    return load_plan(blob)


def _discoveries(parameters: Sequence[Array]) -> Discoveries:
    """What was found before a preliminary round: the coarse ranges, if there are any.

    See `flwr_dpkmeans.flower.client.wrapped.Wrapped.compute`.
    """
    sides = [tuple(map(float, side)) for side in parameters]
    if not any(sides):
        return Discoveries()
    lower, upper = sides
    return Discoveries(box=(lower, upper))


def _state(parameters: Sequence[Array], config: dict[str, Scalar]) -> State:
    *arrays, movements = parameters
    names = json.loads(str(config.get("arrays", '["centroids", "counts"]')))
    return State(dict(zip(names, arrays, strict=True)), tuple(map(float, movements)))
