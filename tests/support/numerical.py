"""The house's own numerical prices where its closed forms do not need them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_dpkmeans.errors import require_delta
from flwr_dpkmeans.privacy.accounting import add_up, epsilon_as_drawn, numerical_epsilon
from flwr_dpkmeans.privacy.release import Event


def pld_epsilon(events: Sequence[Event], delta: float) -> float:
    """The total epsilon by privacy-loss distributions alone, pessimistic.

    Infinite at a delta below 1e-13.

    Where nothing is sampled it shares no arithmetic with `compose_epsilon`, which uses
    closed forms.
    """
    totals, delta = add_up(events), require_delta(delta)
    if totals.exact:
        return math.inf
    return epsilon_as_drawn(totals, delta, numerical_epsilon) if events else 0.0
