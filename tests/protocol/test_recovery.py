"""Recovered sums through the whole path.

Whoever falls silent, at whatever stage, the survivors' sum is exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from support.messages import (
    RECORD,
    Status,
    parse_failure,
    parse_request,
    parse_unmask_reply,
    parse_unmask_request,
    unmask_request_content,
)
from support.protocol_federation import (
    GRID,
    Federation,
    Truth,
    count_readable,
    grid_parts,
    make_federation,
    plain_lloyd,
    received_vectors,
    signed,
    small_config,
    start_of,
)

from flwr_dpkmeans.errors import CohortError, RefusalError
from flwr_dpkmeans.flower.messages.message_records import content_of
from flwr_dpkmeans.flower.messages.replies import message_of
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.secagg.agreement import UNMASK_BYTES
from flwr_dpkmeans.secagg.messages import Stage, UnmaskRequest
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.wire import encode_reply

N = 9
SIZES = tuple(range(30, 30 + 5 * N, 5))
TRUSTS = ("oblivious", "central", "distributed")
N_ROUNDS = 3
EVERYBODY = set(range(2, 2 + N))


def place_of(message: Message) -> tuple[str, int, int]:
    """Stage, round and attempt of a request."""
    header = json.loads(str(message.content.config_records[RECORD]["header"]))
    return header["stage"], header.get("round", -1), header.get("attempt", 0)


class Silence:
    """Nodes that fall silent for ever at a stage (`late`: after they acted)."""

    def __init__(self, *fates: tuple[int, str, int, bool]) -> None:
        self.fates = {node: (stage, index, late) for node, stage, index, late in fates}
        self.silent: set[int] = set()
        self.lost: list[Message] = []

    def install(self, federation: Federation) -> None:
        federation.faults.on_request = self.on_request
        federation.faults.on_reply = self.on_reply

    def on_request(self, message: Message) -> bool:
        node = message.metadata.dst_node_id
        if node in self.silent:
            return False
        stage, index, late = self.fates.get(node, ("", 0, False))
        if place_of(message)[:2] == (stage, index):
            self.silent.add(node)
            return late
        return True

    def on_reply(self, reply: Message) -> list[Message]:
        if reply.metadata.src_node_id not in self.silent:
            return [reply]
        self.lost.append(reply)
        return []


def run(federation: Federation, **values: Any) -> Any:
    defaults: dict[str, Any] = {
        "algorithm": "lloyd", "max_iter": N_ROUNDS, "n_examples": None, "max_silent": 2,
    }  # fmt: skip
    return federation.start(
        **(defaults | {"dropout": "recover", "min_clients": 4} | values)
    )


def expected(
    federation: Federation, parts: Sequence[Any], present: Sequence[set[int]]
) -> Any:
    """Plain Lloyd in integers with the parts whose vectors arrived in each round."""
    rounds = [
        [part for node, part in enumerate(parts, start=2) if node in nodes]
        for nodes in present
    ]
    return plain_lloyd(start_of(federation.plan), rounds)


@pytest.mark.sample(1)
@pytest.mark.parametrize("trust", TRUSTS)
def test_without_dropouts_it_equals_the_run_that_repeats(trust: str) -> None:
    parts = grid_parts(SIZES)
    results = []
    for dropout in Dropout:
        federation = make_federation(parts, run_id=77)
        # With distributed noise, shares of recovered sums are larger.
        values = (
            {"algorithm": "lloyd"}
            if trust == "distributed"
            else {"algorithm": "proxy_lloyd", "n_examples": 450}
        )
        run(
            federation, trust=trust, dropout=dropout, noise="seeded",
            evaluation="private", **values,
        )  # fmt: skip
        assert federation.plan.dropout is dropout
        results.append(federation.clients[2].cluster_centers_)
        others = [client.cluster_centers_ for client in federation.clients.values()]
        assert all(np.array_equal(other, others[0]) for other in others)
    assert np.array_equal(results[0], results[1])


@pytest.mark.sample(6)
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("stage", "index", "present"),
    [
        ("share", -1, [EVERYBODY - {4, 7}] * 3),
        ("sum", 1, [EVERYBODY - {4, 7}] * 3),
        ("sum", 2, [EVERYBODY] + [EVERYBODY - {4, 7}] * 2),
        ("unmask", 1, [EVERYBODY] + [EVERYBODY - {4, 7}] * 2),
        ("unmask", 2, [EVERYBODY] * 2 + [EVERYBODY - {4, 7}]),
        ("unmask", 3, [EVERYBODY] * 3),
    ],
)
def test_two_clients_fall_silent_and_the_sum_is_that_of_the_vectors_that_arrived(
    trust: str, late: bool, stage: str, index: int, present: list[set[int]]
) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    silence = Silence((4, stage, index, late), (7, stage, index, late))
    silence.install(federation)
    result = run(federation, trust=trust, n_examples=sum(SIZES))
    centroids, counts = expected(federation, parts, present)
    assert set(result.confirmed) == EVERYBODY - {4, 7}
    for node in result.confirmed:
        assert np.array_equal(federation.clients[node].cluster_centers_, centroids)
        assert np.array_equal(federation.clients[node].counts_, counts)
    # No aggregation was repeated, so each client was charged once for each.
    assert federation.attempts_in_ledger(2) == [
        (index, 0) for index in range(1, N_ROUNDS + 1)
    ]
    assert result.privacy.n_attempts == N_ROUNDS


@pytest.mark.parametrize("n_lost", [0, 2])
def test_noise_is_enough_without_those_that_are_lost_and_those_that_collude(
    n_lost: int, truth: Truth
) -> None:
    """A server that claims to have lost t and knows t others' shares."""
    federation = make_federation(grid_parts(SIZES))
    lost, colluding = (4, 7)[:n_lost], (5, 6)
    Silence(*((node, "unmask", 1, True) for node in lost)).install(federation)
    run(
        federation, algorithm="glloyd", trust="distributed", n_clusters=100,
        n_examples=10**5, epsilon=2.0,
    )  # fmt: skip
    plan = federation.plan
    sent, exact = truth.sent[2, 0], truth.statistics[2, 0]
    assert set(sent) == EVERYBODY - set(lost)
    shares = [
        signed(sent[node] - exact[node]).astype(np.float64)
        for node in sent
        if node not in colluding
    ]
    # Those that are lost in this round take theirs with them.
    left = np.sum(shares[: plan.shares.n_honest], axis=0) / GRID
    assert len(shares) == plan.shares.n_honest + 2 - n_lost
    assert plan.shares.n_honest == N - 4
    sums = left[: 2 * plan.config.n_clusters]
    assert np.std(sums) == pytest.approx(
        plan.round_at(2).blocks[0].noise_scale, rel=0.2
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "values",
    [{}, {"private_bounds": True, "bounds": ((-8.0,), (8.0,))}, {"n_features": None}],
)
def test_plans_that_are_found_on_the_way_are_recovered_as_well(
    values: dict[str, Any],
) -> None:
    """Private count and bounds, undeclared width come before the final plan."""
    parts = grid_parts([400] * N)
    federation = make_federation(parts)
    Silence((4, "sum", 0, True), (7, "unmask", 1, False)).install(federation)
    result = run(
        federation, algorithm="proxy_lloyd", max_iter=None, epsilon=20.0,
        evaluation="private", **values,
    )  # fmt: skip
    assert federation.plan.count is not None
    assert set(result.confirmed) == EVERYBODY - {4, 7}
    centroids = [federation.clients[node].cluster_centers_ for node in result.confirmed]
    assert all(np.array_equal(other, centroids[0]) for other in centroids)


