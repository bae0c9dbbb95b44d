"""What a node decides before anything leaves it, and what it writes down.

By its own policy and ledger. `NodeGuard` is what `flwr_dpkmeans.sums.client.Client`
calls on; it serves one request of one run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from functools import partial

from flwr_dpkmeans import errors
from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.errors import BudgetError, ProtocolError, RefusalError
from flwr_dpkmeans.log import event, name_nodes, printable
from flwr_dpkmeans.node import node_log
from flwr_dpkmeans.node.ledger import Past, unfinished
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, SHARES_GIVEN, LedgerEntry
from flwr_dpkmeans.node.limits import has_bounds_by_name
from flwr_dpkmeans.node.node_log import json_number, logger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost
from flwr_dpkmeans.privacy.provenance import utc_now
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.messages import SumRequest, UnmaskRequest
from flwr_dpkmeans.secagg.party import Phase
from flwr_dpkmeans.secagg.pins import names_by_node, pin_mark
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.client import Guard, Memory
from flwr_dpkmeans.sums.client.injected import RowsSeen
from flwr_dpkmeans.sums.draft import worst_case, worst_cost
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.settings import EvaluationKind
from flwr_dpkmeans.sums.wire import LONGEST_SENTENCE, terms_digest

LEAST_WAIT = 10.0
"""Seconds that every request stays good for by this node's clock."""


