"""How a run adds up, and what becomes of a sum where clients fall silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.agreement import UNMASK_BYTES
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.graph import least_survivors, recovery_graph
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Release, SumRequest
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Roster
from flwr_dpkmeans.sums.trust import Shares

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.plan import Plan
    from flwr_dpkmeans.sums.server_sessions import Session


@dataclass(frozen=True)
class Plain(Party):
    """A client without masks, for experiments with many virtual ones: whoever runs this
    sees every vector.
    """

    @property
    def public_key(self) -> bytes:
        """A name only, as nobody agrees on a key with it."""
        return self.private_key

    def admit(
        self, request: SumRequest, first_round: int, closing_round: int = 0
    ) -> Plain:
        """Take any request in: no masks are there that a second answer gives away."""
        roster = request.roster or self.roster
        index, attempt = request.attempt_id
        return changed(
            self,
            phase=Phase.ADMITTED,
            roster=roster,
            round_index=index,
            attempt=attempt,
        )

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Nothing is blinded."""
        return AggregateVector(release.values, blinded=False)


PARTIES: Mapping[str, type[Party]] = MappingProxyType(
    {kind.__name__: kind for kind in (Retry, Recover, Plain)}
)
"""By the name under which a client's memory stores them."""
_SPARSE_MAX_SILENT = 20
_RECOVERED_PART = 8
# Bytes around the numbers in messages, as `planner.forecast` has them of the others.
_SHARE_REPLY = 250
_UNMASK_REQUEST = 100
_UNMASK_REPLY = 80
# Bytes of a node's id, alone and with a length, and of what sealing adds to a box.
_ID = 8
_ID_AND_LENGTH = 12
_SEALED = 28


class Repeated:
    """Adding up so that a sum is asked for again without those that fell silent.

    Another way to add up derives from this one.
    """

    trips = 1
    """Round trips of one aggregation, and of the keys."""

    def party(self, plan: Plan, *start: Any) -> Party:
        """A client at the start of a run.

        Without masks, on one machine, whoever adds up sees its vectors.
        """
        return Retry(*start) if plan.settings.masking else Plain(*start)

    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        """The server's side, once keys are agreed on.

        Imported there alone: a node executes none of it.
        """
        from flwr_dpkmeans.sums.server_sessions import PlainSession, RetrySession

        if agreed.settings.masking:
            return RetrySession(roster, **limits)
        return PlainSession(roster, **limits)

    def usual_max_silent(self, n_clients: int) -> int:
        """t where nobody sets it: 0 where all pairs mask, as repeating costs budget;
        else what sparse graphs bear.
        """
        if n_clients <= ALL_PAIRS_UP_TO:
            return 0
        return min(_SPARSE_MAX_SILENT, n_clients // 10)

    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """Who adds noise shares, where so many are asked of those that shared keys
        (None: all); none of them is lost, as a sum without one is not opened.
        """
        return Shares(n_clients, plan.max_silent)

    def check(self, plan: Plan) -> None:
        """Refuse numbers that sums cannot be made with; most will do."""

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
        """What its sums rest on, for the report."""
        return ()

    def bytes_besides(self, plan: Plan, n_aggregations: int) -> tuple[int, int]:
        """What one client receives and sends besides vectors, keys and results, where
        nobody falls silent.
        """
        return 0, 0


class Recovered(Repeated):
    """Adding up so that key shares take away the masks of those that fell silent."""

    trips = 2

    def party(self, plan: Plan, *start: Any) -> Party:
        return Recover(*start, slots=plan.slots)

    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        from flwr_dpkmeans.sums.server_sessions import RecoverSession

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

    def check(self, plan: Plan) -> None:
        """Both refuse numbers that sums cannot be recovered with."""
        recovery_graph(plan.n_clients, plan.max_silent)
        _ = plan.slots

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
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


AGGREGATORS: Mapping[str, Repeated] = MappingProxyType(
    {"retry": Repeated(), "recover": Recovered()}
)
"""By what `settings.Dropout` calls them."""


def party_of(
    plan: Plan, node_id: int, private_key: bytes, min_cohort: int, plan_digest: bytes
) -> Party:
    """A client at the start of a run."""
    return plan.aggregator.party(
        plan,
        plan.run_id,
        node_id,
        private_key,
        min_cohort,
        plan.max_silent,
        plan.model.blinded,
        plan_digest,
    )


def session_of(
    agreed: Plan, plan: Plan, roster: Roster, credentials: Mapping[int, Credential]
) -> Session:
    """The server's side, once keys are agreed on.

    Clients count the aggregations by the plan that they agreed to.
    """
    return plan.aggregator.session(
        agreed,
        roster,
        min_cohort=plan.min_cohort,
        max_retries=plan.settings.max_retries,
        max_silent=plan.max_silent,
        authored=plan.model.blinded,
        credentials=credentials,
    )
