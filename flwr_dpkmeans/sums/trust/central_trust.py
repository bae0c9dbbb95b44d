"""One side sees the sum and adds the noise."""

from __future__ import annotations

from flwr_dpkmeans.privacy.release import PROOF_PAGE
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.trust.counted_shares import Shares
from flwr_dpkmeans.sums.trust.trust_base import TrustModel


class Central(TrustModel):
    """The server is trusted with the sum.

    Masks hide a single client's statistic only as long as no sum is asked again without
    it: two exact sums differ by what that client gave.
    """

    name = "central"
    blinded = False
    server_reads = True
    shared_noise = False
    proofs = f"{PROOF_PAGE}, rows T4, T5"

    def guarantee(self, shares: Shares) -> str:
        """See `TrustModel.guarantee`."""
        return report_sentence("central")


class Curator(Central):
    """One party holds all rows and draws the noise once.

    Nothing travels, so there is nothing to mask.
    """

    name = "curator"
    alone = True
    proofs = f"{PROOF_PAGE}, row T6"

    def guarantee(self, shares: Shares) -> str:
        """See `TrustModel.guarantee`."""
        return report_sentence("curator")
