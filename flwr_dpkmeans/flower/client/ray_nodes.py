"""Whether a node is a virtual one of Flower's Ray simulation."""

from __future__ import annotations

import sys
from enum import StrEnum

from flwr.app import Context


class OutputFiles(StrEnum):
    """Which virtual clients write their result into files."""

    ALL = "all"
    FIRST = "first"


def is_simulation(context: Context) -> bool:
    """Whether this node is a virtual one of Flower's Ray simulation.

    By signs that no message can forge.

    A deployed node may have a partition in its configuration, and may join a cluster
    that reads its rows, but runs in no actor.
    """
    return "partition-id" in context.node_config and runs_on_ray()


def runs_on_ray() -> bool:
    """Whether this process is an actor of a Ray cluster."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None
