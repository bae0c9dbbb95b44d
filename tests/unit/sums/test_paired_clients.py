"""Virtual clients that look up what their peer has agreed on: the same bytes, from half as many agreements."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from support.masked_federation import Federation

from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.sums.local import Paired

NODES = (3, 8, 11, 40, 99)


@pytest.mark.parametrize("authored", [False, True])
def test_the_second_of_two_looks_up_the_key_that_it_would_agree_on(
    monkeypatch: pytest.MonkeyPatch, authored: bool
) -> None:
    """Bit for bit, in two rounds and a retry."""
    agreed: list[int] = []
    agree = keys.agree_pair_keys

    def noted(private_key: bytes, public_keys: dict[int, bytes], *args: int) -> Any:
        agreed.extend(public_keys)
        return agree(private_key, public_keys, *args)

    monkeypatch.setattr(keys, "agree_pair_keys", noted)
    monkeypatch.setattr(keys, "generate_group_key", lambda: bytes(range(32)))
    federation = Federation(NODES, authored=authored)
    server, alone, table = federation.server, federation.states, dict[bytes, bytes]()
    paired = {node: Paired(**vars(state), agreed=table) for node, state in alone.items()}
    vectors = {node: np.arange(3, dtype=np.uint64) + np.uint64(node) for node in NODES}
    found: list[tuple[list[Any], int]] = []
    for states in (alone, paired):
        agreed.clear()
        federation.states, federation.server = dict(states), copy.deepcopy(server)
        federation.received, federation.release = [], None
        federation.run_round(1, vectors, np.zeros(3, dtype=np.uint64))
        federation.open(2, 3)
        federation.attempt(vectors, silent=(11,))
        federation.server.retry()
        federation.attempt(vectors, repeated=True)
        found.append(([reply.masked.values.tolist() for _, reply in federation.received], len(agreed)))
    assert found[0][0] == found[1][0]
    assert found[0][1] == 2 * found[1][1] == 20
    assert not table
