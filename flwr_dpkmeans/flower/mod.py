"""The secure-aggregation mod: between Flower and the NumPyClient, so that no exact statistic leaves the node.

It answers the key phase itself, asks the wrapped client for exact statistics, clips nothing and trusts nothing that
comes from the server: every request is checked against the plan, the node's policy and its ledger first. A message
that is not of the protocol never reaches the wrapped client, which would answer it without masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from flwr.app import Context, Message, RecordDict

from flwr_dpkmeans.algorithms.discovery import take_preliminary
from flwr_dpkmeans.errors import (
    DataError,
    DPKMeansError,
    PeerError,
    ProtocolError,
)
from flwr_dpkmeans.flower.inner import ask_statistic, deliver_result, describe
from flwr_dpkmeans.flower.memory import ClientMemory, recall, remember
from flwr_dpkmeans.flower.node import NodeSettings, node_settings, stream_number
from flwr_dpkmeans.flower.records import (
    KeysReply,
    Stage,
    Status,
    failure_content,
    load_plan,
    parse_finish_request,
    parse_sum_request,
    plan_blob,
    plan_digest,
    reply_content,
    require_run,
    require_server_versions,
    stage_of,
)
from flwr_dpkmeans.flower.recovery_mod import require_confirmed, share, unmask
from flwr_dpkmeans.log import Place, now_at, placed
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.node.guard import (
    approve_plan,
    charge,
    ledger_run,
    pins_of,
    require_agreed_columns,
    require_allowed,
    require_columns,
    require_fresh,
    require_in_time,
    require_labels,
    require_ledger,
    require_named_box,
    require_pinned,
    require_planned,
    require_width,
)
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.provenance import Provenance, utc_now
from flwr_dpkmeans.privacy.release import ReleasedSum, vector_length
from flwr_dpkmeans.privacy.report import NOT_PINNED, SIMULATED, pinned_identities
from flwr_dpkmeans.secagg.client import ClientState
from flwr_dpkmeans.secagg.credentials import fingerprints
from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import FinishReply, Release, SumRequest
from flwr_dpkmeans.secagg.protocols import (
    AnyState,
    admit,
    admit_finish,
    announced_roster,
    answer,
    state_tag,
    unblind,
)
from flwr_dpkmeans.secagg.recovery.state import RecoveryState
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.columns import agreed_names
from flwr_dpkmeans.sums.draft import build_algorithm, initial_state
from flwr_dpkmeans.sums.plan import Plan, make_noise_source, takes_part
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.state import State, unpack_state
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.task import Found
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.verify import require_server_state, require_successor, require_widened, with_columns

NextCall = Callable[[Message, Context], Message]
INTERNAL_SENTENCE = "this client could not answer (the reason is in its own log): look there, then start a new run."
TABLE_SENTENCE = (
    "this client's table cannot be read as its configuration says (its own log says why): correct it there, then start "
    "a new run."
)


class SecureAggregation:
    """A Flower mod; `secure_aggregation_mod` is the instance with the default settings.

    Parameters
    ----------
    settings : callable, optional
        ``settings(context) -> NodeSettings``; by default read from the node's configuration.
    show_logs : callable, optional
        ``show_logs(context)`` is called first, to show this node's log; left out, the program's own logging does.

    Notes
    -----
    Exceptions never reach Flower, which would send their text to the server: the reply carries a fixed code and a
    sentence of public values, and the detail stays in the client's log.
    """

    def __init__(
        self,
        settings: Callable[[Context], NodeSettings] = node_settings,
        *,
        show_logs: Callable[[Context], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._show_logs = show_logs

    def __call__(self, message: Message, context: Context, call_next: NextCall) -> Message:
        """Answer a message of the protocol; anything else is refused."""
        with placed(Place(run=context.run_id, node=context.node_id)):
            return self._guarded(message, context, call_next)

    def _guarded(self, message: Message, context: Context, call_next: NextCall) -> Message:
        """Answer, and turn what goes wrong into a fixed code."""
        try:
            self._show_logs(context)
            stage = stage_of(message.content) if message.has_content() else None
            if stage is None:
                raise ProtocolError(
                    "a message that is not of the private k-means protocol came, and the client behind the "
                    "secure-aggregation mod answers no other: send it to a function without this mod."
                )
            content = self._answer(stage, message, context, call_next)
        except PeerError as error:
            client_log.refused(error)
            content = failure_content(Status.REFUSED, type(error).__name__, str(error))
        except DPKMeansError as error:
            # The sentence may describe local data, so only its kind travels.
            client_log.failed(error)
            sentence = TABLE_SENTENCE if isinstance(error, DataError) else INTERNAL_SENTENCE
            content = failure_content(Status.FAILED, type(error).__name__, sentence)
        except Exception as error:
            client_log.crashed(error)
            content = failure_content(Status.FAILED, "InternalError", INTERNAL_SENTENCE)
        return Message(content, reply_to=message)

    def _answer(self, stage: Stage, message: Message, context: Context, call_next: NextCall) -> RecordDict:
        """Dispatch on the phase; the memory changes only when the whole transition has succeeded."""
        require_run(message.content, context.run_id)
        settings = self._settings(context)
        if stage is not Stage.FINISH:  # A result is welcome at any time, and costs nothing.
            require_in_time(message)
        if stage is Stage.KEYS:
            memory, content = _agree(message, context, call_next, settings)
        elif stage is Stage.SHARE:
            memory, content = share(_remembered(context), message, settings)
        elif stage is Stage.SUM:
            memory, content = _sum(message, context, call_next, settings)
        elif stage is Stage.UNMASK:
            memory, content = unmask(_remembered(context), message, settings)
        else:
            memory, content = _finish(message, context, call_next, settings)
        remember(context, memory)
        return content


secure_aggregation_mod = SecureAggregation(show_logs=client_log.show_node_logs)
"""The mod with settings, and a log, as the node's configuration says."""


