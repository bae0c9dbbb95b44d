"""What a node decides before anything leaves it, by its own policy and ledger, and what
it writes down.

`NodeGuard` is what `flwr_dpkmeans.sums.client.Client` asks. It knows one request of one
run. What the node's own log says stays on the node: the plan's public values, the
node's own policy and its ledger's sums; never a row, a statistic, a centroid, a key or
a mask.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from functools import partial

from flwr_dpkmeans import errors
from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    DPKMeansError,
    ProtocolError,
    RefusalError,
    listed,
)
from flwr_dpkmeans.log import event, name_nodes, placed_logger, printable
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import (
    RESULT_TAKEN,
    SHARES_GIVEN,
    LedgerEntry,
    MemoryLedger,
    Past,
    unfinished,
)
from flwr_dpkmeans.node.limits import Proposal, has_bounds_by_name
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.report import PrivacyReport, told, utc_now
from flwr_dpkmeans.secagg.messages import SumRequest, UnmaskRequest
from flwr_dpkmeans.secagg.party import Phase
from flwr_dpkmeans.secagg.pins import pin_mark
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.client import Guard, Memory
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.settings import EvaluationKind
from flwr_dpkmeans.sums.wire import LONGEST_SENTENCE, Request, terms_digest

LEAST_WAIT = 10.0
"""Seconds that every request stays good for by this node's clock."""

_DIGEST_CHARACTERS = 16

logger = placed_logger("flwr_dpkmeans.mod")


