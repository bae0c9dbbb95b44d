"""What fits cost, before any noise is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any as Untyped

from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.utils import _safe_indexing

from flwr_dpkmeans.algorithms.first_plan import first_plan
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.estimators.table_lists import n_rows_of
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, Total, pair_cost
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import worst_case, worst_cost
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.round import Array

ROOM = 1.0 + 1e-9
"""Fits that fill a budget exactly must not fail by a rounding error."""


@dataclass(frozen=True)
class FitCost:
    """What a fit can cost, computed before any noise is drawn."""

    algorithm: str
    unit: str
    epsilon: float
    """Worst case; infinite without privacy."""
    delta: float
    cost: GaussianCost
    """The same beside other fits."""


@dataclass(frozen=True)
class SearchCost:
    """What the fits of a search would cost together.

    Printed, it is a sentence.
    """

    n_fits: int
    epsilon: float
    """Of these fits alone, at the budget's delta."""
    epsilon_after: float
    """With all that was fitted before."""
    total: Total
    fits: bool
    """Whether the budget has room for all of them."""

    def __str__(self) -> str:
        verdict = "fits" if self.fits else "does NOT fit"
        return (
            f"{self.n_fits} fits cost epsilon {self.epsilon:.4g} at delta"
            f" {self.total.delta:.3g}; with what was fitted before it is"
            f" {self.epsilon_after:.4g}, which {verdict} into {self.total.epsilon:g}"
        )


_PRICING: ContextVar[bool] = ContextVar("pricing", default=False)


class _PricedError(Exception):
    """Ends a fit that only its price is wanted of."""

    def __init__(self, fit: FitCost) -> None:
        super().__init__("priced")
        self.fit = fit


def fits_alone(fit: FitCost, total: Total) -> bool:
    """Whether a single fit is within a total, after which no other one is."""
    has_delta = fit.delta <= total.delta * ROOM
    return fit.epsilon <= total.epsilon * ROOM and has_delta


def is_pricing() -> bool:
    """Whether only the price of the next fit is wanted."""
    return _PRICING.get()


def end_if_priced(fit: FitCost) -> None:
    """End a fit of which only the price is wanted."""
    if _PRICING.get():
        raise _PricedError(fit)


def fit_cost(
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    engine: str,
) -> FitCost:
    """Price a fit by the plan that it begins with."""
    delta = resolve_delta(config, len(parts))
    unit = config.settings.unit.value
    if config.algorithm in NOT_FEDERATED:
        epsilon = config.epsilon
        if config.task.noise is NoiseShape.NONE:
            epsilon = math.inf
        cost = pair_cost(epsilon, delta)
        return FitCost(config.algorithm, unit, epsilon, delta, cost)
    if engine == "direct":
        # Nothing is lost there, so that nothing is repeated.
        config = config.changed(max_retries=0, dropout=None)
    plan, _ = first_plan(
        config,
        server_points,
        run_id=1,
        n_clients=len(parts),
        n_features=parts[0].shape[1] - config.settings.n_beside,
    )
    if not plan.is_private:
        no_privacy = GaussianCost(math.inf)
        return FitCost(config.algorithm, unit, math.inf, delta, no_privacy)
    return FitCost(config.algorithm, unit, worst_case(plan), delta, worst_cost(plan))


def priced_fit(
    estimator: Untyped,
    X: Untyped,
    y: Untyped,
    options: Mapping[str, Untyped],
) -> FitCost:
    """Let an estimator fit until its noise would be drawn, and return its price."""
    token = _PRICING.set(True)
    try:
        if y is None:
            estimator.fit(X, **options)
        else:
            estimator.fit(X, y, **options)
    except _PricedError as end:
        return end.fit
    finally:
        _PRICING.reset(token)
    raise ConfigurationError(
        f"{type(estimator).__name__} has fitted without a price, but a budget counts"
        " this package's estimators: give a search over one of them."
    )


_Fit = tuple[Untyped, Untyped, Untyped, Mapping[str, Untyped]]


def fits_of(
    search: Untyped, X: Untyped, y: Untyped, options: Mapping[str, Untyped]
) -> Iterator[_Fit]:
    """Every fit of a search but the last one: estimator, tables, labels, options."""
    candidates = _candidates(search)
    if candidates is None:
        yield clone(search), X, y, options
        return
    splitter = check_cv(search.cv, y, classifier=is_classifier(search.estimator))
    n_rows = n_rows_of(X)
    for train, _ in splitter.split(X, y, options.get("groups")):
        table = _safe_indexing(X, train)
        labels = None if y is None else _safe_indexing(y, train)
        parts = {
            name: _part_of(value, train, n_rows)
            for name, value in options.items()
            if name != "groups"
        }
        for candidate in candidates:
            yield clone(search.estimator).set_params(**candidate), table, labels, parts


def _part_of(value: Untyped, rows: ArrayLike, n_rows: int) -> Untyped:
    """Rows of a value that has one for each row, as searches split it."""
    if hasattr(value, "__len__") and n_rows_of(value) == n_rows:
        return _safe_indexing(value, rows)
    return value


def _candidates(search: Untyped) -> list[Mapping[str, Untyped]] | None:
    """What a search tries; None for an estimator alone."""
    if hasattr(search, "param_grid"):
        return list(ParameterGrid(search.param_grid))
    if not hasattr(search, "param_distributions"):
        return None
    if not isinstance(search.random_state, int):
        raise ConfigurationError(
            f"random_state of the search is {search.random_state!r}, so that nobody"
            " knows its candidates beforehand: give a whole number such as 0."
        )
    sampler = ParameterSampler(
        search.param_distributions,
        search.n_iter,
        random_state=search.random_state,
    )
    return list(sampler)


def has_refit(search: Untyped) -> bool:
    """Tell whether a search fits once more, with the best candidate."""
    return _candidates(search) is not None and search.refit is not False
