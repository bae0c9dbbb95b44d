"""A budget that several fits share, as a ledger's runs do."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, require_real
from flwr_dpkmeans.estimators.budgets.fit_cost import (
    ROOM,
    FitCost,
    SearchCost,
    end_if_priced,
    fit_cost,
    fits_alone,
    fits_of,
    has_refit,
    is_pricing,
    priced_fit,
)
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.ledger import MemoryLedger, Past
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, Total
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.round import Array

_LOGGER = placed_logger("flwr_dpkmeans.estimator")


class Budget:
    """A total (epsilon, delta) of all fits on one data set.

    Each fit is charged its worst case before noise is drawn, and refused where that
    does not fit. Costs add up as a node's ledger adds up those of runs: squared GDP
    parameters, also where each fit is chosen by what the ones before have shown.

    Parameters
    ----------
    epsilon, delta : float
        What all fits together may cost.
    path : path, optional
        A file that the charges are written to, and read from again by later programs
        and by other processes at once. None: the budget lives as long as this object.
    own_share : float
        Part of delta for what is not Gaussian, such as fits that sample clients.

    Raises
    ------
    ConfigurationError
        For numbers out of range, and a file that was begun with other ones.
    BudgetError
        Where a fit does not fit, or the file cannot be used.

    Notes
    -----
    As a context it counts every fit of this process, in all threads. A search that fits
    in other processes (``n_jobs``) takes it as an argument of ``fit``, with a path.

    It counts what it is told of: one budget is for one data set, and scores of models
    on rows that are private are covered by nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_dpkmeans import DPKMeans
    >>> rows = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    >>> with Budget(epsilon=2.0, delta=1e-5) as budget:
    ...     for k in (2, 3, 4):
    ...         model = DPKMeans(k, epsilon=0.5, bounds=(-1, 1)).fit(rows)
    >>> budget.n_fits, round(budget.spent, 2)
    (3, 1.02)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        path: str | Path | None = None,
        *,
        own_share: float = 0.01,
    ) -> None:
        self.total = Total(
            _within("epsilon", epsilon, math.inf),
            _within("delta", delta, 1.0),
            _within("own_share", own_share, 1.0),
        )
        self.path = None if path is None else Path(path)
        self._ledger = MemoryLedger() if path is None else FileLedger(path)
        # Whoever could raise a total after a release would have none.
        self._name = f"epsilon {epsilon!r}, delta {delta!r}, own share {own_share!r}"
        for entry in self._ledger.entries():
            if entry.data_id != self._name:
                raise ConfigurationError(
                    f"the budget is {self._name}, but {path} was begun with"
                    f" {entry.data_id}: state those, or give a new path."
                )

    def __enter__(self) -> Self:
        _OPEN.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN.remove(self)

    def __deepcopy__(self, _: object) -> Self:
        # Copies of an estimator's arguments pay from one purse.
        return self

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        if self.path is None:
            raise ConfigurationError(
                "a budget without a path cannot go to other processes, which would each"
                " spend all of it: give Budget(..., path='budget.jsonl')."
            )
        total = self.total
        return _reopened, (total.epsilon, total.delta, self.path, total.own_share)

    def __repr__(self) -> str:
        return (
            f"<Budget: {self.n_fits} fits cost epsilon {self.spent:.4g} of"
            f" {self.total.epsilon:g} at delta {self.total.delta:g}>"
        )

    @property
    def n_fits(self) -> int:
        """Number of fits that were charged."""
        return len(self._ledger.entries())

    @property
    def spent(self) -> float:
        """Epsilon of all fits until now, at the budget's delta."""
        return self._past().spent(self.total)[0]

    @property
    def left(self) -> float:
        """Epsilon, at the budget's delta, that one more fit may cost."""
        return self.total.left(self._past().cost)

    def charge(self, fit: FitCost) -> None:
        """Charge a fit, or raise a BudgetError."""
        entry = LedgerEntry(
            run_id=secrets.token_hex(16),
            data_id=self._name,
            plan_digest="00",
            round_index=1,
            attempt=0,
            release=fit.algorithm,
            epsilon=fit.epsilon,
            delta=fit.delta,
            unit=fit.unit,
            mu=fit.cost.mu,
            own_delta=fit.cost.own_delta,
        )

        def admit(past: Past) -> None:
            self._require_room(fit, past)

        self._ledger.charge(entry, admit)
        _LOGGER.info("this fit may cost epsilon %.4g; %r", fit.epsilon, self)

    def require_room(self, fit: FitCost) -> None:
        """Raise a BudgetError if a fit has no room."""
        self.require_unit(fit)
        self._require_room(fit, self._past())

    def search_cost(
        self,
        search: object,
        X: object,
        y: object = None,
        **fit_options: object,
    ) -> SearchCost:
        """Say what a search would cost, without touching a row's values.

        Parameters
        ----------
        search : estimator
            A ``GridSearchCV``, a ``RandomizedSearchCV`` with an integer as its seed, an
            estimator or a pipeline.
        X, y, **fit_options
            What its ``fit`` would take.

        Returns
        -------
        SearchCost
            Of all fits together: each candidate's on each split, and the last one.
        """
        spent = self._past().cost
        joint = GaussianCost()
        n_fits = 0
        dearest = GaussianCost()
        is_alone = False
        for kind, table, labels, options in fits_of(search, X, y, fit_options):
            fit = priced_fit(kind, table, labels, options)
            self.require_unit(fit)
            n_fits += 1
            joint = joint.and_run(fit.cost)
            if fit.cost.mu > dearest.mu:
                dearest = fit.cost
            is_alone = fits_alone(fit, self.total)
        if has_refit(search):
            # Which candidate wins is not known yet.
            n_fits += 1
            joint = joint.and_run(dearest)
        after = spent.and_run(joint)
        alone = n_fits == 1 and is_alone and spent == GaussianCost()
        return SearchCost(
            n_fits,
            joint.epsilon(self.total.delta),
            after.epsilon(self.total.delta),
            self.total,
            alone or _is_within(after, self.total),
        )

    def require_unit(self, fit: FitCost) -> None:
        """Refuse a fit that protects something else than the ones before."""
        for entry in self._ledger.entries():
            if entry.unit != fit.unit:
                raise ConfigurationError(
                    f"this fit protects each {fit.unit}, but the budget counts what"
                    f" each {entry.unit} pays: use a Budget of its own."
                )

    def _past(self) -> Past:
        units = {entry.unit for entry in self._ledger.entries()}
        for unit in units:
            return self._ledger.past(self._name, unit)
        return Past()

    def _require_room(self, fit: FitCost, past: Past) -> None:
        """Decide by what is handed over: a charge holds the lock of the file."""
        if past.cost == GaussianCost() and fits_alone(fit, self.total):
            return
        if _is_within(past.cost.and_run(fit.cost), self.total):
            return
        mend = "lower epsilon, or stop here"
        if math.isinf(fit.epsilon):
            mend = "use a private algorithm, and noise without a seed"
        raise BudgetError(
            f"this fit can cost epsilon {fit.epsilon:.4g}, but {len(past.begun)} fits"
            f" have cost {past.spent(self.total)[0]:.4g} of the budget's"
            f" {self.total.epsilon:g} at delta {self.total.delta:g}, and one more may"
            f" cost {self.total.left(past.cost):.4g}: {mend}."
        )


