"""Who adds noise and who may read a sum (a trust model), and what becomes of it where
clients fall silent.

What a plan, a client, a server, a report or a forecast does differently from one to
another, it asks here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import (
    PROOF_PAGE,
    Block,
    NoiseShape,
    ReleasedSum,
    as_released,
    draw_noise,
    theorem,
)
from flwr_dpkmeans.privacy.report import told
from flwr_dpkmeans.secagg.agreement import UNMASK_BYTES
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.graph import least_survivors, recovery_graph
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Release, SumRequest
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.recover_session import RecoverSession
from flwr_dpkmeans.secagg.retry import Retry, RetrySession
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, Ring
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Roster
from flwr_dpkmeans.sums.task import Registry

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.plan import Plan


@dataclass(frozen=True)
class Shares:
    """How many clients add noise shares, and how many of them may be silent or collude."""

    n_clients: int
    """Clients in the attempt's roster, M."""
    max_silent: int
    """t.

    The guarantee counts on M - max(1, t) shares, since whoever looks at the sum knows
    its own.
    """
    max_lost: int = 0
    """Where sums are recovered: how many may be missing from the sum after they drew
    their shares, or be said to be by a server that works with t others as well; they
    are not counted on either.
    """

    @property
    def n_honest(self) -> int:
        """Shares that are counted on."""
        honest = self.n_clients - max(1, self.max_silent) - self.max_lost
        if honest < 1:
            raise PlanError(
                f"max_silent is {self.max_silent}, but only {self.n_clients} clients"
                " take part and at least one must be honest: lower max_silent or start"
                " more clients."
            )
        return honest

    @property
    def factor(self) -> float:
        """Factor on the standard deviation of one share, rounded up.

        Squared, those counted on add up to at least 1.
        """
        return _share_factor(self.n_honest)

    @property
    def excess(self) -> float:
        """Standard deviation of all shares together over that of those that are counted
        on.
        """
        return math.sqrt(self.n_clients / self.n_honest)


@lru_cache(maxsize=16)
def _share_factor(n_honest: int) -> float:
    factor = 1.0 / math.sqrt(n_honest)
    while n_honest * Fraction(factor) ** 2 < 1:
        factor = math.nextafter(factor, math.inf)
    return factor


@dataclass(frozen=True)
class Broadcast:
    """What the server sends on, as ring elements, and what it learnt itself.

    None where it cannot read the sum.
    """

    values: Ring = field(repr=False)
    released: ReleasedSum | None = field(repr=False)


