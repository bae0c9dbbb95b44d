"""A throw-away deployment on loopback: one SuperLink, its SuperNodes and `flwr run`,
all ended with the block.

    with deployed(folder, [{"data-path": "a.npy"}, {"data-path": "b.npy"}]) as
    deployment:
        lines = deployment.run("algorithm='fastlloyd' n-clusters=2 num-clients=2
        bounds='-1,1'")

Every process has a home of its own below the folder, as if it were a machine of its
own, and a log file there. With `Credentials` everything goes over TLS, and the
SuperLink takes only SuperNodes whose public keys were registered.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from flwr_dpkmeans.deploy.findings import app_hash
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.deploy.node_command import guarded_environment, settings_text
from flwr_dpkmeans.deploy.server_command import is_healthy
from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower.flower_commands import (
    PROGRAMS,
    Credentials,
    NodeConfig,
    Programs,
    connection_text,
    superlink_command,
    supernode_command,
)
from simulations.flower.flower_processes import (
    DeploymentError,
    flower_home,
    free_ports,
    guarded,
    log_of,
    logged,
    running,
    tail,
    wait_until,
)
from simulations.flower.relay import Relay, Traffic, relayed

__all__ = [
    "Credentials",
    "Deployment",
    "DeploymentError",
    "LogLine",
    "NodeConfig",
    "deployed",
    "settings_text",
]

PROJECT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT = 900.0
_COMMAND_TIMEOUT = 180.0


@dataclass(frozen=True)
class LogLine:
    """One line of a run's log.

    Parameters
    ----------
    seconds : float
        Since the run was asked for, when the line arrived here: up to about 0.7 s after
        it was written.
    text : str
        The line.
    traffic : Traffic
        What had gone between SuperNodes and SuperLink by then.
    """

    seconds: float
    text: str
    traffic: Traffic


class Deployment:
    """What `deployed` hands out.

    Parameters
    ----------
    folder : Path
        All homes lie in it.
    port : int
        Of the SuperLink.
    relay : Relay
        Between SuperNodes and SuperLink.
    credentials : Credentials, optional
        None: without TLS and authentication.
    app : Path
        Folder of the only Flower app that the SuperNodes run.
    programs : Programs
        Flower's.
    gate : GateOptions, optional
        What the app runs behind at each node.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        relay: Relay,
        credentials: Credentials | None = None,
        app: Path = PROJECT,
        programs: Programs = PROGRAMS,
        gate: GateOptions | None = None,
    ) -> None:
        self._folder = folder
        self._programs = programs
        self._app = app
        self._gate = gate
        self._relay = relay
        self._credentials = credentials
        self._nodes: list[subprocess.Popen[bytes]] = []
        home = folder / "cli"
        flower_home(home).mkdir(mode=0o700, parents=True, exist_ok=True)
        (flower_home(home) / "config.toml").write_text(
            connection_text(port, credentials)
        )
        self._home = home

    @property
    def nodes(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Processes of the SuperNodes, in the order of their configurations."""
        return tuple(self._nodes)

    def run(
        self,
        run_config: str,
        *,
        app: Path = PROJECT,
        timeout: float = RUN_TIMEOUT,
        on_line: Callable[[LogLine], None] = lambda _: None,
    ) -> list[LogLine]:
        """Type `flwr run . --stream --run-config ...` and read the log until the run
        ends.

        Parameters
        ----------
        run_config : str
            As on the command line.
        app : Path
            Folder of the Flower app.
        timeout : float
            Seconds.
        on_line : callable
            Told every line as it comes.

        Returns
        -------
        list of LogLine

        Raises
        ------
        DeploymentError
            If `flwr run` fails or takes longer.
        """
        command = [
            self._programs.flwr,
            "run",
            str(app),
            "--stream",
            "--run-config",
            run_config,
        ]
        start = time.monotonic()
        lines: list[LogLine] = []
        with running(command, self._home, stdout=subprocess.PIPE, cwd=app) as process:
            timer = threading.Timer(timeout, process.kill)
            timer.start()
            try:
                for line in process.stdout or ():
                    text = line.decode(errors="replace").rstrip()
                    lines.append(
                        LogLine(time.monotonic() - start, text, self._relay.traffic)
                    )
                    on_line(lines[-1])
            finally:
                timer.cancel()
            code = process.wait()
        if code != 0:
            last_lines = tail([line.text for line in lines])
            raise DeploymentError(
                f"`flwr run` ended with {code} after {time.monotonic() - start:.0f} s:"
                f" {last_lines}"
            )
        return lines

    def register(self, public_key: Path, name: str) -> None:
        """Type `flwr supernode register`: the SuperLink takes whoever proves to have
        the private key.

        Raises
        ------
        DeploymentError
            If the SuperLink does not take it.
        """
        self._command("supernode", "register", str(public_key), "--name", name)

    def listed(self) -> str:
        """What `flwr supernode list` says of all registered SuperNodes, as JSON."""
        return self._command("supernode", "list", "--format", "json")

    def runs(self) -> str:
        """What `flwr list` says of all runs, as JSON."""
        return self._command("list", "--format", "json")

    @contextlib.contextmanager
    def supernode(
        self, home: Path, node: NodeConfig, key: Path | None = None, *, port: int = 0
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start one more SuperNode, which is ended with the block.

        It is not waited for.

        Parameters
        ----------
        home : Path
            For its log.
        node : mapping
            Its node configuration.
        key : Path, optional
            Its private key, where the SuperLink wants one.
        port : int
            Where its apps find it; 0: any that is free.

        Yields
        ------
        Popen
        """
        own_port = port or free_ports(1)[0]
        command = supernode_command(
            node,
            self._relay.port,
            own_port,
            self._credentials,
            key,
            programs=self._programs,
        )
        command += ["--allowed-apps", self.allowed_app]
        gate = None
        if self._gate is not None:
            flower_home(home).mkdir(mode=0o700, parents=True, exist_ok=True)
            gate = flower_home(home) / "gate.json"
            gate.write_text(self._gate.model_dump_json(by_alias=True))
        guard = functools.partial(
            guarded_environment,
            flower_home(home),
            frozenset({self.allowed_app}),
            gate=gate,
        )
        with logged(command, home, guard) as process:
            yield process

    @functools.cached_property
    def allowed_app(self) -> str:
        """SHA-256 of the only app that its nodes run, as it is now.

        `flwr run` packs the same bytes.
        """
        return app_hash(self._app)

    def ask_nodes_to_end(self) -> None:
        """Ask all SuperNodes to leave, without waiting for them."""
        for node in self._nodes:
            if node.poll() is None:
                node.terminate()

    def _command(self, *words: str) -> str:
        """Run a short command of Flower's."""
        with running(
            [self._programs.flwr, *words],
            self._home,
            stdout=subprocess.PIPE,
            cwd=self._home,
        ) as process:
            try:
                output = process.communicate(timeout=_COMMAND_TIMEOUT)[0].decode(
                    errors="replace"
                )
            except subprocess.TimeoutExpired as error:
                raise DeploymentError(
                    f"`flwr {' '.join(words[:2])}` took longer than"
                    f" {_COMMAND_TIMEOUT:g} s: look at its log."
                ) from error
        if process.returncode != 0:
            raise DeploymentError(
                f"`flwr {' '.join(words[:2])}` ended with {process.returncode}:"
                f" {tail(output.splitlines())}"
            )
        return output


@contextlib.contextmanager
def deployed(
    folder: Path,
    nodes: Sequence[NodeConfig],
    credentials: Credentials | None = None,
    *,
    app: Path = PROJECT,
    programs: Programs = PROGRAMS,
    gate: GateOptions | None = None,
) -> Iterator[Deployment]:
    """Start a SuperLink and SuperNodes, and end them with the block, whatever happens
    in it.

    Parameters
    ----------
    folder : Path
        For homes and logs; made if it is not there.
    nodes : sequence of mapping
        The node configuration of each SuperNode, such as ``{"data-path":
        "/path/to/rows.npy"}``.
    credentials : Credentials, optional
        With a key for each SuperNode; None: without TLS and authentication.
    app : Path
        Folder of the only Flower app that the SuperNodes run; each node's guard refuses
        any other.
    programs : Programs
        Flower's, or others that stand for them.
    gate : GateOptions, optional
        What the app runs behind at each node.

    Yields
    ------
    Deployment

    Raises
    ------
    ConfigurationError
        If a node's configuration cannot be written on a command line, or keys are
        missing.
    DeploymentError
        If a process is not ready in time, with the end of its log.
    """
    folder = folder.absolute()
    for node in nodes:
        settings_text(node)
    keys = (None,) * len(nodes) if credentials is None else credentials.node_keys
    if len(keys) != len(nodes):
        raise ConfigurationError(
            f"there are {len(keys)} keys for {len(nodes)} SuperNodes: give one for"
            " each."
        )
    port, *node_ports = free_ports(1 + len(nodes))
    with contextlib.ExitStack() as stack:
        home = folder / "superlink"
        superlink = stack.enter_context(
            logged(superlink_command(port, credentials, programs), home)
        )
        wait_until(
            superlink,
            home,
            lambda: is_healthy(
                port, None if credentials is None else credentials.authority
            ),
        )
        relay = stack.enter_context(relayed(port))
        stack.enter_context(guarded(folder / "cli"))
        deployment = Deployment(folder, port, relay, credentials, app, programs, gate)
        if credentials is not None:
            with ThreadPoolExecutor() as pool:
                names = [f"node-{index}" for index in range(len(nodes))]
                publics = [
                    key.with_name(f"{key.name}.pub") for key in credentials.node_keys
                ]
                list(pool.map(deployment.register, publics, names))
        homes = [folder / f"node-{index}" for index in range(len(nodes))]
        for home, node, key, node_port in zip(
            homes, nodes, keys, node_ports, strict=True
        ):
            supernode = deployment.supernode(home, node, key, port=node_port)
            deployment._nodes.append(stack.enter_context(supernode))
        # All are asked before the first is waited for.
        stack.callback(deployment.ask_nodes_to_end)
        for process, home in zip(deployment.nodes, homes, strict=True):
            wait_until(process, home, functools.partial(_has_registered, home))
        yield deployment


def _has_registered(home: Path) -> bool:
    """Whether a SuperNode's log says that the SuperLink knows it."""
    return "SuperNode ID:" in log_of(home)
