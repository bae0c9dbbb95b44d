"""What estimators of parties' columns have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget, CountedFits
from flwr_dpkmeans.estimators.federate import federate_tables
from flwr_dpkmeans.estimators.fitted_persons import stated_persons, taken_apart
from flwr_dpkmeans.estimators.inputs import PartyTables
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.refusals import require_no_others
from flwr_dpkmeans.estimators.table_lists import name_columns
from flwr_dpkmeans.options import Seed, unknown_argument
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.task import Task


@dataclass(eq=False, repr=False, kw_only=True)
class StatisticOfColumns(
    CountedFits,
    BaseEstimator,  # type: ignore[misc]
):
    """A private statistic of parties' columns, by scikit-learn's conventions.

    Its parameters are those of every run, as in `FederatedKMeans`.
    """

    epsilon: float = 1.0
    delta: float | None = None
    bounds: object = None
    unit: str = "record"
    trust: str | None = None
    noise: str = "secure"
    random_state: Seed = None
    engine: str = "inprocess"
    n_examples: int | str | None = None

    def __new__(cls, *_: object, **arguments: object) -> Self:
        """Say of an unknown argument which one is meant; all others are the fields."""
        names = cls._get_param_names()
        for name in arguments.keys() - set(names):
            raise unknown_argument(name, arguments[name], names)
        return object.__new__(cls)

    def _task(self) -> Task:
        """What is released, with its options."""
        raise NotImplementedError

    def _take(self, run: Federated) -> None:
        """Set the attributes that are found."""
        raise NotImplementedError

    def fit(
        self,
        X: PartyTables,
        y: object = None,
        *,
        groups: ArrayLike | None = None,
        persons: object = None,
        budget: Budget | None = None,
        **unknown: object,
    ) -> Self:
        """Learn from the parties' rows, (n_i, n_features); `y` is not looked at.

        A list, or a mapping by the parties' names. With `groups`, (n,), the party of
        each row, `X` is one table of all rows, (n, n_features). `persons` are as in
        `FederatedKMeans.fit`: then all rows of a person at one party are protected. The
        fit is charged to the `budget`.
        """
        require_no_others(unknown)
        schema = schema_of(self.bounds)
        argument = "parts" if groups is None else "X"
        X, ids = taken_apart(
            X,
            stated_persons(persons, schema, self.unit),
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
        run = federate_tables(
            self._task(),
            tables,
            self.bounds,
            engine=self.engine,
            n_examples=self.n_examples,
            budget=budget,
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            trust=self.trust,
            noise=self.noise,
            random_state=self.random_state,
        )
        self.n_features_in_ = run.plan.n_features or 0
        name_columns(self, run.columns)
        self.schema_ = schema
        self._columns = run.labels
        self.privacy_ = run.privacy
        self.values_ = run.values
        self._take(run)
        return self
