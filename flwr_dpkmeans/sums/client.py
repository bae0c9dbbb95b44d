"""One client of a run, without I/O: a request and what it remembers go in, a reply and
what to remember come out.

==========  ================================================
======================================================== stage       what must hold
then
==========  ================================================
======================================================== ``keys``    nothing is
remembered of the run; the plan        a fresh key pair; answers with its public half,
the
            follows from its configuration, the node allows   plan's digest and, where
            the node has an identity, a it, and the own table fits
            signature
``share``   sums are recovered, and no keys were shared yet   shares the keys of all
aggregations among neighbours ``sum``     the (round, attempt) is next, planned and not
in  reads the release that came along, goes on to the next
            the ledger; the node still allows the plan        state, computes, charges,
            masks and answers
``unmask``  the vector of this (round, attempt) was the last  gives one share for each
neighbour, once
            that was answered
``finish``  the release is of the plan's last round           takes the result, and tags
it ``stop``    nothing                                           logs why, forgets the
keys and a copy of large rows
==========  ================================================
========================================================

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.log import now_at
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.privacy.report import PrivacyReport, Provenance, told
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.agreement import survivors_digest
from flwr_dpkmeans.secagg.credentials import Signer
from flwr_dpkmeans.secagg.keys import generate_private_key
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.party import Party, changed
from flwr_dpkmeans.secagg.pins import fingerprints, require_pinned
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, encode
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.aggregation import PARTIES, party_of
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks import columns as tables
from flwr_dpkmeans.sums.checks.columns import agreed_names
from flwr_dpkmeans.sums.checks.verify import require_next, require_server_state
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, make_noise_source, takes_part
from flwr_dpkmeans.sums.round import Array, State, unpack_state
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.wire import (
    KeysReply,
    Request,
    load_plan,
    pack_fields,
    plan_digest,
    require_same_versions,
    unpack_fields,
)


@dataclass(frozen=True)
class Memory:
    """One client's whole state in one run."""

    protocol: Party
    plan_blob: bytes = field(repr=False)
    """The plan in force, as received."""
    plan: Plan = field(repr=False)
    agreed_digest: bytes
    """Digest of the plan that was agreed on in the key phase.

    Names the run in the ledger.
    """
    clusters: State | None
    """None while the plan is preliminary."""
    n_features: int
    attempts: tuple[tuple[int, int], ...] = ()
    """What was answered so far."""
    discoveries: Discoveries = field(default_factory=Discoveries)
    n_recognised: int = 0
    """How many peers the policy's pinned identities recognised in the run's first
    roster; 0 where none are pinned.
    """
    identities: tuple[tuple[int, bytes], ...] = ()
    """Where sums are recovered: the neighbours' pinned identities, which sign what
    survivors they were told of.
    """
    started: str = ""
    cohort: tuple[str, ...] = ()
    """For the result's provenance: when the plan came, and who was in the first roster.
    """
    columns: str = ""
    """Digest of the own table's column names in the agreed order; empty if it has none.
    """

    def digest(self) -> bytes:
        """What the tag of a reply covers: the clustering state, or before there is one
        what has been found.
        """
        if self.clusters is not None:
            return self.clusters.digest
        return b"" if self.discoveries == Discoveries() else self.discoveries.digest()

    def pack(self) -> dict[str, Any]:
        """Write it as text and blobs, for one record that is replaced as a whole."""
        return (
            pack_fields(self.protocol)
            | pack_fields(self, "protocol", "plan_blob", "plan")
            | {"plan": self.plan_blob}
        )

    @classmethod
    def unpack(cls, stored: Mapping[str, Any], run_id: int) -> Memory | None:
        """Undo `pack`; None where it is of an earlier run."""
        (kind,) = PARTIES.keys() & stored.keys()
        party = unpack_fields(PARTIES[kind], stored)
        if party.run_id != run_id:
            return None
        blob = bytes(stored["plan"])
        memory: Memory = unpack_fields(
            cls, stored, protocol=party, plan_blob=blob, plan=load_plan(blob)
        )
        return memory


