"""Makes a party's folder from an invitation.

And pins the other parties once the invitation is complete.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.sources import is_clustered
from flwr_dpkmeans.data.own_table import open_table
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.deploy.certificates import write_node_key
from flwr_dpkmeans.deploy.finding import NoteError
from flwr_dpkmeans.deploy.findings import (
    HOST,
    require_free,
    require_outside_apps,
    require_proposed,
    require_writable,
)
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.node_check import NodeCheck
from flwr_dpkmeans.deploy.node_options import NodeOptions, located_source
from flwr_dpkmeans.errors import ConfigurationError, listed
from flwr_dpkmeans.node import policy as policy_module
from flwr_dpkmeans.node.identity import Identity, write_new

SETTINGS_FILE = "node.toml"
_FIRST_PORT, _N_PORTS = 9094, 20_000  # below those that systems take by themselves


@dataclass(frozen=True, kw_only=True)
class NewNode:
    """What a party's folder is made of.

    Parameters
    ----------
    name : str
        Of the party, in the invitation.
    invitation : Path
        The file that goes around.
    data, query : str
        Where the rows are, and what a database is asked for.
    columns : str
        Clustered ones, separated by commas; empty: all that hold numbers.
    schema : Path, optional
        In place of columns.
    dialect : Dialect
        What is stated of how the file is written.
    folder : Path
        Where the party's folder is made.
    max_epsilon_total : float
        What all runs together may cost.
    app : Path
        The own copy of the project, or its .fab file.
    """

    name: str
    invitation: Path
    data: str
    query: str
    columns: str
    schema: Path | None
    dialect: Dialect
    folder: Path
    max_epsilon_total: float
    app: Path


def init(new_node: NewNode) -> Path:
    """Make the folder ``NAME`` with keys and strict files.

    The party is written into the invitation; returns NODE.toml.

    All of it or nothing: a ConfigurationError, also for an app that is not that of the
    own copy, leaves no file behind.
    """
    require_proposed(new_node.app, new_node.invitation)
    invitation, folder = (
        Invitation.from_toml(new_node.invitation),
        Path(new_node.folder, new_node.name).absolute(),
    )
    if folder.exists():
        raise ConfigurationError(
            f"{folder} exists and is left alone: give another --folder, or move it"
            " away."
        )
    if not folder.parent.is_dir():
        raise ConfigurationError(
            f"--folder is {new_node.folder}, where no folder is: make it, or correct"
            " the path."
        )
    require_outside_apps(folder)
    require_writable(folder.parent)
    identity, new = (
        Identity.generate(),
        Path(tempfile.mkdtemp(prefix=f".{new_node.name}-", dir=folder.parent)),
    )
    try:
        identity.save(new / "identity")
        public = write_node_key(new / "key").with_name("key.pub").read_text()
        party = (new_node.name, public, identity.public_key.hex())
        # A name that is taken is told before anybody else sees anything.
        invitation.with_party(*party)
        for name, text in (
            ("ca.crt", invitation.certificate),
            (
                "policy.toml",
                _policy(new_node.max_epsilon_total, len(invitation.parties)),
            ),
            (SETTINGS_FILE, NodeOptions.to_toml(_settings(new_node, invitation))),
            (
                ".gitignore",
                "*\n",
                # a copy of the project may hold the folder, and no commit may hold the
                # keys
            ),
        ):
            write_new(new / name, text.encode())
        for name in ("home", "ledger", "results"):
            (new / name).mkdir(mode=0o700)
        looks = NodeCheck(new, NodeOptions.from_toml(new / SETTINGS_FILE))
        looks.rules.require_complete()
        _ = looks.table  # what cannot be read is told now
        new = new.rename(folder)
        Invitation.add(new_node.invitation, *party)
    except BaseException:
        shutil.rmtree(new)
        raise
    if (data := looks.options.data_file) and (mode := data.stat().st_mode) & 0o007:
        with contextlib.suppress(OSError):  # `check` asks for it, too
            data.chmod(mode & ~0o007)
    return folder / SETTINGS_FILE


def _settings(new_node: NewNode, invitation: Invitation) -> dict[str, object]:
    """What NODE.toml says.

    The columns are read once, here, as no later row may decide on them.
    """
    settings: dict[str, object] = {
        "name": new_node.name,
        "invitation": str(new_node.invitation.absolute()),
        "app": str(new_node.app.absolute()),
        "allowed_apps": [invitation.app],
        "superlink": invitation.superlink,
        "root_certificates": "ca.crt",
        "key": "key",
        "home": "home",
        "data_path": located_source(new_node.data, Path.cwd()),
        "data_id": new_node.name,
        "policy": "policy.toml",
        "ledger": "ledger/ledger.jsonl",
        "identity": "identity",
        "output": "results",
        "port": port_of(invitation, new_node.name),
        "log_file": "results/log",
    }
    if new_node.query:
        settings["query"] = new_node.query
    stated = new_node.dialect.stated()
    if stated:
        settings["file"] = {
            name.replace("_", "-"): value for name, value in stated.items()
        }
    if new_node.schema and new_node.columns:
        raise ConfigurationError(
            "--schema says which columns are clustered, and so does --columns: leave"
            " one out."
        )
    if new_node.schema:
        digest = Schema.load(new_node.schema).digest
        return settings | {
            "table_schema": str(new_node.schema.absolute()),
            "schema_digest": digest,
        }
    if new_node.columns:
        return settings | {
            "columns": [name.strip() for name in new_node.columns.split(",")]
        }
    if is_clustered(new_node.data):
        raise ConfigurationError(
            "nothing says which columns of a cluster's table are clustered: add"
            " --columns."
        )
    table = open_table(new_node.data, new_node.dialect, query=new_node.query)
    # Without names of its own a table has made-up ones, which must be those of all of
    # its columns.
    numeric = [
        column.name
        for column in table.columns
        if not table.named or np.isfinite(column.numbers()).any()
    ]
    if not numeric:
        raise ConfigurationError(
            f"no column of {table} holds numbers, as where they are written 3,5 and not"
            " 3.5: mend it, or add --schema."
        )
    print(
        f"clustered are {listed(numeric)}, since nothing else is said: --columns or"
        " --schema say it"
    )
    settings["columns"] = numeric
    return settings | ({} if table.named else {"header": False})


def port_of(invitation: Invitation, name: str) -> int:
    """A free one: parties that are made at once on one machine choose different ones.

    As federations do.
    """
    parties = [*invitation.parties]
    block = zlib.crc32(invitation.certificate.encode()) % max(
        1, _N_PORTS // len(parties)
    )
    for port in range(
        _FIRST_PORT + block * len(parties) + parties.index(name), 2**16, len(parties)
    ):
        with contextlib.suppress(ConfigurationError):
            require_free(HOST, port)
            return port
    return _FIRST_PORT


def _policy(total: float, n_parties: int) -> str:
    """The example that lies beside `ClientPolicy`.

    With limits that let ordinary runs through.
    """
    text = (Path(policy_module.__file__).with_name("policy.example.toml")).read_text(
        encoding="utf-8"
    )
    limits = {
        "max-epsilon-per-run": min(total, 4.0),
        "max-epsilon-total": total,
        "min-cohort": min(n_parties, 3),
    }
    for key, value in (limits | {"max-delta": 1e-4, "max-delta-total": 1e-3}).items():
        text = re.sub(
            rf"^{key} = \S+",
            f"{key} = {value}",
            text,
            flags=re.MULTILINE,
        )
    return text


def pin(options: NodeOptions) -> list[str]:
    """Write a complete invitation's identities into the policy.

    Unless it pins them already; what people compare.

    A ConfigurationError says who is missing, or which identity is another one than was
    pinned.
    """
    looks = NodeCheck(options.policy, options)
    if (
        invitation := looks.invitation
    ) is None:  # read once, as it may change meanwhile
        raise ConfigurationError(
            "NODE.toml names no invitation that is there: add it, or pin by hand."
        )
    if invitation.missing:
        raise ConfigurationError(
            f"{options.invitation} is still without {', '.join(invitation.missing)}:"
            " pass it on."
        )
    looks.require_invited()
    with contextlib.suppress(NoteError):  # nobody is pinned yet
        looks._identity()
    if looks.rules.pinned_peers is None:
        lines = [f'{name} = "{identity}"' for name, identity in invitation.pins.items()]
        with options.policy.open("a", encoding="utf-8") as file:
            file.write("\n".join(["", "[pinned-peers]", *lines, ""]))
    NodeCheck(options.policy, options)._identity()
    identities = [f"{name}  {identity}" for name, identity in invitation.pins.items()]
    return [
        *identities,
        (
            "compare by telephone, on each party's machine the same:"
            f" {invitation.fingerprint}"
        ),
    ]
