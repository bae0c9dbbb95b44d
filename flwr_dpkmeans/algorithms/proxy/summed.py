"""ProxyLloyd's rounds: what each releases, and why nothing moves by more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from flwr_dpkmeans.algorithms.lloyd_family.count_sensitivities import counts_sensitivity
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.kernels.outer_products import triangle_size
from flwr_dpkmeans.kmeans.proxies.distances import N_DISTANCES
from flwr_dpkmeans.sums.config import RunConfig

if TYPE_CHECKING:
    from flwr_dpkmeans.algorithms.proxy.setting import Setting


@dataclass(frozen=True)
class Summed:
    """One array that a round releases."""

    name: str
    shape: Callable[[Setting], tuple[int, ...]]
    share: Callable[[ProxyOptions, float], float]
    """Of the squared-GDP budget, from the constants and, where rounds of a kind are
    repeated, this one's share.
    """
    one_row: str
    """Why one row adds a vector of length at most 1, with the row of the proof table.
    """
    one_client: str
    """What one client sends instead: a mean of such vectors."""
    client_bound: Callable[[int, int], float] = lambda *_: 1.0
    """Norm that it is clipped to, at most 1, from a client's rows n and k.

    ``proxy_lloyd.md`` says why.
    """
    nonnegative: bool = False
    sum_is_rounded: bool = False
    """Whether a client rounds its sum and not each row's vector, which adds a grid step
    in each entry.
    """


EXCESS = "excess_sums"
_LOCATION = (
    Summed(
        "row_sums",
        lambda run: (run.n_features,),
        lambda options, whole: whole * options.location_share,
        "S11: one row's difference from a public or released centre, divided by the"
        " clip bound and clipped to length 1, is in one sum (ProxyLloyd)",
        "mean over its rows",
    ),
    Summed(
        "row_squares",
        lambda _: (1,),
        lambda options, whole: whole * options.squares_share,
        "S11: one row's squared distance from that centre, divided by the squared clip"
        " bound and clipped, is at most 1 (ProxyLloyd)",
        "mean square over its rows",
        nonnegative=True,
    ),
)
ROUNDS: Mapping[str, tuple[Summed, ...]] = MappingProxyType(
    {
        # 1. Where the data lie and how far they spread: one round, or three looks, each
        # closer than the last.
        "location": _LOCATION,
        "look": (
            *_LOCATION,
            Summed(
                "row_distances",
                lambda _: (N_DISTANCES,),
                lambda options, whole: (
                    whole
                    * options.distances_share
                    * (options.location_share + options.squares_share)
                ),
                "S11: one row has one distance from the released centre, so it is in"
                " one bin (ProxyLloyd)",
                "shares of its rows, by distance",
                nonnegative=True,
            ),
        ),
        # Then which shape they have: the ellipsoid that the first proxies are spread
        # over.
        "covariance": (
            Summed(
                "unit_outer_product",
                lambda run: (triangle_size(run.n_features),),
                lambda options, _: options.location_share,
                "S12: one row's difference from the released centre, divided by the"
                " radius and clipped to length 1, adds a matrix of Frobenius norm at"
                " most 1, plus one grid step of rounding in each entry (ProxyLloyd)",
                "mean outer product over its rows",
                lambda n, _: 2.0 / math.sqrt(n),
                sum_is_rounded=True,
            ),
        ),
        # Then L passes. Where rows are: the proxies move to them, and counts weigh
        # them.
        "proxies": (
            Summed(
                "proxy_sums",
                lambda run: (
                    run.plan.n_proxies,
                    run.plan.n_components or run.n_features,
                ),
                lambda options, whole: whole - whole * options.proxy_counts_share,
                "S13: one row's residual from its nearest proxy, divided by the radius"
                " and clipped to length 1, is in one sum (ProxyLloyd)",
                "mean residual over its rows, by nearest proxy",
                lambda n, _: 1.0 / math.sqrt(n),
            ),
            Summed(
                "proxy_counts",
                lambda run: (run.plan.n_proxies,),
                lambda options, whole: whole * options.proxy_counts_share,
                "S13: one row is nearest to one proxy (ProxyLloyd)",
                "shares of its rows, by nearest proxy",
                lambda n, k: math.sqrt(1.0 / n + 1.0 / k),
                nonnegative=True,
            ),
        ),
        # Then T refinements. Lloyd steps on residuals, whose radius falls with their
        # mean square.
        "refinement": (
            Summed(
                "residual_sums",
                lambda run: (run.n_clusters, run.n_features),
                lambda options, whole: (
                    whole * (1.0 - options.counts_share - options.residual_share)
                ),
                "S14: one row's residual from its nearest centroid, divided by the"
                " radius and clipped to length 1, is in one sum (ProxyLloyd)",
                "mean residual over its rows, by cluster",
                lambda n, _: 1.0 / math.sqrt(n),
            ),
            Summed(
                "counts",
                lambda run: (run.n_clusters,),
                lambda options, whole: whole * options.counts_share,
                counts_sensitivity().because,
                "shares of its rows, by cluster",
                lambda n, k: math.sqrt(1.0 / n + 1.0 / k),
                nonnegative=True,
            ),
            Summed(
                "residual_squares",
                lambda run: (run.n_radii,),
                lambda options, whole: whole * options.residual_share,
                "S14: one row's squared residual in radii, clipped, is at most 1, in"
                " one entry (ProxyLloyd)",
                "mean squared residual over its rows, by cluster where each has a"
                " radius",
                nonnegative=True,
            ),
        ),
        # The last one also releases what it clips, which would bias the result.
        "excess": (
            Summed(
                EXCESS,
                lambda run: (run.n_clusters, run.plan.n_shells * run.n_features),
                lambda options, whole: whole,
                "S35: what is beyond the radius of one row's residual, divided by the"
                " length of its shell and clipped to length 1, is in one sum"
                " (ProxyLloyd)",
                "mean excess over its rows, by cluster and shell",
            ),
        ),
    }
)
"""What each kind of round releases: shapes, shares of the budget, and why nothing moves
by more than its bound.
"""


def client_bounds(config: RunConfig) -> dict[str, float]:
    """Clip bounds of one client's means, by name of the array: above 0, at most 1.

    Means are of vectors of length at most 1. A client beyond a bound is scaled down:
    its direction is kept.
    """
    n, k = config.settings.examples_per_client, config.n_clusters
    bounds = {}
    for arrays in ROUNDS.values():
        for summed in arrays:
            bound = min(1.0, summed.client_bound(n, k))
            bounds[summed.name] = float(f"{bound:.12g}")
    return bounds
