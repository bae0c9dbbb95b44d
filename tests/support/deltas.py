"""What a list of releases costs in delta at an epsilon.

The inverse of `compose_epsilon`, by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_dpkmeans.errors import LocalMisuseError, require_real
from flwr_dpkmeans.privacy import accounting, mixtures
from flwr_dpkmeans.privacy.release import Event


def compose_delta(events: Sequence[Event], epsilon: float) -> float:
    """Return the total delta of `events` at the total `epsilon`, at least 0.

    1.0 if any release is exact.

    Laplace releases whose epsilons sum to E above `epsilon` cost at most (exp(E) -
    exp(epsilon)) / (exp(E) + 1), the value for randomized response, which is the worst
    E-DP mechanism (Kairouz, Oh and Viswanath 2015).
    """
    totals = accounting.add_up(events)
    epsilon = require_real(
        "epsilon", epsilon, "give a number of at least 0 such as 1.0"
    )
    if epsilon < 0.0:
        raise LocalMisuseError(
            f"epsilon is {epsilon}, but it must be at least 0: give a number such as"
            " 1.0."
        )
    if totals.exact:
        return 1.0
    if totals.mu == 0.0:
        over = epsilon - totals.pure
        return -math.expm1(over) / (1.0 + math.exp(-totals.pure)) if over < 0.0 else 0.0
    return accounting.delta_as_drawn(totals, epsilon, _analysed_delta)


def _analysed_delta(totals: accounting.Totals, epsilon: float) -> float:
    """Return the least delta by any rule, for the analysed noise and its slack."""
    delta = 1.0
    if epsilon >= totals.pure:
        delta = min(delta, accounting.gdp_delta(totals, epsilon - totals.pure))
    if totals.pure_epsilons:
        delta = min(delta, _mixture_delta(totals, epsilon))
    if totals.sampled:
        delta = min(delta, _numerical_delta(totals, epsilon))
    return delta


def _mixture_delta(totals: accounting.Totals, epsilon: float) -> float:
    """Return the smallest delta at epsilons of at most `epsilon`, by the mixture of
    Gaussian and pure releases.
    """
    mixture = mixtures.mixture_of(totals.mu, totals.pure_epsilons)
    epsilon = accounting.mixture_turning_epsilon(
        mixture, totals.closeness.additive, epsilon
    )
    return min(
        1.0,
        mixture.delta(epsilon)
        + accounting.slack_cost(totals.closeness.additive, epsilon),
    )


def _numerical_delta(totals: accounting.Totals, epsilon: float) -> float:
    """Return a delta at `epsilon` by privacy-loss distributions."""
    losses = accounting.losses_of(totals)
    return (
        1.0
        if losses is None
        else min(
            1.0,
            losses.delta(epsilon)
            + accounting.slack_cost(totals.closeness.additive, epsilon),
        )
    )
