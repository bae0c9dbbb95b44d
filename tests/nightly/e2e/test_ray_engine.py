"""The Ray engine: equal to the engines in one process, says why a run failed, and
leaves nothing behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.feddp.feddp_kmeans import FedDPKMeansOptions
from flwr_dpkmeans.data.simulated.mixture import MixtureClients
from flwr_dpkmeans.errors import DataError, DPKMeansError
from flwr_dpkmeans.options import ClientLevel, Cohort
from simulations.flower.ray_engine import run_on_ray
from simulations.flower.ray_processes import marked_processes
from simulations.flower.ray_settings import RayBackend
from simulations.flower.ray_superlink import RaySuperLink

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def superlink() -> Iterator[RaySuperLink]:
    """One SuperLink for all runs; nothing of it is left, whatever they did."""
    with RaySuperLink(RayBackend(timeout=300.0, max_bytes=8_000_000_000)) as link:
        yield link
        home = link.home
    assert marked_processes(home) == []
    assert not home.exists()


def test_equal_seeds_give_equal_centroids_with_noise_shares_and_sampled_clients(
    superlink: RaySuperLink, tmp_path: Path
) -> None:
    # Shares of noise and coins of sampling are the clients' own, so both engines must
    # number their streams alike.
    config = {
        "data": "mixture",
        "algorithm": "feddp_kmeans",
        "n-clusters": 3,
        "unit": "client",
        "feddp_kmeans.n-init": 2,
    }
    config |= {
        "client-sampling-rate": 0.5,
        "mixture-rows-per-client": 20,
        "partition-seed": 4,
        "cohort.max-silent": 1,
    }
    config |= {
        "trust": "distributed",
        "noise": "seeded",
        "random-state": 1,
        "epsilon": 8.0,
        "examples-per-client": 20,
    }
    found = run_on_ray(config, n_nodes=6, folder=tmp_path, superlink=superlink)
    mixture = MixtureClients(4, 20)
    own = FederatedKMeans(
        3,
        algorithm=FedDPKMeansOptions(n_init=2),
        unit=ClientLevel(examples_per_client=20, sampling_rate=0.5),
        cohort=Cohort(max_silent=1),
        trust="distributed",
        noise="seeded",
        random_state=1,
        epsilon=8.0,
        bounds=None,
        server_data=mixture.server_points(),
        engine="direct",
    ).fit([mixture.client_points(client) for client in range(6)])
    np.testing.assert_array_equal(found.centroids, own.cluster_centers_)
    np.testing.assert_array_equal(found.counts, own.cluster_counts_)
    assert found.privacy.epsilon == own.privacy_.epsilon
    assert np.abs(found.scaled).max() <= 1.0
    # One client of six writes; all end with the same.
    assert len(list(tmp_path.glob("ray-results/run-*/client-*/centroids.npz"))) == 1
    assert found.peak_bytes > 10**8


def test_a_run_that_cannot_be_ends_with_the_sentence_about_its_file(
    tmp_path: Path,
) -> None:
    # Each worker takes seconds to import everything, and one is enough to find no file.
    backend = RayBackend(
        timeout=300.0,
        max_bytes=8_000_000_000,
        client_resources_num_cpus=os.cpu_count() or 1,
    )
    config = {
        "data": str(tmp_path / "none.csv"),
        "bounds": "0,1",
        "algorithm": "proxy_lloyd",
        "n-clusters": 3,
    }
    with pytest.raises(DataError, match=r"none\.csv"):
        run_on_ray(config, n_nodes=2, folder=tmp_path, backend=backend)
    # Flower tells of the failed run by a traceback of its own, after the sentence.
    assert "none.csv" in (tmp_path / "flwr.log").read_text().partition("Traceback")[0]
    # Of a run that was refused there is how it ended, and no result.
    assert {path.name for path in (tmp_path / "ray-results").glob("*/*")} == {
        "progress.json",
        "log.jsonl",
    }


def test_a_run_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    config = {"data": "iris", "algorithm": "proxy_lloyd", "n-clusters": 3}
    with RaySuperLink(RayBackend(timeout=4.0)) as link:
        with pytest.raises(DPKMeansError, match="took longer than 4 s"):
            run_on_ray(config, n_nodes=2, folder=tmp_path, superlink=link)
        assert marked_processes(link.home) == []


def test_the_guard_ends_what_a_killed_process_left(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path;"
        " from simulations.flower.ray_engine import"
        " *\nlink = RaySuperLink(RayBackend()); print(link.home, flush=True);"
        " link._ensure_started()\nprint('up', flush=True)\ntime.sleep(600)"
    )
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=root,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        home = Path(process.stdout.readline().strip())
        assert process.stdout.readline().strip() == "up"
        assert marked_processes(home)
        process.kill()
    deadline = time.monotonic() + 120.0
    while (marked_processes(home) or home.exists()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert marked_processes(home) == []
    assert not home.exists()
