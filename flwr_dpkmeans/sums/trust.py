"""Who adds noise and who may read a sum (a trust model), and what becomes of it where
clients fall silent.

What a plan, a client, a server, a report or a forecast does differently from one to
another, it asks here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

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
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, Ring
from flwr_dpkmeans.sums.registry import Registry


@dataclass(frozen=True)
class Shares:
    """How many clients add noise shares, and how many may be silent or collude."""

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

    def draw(
        self,
        blocks: Sequence[Block],
        source: NoiseSource,
        fraction_bits: int,
        *,
        share: float = 1.0,
    ) -> Ring:
        """Draw fresh noise of a sum, or one client's share of it.

        See `privacy.release.draw_noise`.
        """
        return draw_noise(blocks, source, fraction_bits, share=share)

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
            + self.draw(
                blocks,
                source,
                fraction_bits,
                share=shares.factor,
            )
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
        values = aggregate.values
        if not self.shared_noise:
            # Readable or not: modulo 2^64.
            values = values + self.draw(blocks, source, fraction_bits)
        return Broadcast(
            values,
            as_released(values, blocks, fraction_bits) if self.server_reads else None,
        )

    def read(
        self,
        aggregate: AggregateVector,
        blocks: Sequence[Block],
        fraction_bits: int,
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
        """Whether noise of this shape can be added: a sum of independent Laplace shares
        is not Laplace noise.
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

    def smallest_cohort(
        self,
        least: int,
        n_clients: int,
        max_silent: int,
    ) -> int:
        """Smallest cohort whose sum is asked for, at least `least`.

        No counted share may be missing.
        """
        return (
            max(least, n_clients - max(1, max_silent)) if self.shared_noise else least
        )

    def theorem(
        self,
        block: Block,
        sampling_rate: float,
    ) -> str:
        """Why an array is private under this model, for the report.

        See `privacy.release.theorem`.
        """
        return theorem(
            block, shared_noise=self.shared_noise, sampling_rate=sampling_rate
        )


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
        return report_sentence("oblivious")


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
        return report_sentence("central")


class Curator(Central):
    """One party holds all rows and draws the noise once.

    Nothing travels, so there is nothing to mask.
    """

    name = "curator"
    alone = True
    proofs = f"{PROOF_PAGE}, row T6"

    def guarantee(self, shares: Shares) -> str:
        return report_sentence("curator")


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
        lost = report_sentence("lost", n=shares.max_lost) if shares.max_lost else ""
        return report_sentence(
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
