"""Parties' tables as a list, and checks whose sentences name a party."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from numpy.typing import ArrayLike

from flwr_dpkmeans.data.table_labels import require_same_labels
from flwr_dpkmeans.errors import DataError

CheckedT = TypeVar("CheckedT")


def check_of_party(
    argument: str,
    party: str,
    check: Callable[..., CheckedT],
    *values: object,
) -> CheckedT:
    """Check what one party gives.

    A sentence about it begins with its number in the list, or its name.
    """
    try:
        return check(*values)
    except DataError as error:
        raise DataError(f"{argument}[{party}]: {error}") from error


def listed_tables(X: object, argument: str = "X") -> list[ArrayLike]:
    """The parties' tables as a list.

    One table for all is a mistake that has a sentence of its own.
    """
    shape = getattr(X, "shape", ())
    if len(shape) == 2:
        others = ""
        if argument == "X":
            others = (
                ", name each row's party by groups, or use DPKMeans if one party holds"
                " all rows"
            )
        raise DataError(
            f"{argument} is one table of shape {tuple(shape)}, but there must be one"
            f" for each client: pass a list such as [X_a, X_b]{others}."
        )
    if isinstance(X, Mapping):
        return list(X.values())
    if not isinstance(X, Iterable) or isinstance(X, str | bytes):
        raise DataError(
            f"{argument} is of type {type(X).__name__}, but there must be one table for"
            " each client: pass a list such as [X_a, X_b]."
        )
    return list(X)


def require_one_labelling(
    parties: Sequence[str],
    tables: Sequence[ArrayLike],
    argument: str,
) -> None:
    """Refuse frames whose columns are labelled, but not by text, in different ways.

    Positions would be wrong.
    """
    labels = {}
    for party, table in zip(parties, tables, strict=True):
        if hasattr(table, "columns"):
            labels[party] = list(table.columns)
    first = next(iter(labels), "")
    for party, labels_of_party in labels.items():
        require_same_labels(
            f"{argument}[{party}]: the columns are",
            labels_of_party,
            f"{argument}[{first}]",
            labels[first],
        )
