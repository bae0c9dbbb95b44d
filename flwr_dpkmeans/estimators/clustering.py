"""What the estimators of k-means share: a fit by an engine, and its result in use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans import options as run_options
from flwr_dpkmeans.algorithms.kmeans_task import CENTRE_DEVIATION, KMeansTask
from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.algorithms.profile.profile_reading import (
    MISSING,
    Figure,
    read_profile,
)
from flwr_dpkmeans.algorithms.server.resolved_bounds import is_private
from flwr_dpkmeans.data.bounds.stated_bounds import doubtful_pairs
from flwr_dpkmeans.data.loading.row_weights import validate_weights
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.row_labels import in_order_of, row_labels
from flwr_dpkmeans.data.schema import Encoded
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget, CountedFits, charge_fit
from flwr_dpkmeans.estimators.fitted import lacks_names, ordered
from flwr_dpkmeans.estimators.fitted_persons import unit_of
from flwr_dpkmeans.estimators.inputs import Answer, Answers, PartyLabels, PartyTables
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.progress_bar import progress_bar
from flwr_dpkmeans.estimators.refusals import require_rows
from flwr_dpkmeans.estimators.run_engines import (
    ENGINES,
    InOnePlace,
    fit_in_one_place,
    played,
)
from flwr_dpkmeans.estimators.table_lists import n_rows_of, name_columns, tables_in
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import sum_of_squares
from flwr_dpkmeans.options import (
    Auto,
    Evaluation,
    ExactEvaluation,
    FlatOptions,
    PrivateBounds,
    PrivateCount,
)
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.profile import as_frame
from flwr_dpkmeans.results.run_metrics import Entry, metrics_of
from flwr_dpkmeans.results.run_result import RunResult
from flwr_dpkmeans.results.whole_files import write_folder
from flwr_dpkmeans.results.writer import result_files
from flwr_dpkmeans.sums.checks.supported import require_server_data, require_supported
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.settings import Box, EvaluationKind

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.utils import Tags

Method = Callable[[ArrayLike], Answer]
_OF_PARTIES = ("unit", "trust", "engine", "cohort")
"""Arguments of `FederatedKMeans` that `DPKMeans` has not."""


def _listed(X: PartyTables | None) -> PartyTables:
    """Tables that can be looked at again after the fit.

    None is refused, which would spend the budget before it fails.
    """
    if X is None:
        raise DataError(
            "X is None, but its tables are what is predicted: call fit, and then"
            " predict for each table."
        )
    return list(X) if isinstance(X, Iterator) else X


class _EachParty:
    """A fit, and then a method of each party's table.

    No mixin of scikit-learn wraps what it returns.
    """

    fit: Callable[..., Self]
    predict: Callable[[ArrayLike], NDArray[np.int64]]
    transform: Callable[[ArrayLike], Array]
    _by_table: Callable[[PartyTables, Method, Mapping[str, object]], Answers]

    def fit_predict(
        self,
        X: PartyTables | None = None,
        y: PartyLabels | None = None,
        **fit_options: object,
    ) -> Answers:
        """Fit and predict: labels of each table, listed or named as the tables are.

        Of one table with groups, of it.
        """
        X = _listed(X)
        fitted = self.fit(X, y, **fit_options)
        return fitted._by_table(X, fitted.predict, fit_options)

    def fit_transform(
        self,
        X: PartyTables | None = None,
        y: PartyLabels | None = None,
        **fit_options: object,
    ) -> Answers:
        """Fit and transform, as `fit_predict`."""
        X = _listed(X)
        fitted = self.fit(X, y, **fit_options)
        return fitted._by_table(X, fitted.transform, fit_options)


@dataclass(eq=False, repr=False)
class PrivateClustering(
    _EachParty,
    CountedFits,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A fit by one of the engines, and scikit-learn's methods of its centroids."""

    n_clusters: int | str | Auto = 8
    _: KW_ONLY
    algorithm: str | Options = run_options.DEFAULT_ALGORITHM
    epsilon: float = 1.0
    delta: float | None = None
    bounds: object = None
    noise: str = "secure"
    random_state: run_options.Seed = None
    max_iter: int | None = None
    server_data: ArrayLike | None = None
    n_examples: int | str | PrivateCount | None = None
    evaluation: str | Evaluation | ExactEvaluation | None = None
    max_weight: float | None = None

    def __new__(cls, *_: object, **arguments: object) -> Self:
        """Say of an unknown argument where it has gone; all others are the fields."""
        parameters = cls._get_param_names()
        for name in arguments.keys() - set(parameters):
            if name in _OF_PARTIES:
                raise ConfigurationError(
                    f"{name} is an argument of FederatedKMeans alone: leave it out for"
                    " one table."
                )
            raise run_options.unknown_argument(name, arguments[name], parameters)
        return object.__new__(cls)

    def set_params(self, **params: object) -> Self:
        """Set parameters; those of an object by names such as ``algorithm__alpha``.

        A nested name turns a short form into the object.
        """
        nested = {name: value for name, value in params.items() if "__" in name}
        flat = {name: value for name, value in params.items() if name not in nested}
        super().set_params(**flat)
        for name, value in nested.items():
            argument, _, option = name.partition("__")
            if argument not in self._get_param_names():
                super().set_params(**{argument: value})  # scikit-learn's own sentence
            options = run_options.object_of(argument, getattr(self, argument))
            setattr(self, argument, options.set_params(**{option: value}))
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Index of the nearest centroid of each row; local, costs no privacy.

        Rows, (n_examples, n_features), are seen as in the clustering: clipped to the
        box `bounds_`, scaled to [-1, 1]^d and rounded to the grid of 2^-16, so that
        each feature weighs by its values over the width of its bounds. Returns labels,
        (n_examples,); -1 where a schema leaves the row out.
        """
        require_rows(X)
        points, encoded = self._in_box(X)
        nearest, _ = nearest_centroids(points, self.model_.scaled)
        labels = np.asarray(nearest, dtype=np.int64)
        return labels if encoded is None else encoded.spread(labels)

    def transform(self, X: ArrayLike) -> Array:
        """Euclidean distance of each row to each centroid; local, costs no privacy.

        In the space of the clustering (see `predict`), not in the caller's units: the
        smallest one of a row is that to its label. Returns (n_examples, n_clusters);
        NaN where a schema leaves the row out.
        """
        require_rows(X)
        points, encoded = self._in_box(X)
        columns = [
            np.linalg.norm(points - center, axis=1) for center in self.model_.scaled
        ]
        distances = np.asarray(np.stack(columns, axis=1))
        return distances if encoded is None else encoded.spread(distances, np.nan)

    def score(
        self,
        X: PartyTables,
        y: object = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Minus the sum of squared distances to the nearest centroid; local.

        As in scikit-learn's KMeans, in the caller's units, whatever the bounds are:
        rows outside them are not moved, and columns weigh as their numbers do. With a
        schema, whose columns have units of their own, in the lengths that it states
        (`Schema.lengths`: the ranges, or the units where ``scale`` is "none", over the
        weights), so that models of one schema can be compared; rows that it leaves out
        are in no sum. `X` is a table, with what its rows weigh, (n_rows,), if they do;
        or parties' tables as `fit` takes them in memory, which a search over parties
        gives.
        """
        check_is_fitted(self)
        lengths = np.ones(self.n_features_in_)
        if self.schema_ is not None:
            lengths = self.schema_.lengths
        centers = self.cluster_centers_ / lengths
        cost = 0.0
        has_warned = False
        tables = tables_in(X) or [X]
        if sample_weight is not None:
            return -self._weighed_cost(X, lengths, sample_weight)
        if not any(map(n_rows_of, tables)):
            require_rows(tables[0])
        for table in tables:
            rows, _ = ordered(self, table, quiet=has_warned)
            has_warned = has_warned or lacks_names(self, table)
            cost += sum_of_squares(rows / lengths, centers)
        return -cost

    def _weighed_cost(
        self, X: PartyTables, lengths: Array, sample_weight: ArrayLike
    ) -> float:
        """Cost of one table, each row of which counts by its weight."""
        if tables_in(X):
            raise ConfigurationError(
                "sample_weight was given for parties' tables: give one table, or leave"
                " it out."
            )
        require_rows(X)
        beside = in_order_of(row_labels(X), sample_weight, "sample_weight")
        rows, encoded = ordered(self, X)
        n_rows = len(rows) if encoded is None else encoded.n_rows
        weights = validate_weights(beside, n_rows)
        if encoded is not None:
            weights = weights[encoded.rows]
        centers = self.cluster_centers_ / lengths
        return sum_of_squares(rows / lengths, centers, weights)

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Does not exist."""
        raise AttributeError(
            "there are no labels_, which would carry every private row's cluster along"
            " with the model: call predict on rows of your own."
        )

    @property
    def inertia_(self) -> float:
        """Does not exist."""
        raise AttributeError(
            "there is no inertia_, which is an exact sum over private rows: see"
            " evaluation_ after a fit with evaluation='private', or minus the score of"
            " rows of your own."
        )

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` makes, for `get_feature_names_out`."""
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise != "seeded" or self.random_state is None
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _fit(
        self,
        tables: Tables,
        y: PartyLabels | None,
        budget: Budget | None,
    ) -> None:
        """Run the algorithm on the tables, and set what follows from its result.

        Refusals name options as the constructor has them.
        """
        with run_options.objects_options():
            config, server_points = self._config(self._run_options(), tables)
            labels = self._labels(y, tables, config)
            charge_fit(budget, config, tables.parts, server_points, self.engine)
            if config.algorithm in NOT_FEDERATED:
                result = fit_in_one_place(
                    config,
                    tables.parts,
                    persons=tables.persons_of(config.settings),
                )
                self._set_result(config, tables, result)
                return
            with progress_bar() as on_step:
                run = played(
                    self.engine,
                    config,
                    tables,
                    server_points,
                    labels,
                    on_step,
                )
            result = (run.state, run.plan.bounds, run.privacy)
            self._set_result(
                config,
                tables,
                result,
                run,
            )

    def save(self, path: str | Path) -> Path:
        """Write `model_` as JSON, whole or not at all; returns its absolute path."""
        check_is_fitted(self)
        return self.model_.save(path)

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``report.html`` and all other files of a run into a new folder.

        Where the folder exists, into one beside it. Returns the files' paths.
        """
        check_is_fitted(self)
        return write_folder(Path(folder), result_files(self._result))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that predicts, transforms and scores as the saved one.

        `path` is what `save` wrote, or a run's ``model.json``. Its parameters are the
        run's algorithm (with that one's defaults), epsilon, unit, trust, noise and
        bounds; ``history_``, ``cost_curve_`` and ``evaluation_`` are not in the file. A
        `DataError` says what is wrong with it.
        """
        model = Model.load(path)
        n_clusters, n_features = model.scaled.shape
        box = model.bounds.for_features(n_features)
        pairs = zip(box.lower, box.upper, strict=True)
        bounds_by_name = dict(zip(model.feature_names, pairs, strict=False))
        parameters: dict[str, Any] = {
            name: getattr(model.privacy, name)
            for name in ("algorithm", "unit", "trust", "noise")
            if name in cls._get_param_names()
        }
        parameters["epsilon"] = model.privacy.epsilon_requested
        parameters["bounds"] = model.schema or bounds_by_name or model.bounds
        fitted = cls(n_clusters, **parameters)
        fitted._adopt(RunResult(model, model.privacy))
        # Columns without names are matched by their numbers.
        fitted._columns = tuple(range(n_features))
        return fitted

    @property
    def profile_(self) -> pd.DataFrame | None:
        """What a schema's ``profile`` released, as a pandas.DataFrame of `Figure`.

        None without one.
        """
        check_is_fitted(self)
        figures = self.model_.federated_profile
        return as_frame(figures) if figures else None

    @property
    def missing_shares_(self) -> pd.DataFrame | None:
        """Which share of each cluster's cells is missing, with noise.

        A pandas.DataFrame of `Figure`; None without a count.
        """
        check_is_fitted(self)
        shares = [
            figure
            for figure in self.model_.federated_profile
            if figure.figure == MISSING
        ]
        return as_frame(shares) if shares else None

    def profile(self, X: pd.DataFrame) -> pd.DataFrame:
        """Describe a data frame's rows by cluster, in all of its columns; local.

        The figures are those of `flwr_dpkmeans.results.profile`.
        """
        check_is_fitted(self)
        return self.model_.profile(X)

    def _in_box(self, X: ArrayLike) -> tuple[Array, Encoded | None]:
        """Rows as the clustering saw them: clipped, scaled and on the grid.

        With what a schema made of the table.
        """
        check_is_fitted(self)
        rows, encoded = ordered(self, X)
        return round_to_grid(Bounds(*self.bounds_).scale(rows)), encoded

    def _run_options(self) -> FlatOptions:
        """Options of the run, by flat names, as the constructor took them."""
        parameters = self.get_params(deep=False)
        options = {
            name: value
            for name, value in parameters.items()
            if name not in ("server_data", "engine")
        }
        return run_options.flat_options(options)

    def _config(
        self,
        options: FlatOptions,
        tables: Tables,
    ) -> tuple[RunConfig, Array | None]:
        """Validate the configuration of this fit, and read the server's points."""
        unit = unit_of(options["unit"], tables.persons)
        options = {**options, "unit": unit, "max_weight": tables.max_weight}
        algorithm = options["algorithm"]
        n_examples = options["n_examples"]
        takes_total = _takes_total(options)
        if takes_total:
            things = "persons" if tables.persons else "rows"
            _require_rows_for(options["n_clusters"], tables.total, things)
        ENGINES.find(self.engine)
        has_server_data = self.server_data is not None
        _require_clustering(algorithm, has_server_data=has_server_data)
        if isinstance(n_examples, str) and not is_private(n_examples):
            raise ConfigurationError(
                f"n_examples is {n_examples!r}, but it must be a number or 'private':"
                " give 1000, or leave it out."
            )
        if takes_total and algorithm in NOT_FEDERATED and not tables.weights:
            n_examples = tables.total
        elif takes_total:
            n_examples = tables.n_examples
        run = {**options, "n_examples": n_examples}
        config, points = tables.run(run, self.server_data)
        require_supported(config, has_server_data=has_server_data)
        return config, points

    def _doubts(self, tables: Tables) -> tuple[str, ...]:
        """What is doubtful in bounds and rows, before they cost anything."""
        stated = self.bounds
        if isinstance(stated, PrivateBounds):
            stated = stated.domain
        doubt = doubtful_pairs(stated)
        if doubt:
            return (doubt, *tables.doubts())
        return tables.doubts()

    def _labels(
        self,
        y: PartyLabels | None,
        tables: Tables,
        config: RunConfig,
    ) -> list[Labels] | None:
        """The clients' labels where an evaluation looks at them; else None."""
        if config.evaluation is EvaluationKind.NONE:
            return None
        if y is None and config.n_classes == 0:
            return None
        if y is None:
            raise DataError(
                f"n_classes is {config.n_classes}, but no labels were given: pass y"
                " with one array for each client, or leave n_classes out."
            )
        if config.n_classes == 0:
            raise ConfigurationError(
                "labels were given for the evaluation, but n_classes does not say how"
                " many classes there are, which must be public: give n_classes=3, or"
                " leave y out."
            )
        return tables.labels(y, config.n_classes)

    def _set_result(
        self,
        config: RunConfig,
        tables: Tables,
        result: InOnePlace,
        run: Federated | None = None,
    ) -> None:
        """Set attributes from a result; `run` is None if all rows were in one place."""
        state, box, report = result
        n_features = state.centroids.shape[1]
        cautions = tables.local_cautions(
            config,
            report.delta,
            box,
            n_features,
        )
        schema = tables.encoded[0].schema if tables.encoded else None
        figures: tuple[Figure, ...] = ()
        if run is not None and schema is not None:
            figures = read_profile(run.plan, state, schema)
        # Not centroids in the caller's units: scaling clips, and without
        # post-processing some lie outside the box.
        model = Model(
            scaled=state.centroids,
            counts=state.counts,
            bounds=Bounds(*box),
            privacy=report,
            feature_names=tables.names,
            schema=schema,
            federated_profile=figures,
            deviations=state.extras.get(CENTRE_DEVIATION),
        )
        report_with_cautions = replace(report, warnings=report.warnings + cautions)
        self.evaluation_ = None if run is None else run.evaluation
        self._adopt(
            RunResult.of(
                model,
                report_with_cautions,
                state,
                evaluation=self.evaluation_,
            )
        )
        self.cost_curve_: Array | None = state.extras.get(COST_CURVE)
        self.n_iter_ = len(state.movements)
        self._columns = tables.columns
        self.history_ = [] if run is None else _history(report, state.movements)

    def _adopt(self, result: RunResult) -> None:
        """Set attributes from a clustering, of a fit or of a file."""
        model = result.model
        self._result = result
        self.privacy_ = result.report
        self.model_ = model
        self.schema_ = model.schema
        self.cluster_centers_ = model.centroids
        self.cluster_counts_ = model.sizes
        self.cell_means_ = model.cell_means
        self.cluster_centers_error_ = model.cluster_centers_error
        self.bounds_: Box = (model.bounds.lower, model.bounds.upper)
        self.n_features_in_ = int(model.scaled.shape[1])
        name_columns(self, model.feature_names)


