"""A federation over TLS with authenticated SuperNodes: who takes part, what comes out, and that nothing is left."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.bundled import load_bundled
from flwr_dpkmeans.data.partition import partition_indices
from flwr_dpkmeans.flower.client_app import HOME_FOLDER
from flwr_dpkmeans.flower.progress import Outcome, read_progress, runs_below
from simulations.deploy.certificates import write_node_key
from simulations.deploy.collected import collect
from simulations.deploy.credentials import make_credentials
from simulations.deploy.dashboard import server_page
from simulations.deploy.sites import make_sites
from simulations.deployment import Deployment, LogLine, deployed
from simulations.flower_commands import NodeConfig
from simulations.flower_processes import flower_home
from simulations.ray_processes import is_supported, marked_processes
from simulations.relay import HOST

pytestmark = [pytest.mark.ray, pytest.mark.skipif(not is_supported(), reason="processes are found in /proc")]

PROJECT = Path(__file__).resolve().parents[2]
# Equal results need equal noise, which a node refuses unless its own policy says otherwise.
POLICY = "allow-anything = true\nrequire-secure-noise = false\nallow-non-private = true\nmax-delta = 0.005\n"
SETTINGS = "algorithm='fastlloyd' n-clusters=3 epsilon=1.0 max-iter=2 noise='seeded' random-state=7"
TURNED_AWAY_TIMEOUT = 180.0


def rows(n_nodes: int) -> list[NDArray[np.float64]]:
    """What `make_sites` gives the nodes of the bundled irises."""
    points = load_bundled("iris").points
    return [points[partition_indices(len(points), n_nodes, part, seed=0)] for part in range(n_nodes)]


def in_process(n_nodes: int, max_iter: int = 2) -> NDArray[np.float64]:
    """The same run without Flower's processes, over rows that lie between 0 and 8."""
    model = FederatedKMeans(
        3,
        algorithm="fastlloyd",
        epsilon=1.0,
        max_iter=max_iter,
        noise="seeded",
        random_state=7,
        trust="oblivious",
        bounds=(0.0, 8.0),
    )
    return np.asarray(model.fit(rows(n_nodes)).cluster_centers_)


def ports_of(folder: Path) -> list[int]:
    """Ports that the SuperLink and the SuperNodes below a folder were told to listen on."""
    found = []
    for home in folder.iterdir():
        for process in marked_processes(flower_home(home)):
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            found += [int(words[words.index("--port") + 1])] if "--port" in words else []
    return found


def assert_nothing_is_left(folder: Path, ports: Sequence[int]) -> None:
    """No process of a federation, and nobody who listens on its ports."""
    homes = [home for home in folder.iterdir() if home.is_dir()]
    assert {home.name: marked_processes(flower_home(home)) for home in homes} == {home.name: [] for home in homes}
    for port in ports:
        with pytest.raises(OSError), socket.create_connection((HOST, port), timeout=1.0):
            pass


def assert_strangers_are_turned_away(deployment: Deployment, folder: Path, node: NodeConfig) -> None:
    """One has a key that nobody registered, the other none: it would register itself if it could."""
    (folder / "unknown").mkdir(mode=0o700)
    unknown = write_node_key(folder / "unknown" / "key")
    with (
        deployment.supernode(folder / "unknown", node, unknown) as first,
        deployment.supernode(folder / "nameless", node) as second,
    ):
        assert first.wait(TURNED_AWAY_TIMEOUT) != 0
        assert second.wait(TURNED_AWAY_TIMEOUT) != 0
    for home in ("unknown", "nameless"):
        log = (folder / home / "log").read_text()
        assert "Failed to initialize the connection" in log
        assert "SuperNode ID:" not in log


def text_of(lines: Sequence[LogLine]) -> str:
    """A run's log."""
    return "\n".join(line.text for line in lines)


