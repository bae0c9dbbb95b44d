"""The client's transitions: what it answers, what it refuses, and what the server then
holds.
"""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from support.masked_federation import FIRST_ROUND, Federation, ring
from support.watching import Call, watch

from flwr_dpkmeans.errors import DisagreementError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg import blinding, ciphers, keys, retry
from flwr_dpkmeans.secagg import party as client
from flwr_dpkmeans.secagg.keys import (
    derive_key,
    digest,
    generate_private_key,
    keyed_tag,
    public_key_of,
)
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumRequest
from flwr_dpkmeans.secagg.party import Phase
from flwr_dpkmeans.secagg.ring import FixedPointVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

NODES = (3, 8, 11, 2**40, 2**64 - 1)
NOISE = ring(1000, -1000)


def plain_vectors(nodes: tuple[int, ...] = NODES, seed: int = 1) -> dict[int, Ring]:
    """Vectors whose partial sums and differences do not coincide by accident."""
    chooser = random.Random(seed)
    return {node: ring(*(chooser.getrandbits(64) for _ in range(2))) for node in nodes}


def total(vectors: dict[int, Ring], nodes: tuple[int, ...] | None = None) -> Ring:
    return np.sum(
        [vectors[node] for node in nodes or tuple(vectors)], axis=0, dtype=np.uint64
    )


def requested(
    federation: Federation, node: int, round_index: int = 1, **changes: object
) -> SumRequest:
    """The server's first request to one node, with changes."""
    return replace(SumRequest(round_index, 0, federation.server.roster), **changes)


def test_no_vector_is_sent_that_nothing_hides() -> None:
    """A roster whose graph gave a client no neighbours masked nothing."""
    federation = Federation(NODES)
    node = NODES[0]
    request = requested(federation, node)
    admitted = federation.states[node].admit(request, 1)
    with pytest.raises(ProtocolError, match="without neighbours"):
        replace(admitted, pair_keys=()).answer(
            request, FixedPointVector(ring(1, 2)), blinded=False, state_digest=b""
        )


def test_what_is_forgotten_is_in_no_cache_of_the_process() -> None:
    """Private and group keys stayed there, as what was looked up by."""
    federation = Federation(NODES)
    state = federation.states[NODES[0]]
    assert state.public_key
    blinding.sum_of_streams(((3, bytes(32)),), 1, (1, 0), b"", 2)
    with pytest.raises(LocalMisuseError, match="still needs its keys"):
        state.forgotten()
    empty = state.stopped().forgotten()
    secrets = [item.name for item in fields(state) if not item.repr]
    assert "private_key" in secrets
    assert not any(getattr(empty, name) for name in secrets)
    caches = [
        cache
        for item in (*vars(keys).values(), *vars(blinding).values())
        if hasattr(item, "cache_info")
        for cache in gc.get_referents(item)
        if isinstance(cache, dict)
    ]
    assert caches
    assert not any((state.private_key,) in cache for cache in caches)
    assert blinding.sum_of_streams.cache_info().currsize == 0


def test_a_state_is_changed_in_its_own_fields_only() -> None:
    """A new value under a wrong name would leave the old one in force."""
    state = Federation(NODES).states[NODES[0]]
    moved = client.changed(state, attempt=2)
    assert (moved, state.attempt) == (replace(state, attempt=2), -1)
    assert type(moved) is type(state)
    assert client.changed(state, **vars(state)) == state
    with pytest.raises(LocalMisuseError, match=r"Retry lacks a field of \['atempt'\]"):
        client.changed(state, atempt=2)


# What happens when nobody misbehaves.


@pytest.mark.parametrize("authored", [True, False])
@pytest.mark.parametrize("max_silent", [0, 1, 3])
def test_three_rounds_end_with_everybody_reading_the_noised_sum(
    authored: bool, max_silent: int
) -> None:
    federation = Federation(NODES, authored=authored, max_silent=max_silent)
    vectors = plain_vectors()
    for round_index in (1, 2, 3):
        aggregate = federation.run_round(round_index, vectors, NOISE)
        assert (aggregate.tolist() == total(vectors).tolist()) is not authored
    read = federation.read_release()
    assert all(
        values.tolist() == (total(vectors) + NOISE).tolist() for values in read.values()
    )
    tags = federation.final_tags(dict.fromkeys(NODES, b"end"))
    assert len(set(tags.values())) == 1
    assert {state.phase for state in federation.states.values()} == {Phase.FINISHED}


