"""What the parties' tables must have in common: width, labels, and columns, which are matched by name.

Names never travel from a node. Where the server side knows them (a bounds file, named server data, an option) they
stand in the plan, and every node puts its own table in their order. Elsewhere each node answers the plan with a digest
of its names, sorted if bounds do not depend on the order, and the next plan carries the digest that all have in common:
every node compares it with its own, so that a server that says something else is found out before anything is charged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from flwr_dpkmeans.errors import DataError, RefusalError
from flwr_dpkmeans.sums.plan import Plan


def columns_digest(run_id: int, names: Sequence[str]) -> str:
    """SHA-256 of names in their order, in hexadecimal; empty where there are none.

    With the run's id in it, it does not tell that two runs have the same columns; a guess of the names it confirms.
    """
    if not names:
        return ""
    return hashlib.sha256(json.dumps(["flwr-dpkmeans columns", run_id, *names]).encode()).hexdigest()


def agreed_names(plan: Plan, names: Sequence[str]) -> tuple[str, ...]:
    """Names of a table's columns in the order that the run agrees on; empty where nobody knows any.

    The plan's own names hold. Without them the order is the sorted one, unless something else is matched by position:
    bounds for each column, or tables without names.
    """
    if plan.settings.feature_names:
        return plan.settings.feature_names
    return tuple(names) if plan.by_position else tuple(sorted(names))


def places_of(names: Sequence[str], order: Sequence[str]) -> list[int] | None:
    """Where the columns of `order` stand among `names`; None if they stand there already, or have no names.

    Names that are not the same are a `DataError`, whose sentence tells numbers only.

    Examples
    --------
    >>> places_of(["age", "income"], ["income", "age"])
    [1, 0]
    """
    if not names or tuple(names) == tuple(order):
        return None
    n_unknown = len(set(order) - set(names))
    if n_unknown or len(names) != len(order):
        raise DataError(
            f"{n_unknown} of {len(order)} columns that were agreed on are not in a table of {len(names)}: use the same "
            "names everywhere."
        )
    places = {name: place for place, name in enumerate(names)}
    return [places[name] for name in order]


def require_width(plan: Plan, n_features: int) -> None:
    """Refuse a plan for tables of another width; the width is schema, so it may be named."""
    lengths = len(plan.settings.bounds[0])
    if plan.n_features not in (None, n_features):
        raise RefusalError(
            f"this client's table has {n_features} features, but the plan has {plan.n_features}: use the same columns "
            "on every client."
        )
    if lengths not in (1, n_features):
        raise RefusalError(
            f"this client's table has {n_features} features, but the plan has bounds for {lengths}: give one pair for "
            "all features or one pair for each, or choose the table's columns by 'columns'."
        )


def require_labels(plan: Plan, *, has_labels: bool) -> None:
    """Refuse a plan that evaluates against labels where this client has none; what they are decides nothing."""
    n_classes = plan.task.n_classes(plan.settings)
    if n_classes > 0 and not has_labels:
        raise RefusalError(
            f"the plan evaluates against labels of {n_classes} classes, but this client has no labels: name "
            "them on every client (a deployed node's own label-column), or leave n_classes out."
        )


def require_columns(plan: Plan, names: tuple[str, ...]) -> str:
    """Hold a table's column names against the plan's, and return their digest in the agreed order.

    A refusal tells numbers only: names are the node's own, and in a file that lacks its header they are a row.
    """
    planned = plan.settings.feature_names
    if planned and not names and not plan.settings.allow_unnamed:
        raise RefusalError(
            f"this client's table has no column names, but the plan names {len(planned)}: name them on the node (a "
            "header, or 'columns' in its configuration), or let them be matched by position with allow_unnamed."
        )
    if names and not planned and plan.server is not None and not plan.settings.allow_unnamed:
        raise RefusalError(
            "the server's points have no column names, but this client's table has: name the columns of server_data, "
            "or let them be matched by position with allow_unnamed."
        )
    n_unknown = len(set(planned) - set(names)) if names else 0
    if n_unknown or (planned and names and len(planned) != len(names)):
        raise RefusalError(
            f"the plan names {len(planned)} columns, of which this client's table of {len(names)} lacks {n_unknown}: "
            "use the same names everywhere, or choose the table's columns by 'columns'."
        )
    columns = columns_digest(plan.run_id, agreed_names(plan, names)) if names else ""
    if plan.columns_digest:
        require_agreed_columns(plan, columns)
    return columns


def require_agreed_columns(plan: Plan, columns: str) -> None:
    """Refuse a plan that says that other columns, or none, are agreed on than this client's own.

    A server that skipped the comparison, or lies about it, would have one vector added up under different names.
    """
    if plan.columns_digest != columns and not (columns == "" and plan.settings.allow_unnamed):
        raise RefusalError(
            "the plan's digest of columns is not that of this client's table: use the same names everywhere (and, with "
            "bounds for each column by position, the same order), or check the server."
        )
