"""Attacks of the threat model that need no invented identities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from support.messages import (
    ServerRun,
    Stage,
    Status,
    copied,
    dump_plan,
    parse_failure,
    request_content,
)
from support.protocol_federation import (
    Federation,
    Words,
    count_readable,
    grid_parts,
    make_federation,
    received_vectors,
    small_config,
)
from test_dropouts import from_node, lloyd_run, reply_round, with_vector
from test_hostile_server import (
    SIZES,
    VICTIM,
    Hostile,
    changed,
    fields_of,
    final_plan,
    hostile,
    rebuilt,
    release_of,
    retry_content,
    roster_blob,
    roster_of,
    with_release,
)

from flwr_dpkmeans.errors import CohortError, DPKMeansError, ProtocolError, RefusalError
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.sums.plan import Plan

TRUSTS = ("oblivious", "central", "distributed")


def vectors_of(server: Hostile, requests: dict[int, RecordDict]) -> dict[int, Words]:
    """What the clients send for the requests; all of them must answer."""
    replies = server.exchange(
        [Message(copied(content), node, "train") for node, content in requests.items()]
    )
    assert all(parse_failure(reply.content)[0] is Status.OK for reply in replies)
    (by_node,) = received_vectors(replies).values()
    return by_node


def require_no_readable_sum(vectors: dict[int, Words]) -> None:
    """No set of the vectors adds up to numbers as small as statistics."""
    for size in range(1, len(vectors) + 1):
        for nodes in itertools.combinations(vectors, size):
            total = np.sum([vectors[node] for node in nodes], axis=0, dtype=np.uint64)
            assert count_readable(total) <= 1, f"the sum of {nodes} is readable"


# -- different messages to different clients -------------------------------------------


def test_the_checker_of_readable_sums_fires() -> None:
    """Under ``central`` the honest sum of all clients is readable."""
    with hostile(trust="central") as server:
        server.agree()
        with pytest.raises(AssertionError, match="readable"):
            require_no_readable_sum(vectors_of(server, server.request(1)))


@pytest.mark.parametrize("trust", TRUSTS)
def test_different_plans_to_different_clients_make_no_readable_sum(trust: str) -> None:
    with hostile(trust=trust) as server:
        other = dump_plan(rebuilt(server.run.plan, seed=server.run.plan.seed + 1))
        messages = server.run.keys_messages()
        for message in messages[2:]:
            message.content = request_content(Stage.KEYS, plan=other)
        replies = server.exchange(messages)
        # An honest server stops here.
        with pytest.raises(ProtocolError, match="agreed to another plan"):
            server.run.take_keys(replies)
        keys = {
            reply.metadata.src_node_id: fields_of(reply.content)["public_key"]
            for reply in replies
        }
        vectors = vectors_of(server, dict.fromkeys(keys, retry_content(1, 0, keys)))
        require_no_readable_sum(vectors)


@pytest.mark.parametrize("trust", TRUSTS)
def test_different_rosters_to_different_clients_make_no_readable_sum(
    trust: str,
) -> None:
    with hostile(trust=trust) as server:
        server.agree()
        keys = dict(roster_of(server.request(1)[VICTIM]).keys)
        requests = dict.fromkeys(keys, retry_content(1, 0, keys))
        # Each of two overlapping cohorts is told that it is all there is.
        for node in (4, 5):
            requests[node] = retry_content(
                1, 0, {n: key for n, key in keys.items() if n != 2}
            )
        require_no_readable_sum(vectors_of(server, requests))


@pytest.mark.parametrize("trust", TRUSTS)
def test_different_attempts_of_different_clients_make_no_readable_sum(
    trust: str,
) -> None:
    """Some are told that an attempt failed, the others that it did not."""
    with hostile(trust=trust, max_retries=2) as server:
        server.agree()
        requests = server.request(1)
        first = vectors_of(server, requests)
        keys = {
            node: key
            for node, key in roster_of(requests[VICTIM]).keys.items()
            if node != 2
        }
        second = vectors_of(
            server, {node: retry_content(1, 1, keys) for node in (3, 4)}
        )
        # The first attempt is whole, so its sum may be read where the trust model lets
        # the server.
        mixed = {node: first[node] for node in (2, 5)} | second
        require_no_readable_sum(mixed)
        require_no_readable_sum({node: first[node] - second[node] for node in (3, 4)})


@pytest.mark.parametrize("trust", TRUSTS)
def test_different_last_releases_make_the_tags_differ(trust: str) -> None:
    with hostile(trust=trust) as server:
        server.agree()
        for index in (1, 2, 3):
            server.complete(server.request(index))
        messages = server.run.finish_messages()
        for message in messages:
            if message.metadata.dst_node_id == VICTIM:
                message.content = with_release(
                    message.content, release_of(message.content) + np.uint64(2**20)
                )
        with pytest.raises(DPKMeansError, match=f"node\\(s\\) \\[{VICTIM}\\] differs"):
            server.run.take_finish(server.exchange(messages))


# -- the same round twice --------------------------------------------------------------


def moved(content: RecordDict) -> RecordDict:
    """The same request with a release that leads to other centroids."""
    return with_release(content, release_of(content) + np.uint64(2**18))


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_round_is_not_answered_for_other_centroids(trust: str) -> None:
    """Answers at two sets of centroids would cost the budget of one."""
    with hostile(trust=trust, max_retries=2) as server:
        server.agree()
        server.complete(server.request(1))
        requests = server.request(2)
        server.complete(requests)
        second = moved(requests[VICTIM])
        server.require_refused(second, "replayed")
        keys = dict(roster_of_run(server))
        fewer = roster_blob({node: key for node, key in keys.items() if node != 5})
        # Neither as another attempt of that round, nor as the round before once more.
        server.require_refused(
            changed(second, {"attempt": 1}, roster=fewer), "out of order"
        )
        server.require_refused(
            changed(second, {"round": 1, "attempt": 1}, roster=fewer), "out of order"
        )
        server.require_refused(
            changed(
                second, {"attempt": 1, "release_attempt": 1}, roster=fewer, boxes=None
            ),
            "out of order",
        )
        # A retry, which is charged, keeps the centroids.
        retry = retry_content(
            2, 1, {node: key for node, key in keys.items() if node != 5}
        )
        (reply,) = server.exchange([Message(retry, VICTIM, "train")])
        assert parse_failure(reply.content)[0] is Status.OK
        assert server.federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0), (2, 1)]


def roster_of_run(server: Hostile) -> dict[int, bytes]:
    return dict(server.run.session.roster.keys)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_run_is_not_played_twice_to_a_client_that_lost_its_memory(trust: str) -> None:
    """Only the ledger remembers: neither new keys nor a second statistic."""
    with hostile(trust=trust) as server:
        server.agree()
        server.complete(server.request(1))
        server.complete(server.request(2))
        server.federation.grid.contexts[VICTIM].state = RecordDict()
        server.require_refused(
            server.run.keys_messages()[0].content, "ledger has releases of run"
        )
        server.require_refused(
            retry_content(1, 0, roster_of_run(server)), "unknown to this client"
        )
        assert server.federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0)]


# -- small cohorts ---------------------------------------------------------------------


@pytest.mark.parametrize("n_clients", [-1, 0, 1])
def test_a_plan_for_one_client_is_refused(n_clients: int) -> None:
    with hostile() as server:
        alone = replace(server.run.plan, n_clients=n_clients)
        server.require_refused(request_content(Stage.KEYS, plan=dump_plan(alone)), "")
        honest = replace(alone, max_silent=0)
        server.require_refused(request_content(Stage.KEYS, plan=dump_plan(honest)), "")
        server.agree()
        server.require_unharmed(1)


@pytest.mark.parametrize("limit", ["plan", "policy"])
@pytest.mark.parametrize("when", ["first", "retry"])
def test_a_cohort_below_the_minimum_gets_no_vector(limit: str, when: str) -> None:
    """The plan's own minimum, or a higher one of the client's policy."""
    policies = {VICTIM: ClientPolicy(min_cohort=3)} if limit == "policy" else {}
    federation = make_federation(grid_parts(SIZES), policies=policies)
    config = small_config(
        algorithm="lloyd", max_iter=2, n_examples=None, min_clients=3, max_retries=2
    )
    run = ServerRun(
        config,
        run_id=federation.grid.run.run_id,
        seed=11,
        node_ids=federation.grid.get_node_ids(),
    )
    with federation.grid.running():
        server = Hostile(federation, run, grid_parts(SIZES))
        server.agree()
        requests = server.request(1)
        keys = dict(roster_of(requests[VICTIM]).keys)
        two = {node: key for node, key in keys.items() if node < 4}
        if when == "first":
            server.require_refused(retry_content(1, 0, two), "minimum cohort is 3")
            assert federation.charges() == 0
        else:
            server.complete(requests)
            server.require_refused(retry_content(1, 1, two), "minimum cohort is 3")
            assert federation.attempts_in_ledger(VICTIM) == [(1, 0)]


def test_a_policy_asks_for_more_clients_than_the_plan_does() -> None:
    """The plan allows two survivors; this client's operator wants three."""
    federation = make_federation(
        grid_parts(SIZES), policies={VICTIM: ClientPolicy(min_cohort=3)}
    )
    run = ServerRun(
        small_config(algorithm="lloyd", max_iter=2, n_examples=None, min_clients=3),
        run_id=federation.grid.run.run_id,
        seed=11,
        node_ids=federation.grid.get_node_ids(),
    )
    loose = replace(run.plan, config=run.plan.config.changed(min_clients=2))
    with federation.grid.running():
        server = Hostile(federation, run, grid_parts(SIZES))
        server.require_refused(
            request_content(Stage.KEYS, plan=dump_plan(loose)), "min"
        )


