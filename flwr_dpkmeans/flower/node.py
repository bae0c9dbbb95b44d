"""How a node reads what is its own from Flower's context: settings, folders, its log, whether it is simulated."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from flwr.app import Context

from flwr_dpkmeans.algorithms.measure import COST_CURVE, EvaluationResult
from flwr_dpkmeans.algorithms.server_points import in_callers_units
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.app_guard import CLIENT_APP
from flwr_dpkmeans.log import LogOptions, event, show_logs
from flwr_dpkmeans.node.guard import NodeSettings, logger
from flwr_dpkmeans.node.ledger import FileLedger
from flwr_dpkmeans.node.node_settings import Identity
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.local import FIRST_NODE_ID
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

HOME_FOLDER = "flwr-dpkmeans"
LEDGERS = "ledgers"


class OutputFiles(StrEnum):
    """Which virtual clients write their result into files."""

    ALL = "all"
    FIRST = "first"


def is_simulation(context: Context) -> bool:
    """Whether this node is a virtual one of Flower's Ray simulation, by signs that no message can forge.

    A deployed client may use Ray for itself, so the partition that Flower gives its virtual nodes must be there too.
    """
    return "partition-id" in context.node_config and runs_on_ray()


def runs_on_ray() -> bool:
    """Whether this process has joined a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def is_simulated_server() -> bool:
    """Whether this ServerApp runs inside Flower's simulation process, where all nodes join at once."""
    return "flwr.simulation.run_simulation" in sys.modules


def output_folder(context: Context) -> Path:
    """Folder of one client's results.

    Its place comes from the node's own configuration (``output``) or is below the home folder; in a deployment a path
    sent by the server would be an arbitrary write. In simulation the run's ``output`` is used. Every run has a folder
    of its own there, so that no run touches another one's result.
    """
    root = str(context.node_config.get("output") or "")
    if not root and is_simulation(context):
        root = str(context.run_config.get("output", ""))
    return run_folder(root, context.run_id) / f"client-{context.node_id}"


def result_folder(context: Context) -> Path | None:
    """Folder for one client's result; None for a virtual client that is not to write one.

    All virtual clients of a run end with the same result, and a picture takes half a second. A deployed node always
    writes: the server may not decide that.
    """
    first_only = str(context.run_config.get("output-files", OutputFiles.ALL)) == OutputFiles.FIRST
    if is_simulation(context) and first_only and context.node_config.get("partition-id", 0) != 0:
        return None
    return output_folder(context)


def stream_number(context: Context) -> int:
    """Number of this node's streams of seeded noise and coins, which protect nobody; secure noise has none.

    Flower draws new node ids for every simulation, so a virtual client is counted by its partition, as the clients of
    the other engines are: equal seeds give equal results.
    """
    partition = context.node_config.get("partition-id")
    if isinstance(partition, int) and is_simulation(context):
        return FIRST_NODE_ID + partition
    return context.node_id


def run_folder(output: str, run_id: int) -> Path:
    """Folder of a run, ``run-<run id>``, below `output` or ``~/flwr-dpkmeans``."""
    root = Path(output).expanduser().absolute() if output else Path.home() / HOME_FOLDER
    return root / f"run-{run_id}"


def write_result(
    folder: Path,
    plan: Plan,
    state: State,
    report: PrivacyReport,
    names: tuple[str, ...] = (),
    evaluation: EvaluationResult | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> list[Path]:
    """Write what a run found: a clustering with its picture, or a task's own arrays; returns absolute paths."""
    from flwr_dpkmeans.results.writer import RunResult, result_files, write_folder, write_report

    if "centroids" not in state.arrays:
        return write_report(folder, report, plan.task.result(plan, state).arrays)
    result = RunResult(
        in_callers_units(plan, state.centroids),
        state.counts,
        state.movements,
        report,
        state.centroids,
        plan.bounds,
        image_shape,
        names,
        evaluation,
        state.extras.get(COST_CURVE),
    )
    return write_folder(folder, result_files(result))


def node_settings(context: Context) -> NodeSettings:
    """Read a node's settings from its node configuration.

    Keys: ``policy`` (path of a TOML file), ``ledger`` (path), ``identity`` (path of a key file), ``data-path``,
    ``data-id``, ``output``; the data loader of this package's own app reads ``columns``, ``header`` and
    ``label-column`` as well, the log ``log-format``, ``verbose`` and ``log-file``. A deployed node whose policy is
    missing or incomplete refuses every run; a policy or identity file that is missing or malformed, and pinned peers
    without an identity, are a ConfigurationError.
    """
    config: Mapping[str, Any] = context.node_config
    # A deployed node gives nothing to runs that protect nobody, unless its own policy says so in so many words.
    simulated = is_simulation(context)
    policy = ClientPolicy() if simulated else DEPLOYED
    if config.get("policy"):
        path = Path(str(config["policy"])).expanduser()
        if not path.is_file():
            raise ConfigurationError(f"the policy file {path.absolute()} does not exist: correct the node's 'policy'.")
        policy = ClientPolicy.from_toml(path, base=policy)
    data_id = str(config.get("data-id") or config.get("data-path") or "default")
    if config.get("ledger"):
        ledger = Path(str(config["ledger"])).expanduser()
    else:
        ledger = _default_ledger(context, data_id)
        ledger.parent.mkdir(parents=True, exist_ok=True)
    identity = Identity.load(Path(str(config["identity"])).expanduser()) if config.get("identity") else None
    return NodeSettings(policy, FileLedger(ledger), data_id, simulated, identity)


def _default_ledger(context: Context, data_id: str) -> Path:
    """A simulated client's ledger lies beside its results; a deployed node's in the home folder, one per data set."""
    if is_simulation(context):
        return output_folder(context).parent / LEDGERS / f"client-{context.node_id}.jsonl"
    name = hashlib.sha256(data_id.encode()).hexdigest()[:16]
    return Path.home() / HOME_FOLDER / f"ledger-{name}.jsonl"


def show_node_logs(context: Context) -> None:
    """Show the lines as the node's own configuration says; a server has no part in it.

    Virtual clients show theirs only where the program that runs them has set up logging.
    """
    config = context.node_config
    if not is_simulation(context):
        show_logs(LogOptions.of(config.get("log-format", ""), config.get("verbose", False), config.get("log-file", "")))


def look_for_guard() -> None:
    """Warn where Flower's own program runs this app: the guard runs it under another name."""
    if Path(sys.argv[0]).name == CLIENT_APP:
        logger.warning(
            "this node has no guard and runs whatever app the SuperLink sends: start it by 'python -m flwr_dpkmeans "
            "node start NODE.toml'",
            extra=event("unguarded"),
        )
