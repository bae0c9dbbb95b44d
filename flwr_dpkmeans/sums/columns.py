"""Columns are matched by name: the order that a run agrees on, and a digest by which the parties compare it.

Names never travel from a node. Where the server side knows them (a bounds file, named server data, an option) they
stand in the plan, and every node puts its own table in their order. Elsewhere each node answers the plan with a digest
of its names, sorted if bounds do not depend on the order, and the next plan carries the digest that all have in common:
every node compares it with its own, so that a server that says something else is found out before anything is charged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.sums.plan import Plan


def columns_digest(run_id: int, names: Sequence[str]) -> str:
    """SHA-256 of names in their order, in hexadecimal; empty where there are none.

    The run's id is in it, so that the digest does not tell that two runs have the same columns. Whoever guesses the
    names can still confirm the guess: they are schema.

    Examples
    --------
    >>> columns_digest(1, ["age", "income"])[:8], columns_digest(1, [])
    ('937120d2', '')
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
    return tuple(names) if by_position(plan) else tuple(sorted(names))


def by_position(plan: Plan) -> bool:
    """Whether a plan without names says something for each column, so that tables cannot be put in order."""
    config = plan.config
    return not config.settings.feature_names and (len(config.settings.bounds[0]) > 1 or config.settings.allow_unnamed)


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