@pytest.mark.parametrize("trust", TRUSTS)
def test_an_honest_server_asks_for_no_sum_of_too_few(trust: str) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    federation.faults.on_reply = lambda reply: (
        []
        if reply.metadata.src_node_id in (3, 4) and reply_round(reply) == 2
        else [reply]
    )
    with pytest.raises(CohortError, match=r"2 of 4 nodes answered .*, but at least 3"):
        lloyd_run(federation, trust=trust, min_clients=3)
    assert all(
        client.cluster_centers_ is None for client in federation.clients.values()
    )


# -- other numbers than the plan's -----------------------------------------------------

OTHER_FINAL_PLANS: dict[str, Callable[[Plan], Plan]] = {
    "bounds": lambda p: rebuilt(p, config=p.config.changed(bounds=((-0.1,), (0.1,)))),
    "radius": lambda p: replace(
        p, rounds=tuple(replace(r, radius=(r.radius or 1.0) * 2) for r in p.rounds)
    ),
    "epsilon": lambda p: rebuilt(
        p, config=p.config.changed(epsilon=p.config.epsilon * 2)
    ),
    "cohort": lambda p: rebuilt(p, config=p.config.changed(min_clients=3)),
    "retries": lambda p: rebuilt(p, config=p.config.changed(max_retries=2)),
    "k": lambda p: rebuilt(
        p, config=p.config.changed(n_clusters=p.config.n_clusters + 1)
    ),
    "rounds": lambda p: rebuilt(p, config=p.config.changed(max_iter=p.last_round + 1)),
    "width": lambda p: rebuilt(
        p, config=p.config.changed(n_features=None), n_features=3
    ),
    "delta": lambda p: rebuilt(p, config=p.config.changed(delta=1e-7)),
    "trust of a round": lambda p: replace(
        p, rounds=(replace(p.rounds[0], trust="central"), *p.rounds[1:])
    ),
    "noise": lambda p: replace(
        p,
        rounds=tuple(
            replace(
                r,
                blocks=tuple(
                    replace(b, noise_multiplier=b.noise_multiplier * 0.99)
                    for b in r.blocks
                ),
            )
            for r in p.rounds
        ),
    ),
}


