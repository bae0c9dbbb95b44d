"""What was sent and who took part, beside what is charged.

AssertionError if it is less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import log_ndtr

from flwr_dpkmeans.privacy.release import Block, NoiseShape
from flwr_dpkmeans.sums.plan import Plan
from simulations.audit.watched import Seen, run_watched
from support.bound_detectors import plan_for
from support.noise_detectors import SMALLEST_P
from support.wire_detectors import Watched

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


def price_of_sent(run: Watched) -> float:
    """Epsilon of all vectors that clients sent, late ones too, by a formula of our own.

    Gaussian noise only.
    """
    plan = run.federation.plan
    squares = sum(_squares(plan.round_at(index).blocks) for index, _ in run.vectors)
    return gaussian_epsilon(math.sqrt(squares), plan.delta)


def price_of_plan(plan: Plan) -> float:
    """Likewise of every array in a plan, once."""
    rounds = [*plan.preliminary, *plan.rounds]
    return gaussian_epsilon(
        math.sqrt(sum(_squares(planned.blocks) for planned in rounds)), plan.delta
    )


def _squares(blocks: Sequence[Block]) -> float:
    assert all(block.noise is NoiseShape.GAUSSIAN for block in blocks)
    return math.fsum(
        (block.sensitivity.bound / block.noise_scale) ** 2 for block in blocks
    )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Solve Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) = delta by bisection.

    a little is taken off for last digits.
    """
    low, high = 0.0, 1000.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        first = math.exp(log_ndtr(mu / 2 - middle / mu))
        second = math.exp(middle + log_ndtr(-mu / 2 - middle / mu))
        low, high = (middle, high) if first - second > delta else (low, middle)
    return low * (1.0 - 1e-9)


def require_priced(plan: Plan) -> None:
    """A plan says no less than what it releases costs."""
    true = price_of_plan(plan)
    assert plan.epsilon >= true, (
        f"the plan says epsilon {plan.epsilon:.4g}, but {true:.4g} is released"
    )


@dataclass(frozen=True)
class Claims:
    """Epsilons that are said of a run."""

    report: float
    worst_case: float
    ledgers: dict[int, float]
    """Of each node that sent all vectors."""


def claims_of(run: Watched) -> Claims:
    """What report, plan and ledgers say."""
    federation = run.federation
    senders = set.intersection(*(set(vectors) for vectors in run.vectors.values()))
    ledgers = {node: federation.ledgers[node].entries()[-1].epsilon for node in senders}
    return Claims(
        run.result.privacy.epsilon, federation.plan.epsilon_worst_case, ledgers
    )


def require_charged(run: Watched, claims: Claims) -> None:
    """Report, worst case and every ledger state no less than what was sent costs."""
    true = price_of_sent(run)
    told = {"the report": claims.report, "the worst case": claims.worst_case}
    told |= {
        f"the ledger of node {node}": epsilon
        for node, epsilon in claims.ledgers.items()
    }
    for what, epsilon in told.items():
        assert epsilon >= true, (
            f"{what} says epsilon {epsilon:.4g}, but {true:.4g} was spent"
        )


@cache
def _sampled_plan(rate: float) -> Plan:
    """Pricing it takes longer than many runs."""
    values = {
        "client_sampling_rate": rate,
        "max_iter": 2,
        "n_features": 1,
        "masking": False,
    }
    return plan_for("sphere_packing", "client", **values)[0]


def participations(n_runs: int, rate: float) -> NDArray[np.bool_]:
    """Who added something of its own, (n_runs, n_rounds, n_clients), in runs of one
    plan with sampled clients.
    """
    plan = _sampled_plan(rate)
    parts = [np.full((5, 1), 0.5)] * plan.n_clients
    found = []
    for _ in range(n_runs):
        seen: list[Seen] = []
        run_watched(plan, parts, watch=seen.append)
        found.append([[bool(vector.any()) for vector in one.sent] for one in seen])
    return np.array(found)


def require_own_coins(took_part: NDArray[np.bool_], rate: float) -> None:
    """Coins fall as often as is charged for, differ between runs of one plan, and
    between clients.
    """
    n_runs = len(took_part)
    table = took_part.reshape(n_runs, -1)
    p = stats.binomtest(int(table.sum()), table.size, rate).pvalue
    assert p > SMALLEST_P, f"{table.mean():.3f} take part instead of {rate}"
    for i, j in itertools.combinations(range(table.shape[1]), 2):
        equal = int((table[:, i] == table[:, j]).sum())
        p = stats.binomtest(equal, n_runs, rate**2 + (1 - rate) ** 2).pvalue
        assert p > SMALLEST_P, (
            f"coins {i} and {j} are equal in {equal} of {n_runs} runs"
        )
    for i, column in enumerate(table.T):
        p = stats.binomtest(int(column.sum()), n_runs, rate).pvalue
        assert p > SMALLEST_P, (
            f"coin {i} fell {column.sum()} times in {n_runs} runs of one plan"
        )