def test_different_clients_fall_silent_at_different_stages() -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    silence = Silence((4, "sum", 1, True), (7, "unmask", 2, False))
    silence.install(federation)
    result = run(federation)
    assert set(result.confirmed) == EVERYBODY - {4, 7}


def test_more_than_may_be_silent_stop_the_run_with_a_sentence() -> None:
    federation = make_federation(grid_parts(SIZES))
    Silence(*((node, "sum", 2, False) for node in (4, 5, 6))).install(federation)
    with pytest.raises(CohortError, match="6 of 9 clients answered round 2"):
        run(federation)


def test_too_few_shares_open_another_attempt_which_is_charged() -> None:
    """A wrong share: the key does not fit what its owner committed to."""
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    asked: dict[int, tuple[str, int, int]] = {}

    def on_request(message: Message) -> bool:
        asked[message.metadata.dst_node_id] = place_of(message)
        return True

    def on_reply(message: Message) -> list[Message]:
        node = message.metadata.src_node_id
        if asked[node] != ("unmask", 2, 0):
            return [message]
        if node == 10:
            return []  # so that the cohort of the next attempt is smaller
        if node == 2:
            reply = parse_unmask_reply(message.content)
            shares = dict.fromkeys(reply.shares, bytes(UNMASK_BYTES))
            spoilt = encode_reply(Stage.UNMASK, replace(reply, shares=shares))
            message.content = content_of(spoilt)
        return [message]

    federation.faults.on_request = on_request
    federation.faults.on_reply = on_reply
    result = run(federation, trust="central")
    assert set(result.confirmed) == EVERYBODY - {10}
    centroids, _ = expected(
        federation, parts, [EVERYBODY, EVERYBODY - {10}, EVERYBODY - {10}]
    )
    assert np.array_equal(federation.clients[2].cluster_centers_, centroids)
    assert federation.attempts_in_ledger(2) == [(1, 0), (2, 0), (2, 1), (3, 1)]


