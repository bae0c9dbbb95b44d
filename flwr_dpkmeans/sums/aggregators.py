"""How a run adds up: sums that are repeated, recovered, or (on one machine) not masked at all.

Whatever a plan, a client, a server or a forecast does differently from one of them to another, it asks here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.secagg.agreement import GIVEN_BYTES, least_survivors, recovery_graph
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.recover import Recover, RecoverSession
from flwr_dpkmeans.secagg.retry import Plain, PlainSession, Retry, RetrySession
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Credential, Roster
from flwr_dpkmeans.sums.trust import Shares

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.plan import Plan

Session = RetrySession | RecoverSession | PlainSession
PARTIES: Mapping[str, type[Party]] = MappingProxyType({kind.__name__: kind for kind in (Retry, Recover, Plain)})
"""By the name under which a client's memory stores them."""
_SPARSE_MAX_SILENT = 20
_RECOVERED_PART = 8
# Bytes around the numbers in messages, as `planner.forecast` has them of the others.
_SHARE_REPLY, _UNMASK_REQUEST, _UNMASK_REPLY = 250, 100, 80
_ID, _ID_AND_LENGTH, _SEALED = 8, 12, 28


class Aggregator(ABC):
    """One way to add up."""

    trips: int
    """Round trips of one aggregation, and of the keys."""

    @abstractmethod
    def party(self, plan: Plan, *start: Any) -> Party:
        """A client at the start of a run."""

    @abstractmethod
    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        """The server's side, once keys are agreed on."""

    @abstractmethod
    def usual_max_silent(self, n_clients: int) -> int:
        """t, where nobody gives it."""

    @abstractmethod
    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """Who adds noise shares, where so many are asked of those that shared keys (None: all)."""

    def check(self, plan: Plan) -> None:  # noqa: B027 - most numbers will do
        """Refuse numbers that sums cannot be made with."""

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
        """What its sums rest on, for the report."""
        del plan
        return ()

    def bytes_besides(self, plan: Plan, n_aggregations: int) -> tuple[int, int]:
        """What one client receives and sends besides vectors, keys and results, where nobody falls silent."""
        del plan, n_aggregations
        return 0, 0


class Repeated(Aggregator):
    """A sum is asked for again without those that fell silent."""

    trips = 1

    def party(self, plan: Plan, *start: Any) -> Party:
        """See `Aggregator`."""
        return Retry(*start)

    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        """See `Aggregator`."""
        return RetrySession(roster, **limits)

    def usual_max_silent(self, n_clients: int) -> int:
        """None where all pairs mask, since each repetition costs budget; else what the sparse graph bears."""
        return 0 if n_clients <= ALL_PAIRS_UP_TO else min(_SPARSE_MAX_SILENT, n_clients // 10)

    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """No share is lost: a sum without one is not opened."""
        return Shares(n_clients, plan.max_silent)


class Unmasked(Repeated):
    """Vectors as they are, for experiments on one machine; whoever adds them up sees them."""

    def party(self, plan: Plan, *start: Any) -> Party:
        """See `Aggregator`."""
        return Plain(*start)

    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        """See `Aggregator`."""
        return PlainSession(roster, **limits)


class Recovered(Aggregator):
    """The masks of those that fell silent are taken away by key shares."""

    trips = 2

    def party(self, plan: Plan, *start: Any) -> Party:
        """See `Aggregator`."""
        return Recover(*start, slots=plan.slots)

    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        """See `Aggregator`."""
        return RecoverSession(agreed.run_id, roster, agreed.slots, **limits)

    def usual_max_silent(self, n_clients: int) -> int:
        """An eighth of the cohort."""
        return max(1, n_clients // _RECOVERED_PART)

    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """All may be lost beyond the fewest whose sum can be opened."""
        n_sharers = plan.n_clients if n_sharers is None else n_sharers
        least = least_survivors(n_sharers, plan.max_silent, plan.min_cohort)
        least = min(least, recovery_graph(n_sharers, plan.max_silent).fewest_open(n_sharers, plan.max_silent))
        return Shares(n_clients, plan.max_silent, max(0, n_clients - least))

    def check(self, plan: Plan) -> None:
        """Both refuse numbers that sums cannot be recovered with."""
        recovery_graph(plan.n_clients, plan.max_silent)
        _ = plan.slots

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
        """See `Aggregator`."""
        graph, chance, cut = recovery_graph(plan.n_clients, plan.max_silent), "", ""
        if not graph.certain:
            chance = ", but for a chance of at most 2^-40 in the choice of neighbours"
            fewest = graph.fewest_open(plan.n_clients, plan.max_silent) - plan.max_silent
            cut = (
                " Whoever picks its key last and colludes with the server can try 2^40 choices of neighbours offline. "
                f"A server that tells clients different survivors may open a sum of {fewest} that do not collude."
            )
        return (
            f"Sums are recovered from key shares while no more than {plan.max_silent} of {plan.n_clients} clients "
            f"collude with the server or fall silent; if all of them answer the plan, each shares keys and masks with "
            f"{graph.degree} others, of whom {graph.threshold} give a key back{chance} [C6].{cut}",
        )

    def bytes_besides(self, plan: Plan, n_aggregations: int) -> tuple[int, int]:
        """Key shares, tickets and survivors."""
        degree, keys = recovery_graph(plan.n_clients, plan.max_silent).degree, KEY_BYTES * plan.slots.number
        boxes = degree * (_ID_AND_LENGTH + _SEALED + 3 * keys)
        tickets, given = degree * (_ID_AND_LENGTH + KEY_BYTES), degree * (_ID_AND_LENGTH + GIVEN_BYTES)
        down = boxes + n_aggregations * (2 * _ID * plan.n_clients + _UNMASK_REQUEST)
        up = boxes + _SHARE_REPLY + 2 * keys + n_aggregations * (tickets + given + _UNMASK_REPLY)
        return down, up


AGGREGATORS: Mapping[str, Aggregator] = MappingProxyType({"retry": Repeated(), "recover": Recovered()})
"""By what `settings.Dropout` calls them."""
_UNMASKED = Unmasked()


def party_of(plan: Plan, node_id: int, private_key: bytes, min_cohort: int, plan_digest: bytes) -> Party:
    """A client at the start of a run."""
    authored = plan.model.hides_sums()
    kind = plan.aggregator if plan.settings.masking else _UNMASKED
    return kind.party(plan, plan.run_id, node_id, private_key, min_cohort, plan.max_silent, authored, plan_digest)


def session_of(agreed: Plan, plan: Plan, roster: Roster, credentials: Mapping[int, Credential]) -> Session:
    """The server's side, once keys are agreed on; clients count the aggregations by the plan that they agreed to."""
    kind = plan.aggregator if plan.settings.masking else _UNMASKED
    return kind.session(
        agreed,
        roster,
        min_cohort=plan.min_cohort,
        max_retries=plan.settings.max_retries,
        max_silent=plan.max_silent,
        authored=plan.model.hides_sums(),
        credentials=credentials,
    )
