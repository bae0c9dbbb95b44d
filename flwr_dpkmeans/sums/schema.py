"""What a client's own table must have in common with a plan: width, labels and the names of its columns.

All of it is schema, so a refusal may tell numbers; names stay on the node.
"""

from __future__ import annotations

from flwr_dpkmeans.errors import RefusalError
from flwr_dpkmeans.sums.columns import agreed_names, columns_digest
from flwr_dpkmeans.sums.plan import Plan


def require_width(plan: Plan, n_features: int) -> None:
    """Refuse a plan for tables of another width; the width is schema, so it may be named."""
    lengths = len(plan.config.bounds[0])
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
    planned = plan.config.feature_names
    if planned and not names and not plan.config.allow_unnamed:
        raise RefusalError(
            f"this client's table has no column names, but the plan names {len(planned)}: name them on the node (a "
            "header, or 'columns' in its configuration), or let them be matched by position with allow_unnamed."
        )
    if names and not planned and plan.server is not None and not plan.config.allow_unnamed:
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
    if plan.columns_digest != columns and not (columns == "" and plan.config.allow_unnamed):
        raise RefusalError(
            "the plan's digest of columns is not that of this client's table: use the same names everywhere (and, with "
            "bounds for each column by position, the same order), or check the server."
        )