def test_a_late_vector_of_a_client_that_was_given_up_is_not_readable() -> None:
    """The server has the client's pairwise keys by then; its self mask stays."""
    federation = make_federation(grid_parts(SIZES))
    silence = Silence((4, "sum", 2, True))
    silence.install(federation)
    run(federation, trust="central")
    vectors = received_vectors(silence.lost)
    assert list(vectors) == [(2, 0)]
    assert count_readable(vectors[2, 0][4]) == 0


def test_a_late_or_second_reply_changes_nothing() -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    silence = Silence((4, "sum", 2, True), (5, "unmask", 2, True))
    silence.install(federation)
    on_request, on_reply = federation.faults.on_request, federation.faults.on_reply
    now: list[Any] = []
    old: list[Message] = []

    def remember_old(message: Message) -> bool:
        if now != [place_of(message)]:
            now[:], old[:] = [place_of(message)], silence.lost
        return on_request(message)

    def deliver_old(reply: Message) -> list[Message]:
        delivered = on_reply(reply)
        return [*old, *delivered, *delivered]

    federation.faults.on_request, federation.faults.on_reply = remember_old, deliver_old
    result = run(federation, trust="central")
    present = [EVERYBODY, EVERYBODY - {4}, EVERYBODY - {4, 5}]
    assert np.array_equal(
        federation.clients[2].cluster_centers_, expected(federation, parts, present)[0]
    )
    assert set(result.confirmed) == EVERYBODY - {4, 5}


@pytest.mark.parametrize("trust", TRUSTS)
def test_the_server_receives_nothing_readable(trust: str) -> None:
    federation = make_federation(grid_parts(SIZES))
    Silence((4, "sum", 2, True), (7, "unmask", 1, False)).install(federation)
    run(federation, trust=trust)
    for vectors in received_vectors(federation.grid.received).values():
        for vector in vectors.values():
            assert count_readable(vector) == 0


def unmask_with(federation: Federation, change: Any) -> None:
    """A server that tells some clients of other survivors."""

    class Hostile(PrivateKMeans):
        def configure_train(self, *args: Any) -> list[Message]:
            messages = super().configure_train(*args)
            if self.run.due is not Stage.UNMASK:
                return messages
            if self.run.session.round_index != 2:
                return messages
            for message in messages:
                request = parse_unmask_request(message.content)
                told = change(message.metadata.dst_node_id, request.survivors)
                request = UnmaskRequest(request.round_index, request.attempt, told)
                message.content = unmask_request_content(request)
            return messages

    federation.strategy_class = Hostile