class Guard:
    """What the node decides, writes down and logs.

    What it refuses, it refuses by an error.

    This one lets everything pass, for parties that are all the caller's own.
    """

    run_id: int
    node_id: int
    stream: int
    """Numbers this client's seeded noise."""
    data_id = ""
    min_cohort = 0
    identity: Signer | None = None
    pinned: Mapping[bytes, str] | None = None
    """Identities that the policy pins, with their names; None if it pins nobody."""

    def marks(self) -> frozenset[bytes]:
        """What the server is told of the identities that this node pins."""
        return frozenset()

    def started(self) -> str:
        """Now, for the result's provenance."""
        return ""

    def identities(self, n_recognised: int) -> str:
        """What the report says of the others' identities."""
        return told("simulated")

    def require_in_time(self, wait: float | None) -> None:
        """Refuse a request whose sender has given up by now.

        It would be paid for nothing.
        """

    def require_approved(self, plan: Plan, digest: bytes) -> None:
        """Recompute a plan, as a server may lie about prices.

        Hold it against the policy and what the data cost.
        """

    def require_new_run(self) -> None:
        """Refuse a run that was charged before, or whose releases could not be charged.

        It is replayed.
        """

    def require_names(self, plan: Plan, names: tuple[str, ...]) -> None:
        """Hold the columns and their bounds against the policy."""

    def require_same_history(self, memory: Memory) -> None:
        """Refuse to go on where ledger and memory differ: one of them is an older copy."""

    def require_open(self, memory: Memory, request: messages.SumRequest) -> None:
        """Refuse what stands in the ledger, as it is replayed, and a plan that the
        policy no longer allows.
        """

    def charge(self, memory: Memory, index: int, attempt: int, n_clients: int) -> None:
        """Write a release into the ledger before it is sent."""

    def give_shares(self, memory: Memory, request: messages.UnmaskRequest) -> None:
        """Write into the ledger that key shares are given.

        a second time, refuse: both shares would open a vector.
        """

    def shared(self, memory: Memory, n_neighbours: int, threshold: int) -> None:
        """Log that keys were shared."""

    def finished(self, memory: Memory, report: PrivacyReport) -> None:
        """Log the end of the run."""

    def ended(self, memory: Memory) -> None:
        """Write into the ledger that the result has been handed on."""

    def stopped(self, memory: Memory | None, sentence: str) -> None:
        """Log that the server has ended the run, and why."""


class Statistic(Protocol):
    """What knows the rows."""

    def describe(self) -> tuple[int, tuple[str, ...], bool, str]:
        """Width of the table, its columns' names if it knows them, whether it has
        labels, what its schema agrees to.
        """

    def compute(self, memory: Memory, index: int) -> Sequence[Array]:
        """The exact statistic of one round, clipped to what the plan says."""

    def deliver(self, memory: Memory, report: Callable[[], PrivacyReport]) -> bool:
        """Take the result; whether it was kept, which nobody else may know."""


