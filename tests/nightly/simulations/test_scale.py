"""The tree of aggregators: exact sums of vectors that nobody can read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from support.crypto import replace_stream

from flwr_dpkmeans.secagg.graph import recovery_graph
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.aggregation import AGGREGATORS
from flwr_dpkmeans.sums.plan import Plan
from simulations.benchmarks import scale
from simulations.benchmarks.kernel_speed import Timing


def test_a_tree_adds_masked_vectors_exactly_and_its_groups_are_noise() -> None:
    tiers, is_exact, is_readable = scale.tree(50, 7, 3)
    assert [(tier.n_nodes, tier.vectors) for tier in tiers] == [(8, 7), (2, 7), (1, 2)]
    assert is_exact
    assert not is_readable


def test_without_masks_a_group_would_be_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace_stream(
        monkeypatch, lambda key, asked, length: np.zeros(length, dtype=np.uint64)
    )
    assert scale.tree(50, 7, 3)[1:] == (True, True)


def test_growth_is_measured_and_drawn_and_its_slope_is_that_of_a_power() -> None:
    timings = tuple(Timing((3.0 * size**2,), (1.0,)) for size in (1, 2, 4))
    assert scale.Growth("rows N", (1, 2, 4), timings).slope == pytest.approx(2.0)
    start = {name: min(size, 300) for name, size in scale.START.items()}
    curves = tuple(scale.growth(1, 1, start))
    assert [one.sizes for one in curves] == [(300, 600), (8, 16), (8, 16), (4, 8)]
    assert scale.growth_table(curves).row_count == 4
    assert scale.draw_growth(curves).startswith(b"\x89PNG")


def test_what_others_published_is_marked_as_such() -> None:
    table = scale.published_table()
    assert str(table.title).startswith("PUBLISHED, not measured here")
    assert table.row_count > 0


@pytest.mark.parametrize("n_clients", [2, 3, 30, 32, 33, 34, 100])
def test_the_planner_counts_the_neighbours_that_clients_have(n_clients: int) -> None:
    roster = Roster.of(0, {node: bytes([node]) * 32 for node in range(n_clients)})
    for max_silent in range(5):
        plan = SimpleNamespace(n_clients=n_clients, max_silent=max_silent)
        n_neighbours = len(roster.neighbours(0, max_silent))
        pairs = AGGREGATORS["retry"].mask_pairs(cast("Plan", plan))
        assert pairs == (n_neighbours, n_neighbours)


def test_in_recovery_a_client_agrees_with_each_neighbour_in_each_round() -> None:
    plan = SimpleNamespace(n_clients=100, max_silent=5, all_rounds=range(3))
    degree = recovery_graph(100, 5).degree
    pairs = AGGREGATORS["recover"].mask_pairs(cast("Plan", plan))
    assert pairs == (degree, 4 * degree)