def test_survivors_read_the_sum_of_survivors_after_a_retry() -> None:
    federation = Federation(NODES, min_cohort=3)
    vectors = plain_vectors()
    federation.run_round(1, vectors, NOISE)
    federation.open(2, 2)
    federation.attempt(vectors, silent=(8,))
    federation.server.retry()
    federation.attempt(vectors, repeated=True)
    federation.close(NOISE)
    left = tuple(node for node in NODES if node != 8)
    federation.run_round(3, vectors, NOISE)
    read = federation.read_release()
    assert set(read) == set(left)
    assert all(
        values.tolist() == (total(vectors, left) + NOISE).tolist()
        for values in read.values()
    )


def test_rounds_that_are_not_blinded_work_in_an_authored_run() -> None:
    # The private count of an oblivious run is public: its noise comes from the clients.
    federation = Federation(NODES)
    vectors = plain_vectors()
    sums = np.zeros(2, dtype=np.uint64)
    for node in NODES:
        request = SumRequest(0, 0, federation.server.roster)
        admitted = federation.states[node].admit(request, 0)
        _, reply = admitted.answer(
            request, FixedPointVector(vectors[node]), blinded=False, state_digest=b""
        )
        sums += reply.masked.values
    assert sums.tolist() == total(vectors).tolist()


# Requests that are refused, and leave the state as it was.


def refused(
    federation: Federation, node: int, request: SumRequest, sentence: str
) -> None:
    """The request is refused in a sentence, and the state has not changed."""
    before = federation.states[node]
    copy = replace(before)
    with pytest.raises(ProtocolError, match=sentence):
        federation.answer(node, request, ring(1, 2))
    assert federation.states[node] is before
    assert before == copy


def swapped(roster: Roster, node: int, attempt: int = 0) -> Roster:
    """The roster with another key for one node."""
    return Roster.of(
        attempt, roster.keys | {node: public_key_of(generate_private_key())}
    )


FIRST_REQUESTS: dict[str, tuple[Callable[[Roster], dict[str, object]], str]] = {
    "later round": (
        lambda roster: {"round_index": 2},
        "replayed, late or out of order",
    ),
    "earlier round": (
        lambda roster: {"round_index": 0},
        "replayed, late or out of order",
    ),
    "negative attempt": (
        lambda roster: {"attempt": -1},
        "replayed, late or out of order",
    ),
    "with a release": (
        lambda roster: {"release": Release(0, 0, NOISE)},
        "replayed, late or out of order",
    ),
    "no roster": (lambda roster: {"roster": None}, "without its own roster"),
    "roster of another attempt": (
        lambda roster: {"attempt": 1},
        "without its own roster",
    ),
    "own node left out": (
        lambda roster: {"roster": roster.without(0, [3])},
        "does not list node 3 under its own key",
    ),
    "own key swapped": (
        lambda roster: {"roster": swapped(roster, 3)},
        "does not list node 3 under its own key",
    ),
    "below min cohort": (
        lambda roster: {"roster": roster.without(0, [8, 11])},
        "minimum cohort is 4",
    ),
    "boxes too early": (
        lambda roster: {"boxes": {8: b"box"}},
        "came with a new roster",
    ),
    "low-order peer": (
        lambda roster: {"roster": Roster.of(0, roster.keys | {8: bytes(32)})},
        "not a usable X25519",
    ),
}


@pytest.mark.parametrize("case", FIRST_REQUESTS)
def test_a_bad_first_request_is_refused(case: str) -> None:
    federation = Federation(NODES, min_cohort=4)
    changes, sentence = FIRST_REQUESTS[case]
    refused(
        federation,
        3,
        requested(federation, 3, **changes(federation.server.roster)),
        sentence,
    )
    federation.run_round(1, plain_vectors(), NOISE)