def _agree(
    message: Message, context: Context, call_next: NextCall, settings: NodeSettings
) -> tuple[ClientMemory, RecordDict]:
    """Check the plan against the policy, look at the own data, and answer with a fresh public key."""
    if recall(context) is not None:
        raise ProtocolError(f"a second plan was sent in run {context.run_id}: it is replayed and refused.")
    require_server_versions(message.content, context.node_id)
    blob = plan_blob(message.content)
    if blob is None:
        raise ProtocolError("the key phase carries no plan: use the same version of flwr-dpkmeans everywhere.")
    plan = load_plan(blob)
    if plan.run_id != context.run_id:
        raise ProtocolError(f"the plan is of run {plan.run_id}, but this is run {context.run_id}: it is replayed.")
    if plan.preliminary and (plan.is_final or plan.box is not None):
        raise ProtocolError("the plan fixes what its preliminary sums are still to find: stop the run.")
    _approve(plan, plan_digest(blob), settings, context)
    require_ledger(settings, context)
    n_features, names, has_labels = describe(message, context, call_next)
    require_width(plan, n_features)
    require_labels(plan, has_labels=has_labels)
    settings.policy.check_columns(names)
    columns = require_columns(plan, names)
    require_named_box(plan, settings.policy, names)
    if not names:
        client_log.unnamed()
    private_key = generate_private_key()
    agreed = plan_digest(blob)
    min_cohort = max(plan.min_cohort, settings.policy.min_cohort)
    authored = trust_model(plan.config.trust).blinded
    start = (plan.run_id, context.node_id, private_key, min_cohort, plan.max_silent, authored, agreed)
    protocol = RecoveryState(*start, plan.slots) if plan.dropout is Dropout.RECOVER else ClientState(*start)
    memory = ClientMemory(
        protocol, blob, agreed, _initial_clusters(plan), (), n_features, started=utc_now(), columns=columns
    )
    public_key = public_key_of(private_key)
    identity, signature = b"", b""
    if settings.identity is not None:
        identity = settings.identity.public_key
        signature = settings.identity.sign_keys(plan.run_id, context.node_id, agreed, public_key)
    marks = pins_of(settings, plan.run_id)
    return memory, reply_content(KeysReply(public_key, agreed, n_features, identity, signature, marks, columns))


