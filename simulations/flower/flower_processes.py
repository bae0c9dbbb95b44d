"""Flower's programs as processes with a home and a log file each, ended by their ids
whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from flwr_dpkmeans.deploy.findings import search_path
from flwr_dpkmeans.errors import PeerError
from simulations.flower import ray_processes
from simulations.flower.ray_processes import end_marked, is_supported
from simulations.flower.relay import HOST

START_TIMEOUT = 180.0
"""Seconds that the SuperLink, and then each SuperNode, may take to be ready."""
TASK_POLL_SECONDS = 0.2
"""How often a SuperExec asks for a message to start an app for.

Flower's own default is 1 s.
"""
_STOP_TIMEOUT = 10.0
_POLL_SECONDS = 0.1


class DeploymentError(PeerError):
    """A process of the deployment did not start, or ended too early."""


def free_ports(number: int) -> list[int]:
    """Different ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def flower_home(home: Path) -> Path:
    """Flower's own folder in a home; removed at the end, while results and log stay."""
    return home / ".flwr"


def log_of(home: Path) -> str:
    """What a process has logged so far."""
    return (home / "log").read_text(errors="replace")


def environment(home: Path) -> dict[str, str]:
    """The own environment with another home, and no installation and no reports of use
    at run time.
    """
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    return environment | {
        "HOME": str(home),
        "FLWR_HOME": str(flower_home(home)),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(TASK_POLL_SECONDS),
        "FLWR_TELEMETRY_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "PATH": search_path(),
    }


@contextlib.contextmanager
def logged(
    command: Sequence[str],
    home: Path,
    variables: Callable[[], Mapping[str, str]] = dict,
) -> Iterator[subprocess.Popen[bytes]]:
    """One process with its home and log file, and all that it starts.

    Variables are made when the home is there.
    """
    with (
        guarded(home),
        (home / "log").open("wb") as log,
        running(command, home, stdout=log, cwd=home, variables=variables()) as process,
    ):
        yield process


def wait_until(
    process: subprocess.Popen[bytes], home: Path, is_ready: Callable[[], bool]
) -> None:
    """Wait until a process is ready, or say why it is not."""
    deadline = time.monotonic() + START_TIMEOUT
    while not is_ready():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            what = (
                f"ended with {process.returncode}"
                if ended
                else f"was not ready within {START_TIMEOUT:g} s"
            )
            raise DeploymentError(
                f"{home.name} {what}; the last lines of {home / 'log'}:"
                f" {tail(log_of(home).splitlines())}"
            )
        time.sleep(_POLL_SECONDS)


def tail(lines: Sequence[str]) -> str:
    """The last lines of a log, in one."""
    return (
        " | ".join([line.strip() for line in lines if line.strip()][-5:])
        or "it said nothing"
    )


@contextlib.contextmanager
def running(
    command: Sequence[str],
    home: Path,
    *,
    stdout: object,
    cwd: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[bytes]]:
    """One process, ended by its id with the block."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(home) | dict(variables),
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
def guarded(home: Path) -> Iterator[None]:
    """Make a home; at the end, end by their ids what outlives its parent, and remove
    Flower's own folder in it.

    Apps run in processes and sessions of their own. A guard ends them if this process
    is killed. Where processes cannot be found (outside Linux), apps end when they miss
    their parents.
    """
    mark = flower_home(home)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark.mkdir(mode=0o700, exist_ok=True)
    if not is_supported():
        yield
        return
    command = [sys.executable, "-I", ray_processes.__file__, str(mark)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        try:
            yield
        finally:
            end_marked(mark)
