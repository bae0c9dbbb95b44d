"""What replies are tagged with, so that clients compare what they have computed and
nobody can pass on an old tag.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.outcome import Discoveries


def test_the_last_tag_is_of_the_round_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two rounds: the third tag covers the result, and is none that was sent before."""
    asked: list[int] = []
    tag = Party.tag

    def noted(self: Party, round_index: int, attempt: int, digest: bytes) -> bytes:
        asked.append(round_index)
        return tag(self, round_index, attempt, digest)

    monkeypatch.setattr(Party, "tag", noted)
    config = parse_config(
        n_clusters=2,
        algorithm="glloyd",
        max_iter=2,
        bounds=((-1.0,), (1.0,)),
        n_examples=20,
        random_state=7,
    )
    plan = draft_plan(config, run_id=9, n_clients=2, seed=7, n_features=2)
    run_direct(plan, [np.zeros((10, 2))] * 2)
    assert asked == [1, 1, 2, 2, 3, 3]


def test_before_there_are_centroids_a_tag_covers_what_was_found() -> None:
    """Nothing at first; then the number of rows that a private count told."""
    found = Discoveries(n_examples=100)
    for told, covered in ((Discoveries(), b""), (found, found.digest())):
        memory: Any = SimpleNamespace(clusters=None, discoveries=told)
        assert Memory.digest(memory) == covered
    assert found.digest()
