"""The constants of ProxyLloyd."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProxyOptions:
    """The constants, whose reasons stand in ``proxy_lloyd.md``.

    `simulations.papers.proxy.ablation` changes one at a time.
    """

    # of the squared-GDP budget, for the mean; and as much for the outer product
    location_share: float = 0.05
    squares_share: float = 0.01  # for the mean squared length
    looks: int = 3
    least_zoom: float = (
        5.0  # how far in the first look must be able to see to have any (`derive_plan`)
    )
    distances_share: float = (
        0.25  # for a look's histogram of distances, beside its two others
    )
    # counts of a bin of distances are told from noise from so many deviations on
    audible_deviations: float = 3.0
    look_clip: float = 1.5  # clip bound of a look, in spreads as far as known
    # clip bounds of centred rows, in spreads, and of proxies, in sides of a cell,
    # spread * k'^(-1/r)
    clip: float = 1.2
    seeding_share: float = 0.35  # for all passes over proxies together
    proxy_counts_share: float = 0.6  # of a pass, for counts
    # of a refinement, for counts; and for residuals' mean square: 0 keeps the radius
    counts_share: float = 0.1
    residual_share: float = 0.03
    rows_per_proxy: float = (
        3.5  # on average, in standard deviations of the noise on a count
    )
    few_proxies: float = 2.5  # up to so many per cluster may have `least_count` instead
    most_proxies: int = (
        200  # or as many as there may be per cluster, where these are more
    )
    proxies_per_cluster: int = 8
    # from which on they are spread over all of the box too, and better heard twice
    proxies_per_column: float = 12.5
    most_direct_features: int = 8  # up to here proxies are spread over the box itself
    # directions of the private covariance that the proxies of wider tables live in
    most_components: int = 12
    subspace_passes: int = 3
    refinements: int = 5  # T; one less for each pass beyond the second
    cluster_clip: float = 0.8  # in sides of a cluster's cell, spread * k^(-1/d)
    # of the mean square around what the radius was chosen for, in squared radii
    residual_prior_variance: float = 0.06
    # radius of a pass over that of the one before; and how widely its proxies lie
    # around
    pass_shrinking: float = 0.8
    # up to here rows of few proxies are spread over their cells; 0: they lie on them
    most_scattered_features: int = 5
    least_count: float = (
        2.0  # of a proxy that has rows, or of all proxies, in deviations of their noise
    )
    # on a count, in average clusters: from here on proxies may be believed in falsely
    unsure_noise: float = 0.1
    # part of the proxies beyond the farthest rows heard, where these do not fill the
    # box
    far_share: float = 0.2
    least_tau: float = (
        0.25  # smallest variance of a first step; in refinement t, its power 2 t - 1
    )
    audible_noise: float = (
        0.02  # on a centroid, in radii: what it falls short of this widens them
    )
    clips: bool = (
        True  # residuals beyond the radius; False drops them, as FastLloyd does
    )
    # proxies by posterior means of their counts; False: by noisy counts above 0
    weighs_likely: bool = True
    # the weight of rows heard far away, but at no proxy, in the next pass; 0: no weight
    unheard_times: float = 3.0
    adds_up: bool = True  # makes counts of refinements add up to all rows
    # counts of refinements toward their mean, by what noise explains of their scatter
    pulls: bool = True
    # share of the last refinement, whose steps nothing mends, in those of the others
    last_weight: float = 2.0
    n_shells: int = 5  # of what the last refinement clips; 0: it is not released
    excess_share: float = 0.4  # of the last refinement, for them
    audible_excess: float = (
        0.03  # noise on a centroid, in radii, from which on they say nothing
    )
    most_excess: int = 1 << 16  # entries of theirs, from which on they are not released
    # columns from which on they are not released: residuals are nearly alike in length,
    # and the share that shells take from the sums costs more than tails do
    most_excess_features: int = 64
    splits: bool = True  # the largest cluster by a centroid that likely has no rows


def look_share(options: ProxyOptions) -> float:
    """Part of a location round's shares that the moments of one look have.

    The mean and the mean square together, where there is a single round.
    """
    return 1.0 / (options.looks * (1.0 + options.distances_share))
