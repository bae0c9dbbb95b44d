"""The main job as its user types it: `flwr run` on Ray."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.local_superlink import LocalSuperLink

from flwr_dpkmeans import Evaluation, FederatedKMeans, PrivateCount
from flwr_dpkmeans.data.simulated.mixture import MixtureClients
from flwr_dpkmeans.data.simulated.partition import partition_indices

pytestmark = pytest.mark.ray

FILES = (
    "model.json",
    "profile.csv",
    "centroids.npz",
    "privacy_report.json",
    "metrics.json",
    "summary.png",
)
FILES += ("report.html", "report.md", "deployment.json")
README_RUN = "FLWR_DPKMEANS_README_RUN"
"""Environment variable: the home in which the README's first command has run, what it
printed beside its output.
"""
OWN = (sys.executable, "-m", "flwr_dpkmeans")
"""The package's own command, which tells how a run ended."""


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    """One SuperLink for all runs of this module."""
    link = LocalSuperLink.make(tmp_path_factory.mktemp("home"))
    yield link
    link.stop()


def client_folders(root: Path) -> list[Path]:
    """Output folders of all clients of a run."""
    return sorted(root.glob("client-*"))


def run_folder(output: Path) -> Path:
    """The folder of the only run below an output folder."""
    (folder,) = output.glob("run-*")
    return folder


@pytest.fixture
def default_job(request: pytest.FixtureRequest) -> tuple[Path, str, int]:
    """Output folder, printed lines and nodes of the default job.

    The README's own run, if that was just typed.
    """
    if README_RUN in os.environ:
        home = Path(os.environ[README_RUN])
        return home / "flwr-dpkmeans", (home / "printed").read_text(), 10
    superlink: LocalSuperLink = request.getfixturevalue("superlink")
    completed = superlink.run(nodes=3, workers=2)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return superlink.home / "flwr-dpkmeans", completed.stdout, 3


def test_the_default_job(default_job: tuple[Path, str, int]) -> None:
    output, printed, n_nodes = default_job
    (root,) = output.iterdir()
    folders = client_folders(root)
    assert len(folders) == n_nodes
    arrays = [np.load(folder / "centroids.npz")["centroids"] for folder in folders]
    assert arrays[0].shape == (10, 64)
    assert all(np.array_equal(arrays[0], other) for other in arrays[1:])
    for folder in folders:
        for name in FILES:
            assert (folder / name).is_file()
        assert str(folder / "report.html") in printed
    assert not (root / "server" / "centroids.npz").exists()
    report = json.loads((root / "server" / "privacy_report.json").read_text())
    own = json.loads((folders[0] / "privacy_report.json").read_text())
    # Each party says for itself what it knows of the others' identities.
    identities = [
        (a, b)
        for a, b in zip(report["assumptions"], own["assumptions"], strict=True)
        if a != b
    ]
    beside = {key: report[key] for key in ("assumptions", "provenance", "warnings")}
    assert report == own | beside
    # What rows or centres say against the result, the server does not see.
    assert report["warnings"] == []
    warnings = " ".join(own["warnings"])
    assert "no clusters are told apart there" in warnings
    for name in (
        "run_id",
        "plan_digest",
        "columns_digest",
        "sources_hash",
        "versions",
        "cohort",
    ):
        assert report["provenance"][name] == own["provenance"][name], name
    assert root.name == f"run-{own['provenance']['run_id']}"
    assert len(report["provenance"]["app_hash"]) == 64
    assert [
        "No client signed" in a and "no identities to pin" in b for a, b in identities
    ] == [True]
    assert report["is_private"]
    assert report["trust"] == "oblivious"
    assert 1.99 < report["epsilon"] <= 2.0
    assert report["delta"] == pytest.approx(1 / (1797 * np.log(1797)))
    assert (
        len(re.findall(r"^round \d+/\d+ .*epsilon so far", printed, re.MULTILINE))
        == report["n_attempts"]
    )
    assert "movement" not in printed


