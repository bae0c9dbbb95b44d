"""What a rehearsal needs of certificates and keys, in the folders of those who own
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flwr_dpkmeans.deploy.certificates import write_certificates, write_node_key
from simulations.flower.flower_commands import Credentials
from simulations.flower.relay import HOST

_VALID_DAYS = 7


def make_credentials(
    folder: Path, node_folders: Sequence[Path], address: str = HOST
) -> Credentials:
    """Make an authority, the SuperLink's certificate for one address, and a key pair
    for each SuperNode.

    Parameters
    ----------
    folder : Path
        For the certificates and the SuperLink's key; made with mode 0700.
    node_folders : sequence of Path
        Where each SuperNode's ``key`` (0600) and ``key.pub`` go; made with mode 0700.
    address : str
        IP address at which the SuperLink is reached.

    Returns
    -------
    Credentials

    Raises
    ------
    ConfigurationError
        If a file is there already: a key is never overwritten.
    """
    for made in (folder, *node_folders):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_certificates(folder, [address], _VALID_DAYS)
    keys = tuple(write_node_key(node / "key") for node in node_folders)
    return Credentials(
        folder / "ca.crt", folder / "server.pem", folder / "server.key", keys
    )
