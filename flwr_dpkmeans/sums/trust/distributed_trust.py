"""Clients add the noise in shares, so that nobody knows it."""

from __future__ import annotations

from flwr_dpkmeans.privacy.release import PROOF_PAGE
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.trust.counted_shares import Shares
from flwr_dpkmeans.sums.trust.trust_base import TrustModel


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
        """See `TrustModel.guarantee`."""
        lost = ""
        if shares.max_lost > 0:
            lost = report_sentence("lost", n=shares.max_lost)
        return report_sentence(
            "distributed",
            max_silent=shares.max_silent,
            n_clients=shares.n_clients,
            lost=lost,
        )