@dataclass(frozen=True)
class NodeSettings:
    """A node's own decisions; nothing here can be set by the server of a deployment.

    A policy that pins peers, on a node without an identity of its own, is a
    ConfigurationError.
    """

    policy: ClientPolicy
    ledger: MemoryLedger
    data_id: str
    simulated: bool = False
    """Whether this node is part of a simulation, where an exact evaluation protects
    nobody's rows.
    """
    identity: Identity | None = None
    """Signs the node's key in every run."""

    def __post_init__(self) -> None:
        if self.policy.pinned_peers is not None and self.identity is None:
            raise ConfigurationError(
                "the node's policy pins peers, but the node has no 'identity' that they"
                " could pin: make one with 'python -m flwr_dpkmeans identity new PATH'"
                " and give its path in the node's configuration."
            )


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
        self.settings, self.data_id, self.identity = (
            settings,
            settings.data_id,
            settings.identity,
        )
        self.run_id, self.node_id, self.stream = run_id, node_id, stream
        self.min_cohort = settings.policy.min_cohort
        pinned = settings.policy.pinned_peers
        self.pinned = (
            None
            if pinned is None
            else {bytes.fromhex(key): name for name, key in pinned}
        )
        self._created = created
        # This node's part of a run in the ledger, which the nodes of one host may
        # share.
        self.entry_run = f"{run_id}/{node_id}"

    def marks(self) -> frozenset[bytes]:
        if self.pinned is None or self.identity is None:
            return frozenset()
        return frozenset(
            pin_mark(key, self.run_id)
            for key in (self.identity.public_key, *self.pinned)
        )

    def name_peers(self, memory: Memory | None, request: Request) -> None:
        """Call nodes by the policy's names: this one, those whose identities are
        announced now, and the cohort's.
        """
        if not self.pinned:
            return
        own = self.identity and self.identity.public_key
        told = {
            node: found.identity.hex()
            for node, found in getattr(request.body, "credentials", {}).items()
        }
        for line in () if memory is None else memory.cohort:
            node, _, digits = line.partition(" identity ")
            told |= {int(node): digits} if digits else {}
        told |= {self.node_id: own.hex()} if own else {}
        names = {
            node: [
                name for key, name in self.pinned.items() if key.hex().startswith(one)
            ]
            for node, one in told.items()
        }
        name_nodes({node: found[0] for node, found in names.items() if found})

    def started(self) -> str:
        return utc_now()

    def identities(self, n_recognised: int) -> str:
        if n_recognised:
            return told("pinned", n=n_recognised)
        return told("simulated" if self.settings.simulated else "not_pinned")

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

    def require_approved(self, plan: Plan, digest: bytes) -> None:
        plan_came(plan, digest)
        if not plan.settings.masking:
            raise RefusalError(
                "the plan turns masks off, which no client of a Flower run accepts:"
                " leave masking on."
            )
        if (
            plan.settings.evaluation is EvaluationKind.EXACT
            and not self.settings.simulated
        ):
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
        # What the ledger has no part in comes first: such a refusal tells nothing of
        # other runs.
        self._admit(plan, cost_of(plan), Past())
        self._admit(plan, cost_of(plan), Past(), self._n_plans_today(digest))
        spent, limit = (
            self.require_allowed(plan).epsilon,
            self.settings.policy.max_epsilon_total,
        )
        logger.info(
            f"allowed by this node's policy: {self._spent(spent)} was spent in other"
            " runs of this unit",
            extra=event("plan allowed", spent=_finite(spent), limit=_finite(limit)),
        )

    def _n_plans_today(self, digest: bytes) -> int:
        """Note that a plan is looked at, and return how many others were whose runs
        released nothing.
        """
        most = self.settings.policy.plans_per_day
        if most is None:
            return 0
        return self.settings.ledger.note_plan(
            self.data_id, self.entry_run, digest.hex(), most
        )

    def _spent(self, epsilon: float) -> str:
        """What runs have cost, with the limit that it is held against if there is one,
        and the data set.
        """
        limit = self.settings.policy.max_epsilon_total
        most = "" if math.isinf(limit) else f" of {limit:.4g}"
        return (
            f"epsilon {epsilon:.4g}{most} on data set {printable(self.data_id, 200)!r}"
        )

    def require_allowed(self, plan: Plan) -> Past:
        """Hold a plan against the policy as it is now, and against what other runs have
        cost until now.
        """
        past = self.settings.ledger.past(
            self.data_id, plan.settings.unit.value, excluding_run=self.entry_run
        )
        self._admit(plan, cost_of(plan), past)
        return past

    def spent(self, plan: Plan) -> str:
        """What all runs on this data set may have cost by now, and what is left.

        For this node's own eyes.
        """
        unit, most = plan.settings.unit.value, self.settings.policy.max_epsilon_total
        past = self.settings.ledger.past(self.data_id, unit)
        left = (
            ""
            if math.isinf(most)
            else f"; epsilon {max(0.0, most - past.epsilon):.4g} is left by its policy"
        )
        return (
            f"By this party's ledger, runs of unit {unit!r} on data set"
            f" {self.data_id!r} may have cost epsilon {past.epsilon:.4g} and delta"
            f" {past.delta:.3g} in all, this one included{left}."
        )

    def _admit(
        self, plan: Plan, epsilon: float, past: Past, plans_today: int = 0
    ) -> None:
        """Hold a plan of some cost against the policy, beside what other runs have
        cost.
        """
        policy = self.settings.policy
        terms = terms_digest(plan) if policy.approved_plan_digests else ""
        try:
            policy.check(Proposal(plan, epsilon, past, terms, plans_today))
        except BudgetError as error:
            # The policy's sentences hold public values only, unlike the ledger's, so
            # they may travel.
            raise RefusalError(str(error)) from error

    def require_new_run(self) -> None:
        ledger = self.settings.ledger
        if ledger.attempts(self.entry_run):
            raise ProtocolError(
                f"this client's ledger has releases of run {self.run_id} already: the"
                " plan is replayed, or the client lost its state; start a new run."
            )
        try:
            ledger.require_usable()
        except BudgetError as error:
            failed(error)
            raise RefusalError(
                "this client's budget ledger is damaged or cannot be written (its own"
                " log says how), and without it nothing may be released: have its owner"
                " look at it, or leave this client out."
            ) from error
        if (last := unfinished(ledger, self.data_id)) is not None:
            logger.warning(
                "%s",
                unfinished_sentence(last),
                extra=event("unfinished", other=last.run_id),
            )

    def require_names(self, plan: Plan, names: tuple[str, ...]) -> None:
        """Hold columns and the bounds of named ones against the policy, whose own are
        in the order of the own table.

        Checked once: no later plan can have other bounds or names.
        """
        policy = self.settings.policy
        policy.check_columns(names)
        if has_bounds_by_name(plan):
            planned = plan.config.feature_names
            places = [planned.index(name) for name in names or planned]
            lower, upper = (
                [side[place] for place in places] for side in plan.config.bounds
            )
            policy.check_box(lower, upper, len(places))
        if not names:
            # Nothing tells this client whether the others' columns are its own.
            logger.info(
                "the own table has no column names: its columns are matched by position"
            )

    def require_open(self, memory: Memory, request: SumRequest) -> None:
        _log_asked(memory.plan, request, memory.n_recognised)
        entries = self.settings.ledger.attempts(self.entry_run)
        index, attempt = request.attempt_id
        if (index, attempt) in entries:
            raise ProtocolError(
                f"round {index}, attempt {attempt} of run {self.run_id} stands in this"
                " client's ledger already: the request is a replay and stays"
                " unanswered."
            )
        self.require_same_history(memory, entries)
        self.require_allowed(memory.plan)

    def require_same_history(
        self, memory: Memory, entries: frozenset[tuple[int, int]] | None = None
    ) -> None:
        entries = (
            self.settings.ledger.attempts(self.entry_run)
            if entries is None
            else entries
        )
        charged, remembered = (
            {entry for entry in entries if entry[1] < SHARES_GIVEN},
            set(memory.attempts),
        )
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

    def charge(self, memory: Memory, index: int, attempt: int, n_clients: int) -> None:
        """Write the release into the ledger, before it is sent.

        The first one charges all that the run can cost. The policy is asked once more,
        under the lock of the charge: many runs may have been allowed while none of them
        was charged.
        """
        planned = memory.plan.round_at(index)
        entry = self._entry(memory, index, attempt, planned.name)
        self.settings.ledger.charge(
            entry, partial(self._admit, memory.plan, entry.epsilon)
        )
        if logger.isEnabledFor(logging.INFO):
            spent = self.settings.ledger.past(self.data_id, entry.unit).epsilon
            logger.info(
                f"gave: {printable(planned.name, 60)}, masked, in a sum of {n_clients}"
                f" clients; ledger: epsilon {entry.epsilon:.4g} for all of this run,"
                f" {self._spent(spent)} in all runs of this unit",
                extra=event(
                    "gave",
                    release=planned.name,
                    epsilon=_finite(entry.epsilon),
                    spent=_finite(spent),
                ),
            )

    def give_shares(self, memory: Memory, request: UnmaskRequest) -> None:
        """Write into the ledger, before they are sent, that shares of one aggregation
        are given; a second time, refuse.

        A reply is sent before Flower keeps the context, so the memory alone does not
        know: with an older one a client would give both shares of a neighbour to a
        server that names other survivors.
        """
        self.require_same_history(memory)
        index, attempt, marked = (
            request.round_index,
            request.attempt,
            request.attempt + SHARES_GIVEN,
        )
        if (index, marked) in self.settings.ledger.attempts(self.entry_run):
            raise ProtocolError(
                f"shares of round {index}, attempt {attempt} of run {self.run_id} were"
                " given already, says this client's ledger: the request is a replay"
                " and stays unanswered."
            )
        name = f"key shares of {memory.plan.round_at(index).name}"
        self.settings.ledger.charge(self._entry(memory, index, marked, name))
        n_survivors, n_asked = (
            len(request.survivors),
            len(memory.protocol.cohort.members),
        )
        told = (
            f"gave shares that unmask the sum of {n_survivors} clients out of {n_asked}"
        )
        logger.info(
            told, extra=event("unmasked", n_survivors=n_survivors, n_asked=n_asked)
        )

    def _entry(
        self, memory: Memory, index: int, attempt: int, release_name: str
    ) -> LedgerEntry:
        plan = memory.plan
        return LedgerEntry(
            run_id=self.entry_run,
            data_id=self.data_id,
            plan_digest=memory.agreed_digest.hex(),
            round_index=index,
            attempt=attempt,
            release=release_name,
            epsilon=cost_of(plan),
            # The one that the run began with: it holds whatever a count leads to [C15].
            delta=resolve_delta(plan.config, plan.n_clients),
            unit=plan.settings.unit.value,
        )

    def shared(self, memory: Memory, n_neighbours: int, threshold: int) -> None:
        announced = memory.protocol.announced
        n_clients = 0 if announced is None else len(announced.members)
        logger.info(
            f"shared the keys of this run: {n_clients} clients, {memory.n_recognised}"
            f" of them recognised; {n_neighbours} neighbours hold shares, {threshold}"
            " give a key back",
            extra=event(
                "shared",
                n_clients=n_clients,
                n_neighbours=n_neighbours,
                threshold=threshold,
            ),
        )

    def finished(self, memory: Memory, report: PrivacyReport) -> None:
        """Log what the report says against the result, and what it, the ledger's
        entries and this log share.
        """
        for sentence in () if self.settings.simulated else report.warnings:
            logger.warning("%s", printable(sentence), extra=event("warning"))
        told = (
            f"the result is here, after {len(memory.attempts)} releases;"
            f" {report.provenance}"
        )
        logger.info(told, extra=event("finished"))

    def ended(self, memory: Memory) -> None:
        if self.settings.simulated or not memory.attempts:
            return
        index, ledger = memory.plan.last_round, self.settings.ledger
        try:
            if (index, RESULT_TAKEN) not in ledger.attempts(self.entry_run):
                ledger.charge(self._entry(memory, index, RESULT_TAKEN, "the result"))
        except BudgetError as error:
            failed(error)  # the result is here all the same

    def stopped(self, memory: Memory | None, sentence: str) -> None:
        before = memory is not None and memory.protocol.phase is Phase.FINISHED
        try:
            # Of a node that lost its state after answering, the ledger alone knows.
            n_releases = sum(
                attempt < SHARES_GIVEN
                for _, attempt in self.settings.ledger.attempts(self.entry_run)
            )
            cost = (
                f"what {n_releases} release(s) cost here stays charged"
                if n_releases
                else "it has cost nothing here"
            )
        except BudgetError as error:
            failed(error)
            n_releases, cost = -1, "its ledger cannot be read"
        told = (
            f"stopped this run{', of whose end this node had heard before' * before},"
            f" and {cost}"
        )
        sentence = printable(sentence, LONGEST_SENTENCE)
        logger.warning(
            f"the server has {told}; it says: {sentence}",
            extra=event("stopped", n_releases=n_releases),
        )