class TrustModel(ABC):
    """A trust model: stateless, so that client and server build the same one from its
    name.

    What it has each side do follows from its attributes; a model that needs something
    else overrides `contribute`, `broadcast` or `read`. `register_trust` makes it known,
    or the entry point ``flwr_dpkmeans.trust_models``.

    Examples
    --------
    >>> class Notary(Distributed):
    ...     name, proofs = "notary", "our page, row 1"
    ...     def guarantee(self, shares):
    ...         return f"A notary checked that {shares.n_honest} clients add noise."
    >>> Notary().guarantee(Shares(n_clients=5, max_silent=1))
    'A notary checked that 4 clients add noise.'
    """

    name: str
    blinded: bool
    """Whether key authors' streams hide the sums from the server, until clients take
    them off.
    """
    server_reads: bool
    """Whether the server learns the released sums, and so goes on as clients do, which
    need not see its points.
    """
    shared_noise: bool
    """Whether clients add the noise in shares."""
    alone: bool = False
    """Whether one holder of all rows runs it, so that nothing travels and nothing is
    masked.
    """
    proofs: str = ""
    """Where the guarantee is proved, for the report: a page and its rows.

    No plan is drafted without it.
    """

    @abstractmethod
    def guarantee(self, shares: Shares) -> str:
        """Say in one sentence who adds noise, who sees what, and against whom the
        guarantee holds.
        """

    # -- what each side does -----------------------------------------------------------

    def contribute(
        self,
        vector: FixedPointVector,
        blocks: Sequence[Block],
        fraction_bits: int,
        shares: Shares,
        source: NoiseSource,
    ) -> FixedPointVector:
        """Client half, before masking: add the own share of the noise to the own
        statistic, if noise is shared.
        """
        if not self.shared_noise:
            return vector
        return FixedPointVector(
            vector.values
            + draw_noise(blocks, source, fraction_bits, share=shares.factor)
        )

    def broadcast(
        self,
        aggregate: AggregateVector,
        blocks: Sequence[Block],
        fraction_bits: int,
        source: NoiseSource,
    ) -> Broadcast:
        """Server half: add noise if the clients have not, and read the result where the
        server may.
        """
        # Whoever adds the noise knows it, so with the noised sum it would know the
        # exact one.
        if self.blinded and not aggregate.blinded:
            raise PlanError(
                f"a readable sum reached the server under {self.name!r}: the run is"
                " stopped."
            )
        values = (
            aggregate.values
            if self.shared_noise
            else with_noise(aggregate, blocks, fraction_bits, source)
        )
        return Broadcast(
            values,
            as_released(values, blocks, fraction_bits) if self.server_reads else None,
        )

    def read(
        self, aggregate: AggregateVector, blocks: Sequence[Block], fraction_bits: int
    ) -> ReleasedSum:
        """Client half, after unblinding: accept the other side's noised sum as
        released.
        """
        if aggregate.blinded:
            raise PlanError(
                "a blinded sum cannot be read: subtract the key authors' streams first."
            )
        return as_released(aggregate.values, blocks, fraction_bits)

    # -- what follows for plans and reports --------------------------------------------

    def require_stated(self, shares: Shares) -> None:
        """Refuse a model that cannot say what it guarantees, while nothing has been
        sent: the report must say it.
        """
        if not self.proofs.strip() or not self.guarantee(shares).strip():
            raise PlanError(
                f"the trust model {self.name!r} does not say what it guarantees and"
                " where that is proved: give it a guarantee() and proofs."
            )

    def hides_sums(self) -> bool:
        """Whether some clients author keys whose streams hide the sums from the server,
        until clients take them off.
        """
        return self.blinded

    def server_has_result(self) -> bool:
        """Whether the server goes from release to release as the clients do, which then
        need not see its points.
        """
        return self.server_reads

    def publishes(self) -> bool:
        """Whether what follows from a release may be public.

        Nobody knows its noise, or who does has the rows.
        """
        return self.shared_noise or self.alone

    def can_add(self, noise: NoiseShape) -> bool:
        """Whether noise of this shape can be added.

        a sum of independent Laplace shares is not Laplace noise.
        """
        return not (self.shared_noise and noise is NoiseShape.LAPLACE)

    def check(self, blocks: Sequence[Block]) -> None:
        """Refuse blocks whose noise this model cannot add, with a sentence."""
        for block in blocks:
            if not self.can_add(block.noise):
                raise PlanError(
                    f"{block.name!r} has Laplace noise, which the trust model"
                    f" {self.name!r} cannot split into shares: choose trust 'oblivious'"
                    " or 'central', or an algorithm with Gaussian noise such as"
                    " 'glloyd'."
                )

    def counted_shares(self, shares: Shares) -> int:
        """How many noises add up to the planned one.

        Those of clients that neither collude nor are lost, or 1.
        """
        return shares.n_honest if self.shared_noise else 1

    def drawn_factor(self, shares: Shares) -> float:
        """Standard deviation of each noise that is drawn, over the planned one."""
        return shares.factor if self.shared_noise else 1.0

    def released_factor(self, shares: Shares) -> float:
        """Standard deviation of all noise in a release, over the planned one.

        Shares not counted on are there too.
        """
        return shares.excess if self.shared_noise else 1.0

    def smallest_cohort(self, least: int, n_clients: int, max_silent: int) -> int:
        """Smallest cohort whose sum is asked for, at least `least`.

        No counted share may be missing.
        """
        return (
            max(least, n_clients - max(1, max_silent)) if self.shared_noise else least
        )

    def theorem(self, block: Block, sampling_rate: float) -> str:
        """Why an array is private under this model, for the report.

        See `privacy.release.theorem`.
        """
        return theorem(
            block, shared_noise=self.shared_noise, sampling_rate=sampling_rate
        )


