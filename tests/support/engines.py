"""By which signs a process knows the engine that it runs in, for the time of a test."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

_SIMULATION = "flwr.simulation.run_simulation"
"""Flower imports it where a ServerApp is simulated, and nowhere else."""


def join_ray(patch: pytest.MonkeyPatch) -> None:
    """Let the process seem to be a worker of Ray.

    A client is virtual there if its node has a partition too.
    """
    patch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))


def simulate_server(patch: pytest.MonkeyPatch, *, simulated: bool = True) -> None:
    """Let the process seem to be Flower's simulation, or a deployment."""
    if simulated:
        patch.setitem(sys.modules, _SIMULATION, sys)
    else:
        patch.delitem(sys.modules, _SIMULATION, raising=False)