NEXT_REQUESTS: dict[
    str, tuple[Callable[[SumRequest, Roster], dict[str, object]], str]
] = {
    "the same round again": (
        lambda r, roster: {"round_index": 1, "release": None, "boxes": {}},
        "replayed, late",
    ),
    "the same with its roster": (
        lambda r, roster: {
            "round_index": 1,
            "release": None,
            "boxes": {},
            "roster": roster,
        },
        "replayed, late",
    ),
    "a round skipped": (lambda r, roster: {"round_index": 3}, "replayed, late"),
    "an earlier round": (lambda r, roster: {"round_index": 0}, "replayed, late"),
    "next round of another attempt": (
        lambda r, roster: {"attempt": 1},
        "replayed, late",
    ),
    "no release": (lambda r, roster: {"release": None}, "replayed, late"),
    "release of another round": (
        lambda r, roster: {"release": Release(0, 0, NOISE)},
        "replayed, late",
    ),
    "release of another attempt": (
        lambda r, roster: {"release": Release(1, 1, NOISE)},
        "replayed, late",
    ),
    "a second roster": (lambda r, roster: {"roster": roster}, "second roster"),
    "boxes missing": (lambda r, roster: {"boxes": {}}, "the authors of attempt 0 are"),
    "one box missing": (
        lambda r, roster: {"boxes": dict(list(r.boxes.items())[1:])},
        "the authors of attempt 0 are",
    ),
    "a box too many": (
        lambda r, roster: {"boxes": r.boxes | {99: b"box"}},
        "the authors of attempt 0 are",
    ),
    "boxes changed places": (
        lambda r, roster: {
            "boxes": dict(zip(r.boxes, reversed(r.boxes.values()), strict=True))
        },
        "does not open",
    ),
    "a torn box": (
        lambda r, roster: {"boxes": {a: b[:-1] for a, b in r.boxes.items()}},
        "does not open",
    ),
    "an empty box": (
        lambda r, roster: {"boxes": dict.fromkeys(r.boxes, b"")},
        "does not open",
    ),
    "retry without a roster": (
        lambda r, roster: {
            "round_index": 1,
            "attempt": 1,
            "release": None,
            "boxes": {},
        },
        "without its own roster",
    ),
}


@pytest.mark.parametrize("case", NEXT_REQUESTS)
def test_a_bad_second_request_is_refused(case: str) -> None:
    federation = Federation(NODES, max_silent=1)
    vectors = plain_vectors()
    federation.run_round(1, vectors, NOISE)
    federation.open(2, 2)
    requests = federation.requests()
    roster = federation.server.roster
    node = next(node for node in NODES if node not in roster.authors(1))
    changes, sentence = NEXT_REQUESTS[case]
    refused(
        federation,
        node,
        replace(requests[node], **changes(requests[node], roster)),
        sentence,
    )
    # The right one is still answered.
    for each, request in requests.items():
        federation.deliver(each, federation.answer(each, request, vectors[each]))
    federation.close(NOISE)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda roster: Roster(1, roster.members), "adds a node or changes a key"),
        (
            lambda roster: Roster.of(
                1, roster.without(1, [8, 11]).keys | {99: b"k" * 32}
            ),
            "adds a node or changes",
        ),
        (
            lambda roster: swapped(roster.without(1, [8]), 11, 1),
            "adds a node or changes a key",
        ),
        (lambda roster: swapped(roster.without(1, [8]), 3, 1), "under its own key"),
        (lambda roster: roster.without(1, [3]), "under its own key"),
        (lambda roster: roster.without(1, [8, 11, 2**40]), "minimum cohort is 3"),
        (lambda roster: roster.without(2, [8]), "without its own roster"),
    ],
)
def test_a_bad_roster_of_a_retry_is_refused(
    build: Callable[[Roster], Roster], sentence: str
) -> None:
    federation = Federation(NODES, min_cohort=3)
    vectors = plain_vectors()
    federation.open(1, 2)
    federation.attempt(vectors, silent=(8,))
    roster = federation.server.roster
    refused(federation, 3, SumRequest(1, 1, build(roster)), sentence)
    refused(
        federation,
        3,
        SumRequest(1, 1, roster.without(1, [8]), Release(1, 0, NOISE)),
        "replayed, late",
    )
    federation.server.retry()
    federation.attempt(vectors, repeated=True)
    federation.close(NOISE)


