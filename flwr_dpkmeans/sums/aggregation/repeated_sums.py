"""Adding up again, without those that fell silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Roster, mask_degree
from flwr_dpkmeans.sums.aggregation.plain_sums import Plain
from flwr_dpkmeans.sums.trust import Shares

if TYPE_CHECKING:
    from flwr_dpkmeans.secagg.recover_session import RecoverSession
    from flwr_dpkmeans.secagg.retry_session import RetrySession
    from flwr_dpkmeans.sums.plan import Plan

    Session = RetrySession | RecoverSession

_SPARSE_MAX_SILENT = 20


class PartyStart(TypedDict):
    """What a client starts with; see `secagg.party.Party`."""

    run_id: int
    node_id: int
    private_key: bytes
    min_cohort: int
    max_silent: int
    authored: bool
    plan_digest: bytes


class SessionLimits(TypedDict):
    """What the server's side starts with besides a roster; see `secagg.session`."""

    min_cohort: int
    max_retries: int
    max_silent: int
    authored: bool
    credentials: Mapping[int, Credential]


class Repeated:
    """Adding up so that a sum is asked for again without those that fell silent.

    Another way to add up derives from this one.
    """

    trips = 1
    """Round trips of one aggregation, and of the keys."""

    def party(self, plan: Plan, start: PartyStart) -> Party:
        """A client at the start of a run.

        Without masks, on one machine, whoever adds up sees its vectors.
        """
        if plan.settings.masking:
            return Retry(**start)
        return Plain(**start)

    def session(self, agreed: Plan, roster: Roster, limits: SessionLimits) -> Session:
        """The server's side, once keys are agreed on."""
        # Imported here, as a node, which is no server, is to load none of it.
        from flwr_dpkmeans.secagg.retry_session import RetrySession
        from flwr_dpkmeans.sums.aggregation.plain_session import PlainSession

        if agreed.settings.masking:
            return RetrySession(roster, **limits)
        return PlainSession(roster, **limits)

    def usual_max_silent(self, n_clients: int) -> int:
        """Choose t where nobody sets it.

        0 where all pairs mask, as repeating costs budget; else what sparse graphs bear.
        """
        if n_clients <= ALL_PAIRS_UP_TO:
            return 0
        return min(_SPARSE_MAX_SILENT, n_clients // 10)

    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """Say who adds noise shares, where so many are asked of those that shared keys.

        `n_sharers` is None where all of the plan did. No share is lost, as a sum
        without one is not opened.
        """
        return Shares(n_clients, plan.max_silent)

    def mask_pairs(self, plan: Plan) -> tuple[int, int]:
        """With how many neighbours a client masks, and how often it agrees on a key."""
        n_clients = plan.n_clients
        degree = min(n_clients - 1, mask_degree(n_clients, plan.max_silent))
        return degree, degree

    def check(self, plan: Plan) -> None:
        """Refuse numbers that sums cannot be made with; most will do."""

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
        """What its sums rest on, for the report."""
        return ()

    def bytes_besides(self, plan: Plan, n_aggregations: int) -> tuple[int, int]:
        """Count a client's bytes besides vectors, keys and results, received and sent.

        Where nobody falls silent.
        """
        return 0, 0
