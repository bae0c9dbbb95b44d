"""ProxyLloyd: a private start without server data, then Lloyd steps on clipped residuals with shrunk steps.

Rounds: location -> covariance -> proxies x L -> refinement x T. Pictures and reasons: ``algorithms/PROXY_LLOYD.md``.
"""

from __future__ import annotations

from flwr_dpkmeans.algorithms.lloyd_family import Public
from flwr_dpkmeans.algorithms.noise_budget import allocate
from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions, derive_plan, options_for
from flwr_dpkmeans.algorithms.proxy_refinement import refinement_parts, refinement_round
from flwr_dpkmeans.algorithms.proxy_rounds import (
    covariance_parts,
    covariance_round,
    initial_state,
    location_parts,
    location_round,
    proxy_parts,
    proxy_round,
)
from flwr_dpkmeans.algorithms.proxy_setting import Setting
from flwr_dpkmeans.sums.round import Algorithm


def build(public: Public, options: ProxyOptions = ProxyOptions()) -> Algorithm:  # noqa: B008 - frozen
    """ProxyLloyd as a list of 2 + L + T private sums.

    Parameters
    ----------
    public : Public
        Public parameters; N must be known.
    options : ProxyOptions, optional
        Constants, for experiments; a plan stands for the defaults.

    Returns
    -------
    Algorithm
        All statistics are sums of vectors of length at most 1 per row, so every L2 sensitivity is 1 (the outer
        product's has the rounding of its sum added).
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
