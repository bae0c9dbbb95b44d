"""What a client checks of a plan or a state that came from elsewhere."""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass
from functools import lru_cache

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.draft import redraft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import LAST_PRELIMINARY_ROUND, Plan
from flwr_dpkmeans.sums.round import State


@lru_cache(maxsize=4)
def verify_plan(plan: Plan) -> None:
    """Rebuild a received plan from its configuration.

    One whose numbers do not follow is a `ProtocolError`.

    Differences in the last digits are accepted; the plan's own numbers are then used by
    everybody. Virtual clients of one process share the answer.
    """
    _require_digests(plan)
    _require_counts(plan)
    _require_server_points(plan)
    redrafted = redraft_plan(
        plan,
        n_features=plan.n_features,
        n_examples=plan.n_examples,
        box=plan.box,
    )
    differing = {
        name
        for name in _unlike_fields(redrafted, plan)
        if not _agree(getattr(redrafted, name), getattr(plan, name))
    }
    if not differing:
        return
    n_redrafted = (len(redrafted.preliminary), len(redrafted.rounds))
    n_received = (len(plan.preliminary), len(plan.rounds))
    if differing - {"preliminary", "rounds"} or n_redrafted != n_received:
        raise ProtocolError(
            "the plan does not follow from its own configuration: stop the run and"
            " check the server."
        )
    # A server that announces less noise, or a smaller sensitivity, than it uses would
    # make reports and ledgers lie.
    pairs = zip(redrafted.all_rounds, plan.all_rounds, strict=True)
    name = next(theirs.name for mine, theirs in pairs if not _agree(mine, theirs))
    raise ProtocolError(
        f"round {name!r} of the plan has other sensitivities or noise than its"
        " configuration implies: stop the run."
    )


def _require_digests(plan: Plan) -> None:
    """Refuse a digest that is none.

    It is printed, and compared with own digests: nothing but a digest may come this
    way.
    """
    digests = {
        "columns": plan.columns_digest,
        "its schema": plan.settings.schema_digest,
    }
    for what, digest in digests.items():
        if digest and not re.fullmatch("[0-9a-f]{64}", digest):
            raise ProtocolError(
                f"the plan's digest of {what} is no SHA-256 in hexadecimal: stop the"
                " run."
            )


def _require_counts(plan: Plan) -> None:
    """Refuse a plan for nobody or nothing, or with rows that nobody counted."""
    n_examples = plan.n_examples
    is_empty = n_examples is not None and n_examples < 1
    if plan.n_clients < 1 or is_empty:
        raise ProtocolError(
            "the plan is for nobody, but it needs at least one client and one row: stop"
            " the run."
        )
    if plan.n_features is not None and plan.n_features < 1:
        raise ProtocolError(
            f"the plan is for tables of {plan.n_features} columns, but it needs at"
            " least one: stop the run."
        )
    is_declared = plan.settings.n_examples is not None
    if n_examples is not None and not is_declared and plan.count is None:
        # Neither declared nor released, so reports would not say that delta was held
        # against it.
        raise ProtocolError(
            f"the plan has N = {plan.n_examples}, which is neither declared nor"
            " counted: stop the run."
        )


def _require_server_points(plan: Plan) -> None:
    """Refuse server points of another shape, that are missing, or too many to bear."""
    server = plan.server
    if server is not None and plan.n_features not in (None, len(server.centre)):
        raise ProtocolError(
            "the server points' centre has another width than the plan: stop the run."
        )
    # Without the points clients would stand still after a release that the server
    # cannot read.
    if plan.server_advances and not plan.trust_model.server_has_result():
        raise ProtocolError(
            "the plan keeps the server's points back, but under trust"
            f" {plan.settings.trust!r} the clients go on by themselves and need them:"
            " stop the run and check the server."
        )
    # Before anything is computed from the points: a hostile plan must not cost hours of
    # work.
    plan.task.require_bearable(plan)
    if plan.public_points is None:
        return
    shape = plan.public_points.table.shape
    if server is None or shape != (server.n_points, len(server.centre)):
        raise ProtocolError(
            "the plan's server points have another shape than it says: stop the run."
        )


def _unlike_fields(plan: Plan, other: Plan) -> set[str]:
    """Names of the fields in which two plans are not equal."""
    unlike = set()
    for field in fields(plan):
        if getattr(plan, field.name) != getattr(other, field.name):
            unlike.add(field.name)
    return unlike


def _agree(mine: object, theirs: object) -> bool:
    """Tell whether two values agree up to the last digits of their numbers.

    In these another machine's pow may differ.
    """
    if mine == theirs:
        return True
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        if len(mine) != len(theirs):
            return False
        pairs = zip(mine, theirs, strict=True)
        return all(_agree(first, second) for first, second in pairs)
    if is_dataclass(mine):
        return all(
            _agree(getattr(mine, field.name), getattr(theirs, field.name))
            for field in fields(mine)
        )
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=0.0)
    return False


def require_next(
    plan: Plan,
    later: Plan,
    discoveries: Discoveries,
    *,
    begun: bool,
    released: int | None,
) -> None:
    """Accept no later plan but the one that follows.

    From the plan in force, and from what was discovered.

    Only what plans are drafted from is compared: the rest follows, as `verify_plan`
    sees. `released` is the round that was released with it; a run has `begun` once a
    vector was asked for.
    """
    is_counted = released == LAST_PRELIMINARY_ROUND
    if is_counted and discoveries.n_examples not in (None, later.n_examples):
        raise ProtocolError(
            f"the final plan has N = {later.n_examples}, but the private count released"
            f" {discoveries.n_examples}: end it."
        )
    if is_counted and later.box != discoveries.box:
        raise ProtocolError(
            "the final plan has another box than the private histograms released: stop"
            " the run."
        )
    # The tables' width, and what all columns' digests have in common, are known after
    # the key phase.
    news: set[str] = set()
    is_width_due = is_counted or not begun
    if plan.n_features is None and is_width_due:
        news.add("n_features")
    if not begun and not plan.columns_digest:
        news.add("columns_digest")
    if is_counted:
        news.update(("n_examples", "box"))
    changed = _unlike_fields(plan, later) - {"preliminary", "rounds", "delta"}
    fixed = changed - news
    if fixed:
        raise ProtocolError(
            f"the plan that came has another {', '.join(sorted(fixed))} than the one in"
            " force, which had fixed it or is still to find it: stop the run."
        )
    if not changed:
        raise ProtocolError(
            "another plan came although the one in force says the same: stop the run."
        )


@lru_cache(maxsize=4)
def require_server_state(
    plan: Plan,
    index: int,
    state: State,
) -> None:
    """Check a state that the server sent for one round; index T + 1 is the result.

    The task knows what its states are, and each round checks what its statistic reads
    (`PrivateSum.admits`); nothing else is taken, so that a server cannot tell clients
    more than the round needs.
    """
    step = None
    if index <= plan.last_round:
        step = task_round(plan, index)
    if not plan.task.admits(plan, step, state):
        raise ProtocolError(
            f"the server's state for round {index} does not fit the plan: stop the run."
        )
