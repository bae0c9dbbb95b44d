"""A server that keeps all it gets, works with some clients, and tells each client what
it likes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flwr_dpkmeans.secagg import agreement
from flwr_dpkmeans.secagg.agreement import cohort_of, combine, lock, survivors_view
from flwr_dpkmeans.secagg.keys import agree_pair_keys, piece
from flwr_dpkmeans.secagg.messages import (
    SumReply,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.secagg.roster import transcript_of
from flwr_dpkmeans.secagg.shamir import reconstruct
from support.recovery_federation import PLAN, RUN, RecoveryFederation, Words

Asked = tuple[int, int]
Keys = tuple[dict[int, bytes], dict[int, bytes]]


@dataclass
class HostileServer:
    """What a server and its colluders know of one aggregation, and what they make of
    it.

    `told` are cohorts by client, `named` the survivors by client; `sent` and `given`
    what came back, late or not. Colluders are honest in their messages, but hand their
    states over.
    """

    federation: RecoveryFederation
    asked: Asked
    colluders: Collection[int] = ()
    told: dict[int, tuple[int, ...]] = field(default_factory=dict)
    named: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sent: dict[int, SumReply] = field(default_factory=dict)
    given: dict[int, UnmaskReply] = field(default_factory=dict)
    vectors: dict[int, Words] = field(default_factory=dict)

    @classmethod
    def watching(
        cls,
        federation: RecoveryFederation,
        asked: Asked,
        colluders: Collection[int] = (),
    ) -> HostileServer:
        """The records of an aggregation in which the server told everybody the same."""
        sent, given = federation.masked[asked], federation.unmasked.get(asked, {})
        told = dict.fromkeys(sent, federation.cohorts[asked])
        named = dict.fromkeys(given, federation.named[asked])
        return cls(
            federation, asked, colluders, told, named, dict(sent), dict(given),
            federation.all_vectors[asked],
        )  # fmt: skip

    def ask_vectors(
        self, told: Mapping[int, Iterable[int]], *, blinded: bool = False
    ) -> None:
        """Ask every client for its vector, telling it a cohort of its own.

        With the first request come its boxes.
        """
        federation, session = self.federation, self.federation.session
        for node, nodes in told.items():
            cohort = tuple(sorted(nodes))
            boxes, group_boxes = session.take_boxes(node)
            request = SumRequest(
                *self.asked,
                release=federation.release if federation.release is not None else None,
                boxes={peer: box for peer, box in boxes.items() if peer in cohort},
                cohort=cohort,
                group_boxes={
                    peer: box for peer, box in group_boxes.items() if peer in cohort
                },
            )
            state = federation.states[node].admit(request, federation.first_round)
            vector = federation.generator.integers(
                0, 2**64, federation.length, dtype=np.uint64
            )
            federation.states[node], self.sent[node] = state.answer(
                request,
                FixedPointVector(vector),
                blinded=blinded,
                state_digest=b"state",
            )
            self.told[node], self.vectors[node] = cohort, vector

    def ask_shares(self, named: Mapping[int, Iterable[int]]) -> None:
        """Ask every client for shares, telling it survivors of its own."""
        for node, nodes in named.items():
            survivors = tuple(sorted(nodes))
            states = self.federation.states
            states[node], self.given[node] = states[node].unmask(
                UnmaskRequest(*self.asked, survivors)
            )
            self.named[node] = survivors

    # What follows from it.

    @property
    def threshold(self) -> int:
        return self.federation.session.graph.threshold

    @property
    def _any(self) -> Recover:
        return next(iter(self.federation.states.values()))

    def neighbours(self, node: int) -> tuple[int, ...]:
        return self.federation.session.neighbours(node)

    def transcript(self, node: int) -> bytes:
        """What a client masks under, by the cohort that it was told."""
        return transcript_of(
            PLAN,
            cohort_of(
                self.federation.session.sharers, self.asked[1], self.told[node]
            ).digest,
        )

    def opened(self) -> dict[int, dict[int, bytes]]:
        """Shares by holder and owner, of those whose locks open with the tickets of
        whoever was told the same.
        """
        shares = {}
        for holder, reply in self.given.items():
            view = survivors_view(
                self.asked, self.transcript(holder), self.named[holder]
            )
            parts = {}
            for place, peer in enumerate(self.neighbours(holder), start=1):
                if peer not in reply.shares:
                    continue
                if peer in self.colluders:
                    known = self._ticket_of(peer, holder, view)
                elif peer in self.given and holder in self.given[peer].shares:
                    known = self.given[peer].shares[holder][32:64]
                    if known != self._ticket_of(peer, holder, view):
                        # it was told something else, and its ticket gives noise
                        continue
                else:
                    continue
                parts[place] = combine(reply.shares[peer][64:], known)
            if len(parts) >= self.threshold:
                opening = reconstruct(dict(list(parts.items())[: self.threshold]))
                shares[holder] = {
                    owner: combine(sent[:32], lock(opening, owner))
                    for owner, sent in reply.shares.items()
                }
        return shares

    def _ticket_of(self, sender: int, recipient: int, view: bytes) -> bytes:
        """A client's ticket for a view.

        The server can ask colluders for it, and sees what others sent.
        """
        ticket_keys = dict(self.federation.states[sender].ticket_keys)
        return agreement.ticket(ticket_keys[recipient], sender, recipient, view)

    def keys(self) -> Keys:
        """Self-mask seeds and private keys of this aggregation that enough shares are
        at hand for.
        """
        place = self._any.slots.index(*self.asked)
        number = self._any.slots.number
        selves: dict[int, dict[int, bytes]] = {}
        privates: dict[int, dict[int, bytes]] = {}
        opened = self.opened()
        for owner in self.federation.shared:
            for coordinate, holder in enumerate(self.neighbours(owner), start=1):
                held = dict(self.federation.states[holder].held_shares)
                if holder in self.colluders and owner in held:
                    selves.setdefault(owner, {})[coordinate] = piece(held[owner], place)
                    privates.setdefault(owner, {})[coordinate] = piece(
                        held[owner], number + place
                    )
                elif holder in opened and owner in opened[holder]:
                    if owner not in self.named[holder]:
                        privates.setdefault(owner, {})[coordinate] = opened[holder][
                            owner
                        ]
                    elif owner in self.sent:
                        # The owner's ticket, made from the cohort that it was told,
                        # takes the pad away or does not.
                        pad = self.sent[owner].boxes.get(holder, bytes(32))
                        selves.setdefault(owner, {})[coordinate] = combine(
                            opened[holder][owner], pad
                        )
        known = []
        for table in (selves, privates):
            known.append(
                {
                    owner: reconstruct(dict(list(parts.items())[: self.threshold]))
                    for owner, parts in table.items()
                    if len(parts) >= self.threshold
                }
            )
        return known[0], known[1]

    def reading(self, nodes: Collection[int], keys: Keys | None = None) -> Words | None:
        """The sum of some clients' vectors as this server would compute it.

        None where it lacks a mask.

        `keys` spare it from finding them again, where nothing has come since.
        """
        selves, privates = keys or self.keys()
        slots = self._any.slots
        place = slots.index(*self.asked)
        for colluder in self.colluders:
            state = self.federation.states[colluder]
            selves[colluder], privates[colluder] = state.slot_keys(place)
        total = np.zeros(self.federation.length, dtype=np.uint64)
        for node in nodes:
            if node not in selves or node not in self.sent:
                return None
            transcript = self.transcript(node)
            length = self.federation.length
            total += self.sent[node].masked.values
            total -= self.self_mask(node, selves[node])
            for peer in self.neighbours(node):
                if peer not in self.told[node]:
                    continue
                if peer in nodes and self.told[peer] == self.told[node]:
                    continue  # cancels
                mine, other = (node, peer) if node in privates else (peer, node)
                if mine not in privates:
                    return None
                public = piece(self.federation.shared[other].public_keys, place)
                pair = agree_pair_keys(privates[mine], {other: public}, RUN, mine)[
                    other
                ]
                total -= agreement.pair_mask(
                    pair, node, peer, self.asked, transcript, length
                )
        return total

    def self_mask(self, node: int, seed: bytes) -> Words:
        """What a client adds to its vector besides what it shares with others."""
        return agreement.self_mask(
            seed, RUN, node, self.asked, self.transcript(node), self.federation.length
        )

    def readable_parts(self) -> list[set[int]]:
        """The smallest sets of clients whose sum this server can read.

        No mask that it lacks leads out of them.
        """
        selves, privates = self.keys()
        honest = set(self.sent) - set(self.colluders)
        unknown: dict[int, set[int]] = {}
        for node in honest:
            peers = {peer for peer in self.neighbours(node) if peer in self.told[node]}
            unknown[node] = (
                set()
                if node in privates
                else peers - set(privates) - set(self.colluders)
            )
        parts, seen = [], set()
        for node in sorted(honest):
            if node in seen:
                continue
            part, todo = set(), [node]
            while todo:
                reached = todo.pop()
                if reached not in part and reached in honest:
                    part.add(reached)
                    todo.extend(unknown[reached])
                    todo.extend(other for other in honest if reached in unknown[other])
            seen |= part
            cancels = all(
                self.told.get(peer) == self.told[member]
                for member in part
                for peer in unknown[member]
            )
            if cancels and part <= set(selves):
                parts.append(part)
        return parts

    def truth(self, nodes: Collection[int]) -> Words:
        """The plain sum."""
        return sum(
            (self.vectors[node] for node in nodes),
            np.zeros(self.federation.length, dtype=np.uint64),
        )

    def reads(self, nodes: Collection[int], keys: Keys | None = None) -> bool:
        """Whether the server reads the plain sum of these clients' vectors."""
        found = self.reading(nodes, keys)
        return found is not None and found.tolist() == self.truth(nodes).tolist()


def ring_order(federation: RecoveryFederation) -> tuple[int, ...]:
    """Clients around the circle."""
    return federation.session.sharers.hashed_order


def without(nodes: Iterable[int], gone: Iterable[int]) -> tuple[int, ...]:
    """Nodes that are left, ascending."""
    return tuple(sorted(set(nodes) - set(gone)))


def altered(reply: UnmaskReply, owner: int, part: bytes) -> UnmaskReply:
    """A reply with something else for one neighbour."""
    return replace(reply, shares={**reply.shares, owner: part})