@pytest.mark.nightly
def test_a_users_csv_with_a_private_count_and_equal_seeds_on_ray_and_in_process(
    superlink: LocalSuperLink, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    points = np.clip(
        generator.normal(
            generator.choice([20.0, 50.0, 80.0], (3000, 1)), 4.0, (3000, 3)
        ),
        0.0,
        100.0,
    )
    lines = ["a,b,c,town,kind"]
    lines += [
        f"{a:.3f},{b:.3f},{c:.3f},Springfield,{i % 3}"
        for i, (a, b, c) in enumerate(points)
    ]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    output = tmp_path / "out"
    config = (
        f"data='{table}' n-clusters=5 bounds='0,100' label-column='kind'"
        f" output='{output}' num-clients=3"
    )
    config += (
        " noise='seeded' random-state=7 trust='central' evaluation='private'"
        " n-classes=3"
    )
    completed = superlink.run(config, nodes=3, program=OWN)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "NOT PRIVATE" in completed.stdout
    output = run_folder(output)
    assert str(output) in completed.stdout
    folders = client_folders(output)
    assert len(folders) == 3
    centroids = np.load(folders[0] / "centroids.npz")["centroids"]
    assert centroids.shape == (5, 3)
    assert centroids.min() >= 0.0
    assert centroids.max() <= 100.0
    report = json.loads((output / "server" / "privacy_report.json").read_text())
    assert report["n_examples_source"] == "private count"
    assert abs(report["n_examples"] - 3000) < 300
    assert report["releases"][0]["array"] == "count"
    assert report["epsilon"] <= 2.0
    rows = [partition_indices(3000, 3, part, seed=0) for part in range(3)]
    labels = np.arange(3000) % 3
    # The same parts: each client rounds its own sum of residuals in radii, so the last
    # digits depend on who has a row.
    own = FederatedKMeans(
        n_clusters=5,
        epsilon=2.0,
        noise="seeded",
        random_state=7,
        trust="oblivious",
        bounds=(0.0, 100.0),
        n_examples=PrivateCount(),
        evaluation=Evaluation(n_classes=3),
    ).fit([points.round(3)[part] for part in rows], [labels[part] for part in rows])
    np.testing.assert_array_equal(centroids, own.cluster_centers_)
    assert own.evaluation_ is not None
    evaluated = json.loads((output / "server" / "metrics.json").read_text())[
        "evaluation"
    ]
    assert evaluated == own.evaluation_.to_dict()
    assert str(own.evaluation_) in completed.stdout


@pytest.mark.nightly
def test_persons_on_ray_are_those_of_the_notebook(
    superlink: LocalSuperLink, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    points = generator.choice([20.0, 50.0, 80.0], (3000, 1))
    points = np.clip(points + generator.normal(0.0, 4.0, (3000, 2)), 0.0, 100.0)
    points = points.round(3)
    ids = [f"SECRET-{number}" for number in generator.integers(0, 900, 3000)]
    lines = [
        f"{a:.3f},{name},{b:.3f}" for (a, b), name in zip(points, ids, strict=True)
    ]
    table = tmp_path / "stays.csv"
    table.write_text("\n".join(["a,patient,b", *lines]) + "\n")
    output = tmp_path / "out"
    config = (
        f"data='{table}' n-clusters=3 bounds='0,100' person-column='patient'"
        f" unit='person' output='{output}' num-clients=3 noise='seeded' random-state=7"
        " trust='central'"
    )
    completed = superlink.run(config, nodes=3, program=OWN)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    folders = client_folders(run_folder(output))
    centroids = np.load(folders[0] / "centroids.npz")["centroids"]
    rows = [partition_indices(3000, 3, part, seed=0) for part in range(3)]
    of_parties = [[ids[number] for number in part] for part in rows]
    own = FederatedKMeans(
        n_clusters=3,
        epsilon=2.0,
        noise="seeded",
        random_state=7,
        trust="oblivious",
        bounds=(0.0, 100.0),
        n_examples=PrivateCount(),
    ).fit([points[part] for part in rows], persons=of_parties)
    np.testing.assert_array_equal(centroids, own.cluster_centers_)
    report = json.loads((folders[0] / "privacy_report.json").read_text())
    assert report["unit"] == "person"
    n_persons = sum(len(set(of_party)) for of_party in of_parties)
    assert abs(report["n_examples"] - n_persons) < 300
    written = [path for path in output.rglob("*") if path.is_file()]
    assert not any(b"SECRET" in path.read_bytes() for path in written)
    assert "SECRET" not in completed.stdout + completed.stderr


@pytest.mark.nightly
def test_feddp_kmeans_chooses_k_on_the_generated_mixture(
    superlink: LocalSuperLink, tmp_path: Path
) -> None:
    config = (
        "algorithm='feddp_kmeans' data='mixture' mixture-rows-per-client=4000"
        " partition-seed=5 epsilon=4.0"
    )
    config += (
        " n-clusters='auto' max-clusters=12 feddp_kmeans.n-init=3"
        f" output='{tmp_path / 'out'}'"
    )
    completed = superlink.run(config, nodes=3)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    root = run_folder(tmp_path / "out")
    folders = [*client_folders(root), root / "server"]
    assert len(folders) == 4
    centroids = [np.load(folder / "centroids.npz")["centroids"] for folder in folders]
    metrics = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
    for folder, found, numbers in zip(folders, centroids, metrics, strict=True):
        assert np.array_equal(found, centroids[0])
        assert numbers["n_clusters"] == len(found)
        assert numbers["costs"] == metrics[0]["costs"]
        # Profiles are of a client's own rows.
        for name in {*FILES, "cost_curve.png"} - (
            {"profile.csv"} if folder.name == "server" else set()
        ):
            assert (folder / name).stat().st_size > 0
        assert str(folder / "report.html") in completed.stdout
    k, n_features = centroids[0].shape
    assert 2 <= k <= 12
    assert n_features == 100
    # Nearer to the mixture's means than the middle of all data is, so the nodes' rows
    # reached the result.
    means = MixtureClients(5).means()
    distances = np.linalg.norm(means[:, None] - centroids[0][None], axis=2).min(axis=1)
    assert (
        distances.mean()
        < 0.8 * np.linalg.norm(means - means.mean(axis=0), axis=1).mean()
    )
    report = json.loads((folders[0] / "privacy_report.json").read_text())
    assert (report["trust"], report["unit"], report["is_private"]) == (
        "distributed",
        "record",
        True,
    )
    assert 3.99 < report["epsilon"] <= 4.0
    assert re.search(
        r"^round 1/3 \(outer-product\); 3 clients; .*epsilon so far",
        completed.stdout,
        re.MULTILINE,
    )


def test_a_wrong_value_ends_with_one_sentence_and_an_exit_code(
    superlink: LocalSuperLink, tmp_path: Path
) -> None:
    # (That Flower's own command shows the sentence above its traceback,
    # tests/nightly/simulations/test_a_method.py says.)
    config = f"algorithm='fastloyd' num-clients=2 output='{tmp_path / 'out'}'"
    failed = superlink.run(config, nodes=2, program=OWN)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "did you mean 'fastlloyd'?" in failed.stderr
    # Before anything was started.
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_weights_on_ray_are_those_of_the_notebook(
    superlink: LocalSuperLink, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    points = generator.choice([20.0, 50.0, 80.0], (3000, 1))
    points = np.clip(points + generator.normal(0.0, 4.0, (3000, 2)), 0.0, 100.0)
    points = points.round(3)
    weights = generator.integers(0, 5, 3000) + 0.125
    lines = [f"{a:.3f},{w},{b:.3f}" for (a, b), w in zip(points, weights, strict=True)]
    table = tmp_path / "survey.csv"
    table.write_text("\n".join(["a,weight,b", *lines]) + "\n")
    output = tmp_path / "out"
    config = (
        f"data='{table}' n-clusters=3 bounds='0,100' weight-column='weight'"
        f" max-weight=4.0 output='{output}' num-clients=3 noise='seeded' random-state=7"
        " trust='central'"
    )
    completed = superlink.run(config, nodes=3, program=OWN)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    written = np.load(client_folders(run_folder(output))[0] / "centroids.npz")
    rows = [partition_indices(3000, 3, part, seed=0) for part in range(3)]
    own = FederatedKMeans(
        n_clusters=3,
        epsilon=2.0,
        noise="seeded",
        random_state=7,
        trust="oblivious",
        bounds=(0.0, 100.0),
        max_weight=4.0,
    )
    own.fit([points[part] for part in rows], None, [weights[part] for part in rows])
    np.testing.assert_array_equal(written["centroids"], own.cluster_centers_)
    np.testing.assert_array_equal(written["counts"], own.cluster_counts_)