class Client:
    """One client, for one request.

    `memory` is of this run, and None before its first request.
    """

    def __init__(
        self, guard: Guard, statistic: Statistic, memory: Memory | None
    ) -> None:
        self._guard, self._statistic, self._memory = guard, statistic, memory
        self.unmasked_vector = np.zeros(0, dtype=np.uint64)
        """What was masked, with this client's share of the noise.

        For audits that play all parties; never kept.
        """

    def handle(self, request: Request) -> tuple[Memory | None, Any]:
        """Answer a request.

        The memory is to be kept before the reply is sent, but where it is None.

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
        if request.stage is Stage.STOP:
            guard.stopped(self._memory, request.body.sentence)
            memory = self._memory  # None: this client refused the plan, or never saw it
            ended = (
                None
                if memory is None
                else changed(memory, protocol=memory.protocol.stopped())
            )
            return ended, messages.StopReply()
        if (
            request.stage is not Stage.FINISH
        ):  # A result is welcome at any time, and costs nothing.
            # What nobody takes in any more must not cost anything.
            guard.require_in_time(request.wait)
        if request.stage is Stage.KEYS:
            return self._agree(request)
        if self._memory is None:
            lost = "(it may have restarted): leave it out or start a new run."
            raise ProtocolError(f"run {guard.run_id} is unknown to this client {lost}")
        return _TRANSITIONS[request.stage](self, self._memory, request)

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
        blob = request.plan
        if blob is None:
            raise ProtocolError(
                "the key phase carries no plan: use the same version of flwr-dpkmeans"
                " everywhere."
            )
        plan, agreed = load_plan(blob), plan_digest(blob)
        if plan.run_id != guard.run_id:
            raise ProtocolError(
                f"the plan is of run {plan.run_id}, but this is run {guard.run_id}: it"
                " is replayed."
            )
        if plan.preliminary and (plan.is_final or plan.box is not None):
            # A server that knows beforehand what private sums will find could choose
            # it.
            raise ProtocolError(
                "the plan fixes what its preliminary sums are still to find: stop the"
                " run."
            )
        guard.require_approved(plan, agreed)
        # A ledger that has releases of this run shows a replay, or that the memory of
        # them was lost.
        guard.require_new_run()
        n_features, names, has_labels, schema = self._statistic.describe()
        tables.require_schema(plan, schema)
        tables.require_width(plan, n_features)
        tables.require_labels(plan, has_labels=has_labels)
        columns = tables.require_columns(plan, names)
        guard.require_names(plan, names)
        least = max(plan.min_cohort, guard.min_cohort)
        party = party_of(plan, guard.node_id, generate_private_key(), least, agreed)
        start = _initial_clusters(plan)
        memory = Memory(
            party,
            blob,
            plan,
            agreed,
            start,
            n_features,
            started=guard.started(),
            columns=columns,
        )
        public_key, identity, signature = party.public_key, b"", b""
        if guard.identity is not None:
            # By it, peers that pin identities tell this key from one that the server
            # made up.
            identity = guard.identity.public_key
            signature = guard.identity.sign_keys(
                plan.run_id, guard.node_id, agreed, public_key
            )
        return memory, KeysReply(
            public_key, agreed, n_features, identity, signature, guard.marks(), columns
        )

    def _share(
        self, memory: Memory, request: Request
    ) -> tuple[Memory, messages.ShareReply]:
        """Share the keys of all aggregations.

        Nothing of the data is in it, so nothing is charged.
        """
        asked = request.body
        self._guard.require_same_history(memory)
        _require_size(memory.plan, asked.roster)
        n_recognised = self._recognised(memory, asked)
        party, reply = memory.protocol.share(asked)
        neighbours = party.neighbours if n_recognised else ()
        memory = changed(
            memory,
            protocol=party,
            n_recognised=n_recognised,
            identities=tuple(
                (node, asked.credentials[node].identity) for node in neighbours
            ),
            cohort=fingerprints(asked.roster, asked.credentials),
        )
        self._guard.shared(memory, len(party.neighbours), party.graph.threshold)
        return memory, reply

    def _sum(
        self, memory: Memory, request: Request
    ) -> tuple[Memory, messages.SumReply]:
        """Take the last release in, compute the next statistic, charge the ledger, mask
        and answer.
        """
        asked = request.body
        now_at(*asked.attempt_id)
        _require_planned(memory.plan, asked)
        news: dict[str, Any] = {"n_recognised": self._recognised(memory, asked)}
        if asked.roster is not None and not memory.cohort:
            news["cohort"] = fingerprints(asked.roster, asked.credentials)
        if asked.release is not None:
            self._require_confirmed(memory, asked.confirmations)
        repeated = (
            bool(memory.attempts) and asked.round_index == memory.protocol.round_index
        )
        party = memory.protocol.admit(
            asked, memory.plan.first_round, memory.plan.skips_to
        )
        memory = self._taken_in(
            changed(memory, protocol=party, **news), request, repeated=repeated
        )
        if asked.release is not None:
            _require_following(memory, asked.release.round_index, asked.round_index)
        # One (round, attempt) is answered once, even if an older memory was put back:
        # the ledger remembers. And an owner may have become stricter since the run
        # began, or another run taken the budget.
        self._guard.require_open(memory, asked)
        return self._contribute(memory, asked, request.wait)

    def _taken_in(self, memory: Memory, request: Request, *, repeated: bool) -> Memory:
        """Read what came along with a request for a vector.

        a release or a state, and perhaps a later plan.
        """
        asked, plan = request.body, memory.plan
        release: messages.Release | None = asked.release
        index = None if release is None else release.round_index
        steers = index is not None and plan.discovers(index)
        if release is not None and steers:
            released = _accepted(plan, release.round_index, _readable(memory, release))
            discoveries = plan.task.take_preliminary(
                plan, release.round_index, released, memory.discoveries
            )
            memory = changed(memory, discoveries=discoveries)
        memory = self._with_next_plan(memory, request.plan, index)
        plan = memory.plan
        tables.require_agreed_columns(plan, memory.columns)
        if plan.server_advances and not plan.discovers(asked.round_index):
            return _with_server_state(
                memory, asked.round_index, asked.state, repeated=repeated
            )
        if asked.state:
            # It could have the statistic taken where its bound does not hold, or where
            # it tells about one row.
            raise ProtocolError(
                "a state came from the server although clients compute their own: stop"
                " the run."
            )
        if release is not None and not steers:
            memory = changed(memory, clusters=_advance(memory, release))
        return memory

    def _contribute(
        self, memory: Memory, request: messages.SumRequest, wait: float | None
    ) -> tuple[Memory, messages.SumReply]:
        """The sending half of `_sum`."""
        guard, plan, asked = self._guard, memory.plan, request.attempt_id
        planned, party = plan.round_at(request.round_index), memory.protocol
        trust = planned.model
        announced = party.announced or party.cohort
        shares = plan.shares_of(len(party.cohort.members), len(announced.members))
        noise = make_noise_source(plan, "client", guard.stream, *asked)
        vector = self._vector(memory, planned, asked)
        vector = trust.contribute(
            vector, planned.blocks, plan.fraction_bits, shares, noise
        )
        self.unmasked_vector = vector.values
        party, reply = party.answer(
            request, vector, blinded=trust.hides_sums(), state_digest=memory.digest()
        )
        # Asked once more, since computing takes time: an answer that comes too late
        # would be paid for nothing.
        guard.require_in_time(wait)
        guard.charge(memory, *asked, shares.n_clients)
        return (
            changed(memory, protocol=party, attempts=(*memory.attempts, asked)),
            reply,
        )

    def _vector(
        self, memory: Memory, planned: PlannedRound, asked: tuple[int, int]
    ) -> FixedPointVector:
        """The statistic on the grid, or zeros where the client's own coin says that it
        does not take part.
        """
        plan, index = memory.plan, asked[0]
        arrays = self._statistic.compute(memory, index)
        flat = (
            np.concatenate([np.ravel(array) for array in arrays])
            if arrays
            else np.zeros(0)
        )
        if flat.shape != (planned.length,):
            raise ProtocolError(
                f"the wrapped client did not return the {planned.length} entries of the"
                f" plan's round {index}: return the plan's statistic."
            )
        encoded = encode(flat, plan.fraction_bits)
        if plan.settings.client_sampling_rate < 1.0:
            # The work is the same either way, so that neither time nor a failure tells
            # who takes part.
            coin = takes_part(plan, self._guard.stream, *asked)
            encoded = encode(flat * coin, plan.fraction_bits)
        return encoded

    def _unmask(
        self, memory: Memory, request: Request
    ) -> tuple[Memory, messages.UnmaskReply]:
        """Give a share for each neighbour, and sign what survivors this client was told
        of.
        """
        asked, guard = request.body, self._guard
        now_at(*asked.attempt_id)
        party, reply = memory.protocol.unmask(asked)
        if guard.identity is not None:
            # Neighbours hold it against what they were told, so that a server that says
            # two things is found out.
            told = survivors_digest(asked.survivors)
            signed = (party.run_id, party.node_id, *asked.attempt_id, told)
            reply = replace(reply, signature=guard.identity.sign_survivors(*signed))
        # With an older memory, both shares of one neighbour would be given: the ledger
        # remembers.
        guard.give_shares(memory, asked)
        return changed(memory, protocol=party), reply

    def _finish(
        self, memory: Memory, request: Request
    ) -> tuple[Memory, messages.FinishReply]:
        """Take the last release in, hand the result on and tag the state."""
        asked = request.body
        index = asked.release.round_index
        now_at(*asked.release.attempt_id)
        self._require_confirmed(memory, asked.confirmations)
        memory = changed(memory, protocol=memory.protocol.finish(asked))
        last = memory.plan.last_round
        if memory.plan.discovers(index) or (
            index < last and memory.plan.task.tolerance is None
        ):
            raise ProtocolError(
                f"the run was finished after round {index}, but the plan has {last}."
            )
        if memory.plan.server_advances:
            memory = _with_server_state(memory, last + 1, asked.state, repeated=False)
        else:
            memory = changed(memory, clusters=_advance(memory, asked.release))
        _require_following(memory, index, last + 1)
        if self._statistic.deliver(memory, lambda: self._report(memory)):
            self._guard.ended(memory)
        party = memory.protocol
        return memory, messages.FinishReply(
            party.tag(index + 1, party.attempt, memory.digest())
        )

    def _report(self, memory: Memory) -> PrivacyReport:
        """What the run guarantees, as this client can know it."""
        guard, plan, unclear = self._guard, memory.plan, memory.discoveries.unclear
        # Numbers of columns are those of the agreed order, which need not be that of
        # the own table.
        names = agreed_names(plan, self._statistic.describe()[1]) if unclear else ()
        identities = guard.identities(memory.n_recognised)
        report = build_report(
            plan,
            memory.attempts,
            identities,
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
        self, memory: Memory, request: messages.SumRequest | messages.ShareRequest
    ) -> int:
        """Hold the first roster of a run against the identities that the policy pins.

        No server invents clients.

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
        if request.roster is None:
            raise ProtocolError(
                "the first request came without the run's roster: restart the run."
            )
        return require_pinned(
            request.roster,
            request.credentials,
            run_id=guard.run_id,
            node_id=guard.node_id,
            plan_digest=memory.agreed_digest,
            own_identity=guard.identity.public_key,
            pinned=guard.pinned,
        )

    def _require_confirmed(
        self, memory: Memory, confirmations: Mapping[int, bytes]
    ) -> None:
        """Where identities are pinned, neighbours must have signed the survivors that
        this client was told of.
        """
        if self._guard.pinned is not None and self._guard.identity is not None:
            memory.protocol.require_confirmed(dict(memory.identities), confirmations)

    def _with_next_plan(
        self, memory: Memory, blob: bytes | None, released: int | None
    ) -> Memory:
        """Put the plan in force that came along, if one did.

        `released` is the round that was released with it.
        """
        if blob is None:
            if released == 0:
                raise ProtocolError(
                    "the last preliminary sum was released, but no final plan came:"
                    " stop the run."
                )
            if memory.plan.settings.private_bounds and memory.plan.n_features is None:
                raise ProtocolError(
                    "the plan has no histograms yet, and none of the tables' width"
                    " came: stop the run."
                )
            return memory
        plan, digest = load_plan(blob), plan_digest(blob)
        begun = released is not None or bool(memory.attempts)
        require_next(
            memory.plan, plan, memory.discoveries, begun=begun, released=released
        )
        self._guard.require_approved(plan, digest)
        tables.require_width(plan, memory.n_features)
        party = memory.protocol.with_plan(digest, plan.last_round)
        return changed(
            memory,
            protocol=party,
            plan_blob=blob,
            plan=plan,
            clusters=_initial_clusters(plan),
        )