def with_noise(
    aggregate: AggregateVector,
    blocks: Sequence[Block],
    fraction_bits: int,
    source: NoiseSource,
) -> Ring:
    """Add fresh noise to an aggregate, readable or not, modulo 2^64."""
    return aggregate.values + draw_noise(blocks, source, fraction_bits)


class Oblivious(TrustModel):
    """The server knows the noise, so it must never see the noised sum.

    Key authors' streams stay on it.
    """

    name = "oblivious"
    blinded = True
    server_reads = False
    shared_noise = False
    proofs = f"{PROOF_PAGE}, rows T1, T2, T5"

    def guarantee(self, shares: Shares) -> str:
        return told("oblivious")


class Central(TrustModel):
    """Masks still hide each client's statistic from the server, which is trusted with
    the sum.
    """

    name = "central"
    blinded = False
    server_reads = True
    shared_noise = False
    proofs = f"{PROOF_PAGE}, rows T4, T5"

    def guarantee(self, shares: Shares) -> str:
        return told("central")


class Curator(Central):
    """One party holds all rows and draws the noise once.

    Nothing travels, so there is nothing to mask.
    """

    name = "curator"
    alone = True
    proofs = f"{PROOF_PAGE}, row T6"

    def guarantee(self, shares: Shares) -> str:
        return told("curator")


class Distributed(TrustModel):
    """Shares of variance sigma^2/(M - max(1, t)).

    Those of the honest clients already carry the planned noise.

    Where sums are recovered, others may be lost after they drew theirs, or be left out
    by a server that tells clients different survivors (`Plan.shares_of`): t of up to 32
    clients, sigma^2/(M - max(1, t) - t), and more of many.
    """

    name = "distributed"
    blinded = False
    server_reads = True
    shared_noise = True
    proofs = f"{PROOF_PAGE}, rows T3, T5"

    def guarantee(self, shares: Shares) -> str:
        lost = told("lost", n=shares.max_lost) if shares.max_lost else ""
        return told(
            "distributed",
            max_silent=shares.max_silent,
            n_clients=shares.n_clients,
            lost=lost,
        )


TRUST_MODELS: Registry[TrustModel] = Registry("flwr_dpkmeans.trust_models", "trust")
"""Every trust model that a plan may name."""
trust_model = TRUST_MODELS.find
"""``trust_model(name)``: one of them."""


def register_trust(model: TrustModel) -> TrustModel:
    """Make a trust model known by its name.

    One without an attribute, or another one of that name, is refused.
    """
    missing = [name for name in TrustModel.__annotations__ if not hasattr(model, name)]
    if missing:
        raise ConfigurationError(
            f"the trust model {type(model).__name__} has no {missing[0]!r}: give it"
            " one, as TrustModel says."
        )
    TRUST_MODELS.add(model.name, model)
    return model


for _model in (Oblivious(), Central(), Distributed(), Curator()):
    register_trust(_model)


# -- how a run adds up -----------------------------------------------------------------


@dataclass(frozen=True)
class Plain(Party):
    """A client without masks, for experiments with many virtual ones.

    Whoever runs this sees every vector.
    """

    @property
    def public_key(self) -> bytes:
        """A name only, as nobody agrees on a key with it."""
        return self.private_key

    def admit(
        self, request: SumRequest, first_round: int, closing_round: int = 0
    ) -> Plain:
        """Take any request in: there are no masks that a second answer could give away."""
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


class PlainSession(RetrySession):
    """The server's side: it adds up, and no key author hides anything from it, whatever
    the trust model says.
    """

    def authors(self) -> frozenset[int]:
        """Nobody seals a group key."""
        return frozenset()


Session = RetrySession | RecoverSession
PARTIES: Mapping[str, type[Party]] = MappingProxyType(
    {kind.__name__: kind for kind in (Retry, Recover, Plain)}
)
"""By the name under which a client's memory stores them."""
_SPARSE_MAX_SILENT = 20
_RECOVERED_PART = 8
# Bytes around the numbers in messages, as `planner.forecast` has them of the others.
_SHARE_REPLY, _UNMASK_REQUEST, _UNMASK_REPLY = 250, 100, 80
_ID, _ID_AND_LENGTH, _SEALED = 8, 12, 28


