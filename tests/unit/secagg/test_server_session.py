"""The server's session: what it accepts, and that nothing it ever holds can be read
under blinding.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.machine import replace_entropy
from support.masked_federation import Federation, altered, combinations, ring

from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    LocalMisuseError,
    ProtocolError,
)
from flwr_dpkmeans.secagg.ciphers import mask
from flwr_dpkmeans.secagg.keys import digest
from flwr_dpkmeans.secagg.messages import NO_ROUND, MaskedVector, SumReply
from flwr_dpkmeans.secagg.retry_session import RetrySession
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.session import require_equal_tags

NODES = (3, 8, 11, 20)
NOISE = ring(-4242)


def plain_vectors(nodes: Sequence[int] = NODES) -> dict[int, Ring]:
    """Vectors of one entry of the whole ring: no coincidence is likely."""
    chooser = random.Random(5)
    return {node: ring(chooser.getrandbits(64)) for node in nodes}


VECTORS = plain_vectors()


def open_round(**settings: Any) -> tuple[Federation, dict[int, SumReply]]:
    """A federation with round 1 open, and everybody's replies, not delivered yet."""
    federation = Federation(NODES, **settings)
    federation.open(1, 1)
    replies = {
        node: federation.answer(node, request, VECTORS[node])
        for node, request in federation.requests().items()
    }
    return federation, replies


def snapshot(server: RetrySession) -> tuple[Any, ...]:
    """Everything a session remembers."""
    fields = vars(server)
    return tuple(
        dict(value) if isinstance(value, dict) else value
        for _, value in sorted(fields.items())
    )


def refused(federation: Federation, node: int, reply: SumReply, sentence: str) -> None:
    """The reply is refused in a sentence, and the session stays as it was."""
    before = snapshot(federation.server)
    with pytest.raises(ProtocolError, match=sentence):
        federation.server.receive(node, reply)
    assert snapshot(federation.server) == before


def test_nothing_is_taken_before_a_round_is_open() -> None:
    """Not even an empty vector for no round."""
    refused(
        Federation(NODES),
        3,
        SumReply(NO_ROUND, 0, MaskedVector(ring()), b""),
        "is complete",
    )


@pytest.mark.parametrize("min_cohort", [5, 100])
def test_a_cohort_below_the_minimum_is_refused(min_cohort: int) -> None:
    with pytest.raises(
        CohortError, match=f"4 clients take part, but at least {min_cohort}"
    ):
        Federation(NODES, min_cohort=min_cohort)


@pytest.mark.parametrize(
    ("node", "change", "sentence"),
    [
        (99, lambda reply: reply, "not in the roster"),
        (3, lambda reply: replace(reply, round_index=0), "late or replayed"),
        (3, lambda reply: replace(reply, round_index=2), "late or replayed"),
        (3, lambda reply: replace(reply, attempt=1), "late or replayed"),
        (3, lambda reply: altered(reply, ring(1, 2)), "sent 2 entries"),
        (3, lambda reply: altered(reply, ring()), "sent 0 entries"),
        (
            3,
            lambda reply: altered(reply, ring(1).reshape(1, 1)),
            "the plan has 1 of uint64",
        ),
        (3, lambda reply: altered(reply, np.array([0.5])), "1 entries of float64"),  # type: ignore[arg-type]
        (3, lambda reply: altered(reply, np.array([5])), "1 entries of int64"),  # type: ignore[arg-type]
        (3, lambda reply: replace(reply, tag=b"x" * 31), "a tag of 31 bytes"),
        (3, lambda reply: replace(reply, boxes={}), "for 0 clients, but 3 were due"),
        (
            3,
            lambda reply: replace(reply, boxes=dict(list(reply.boxes.items())[1:])),
            "for 2 clients, but 3 were due",
        ),
        (
            3,
            lambda reply: replace(reply, boxes=reply.boxes | {3: b"box"}),
            "for 4 clients, but 3 were due",
        ),
        (
            3,
            lambda reply: replace(reply, boxes=reply.boxes | {99: b"box"}),
            "for 4 clients, but 3 were due",
        ),
    ],
)
def test_a_malformed_reply_is_refused(
    node: int, change: Callable[[SumReply], SumReply], sentence: str
) -> None:
    federation, replies = open_round(max_silent=2)
    refused(federation, node, change(replies[3]), sentence)
    for each, reply in replies.items():
        federation.deliver(each, reply)
    federation.close(NOISE)
    assert (
        federation.read_release()[3].tolist()
        == (sum(VECTORS.values()) + NOISE).tolist()
    )