class NodeGuard(Guard):
    """One node's decisions on one request; see `flwr_dpkmeans.sums.client.Guard`.

    `stream` numbers this client's seeded noise; `created` is when the request was made,
    by its sender's clock.
    """

    def __init__(
        self,
        settings: NodeSettings,
        run_id: int,
        node_id: int,
        stream: int,
        created: float,
    ) -> None:
        self.settings = settings
        self.data_id = settings.data_id
        self.identity = settings.identity
        self.min_cohort = settings.policy.min_cohort
        self.run_id = run_id
        self.node_id = node_id
        self.stream = stream
        self.pinned = None
        if settings.policy.pinned_peers is not None:
            pairs = settings.policy.pinned_peers
            self.pinned = {bytes.fromhex(key): name for name, key in pairs}
        self.entry_run = f"{run_id}/{node_id}"
        """This node's part of a run in the ledger, which the nodes of one host may
        share.
        """
        self._created = created

    # -- who takes part

    def marks(self) -> frozenset[bytes]:
        """Return a mark of each identity that this node takes part with."""
        if self.pinned is None or self.identity is None:
            return frozenset()
        identities = (self.identity.public_key, *self.pinned)
        return frozenset([pin_mark(identity, self.run_id) for identity in identities])

    def name_peers(self, memory: Memory | None) -> None:
        """Call this node and its cohort by the policy's names in the log.

        Nobody but who was recognised: any server can announce a public key as the
        identity of whatever node it makes up.
        """
        if not self.pinned:
            return
        names: dict[int, str] = {}
        if memory is not None and memory.n_recognised > 0:
            names |= names_by_node(memory.cohort, self.pinned)
        if self.identity is not None and self.identity.public_key in self.pinned:
            names[self.node_id] = self.pinned[self.identity.public_key]
        name_nodes(names)

    def started(self) -> str:
        """Return the time at which this node began, for the report."""
        return utc_now()

    def identities(self, n_recognised: int) -> str:
        """Say for the report whether this node looked at the others' identities."""
        if n_recognised:
            return report_sentence("pinned", n=n_recognised)
        return report_sentence("simulated" if self.settings.simulated else "not_pinned")

    # -- what a plan may be

    def require_in_time(self, wait: float | None) -> None:
        """Refuse a request whose sender has given up by now.

        What nobody takes in must not cost anything.

        The sender's clock may be some seconds off (Flower locks out one that is 6 s
        fast), so within the first `LEAST_WAIT` seconds nothing is late.
        """
        age = time.time() - self._created
        if wait is not None and age > max(wait, LEAST_WAIT):
            raise ProtocolError(
                f"the request was made {age:.0f} s ago, but the server waits {wait:.0f}"
                " s for answers, so nothing is given or charged: free this machine or"
                " raise round-timeout; if nobody waited so long, set the clocks."
            )

    def require_approved(
        self,
        plan: Plan,
        digest: bytes,
    ) -> None:
        """Refuse a plan that no node accepts, or this node's policy does not allow."""
        node_log.log_plan(plan, digest)
        if not plan.settings.masking:
            raise RefusalError(
                "the plan turns masks off, which no client of a Flower run accepts:"
                " leave masking on."
            )
        is_exact = plan.settings.evaluation is EvaluationKind.EXACT
        if is_exact and not self.settings.simulated:
            raise RefusalError(
                "the plan's evaluation is 'exact', which releases sums without noise"
                " and exists in simulation only: choose evaluation='private'."
            )
        try:
            verify_plan(plan)
        except (errors.LocalMisuseError, BudgetError) as error:
            # Nothing but the server's own plan is in these sentences, so they may
            # travel.
            raise RefusalError(str(error)) from error
        except ArithmeticError as error:
            raise RefusalError(
                "the plan's numbers are too large or too small to compute its noise"
                " from: give usual ones."
            ) from error
        node_log.log_price(plan)
        # What the ledger has no part in comes first: such a refusal tells nothing of
        # other runs.
        self._admit(plan, Past())
        self._admit(plan, Past(), self._n_plans_today(digest))
        past = self.require_allowed(plan)
        logger.info(
            f"allowed by this node's policy: {self._spent(past)} was spent in other"
            " runs of this unit",
            extra=event(
                "plan allowed",
                spent=json_number(past.total[0]),
                limit=json_number(self.settings.policy.max_epsilon_total),
            ),
        )

    def _n_plans_today(self, digest: bytes) -> int:
        """Note that a plan is looked at.

        And return how many others were whose runs released nothing.
        """
        most = self.settings.policy.plans_per_day
        if most is None:
            return 0
        return self.settings.ledger.note_plan(
            self.data_id,
            self.entry_run,
            digest.hex(),
            most,
        )

    def _spent(self, past: Past) -> str:
        """Say what runs on the data set have cost, and of which limit, if any."""
        total = self.settings.policy.total
        epsilon, delta = past.spent(total)
        most = "" if math.isinf(total.epsilon) else f" of {total.epsilon:.4g}"
        cost = f"epsilon {epsilon:.4g}{most} at delta {delta:.3g}"
        return f"{cost} on data set {printable(self.data_id, 200)!r}"

    def require_allowed(self, plan: Plan) -> Past:
        """Hold a plan against the policy and what other runs have cost until now.

        Both as they are now, which may be long after the plan was agreed to.
        """
        past = self.settings.ledger.past(
            self.data_id, plan.settings.unit.value, excluding_run=self.entry_run
        )
        self._admit(plan, past)
        return past

    def spent(self, plan: Plan) -> str:
        """Say what all runs on this data set may have cost by now, and what is left.

        For this node's own eyes.
        """
        unit = plan.settings.unit.value
        past = self.settings.ledger.past(self.data_id, unit)
        total = self.settings.policy.total
        epsilon, delta = past.spent(total)
        rest = total.left(past.cost)
        left = (
            "" if math.isinf(rest) else f"; its policy leaves {rest:.4g} for one more"
        )
        return (
            f"By this party's ledger this run cost epsilon {cost_of(plan)[0]:.4g} at"
            f" most, and all runs of unit {unit!r} on data set {self.data_id!r} cost"
            f" {epsilon:.4g} at delta {delta:.3g}{left}."
        )

    def _admit(
        self,
        plan: Plan,
        past: Past,
        plans_today: int = 0,
    ) -> None:
        """Hold a plan against the policy, beside what other runs cost."""
        policy = self.settings.policy
        terms = terms_digest(plan) if policy.approved_plan_digests else ""
        try:
            policy.check(
                Proposal(
                    plan,
                    *cost_of(plan),
                    past,
                    terms,
                    plans_today,
                )
            )
        except BudgetError as error:
            # The policy's sentences hold public values only, unlike the ledger's, so
            # they may travel.
            raise RefusalError(str(error)) from error

    def require_new_run(self) -> None:
        """Refuse a run that has releases already, or a ledger that cannot take any."""
        ledger = self.settings.ledger
        if ledger.attempts(self.entry_run):
            raise ProtocolError(
                f"this client's ledger has releases of run {self.run_id} already: the"
                " plan is replayed, or the client lost its state; start a new run."
            )
        with _ledger_errors():
            ledger.require_usable()
        last = unfinished(ledger, self.data_id)
        if last is not None:
            logger.warning(
                "%s",
                node_log.unfinished_sentence(last),
                extra=event("unfinished", other=last.run_id),
            )

    def require_same_data(self, rows: RowsSeen | None) -> None:
        """Refuse rows that the ledger was not charged for, and note those that it is.

        The server hears of them what it hears of a damaged ledger, and nothing of what
        is different.
        """
        belonging = self.settings.belonging
        if belonging is None:
            return
        facts = None if rows is None else RowFacts(*rows)
        with _ledger_errors():
            problem = belonging.problem(facts)
            if problem:
                raise BudgetError(problem)
            belonging.note(facts)

    def require_names(
        self,
        plan: Plan,
        names: tuple[str, ...],
    ) -> None:
        """Hold columns, and the bounds of named ones, against the policy.

        Its own bounds are in the order of the own table. Checked once: no later plan
        can have other bounds or names.
        """
        policy = self.settings.policy
        policy.check_columns(names)
        if has_bounds_by_name(plan):
            planned = plan.config.feature_names
            own_order = names if names else planned
            indices = [planned.index(name) for name in own_order]
            lower, upper = plan.config.bounds
            policy.check_box(
                [lower[index] for index in indices],
                [upper[index] for index in indices],
                len(indices),
            )
        if not names:
            # Nothing tells this client whether the others' columns are its own.
            logger.info(
                "the own table has no column names: its columns are matched by position"
            )

    # -- one release

    def require_open(
        self,
        memory: Memory,
        request: SumRequest,
    ) -> None:
        """Refuse a vector that the ledger has, or the policy allows no more."""
        self.name_peers(memory)
        node_log.log_request(memory.plan, request, memory.n_recognised)
        entries = self.settings.ledger.attempts(self.entry_run)
        if request.attempt_id in entries:
            # Against an older memory that was put back: one (round, attempt) twice.
            raise ProtocolError(
                f"round {request.round_index}, attempt {request.attempt} of run"
                f" {self.run_id} stands in this client's ledger already: the request is"
                " a replay and stays unanswered."
            )
        self.require_same_history(memory, entries)
        self.require_allowed(memory.plan)

    def require_same_history(
        self,
        memory: Memory,
        entries: frozenset[AttemptId] | None = None,
    ) -> None:
        """Refuse to go on where the ledger and the memory have other releases."""
        if entries is None:
            entries = self.settings.ledger.attempts(self.entry_run)
        charged = {entry for entry in entries if entry[1] < SHARES_GIVEN}
        remembered = set(memory.attempts)
        if not charged >= remembered:
            raise ProtocolError(
                f"this client's ledger lacks releases of run {self.run_id} that it has"
                " made (an older copy was put back, or it is another file): it is left"
                " out until its owner has looked at it."
            )
        if charged != remembered:
            raise ProtocolError(
                f"this client's ledger has releases of run {self.run_id} that it does"
                " not remember (it lost its state after answering): it is left out,"
                " because their cost would not be counted."
            )

    def charge(
        self,
        memory: Memory,
        index: int,
        attempt: int,
        n_clients: int,
    ) -> None:
        """Write the release into the ledger, before it is sent.

        The first one charges all that the run can cost. The policy decides once more,
        under the lock of the charge: many runs may have been allowed while none of them
        was charged.
        """
        planned = memory.plan.round_at(index)
        entry = self._entry(
            memory,
            index,
            attempt,
            planned.name,
        )
        admit = partial(self._admit, memory.plan)
        self.settings.ledger.charge(entry, admit)
        if logger.isEnabledFor(logging.INFO):
            past = self.settings.ledger.past(self.data_id, entry.unit)
            node_log.log_release(
                planned,
                n_clients,
                entry.epsilon,
                past.total[0],
                self._spent(past),
            )

    def give_shares(
        self,
        memory: Memory,
        request: UnmaskRequest,
    ) -> None:
        """Write into the ledger that key shares are given, before they are sent.

        A second time is refused. A reply is sent before Flower stores the context, so
        the memory alone does not know: with an older one a client would give both
        shares of a neighbour to a server that names other survivors.
        """
        self.require_same_history(memory)
        index = request.round_index
        marked_attempt = request.attempt + SHARES_GIVEN
        if (index, marked_attempt) in self.settings.ledger.attempts(self.entry_run):
            raise ProtocolError(
                f"shares of round {index}, attempt {request.attempt} of run"
                f" {self.run_id} were given already, says this client's ledger: the"
                " request is a replay and stays unanswered."
            )
        name = f"key shares of {memory.plan.round_at(index).name}"
        self.settings.ledger.charge(
            self._entry(
                memory,
                index,
                marked_attempt,
                name,
            )
        )
        n_asked = len(memory.party.cohort.members)
        node_log.log_shares_given(request, n_asked)

    def _entry(
        self,
        memory: Memory,
        index: int,
        attempt: int,
        release_name: str,
    ) -> LedgerEntry:
        plan = memory.plan
        epsilon, cost = cost_of(plan)
        return LedgerEntry(
            run_id=self.entry_run,
            data_id=self.data_id,
            plan_digest=memory.agreed_digest.hex(),
            round_index=index,
            attempt=attempt,
            release=release_name,
            epsilon=epsilon,
            # The delta that the run began with: it holds whatever a count leads to
            # [C15].
            delta=resolve_delta(plan.config, plan.n_clients),
            unit=plan.settings.unit.value,
            mu=cost.mu,
            own_delta=cost.own_delta,
        )

    def shared(
        self,
        memory: Memory,
        n_neighbours: int,
        threshold: int,
    ) -> None:
        """Log that this client shared the keys of the run."""
        self.name_peers(memory)
        announced = memory.party.announced
        n_clients = 0 if announced is None else len(announced.members)
        node_log.log_keys_shared(
            n_clients,
            memory.n_recognised,
            n_neighbours,
            threshold,
        )

    # -- the end

    def finished(
        self,
        memory: Memory,
        report: PrivacyReport,
    ) -> None:
        """Log the report's warnings, and what names the run in report and ledger."""
        warnings = () if self.settings.simulated else report.warnings
        for sentence in warnings:
            logger.warning("%s", printable(sentence), extra=event("warning"))
        logger.info(
            f"the result is here, after {len(memory.attempts)} releases;"
            f" {report.provenance}",
            extra=event("finished"),
        )

    def ended(self, memory: Memory) -> None:
        """Note in the ledger that the run's result has come."""
        if self.settings.simulated or not memory.attempts:
            return
        index = memory.plan.last_round
        ledger = self.settings.ledger
        try:
            if (index, RESULT_TAKEN) not in ledger.attempts(self.entry_run):
                ledger.charge(
                    self._entry(
                        memory,
                        index,
                        RESULT_TAKEN,
                        "the result",
                    )
                )
        except BudgetError as error:
            # The result is here all the same.
            node_log.log_failure(error)

    def stopped(
        self,
        memory: Memory | None,
        sentence: str,
    ) -> None:
        """Log that the server stopped the run, and what it has cost here."""
        n_releases = -1
        cost = "its ledger cannot be read"
        try:
            # Of a node that lost its state after answering, the ledger alone knows.
            attempts = self.settings.ledger.attempts(self.entry_run)
            n_releases = sum(attempt < SHARES_GIVEN for _, attempt in attempts)
            cost = "it has cost nothing here"
            if n_releases:
                cost = f"what {n_releases} release(s) cost here stays charged"
        except BudgetError as error:
            node_log.log_failure(error)
        again = ""
        if memory is not None and memory.party.phase is Phase.FINISHED:
            again = ", of whose end this node had heard before"
        reason = printable(sentence, LONGEST_SENTENCE)
        logger.warning(
            f"the server has stopped this run{again}, and {cost}; it says: {reason}",
            extra=event("stopped", n_releases=n_releases),
        )


@contextlib.contextmanager
def _ledger_errors() -> Iterator[None]:
    """Tell the server one sentence, whatever is wrong, and this node's log which."""
    try:
        yield
    except BudgetError as error:
        node_log.log_failure(error)
        raise RefusalError(
            "this client's budget ledger is damaged, cannot be written or knows other"
            " data only (its own log says which), and without it nothing may be"
            " released: have its owner look at it, or leave this client out."
        ) from error


def cost_of(plan: Plan) -> tuple[float, GaussianCost]:
    """Return the epsilon that a whole run can cost, and its cost beside other runs.

    Seeded noise protects nobody, so it is charged like none.
    """
    if not plan.is_private:
        return math.inf, GaussianCost(math.inf)
    return worst_case(plan), worst_cost(plan)
