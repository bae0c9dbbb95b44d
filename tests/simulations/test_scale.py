"""The tree of aggregators: exact sums of masked vectors, of which no part is readable."""

from __future__ import annotations

import numpy as np
import pytest

from simulations import scale
from simulations.kernel_speed import Timing


def test_a_tree_adds_masked_vectors_exactly_and_its_groups_are_noise() -> None:
    tiers, is_exact, is_readable = scale.tree(50, 7, 3)
    assert [(tier.n_nodes, tier.vectors) for tier in tiers] == [(8, 7), (2, 7), (1, 2)]
    assert is_exact
    assert not is_readable


def test_without_masks_a_group_would_be_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale.keys, "stream", lambda *args: np.zeros(args[-1], dtype=np.uint64))
    assert scale.tree(50, 7, 3)[1:] == (True, True)


def test_growth_is_measured_and_drawn_and_its_slope_is_that_of_a_power(monkeypatch: pytest.MonkeyPatch) -> None:
    timings = tuple(Timing((3.0 * size**2,), (1.0,)) for size in (1, 2, 4))
    assert scale.Growth("rows N", (1, 2, 4), timings).slope == pytest.approx(2.0)
    monkeypatch.setattr(scale, "START", {name: min(size, 300) for name, size in scale.START.items()})
    curves = tuple(scale.growth(1, 1))
    assert [one.sizes for one in curves] == [(300, 600), (8, 16), (8, 16), (4, 8)]
    assert scale.growth_table(curves).row_count == 4
    assert scale.draw_growth(curves).startswith(b"\x89PNG")


def test_what_others_published_is_marked_as_such() -> None:
    table = scale.published_table()
    assert str(table.title).startswith("PUBLISHED, not measured here")
    assert table.row_count > 0
