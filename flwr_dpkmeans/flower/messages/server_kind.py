"""Whether a ServerApp runs in a deployment or in a simulation."""

from __future__ import annotations

import sys

from flwr.serverapp import Grid


def is_simulated_server() -> bool:
    """Whether this ServerApp runs inside Flower's simulation process.

    Where all nodes join at once.
    """
    return "flwr.simulation.run_simulation" in sys.modules


def is_deployed(grid: Grid) -> bool:
    """Whether messages go over a SuperLink, where every reply is polled for.

    Not in process, nor in a simulation.
    """
    return not getattr(grid, "is_complete", False) and not is_simulated_server()
