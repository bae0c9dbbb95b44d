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

    A deployed client may use Ray for itself, so the partition that Flower gives its
    virtual nodes must be there too.
    """
    return "partition-id" in context.node_config and runs_on_ray()


def runs_on_ray() -> bool:
    """Whether this process has joined a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
