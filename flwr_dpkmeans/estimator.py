"""`FederatedKMeans`: the whole federation in one process, and `DPKMeans`.

One table, by scikit-learn's conventions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from inspect import signature
from pathlib import Path
from threading import Timer
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
from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.algorithms.cluster_profile import MISSING, read_profile
from flwr_dpkmeans.algorithms.kmeans_task import (
    CENTRE_DEVIATION,
    DEFAULT_MAX_CLUSTERS,
    KMeansTask,
)
from flwr_dpkmeans.algorithms.measure import COST_CURVE
from flwr_dpkmeans.algorithms.server_points import is_private, squared_unit
from flwr_dpkmeans.data import points as data_points
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Encoded, schema_of
from flwr_dpkmeans.errors import ConfigurationError, DataError, InputWarning, warn
from flwr_dpkmeans.fitted import (
    CURATED,
    lacks_names,
    n_rows_of,
    name_columns,
    ordered,
    require_declared,
    require_no_others,
    require_rows,
    tables_in,
)
from flwr_dpkmeans.flower.engines import (
    ENGINES,
    Federated,
    InOnePlace,
    Tables,
    fit_in_one_place,
)
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import sum_of_squares
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.options import (
    Auto,
    ClientLevel,
    Cohort,
    Evaluation,
    ExactEvaluation,
    PrivateBounds,
    PrivateCount,
)
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.profile import as_frame
from flwr_dpkmeans.results.writer import (
    ClusterChoice,
    RunResult,
    metrics_of,
    result_files,
    write_folder,
)
from flwr_dpkmeans.sums.checks.supported import require_server_data, require_supported
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.settings import Box, EvaluationKind, Settings
from flwr_dpkmeans.sums.statement import Step

if TYPE_CHECKING:
    from flwr_dpkmeans.planner import Forecast

logger = placed_logger("flwr_dpkmeans.estimator")

_SECONDS_BEFORE_BAR = 2.0
_OF_EVALUATIONS = ("evaluation", "evaluation_share", "n_classes", "evaluation_radius")


def _kept(X: Any) -> Any:
    """Tables that can be looked at again after the fit.

    Without any it would spend the budget, and then fail.
    """
    if X is None:
        raise DataError(
            "X is None, but its tables are what is predicted: call fit, and then"
            " predict for each table."
        )
    return list(X) if isinstance(X, Iterator) else X


class _EachParty:
    """What follows a fit for each party's table.

    No mixin of scikit-learn wraps what it returns.
    """

    def fit_predict(self, X: Any = None, y: Any = None, **given: Any) -> Any:
        """Fit and predict: labels of each table, listed or named as the tables are.

        Of one table with groups, of it.
        """
        X = _kept(X)
        return self.fit(X, y, **given)._of_each(X, self.predict, given)  # type: ignore[attr-defined]

    def fit_transform(self, X: Any = None, y: Any = None, **given: Any) -> Any:
        """Fit and transform, as `fit_predict`."""
        X = _kept(X)
        return self.fit(X, y, **given)._of_each(X, self.transform, given)  # type: ignore[attr-defined]


@dataclass(eq=False, repr=False)
class _PrivateClustering(
    _EachParty,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A fit by one of the engines, and what scikit-learn's estimators do with
    centroids.
    """

    n_clusters: int | str | Auto = 8
    _: KW_ONLY
    algorithm: str | Options = run_options.DEFAULT_ALGORITHM
    epsilon: float = 1.0
    delta: float | None = None
    bounds: Any = None
    noise: str = "secure"
    random_state: run_options.Seed = None
    max_iter: int | None = None
    server_data: ArrayLike | None = None
    n_examples: int | str | PrivateCount | None = None
    evaluation: str | Evaluation | ExactEvaluation | None = None

    def __new__(cls, *_: Any, **arguments: Any) -> Self:
        """Say of an unknown argument where it has gone; all others are the fields."""
        for name in arguments.keys() - set(cls._get_param_names()):
            if name in FederatedKMeans._get_param_names():
                raise ConfigurationError(
                    f"{name} is an argument of FederatedKMeans alone: leave it out for"
                    " one table."
                )
            raise run_options.unknown_argument(
                name, arguments[name], cls._get_param_names()
            )
        return object.__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of an object by ``algorithm__alpha``, which turns a
        short form into the object.
        """
        nested = {name: value for name, value in params.items() if "__" in name}
        super().set_params(
            **{name: value for name, value in params.items() if name not in nested}
        )
        for name, value in nested.items():
            argument, _, option = name.partition("__")
            if argument not in self._get_param_names():
                super().set_params(**{argument: value})  # scikit-learn's own sentence
            held = run_options.object_of(argument, getattr(self, argument))
            setattr(self, argument, held.set_params(**{option: value}))
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
        labels = np.asarray(
            nearest_centroids(points, self.model_.scaled)[0], dtype=np.int64
        )
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
        self, X: ArrayLike, y: object = None, sample_weight: None = None
    ) -> float:
        """Minus the sum of squared distances to the nearest centroid, as in
        scikit-learn's KMeans; local.

        In the caller's units, whatever the bounds are: rows outside them are not moved,
        and columns weigh as their numbers do. With a schema, whose columns have units
        of their own, in the lengths that it states (`Schema.lengths`: the ranges, or
        the units where ``scale`` is "none", over the weights), so that models of one
        schema can be compared; rows that it leaves out are in no sum. `X` is a table,
        or parties' tables as `fit` takes them in memory, which a search over parties
        gives. There are no weights.
        """
        if sample_weight is not None:
            raise ConfigurationError(
                "sample_weight was given, but a score counts each row once: leave it"
                " out."
            )
        check_is_fitted(self)
        lengths = (
            np.ones(self.n_features_in_)
            if self.schema_ is None
            else self.schema_.lengths
        )
        cost, has_warned = 0.0, False
        tables = tables_in(X) or [X]
        if not any(map(n_rows_of, tables)):
            require_rows(tables[0])
        for table in tables:
            rows, _ = ordered(self, table, quiet=has_warned)
            has_warned = has_warned or lacks_names(self, table)
            cost += sum_of_squares(rows / lengths, self.cluster_centers_ / lengths)
        return -cost

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
        """Number of columns that `transform` makes, which `get_feature_names_out`
        names.
        """
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise != "seeded" or self.random_state is None
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _fit(self, tables: Tables, y: Any) -> None:
        with run_options.objects_options():
            self._fit_run(tables, y)

    def _fit_run(self, tables: Tables, y: Any) -> None:
        config, server_points = self._config(self._given(), tables)
        labels = self._labels(y, tables, config)
        if config.algorithm in NOT_FEDERATED:
            self._take(config, tables, fit_in_one_place(config, tables.parts))
        else:
            with _progress_bar() as on_step:
                found = ENGINES[self.engine](
                    config, tables.parts, server_points, labels, on_step
                )
            self._take(
                config, tables, (found.state, found.plan.bounds, found.privacy), found
            )

    def save(self, path: str | Path) -> Path:
        """Write `model_` as JSON, whole or not at all; returns its absolute path."""
        check_is_fitted(self)
        return self.model_.save(path)

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``report.html`` and all other files of a run into a new folder, or into
        one beside it; their paths.
        """
        check_is_fitted(self)
        return write_folder(Path(folder), result_files(self._result))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """An estimator that predicts, transforms and scores as the one that was saved,
        or as a run's ``model.json``.

        Its parameters are the run's algorithm (with that one's defaults), epsilon,
        unit, trust, noise and bounds; ``history_``, ``cost_curve_`` and ``evaluation_``
        are not in the file. A `DataError` says what is wrong with it.
        """
        model, known = Model.load(path), cls._get_param_names()
        told = ("algorithm", "unit", "trust", "noise")
        given: dict[str, Any] = {
            name: getattr(model.privacy, name) for name in told if name in known
        }
        box = model.bounds.for_features(model.scaled.shape[1])
        by_name = dict(
            zip(
                model.feature_names,
                zip(box.lower, box.upper, strict=True),
                strict=False,
            )
        )
        given["bounds"] = model.schema or by_name or model.bounds
        fitted = cls(
            len(model.scaled), epsilon=model.privacy.epsilon_requested, **given
        )
        fitted._adopt(RunResult(model, model.privacy))
        fitted._columns = tuple(
            range(fitted.n_features_in_)
        )  # where they have no names
        return fitted

    @property
    def profile_(self) -> Any:
        """What a schema's ``profile`` released, as a pandas.DataFrame of `Figure`.

        None without one.
        """
        check_is_fitted(self)
        return (
            as_frame(self.model_.federated_profile)
            if self.model_.federated_profile
            else None
        )

    @property
    def missing_shares_(self) -> Any:
        """Which share of each cluster's cells is missing, as a pandas.DataFrame of
        `Figure`; None without a count.
        """
        check_is_fitted(self)
        shares = [
            figure
            for figure in self.model_.federated_profile
            if figure.figure == MISSING
        ]
        return as_frame(shares) if shares else None

    def profile(self, X: Any) -> Any:
        """Describe a data frame's rows by cluster, in all of its columns
        (`flwr_dpkmeans.results.profile`); local.
        """
        check_is_fitted(self)
        return self.model_.profile(X)

    def _in_box(self, X: Any) -> tuple[Array, Encoded | None]:
        """Rows as the clustering saw them (clipped, scaled, on the grid), and what a
        schema made of the table.
        """
        check_is_fitted(self)
        rows, encoded = ordered(self, X)
        return round_to_grid(Bounds(*self.bounds_).scale(rows)), encoded

    def _given(self) -> dict[str, Any]:
        """What the constructor was given for the run, by flat names."""
        own = self.get_params(deep=False)
        return run_options.flat_options(
            {name: own[name] for name in own if name not in ("server_data", "engine")}
        )

    def _config(
        self, given: Mapping[str, Any], tables: Tables
    ) -> tuple[RunConfig, Array | None]:
        """The validated configuration of this fit, and the server's points."""
        algorithm, k, declared = (
            given["algorithm"],
            given["n_clusters"],
            given["n_examples"],
        )
        # Not at client level, where even an error would tell of a client.
        takes_total = (
            declared is None
            and given["unit"] != "client"
            and not is_private(given["bounds"])
        )
        if (
            takes_total
            and isinstance(k, int)
            and not isinstance(k, bool)
            and tables.total < k
        ):
            raise DataError(
                f"all tables together have {tables.total} rows, but {k} clusters need"
                " at least as many: choose fewer clusters or add data."
            )
        ENGINES.find(self.engine)
        has_server_data = self.server_data is not None
        require_server_data(
            kind := run_options.task_kind(algorithm, run_options.clustering_names()),
            has_server_data=has_server_data,
        )
        if not issubclass(kind, KMeansTask) and algorithm not in NOT_FEDERATED:
            raise ConfigurationError(
                f"algorithm is {algorithm!r}, which is no clustering: choose another"
                f" one, or call {kind.door or f'federate({algorithm!r}, ...)'}."
            )
        if isinstance(declared, str) and not is_private(declared):
            raise ConfigurationError(
                f"n_examples is {declared!r}, but it must be a number or 'private':"
                " give 1000, or leave it out."
            )
        counted = tables.total if algorithm in NOT_FEDERATED else tables.n_examples
        given = {**given, "n_examples": counted if takes_total else declared}
        config, points = tables.run(given, self.server_data)
        require_supported(config, has_server_data=has_server_data)
        return config, points

    def _doubts(self, tables: Tables) -> tuple[str, ...]:
        """What is doubtful in bounds and rows, before they cost anything."""
        stated = (
            self.bounds.domain
            if isinstance(self.bounds, PrivateBounds)
            else self.bounds
        )
        doubt = data_points.doubtful_pairs(stated)
        return (*([doubt] if doubt else []), *tables.doubts())

    def _labels(
        self, y: Sequence[ArrayLike] | None, tables: Tables, config: RunConfig
    ) -> list[Labels] | None:
        """The clients' labels where an evaluation looks at them.

        Otherwise whatever was given is left alone.
        """
        if config.evaluation is EvaluationKind.NONE or (
            y is None and config.n_classes == 0
        ):
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

    def _take(
        self,
        config: RunConfig,
        tables: Tables,
        found: InOnePlace,
        run: Federated | None = None,
    ) -> None:
        state, box, report = found
        local = tables.local_cautions(
            config, report.delta, box, state.centroids.shape[1]
        )
        schema = tables.encoded[0].schema if tables.encoded else None
        figures = read_profile(run.plan, state, schema) if run and schema else ()
        # Not centroids in the caller's units: scaling clips, and without
        # post-processing some lie outside the box.
        known = (
            state.centroids,
            state.counts,
            Bounds(*box),
            report,
            tables.names,
            schema,
            figures,
        )
        deviations = state.extras.get(CENTRE_DEVIATION)
        self.evaluation_ = run and run.evaluation
        told = replace(report, warnings=report.warnings + local)
        self._adopt(
            RunResult.of(
                Model(*known, deviations), told, state, evaluation=self.evaluation_
            )
        )
        self.cost_curve_: Array | None = state.extras.get(COST_CURVE)
        self.n_iter_, self._columns = len(state.movements), tables.columns
        self.history_ = _history(report, state.movements) if run else []

    def _adopt(self, result: RunResult) -> None:
        """What is known of a clustering, from a fit or a file."""
        self._result, self.privacy_, self.model_ = result, result.report, result.model
        self.schema_ = (model := result.model).schema
        self.cluster_centers_, self.cluster_counts_ = model.centroids, model.counts
        self.cell_means_ = model.cell_means
        self.cluster_centers_error_ = model.cluster_centers_error
        self.bounds_: Box = (model.bounds.lower, model.bounds.upper)
        self.n_features_in_ = int(model.scaled.shape[1])
        name_columns(self, model.feature_names)