def _approve(plan: Plan, digest: bytes, settings: NodeSettings, context: Context) -> None:
    """Hold a plan against the node's policy, and say so in its log."""
    client_log.plan_came(plan, digest)
    approve_plan(plan, settings, context)
    unit = plan.config.unit.value
    client_log.plan_allowed(settings, settings.ledger.past(settings.data_id, unit, excluding_run=ledger_run(context)))


def _sum(
    message: Message, context: Context, call_next: NextCall, settings: NodeSettings
) -> tuple[ClientMemory, RecordDict]:
    """Take the last release in, compute the next statistic, charge the ledger, mask and answer."""
    memory = _remembered(context)
    request = parse_sum_request(message.content)
    now_at(request.round_index, request.attempt)
    require_planned(memory.plan, request)
    memory = replace(memory, n_recognised=require_pinned(memory, settings, request))
    if request.roster is not None and not memory.cohort:
        memory = replace(memory, cohort=fingerprints(request.roster, request.credentials))
    if request.release is not None:
        require_confirmed(memory, settings, request.confirmations)
    protocol = admit(memory.protocol, request, memory.plan.first_round)
    repeated = bool(memory.attempts) and request.round_index == memory.protocol.round_index
    memory = replace(memory, protocol=protocol)
    index = None if request.release is None else request.release.round_index
    if request.release is not None and index is not None and index <= 0:
        released = _read(memory.plan, protocol, request.release)
        memory = replace(memory, found=take_preliminary(memory.plan, index, released, memory.found))
    memory = _with_next_plan(memory, message.content, index, settings, context)
    require_agreed_columns(memory.plan, memory.columns)
    if memory.plan.server_advances and request.round_index > 0:
        memory = _with_server_state(memory, request.round_index, request.state, repeated=repeated)
    elif request.state:
        raise ProtocolError("a state came from the server although clients compute their own: stop the run.")
    elif request.release is not None and index is not None and index > 0:
        released = _read(memory.plan, protocol, request.release)
        memory = replace(memory, clusters=_advance(memory, index, released))
    client_log.asked(memory.plan, request, memory.n_recognised)
    client_log.debug_size("received", message.content)
    return _contribute(memory, request, message, context, call_next, settings)


def _contribute(
    memory: ClientMemory,
    request: SumRequest,
    message: Message,
    context: Context,
    call_next: NextCall,
    settings: NodeSettings,
) -> tuple[ClientMemory, RecordDict]:
    """The sending half of `_sum`."""
    plan, index = memory.plan, request.round_index
    planned = plan.round_at(index)
    trust = trust_model(planned.trust)
    require_fresh(memory, settings, request)
    require_allowed(plan, settings, context)
    with client_log.timed("the statistic"):
        arrays = ask_statistic(message, context, call_next, memory, index)
    flat = np.concatenate([np.ravel(array) for array in arrays]) if arrays else np.zeros(0)
    if flat.shape != (vector_length(planned.blocks),):
        raise ProtocolError(
            f"the wrapped client returned {flat.size} entries, but the plan's round {index} has "
            f"{vector_length(planned.blocks)}: return the plan's statistic."
        )
    encoded = encode(flat, plan.fraction_bits)
    if plan.config.client_sampling_rate < 1.0:
        # Where the client's own coin says no, zeros go. The work is the same, so that neither time nor a failure tells.
        encoded = encode(flat * takes_part(plan, stream_number(context), index, request.attempt), plan.fraction_bits)
    announced = announced_roster(memory.protocol) or memory.protocol.cohort
    shares = plan.shares_of(len(memory.protocol.cohort.members), len(announced.members))
    vector = trust.contribute(encoded, planned.blocks, plan.fraction_bits, shares, _noise(plan, context, request))
    protocol, reply = answer(
        memory.protocol,
        request,
        vector,
        blinded=trust.blinded,
        state_digest=_digest(memory),
    )
    attempts = (*memory.attempts, (index, request.attempt))
    # Asked once more, since computing takes time: an answer that comes too late would be paid for nothing.
    require_in_time(message)
    entry = charge(memory, settings, index, request.attempt, planned.name)
    client_log.given(planned, settings, entry, shares.n_clients)
    content = reply_content(reply)
    client_log.debug_size("sending", content)
    return replace(memory, protocol=protocol, attempts=attempts), content


