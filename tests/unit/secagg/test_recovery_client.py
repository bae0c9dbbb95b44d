"""The client's transitions where sums are recovered.

What it answers, and what it refuses with its state unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.hostile_recovery import ring_order, without
from support.recovery_federation import PLAN, RUN, RecoveryFederation
from support.watching import Call, watch

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import agreement, ciphers, keys
from flwr_dpkmeans.secagg.agreement import combine, lock, survivors_view
from flwr_dpkmeans.secagg.graph import least_survivors
from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    Release,
    ShareRequest,
    SumRequest,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.party import Phase
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.shamir import reconstruct
from flwr_dpkmeans.secagg.slots import Slots

VECTOR = FixedPointVector(np.array([1, 2, 3], dtype=np.uint64))
OUT_OF_ORDER = "replayed, late or out of order"
Message = ShareRequest | SumRequest | UnmaskRequest | FinishRequest


def made(n_clients: int = 8, **options: object) -> RecoveryFederation:
    """A federation that has shared its keys and opened round 1."""
    federation = RecoveryFederation.make(n_clients, **options)
    federation.share()
    federation.session.open_round(1, 3)
    return federation


def handled(state: Recover, message: Message) -> Recover:
    """What a client becomes by a message."""
    if isinstance(message, ShareRequest):
        return state.share(message)[0]
    if isinstance(message, UnmaskRequest):
        return state.unmask(message)[0]
    if isinstance(message, FinishRequest):
        return state.finish(message)
    admitted = state.admit(message, 1)
    return admitted.answer(message, VECTOR, blinded=False, state_digest=b"state")[0]


def refused(state: Recover, message: Message, sentence: str) -> None:
    """The message is refused in a sentence, and the state is as it was."""
    copy = replace(state)
    with pytest.raises(ProtocolError, match=sentence):
        handled(state, message)
    assert state == copy


def in_phase(federation: RecoveryFederation, phase: Phase, node: int = 10) -> Recover:
    """One client that has come so far in round 1."""
    session = federation.session
    if phase is Phase.KEYED:
        return replace(federation.states[node], phase=Phase.KEYED, setup=None)
    if phase is Phase.SHARED:
        return federation.states[node]
    if phase is Phase.ADMITTED:
        return federation.states[node].admit(federation.request_for(node), 1)
    federation.send()
    if phase is Phase.MASKED:
        return federation.states[node]
    federation.give_shares()
    if phase is Phase.UNMASKED:
        return federation.states[node]
    values = session.recover(PLAN, blinded=False).values
    return federation.states[node].finish(FinishRequest(Release(1, 0, values)))


# The transition table: which kind of message each phase takes.

EVERYBODY = tuple(range(10, 18))
RELEASE = Release(1, 0, np.zeros(3, dtype=np.uint64))
TAKEN = {
    "first request": {Phase.SHARED},
    "next round": {Phase.UNMASKED},
    "another attempt": {Phase.MASKED, Phase.UNMASKED},
    "a later attempt": {Phase.MASKED, Phase.UNMASKED},
    "survivors": {Phase.MASKED},
    "the end": {Phase.UNMASKED},
    "key shares": {Phase.KEYED},
}


def message_of(kind: str, federation: RecoveryFederation, node: int = 10) -> Message:
    """A message that is right in every other respect."""
    fewer = without(EVERYBODY, [17])
    if kind == "first request":
        boxes = {
            peer: reply.boxes[node]
            for peer, reply in federation.shared.items()
            if peer != node
        }
        return SumRequest(1, 0, boxes=boxes, cohort=EVERYBODY)
    return {
        "next round": SumRequest(2, 0, release=RELEASE, cohort=EVERYBODY),
        "another attempt": SumRequest(1, 1, cohort=fewer),
        "a later attempt": SumRequest(1, 2, cohort=fewer),
        "survivors": UnmaskRequest(1, 0, EVERYBODY),
        "the end": FinishRequest(RELEASE),
        "key shares": ShareRequest(federation.session.sharers),
    }[kind]


@pytest.mark.parametrize(
    "phase", [phase for phase in Phase if phase is not Phase.SUMMING]
)
@pytest.mark.parametrize("kind", TAKEN)
def test_every_line_of_the_transition_table(kind: str, phase: Phase) -> None:
    federation = made(n_attempts=3)
    state = in_phase(federation, phase)
    assert state.phase is phase
    message = message_of(kind, federation)
    if phase in TAKEN[kind]:
        after = handled(state, message)
        assert after != state
        if isinstance(message, SumRequest):
            assert (after.phase, after.round_index, after.attempt) == (
                Phase.MASKED,
                message.round_index,
                message.attempt,
            )
    else:
        refused(
            state,
            message,
            f"{OUT_OF_ORDER}|asked for twice|late, replayed or of another run",
        )


REFUSED: dict[str, tuple[Phase, Callable[[SumRequest], dict[str, object]], str]] = {
    "first: a later round": (Phase.SHARED, lambda r: {"round_index": 2}, OUT_OF_ORDER),
    "first: an earlier round": (
        Phase.SHARED,
        lambda r: {"round_index": 0},
        OUT_OF_ORDER,
    ),
    "first: another attempt": (Phase.SHARED, lambda r: {"attempt": 1}, OUT_OF_ORDER),
    "first: a release": (Phase.SHARED, lambda r: {"release": RELEASE}, OUT_OF_ORDER),
    "first: a roster": (
        Phase.SHARED,
        lambda r: {"roster": Roster.of(0, {1: b"a" * 32, 2: b"b" * 32})},
        "a roster came",
    ),
    "first: a cohort without it": (
        Phase.SHARED,
        lambda r: {"cohort": r.cohort[1:]},
        "not in the cohort",
    ),
    "first: a small cohort": (
        Phase.SHARED,
        lambda r: {"cohort": r.cohort[:6]},
        "at least 7 of 8",
    ),
    "first: nobody": (Phase.SHARED, lambda r: {"cohort": ()}, "not in the cohort"),
    "first: alone": (
        Phase.SHARED,
        lambda r: {"cohort": (10,)},
        "has 1 clients, but at least 7",
    ),
    "first: a stranger": (
        Phase.SHARED,
        lambda r: {"cohort": (*r.cohort, 99)},
        "one that had left",
    ),
    "first: twice": (
        Phase.SHARED,
        lambda r: {"cohort": (*r.cohort, 17)},
        "a node twice, out of order",
    ),
    "first: out of order": (
        Phase.SHARED,
        lambda r: {"cohort": r.cohort[::-1]},
        "a node twice, out of order",
    ),
    "first: no boxes": (Phase.SHARED, lambda r: {"boxes": {}}, "7 and 2 were due"),
    "first: no group boxes": (
        Phase.SHARED,
        lambda r: {"group_boxes": {}},
        "7 and 2 were due",
    ),
    "first: a box too many": (
        Phase.SHARED,
        lambda r: {"boxes": r.boxes | {99: b""}},
        "7 and 2 were due",
    ),
    "first: its own box": (
        Phase.SHARED,
        lambda r: {"boxes": r.boxes | {10: b""}},
        "7 and 2 were due",
    ),
    "first: boxes exchanged": (
        Phase.SHARED,
        lambda r: {"boxes": dict(zip(r.boxes, [*r.boxes.values()][::-1], strict=True))},
        "does not open",
    ),
    "first: group boxes exchanged": (
        Phase.SHARED,
        lambda r: {
            "group_boxes": dict(
                zip(r.group_boxes, [*r.group_boxes.values()][::-1], strict=True)
            )
        },
        "does not open",
    ),
    "first: boxes of both kinds exchanged": (
        Phase.SHARED,
        lambda r: {"group_boxes": {node: r.boxes[node] for node in r.group_boxes}},
        "does not open",
    ),
    "first: empty boxes": (
        Phase.SHARED,
        lambda r: {"boxes": dict.fromkeys(r.boxes, b"")},
        "does not open",
    ),
    "first: torn boxes": (
        Phase.SHARED,
        lambda r: {"boxes": {node: box[:-1] for node, box in r.boxes.items()}},
        "does not open",
    ),
    "next: no release": (Phase.UNMASKED, lambda r: {"release": None}, OUT_OF_ORDER),
    "next: another round's release": (
        Phase.UNMASKED,
        lambda r: {"release": Release(0, 0, RELEASE.values)},
        OUT_OF_ORDER,
    ),
    "next: another attempt's release": (
        Phase.UNMASKED,
        lambda r: {"release": Release(1, 1, RELEASE.values)},
        OUT_OF_ORDER,
    ),
    "next: another attempt": (Phase.UNMASKED, lambda r: {"attempt": 1}, OUT_OF_ORDER),
    "next: a round skipped": (
        Phase.UNMASKED,
        lambda r: {"round_index": 3},
        OUT_OF_ORDER,
    ),
    "next: the same": (Phase.UNMASKED, lambda r: {"round_index": 1}, OUT_OF_ORDER),
    "next: the one before": (
        Phase.UNMASKED,
        lambda r: {"round_index": 0},
        OUT_OF_ORDER,
    ),
    "next: boxes": (Phase.UNMASKED, lambda r: {"boxes": {11: b"box"}}, "none are due"),
    "next: group boxes": (
        Phase.UNMASKED,
        lambda r: {"group_boxes": {11: b"box"}},
        "none are due",
    ),
    "next: a roster": (
        Phase.UNMASKED,
        lambda r: {"roster": Roster.of(0, {1: b"a" * 32, 2: b"b" * 32})},
        "a roster came",
    ),
    "next: without it": (
        Phase.UNMASKED,
        lambda r: {"cohort": r.cohort[1:]},
        "not in the cohort",
    ),
    "next: a small cohort": (
        Phase.UNMASKED,
        lambda r: {"cohort": r.cohort[:6]},
        "at least 7 of 8",
    ),
    "retry: nobody left": (
        Phase.UNMASKED,
        lambda r: {"round_index": 1, "attempt": 1, "release": None},
        "not smaller",
    ),
    "retry: a release": (
        Phase.UNMASKED,
        lambda r: {"round_index": 1, "attempt": 1, "cohort": r.cohort[:7]},
        OUT_OF_ORDER,
    ),
    "retry: no keys": (
        Phase.UNMASKED,
        lambda r: {
            "round_index": 1,
            "attempt": 2,
            "release": None,
            "cohort": r.cohort[:7],
        },
        "has no keys in this run",
    ),
    "retry: too small": (
        Phase.MASKED,
        lambda r: {
            "round_index": 1,
            "attempt": 1,
            "release": None,
            "cohort": r.cohort[:6],
        },
        "at least 7 of 8",
    ),
    "masked: the next round": (Phase.MASKED, lambda r: {}, OUT_OF_ORDER),
    "masked: the same round": (
        Phase.MASKED,
        lambda r: {"round_index": 1, "release": None},
        OUT_OF_ORDER,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_request_is_refused(case: str) -> None:
    phase, changes, sentence = REFUSED[case]
    federation = made(authored=True)
    authors = federation.session.sharers.authors(1)
    others = [author for author in authors if author != 10]
    state = in_phase(federation, phase)
    request = federation.request_for(10)
    if phase is not Phase.SHARED:
        request = SumRequest(2, 0, release=RELEASE, cohort=EVERYBODY)
    refused(
        state,
        replace(request, **changes(request)),
        sentence.replace("and 2", f"and {len(others)}"),
    )
    # The right one is still taken.
    if phase is not Phase.MASKED:
        assert handled(state, request).phase is Phase.MASKED


@pytest.mark.parametrize(
    ("survivors", "sentence"),
    [
        ((), "not in the survivors"),
        ((10,), "has 1 clients"),
        (EVERYBODY[:6], "at least 7 of 8"),
        (EVERYBODY[1:], "node 10 is not in the survivors"),
        ((*EVERYBODY, 99), "one that had left"),
        (EVERYBODY[::-1], "out of order"),
        ((*EVERYBODY, 17), "a node twice"),
    ],
)
def test_bad_survivors_are_refused(survivors: tuple[int, ...], sentence: str) -> None:
    state = in_phase(made(), Phase.MASKED)
    refused(state, UnmaskRequest(1, 0, survivors), sentence)
    assert handled(state, UnmaskRequest(1, 0, EVERYBODY)).survivors == EVERYBODY


@pytest.mark.parametrize("asked", [(1, 1), (2, 0), (0, 0), (2, 1)])
def test_survivors_of_another_aggregation_are_refused(asked: tuple[int, int]) -> None:
    refused(
        in_phase(made(), Phase.MASKED), UnmaskRequest(*asked, EVERYBODY), OUT_OF_ORDER
    )


@pytest.mark.parametrize("asked", [(1, 1), (0, 0), (2, 0)])
def test_the_end_of_another_aggregation_is_refused(asked: tuple[int, int]) -> None:
    state = in_phase(made(), Phase.UNMASKED)
    late = (
        f"is of round {asked[0]}, attempt {asked[1]}, but this client unmasked round 1,"
        " attempt 0: it is late, replayed"
    )
    refused(state, FinishRequest(Release(*asked, RELEASE.values)), late)
    refused(state, FinishRequest(RELEASE, boxes={11: b"box"}), "none are due")


def test_a_cohort_comes_from_the_survivors_and_the_cohort_before() -> None:
    federation = made(10, max_silent=2)
    federation.round(1, silent=[12], mute=[13])
    state = federation.states[10]
    assert state.survivors == without(range(10, 20), [12])
    left = without(range(10, 20), [12, 13])
    request = SumRequest(2, 0, release=federation.release, cohort=left)
    # One that was mute may come back, one whose vector was lost may not.
    assert (
        handled(state, replace(request, cohort=state.survivors)).phase is Phase.MASKED
    )
    refused(state, replace(request, cohort=tuple(range(10, 20))), "one that had left")
    masked = handled(state, request)
    refused(masked, SumRequest(2, 1, cohort=state.survivors), "not smaller")
    federation = made(11, max_silent=3)
    federation.round(1, silent=[12], mute=[13])
    fewer = without(range(10, 21), [12, 14, 15])
    request = SumRequest(
        2, 0, release=federation.release, cohort=without(range(10, 21), [12, 13])
    )
    refused(
        handled(federation.states[10], request),
        SumRequest(2, 1, cohort=fewer),
        "one that had left",
    )


# The exchange of key shares.


def test_key_shares_are_refused_for_a_wrong_roster() -> None:
    federation = RecoveryFederation.make(8, min_cohort=7)
    state, roster = federation.states[10], federation.session.sharers
    swapped = roster.keys | {10: public_key_of(generate_private_key())}
    refused(
        state,
        ShareRequest(Roster.of(0, swapped)),
        "does not list node 10 under its own key",
    )
    refused(
        state,
        ShareRequest(roster.without(0, [10])),
        "does not list node 10 under its own key",
    )
    refused(
        state, ShareRequest(roster.without(0, [11, 12])), "the roster has 6 clients"
    )
    refused(state, ShareRequest(Roster(1, roster.members)), "does not list node 10")
    low_order = roster.keys | {11: bytes(32)}
    refused(state, ShareRequest(Roster.of(0, low_order)), "not a usable X25519 key")


def test_boxes_of_a_roster_that_others_saw_do_not_open() -> None:
    # One client is shown a roster in which another one's key is exchanged, and the rest
    # is as for everybody.
    federation = RecoveryFederation.make(10, max_silent=2)
    shown = Roster.of(
        0, federation.session.sharers.keys | {19: public_key_of(generate_private_key())}
    )
    federation.states[10], _ = federation.states[10].share(ShareRequest(shown))
    replies = {
        node: federation.states[node].share(ShareRequest(federation.session.sharers))[1]
        for node in range(11, 20)
    }
    boxes = {node: reply.boxes[10] for node, reply in replies.items()}
    request = SumRequest(1, 0, boxes=boxes, cohort=tuple(range(10, 20)))
    refused(federation.states[10], request, "does not open")


@pytest.mark.parametrize("change", ["run", "roster", "giver"])
def test_boxes_bind_run_roster_and_giver(change: str) -> None:
    federation = RecoveryFederation.make(8)
    roster = federation.session.sharers
    state = federation.states[10].share(ShareRequest(roster))[0]
    giver = federation.states[11]
    if change == "run":
        giver = replace(giver, run_id=RUN + 1)
    if change == "roster":
        roster = Roster.of(0, roster.keys | {17: b"k" * 32})
    boxes = {
        node: (
            federation.states[node]
            .share(ShareRequest(federation.session.sharers))[1]
            .boxes[10]
        )
        for node in range(11, 18)
    }
    boxes[11] = giver.share(ShareRequest(roster))[1].boxes[10]
    if change == "giver":
        boxes[11] = boxes[12]
    refused(state, SumRequest(1, 0, boxes=boxes, cohort=EVERYBODY), "does not open")


@pytest.mark.parametrize("size", [0, 31, 96 * 6 - 1, 96 * 6 + 32])
def test_a_box_of_another_length_is_refused(size: int) -> None:
    class Short(Recover):
        def _seal(self, pair_key: bytes, purpose: str, to: int, _: bytes) -> bytes:
            return super()._seal(pair_key, purpose, to, bytes(size))

    federation = RecoveryFederation.make(8)
    federation.states[11] = Short(**vars(federation.states[11]))
    for node, state in federation.states.items():
        federation.states[node], federation.shared[node] = state.share(
            ShareRequest(federation.session.sharers)
        )
    boxes = {
        node: reply.boxes[10] for node, reply in federation.shared.items() if node != 10
    }
    refused(
        federation.states[10],
        SumRequest(1, 0, boxes=boxes, cohort=EVERYBODY),
        f"node 11 sealed {size} bytes instead of 576",
    )


def test_an_unusable_key_of_a_neighbour_stops_the_answer_and_changes_nothing() -> None:
    federation = made()
    state = federation.states[10].admit(federation.request_for(10), 1)
    public_keys = dict(state.peer_keys) | {11: bytes(32 * state.slots.number)}
    broken = replace(state, peer_keys=tuple(public_keys.items()))
    with pytest.raises(ProtocolError, match="announced for node 11 is not a usable"):
        broken.answer(SumRequest(1, 0), VECTOR, blinded=False, state_digest=b"")
    assert broken.phase is Phase.ADMITTED


def test_the_server_cannot_exchange_the_keys_of_an_aggregation() -> None:
    # What it is sent beside the boxes is for itself; neighbours read the copies in
    # their boxes.
    federation = RecoveryFederation.make(8)
    federation.share()
    for node, reply in federation.shared.items():
        place = federation.states[node].slots.number
        federation.session.shared[node] = replace(
            reply, public_keys=public_key_of(generate_private_key()) * place
        )
    federation.session.open_round(1, 3)
    federation.send()
    federation.give_shares()
    assert (
        federation.session.recover(PLAN, blinded=False).values.tolist()
        == federation.truth().tolist()
    )


# Nothing is answered twice.


@pytest.mark.parametrize("authored", [False, True])
def test_everything_that_was_ever_sent_is_refused_the_second_time(
    authored: bool,
) -> None:
    federation = RecoveryFederation.make(9, max_silent=2, authored=authored)
    sent: list[tuple[int, Message]] = []
    chooser = random.Random(2)

    def deliver(node: int, message: Message) -> None:
        sent.append((node, message))
        federation.states[node] = handled(federation.states[node], message)
        for other, earlier in chooser.sample(sent, min(3, len(sent))):
            refused(
                federation.states[other],
                earlier,
                "replayed|asked for twice|late|none are due|not smaller",
            )

    session = federation.session
    for node in federation.states:
        state, reply = federation.states[node].share(ShareRequest(session.sharers))
        session.receive_shares(node, reply)
        federation.states[node] = state
        sent.append((node, ShareRequest(session.sharers)))
    session.close_shares()
    everybody = tuple(federation.states)
    for node in everybody:
        session.open_round(1, 3)
        deliver(node, federation.request_for(node))
    for node in everybody[1:]:
        deliver(node, UnmaskRequest(1, 0, everybody[1:]))
    for node in everybody[2:]:
        deliver(node, SumRequest(1, 1, cohort=everybody[2:]))
    for node in everybody[2:]:
        deliver(node, UnmaskRequest(1, 1, everybody[2:]))
    release = Release(1, 1, RELEASE.values)
    for node in everybody[2:]:
        deliver(node, SumRequest(2, 1, release=release, cohort=everybody[2:]))
    for node in everybody[2:]:
        deliver(node, UnmaskRequest(2, 1, everybody[2:]))
    for node in everybody[2:]:
        deliver(node, FinishRequest(Release(2, 1, RELEASE.values)))
    for node, message in sent:
        refused(
            federation.states[node],
            message,
            "replayed|asked for twice|late|none are due",
        )


def test_no_key_or_stream_serves_two_aggregations() -> None:
    used: list[tuple[bytes, tuple[int, int]]] = []

    def note(call: Call) -> None:
        key, attempt_id = [*call.arguments.values()][:2]
        used.append((key, attempt_id))

    watch(ciphers.stream, note)
    federation = RecoveryFederation.make(8, authored=True, max_silent=1)
    federation.share()
    own: dict[int, list[tuple[bytes, tuple[int, int]]]] = {}
    session = federation.session
    for index in (1, 2):
        session.open_round(index, 3)
        for node in session.roster.node_ids:
            used.clear()
            request = federation.request_for(node)
            admitted = federation.states[node].admit(request, 1)
            federation.states[node], reply = admitted.answer(
                request, VECTOR, blinded=True, state_digest=b""
            )
            session.receive(node, reply)
            own.setdefault(node, []).extend(used)
        federation.give_shares()
        federation.release = Release(
            index, 0, session.recover(PLAN, blinded=True).values
        )
    for own_keys in own.values():
        # Self mask, seven neighbours, and perhaps a blinding stream, in two rounds.
        assert len(own_keys) in (16, 18)
        assert len(set(own_keys)) == len(own_keys)
        # Of one aggregation alone, but an author's key, which is never given away.
        assert len({key for key, _ in own_keys}) == 16 + (len(own_keys) == 18)
    slots = federation.states[10].slots
    seeds = [
        seed
        for state in federation.states.values()
        for index in range(slots.number)
        for seed in state.slot_keys(index)
    ]
    assert len(set(seeds)) == len(seeds) == 2 * 8 * slots.number


def test_shares_of_a_reply_are_locked_afresh() -> None:
    federation = made()
    state = in_phase(federation, Phase.MASKED)
    replies = [state.unmask(UnmaskRequest(1, 0, EVERYBODY))[1] for _ in range(2)]
    for owner, first in replies[0].shares.items():
        second = replies[1].shares[owner]
        # The ticket is a function of what was told; share and opening are hidden by
        # fresh keys.
        assert first[32:64] == second[32:64]
        assert first[:32] != second[:32]
        assert first[64:] != second[64:]


def test_a_lock_takes_as_many_tickets_as_a_key_takes_shares() -> None:
    federation = made()
    state = in_phase(federation, Phase.MASKED)
    _, reply = state.unmask(UnmaskRequest(1, 0, without(EVERYBODY, [13])))
    view = survivors_view((1, 0), state.transcript, without(EVERYBODY, [13]))
    ticket_keys, threshold = dict(state.ticket_keys), state.graph.threshold
    parts = {
        place: combine(
            reply.shares[peer][64:],
            agreement.ticket(ticket_keys[peer], peer, 10, view),
        )
        for place, peer in enumerate(state.neighbours, start=1)
    }
    index = state.slots.number + state.slots.index(1, 0)
    private = keys.piece(dict(state.held_shares)[13], index)
    for size in range(1, len(parts) + 1):
        opening = reconstruct(dict(list(parts.items())[:size]))
        assert (combine(reply.shares[13][:32], lock(opening, 13)) == private) is (
            size >= threshold
        )


def test_what_is_given_does_not_contain_the_shares_that_are_held() -> None:
    federation = made()
    state = in_phase(federation, Phase.MASKED)
    _, reply = state.unmask(UnmaskRequest(1, 0, without(EVERYBODY, [13])))
    sent = b"".join(reply.shares.values())
    held = b"".join([part for _, part in (*state.held_shares, *state.ticket_keys)])
    assert all(
        held[start : start + 32] not in sent for start in range(0, len(held), 32)
    )


# Answers, tags and blinding.


def test_only_an_admitted_request_is_answered_and_only_once() -> None:
    federation = made()
    request = federation.request_for(10)
    admitted = federation.states[10].admit(request, 1)
    for state, asked in (
        (federation.states[10], request),
        (admitted, replace(request, round_index=2)),
        (admitted, replace(request, attempt=1)),
        (admitted.answer(request, VECTOR, blinded=False, state_digest=b"")[0], request),
    ):
        with pytest.raises(ProtocolError, match="not open for an answer"):
            state.answer(asked, VECTOR, blinded=False, state_digest=b"")
    refused(admitted, request, OUT_OF_ORDER)


def test_blinding_that_cannot_be_is_refused() -> None:
    federation = made()
    admitted = federation.states[10].admit(federation.request_for(10), 1)
    with pytest.raises(ProtocolError, match="no key authors"):
        admitted.answer(SumRequest(1, 0), VECTOR, blinded=True, state_digest=b"")
    with pytest.raises(ProtocolError, match="group keys are not at hand"):
        admitted.unblind(RELEASE, blinded=True)
    authored = made(authored=True)
    authored.round(1, blinded=True)
    with pytest.raises(ProtocolError, match="group keys are not at hand"):
        authored.states[10].unblind(Release(1, 1, RELEASE.values), blinded=True)


class Lenient(Recover):
    """Lets all others but one be gone."""

    @property
    def least(self) -> int:
        return 2


def test_two_authors_must_survive() -> None:
    # With t + 2 authors and at most t clients gone it cannot be otherwise; here more
    # may go.
    federation = RecoveryFederation.make(12, max_silent=3, authored=True)
    federation.made_of(Lenient).share()
    federation.session.open_round(1, 3)
    authors = federation.session.sharers.authors(3)
    assert len(authors) == 5
    node = next(node for node in federation.states if node not in authors)
    request = federation.request_for(node)
    few = without(federation.states, authors[1:])
    fewer_boxes = {peer: box for peer, box in request.boxes.items() if peer in few}
    first = replace(
        request,
        cohort=few,
        boxes=fewer_boxes,
        group_boxes={authors[0]: request.group_boxes[authors[0]]},
    )
    refused(
        federation.states[node],
        first,
        r"1 key author\(s\) shared keys, but 2 are needed",
    )
    masked = handled(federation.states[node], request)
    refused(
        masked,
        UnmaskRequest(1, 0, few),
        r"1 key author\(s\) survived, but 2 are needed",
    )
    assert (
        handled(
            masked, UnmaskRequest(1, 0, without(federation.states, authors[2:]))
        ).phase
        is Phase.UNMASKED
    )


def test_tags_are_keyed_and_bound() -> None:
    federation = made(authored=True)
    assert federation.states[10].tag(1, 0, b"state") == b""
    first = federation.states[10].admit(federation.request_for(10), 1)
    second = federation.states[11].admit(federation.request_for(11), 1)
    tag = first.tag(1, 0, b"state")
    assert tag == second.tag(1, 0, b"state")
    others = [
        first.tag(2, 0, b"state"),
        first.tag(1, 1, b"state"),
        first.tag(1, 0, b"other"),
        replace(first, survivors=EVERYBODY).tag(1, 0, b"state"),
        replace(first, run_id=RUN + 1).tag(1, 0, b"state"),
        replace(first, tag_key=bytes(32)).tag(1, 0, b"state"),
    ]
    assert len({tag, *others}) == 7


def test_clients_that_were_told_different_survivors_have_different_tags() -> None:
    federation = made(10, max_silent=2)
    federation.send()
    left = without(range(10, 20), [19])
    everybody = tuple(range(10, 20))
    tags = set()
    for node, told in ((10, everybody), (11, left), (12, everybody)):
        state = handled(federation.states[node], UnmaskRequest(1, 0, told))
        request = SumRequest(2, 0, release=RELEASE, cohort=left)
        admitted = state.admit(request, 1)
        _, reply = admitted.answer(
            request, VECTOR, blinded=False, state_digest=b"state"
        )
        tags.add((told, reply.tag))
    assert len(tags) == 2
    assert len({tag for _, tag in tags}) == 2


def test_nothing_is_known_before_the_exchange() -> None:
    state = RecoveryFederation.make(8).states[10]
    with pytest.raises(ProtocolError, match="no roster was announced"):
        _ = state.cohort
    with pytest.raises(ProtocolError, match="no keys were shared"):
        _ = state.sharers


def test_an_older_state_that_shares_again_shares_other_keys() -> None:
    """A reply is sent before its state is kept."""
    federation = RecoveryFederation.make(8)
    state, request = federation.states[10], ShareRequest(federation.session.sharers)
    first, second = (state.share(request)[1] for _ in range(2))
    assert first.public_keys != second.public_keys
    assert first.commitments != second.commitments


def test_own_keys_follow_from_two_secrets_of_32_bytes() -> None:
    """From an empty one everybody could make the keys."""
    state = made().states[10]
    selves, privates = state.masters[:32], state.masters[32:]
    assert len(selves) == len(privates) == 32
    for index in (0, 5):
        bound = (RUN, 10, index)
        expected = (
            keys.derive_key(selves, "self seed", *bound),
            keys.derive_key(privates, "private key", *bound),
        )
        assert state.slot_keys(index) == expected


def test_an_older_state_that_is_asked_again_shares_other_keys() -> None:
    """The same keys among two neighbourhoods are more shares than the threshold."""
    state = made().states[10]
    again = replace(state, phase=Phase.KEYED, setup=None)
    roster = state.sharers
    assert again.share(ShareRequest(roster))[0].masters != state.masters


def test_secrets_are_not_printed() -> None:
    federation = made(authored=True)
    state = in_phase(federation, Phase.UNMASKED, node=ring_order(federation)[0])
    printed = repr(state) + repr(federation.unmasked) + repr(federation.masked)
    secrets = [state.private_key, state.masters, state.own_group_key, state.tag_key]
    secrets += [
        part for _, part in (*state.held_shares, *state.ticket_keys, *state.group_keys)
    ]
    secrets += list(federation.unmasked[1, 0][10].shares.values())
    assert all(
        secret and repr(secret) not in printed and secret.hex() not in printed
        for secret in secrets
    )


@pytest.mark.parametrize(
    ("n", "t", "minimum", "least"),
    [(10, 2, 2, 8), (10, 2, 9, 9), (6, 1, 0, 5), (4, 9, 0, 2)],
)
def test_least_survivors(n: int, t: int, minimum: int, least: int) -> None:
    assert least_survivors(n, t, minimum) == least


def test_a_new_plan_changes_the_masks() -> None:
    federation = made()
    admitted = federation.states[10].admit(federation.request_for(10), 1)
    replies = [
        state.answer(SumRequest(1, 0), VECTOR, blinded=False, state_digest=b"")[1]
        for state in (admitted, admitted.with_plan(b"another plan", 3))
    ]
    assert not set(replies[0].masked.values.tolist()) & set(
        replies[1].masked.values.tolist()
    )
    assert not set(replies[0].boxes.values()) & set(replies[1].boxes.values())


def test_a_final_plan_is_no_longer_than_there_are_keys() -> None:
    state = RecoveryFederation.make(8).states[10]
    assert state.with_plan(b"the final plan", 3).plan_digest == b"the final plan"
    with pytest.raises(ProtocolError, match="final plan has 4 rounds, but keys were"):
        state.with_plan(b"the final plan", 4)


# Slots.


def test_slots_are_places_in_order() -> None:
    slots = Slots(-1, 2, 3)
    places = [
        slots.index(index, attempt) for index in range(-1, 3) for attempt in range(3)
    ]
    assert places == list(range(slots.number)) == list(range(12))
    for asked in ((-2, 0), (3, 0), (0, 3), (0, -1)):
        with pytest.raises(ProtocolError, match="has no keys in this run"):
            slots.index(*asked)
