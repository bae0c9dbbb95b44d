"""One client of a run, without I/O; `sums.client.transitions` has the rules."""

from __future__ import annotations

from flwr_dpkmeans.sums.client.injected import Guard, Statistic
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.client.transitions import Client

__all__ = [
    "Client",
    "Guard",
    "Memory",
    "Statistic",
]
