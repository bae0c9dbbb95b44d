"""ProxyLloyd: a private start without server data, then Lloyd steps on clipped residuals with shrunk steps.

Rounds: location -> covariance -> proxies x L -> refinement x T. Pictures and reasons: ``algorithms/PROXY_LLOYD.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.noise_budget import allocate
from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions, Setting, derive_plan, options_for
from flwr_dpkmeans.algorithms.proxy_rounds import (
    covariance_parts,
    covariance_round,
    initial_state,
    location_parts,
    location_round,
    proxy_parts,
    proxy_round,
    refinement_parts,
    refinement_round,
)
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm
from flwr_dpkmeans.sums.settings import Options, whole
from flwr_dpkmeans.sums.task import Known, ServerData


@dataclass(frozen=True)
class ProxyLloydOptions(Options):
    """Options of ProxyLloyd; its constants are `ProxyOptions`."""

    max_iter: int | None = whole(None, 0, 5, "number of refinements; automatic: at most 5", most=1_000)
    n_init: int = whole(20, 1, 20, "restarts of k-means on the proxies", most=10_000)


@dataclass(frozen=True, kw_only=True)
class ProxyLloyd(KMeansTask):
    """ProxyLloyd as a task."""

    name = "proxy_lloyd"
    title = "ProxyLloyd: a private start from weighted proxies, then shrunk Lloyd steps on clipped residuals"
    units = tuple(PrivacyUnit)
    needs_n_examples = weighs_clients_alike = True
    server_data = ServerData.OPTIONAL
    chooses = True
    options: ProxyLloydOptions = ProxyLloydOptions()

    def build(self, known: Known) -> Algorithm:
        """See `build`."""
        return build(known)

    def server_points_words(self, plan: Plan) -> str:
        """The server's points steer the first proxies."""
        has_proxies = any(block.name == "proxy_counts" for planned in plan.rounds for block in planned.blocks)
        start = (
            "proxies, half of which are spread over their neighbourhoods and may lie on them, along directions in "
            "which their covariance has a part"
            if has_proxies
            else f"first centroids, the centers of their own {self.n_clusters} clusters, some of which may be points "
            "themselves"
        )
        return f"stay on the server; clients see their mean, a radius around it, and {start}"


def build(public: Known, options: ProxyOptions = ProxyOptions()) -> Algorithm:  # noqa: B008 - frozen
    """ProxyLloyd as a list of 2 + L + T private sums; N must be known. A plan stands for the default constants.

    All statistics are sums of vectors of length at most 1 per row, so every L2 sensitivity is 1 (the outer product's
    has the rounding of its sum added).
    """
    options = options_for(public, options)
    plan = derive_plan(public, options)
    setting = Setting(public, plan, options)
    parts = [
        location_parts(setting),
        covariance_parts(setting),
        *(proxy_parts(setting) for _ in range(plan.n_passes)),
        *(refinement_parts(setting, share) for share in plan.refinement_shares),
    ]
    location, covariance, *others = allocate(public, parts)
    passes, refinements = others[: plan.n_passes], others[plan.n_passes :]
    rounds = (
        location_round(setting, location),
        covariance_round(setting, covariance),
        *(proxy_round(setting, blocks, index) for index, blocks in enumerate(passes, start=1)),
        *(refinement_round(setting, blocks, index) for index, blocks in enumerate(refinements, start=1)),
    )
    return Algorithm("proxy_lloyd", rounds, initial_state(setting))
