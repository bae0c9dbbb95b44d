"""How many proxies have enough rows each to be told from none."""

from __future__ import annotations

import math
from dataclasses import replace

from flwr_dpkmeans.algorithms.proxy.array_noise import bounds_by_array, whole_multiplier
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.public_facts import PublicFacts


def options_for(public: PublicFacts, options: ProxyOptions) -> ProxyOptions:
    """The options as they are, or beside points of a server without the rule for few
    proxies, if there are enough.
    """
    if public.server is None or public.server.n_points == 0:
        return options
    found = replace(options, few_proxies=0.0)
    # The points may miss clusters, which only proxies show.
    return (
        found
        if n_passes_and_proxies(public, found)[1] >= least_proxies(public)
        else options
    )


def n_passes_and_proxies(public: PublicFacts, options: ProxyOptions) -> tuple[int, int]:
    """Releases over proxies, if there are any, and as many of these as have enough rows
    each to be told from none.
    """
    k, noise = public.config.n_clusters, whole_multiplier(public)
    most = max(options.most_proxies, options.proxies_per_cluster * k)

    def heard(n_passes: int, rows: float) -> float:
        """As many as have so many rows each, in deviations of a count's noise in each
        of some passes.
        """
        share = options.seeding_share / n_passes * options.proxy_counts_share
        return public.n_units / (
            rows
            * (
                noise
                / math.sqrt(share)
                * bounds_by_array(public).get("proxy_counts", 1.0)
            )
        )

    n_passes = options.subspace_passes
    if public.n_features <= options.most_direct_features:
        # A second pass was not measured at client level, or beside points of the
        # server's own.
        is_plain = (
            public.server is None and public.config.settings.unit is PrivacyUnit.RECORD
        )
        least = (
            options.proxies_per_column
            * max(4, public.n_features)
            * most
            / options.most_proxies
        )
        n_passes = 2 if is_plain and heard(2, options.rows_per_proxy) >= least else 1
    few = min(options.few_proxies * k, most, heard(n_passes, options.least_count))
    return n_passes, max(
        int(min(heard(n_passes, options.rows_per_proxy), most)), int(few)
    )


def least_proxies(public: PublicFacts) -> int:
    """Fewer are too few to cluster."""
    return int(public.config.n_clusters) + 2
