"""A trust model: who adds noise and who may read a sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    ReleasedSum,
    as_released,
    draw_noise,
    theorem,
)
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, Ring
from flwr_dpkmeans.sums.trust.counted_shares import Shares


@dataclass(frozen=True)
class Broadcast:
    """What the server sends on, as ring elements, and what it learnt itself.

    None where it cannot read the sum.
    """

    values: Ring = field(repr=False)
    released: ReleasedSum | None = field(repr=False)


class TrustModel(ABC):
    """A trust model: who adds noise, and who may read a sum.

    It is stateless, so client and server build the same one from its name.

    What it has each side do follows from its attributes; a model that needs something
    else overrides `contribute`, `broadcast` or `read`. `register_trust` makes it known,
    or the entry point ``flwr_dpkmeans.trust_models``.

    Examples
    --------
    >>> from flwr_dpkmeans.sums.trust import Distributed, Shares
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
        """Say in one sentence who adds noise, and who sees what.

        And against whom the guarantee holds.
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
        """Client half, before masking: add the own share of the noise.

        To the own statistic, if noise is shared.
        """
        if not self.shared_noise:
            return vector
        noise = self.draw(blocks, source, fraction_bits, share=shares.factor)
        return FixedPointVector(vector.values + noise)

    def broadcast(
        self,
        aggregate: AggregateVector,
        blocks: Sequence[Block],
        fraction_bits: int,
        source: NoiseSource,
    ) -> Broadcast:
        """Server half: add noise if the clients have not, and read what it may."""
        if self.blinded and not aggregate.blinded:
            # Whoever adds the noise knows it, so with the noised sum it would know the
            # exact one.
            raise PlanError(
                f"a readable sum reached the server under {self.name!r}: the run is"
                " stopped."
            )
        values = aggregate.values
        if not self.shared_noise:
            # Readable or not: modulo 2^64.
            values = values + self.draw(blocks, source, fraction_bits)
        released = None
        if self.server_reads:
            released = as_released(values, blocks, fraction_bits)
        return Broadcast(values, released)

    def read(
        self, aggregate: AggregateVector, blocks: Sequence[Block], fraction_bits: int
    ) -> ReleasedSum:
        """Client half, after unblinding: accept a noised sum as released.

        The other side's.
        """
        if aggregate.blinded:
            raise PlanError(
                "a blinded sum cannot be read: subtract the key authors' streams first."
            )
        return as_released(aggregate.values, blocks, fraction_bits)

    # -- what follows for plans and reports --------------------------------------------

    def require_stated(self, shares: Shares) -> None:
        """Refuse a model that cannot say what it guarantees, as the report must.

        While nothing has been sent.
        """
        if not self.proofs.strip() or not self.guarantee(shares).strip():
            raise PlanError(
                f"the trust model {self.name!r} does not say what it guarantees and"
                " where that is proved: give it a guarantee() and proofs."
            )

    def hides_sums(self) -> bool:
        """Whether key authors' streams hide the sums from the server.

        Until clients take them off.
        """
        return self.blinded

    def server_has_result(self) -> bool:
        """Whether the server goes from release to release as the clients do.

        These then need not see its points.
        """
        return self.server_reads

    def publishes(self) -> bool:
        """Whether what follows from a release may be public.

        Nobody knows its noise, or who does has the rows.
        """
        return self.shared_noise or self.alone

    def can_add(self, noise: NoiseShape) -> bool:
        """Whether noise of this shape can be added.

        A sum of independent Laplace shares is not Laplace noise.
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
        if not self.shared_noise:
            return least
        n_uncounted = max(1, max_silent)
        return max(least, n_clients - n_uncounted)

    def theorem(self, block: Block, sampling_rate: float) -> str:
        """Why an array is private under this model, for the report.

        See `privacy.release.theorem`.
        """
        return theorem(
            block, shared_noise=self.shared_noise, sampling_rate=sampling_rate
        )
