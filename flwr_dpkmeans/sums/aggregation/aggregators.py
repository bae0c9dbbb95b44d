"""The two sides of a run by the way in which its plan adds up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.aggregation.plain_sums import Plain
from flwr_dpkmeans.sums.aggregation.recovered_sums import Recovered
from flwr_dpkmeans.sums.aggregation.repeated_sums import (
    PartyStart,
    Repeated,
    SessionLimits,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.aggregation.repeated_sums import Session
    from flwr_dpkmeans.sums.plan import Plan

PARTIES: Mapping[str, type[Party]] = MappingProxyType(
    {kind.__name__: kind for kind in (Retry, Recover, Plain)}
)
"""By the name under which a client's memory stores them."""
AGGREGATORS: Mapping[str, Repeated] = MappingProxyType(
    {"retry": Repeated(), "recover": Recovered()}
)
"""By what `settings.Dropout` calls them."""


def party_of(
    plan: Plan, node_id: int, private_key: bytes, min_cohort: int, plan_digest: bytes
) -> Party:
    """A client at the start of a run."""
    start = PartyStart(
        run_id=plan.run_id,
        node_id=node_id,
        private_key=private_key,
        min_cohort=min_cohort,
        max_silent=plan.max_silent,
        authored=plan.trust_model.hides_sums(),
        plan_digest=plan_digest,
    )
    return plan.aggregator.party(plan, start)


def session_of(
    agreed: Plan, plan: Plan, roster: Roster, credentials: Mapping[int, Credential]
) -> Session:
    """The server's side, once keys are agreed on.

    Clients count the aggregations by the plan that they agreed to.
    """
    limits = SessionLimits(
        min_cohort=plan.min_cohort,
        max_retries=plan.settings.max_retries,
        max_silent=plan.max_silent,
        authored=plan.trust_model.hides_sums(),
        credentials=credentials,
    )
    return plan.aggregator.session(agreed, roster, limits)
