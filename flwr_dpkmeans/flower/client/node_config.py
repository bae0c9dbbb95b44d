"""What a node says for itself, in its own part of Flower's context."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context

from flwr_dpkmeans.data.files.sources import is_clustered
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client import ray_nodes
from flwr_dpkmeans.flower.client.result_folders import HOME_FOLDER, output_folder
from flwr_dpkmeans.log import LogOptions, show_logs
from flwr_dpkmeans.node.belonging import Belonging
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID


def stream_number(context: Context) -> int:
    """Number of this node's streams of seeded noise and coins, which protect nobody.

    Secure noise has none.

    A virtual client is counted by its partition, as Flower draws new node ids for every
    simulation.
    """
    partition = context.node_config.get("partition-id")
    if isinstance(partition, int) and ray_nodes.is_simulation(context):
        return FIRST_NODE_ID + partition
    return context.node_id


def node_settings(context: Context) -> NodeSettings:
    """Read a node's settings from its node configuration.

    Keys: ``policy`` (path of a TOML file), ``ledger`` (path), ``identity`` (path of a
    key file), ``data-path``, ``data-id``, ``output``; the data loader of this package's
    own app reads ``schema``, ``query``, ``columns``, ``header``, ``label-column`` and
    ``profile-columns`` as well, and the log ``log-format``, ``verbose`` and
    ``log-file``. A deployed node whose policy is missing or incomplete refuses every
    run; a policy or identity file that is missing or malformed, and pinned peers
    without an identity, are a ConfigurationError.
    """
    config: Mapping[str, object] = context.node_config
    # A deployed node gives nothing to runs that protect nobody, unless its own policy
    # says so in so many words.
    simulated = ray_nodes.is_simulation(context)
    policy = ClientPolicy() if simulated else DEPLOYED
    if config.get("policy"):
        path = Path(str(config["policy"])).expanduser()
        if not path.is_file():
            raise ConfigurationError(
                f"the policy file {path.absolute()} does not exist: correct the node's"
                " 'policy'."
            )
        policy = ClientPolicy.from_toml(path, base=policy)
    if is_clustered(config.get("data-path", "")):
        from flwr_dpkmeans.flower.row_cluster import summed_elsewhere

        policy = summed_elsewhere(policy)
        if not config.get("data-id"):
            # Against a new budget for rows that had one as a file, or by another
            # scheme.
            raise ConfigurationError(
                "rows on a cluster need data-id, their name in the ledger: keep the one"
                " they had."
            )
    data_id = str(config.get("data-id") or config.get("data-path") or "default")
    ledger = Path(
        str(config.get("ledger") or default_ledger(context, data_id))
    ).expanduser()
    identity = (
        Identity.load(Path(str(config["identity"])).expanduser())
        if config.get("identity")
        else None
    )
    file_ledger = FileLedger(ledger)
    belonging = None
    if not simulated:
        belonging = Belonging(
            file_ledger,
            data_id,
            identity.public_key.hex() if identity else "",
            grows=bool(config.get("data-grows", False)),
        )
    return NodeSettings(
        policy,
        file_ledger,
        data_id,
        simulated,
        identity,
        belonging,
    )


def default_ledger(context: Context, data_id: str) -> Path:
    """A simulated client's ledger lies beside its results.

    a deployed node's in the home folder, one per data set.
    """
    path = (
        Path.home()
        / HOME_FOLDER
        / f"ledger-{hashlib.sha256(data_id.encode()).hexdigest()[:16]}.jsonl"
    )
    if ray_nodes.is_simulation(context):
        path = (
            output_folder(context).parent
            / "ledgers"
            / f"client-{context.node_id}.jsonl"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def show_node_logs(context: Context) -> None:
    """Show the lines as the node's own configuration says; a server has no part in it.

    Virtual clients show theirs only where the program that runs them has set up
    logging.
    """
    if not ray_nodes.is_simulation(context):
        show_logs(LogOptions.of(context.node_config, may_write=True))
