"""Folders of a run's results."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from flwr_dpkmeans.flower.client import ray_nodes
from flwr_dpkmeans.flower.client.ray_nodes import OutputFiles

HOME_FOLDER = "flwr-dpkmeans"


def output_folder(context: Context) -> Path:
    """Folder of one client's results of this run alone.

    Where the node's own configuration (``output``) says.

    The run's ``output`` counts in a simulation only: elsewhere, a path from the server
    would be an arbitrary write.
    """
    root = str(context.node_config.get("output") or "")
    if not root and ray_nodes.is_simulation(context):
        root = str(context.run_config.get("output", ""))
    return run_folder(root, context.run_id) / f"client-{context.node_id}"


def result_folder(context: Context) -> Path | None:
    """Folder for one client's result.

    None for a virtual client that is not to write one.

    All virtual clients of a run end with the same result, and a picture takes half a
    second. A deployed node always writes: the server may not decide that.
    """
    first_only = (
        str(context.run_config.get("output-files", OutputFiles.ALL))
        == OutputFiles.FIRST
    )
    if (
        ray_nodes.is_simulation(context)
        and first_only
        and context.node_config["partition-id"] != 0
    ):
        return None
    return output_folder(context)


def run_folder(output: str, run_id: int) -> Path:
    """Folder of a run, ``run-<run id>``, below `output` or ``~/flwr-dpkmeans``."""
    root = Path(output).expanduser().absolute() if output else Path.home() / HOME_FOLDER
    return root / f"run-{run_id}"