class DPKMeans(_PrivateClustering):
    """Differentially private k-means of one table.

    Its holder, a trusted curator, draws the noise and publishes.

    The algorithms, proofs and report of `FederatedKMeans` under the trust model
    ``curator``, without Flower and masks.

    Parameters
    ---------- n_clusters, epsilon, bounds, delta, algorithm, noise, random_state,
    max_iter, server_data, n_examples, evaluation
        As in `FederatedKMeans`. Bounds are never computed from the table: state them,
        or choose ``"private"``. The number of rows is taken as public unless
        ``n_examples`` says otherwise.

    Notes
    ----- Columns reach `fit` as they are. A ``StandardScaler`` before it in a pipeline
    keeps exact means and spreads of the rows, which no noise covers, and which travel
    with the pipeline: a schema's ``scale="standard"`` finds spreads privately, within
    the same budget.

    Attributes are those of `FederatedKMeans`, and all of them may be published: what
    exact rows say against the result is a Python warning only.

    Examples
    --------
    >>> import numpy as np
    >>> ages_and_weights = np.random.default_rng(0).normal([[20, 60], [70, 80]], 5, (1000, 2, 2)).reshape(-1, 2)
    >>> model = DPKMeans(n_clusters=2, epsilon=1.0, bounds=(0, 100)).fit(ages_and_weights)
    >>> np.sort(model.cluster_centers_.round(-1), axis=0)
    array([[20., 60.],
           [70., 80.]])
    >>> model.privacy_.trust, model.privacy_.epsilon <= 1.0
    ('curator', True)
    """

    engine = "direct"

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **unknown: Any) -> Self:
        """Cluster the rows of a table, (n, n_features).

        `y`, (n,), are labels for an evaluation.
        """
        require_no_others(unknown)
        tables = Tables.alone(X, schema_of(self.bounds))
        warn(self._doubts(tables), InputWarning)
        self._fit(tables, y)
        warn(self.privacy_.warnings)
        # Whoever has the estimator, also as a pickle, may have all of it: nothing that
        # exact rows say stays in it.
        told = replace(self.model_.privacy, n_clients=1)
        self._adopt(
            replace(self._result, report=told, model=replace(self.model_, privacy=told))
        )
        return self

    def _config(
        self, given: Mapping[str, Any], tables: Tables
    ) -> tuple[RunConfig, Array | None]:
        """As for several parties.

        What whoever reads exact sums would refuse later is refused now.
        """
        config, points = super()._config(given, tables)
        require_declared(config.settings.n_examples, tables.total)
        return config, points

    def _given(self) -> dict[str, Any]:
        """As the same run of several parties says it."""
        given = super()._given()
        return given | (
            {"unit": "record"}
            if given["algorithm"] in tuple(NOT_FEDERATED)
            else CURATED
        )

    def _of_each(
        self, X: ArrayLike, method: Callable[[ArrayLike], Any], given: Mapping[str, Any]
    ) -> Any:
        return method(X)


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedKMeans(_PrivateClustering):
    """Differentially private k-means over several parties' data, simulated in this
    process.

    Strategy, ClientApp, secure-aggregation mod, masks and noise are those of a
    deployment. An option that differs from its default and has no effect on the run,
    such as another algorithm's, is refused.

    Parameters
    ----------
    n_clusters : int, "auto" or Auto
        k; "auto" (``proxy_lloyd``, ``feddp_kmeans``; trust ``distributed``) chooses it
        within the same budget, up to 20, or as ``Auto(12)`` says.
    algorithm : str or one of the ``*Options``
        ``"proxy_lloyd"`` (the default, with or without `server_data`); the papers'
        ``"fastlloyd"``, ``"glloyd"``, ``"sulloyd"``, ``"lloyd"`` (not private),
        ``"feddp_kmeans"``, or one of its baselines ``"server_kmeans++"``,
        ``"server_lloyd"``, ``"sphere_packing"``; for comparison only, on all rows
        together, by `flwr_dpkmeans.baselines`: ``"max_cover"``, ``"balcan"``, ``"k_fed"``
        and ``"optimal"`` (the latter two not private). With options of its own:
        ``FastLloydOptions(alpha=0.6)``.
    epsilon : float
        Total over the run.
    delta : float, optional
        None: 1/(N ln N), lowered where a private count finds so many rows that it would
        not be below 1/N. 0 with ``"sulloyd"`` alone, whose noise is Laplace.
    unit : str or ClientLevel
        ``"record"``: neighbouring data sets differ in one row; ``"client"``: in one
        client's whole table, with ``ClientLevel(examples_per_client=50,
        sampling_rate=1.0)``.
    trust : str, optional
        ``"oblivious"``, ``"central"`` or ``"distributed"``; None: the algorithm's own,
        which is ``"distributed"`` for ``feddp_kmeans`` and its baselines and
        ``"oblivious"`` otherwise.
    bounds : pair, mapping, data frame, path, Schema, "private" or PrivateBounds,
    optional
        Public bounds, never computed from clients' data: numbers, sequences in the
        order of the columns, or a pair for each column's name as a mapping, data frame
        or file. A `Schema`, or the path of one, also says what becomes of text, dates
        and missing cells. None: a cube around the server's points, which must then be
        given. ``"private"``, or ``PrivateBounds(share=0.1, domain=None)``: found by two
        private histograms, for which nobody needs to know anything of the columns.
    noise : str
        ``"secure"``, ``"opendp"`` (OpenDP's samplers alone), or ``"seeded"`` for
        repeatable experiments: no protection.
    random_state : int, RandomState or Generator, optional
        Seed of the public start (and of seeded noise). It does not fix secure noise,
        which is drawn anew: two fits with one seed differ then, and only
        ``noise="seeded"``, which protects nobody, repeats a fit.
    max_iter : int, optional
        Overrides the algorithm's number of iterations.
    server_data : array-like, optional
        The server's own points (a data frame's columns are matched by name), or the
        path of a file with them, for algorithms that start from them.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same
        rounds, noise and masks without messages, for thousands of clients.
    n_examples : int, "private" or PrivateCount, optional
        Public number of rows; None: the total of the parts, listed in the report as
        declared public. With private bounds, and where a schema drops rows, it is
        public only if given: None then stands for ``"private"``, a private count, as
        ``PrivateCount(share=0.02)``.
    evaluation : "private", "exact", Evaluation or ExactEvaluation, optional
        ``"private"``: one more round measures the result, with a share of the same
        budget, as ``Evaluation(share=0.05, n_classes=0, radius=None)``; ``"exact"``:
        the same without noise, after which the run is not private. With ``n_classes``,
        the `y` of `fit` is compared with the clusters.
    cohort : Cohort, optional
        What happens when clients fall silent, and whether masks are on.

    Notes
    ----- A string is always the short form of an object, whose options are nested
    parameters: ``algorithm__alpha`` in `set_params` and in scikit-learn's searches.
    Objects are frozen, so estimators may share them.

    Columns reach `fit` as they are: what a ``StandardScaler`` before it learns is
    exact, of all parties' rows, and covered by no noise. A schema's
    ``scale="standard"`` finds spreads privately, within the same budget.

    Attributes
    ----------
    cluster_centers_ : ndarray, (n_clusters, n_features)
        In the caller's units, where rows belong to the nearest: a gap that a schema
        leaves in counts as the middle.
    cell_means_ : ndarray, (n_clusters, n_features)
        The same as means of the cells that are there, for people; NaN where it is not
        clear that there are any.
    missing_shares_ : pandas.DataFrame or None
        With noise, which share of each cluster's cells is missing, where a schema
        leaves gaps in; None elsewhere.
    cluster_centers_error_ : ndarray, (n_clusters, n_features)
        Half-widths of 95% intervals around them, for the exact mean of that column over
        the rows that `predict` labels with that cluster: what noise, cut rows and moved
        labels leave unsure. Infinity where nothing is known, as at client level; never
        NaN.
    cluster_counts_ : ndarray, (n_clusters,)
        Noisy counts of the last release; at client level what each client adds, which
        the page and ``model_`` name: 1 where it has rows in the cluster (FedDP-KMeans),
        its rows (with Lloyd steps), or their share (ProxyLloyd).
    cost_curve_ : ndarray, (max_clusters,), or None
        With ``n_clusters="auto"``: cost over k, in squared scaled units.
    privacy_ : PrivacyReport
        Cost, guarantee, every release; its `warnings` are Python's too, of
        `flwr_dpkmeans.errors.PrivacyWarning`.
    bounds_ : pair of tuples of float
        The box that data were scaled by, and that `predict` and `transform` measure in:
        as declared, from server data, or as private histograms found it.
    model_ : Model
        The clustering as a value that labels and describes rows; without what this
        program's rows say.
    schema_ : Schema or None
        What tables are encoded by, and what ``schema_.decode(cell_means_)`` reads; None
        without one.
    profile_ : pandas.DataFrame or None
        With noise, what a schema's ``profile`` asks for
        (`flwr_dpkmeans.algorithms.cluster_profile.Figure`).
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        One entry for each aggregation: round, epsilon so far, noise, radius, largest
        movement (scaled units).
    n_features_in_ : int
        d.
    feature_names_in_ : ndarray of str, (n_features,)
        Column names in the order of the first data frame, which ``cluster_centers_``
        has; only after a fit to frames.
    evaluation_ : EvaluationResult or None
        Cost, counts and, with labels, accuracy and purity, each with the noise in it;
        None without an evaluation.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> parts = [generator.uniform(-1, 1, (500, 2)) for _ in range(3)]
    >>> km = FederatedKMeans(n_clusters=3, epsilon=1.0, bounds=(-1.0, 1.0), random_state=0).fit(parts)
    >>> km.cluster_centers_.shape, km.privacy_.is_private, km.privacy_.epsilon <= 1.0
    ((3, 2), True, True)
    """

    unit: str | ClientLevel = "record"
    trust: str | None = None
    engine: str = "inprocess"
    cohort: Cohort | None = None

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        *,
        groups: ArrayLike | None = None,
        clients: Callable[[int], ArrayLike] | None = None,
        n_clients: int | None = None,
        **unknown: Any,
    ) -> FederatedKMeans:
        """Cluster the parties' data together.

        Parameters
        ----------
        X : sequence or mapping of array-like, or array-like
            One array or data frame for each client, (n_i, n_features); at least two
            clients, some may be empty. In a mapping they have names, which are in
            sentences about them. Data frames have the same columns, in any order: they
            are put in the first one's, and bounds that differ by column are then given
            by name. With `groups` one table of all rows, (n, n_features), as a pipeline
            has it.
        y : sequence or mapping of array-like of int, or array-like of int, optional
            Labels as `X` has rows, from 0 to ``n_classes - 1``; used by an evaluation
            only. Beside a data frame, pandas objects are put into the order of its
            index, and refused where they have other labels.
        groups : array-like, (n,), optional
            The party of each row, matched as `y` is.
        clients, n_clients : callable and int, optional
            Instead of `X`: ``clients(i)`` makes client i's table, 0 <= i < n_clients,
            the same one each time. With ``engine="direct"`` no more than one is in
            memory.

        Raises
        ------
        ConfigurationError, DataError, PlanError, BudgetError
            One sentence, before anything is computed.

        Warns
        -----
        InputWarning
            Of columns that look like identifiers, or one party's that look like another
            unit, and of bounds that may be read in two ways: for the caller alone, from
            exact rows, and in no result.
        PrivacyWarning
            Each sentence of ``privacy_.warnings``.

        Notes
        ----- In a search each fit costs epsilon of its own, and its scores are exact.
        scikit-learn splits rows: with ``pipe.fit(X, federatedkmeans__groups=g)``, or
        metadata routing, each party's rows are split, or by ``GroupKFold`` whole
        parties are left out; a list of tables is split by tables.
        """
        require_no_others(unknown)
        schema, listed = schema_of(self.bounds), clients is None and n_clients is None
        made = None if listed else Tables.made(clients, n_clients, X, y, groups, schema)
        tables = made or Tables.of(X, groups=groups, schema=schema)
        warn(self._doubts(tables), InputWarning)
        self._fit(tables, y)
        warn(self.privacy_.warnings)
        return self

    def choose_k(
        self, X: Sequence[ArrayLike], max_clusters: int | None = None
    ) -> ClusterChoice:
        """Choose the number of clusters from noisy weights of the server's points.

        The first two rounds of FedDP-KMeans run with `max_clusters` (None: the
        constructor's) on `X`, which is as in `fit`, and on the whole of epsilon. The
        cost curve and its elbow are post-processing and cost nothing more
        (FedDP-KMeans, appendix H.3). With ``n_clusters="auto"``, `fit` chooses k and
        clusters within one budget instead. Raises a `ConfigurationError` if the
        algorithm is not ``feddp_kmeans``, or the trust model not ``distributed``: the
        choice is public.
        """
        given = self._given()
        if given["algorithm"] != "feddp_kmeans":
            raise ConfigurationError(
                f"choose_k was called for {given['algorithm']!r}, but it needs weights"
                " of server points: use algorithm='feddp_kmeans', or"
                " n_clusters='auto', which chooses k and clusters within one budget."
            )
        most = (
            given.pop("max_clusters", DEFAULT_MAX_CLUSTERS)
            if max_clusters is None
            else max_clusters
        )
        # A fit's own steps and its evaluation are not run, so options of theirs say
        # nothing here.
        given |= {name: Settings.defaults()[name] for name in _OF_EVALUATIONS}
        given = run_options.own_options(given, "feddp_choose_k", ("feddp_kmeans",))
        given |= {
            "algorithm": "feddp_choose_k",
            "n_clusters": "auto",
            "max_clusters": most,
        }
        schema = schema_of(self.bounds)
        if schema is not None:
            schema = given["bounds"] = schema.clustered  # nor a profile
        tables = Tables.of(X, schema=schema)
        warn(self._doubts(tables), InputWarning)
        with run_options.objects_options():
            config, server_points = self._config(given, tables)
            found = ENGINES[self.engine](config, tables.parts, server_points)
        warn(found.privacy.warnings)
        curve = found.state.extras.get(COST_CURVE, np.zeros(0))
        # In scaled units where the features have bounds of different widths.
        costs = curve * (squared_unit(config.settings.bounds) or 1.0)
        return ClusterChoice(len(found.state.centroids), costs, found.privacy)

    def plan(
        self,
        n_examples: int,
        n_features: int | None,
        n_clients: int,
        *,
        target_excess: float = 0.1,
        spread: float = 0.15,
        seeds: int = 20,
        private_count: bool | None = None,
        algorithms: str | Sequence[str] = (),
    ) -> Forecast:
        """Forecast noise, accuracy, messages and minutes of a run of this shape, before
        any data are touched.

        All private algorithms that fit the unit and need no server data are compared
        under this estimator's options, on public synthetic data; its own algorithm
        decides nothing. Without bounds, noise is given as a fraction of half the range
        that they will have.

        Parameters
        ----------
        n_examples, n_features, n_clients : int
            Public shape; a guess is enough. Of features None: those of a schema, or of
            bounds by column.
        target_excess : float
            Fraction by which the cost may exceed the optimum, for the epsilon that this
            takes.
        spread : float
            Assumed standard deviation of a cluster's rows in each coordinate, over half
            the range of the bounds.
        seeds : int
            Synthetic data sets for each point of a curve, at least 2.
        private_count : bool, optional
            Whether the run would count its rows privately; else their number is
            declared. None: as `fit` would.
        algorithms : str or sequence of str
            Candidates; empty: all that fit.

        Raises
        ------
        ConfigurationError, PlanError
            One sentence, before anything is computed.

        Examples
        --------
        >>> forecast = FederatedKMeans(n_clusters=3).plan(2_000, 2, 3, seeds=2, algorithms=["fastlloyd"])
        >>> forecast.recommended, forecast.algorithms[0].deployment.n_round_trips
        ('fastlloyd', 9)
        """
        from flwr_dpkmeans.planner import PlanningRequest, make_forecast

        shape, goals = (
            (n_examples, n_features or 0, n_clients),
            (target_excess, spread, seeds),
        )
        given = self._given(), self.server_data, shape, goals, private_count, algorithms
        return make_forecast(PlanningRequest.of_run(*given))

    def _of_each(
        self, X: Any, method: Callable[[Any], Any], given: Mapping[str, Any]
    ) -> Any:
        if given.get("groups") is not None:
            return method(X)
        tables = X if isinstance(X, Mapping) else dict(enumerate(X))
        answers = {
            name: method(table) for name, table in tables.items() if n_rows_of(table)
        }
        # A party may have no rows, to which no method is applied; others have some, or
        # there had been no fit.
        nothing = next(iter(answers.values()))[:0]
        answers = {name: answers.get(name, nothing) for name in tables}
        return answers if isinstance(X, Mapping) else list(answers.values())


