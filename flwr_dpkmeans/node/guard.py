"""What a node checks with its own policy and ledger before anything leaves it, and what it writes down."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from flwr.app import Context, Message

from flwr_dpkmeans.errors import BudgetError, IdentityError, LocalMisuseError, ProtocolError, RefusalError
from flwr_dpkmeans.flower.content import wait_of
from flwr_dpkmeans.flower.memory import ClientMemory
from flwr_dpkmeans.flower.records import terms_digest
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.node.ledger import SHARES_GIVEN, LedgerEntry, Past
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import Asked, ClientPolicy, has_bounds_by_name
from flwr_dpkmeans.secagg import credentials
from flwr_dpkmeans.secagg.messages import SumRequest
from flwr_dpkmeans.secagg.protocols import AnyState, announced_roster
from flwr_dpkmeans.secagg.recovery.messages import ShareRequest
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.columns import agreed_names, columns_digest
from flwr_dpkmeans.sums.draft import resolve_delta, worst_case
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Evaluation
from flwr_dpkmeans.sums.statement import is_private_plan
from flwr_dpkmeans.sums.verify import verify_plan

LEAST_WAIT = 10.0
"""Seconds that every request stays good for by this node's clock."""


def approve_plan(plan: Plan, settings: NodeSettings, context: Context) -> None:
    """Recompute the plan and hold it against the node's policy and what its data set has cost already."""
    if not plan.config.masking:
        raise RefusalError("the plan turns masks off, which no client of a Flower run accepts: leave masking on.")
    if plan.config.evaluation is Evaluation.EXACT and not settings.simulated:
        raise RefusalError(
            "the plan's evaluation is 'exact', which releases sums without noise and exists in simulation only: choose "
            "evaluation='private'."
        )
    try:
        verify_plan(plan)
    except (LocalMisuseError, BudgetError) as error:
        # Nothing but the server's own plan is in these sentences, so they may travel.
        raise RefusalError(str(error)) from error
    except ArithmeticError as error:
        raise RefusalError(
            "the plan's numbers are too large or too small to compute its noise from: give usual ones."
        ) from error
    require_allowed(plan, settings, context)


def require_allowed(plan: Plan, settings: NodeSettings, client: Context | AnyState) -> None:
    """Hold a plan against the node's policy as it is now, and against what other runs have cost until now.

    Asked before every release: an owner may have become stricter, or another run taken the budget, since the run began.
    """
    unit = plan.config.unit.value
    _admit(plan, settings)(settings.ledger.past(settings.data_id, unit, excluding_run=ledger_run(client)))


def _admit(plan: Plan, settings: NodeSettings) -> Callable[[Past], None]:
    """What holds a plan against the policy, besides what other runs have cost."""
    terms = terms_digest(plan) if settings.policy.approved_plan_digests else ""
    epsilon = _cost(plan)

    def admit(past: Past) -> None:
        try:
            settings.policy.check(Asked(plan, epsilon, past, terms))
        except BudgetError as error:
            # The policy's sentences hold public values only, unlike the ledger's, so they may travel.
            raise RefusalError(str(error)) from error

    return admit


def _cost(plan: Plan) -> float:
    """What a whole run can cost; seeded noise protects nobody, so it is charged like none."""
    return worst_case(plan) if is_private_plan(plan) else float("inf")


def require_named_box(plan: Plan, policy: ClientPolicy, names: Sequence[str]) -> None:
    """Hold the bounds of named columns against the policy, whose own are in the order of the own table.

    Asked once, after `require_columns`: no later plan can have other bounds or names.
    """
    if has_bounds_by_name(plan):
        planned = plan.config.feature_names
        places = [planned.index(name) for name in names or planned]
        lower, upper = ([side[place] for place in places] for side in plan.config.bounds)
        policy.check_box(lower, upper, len(places))


