"""`FederatedKMeans`: the whole federation in one process, with scikit-learn's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.measure import EvaluationResult
from flwr_dpkmeans.algorithms.naive_bayes import NaiveBayes, NaiveBayesOptions
from flwr_dpkmeans.algorithms.server_points import in_squared_units, is_private, resolve_bounds
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.tables import frame_columns, validate_columns, validate_labels, validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError, PrivacyWarning, listed, nearest
from flwr_dpkmeans.flower.engines import FittedFederation, federate, fit_direct, fit_in_one_place, fit_inprocess
from flwr_dpkmeans.kmeans.assignment import nearest_centroids
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.options import (
    DEFAULT_ALGORITHM,
    Auto,
    ClientLevel,
    Cohort,
    Evaluation,
    ExactEvaluation,
    PrivateBounds,
    PrivateCount,
    flat_options,
    moved,
    object_of,
    own_options,
    parse_run,
    require_server_data,
    resolve_n_clusters,
)
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND, PrivacyReport
from flwr_dpkmeans.results.writer import ClusterChoice
from flwr_dpkmeans.sums.draft import require_supported
from flwr_dpkmeans.sums.settings import Box, Options, Settings
from flwr_dpkmeans.sums.settings import Evaluation as EvaluationKind
from flwr_dpkmeans.sums.statement import local_cautions
from flwr_dpkmeans.sums.task import Run

if TYPE_CHECKING:
    from flwr_dpkmeans.planner import Forecast

Array = NDArray[np.float64]

_FITS: Mapping[str, Callable[..., FittedFederation]] = MappingProxyType(
    {"inprocess": fit_inprocess, "direct": fit_direct}
)
ENGINES = tuple(_FITS)
_OF_EVALUATIONS = ("evaluation", "evaluation_share", "n_classes", "evaluation_radius")


class FederatedKMeans(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Differentially private k-means over several parties' data.

    All parties are simulated in this process, but everything else is real: the same strategy, ClientApp,
    secure-aggregation mod, masks and noise as in a deployment. An option that differs from its default and has no
    effect on the run, such as another algorithm's, is refused.

    Parameters
    ----------
    n_clusters : int, "auto" or Auto
        k; "auto" (``proxy_lloyd``, ``feddp_kmeans``; trust ``distributed``) chooses it within the same budget, up to
        20, or as ``Auto(12)`` says.
    algorithm : str or one of the ``*Options``
        ``"proxy_lloyd"`` (the default, with or without `server_data`); the papers' ``"fastlloyd"``, ``"glloyd"``,
        ``"sulloyd"``, ``"lloyd"`` (not private), ``"feddp_kmeans"``, or one of its
        baselines ``"server_kmeans++"``, ``"server_lloyd"``, ``"sphere_packing"``; for comparison only, on all rows
        together: ``"max_cover"`` (private), ``"k_fed"`` and ``"optimal"`` (not private). With options of its own:
        ``FastLloydOptions(alpha=0.6)``.
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
    bounds : pair, "private" or PrivateBounds, optional
        Public bounds of the data: numbers, one sequence of lower and one of upper bounds in the order of the columns,
        or a file, whose names are matched with those of the columns. Never computed from clients' data. None: a cube
        around the server's points; without server data bounds must be given. ``"private"``: found by two private
        histograms, for which nobody needs to know anything of the columns, as
        ``PrivateBounds(share=0.05, domain=None)``.
    noise : str
        ``"secure"``, or ``"seeded"`` for repeatable experiments that protect nobody.
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
        bounds nothing is taken as public unless it is given: None then stands for ``"private"``, a private count, as
        ``PrivateCount(share=0.02)``.
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
    cluster_counts_ : ndarray, (n_clusters,)
        Noisy counts of the last release (client level: of clients with rows in the cluster).
    cost_curve_ : ndarray, (max_clusters,), or None
        With ``n_clusters="auto"``: cost over k, in squared scaled units.
    privacy_ : PrivacyReport
        Cost, guarantee, every release; its `warnings` are Python warnings too, of
        `flwr_dpkmeans.errors.PrivacyWarning`.
    bounds_ : pair of tuples of float
        The box that data were scaled by, and that `predict`, `transform` and `score` measure in: as declared, from
        server data, or as private histograms found it.
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

    def __init__(
        self,
        n_clusters: int | str | Auto = 8,
        *,
        algorithm: str | Options = DEFAULT_ALGORITHM,
        epsilon: float = 1.0,
        delta: float | None = None,
        unit: str | ClientLevel = "record",
        trust: str | None = None,
        bounds: Any = None,
        noise: str = "secure",
        random_state: int | None = None,
        max_iter: int | None = None,
        server_data: ArrayLike | None = None,
        engine: str = "inprocess",
        n_examples: int | str | PrivateCount | None = None,
        evaluation: str | Evaluation | ExactEvaluation | None = None,
        cohort: Cohort | None = None,
        **elsewhere: Any,
    ) -> None:
        for name, value in elsewhere.items():
            raise moved(name, value)
        self.n_clusters = n_clusters
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.trust = trust
        self.bounds = bounds
        self.noise = noise
        self.random_state = random_state
        self.max_iter = max_iter
        self.server_data = server_data
        self.engine = engine
        self.n_examples = n_examples
        self.evaluation = evaluation
        self.cohort = cohort

    def set_params(self, **params: Any) -> FederatedKMeans:
        """Set parameters; those of an object by ``algorithm__alpha``, which turns a short form into the object."""
        nested = {name: value for name, value in params.items() if "__" in name}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        for name, value in nested.items():
            argument, _, option = name.partition("__")
            if argument not in self._get_param_names():
                super().set_params(**{argument: value})  # scikit-learn's own sentence
            setattr(self, argument, object_of(argument, getattr(self, argument)).set_params(**{option: value}))
        return self

    def fit(self, X: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None) -> FederatedKMeans:
        """Cluster the parties' data together.

        Parameters
        ----------
        X : sequence of array-like
            One array or data frame for each client, (n_i, n_features); at least two clients, some may be empty.
            Data frames have the same columns, in any order: they are put in the first one's.
        y : sequence of array-like of int, optional
            One array of labels for each client, (n_i,), from 0 to ``n_classes - 1``; used by an evaluation only.

        Returns
        -------
        FederatedKMeans
            Itself.

        Raises
        ------
        ConfigurationError, DataError, PlanError, BudgetError
            One sentence, before anything is computed.
        """
        given = self._given()
        parts, names = self._validated_parts(X, given)
        config, server_points = self._config(given, parts, names)
        labels = _validated_labels(y, parts, config)
        fit = fit_in_one_place if config.algorithm in NOT_FEDERATED else _FITS[self.engine]
        self._take(_with_local_warnings(fit(config, parts, server_points, labels), config, parts))
        _warn(self.privacy_)
        self._name_columns(names)
        return self

    def choose_k(self, X: Sequence[ArrayLike], max_clusters: int | None = None) -> ClusterChoice:
        """Choose the number of clusters from noisy weights of the server's points.

        The first two rounds of FedDP-KMeans run with `max_clusters`, on the whole of epsilon. The cost curve and its
        elbow are post-processing and cost nothing more (FedDP-KMeans, appendix H.3). With ``n_clusters="auto"``, `fit`
        chooses k and clusters within one budget instead.

        Parameters
        ----------
        X : sequence of array-like
            As in `fit`.
        max_clusters : int, optional
            Largest k; None: the constructor's.

        Returns
        -------
        ClusterChoice
            With `n_clusters`, `costs`, the privacy report and `plot`.

        Raises
        ------
        ConfigurationError
            If the algorithm is not ``feddp_kmeans``, or the trust model not ``distributed``: the choice is public.
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
        given = own_options(given, "feddp_choose_k", ("feddp_kmeans",))
        given |= {"algorithm": "feddp_choose_k", "n_clusters": "auto", "max_clusters": most}
        parts, names = self._validated_parts(X, given)
        config, server_points = self._config(given, parts, names)
        fitted = _FITS[self.engine](config, parts, server_points)
        _warn(fitted.privacy)
        costs = np.zeros(0) if fitted.cost_curve is None else in_squared_units(fitted.cost_curve, config)
        return ClusterChoice(len(fitted.centers), costs, fitted.privacy)

    def plan(
        self,
        n_examples: int,
        n_features: int,
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
            Public shape; a guess is enough.
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

        Returns
        -------
        Forecast
            With `recommended`, `n_clusters_range`, `epsilon_for_target`, one entry per algorithm, `to_dict` and `plot`.

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

        options = self._given()
        options |= resolve_n_clusters(options.pop("n_clusters"), options.pop("max_clusters", DEFAULT_MAX_CLUSTERS))
        if options["bounds"] is None and self.server_data is not None:
            # Server data that no candidate uses would still decide on the bounds.
            options["bounds"], _, _ = resolve_bounds(None, self.server_data)
        declared, bounds = options.pop("n_examples"), options["bounds"]
        if private_count is None:
            private_count = is_private(declared) or (is_private(bounds) and declared is None)
        for name in ("algorithm", "masking"):
            options.pop(name, None)
        request = PlanningRequest(
            n_examples,
            n_features,
            n_clients,
            options,
            target_excess=target_excess,
            spread=spread,
            seeds=seeds,
            private_count=private_count,
            algorithms=(algorithms,) if isinstance(algorithms, str) else tuple(algorithms),
        )
        return make_forecast(request)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Index of the nearest centroid of each row; local, costs no privacy.

        Nearest is meant as in the clustering: rows are clipped to the box `bounds_`, scaled to [-1, 1]^d and rounded to
        the grid of 2^-16, so that each feature weighs by its values over the width of its bounds.

        Parameters
        ----------
        X : array-like, (n_examples, n_features)

        Returns
        -------
        ndarray of int, (n_examples,)
        """
        labels, _ = nearest_centroids(self._in_box(X), self._scaled_centers)
        return np.asarray(labels, dtype=np.int64)

    def fit_predict(
        self, X: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, **kwargs: Any
    ) -> list[NDArray[np.int64]]:
        """Fit and predict: one array of labels for each client."""
        del kwargs
        parts = _listed(X)
        self.fit(parts, y)
        return [self.predict(part) for part in parts]

    def transform(self, X: ArrayLike) -> Array:
        """Euclidean distance of each row to each centroid; local, costs no privacy.

        Distances are in the space of the clustering, the box `bounds_` scaled to [-1, 1]^d (see `predict`), not in the
        caller's units: the smallest one of a row is that to its label.

        Parameters
        ----------
        X : array-like, (n_examples, n_features)

        Returns
        -------
        ndarray, (n_examples, n_clusters)
        """
        points = self._in_box(X)
        columns = [np.linalg.norm(points - center, axis=1) for center in self._scaled_centers]
        return np.asarray(np.stack(columns, axis=1))

    def fit_transform(self, X: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, **kwargs: Any) -> list[Array]:
        """Fit and transform: one array of distances for each client."""
        del kwargs
        parts = _listed(X)
        self.fit(parts, y)
        return [self.transform(part) for part in parts]

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest centroid, as in scikit-learn's KMeans; local.

        Distances are those of `transform`, so this is minus the cost that the clustering minimises.

        Parameters
        ----------
        X : array-like, (n_examples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        del y
        _, squared_distances = nearest_centroids(self._in_box(X), self._scaled_centers)
        return -float(squared_distances.sum())

    def _in_box(self, X: ArrayLike) -> Array:
        """Rows as the clustering saw them: clipped, scaled, on the grid."""
        check_is_fitted(self)
        return round_to_grid(Bounds(*self.bounds_).scale(self._checked(X)))

    def _checked(self, X: ArrayLike) -> Array:
        """Rows with the fitted columns: a data frame's are put in order by name."""
        names, fitted = frame_columns(X), tuple(getattr(self, "feature_names_in_", ()))
        if bool(names) != bool(fitted):
            # scikit-learn's own sentences.
            told = ("does not have valid", "with") if fitted else ("has", "without")
            warnings.warn(
                f"X {told[0]} feature names, but FederatedKMeans was fitted {told[1]} feature names",
                UserWarning,
                stacklevel=4,
            )
        points = validate_columns(X, fitted)
        return validate_points(points, self.n_features_in_)

    def _name_columns(self, names: tuple[str, ...]) -> None:
        """Set ``feature_names_in_``, which exists only where there are names."""
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _given(self) -> dict[str, Any]:
        """What the constructor was given for the run, by flat names."""
        own = self.get_params(deep=False)
        return flat_options({name: own[name] for name in own if name not in ("server_data", "engine")})

    def _validated_parts(self, X: Sequence[ArrayLike], given: Mapping[str, Any]) -> tuple[list[Array], tuple[str, ...]]:
        """The one border where the caller's tables are checked; all have the first one's columns in its order."""
        listed = _listed(X)
        if len(listed) < 2:
            raise DataError(
                f"X has {len(listed)} client(s), but masks need at least 2: pass one array for each of two or more "
                "clients."
            )
        names = _names_of(listed)
        parts = [_validated(part, names, index) for index, part in enumerate(listed)]
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataError(f"the clients' arrays have {widths} features, but all need the same columns.")
        k = given["n_clusters"]
        if isinstance(k, int) and not isinstance(k, bool) and _takes_total(given) and (total := _total(parts)) < k:
            raise DataError(
                f"all clients together have {total} rows, but {k} clusters need at least as many: choose fewer "
                "clusters or add data."
            )
        return parts, names

    def _config(
        self, given: Mapping[str, Any], parts: Sequence[Array], names: tuple[str, ...]
    ) -> tuple[Run, Array | None]:
        """The validated configuration of this fit, and the server's points."""
        values = dict(given)
        if self.engine not in ENGINES:
            raise ConfigurationError(f"engine is {self.engine!r}, which is not known: {nearest(self.engine, ENGINES)}")
        if not values.get("masking", True) and self.engine != "direct":
            raise ConfigurationError(
                f"masking is {values['masking']!r}, but engine {self.engine!r} always masks: use engine='direct' for "
                "experiments without masks."
            )
        algorithm, bounds = values["algorithm"], values["bounds"]
        if not isinstance(algorithm, str):
            raise ConfigurationError(f"algorithm is {algorithm!r}, but it must be a name: give a string.")
        _require_server_data(algorithm, has_server_data=self.server_data is not None)
        box, order, server_points = resolve_bounds(
            bounds, self.server_data, values.pop("bounds_domain", None), names=names
        )
        if order != names:
            raise DataError(
                f"X has no column names, but the bounds file or server_data names {len(order)} columns: give X as data "
                "frames, or leave the names out there."
            )
        values |= resolve_n_clusters(values.pop("n_clusters"), values.pop("max_clusters", DEFAULT_MAX_CLUSTERS))
        values |= {
            "bounds": (box.lower, box.upper),
            "private_bounds": is_private(bounds),
            "n_examples": _n_examples(given, parts),
            "n_features": parts[0].shape[1],
            "n_clients": len(parts),
            "feature_names": names,
        }
        config = parse_run(has_server_data=server_points is not None, **values)
        if algorithm not in NOT_FEDERATED:
            require_supported(config, has_server_data=server_points is not None)
        return config, server_points

    def _take(self, fitted: FittedFederation) -> None:
        """Set the fitted attributes."""
        self.cluster_centers_: Array = fitted.centers
        self.cluster_counts_: Array = fitted.counts
        self.privacy_: PrivacyReport = fitted.privacy
        self.bounds_: Box = fitted.bounds
        # Not from `cluster_centers_`: scaling clips, and centroids without post-processing may lie outside the box.
        self._scaled_centers = fitted.scaled
        self.cost_curve_: Array | None = fitted.cost_curve
        self.n_features_in_ = int(fitted.centers.shape[1])
        self.n_iter_ = len(fitted.movements)
        self.evaluation_: EvaluationResult | None = fitted.evaluation
        # Rounds before the first Lloyd round, and an evaluation after the last, move nothing.
        n_after = sum(step.name == EVALUATION_ROUND for step in fitted.steps)
        n_before = len(fitted.steps) - len(fitted.movements) - n_after
        movements = (None,) * n_before + fitted.movements + (None,) * n_after
        self.history_ = [
            {
                "round": step.round_index,
                "name": step.name,
                "epsilon": step.epsilon,
                "radius": step.radius,
                "movement": movement,
                **{f"noise_{name}": scale for name, scale in step.noise_scales},
            }
            for step, movement in zip(fitted.steps, movements, strict=True)
        ]


def _with_local_warnings(fitted: FittedFederation, config: Run, parts: Sequence[Array]) -> FittedFederation:
    """The result with what the rows say against it: whoever calls this holds all of them."""
    local = local_cautions(config, fitted.privacy.delta, fitted.bounds, parts)
    return replace(fitted, privacy=replace(fitted.privacy, warnings=fitted.privacy.warnings + local))


def _warn(report: PrivacyReport) -> None:
    """Tell Python's warnings what the report says against the run."""
    for sentence in report.warnings:
        warn_once(sentence)


@lru_cache(maxsize=1024)
def warn_once(sentence: str) -> None:
    """Warn of one sentence in the name of the caller of `fit`, once in a process.

    Python's own memory of what it has shown is emptied by scikit-learn in each fit.
    """
    warnings.warn(sentence, PrivacyWarning, stacklevel=4)


def _require_server_data(algorithm: str, *, has_server_data: bool) -> None:
    """Refuse server data that is missing, or that nobody asked for."""
    if algorithm not in NOT_FEDERATED:
        require_server_data(algorithm, has_server_data=has_server_data)
    elif has_server_data:
        raise ConfigurationError(f"server_data was given, but {algorithm!r} starts without it: leave it out.")


def _n_examples(given: Mapping[str, Any], parts: Sequence[Array]) -> Any:
    """N as declared, else the total of the parts; at client level it would tell of a single client's rows."""
    declared = given["n_examples"]
    if is_private(declared):
        return None
    if isinstance(declared, str):
        raise ConfigurationError(
            f"n_examples is {declared!r}, but it must be a number or 'private': give 1000, or leave it out."
        )
    return _total(parts) if _takes_total(given) else declared


def _takes_total(given: Mapping[str, Any]) -> bool:
    """Whether the total of the parts counts as public; elsewhere not even an error may depend on it."""
    return given["n_examples"] is None and given["unit"] != "client" and not is_private(given["bounds"])


def _total(parts: Sequence[Array]) -> int:
    """Rows of all clients together."""
    return sum(len(part) for part in parts)


def _listed(X: Sequence[ArrayLike]) -> list[ArrayLike]:
    """The clients' tables as a list; one table for all is a mistake that has a sentence of its own."""
    shape = getattr(X, "shape", ())
    if len(shape) == 2:
        raise DataError(
            f"X is one table of shape {tuple(shape)}, but fit needs one array for each client: pass a list such as "
            "[X_a, X_b]."
        )
    if isinstance(X, Mapping):
        raise DataError(
            f"X is of type {type(X).__name__}, but fit needs one array for each client: pass list(X.values())."
        )
    if not isinstance(X, Iterable) or isinstance(X, str | bytes):
        raise DataError(
            f"X is of type {type(X).__name__}, but fit needs one array for each client: pass a list such as [X_a, X_b]."
        )
    return list(X)


def _validated_labels(
    y: Sequence[ArrayLike] | None, parts: Sequence[Array], config: Run
) -> list[NDArray[np.int64]] | None:
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
            "labels were given for the evaluation, but n_classes does not say how many classes there are, which must "
            "be public: give n_classes=3, or leave y out."
        )
    if not isinstance(y, Iterable) or isinstance(y, str | bytes | Mapping) or len(listed := list(y)) != len(parts):
        raise DataError(f"y must have one array of labels for each of the {len(parts)} clients: pass a list of arrays.")
    labels = []
    for index, (own, part) in enumerate(zip(listed, parts, strict=True)):
        try:
            labels.append(validate_labels(own, len(part), config.n_classes))
        except DataError as error:
            raise DataError(f"y[{index}]: {error}") from error
    return labels


