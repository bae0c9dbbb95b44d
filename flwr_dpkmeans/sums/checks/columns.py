"""The tables that a plan is for: their width, labels, schema and columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from flwr_dpkmeans.errors import DataError, RefusalError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box, Settings

# -- the tables that a plan is for -----------------------------------------------------


def columns_digest(run_id: int, names: Sequence[str]) -> str:
    """SHA-256 of names in their order, in hexadecimal; empty where there are none.

    With the run's id in it, it does not tell that two runs have the same columns; a
    guess of the names it confirms.
    """
    if not names:
        return ""
    return hashlib.sha256(
        json.dumps(["flwr-dpkmeans columns", run_id, *names]).encode()
    ).hexdigest()


def agreed_names(plan: Plan, names: Sequence[str]) -> tuple[str, ...]:
    """Names of a table's columns in the order that the run agrees on.

    Empty where nobody knows any.

    The plan's own names hold. Without them the order is the sorted one, unless
    something else is matched by position: bounds for each column, or tables without
    names.
    """
    if plan.settings.feature_names:
        return plan.settings.feature_names
    return tuple(names) if plan.by_position else tuple(sorted(names))


def column_positions(names: Sequence[str], order: Sequence[str]) -> list[int] | None:
    """Where the columns of `order` stand among `names`.

    None if they stand there already, or have no names.

    Names that are not the same are a `DataError`, whose sentence tells numbers only.

    Examples
    --------
    >>> column_positions(["age", "income"], ["income", "age"])
    [1, 0]
    """
    if not names or tuple(names) == tuple(order):
        return None
    n_unknown = len(set(order) - set(names))
    if n_unknown or len(names) != len(order):
        raise DataError(
            f"{n_unknown} of {len(order)} columns that were agreed on are not in a"
            f" table of {len(names)}: use the same names everywhere."
        )
    places = {name: place for place, name in enumerate(names)}
    return [places[name] for name in order]


def require_width(plan: Plan, n_features: int) -> None:
    """Refuse a plan for tables of another width.

    The width is schema, so it may be named.
    """
    lengths = len(plan.settings.bounds[0])
    if plan.n_features not in (None, n_features):
        raise RefusalError(
            f"this client's table has {n_features} features, but the plan has"
            f" {plan.n_features}: use the same columns on every client."
        )
    if lengths not in (1, n_features):
        raise RefusalError(
            f"this client's table has {n_features} features, but the plan has bounds"
            f" for {lengths}: give one pair for all features or one pair for each, or"
            " choose the table's columns by 'columns'."
        )


def require_labels(plan: Plan, *, has_labels: bool) -> None:
    """Refuse a plan that looks at labels where this client has none.

    What they are decides nothing.
    """
    n_classes = plan.task.n_classes(plan.settings)
    if n_classes > 0 and not has_labels:
        raise RefusalError(
            f"the plan looks at labels of {n_classes} classes, but this client has no"
            " labels: name them on every client (a deployed node's own label-column),"
            " or plan without them."
        )


def require_persons(plan: Plan, *, has_persons: bool) -> None:
    """Refuse a plan that protects persons where nobody knows whose rows these are."""
    if plan.settings.unit is PrivacyUnit.PERSON and not has_persons:
        raise RefusalError(
            "the plan protects one person, but this client's table has no person"
            " column: name it on every client (a deployed node's own person-column),"
            " or choose unit='record'."
        )


def require_weights(plan: Plan, *, has_weights: bool) -> None:
    """Refuse a plan that weighs rows where nobody knows what these weigh."""
    max_weight = plan.settings.max_weight
    if max_weight is not None and not has_weights:
        raise RefusalError(
            f"the plan weighs rows (max_weight {max_weight:g}), but this client's table"
            " has no weights: name their column on every client (a deployed node's own"
            " weight-column), or leave max_weight out."
        )


def schema_agreement(
    digest: str, names: Sequence[str], bounds: Box, *columns: Sequence[object]
) -> str:
    """Hash what all sides of a run must have alike, where there is a schema.

    Its digest, and what follows from it (`planned_schema`); empty without a schema.
    """
    if not digest:
        return ""
    text = json.dumps([digest, *names, *bounds, *columns])
    return hashlib.sha256(text.encode()).hexdigest()


def planned_schema(settings: Settings) -> str:
    """The same as a run's settings have it."""
    return schema_agreement(
        settings.schema_digest,
        settings.feature_names,
        settings.bounds,
        settings.standard_columns,
        settings.profile_widths,
        (settings.profile_share,),
        settings.gap_columns,
    )


def require_schema(plan: Plan, schema: str) -> None:
    """Refuse a plan of another schema than this client's own.

    Also one whose names or bounds do not follow from it.
    """
    settings = plan.settings
    if schema == planned_schema(settings):
        return
    planned = "has no schema"
    other = "one"
    if settings.schema_digest:
        planned = f"follows the schema {settings.schema_digest[:12]}"
        other = "another one"
    here = f"follows {other}" if schema else "has none"
    mend = "use the same schema file on every node, and as bounds of the run"
    raise RefusalError(f"the plan {planned}, but this client's table {here}: {mend}.")


def require_columns(plan: Plan, names: tuple[str, ...]) -> str:
    """Hold a table's column names against the plan's, and return their digest.

    In the agreed order.

    A refusal tells numbers only: names are the node's own, and in a file that lacks its
    header they are a row.
    """
    planned = plan.settings.feature_names
    allow_unnamed = plan.settings.allow_unnamed
    if planned and not names and not allow_unnamed:
        raise RefusalError(
            "this client's table has no column names, but the plan names"
            f" {len(planned)}: name them on the node (a header, or 'columns' in its"
            " configuration), or let them be matched by position with allow_unnamed."
        )
    has_unnamed_points = plan.server is not None and not planned
    if names and has_unnamed_points and not allow_unnamed:
        raise RefusalError(
            "the server's points have no column names, but this client's table has:"
            " name the columns of server_data, or let them be matched by position with"
            " allow_unnamed."
        )
    n_unknown = 0
    is_other_width = False
    if planned and names:
        n_unknown = len(set(planned) - set(names))
        is_other_width = len(planned) != len(names)
    if n_unknown > 0 or is_other_width:
        raise RefusalError(
            f"the plan names {len(planned)} columns, of which this client's table of"
            f" {len(names)} lacks {n_unknown}: use the same names everywhere, or choose"
            " the table's columns by 'columns'."
        )
    columns = ""
    if names:
        columns = columns_digest(plan.run_id, agreed_names(plan, names))
    if plan.columns_digest:
        require_agreed_columns(plan, columns)
    return columns


def require_agreed_columns(plan: Plan, columns: str) -> None:
    """Refuse a plan that agrees on other columns than this client's, or on none.

    A server that skipped the comparison, or lies about it, would have one vector added
    up under different names.
    """
    may_be_unnamed = columns == "" and plan.settings.allow_unnamed
    if plan.columns_digest != columns and not may_be_unnamed:
        raise RefusalError(
            "the plan's digest of columns is not that of this client's table: use the"
            " same names everywhere (and, with bounds for each column by position, the"
            " same order), or check the server."
        )
