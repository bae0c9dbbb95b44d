"""Clusterings to compare with. They run on arrays in one process, without Flower.

* ``optimal``: central k-means without privacy
* ``k_fed``: one-shot federated clustering without privacy
* ``max_cover``: central differentially private k-means
"""

from __future__ import annotations

from flwr_dpkmeans.baselines.cover_budget import ReleaseLine
from flwr_dpkmeans.baselines.k_fed import k_fed
from flwr_dpkmeans.baselines.max_cover import MaxCoverResult, max_cover
from flwr_dpkmeans.baselines.optimal import optimal

__all__ = ["MaxCoverResult", "ReleaseLine", "k_fed", "max_cover", "optimal"]
