"""A party's long-term identity, in a file that only its owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.secagg.credentials import Signer

_LONGEST_FILE = 10_000
_FORBIDDEN_MODE = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""A mounted secret may be readable by the service's group.

Nobody else may read it, and nobody else may change it.
"""


class Identity(Signer):
    """A party's long-term key pair, kept in a file that only its owner may read."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file that `save` wrote.

        One that is missing, open to others or holds no Ed25519 key is refused.
        """
        try:
            with Path(path).open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(_LONGEST_FILE)
        except OSError as error:
            raise ConfigurationError(
                f"the identity {path} cannot be read ({error.strerror or error}):"
                " correct the node's 'identity', or make one with 'python -m"
                " flwr_dpkmeans identity new PATH'."
            ) from error
        if os.name == "posix" and mode & _FORBIDDEN_MODE:
            raise ConfigurationError(
                f"the identity {path} has mode {stat.S_IMODE(mode):o}, so others may"
                " read or change it: chmod 600 it."
            )
        try:
            key: object = load_pem_private_key(content, password=None)
        except (ValueError, TypeError):
            # Not PEM, or encrypted.
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigurationError(
                f"the identity {path} holds no unencrypted Ed25519 private key: make"
                " one with 'python -m flwr_dpkmeans identity new PATH'."
            )
        return cls(key.private_bytes_raw())

    def save(self, path: str | Path) -> None:
        """Write the private key into a new file that only its owner may read.

        As PEM, PKCS 8. An existing file is a ConfigurationError and never touched:
        others have pinned its key.
        """
        key = Ed25519PrivateKey.from_private_bytes(self.private_key)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_new(Path(path), pem)


def write_new(path: Path, content: bytes, *, mode: int = 0o600) -> Path:
    """Write a file that was not there, or raise a ConfigurationError.

    Nobody else can read it, even for a moment.
    """
    try:
        # Of two who write at once only one goes on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} exists and is left alone: choose another path."
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written ({error.strerror or error}): choose a folder"
            " that exists and is yours."
        ) from error
    return path
