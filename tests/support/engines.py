"""By which signs a process knows the engine that it runs in, for the time of a test."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from support.installed import forget, install

_SIMULATION = "flwr.simulation.run_simulation"
"""Flower imports it where a ServerApp is simulated, and nowhere else."""


def join_ray(patch: pytest.MonkeyPatch, *, as_actor: bool = True) -> None:
    """Let the process seem to be an actor of Ray, or one that uses a cluster.

    A client is virtual in an actor if its node has a partition too.
    """
    context = SimpleNamespace(get_actor_id=lambda: "ab12" if as_actor else None)
    ray = SimpleNamespace(
        is_initialized=lambda: True, get_runtime_context=lambda: context
    )
    install(patch, ray=ray)


def simulate_server(patch: pytest.MonkeyPatch, *, simulated: bool = True) -> None:
    """Let the process seem to be Flower's simulation, or a deployment."""
    if simulated:
        install(patch, **{_SIMULATION: sys})
    else:
        forget(patch, _SIMULATION)