def test_everything_that_was_ever_sent_is_refused_the_second_time() -> None:
    federation = Federation(NODES)
    vectors = plain_vectors()
    sent: list[tuple[int, SumRequest]] = []
    answered: list[tuple[int, int, int]] = []

    def play(*, repeated: bool, silent: int | None) -> None:
        for node, request in federation.requests(repeated=repeated).items():
            reply = federation.answer(node, request, vectors[node])
            answered.append((node, reply.round_index, reply.attempt))
            sent.append((node, request))
            if node != silent:
                federation.deliver(node, reply)
        chooser = random.Random(len(sent))
        for node, request in chooser.sample(sent, len(sent)):
            refused(
                federation, node, request, "replayed|second roster|are due|adds a node"
            )

    for round_index, silent in ((1, None), (2, 8), (3, 11)):
        federation.open(round_index, 2)
        play(repeated=False, silent=silent)
        if silent is not None:
            federation.server.retry()
            play(repeated=True, silent=None)
        federation.close(NOISE)
    federation.read_release()
    for node, request in sent:
        refused(federation, node, request, "replayed|finished")
    assert len(answered) == len(set(answered))


def test_the_last_message_is_taken_once_and_only_for_the_last_answer() -> None:
    federation = Federation(NODES)
    with pytest.raises(ProtocolError, match=r"this client answered round .* late"):
        federation.states[3].finish(FinishRequest(Release(-1, -1, NOISE)))
    federation.run_round(1, plain_vectors(), NOISE)
    boxes = federation.server.take_boxes(3)
    assert federation.release is not None
    for round_index, attempt in ((0, 0), (2, 0), (1, 1)):
        with pytest.raises(ProtocolError, match="late, replayed or of another run"):
            federation.states[3].finish(
                FinishRequest(Release(round_index, attempt, NOISE), boxes)
            )
    with pytest.raises(ProtocolError, match="the authors of attempt 0 are"):
        federation.states[3].finish(FinishRequest(federation.release))
    finished = federation.states[3].finish(FinishRequest(federation.release, boxes))
    with pytest.raises(ProtocolError, match="late, replayed or of another run"):
        finished.finish(FinishRequest(federation.release))
    with pytest.raises(ProtocolError, match="is finished with"):
        finished.admit(SumRequest(2, 0, release=federation.release), FIRST_ROUND)


def test_only_an_admitted_request_is_answered_and_only_once() -> None:
    federation = Federation(NODES)
    request = requested(federation, 3)
    vector = FixedPointVector(ring(1, 2))
    admitted = federation.states[3].admit(request, FIRST_ROUND)

    def refused_answer(state: retry.Retry, asked: SumRequest) -> None:
        with pytest.raises(ProtocolError, match="is not open for an answer"):
            state.answer(asked, vector, blinded=True, state_digest=b"")

    refused_answer(federation.states[3], request)
    refused_answer(admitted, replace(request, round_index=2))
    refused_answer(admitted, replace(request, attempt=1))
    with pytest.raises(ProtocolError, match="replayed, late"):
        admitted.admit(request, FIRST_ROUND)
    answered, _ = admitted.answer(request, vector, blinded=True, state_digest=b"")
    refused_answer(answered, request)


