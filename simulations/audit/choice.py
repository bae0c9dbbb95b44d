"""Which distinguisher, and which threshold.

Chosen on training runs, which have no part in the bound.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.sums.plan import Plan
from simulations.audit.bounds import Method, Rule, Scores, choose_rule, lower_bound
from simulations.audit.distinguishers import LIKELIHOOD
from simulations.audit.linear import learn_direction
from simulations.audit.trials import Table, Winner

_CLEARLY, _NOTABLE = 1.25, 0.15
"""Factor, and part of the claim, by which another distinguisher must beat the
likelihood ratio.
"""
_FAR, _FAR_ABOVE = 2.0, 0.5
"""The same for a threshold that is not in the middle."""
_MIDDLE = Rule(0.0, present_above=True)
"""Where Gaussian log-likelihood ratios of present and absent targets lie symmetrically,
whatever their distance is.
"""


def choose(
    absent: Table, present: Table, plan: Plan, method: Method
) -> tuple[Winner, Rule]:
    """Learn on one half of the training runs, and choose distinguisher and threshold on
    the other.

    The likelihood ratio is the best there is if the code is right, so another one must
    clearly beat it: small differences between few training runs are chance.
    """
    half = (
        min(len(next(iter(table.scores.values()))) for table in (absent, present)) // 2
    )
    rated: dict[str, tuple[float, Winner, Rule]] = {}

    def rate(winner: Winner, scores: Scores, every: Scores) -> None:
        known = method is Method.GDP and winner.name == LIKELIHOOD
        rule = _MIDDLE if known else _rule(scores, plan, method)
        bound = lower_bound(scores, rule, plan.delta, method)
        rated[winner.name] = (
            bound.epsilon,
            winner,
            rule if known else _rule(every, plan, method),
        )

    for name in absent.scores:
        every = Scores(absent.scores[name], present.scores[name])
        rate(Winner(name), Scores(every.absent[half:], every.present[half:]), every)
    for name in absent.vectors:
        width = min(absent.vectors[name].shape[1], present.vectors[name].shape[1])
        tables = absent.vectors[name][:, :width], present.vectors[name][:, :width]
        direction = learn_direction(tables[0][:half], tables[1][:half])
        fresh = Scores(
            direction.scores(tables[0][half:]), direction.scores(tables[1][half:])
        )
        rate(Winner(name, direction), fresh, fresh)
    best = max(rated.values(), key=lambda one: one[0])
    usual = rated.get(LIKELIHOOD)
    if usual is not None and best[0] < _CLEARLY * usual[0] + _NOTABLE * plan.epsilon:
        best = usual
    return best[1], best[2]


def _rule(scores: Scores, plan: Plan, method: Method) -> Rule:
    """The threshold that promises most.

    Through mu, the middle between both kinds unless another one is far better.

    For scores whose two distributions are shifted against each other no threshold is
    better than the middle, and the best of a thousand on few runs is a lucky one in a
    tail.
    """
    chosen = choose_rule(scores, plan.delta, method)
    if method is not Method.GDP:
        return chosen
    low, high = float(np.median(scores.absent)), float(np.median(scores.present))
    if not (math.isfinite(low) and math.isfinite(high)):
        return chosen
    middle = Rule(0.5 * (low + high), present_above=high >= low)
    promises = [
        lower_bound(scores, rule, plan.delta, method).epsilon
        for rule in (middle, chosen)
    ]
    return (
        chosen
        if promises[1] > _FAR * promises[0] + _FAR_ABOVE * plan.epsilon
        else middle
    )
