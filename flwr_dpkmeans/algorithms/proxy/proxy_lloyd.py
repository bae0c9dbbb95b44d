"""ProxyLloyd: a private start without server data, then Lloyd steps.

On clipped residuals, with shrunk steps.

One function for each kind of round of the table in `proxy_plan`: location, or look x 3
-> covariance -> proxies x L -> refinement x T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import private_sums
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.proxy.covariance import covariance_round
from flwr_dpkmeans.algorithms.proxy.location import before_looks, location_round
from flwr_dpkmeans.algorithms.proxy.look import look_round
from flwr_dpkmeans.algorithms.proxy.proxy_count import options_for
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.algorithms.proxy.proxy_pass import proxy_round
from flwr_dpkmeans.algorithms.proxy.proxy_plan import derive_plan
from flwr_dpkmeans.algorithms.proxy.refining.refinement import refinement_round
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.states.cluster_states import seeded_state
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import Options, whole
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerData
from flwr_dpkmeans.sums.round import Algorithm, Array, State


@dataclass(frozen=True)
class ProxyLloydOptions(Options):
    """Options of ProxyLloyd; its constants are `ProxyOptions`."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        "number of refinements; automatic: at most 5",
        most=1_000,
    )
    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means on the proxies",
        most=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class ProxyLloydTask(KMeansTask):
    """A private start from proxies, then shrunk Lloyd steps.

    4 + L + T private sums, 2 + L + T if looks see nothing.
    """

    name = "proxy_lloyd"
    units = tuple(PrivacyUnit)
    needs_n_examples = weighs_clients_alike = True
    server_data = ServerData.OPTIONAL
    chooses = True
    options: ProxyLloydOptions = ProxyLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """Rounds of the table in `proxy_plan`."""
        return build(public)

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so besides where bounds may not be much wider than the data.

        Their place cannot be looked for then.
        """
        looks = all(planned.name != "location" for planned in plan.rounds)
        if looks or plan.server is not None or plan.settings.private_bounds:
            return super().cautions(plan)
        return (
            *super().cautions(plan),
            (
                "So much noise on so few rows or clients hides where the data lie in"
                " wide bounds: these may be about twice as wide as the data; give"
                " narrower bounds, raise epsilon or add data."
            ),
        )

    def server_points_words(self, plan: Plan) -> str:
        """The server's points steer the first proxies."""
        has_proxies = any(
            block.name == "proxy_counts"
            for planned in plan.rounds
            for block in planned.blocks
        )
        start = (
            "proxies, half of which are spread over their neighbourhoods and may lie on"
            " them, along directions in which their covariance has a part"
            if has_proxies
            else (
                f"first centroids, the centers of their own {self.n_clusters} clusters,"
                " some of which may be points themselves"
            )
        )
        return (
            "stay on the server; clients see their mean, a radius around it, and"
            f" {start}"
        )


_DEFAULTS = ProxyOptions()


def build(public: PublicFacts, options: ProxyOptions = _DEFAULTS) -> Algorithm:
    """All rounds with their noise; N must be known."""
    options = options_for(public, options)
    plan = derive_plan(public, options)
    setting = Setting(public, plan, options)
    looks = [look_round(setting, index) for index in range(1, plan.n_looks + 1)]
    rounds = [
        *(looks or [location_round(setting)]),
        covariance_round(setting),
        *(proxy_round(setting, index) for index in range(1, plan.n_passes + 1)),
        *(
            refinement_round(setting, index)
            for index in range(1, len(plan.refinement_shares) + 1)
        ),
    ]

    def initial_state(seed: int, server_points: Array | None = None, /) -> State:
        state = seeded_state(
            np.zeros((setting.n_clusters, setting.n_features)), seed, server_points
        )
        return state.changed(**before_looks(setting, public.server)) if looks else state

    return Algorithm("proxy_lloyd", private_sums(public, rounds), initial_state)