def _finish(
    message: Message, context: Context, call_next: NextCall, settings: NodeSettings
) -> tuple[ClientMemory, RecordDict]:
    """Take the last release in, hand the result to the wrapped client and tag the state."""
    memory = _remembered(context)
    request = parse_finish_request(message.content)
    now_at(request.release.round_index, request.release.attempt)
    require_confirmed(memory, settings, request.confirmations)
    protocol = admit_finish(memory.protocol, request)
    index = request.release.round_index
    if index != memory.plan.last_round:
        raise ProtocolError(f"the run was finished after round {index}, but the plan has {memory.plan.last_round}.")
    if memory.plan.server_advances:
        memory = _with_server_state(replace(memory, protocol=protocol), index + 1, request.state, repeated=False)
    else:
        released = _read(memory.plan, protocol, request.release)
        memory = replace(memory, protocol=protocol, clusters=_advance(memory, index, released))
    identities = SIMULATED if settings.simulated else NOT_PINNED
    if memory.n_recognised:
        identities = pinned_identities(memory.n_recognised)
    counts, unclear = None if memory.clusters is None else memory.clusters.arrays.get("counts"), memory.found.unclear
    # Numbers of columns are those of the agreed order, which need not be that of the own table.
    names = agreed_names(memory.plan, describe(message, context, call_next)[1]) if unclear else ()
    report = replace(
        build_report(memory.plan, memory.attempts, identities, counts=counts, unclear=unclear, names=names),
        provenance=Provenance.of(
            memory.plan.run_id,
            f"client {protocol.node_id}",
            memory.agreed_digest,
            columns_digest=memory.plan.columns_digest,
            data_id=settings.data_id,
            started=memory.started,
            cohort=memory.cohort,
        ),
    )
    deliver_result(message, context, call_next, memory, report)
    if not settings.simulated:
        client_log.warned(report.warnings)
    client_log.finished(memory.attempts, report)
    tag = state_tag(protocol, index + 1, protocol.attempt, _digest(memory))
    return memory, reply_content(FinishReply(tag))


def _remembered(context: Context) -> ClientMemory:
    """The memory of this run, which must exist."""
    memory = recall(context)
    if memory is None:
        raise ProtocolError(
            f"run {context.run_id} is unknown to this client (it may have restarted): leave it out or start a new run."
        )
    return memory


def _with_next_plan(
    memory: ClientMemory, content: RecordDict, released: int | None, settings: NodeSettings, context: Context
) -> ClientMemory:
    """Put the plan in force that comes with this message, if one does; `released` is the round released with it."""
    blob = plan_blob(content)
    if blob is None:
        if released == 0:
            raise ProtocolError("the last preliminary sum was released, but no final plan came with it: stop the run.")
        if memory.plan.config.private_bounds and memory.plan.n_features is None:
            raise ProtocolError("the plan has no histograms yet, and none with the tables' width came: stop the run.")
        return memory
    plan, first = load_plan(blob), released is None and not memory.attempts
    # What all columns' digests have in common is known after the key phase, and joins the plan once.
    agreed = with_columns(memory.plan, plan) if first else memory.plan
    if memory.plan.is_final:
        if agreed == memory.plan or agreed != plan:
            raise ProtocolError("another plan came although the final one is in force: stop the run.")
    elif not plan.is_final and first:
        require_widened(memory.plan, plan)
    elif memory.plan.preliminary and released != 0:
        raise ProtocolError("a final plan came before all preliminary sums were released: stop the run.")
    else:
        require_successor(agreed, plan)
        _require_found(plan, memory.found)
    _approve(plan, plan_digest(blob), settings, context)
    require_width(plan, memory.n_features)
    if isinstance(memory.protocol, RecoveryState) and plan.last_round > memory.protocol.slots.last_round:
        raise ProtocolError(
            f"the final plan has {plan.last_round} rounds, but keys were shared for "
            f"{memory.protocol.slots.last_round}: give max_iter or n_examples."
        )
    protocol = memory.protocol.with_plan(plan_digest(blob))
    return replace(memory, protocol=protocol, plan_blob=blob, clusters=_initial_clusters(plan))


