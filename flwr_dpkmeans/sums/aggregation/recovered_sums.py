"""Adding up with key shares, which open the sum without those that fell silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.agreement import UNMASK_BYTES
from flwr_dpkmeans.secagg.graph import least_survivors, recovery_graph
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.aggregation.repeated_sums import (
    PartyStart,
    Repeated,
    SessionLimits,
)
from flwr_dpkmeans.sums.trust import Shares

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.aggregation.repeated_sums import Session
    from flwr_dpkmeans.sums.plan import Plan

_RECOVERED_PART = 8
# Bytes around the numbers in messages, as `planner.traffic` has them of the others.
_SHARE_REPLY = 250
_UNMASK_REQUEST = 100
_UNMASK_REPLY = 80
# Bytes of a node's id, alone and with a length, and of what sealing adds to a box.
_ID = 8
_ID_AND_LENGTH = 12
_SEALED = 28


class Recovered(Repeated):
    """Adding up so that key shares take away the masks of those that fell silent."""

    trips = 2

    def party(self, plan: Plan, start: PartyStart) -> Party:
        """See `Repeated.party`; masks are always there."""
        return Recover(**start, slots=plan.slots)

    def session(self, agreed: Plan, roster: Roster, limits: SessionLimits) -> Session:
        """See `Repeated.session`."""
        from flwr_dpkmeans.secagg.recover_session import RecoverSession

        return RecoverSession(agreed.run_id, roster, agreed.slots, **limits)

    def usual_max_silent(self, n_clients: int) -> int:
        """An eighth of the cohort."""
        return max(1, n_clients // _RECOVERED_PART)

    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """All may be lost beyond the fewest whose sum can be opened."""
        if n_sharers is None:
            n_sharers = plan.n_clients
        t = plan.max_silent
        survivors = least_survivors(n_sharers, t, plan.min_cohort)
        graph = recovery_graph(n_sharers, t)
        fewest = min(survivors, graph.fewest_open(n_sharers, t))
        return Shares(n_clients, t, max(0, n_clients - fewest))

    def mask_pairs(self, plan: Plan) -> tuple[int, int]:
        """With each neighbour it agrees in each round, and once before them."""
        degree = recovery_graph(plan.n_clients, plan.max_silent).degree
        return degree, degree * (1 + len(plan.all_rounds))

    def check(self, plan: Plan) -> None:
        """Both refuse numbers that sums cannot be recovered with."""
        recovery_graph(plan.n_clients, plan.max_silent)
        _ = plan.slots

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
        """Say how many may collude or fall silent, and what neighbours hold."""
        n_clients = plan.n_clients
        max_silent = plan.max_silent
        graph = recovery_graph(n_clients, max_silent)
        chance = ""
        cut = ""
        if not graph.certain:
            chance = report_sentence("likely")
            fewest = graph.fewest_open(n_clients, max_silent) - max_silent
            cut = " " + report_sentence("cut", fewest=fewest)
        sentence = report_sentence(
            "recovered",
            t=max_silent,
            n_clients=n_clients,
            degree=graph.degree,
            threshold=graph.threshold,
            chance=chance,
            cut=cut,
        )
        return (sentence,)

    def bytes_besides(self, plan: Plan, n_aggregations: int) -> tuple[int, int]:
        """Key shares, tickets and survivors."""
        degree = recovery_graph(plan.n_clients, plan.max_silent).degree
        keys = KEY_BYTES * plan.slots.number
        boxes = degree * (_ID_AND_LENGTH + _SEALED + 3 * keys)
        tickets = degree * (_ID_AND_LENGTH + KEY_BYTES)
        shares = degree * (_ID_AND_LENGTH + UNMASK_BYTES)
        survivors = 2 * _ID * plan.n_clients + _UNMASK_REQUEST
        down = boxes + n_aggregations * survivors
        up_once = boxes + _SHARE_REPLY + 2 * keys
        up_each_time = tickets + shares + _UNMASK_REPLY
        return down, up_once + n_aggregations * up_each_time
