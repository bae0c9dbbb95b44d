"""Which plans the client computes, and at what price."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from second_client.algorithm import GRID, noise_growth, n_sure
from second_client.wire import Fields, read_json, require

VECTORS = Path(__file__).parents[1] / "vectors"
CONVERSATION = json.loads((VECTORS / "conversation_oblivious.json").read_text())
EXAMPLE = json.loads(CONVERSATION["steps"][0]["request"]["fields"]["plan"]["utf8"])
TRUSTS = ("oblivious", "central", "distributed")
FREE_SETTINGS = ("bounds", "epsilon", "delta", "trust", "noise", "n_examples")
FREE_SETTINGS += ("random_state", "n_clients", "min_clients", "max_silent")
FREE_SETTINGS += ("max_retries", "max_epsilon")
FREE_OPTIONS = ("max_iter", "noise_schedule", "alpha", "schedule")


def adopt(expected: Fields, entries: Fields, *names: str) -> None:
    """Take over what may differ from the example, of the same type."""
    for name in names:
        value, example = entries[name], expected[name]
        is_optional = value is None or type(value) in (int, float)
        fits = is_optional if example is None else type(value) is type(example)
        require(fits, f"{name} is of another type")
        expected[name] = value


def expected_plan(plan: Fields, run: int, n_features: int) -> Fields:
    """The example, with what this client can compute in other sizes, too."""
    expected = copy.deepcopy(EXAMPLE)
    settings, task = expected["config"]["settings"], expected["config"]["task"]
    adopt(expected, plan, "n_clients", "seed")
    adopt(settings, plan["config"]["settings"], *FREE_SETTINGS)
    adopt(task, plan["config"]["task"], "n_clusters")
    adopt(task["options"], plan["config"]["task"]["options"], *FREE_OPTIONS)
    expected["run_id"] = run
    expected["n_features"] = settings["n_features"] = n_features
    n_examples = expected["n_examples"] = settings["n_examples"]
    expected["delta"] = settings["delta"] or 1 / (n_examples * math.log(n_examples))
    expected["max_silent"] = settings["max_silent"]
    if settings["max_silent"] is None:
        n_clients = plan["n_clients"]
        expected["max_silent"] = min(20, n_clients // 10) if n_clients > 32 else 0
    shapes = [[task["n_clusters"], n_features], [task["n_clusters"]]]
    template = expected["rounds"][0]
    expected["rounds"] = []
    for index, entries in enumerate(plan["rounds"], start=1):
        planned = copy.deepcopy(template)
        adopt(planned, entries, "radius")
        planned |= {"name": f"lloyd-{index}", "trust": settings["trust"]}
        for block, shape, theirs in zip(planned["blocks"], shapes, entries["blocks"]):
            adopt(block, theirs, "noise_multiplier")
            block["shape"] = shape
        sums = planned["blocks"][0]
        sums["sensitivity"]["bound"] = sums["entry_bound"] = planned["radius"]
        expected["rounds"].append(planned)
    return expected


def read_plan(blob: bytes, run: int, n_features: int) -> SimpleNamespace:
    """A plan that the client computes."""
    entries = read_json(blob.decode(), longest=2**26)
    expected = expected_plan(entries, run, n_features)
    texts = [json.dumps(plan, sort_keys=True) for plan in (entries, expected)]
    require(texts[0] == texts[1], "not a plan that this client computes")
    plan = json.loads(texts[0], object_hook=lambda pairs: SimpleNamespace(**pairs))
    check_sizes(plan)
    return plan


def check_sizes(plan: SimpleNamespace) -> None:
    """Refuse numbers out of their ranges."""
    settings, task = plan.config.settings, plan.config.task
    low, high = np.array(settings.bounds)
    is_box = len(low) in (1, plan.n_features) and (low < high).all()
    require(is_box and np.isfinite([low, high]).all(), "bounds are no box")
    require(settings.trust in TRUSTS, "unknown trust")
    require(settings.noise in ("seeded", "secure"), "unknown noise")
    require(plan.seed >= 0 and task.n_clusters >= 1, "a number is negative")
    require(settings.max_retries >= 0 and plan.max_silent >= 0, "a number is negative")
    require(0 < plan.delta < 1, "delta is no probability")
    require(len(plan.rounds) == task.options.max_iter >= 1, "another number of rounds")
    require(fewest_members(plan) <= plan.n_clients, "too few clients", "CohortError")
    for entries in plan.rounds:
        for block in entries.blocks:
            require(block.noise_multiplier > 0 and entries.radius > 0, "no noise")
            deviation = block.noise_multiplier * block.entry_bound * noise_growth(plan)
            largest = plan.n_examples * block.entry_bound + 91 * deviation
            require(largest * GRID < 2**63, "sums would wrap")


def fewest_members(plan: SimpleNamespace) -> int:
    """Of how many clients a sum must be."""
    settings = plan.config.settings
    fewest = max(settings.min_clients, plan.max_silent + 2)
    if settings.trust == "distributed":
        fewest = max(fewest, n_sure(plan, plan.n_clients))
    return fewest


def check_price(plan: SimpleNamespace, most_epsilon: float) -> None:
    """Refuse what costs more than declared, or than the client allows."""
    is_honest = delta_at(plan.config.settings.epsilon, price(plan, 0)) <= plan.delta
    require(is_honest, "the plan costs more than it declares", "BudgetError")
    is_allowed = delta_at(most_epsilon, highest_price(plan)) <= plan.delta
    require(is_allowed, "the plan costs too much", "BudgetError")


def price(plan: SimpleNamespace, n_retries: int) -> float:
    """What the rounds cost, and the dearest one as often again."""
    prices = [
        sum(1 / block.noise_multiplier**2 for block in entries.blocks)
        for entries in plan.rounds
    ]
    return sum(prices) + n_retries * max(prices)


def highest_price(plan: SimpleNamespace) -> float:
    """What the run costs at most."""
    return price(plan, plan.config.settings.max_retries)


def delta_at(epsilon: float, price: float) -> float:
    """The delta of Gaussian noise for an epsilon."""
    root = math.sqrt(price)
    above = normal(root / 2 - epsilon / root)
    return above - math.exp(epsilon) * normal(-root / 2 - epsilon / root)


def normal(value: float) -> float:
    """The normal distribution function."""
    return math.erfc(-value / math.sqrt(2)) / 2