def test_blinding_that_cannot_be_is_refused() -> None:
    federation = Federation(NODES, authored=False)
    request = requested(federation, 3)
    admitted = federation.states[3].admit(request, FIRST_ROUND)
    with pytest.raises(ProtocolError, match="no key authors"):
        admitted.answer(
            request, FixedPointVector(ring(1, 2)), blinded=True, state_digest=b""
        )
    answered, _ = admitted.answer(
        request, FixedPointVector(ring(1, 2)), blinded=False, state_digest=b""
    )
    for state in (admitted, answered):
        with pytest.raises(ProtocolError, match="group keys are not at hand"):
            state.unblind(Release(1, 0, NOISE), blinded=True)
    authored = Federation(NODES)
    authored.run_round(1, plain_vectors(), NOISE)
    authored.read_release()
    with pytest.raises(ProtocolError, match="group keys are not at hand"):
        authored.states[3].unblind(Release(1, 1, NOISE), blinded=True)


@pytest.mark.parametrize("authored", [True, False])
def test_what_a_client_reads_is_said_to_be_readable(authored: bool) -> None:
    federation = Federation(NODES, authored=authored)
    federation.run_round(1, plain_vectors(), NOISE)
    federation.read_release()
    assert federation.release is not None
    assert (
        not federation.states[3].unblind(federation.release, blinded=authored).blinded
    )


def test_no_roster_before_the_first_request() -> None:
    with pytest.raises(ProtocolError, match="no roster was announced"):
        _ = Federation(NODES).states[3].cohort


def test_secrets_are_not_printed() -> None:
    federation = Federation(NODES, max_silent=3)
    federation.run_round(1, plain_vectors(), NOISE)
    federation.read_release()
    state = federation.states[3]
    printed = repr(state)
    secrets = [state.private_key, state.own_group_key, state.tag_key]
    secrets += [key for _, key in (*state.group_keys, *state.pair_keys)] + [
        state.mask_keys[:32]
    ]
    assert len(secrets) == 13
    assert all(
        secret and repr(secret) not in printed and secret.hex() not in printed
        for secret in secrets
    )


# Boxes: bound to author, recipient, run, attempt and roster.


def test_boxes_bind_author_recipient_run_attempt_and_roster() -> None:
    federation = Federation(NODES, max_silent=3)
    vectors = plain_vectors()
    federation.open(1, 2)
    federation.attempt(vectors)
    boxes = {node: dict(reply.boxes) for node, reply in federation.received}
    federation.close(NOISE)
    mine = {author: boxes[author][3] for author in NODES if author != 3}
    state = federation.states[3]
    assert [author for author, _ in state.with_boxes(mine).group_keys] == list(NODES)
    # Every author's box for another recipient, and what this client sealed itself.
    for author in mine:
        for recipient, box in boxes[author].items():
            if recipient != 3:
                with pytest.raises(ProtocolError, match="does not open"):
                    state.with_boxes(mine | {author: box})
        with pytest.raises(ProtocolError, match="does not open"):
            state.with_boxes(mine | {author: boxes[3][author]})
    roster = federation.server.roster
    elsewhere = {
        "run": replace(state, run_id=state.run_id + 1),
        "run with the same pair keys": replace(
            state, run_id=state.run_id + 1, pair_keys=state.pair_keys
        ),
        "attempt": replace(state, attempt=1, roster=Roster(1, roster.members)),
        "attempt number alone": replace(state, attempt=1),
        "roster": replace(
            state, roster=Roster.of(0, roster.keys | {8: roster.keys[8], 99: b"k" * 32})
        ),
    }
    for name, other in elsewhere.items():
        given = dict(mine)
        if name == "roster":
            other = replace(other, max_silent=0)
            authors = [author for author in other.cohort.authors(0) if author != 3]
            given = {author: mine.get(author, b"") for author in authors}
        with pytest.raises(ProtocolError, match="does not open"):
            other.with_boxes(given)


def test_boxes_of_a_replaced_attempt_are_refused() -> None:
    federation = Federation(NODES, max_silent=3)
    vectors = plain_vectors()
    federation.open(1, 2)
    federation.attempt(vectors, silent=(8,))
    old = {author: dict(reply.boxes) for author, reply in federation.received}
    federation.server.retry()
    federation.attempt(vectors, repeated=True)
    federation.close(NOISE)
    federation.open(2, 2)
    request = federation.requests()[3]
    stale = {author: old[author][3] for author in request.boxes}
    refused(federation, 3, replace(request, boxes=stale), "does not open")
    refused(
        federation,
        3,
        replace(request, boxes=stale | {8: b"box"}),
        "the authors of attempt 1 are",
    )