class Repeated:
    """A sum is asked for again without those that fell silent.

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
        """The server's side, once keys are agreed on."""
        return (RetrySession if agreed.settings.masking else PlainSession)(
            roster, **limits
        )

    def usual_max_silent(self, n_clients: int) -> int:
        """t where nobody gives it: 0 where all pairs mask, as repeating costs budget.

        Else what sparse graphs bear.
        """
        return (
            0
            if n_clients <= ALL_PAIRS_UP_TO
            else min(_SPARSE_MAX_SILENT, n_clients // 10)
        )

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
    """The masks of those that fell silent are taken away by key shares."""

    trips = 2

    def party(self, plan: Plan, *start: Any) -> Party:
        return Recover(*start, slots=plan.slots)

    def session(self, agreed: Plan, roster: Roster, **limits: Any) -> Session:
        return RecoverSession(agreed.run_id, roster, agreed.slots, **limits)

    def usual_max_silent(self, n_clients: int) -> int:
        """An eighth of the cohort."""
        return max(1, n_clients // _RECOVERED_PART)

    def shares(self, plan: Plan, n_clients: int, n_sharers: int | None) -> Shares:
        """All may be lost beyond the fewest whose sum can be opened."""
        n_sharers = plan.n_clients if n_sharers is None else n_sharers
        least = least_survivors(n_sharers, plan.max_silent, plan.min_cohort)
        least = min(
            least,
            recovery_graph(n_sharers, plan.max_silent).fewest_open(
                n_sharers, plan.max_silent
            ),
        )
        return Shares(n_clients, plan.max_silent, max(0, n_clients - least))

    def check(self, plan: Plan) -> None:
        """Both refuse numbers that sums cannot be recovered with."""
        recovery_graph(plan.n_clients, plan.max_silent)
        _ = plan.slots

    def assumptions(self, plan: Plan) -> tuple[str, ...]:
        t, graph, chance, cut = (
            plan.max_silent,
            recovery_graph(plan.n_clients, plan.max_silent),
            "",
            "",
        )
        if not graph.certain:
            chance, cut = (
                told("likely"),
                f" {told('cut', fewest=graph.fewest_open(plan.n_clients, t) - t)}",
            )
        known = {
            "degree": graph.degree,
            "threshold": graph.threshold,
            "chance": chance,
            "cut": cut,
        }
        return (told("recovered", t=t, n_clients=plan.n_clients, **known),)

    def bytes_besides(self, plan: Plan, n_aggregations: int) -> tuple[int, int]:
        """Key shares, tickets and survivors."""
        degree, keys = (
            recovery_graph(plan.n_clients, plan.max_silent).degree,
            KEY_BYTES * plan.slots.number,
        )
        boxes = degree * (_ID_AND_LENGTH + _SEALED + 3 * keys)
        tickets, given = (
            degree * (_ID_AND_LENGTH + KEY_BYTES),
            degree * (_ID_AND_LENGTH + UNMASK_BYTES),
        )
        down = boxes + n_aggregations * (2 * _ID * plan.n_clients + _UNMASK_REQUEST)
        up = (
            boxes
            + _SHARE_REPLY
            + 2 * keys
            + n_aggregations * (tickets + given + _UNMASK_REPLY)
        )
        return down, up


AGGREGATORS: Mapping[str, Repeated] = MappingProxyType(
    {"retry": Repeated(), "recover": Recovered()}
)
"""By what `settings.Dropout` calls them."""


def party_of(
    plan: Plan, node_id: int, private_key: bytes, min_cohort: int, plan_digest: bytes
) -> Party:
    """A client at the start of a run."""
    authored = plan.model.blinded
    start = (
        plan.run_id,
        node_id,
        private_key,
        min_cohort,
        plan.max_silent,
        authored,
        plan_digest,
    )
    return plan.aggregator.party(plan, *start)


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
