"""From a plan and what happened to a privacy report.

Clients and server use the same words: those of ``report.toml``.

Cautions of the public plan may be told to all, those of released sums where these may
be seen (under ``oblivious`` on clients only), and those of exact rows stay with whoever
holds these.
"""

from __future__ import annotations

from flwr_dpkmeans.sums.statement.assumptions import why_not_private
from flwr_dpkmeans.sums.statement.cautions import (
    LOCAL,
    plan_cautions,
    released_cautions,
    spending_cautions,
    unclear_cautions,
)
from flwr_dpkmeans.sums.statement.run_report import build_report, discreteness_cost
from flwr_dpkmeans.sums.statement.steps import (
    Step,
    describe_step,
    epsilon_after,
    run_epsilon,
)

__all__ = [
    "LOCAL",
    "Step",
    "build_report",
    "describe_step",
    "discreteness_cost",
    "epsilon_after",
    "plan_cautions",
    "released_cautions",
    "run_epsilon",
    "spending_cautions",
    "unclear_cautions",
    "why_not_private",
]
