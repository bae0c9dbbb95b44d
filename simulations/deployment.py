"""A throw-away deployment on loopback: one SuperLink, its SuperNodes and `flwr run`, all ended with the block.

    with deployed(folder, [{"data-path": "a.npy"}, {"data-path": "b.npy"}]) as deployment:
        lines = deployment.run("algorithm='fastlloyd' n-clusters=2 num-clients=2 bounds='-1,1'")

Every process has a home of its own below the folder, as if it were a machine of its own, and a log file there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr_dpkmeans.errors import ConfigurationError, PeerError
from simulations import ray_processes
from simulations.ray_processes import end_marked, is_supported
from simulations.relay import HOST, Relay, Traffic, relayed

PROJECT = Path(__file__).resolve().parents[1]
START_TIMEOUT = 60.0
"""Seconds that the SuperLink, and then each SuperNode, may take to be ready."""
RUN_TIMEOUT = 900.0
_STOP_TIMEOUT = 10.0
_POLL_SECONDS = 0.2
_NAME = "loopback"

NodeConfig = Mapping[str, str | int | float | bool]


class DeploymentError(PeerError):
    """A process of the deployment did not start, or ended too early."""


@dataclass(frozen=True)
class LogLine:
    """One line of a run's log.

    Parameters
    ----------
    seconds : float
        Since the run was asked for, when the line arrived here: up to about 0.7 s after it was written.
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
    """

    def __init__(self, folder: Path, port: int, relay: Relay) -> None:
        self._folder = folder
        self._relay = relay
        home = folder / "cli"
        _flower_home(home).mkdir(parents=True, exist_ok=True)
        connection = f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\n'
        connection += f'address = "{HOST}:{port}"\ninsecure = true\n'
        (_flower_home(home) / "config.toml").write_text(connection)
        self._home = home

    def run(self, run_config: str, *, app: Path = PROJECT, timeout: float = RUN_TIMEOUT) -> list[LogLine]:
        """Type `flwr run . --stream --run-config ...` and read the log until the run ends.

        Parameters
        ----------
        run_config : str
            As on the command line.
        app : Path
            Folder of the Flower app.
        timeout : float
            Seconds.

        Returns
        -------
        list of LogLine

        Raises
        ------
        DeploymentError
            If `flwr run` fails or takes longer.
        """
        command = [_program("flwr"), "run", str(app), "--stream", "--run-config", run_config]
        start = time.monotonic()
        lines: list[LogLine] = []
        with _running(command, self._home, stdout=subprocess.PIPE, cwd=app) as process:
            timer = threading.Timer(timeout, process.kill)
            timer.start()
            try:
                for line in process.stdout or ():
                    text = line.decode(errors="replace").rstrip()
                    lines.append(LogLine(time.monotonic() - start, text, self._relay.traffic))
            finally:
                timer.cancel()
            code = process.wait()
        if code != 0:
            said = _tail([line.text for line in lines])
            raise DeploymentError(f"`flwr run` ended with {code} after {time.monotonic() - start:.0f} s: {said}")
        return lines


@contextlib.contextmanager
def deployed(folder: Path, nodes: Sequence[NodeConfig]) -> Iterator[Deployment]:
    """Start a SuperLink and SuperNodes, without TLS, and end them with the block, whatever happens in it.

    Parameters
    ----------
    folder : Path
        For homes and logs; made if it is not there.
    nodes : sequence of mapping
        The node configuration of each SuperNode, such as ``{"data-path": "/path/to/rows.npy"}``.

    Yields
    ------
    Deployment

    Raises
    ------
    ConfigurationError
        If a node's configuration cannot be written on a command line.
    DeploymentError
        If a process is not ready in time, with the end of its log.
    """
    folder = folder.absolute()
    configs = [_node_config(node) for node in nodes]
    port, *node_ports = _free_ports(1 + len(configs))
    with contextlib.ExitStack() as stack:
        home = folder / "superlink"
        command = [_program("flower-superlink"), "--insecure", "--host", HOST, "--port", str(port)]
        superlink = stack.enter_context(_logged(command, home))
        _wait(superlink, home, lambda: _is_healthy(port))
        relay = stack.enter_context(relayed(port))
        started = []
        for index, (config, node_port) in enumerate(zip(configs, node_ports, strict=True)):
            home = folder / f"node-{index}"
            command = [_program("flower-supernode"), "--insecure", "--superlink", f"{HOST}:{relay.port}"]
            command += ["--host", HOST, "--port", str(node_port), "--node-config", config]
            started.append((stack.enter_context(_logged(command, home)), home))
        for node, home in started:
            _wait(node, home, lambda home=home: "SuperNode ID:" in _log_of(home))  # type: ignore[misc]
        yield Deployment(folder, port, relay)


def _program(name: str) -> str:
    """A command of the environment that this interpreter is in."""
    return str(Path(sys.executable).with_name(name))


def _node_config(node: NodeConfig) -> str:
    """A node's configuration as Flower's command line takes it: TOML, strings in quotes."""
    words = []
    for key, value in node.items():
        if isinstance(value, str) and {"'", "\n"} & set(value):
            raise ConfigurationError(f"the node setting {key!r} is {value!r}: use a value without ' and line breaks.")
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        words.append(f"{key}='{value}'" if isinstance(value, str) else f"{key}={text}")
    return " ".join(words)


def _free_ports(number: int) -> list[int]:
    """Different ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _environment(home: Path) -> dict[str, str]:
    """The own environment with another home, and no installation and no reports of use at run time."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return environment | {
        "HOME": str(home),
        "FLWR_HOME": str(_flower_home(home)),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}",
    }


@contextlib.contextmanager
def _running(command: Sequence[str], home: Path, *, stdout: object, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One process, ended by its id with the block."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=_environment(home),
        stdin=subprocess.DEVNULL,
        stdout=stdout,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def _logged(command: Sequence[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One process with its home and log file, and all that it starts."""
    _flower_home(home).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((home / "log").open("wb"))
        if is_supported():
            stack.enter_context(_guarded(_flower_home(home)))
        yield stack.enter_context(_running(command, home, stdout=log, cwd=home))


@contextlib.contextmanager
def _guarded(mark: Path) -> Iterator[None]:
    """End by its id what outlives its parent: apps run in processes and sessions of their own.

    A guard does so if this process is killed. Where processes cannot be found, apps end when they miss their parents.
    """
    command = [sys.executable, "-I", ray_processes.__file__, str(mark)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        try:
            yield
        finally:
            end_marked(mark)


def _flower_home(home: Path) -> Path:
    """Flower's own folder in a home; removed at the end, while results and log stay."""
    return home / ".flwr"


def _log_of(home: Path) -> str:
    """What a process has logged so far."""
    return (home / "log").read_text(errors="replace")


def _wait(process: subprocess.Popen[bytes], home: Path, is_ready: Callable[[], bool]) -> None:
    """Wait until a process is ready, or say why it is not."""
    deadline = time.monotonic() + START_TIMEOUT
    while not is_ready():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            what = f"ended with {process.returncode}" if ended else f"was not ready within {START_TIMEOUT:g} s"
            raise DeploymentError(
                f"{home.name} {what}; the last lines of {home / 'log'}: {_tail(_log_of(home).splitlines())}"
            )
        time.sleep(_POLL_SECONDS)


def _is_healthy(port: int) -> bool:
    """Whether the SuperLink answers."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(lines: Sequence[str]) -> str:
    """The last lines of a log, in one."""
    return " | ".join([line.strip() for line in lines if line.strip()][-5:]) or "it said nothing"
