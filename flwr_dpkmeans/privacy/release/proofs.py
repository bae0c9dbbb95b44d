"""Why a release is private, with the rows of the proof table."""

from __future__ import annotations

from flwr_dpkmeans.privacy.release.block import Block, NoiseShape
from flwr_dpkmeans.privacy.sentences import report_sentence

PROOF_PAGE = "flwr_dpkmeans/docs/reference/proofs.md"
_PROOFS = {
    NoiseShape.GAUSSIAN: ("gaussian_mechanism", ["M1", "M3"]),
    NoiseShape.LAPLACE: ("laplace_mechanism", ["M2"]),
}


def theorem(
    block: Block, *, shared_noise: bool = False, sampling_rate: float = 1.0
) -> str:
    """Say why a block's sensitivity holds and what prices its noise.

    With the rows of the proof table.

    Parameters
    ----------
    block : Block
        What is released.
    shared_noise : bool
        Whether clients add the noise in shares.
    sampling_rate : float
        Probability with which a client takes part.
    """
    if block.noise is NoiseShape.NONE:
        return report_sentence("no_mechanism")
    bound_row, bound = block.sensitivity.proof
    mechanism, mechanism_rows = _PROOFS[block.noise]
    rows = []
    if bound_row:
        rows.append(bound_row)
    rows += mechanism_rows
    if shared_noise:
        rows.append("M4")
    sample = ""
    if sampling_rate < 1.0:
        rows.append("M5")
        sample = report_sentence("over_a_sample", rate=sampling_rate)
    proof = report_sentence(mechanism) + sample
    return f"{bound}; {proof} [{', '.join(rows)}]."
