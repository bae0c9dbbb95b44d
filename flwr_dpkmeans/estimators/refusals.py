"""What every estimator refuses."""

from __future__ import annotations

from collections.abc import Mapping

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.estimators.table_lists import n_rows_of
from flwr_dpkmeans.sums.checks.plausible import DECLARED_ROOM


def require_rows(X: object) -> None:
    """Refuse a table without rows, as scikit-learn's estimators do."""
    if n_rows_of(X) == 0:
        raise DataError(
            "X has 0 rows, but at least 1 is needed to predict for: leave the call out,"
            " or give a row."
        )


def require_declared(declared: object, n_rows: int) -> None:
    """Refuse a declared number of rows that one table far exceeds.

    A reader of exact sums would refuse it later.
    """
    if not isinstance(declared, int) or n_rows <= DECLARED_ROOM * declared:
        return
    raise DataError(
        f"n_examples is declared as {declared}, but the table has {n_rows} rows, more"
        " than twice as many: declare their number, from which delta and noise follow,"
        " or leave it out."
    )


def require_no_others(arguments: Mapping[str, object]) -> None:
    """Refuse arguments that a fit does not take."""
    for name in arguments:
        raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
