"""Hundreds of clients, more than fit a byte, of which some leave at every stage.

The exact sum of those that stay.

Neighbourhoods are those of `test_recovery_graph`, which goes on to thousands; here they
are smaller than the cohort.
"""

from __future__ import annotations

import numpy as np
from support.recovery_federation import PLAN, RecoveryFederation

from flwr_dpkmeans.secagg.messages import Release
from flwr_dpkmeans.secagg.messages.packed_parts import pack_boxes

N_CLIENTS, MAX_SILENT, LENGTH = 260, 13, 650


def play(n_clients: int, max_silent: int, n_dropping: int) -> RecoveryFederation:
    """Two rounds; the dropouts are spread over the share exchange and three stages of
    each round.
    """
    federation = RecoveryFederation.make(
        n_clients,
        max_silent=max_silent,
        rounds=(1, 2),
        n_attempts=2,
        length=LENGTH,
        seed=1,
    )
    dropping = (
        np.random.default_rng(2)
        .permutation(list(federation.states))[:n_dropping]
        .tolist()
    )
    stages = [dropping[start::7] for start in range(7)]
    federation.share(silent=stages[0])
    for index in (1, 2):
        before, late, mute = stages[3 * index - 2 : 3 * index + 1]
        federation.gone |= set(before)
        federation.session.open_round(index, LENGTH)
        federation.send(silent=late)
        federation.give_shares(silent=mute)
        values = federation.session.recover(PLAN, blinded=False).values
        assert len(federation.session.survivors) == n_clients - sum(
            len(stage) for stage in stages[: 3 * index]
        )
        assert values.tolist() == federation.truth().tolist()
        federation.session.require_cohort()
        federation.release = Release(index, 0, values)
    return federation


def test_hundreds_of_clients_of_which_a_twentieth_leaves() -> None:
    federation = play(N_CLIENTS, MAX_SILENT, N_CLIENTS // 20)
    assert len(federation.session.roster.node_ids) == N_CLIENTS * 19 // 20
    # What each client sends, without the transport: bounded by the neighbourhood, not
    # by the cohort.
    degree = federation.session.neighbours(10)
    assert len(degree) < N_CLIENTS // 7
    shared = max(len(pack_boxes(reply.boxes)) for reply in federation.shared.values())
    assert shared == len(degree) * (12 + 28 + 96 * 4)
    vector = federation.masked[1, 0]
    assert max(
        8 * LENGTH + len(pack_boxes(reply.boxes)) for reply in vector.values()
    ) <= 5200 + 44 * len(degree)
    given = federation.unmasked[2, 0]
    assert max(len(pack_boxes(reply.shares)) for reply in given.values()) <= 108 * len(
        degree
    )
