"""Command lines and settings of Flower's programs, with TLS and authenticated
SuperNodes or without both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr_dpkmeans.deploy.findings import program
from flwr_dpkmeans.deploy.node_command import SUPERNODE, settings_text
from simulations.flower.relay import HOST

__all__ = [
    "PROGRAMS",
    "Credentials",
    "NodeConfig",
    "Programs",
    "connection_text",
    "settings_text",
    "superlink_command",
    "supernode_command",
]

_NAME = "loopback"


@dataclass(frozen=True)
class Programs:
    """Flower's programs, as they are started."""

    flwr: str = program("flwr")
    superlink: str = program("flower-superlink")
    supernode: tuple[str, ...] = SUPERNODE


PROGRAMS = Programs()

NodeConfig = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Credentials:
    """Files that TLS and the authentication of SuperNodes need.

    Parameters
    ----------
    authority : Path
        Certificate that everybody checks the SuperLink's by (PEM).
    certificate, key : Path
        The SuperLink's own (PEM); the certificate must name the address 127.0.0.1.
    node_keys : tuple of Path
        Each SuperNode's private key (OpenSSH, NIST curve); its public key lies beside
        it, with the ending ``.pub``.
    """

    authority: Path
    certificate: Path
    key: Path
    node_keys: tuple[Path, ...]


def supernode_command(
    node: NodeConfig,
    superlink_port: int,
    own_port: int,
    credentials: Credentials | None,
    key: Path | None,
    programs: Programs = PROGRAMS,
) -> list[str]:
    """A SuperNode's command line."""
    command = [*programs.supernode, "--superlink", f"{HOST}:{superlink_port}"]
    if credentials is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(credentials.authority)]
        command += [] if key is None else ["--auth-supernode-private-key", str(key)]
    return [
        *command,
        "--host",
        HOST,
        "--port",
        str(own_port),
        "--node-config",
        settings_text(node),
    ]


def connection_text(port: int, credentials: Credentials | None) -> str:
    """What `flwr`'s own configuration file says of the SuperLink."""
    text = (
        f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\naddress ='
        f' "{HOST}:{port}"\n'
    )
    return text + (
        "insecure = true\n"
        if credentials is None
        else f"root-certificates = '{credentials.authority}'\n"
    )


def superlink_command(
    port: int, credentials: Credentials | None, programs: Programs = PROGRAMS
) -> list[str]:
    """The SuperLink's command line."""
    command = [programs.superlink, "--host", HOST, "--port", str(port)]
    if credentials is None:
        return [*command, "--insecure"]
    command += [
        "--ssl-ca-certfile",
        str(credentials.authority),
        "--ssl-certfile",
        str(credentials.certificate),
    ]
    return [*command, "--ssl-keyfile", str(credentials.key), "--enable-supernode-auth"]
