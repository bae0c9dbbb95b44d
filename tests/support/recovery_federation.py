"""Clients and a server that recover sums, in memory, with the truth beside them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.graph import RecoveryGraph
from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    Release,
    ShareReply,
    ShareRequest,
    SumReply,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.recover_session import RecoverSession
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.slots import Slots

Words = NDArray[np.uint64]
PLAN = b"p" * 32
RUN = 7


@dataclass
class RecoveryFederation:
    """A run; `gone` never answer again; whoever falls silent joins them."""

    states: dict[int, Recover]
    session: RecoverSession
    first_round: int
    generator: np.random.Generator
    length: int = 3
    gone: set[int] = field(default_factory=set)
    vectors: dict[tuple[int, int], dict[int, Words]] = field(default_factory=dict)
    masked: dict[tuple[int, int], dict[int, SumReply]] = field(default_factory=dict)
    unmasked: dict[tuple[int, int], dict[int, UnmaskReply]] = field(
        default_factory=dict
    )
    shared: dict[int, ShareReply] = field(default_factory=dict)
    all_vectors: dict[tuple[int, int], dict[int, Words]] = field(default_factory=dict)
    cohorts: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    named: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    release: Release | None = None

    @classmethod
    def make(
        cls,
        n_clients: int,
        *,
        max_silent: int = 1,
        rounds: tuple[int, int] = (1, 3),
        n_attempts: int = 2,
        authored: bool = False,
        min_cohort: int = 2,
        seed: int = 0,
        length: int = 3,
    ) -> RecoveryFederation:
        """Clients that have agreed on keys."""
        slots = Slots(*rounds, n_attempts)
        states = {
            node: Recover(
                RUN, node, generate_private_key(), min_cohort, max_silent, authored,
                PLAN, slots=slots,
            )
            for node in range(10, 10 + n_clients)
        }  # fmt: skip
        roster = Roster.of(
            0,
            {node: public_key_of(state.private_key) for node, state in states.items()},
        )
        session = RecoverSession(
            RUN, roster, slots, min_cohort=min_cohort, max_retries=n_attempts - 1,
            max_silent=max_silent, authored=authored,
        )  # fmt: skip
        return cls(states, session, rounds[0], np.random.default_rng(seed), length)

    def made_of(
        self, client: type[Recover], graph: RecoveryGraph | None = None
    ) -> RecoveryFederation:
        """The run with other clients, and a server that goes by the same graph."""
        self.states = {
            node: client(**vars(state)) for node, state in self.states.items()
        }
        if graph is not None:
            self.session.graph = graph
        return self

    def share(self, silent: Collection[int] = ()) -> None:
        """The exchange of key shares."""
        self.gone |= set(silent)
        request = ShareRequest(self.session.sharers)
        for node, state in self.states.items():
            if node not in self.gone:
                self.states[node], reply = state.share(request)
                self.session.receive_shares(node, reply)
                self.shared[node] = reply
        self.session.close_shares()

    def request_for(self, node: int, *, repeated: bool = False) -> SumRequest:
        """The open round's request to one client."""
        session = self.session
        boxes, group_boxes = session.take_boxes(node)
        return SumRequest(
            session.round_index,
            session.attempt,
            release=None if repeated else self.release,
            boxes=boxes,
            cohort=session.roster.node_ids,
            group_boxes=group_boxes,
        )

    def send(
        self,
        silent: Collection[int] = (),
        *,
        repeated: bool = False,
        blinded: bool = False,
    ) -> None:
        """Ask for vectors; `silent` clients answer, but too late."""
        session = self.session
        asked = (session.round_index, session.attempt)
        values, replies = (
            self.vectors.setdefault(asked, {}),
            self.masked.setdefault(asked, {}),
        )
        everything, self.cohorts[asked] = (
            self.all_vectors.setdefault(asked, {}),
            session.roster.node_ids,
        )
        for node in session.roster.node_ids:
            if node in self.gone:
                continue
            request = self.request_for(node, repeated=repeated)
            state = self.states[node].admit(request, self.first_round)
            vector = self.generator.integers(0, 2**64, self.length, dtype=np.uint64)
            self.states[node], replies[node] = state.answer(
                request,
                FixedPointVector(vector),
                blinded=blinded,
                state_digest=b"state",
            )
            everything[node] = vector
            if node not in silent:
                session.receive(node, replies[node])
                values[node] = vector
        self.gone |= set(silent)

    def give_shares(self, silent: Collection[int] = ()) -> None:
        """Ask the survivors for shares."""
        session = self.session
        session.close_vectors()
        asked = (session.round_index, session.attempt)
        replies = self.unmasked.setdefault(asked, {})
        self.named[asked] = session.survivors
        for node in session.survivors:
            if node in silent or node in self.gone:
                continue
            request = UnmaskRequest(*asked, session.survivors)
            self.states[node], replies[node] = self.states[node].unmask(request)
            session.receive_unmask(node, replies[node])
        self.gone |= set(silent)

    def round(
        self,
        index: int,
        silent: Collection[int] = (),
        mute: Collection[int] = (),
        *,
        blinded: bool = False,
    ) -> Words:
        """One whole aggregation: `silent` lose their vector, `mute` their shares.

        Returns what the server has.
        """
        self.session.open_round(index, self.length)
        repeated = False
        while True:
            self.send(silent, repeated=repeated, blinded=blinded)
            self.give_shares(mute)
            try:
                values = self.session.recover(PLAN, blinded=blinded).values
            except ProtocolError:
                self.session.retry()
                silent, mute, repeated = (), (), True
                continue
            self.release = Release(index, self.session.attempt, values)
            return values

    def truth(self) -> Words:
        """Sum of the vectors that arrived in the last aggregation."""
        vectors = self.vectors[self.session.round_index, self.session.attempt]
        return sum(vectors.values(), np.zeros(self.length, dtype=np.uint64))

    def read(self, node: int, *, blinded: bool) -> Words:
        """What one client reads of the last release."""
        assert self.release is not None
        finished = self.states[node].finish(FinishRequest(self.release))
        return finished.unblind(self.release, blinded=blinded).values
