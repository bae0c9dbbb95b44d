"""``central``: the server sees the exact sum, adds the noise and publishes the result."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.privacy.mechanisms import Block
from flwr_dpkmeans.privacy.samplers import NoiseSource
from flwr_dpkmeans.privacy.theorems import PROOF_PAGE
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.trust.base import Broadcast, Shares, TrustModel, as_released, with_noise


class Central(TrustModel):
    """Masks still hide each client's statistic from the server, which is trusted with the sum."""

    name = "central"
    blinded = False
    server_reads = True
    shared_noise = False
    proofs = f"{PROOF_PAGE}, rows T4, T5"

    def guarantee(self, shares: Shares) -> str:
        """See `TrustModel.guarantee`."""
        return (
            "The server sees exact sums over the clients of each round, adds the noise and publishes the result. Holds "
            "against everyone except the server, which is trusted: from the sums before and after a dropout it could "
            "isolate the client that left."
        )

    def broadcast(
        self, aggregate: AggregateVector, blocks: Sequence[Block], fraction_bits: int, source: NoiseSource
    ) -> Broadcast:
        """Add noise to the readable sum and read the result."""
        values = with_noise(aggregate, blocks, fraction_bits, source)
        return Broadcast(values, as_released(values, blocks, fraction_bits))
