"""Attacks on recoverable sums: each succeeds on a weakened protocol and fails on the
real one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.hostile_recovery import HostileServer, altered, ring_order, without
from support.masked_federation import combinations
from support.recovery_federation import PLAN, RecoveryFederation, Words

from flwr_dpkmeans.errors import CohortError, ProtocolError
from flwr_dpkmeans.secagg import agreement, keys
from flwr_dpkmeans.secagg.graph import RecoveryGraph, recovery_graph
from flwr_dpkmeans.secagg.keys import agree_pair_keys, derive_key
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    Release,
    SumRequest,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.slots import SlotKeys

CIRCLE = RecoveryGraph(6, 4, certain=False)


class OnCircle(Recover):
    """Has 6 neighbours, whatever the number of clients."""

    @property
    def graph(self) -> RecoveryGraph:
        return CIRCLE


class Unaware(Recover):
    """Opens shares whatever their givers were told."""

    def _ticket_to(self, peer: int, key: bytes, view: bytes) -> bytes:
        return bytes(32)

    def _ticket_from(self, peer: int, key: bytes, view: bytes) -> bytes:
        return bytes(32)


class UnawareOnCircle(OnCircle, Unaware):
    """Has 6 neighbours, and tickets that say nothing."""


class UnawareServer(HostileServer):
    """Works with clients whose tickets say nothing."""

    def _ticket_of(self, sender: int, recipient: int, view: bytes) -> bytes:
        return bytes(32)


# (a) One key for all rounds: a dropout in round 2 exposes what its client sent in round
# 1.


class OneKey(Recover):
    """The textbook protocol, run again with the same keys."""

    def slot_keys(self, index: int) -> SlotKeys:
        scope = (self.run_id, self.node_id, 0)
        return SlotKeys(
            derive_key(self.masters[:32], "self seed", *scope),
            derive_key(self.masters[32:], "private key", *scope),
        )


@pytest.mark.parametrize("weakened", [True, False])
def test_a_dropout_does_not_expose_an_earlier_round(weakened: bool) -> None:
    client = OneKey if weakened else Recover
    federation = RecoveryFederation.make(8, max_silent=1).made_of(client)
    federation.share()
    federation.round(1)
    federation.round(2, silent=[12])
    first, second = (HostileServer.watching(federation, (index, 0)) for index in (1, 2))
    # The private key that the dropout gave away in round 2, used on round 1.
    _, privates = second.keys()
    assert set(privates) == {12}
    selves, _ = first.keys()
    keys = {12: privates[12]}

    class OldKeys(HostileServer):
        def keys(self) -> Any:
            return selves, keys

    assert OldKeys(**vars(first)).reads([12]) is weakened


# (b) One client alive here and dropped there.


def test_one_client_is_not_told_two_fates() -> None:
    federation = RecoveryFederation.make(8, max_silent=1)
    federation.share()
    federation.session.open_round(1, 3)
    federation.send()
    everybody = tuple(federation.states)
    first = UnmaskRequest(1, 0, everybody)
    state, _ = federation.states[10].unmask(first)
    for survivors in (everybody, without(everybody, [12])):
        with pytest.raises(ProtocolError, match="replayed, late or out of order"):
            state.unmask(UnmaskRequest(1, 0, survivors))


@pytest.mark.parametrize(
    ("weakened", "tickets"),
    [(True, True), (True, False), (False, True), (False, False)],
)
def test_both_keys_of_a_client_need_more_shares_than_there_are(
    weakened: bool, tickets: bool
) -> None:
    n_clients, max_silent = 20, 4
    chosen = recovery_graph(n_clients, max_silent)
    if weakened:
        # The textbook's majority, which forgets that colluders give a share of both.
        chosen = replace(chosen, threshold=chosen.degree // 2)

    class Chosen(Recover if tickets else Unaware):  # type: ignore[misc]
        @property
        def graph(self) -> RecoveryGraph:
            return chosen

    federation = RecoveryFederation.make(n_clients, max_silent=max_silent)
    federation.made_of(Chosen, chosen)
    federation.share()
    federation.session.open_round(1, 3)
    everybody = tuple(federation.states)
    victim, colluders = everybody[0], everybody[1 : 1 + max_silent]
    server = HostileServer if tickets else UnawareServer
    hostile = server(federation, (1, 0), colluders)
    hostile.ask_vectors(dict.fromkeys(everybody, everybody))
    others = without(everybody, (victim, *colluders))
    half = set(others[: len(others) // 2])
    hostile.ask_shares(
        {
            node: everybody if node in half else without(everybody, [victim])
            for node in others
        }
    )
    selves, privates = hostile.keys()
    assert (victim in selves and victim in privates) is weakened
    assert hostile.reads([victim]) is weakened


# Equivocation: no client tells the server both, but all masks of one client come from
# different ones.


def on_circle(n_clients: int, *, weakened: bool, **options: Any) -> HostileServer:
    """A run on a circle with 6 neighbours, of which every client lets 6 be gone."""
    federation = RecoveryFederation.make(n_clients, max_silent=6, **options)
    federation.made_of(UnawareOnCircle if weakened else OnCircle, CIRCLE)
    federation.share()
    federation.session.open_round(1, 3)
    server = UnawareServer if weakened else HostileServer
    return server(federation, (1, 0))


def equivocating(
    *, weakened: bool
) -> tuple[HostileServer, tuple[int, ...], int, tuple[int, ...]]:
    """A run of 40 clients on a circle, one of them, and its neighbours."""
    hostile = on_circle(40, weakened=weakened)
    federation = hostile.federation
    everybody = tuple(federation.states)
    victim = ring_order(federation)[7]
    return (
        hostile,
        everybody,
        victim,
        federation.session.neighbours(victim),
    )


@pytest.mark.parametrize("weakened", [True, False])
def test_a_victim_with_a_cohort_of_its_own_is_not_read(weakened: bool) -> None:
    # It is told that all its neighbours are gone, so it masks with nobody; they are
    # told that it is there.
    hostile, everybody, victim, neighbours = equivocating(weakened=weakened)
    told = {
        node: without(everybody, neighbours) if node == victim else everybody
        for node in everybody
    }
    hostile.ask_vectors(told)
    hostile.ask_shares({node: everybody for node in everybody if node != victim})
    assert hostile.reads([victim]) is weakened


@pytest.mark.parametrize("weakened", [True, False])
def test_a_victim_whose_neighbours_are_given_up_by_each_other_is_not_read(
    weakened: bool,
) -> None:
    # Every neighbour is told that all the others, but not itself, are gone.
    hostile, everybody, victim, neighbours = equivocating(weakened=weakened)
    hostile.ask_vectors(dict.fromkeys(everybody, everybody))
    hostile.ask_shares(
        {node: without(everybody, set(neighbours) - {node}) for node in everybody}
    )
    assert hostile.reads([victim]) is weakened


def play_against_arcs(
    hostile: HostileServer, chooser: random.Random, most_gone: int
) -> None:
    """Tell clients inside and around a random arc other cohorts and survivors."""
    order = ring_order(hostile.federation)
    size, everybody = len(order), tuple(hostile.federation.states)
    start, length, width = (
        chooser.randrange(size),
        chooser.randrange(1, size - 2),
        chooser.randrange(1, most_gone + 1),
    )
    around = [start + length + step for step in range(width)] + [
        start - 1 - step for step in range(width)
    ]
    borders = sorted({order[place % size] for place in around})
    told = {}
    for node in everybody:
        most = min(most_gone, len(borders))
        left_out = (
            chooser.sample(borders, chooser.randrange(most + 1))
            if chooser.random() < 0.3
            else ()
        )
        told[node] = everybody if node in left_out else without(everybody, left_out)
    hostile.ask_vectors(
        dict.fromkeys(everybody, everybody) if chooser.random() < 0.5 else told
    )
    named = {}
    for node in everybody:
        gone = [peer for peer in borders if peer in hostile.told[node] and peer != node]
        room = most_gone - (size - len(hostile.told[node]))
        near = set(hostile.neighbours(node))
        gone.sort(key=lambda peer: (peer not in near, chooser.random()))
        named[node] = without(hostile.told[node], gone[:room])
    hostile.ask_shares(named)


@pytest.mark.parametrize("weakened", [True, False])
def test_a_server_that_tells_everybody_what_it_likes_reads_no_part(
    weakened: bool,
) -> None:
    chooser = random.Random(5)
    n_split = 0
    # Keys are drawn anew each time, so a server that can succeed may need some trials.
    for trial in range(100 if weakened else 12):
        if n_split:
            break
        hostile = on_circle(
            24, weakened=weakened, rounds=(1, 1), n_attempts=1, seed=trial
        )
        play_against_arcs(hostile, chooser, 6)
        parts, keys = hostile.readable_parts(), hostile.keys()
        assert all(hostile.reads(part, keys) for part in parts)
        n_split += any(len(part) < 10 for part in parts) or len(parts) > 1
    assert (n_split > 0) is weakened


# (c) A vector that comes late.


class Unmasked(Recover):
    """Hides its vector by pairwise masks alone."""

    def _add_masks(
        self, values: Ring, transcript: bytes
    ) -> tuple[Recover, dict[int, bytes]]:
        done = super()._add_masks(values, transcript)
        seed = self.slot_keys(self.slots.index(*self.attempt_id)).self_seed
        scope = (self.run_id, self.node_id, self.attempt_id)
        values -= agreement.self_mask(seed, *scope, transcript, len(values))
        return done


@pytest.mark.parametrize("weakened", [True, False])
def test_the_late_vector_of_a_dropped_client_stays_unreadable(
    weakened: bool,
) -> None:
    client = Unmasked if weakened else Recover
    federation = RecoveryFederation.make(10, max_silent=2).made_of(client)
    federation.share()
    federation.round(1, silent=[12])

    class WithoutSelfMasks(HostileServer):
        def keys(self) -> Any:
            return dict.fromkeys(self.sent, b""), super().keys()[1]

        def self_mask(self, node: int, seed: bytes) -> Words:
            return np.zeros(self.federation.length, dtype=np.uint64)

    kind = WithoutSelfMasks if weakened else HostileServer
    hostile = kind.watching(federation, (1, 0))
    assert 12 in hostile.sent
    assert hostile.reads([12]) is weakened
    assert hostile.reads(without(hostile.sent, [12]))


# (d) Sums and differences of all that the server holds.


def stripped(hostile: HostileServer) -> list[int]:
    """Every vector that reached the server, without the masks that it knows."""
    selves, privates = hostile.keys()
    place = hostile._any.slots.index(*hostile.asked)
    found = []
    for node, reply in hostile.sent.items():
        values, transcript = reply.masked.values.copy(), hostile.transcript(node)
        if node in selves:
            values -= agreement.self_mask(
                selves[node], 7, node, hostile.asked, transcript, 1
            )
        for peer in hostile.neighbours(node):
            mine, other = (node, peer) if node in privates else (peer, node)
            if peer in hostile.told[node] and mine in privates:
                public = keys.piece(hostile.federation.shared[other].public_keys, place)
                pair = agree_pair_keys(privates[mine], {other: public}, 7, mine)[other]
                values -= agreement.pair_mask(
                    pair, node, peer, hostile.asked, transcript, 1
                )
        found.append(int(values[0]))
    return found


def run_with_dropouts(authored: bool, scenario: str) -> list[HostileServer]:
    """Six clients, one of which is lost, and what the server has of each sum."""
    federation = RecoveryFederation.make(
        6, max_silent=1, authored=authored, length=1, seed=3
    )
    federation.share()
    if scenario == "late in round 2":
        federation.round(1, blinded=authored)
        federation.round(2, silent=[11], blinded=authored)
        return [HostileServer.watching(federation, (index, 0)) for index in (1, 2)]
    if scenario == "late in round 1":
        federation.round(1, silent=[11], blinded=authored)
        federation.round(2, blinded=authored)
        return [HostileServer.watching(federation, (index, 0)) for index in (1, 2)]
    # Shares of attempt 0 are given, but the server forgets one and asks for another
    # attempt.
    federation.session.open_round(1, 1)
    federation.send(blinded=authored)
    federation.give_shares()
    del federation.session.unmasked[11]
    federation.session.retry()
    federation.gone.add(11)
    federation.send(repeated=True, blinded=authored)
    federation.give_shares()
    federation.session.recover(PLAN, blinded=authored)
    return [HostileServer.watching(federation, (1, attempt)) for attempt in (0, 1)]


@pytest.mark.parametrize(
    "scenario", ["late in round 1", "late in round 2", "retry after shares"]
)
@pytest.mark.parametrize("authored", [False, True])
def test_nothing_adds_up_to_plain_vectors(authored: bool, scenario: str) -> None:
    aggregations = run_with_dropouts(authored, scenario)
    held = [value for hostile in aggregations for value in stripped(hostile)]
    assert len(held) in (11, 12)
    plain = [
        [int(values[0]) for values in hostile.vectors.values()]
        for hostile in aggregations
    ]
    # What may be read: the survivors' sums, if nobody blinds them.
    sums = [int(total[0]) for total in map(survivors_sum, aggregations)]
    allowed = set(combinations(sums).tolist()) if not authored else {0}
    found = set(combinations(held).tolist())
    first, second = (set(combinations(values).tolist()) for values in plain)
    assert found & first <= allowed
    assert found & second <= allowed
    # Sums over two aggregations, one client's vectors at a time.
    both = set(
        combinations([value for values in plain for value in values[:3]]).tolist()
    )
    assert found & both <= allowed
    if not authored:
        assert all(value in found for value in sums)


def survivors_sum(hostile: HostileServer) -> Words:
    """The plain sum that one aggregation is for."""
    return hostile.truth(
        [node for node in hostile.sent if node in next(iter(hostile.named.values()))]
    )


# (e) Few survivors.


@pytest.mark.parametrize("n_left", [0, 1, 2, 6])
def test_survivors_below_the_minimum_are_refused(n_left: int) -> None:
    federation = RecoveryFederation.make(8, max_silent=1)
    federation.share()
    federation.session.open_round(1, 3)
    federation.send()
    before = federation.states[10]
    with pytest.raises(ProtocolError, match=r"at least 7 of 8 are needed|not"):
        before.unmask(UnmaskRequest(1, 0, tuple(federation.states)[:n_left]))


@pytest.mark.parametrize("n_left", [1, 2, 6])
def test_a_cohort_below_the_minimum_is_refused(n_left: int) -> None:
    federation = RecoveryFederation.make(8, max_silent=1)
    federation.share()
    federation.session.open_round(1, 3)
    request = replace(
        federation.request_for(10), cohort=tuple(federation.states)[:n_left]
    )
    with pytest.raises(ProtocolError, match="at least 7 of 8 are needed"):
        federation.states[10].admit(request, 1)


def test_the_minimum_cohort_counts_more_than_the_silent() -> None:
    federation = RecoveryFederation.make(10, max_silent=2, min_cohort=9)
    federation.share()
    federation.session.open_round(1, 3)
    federation.send()
    with pytest.raises(ProtocolError, match="has 8 clients, but at least 9 of 10"):
        federation.states[10].unmask(UnmaskRequest(1, 0, tuple(federation.states)[:8]))
    for node in (18, 19):
        del federation.session.tags[node]
    with pytest.raises(CohortError, match="8 of 10 clients answered round 1"):
        federation.session.close_vectors()


# (f) Colluders hand over all that they have.


@pytest.mark.parametrize("n_clients", [10, 36])
def test_colluders_do_not_open_an_honest_vector(n_clients: int) -> None:
    max_silent = 3 if n_clients > 32 else 2
    federation = RecoveryFederation.make(n_clients, max_silent=max_silent, seed=8)
    federation.share()
    order = ring_order(federation)
    federation.round(1, silent=[order[0]])
    federation.round(2)
    # The worst places: all next to one client.
    for index in (1, 2):
        hostile = HostileServer.watching(
            federation, (index, 0), colluders=order[5 : 5 + max_silent]
        )
        honest, keys = without(hostile.sent, hostile.colluders), hostile.keys()
        assert not any(hostile.reads([node], keys) for node in honest)
        chooser = random.Random(index)
        survivors = without(honest, [order[0]])
        for size in range(2, len(survivors)):
            assert not hostile.reads(chooser.sample(survivors, size), keys)
        assert hostile.reads(survivors, keys)


def test_known_limit_everybody_but_one_together_read_the_last() -> None:
    federation = RecoveryFederation.make(8, max_silent=1)
    federation.share()
    federation.round(1)
    hostile = HostileServer.watching(federation, (1, 0), colluders=tuple(range(10, 17)))
    assert hostile.reads([17])


def test_one_more_colluder_than_planned_is_what_it_takes() -> None:
    # The threshold is exact: t colluders and half of the rest miss both keys by one
    # share.
    federation = RecoveryFederation.make(21, max_silent=4)
    graph = federation.session.graph
    assert 2 * graph.threshold > graph.degree + 4
    assert 2 * (graph.threshold - 1) <= graph.degree + 4


# (g) Wrong shares.


def parts_of(hostile_part: bytes) -> Iterator[bytes]:
    """A reply with one bit changed: in the share, the ticket, the lock's share."""
    for place in (0, 31, 40, 95):
        changed = bytearray(hostile_part)
        changed[place] ^= 1
        yield bytes(changed)


