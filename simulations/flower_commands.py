"""Command lines and settings of Flower's programs, with TLS and authenticated SuperNodes or without both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower_processes import program
from simulations.relay import HOST

_NAME = "loopback"

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
        Each SuperNode's private key (OpenSSH, NIST curve); its public key lies beside it, with the ending ``.pub``.
    """

    authority: Path
    certificate: Path
    key: Path
    node_keys: tuple[Path, ...]


def supernode_command(
    node: NodeConfig, superlink_port: int, own_port: int, credentials: Credentials | None, key: Path | None
) -> list[str]:
    """A SuperNode's command line."""
    command = [program("flower-supernode"), "--superlink", f"{HOST}:{superlink_port}"]
    if credentials is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(credentials.authority)]
        command += [] if key is None else ["--auth-supernode-private-key", str(key)]
    return [*command, "--host", HOST, "--port", str(own_port), "--node-config", settings_text(node)]


def connection_text(port: int, credentials: Credentials | None) -> str:
    """What `flwr`'s own configuration file says of the SuperLink."""
    text = f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\naddress = "{HOST}:{port}"\n'
    return text + ("insecure = true\n" if credentials is None else f"root-certificates = '{credentials.authority}'\n")


def settings_text(settings: NodeConfig) -> str:
    """Write settings as Flower's command line takes them, for a node or a run: TOML, strings in quotes.

    Parameters
    ----------
    settings : mapping
        Names and scalars.

    Returns
    -------
    str

    Raises
    ------
    ConfigurationError
        If a string cannot be quoted.

    Examples
    --------
    >>> settings_text({"data-path": "/a b/rows.npy", "n-clusters": 3, "verbose": True})
    "data-path='/a b/rows.npy' n-clusters=3 verbose=true"
    """
    words = []
    for key, value in settings.items():
        if isinstance(value, str) and {"'", "\n"} & set(value):
            raise ConfigurationError(f"the setting {key!r} is {value!r}: use a value without ' and line breaks.")
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        words.append(f"{key}='{value}'" if isinstance(value, str) else f"{key}={text}")
    return " ".join(words)


def superlink_command(port: int, credentials: Credentials | None) -> list[str]:
    """The SuperLink's command line."""
    command = [program("flower-superlink"), "--host", HOST, "--port", str(port)]
    if credentials is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(credentials.authority), "--ssl-certfile", str(credentials.certificate)]
    return [*command, "--ssl-keyfile", str(credentials.key), "--enable-supernode-auth"]