_TRANSITIONS: Mapping[
    Stage, Callable[[Client, Memory, Request], tuple[Memory, Any]]
] = MappingProxyType(
    {
        Stage.SHARE: Client._share,
        Stage.SUM: Client._sum,
        Stage.UNMASK: Client._unmask,
        Stage.FINISH: Client._finish,
    }
)


def _require_planned(plan: Plan, request: messages.SumRequest) -> None:
    """Hold a request against what the plan priced.

    So many attempts, and a cohort that is not larger.
    """
    if request.attempt > plan.settings.max_retries:
        raise ProtocolError(
            f"attempt {request.attempt} was asked for, but the plan that was agreed on"
            f" has {plan.settings.max_retries} retries: start a new run, or raise"
            " max-retries."
        )
    if request.roster is not None:
        _require_size(plan, request.roster)


def _require_following(memory: Memory, released: int, asked: int) -> None:
    """Refuse another round than the one that follows from what was released.

    T + 1 is the end.
    """
    following = memory.plan.round_after(released, memory.clusters)
    if asked != following:
        raise ProtocolError(
            f"round {asked} was asked for after round {released}, but by what was"
            f" released round {following} follows ({memory.plan.last_round + 1}: the"
            " end): stop the run and check the server."
        )


def _require_size(plan: Plan, roster: Roster) -> None:
    """Refuse a roster that is larger than the plan's cohort.

    Shares of the noise would be smaller than was priced.
    """
    if len(roster.members) > plan.n_clients:
        raise ProtocolError(
            f"the roster has {len(roster.members)} clients, but the plan that was"
            f" agreed on has {plan.n_clients}: stop the run and check the server."
        )


