"""Public numbers of a run of ProxyLloyd, before any release."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.proxy.array_noise import bounds_by_array, whole_multiplier
from flwr_dpkmeans.algorithms.proxy.proxy_count import (
    least_proxies,
    n_passes_and_proxies,
)
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions, look_share
from flwr_dpkmeans.algorithms.proxy.summed import ROUNDS
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.sums.public_facts import PublicFacts


@dataclass(frozen=True)
class ProxyPlan:
    """Public numbers of a run."""

    n_proxies: int
    """k'; 0 where proxies are skipped."""
    n_passes: int
    """Releases over proxies; 0 where proxies are skipped."""
    n_components: int | None
    """Dimension of the subspace that proxies live in; None: the whole space."""
    refinement_shares: tuple[float, ...]
    pass_share: float
    cover_box: bool
    widening: float = 1.0
    """Factor on the refinements' radii, at least 1."""
    n_shells: int = 0
    """Shells of what the last refinement clips; 0: not released."""
    n_looks: int = 0
    """Looks at where the data lie; 0: one round at a fixed clip bound instead."""


def derive_plan(public: PublicFacts, options: ProxyOptions) -> ProxyPlan:
    """Derive a run's numbers from N, d, k, epsilon and delta.

    Too few proxies to choose k from are a `PlanError`.
    """
    config, d, k = public.config, public.n_features, public.config.n_clusters
    n_components = (
        None
        if d <= options.most_direct_features
        else min(d, options.most_components, max(2, k - 1))
    )
    n_passes, n_proxies = n_passes_and_proxies(public, options)
    if n_proxies < least_proxies(public):
        if config.choose_n_clusters:
            raise PlanError(
                f"n_clusters='auto' needs at least {least_proxies(public)} proxies to"
                f" look for up to {k} clusters, but the budget allows {n_proxies}: give"
                " n_clusters, or raise epsilon or lower max_clusters."
            )
        n_passes = n_proxies = 0
    sigma, bounds = whole_multiplier(public), bounds_by_array(public)
    before = 0.0
    for summed in (*ROUNDS["location"], *ROUNDS["covariance"]):
        before += summed.share(options, 1.0)
    before += options.seeding_share if n_passes else 0.0
    noise = (
        bounds.get("residual_sums", 1.0)
        * sigma
        * math.sqrt(d)
        * k
        / (public.n_units * math.sqrt(1.0 - before))
    )
    widening = max(1.0, (options.audible_noise / noise) ** (1.0 / 3.0))
    n_refinements = public.options.max_iter
    if n_refinements is None:
        n_refinements = options.refinements - max(0, n_passes - 2)
    zoom = (
        public.n_units
        * math.sqrt(look_share(options) * options.location_share / d)
        / sigma
    )
    return ProxyPlan(
        n_proxies=n_proxies,
        n_passes=n_passes,
        n_components=n_components,
        refinement_shares=_refinement_shares(options, 1.0 - before, n_refinements),
        n_shells=_shells(public, options, noise),
        pass_share=options.seeding_share / max(1, n_passes),
        cover_box=n_components is None and n_proxies >= options.proxies_per_column * d,
        widening=float(f"{widening:.12g}"),
        n_looks=options.looks if zoom >= options.least_zoom else 0,
    )


def _refinement_shares(
    options: ProxyOptions,
    whole: float,
    n_refinements: int,
) -> tuple[float, ...]:
    """Share the rest of the budget among the refinements."""
    if n_refinements == 0:
        return ()
    n_others = n_refinements - 1
    share = whole / (n_others + options.last_weight)
    return (share,) * n_others + (options.last_weight * share,)


def _shells(
    public: PublicFacts,
    options: ProxyOptions,
    noise: float,
) -> int:
    """Shells of the excess that the last refinement releases.

    0 where noise hides it, or a client is protected.
    """
    size = public.config.n_clusters * public.n_features * options.n_shells
    is_small = size <= options.most_excess
    is_narrow = public.n_features <= options.most_excess_features
    is_heard = noise <= options.audible_excess and is_small and is_narrow
    by_record = public.config.settings.unit.by_row
    return options.n_shells if is_heard and by_record else 0