@pytest.mark.parametrize("silent", [(), (12,)])
@pytest.mark.parametrize("which", range(4))
def test_a_wrong_share_is_noticed(which: int, silent: tuple[int, ...]) -> None:
    for owner in (11, 12, 15):
        federation = RecoveryFederation.make(10, max_silent=2)
        federation.share()
        federation.session.open_round(1, 3)
        federation.send(silent)
        federation.give_shares()
        session = federation.session
        right = session.unmasked[10]
        session.unmasked[10] = altered(
            right, owner, list(parts_of(right.shares[owner]))[which]
        )
        try:
            values = session.recover(PLAN, blinded=False).values
        except ProtocolError as error:
            sentence = str(error)
            session.unmasked[10] = right
            values = session.recover(PLAN, blinded=False).values
        else:
            sentence = (  # the share was one too many and not looked at
                "not give the key that it committed to"
            )
        assert "not give the key that it committed to" in sentence
        assert values.tolist() == federation.truth().tolist()


@pytest.mark.parametrize("silent", [(), (12,)])
def test_every_share_counts_and_none_goes_unnoticed(silent: tuple[int, ...]) -> None:
    # With no more shares than it takes, each one changes the key.
    federation = RecoveryFederation.make(10, max_silent=2)
    federation.share()
    federation.session.open_round(1, 3)
    federation.send(silent)
    session = federation.session
    federation.give_shares()
    holders = [
        node for node in session.unmasked if 11 in session.unmasked[node].shares
    ][: session.graph.threshold]
    for holder in holders:
        right = session.unmasked[holder]
        wrong = bytes(32) + right.shares[11][32:]
        session.unmasked[holder] = altered(right, 11, wrong)
        with pytest.raises(ProtocolError, match="key of node 11 do not give the key"):
            session.recover(PLAN, blinded=False)
        session.unmasked[holder] = right
    assert (
        session.recover(PLAN, blinded=False).values.tolist()
        == federation.truth().tolist()
    )


