"""How many proxies have enough rows each to be told from none."""

from __future__ import annotations

import math
from dataclasses import replace

from flwr_dpkmeans.algorithms.proxy.array_noise import bounds_by_array, whole_multiplier
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.sums.public_facts import PublicFacts


def options_for(public: PublicFacts, options: ProxyOptions) -> ProxyOptions:
    """The options as they are, or without the rule for few proxies.

    Without it beside points of a server, if there are enough proxies.
    """
    if public.server is None or public.server.n_points == 0:
        return options
    without_rule = replace(options, few_proxies=0.0)
    _, n_proxies = n_passes_and_proxies(public, without_rule)
    # The points may miss clusters, which only proxies show.
    if n_proxies >= least_proxies(public):
        return without_rule
    return options


def n_passes_and_proxies(public: PublicFacts, options: ProxyOptions) -> tuple[int, int]:
    """Releases over proxies, and how many proxies have rows enough.

    Each is to be told from one without rows.
    """
    k = public.config.n_clusters
    noise = whole_multiplier(public)
    counts_bound = bounds_by_array(public).get("proxy_counts", 1.0)
    most = max(options.most_proxies, options.proxies_per_cluster * k)

    def n_with_rows(n_passes: int, rows: float) -> float:
        """As many proxies as have so many rows each.

        Rows are in deviations of a count's noise in each of some passes.
        """
        pass_share = options.seeding_share / n_passes
        share = pass_share * options.proxy_counts_share
        deviation = noise / math.sqrt(share)
        counts_noise = deviation * counts_bound
        rows_per_proxy = rows * counts_noise
        return public.n_units / rows_per_proxy

    n_passes = options.subspace_passes
    if public.n_features <= options.most_direct_features:
        # A second pass was not measured at client level, or beside points of the
        # server's own.
        unit = public.config.settings.unit
        is_plain = public.server is None and unit.by_row
        least = (
            options.proxies_per_column
            * max(4, public.n_features)
            * most
            / options.most_proxies
        )
        n_passes = 1
        if is_plain and n_with_rows(2, options.rows_per_proxy) >= least:
            n_passes = 2
    n_faint = n_with_rows(n_passes, options.least_count)
    n_few = min(options.few_proxies * k, most, n_faint)
    n_clear = n_with_rows(n_passes, options.rows_per_proxy)
    n_many = min(n_clear, most)
    n_proxies = max(int(n_many), int(n_few))
    return n_passes, n_proxies


def least_proxies(public: PublicFacts) -> int:
    """Fewer are too few to cluster."""
    return int(public.config.n_clusters) + 2
