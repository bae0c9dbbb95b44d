"""`DPKMeans`: private k-means of one table, by scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Self

from numpy.typing import ArrayLike

from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import InputWarning, warn
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget
from flwr_dpkmeans.estimators.clustering import PrivateClustering
from flwr_dpkmeans.estimators.fitted import CURATED
from flwr_dpkmeans.estimators.fitted_persons import taken_apart
from flwr_dpkmeans.estimators.inputs import Answer
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.refusals import require_declared, require_no_others
from flwr_dpkmeans.options import FlatOptions
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.round import Array


class DPKMeans(PrivateClustering):
    """Differentially private k-means of one table.

    Its holder, a trusted curator, draws the noise and publishes.

    The algorithms, proofs and report of `FederatedKMeans` under the trust model
    ``curator``, without Flower and masks.

    Parameters
    ----------
    n_clusters, epsilon, bounds, delta, algorithm, noise, random_state, max_iter, \
    server_data, n_examples, evaluation, max_weight
        As in `FederatedKMeans`. Bounds are never computed from the table: state them,
        or choose ``"private"``. The number of rows is taken as public unless
        ``n_examples`` says otherwise.

    Notes
    -----
    Columns reach `fit` as they are. A ``StandardScaler`` before it in a pipeline
    keeps exact means and spreads of the rows, which no noise covers, and which travel
    with the pipeline: a schema's ``scale="standard"`` finds spreads privately, within
    the same budget.

    Attributes are those of `FederatedKMeans`, and all of them may be published: what
    exact rows say against the result is a Python warning only.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> people = generator.normal([[20, 60], [70, 80]], 5, (1000, 2, 2))
    >>> ages_and_weights = people.reshape(-1, 2)
    >>> model = DPKMeans(n_clusters=2, epsilon=1.0, bounds=(0, 100))
    >>> model = model.fit(ages_and_weights)
    >>> np.sort(model.cluster_centers_.round(-1), axis=0)
    array([[20., 60.],
           [70., 80.]])
    >>> model.privacy_.trust, model.privacy_.epsilon <= 1.0
    ('curator', True)
    """

    engine = "direct"

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
        """Cluster the rows of a table, (n, n_features).

        `y`, (n,), are labels for an evaluation. `sample_weight`, (n,), is what each row
        weighs, up to ``max_weight``. `persons`, ids, (n,), or the name of a column, say
        whose row each is: then all rows of a person are protected. The fit is charged
        to the `budget`.
        """
        require_no_others(unknown)
        tables = Tables.alone(X, schema_of(self.bounds), persons)
        tables = tables.with_weights(sample_weight, self.max_weight)
        warn(self._doubts(tables), InputWarning)
        self._fit(tables, y, budget)
        warn(self.privacy_.warnings)
        self._publish()
        return self

    def _publish(self) -> None:
        """Forget what exact rows say against the result.

        Whoever has the estimator, also as a pickle, may have all that stays in it.
        """
        report = replace(self.model_.privacy, n_clients=1)
        model = replace(self.model_, privacy=report)
        self._adopt(replace(self._result, report=report, model=model))

    def _config(
        self,
        options: FlatOptions,
        tables: Tables,
    ) -> tuple[RunConfig, Array | None]:
        """Validate as for several parties.

        What whoever reads exact sums would refuse later is refused now.
        """
        config, points = super()._config(options, tables)
        require_declared(config.settings.n_examples, tables.total)
        return config, points

    def _run_options(self) -> FlatOptions:
        """Name options as the same run of several parties does."""
        options = super()._run_options()
        if options["algorithm"] in tuple(NOT_FEDERATED):
            return options | {"unit": "record"}
        return options | CURATED

    def _by_table(
        self,
        X: ArrayLike,
        method: Callable[[ArrayLike], Answer],
        fit_options: Mapping[str, object],
    ) -> Answer:
        """Apply a method to the one table."""
        persons = fit_options.get("persons")
        X, _ = taken_apart(X, persons, schema=self.schema_, is_one_table=True)
        return method(X)


# What editors show: the fields, not what `__new__` takes.
_ARGUMENTS = signature(DPKMeans().__init__)  # type: ignore[misc]
DPKMeans.__signature__ = _ARGUMENTS
