"""Masks of virtual clients that answer together: each client's own, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from support.masked_federation import FIRST_ROUND, Federation

from flwr_dpkmeans.secagg import ciphers
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.sums.virtual.group_masks import StreamBuffer, prepare_masks
from flwr_dpkmeans.sums.virtual.paired import Awaited, Paired

LENGTH = 5


@pytest.mark.parametrize("length", [0, 1, 5, 1000])
def test_a_buffer_holds_the_words_of_one_stream_after_another(length: int) -> None:
    attempt_id = (3, 2)
    buffer = StreamBuffer(attempt_id, length)
    for number in range(5):
        key = bytes([number]) * 32
        words = ciphers.stream(key, attempt_id, length)
        assert buffer.stream(key).tolist() == words.tolist()


@pytest.mark.parametrize("authored", [False, True])
@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("n_clients", [5, 40])
def test_clients_of_groups_mask_as_each_does_alone(
    n_clients: int,
    size: int,
    authored: bool,
) -> None:
    """All pairs and a sparse graph; in the second round keys are there already."""
    federation = Federation(
        tuple(range(10, 10 + n_clients)),
        authored=authored,
        max_silent=4 if n_clients > 32 else 0,
    )
    table = Awaited()
    for round_index in (FIRST_ROUND, FIRST_ROUND + 1):
        federation.open(round_index, LENGTH)
        requests = federation.requests()
        admitted = {
            node: federation.states[node].admit(request, FIRST_ROUND)
            for node, request in requests.items()
        }
        nodes = sorted(admitted, key=lambda node: node * 7 % n_clients)
        for first in range(0, n_clients, size):
            group = nodes[first : first + size]
            parties = [Paired(**vars(admitted[node]), awaited=table) for node in group]
            prepare_masks(parties, LENGTH)
            for node, party in zip(group, parties, strict=True):
                vector = FixedPointVector(np.arange(LENGTH, dtype=np.uint64))
                together, reply = party.answer(
                    requests[node], vector, blinded=False, state_digest=b"state"
                )
                federation.states[node], own = admitted[node].answer(
                    requests[node], vector, blinded=False, state_digest=b"state"
                )
                assert reply.masked.values.tolist() == own.masked.values.tolist()
                assert together.mask_keys == federation.states[node].mask_keys
                federation.deliver(node, own)
        assert not table.prepared
        total = federation.close(np.zeros(LENGTH, dtype=np.uint64))
        assert total.tolist() == [n_clients * value for value in range(LENGTH)]
