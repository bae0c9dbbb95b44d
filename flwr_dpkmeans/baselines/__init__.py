"""Clusterings that need all rows in one place, to compare with.

``optimal`` and ``k_fed`` have no privacy, ``max_cover`` and ``balcan`` are
differentially private. Never through Flower.
"""

from __future__ import annotations

from flwr_dpkmeans.baselines.balcan import balcan
from flwr_dpkmeans.baselines.central import fit, require_central
from flwr_dpkmeans.baselines.max_cover import max_cover
from flwr_dpkmeans.baselines.noisy_averages import MaxCoverResult
from flwr_dpkmeans.baselines.pooled import k_fed, optimal

__all__ = [
    "MaxCoverResult",
    "balcan",
    "fit",
    "k_fed",
    "max_cover",
    "optimal",
    "require_central",
]
