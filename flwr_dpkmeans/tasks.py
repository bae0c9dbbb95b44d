"""Any task over several parties' tables in this process, and naive Bayes with scikit-learn's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans.algorithms.naive_bayes import NaiveBayes, NaiveBayesOptions
from flwr_dpkmeans.algorithms.server_points import resolve_bounds
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.tables import frame_columns, validate_columns, validate_labels
from flwr_dpkmeans.errors import ConfigurationError, DataError, PrivacyWarning, nearest
from flwr_dpkmeans.flower.engines import play_directly, play_inprocess
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.options import parse_run
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.task import Result, Task, task_class

Array = NDArray[np.float64]
_ENGINES = ("inprocess", "direct")


@dataclass(frozen=True)
class Federated:
    """What a task found.

    Parameters
    ----------
    plan : Plan
        The final one.
    state : State
        The last one, in the box [-1, 1]^d.
    privacy : PrivacyReport
        Cost, guarantee, every release.
    columns : tuple of str
        Names of the columns, where the tables have some.
    """

    plan: Plan = field(repr=False)
    state: State = field(repr=False)
    privacy: PrivacyReport = field(repr=False)
    columns: tuple[str, ...] = ()

    @property
    def result(self) -> Result:
        """What the task makes of the last state."""
        return self.plan.task.result(self.plan, self.state)

    def __getitem__(self, name: str) -> Array:
        return self.result[name]


def federate(
    task: str | Task,
    parts: Sequence[ArrayLike],
    *,
    bounds: Any,
    labels: Sequence[ArrayLike] | None = None,
    engine: str = "inprocess",
    n_examples: int | str | None = None,
    **options: Any,
) -> Federated:
    """Compute a private statistic over several parties' tables, all of them simulated in this process.

    Parameters
    ----------
    task : str or Task
        A registered name such as ``"moments"``, ``"histograms"``, ``"radii"`` or ``"naive_bayes"``, or a task with its
        options.
    parts : sequence of array-like, (n_i, n_features)
        One table for each party, at least two; data frames' columns are put in the first one's order.
    bounds : pair
        Public bounds of the columns; values outside are clipped.
    labels : sequence of array-like of int, (n_i,), optional
        Classes from 0 on, for a task that looks at labels.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same rounds without messages.
    n_examples : int or "private", optional
        Public number of rows; None: the total of the parts, listed in the report as declared public; "private": not
        public.
    **options
        Settings of a run by their flat names, such as ``epsilon``, ``trust`` or ``noise``, and options of a task that
        is given by its name.

    Returns
    -------
    Federated

    Raises
    ------
    ConfigurationError, DataError, PlanError, BudgetError
        One sentence, before anything is computed.

    Examples
    --------
    >>> tables = [np.full((300, 1), value) for value in (2.0, 4.0)]
    >>> found = federate("moments", tables, bounds=(0, 10), epsilon=8.0, noise="seeded", random_state=1)
    >>> found["mean"].round(), found.privacy.epsilon <= 8.0
    (array([3.]), True)
    """
    if engine not in _ENGINES:
        raise ConfigurationError(f"engine is {engine!r}, which is not known: {nearest(engine, _ENGINES)}")
    tables, names = _tables(parts)
    box, order, _ = resolve_bounds(bounds, None, None, names=names)
    if order != names:
        raise DataError("the bounds file names columns, but the tables have no names: give data frames.")
    values: dict[str, Any] = {**_options_of(task), **options, "bounds": (box.lower, box.upper), "feature_names": names}
    values |= {"n_features": tables[0].shape[1], "n_clients": len(tables)}
    values["n_examples"] = sum(map(len, tables)) if n_examples is None else n_examples
    values["n_examples"] = None if n_examples == "private" else values["n_examples"]
    run = parse_run(**values)
    classes = _classes(labels, tables, run.task.n_classes(run.settings))
    if engine == "direct":
        played, report = play_directly(run, tables, None, classes)
        found = Federated(played.plan, played.state, report, names)
    else:
        strategy, _, client = play_inprocess(run, tables, None, classes)
        if client.state_ is None or client.privacy_ is None:
            raise ConfigurationError("the run ended without a result: look at the log of flwr_dpkmeans.")
        found = Federated(strategy.run.plan, client.state_, client.privacy_, names)
    for sentence in found.privacy.warnings:
        warnings.warn(sentence, PrivacyWarning, stacklevel=2)
    return found


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
        if not any(categories):
            return self.bounds
        given = (0.0, 1.0) if self.bounds is None and all(categories) else self.bounds
        sides = [np.broadcast_to(np.asarray(side, dtype=float), len(categories)) for side in given]
        lower, upper = (
            [float(other if n else value) for n, value, other in zip(categories, side, coded, strict=True)]
            for side, coded in zip(sides, ([0] * len(sides[0]), [n - 1 for n in categories]), strict=True)
        )
        return lower, upper


def _options_of(task: str | Task) -> dict[str, Any]:
    """A task's name and options by their flat names."""
    if isinstance(task, str):
        task_class(task)
        return {"algorithm": task}
    if not isinstance(task, Task):
        raise ConfigurationError(f"task is {task!r}, but it must be a registered name or a Task: give 'moments'.")
    own = {name: getattr(task, name) for name in task.own_fields()}
    own |= {one.name: getattr(task.options, one.name) for one in fields(task.options)}
    return {"algorithm": task.name, **own}


def _tables(parts: Sequence[ArrayLike]) -> tuple[list[Array], tuple[str, ...]]:
    """The parties' tables with the first one's columns in its order."""
    if getattr(parts, "ndim", 0) == 2 or not isinstance(parts, Iterable) or isinstance(parts, str | bytes | Mapping):
        raise DataError("one table was given, but there is one for each party: pass a list such as [X_a, X_b].")
    listed = list(parts)
    if len(listed) < 2:
        raise DataError(f"there are {len(listed)} tables, but masks need at least 2 parties: pass one for each.")
    names = frame_columns(listed[0])
    if any(bool(frame_columns(one)) != bool(names) for one in listed):
        raise DataError("some tables have column names and others have none: give data frames only, or arrays only.")
    tables = [validate_columns(one, names) for one in listed]
    if len({table.shape[1] for table in tables}) > 1:
        raise DataError("the parties' tables differ in their number of columns, but all need the same ones.")
    return tables, names


def _classes(
    labels: Sequence[ArrayLike] | None, tables: Sequence[Array], n_classes: int
) -> list[NDArray[np.int64]] | None:
    """The parties' labels, which a task that looks at none must not be given."""
    if (labels is None) != (n_classes == 0):
        told = "none were given" if labels is None else "labels were given"
        wants = "looks at labels" if n_classes else "looks at no labels"
        raise DataError(f"this task {wants}, but {told}: pass one array for each party only where it does.")
    if labels is None:
        return None
    listed = list(labels)
    if len(listed) != len(tables):
        raise DataError(f"there are labels for {len(listed)} parties, but {len(tables)} tables: pass one for each.")
    return [validate_labels(own, len(table), n_classes) for own, table in zip(listed, tables, strict=True)]