FederatedKMeans.__signature__ = signature(FederatedKMeans().__init__)  # type: ignore[misc]
DPKMeans.__signature__ = signature(DPKMeans().__init__)  # type: ignore[misc]
"""What editors show: the fields, not what `__new__` takes."""


def _history(
    report: PrivacyReport, movements: tuple[float, ...]
) -> list[dict[str, Any]]:
    """One entry for each round of the algorithm's own."""
    rounds = [
        entry
        for entry in metrics_of(report, None, movements)["rounds"]
        if not Plan.discovers(entry["round"])
    ]
    costs = [
        math.inf if entry["epsilon"] is None else entry["epsilon"] for entry in rounds
    ]
    return [
        {"movement": None} | entry | {"epsilon": cost}
        for entry, cost in zip(rounds, costs, strict=True)
    ]


@contextmanager
def _progress_bar() -> Iterator[Callable[[Step], None]]:
    """What is told of each step: a bar, after two seconds, where somebody looks on (a
    terminal or a notebook).
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield logger.debug
        return
    bar = Progress(console=console, transient=True)
    task = bar.add_task("clustering", total=None)
    timer = Timer(_SECONDS_BEFORE_BAR, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda step: bar.update(
            task, completed=max(0, step.round_index), total=step.n_rounds or None
        )
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