def test_an_author_that_seals_different_keys_is_noticed() -> None:
    federation = Federation(NODES)
    author = federation.server.roster.authors(0)[0]
    sealed: list[bytes] = []

    class Equivocating(retry.Retry):
        def _seal(self, pair_key: bytes, purpose: str, to: int, secret: bytes) -> bytes:
            sealed.append(secret)
            sent = bytes(32) if len(sealed) == 2 else secret
            return super()._seal(pair_key, purpose, to, sent)

    federation.states[author] = Equivocating(**vars(federation.states[author]))
    federation.open(1, 2)
    for node, request in federation.requests().items():
        federation.deliver(
            node, federation.answer(node, request, plain_vectors()[node])
        )
    assert len(sealed) == len(NODES) - 1
    federation.close(NOISE)
    federation.open(2, 2)
    federation.attempt(plain_vectors())
    with pytest.raises(
        DisagreementError, match=str([node for node in NODES if node != author][1])
    ):
        federation.close(NOISE)


def test_every_key_seals_once_and_nonces_do_not_repeat() -> None:
    used: list[tuple[bytes, bytes]] = []

    class Watched(retry.Retry):
        def _seal(self, pair_key: bytes, purpose: str, to: int, secret: bytes) -> bytes:
            box = super()._seal(pair_key, purpose, to, secret)
            context = self._box_context(purpose, self.node_id, to)
            key = derive_key(pair_key, purpose, context)
            assert ciphers.unseal(key, box, context) == secret
            used.append((key, box[:12]))
            return box

    federation = Federation(NODES, max_silent=3)
    for node, state in federation.states.items():
        federation.states[node] = Watched(**vars(state))
    vectors = plain_vectors()
    federation.open(1, 2)
    for silent in ((8,), (11,), ()):
        federation.attempt(vectors, silent=silent, repeated=True)
        if silent:
            federation.server.retry()
    federation.close(NOISE)
    assert len(used) == 5 * 4 + 4 * 3 + 3 * 2
    assert len({key for key, _ in used}) == len(used)
    assert len({nonce for _, nonce in used}) == len(used)


# Streams: one for each pair, round and attempt, and never again.


def test_no_stream_is_used_for_two_vectors() -> None:
    federation = Federation(NODES, max_silent=1)
    vectors = plain_vectors()
    streams: dict[tuple[int, int, int], list[tuple[bytes, bytes]]] = {}
    now: list[tuple[bytes, bytes]] = []

    def note(call: Call) -> None:
        key, attempt_id = [*call.arguments.values()][:2]
        now.append((key + repr(attempt_id).encode(), call.result.tobytes()))

    watch(ciphers.stream, note)

    def play(*, repeated: bool, silent: int | None) -> None:
        for node, request in federation.requests(repeated=repeated).items():
            now.clear()
            reply = federation.answer(node, request, vectors[node])
            streams[node, reply.round_index, reply.attempt] = list(now)
            if node != silent:
                federation.deliver(node, reply)

    for round_index, silents in ((1, (8,)), (2, ()), (3, (11, 3))):
        federation.open(round_index, 2)
        for i, silent in enumerate((*silents, None)):
            play(repeated=i > 0, silent=silent)
            if silent is not None:
                federation.server.retry()
        federation.close(NOISE)
    for (node, round_index, attempt), used in streams.items():
        roster_size = {0: 5, 1: 4, 2: 3, 3: 2}[attempt]
        is_author = len(used) == roster_size
        assert len(used) == roster_size - 1 + is_author
        assert (
            len({key for key, _ in used})
            == len({words for _, words in used})
            == len(used)
        )
        for other, theirs in streams.items():
            shared = {key for key, _ in used} & {key for key, _ in theirs}
            shared_words = {words for _, words in used} & {words for _, words in theirs}
            # Two members of one attempt share exactly their pair's stream in a round;
            # nothing else is shared.
            same = other[1:] == (round_index, attempt)
            expected = len(used) if other[0] == node and same else int(same)
            assert len(shared) == len(shared_words) == expected, (
                node, round_index, attempt, other,
            )  # fmt: skip


