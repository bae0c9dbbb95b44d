"""What a server's operator writes down (server.toml), and what Flower's programs are told of it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Self

from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from flwr_dpkmeans.errors import ConfigurationError, finding
from flwr_dpkmeans.flower.findings import app_digest, flower_environment, program
from flwr_dpkmeans.node.invitation import Invitation
from flwr_dpkmeans.node.policy import read_toml

HOST = "127.0.0.1"
"""The SuperLink serves everybody who reaches its port, so that it is this machine's alone."""
FILE = "server.toml"
LEAST_PARTIES = 3
"""In a sum, unless the run's configuration says it: what a party's first policy asks for."""


def _beside(path: Path, info: ValidationInfo) -> Path:
    """Below the folder of the file that names it, if it is not absolute."""
    return Path(str(info.context)) / path


_Path = Annotated[Path, Field(strict=False), AfterValidator(_beside)]


class ServerOptions(BaseModel):
    """What server.toml says; a path that is not absolute is beside the file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, use_attribute_docstrings=True
    )
    app: _Path
    """The project's folder, or its .fab file: the invitation has the hash of what is run."""
    port: int = Field(8000, ge=1, le=65535)
    """The SuperLink's, on this machine alone; whatever others shall reach goes through nginx."""
    invitation: _Path = Path("invitation.toml")
    """Who takes part: the file that goes around, or lies on a shared disk."""
    certificates: _Path = Path("certificates")
    """Folder with ca.crt, server.pem and server.key."""
    state: _Path = Path("superlink")
    """Private folder (mode 700) with the SuperLink's database, log, process id, and Flower's own files."""
    results: _Path = Path("results")
    """Folder in which each run makes its own."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``server.toml`` in a folder; a ConfigurationError says what cannot be read or is wrong."""
        path = folder.absolute() / FILE
        try:
            return cls.model_validate(read_toml(path, str(path)), context=path.parent)
        except ValidationError as error:
            raise ConfigurationError(f"{path}: {finding(error, cls.model_fields)}") from error

    @classmethod
    def text(cls, **stated: Any) -> str:
        """A file with these values, the others' defaults, and what each is for."""
        values = {name: key.default for name, key in cls.model_fields.items()} | stated
        about = {name: key.description for name, key in cls.model_fields.items()}
        return "".join([f"# {about[name]}\n{name} = {json.dumps(values[name], default=str)}\n" for name in values])

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
        command = [program("flower-superlink"), "--host", HOST, "--port", str(self.port), "--enable-supernode-auth"]
        command += ["--ssl-ca-certfile", str(self.authority), "--database", str(self.state / "state.db")]
        command += ["--ssl-certfile", str(self.certificates / "server.pem")]
        return [*command, "--ssl-keyfile", str(self.certificates / "server.key")]

    @property
    def environment(self) -> dict[str, str]:
        """That of Flower's programs: what they start is found, and nothing is installed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        own = {"FLWR_HOME": str(self.home), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "PATH": path}
        return flower_environment() | own

    def write_connection(self) -> None:
        """Say to ``flwr`` where the SuperLink is."""
        for folder in (self.state, self.home, self.results):
            folder.mkdir(mode=0o700, exist_ok=True)
        connection = f"address = '{HOST}:{self.port}'\nroot-certificates = '{self.authority}'\n"
        text = f"[superlink]\ndefault = 'federation'\n\n[superlink.federation]\n{connection}"
        (self.home / "config.toml").write_text(text)

    def run_settings(self, app: str) -> dict[str, Any]:
        """What is known of a run beside its configuration; refused is another app than the invitation's."""
        require_proposed(Path(app), self.invitation)
        n_parties = len(Invitation.load(self.invitation).pins)
        least = min(n_parties, LEAST_PARTIES)
        return {"num-clients": n_parties, "cohort.min-clients": least, "output": str(self.results)}

    def client(self) -> closing[ControlHttpClient]:
        """The SuperLink's operator."""
        interceptor = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        authority = self.authority.read_bytes()
        return closing(ControlHttpClient.from_server_address(f"{HOST}:{self.port}", False, authority, [interceptor]))


def require_proposed(app: Path, invitation: Path) -> str:
    """Refuse another app than the invitation's: nodes would refuse it only after a while."""
    proposed, own = Invitation.load(invitation).app, app_digest(app)
    if own != proposed:
        raise ConfigurationError(
            f"{app} has the hash {own}, but the invitation proposes {proposed}: run that version, or have every "
            "party approve the new one and write its hash into the invitation."
        )
    return f"{app} is the app of the invitation, {own}"
