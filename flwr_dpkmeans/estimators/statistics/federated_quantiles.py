"""`FederatedQuantiles`: medians and other quantiles of several parties' columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature

import numpy as np
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans.algorithms.statistics.quantiles.quantiles_task import (
    QuantilesOptions,
    QuantilesTask,
)
from flwr_dpkmeans.estimators.statistics.of_columns import StatisticOfColumns
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.round import Array


@dataclass(eq=False, repr=False)
class FederatedQuantiles(StatisticOfColumns):
    """Quantiles of each column of several parties' rows, medians among them.

    One masked and noised sum is released: of each half of a column's bounds, each half
    of these and so on, how many rows more are in its lower than in its upper half. The
    rank of a quantile is off by about ``halvings * noise * sqrt(n_features / 12)``
    rows, where ``noise`` is that of one count (3.7 at epsilon 1 and delta 1e-6). Wide
    bounds cost little: ten times as wide ones take three or four halvings more.

    Parameters
    ----------
    quantiles : sequence of float
        Levels strictly between 0 and 1. Others follow from the fit at no cost, see
        `quantile`.
    halvings : int
        How often the bounds are halved. Within 1/2^halvings of their width nothing is
        known of where rows are.
    epsilon, delta, bounds, unit, trust, noise, random_state, engine, n_examples
        As in `FederatedNaiveBayes`. With ``unit="client"`` quantiles are those of a
        distribution in which each client counts as much as any other one.

    Attributes
    ----------
    quantiles_ : ndarray, (n_features, n_quantiles)
        In the caller's units; those of a column never fall.
    lower_, upper_ : ndarray, (n_features, n_quantiles)
        Ends of 95% intervals for the quantiles of all parties' rows.
    quantiles_error_ : ndarray, (n_features, n_quantiles)
        The longer side of the interval.
    values_ : Values
        All of these with names, to be printed, or ``values_.frame()``.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> parts = [generator.exponential(3.0, (5000, 1)) for _ in range(2)]
    >>> model = FederatedQuantiles(epsilon=1.0, bounds=(0, 100)).fit(parts)
    >>> median = np.median(np.concatenate(parts))
    >>> bool(abs(model.quantiles_[0, 1] - median) < 0.3), model.quantile(0.9).shape
    (True, (1, 1))
    """

    quantiles: Sequence[float] = (0.25, 0.5, 0.75)
    halvings: int = 10

    def _task(self) -> QuantilesTask:
        options = QuantilesOptions(halvings=self.halvings)
        return QuantilesTask(options=options.set_params(quantiles=self.quantiles))

    def _take(self, run: Federated) -> None:
        task = run.plan.task
        assert isinstance(task, QuantilesTask)
        self._distributions = task.distributions(run.plan, run.state)
        self.quantiles_ = run["quantiles"]
        self.lower_ = run["lower"]
        self.upper_ = run["upper"]
        self.quantiles_error_ = run.errors["quantiles"]

    def quantile(self, levels: float | Sequence[float]) -> Array:
        """Quantiles of other levels, (n_features, n_levels), at no cost of privacy."""
        check_is_fitted(self, "quantiles_")
        wanted = np.atleast_1d(levels).tolist()
        checked = QuantilesOptions(tuple(wanted)).levels
        by_column = [
            [column.quantile(level).estimate for level in checked]
            for column in self._distributions
        ]
        return np.array(by_column)


# What editors show: the fields, not what `__new__` takes.
_fields = FederatedQuantiles().__init__  # type: ignore[misc]
FederatedQuantiles.__signature__ = signature(_fields)
