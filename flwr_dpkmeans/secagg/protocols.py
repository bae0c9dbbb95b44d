"""Both protocols of a client behind the same five transitions: sums that are repeated, and sums that are recovered."""

from __future__ import annotations

from flwr_dpkmeans.secagg import client
from flwr_dpkmeans.secagg.client import ClientState
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.recovery import client as recovery
from flwr_dpkmeans.secagg.recovery.state import RecoveryState
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster

AnyState = ClientState | RecoveryState
"""A client's state under either protocol."""


def announced_roster(state: AnyState) -> Roster | None:
    """The first roster of the run, or one that followed from it; None before it came."""
    return state.setup if isinstance(state, RecoveryState) else state.roster


def admit(state: AnyState, request: SumRequest, first_round: int) -> AnyState:
    """See `secagg.client.admit` and `secagg.recovery.client.admit`."""
    if isinstance(state, RecoveryState):
        return recovery.admit(state, request, first_round)
    return client.admit(state, request, first_round)


def answer(
    state: AnyState, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
) -> tuple[AnyState, SumReply]:
    """See `secagg.client.answer` and `secagg.recovery.client.answer`."""
    if isinstance(state, RecoveryState):
        return recovery.answer(state, request, vector, blinded=blinded, state_digest=state_digest)
    return client.answer(state, request, vector, blinded=blinded, state_digest=state_digest)


def admit_finish(state: AnyState, request: FinishRequest) -> AnyState:
    """See `secagg.client.admit_finish` and `secagg.recovery.client.admit_finish`."""
    if isinstance(state, RecoveryState):
        return recovery.admit_finish(state, request)
    return client.admit_finish(state, request)


def unblind(state: AnyState, release: Release, *, blinded: bool) -> AggregateVector:
    """See `secagg.client.unblind` and `secagg.recovery.client.unblind`."""
    if isinstance(state, RecoveryState):
        return recovery.unblind(state, release, blinded=blinded)
    return client.unblind(state, release, blinded=blinded)


def state_tag(state: AnyState, round_index: int, attempt: int, state_digest: bytes) -> bytes:
    """See `secagg.client.state_tag` and `secagg.recovery.client.state_tag`."""
    if isinstance(state, RecoveryState):
        return recovery.state_tag(state, round_index, attempt, state_digest)
    return client.state_tag(state, round_index, attempt, state_digest)
