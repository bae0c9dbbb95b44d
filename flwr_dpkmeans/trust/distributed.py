"""``distributed``: each client adds a share of the noise before masking; the server sees only the noised sum."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.mechanisms import Block, NoiseShape, draw_noise
from flwr_dpkmeans.privacy.samplers import NoiseSource
from flwr_dpkmeans.privacy.theorems import PROOF_PAGE
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector
from flwr_dpkmeans.trust.base import Broadcast, Shares, TrustModel, as_released


def _lost_too(shares: Shares) -> str:
    """What else is not counted on."""
    lost = f", nor are those of {shares.max_lost} more that may be lost or left out of a sum"
    return lost if shares.max_lost else ""


class Distributed(TrustModel):
    """Shares of variance sigma^2/(M - max(1, t)): those of the honest clients already carry the planned noise.

    Where sums are recovered, others may be lost after they drew theirs, or be left out by a server that tells clients
    different survivors (`Plan.shares_of`): t of up to 32 clients, sigma^2/(M - max(1, t) - t), and more of many.
    """

    name = "distributed"
    blinded = False
    server_reads = True
    shared_noise = True
    proofs = f"{PROOF_PAGE}, rows T3, T5"

    def guarantee(self, shares: Shares) -> str:
        """See `TrustModel.guarantee`."""
        return (
            "Each client adds a share of the noise before masking; server and clients see released sums. Holds against "
            f"a single client, and against a server that works with up to {shares.max_silent} of {shares.n_clients} "
            f"clients: their shares are not counted on{_lost_too(shares)}."
        )

    def check(self, blocks: Sequence[Block]) -> None:
        """Refuse Laplace noise, which is not a sum of independent Laplace shares."""
        for block in blocks:
            if block.noise is NoiseShape.LAPLACE:
                raise PlanError(
                    f"{block.name!r} has Laplace noise, which the trust model 'distributed' cannot split into shares: "
                    "choose trust 'oblivious' or 'central', or an algorithm with Gaussian noise such as 'glloyd'."
                )

    def contribute(
        self, vector: FixedPointVector, blocks: Sequence[Block], fraction_bits: int, shares: Shares, source: NoiseSource
    ) -> FixedPointVector:
        """Add this client's own share."""
        return FixedPointVector(vector.values + draw_noise(blocks, source, fraction_bits, share=shares.factor))

    def broadcast(
        self, aggregate: AggregateVector, blocks: Sequence[Block], fraction_bits: int, source: NoiseSource
    ) -> Broadcast:
        """Pass the sum on: its noise is already in it."""
        del source
        return Broadcast(aggregate.values, as_released(aggregate.values, blocks, fraction_bits))
