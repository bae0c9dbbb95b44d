"""Nobody sees both the noise and the sum, noised or not."""

from __future__ import annotations

from flwr_dpkmeans.privacy.release import PROOF_PAGE
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.trust.counted_shares import Shares
from flwr_dpkmeans.sums.trust.trust_base import TrustModel


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
        """See `TrustModel.guarantee`."""
        return report_sentence("oblivious")
