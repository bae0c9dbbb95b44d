"""Why each release is private, in one sentence, with the rows of the proof table (`privacy/README.md`) that show it.

A row's name is a letter and a number: S sensitivities, M mechanisms, C composition and plan, F what is free, T trust.
"""

from __future__ import annotations

from flwr_dpkmeans.privacy.mechanisms import Block, NoiseShape

PROOF_PAGE = "flwr_dpkmeans/privacy/README.md"
"""Where the rows are."""

_MECHANISMS = {
    NoiseShape.GAUSSIAN: "Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022, Theorem 1)",
    NoiseShape.LAPLACE: "Laplace mechanism, (1/multiplier)-DP (Dwork et al. 2006)",
}
_MECHANISM_ROWS = {NoiseShape.GAUSSIAN: ("M1", "M3"), NoiseShape.LAPLACE: ("M2",)}
_SAMPLED = (
    "; all arrays of the aggregation are one release over a Poisson sample of the clients (rate {rate:g}), priced by "
    "its privacy-loss distribution (Zhu, Dong, Wang 2022, Theorem 11)"
)


def theorem(block: Block, *, shared_noise: bool = False, sampling_rate: float = 1.0) -> str:
    """Say why a block's sensitivity holds and what prices its noise, and name the rows that prove it.

    Parameters
    ----------
    block : Block
    shared_noise : bool
        Whether clients add the noise in shares.
    sampling_rate : float
        Probability with which a client takes part.

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.sensitivity import Norm, PrivacyUnit, Sensitivity
    >>> one_row = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "S16: one row changes the number of rows by one")
    >>> block = Block("count", (1,), one_row, NoiseShape.GAUSSIAN, 9.0, 1.0)
    >>> theorem(block)[:41], theorem(block, shared_noise=True)[-18:]
    ('one row changes the number of rows by one', '[S16, M1, M3, M4].')
    """
    if block.noise is NoiseShape.NONE:
        return "no noise: the exact sum is released, and nothing is proved [M7]."
    row, bound = block.sensitivity.proof
    rows = [*([row] if row else []), *_MECHANISM_ROWS[block.noise]]
    rows += ["M4"] if shared_noise else []
    rows += ["M5"] if sampling_rate < 1.0 else []
    sampled = _SAMPLED.format(rate=sampling_rate) if sampling_rate < 1.0 else ""
    return f"{bound}; {_MECHANISMS[block.noise]}{sampled} [{', '.join(rows)}]."