@pytest.mark.parametrize("kind", OTHER_FINAL_PLANS)
def test_numbers_cannot_change_after_the_plan_was_agreed_on(kind: str) -> None:
    with hostile(
        small_config(n_examples=None, epsilon=3.0, algorithm="fastlloyd")
    ) as server:
        server.agree()
        server.complete(server.request(0))
        requests = server.request(1)
        other = dump_plan(OTHER_FINAL_PLANS[kind](final_plan(requests)))
        server.require_refused(changed(requests[VICTIM], plan=other), "")
        assert server.federation.attempts_in_ledger(VICTIM) == [(0, 0)]
        server.complete(requests)


@pytest.mark.parametrize("trust", TRUSTS)
def test_centroids_of_another_number_or_width_cannot_be_sent(trust: str) -> None:
    """Nothing but the plan says what is made of a release."""
    with hostile(trust=trust) as server:
        server.agree()
        server.complete(server.request(1))
        requests = server.request(2)
        words = release_of(requests[VICTIM])
        for other in (
            np.append(words, words[:3]),
            words[:-3],
            np.zeros(0, dtype=np.uint64),
        ):
            server.require_refused(with_release(requests[VICTIM], other), "entries")
        server.require_refused(changed(requests[VICTIM], state=b"{}\n"), "state")
        server.complete(requests)
        server.require_unharmed(3)


# -- another run's messages ------------------------------------------------------------


def whole_run(
    run_id: int | None = None, **values: Any
) -> tuple[list[tuple[int, str, RecordDict]], Federation]:
    """Every request of an honest run, and its federation."""
    federation = make_federation(grid_parts(SIZES), run_id=run_id)
    sent: list[tuple[int, str, RecordDict]] = []

    def record(message: Message) -> bool:
        sent.append(
            (
                message.metadata.dst_node_id,
                message.metadata.message_type,
                copied(message.content),
            )
        )
        return True

    federation.faults.on_request = record
    lloyd_run(federation, max_iter=3, **values)
    return sent, federation


