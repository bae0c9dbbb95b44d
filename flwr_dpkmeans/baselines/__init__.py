"""Clusterings that need all rows in one place, to compare with: `run` carries one out and reports its privacy.

``optimal`` and ``k_fed`` have no privacy, ``max_cover`` is differentially private. Never through Flower.
"""

from __future__ import annotations

from flwr_dpkmeans.baselines.central import CENTRAL_BASELINES, CentralResult, require_central, run
from flwr_dpkmeans.baselines.max_cover import MaxCoverResult, max_cover
from flwr_dpkmeans.baselines.pooled import k_fed, optimal

__all__ = [
    "CENTRAL_BASELINES",
    "CentralResult",
    "MaxCoverResult",
    "k_fed",
    "max_cover",
    "optimal",
    "require_central",
    "run",
]
