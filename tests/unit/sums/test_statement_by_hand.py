"""What a report says of a run, against prices and plans written out here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import build_report, why_not_private
from flwr_dpkmeans.sums.task import ServerFacts

ATTEMPTS = ((1, 0), (1, 1), (2, 1))


def plan_of(**values: Any) -> Plan:
    settings = {"algorithm": "glloyd", "n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "n_examples": 1000, "max_iter": 2}
    return draft_plan(parse_config(**(settings | values)), run_id=4, n_clients=5, seed=1, n_features=2)


def test_each_line_costs_what_was_released_up_to_it() -> None:
    plan = plan_of()
    lines = build_report(plan, ATTEMPTS).releases
    indices = [index for index, _ in ATTEMPTS]
    for position, (index, attempt) in enumerate(ATTEMPTS):
        told = {line.epsilon_so_far for line in lines if (line.round_index, line.attempt) == (index, attempt)}
        assert told == {compose_epsilon(plan.events(indices[: position + 1]), plan.delta)}


def test_one_release_without_noise_is_enough_for_not_private() -> None:
    """Of an algorithm that has noise otherwise: a block may say that it has none."""
    plan = plan_of()
    assert plan.is_private
    first = plan.rounds[0]
    bare = replace(first.blocks[0], noise=NoiseShape.NONE, noise_multiplier=0.0)
    exact = replace(plan, rounds=(replace(first, blocks=(bare, *first.blocks[1:])), *plan.rounds[1:]))
    assert not exact.is_private


def test_entries_of_clipped_sums_and_counts_are_bounded_by_one_row() -> None:
    """A row adds at most the data's radius to an entry of the sums, and 1 to one count."""
    config = parse_config(n_clusters=3, bounds=((-1.0,), (1.0,)), algorithm="feddp_kmeans", trust="central")
    facts = ServerFacts(30, (0.0, 0.0), 0.5, 0.1)
    plan = draft_plan(config, run_id=1, n_clients=20, seed=1, n_features=2, server=facts)
    blocks = {block.name: block for planned in plan.rounds for block in planned.blocks}
    assert blocks["counts"].entry_bound == 1.0
    assert blocks["clipped_sums"].entry_bound == blocks["clipped_sums"].sensitivity.bound


def test_seeded_coins_protect_nobody_either() -> None:
    coins = "So do the clients' coins: whoever knows the seed knows who takes part."
    all_take_part = {
        "algorithm": "proxy_lloyd",
        "unit": "client",
        "noise": "seeded",
        "n_examples": 1000,
        "trust": "central",
    }
    assert coins not in why_not_private(plan_of(**all_take_part))
    assert coins in why_not_private(plan_of(**all_take_part, client_sampling_rate=0.5))