@pytest.mark.parametrize("victim", [VICTIM, 5])
@pytest.mark.parametrize("trust", TRUSTS)
def test_another_runs_messages_are_refused_by_every_node(
    trust: str, victim: int
) -> None:
    """All of node 3's messages, before the own run, in its middle, at its end."""
    foreign = [
        (kind, content)
        for node, kind, content in whole_run(trust=trust)[0]
        if node == VICTIM
    ]
    assert len(foreign) == 5
    with hostile(trust=trust) as server:

        def replay() -> None:
            for kind, content in foreign:
                server.require_refused(content, "", node=victim, message_type=kind)

        replay()
        server.agree()
        replay()
        for index in (1, 2, 3):
            server.complete(server.request(index))
            replay()
        server.require_unharmed(4)
        replay()


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_run_with_the_number_of_an_old_one_is_not_charged_nor_answered_twice(
    trust: str,
) -> None:
    """A server that begins again under an old id gets neither keys nor vectors."""
    sent, old = whole_run(run_id=77, trust=trust)
    new = make_federation(grid_parts(SIZES), run_id=77, ledgers=old.ledgers)
    before = {node: ledger.entries() for node, ledger in new.ledgers.items()}
    with new.grid.running():
        for node, kind, content in sent:
            (reply,) = new.grid.send_and_receive([Message(copied(content), node, kind)])
            assert parse_failure(reply.content)[0] is Status.REFUSED
    # Nor does an honest strategy get any, from clients that lost their memory.
    with pytest.raises(RefusalError, match="ledger has releases of run 77"):
        make_federation(grid_parts(SIZES), run_id=77, ledgers=old.ledgers).start(
            algorithm="lloyd", max_iter=3, n_examples=None, trust=trust
        )
    assert {node: ledger.entries() for node, ledger in new.ledgers.items()} == before


@pytest.mark.parametrize("trust", TRUSTS)
def test_another_clients_messages_are_refused(trust: str) -> None:
    """Within a run: requests carry boxes for one client."""
    with hostile(trust=trust) as server:
        server.agree()
        server.complete(server.request(1))
        requests = server.request(2)
        own, other = (
            fields_of(requests[VICTIM]).get("boxes"),
            fields_of(requests[5]).get("boxes"),
        )
        if trust == "oblivious":
            assert own != other
            server.require_refused(requests[5], "sealed ")
        else:
            assert own is other is None
        server.complete(requests)
        server.require_unharmed(3)


# -- late answers ----------------------------------------------------------------------


