"""What ProxyLloyd decides before anything is released: numbers of proxies, passes and rounds, and budget shares.

Everything follows from public values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.task import Known, Run


@dataclass(frozen=True)
class ProxyOptions:
    """The constants, each with its reason; runs use the defaults, `simulations.ablation` changes one at a time.

    Parameters
    ----------
    location_share : float
        Of the squared-GDP budget, for the mean: at 150 rows and epsilon 0.1 its noise is as large as a typical mean.
    squares_share : float
        For the mean squared length, one number that the first radii hang on.
    covariance_share : float
        For the outer product.
    seeding_share : float
        For all passes over proxies together; between a quarter and nearly a half no difference is measurable.
    proxy_counts_share : float
        Of a pass, for counts: they decide which proxies are real, sums only move them inside their small cells.
    counts_share : float
        Of a refinement, for counts: a count is one number of size N/k, a sum is d numbers that are small in the end.
    residual_share : float
        Of a refinement, for the mean squared residual, one number that sets the next radius; 0 keeps the radius.
    growth : float
        Refinement t gets a share proportional to e^(growth t): a later one starts nearer to its goal and is kept.
    rows_per_proxy : float
        In standard deviations of the noise on a count: fewer rows would not be told from none.
    most_proxies, least_most_proxies, proxies_per_cluster : int
        k' is at most ``min(most, max(least_most, per_cluster * k))``.
    worth_seeding : float
        With fewer proxies per cluster there is nothing to cluster: their budget goes to the refinements.
    most_direct_features : int
        Up to here some 200 proxies put two cells or more on most axes (2^8 = 256): one pass over the box is enough.
    most_components : int
        Directions of the private covariance that the proxies of wider tables live in.
    subspace_passes : int
        One pass finds the neighbourhoods, the second and the third look more closely where rows are.
    server_location_share, server_seeding_share, server_passes : float, float, int
        The same with server points, which say where to look first.
    refinements, most_rounds : int
        T, and the largest number of rounds in all.
    location_clip : float
        Rows are clipped at this part of the box's half diagonal: uniform rows have 0.58 of it.
    covariance_clip : float
        In root mean square lengths of a centred row: in many dimensions nearly all rows have that length.
    proxy_clip : float
        In sides of a proxy's cell, spread * k'^(-1/r).
    cluster_clip : float
        In sides of a cluster's cell, spread * k^(-1/d); FastLloyd's alpha.
    residual_width : float
        Next radius in root mean squares of the last residuals.
    residual_prior_variance : float
        How far the mean square may be from what the radius was chosen for, in squared radii.
    pass_shrinking : float
        Radius of a pass over that of the one before.
    split_width : float
        Standard deviation of new proxies around an old one, in radii along all axes together.
    weight_threshold : float
        Counts below so many times sqrt(2 ln k') deviations of their noise count as next to nothing.
    first_least_tau, least_tau_falls : float
        Smallest variance of a step that the first refinement considers, and its factor from one to the next.
    audible_noise : float
        Noise on a centroid, in radii, below which radii are widened with the cube root of what it falls short of this:
        clipping biases a centroid however many rows there are, and where noise is next to nothing that bias is most
        of the error.
    most_widening : float
        Where widening ends.
    clips : bool
        Clip residuals beyond the radius; False drops them, as FastLloyd does.
    """

    location_share: float = 0.05
    squares_share: float = 0.01
    covariance_share: float = 0.05
    seeding_share: float = 0.35
    proxy_counts_share: float = 0.6
    counts_share: float = 0.1
    residual_share: float = 0.03
    growth: float = 0.2
    rows_per_proxy: float = 3.5
    most_proxies: int = 1000
    least_most_proxies: int = 200
    proxies_per_cluster: int = 8
    worth_seeding: float = 1.3
    most_direct_features: int = 8
    most_components: int = 12
    subspace_passes: int = 3
    server_location_share: float = 0.03
    server_seeding_share: float = 0.12
    server_passes: int = 2
    refinements: int = 5
    most_rounds: int = 9
    location_clip: float = 0.6
    covariance_clip: float = 1.2
    proxy_clip: float = 1.2
    cluster_clip: float = 0.8
    residual_width: float = 1.3
    residual_prior_variance: float = 0.06
    pass_shrinking: float = 0.8
    split_width: float = 0.75
    weight_threshold: float = 0.8
    first_least_tau: float = 0.25
    least_tau_falls: float = 0.0625
    audible_noise: float = 0.02
    most_widening: float = 3.0
    clips: bool = True


def options_for(public: Known, options: ProxyOptions) -> ProxyOptions:
    """Put the values for runs with server points in place, where there are any."""
    if public.server is None or public.server.n_points == 0:
        return options
    return replace(
        options,
        location_share=options.server_location_share,
        seeding_share=options.server_seeding_share,
        subspace_passes=options.server_passes,
    )


def client_bounds(config: Run) -> dict[str, float]:
    """Clip bounds of one client's means of vectors of length at most 1, by name of the array.

    The mean of n vectors of length 1 has a length between 1 / sqrt(n), where they point anywhere, and 1, where they all
    agree. Shares of k cells have a norm of sqrt(1 / k + 1 / n) where cells are equally likely; residuals from nearest
    centers are without a common direction once these lie well. A client beyond a bound is scaled down: its direction
    is kept.

    Parameters
    ----------
    config : Run
        n is its declared ``examples_per_client``.

    Returns
    -------
    dict of str to float
        From above 0 to 1, of twelve digits.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> bounds = client_bounds(parse_config(n_clusters=10, bounds=((-1,), (1,))))
    >>> round(bounds["counts"], 3), round(bounds["residual_sums"], 3), bounds["row_squares"]
    (0.346, 0.141, 1.0)
    """
    n, k = config.settings.examples_per_client, config.n_clusters
    scattered = 1.0 / math.sqrt(n)
    shares = math.sqrt(1.0 / n + 1.0 / k)
    bounds = {
        "row_sums": 1.0,
        "row_squares": 1.0,
        "unit_outer_product": 2.0 * scattered,
        "proxy_sums": scattered,
        "proxy_counts": shares,
        "residual_sums": scattered,
        "counts": shares,
        "residual_squares": 1.0,
    }
    return {name: float(f"{min(1.0, bound):.12g}") for name, bound in bounds.items()}


@dataclass(frozen=True)
class ProxyPlan:
    """Public numbers of a run.

    Parameters
    ----------
    n_proxies : int
        k'; 0 where proxies are skipped.
    n_passes : int
        Releases over proxies; 0 where proxies are skipped.
    n_components : int or None
        Dimension of the subspace that proxies live in; None: the whole space.
    refinement_shares : tuple of float
        Share of the squared-GDP budget of each refinement.
    pass_share : float
        Share of one pass.
    cover_box : bool
        Whether some proxies are spread over the whole box.
    widening : float
        Factor on the refinements' radii, at least 1.
    """

    n_proxies: int
    n_passes: int
    n_components: int | None
    refinement_shares: tuple[float, ...]
    pass_share: float
    cover_box: bool
    widening: float = 1.0


def derive_plan(public: Known, options: ProxyOptions) -> ProxyPlan:
    """Derive the numbers of a run from N, d, k, epsilon and delta.

    Parameters
    ----------
    public : Known
    options : ProxyOptions

    Returns
    -------
    ProxyPlan

    Raises
    ------
    PlanError
        If there are too few proxies to choose k from.
    """
    config, d, k = public.config, public.n_features, public.config.n_clusters
    n_components = None if d <= options.most_direct_features else min(d, options.most_components, max(2, k - 1))
    n_passes = 1 if n_components is None else options.subspace_passes
    sigma = gaussian_noise_multiplier(config.settings.epsilon, public.delta) * public.noise_factor
    counts_noise = sigma / math.sqrt(options.seeding_share / n_passes * options.proxy_counts_share)
    bounds = client_bounds(config) if config.settings.unit is PrivacyUnit.CLIENT else {}
    counts_noise *= bounds.get("proxy_counts", 1.0)
    n_units = public.n_units
    most = min(options.most_proxies, max(options.least_most_proxies, options.proxies_per_cluster * k))
    n_proxies = int(min(n_units / (options.rows_per_proxy * counts_noise), most))
    if n_proxies < options.worth_seeding * k:
        if config.choose_n_clusters:
            raise PlanError(
                f"n_clusters='auto' needs more than {options.worth_seeding * k:.0f} proxies to look for up to {k} "
                f"clusters, but the budget allows {n_proxies}: give n_clusters, or raise epsilon or lower max_clusters."
            )
        n_proxies, n_passes = 0, 0
    before = options.location_share + options.squares_share + options.covariance_share
    before += options.seeding_share if n_passes else 0.0
    default = min(options.refinements, options.most_rounds - 2 - n_passes)
    growing = [
        math.exp(options.growth * t)
        for t in range(default if public.options.max_iter is None else public.options.max_iter)
    ]
    noise = bounds.get("residual_sums", 1.0) * sigma * math.sqrt(d) * k / (n_units * math.sqrt(1.0 - before))
    widening = min(max(1.0, (options.audible_noise / noise) ** (1.0 / 3.0)), options.most_widening)
    return ProxyPlan(
        n_proxies=n_proxies,
        n_passes=n_passes,
        n_components=n_components,
        refinement_shares=tuple((1.0 - before) * weight / math.fsum(growing) for weight in growing),
        pass_share=options.seeding_share / max(1, n_passes),
        cover_box=n_components is None and n_proxies >= 2 ** (d + 1),
        widening=float(f"{widening:.12g}"),
    )
