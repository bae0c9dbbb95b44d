"""Which distinguisher, and which threshold.

Chosen on training runs, which have no part in the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    absent: Table,
    present: Table,
    plan: Plan,
    method: Method,
) -> tuple[Winner, Rule]:
    """Learn on one half of the training runs, and choose on the other.

    Returns the distinguisher and its threshold.

    The likelihood ratio is the best there is if the code is right, so another one must
    clearly beat it: small differences between few training runs are chance.
    """
    half = min(_n_runs(absent), _n_runs(present)) // 2
    candidates: dict[str, _Candidate] = {}
    for name in absent.scores:
        every = Scores(absent.scores[name], present.scores[name])
        second_half = Scores(every.absent[half:], every.present[half:])
        candidates[name] = _rate(Winner(name), second_half, every, plan, method)
    for name in absent.vectors:
        width = min(absent.vectors[name].shape[1], present.vectors[name].shape[1])
        absent_vectors = absent.vectors[name][:, :width]
        present_vectors = present.vectors[name][:, :width]
        direction = learn_direction(absent_vectors[:half], present_vectors[:half])
        fresh = Scores(
            direction.scores(absent_vectors[half:]),
            direction.scores(present_vectors[half:]),
        )
        winner = Winner(name, direction)
        candidates[name] = _rate(winner, fresh, fresh, plan, method)
    best = max(candidates.values(), key=lambda candidate: candidate.epsilon)
    likelihood = candidates.get(LIKELIHOOD)
    if likelihood is not None:
        to_beat = _CLEARLY * likelihood.epsilon + _NOTABLE * plan.epsilon
        if best.epsilon < to_beat:
            best = likelihood
    return best.winner, best.rule


def _n_runs(table: Table) -> int:
    """How many runs a table has, one score each."""
    return len(next(iter(table.scores.values())))


@dataclass(frozen=True)
class _Candidate:
    """A distinguisher, its threshold, and the bound that training runs promise."""

    epsilon: float
    winner: Winner
    rule: Rule


def _rate(
    winner: Winner,
    scores: Scores,
    every: Scores,
    plan: Plan,
    method: Method,
) -> _Candidate:
    """Rate a distinguisher by some scores, and choose its threshold on all of them."""
    if method is Method.GDP and winner.name == LIKELIHOOD:
        bound = lower_bound(scores, _MIDDLE, plan.delta, method)
        return _Candidate(bound.epsilon, winner, _MIDDLE)
    bound = lower_bound(scores, _rule(scores, plan, method), plan.delta, method)
    return _Candidate(bound.epsilon, winner, _rule(every, plan, method))


def _rule(
    scores: Scores,
    plan: Plan,
    method: Method,
) -> Rule:
    """The threshold that promises most.

    Through mu, the middle between both kinds unless another one is far better.

    For scores whose two distributions are shifted against each other no threshold is
    better than the middle, and the best of a thousand on few runs is a lucky one in a
    tail.
    """
    chosen = choose_rule(scores, plan.delta, method)
    if method is not Method.GDP:
        return chosen
    low = float(np.median(scores.absent))
    high = float(np.median(scores.present))
    if not (math.isfinite(low) and math.isfinite(high)):
        return chosen
    middle = Rule(0.5 * (low + high), present_above=high >= low)
    by_middle = lower_bound(scores, middle, plan.delta, method).epsilon
    by_chosen = lower_bound(scores, chosen, plan.delta, method).epsilon
    if by_chosen > _FAR * by_middle + _FAR_ABOVE * plan.epsilon:
        return chosen
    return middle
