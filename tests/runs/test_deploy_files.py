"""Units, proxy, image and containers of a deployment, looked at by the programs that
they are for.
"""

from __future__ import annotations

import http.client
import http.server
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from flwr.superlink.cli.flower_superlink import (
    _parse_args_run_superlink as superlink_parser,
)

import flwr_dpkmeans.deploy
from flwr_dpkmeans.deploy.node_command import apps_command, supernode_command
from flwr_dpkmeans.deploy.node_options import NodeOptions
from simulations.flower.flower_processes import free_ports

HOST = Path(flwr_dpkmeans.deploy.__file__).parent / "host"
UNITS = sorted(HOST.glob("*.service"))
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
VERIFY = shutil.which("systemd-analyze")


def service(unit: Path) -> dict[str, list[str]]:
    """The section [Service] of a unit: values by key."""
    found: dict[str, list[str]] = {}
    text = re.sub(r"\\\n\s*", "", unit.read_text())
    section = text[text.index("[Service]") :].partition("[Install]")[0]
    for line in section.splitlines()[1:]:
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.skipif(VERIFY is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    assert len(UNITS) == 7
    for unit in UNITS:
        text = unit.read_text()
        (tmp_path / unit.name).write_text(
            re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", text)
        )
    command = [
        str(VERIFY),
        "verify",
        "--man=no",
        *(str(tmp_path / unit.name) for unit in UNITS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "flower" in line] == []
    assert done.returncode == 0


def test_all_units_are_hardened_alike() -> None:
    first, *others = [
        {key: own for key, own in service(unit).items() if _hardens(key)}
        for unit in UNITS
    ]
    assert len(first) > 15
    for other in others:
        assert other == first


def test_whoever_must_know_hears_of_a_unit_that_failed_but_of_the_alarm_itself() -> (
    None
):
    for unit in UNITS:
        is_alarm = unit.name == "flower-alert@.service"
        alerts = "OnFailure=flower-alert@%n.service\n" in unit.read_text()
        assert alerts is not is_alarm
        assert service(unit)["CPUQuota"] == ["400%"]


def test_the_guarded_server_has_a_unit_in_the_place_of_the_two_without_a_guard() -> (
    None
):
    unit = HOST / "flower-server.service"
    words = service(unit)["ExecStart"][0].split()
    assert words[:6] == [
        "/opt/flower/bin/python", "-I", "-m", "flwr_dpkmeans", "server", "start",
    ]  # fmt: skip
    assert "flower-superlink.service flower-serverapps.service" in unit.read_text()


def _hardens(key: str) -> bool:
    starts = (
        "Protect",
        "Private",
        "Restrict",
        "NoNew",
        "Capability",
        "SystemCall",
        "Lock",
        "MemoryMax",
        "Tasks",
    )
    return key.startswith(starts) and key not in ("Restart", "RestartSec")


def test_the_superlink_listens_on_loopback_with_tls_and_known_nodes_only() -> None:
    (line,) = service(HOST / "flower-superlink.service")["ExecStart"]
    composed = yaml.safe_load((HOST / "compose.yaml").read_text())["services"][
        "superlink"
    ]["command"]
    for words in (line.split()[1:], composed[1:]):
        given = superlink_parser().parse_args(words)
        assert given.host == "127.0.0.1"
        assert given.enable_supernode_auth
        assert None not in (
            given.ssl_certfile,
            given.ssl_keyfile,
            given.ssl_ca_certfile,
        )
        assert not given.insecure
        assert given.database.endswith("state.db")


def test_serverapps_outlive_the_superlink() -> None:
    """So it does not start them itself, and whoever does knows its secret."""
    superlink, apps = [
        service(HOST / f"flower-{name}.service")["ExecStart"]
        for name in ("superlink", "serverapps")
    ]
    words, starts = superlink[0].split(), apps[0].split()
    given = superlink_parser().parse_args(words[1:])
    assert (given.isolation, given.superexec_auth_secret_file) == (
        "process",
        starts[-1],
    )
    assert starts[2] == f"{given.host}:{given.port}"


def test_containers_have_no_rights_and_change_what_they_must_only() -> None:
    made = yaml.safe_load((HOST / "compose.yaml").read_text())
    services: dict[str, dict[str, Any]] = made["services"]
    assert sorted(services) == ["gateway", "superlink", "ward-7", "ward-8", "ward-9"]
    assert not any("ports" in one for one in services.values())
    for name, one in services.items():
        assert "no-new-privileges:true" in one["security_opt"]
        writable = [
            volume.split(":")[1]
            for volume in one["volumes"]
            if not volume.endswith(":ro")
        ]
        if name.startswith("ward"):
            assert one["command"][-3:] == ["node", "start", "/etc/flower/node.toml"]
            assert one["command"][1] == "-I"
            assert writable == ["/var/lib/flower/ledger", "/var/lib/flower/results"]
            assert all(
                volume.split(":")[0].startswith(f"./{name}/")
                for volume in one["volumes"]
            )
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert {"cpus", "mem_limit", "pids_limit"} <= one.keys()
        assert name.startswith("ward") or "healthcheck" in one
    assert services["gateway"]["image"].startswith("${NGINX:?nginx by its digest")
    # The gateway passes on what is at its own loopback, where the SuperLink is.
    assert services["gateway"]["network_mode"] == "service:superlink"


def test_the_image_runs_as_nobody_who_could_change_it() -> None:
    text = (HOST / "Dockerfile").read_text()
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)
    assert users == ["10001"]
    assert (
        '"node", "status", "/etc/flower/node.toml"' in text.partition("HEALTHCHECK")[2]
    )
    assert text.index("USER") > text.index("pip install")
    assert "constraints.txt" in text
    for key in (
        "FLWR_TELEMETRY_ENABLED=0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1",
    ):
        assert key in text


class _Backend(http.server.BaseHTTPRequestHandler):
    """Says which path reached it."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@dataclass(frozen=True)
class Made:
    """What the page's commands for the office leave in a folder."""

    folder: Path

    @classmethod
    def by_the_page(cls, folder: Path) -> Made:
        """Type them."""
        page = (HOST.parents[1] / "docs" / "how-to" / "deploy.md").read_text()
        commands = (
            page[page.index("### 1. Office") :].split("```bash\n")[1].split("```")[0]
        )
        folder.mkdir()
        subprocess.run(
            ["bash", "-e", "-c", commands], cwd=folder, check=True, capture_output=True
        )
        return cls(folder)

    @property
    def authority(self) -> Path:
        """Certificate of the authority."""
        return self.folder / "ca.crt"


@contextmanager
def backend(made: Made) -> Iterator[int]:
    """A server with TLS on loopback, in the SuperLink's place."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.folder / "server.pem", made.folder / "server.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Backend) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def nginx(folder: Path, behind: int, made: Made) -> Iterator[int]:
    """The program with the file as it is, but for its paths and ports."""
    (port,) = free_ports(1)
    text = (HOST / "nginx.conf").read_text()
    for written, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:8000", f"127.0.0.1:{behind}"),
        ("/etc/flower/", f"{made.folder}/"),
    ):
        assert written in text
        text = text.replace(written, here)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root; " if os.geteuid() == 0 else ""  # who may read the test's folder
    text = (
        f"{user}daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\nhttp"
        " { access_log off; "
        + f"client_body_temp_path {folder}/body; {places}\n{text}\n}}\n"
    )
    (folder / "nginx.conf").write_text(text)
    process = subprocess.Popen(
        [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    )
    try:
        for _ in range(100):
            if (folder / "pid").exists() and (folder / "pid").read_text():
                break
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10.0)


def posted(port: int, authority: Path, path: str, size: int = 10) -> tuple[int, str]:
    """What the proxy answers."""
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, context=context, timeout=180.0
    )
    connection.request("POST", path, body=b"0" * size)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace")


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_the_proxy_passes_on_what_nodes_say_and_nothing_else(tmp_path: Path) -> None:
    made = Made.by_the_page(tmp_path / "office")
    with backend(made) as behind, nginx(tmp_path, behind, made) as port:
        assert posted(port, made.authority, "/v1/fleet/pull") == (200, "/v1/fleet/pull")
        for path in (
            "/v1/control/start-run",
            "/v1/runtime/x",
            "/",
            "/v1/fleet/../control/x",
            "/v1/fleet%2f..%2fcontrol",
            "/v1/fleet/%2e%2e/control/x",
        ):
            assert posted(port, made.authority, path)[0] in (400, 403)
        assert posted(port, made.authority, "/v1/fleet/push", 1_000_000)[0] == 200
        assert posted(port, made.authority, "/v1/fleet/push", 65 * 2**20)[0] == 413


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_the_proxy_talks_to_the_superlink_only(tmp_path: Path) -> None:
    made, other = (
        Made.by_the_page(tmp_path / "office"),
        Made.by_the_page(tmp_path / "other"),
    )
    with backend(other) as behind, nginx(tmp_path, behind, made) as port:
        assert posted(port, made.authority, "/v1/fleet/pull")[0] == 502


def test_the_units_start_what_the_node_file_says() -> None:
    """Their command lines end in Flower's own."""
    for name, apps in (("supernode", False), ("apps", True)):
        (line,) = service(HOST / f"flower-{name}.service")["ExecStart"]
        words = line.split()
        assert words[:4] == ["/opt/flower/bin/python", "-I", "-m", "flwr_dpkmeans"]
        assert ("--apps" in words) is apps
        assert words[-1] == "/etc/flower/node.toml"
    options = NodeOptions.from_toml(HOST.parent / "node.example.toml")
    command = supernode_command(options, Path("node-config.toml"))
    assert command[command.index("--superlink") + 1] == "superlink.example.org:443"
    assert apps_command(options)[1] == "--insecure"
