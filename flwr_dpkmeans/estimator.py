"""`FederatedKMeans`: the whole federation in one process, and `DPKMeans`: one table, by scikit-learn's conventions."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from inspect import signature
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans import options as run_options
from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.algorithms.cluster_profile import read_profile
from flwr_dpkmeans.algorithms.kmeans_task import CENTRE_DEVIATION, DEFAULT_MAX_CLUSTERS, KMeansTask
from flwr_dpkmeans.algorithms.measure import COST_CURVE
from flwr_dpkmeans.algorithms.naive_bayes import Columns, NaiveBayes, NaiveBayesOptions
from flwr_dpkmeans.algorithms.server_points import is_private, squared_unit
from flwr_dpkmeans.data import points as data_points
from flwr_dpkmeans.data.points import Bounds, column_labels, frame_columns, require_same_labels, validate_columns
from flwr_dpkmeans.data.schema import Encoded, schema_of
from flwr_dpkmeans.errors import ConfigurationError, DataError, PrivacyWarning
from flwr_dpkmeans.flower.engines import ENGINES, Federated, InOnePlace, Tables, federate, fit_in_one_place
from flwr_dpkmeans.kmeans.lloyd import nearest_centroids, round_to_grid
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.options import Auto, ClientLevel, Cohort, Evaluation, ExactEvaluation, PrivateCount
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.profile import as_frame
from flwr_dpkmeans.results.writer import ClusterChoice, RunResult, metrics_of, result_files, write_folder
from flwr_dpkmeans.sums.draft import DECLARED_ROOM, require_server_data, require_supported
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.settings import Box, Options, Settings
from flwr_dpkmeans.sums.settings import Evaluation as EvaluationKind
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.task import Run

if TYPE_CHECKING:
    from simulations.planner import Forecast

logger = placed_logger("flwr_dpkmeans.estimator")

_SECONDS_BEFORE_BAR = 2.0
_CURATED = {"unit": "record", "trust": "curator", "masking": False, "max_retries": 0}
"""Settings of a run over one table."""
_OF_EVALUATIONS = ("evaluation", "evaluation_share", "n_classes", "evaluation_radius")


def _kept(X: Any) -> Any:
    """Tables that can be looked at again after the fit; without any it would spend the budget, and then fail."""
    if X is None:
        raise DataError("X is None, but its tables are what is predicted: call fit, and then predict for each table.")
    return list(X) if isinstance(X, Iterator) else X


class _EachParty:
    """What follows a fit for each party's table; no mixin of scikit-learn wraps what it returns."""

    def fit_predict(self, X: Any = None, y: Any = None, **given: Any) -> Any:
        """Fit and predict: labels of each table, listed or named as the tables are; of one table with groups, of it."""
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
    """A fit by one of the engines, and what scikit-learn's estimators do with centroids."""

    n_clusters: int | str | Auto = 8
    _: KW_ONLY
    algorithm: str | Options = run_options.DEFAULT_ALGORITHM
    epsilon: float = 1.0
    delta: float | None = None
    bounds: Any = None
    noise: str = "secure"
    random_state: int | None = None
    max_iter: int | None = None
    server_data: ArrayLike | None = None
    n_examples: int | str | PrivateCount | None = None
    evaluation: str | Evaluation | ExactEvaluation | None = None

    def __new__(cls, *_: Any, **arguments: Any) -> Self:
        """Say of an unknown argument where it has gone; all others are the fields."""
        for name in arguments.keys() - set(cls._get_param_names()):
            if name in FederatedKMeans._get_param_names():
                raise ConfigurationError(f"{name} is an argument of FederatedKMeans alone: leave it out for one table.")
            raise run_options.moved(name, arguments[name])
        return object.__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of an object by ``algorithm__alpha``, which turns a short form into the object."""
        nested = {name: value for name, value in params.items() if "__" in name}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        for name, value in nested.items():
            argument, _, option = name.partition("__")
            if argument not in self._get_param_names():
                super().set_params(**{argument: value})  # scikit-learn's own sentence
            held = run_options.object_of(argument, getattr(self, argument))
            setattr(self, argument, held.set_params(**{option: value}))
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Index of the nearest centroid of each row; local, costs no privacy.

        Rows, (n_examples, n_features), are seen as in the clustering: clipped to the box `bounds_`, scaled to
        [-1, 1]^d and rounded to the grid of 2^-16, so that each feature weighs by its values over the width of its
        bounds. Returns labels, (n_examples,); -1 where a schema leaves the row out.
        """
        points, encoded = self._in_box(X)
        labels = np.asarray(nearest_centroids(points, self.model_.scaled)[0], dtype=np.int64)
        return labels if encoded is None else encoded.spread(labels)

    def transform(self, X: ArrayLike) -> Array:
        """Euclidean distance of each row to each centroid; local, costs no privacy.

        In the space of the clustering (see `predict`), not in the caller's units: the smallest one of a row is that to
        its label. Returns (n_examples, n_clusters); NaN where a schema leaves the row out.
        """
        points, encoded = self._in_box(X)
        columns = [np.linalg.norm(points - center, axis=1) for center in self.model_.scaled]
        distances = np.asarray(np.stack(columns, axis=1))
        return distances if encoded is None else encoded.spread(distances, np.nan)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest centroid, as in scikit-learn's KMeans; local.

        Distances are those of `transform`, so this is minus the cost that the clustering minimises. `X` is a table, or
        parties' tables as `fit` takes them in memory, which a search over parties gives.
        """
        parties: Any = list(X.values()) if isinstance(X, Mapping) else X
        tables = parties if isinstance(parties, list | tuple) and parties and np.ndim(parties[0]) == 2 else [X]
        cost = 0.0
        for own in tables:
            _, squared_distances = nearest_centroids(self._in_box(own)[0], self.model_.scaled)
            cost += float(squared_distances.sum())
        return -cost

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Does not exist."""
        raise AttributeError(
            "there are no labels_, which would carry every private row's cluster along with the model: call predict on "
            "rows of your own."
        )

    @property
    def inertia_(self) -> float:
        """Does not exist."""
        raise AttributeError(
            "there is no inertia_, which is an exact sum over private rows: see evaluation_ after a fit with "
            "evaluation='private', or minus the score of rows of your own."
        )

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` makes, which `get_feature_names_out` names."""
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise != "seeded" or self.random_state is None
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _fit(self, tables: Tables, y: Any) -> None:
        config, server_points = self._config(self._given(), tables)
        labels = self._labels(y, tables, config)
        if config.algorithm in NOT_FEDERATED:
            self._take(config, tables, fit_in_one_place(config, tables.parts))
        else:
            with _progress_bar() as on_step:
                found = ENGINES[self.engine](config, tables.parts, server_points, labels, on_step)
            self._take(config, tables, (found.state, found.plan.bounds, found.privacy), found)

    def save(self, path: str | Path) -> Path:
        """Write `model_` as JSON, whole or not at all; returns its absolute path."""
        check_is_fitted(self)
        return self.model_.save(path)

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``report.html`` and all other files of a run into a new folder, or into one beside it; their paths."""
        check_is_fitted(self)
        return write_folder(Path(folder), result_files(self._result))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """An estimator that predicts, transforms and scores as the one that was saved, or as a run's ``model.json``.

        Its parameters are the run's algorithm (with that one's defaults), epsilon, unit, trust, noise and bounds;
        ``history_``, ``cost_curve_`` and ``evaluation_`` are not in the file. A `DataError` says what is wrong with it.
        """
        model, known = Model.load(path), cls._get_param_names()
        told = ("algorithm", "unit", "trust", "noise")
        given: dict[str, Any] = {name: getattr(model.privacy, name) for name in told if name in known}
        box = model.bounds.for_features(model.scaled.shape[1])
        by_name = dict(zip(model.feature_names, zip(box.lower, box.upper, strict=True), strict=False))
        given["bounds"] = model.schema or by_name or (model.bounds.lower, model.bounds.upper)
        fitted = cls(len(model.scaled), epsilon=model.privacy.epsilon_requested, **given)
        fitted._adopt(RunResult(model, model.privacy))
        fitted._columns = tuple(range(fitted.n_features_in_))  # where they have no names
        return fitted

    @property
    def profile_(self) -> Any:
        """What a schema's ``profile`` released, as a pandas.DataFrame of `Figure`; None without one."""
        check_is_fitted(self)
        return as_frame(self.model_.federated_profile) if self.model_.federated_profile else None

    def profile(self, X: Any) -> Any:
        """Describe a data frame's rows by cluster, in all of its columns (`flwr_dpkmeans.results.profile`); local."""
        check_is_fitted(self)
        return self.model_.profile(X)

    def _in_box(self, X: Any) -> tuple[Array, Encoded | None]:
        """Rows as the clustering saw them (clipped, scaled, on the grid), and what a schema made of the table."""
        check_is_fitted(self)
        rows, encoded = _ordered(self, X)
        return round_to_grid(Bounds(*self.bounds_).scale(rows)), encoded

    def _given(self) -> dict[str, Any]:
        """What the constructor was given for the run, by flat names."""
        own = self.get_params(deep=False)
        return run_options.flat_options({name: own[name] for name in own if name not in ("server_data", "engine")})

    def _config(self, given: Mapping[str, Any], tables: Tables) -> tuple[Run, Array | None]:
        """The validated configuration of this fit, and the server's points."""
        algorithm, k, declared = given["algorithm"], given["n_clusters"], given["n_examples"]
        # Not at client level, where even an error would tell of a client.
        takes_total = declared is None and given["unit"] != "client" and not is_private(given["bounds"])
        if takes_total and isinstance(k, int) and not isinstance(k, bool) and tables.total < k:
            raise DataError(
                f"all tables together have {tables.total} rows, but {k} clusters need at least as many: choose fewer "
                "clusters or add data."
            )
        ENGINES.find(self.engine)
        has_server_data = self.server_data is not None
        require_server_data(kind := run_options.task_kind(algorithm), has_server_data=has_server_data)
        if not issubclass(kind, KMeansTask) and algorithm not in NOT_FEDERATED:
            raise ConfigurationError(
                f"algorithm is {algorithm!r}, which is no clustering: choose another one, or call "
                f"federate({algorithm!r}, ...)."
            )
        if isinstance(declared, str) and not is_private(declared):
            raise ConfigurationError(
                f"n_examples is {declared!r}, but it must be a number or 'private': give 1000, or leave it out."
            )
        counted = tables.total if algorithm in NOT_FEDERATED else tables.n_examples
        given = {**given, "n_examples": counted if takes_total else declared}
        config, points = tables.run(given, self.server_data)
        require_supported(config, has_server_data=has_server_data)
        return config, points

    def _labels(self, y: Sequence[ArrayLike] | None, tables: Tables, config: Run) -> list[Labels] | None:
        """The clients' labels where an evaluation looks at them; otherwise whatever was given is left alone."""
        if config.evaluation is EvaluationKind.NONE or (y is None and config.n_classes == 0):
            return None
        if y is None:
            raise DataError(
                f"n_classes is {config.n_classes}, but no labels were given: pass y with one array for each client, or "
                "leave n_classes out."
            )
        if config.n_classes == 0:
            raise ConfigurationError(
                "labels were given for the evaluation, but n_classes does not say how many classes there are, which "
                "must be public: give n_classes=3, or leave y out."
            )
        return tables.labels(y, config.n_classes)

    def _take(self, config: Run, tables: Tables, found: InOnePlace, run: Federated | None = None) -> None:
        state, box, report = found
        local = tables.local_cautions(config, report.delta, box, state.centroids.shape[1])
        schema = tables.encoded[0].schema if tables.encoded else None
        figures = read_profile(run.plan, state, schema) if run and schema else ()
        # Not centroids in the caller's units: scaling clips, and without post-processing some lie outside the box.
        known = state.centroids, state.counts, Bounds(*box), report, tables.names, schema, figures
        deviations = state.extras.get(CENTRE_DEVIATION)
        self.evaluation_ = run and run.evaluation
        told = replace(report, warnings=report.warnings + local)
        self._adopt(RunResult.of(Model(*known, deviations), told, state, evaluation=self.evaluation_))
        self.cost_curve_: Array | None = state.extras.get(COST_CURVE)
        self.n_iter_, self._columns = len(state.movements), tables.columns
        self.history_ = _history(report, state.movements) if run else []

    def _adopt(self, result: RunResult) -> None:
        """What is known of a clustering, from a fit or a file."""
        self._result, self.privacy_, self.model_ = result, result.report, result.model
        self.schema_ = (model := result.model).schema
        self.cluster_centers_, self.cluster_counts_ = model.centroids, model.counts
        self.cluster_centers_error_ = model.cluster_centers_error
        self.bounds_: Box = (model.bounds.lower, model.bounds.upper)
        self.n_features_in_ = int(model.scaled.shape[1])
        _name_columns(self, model.feature_names)


class DPKMeans(_PrivateClustering):
    """Differentially private k-means of one table: its holder, a trusted curator, draws the noise and publishes.

    The algorithms, proofs and report of `FederatedKMeans` under the trust model ``curator``, without Flower and masks.

    Parameters
    ----------
    n_clusters, epsilon, bounds, delta, algorithm, noise, random_state, max_iter, server_data, n_examples, evaluation
        As in `FederatedKMeans`. Bounds are never computed from the table: state them, or choose ``"private"``. The
        number of rows is taken as public unless ``n_examples`` says otherwise.

    Notes
    -----
    Attributes are those of `FederatedKMeans`, and all of them may be published: what exact rows say against the result
    is a Python warning only.

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
        """Cluster the rows of a table, (n, n_features); `y`, (n,), are labels for an evaluation."""
        _require_no_others(unknown)
        self._fit(Tables.alone(X, schema_of(self.bounds)), y)
        _warn(self.privacy_)
        # Whoever has the estimator, also as a pickle, may have all of it: nothing that exact rows say stays in it.
        told = replace(self.model_.privacy, n_clients=1)
        self._adopt(replace(self._result, report=told, model=replace(self.model_, privacy=told)))
        return self

    def _config(self, given: Mapping[str, Any], tables: Tables) -> tuple[Run, Array | None]:
        """As for several parties; what whoever reads exact sums would refuse later is refused now."""
        config, points = super()._config(given, tables)
        declared = config.settings.n_examples
        if declared is not None and tables.total > DECLARED_ROOM * declared:
            raise DataError(
                f"n_examples is declared as {declared}, but the table has {tables.total} rows, more than twice as "
                "many: declare their number, from which delta and noise follow, or leave it out."
            )
        return config, points

    def _given(self) -> dict[str, Any]:
        """As the same run of several parties says it."""
        given = super()._given()
        return given | ({"unit": "record"} if given["algorithm"] in tuple(NOT_FEDERATED) else _CURATED)

    def _of_each(self, X: ArrayLike, method: Callable[[ArrayLike], Any], given: Mapping[str, Any]) -> Any:
        return method(X)


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedKMeans(_PrivateClustering):
    """Differentially private k-means over several parties' data, simulated in this process.

    Strategy, ClientApp, secure-aggregation mod, masks and noise are those of a deployment. An option that differs from
    its default and has no effect on the run, such as another algorithm's, is refused.

    Parameters
    ----------
    n_clusters : int, "auto" or Auto
        k; "auto" (``proxy_lloyd``, ``feddp_kmeans``; trust ``distributed``) chooses it within the same budget, up to
        20, or as ``Auto(12)`` says.
    algorithm : str or one of the ``*Options``
        ``"proxy_lloyd"`` (the default, with or without `server_data`); the papers' ``"fastlloyd"``, ``"glloyd"``,
        ``"sulloyd"``, ``"lloyd"`` (not private), ``"feddp_kmeans"``, or one of its baselines ``"server_kmeans++"``,
        ``"server_lloyd"``, ``"sphere_packing"``; for comparison only, on all rows together, by `simulations.baselines`:
        ``"max_cover"``, ``"balcan"``, ``"k_fed"`` and ``"optimal"`` (the latter two not private). With options of its
        own: ``FastLloydOptions(alpha=0.6)``.
    epsilon : float
        Total over the run.
    delta : float, optional
        None: 1/(N ln N). Lowered where a private count finds so many rows that it would not be below 1/N.
    unit : str or ClientLevel
        ``"record"``: neighbouring data sets differ in one row; ``"client"``: in one client's whole table, with
        ``ClientLevel(examples_per_client=50, sampling_rate=1.0)``.
    trust : str, optional
        ``"oblivious"``, ``"central"`` or ``"distributed"``; None: the algorithm's own, which is ``"distributed"`` for
        ``feddp_kmeans`` and its baselines and ``"oblivious"`` otherwise.
    bounds : pair, mapping, data frame, path, Schema, "private" or PrivateBounds, optional
        Public bounds, never computed from clients' data: numbers, sequences in the order of the columns, or a pair for
        each column's name as a mapping, data frame or file. A `Schema`, or the path of one, also says what becomes of
        text, dates and missing cells. None: a cube around the server's points, which must then
        be given. ``"private"``, or ``PrivateBounds(share=0.1, domain=None)``: found by two private histograms, for
        which nobody needs to know anything of the columns.
    noise : str
        ``"secure"``, ``"opendp"`` (OpenDP's samplers alone), or ``"seeded"`` for repeatable experiments: no protection.
    random_state : int, optional
        Seed of the public start (and of seeded noise).
    max_iter : int, optional
        Overrides the algorithm's number of iterations.
    server_data : array-like, optional
        The server's own points (a data frame's columns are matched by name), or the path of a file with them, for
        algorithms that start from them.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same rounds, noise and masks without
        messages, for thousands of clients.
    n_examples : int, "private" or PrivateCount, optional
        Public number of rows; None: the total of the parts, listed in the report as declared public. With private
        bounds, and where a schema drops rows, it is public only if given: None then stands for ``"private"``, a
        private count, as ``PrivateCount(share=0.02)``.
    evaluation : "private", "exact", Evaluation or ExactEvaluation, optional
        ``"private"``: one more round measures the result, with a share of the same budget, as
        ``Evaluation(share=0.05, n_classes=0, radius=None)``; ``"exact"``: the same without noise, after which the run
        is not private. With ``n_classes``, the `y` of `fit` is compared with the clusters.
    cohort : Cohort, optional
        What happens when clients fall silent, and whether masks are on.

    Notes
    -----
    A string is always the short form of an object, whose options are nested parameters: ``algorithm__alpha`` in
    `set_params` and in scikit-learn's searches. Objects are frozen, so estimators may share them.

    Attributes
    ----------
    cluster_centers_ : ndarray, (n_clusters, n_features)
        In the caller's units.
    cluster_centers_error_ : ndarray, (n_clusters, n_features)
        Half-widths of 95% intervals around them, for the exact mean of that column over the rows that `predict` labels
        with that cluster: what noise, cut rows and moved labels leave unsure. Infinity where nothing is known, as at
        client level; never NaN.
    cluster_counts_ : ndarray, (n_clusters,)
        Noisy counts of the last release; at client level what each client adds, which the page and ``model_`` name: 1
        where it has rows in the cluster (FedDP-KMeans), its rows (with Lloyd steps), or their share (ProxyLloyd).
    cost_curve_ : ndarray, (max_clusters,), or None
        With ``n_clusters="auto"``: cost over k, in squared scaled units.
    privacy_ : PrivacyReport
        Cost, guarantee, every release; its `warnings` are Python's too, of `flwr_dpkmeans.errors.PrivacyWarning`.
    bounds_ : pair of tuples of float
        The box that data were scaled by, and that `predict`, `transform` and `score` measure in: as declared, from
        server data, or as private histograms found it.
    model_ : Model
        The clustering as a value that labels and describes rows; without what this program's rows say.
    schema_ : Schema or None
        What tables are encoded by, and what ``schema_.decode(cluster_centers_)`` reads; None without one.
    profile_ : pandas.DataFrame or None
        With noise, what a schema's ``profile`` asks for (`flwr_dpkmeans.algorithms.cluster_profile.Figure`).
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        One entry for each aggregation: round, epsilon so far, noise, radius, largest movement (scaled units).
    n_features_in_ : int
        d.
    feature_names_in_ : ndarray of str, (n_features,)
        Column names in the order of the first data frame, which ``cluster_centers_`` has; only after a fit to frames.
    evaluation_ : EvaluationResult or None
        Cost, counts and, with labels, accuracy and purity, each with the noise in it; None without an evaluation.

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
            One array or data frame for each client, (n_i, n_features); at least two clients, some may be empty. In a
            mapping they have names, which are in sentences about them. Data frames have the same columns, in any
            order: they are put in the first one's, and bounds that differ by column are then given by name. With
            `groups` one table of all rows, (n, n_features), as a pipeline has it.
        y : sequence or mapping of array-like of int, or array-like of int, optional
            Labels as `X` has rows, from 0 to ``n_classes - 1``; used by an evaluation only.
        groups : array-like, (n,), optional
            The party of each row.
        clients, n_clients : callable and int, optional
            Instead of `X`: ``clients(i)`` makes client i's table, 0 <= i < n_clients, the same one each time. With
            ``engine="direct"`` no more than one is in memory.

        Raises
        ------
        ConfigurationError, DataError, PlanError, BudgetError
            One sentence, before anything is computed.

        Notes
        -----
        In a search each fit costs epsilon of its own, and its scores are exact. scikit-learn splits rows: with
        ``pipe.fit(X, federatedkmeans__groups=g)``, or metadata routing, each party's rows are split, or by
        ``GroupKFold`` whole parties are left out; a list of tables is split by tables.
        """
        _require_no_others(unknown)
        schema, listed = schema_of(self.bounds), clients is None and n_clients is None
        made = None if listed else Tables.made(clients, n_clients, X, y, groups, schema)
        self._fit(made or Tables.of(X, groups=groups, schema=schema), y)
        _warn(self.privacy_)
        return self

    def choose_k(self, X: Sequence[ArrayLike], max_clusters: int | None = None) -> ClusterChoice:
        """Choose the number of clusters from noisy weights of the server's points.

        The first two rounds of FedDP-KMeans run with `max_clusters` (None: the constructor's) on `X`, which is as in
        `fit`, and on the whole of epsilon. The cost curve and its elbow are post-processing and cost nothing more
        (FedDP-KMeans, appendix H.3). With ``n_clusters="auto"``, `fit` chooses k and clusters within one budget
        instead. Raises a `ConfigurationError` if the algorithm is not ``feddp_kmeans``, or the trust model not
        ``distributed``: the choice is public.
        """
        given = self._given()
        if given["algorithm"] != "feddp_kmeans":
            raise ConfigurationError(
                f"choose_k was called for {given['algorithm']!r}, but it needs weights of server points: use "
                "algorithm='feddp_kmeans', or n_clusters='auto', which chooses k and clusters within one budget."
            )
        most = given.pop("max_clusters", DEFAULT_MAX_CLUSTERS) if max_clusters is None else max_clusters
        # A fit's own steps and its evaluation are not run, so options of theirs say nothing here.
        given |= {name: Settings.defaults()[name] for name in _OF_EVALUATIONS}
        given = run_options.own_options(given, "feddp_choose_k", ("feddp_kmeans",))
        given |= {"algorithm": "feddp_choose_k", "n_clusters": "auto", "max_clusters": most}
        schema = schema_of(self.bounds)
        if schema is not None:
            schema = given["bounds"] = schema.clustered  # nor a profile
        tables = Tables.of(X, schema=schema)
        config, server_points = self._config(given, tables)
        found = ENGINES[self.engine](config, tables.parts, server_points)
        _warn(found.privacy)
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
        """Forecast noise, accuracy, messages and minutes of a run of this shape, before any data are touched.

        All private algorithms that fit the unit and need no server data are compared under this estimator's options,
        on public synthetic data; its own algorithm decides nothing. Without bounds, noise is given as a fraction of
        half the range that they will have.

        Parameters
        ----------
        n_examples, n_features, n_clients : int
            Public shape; a guess is enough. Of features None: those of a schema, or of bounds by column.
        target_excess : float
            Fraction by which the cost may exceed the optimum, for the epsilon that this takes.
        spread : float
            Assumed standard deviation of a cluster's rows in each coordinate, over half the range of the bounds.
        seeds : int
            Synthetic data sets for each point of a curve, at least 2.
        private_count : bool, optional
            Whether the run would count its rows privately; else their number is declared. None: as `fit` would.
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
        from simulations.planner import PlanningRequest, make_forecast

        shape, goals = (n_examples, n_features or 0, n_clients), (target_excess, spread, seeds)
        given = self._given(), self.server_data, shape, goals, private_count, algorithms
        return make_forecast(PlanningRequest.of_run(*given))

    def _of_each(self, X: Any, method: Callable[[Any], Any], given: Mapping[str, Any]) -> Any:
        if given.get("groups") is not None:
            return method(X)
        return {name: method(own) for name, own in X.items()} if isinstance(X, Mapping) else list(map(method, X))


FederatedKMeans.__signature__ = signature(FederatedKMeans().__init__)  # type: ignore[misc]
DPKMeans.__signature__ = signature(DPKMeans().__init__)  # type: ignore[misc]
"""What editors show: the fields, not what `__new__` takes."""


def _history(report: PrivacyReport, movements: tuple[float, ...]) -> list[dict[str, Any]]:
    """One entry for each round of the algorithm's own."""
    rounds = [entry for entry in metrics_of(report, None, movements)["rounds"] if not Plan.discovers(entry["round"])]
    costs = [math.inf if entry["epsilon"] is None else entry["epsilon"] for entry in rounds]
    return [{"movement": None} | entry | {"epsilon": cost} for entry, cost in zip(rounds, costs, strict=True)]


def _name_columns(model: BaseEstimator, names: tuple[str, ...]) -> None:
    """Set ``feature_names_in_``, which exists only where there are names."""
    if names:
        model.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_


def _ordered(model: Any, X: Any) -> tuple[Array, Encoded | None]:
    """Rows with the fitted columns, a data frame's in order by name, and what the fit's schema made of the table."""
    if model.schema_ is not None:
        encoded = model.schema_.clustered.encode(X)
        return encoded.points, encoded
    fitted = tuple(getattr(model, "feature_names_in_", ()))
    if bool(frame_columns(X)) != bool(fitted):
        # scikit-learn's own sentences.
        has, was = ("does not have valid", "with") if fitted else ("has", "without")
        told = f"X {has} feature names, but {type(model).__name__} was fitted {was} feature names"
        warnings.warn(told, UserWarning, stacklevel=4)
    if not fitted:
        require_same_labels("X has the columns", column_labels(X), "the fit", model._columns)
    points = validate_columns(X, fitted)
    if points.shape[1] != model.n_features_in_:
        raise DataError(
            f"X has {points.shape[1]} features, but {type(model).__name__} is expecting {model.n_features_in_} features"
            " as input: give those of the fit, in their order."
        )
    return points, None


def _require_no_others(given: Iterable[str]) -> None:
    """Refuse what a fit does not take, and say why there are no weights."""
    if "sample_weight" in given:
        raise ConfigurationError(
            "sample_weight was given, but noise hides rows that count once each, and a weight would multiply how far "
            "its row can move a sum: leave it out."
        )
    for name in given:
        raise TypeError(f"fit() got an unexpected keyword argument {name!r}")


@contextmanager
def _progress_bar() -> Iterator[Callable[[Step], None]]:
    """What is told of each step: a bar, after two seconds, where somebody looks on (a terminal or a notebook)."""
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
        yield lambda step: bar.update(task, completed=max(0, step.round_index), total=step.n_rounds or None)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


def _warn(report: PrivacyReport) -> None:
    """Warn once for each line with a `fit`, in a notebook each time a cell runs; or always, if Python was told so."""
    caller, shell = sys._getframe(2), sys.modules.get("IPython")
    cell = getattr(shell.get_ipython(), "execution_count", 0) if shell else 0
    rule = next((rule for rule in warnings.filters if issubclass(PrivacyWarning, rule[2])), None)
    told = warn_once.__wrapped__ if rule and rule[0] == "always" else warn_once
    for sentence in report.warnings:
        told(sentence, (caller.f_code.co_filename, caller.f_lineno, cell))


@lru_cache(maxsize=1024)
def warn_once(sentence: str, _place: tuple[str, int, int]) -> None:
    """Warn the caller of `fit` once at a place: scikit-learn empties Python's own memory of that in each fit."""
    warnings.warn(sentence, PrivacyWarning, stacklevel=4)


@dataclass(eq=False, repr=False)
class FederatedNaiveBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Differentially private naive Bayes over several parties' labelled rows.

    Numbers are Gaussian in each class; columns of categories have a table. One masked and noised sum is all that is
    released: rows, sums and squares by class, and rows by class and category.

    Parameters
    ----------
    n_classes : int
        Public number of classes; labels are 0 to one less.
    epsilon, delta : float
        Total of the run; None: delta is 1/(N ln N).
    bounds : pair
        Public bounds of the columns; pairs are not looked at for those of categories.
    categories : sequence of int, optional
        For each column how many categories it has, coded 0, 1, ...; 0 for numbers. None: numbers only.
    smoothing : float
        Laplace smoothing: rows added to each class and category.
    trust, noise : str
        As in `FederatedKMeans`.
    random_state : int, optional
        Seed of seeded noise.
    engine : str
        ``"inprocess"`` or ``"direct"``.
    n_examples : int or "private", optional
        Public number of rows; None: the total of the parts, or a private count where a schema drops rows.

    Attributes
    ----------
    classes_ : ndarray of int, (n_classes,)
    class_prior_ : ndarray, (n_classes,)
    theta_, var_ : ndarray, (n_classes, n_numbers)
        Means and variances of the columns of numbers, in the caller's units; None without such columns.
    chances_ : ndarray, (n_classes, n_categories in all), or None
        Of the columns of categories, one after the other.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> labels = [generator.integers(0, 2, 500) for _ in range(3)]
    >>> parts = [generator.normal(2.0 * own[:, None] - 1.0, 0.5, (500, 2)) for own in labels]
    >>> model = FederatedNaiveBayes(2, epsilon=8.0, bounds=(-4, 4)).fit(parts, labels)
    >>> model.score(parts[0], labels[0]) > 0.9, model.privacy_.is_private
    (True, True)
    """

    n_classes: int = 2
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | None = None
    bounds: Any = None
    categories: Sequence[int] | None = None
    smoothing: float = 1.0
    trust: str | None = None
    noise: str = "secure"
    random_state: int | None = None
    engine: str = "inprocess"
    n_examples: int | str | None = None

    def fit(self, X: Sequence[ArrayLike], y: Sequence[ArrayLike]) -> FederatedNaiveBayes:
        """Learn from the parties' rows, (n_i, n_features), and their labels, (n_i,), from 0 to ``n_classes - 1``."""
        coded: Any = None if self.categories is None else list(self.categories)
        options = NaiveBayesOptions(self.n_classes, coded, self.smoothing)
        if y is None:
            raise DataError("y is None, but naive Bayes learns from labels: pass one array for each party.")
        own = ("engine", "n_examples", "epsilon", "delta", "trust", "noise", "random_state")
        run: dict[str, Any] = {name: getattr(self, name) for name in own}
        self.schema_ = schema_of(self.bounds)
        if coded:
            X = list(X) if isinstance(X, Iterator) else X
            tables = Tables.of(X, "parts").parts
            for table in tables if tables[0].shape[1] == len(coded) else ():
                Columns(tuple(coded)).require_codes(table)
        found = federate(NaiveBayes(options=options), X, bounds=self._bounds(options), labels=y, **run)
        arrays = found.result.arrays
        self._found, self.privacy_, self.classes_ = found, found.privacy, np.arange(options.classes)
        self.class_prior_ = arrays["class_prior"]
        self.theta_, self.var_, self.chances_ = (arrays.get(name) for name in ("theta", "var", "chances"))
        self.n_features_in_ = found.plan.n_features
        self._columns = found.labels
        _name_columns(self, found.columns)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The likeliest class of each row; local, costs no privacy."""
        return np.asarray(np.argmax(self._log_joint(X), axis=1), dtype=np.int64)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithm of `predict_proba`."""
        joint = self._log_joint(X)
        joint -= joint.max(axis=1, keepdims=True)
        return np.asarray(joint - np.log(np.exp(joint).sum(axis=1, keepdims=True)))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class, (n_rows, n_classes); local, costs no privacy."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def _log_joint(self, X: ArrayLike) -> Array:
        """Each class's weight for each row, in the box of the bounds, where rows beyond them are clipped."""
        check_is_fitted(self, "classes_")
        points, encoded = _ordered(self, X)
        if encoded is not None and (n_left := encoded.n_rows - len(points)):
            raise DataError(f"{n_left} of {encoded.n_rows} rows lack what the schema needs: fill it in, or drop them.")
        task = self._found.plan.task
        assert isinstance(task, NaiveBayes)
        task.columns(points.shape[1]).require_codes(points)
        bounds = Bounds(*self._found.plan.bounds).for_features(points.shape[1])
        return task.log_joint(self._found.state, round_to_grid(bounds.scale(points)))

    def _bounds(self, options: NaiveBayesOptions) -> Any:
        """Bounds as given, with those that follow from the categories."""
        categories = options.categories or ()
        lacking = self.bounds is None and not all(categories)
        if not any(categories) or lacking or not isinstance(self.bounds, tuple | list | np.ndarray | None):
            return self.bounds
        n = np.asarray(categories)
        given = data_points.read_ranges((0.0, 1.0) if self.bounds is None else self.bounds)
        ranges = Bounds(given.lower, given.upper).for_features(len(n))
        return np.where(n > 0, 0.0, ranges.lower).tolist(), np.where(n > 0, n - 1.0, ranges.upper).tolist()
