"""Naive Bayes classifiers: `FederatedNaiveBayes` of several parties, `DPNaiveBayes`.

The latter learns from one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from flwr_dpkmeans import options as run_options
from flwr_dpkmeans.algorithms.statistics.class_columns import Columns
from flwr_dpkmeans.algorithms.statistics.naive_bayes import (
    NaiveBayesOptions,
    NaiveBayesTask,
)
from flwr_dpkmeans.data.bounds.stated_bounds import doubtful_pairs, read_ranges
from flwr_dpkmeans.data.classes import distinct_labels
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.row_labels import in_order_of, row_labels
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import ConfigurationError, DataError, InputWarning, warn
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget, CountedFits
from flwr_dpkmeans.estimators.federate import federate_tables
from flwr_dpkmeans.estimators.fitted import CURATED, ordered
from flwr_dpkmeans.estimators.fitted_persons import stated_persons, taken_apart
from flwr_dpkmeans.estimators.inputs import Answer, PartyLabels, PartyTables
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.refusals import (
    require_declared,
    require_no_others,
    require_rows,
)
from flwr_dpkmeans.estimators.table_lists import n_rows_of, name_columns, tables_in
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.results.values import Values
from flwr_dpkmeans.sums.round import Array, State

if TYPE_CHECKING:
    from sklearn.utils import Tags

AXES = {
    "class_prior": ("class",),
    "theta": ("class", "number"),
    "var": ("class", "number"),
    "chances": ("class", "category"),
}
"""What is learnt, and what the axes of each array count."""
_RUN = ("epsilon", "delta", "noise", "random_state", "n_examples", "max_weight")


@dataclass(eq=False, repr=False)
class _NaiveBayesClassifier(
    CountedFits,
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A fit of naive Bayes, and what scikit-learn's classifiers do with it."""

    n_classes: int | None = None
    _: KW_ONLY
    classes: Sequence[object] | None = None
    epsilon: float = 1.0
    delta: float | None = None
    bounds: object = None
    categories: Sequence[int] | None = None
    smoothing: float = 1.0
    noise: str = "secure"
    random_state: run_options.Seed = None
    n_examples: int | str | None = None
    max_weight: float | None = None

    def __new__(cls, *_: object, **arguments: object) -> Self:
        """Say of an unknown argument which one is meant; all others are the fields."""
        names = cls._get_param_names()
        for name in arguments.keys() - set(names):
            raise run_options.unknown_argument(name, arguments[name], names)
        return object.__new__(cls)

    def predict(self, X: ArrayLike) -> Answer:
        """The likeliest class of each row, (n_rows,), as `classes_` has it.

        Local, costs no privacy.
        """
        likeliest = np.argmax(self._log_joint(X), axis=1)
        return np.asarray(self.classes_[likeliest])

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithm of `predict_proba`."""
        joint = self._log_joint(X)
        joint -= joint.max(axis=1, keepdims=True)
        total = np.exp(joint).sum(axis=1, keepdims=True)
        return np.asarray(joint - np.log(total))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class, (n_rows, n_classes), in the order of `classes_`.

        Local, costs no privacy.
        """
        logarithms = self.predict_log_proba(X)
        return np.asarray(np.exp(logarithms))

    def score(
        self,
        X: PartyTables,
        y: PartyLabels,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Share of rows whose class is `y`, (n_rows,); local.

        With weights, (n_rows,), if there are some. `X` and `y` are of one table, or of
        parties as `fit` takes them in memory: then there are no weights.
        """
        tables = tables_in(X)
        if tables is None:
            return self._table_score(X, y, sample_weight)
        if sample_weight is not None:
            raise ConfigurationError(
                "sample_weight was given for parties' tables: give one table, or leave"
                " it out."
            )
        labels = list(y)
        if isinstance(X, Mapping):
            labels = [y[name] for name in X]
        n_hits = 0.0
        n_rows = 0
        for table, table_labels in zip(tables, labels, strict=True):
            n_table_rows = n_rows_of(table)
            if n_table_rows == 0:
                continue
            share = self._table_score(table, table_labels, None)
            n_hits += share * n_table_rows
            n_rows += n_table_rows
        return float(n_hits / n_rows)

    @property
    def values_(self) -> Values:
        """All that was learnt, with names and errors, to be printed or as a frame."""
        check_is_fitted(self, "classes_")
        arrays: dict[str, Array] = {}
        errors: dict[str, Array] = {}
        for name in AXES:
            array = getattr(self, f"{name}_")
            if array is not None:
                arrays[name] = array
                errors[name] = getattr(self, f"{name}_error_")
        feature_names = list(getattr(self, "feature_names_in_", ()))
        columns = self._task.columns(self.n_features_in_)
        class_names = list(map(str, self.classes_))
        names = {"class": class_names, **columns.names(feature_names)}
        title = (
            f"naive Bayes of {len(self.classes_)} classes, epsilon"
            f" {self.privacy_.epsilon:.4g}"
        )
        return Values.of(
            title,
            arrays,
            errors,
            AXES,
            names,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        repeats = self.noise == "seeded" and self.random_state is not None
        tags.non_deterministic = not repeats
        return tags

    def _learn(
        self,
        tables: Tables,
        y: PartyLabels | None,
        federation: Mapping[str, object],
    ) -> Federated:
        """Learn from tables and labels.

        `federation` holds options of the run that the constructor did not take.
        """
        names, is_stated = self._class_names(y)
        categories: Any = self.categories
        if categories is not None:
            categories = list(categories)
        options = NaiveBayesOptions(len(names), categories, self.smoothing)
        _require_codes(tables, options)
        bounds = self._bounds(options)
        run: dict[str, Any] = {name: getattr(self, name) for name in _RUN}
        run |= federation
        self._task = NaiveBayesTask(options=options)
        are_numbers = self.classes is None and is_stated
        # Numbers from 0 on have a sentence of their own.
        run["class_names"] = [] if are_numbers else names.tolist()
        result = federate_tables(
            self._task,
            tables,
            bounds,
            y,
            **run,
        )
        self._set_result(result, names, is_stated=is_stated)
        return result

    def _set_result(
        self,
        run: Federated,
        names: Answer,
        *,
        is_stated: bool,
    ) -> None:
        """Set what predicts, and no more: a plan is of one run."""
        arrays = run.result.arrays
        errors = run.errors
        self.classes_ = names
        self.class_prior_ = arrays["class_prior"]
        self.theta_ = arrays.get("theta")
        self.var_ = arrays.get("var")
        self.chances_ = arrays.get("chances")
        self.class_prior_error_ = errors["class_prior"]
        self.theta_error_ = errors.get("theta")
        self.var_error_ = errors.get("var")
        self.chances_error_ = errors.get("chances")
        self.n_features_in_ = run.plan.n_features or 0
        self._columns = run.labels
        name_columns(self, run.columns)
        self._box = run.plan.bounds
        self._released = dict(run.state.arrays)
        self.privacy_ = run.privacy
        if not is_stated:
            quoted = map(repr, names.tolist())
            listed_names = ", ".join(quoted)
            assumption = report_sentence("classes_of_labels", names=listed_names)
            assumptions = (*run.privacy.assumptions, assumption)
            self.privacy_ = replace(run.privacy, assumptions=assumptions)

    def _class_names(self, y: PartyLabels | None) -> tuple[Answer, bool]:
        """The classes in order, and whether they were stated or are those of labels."""
        if y is None:
            raise DataError(
                "y is None, but naive Bayes learns from labels: pass one array for each"
                " party (it requires y to be passed, but the target y is None)."
            )
        if self.classes is not None:
            names = distinct_labels(list(self.classes))
            n_names = len(names)
            if self.n_classes not in (None, n_names):
                raise ConfigurationError(
                    f"n_classes is {self.n_classes}, but classes has {n_names}:"
                    " leave n_classes out."
                )
            return names, True
        if self.n_classes is not None:
            # Its own rule refuses what is no number of classes.
            n_classes = NaiveBayesOptions(self.n_classes).classes
            return np.arange(n_classes), True
        names = distinct_labels(y)
        check_classification_targets(names)
        if len(names) < 2:
            raise DataError(
                f"y has {len(names)} class, but naive Bayes needs at least 2: state"
                " them, as classes=('no', 'yes')."
            )
        return names, False

    def _table_score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
    ) -> float:
        """Share of one table's rows."""
        index = row_labels(X)
        classes = in_order_of(index, y, "y")
        weights = in_order_of(index, sample_weight, "sample_weight")
        return float(super().score(X, classes, weights))

    def _log_joint(self, X: ArrayLike) -> Array:
        """Weight of each class for each row, whose values are clipped to the bounds."""
        check_is_fitted(self, "classes_")
        require_rows(X)
        points, encoded = ordered(self, X)
        if encoded is not None and encoded.n_rows > len(points):
            n_left = encoded.n_rows - len(points)
            raise DataError(
                f"{n_left} of {encoded.n_rows} rows lack what the schema needs: fill it"
                " in, or drop them."
            )
        n_features = points.shape[1]
        self._task.columns(n_features).require_codes(points)
        bounds = Bounds(*self._box).for_features(n_features)
        scaled = round_to_grid(bounds.scale(points))
        return self._task.log_joint(State(self._released), scaled)

    def _bounds(self, options: NaiveBayesOptions) -> object:
        """Bounds as stated, with those that follow from the categories."""
        categories = options.categories or ()
        if not any(categories):
            return self.bounds
        if self.bounds is None and not all(categories):
            return None
        if not isinstance(self.bounds, tuple | list | np.ndarray | None):
            return self.bounds
        doubt = doubtful_pairs(self.bounds)
        if doubt:
            warn([doubt], InputWarning)
        n_codes = np.asarray(categories)
        has_codes = n_codes > 0
        stated_pairs = (0.0, 1.0) if self.bounds is None else self.bounds
        stated = read_ranges(stated_pairs)
        ranges = Bounds(stated.lower, stated.upper).for_features(len(n_codes))
        largest_code = n_codes - 1.0
        lower = np.where(has_codes, 0.0, ranges.lower).tolist()
        upper = np.where(has_codes, largest_code, ranges.upper).tolist()
        return Bounds(tuple(lower), tuple(upper))


class DPNaiveBayes(_NaiveBayesClassifier):
    """Differentially private naive Bayes of one table.

    Its holder draws the noise and publishes the model.

    Releases, proofs and report are those of `FederatedNaiveBayes` under the trust model
    ``curator``, without masks.

    Parameters
    ----------
    n_classes, classes, epsilon, delta, bounds, categories, smoothing, noise, \
    random_state, n_examples, max_weight
        As in `FederatedNaiveBayes`.

    Notes
    -----
    Attributes are those of `FederatedNaiveBayes`. What a ``StandardScaler``
    before it in a pipeline learns is exact and covered by no noise; scales do not
    matter here.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> labels = generator.choice(["ill", "well"], 2000)
    >>> rows = generator.normal(np.where(labels == "ill", 39.0, 36.8)[:, None], 0.4)
    >>> model = DPNaiveBayes(classes=["ill", "well"], epsilon=1.0, bounds=(35, 42))
    >>> model = model.fit(rows, labels)
    >>> model.predict([[36.5], [39.5]]).tolist(), model.privacy_.trust
    (['well', 'ill'], 'curator')
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        persons: ArrayLike | str | None = None,
        budget: Budget | None = None,
        **unknown: object,
    ) -> Self:
        """Learn from the rows of a table, (n, n_features), and their classes, (n,).

        `sample_weight`, (n,), is what each row weighs. `persons`, ids, (n,), or the
        name of a column, say whose row each is: then all rows of a person are
        protected. The fit is charged to the `budget`.
        """
        require_no_others(unknown)
        schema = schema_of(self.bounds)
        tables = Tables.alone(X, schema, persons)
        tables = tables.with_weights(sample_weight, self.max_weight)
        require_declared(self.n_examples, tables.total)
        self.schema_ = schema
        federation = CURATED | {"engine": "direct", "budget": budget}
        self._learn(tables, _one_column(y), federation)
        self.privacy_ = replace(self.privacy_, n_clients=1)
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedNaiveBayes(_NaiveBayesClassifier):
    """Differentially private naive Bayes over several parties' labelled rows.

    Numbers are Gaussian in each class; columns of categories have a table. One masked
    and noised sum is all that is released: rows, sums and squares by class, and rows by
    class and category.

    Parameters
    ----------
    n_classes : int, optional
        Public number of classes, where labels are 0 to one less.
    classes : sequence, optional
        Public names of the classes, texts or numbers. Without both, the classes are
        those that occur in ``y``, and the report assumes that they are public: a class
        of one row tells of it.
    epsilon, delta : float
        Total of the run; None: delta is 1/(N ln N).
    bounds : pair
        Public bounds of the columns; pairs are not looked at for those of categories.
    categories : sequence of int, optional
        For each column how many categories it has, coded 0, 1, ...; 0 for numbers.
        None: numbers only.
    smoothing : float
        Laplace smoothing: rows added to each class and category.
    unit : str
        ``"record"``, or ``"client"`` where a client's whole table is protected: each
        client then counts as much as any other one.
    trust, noise : str
        As in `FederatedKMeans`.
    random_state : int, RandomState or Generator, optional
        Seed of seeded noise; secure noise is drawn anew whatever it is.
    engine : str
        ``"inprocess"`` or ``"direct"``.
    n_examples : int or "private", optional
        Public number of rows; None: the total of the parts, or a private count where a
        schema drops rows.
    max_weight : float, optional
        Public maximum of a row's ``sample_weight``: a row of this weight counts as one,
        also in `smoothing`.

    Attributes
    ----------
    classes_ : ndarray, (n_classes,)
        The classes, sorted.
    class_prior_ : ndarray, (n_classes,)
    theta_, var_ : ndarray, (n_classes, n_numbers)
        Means and variances of the columns of numbers, in the caller's units; None
        without such columns.
    chances_ : ndarray, (n_classes, n_categories in all), or None
        Of the columns of categories, one after the other.
    class_prior_error_, theta_error_, var_error_, chances_error_ : ndarray or None
        How far noise may have moved each of them: half of a 95% interval (of variances
        at most).
    values_ : Values
        All of these with names and errors, to be printed, or ``values_.frame()``.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> labels = [generator.choice(["a", "b"], 500) for _ in range(3)]
    >>> means = [np.where(classes == "a", -1.0, 1.0)[:, None] for classes in labels]
    >>> parts = [generator.normal(mean, 0.5, (500, 2)) for mean in means]
    >>> model = FederatedNaiveBayes(classes=["a", "b"], epsilon=8.0, bounds=(-4, 4))
    >>> model = model.fit(parts, labels)
    >>> model.score(parts[0], labels[0]) > 0.9, model.privacy_.is_private
    (True, True)
    """

    unit: str = "record"
    trust: str | None = None
    engine: str = "inprocess"

    def fit(
        self,
        X: PartyTables,
        y: PartyLabels | None = None,
        sample_weight: object = None,
        *,
        groups: ArrayLike | None = None,
        persons: object = None,
        budget: Budget | None = None,
        **unknown: object,
    ) -> Self:
        """Learn from the parties' rows, (n_i, n_features), and their classes, (n_i,).

        Each is a list, or a mapping by the parties' names. With `groups`, (n,), the
        party of each row, `X` is one table of all rows, (n, n_features), and `y` is
        (n,), as scikit-learn's pipelines and searches have them. `sample_weight` and
        `persons` are as in `FederatedKMeans.fit`: then all rows of a person at one
        party are protected. The fit is charged to the `budget`.
        """
        require_no_others(unknown)
        schema = schema_of(self.bounds)
        argument = "parts" if groups is None else "X"
        X, ids = taken_apart(
            X,
            stated_persons(persons, schema),
            argument,
            schema=schema,
            is_one_table=groups is not None,
        )
        tables = Tables.of(
            X,
            argument,
            groups=groups,
            schema=schema,
        ).with_persons(ids)
        tables = tables.with_weights(sample_weight, self.max_weight)
        self.schema_ = schema
        labels = y if groups is None else _one_column(y)
        federation = {
            "unit": self.unit,
            "trust": self.trust,
            "engine": self.engine,
            "budget": budget,
        }
        self._learn(tables, labels, federation)
        return self


# What editors show: the fields, not what `__new__` takes.
for _kind in (FederatedNaiveBayes, DPNaiveBayes):
    _kind.__signature__ = signature(_kind().__init__)  # type: ignore[misc]


def _one_column(y: PartyLabels | None) -> PartyLabels | None:
    """Labels of one table as one column, as scikit-learn takes them."""
    n_dimensions = getattr(y, "ndim", 1)
    if n_dimensions == 2:
        return column_or_1d(y, warn=True)
    return y


def _require_codes(tables: Tables, options: NaiveBayesOptions) -> None:
    """Refuse tables with a category that there is not."""
    categories = options.categories
    n_features = tables.parts[0].shape[1]
    if not categories or n_features != len(categories):
        return
    columns = Columns(tuple(categories))
    for table in tables.parts:
        columns.require_codes(table)
