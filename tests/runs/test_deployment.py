"""Processes of a deployment on loopback end with their block, and the relay counts what
goes through.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from support.apps import app_files, write_app

from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.node_command import settings_text
from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower.deployment import PROJECT, Deployment, deployed
from simulations.flower.flower_commands import (
    Credentials,
    Programs,
    connection_text,
    superlink_command,
    supernode_command,
)
from simulations.flower.flower_processes import DeploymentError, free_ports
from simulations.flower.ray_processes import is_supported, marked_processes
from simulations.flower.relay import HOST, Traffic, relayed

linux = pytest.mark.skipif(not is_supported(), reason="processes are found in /proc")


def script(folder: Path, body: str) -> str:
    """A program that stands for Flower's."""
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back everything, twice; its port."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while chunk := connection.recv(4096):
                    connection.sendall(2 * chunk)

    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_the_relay_counts_both_directions_of_all_connections(echo: int) -> None:
    with relayed(echo) as relay:
        for size in (10, 3000):
            with socket.create_connection(
                (HOST, relay.port), timeout=180.0
            ) as connection:
                connection.sendall(b"x" * size)
                connection.shutdown(socket.SHUT_WR)
                received = b""
                while chunk := connection.recv(4096):
                    received += chunk
            assert received == b"x" * (2 * size)
        assert relay.traffic == Traffic(3010, 6020)
        assert (relay.traffic - Traffic(10, 20)).total == 9000
        port = relay.port
    with pytest.raises(OSError):
        socket.create_connection((HOST, port), timeout=1.0)


def test_a_connection_is_refused_where_nobody_listens() -> None:
    (port,) = free_ports(1)
    with (
        relayed(port) as relay,
        socket.create_connection((HOST, relay.port), timeout=180.0) as connection,
    ):
        assert connection.recv(1) == b""
        assert relay.traffic == Traffic()


def test_node_settings_are_toml() -> None:
    settings: dict[str, str | int | float | bool] = {
        "data-path": "/a b/rows.npy",
        "partition-id": 3,
        "flag": True,
        "share": 0.5,
    }
    assert (
        settings_text(settings)
        == "data-path='/a b/rows.npy' partition-id=3 flag=true share=0.5"
    )
    with pytest.raises(ConfigurationError, match="data-path"):
        settings_text({"data-path": "it's"})


HEALTHY = """
import http.server, sys

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Healthy).serve_forever()
"""
"""What a SuperLink answers to who asks whether it is there."""


def standing_for_all(program: str) -> Programs:
    """One program in the place of each of Flower's."""
    return Programs(program, program, (program,))


def test_a_superlink_that_ends_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    program = script(tmp_path, "print('the port is taken'); raise SystemExit(3)")
    programs = standing_for_all(program)
    with (
        pytest.raises(DeploymentError, match=r"ended with 3.*the port is taken"),
        deployed(tmp_path, [], programs=programs),
    ):
        pass


@linux
def test_what_a_process_started_ends_with_it(tmp_path: Path) -> None:
    # As Flower's SuperLink does with its SuperExec: a child in a session of its own.
    program = script(
        tmp_path,
        "import pathlib, subprocess\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        + HEALTHY,
    )
    programs = standing_for_all(program)

    def interrupted() -> None:
        with deployed(tmp_path, [], programs=programs):
            os.kill(int((tmp_path / "child").read_text()), 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    child = int((tmp_path / "child").read_text())
    # An ended child of somebody else's may stay as a zombie, which has no command line.
    command = Path(f"/proc/{child}/cmdline")
    assert not command.exists() or command.read_bytes() == b""
    assert not (tmp_path / "superlink" / ".flwr").exists()
    assert (tmp_path / "superlink" / "log").is_file()


@linux
def test_every_node_is_guarded_and_runs_one_app_only(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import os\nprint('SuperNode ID: 1, PATH', os.environ['PATH'],"
        " flush=True)\n" + HEALTHY,
    )
    programs = standing_for_all(program)
    app = write_app(tmp_path / "app", app_files())
    with deployed(
        tmp_path / "federation", [{}, {}], app=app, programs=programs
    ) as there:
        assert there.allowed_app == digest_of(build_fab_from_disk(app))
        for name in ("node-0", "node-1"):
            guarded = tmp_path / "federation" / name / ".flwr" / "guarded-programs"
            assert (
                f"PATH {guarded}\n"
                in (tmp_path / "federation" / name / "log").read_text()
            )
            assert there.allowed_app in (guarded / "flwr-clientapp").read_text()


def test_a_failed_run_says_so(tmp_path: Path) -> None:
    program = script(tmp_path, "print('no such run-config key'); raise SystemExit(1)")
    programs = standing_for_all(program)
    with relayed(1) as relay:
        there = Deployment(tmp_path, 1, relay, programs=programs)
        with pytest.raises(DeploymentError, match=r"ended with 1 .*no such run-config"):
            there.run("k=1")


def test_credentials_are_on_every_command_line(tmp_path: Path) -> None:
    keys = (tmp_path / "a", tmp_path / "b")
    credentials = Credentials(tmp_path / "ca", tmp_path / "pem", tmp_path / "key", keys)
    superlink = superlink_command(1, credentials)
    node = supernode_command({}, 1, 2, credentials, keys[0])
    for text in (" ".join(superlink), " ".join(node), connection_text(1, credentials)):
        assert "insecure" not in text
        assert str(credentials.authority) in text
    assert "--enable-supernode-auth" in superlink
    assert node[node.index("--auth-supernode-private-key") + 1] == str(keys[0])
    for text in (
        " ".join(superlink_command(1, None)),
        " ".join(supernode_command({}, 1, 2, None, None)),
    ):
        assert "--insecure" in text
    with (
        pytest.raises(ConfigurationError, match="2 keys for 3 SuperNodes"),
        deployed(tmp_path, [{}] * 3, credentials),
    ):
        pass


KILLED = """
import os, pathlib, signal, sys
from simulations.flower import deployment
from simulations.flower.flower_commands import Programs

folder = pathlib.Path(sys.argv[1])
program = str(folder / "program")
deployment.is_healthy = lambda port, credentials: (folder / "child").is_file()
with deployment.deployed(folder, [], programs=Programs(program, program, (program,))):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@linux
def test_a_guard_ends_everything_if_the_command_is_killed(tmp_path: Path) -> None:
    script(
        tmp_path,
        "import pathlib, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "time.sleep(600)",
    )
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=PROJECT,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 120.0
    while (
        marked_processes(tmp_path / "superlink" / ".flwr")
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert marked_processes(tmp_path / "superlink" / ".flwr") == []