def test_boxes_from_nodes_that_are_not_authors_are_refused() -> None:
    federation, replies = open_round()
    authors = federation.server.roster.authors(0)
    for node, reply in replies.items():
        if node not in authors:
            borrowed = {other: b"box" for other in NODES if other != node}
            refused(federation, node, replace(reply, boxes=borrowed), "but 0 were due")
    for node, reply in replies.items():
        federation.deliver(node, reply)
    federation.close(NOISE)
    federation.open(2, 1)
    author = authors[0]
    reply = federation.answer(author, federation.requests()[author], VECTORS[author])
    refused(
        federation,
        author,
        replace(reply, boxes=replies[author].boxes),
        "but 0 were due",
    )


def test_duplicates_and_replays_are_refused() -> None:
    federation, replies = open_round()
    for node, reply in replies.items():
        federation.deliver(node, reply)
        refused(federation, node, reply, "twice")
        refused(federation, node, altered(reply, ring(0)), "twice")
    federation.close(NOISE)
    for node, reply in replies.items():
        refused(
            federation,
            node,
            reply,
            "attempt 0 is complete: the reply is late or replayed",
        )
    federation.open(2, 1)
    for node, reply in replies.items():
        refused(federation, node, reply, "late or replayed")
    federation.attempt(VECTORS)
    federation.close(NOISE)
    assert (
        federation.read_release()[3].tolist()
        == (sum(VECTORS.values()) + NOISE).tolist()
    )


def test_replies_before_a_round_is_open_are_refused() -> None:
    federation = Federation(NODES)
    reply = SumReply(-1, 0, MaskedVector(ring()), b"")
    refused(federation, 3, reply, "late or replayed")


def test_an_incomplete_round_is_not_aggregated() -> None:
    federation, replies = open_round()
    for node in (3, 8):
        federation.deliver(node, replies[node])
    assert federation.server.missing() == (11, 20)
    with pytest.raises(CohortError, match=r"nodes \[11, 20\] have not answered round"):
        federation.close(NOISE)


def test_the_blinded_flag_follows_from_key_authors() -> None:
    federation, replies = open_round(authored=True)
    for node, reply in replies.items():
        federation.deliver(node, reply)
    assert federation.server.aggregate(blinded=True).blinded
    plain = Federation(NODES, authored=False)
    plain.open(1, 1)
    plain.attempt(VECTORS)
    with pytest.raises(LocalMisuseError, match="without key authors has no blinded"):
        plain.server.aggregate(blinded=True)
    aggregate = plain.server.aggregate(blinded=False)
    assert not aggregate.blinded
    assert aggregate.values.tolist() == sum(VECTORS.values()).tolist()


def test_boxes_are_handed_out_once() -> None:
    federation, replies = open_round()
    for node, reply in replies.items():
        federation.deliver(node, reply)
    assert federation.server.take_boxes(3) == {}
    federation.close(NOISE)
    authors = set(federation.server.roster.authors(0))
    for node in NODES:
        assert set(federation.server.take_boxes(node)) == authors - {node}
        assert federation.server.take_boxes(node) == {}


# Retries.


def test_a_retry_leaves_no_old_boxes_and_asks_with_a_new_roster() -> None:
    federation, replies = open_round(max_silent=2)
    for node, reply in replies.items():
        federation.deliver(node, reply)
    federation.close(NOISE)
    assert federation.server.request(3, None, b"").roster is None
    federation.open(2, 1)
    # Boxes of attempt 0 that were never relayed, because the round is opened again at
    # once.
    federation.server.tags = {node: replies[node].tag for node in NODES if node != 8}
    federation.server.retry()
    assert federation.server.attempt == 1
    assert federation.server.roster.node_ids == (3, 11, 20)
    assert federation.server.request(3, None, b"").roster == federation.server.roster
    assert federation.server.missing() == (3, 11, 20)
    assert all(federation.server.take_boxes(node) == {} for node in NODES)


def test_a_retry_with_nobody_missing_is_refused() -> None:
    federation, replies = open_round()
    for node, reply in replies.items():
        federation.deliver(node, reply)
    with pytest.raises(LocalMisuseError, match="aggregate it instead"):
        federation.server.retry()
    assert federation.server.attempt == 0


def test_too_few_survivors_or_no_retries_left_stop_the_run() -> None:
    federation, replies = open_round(min_cohort=3, max_retries=1)
    for node in (3, 8):
        federation.deliver(node, replies[node])
    before = snapshot(federation.server)
    with pytest.raises(CohortError, match=r"nodes \[11, 20\] did not answer round 1;"):
        federation.server.retry()
    federation, replies = open_round(max_retries=1)
    for node in (3, 8, 11):
        federation.deliver(node, replies[node])
    federation.server.retry()
    federation.attempt(VECTORS, silent=(8,), repeated=True)
    before = snapshot(federation.server)
    with pytest.raises(CohortError, match="1 retries are used up"):
        federation.server.retry()
    assert snapshot(federation.server) == before


