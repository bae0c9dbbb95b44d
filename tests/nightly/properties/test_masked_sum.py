"""Masked equals unmasked bit for bit in any cohort, and no part of a cohort can be
read.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumRequest
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.retry_session import RetrySession
from flwr_dpkmeans.secagg.ring import FixedPointVector, Ring
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Roster

EXTREMES = (0, 1, 2**16, 2**31, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1)
NODE_IDS = st.one_of(
    st.integers(0, 2**64 - 1), st.integers(0, 60), st.integers(2**64 - 60, 2**64 - 1)
)
ENTRIES = st.one_of(st.sampled_from(EXTREMES), st.integers(0, 2**64 - 1))
# Drawing keys costs more than anything else here.
PRIVATE_KEYS = [generate_private_key() for _ in range(40)]
PUBLIC_KEYS = [public_key_of(key) for key in PRIVATE_KEYS]


@st.composite
def cohorts(draw: st.DrawFn, largest: int = 32) -> dict[int, list[int]]:
    """Any node ids with any vectors of one length.

    As many with masks of all pairs as with those of a sparser graph.
    """
    sparse = st.integers(ALL_PAIRS_UP_TO + 1, 40)
    size = draw(st.one_of(st.integers(2, largest), sparse))
    nodes = draw(st.lists(NODE_IDS, min_size=size, max_size=size, unique=True))
    length = draw(st.integers(1, 5))
    # One seed instead of size * length draws; extremes of the ring are half of the
    # entries.
    chooser = random.Random(draw(st.integers(0, 2**32)))
    fixed = draw(ENTRIES)
    return {
        node: [
            chooser.choice((fixed, chooser.choice(EXTREMES), chooser.getrandbits(64)))
            for _ in range(length)
        ]
        for node in nodes
    }


def masked_round(
    cohort: dict[int, list[int]], *, authored: bool, max_silent: int
) -> tuple[dict[int, Ring], Ring, dict[int, Ring]]:
    """Every client's masked vector, the server's aggregate, and what every client
    reads.
    """
    states = {
        node: Retry(1, node, key, 2, max_silent, authored, b"plan")
        for node, key in zip(cohort, PRIVATE_KEYS, strict=False)
    }
    roster = Roster.of(0, dict(zip(cohort, PUBLIC_KEYS, strict=False)))
    server = RetrySession(
        roster, min_cohort=2, max_retries=0, max_silent=max_silent, authored=authored
    )
    server.open_round(1, len(next(iter(cohort.values()))))
    masked = {}
    for node, values in cohort.items():
        request = SumRequest(1, 0, roster)
        vector = FixedPointVector(np.array(values, dtype=np.uint64))
        admitted = states[node].admit(request, 1)
        states[node], reply = admitted.answer(
            request, vector, blinded=authored, state_digest=b""
        )
        server.receive(node, reply)
        masked[node] = reply.masked.values
    aggregate = server.aggregate(blinded=authored).values
    release = Release(1, 0, aggregate)
    read = {}
    for node in list(cohort)[:3]:
        finished = states[node].finish(FinishRequest(release, server.take_boxes(node)))
        read[node] = finished.unblind(release, blinded=authored).values
    return masked, aggregate, read


def plain_sum(cohort: dict[int, list[int]], nodes: list[int]) -> list[int]:
    """Sum in Python integers, reduced once."""
    return [
        sum(column) % 2**64
        for column in zip(*(cohort[node] for node in nodes), strict=True)
    ]


@settings(max_examples=60)
@given(
    cohort=cohorts(),
    authored=st.booleans(),
    max_silent=st.integers(0, 6),
)
def test_masked_equals_unmasked_bit_for_bit(
    cohort: dict[int, list[int]], authored: bool, max_silent: int
) -> None:
    masked, aggregate, read = masked_round(
        cohort, authored=authored, max_silent=max_silent
    )
    expected = plain_sum(cohort, list(cohort))
    assert all(values.tolist() == expected for values in read.values())
    assert (aggregate.tolist() == expected) is not authored
    assert all(masked[node].tolist() != values for node, values in cohort.items())


@settings(max_examples=15)
@given(
    cohort=cohorts(largest=9),
    authored=st.booleans(),
    max_silent=st.integers(0, 3),
)
def test_no_proper_subset_of_masked_vectors_adds_up_to_its_plain_sum(
    cohort: dict[int, list[int]], authored: bool, max_silent: int
) -> None:
    masked, _, _ = masked_round(cohort, authored=authored, max_silent=max_silent)
    nodes = list(cohort)
    for size in range(1, len(nodes) + int(authored)):
        # All of them of few nodes; of many there are 10^12.
        for subset in itertools.islice(itertools.combinations(nodes, size), 130):
            total = np.sum([masked[node] for node in subset], axis=0, dtype=np.uint64)
            assert total.tolist() != plain_sum(cohort, list(subset))


@settings(max_examples=60)
@given(
    size=st.integers(33, 120), max_silent=st.integers(0, 12), seed=st.integers(0, 2**32)
)
def test_the_mask_graph_stays_connected_without_any_t_nodes(
    size: int, max_silent: int, seed: int
) -> None:
    chooser = random.Random(seed)
    nodes = chooser.sample(range(10_000), size)
    roster = Roster.of(0, {node: (node + 1).to_bytes(32, "little") for node in nodes})
    edges = {node: set(roster.neighbours(node, max_silent)) for node in nodes}
    cuts = [chooser.sample(nodes, max_silent) for _ in range(10)]
    # The most dangerous choice: all but the last of one node's neighbours.
    cuts += [sorted(edges[node])[:max_silent] for node in chooser.sample(nodes, 5)]
    for cut in cuts:
        left = set(nodes) - set(cut)
        reached: set[int] = set()
        todo = [min(left)]
        while todo:
            node = todo.pop()
            if node not in reached:
                reached.add(node)
                todo.extend(edges[node] & left)
        assert reached == left
