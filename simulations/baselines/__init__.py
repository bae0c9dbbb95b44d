"""Clusterings that need all rows in one place, to compare with.

``optimal`` and ``k_fed`` have no privacy, ``max_cover`` and ``balcan`` are
differentially private. Never through Flower.
"""

from __future__ import annotations

from simulations.baselines.balcan import balcan
from simulations.baselines.central import fit, require_central
from simulations.baselines.max_cover import MaxCoverResult, max_cover
from simulations.baselines.pooled import k_fed, optimal

__all__ = [
    "MaxCoverResult",
    "balcan",
    "fit",
    "k_fed",
    "max_cover",
    "optimal",
    "require_central",
]
