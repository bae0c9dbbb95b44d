"""A real SuperLink sends a real SuperNode apps: the reviewed one runs, a modified one is refused and reads nothing."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from support.apps import THIEF, app_files, write_app
from support.node_files import write_node

from simulations.deploy.app_guard import digest_of
from simulations.deployment import PROJECT, Deployment, deployed
from simulations.flower_processes import flower_home, free_ports, guarded, log_of, running, wait_until
from simulations.ray_processes import is_supported

pytestmark = [pytest.mark.ray, pytest.mark.skipif(not is_supported(), reason="processes are found in /proc")]

LEAVES_A_TRACE = '"; open(__import__("os").environ["FLWR_HOME"] + "/it-ran", "w"); "'
SECRET = "x,y\n4321.25,1\n4321.5,2\n"


@contextmanager
def node_for(deployment: Deployment, home: Path, app: Path) -> Iterator[None]:
    """`node start` with one reviewed app and a file that nobody else may read."""
    rows = home / "rows.csv"
    with guarded(home), (home / "log").open("wb") as log:
        rows.write_text(SECRET)
        rows.chmod(0o600)
        file = write_node(
            home,
            allowed_apps=[digest_of(build_fab_from_disk(app))],
            superlink=deployment.superlink,
            port=free_ports(1)[0],
            home=str(flower_home(home)),
            data_path=str(rows),
            columns=["x", "y"],
        )
        command = [sys.executable, "-m", "flwr_dpkmeans", "node", "start", str(file)]
        with running(command, home, stdout=log, cwd=PROJECT) as process:
            wait_until(process, home, lambda: "SuperNode ID:" in log_of(home))
            yield


def said(deployment: Deployment, app: Path) -> str:
    return "\n".join(line.text for line in deployment.run("", app=app, timeout=120.0))


def test_a_modified_app_is_refused_and_reads_nothing_while_the_reviewed_one_runs(tmp_path: Path) -> None:
    reviewed = write_app(tmp_path / "reviewed", app_files())
    (tmp_path / "writable").mkdir()
    # The traversal that leaves a FLWR_HOME of root's, for the SuperLink another one: its home is deeper.
    version = "0.1.0.abcdef01/../../../../writable/x"
    thief = write_app(tmp_path / "thief", app_files(version, answer=THIEF, mark=LEAVES_A_TRACE))
    home, superlink = tmp_path / "node", tmp_path / "federation" / "superlink"
    with deployed(tmp_path / "federation", []) as deployment, node_for(deployment, home, reviewed):
        with ThreadPoolExecutor() as pool:
            stolen, answered = pool.map(lambda app: said(deployment, app), (thief, reviewed))
        assert "4321" not in stolen
        alerts = (flower_home(home) / "alerts.log").read_text()
        left = list((flower_home(home) / "guarded-apps").iterdir())
        # Its ServerApp is the same file, and did run where it was sent from.
        traces = {flower_home(place): (flower_home(place) / "it-ran").exists() for place in (home, superlink)}
    assert "SAID nothing" in answered, answered
    assert "SAID" in stolen, stolen
    assert traces == {flower_home(home): False, flower_home(superlink): True}
    assert list((tmp_path / "writable").iterdir()) == []
    assert left == []
    refused = hashlib.sha256(build_fab_from_disk(thief)).hexdigest()
    assert alerts.count("ALERT app refused") == 1
    assert refused in alerts
    assert refused in log_of(home)