def _require_found(final: Plan, found: Found) -> None:
    """Hold the final plan against what this client read off the preliminary releases itself."""
    if found.n_examples is not None and final.n_examples != found.n_examples:
        raise ProtocolError(
            f"the final plan has N = {final.n_examples}, but the private count released {found.n_examples}: stop the "
            "run."
        )
    if final.box != found.box:
        raise ProtocolError("the final plan has another box than the private histograms released: stop the run.")


def _initial_clusters(plan: Plan) -> State | None:
    """The data-independent start, once the plan is final; None where it comes from the server."""
    return initial_state(plan) if plan.is_final and not plan.server_advances else None


def _with_server_state(memory: ClientMemory, index: int, blob: bytes, *, repeated: bool) -> ClientMemory:
    """Take in what the server computed from released sums and its own points; a repeated request brings none."""
    if bool(blob) == repeated:
        what = "came a second time for one round" if repeated else "is missing"
        raise ProtocolError(f"the server's state {what}: use the same version of flwr-dpkmeans everywhere.")
    if repeated:
        return memory
    state = unpack_state(blob, memory.plan.last_round)
    require_server_state(memory.plan, index, state)
    return replace(memory, clusters=state)


def _read(plan: Plan, protocol: AnyState, release: Release) -> ReleasedSum:
    """Unblind a release and accept it as what the plan says it is."""
    planned = plan.round_at(release.round_index)
    if release.values.shape != (vector_length(planned.blocks),):
        raise ProtocolError(
            f"the release of round {release.round_index} has {release.values.size} entries, but the plan has "
            f"{vector_length(planned.blocks)}: stop the run."
        )
    trust = trust_model(planned.trust)
    aggregate = unblind(protocol, release, blinded=trust.blinded)
    return trust.read(aggregate, planned.blocks, plan.fraction_bits)


def _advance(memory: ClientMemory, index: int, released: ReleasedSum) -> State:
    """Post-process one release."""
    if memory.clusters is None:
        raise ProtocolError("a release came before the plan was final: stop the run.")
    values = b"".join(released[block.name].tobytes() for block in memory.plan.round_at(index).blocks)
    return _advanced_once(memory.plan_blob, index, memory.clusters.digest(), values, _Advance(memory, released))


class _Advance:
    """What `_advanced_once` runs when its keys are new; equal to every other one, since the keys say it all."""

    def __init__(self, memory: ClientMemory, released: ReleasedSum) -> None:
        self.memory, self.released = memory, released

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Advance)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4)
def _advanced_once(plan_blob: bytes, index: int, digest: bytes, values: bytes, advance: _Advance) -> State:
    """Run a costly step (eigenvectors, k-means with restarts) once for all virtual clients of one process."""
    del plan_blob, digest, values
    clusters = advance.memory.clusters
    if clusters is None:
        raise ProtocolError("a release came before the plan was final: stop the run.")
    return build_algorithm(advance.memory.plan).rounds[index - 1].advance(clusters, advance.released)


def _digest(memory: ClientMemory) -> bytes:
    """What the tag of a reply covers: the clustering state, or before there is one what has been found."""
    if memory.clusters is not None:
        return memory.clusters.digest()
    return b"" if memory.found == Found() else memory.found.digest()


def _noise(plan: Plan, context: Context, request: SumRequest) -> NoiseSource:
    """This client's noise for its share; a seeded run derives a stream of its own for every aggregation."""
    return make_noise_source(plan, "client", stream_number(context), request.round_index, request.attempt)
