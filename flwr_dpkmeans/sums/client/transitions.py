"""One client of a run, without I/O.

A request and what it remembers go in, a reply and what to remember come out.

==========  ==============================  ============================================
stage       what must hold                  then
==========  ==============================  ============================================
``keys``    nothing is remembered of the    a fresh key pair; answers with its public
            run; the plan follows from its  half, the plan's digest and, where the node
            configuration, the node allows  has an identity, a signature
            it, and the own table fits
``share``   sums are recovered, and no      shares the keys of all aggregations among
            keys were shared yet            neighbours
``sum``     the (round, attempt) is next,   reads the release that came along, goes on
            planned and not in the ledger;  to the next state, computes, charges, masks
            the node still allows the plan  and answers
``unmask``  the vector of this (round,      gives one share for each neighbour, once
            attempt) was the last that was
            answered
``finish``  the release is of the plan's    takes the result, and tags it
            last round
``stop``    nothing                         logs why, forgets the keys and a copy of
                                            large rows
==========  ==============================  ============================================

**The rules.** A reply holds one masked vector, or public values; nothing else that
depends on data. Whatever the server says is checked against the plan that this client
agreed to, and a plan against the node's own policy: the server may be hostile, or the
network may repeat, delay and reorder. A check that fails raises, and then nothing has
changed: the memory is only what `Client.handle` returns, as a whole. A release is
charged before its vector is sent.

**What is injected.** A `Guard` decides and writes down what is the node's own affair
(policy, ledger, pins, its log); a `Statistic` computes sums over the rows. Neither time
nor randomness but keys and noise is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

import numpy as np

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.log import set_log_place
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.agreement import survivors_digest
from flwr_dpkmeans.secagg.keys import generate_private_key
from flwr_dpkmeans.secagg.party import changed
from flwr_dpkmeans.secagg.pins import fingerprints, require_pinned
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.aggregation import party_of
from flwr_dpkmeans.sums.checks import columns as column_checks
from flwr_dpkmeans.sums.checks.verify import require_next
from flwr_dpkmeans.sums.client.contribution import Contribution
from flwr_dpkmeans.sums.client.injected import Guard, Statistic
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.client.request_checks import (
    require_following,
    require_no_plan_is_due,
    require_planned,
    require_size,
)
from flwr_dpkmeans.sums.client.state_changes import (
    first_state,
    next_state,
    with_discoveries,
    with_server_state,
)
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.wire import (
    KeysReply,
    Reply,
    Request,
    load_plan,
    plan_digest,
    require_same_versions,
)


class Client:
    """One client, for one request.

    `memory` is of this run, and None before its first request. ``watch(vector)`` is
    shown what is masked, with this client's share of the noise: for audits that play
    all parties, never on a node.
    """

    def __init__(
        self,
        guard: Guard,
        statistic: Statistic,
        memory: Memory | None,
        *,
        watch: Callable[[Ring], None] | None = None,
    ) -> None:
        self._guard = guard
        self._statistic = statistic
        self._memory = memory
        self._watch = watch

    def handle(self, request: Request) -> tuple[Memory | None, Reply]:
        """Answer a request.

        Store the memory before the reply is sent; None: there is nothing to store.

        A `PeerError` is a refusal, whose sentence may travel; that of any other
        `DPKMeansError` may not.
        """
        guard = self._guard
        names_run = request.run_id is not None
        if names_run and request.run_id != guard.run_id:
            # Against messages that go astray, or are sent once more as they were; a
            # server can say what it likes.
            raise ProtocolError(
                f"the message is of another run than {guard.run_id}: it is replayed or"
                " went astray, and refused."
            )
        message = request.body
        if isinstance(message, messages.StopRequest):
            return self._stop(message), messages.StopReply()
        if not isinstance(message, messages.FinishRequest):
            # What nobody takes in any more must not cost anything; a result is welcome
            # at any time, and costs nothing.
            guard.require_in_time(request.wait)
        if message is None:
            # In the key phase alone, which asks with the plan.
            return self._agree(request)
        memory = self._memory
        if memory is None:
            raise ProtocolError(
                f"run {guard.run_id} is unknown to this client (it may have restarted):"
                " leave it out or start a new run."
            )
        match message:
            case messages.ShareRequest():
                return self._share(memory, message)
            case messages.SumRequest():
                return self._sum(memory, message, request)
            case messages.UnmaskRequest():
                return self._unmask(memory, message)
            case messages.FinishRequest():
                return self._finish(memory, message)
            case _:
                assert_never(message)

    def _stop(self, message: messages.StopRequest) -> Memory | None:
        """Log why the run ended, and forget the keys."""
        memory = self._memory
        self._guard.stopped(memory, message.sentence)
        if memory is None:
            # This client refused the plan, or never saw it.
            return None
        return changed(memory, party=memory.party.stopped())

    def _agree(self, request: Request) -> tuple[Memory, KeysReply]:
        """Check the plan, look at the own table, and answer with a fresh public key.

        In this order: nothing of the plan is parsed before versions agree, and the
        table is not looked at before the policy has allowed the plan.
        """
        guard = self._guard
        if self._memory is not None:
            # A second plan would have the run's keys, and the ledger's name of it,
            # stand for another price.
            raise ProtocolError(
                f"a second plan was sent in run {guard.run_id}: it is replayed and"
                " refused."
            )
        require_same_versions(
            request.versions, sender="the server", receiver=f"node {guard.node_id}"
        )
        if request.plan is None:
            raise ProtocolError(
                "the key phase carries no plan: use the same version of flwr-dpkmeans"
                " everywhere."
            )
        plan = load_plan(request.plan)
        digest = plan_digest(request.plan)
        self._require_first_plan(plan, digest)
        table = self._statistic.describe()
        column_checks.require_schema(plan, table.schema)
        column_checks.require_width(plan, table.n_features)
        column_checks.require_labels(plan, has_labels=table.has_labels)
        column_checks.require_persons(plan, has_persons=table.has_persons)
        column_checks.require_weights(plan, has_weights=table.has_weights)
        columns = column_checks.require_columns(plan, table.names)
        guard.require_names(plan, table.names)
        guard.require_same_data(table.rows)
        min_cohort = max(plan.min_cohort, guard.min_cohort)
        private_key = generate_private_key()
        party = party_of(plan, guard.node_id, private_key, min_cohort, digest)
        memory = Memory(
            party=party,
            plan_blob=request.plan,
            plan=plan,
            agreed_digest=digest,
            clusters=first_state(plan),
            n_features=table.n_features,
            started=guard.started(),
            columns=columns,
        )
        return memory, self._keys_reply(memory)

    def _require_first_plan(self, plan: Plan, digest: bytes) -> None:
        """Refuse a plan of another run, one that knows too much, or a forbidden one.

        A plan with preliminary rounds is not final yet: the final one comes with what
        the last of them released.
        """
        guard = self._guard
        if plan.run_id != guard.run_id:
            raise ProtocolError(
                f"the plan is of run {plan.run_id}, but this is run {guard.run_id}: it"
                " is replayed."
            )
        knows_results = plan.is_final or plan.box is not None
        if plan.preliminary and knows_results:
            # A server that knows beforehand what private sums will find could choose
            # it.
            raise ProtocolError(
                "the plan fixes what its preliminary sums are still to find: stop the"
                " run."
            )
        guard.require_approved(plan, digest)
        # A ledger that has releases of this run shows a replay, or that the memory of
        # them was lost.
        guard.require_new_run()

    def _keys_reply(self, memory: Memory) -> KeysReply:
        """The answer to a plan, signed where the node has an identity.

        By the signature, peers that pin identities tell this key from one that the
        server made up.
        """
        guard = self._guard
        public_key = memory.party.public_key
        digest = memory.agreed_digest
        identity = b""
        signature = b""
        if guard.identity is not None:
            identity = guard.identity.public_key
            signature = guard.identity.sign_keys(
                memory.plan.run_id,
                guard.node_id,
                digest,
                public_key,
            )
        return KeysReply(
            public_key=public_key,
            plan_digest=digest,
            n_features=memory.n_features,
            identity=identity,
            signature=signature,
            marks=guard.marks(),
            columns=memory.columns,
        )

    def _share(
        self,
        memory: Memory,
        message: messages.ShareRequest,
    ) -> tuple[Memory, messages.ShareReply]:
        """Share the keys of all aggregations.

        Nothing of the data is in it, so nothing is charged.
        """
        self._guard.require_same_history(memory)
        require_size(memory.plan, message.roster)
        n_recognised = self._recognised(memory, message)
        party, reply = memory.party.share(message)
        neighbours = tuple(reply.boxes)
        identities = []
        if n_recognised > 0:
            for node in neighbours:
                credential = message.credentials[node]
                identities.append((node, credential.identity))
        memory = changed(
            memory,
            party=party,
            n_recognised=n_recognised,
            identities=tuple(identities),
            cohort=fingerprints(message.roster, message.credentials),
        )
        self._guard.shared(memory, len(neighbours), party.threshold)
        return memory, reply

    def _sum(
        self,
        memory: Memory,
        message: messages.SumRequest,
        request: Request,
    ) -> tuple[Memory, messages.SumReply]:
        """Take in the last release, compute the next vector, charge it and answer."""
        set_log_place(message.round_index, message.attempt)
        plan = memory.plan
        party = memory.party
        # By the plan in force: no later one can have other retries (`require_next`).
        require_planned(plan, message)
        # Before the party moves on to the round that is asked for.
        has_answered = len(memory.attempts) > 0
        is_repeated = has_answered and message.round_index == party.round_index
        memory = changed(memory, n_recognised=self._recognised(memory, message))
        is_first_roster = message.roster is not None and not memory.cohort
        if message.roster is not None and is_first_roster:
            cohort = fingerprints(message.roster, message.credentials)
            memory = changed(memory, cohort=cohort)
        if message.release is not None:
            self._require_confirmed(memory, message.confirmations)
        party = party.admit(message, plan.first_round, plan.skips_to)
        memory = changed(memory, party=party)
        memory = self._take_in(memory, message, request.plan, is_repeated=is_repeated)
        if message.release is not None:
            require_following(memory, message.release.round_index, message.round_index)
        # One (round, attempt) is answered once, even if an older memory was put back:
        # the ledger remembers. And an owner may have become stricter since the run
        # began, or another run taken the budget.
        self._guard.require_open(memory, message)
        return self._contribute(memory, message, request.wait)

    def _take_in(
        self,
        memory: Memory,
        message: messages.SumRequest,
        next_plan: bytes | None,
        *,
        is_repeated: bool,
    ) -> Memory:
        """Read what came along with a request for a vector.

        A release or a state, and perhaps a later plan.
        """
        release = message.release
        released_index = None if release is None else release.round_index
        is_of_task = release is not None
        if release is not None and memory.plan.is_preliminary(release.round_index):
            memory = with_discoveries(memory, release)
            is_of_task = False
        memory = self._with_next_plan(memory, next_plan, released_index)
        plan = memory.plan
        column_checks.require_agreed_columns(plan, memory.columns)
        if plan.server_advances and not plan.is_preliminary(message.round_index):
            return with_server_state(
                memory, message.round_index, message.state, is_repeated=is_repeated
            )
        if message.state:
            # It could have the statistic taken where its bound does not hold, or where
            # it tells about one row.
            raise ProtocolError(
                "a state came from the server although clients compute their own: stop"
                " the run."
            )
        if release is not None and is_of_task:
            memory = changed(memory, clusters=next_state(memory, release))
        return memory

    def _contribute(
        self,
        memory: Memory,
        message: messages.SumRequest,
        wait: float | None,
    ) -> tuple[Memory, messages.SumReply]:
        """Compute, mask and charge one vector: the sending half of `_sum`."""
        guard = self._guard
        attempt_id = message.attempt_id
        contribution = Contribution(memory, message)
        n_sharers = contribution.shares.n_clients
        statistic = self._flat_statistic(memory, contribution.planned, attempt_id)
        exact = contribution.on_grid(statistic, guard.stream)
        vector = contribution.noised(exact, guard.stream)
        if self._watch is not None:
            self._watch(vector.values)
        # Nothing leaves before `charge` below has returned.
        party, reply = contribution.masked(memory.party, message, vector)
        # Asked once more, since computing takes time: an answer that comes too late
        # would be paid for nothing.
        guard.require_in_time(wait)
        guard.charge(memory, *attempt_id, n_sharers)
        attempts = (*memory.attempts, attempt_id)
        return changed(memory, party=party, attempts=attempts), reply

    def _flat_statistic(
        self,
        memory: Memory,
        planned: PlannedRound,
        attempt_id: tuple[int, int],
    ) -> Array:
        """The statistic of the round that is due, end to end."""
        index, _ = attempt_id
        arrays = self._statistic.compute(memory, index)
        flat = np.zeros(0)
        if arrays:
            flat = np.concatenate([np.ravel(array) for array in arrays])
        if flat.shape != (planned.length,):
            raise ProtocolError(
                f"the wrapped client did not return the {planned.length} entries of the"
                f" plan's round {index}: return the plan's statistic."
            )
        return flat

    def _unmask(
        self,
        memory: Memory,
        message: messages.UnmaskRequest,
    ) -> tuple[Memory, messages.UnmaskReply]:
        """Give a share for each neighbour, and sign the survivors that were named."""
        guard = self._guard
        set_log_place(message.round_index, message.attempt)
        party, reply = memory.party.unmask(message)
        if guard.identity is not None:
            # Neighbours compare it with what they heard, so that a server that says
            # two things is found out.
            signature = guard.identity.sign_survivors(
                party.run_id,
                party.node_id,
                message.round_index,
                message.attempt,
                survivors_digest(message.survivors),
            )
            reply = replace(reply, signature=signature)
        # With an older memory, both shares of one neighbour would be given: the ledger
        # remembers.
        guard.give_shares(memory, message)
        return changed(memory, party=party), reply

    def _finish(
        self,
        memory: Memory,
        message: messages.FinishRequest,
    ) -> tuple[Memory, messages.FinishReply]:
        """Take the last release in, hand the result on and tag the state."""
        release = message.release
        index = release.round_index
        set_log_place(index, release.attempt)
        self._require_confirmed(memory, message.confirmations)
        memory = changed(memory, party=memory.party.finish(message))
        plan = memory.plan
        last = plan.last_round
        # With a tolerance, `require_following` decides below.
        is_early = index < last and plan.task.tolerance is None
        if plan.is_preliminary(index) or is_early:
            raise ProtocolError(
                f"the run was finished after round {index}, but the plan has {last}."
            )
        if plan.server_advances:
            memory = with_server_state(
                memory, last + 1, message.state, is_repeated=False
            )
        else:
            memory = changed(memory, clusters=next_state(memory, release))
        require_following(memory, index, last + 1)
        # The report is made, and logged, in the course of this.
        report = partial(self._report_and_log, memory)
        is_stored = self._statistic.deliver(memory, report)
        if is_stored:
            self._guard.ended(memory)
        party = memory.party
        tag = party.tag(index + 1, party.attempt, memory.digest())
        return memory, messages.FinishReply(tag)

    def _report_and_log(self, memory: Memory) -> PrivacyReport:
        """What the run guarantees, as this client can know it."""
        guard = self._guard
        plan = memory.plan
        unclear = memory.discoveries.unclear
        names: tuple[str, ...] = ()
        if unclear:
            # Numbers of columns are those of the agreed order, which need not be that
            # of the own table.
            table = self._statistic.describe()
            names = column_checks.agreed_names(plan, table.names)
        report = build_report(
            plan,
            memory.attempts,
            guard.identities(memory.n_recognised),
            state=memory.clusters,
            unclear=unclear,
            names=names,
        )
        provenance = Provenance.of(
            plan.run_id,
            f"client {guard.node_id}",
            memory.agreed_digest,
            columns_digest=plan.columns_digest,
            data_id=guard.data_id,
            started=memory.started,
            cohort=memory.cohort,
        )
        report = replace(report, provenance=provenance)
        guard.finished(memory, report)
        return report

    def _recognised(
        self,
        memory: Memory,
        message: messages.SumRequest | messages.ShareRequest,
    ) -> int:
        """Hold the first roster of a run against the identities that the policy pins.

        So no server invents clients.

        Later rosters can only lose members, with unchanged keys, so what was recognised
        once stays recognised.
        """
        guard = self._guard
        if guard.pinned is None or guard.identity is None:
            return memory.n_recognised
        if memory.party.announced is not None:
            if not memory.n_recognised:
                raise IdentityError(
                    "the policy has pinned identities since this run began, and its"
                    " roster was not held against them: start a new run."
                )
            return memory.n_recognised
        if message.roster is None:
            raise ProtocolError(
                "the first request came without the run's roster: restart the run."
            )
        return require_pinned(
            message.roster,
            message.credentials,
            run_id=guard.run_id,
            node_id=guard.node_id,
            plan_digest=memory.agreed_digest,
            own_identity=guard.identity.public_key,
            pinned=guard.pinned,
        )

    def _require_confirmed(
        self,
        memory: Memory,
        confirmations: Mapping[int, bytes],
    ) -> None:
        """Require that neighbours signed the survivors that this client heard of.

        Where identities are pinned.
        """
        guard = self._guard
        if guard.pinned is None or guard.identity is None:
            return
        memory.party.require_confirmed(dict(memory.identities), confirmations)

    def _with_next_plan(
        self,
        memory: Memory,
        blob: bytes | None,
        released_index: int | None,
    ) -> Memory:
        """Put the plan in force that came along, if one did.

        `released_index` is the round that was released with it. The run begins anew
        with the plan's first state: `require_next` lets no plan come in its middle.
        """
        if blob is None:
            require_no_plan_is_due(memory.plan, released_index)
            return memory
        plan = load_plan(blob)
        digest = plan_digest(blob)
        has_begun = released_index is not None or len(memory.attempts) > 0
        require_next(
            memory.plan,
            plan,
            memory.discoveries,
            begun=has_begun,
            released=released_index,
        )
        self._guard.require_approved(plan, digest)
        column_checks.require_width(plan, memory.n_features)
        return changed(
            memory,
            party=memory.party.with_plan(digest, plan.last_round),
            plan_blob=blob,
            plan=plan,
            clusters=first_state(plan),
        )
