"""Why each release is private, in one sentence, with the rows of the proof table (`privacy/README.md`) that show it.

A row's name is a letter and a number: S sensitivities, M mechanisms, C composition and plan, F what is free, T trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from flwr_dpkmeans.privacy.mechanisms import Block, NoiseShape

PROOF_PAGE = "flwr_dpkmeans/privacy/README.md"
"""Where the rows are."""

_MECHANISMS = {
    NoiseShape.GAUSSIAN: "Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022, Theorem 1)",
    NoiseShape.LAPLACE: "Laplace mechanism, (1/multiplier)-DP (Dwork et al. 2006)",
}
_MECHANISM_ROWS = {NoiseShape.GAUSSIAN: ("M1", "M3"), NoiseShape.LAPLACE: ("M2",)}
_CLIENT_CLIP = "one client's {what} is scaled down to the bound (FedDP-KMeans, appendix G.4)"
_UNIT = "{what}, divided by {over} and clipped to length 1, is in one sum (ProxyLloyd)"
_MEANS = "one client's {what}, vectors of length at most 1, is scaled down to the bound, which follows from the "
_MEANS += "declared examples_per_client (ProxyLloyd)"

Reason = tuple[str, str]
"""A row of the proof table and its statement in short."""

BOUNDS: Mapping[tuple[str, str], Reason] = MappingProxyType(
    {
        ("relative_sums", "record"): (
            "S1",
            "one row lies in one cluster, within the radius of its centroid (FastLloyd, Theorem 5.1)",
        ),
        ("counts", "record"): ("S2", "one row lies in at most one cluster"),
        ("outer_product", "record"): (
            "S5",
            "one row x within the radius R adds x x^T, of Frobenius norm at most R^2, plus one grid step of rounding "
            "in each entry; entries off the diagonal are sent times sqrt(2) (FedDP-KMeans, section 3, step 1)",
        ),
        ("outer_product", "client"): ("S6", _CLIENT_CLIP.format(what="outer product, in Frobenius norm,")),
        ("weights", "record"): ("S7", "one row is nearest to one server point (FedDP-KMeans, section 3, step 2)"),
        ("weights", "client"): ("S8", _CLIENT_CLIP.format(what="histogram")),
        ("clipped_sums", "record"): (
            "S9",
            "one row, clipped to the data radius, lies in one cluster (FedDP-KMeans, section 3, step 3)",
        ),
        ("means", "client"): ("S10", _CLIENT_CLIP.format(what="list of cluster means")),
        ("indicators", "client"): ("S10", _CLIENT_CLIP.format(what="list of non-empty clusters")),
        ("row_sums", "record"): (
            "S11",
            _UNIT.format(what="one row's difference from the public centre", over="the location round's clip bound"),
        ),
        ("row_squares", "record"): (
            "S11",
            "one row's squared distance from the public centre, divided by the squared clip bound and clipped, is at "
            "most 1 (ProxyLloyd)",
        ),
        ("unit_outer_product", "record"): (
            "S12",
            "one row's difference from the released centre, divided by the radius and clipped to length 1, adds a "
            "matrix of Frobenius norm at most 1, plus one grid step of rounding in each entry (ProxyLloyd)",
        ),
        ("proxy_sums", "record"): (
            "S13",
            _UNIT.format(what="one row's residual from its nearest proxy", over="the radius"),
        ),
        ("proxy_counts", "record"): ("S13", "one row is nearest to one proxy (ProxyLloyd)"),
        ("residual_sums", "record"): (
            "S14",
            _UNIT.format(what="one row's residual from its nearest centroid", over="the radius"),
        ),
        ("residual_squares", "record"): (
            "S14",
            "one row's squared residual in radii, clipped, is at most 1 (ProxyLloyd)",
        ),
        ("row_sums", "client"): ("S15", _MEANS.format(what="mean over its rows")),
        ("row_squares", "client"): ("S15", _MEANS.format(what="mean square over its rows")),
        ("unit_outer_product", "client"): ("S15", _MEANS.format(what="mean outer product over its rows")),
        ("proxy_sums", "client"): ("S15", _MEANS.format(what="mean residual over its rows, by nearest proxy")),
        ("proxy_counts", "client"): ("S15", _MEANS.format(what="shares of its rows, by nearest proxy")),
        ("residual_sums", "client"): ("S15", _MEANS.format(what="mean residual over its rows, by cluster")),
        ("counts", "client"): ("S15", _MEANS.format(what="shares of its rows, by cluster")),
        ("residual_squares", "client"): ("S15", _MEANS.format(what="mean squared residual over its rows")),
        ("count", "record"): ("S16", "one row changes the number of rows by one"),
        ("count", "client"): ("S16", "one client's number of rows is clipped to the declared examples_per_client"),
        ("magnitudes", "record"): (
            "S17",
            "one row is in one bin, by sign and power of two, of each column's histogram: a norm of "
            "sqrt(number of columns)",
        ),
        ("ranges", "record"): (
            "S17",
            "one row is in at most one of each column's equal bins: a norm of sqrt(number of columns)",
        ),
        ("magnitudes", "client"): ("S17", "one client's histograms are scaled down to the norm of a single row's"),
        ("ranges", "client"): ("S17", "one client's histograms are scaled down to the norm of a single row's"),
        ("clipped_cost", "record"): (
            "S18",
            "one row's squared distance to its nearest centroid, divided by the squared clip distance and clipped, is "
            "at most 1 (evaluation)",
        ),
        ("rows_beyond", "record"): ("S18", "one row lies beyond the clip distance or not (evaluation)"),
        ("cell_counts", "record"): ("S18", "one row has one cluster and at most one label (evaluation)"),
        ("clipped_cost", "client"): (
            "S19",
            "one client's mean over its rows of clipped squared distances, in squared clip distances, is at most 1 "
            "(evaluation)",
        ),
        ("rows_beyond", "client"): (
            "S19",
            "one client's share of rows beyond the clip distance is at most 1 (evaluation)",
        ),
        ("cell_counts", "client"): (
            "S19",
            "one client's shares of rows by cluster and label add up to at most 1 (evaluation)",
        ),
    }
)
"""Why the sensitivity of an array holds, by its name and the unit of privacy; `sums` depend on the norm too."""

_BOX_BOUNDS: Mapping[NoiseShape, Reason] = MappingProxyType(
    {
        NoiseShape.GAUSSIAN: ("S3", "one row of [-1, 1]^d has L2 norm at most sqrt(d)"),
        NoiseShape.LAPLACE: ("S4", "one row of [-1, 1]^d has L1 norm at most d"),
    }
)
_SAMPLED = (
    "; all arrays of the aggregation are one release over a Poisson sample of the clients (rate {rate:g}), priced by "
    "its privacy-loss distribution (Zhu, Dong, Wang 2022, Theorem 11)"
)


def reason(block: Block) -> Reason:
    """Return the row of the proof table for a block's sensitivity, and its statement in short."""
    return _BOX_BOUNDS[block.noise] if block.name == "sums" else BOUNDS[block.name, block.sensitivity.unit.value]


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
    >>> block = Block("count", (1,), Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD), NoiseShape.GAUSSIAN, 9.0, 1.0)
    >>> theorem(block)[:41], theorem(block, shared_noise=True)[-18:]
    ('one row changes the number of rows by one', '[S16, M1, M3, M4].')
    """
    if block.noise is NoiseShape.NONE:
        return "no noise: the exact sum is released, and nothing is proved [M7]."
    row, bound = reason(block)
    rows = [row, *_MECHANISM_ROWS[block.noise]]
    rows += ["M4"] if shared_noise else []
    rows += ["M5"] if sampling_rate < 1.0 else []
    sampled = _SAMPLED.format(rate=sampling_rate) if sampling_rate < 1.0 else ""
    return f"{bound}; {_MECHANISMS[block.noise]}{sampled} [{', '.join(rows)}]."
