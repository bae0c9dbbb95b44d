"""What a server's operator writes down (server.toml).

And what Flower's programs are told of it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import Field

from flwr_dpkmeans.deploy.findings import (
    GUARDED,
    HOST,
    flower_environment,
    program,
    search_path,
)
from flwr_dpkmeans.deploy.guard.guarded_programs import SUPEREXEC
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.settings_file import LocalPath, SettingsFile
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower._private import superlink_client
from flwr_dpkmeans.flower.messages.parties import Parties
from flwr_dpkmeans.node.identity import write_new

if TYPE_CHECKING:
    from flwr_dpkmeans.flower._private import ControlHttpClient

FILE = "server.toml"
LEAST_PARTIES = 3
"""In a sum, unless the run's configuration says it.

What a party's first policy asks for.
"""


SettingValue = bool | float | int | str
"""Values of a run's configuration in Flower."""


class ServerOptions(SettingsFile):
    """What server.toml says."""

    app: LocalPath
    """The project's folder, or its .fab file.

    The invitation has the hash of what is run.
    """
    port: int = Field(8000, ge=1, le=65535)
    """The SuperLink's, on this machine alone.

    Whatever others shall reach goes through nginx.
    """
    invitation: LocalPath = Path("invitation.toml")
    """Who takes part: the file that goes around, or lies on a shared disk."""
    certificates: LocalPath = Path("certificates")
    """Folder with ca.crt, server.pem and server.key."""
    state: LocalPath = Path("superlink")
    """Private folder (mode 700) with the SuperLink's database, log, process id, and
    Flower's own files.
    """
    results: LocalPath = Path("results")
    """Folder in which each run makes its own."""
    allow_untested_flower: bool = False
    """Start with a minor version of Flower that no federation was tried with."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``server.toml`` in a folder.

        a ConfigurationError says what cannot be read or is wrong.
        """
        return cls.from_toml(folder.absolute() / FILE)

    @property
    def home(self) -> Path:
        """Flower's own files: the connection of ``flwr``, and apps."""
        return self.state / "home"

    @property
    def authority(self) -> Path:
        """The certificate that everybody knows the SuperLink by."""
        return self.certificates / "ca.crt"

    @property
    def command(self) -> list[str]:
        """Flower's command line."""
        command = [
            program("flower-superlink"),
            "--host",
            HOST,
            "--port",
            str(self.port),
            "--enable-supernode-auth",
        ]
        command += [
            "--ssl-ca-certfile",
            str(self.authority),
            "--database",
            str(self.state / "state.db"),
        ]
        command += ["--ssl-certfile", str(self.certificates / "server.pem")]
        command += [
            "--ssl-keyfile",
            str(self.certificates / "server.key"),
            "--isolation",
            "process",
        ]
        return [*command, "--superexec-auth-secret-file", str(self.secret)]

    @property
    def apps_command(self) -> list[str]:
        """Flower's command line for what starts ServerApps.

        It is no part of the SuperLink, whose end runs survive.

        It runs the invitation's app alone, whoever asks for another one on this
        machine.
        """
        command = [
            str(self.home / GUARDED / SUPEREXEC),
            "--runtime-api-address",
            f"{HOST}:{self.port}",
        ]
        command += ["--root-certificates", str(self.authority)]
        return [*command, "--superexec-auth-secret-file", str(self.secret)]

    @property
    def secret(self) -> Path:
        """By which the SuperLink knows what starts ServerApps."""
        return self.state / "runtime-secret"

    @property
    def environment(self) -> dict[str, str]:
        """That of Flower's programs.

        What they start is found, and nothing is installed.
        """
        variables = {
            "FLWR_HOME": str(self.home),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        }
        return flower_environment() | variables | {"PATH": search_path()}

    def write_connection(self) -> None:
        """Say to ``flwr`` where the SuperLink is."""
        paths = f"{self.state}{self.authority}{self.results}"
        if "'" in paths or not paths.isprintable():
            raise ConfigurationError(
                f"{str(self.state)!r} has a ' or what cannot be printed: choose another"
                " folder."
            )
        for folder in (self.state, self.home, self.results):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not self.secret.exists():
            write_new(self.secret, secrets.token_hex().encode())
        connection = (
            f"address = '{HOST}:{self.port}'\nroot-certificates = '{self.authority}'\n"
        )
        text = (
            "[superlink]\ndefault ="
            f" 'federation'\n\n[superlink.federation]\n{connection}"
        )
        new = self.home / f".config.toml.{os.getpid()}"
        new.write_text(text)
        # As a whole: another `flwr` may be reading it.
        new.replace(self.home / "config.toml")

    def run_settings(
        self,
        stated: Mapping[str, SettingValue],
    ) -> dict[str, SettingValue]:
        """A run's configuration, with what is known here and not stated there."""
        invited = Invitation.from_toml(self.invitation).parties
        stated_parties = [str(stated.get(key, "")) for key in ("parties", "without")]
        taking_part = Parties.of_texts(*stated_parties).chosen(invited)
        settings: dict[str, SettingValue] = {
            "num-clients": len(taking_part),
            "output": str(self.results),
            **stated,
        }
        n_clients = settings["num-clients"]  # not yet looked at
        least = (
            min(n_clients, LEAST_PARTIES)
            if isinstance(n_clients, int)
            else LEAST_PARTIES
        )
        return {"cohort.min-clients": least, **settings}

    def client(self) -> closing[ControlHttpClient]:
        """The SuperLink's operator."""
        authority = self.authority.read_bytes()
        return superlink_client(f"{HOST}:{self.port}", authority)