def _takes_total(options: FlatOptions) -> bool:
    """Whether the number of rows in all tables is public.

    Not at client level, where even an error would tell of a client.
    """
    if options["n_examples"] is not None or options["unit"] == "client":
        return False
    return not is_private(options["bounds"])


def _require_rows_for(n_clusters: object, n_rows: int, things: str) -> None:
    """Refuse tables that have fewer rows, or persons, than there shall be clusters."""
    if not isinstance(n_clusters, int) or isinstance(n_clusters, bool):
        return
    if n_rows < n_clusters:
        raise DataError(
            f"all tables together have {n_rows} {things}, but {n_clusters} clusters"
            " need at least as many: choose fewer clusters or add data."
        )


def _require_clustering(algorithm: str, *, has_server_data: bool) -> None:
    """Refuse an algorithm that is no clustering, or that lacks the server's points."""
    kind = run_options.task_kind(algorithm, run_options.clustering_names)
    require_server_data(kind, has_server_data=has_server_data)
    if issubclass(kind, KMeansTask) or algorithm in NOT_FEDERATED:
        return
    raise ConfigurationError(
        f"algorithm is {algorithm!r}, which is no clustering: choose another"
        f" one, or call {kind.door or f'federate({algorithm!r}, ...)'}."
    )


def _history(report: PrivacyReport, movements: tuple[float, ...]) -> list[Entry]:
    """One entry for each of the algorithm's rounds, without what discovered bounds."""
    history = []
    for entry in metrics_of(report, None, movements)["rounds"]:
        if Plan.is_preliminary(entry["round"]):
            continue
        epsilon = math.inf if entry["epsilon"] is None else entry["epsilon"]
        history.append({"movement": None} | entry | {"epsilon": epsilon})
    return history