def require_ledger(settings: NodeSettings, context: Context) -> None:
    """Refuse a run whose releases could not be charged, or that has been charged before."""
    if settings.ledger.attempts(ledger_run(context)):
        raise ProtocolError(
            f"this client's ledger has releases of run {context.run_id} already: the plan is replayed, or the client "
            "lost its state; start a new run."
        )
    try:
        settings.ledger.require_usable()
    except BudgetError as error:
        client_log.failed(error)
        raise RefusalError(
            "this client's budget ledger is damaged or cannot be written (its own log says how), and without it "
            "nothing may be released: have its owner look at it, or leave this client out."
        ) from error


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
    config = plan.config
    if config.evaluation is not Evaluation.NONE and config.n_classes > 0 and not has_labels:
        raise RefusalError(
            f"the plan evaluates against labels of {config.n_classes} classes, but this client has no labels: name "
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


def require_in_time(message: Message) -> None:
    """Refuse a request whose sender has given up by now: what nobody takes in must not cost anything.

    The sender's clock may be some seconds off (Flower locks out one that is 6 s fast), so within the first
    `LEAST_WAIT` seconds nothing is late.
    """
    wait, age = wait_of(message.content), time.time() - message.metadata.created_at
    if wait is not None and age > max(wait, LEAST_WAIT):
        raise ProtocolError(
            f"the request was made {age:.0f} s ago, but the server waits {wait:.0f} s for answers, so nothing is given "
            "or charged: free this machine or raise round-timeout; if nobody waited so long, set the clocks."
        )


def pins_of(settings: NodeSettings, run_id: int) -> frozenset[bytes]:
    """What the server is told of the identities that this node pins; empty if it pins none."""
    if settings.policy.pinned_peers is None or settings.identity is None:
        return frozenset()
    keys = (settings.identity.public_key, *(bytes.fromhex(key) for _, key in settings.policy.pinned_peers))
    return frozenset(credentials.pin_mark(key, run_id) for key in keys)


def require_planned(plan: Plan, request: SumRequest) -> None:
    """Hold a request against what the plan priced: so many attempts, and a cohort that is not larger."""
    if request.attempt > plan.config.max_retries:
        raise ProtocolError(
            f"attempt {request.attempt} was asked for, but the plan that was agreed on has {plan.config.max_retries} "
            "retries: start a new run, or raise max-retries."
        )
    if request.roster is not None:
        require_size(plan, request.roster)


def require_size(plan: Plan, roster: Roster) -> None:
    """Refuse a roster that is larger than the plan's cohort."""
    if len(roster.members) > plan.n_clients:
        raise ProtocolError(
            f"the roster has {len(roster.members)} clients, but the plan that was agreed on has {plan.n_clients}: stop "
            "the run and check the server."
        )


def require_pinned(memory: ClientMemory, settings: NodeSettings, request: SumRequest | ShareRequest) -> int:
    """Hold the first roster of a run against the identities that the policy pins; return how many were recognised.

    Later rosters can only lose members, with unchanged keys, so what was recognised once stays recognised.
    """
    pinned, identity = settings.policy.pinned_peers, settings.identity
    if pinned is None or identity is None:
        return memory.n_recognised
    protocol = memory.protocol
    if announced_roster(protocol) is not None:
        if not memory.n_recognised:
            raise IdentityError(
                "the policy has pinned identities since this run began, and its roster was not held against them: "
                "start a new run."
            )
        return memory.n_recognised
    if request.roster is None:
        raise ProtocolError("the first request came without the run's roster: restart the run.")
    return credentials.require_pinned(
        request.roster,
        request.credentials,
        run_id=protocol.run_id,
        node_id=protocol.node_id,
        plan_digest=memory.agreed_digest,
        own_identity=identity.public_key,
        pinned={bytes.fromhex(key): name for name, key in pinned},
    )


def require_fresh(memory: ClientMemory, settings: NodeSettings, request: SumRequest) -> None:
    """Refuse an aggregation that stands in the ledger, and a run of which ledger and memory know different things."""
    entry, index, attempt = ledger_run(memory.protocol), request.round_index, request.attempt
    run = memory.plan.run_id
    if settings.ledger.has_attempt(entry, index, attempt):
        raise ProtocolError(
            f"round {index}, attempt {attempt} of run {run} stands in this client's ledger already: the request is a "
            "replay and stays unanswered."
        )
    require_same_history(memory, settings)


def require_same_history(memory: ClientMemory, settings: NodeSettings) -> None:
    """Refuse to go on where ledger and memory know different releases of the run: one of them is an older copy."""
    run = memory.plan.run_id
    entries = settings.ledger.attempts(ledger_run(memory.protocol))
    charged = {(index, attempt) for index, attempt in entries if attempt < SHARES_GIVEN}
    if not charged >= set(memory.attempts):
        raise ProtocolError(
            f"this client's ledger lacks releases of run {run} that it has made (an older copy was put back, or it is "
            "another file): it is left out until its owner has looked at it."
        )
    if charged != set(memory.attempts):
        raise ProtocolError(
            f"this client's ledger has releases of run {run} that it does not remember (it lost its state after "
            "answering): it is left out, because their cost would not be counted."
        )


def ledger_run(client: Context | AnyState) -> str:
    """Name of this node's part of a run in the ledger, which the nodes of one host may share."""
    return f"{client.run_id}/{client.node_id}"


def charge(memory: ClientMemory, settings: NodeSettings, index: int, attempt: int, release_name: str) -> LedgerEntry:
    """Write the release into the ledger, before it is sent; return what was written.

    The first one charges all that the run can cost. The policy is asked once more, under the lock of the charge: many
    runs may have been allowed while none of them was charged.
    """
    entry = _entry(memory, settings, index, attempt, release_name)
    settings.ledger.charge(entry, _admit(memory.plan, settings))
    return entry


def note_shares(memory: ClientMemory, settings: NodeSettings, index: int, attempt: int) -> None:
    """Write into the ledger, before they are sent, that shares of one aggregation are given; a second time, refuse.

    A reply is sent before Flower keeps the context, so the memory alone does not know: with an older one a client would
    give both shares of a neighbour to a server that names other survivors.
    """
    require_same_history(memory, settings)
    run, marked = ledger_run(memory.protocol), attempt + SHARES_GIVEN
    if settings.ledger.has_attempt(run, index, marked):
        raise ProtocolError(
            f"shares of round {index}, attempt {attempt} of run {memory.plan.run_id} were given already, says this "
            "client's ledger: the request is a replay and stays unanswered."
        )
    name = f"key shares of {memory.plan.round_at(index).name}"
    settings.ledger.charge(_entry(memory, settings, index, marked, name))


def _entry(memory: ClientMemory, settings: NodeSettings, index: int, attempt: int, release_name: str) -> LedgerEntry:
    """An entry of the run, with all that it can cost."""
    plan = memory.plan
    return LedgerEntry(
        run_id=ledger_run(memory.protocol),
        data_id=settings.data_id,
        plan_digest=memory.agreed_digest.hex(),
        round_index=index,
        attempt=attempt,
        release=release_name,
        epsilon=_cost(plan),
        # The one that the run began with: it holds whatever a count leads to [C15].
        delta=resolve_delta(plan.config, plan.n_clients),
        unit=plan.config.unit.value,
    )
