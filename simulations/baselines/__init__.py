"""Clusterings that need all rows in one place, to compare with.

``optimal`` and ``k_fed`` have no privacy, ``max_cover`` is differentially private. Never through Flower.
"""

from __future__ import annotations

from simulations.baselines.central import fit, require_central
from simulations.baselines.max_cover import MaxCoverResult, max_cover
from simulations.baselines.pooled import k_fed, optimal

__all__ = ["MaxCoverResult", "fit", "k_fed", "max_cover", "optimal", "require_central"]
