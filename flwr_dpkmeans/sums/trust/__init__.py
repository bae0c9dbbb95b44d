"""Who adds noise and who may read a sum (a trust model).

What a plan, a client, a server, a report or a forecast does differently from one to
another, it asks here.
"""

from __future__ import annotations

from flwr_dpkmeans.sums.trust.central_trust import Central, Curator
from flwr_dpkmeans.sums.trust.counted_shares import Shares
from flwr_dpkmeans.sums.trust.distributed_trust import Distributed
from flwr_dpkmeans.sums.trust.oblivious_trust import Oblivious
from flwr_dpkmeans.sums.trust.registered import (
    TRUST_MODELS,
    register_trust,
    trust_model,
)
from flwr_dpkmeans.sums.trust.trust_base import Broadcast, TrustModel

__all__ = [
    "TRUST_MODELS",
    "Broadcast",
    "Central",
    "Curator",
    "Distributed",
    "Oblivious",
    "Shares",
    "TrustModel",
    "register_trust",
    "trust_model",
]