def unfinished_sentence(last: LedgerEntry) -> str:
    """Say what is known of a run on the same data that has had no result."""
    return (
        f"run {printable(last.run_id, 60)} gave its last release"
        f" ({printable(last.release, 60)}, {last.time}) and has had no result: unless"
        " it is going on now, it has ended elsewhere, and its epsilon"
        f" {last.epsilon:.4g} stays charged"
    )


def cost_of(plan: Plan) -> float:
    """What a whole run can cost.

    Seeded noise protects nobody, so it is charged like none.
    """
    return worst_case(plan) if plan.is_private else float("inf")


def plan_came(plan: Plan, digest: bytes) -> None:
    """Say which plan this client is asked to agree to."""
    config = plan.config
    try:
        worst = worst_case(plan)
        epsilon = plan.epsilon if plan.is_final else config.epsilon
        private = plan.is_private
    except (DPKMeansError, ArithmeticError):
        # The plan is not checked yet, so its noise may have no price; the check will
        # say what is wrong with it.
        worst, epsilon, private = math.nan, math.nan, True
    if not private:
        worst = epsilon = math.inf
    rounds = (
        f"{plan.last_round} rounds" if plan.is_final else "rounds still to be planned"
    )
    logger.info(
        f"asked for: {printable(config.algorithm, 60)} under trust"
        f" {printable(config.trust, 60)}, {rounds}, {plan.n_clients} clients, unit"
        f" {config.unit.value}, epsilon {epsilon:.4g} (at most {worst:.4g} with all"
        f" {config.max_retries} retries) at delta"
        f" {plan.delta:.3g}{'' if private else ' (NOT PRIVATE)'}; plan"
        f" {digest.hex()[:_DIGEST_CHARACTERS]}",
        extra=event(
            "plan", digest=digest.hex(), final=plan.is_final, n_clients=plan.n_clients
        ),
    )


