"""How what arrives is checked: a client drafts a plan again and compares; a server holds sums against public bounds."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial

import numpy as np

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.privacy.release import Block, NoiseShape, PrivacyUnit, ReleasedSum
from flwr_dpkmeans.secagg.ring import FRACTION_BITS
from flwr_dpkmeans.sums.draft import MAX_ROWS_PER_CLIENT, build_algorithm, redraft_plan
from flwr_dpkmeans.sums.plan import COUNT, PLAN_VERSION, Plan, PlannedRound
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.trust import trust_model

_close = partial(math.isclose, rel_tol=1e-9, abs_tol=0.0)
"""Equal up to the last digits, in which another machine's pow may differ."""


def verify_plan(plan: Plan) -> None:
    """Rebuild a received plan from its configuration; one whose numbers do not follow is a `ProtocolError`.

    Differences in the last digits (another machine's pow) are accepted; the plan's own numbers are then used by
    everybody.
    """
    if plan.version != PLAN_VERSION or plan.fraction_bits != FRACTION_BITS:
        raise ProtocolError(
            f"the plan has format {plan.version} with {plan.fraction_bits} fractional bits, but this client speaks "
            f"format {PLAN_VERSION} with {FRACTION_BITS}: install the same version of flwr-dpkmeans everywhere."
        )
    # It is printed, and compared with own digests: nothing but a digest may come this way.
    if plan.columns_digest and not re.fullmatch("[0-9a-f]{64}", plan.columns_digest):
        raise ProtocolError("the plan's digest of columns is no SHA-256 in hexadecimal: stop the run.")
    if plan.n_examples is not None and plan.settings.n_examples is None and plan.count is None:
        # Neither declared nor released, so reports would not say that delta was held against it.
        raise ProtocolError(
            f"the plan has N = {plan.n_examples}, which is neither declared nor counted: stop the run and check the "
            "server."
        )
    if plan.server is not None and plan.n_features not in (None, len(plan.server.centre)):
        raise ProtocolError("the server points' centre has another width than the plan: stop the run.")
    hidden = plan.server is not None and plan.server.n_points > 0 and plan.public_points is None
    # Without the points clients would stand still after a release that the server cannot read.
    if hidden and trust_model(plan.settings.trust).clients_need_points():
        raise ProtocolError(
            f"the plan keeps the server's points back, but under trust {plan.settings.trust!r} the clients go on by "
            "themselves and need them: stop the run and check the server."
        )
    # Before anything is computed from the points: a hostile plan must not cost hours of work.
    plan.task.require_bearable(plan)
    if plan.public_points is not None:
        table = plan.public_points.table()
        if plan.server is None or table.shape != (plan.server.n_points, len(plan.server.centre)):
            raise ProtocolError("the plan's server points have another shape than it says: stop the run.")
    own = redraft_plan(plan, n_features=plan.n_features, n_examples=plan.n_examples, box=plan.box)
    same = (own.max_silent, own.n_examples, own.n_features) == (plan.max_silent, plan.n_examples, plan.n_features)
    same = same and len(own.preliminary) == len(plan.preliminary) and own.columns_digest == plan.columns_digest
    rounds, theirs = (*own.preliminary, *own.rounds), (*plan.preliminary, *plan.rounds)
    if not same or not _close(own.delta, plan.delta) or len(rounds) != len(theirs):
        raise ProtocolError("the plan does not follow from its own configuration: stop the run and check the server.")
    # A server that announces less noise, or a smaller sensitivity, than it uses would make reports and ledgers lie.
    for mine, other in zip(rounds, theirs, strict=True):
        if not _same_round(mine, other):
            raise ProtocolError(
                f"round {other.name!r} of the plan has other sensitivities or noise than its configuration implies: "
                "stop the run and check the server."
            )


def require_successor(plan: Plan, final: Plan) -> None:
    """Check that a final plan continues the preliminary one that was agreed on."""
    if (plan.server, plan.public_points) != (final.server, final.public_points):
        raise ProtocolError("the final plan changes what the preliminary plan said of server data: stop the run.")
    # A count may lower delta, by the rule that each client follows itself when it verifies the final plan.
    same = plan.preliminary == final.preliminary and final.delta <= plan.delta
    if not final.is_final or not same or _fixed(plan) != _fixed(final):
        raise ProtocolError("the final plan changes what the preliminary plan had fixed: stop the run.")


def with_columns(plan: Plan, other: Plan) -> Plan:
    """The plan with the columns that another one says are agreed on, if it does not say any itself."""
    return plan if plan.columns_digest else replace(plan, columns_digest=other.columns_digest)


def require_widened(plan: Plan, wider: Plan) -> None:
    """Check that a plan only adds the tables' width and columns, and what follows from it, to a preliminary one."""
    adds = (plan.n_features is None or bool(wider.columns_digest)) and wider.n_features is not None
    adds = adds and plan.n_features in (None, wider.n_features) and not plan.is_final
    plan = with_columns(plan, wider)
    same = (plan.server, plan.public_points, plan.box) == (wider.server, wider.public_points, wider.box)
    same = same and [r.name for r in plan.preliminary] == [r.name for r in wider.preliminary]
    same = same and plan.delta == wider.delta
    if not adds or wider.is_final or not same or _fixed(plan) != _fixed(wider):
        raise ProtocolError("the plan with the tables' width changes what had been fixed before: stop the run.")