@lru_cache(maxsize=4)
def _initial_clusters(plan: Plan) -> State | None:
    """The data-independent start, once the plan is final.

    None where it comes from the server.

    Made once for all virtual clients of one process.
    """
    return initial_state(plan) if plan.is_final and not plan.server_advances else None


def _with_server_state(
    memory: Memory, index: int, blob: bytes, *, repeated: bool
) -> Memory:
    """Take in what the server computed from released sums and its own points.

    a repeated request brings none.
    """
    if bool(blob) == repeated:
        what = "came a second time for one round" if repeated else "is missing"
        raise ProtocolError(
            f"the server's state {what}: use the same version of flwr-dpkmeans"
            " everywhere."
        )
    if repeated:
        return memory
    state = unpack_state(blob, memory.plan.last_round)
    require_server_state(memory.plan, index, state)
    return changed(memory, clusters=state)


def _readable(memory: Memory, release: messages.Release) -> AggregateVector:
    """Unblind a release.

    One of another length than the plan's would be read as what it is not.
    """
    planned = memory.plan.round_at(release.round_index)
    length = planned.length
    if release.values.shape != (length,):
        raise ProtocolError(
            f"the release of round {release.round_index} has {release.values.size}"
            f" entries, but the plan has {length}: stop the run."
        )
    return memory.protocol.unblind(release, blinded=planned.model.hides_sums())


def _accepted(plan: Plan, index: int, readable: AggregateVector) -> ReleasedSum:
    planned = plan.round_at(index)
    return planned.model.read(readable, planned.blocks, plan.fraction_bits)


def _advance(memory: Memory, release: messages.Release) -> State:
    if memory.clusters is None:
        raise ProtocolError("a release came before the plan was final: stop the run.")
    values = _readable(memory, release).values.tobytes()
    return _advanced(memory.plan, release.round_index, memory.clusters, values)


@lru_cache(maxsize=4)
def _advanced(plan: Plan, index: int, clusters: State, values: bytes) -> State:
    """Make a costly step (eigenvectors, k-means with restarts) once for all virtual
    clients of one process.
    """
    readable = AggregateVector(np.frombuffer(values, dtype=np.uint64), blinded=False)
    return (
        build_algorithm(plan)
        .rounds[index - 1]
        .advance(clusters, _accepted(plan, index, readable))
    )