def _log_asked(plan: Plan, request: SumRequest, n_recognised: int) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    planned = plan.round_at(request.round_index)
    roster = ""
    if request.roster is not None:
        pinned = (
            f", {n_recognised} of them recognised by pinned identities"
            if n_recognised
            else ""
        )
        roster = (
            f"; a cohort of {len(request.roster.members)} clients{pinned}:"
            f" {listed(map(str, request.roster.node_ids))}"
        )
    noises = [
        f"{block.name} (sensitivity {block.sensitivity.bound:.3g}, {block.noise.value}"
        f" noise +-{block.noise_scale:.3g})"
        for block in planned.blocks
    ]
    told = (
        f"asked for: {printable(planned.name, 60)} (round {request.round_index} of"
        f" {plan.last_round})"
    )
    logger.info(
        f"{told}{roster}; {', '.join(noises)}",
        extra=event("asked", release=planned.name),
    )


def failed(error: DPKMeansError) -> None:
    """Say what is wrong on this machine.

    The server is told that something is, but not what.
    """
    logger.error(
        "cannot answer: %s",
        printable(error),
        extra=event("failed", kind=type(error).__name__),
    )


def _finite(value: float) -> float | str:
    """A number as JSON has it."""
    return value if math.isfinite(value) else str(value)