def test_group_keys_are_fresh_in_every_attempt() -> None:
    federation = Federation(NODES, max_silent=3)
    federation.open(1, 2)
    drawn = []
    for silent in ((8,), (11,), ()):
        federation.attempt(plain_vectors(), silent=silent, repeated=True)
        drawn += [
            federation.states[node].own_group_key
            for node in federation.server.roster.node_ids
        ]
        if silent:
            federation.server.retry()
    assert len(set(drawn)) == len(drawn) == 5 + 4 + 3


@pytest.mark.parametrize("part", ["plan", "roster", "run", "node"])
def test_masks_cancel_only_between_clients_that_agree_on(part: str) -> None:
    nodes = NODES[:2]
    federation = Federation(nodes, authored=False)
    vectors = plain_vectors(nodes)
    rosters = dict.fromkeys(nodes, federation.server.roster)
    if part == "plan":
        federation.states[8] = federation.states[8].with_plan(b"another plan", 3)
    elif part == "run":
        federation.states[8] = replace(federation.states[8], run_id=78)
    elif part == "node":
        federation.states[8] = replace(federation.states[8], node_id=9)
        known = federation.server.roster.keys
        rosters[8] = Roster.of(0, {3: known[3], 9: known[8]})
    else:
        rosters[8] = Roster.of(
            0, rosters[8].keys | {99: public_key_of(generate_private_key())}
        )
    masked = {
        node: (
            federation.answer(
                node, SumRequest(1, 0, rosters[node]), vectors[node]
            ).masked.values
        )
        for node in nodes
    }
    extra = ring(0, 0)
    if part == "roster":
        # The third party's mask is known here, so that only the transcript is left as a
        # difference.
        key = dict(federation.states[8].pair_keys)[99]
        transcript = digest("transcript", b"digest of the plan", rosters[8].digest)
        extra = ciphers.mask(key, (1, 0), 2, "mask", transcript)
    assert (masked[3] + masked[8] - extra).tolist() != total(vectors).tolist()


def test_a_later_plan_changes_the_masks_and_only_of_both_they_cancel() -> None:
    nodes = NODES[:2]
    federation, vectors = Federation(nodes, authored=False), plain_vectors(nodes)
    federation.run_round(1, vectors, NOISE)
    federation.open(2, 2)
    requests = federation.requests()
    admitted = {
        node: federation.states[node].admit(requests[node], FIRST_ROUND)
        for node in nodes
    }
    later = {
        node: state.with_plan(b"the final plan", 3) for node, state in admitted.items()
    }

    def opened(*states: retry.Retry) -> bool:
        replies = [
            state.answer(
                requests[state.node_id],
                FixedPointVector(vectors[state.node_id]),
                blinded=False,
                state_digest=b"",
            )[1]
            for state in states
        ]
        return bool(
            np.array_equal(
                sum(reply.masked.values for reply in replies), total(vectors)
            )
        )

    assert opened(*admitted.values())
    assert opened(*later.values())
    assert not opened(admitted[3], later[8])


# Tags.


def test_unequal_states_name_the_minority() -> None:
    federation = Federation(NODES)
    vectors = plain_vectors()
    federation.run_round(1, vectors, NOISE)
    federation.open(2, 2)
    federation.attempt(vectors, digests={11: b"another state"})
    with pytest.raises(DisagreementError, match=r"state of node\(s\) \[11\] differs"):
        federation.close(NOISE)


