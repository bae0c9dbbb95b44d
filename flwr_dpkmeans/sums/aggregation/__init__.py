"""How a run adds up, and what becomes of a sum where clients fall silent."""

from __future__ import annotations

from flwr_dpkmeans.sums.aggregation.aggregators import (
    AGGREGATORS,
    PARTIES,
    party_of,
    session_of,
)
from flwr_dpkmeans.sums.aggregation.plain_sums import Plain
from flwr_dpkmeans.sums.aggregation.recovered_sums import Recovered
from flwr_dpkmeans.sums.aggregation.repeated_sums import Repeated

__all__ = [
    "AGGREGATORS",
    "PARTIES",
    "Plain",
    "Recovered",
    "Repeated",
    "party_of",
    "session_of",
]
