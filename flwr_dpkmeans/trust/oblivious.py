"""``oblivious`` (FastLloyd): the server adds noise to a sum that it cannot read; only clients see the result."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.mechanisms import Block
from flwr_dpkmeans.privacy.samplers import NoiseSource
from flwr_dpkmeans.privacy.theorems import PROOF_PAGE
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.trust.base import Broadcast, Shares, TrustModel, with_noise


class Oblivious(TrustModel):
    """The server knows the noise, so it must never see the noised sum: key authors' streams stay on it."""

    name = "oblivious"
    blinded = True
    server_reads = False
    shared_noise = False
    proofs = f"{PROOF_PAGE}, rows T1, T2, T5"

    def guarantee(self, shares: Shares) -> str:
        """See `TrustModel.guarantee`."""
        return (
            "The server adds the noise to a masked sum that it cannot read; only clients see released sums. Holds "
            "against an honest-but-curious server that works with no client, and against any clients as long as the "
            "server adds the noise. The server knows its noise, so centroids, counts and metrics must never be shown "
            "to whoever runs it: choose 'distributed' for a result that is published."
        )

    def broadcast(
        self, aggregate: AggregateVector, blocks: Sequence[Block], fraction_bits: int, source: NoiseSource
    ) -> Broadcast:
        """Add noise blindly; a sum that the server could read is refused."""
        if not aggregate.blinded:
            raise PlanError("a readable sum reached the server under 'oblivious': the run is stopped.")
        return Broadcast(with_noise(aggregate, blocks, fraction_bits, source), released=None)
