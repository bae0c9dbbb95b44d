"""Which aggregation a plan asks for: sums that are repeated, recovered, or (on one machine) not masked at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.recovery.recover import Recover
from flwr_dpkmeans.secagg.recovery.session import RecoverSession
from flwr_dpkmeans.secagg.retry import Plain, PlainSession, Retry, RetrySession
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.signing import Credential
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.trust import trust_model

Session = RetrySession | RecoverSession | PlainSession
PARTIES: Mapping[str, type[Party]] = {kind.__name__: kind for kind in (Retry, Recover, Plain)}
"""By the name under which a client's memory stores them."""


def party_of(plan: Plan, node_id: int, private_key: bytes, min_cohort: int, plan_digest: bytes) -> Party:
    """A client at the start of a run."""
    authored = trust_model(plan.config.trust).blinded
    start: Any = (plan.run_id, node_id, private_key, min_cohort, plan.max_silent, authored, plan_digest)
    if not plan.config.masking:
        return Plain(*start)
    if plan.dropout is Dropout.RECOVER:
        return Recover(*start, slots=plan.slots)
    return Retry(*start)


def session_of(agreed: Plan, plan: Plan, roster: Roster, credentials: Mapping[int, Credential]) -> Session:
    """The server's side, once keys are agreed on; clients count the aggregations by the plan that they agreed to."""
    limits: dict[str, Any] = {
        "min_cohort": plan.min_cohort,
        "max_retries": plan.config.max_retries,
        "max_silent": plan.max_silent,
        "authored": trust_model(plan.config.trust).blinded,
        "credentials": credentials,
    }
    if not plan.config.masking:
        return PlainSession(roster, **limits)
    if plan.dropout is Dropout.RECOVER:
        return RecoverSession(plan.run_id, roster, agreed.slots, **limits)
    return RetrySession(roster, **limits)
