"""Which plans the client computes, and at what price."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from second_client.algorithm import GRID, n_sure, noise_deviation
from second_client.wire import read_json, require

VECTORS = Path(__file__).parents[1] / "vectors"
CONVERSATION = json.loads((VECTORS / "conversation_oblivious.json").read_text())
EXAMPLE = json.loads(CONVERSATION["steps"][0]["request"]["fields"]["plan"]["utf8"])
TRUSTS = ("oblivious", "central", "distributed")
FREE = (
    *("run_id", "seed", "random_state", "epsilon", "delta", "bounds", "n_examples"),
    *("n_features", "n_clients", "min_clients", "max_silent", "max_retries"),
    *("n_clusters", "max_iter", "alpha", "schedule", "noise_schedule", "trust"),
    *("shape", "bound", "entry_bound", "noise_multiplier", "radius"),
)


def read_plan(blob, run, n_features):
    """A plan that the client computes."""
    text = blob.decode()
    compare(read_json(text, 2**26), EXAMPLE)
    plan = json.loads(text, object_hook=lambda entries: SimpleNamespace(**entries))
    plan.settings = plan.config.settings
    plan.n_clusters = plan.config.task.n_clusters
    require(plan.run_id == run, "a plan of another run")
    require(plan.n_features == n_features, "another width than the table's")
    check_settings(plan, plan.settings)
    for planned in plan.rounds:
        check_round(plan, planned)
    return plan


def compare(value, example, name=""):
    """Refuse another name, type or choice than the example's."""
    if isinstance(example, dict):
        require(value.keys() == example.keys(), f"other names in {name}")
        for entry in example:
            compare(value[entry], example[entry], entry)
    elif name == "rounds":
        for index, planned in enumerate(value, start=1):
            compare(planned, example[0] | {"name": f"lloyd-{index}"})
    elif name == "blocks":
        for block, other in zip(value, example, strict=True):
            compare(block, other)
    elif name in FREE:
        is_open = example is None or (name, value) == ("random_state", None)
        require(is_open or type(value) is type(example), f"{name} of another type")
    else:
        is_secure = (value, example) == ("secure", "seeded")
        is_equal = json.dumps(value) == json.dumps(example)
        require(is_equal or is_secure, f"{name} is not computed")


def check_settings(plan, settings):
    """Refuse what is not as declared, or out of its range."""
    n_clients, n_examples = plan.n_clients, plan.n_examples
    delta = settings.delta or 1 / (n_examples * math.log(n_examples))
    max_silent = settings.max_silent
    if max_silent is None:
        max_silent = min(20, n_clients // 10) if n_clients > 32 else 0
    declared = (settings.n_features, settings.n_examples, delta, max_silent)
    planned = (plan.n_features, n_examples, plan.delta, plan.max_silent)
    require(planned == declared, "another width, N, delta or max_silent than declared")
    require(len(plan.rounds) == plan.config.task.options.max_iter, "other rounds")
    least = min(plan.max_silent, settings.max_retries, plan.n_clusters - 1)
    require(least >= 0 and 0 < plan.delta < 1, "a number is out of range")
    low, high = np.array(settings.bounds)
    is_box = (low < high).all() and np.isfinite(high - low).all()
    require(is_box and len(low) in (1, plan.n_features), "bounds are no box")
    require(fewest_members(plan) <= n_clients, "too few clients")


def check_round(plan, planned):
    """Refuse what FastLloyd does not keep, and sums that wrap."""
    trust = plan.settings.trust
    require(planned.trust == trust and trust in TRUSTS, "another trust")
    shapes = [[plan.n_clusters, plan.n_features], [plan.n_clusters]]
    bounds = [planned.radius, 1.0]
    for block, shape, bound in zip(planned.blocks, shapes, bounds, strict=True):
        is_bound = block.sensitivity.bound == block.entry_bound == bound > 0
        require(is_bound and str(block.shape) == str(shape), "another bound or shape")
        require(block.noise_multiplier > 0, "no noise")
        largest = plan.n_examples * bound + 91 * noise_deviation(plan, block)
        require(largest * GRID < 2**63, "sums would wrap")


def fewest_members(plan):
    """Of how many clients a sum must be."""
    fewest = max(plan.settings.min_clients, plan.max_silent + 2)
    if plan.settings.trust == "distributed":
        fewest = max(fewest, n_sure(plan, plan.n_clients))
    return fewest


def highest_price(plan, most_epsilon):
    """What a run costs with all its retries; refuse a price that is too high."""
    prices = [
        sum(block.noise_multiplier**-2 for block in planned.blocks)
        for planned in plan.rounds
    ]
    is_honest = delta_at(plan.settings.epsilon, sum(prices)) <= plan.delta
    require(is_honest, "the plan costs more than it declares")
    highest = sum(prices) + plan.settings.max_retries * max(prices)
    is_allowed = delta_at(most_epsilon, highest) <= plan.delta
    require(is_allowed, "the plan costs too much", "BudgetError")
    return highest


def delta_at(epsilon, price):
    """The delta of Gaussian noise for an epsilon."""
    root = math.sqrt(price)
    above, below = root / 2 - epsilon / root, -root / 2 - epsilon / root
    return normal(above) - math.exp(epsilon) * normal(below)


def normal(value):
    return math.erfc(-value / math.sqrt(2)) / 2
