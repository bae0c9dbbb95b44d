"""Clients and a server of the aggregation protocol in one memory, with everything that
the server receives kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    MaskedVector,
    Release,
    SumReply,
    SumRequest,
)
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.retry_session import RetrySession
from flwr_dpkmeans.secagg.ring import FixedPointVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

FIRST_ROUND = 1


def ring(*values: int) -> Ring:
    """Ring elements from Python integers of any sign."""
    return np.array([value % 2**64 for value in values], dtype=np.uint64)


@dataclass
class Federation:
    """A cohort that has agreed on keys, and the server's records of it."""

    node_ids: tuple[int, ...]
    authored: bool = True
    max_silent: int = 0
    min_cohort: int = 2
    max_retries: int = 5
    run_id: int = 77
    states: dict[int, Retry] = field(default_factory=dict)
    received: list[tuple[int, SumReply]] = field(default_factory=list)
    noises: list[Ring] = field(default_factory=list)
    release: Release | None = None

    def __post_init__(self) -> None:
        for node in self.node_ids:
            self.states[node] = Retry(
                run_id=self.run_id, node_id=node, private_key=generate_private_key(),
                min_cohort=self.min_cohort, max_silent=self.max_silent,
                authored=self.authored, plan_digest=b"digest of the plan",
            )  # fmt: skip
        keys = {
            node: public_key_of(state.private_key)
            for node, state in self.states.items()
        }
        self.server = RetrySession(
            Roster.of(0, keys),
            min_cohort=self.min_cohort,
            max_retries=self.max_retries,
            max_silent=self.max_silent,
            authored=self.authored,
        )

    def open(self, round_index: int, length: int) -> None:
        """Start a round."""
        self.server.open_round(round_index, length)

    def requests(self, *, repeated: bool = False) -> dict[int, SumRequest]:
        """What the server sends in the open round and attempt."""
        server = self.server
        return {
            node: server.request(node, None if repeated else self.release, b"")
            for node in server.roster.node_ids
        }

    def answer(
        self,
        node: int,
        request: SumRequest,
        vector: Ring,
        state_digest: bytes = b"state",
    ) -> SumReply:
        """Let one client answer, and move it on."""
        admitted = self.states[node].admit(request, FIRST_ROUND)
        self.states[node], reply = admitted.answer(
            request,
            FixedPointVector(vector),
            blinded=self.authored,
            state_digest=state_digest,
        )
        return reply

    def deliver(self, node: int, reply: SumReply) -> None:
        """Hand a reply to the server, which keeps a record of it whether it accepts it
        or not.
        """
        self.received.append((node, reply))
        self.server.receive(node, reply)

    def attempt(
        self,
        vectors: Mapping[int, Ring],
        *,
        silent: tuple[int, ...] = (),
        repeated: bool = False,
        digests: Mapping[int, bytes] | None = None,
    ) -> dict[int, SumReply]:
        """All clients of the roster answer.

        The replies of the `silent` ones do not arrive and are returned.
        """
        held_back = {}
        for node, request in self.requests(repeated=repeated).items():
            reply = self.answer(
                node, request, vectors[node], (digests or {}).get(node, b"state")
            )
            if node in silent:
                held_back[node] = reply
            else:
                self.deliver(node, reply)
        return held_back

    def close(self, noise: Ring) -> Ring:
        """The server aggregates, adds noise and keeps the release.

        Returns the aggregate before noise.
        """
        aggregate = self.server.aggregate(blinded=self.authored)
        self.noises.append(noise)
        self.release = Release(
            self.server.round_index, self.server.attempt, aggregate.values + noise
        )
        return aggregate.values

    def run_round(
        self, round_index: int, vectors: Mapping[int, Ring], noise: Ring
    ) -> Ring:
        """One undisturbed round; returns the aggregate before noise."""
        self.open(round_index, len(noise))
        self.attempt(vectors)
        return self.close(noise)

    def read_release(self) -> dict[int, Ring]:
        """What every client reads in the last release, with its boxes opened if they
        are due.
        """
        assert self.release is not None
        read = {}
        for node in self.server.roster.node_ids:
            request = FinishRequest(self.release, self.server.take_boxes(node))
            self.states[node] = self.states[node].finish(request)
            read[node] = (
                self.states[node].unblind(self.release, blinded=self.authored).values
            )
        return read

    def final_tags(self, digests: Mapping[int, bytes]) -> dict[int, bytes]:
        """Tags of the clients' last states."""
        return {
            node: (
                self.states[node].tag(
                    self.server.round_index + 1, self.server.attempt, digests[node]
                )
            )
            for node in self.server.roster.node_ids
        }


def altered(reply: SumReply, values: Ring) -> SumReply:
    """A reply with another vector."""
    return SumReply(
        reply.round_index, reply.attempt, MaskedVector(values), reply.tag, reply.boxes
    )


def combinations(vectors: Iterable[Ring | int]) -> Ring:
    """All sums of words with coefficients -1, 0 and 1."""
    sums = np.zeros(1, dtype=np.uint64)
    for vector in vectors:
        word = np.asarray(vector, dtype=np.uint64)
        sums = np.concatenate([sums, sums + word, sums - word])
    return sums
