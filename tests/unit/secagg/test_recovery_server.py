"""The server's session where sums are recovered.

What it takes in, what it discards, and how it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.hostile_recovery import ring_order, without
from support.recovery_federation import PLAN, RUN, RecoveryFederation

from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    LocalMisuseError,
    PlanError,
    ProtocolError,
)
from flwr_dpkmeans.secagg.messages import (
    MaskedVector,
    Release,
    ShareReply,
    ShareRequest,
    Stage,
    SumReply,
    SumRequest,
    UnmaskReply,
)
from flwr_dpkmeans.secagg.recover_session import RecoverSession
from flwr_dpkmeans.secagg.session import Silence
from flwr_dpkmeans.secagg.slots import Slots


def contents(session: RecoverSession) -> dict[str, object]:
    """Everything that a session remembers, for comparison."""
    plain = {}
    for name, value in vars(session).items():
        plain[name] = (
            value.tolist()
            if isinstance(value, np.ndarray)
            else dict(value)
            if isinstance(value, dict)
            else value
        )
    return plain


def discarded(session: RecoverSession, call: Callable[[], None], sentence: str) -> None:
    """The reply is refused in a sentence, and the session is as it was."""
    before = contents(session)
    with pytest.raises(ProtocolError, match=sentence):
        call()
    assert contents(session) == before


def opened(n_clients: int = 10, **options: object) -> RecoveryFederation:
    federation = RecoveryFederation.make(n_clients, **{"max_silent": 2, **options})
    federation.share()
    federation.session.open_round(1, 3)
    return federation


# Key shares.

BAD_SHARES: dict[str, Callable[[ShareReply], ShareReply]] = {
    "no boxes": lambda r: replace(r, boxes={}),
    "a box too many": lambda r: replace(
        r, boxes={**r.boxes, 99: next(iter(r.boxes.values()))}
    ),
    "a box for itself": lambda r: replace(
        r, boxes={**r.boxes, 10: next(iter(r.boxes.values()))}
    ),
    "a short box": lambda r: replace(r, boxes={**r.boxes, 11: r.boxes[11][:-1]}),
    "a huge box": lambda r: replace(r, boxes={**r.boxes, 11: bytes(10**6)}),
    "an empty box": lambda r: replace(r, boxes={**r.boxes, 11: b""}),
    "too few keys": lambda r: replace(r, public_keys=r.public_keys[32:]),
    "a key cut off": lambda r: replace(r, public_keys=r.public_keys[:-1]),
    "too many commitments": lambda r: replace(r, commitments=r.commitments + bytes(32)),
    "no commitments": lambda r: replace(r, commitments=b""),
    "group boxes that are not due": lambda r: replace(r, group_boxes={11: bytes(60)}),
}


@pytest.mark.parametrize("case", BAD_SHARES)
def test_malformed_key_shares_are_discarded(case: str) -> None:
    federation = RecoveryFederation.make(8)
    session = federation.session
    _, reply = federation.states[10].share(ShareRequest(session.sharers))
    discarded(
        session,
        lambda: session.receive_shares(10, BAD_SHARES[case](reply)),
        "shared 7 boxes|shared 0|shared 8",
    )
    session.receive_shares(10, reply)


def test_group_boxes_are_due_from_authors_only() -> None:
    federation = RecoveryFederation.make(8, authored=True)
    session = federation.session
    for node, state in federation.states.items():
        _, reply = state.share(ShareRequest(session.sharers))
        assert bool(reply.group_boxes) is (node in session.sharers.authors(1))
        for changed in (
            {},
            {99: bytes(60)},
            dict.fromkeys(without(federation.states, [node]), bytes(61)),
        ):
            if dict(reply.group_boxes) != changed:
                wrong = replace(reply, group_boxes=changed)
                discarded(
                    session,
                    lambda node=node, wrong=wrong: session.receive_shares(node, wrong),
                    "boxes for 7",
                )
        session.receive_shares(node, reply)


def test_key_shares_are_taken_once_and_not_late() -> None:
    federation = RecoveryFederation.make(8)
    session = federation.session
    replies = {
        n: state.share(ShareRequest(session.sharers))[1]
        for n, state in federation.states.items()
    }
    for node in without(replies, [17]):
        session.receive_shares(node, replies[node])
        discarded(
            session,
            lambda node=node: session.receive_shares(node, replies[node]),
            "unasked or twice",
        )
    discarded(
        session, lambda: session.receive_shares(99, replies[10]), "unasked or twice"
    )
    session.close_shares()
    discarded(
        session, lambda: session.receive_shares(17, replies[17]), "unasked or twice"
    )
    assert session.roster.node_ids == without(replies, [17])
    boxes, _ = session.take_boxes(10)
    assert sorted(boxes) == list(without(replies, [10, 17]))


def test_too_few_key_shares_stop_the_run() -> None:
    federation = RecoveryFederation.make(8)
    with pytest.raises(CohortError, match=r"but at least 7 are needed .*\[10, 11\]"):
        federation.share(silent=[10, 11])


# Vectors.

BAD_VECTORS: dict[str, tuple[Callable[[SumReply], SumReply], str]] = {
    "too long": (
        lambda r: replace(r, masked=MaskedVector(np.zeros(4, dtype=np.uint64))),
        "sent 4 entries",
    ),
    "too short": (
        lambda r: replace(r, masked=MaskedVector(np.zeros(0, dtype=np.uint64))),
        "sent 0 entries",
    ),
    "two dimensions": (
        lambda r: replace(r, masked=MaskedVector(np.zeros((1, 3), dtype=np.uint64))),
        "sent 3 entries",
    ),
    "floats": (
        lambda r: replace(r, masked=MaskedVector(np.full(3, np.nan))),
        "float64",
    ),
    "signed": (
        lambda r: replace(r, masked=MaskedVector(np.zeros(3, dtype=np.int64))),
        "int64",
    ),
    "no tag": (lambda r: replace(r, tag=b""), "malformed tag"),
    "a long tag": (lambda r: replace(r, tag=bytes(33)), "malformed tag"),
    "no tickets": (lambda r: replace(r, boxes={}), "other tickets than are due"),
    "a ticket too many": (
        lambda r: replace(r, boxes={**r.boxes, 99: bytes(32)}),
        "other tickets",
    ),
    "a short ticket": (
        lambda r: replace(r, boxes={**r.boxes, 11: bytes(31)}),
        "other tickets",
    ),
    "another round": (lambda r: replace(r, round_index=2), "late or replayed"),
    "another attempt": (lambda r: replace(r, attempt=1), "late or replayed"),
}


@pytest.mark.parametrize("case", BAD_VECTORS)
def test_malformed_vectors_are_discarded(case: str) -> None:
    change, sentence = BAD_VECTORS[case]
    federation = opened()
    session, receive = federation.session, federation.session.receive

    def checked(node: int, reply: SumReply) -> None:
        if node == 10:
            discarded(session, lambda: receive(node, change(reply)), sentence)
        receive(node, reply)
        discarded(session, lambda: receive(node, reply), "twice")
        discarded(session, lambda: receive(99, reply), "not in the roster")

    session.receive = checked
    federation.send()
    federation.give_shares()
    assert (
        session.recover(PLAN, blinded=False).values.tolist()
        == federation.truth().tolist()
    )


def test_vectors_that_come_during_or_after_unmasking_are_discarded() -> None:
    federation = opened()
    session = federation.session
    federation.send(silent=[12])
    late = federation.masked[1, 0][12]
    assert session.missing() == (12,)
    session.close_vectors()
    discarded(session, lambda: session.receive(12, late), "late or replayed")
    federation.give_shares()
    discarded(session, lambda: session.receive(12, late), "late or replayed")
    session.recover(PLAN, blinded=False)
    discarded(session, lambda: session.receive(12, late), "not in the roster")
    discarded(
        session,
        lambda: session.receive(11, federation.masked[1, 0][11]),
        "late or replayed",
    )


def test_too_few_vectors_stop_the_run() -> None:
    federation = opened()
    federation.send(silent=[10, 11, 12])
    with pytest.raises(CohortError, match="7 of 10 clients answered round 1"):
        federation.session.close_vectors()


def test_unequal_tags_stop_the_run() -> None:
    federation = opened()
    federation.send()
    federation.session.tags[13] = bytes(32)
    with pytest.raises(DisagreementError, match=r"node\(s\) \[13\]"):
        federation.session.close_vectors()


@pytest.mark.parametrize("n_left", [1, 2])
def test_fewer_than_two_authors_stop_the_run(n_left: int) -> None:
    federation = opened(authored=True)
    session = federation.session
    session.least = 2
    federation.send(silent=session.sharers.authors(2)[n_left:], blinded=True)
    with (
        pytest.raises(CohortError, match="fewer than 2 key authors")
        if n_left < 2
        else nullcontext()
    ):
        session.close_vectors()
    assert (session.due is Stage.UNMASK) is (n_left == 2)


# Shares.

BAD_UNMASKED: dict[str, tuple[Callable[[UnmaskReply], UnmaskReply], str]] = {
    "no shares": (lambda r: replace(r, shares={}), "malformed or not due"),
    "a share too many": (lambda r: replace(r, shares={**r.shares, 99: bytes(96)}),
                         "malformed or not due"),
    "a share of its own": (lambda r: replace(r, shares={**r.shares, 10: bytes(96)}),
                           "malformed or not due"),
    "a short share": (lambda r: replace(r, shares={**r.shares, 11: bytes(95)}),
                      "malformed or not due"),
    "a long share": (lambda r: replace(r, shares={**r.shares, 11: bytes(10**6)}),
                     "malformed or not due"),
    "one missing": (lambda r: replace(r, shares=dict(list(r.shares.items())[1:])),
                    "malformed or not due"),
    "another round": (lambda r: replace(r, round_index=0), "not awaited"),
    "another attempt": (lambda r: replace(r, attempt=1), "not awaited"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_UNMASKED)
def test_malformed_shares_are_discarded(case: str) -> None:
    change, sentence = BAD_UNMASKED[case]
    federation = opened()
    session, receive = federation.session, federation.session.receive_unmask
    federation.send(silent=[12])

    def checked(node: int, reply: UnmaskReply) -> None:
        if node == 10:
            discarded(session, lambda: receive(node, change(reply)), sentence)
        receive(node, reply)
        discarded(session, lambda: receive(node, reply), "twice")
        discarded(session, lambda: receive(12, reply), "not awaited")
        discarded(session, lambda: receive(99, reply), "not awaited")

    session.receive_unmask = checked
    federation.give_shares()
    assert (
        session.recover(PLAN, blinded=False).values.tolist()
        == federation.truth().tolist()
    )


def test_shares_before_or_after_they_are_due_are_discarded() -> None:
    federation = opened()
    session = federation.session
    federation.send()
    reply = UnmaskReply(1, 0, {})
    discarded(session, lambda: session.receive_unmask(10, reply), "not awaited")
    federation.give_shares()
    late = session.unmasked.pop(19)
    session.recover(PLAN, blinded=False)
    discarded(session, lambda: session.receive_unmask(19, late), "not awaited")
    assert 19 not in session.roster.keys


# Going on.


def test_the_next_cohort_is_those_that_gave_shares() -> None:
    federation = opened(rounds=(1, 2))
    federation.round(1, silent=[12], mute=[13])
    session = federation.session
    assert session.roster.node_ids == without(range(10, 20), [12, 13])
    session.require_cohort()
    session.least = 9
    with pytest.raises(CohortError, match="8 of 10 clients unmasked round 1"):
        session.require_cohort()


def test_too_few_shares_are_an_attempt_with_those_that_are_left() -> None:
    # n = 12, t = 3: the threshold is 8 of 11; with five gone it cannot be reached, and
    # with three it can.
    federation = opened(12, max_silent=3)
    session = federation.session
    federation.send(silent=[10])
    federation.give_shares(silent=[11, 12])
    del session.unmasked[13], session.unmasked[14]
    before = contents(session)
    with pytest.raises(ProtocolError, match=r"[67] neighbours of node"):
        session.recover(PLAN, blinded=False)
    assert contents(session) == before
    with pytest.raises(CohortError, match="7 of 12 clients answered round 1"):
        session.retry()
    federation = opened(12, max_silent=3)
    values = federation.round(1, silent=[10], mute=[11])
    assert values.tolist() == federation.truth().tolist()


def test_a_wrong_share_is_an_attempt_without_nobody() -> None:
    # Somebody sent a wrong share, but nobody knows who: only if somebody is silent as
    # well is there another attempt.
    federation = opened()
    session = federation.session
    federation.send()
    federation.give_shares()
    session.sealed[11] = {node: bytes(32) for node in session.sealed[11]}
    with pytest.raises(ProtocolError, match="node 11"):
        session.recover(PLAN, blinded=False)
    with pytest.raises(CohortError, match="another attempt needs a smaller cohort"):
        session.retry()
    del session.unmasked[19]
    session.retry()
    federation.gone.add(19)
    assert (session.attempt, session.roster.node_ids, session.due) == (
        1,
        tuple(range(10, 19)),
        Stage.SUM,
    )
    assert session.take_boxes(10) == ({}, {})
    federation.send(repeated=True)
    federation.give_shares()
    assert (
        session.recover(PLAN, blinded=False).values.tolist()
        == federation.truth().tolist()
    )


def test_an_attempt_before_survivors_were_named_brings_no_boxes_again() -> None:
    federation = opened()
    session = federation.session
    federation.send(silent=[12])
    session.retry()
    assert session.take_boxes(10) == ({}, {})
    federation.send(repeated=True)
    federation.give_shares()
    assert (
        session.recover(PLAN, blinded=False).values.tolist()
        == federation.truth().tolist()
    )


def test_retries_are_those_of_the_plan() -> None:
    federation = opened(n_attempts=1)
    federation.send()
    federation.give_shares(silent=[19])
    with pytest.raises(CohortError, match="one of the plan's 0 retries"):
        federation.session.retry()


def test_an_attempt_goes_on_to_the_next_round() -> None:
    federation = opened(12, max_silent=3, rounds=(1, 3), authored=True)
    session = federation.session
    federation.send(blinded=True)
    federation.give_shares()
    del session.unmasked[21]
    session.retry()
    federation.gone.add(21)
    federation.send(repeated=True, blinded=True)
    federation.give_shares()
    federation.release = replace_release(
        federation, session.recover(PLAN, blinded=True).values
    )
    federation.round(2, silent=[20], blinded=True)
    assert session.attempt == 1
    assert federation.read(10, blinded=True).tolist() == federation.truth().tolist()


def replace_release(federation: RecoveryFederation, values: np.ndarray) -> Release:
    """The release of the aggregation that was just recovered."""
    return Release(federation.session.round_index, federation.session.attempt, values)


def test_signatures_go_with_the_release_that_they_confirm() -> None:
    federation = opened(8, max_silent=1)
    session = federation.session
    node, *others = session.sharers.node_ids
    session.signatures = dict.fromkeys(others, b"signed")
    for release, signers in (
        (None, ()),
        (replace_release(federation, np.zeros(1)), session.neighbours(node)),
    ):
        asked = session.request(node, release, b"")
        assert isinstance(asked, SumRequest)
        assert asked.release is release
        assert asked.confirmations == dict.fromkeys(signers, b"signed")


def test_each_stage_closes_with_who_is_missing_and_what_they_did_not_send() -> None:
    federation = RecoveryFederation.make(10, max_silent=2)
    session, late = federation.session, 17
    assert session.due is Stage.SHARE
    for node, state in federation.states.items():
        if node != late:
            federation.states[node], reply = state.share(ShareRequest(session.sharers))
            session.receive_shares(node, reply)
    assert session.close(PLAN, blinded=False) == (
        None,
        Silence((late,), "shared no keys"),
    )
    assert (session.due, session.attempt, late in session.roster.node_ids) == (
        Stage.SUM,
        0,
        False,
    )
    federation.gone.add(late)
    session.open_round(1, 3)
    federation.send(silent=(12,))
    assert session.close(PLAN, blinded=False) == (
        None,
        Silence((12,), "sent no vector"),
    )
    assert (session.due, session.attempt) == (Stage.UNMASK, 0)


def test_a_session_needs_enough_clients_and_room() -> None:
    roster = RecoveryFederation.make(8).session.sharers
    options = {"min_cohort": 2, "max_retries": 1, "max_silent": 1, "authored": False}
    with pytest.raises(CohortError, match="8 clients take part, but at least 9"):
        RecoverSession(RUN, roster, Slots(1, 1, 1), **{**options, "min_cohort": 9})
    with pytest.raises(PlanError, match="max_silent is 3 of 8"):
        RecoverSession(RUN, roster, Slots(1, 1, 1), **{**options, "max_silent": 3})


@pytest.mark.parametrize(
    ("rounds", "attempts"),
    [((1, 0), 1), ((1, 1), 0), ((0, 256), 1), ((0, 85), 3), ((0, 10**9), 1)],
)
def test_slots_are_bounded(rounds: tuple[int, int], attempts: int) -> None:
    with pytest.raises(PlanError, match="shares keys for at most 256"):
        Slots(*rounds, attempts)
    assert Slots(1, 64, 4).number == 256


def test_blinding_needs_authors() -> None:
    federation = opened()
    federation.send()
    federation.give_shares()
    with pytest.raises(LocalMisuseError, match="has no blinded sums"):
        federation.session.recover(PLAN, blinded=True)


def test_sums_are_recovered_on_the_sparse_graph() -> None:
    federation = opened(40, max_silent=4, rounds=(1, 2), authored=True)
    order = ring_order(federation)
    assert len(federation.session.neighbours(order[0])) < 39
    # Next to each other on the circle, and authors besides.
    federation.round(1, silent=order[:2], mute=order[3:4], blinded=True)
    assert (
        federation.read(order[20], blinded=True).tolist() == federation.truth().tolist()
    )
    federation.round(2, silent=order[2:3], blinded=True)
    assert (
        federation.read(order[20], blinded=True).tolist() == federation.truth().tolist()
    )


def test_only_those_in_the_sum_are_asked_to_unmask() -> None:
    for due, asked in (
        (Stage.SHARE, (3, 5, 8)),
        (Stage.SUM, (3, 5, 8)),
        (Stage.UNMASK, (3, 8)),
    ):
        session: Any = SimpleNamespace(
            due=due, survivors=(3, 8), roster=SimpleNamespace(node_ids=(3, 5, 8))
        )
        assert RecoverSession.recipients.fget(session) == asked  # type: ignore[attr-defined]
        assert RecoverSession.n_summed.fget(session) == 2  # type: ignore[attr-defined]