def test_a_wrong_ticket_along_with_a_vector_is_noticed() -> None:
    federation = RecoveryFederation.make(10, max_silent=2)
    federation.share()
    federation.session.open_round(1, 3)
    federation.send()
    federation.session.sealed[11] = {
        node: bytes(32) for node in federation.session.sealed[11]
    }
    federation.give_shares()
    with pytest.raises(ProtocolError, match="key of node 11 do not give the key"):
        federation.session.recover(PLAN, blinded=False)


# (h) Clients that come back, answer twice or answer old attempts.


def test_a_client_that_comes_back_changes_nothing_and_learns_nothing() -> None:
    federation = RecoveryFederation.make(10, max_silent=2, authored=True, rounds=(1, 4))
    federation.share()
    federation.round(1, blinded=True)
    values = federation.round(2, silent=[12], blinded=True)
    session = federation.session
    late = federation.masked[2, 0][12]
    for reply in (late, federation.masked[1, 0][12]):
        with pytest.raises(ProtocolError, match=r"not in the roster|late or replayed"):
            session.receive(12, reply)
    with pytest.raises(ProtocolError, match="not awaited"):
        session.receive_unmask(12, federation.unmasked[1, 0][12])
    assert 12 not in session.roster.keys
    # Whatever it is sent, it does not get on: the cohort and the survivors are without
    # it.
    left = session.roster.node_ids
    state = federation.states[12]
    for request in (
        SumRequest(3, 0, release=federation.release, cohort=left),
        SumRequest(2, 1, cohort=left),
    ):
        with pytest.raises(ProtocolError, match=r"replayed, late|not in the cohort"):
            state.admit(request, 1)
    with pytest.raises(ProtocolError, match="not in the survivors"):
        state.unmask(UnmaskRequest(2, 0, left))
    with pytest.raises(ProtocolError, match="late, replayed or of another run"):
        state.finish(FinishRequest(Release(2, 0, values)))
    federation.round(3, blinded=True)
    assert federation.read(10, blinded=True).tolist() == federation.truth().tolist()