def test_three_nodes_agree_and_strangers_are_turned_away(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    sites = make_sites(folder, "iris", 3, POLICY)
    credentials = make_credentials(folder / "certificates", [site.folder for site in sites])
    settings = f"{SETTINGS} num-clients=3 n-features=4 n-examples=150 bounds='0,8' data=''"
    with deployed(folder, [site.node_config for site in sites], credentials) as deployment:
        assert_strangers_are_turned_away(deployment, folder, sites[0].node_config)
        ports = ports_of(folder)
        with ThreadPoolExecutor() as pool:
            first = pool.submit(deployment.run, settings)
            # Flower installs an app in place: a second run of the same second may find half of it, and end.
            while not (first.done() or runs_below(folder / "superlink" / HOME_FOLDER)):
                time.sleep(0.1)
            second = pool.submit(deployment.run, f"{settings} delta=0.006")
            said, refused = text_of(first.result()), text_of(second.result())
        listed, runs = deployment.listed(), deployment.runs()
    assert len(ports) == 4
    assert_nothing_is_left(folder, ports)
    assert listed.count('"status": "online"') == 3
    assert listed.count('"node-id"') == 3
    assert "about 24 s, 4 round trips" in said
    assert len(re.findall(r"^round \d/2 .* 3 clients", said, re.MULTILINE)) == 2
    for result in collect(sites):
        np.testing.assert_array_equal(result.centroids, in_process(3))
    for name in ("centroids.npz", "model.json", "profile.csv"):
        assert not list((folder / "superlink").rglob(name))
    # One of two runs at once waits for the other's end.
    assert (said + refused).count("waiting for another run's end, for 0 s so far") == 1
    # The operator reads what a node does not allow.
    assert "the plan's delta is 0.006, but this client's max_delta is 0.005" in refused
    assert "round 1/2" not in refused
    assert "unhandled exception" not in refused
    assert "Traceback" not in refused
    # The owners read that it is over, and what it cost them.
    for site in sites:
        (end,) = re.findall("the server has stopped this run, and (.*)", (site.folder / "log").read_text())
        assert re.match(r"it has cost nothing here; it says: RefusalError: node \S+ refused \(RefusalError\)\.$", end)
    # And what the live page shows of both runs.
    runs_folder = folder / "superlink" / HOME_FOLDER
    # Which of the two has its turn first is the scheduler's.
    ended = map(read_progress, runs_below(runs_folder))
    stopped, completed = sorted(ended, key=lambda run: run.outcome is Outcome.COMPLETED)
    assert (completed.outcome, completed.stage, len(completed.nodes)) == (Outcome.COMPLETED, "finish", 3)
    assert [(trip.n_asked, trip.n_answered) for trip in completed.trips] == [(3, 3)] * 4
    assert "this client's max_delta is 0.005" in stopped.sentence
    assert "max_delta is 0.005" in server_page(runs_folder)
    # So does who looks at the list of runs later.
    assert "the plan's delta is 0.006, but this client's max_delta is 0.005" in runs


def test_the_command_runs_nodes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, policy = tmp_path / "federation", tmp_path / "policy.toml"
    policy.write_text(POLICY)
    command = [sys.executable, "-m", "simulations.deploy", "--nodes", "2", "--data", "iris", "--policy", str(policy)]
    command += ["--run-config", SETTINGS.replace("max-iter=2", "max-iter=1 bounds='0,8'")]
    command += ["--output", str(folder)]
    completed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600, check=False)
    said = completed.stdout + completed.stderr
    assert completed.returncode == 0, said
    assert "all 2 clients have the same centroids and report" in said
    ports = [int(port) for port in re.findall(rf"{HOST}:(\d+)", said)]
    assert ports
    assert_nothing_is_left(folder, ports)
    for index in range(2):
        (path,) = (folder / f"node-{index}" / "results").glob("run-*/client-*/centroids.npz")
        with np.load(path) as arrays:
            np.testing.assert_array_equal(arrays["centroids"], in_process(2, 1))
