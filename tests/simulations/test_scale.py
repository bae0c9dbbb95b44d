"""The tree of aggregators: exact sums of masked vectors, of which no part is readable."""

from __future__ import annotations

import numpy as np
import pytest

from simulations import scale


def test_a_tree_adds_masked_vectors_exactly_and_its_groups_are_noise() -> None:
    tiers, is_exact, is_readable = scale.tree(50, 7, 3)
    assert [(tier.n_nodes, tier.vectors) for tier in tiers] == [(8, 7), (2, 7), (1, 2)]
    assert is_exact
    assert not is_readable


def test_without_masks_a_group_would_be_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale.keys, "stream", lambda *args: np.zeros(args[-1], dtype=np.uint64))
    assert scale.tree(50, 7, 3)[1:] == (True, True)