_OPEN: list[Budget] = []
"""Budgets that are contexts now, whatever thread a fit is in."""


def charge_fit(
    budget: Budget | None,
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    engine: str,
) -> None:
    """Charge a fit to its budget and to all that are open, before noise is drawn.

    Parameters
    ----------
    budget : Budget, optional
        The argument of the fit.
    config, parts, server_points, engine
        What the fit will run, see `play_directly`.

    Raises
    ------
    BudgetError
        Where one of them has no room; then none is charged.
    """
    budgets = list(dict.fromkeys([*_OPEN, *([] if budget is None else [budget])]))
    if not budgets and not is_pricing():
        return
    fit = fit_cost(config, parts, server_points, engine)
    end_if_priced(fit)
    for each in budgets:
        each.require_room(fit)
    for each in budgets:
        each.charge(fit)


class CountedFits:
    """An estimator whose fits are counted by budgets that are contexts."""

    def __getstate__(self) -> object:
        """Refuse to leave the process for a fit that no budget would see."""
        if _OPEN and not hasattr(self, "privacy_"):
            raise ConfigurationError(
                "a budget is open, and an estimator that is copied to another process"
                " would be fitted there without it: search with n_jobs=1, or give fit"
                " its argument budget=, with a path."
            )
        return super().__getstate__()


def _within(name: str, value: object, most: float) -> float:
    number = require_real(name, value, "give one such as 1e-6")
    if not 0.0 < number < most:
        raise ConfigurationError(
            f"{name} of a budget is {number}, but it must be above 0 and below"
            f" {most:g}: give one such as 1e-6, or an epsilon of 3."
        )
    return number


def _reopened(epsilon: float, delta: float, path: Path, own_share: float) -> Budget:
    return Budget(epsilon, delta, path, own_share=own_share)


def _is_within(cost: GaussianCost, total: Total) -> bool:
    whole = total.cost
    return cost.is_within(GaussianCost(whole.mu * ROOM, whole.own_delta * ROOM))
