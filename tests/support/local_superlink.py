"""`flwr run` in a home, on a port and with a SuperLink of its own, which is stopped
with all that it started.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulations.flower.ray_processes import end_marked

PROJECT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT = 900.0
STARTS, TOO_BUSY = 8, "Failed to start local SuperLink within"
"""Flower's own patience is 15 s, which a machine with other work may take for the first
imports.
"""


@dataclass(frozen=True)
class LocalSuperLink:
    """A throw-away Flower installation.

    Parameters
    ----------
    home : Path
        HOME and FLWR_HOME lie in it.
    port : int
        Of the local SuperLink.
    """

    home: Path
    port: int

    @classmethod
    def make(cls, home: Path) -> LocalSuperLink:
        """Choose a free port; nothing is started yet."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return cls(home, probe.getsockname()[1])

    def run(
        self,
        run_config: str = "",
        *,
        nodes: int,
        workers: int = 1,
        app: Path = PROJECT,
        paths: Sequence[Path] = (),
        program: Sequence[str] = (str(Path(sys.executable).with_name("flwr")),),
    ) -> subprocess.CompletedProcess[str]:
        """Type `flwr run . --stream ...` in the folder of an app, with packages from
        other folders.

        Ray starts a worker for each `workers`-th part of the processors, and each
        imports everything by itself.
        """
        command = [*program, "run", ".", "--stream"]
        each = max(1, (os.cpu_count() or 1) // workers)
        command += [
            "--federation-config",
            f"num-supernodes={nodes} client-resources-num-cpus={each}",
        ]
        if run_config:
            command += ["--run-config", run_config]
        for _ in range(STARTS):
            completed = subprocess.run(
                command,
                cwd=app,
                env=self._environment()
                | ({"PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else {}),
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT,
                check=False,
            )
            if TOO_BUSY not in completed.stdout + completed.stderr:
                break
        return completed

    def stop(self) -> None:
        """End the SuperLink that the first run started, and whatever it started."""
        assert end_marked(self.home / ".flwr") == []

    def _environment(self) -> dict[str, str]:
        """The own environment with another home, another port and no installation at
        run time.
        """
        environment = dict(os.environ)
        environment |= {
            "HOME": str(self.home),
            "FLWR_HOME": str(self.home / ".flwr"),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(self.port),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PATH": (
                f"{Path(sys.executable).parent}{os.pathsep}"
                f"{environment.get('PATH', '')}"
            ),
            "RAY_DISABLE_IMPORT_WARNING": "1",
            # Else Ray joins the cluster that was started last on this machine, which
            # may be another test's, and end.
            "RAY_ADDRESS": "local",
        }
        environment.pop("PYTHONPATH", None)
        return environment