def test_nobody_answered() -> None:
    federation, _ = open_round()
    with pytest.raises(CohortError, match="0 clients are left"):
        federation.server.retry()


def test_a_reply_that_arrives_after_its_attempt_was_replaced_is_refused() -> None:
    federation, replies = open_round()
    for node in (3, 11, 20):
        federation.deliver(node, replies[node])
    federation.server.retry()
    refused(federation, 8, replies[8], "not in the roster of attempt 1")
    refused(federation, 3, replies[3], "late or replayed")
    federation.attempt(VECTORS, repeated=True)
    refused(federation, 8, replies[8], "not in the roster of attempt 1")
    federation.close(NOISE)
    expected = VECTORS[3] + VECTORS[11] + VECTORS[20] + NOISE
    assert all(
        values.tolist() == expected.tolist()
        for values in federation.read_release().values()
    )


# Tags.


def test_equal_tags_pass() -> None:
    require_equal_tags({1: b"a", 2: b"a"}, 3)
    require_equal_tags({}, 3)


@pytest.mark.parametrize(
    ("tags", "named"),
    [
        ({1: b"a", 2: b"b", 3: b"a"}, r"\[2\]"),
        ({1: b"a", 2: b"b", 3: b"a", 4: b"c", 5: b"a"}, r"\[2, 4\]"),
        ({1: b"a", 2: b"b"}, r"\[1, 2\]"),
        ({1: b"a", 2: b"b", 3: b"a", 4: b"b"}, r"\[1, 2, 3, 4\]"),
        ({1: b"a", 2: b"b", 3: b"a", 4: b"c"}, r"\[1, 2, 3, 4\]"),
        ({1: b"a", 2: b"", 3: b"a"}, r"\[2\]"),
    ],
)
def test_unequal_tags_name_the_minority_or_everybody(
    tags: dict[int, bytes], named: str
) -> None:
    with pytest.raises(
        DisagreementError,
        match=rf"node\(s\) {named} differs from the others' in round 3",
    ):
        require_equal_tags(tags, 3)


def test_a_disagreement_stops_before_the_sum_is_made() -> None:
    federation, replies = open_round()
    for node, reply in replies.items():
        federation.deliver(node, replace(reply, tag=b"x" * 32) if node == 8 else reply)
    with pytest.raises(DisagreementError, match=r"\[8\]"):
        federation.close(NOISE)
    assert federation.release is None


# What the server holds.


def readable(
    federation: Federation,
    late: Sequence[SumReply] = (),
    vectors: dict[int, Ring] = VECTORS,
) -> set[int]:
    """Functions of plain vectors that sums of what the server holds give it."""
    held = [reply.masked.values for _, reply in federation.received]
    held += [reply.masked.values for reply in late]
    held += federation.noises
    secrets = set(combinations(list(vectors.values())).tolist()) - {0}
    return secrets & set(combinations(held).tolist())


def play_with_dropout(
    federation: Federation, silent: tuple[int, ...], *, drop_in_round: int
) -> tuple[dict[int, SumReply], list[SumReply]]:
    """Rounds up to the dropout, then a retry that completes."""
    if drop_in_round == 2:
        federation.run_round(1, VECTORS, NOISE)
    federation.open(drop_in_round, 1)
    late = federation.attempt(VECTORS, silent=silent)
    federation.server.retry()
    federation.attempt(VECTORS, repeated=True)
    federation.close(ring(777_777_777))
    return late, list(late.values())


@pytest.mark.parametrize("late_replies", [False, True], ids=["silent", "late"])
@pytest.mark.parametrize("drop_in_round", [1, 2], ids=["before-boxes", "after-boxes"])
@pytest.mark.parametrize("who", ["one author", "all authors", "no author"])
def test_a_dropout_reveals_nothing_under_blinding(
    who: str, drop_in_round: int, late_replies: bool
) -> None:
    federation = Federation(NODES)
    authors = federation.server.roster.authors(0)
    others = tuple(node for node in NODES if node not in authors)
    silent = {
        "one author": authors[:1],
        "all authors": authors,
        "no author": others[:1],
    }[who]
    late, replies = play_with_dropout(federation, silent, drop_in_round=drop_in_round)
    assert readable(federation, replies if late_replies else ()) == set()
    for node, reply in late.items():
        refused(federation, node, reply, "not in the roster")
    left = [node for node in NODES if node not in silent]
    expected = sum(VECTORS[node] for node in left) + ring(777_777_777)
    assert all(
        values.tolist() == expected.tolist()
        for values in federation.read_release().values()
    )