def _names_of(tables: Sequence[ArrayLike]) -> tuple[str, ...]:
    """The first table's column names; either all tables have some or none has."""
    found = [frame_columns(table) for table in tables]
    if any(found) and not all(found):
        raise DataError(
            f"{sum(map(bool, found))} of {len(found)} tables in X have column names and the others have none, but "
            "columns are matched by name: give data frames only, or arrays only."
        )
    if not any(found):
        _require_same_labels(tables)
    return found[0]


def _require_same_labels(tables: Sequence[ArrayLike]) -> None:
    """Refuse frames whose columns are labelled, but not by text, in different ways: positions would be wrong."""
    labels = {index: list(table.columns) for index, table in enumerate(tables) if hasattr(table, "columns")}
    first = min(labels, default=0)
    for index, own in labels.items():
        if len(own) == len(labels[first]) and own != labels[first]:
            raise DataError(
                f"X[{index}]: the columns are {listed(map(repr, own))}, but those of X[{first}] are "
                f"{listed(map(repr, labels[first]))}: put them in the same order, or make the names text, as in "
                "frame.columns.astype(str)."
            )


def _validated(part: ArrayLike, names: tuple[str, ...], index: int) -> Array:
    """One client's table; a sentence about it begins with its place in X."""
    try:
        return validate_columns(part, names)
    except DataError as error:
        raise DataError(f"X[{index}]: {error}") from error


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
        Public bounds of the columns; not looked at for columns of categories.
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
        Public number of rows; None: the total of the parts.

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
    >>> model = FederatedNaiveBayes(2, epsilon=2.0, bounds=(-4, 4)).fit(parts, labels)
    >>> model.score(parts[0], labels[0]) > 0.9, model.privacy_.is_private
    (True, True)
    """

    def __init__(
        self,
        n_classes: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Any = None,
        categories: Sequence[int] | None = None,
        smoothing: float = 1.0,
        trust: str | None = None,
        noise: str = "secure",
        random_state: int | None = None,
        engine: str = "inprocess",
        n_examples: int | str | None = None,
    ) -> None:
        self.n_classes = n_classes
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.categories = categories
        self.smoothing = smoothing
        self.trust = trust
        self.noise = noise
        self.random_state = random_state
        self.engine = engine
        self.n_examples = n_examples

    def fit(self, X: Sequence[ArrayLike], y: Sequence[ArrayLike]) -> FederatedNaiveBayes:
        """Learn from the parties' rows together.

        Parameters
        ----------
        X : sequence of array-like, (n_i, n_features)
            One table for each party.
        y : sequence of array-like of int, (n_i,)
            Their labels, from 0 to ``n_classes - 1``.

        Returns
        -------
        FederatedNaiveBayes
            Itself.
        """
        coded = None if self.categories is None else tuple(self.categories)
        options = NaiveBayesOptions(self.n_classes, coded, self.smoothing)
        if y is None:
            raise DataError("y is None, but naive Bayes learns from labels: pass one array for each party.")
        found = federate(
            NaiveBayes(options=options),
            X,
            bounds=self._bounds(options),
            labels=y,
            engine=self.engine,
            n_examples=self.n_examples,
            epsilon=self.epsilon,
            delta=self.delta,
            trust=self.trust,
            noise=self.noise,
            random_state=self.random_state,
        )
        arrays = found.result.arrays
        self._found, self.privacy_, self.classes_ = found, found.privacy, np.arange(options.classes)
        self.class_prior_ = arrays["class_prior"]
        self.theta_, self.var_, self.chances_ = (arrays.get(name) for name in ("theta", "var", "chances"))
        self.n_features_in_ = found.plan.n_features
        if found.columns:
            self.feature_names_in_ = np.array(found.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
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
        points = validate_columns(X, self._found.columns)
        if points.shape[1] != self.n_features_in_:
            raise DataError(f"X has {points.shape[1]} features, but the model was fitted to {self.n_features_in_}.")
        task = self._found.plan.task
        assert isinstance(task, NaiveBayes)
        bounds = Bounds(*self._found.plan.bounds).for_features(points.shape[1])
        return task.log_joint(self._found.state, round_to_grid(bounds.scale(points)))

    def _bounds(self, options: NaiveBayesOptions) -> Any:
        """Bounds as given, with those that follow from the categories."""
        categories = options.categories or ()
        lacking = self.bounds is None and not all(categories)
        if not any(categories) or lacking or isinstance(self.bounds, str | Path | PrivateBounds):
            return self.bounds
        given = (0.0, 1.0) if self.bounds is None and all(categories) else self.bounds
        sides = [np.broadcast_to(np.asarray(side, dtype=float), len(categories)) for side in given]
        lower, upper = (
            [float(other if n else value) for n, value, other in zip(categories, side, coded, strict=True)]
            for side, coded in zip(sides, ([0] * len(sides[0]), [n - 1 for n in categories]), strict=True)
        )
        return lower, upper
