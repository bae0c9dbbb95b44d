"""The calls of the FastLloyd authors' own package, over this package's protocol."""

from __future__ import annotations

import itertools
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import (
    PlanError,
    ProtocolError,
)
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.task import TASKS
from simulations.papers import fastlloyd_parties
from simulations.papers.fastlloyd_parties.configs import Params
from simulations.papers.fastlloyd_parties.laplace import LaplaceFastLloyd
from simulations.papers.fastlloyd_parties.parties import (
    MaskedClient,
    Server,
    UnmaskedClient,
)

CENTRES = np.array([[-0.7, -0.7], [0.0, 0.6], [0.7, -0.6]])
EXAMPLE = """
from parties import MaskedClient, Server
from configs import Params

# Configure the clustering parameters
params = Params(
    k=3,  # Number of clusters
    dim=2,  # Data dimensionality
    max_dist=0.1,  # Maximum centroid movement
    dp="gaussian",  # Differential privacy mechanism
    epsilon=1.0,  # Privacy budget
    num_clients=5  # Number of participating clients
)

# Create clients with their local data
clients = [
    MaskedClient(
        index=i,
        values=client_data[i],
        params=params
    ) for i in range(params.num_clients)
]

# Create the server
server = Server(params)

# Run the federated clustering algorithm
for iteration in range(params.iters):
    # Client-side computations
    totals = []
    counts = []
    for client in clients:
        total, count, _ = client.step(params)
        totals.append(total)
        counts.append(count)

    # Server-side aggregation with privacy
    total, count = server.step(totals, counts, params)

    # Update clients
    for client in clients:
        client.update(total, count)
"""


@pytest.fixture(autouse=True)
def _no_algorithm_stays() -> Iterator[None]:
    yield
    TASKS.pop(LaplaceFastLloyd.name, None)


def rows(n: int = 200, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(0, 3, n)] + rng.normal(0.0, 0.05, (n, 2))


def play(
    params: Params, kind: type = MaskedClient
) -> tuple[list[Any], Server, list[tuple[Any, Any]]]:
    clients = [kind(i, rows(seed=i), params) for i in range(params.num_clients)]
    server, seen = Server(params), []
    for _ in range(params.iters or 0):
        steps = [client.step(params) for client in clients]
        seen.append(([one[0] for one in steps], [one[1] for one in steps]))
        released = server.step(*seen[-1], params)
        for client in clients:
            client.update(*released)
    return clients, server, seen


def test_the_authors_example_runs_as_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (folder,) = fastlloyd_parties.__path__
    monkeypatch.syspath_prepend(folder)
    script = tmp_path / "example.py"
    script.write_text(EXAMPLE)
    left = runpy.run_path(
        str(script), {"client_data": [rows(seed=i) for i in range(5)]}
    )
    assert left["server"].due is None
    assert len(left["server"].steps) == left["params"].iters
    for one, other in itertools.pairwise(left["clients"]):
        np.testing.assert_array_equal(one.centroids, other.centroids)
    assert 0.99 < left["server"].report.epsilon <= 1.0
    # No step is longer than max_dist.
    assert left["server"].first.clusters.movements
    assert max(left["server"].first.clusters.movements) <= 0.1 + 1e-4


def test_masked_sums_are_unreadable_alone_and_right_together() -> None:
    masked, _, seen = play(Params(k=3, dim=2, epsilon=1e4, num_clients=3, seed=5))
    unmasked, _, read = play(
        Params(k=3, dim=2, epsilon=1e4, num_clients=3, seed=5), UnmaskedClient
    )
    np.testing.assert_allclose(masked[0].centroids, unmasked[0].centroids, atol=0.01)
    totals, counts = seen[0]
    for one in (*totals, *counts):
        # Of a number below 2^40 the upper 20 bits of 64 would all be equal.
        assert len(np.unique(one.ravel() >> np.uint64(44))) == one.size
    in_clear = read[0][1][0]
    assert in_clear.sum() == 200.0
    # Nor can their sum be read by the server: key authors' streams stay in it until
    # clients take them off.
    assert len(np.unique(np.sum(counts, axis=0, dtype=np.uint64) >> np.uint64(44))) == 3


@pytest.mark.parametrize("dp", ["laplace", "none"])
def test_other_mechanisms_find_the_centres(dp: str) -> None:
    clients, server, _ = play(
        Params(k=3, dim=2, dp=dp, epsilon=20.0, num_clients=2, seed=1, iters=5)
    )
    found = clients[0].centroids
    assert np.abs(found[:, None] - CENTRES).sum(axis=2).min(axis=0).max() < 0.1
    assert server.report.is_private == (dp == "laplace")


def test_laplace_noise_has_its_sensitivity_and_its_price() -> None:
    params = Params(
        k=2,
        dim=3,
        dp="laplace",
        epsilon=2.0,
        max_dist=0.25,
        num_clients=2,
        iters=4,
        seed=1,
    )
    values = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    for index in range(2):
        MaskedClient(index, values, params)
    server = Server(params)
    sums, counts = server.plan.round_at(2).blocks
    assert sums.sensitivity.bound == pytest.approx(0.25 * np.sqrt(3), rel=1e-9)
    each = 1 / sums.noise_multiplier, 1 / counts.noise_multiplier
    assert sum(each) == pytest.approx(2.0 / 4, rel=1e-6)
    assert each[0] / each[1] == pytest.approx(36 ** (1 / 3), rel=1e-6)
    step, state = (
        build_algorithm(server.plan).rounds[1],
        server.clusters or initial_state(server.plan),
    )
    moved = check_sensitivity(
        step.blocks, lambda points: step.statistic(points, state), 3
    )
    assert 0.5 < moved["relative_sums"] <= 1.0
    half = replace(
        sums, sensitivity=replace(sums.sensitivity, bound=sums.sensitivity.bound / 2)
    )
    with pytest.raises(PlanError, match="relative_sums"):
        check_sensitivity(
            (half, counts), lambda points: step.statistic(points, state), 3
        )


def test_a_changed_release_is_refused() -> None:
    params = Params(k=3, dim=2, num_clients=2)
    clients = [MaskedClient(i, rows(seed=i), params) for i in range(2)]
    server = Server(params)
    steps = [client.step(params) for client in clients]
    total, count = server.step(
        [one[0] for one in steps], [one[1] for one in steps], params
    )
    with pytest.raises(ProtocolError, match="not what the server released"):
        clients[0].update(total + np.uint64(1), count)