def refusals(federation: Federation) -> list[str]:
    sentences = []
    for message in federation.grid.received:
        status, _, sentence = parse_failure(message.content)
        if status is not Status.OK:
            sentences.append(sentence)
    return sentences


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (lambda node, survivors: tuple(s for s in survivors if s != node),
         "was given up"),
        (lambda node, survivors: (node,), "at least 7 of 9 are needed"),
        (lambda node, survivors: tuple(sorted({node, *survivors[:5]})),
         "at least 7 of 9 are needed"),
        (lambda node, survivors: (*survivors, 99), "one that had left"),
        (lambda node, survivors: survivors[::-1], "out of order"),
        (lambda node, survivors: (*survivors[:-1], survivors[-2]),
         "out of order|twice"),
    ],
)  # fmt: skip
def test_false_survivors_are_refused(told: Any, words: str) -> None:
    federation = make_federation(grid_parts(SIZES))
    unmask_with(federation, told)
    with pytest.raises(CohortError):
        run(federation, trust="central")
    assert refusals(federation)
    assert all(re.search(words, sentence) for sentence in refusals(federation))


def test_a_client_that_some_are_told_is_dropped_is_not_opened() -> None:
    """Half give shares of node 4's self mask, half of its pairwise key."""
    federation = make_federation(grid_parts(SIZES))
    unmask_with(
        federation,
        lambda node, all_: (
            all_ if node % 2 else tuple(s for s in all_ if s != 4 or node == 4)
        ),
    )
    with pytest.raises(CohortError, match="cannot be recovered"):
        run(federation, trust="central")


def pinned_federation(parts: Sequence[Any]) -> Federation:
    identities = {node: Identity.generate() for node in EVERYBODY}
    pins = tuple(
        (f"ward-{node}", identity.public_key.hex())
        for node, identity in identities.items()
    )
    return make_federation(
        parts, policy=ClientPolicy(pinned_peers=pins), identities=identities
    )


def test_signed_survivors_let_an_honest_run_end() -> None:
    parts = grid_parts(SIZES)
    federation = pinned_federation(parts)
    Silence((4, "sum", 2, True), (7, "unmask", 1, False)).install(federation)
    result = run(federation)
    assert set(result.confirmed) == EVERYBODY - {4, 7}
    report = federation.clients[2].privacy_
    assert report is not None
    assert any("pinned" in text and "8 peers" in text for text in report.assumptions)


@pytest.mark.parametrize(
    ("relay", "words"),
    [
        (lambda kept, now: {}, "0 neighbours signed the survivors of round 1, but 6"),
        (lambda kept, now: dict(list(now.items())[:5]), "5 neighbours signed"),
        (lambda kept, now: kept or now, "did not sign the survivors of round 2"),
        (lambda kept, now: dict.fromkeys(now, bytes(64)), "did not sign the survivors"),
        (lambda kept, now: now | {99: bytes(64)}, "node 99 did not sign"),
    ],
)  # fmt: skip
def test_survivors_that_others_did_not_sign_stop_a_pinned_client(
    relay: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that told others of other survivors has no signatures that fit."""
    kept: dict[int, dict[int, bytes]] = {}

    def hostile(message: Message) -> bool:
        request = parse_request(message.content)
        now = getattr(request.body, "confirmations", {})
        if now:
            node = message.metadata.dst_node_id
            relayed = dict(relay(kept.get(node), now))
            kept.setdefault(node, now)
            body: Any = replace(request.body, confirmations=relayed)  # type: ignore[type-var]
            message.content = message_of(node, replace(request, body=body)).content
        return True

    federation = pinned_federation(grid_parts(SIZES))
    federation.faults.on_request = hostile
    with pytest.raises(RefusalError, match=words):
        run(federation, trust="central")


def test_the_default_follows_the_cohort_and_the_transport() -> None:
    config = small_config()
    assert config.settings.dropout_of(100) is Dropout.RETRY
    assert config.settings.dropout_of(101) is Dropout.RECOVER
    assert small_config(dropout="retry").settings.dropout_of(1000) is Dropout.RETRY
    given = {
        "algorithm": "lloyd", "n-clusters": 3, "num-clients": 4, "bounds": "0,1",
        "data": "table.csv",
    }  # fmt: skip
    assert strategy_from_run_config(given).config.dropout is None
    assert (
        strategy_from_run_config(given | {"cohort.dropout": "recover"}).config.dropout
        is Dropout.RECOVER
    )
    federation = make_federation(grid_parts([2] * 102))
    federation.start(algorithm="lloyd", max_iter=1, n_examples=204)
    assert federation.plan.dropout is Dropout.RETRY
