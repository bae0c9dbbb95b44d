"""Far parts of the circle that are told different survivors.

The sum is smaller, but not than what noise counts on.
"""

from __future__ import annotations

import random

from test_recovery_graph import Told

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.graph import recovery_graph
from flwr_dpkmeans.sums.draft import draft_plan

SIZE, MAX_SILENT, APART = 1000, 125, 110


def told_in_halves(chooser: random.Random) -> Told:
    """Two parts that meet where most clients collude."""
    found, everybody = recovery_graph(SIZE, MAX_SILENT), frozenset(range(SIZE))
    colluding = frozenset(chooser.sample(range(SIZE), MAX_SILENT))
    half = found.degree // 2
    order = sorted(
        range(SIZE),
        key=lambda b: (
            -sum((b + step) % SIZE in colluding for step in range(-half, half))
        ),
    )
    first = order[0]
    second = next(
        b
        for b in order
        if min((b - first) % SIZE, (first - b) % SIZE) >= 2 * APART + 40
    )
    views = {}
    for start, end in ((first, second), (second, first)):
        part = [(start + step) % SIZE for step in range((end - start) % SIZE)]
        inner = [place for place in part[APART:-APART] if place not in colluding]
        lost = [
            place
            for rank, place in enumerate(inner)
            if rank * 3 // 10 != (rank + 1) * 3 // 10
        ]
        gone = frozenset(chooser.sample(lost, min(MAX_SILENT, len(lost))))
        rest = (
            everybody - gone
        )  # one object, as what is the same object is compared at once
        views |= {
            place: (everybody, everybody if place in gone else rest) for place in part
        }
    return Told(SIZE, found, colluding, views, ticketed=True)


def test_noise_counts_on_no_more_shares_than_a_lying_server_leaves() -> None:
    config = parse_config(
        n_clusters=3, bounds=((-1,), (1,)), n_examples=10**5, trust="distributed",
        algorithm="glloyd", dropout="recover",
    )  # fmt: skip
    plan = draft_plan(config, run_id=1, n_clients=SIZE, seed=7, n_features=2)
    assert plan.max_silent == MAX_SILENT
    (part,) = told_in_halves(random.Random(0)).readable()
    # It is possible: honest clients in the sum are fewer than all without t that
    # collude and t that are lost.
    assert len(part) < SIZE - 2 * MAX_SILENT
    assert len(part) >= plan.shares.n_honest
