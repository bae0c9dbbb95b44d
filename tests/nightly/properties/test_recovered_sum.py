"""Whoever leaves, wherever, up to t of them.

The exact sum of those that stay, and everybody reads the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from support.recovery_federation import PLAN, RecoveryFederation

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.secagg import recover as recover
from flwr_dpkmeans.secagg.graph import recovery_graph
from flwr_dpkmeans.secagg.messages import Release
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.slots import Slots

N_ROUNDS = 3
STAGES = ("share", "before", "late", "mute")


@dataclass(frozen=True)
class Leaving:
    """One client's end: at the share exchange, or in a round before its vector, while
    it travels, or before shares.
    """

    place: int
    round_index: int
    stage: str


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, bool, int, list[Leaving]]:
    """Clients, how many may be silent, whether authors blind, entries, and who leaves
    when.
    """
    n_clients = draw(st.one_of(st.integers(6, 14), st.sampled_from([32, 33, 36, 41])))
    most = max(t for t in range(n_clients) if possible(n_clients, t))
    # Sparse graphs promise t survivors' shares nearly always; up to 41 clients and few
    # silent it is certain.
    max_silent = draw(st.integers(0, most))
    n_leaving = draw(st.integers(0, max_silent))
    places = draw(
        st.lists(
            st.integers(0, n_clients - 1),
            min_size=n_leaving,
            max_size=n_leaving,
            unique=True,
        )
    )
    leaving = [
        Leaving(place, draw(st.integers(1, N_ROUNDS)), draw(st.sampled_from(STAGES)))
        for place in places
    ]
    return n_clients, max_silent, draw(st.booleans()), draw(st.integers(1, 4)), leaving


def possible(n_clients: int, max_silent: int) -> bool:
    try:
        recovery_graph(n_clients, max_silent)
    except PlanError:
        return False
    return True


@settings(max_examples=15)
@given(run=runs(), seed=st.integers(0, 2**32))
def test_the_exact_sum_of_the_survivors(
    run: tuple[int, int, bool, int, list[Leaving]], seed: int
) -> None:
    n_clients, max_silent, authored, length, leaving = run
    federation = RecoveryFederation.make(
        n_clients,
        max_silent=max_silent,
        authored=authored,
        rounds=(1, N_ROUNDS),
        n_attempts=1,
        seed=seed,
        length=length,
    )
    nodes = list(federation.states)

    def who(index: int, stage: str) -> set[int]:
        return {
            nodes[one.place]
            for one in leaving
            if one.stage == stage and one.round_index == index
        }

    federation.share(
        silent=set().union(*(who(index, "share") for index in range(1, N_ROUNDS + 1)))
    )
    for index in range(1, N_ROUNDS + 1):
        federation.gone |= who(index, "before")
        late, mute = who(index, "late"), who(index, "mute")
        expected = set(nodes) - federation.gone - late
        federation.session.open_round(index, length)
        federation.send(silent=late, blinded=authored)
        federation.give_shares(silent=mute)
        assert set(federation.session.survivors) == expected
        values = federation.session.recover(PLAN, blinded=authored).values
        truth = federation.truth().tolist()
        # Python integers, reduced once.
        vectors = federation.vectors[index, 0]
        assert set(vectors) == expected
        columns = zip(*(vectors[node].tolist() for node in expected), strict=True)
        assert truth == [sum(column) % 2**64 for column in columns]
        assert (values.tolist() == truth) is not authored
        federation.release = Release(index, 0, values)
        for node in expected - mute:
            assert federation.read(node, blinded=authored).tolist() == truth


@settings(max_examples=25)
@given(data=st.data(), n_clients=st.integers(6, 12), authored=st.booleans())
def test_the_exact_sum_after_other_attempts(
    data: st.DataObject, n_clients: int, authored: bool
) -> None:
    max_silent = max(t for t in range(n_clients) if possible(n_clients, t))
    federation = RecoveryFederation.make(
        n_clients,
        max_silent=max_silent,
        authored=authored,
        rounds=(1, 2),
        n_attempts=3,
        length=2,
    )
    federation.share()
    session = federation.session
    for index in (1, 2):
        session.open_round(index, 2)
        repeated = False
        while True:
            federation.send(repeated=repeated, blinded=authored)
            federation.give_shares()
            spare = len(session.roster.node_ids) - session.least
            if not spare or session.attempt == 2 or not data.draw(st.booleans()):
                break
            # Shares were given and are lost on the way back: what they would have
            # opened stays closed.
            lost = data.draw(st.sampled_from(session.survivors))
            del session.unmasked[lost]
            federation.gone.add(lost)
            session.retry()
            repeated = True
        values = session.recover(PLAN, blinded=authored).values
        federation.release = Release(index, session.attempt, values)
        left = session.roster.node_ids
        assert all(
            federation.read(node, blinded=authored).tolist()
            == federation.truth().tolist()
            for node in left
        )


@given(
    first=st.integers(-5, 5),
    n_rounds=st.integers(1, 20),
    n_attempts=st.integers(1, 12),
    data=st.data(),
)
def test_every_aggregation_has_a_place_of_its_own(
    first: int, n_rounds: int, n_attempts: int, data: st.DataObject
) -> None:
    slots = Slots(first, first + n_rounds - 1, n_attempts)
    asked = [
        (index, attempt)
        for index in range(first, first + n_rounds)
        for attempt in range(n_attempts)
    ]
    assert sorted(slots.index(*one) for one in asked) == list(range(slots.number))
    master = data.draw(st.binary(min_size=32, max_size=32))
    states = [
        Recover(run, node, bytes(32), 2, 0, False, b"", slots=slots, masters=2 * master)
        for run, node in ((1, 2), (2, 1))
    ]
    first_run, other = (
        {key for index in range(slots.number) for key in state.slot_keys(index)}
        for state in states
    )
    assert len(first_run) == 2 * slots.number
    assert first_run.isdisjoint(other)