def test_tags_are_keyed_and_bound_to_run_round_attempt_and_state() -> None:
    federations = [Federation(NODES), Federation(NODES)]
    for federation in federations:
        federation.run_round(1, plain_vectors(), NOISE)
        federation.read_release()
    state, other = (federation.states[3] for federation in federations)
    tag = state.tag(2, 0, b"state")
    assert len(tag) == 32
    # What a server could compute from a guess of the state and all that is public.
    public = [
        b"",
        b"digest of the plan",
        state.cohort.digest,
        public_key_of(state.private_key),
    ]
    public += [
        derive_key(key or b"\0", "tag", state.run_id, state.cohort.digest)
        for key in public
    ]
    guesses = [
        hashlib.sha256(b"state").digest(),
        digest(b"state"),
        digest(77, 2, 0, b"state"),
    ]
    guesses += [keyed_tag(key, 77, 2, 0, b"state") for key in public]
    assert tag not in guesses
    different = [
        other.tag(2, 0, b"state"),
        replace(state, run_id=78).tag(2, 0, b"state"),
        state.tag(3, 0, b"state"),
        state.tag(2, 1, b"state"),
        state.tag(2, 0, b"State"),
    ]
    assert len({tag, *different}) == 6


def test_the_tag_key_mixes_all_authors_keys() -> None:
    federation = Federation(NODES, max_silent=1)
    federation.run_round(1, plain_vectors(), NOISE)
    node = next(
        node for node in NODES if node not in federation.server.roster.authors(1)
    )
    boxes = federation.server.take_boxes(node)
    state = federation.states[node].with_boxes(boxes)
    keys = [key for _, key in state.group_keys]
    assert len(keys) == 3
    context = (state.run_id, state.cohort.digest)
    assert state.tag_key == derive_key(b"".join(keys), "tag", *context)
    assert state.tag_key not in {derive_key(key, "tag", *context) for key in keys}


def test_without_authors_the_key_of_tags_is_of_plan_run_and_roster() -> None:
    """The server could make it too: such tags are against mistakes only."""
    federation, vectors = Federation(NODES, authored=False), plain_vectors()
    federation.open(1, 2)
    for repeated in (False, True):
        federation.attempt(vectors, silent=() if repeated else (8,), repeated=repeated)
        roster = federation.server.roster
        key = derive_key(b"digest of the plan", "tag", 77, roster.digest)
        expected = {keyed_tag(key, 77, 1, roster.attempt, b"state")}
        assert {federation.states[node].tag_key for node in roster.node_ids} == {key}
        assert {
            reply.tag
            for _, reply in federation.received
            if reply.attempt == roster.attempt
        } == expected
        if not repeated:
            federation.server.retry()


def test_the_first_reply_has_no_tag_and_a_retry_keeps_the_old_key() -> None:
    federation = Federation(NODES)
    vectors = plain_vectors()
    federation.open(1, 2)
    federation.attempt(vectors, silent=(8,))
    assert {reply.tag for _, reply in federation.received} == {b""}
    federation.server.retry()
    federation.attempt(vectors, repeated=True)
    federation.close(NOISE)
    federation.open(2, 2)
    federation.attempt(vectors, silent=(11,))
    federation.server.retry()
    start = len(federation.received)
    federation.attempt(vectors, repeated=True)
    assert len({reply.tag for _, reply in federation.received[start:]}) == 1
    assert federation.received[-1][1].tag != b""
    federation.close(NOISE)


# What is not protected, so that nobody believes otherwise.


def test_known_limit_an_old_state_put_back_repeats_its_masks() -> None:
    federation = Federation(NODES)
    request = requested(federation, 3)
    roster = federation.server.roster
    node = next(node for node in NODES if node not in roster.authors(0))
    old = federation.states[node]
    first = federation.answer(node, request, ring(10, 20))
    federation.states[node] = old
    second = federation.answer(node, request, ring(11, 25))
    assert (second.masked.values - first.masked.values).tolist() == [1, 5]


def test_known_limit_a_server_that_invents_the_other_client_reads_a_vector() -> None:
    # The server is node 8: it made that key itself, and nothing pins identities.
    federation = Federation((3, 8))
    secret = plain_vectors((3,))[3]
    federation.run_round(1, {3: secret, 8: ring(0, 0)}, ring(0, 0))
    assert federation.read_release()[8].tolist() == secret.tolist()
