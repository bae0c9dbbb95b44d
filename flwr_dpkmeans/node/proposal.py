"""What a run proposes to a node."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost
from flwr_dpkmeans.sums.plan import Plan


@dataclass(frozen=True)
class Proposal:
    """What limits are held against: a plan, and what it costs on this client's data."""

    plan: Plan
    epsilon: float
    """What the whole run can cost, computed here and never copied from a message.

    Infinite if it is not private.
    """
    cost: GaussianCost
    """The same beside other runs."""
    past: Past
    """What other runs on the data set have cost."""
    terms: str = ""
    """SHA-256 of the plan without what differs from run to run.

    Needed where the policy approves digests.
    """
    plans_today: int = 0
    """Other runs of which this client looked at a plan within 24 hours, and released
    nothing.
    """

    @property
    def runs_today(self) -> int:
        """Other runs that began to release within 24 hours."""
        earliest = datetime.now(UTC) - timedelta(days=1)
        beginnings = map(datetime.fromisoformat, self.past.begun)
        return sum(beginning >= earliest for beginning in beginnings)