def test_a_late_vector_does_not_stand_in_for_the_confirmation_of_a_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its tag of an older state, taken for the last, would stop the run."""
    federation = make_federation(grid_parts(SIZES))
    held: list[Message] = []

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == VICTIM and reply_round(reply) == 2:
            held.append(reply)
        return [reply]

    federation.faults.on_reply = on_reply
    federation.faults.on_receive = lambda replies: [*held, *replies]
    result = lloyd_run(federation)
    assert result.confirmed == (2, 3, 4, 5)
    assert "carries a vector that was not asked for" in caplog.text


def test_a_plan_that_arrives_twice_stops_nobody() -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_send = lambda messages: messages + messages
    result = lloyd_run(federation)
    assert result.confirmed == (2, 3, 4, 5)
    assert federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0), (3, 0), (4, 0)]


# -- poisoned sums ---------------------------------------------------------------------


def poisoned(
    federation: Federation, index: int, change: Callable[[Words], Words]
) -> None:
    """Let one client add something of its own to its masked vector in one round."""

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == VICTIM and reply_round(reply) == index:
            ((_, by_node),) = received_vectors([reply]).items()
            words = change(by_node[VICTIM].copy())
            return [with_vector(reply, words.tobytes(), "uint64", (len(words),))]
        return [reply]

    federation.faults.on_reply = on_reply


def added(place: int, value: float) -> Callable[[Words], Words]:
    """Add a value, in data units, to one entry."""

    def change(words: Words) -> Words:
        words[place : place + 1 or None] += np.array(
            [round(value * 2.0**16)], dtype=np.int64
        ).view(np.uint64)
        return words

    return change


POISONS: dict[str, Callable[[Words], Words]] = {
    "rubbish": (
        lambda words: np.random.default_rng(1).integers(
            0, 2**64, len(words), dtype=np.uint64
        )
    ),
    "NaN bytes": lambda words: np.full(len(words), np.nan).view(np.uint64),
    "a huge sum": added(0, 2.0**40),
    "a huge negative sum": added(0, -(2.0**40)),
    "a huge count": added(-1, 2.0**40),
    "a negative count": added(-1, -(2.0**20)),
    "just over the limit of rows": added(-1, 4 * 2.0**28 + 1),
}


@pytest.mark.parametrize("trust", ["central", "distributed"])
@pytest.mark.parametrize("kind", POISONS)
def test_a_sum_that_no_data_add_up_to_stops_the_run_before_it_is_released(
    kind: str, trust: str
) -> None:
    federation = make_federation(grid_parts(SIZES))
    poisoned(federation, 2, POISONS[kind])
    with pytest.raises(ProtocolError) as caught:
        lloyd_run(federation, trust=trust)
    assert "round 2 lie outside" in str(caught.value)
    assert str(caught.value).endswith("nothing was sent on.")
    # The poisoned sum was charged, as it was asked for, but no client was told it.
    assert federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0)]
    assert not any(reply_round(reply) == 3 for reply in federation.grid.received)
    assert all(
        client.cluster_centers_ is None for client in federation.clients.values()
    )


@pytest.mark.parametrize("trust", ["central", "distributed"])
@pytest.mark.parametrize("algorithm", ["glloyd", "fastlloyd", "proxy_lloyd"])
def test_a_declared_number_of_rows_narrows_what_a_client_can_add(
    trust: str, algorithm: str
) -> None:
    """With N = 300 nobody can add a thousand rows."""
    values: dict[str, Any] = {"trust": trust, "algorithm": algorithm, "epsilon": 50.0}
    federation = make_federation(grid_parts(SIZES))
    poisoned(federation, 2, added(-1, 10_000.0))
    with pytest.raises(ProtocolError, match="lie outside"):
        federation.start(**values, n_examples=300)
    federation = make_federation(grid_parts(SIZES))
    assert federation.start(**values, n_examples=300).confirmed == (2, 3, 4, 5)


def test_a_private_count_that_is_out_of_range_stops_the_run() -> None:
    federation = make_federation(grid_parts(SIZES))
    poisoned(federation, 0, added(0, -(2.0**30)))
    with pytest.raises(ProtocolError, match="'count' in round 0 lie outside"):
        federation.start(n_examples=None, epsilon=3.0)


@pytest.mark.parametrize("kind", POISONS)
def test_an_oblivious_server_notices_nothing_and_the_clients_still_agree(
    kind: str,
) -> None:
    """A check by sum readers would tell it whether the sum passes a bound."""
    federation = make_federation(grid_parts(SIZES))
    poisoned(federation, 2, POISONS[kind])
    lloyd_run(federation)
    results = [client.cluster_centers_ for client in federation.clients.values()]
    assert all(np.array_equal(results[0], other) for other in results)
    assert np.isfinite(results[0]).all()
    assert np.abs(results[0]).max() <= 1.0


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_client_within_the_limits_can_move_the_result_and_no_more(trust: str) -> None:
    """It may claim any rows inside the box, and centroids stay in the box."""
    federation = make_federation(grid_parts(SIZES))
    poisoned(federation, 2, added(-1, 1000.0))
    result = lloyd_run(federation, trust=trust)
    assert result.confirmed == (2, 3, 4, 5)
    for client in federation.clients.values():
        assert np.abs(client.cluster_centers_).max() <= 1.0


def test_what_is_said_of_a_poisoned_sum_holds_no_entry_of_it() -> None:
    federation = make_federation(grid_parts(SIZES))
    poisoned(federation, 2, added(-1, 123_456_789_012.0))
    with pytest.raises(ProtocolError) as caught:
        lloyd_run(federation, trust="central")
    assert "12345" not in str(caught.value).replace("e+", "")


def test_a_client_cannot_answer_for_another(caplog: pytest.LogCaptureFixture) -> None:
    """Flower's transport says who sent a message, nothing inside it does."""
    federation = make_federation(grid_parts(SIZES))
    own: dict[int, Message] = {}

    def on_receive(replies: Sequence[Message]) -> list[Message]:
        own.update({reply.metadata.src_node_id: reply for reply in replies})
        # Node 3 sends what node 2 and node 99 could have sent, under its own name and
        # theirs.
        lies = [
            from_node(own[VICTIM], VICTIM, own[2].content),
            from_node(own[VICTIM], 99, own[VICTIM].content),
        ]
        return [*replies, *lies]

    federation.faults.on_receive = on_receive
    result = lloyd_run(federation)
    assert result.confirmed == (2, 3, 4, 5)
    assert "twice" in caplog.text
    assert "was not asked" in caplog.text