def test_two_dropouts_in_a_row_reveal_nothing_under_blinding() -> None:
    federation = Federation(NODES)
    federation.open(1, 1)
    late = list(
        federation.attempt(
            VECTORS, silent=federation.server.roster.authors(0)[:1]
        ).values()
    )
    federation.server.retry()
    late += federation.attempt(
        VECTORS, silent=federation.server.roster.authors(0)[:1], repeated=True
    ).values()
    federation.server.retry()
    federation.attempt(VECTORS, repeated=True)
    federation.close(NOISE)
    assert readable(federation, late) == set()


def test_undisturbed_rounds_reveal_nothing_under_blinding() -> None:
    federation = Federation(NODES)
    for round_index in (1, 2):
        aggregate = federation.run_round(round_index, VECTORS, NOISE)
        assert aggregate.tolist() != sum(VECTORS.values()).tolist()
        assert (aggregate + NOISE).tolist() != (sum(VECTORS.values()) + NOISE).tolist()
    assert readable(federation) == set()


def test_the_attack_finds_what_is_readable_without_authors() -> None:
    # The very same search, on a run where the server may read sums: with a late reply
    # it reads one client.
    federation = Federation(NODES, authored=False)
    _, late = play_with_dropout(federation, (8,), drop_in_round=1)
    found = readable(federation)
    assert int((VECTORS[3] + VECTORS[11] + VECTORS[20])[0]) in found
    assert int(VECTORS[8][0]) not in found
    assert int(VECTORS[8][0]) in readable(federation, late)


@pytest.mark.parametrize("authored", [False, True])
def test_survivors_of_an_incomplete_attempt_cannot_be_read(authored: bool) -> None:
    # Before the retry, every client's masks with the silent one are still in every
    # partial sum.
    federation = Federation(NODES, authored=authored)
    federation.open(1, 1)
    federation.attempt(VECTORS, silent=(8,))
    assert readable(federation) == set()


def test_what_is_relayed_does_not_contain_keys() -> None:
    federation = Federation(NODES, max_silent=2)
    play_with_dropout(federation, (8,), drop_in_round=2)
    federation.read_release()
    secrets = [state.private_key for state in federation.states.values()]
    for state in federation.states.values():
        secrets += [
            state.own_group_key,
            state.tag_key,
            *dict(state.group_keys).values(),
        ]
        secrets += dict(state.pair_keys).values()
    held = b"".join(
        reply.tag + reply.masked.values.tobytes() + b"".join(reply.boxes.values())
        for _, reply in federation.received
    )
    held += b"".join(key for _, key in federation.server.roster.members)
    boxes = sum(len(reply.boxes) for _, reply in federation.received)
    assert boxes == 4 * 3 + 3 * 2
    assert all(secret not in held for secret in secrets if secret)


def test_a_difference_of_the_aggregates_of_two_attempts_is_not_readable() -> None:
    # A stream that two attempts shared would cancel whenever both have the same
    # authors: one case in three.
    differences = set()
    for _ in range(30):
        federation = Federation(NODES)
        authors = federation.server.roster.authors(0)
        silent = next(node for node in NODES if node not in authors)
        federation.open(1, 1)
        late = federation.attempt(VECTORS, silent=(silent,))
        first = sum(
            (reply.masked.values for _, reply in federation.received),
            late[silent].masked.values,
        )
        federation.server.retry()
        federation.attempt(VECTORS, repeated=True)
        differences.add(int((first - federation.close(NOISE))[0]))
    assert len(differences) == 30
    assert differences.isdisjoint(combinations(list(VECTORS.values())).tolist())


def test_one_author_with_a_known_key_does_not_open_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Why there are at least two: an author whose random numbers are bad protects
    # nobody, but harms nobody either.
    federation = Federation(NODES)
    weak = federation.server.roster.authors(0)[0]
    honest = os.urandom
    federation.open(1, 1)
    for node, request in federation.requests().items():
        replace_entropy(monkeypatch, bytes if node == weak else honest)
        federation.deliver(node, federation.answer(node, request, VECTORS[node]))
    aggregate = federation.close(NOISE)
    roster = federation.server.roster
    transcript = digest("transcript", b"digest of the plan", roster.digest)
    known = mask(bytes(32), (1, 0), 1, "blind", 77, weak, transcript)
    assert (aggregate - known).tolist() != sum(VECTORS.values()).tolist()
    assert (
        federation.read_release()[weak].tolist()
        == (sum(VECTORS.values()) + NOISE).tolist()
    )


@pytest.mark.parametrize("min_cohort", [0, 1, 2])
def test_a_roster_of_one_is_never_made(min_cohort: int) -> None:
    federation = Federation((3, 8), min_cohort=min_cohort)
    vectors = plain_vectors((3, 8))
    federation.open(1, 1)
    federation.attempt(vectors, silent=(8,))
    with pytest.raises(CohortError, match="1 clients are left, but at least 2"):
        federation.server.retry()
    with pytest.raises(ProtocolError, match="has 1 member"):
        Roster.of(1, {3: b"k" * 32})