def _fixed(plan: Plan) -> tuple[object, ...]:
    """What no later plan of a run may change."""
    return (plan.run_id, plan.config, plan.n_clients, plan.max_silent, plan.seed, plan.columns_digest)


def require_server_state(plan: Plan, index: int, state: State) -> None:
    """Check a state that the server sent for one round; index T + 1 is the result.

    The task knows what its states are, and each round checks what its statistic reads (`PrivateSum.admits`); nothing
    else is taken, so that a server cannot tell clients more than the round needs.
    """
    step = build_algorithm(plan).rounds[index - 1] if index <= plan.last_round else None
    if not plan.task.admits(plan, step, state):
        raise ProtocolError(f"the server's state for round {index} does not fit the plan: stop the run.")


def _same_round(mine: PlannedRound, other: PlannedRound) -> bool:
    """Whether two rounds agree up to the last digits."""
    if (mine.name, mine.trust, len(mine.blocks)) != (other.name, other.trust, len(other.blocks)):
        return False
    if not _close(mine.radius or 0.0, other.radius or 0.0):
        return False
    return all(map(_same_block, mine.blocks, other.blocks))


def _same_block(a: Block, b: Block) -> bool:
    """Whether two blocks agree up to the last digits."""
    same = (a.name, a.shape, a.noise) == (b.name, b.shape, b.noise)
    mine, theirs = a.sensitivity, b.sensitivity
    # Reasons too: a report prints the server's only where they are this client's own.
    return (
        same
        and (mine.norm, mine.unit, mine.because, mine.nonnegative)
        == (theirs.norm, theirs.unit, theirs.because, theirs.nonnegative)
        and _close(mine.bound, theirs.bound)
        and _close(a.noise_multiplier, b.noise_multiplier)
        and _close(a.entry_bound, b.entry_bound)
    )


_GAUSSIAN_ROOM = 12.0
_LAPLACE_ROOM = 40.0
"""Noise of more scales than these has a probability below 1e-17 in one entry."""
_DECLARED_ROOM = 2.0
"""A declared number of rows may be rounded or old, but not by more than this factor."""


def require_plausible(
    plan: Plan, index: int, released: ReleasedSum, n_clients: int, n_sharers: int | None = None
) -> None:
    """Refuse, by a `ProtocolError`, a released sum with an entry that rows within the plan's bounds cannot add up to.

    Under masks nobody sees one client's vector, and a client can add anything modulo 2^64. The sum, where the server
    reads it, is held against public bounds only, with room for its noise: post-processing of the release that stops no
    honest run, so that stopping tells nothing beyond the release, and the sentence names array and bound, not the
    entry. Where only clients read the sum nobody may do this: a server that shifts a sum it cannot read would learn
    from a refusal whether the sum passes a bound.

    `n_clients` is how many clients' vectors are in it; `n_sharers` how many shared keys before, where sums are
    recovered (None: all of the plan).
    """
    planned = plan.round_at(index)
    rows = _most_rows(plan, index, n_clients)
    for block in planned.blocks:
        units = rows if block.sensitivity.unit is PrivacyUnit.RECORD else float(n_clients)
        room = _room(plan, planned, block, n_clients, n_sharers)
        most = block.entry_bound * units + room
        least = 0.0 - room if block.sensitivity.nonnegative else -most
        values = released[block.name]
        outside = int(np.count_nonzero(~((values >= least) & (values <= most))))
        if outside:
            raise ProtocolError(
                f"{outside} of {values.size} entries of {block.name!r} in round {index} lie outside {least:.6g} to "
                f"{most:.6g}, which no data within the plan's bounds add up to: a client sent a wrong vector, or "
                "n_examples is declared too small; nothing was sent on."
            )


def _most_rows(plan: Plan, index: int, n_clients: int) -> float:
    """Rows that this many clients can have: by declaration or count if there is one, and in any case by their limit."""
    limit = float(MAX_ROWS_PER_CLIENT * n_clients)
    if plan.settings.n_examples is not None:
        return min(limit, _DECLARED_ROOM * plan.settings.n_examples)
    counting = plan.count
    if plan.n_examples is None or counting is None or plan.discovers(index):
        return limit
    # The count itself was noisy.
    block = next(block for block in counting.blocks if block.name == COUNT)
    return min(limit, _DECLARED_ROOM * (plan.n_examples + _room(plan, counting, block, n_clients)))


def _room(plan: Plan, planned: PlannedRound, block: Block, n_clients: int, n_sharers: int | None = None) -> float:
    """How far noise can move an entry."""
    if block.noise is NoiseShape.NONE:
        return 0.0
    scales = _LAPLACE_ROOM if block.noise is NoiseShape.LAPLACE else _GAUSSIAN_ROOM
    # A cohort of more clients than those whose shares arrived made the shares smaller, not larger.
    shares = plan.shares_of(n_clients, n_sharers)
    return scales * block.noise_scale * trust_model(planned.trust).released_factor(shares)
