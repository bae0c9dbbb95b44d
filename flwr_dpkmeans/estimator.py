"""`FederatedKMeans`: the whole federation in one process, with scikit-learn's conventions."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans.config import KMeansConfig, parse_config
from flwr_dpkmeans.data.bounds import Bounds, bounds_feature_names, parse_bounds
from flwr_dpkmeans.data.tables import validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from flwr_dpkmeans.flower.client import KMeansClient
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.inprocess import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.node import NodeSettings
from flwr_dpkmeans.flower.strategy import KMeansResult, PrivateKMeans
from flwr_dpkmeans.kmeans.assignment import nearest_centroids
from flwr_dpkmeans.privacy.ledger import MemoryLedger
from flwr_dpkmeans.privacy.policy import ClientPolicy
from flwr_dpkmeans.privacy.report import PrivacyReport

logger = logging.getLogger("flwr_dpkmeans.estimator")

ENGINES = ("inprocess",)


class FederatedKMeans(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Differentially private k-means over several parties' data.

    All parties are simulated in this process, but everything else is real: the same strategy, ClientApp,
    secure-aggregation mod, masks and noise as in a deployment.

    Parameters
    ----------
    n_clusters : int
        k.
    algorithm : str
        ``"fastlloyd"``, ``"glloyd"``, ``"sulloyd"`` or ``"lloyd"`` (not private).
    epsilon : float
        Total over the run.
    delta : float, optional
        None: 1/(N ln N).
    unit : str
        ``"record"``: neighbouring data sets differ in one row.
    trust : str
        ``"oblivious"``, ``"central"`` or ``"distributed"``.
    bounds : pair
        Public bounds of the data: numbers, or one sequence of lower and one of upper bounds. Never computed from data.
    noise : str
        ``"secure"``, or ``"seeded"`` for repeatable experiments that protect nobody.
    random_state : int, optional
        Seed of the public start (and of seeded noise).
    max_iter : int, optional
        Overrides the algorithm's number of iterations.
    server_data : array-like, optional
        For algorithms that start from the server's own points; none of the present ones does.
    engine : str
        ``"inprocess"``.
    n_examples : int, optional
        Public number of rows; None: the total of the parts, listed in the report as declared public.
    alpha, schedule, post_processing, radius_clipping, packing
        FastLloyd's options, see `flwr_dpkmeans.config.KMeansConfig`.

    Attributes
    ----------
    cluster_centers_ : ndarray, (n_clusters, n_features)
        In the caller's units.
    cluster_counts_ : ndarray, (n_clusters,)
        Noisy counts of the last release.
    privacy_ : PrivacyReport
        Cost, guarantee, every release.
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        One entry for each aggregation: round, epsilon so far, noise, radius, largest movement (scaled units).
    n_features_in_ : int
        d.

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
        n_clusters: int = 8,
        *,
        algorithm: str = "fastlloyd",
        epsilon: float = 1.0,
        delta: float | None = None,
        unit: str = "record",
        trust: str = "oblivious",
        bounds: Any = (-1.0, 1.0),
        noise: str = "secure",
        random_state: int | None = None,
        max_iter: int | None = None,
        server_data: ArrayLike | None = None,
        engine: str = "inprocess",
        n_examples: int | None = None,
        alpha: float = 0.8,
        schedule: str = "step",
        post_processing: str | None = None,
        radius_clipping: bool = True,
        packing: str = "bisect",
    ) -> None:
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
        self.alpha = alpha
        self.schedule = schedule
        self.post_processing = post_processing
        self.radius_clipping = radius_clipping
        self.packing = packing

    def fit(self, X: Sequence[ArrayLike], y: object = None) -> FederatedKMeans:
        """Cluster the parties' data together.

        Parameters
        ----------
        X : sequence of array-like
            One array for each client, (n_i, n_features); at least two clients, some of which may be empty.
        y : ignored

        Returns
        -------
        FederatedKMeans
            Itself.

        Raises
        ------
        ConfigurationError, DataError, PlanError, BudgetError
            One sentence, before anything is computed.
        """
        del y
        parts = self._validated_parts(X)
        config = self._config(parts)
        clients = [KMeansClient(part) for part in parts]
        grid = InProcessGrid([_node(client) for client in clients], run_id=secrets.randbits(62))
        strategy = PrivateKMeans.from_config(config, on_step=lambda step: logger.debug("%s", step))
        with grid.running():
            result = strategy.start(grid)
        self._take(clients[0], result)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Index of the nearest centroid of each row in the caller's units; local, costs no privacy.

        With bounds of very different widths this is another distance than the clustering's own, which is in the
        scaled box: scale the features alike before, if that matters.

        Parameters
        ----------
        X : array-like, (n_examples, n_features)

        Returns
        -------
        ndarray of int, (n_examples,)
        """
        labels, _ = self._nearest(X)
        return np.asarray(labels, dtype=np.int64)

    def fit_predict(self, X: Sequence[ArrayLike], y: object = None, **kwargs: Any) -> list[NDArray[np.int64]]:
        """Fit and predict: one array of labels for each client."""
        del kwargs
        parts = _listed(X)
        self.fit(parts, y)
        return [self.predict(part) for part in parts]

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Euclidean distance of each row to each centroid; local, costs no privacy.

        Parameters
        ----------
        X : array-like, (n_examples, n_features)

        Returns
        -------
        ndarray, (n_examples, n_clusters)
        """
        check_is_fitted(self)
        points = validate_points(X, self.n_features_in_)
        columns = [np.linalg.norm(points - center, axis=1) for center in self.cluster_centers_]
        return np.asarray(np.stack(columns, axis=1))

    def fit_transform(self, X: Sequence[ArrayLike], y: object = None, **kwargs: Any) -> list[NDArray[np.float64]]:
        """Fit and transform: one array of distances for each client."""
        del kwargs
        parts = _listed(X)
        self.fit(parts, y)
        return [self.transform(part) for part in parts]

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest centroid, as in scikit-learn's KMeans; local.

        Parameters
        ----------
        X : array-like, (n_examples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        del y
        _, distances = self._nearest(X)
        return -float(distances.sum())

    def _nearest(self, X: ArrayLike) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Nearest centroids of rows in the caller's units."""
        check_is_fitted(self)
        points, centers = validate_points(X, self.n_features_in_), self.cluster_centers_
        # Squared norms of data far from the origin, or of tiny data, would drown the distances in rounding errors.
        middle = centers.mean(axis=0)
        exponent = math.frexp(float(np.abs(centers - middle).max()))[1]
        labels, _ = nearest_centroids(np.ldexp(points - middle, -exponent), np.ldexp(centers - middle, -exponent))
        return labels, np.asarray(np.square(points - centers[labels]).sum(axis=1))

    def _validated_parts(self, X: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
        """The one border where the caller's arrays are checked."""
        listed = _listed(X)
        if len(listed) < 2:
            raise DataError(
                f"X has {len(listed)} client(s), but masks need at least 2: pass one array for each of two or more "
                "clients."
            )
        parts = [_validated(part, index) for index, part in enumerate(listed)]
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataError(f"the clients' arrays have {widths} features, but all need the same columns.")
        total = sum(len(part) for part in parts)
        k = self.n_clusters
        if isinstance(k, int) and not isinstance(k, bool) and total < k:
            raise DataError(
                f"all clients together have {total} rows, but {k} clusters need at least as many: choose fewer "
                "clusters or add data."
            )
        return parts

    def _config(self, parts: Sequence[NDArray[np.float64]]) -> KMeansConfig:
        """The validated configuration of this fit."""
        if self.engine not in ENGINES:
            raise ConfigurationError(f"engine is {self.engine!r}, which is not known: {nearest(self.engine, ENGINES)}")
        if self.server_data is not None:
            raise ConfigurationError(
                f"server_data was given, but {self.algorithm!r} starts without it: leave server_data out."
            )
        bounds: Bounds = parse_bounds(self.bounds)
        return parse_config(
            n_clusters=self.n_clusters,
            bounds=(bounds.lower, bounds.upper),
            algorithm=self.algorithm,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            trust=self.trust,
            noise=self.noise,
            n_examples=sum(len(part) for part in parts) if self.n_examples is None else self.n_examples,
            n_features=parts[0].shape[1],
            max_iter=self.max_iter,
            alpha=self.alpha,
            schedule=self.schedule,
            post_processing=self.post_processing,
            radius_clipping=self.radius_clipping,
            packing=self.packing,
            random_state=self.random_state,
            n_clients=len(parts),
            feature_names=bounds_feature_names(self.bounds),
        )

    def _take(self, client: KMeansClient, result: KMeansResult) -> None:
        """Take the result from a client: under ``oblivious`` the server has none."""
        self.cluster_centers_: NDArray[np.float64] = np.asarray(client.cluster_centers_)
        self.cluster_counts_: NDArray[np.float64] = np.asarray(client.counts_)
        self.privacy_: PrivacyReport = _present(client.privacy_)
        self.n_features_in_ = int(self.cluster_centers_.shape[1])
        self.n_iter_ = len(client.movements_)
        rounds = [step for step in result.steps if step.round_index > 0]
        self.history_ = [
            {
                "round": step.round_index,
                "epsilon": step.epsilon,
                "radius": step.radius,
                "movement": movement,
                **{f"noise_{name}": scale for name, scale in step.noise_scales},
            }
            for step, movement in zip(rounds, client.movements_, strict=True)
        ]


def _listed(X: Sequence[ArrayLike]) -> list[ArrayLike]:
    """The clients' tables as a list; one table for all is a mistake that has a sentence of its own."""
    shape = getattr(X, "shape", ())
    if len(shape) == 2:
        raise DataError(
            f"X is one table of shape {tuple(shape)}, but fit needs one array for each client: pass a list such as "
            "[X_a, X_b]."
        )
    if not isinstance(X, Iterable) or isinstance(X, str | bytes):
        raise DataError(
            f"X is of type {type(X).__name__}, but fit needs one array for each client: pass a list such as [X_a, X_b]."
        )
    return list(X)


def _validated(part: ArrayLike, index: int) -> NDArray[np.float64]:
    """One client's table; a sentence about it begins with its place in X."""
    try:
        return validate_points(part)
    except DataError as error:
        raise DataError(f"X[{index}]: {error}") from error


def _node(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    # All parties are the caller's own here, so only the plan's own limits apply.
    settings = NodeSettings(ClientPolicy(max_delta=0.5), MemoryLedger(), "default")

    def own_settings(_: Context) -> NodeSettings:
        return settings

    def own_client(_: Context) -> KMeansClient:
        return client

    return Node(client_app(own_client, mod=SecureAggregation(own_settings)))


def _present(report: PrivacyReport | None) -> PrivacyReport:
    """A report that a finished run always has."""
    if report is None:
        raise ConfigurationError("the run ended without a report: look at the log of flwr_dpkmeans.")
    return report
