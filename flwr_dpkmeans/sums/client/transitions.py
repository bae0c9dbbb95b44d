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

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.log import now_at
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.agreement import survivors_digest
from flwr_dpkmeans.secagg.keys import generate_private_key
from flwr_dpkmeans.secagg.party import changed
from flwr_dpkmeans.secagg.pins import fingerprints, require_pinned
from flwr_dpkmeans.sums.aggregation import party_of
from flwr_dpkmeans.sums.checks import columns as tables
from flwr_dpkmeans.sums.checks.verify import require_next
from flwr_dpkmeans.sums.client.contribution import Contribution
from flwr_dpkmeans.sums.client.injected import Guard, Statistic, TableFacts
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

    `memory` is of this run, and None before its first request.
    """

    def __init__(
        self,
        guard: Guard,
        statistic: Statistic,
        memory: Memory | None,
    ) -> None:
        self._guard = guard
        self._statistic = statistic
        self._memory = memory
        self.unmasked_vector = np.zeros(0, dtype=np.uint64)
        """What was masked, with this client's share of the noise.

        For audits that play all parties; never stored.
        """

    def handle(self, request: Request) -> tuple[Memory | None, Reply]:
        """Answer a request.

        The memory is to be stored before the reply is sent, but where it is None.

        A `PeerError` is a refusal, whose sentence may travel; that of any other
        `DPKMeansError` may not.
        """
        guard = self._guard
        if request.run_id not in (None, guard.run_id):
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
            return self._agree(request)
        memory = self._memory
        if memory is None:
            mend = "(it may have restarted): leave it out or start a new run."
            raise ProtocolError(f"run {guard.run_id} is unknown to this client {mend}")
        match message:
            case messages.ShareRequest():
                return self._share(memory, message)
            case messages.SumRequest():
                return self._sum(memory, message, request)
            case messages.UnmaskRequest():
                return self._unmask(memory, message)
            case messages.FinishRequest():
                return self._finish(memory, message)

    def _stop(self, message: messages.StopRequest) -> Memory | None:
        """Log why the run ended, and forget the keys."""
        memory = self._memory
        self._guard.stopped(memory, message.sentence)
        if memory is None:
            # This client refused the plan, or never saw it.
            return None
        return changed(memory, protocol=memory.protocol.stopped())

    def _agree(self, request: Request) -> tuple[Memory, KeysReply]:
        """Check the plan, look at the own table, and answer with a fresh public key."""
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
        table = TableFacts(*self._statistic.describe())
        tables.require_schema(plan, table.schema)
        tables.require_width(plan, table.n_features)
        tables.require_labels(plan, has_labels=table.has_labels)
        columns = tables.require_columns(plan, table.names)
        guard.require_names(plan, table.names)
        min_cohort = max(plan.min_cohort, guard.min_cohort)
        private_key = generate_private_key()
        party = party_of(plan, guard.node_id, private_key, min_cohort, digest)
        memory = Memory(
            protocol=party,
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
        """Refuse a plan of another run, one that knows too much, or a forbidden one."""
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
        public_key = memory.protocol.public_key
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
        party, reply = memory.protocol.share(message)
        neighbours = tuple(reply.boxes)
        identities = []
        if n_recognised > 0:
            for node in neighbours:
                credential = message.credentials[node]
                identities.append((node, credential.identity))
        memory = changed(
            memory,
            protocol=party,
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
        now_at(message.round_index, message.attempt)
        require_planned(memory.plan, message)
        n_recognised = self._recognised(memory, message)
        memory = changed(memory, n_recognised=n_recognised)
        if message.roster is not None and not memory.cohort:
            cohort = fingerprints(message.roster, message.credentials)
            memory = changed(memory, cohort=cohort)
        if message.release is not None:
            self._require_confirmed(memory, message.confirmations)
        before = memory.protocol
        has_answered = len(memory.attempts) > 0
        is_repeated = has_answered and message.round_index == before.round_index
        plan = memory.plan
        admitted = before.admit(message, plan.first_round, plan.skips_to)
        memory = changed(memory, protocol=admitted)
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
        task_release = message.release
        released_index = None
        if message.release is not None:
            released_index = message.release.round_index
            if memory.plan.discovers(released_index):
                memory = with_discoveries(memory, message.release)
                task_release = None
        memory = self._with_next_plan(memory, next_plan, released_index)
        plan = memory.plan
        tables.require_agreed_columns(plan, memory.columns)
        if plan.server_advances and not plan.discovers(message.round_index):
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
        if task_release is not None:
            memory = changed(memory, clusters=next_state(memory, task_release))
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
        statistic = self._flat_statistic(memory, contribution.planned, attempt_id)
        exact = contribution.on_grid(statistic, guard.stream)
        vector = contribution.noised(exact, guard.stream)
        self.unmasked_vector = vector.values
        party, reply = contribution.masked(memory.protocol, message, vector)
        # Asked once more, since computing takes time: an answer that comes too late
        # would be paid for nothing.
        guard.require_in_time(wait)
        guard.charge(memory, *attempt_id, contribution.shares.n_clients)
        attempts = (*memory.attempts, attempt_id)
        return changed(memory, protocol=party, attempts=attempts), reply

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
        now_at(message.round_index, message.attempt)
        party, reply = memory.protocol.unmask(message)
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
        return changed(memory, protocol=party), reply

    def _finish(
        self,
        memory: Memory,
        message: messages.FinishRequest,
    ) -> tuple[Memory, messages.FinishReply]:
        """Take the last release in, hand the result on and tag the state."""
        release = message.release
        index = release.round_index
        now_at(index, release.attempt)
        self._require_confirmed(memory, message.confirmations)
        memory = changed(memory, protocol=memory.protocol.finish(message))
        plan = memory.plan
        last = plan.last_round
        is_early = index < last and plan.task.tolerance is None
        if plan.discovers(index) or is_early:
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
        is_stored = self._statistic.deliver(memory, partial(self._report, memory))
        if is_stored:
            self._guard.ended(memory)
        party = memory.protocol
        tag = party.tag(index + 1, party.attempt, memory.digest())
        return memory, messages.FinishReply(tag)

    def _report(self, memory: Memory) -> PrivacyReport:
        """What the run guarantees, as this client can know it."""
        guard = self._guard
        plan = memory.plan
        unclear = memory.discoveries.unclear
        names: tuple[str, ...] = ()
        if unclear:
            # Numbers of columns are those of the agreed order, which need not be that
            # of the own table.
            table = TableFacts(*self._statistic.describe())
            names = tables.agreed_names(plan, table.names)
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
        if memory.protocol.announced is not None:
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
        memory.protocol.require_confirmed(dict(memory.identities), confirmations)

    def _with_next_plan(
        self,
        memory: Memory,
        blob: bytes | None,
        released: int | None,
    ) -> Memory:
        """Put the plan in force that came along, if one did.

        `released` is the round that was released with it.
        """
        if blob is None:
            require_no_plan_is_due(memory.plan, released)
            return memory
        plan = load_plan(blob)
        digest = plan_digest(blob)
        has_begun = released is not None or len(memory.attempts) > 0
        require_next(
            memory.plan,
            plan,
            memory.discoveries,
            begun=has_begun,
            released=released,
        )
        self._guard.require_approved(plan, digest)
        tables.require_width(plan, memory.n_features)
        return changed(
            memory,
            protocol=memory.protocol.with_plan(digest, plan.last_round),
            plan_blob=blob,
            plan=plan,
            clusters=first_state(plan),
        )
