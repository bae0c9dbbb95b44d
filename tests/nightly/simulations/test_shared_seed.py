"""The paper's masks from one shared seed.

Sums are right, and any client opens any other.
"""

from __future__ import annotations

import doctest

import numpy as np
import pytest

pytest.importorskip("hydra")

from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.sums.local import run_direct
from simulations.papers.fastlloyd import shared_seed, table3
from simulations.papers.fastlloyd.round_cost import Problem
from simulations.papers.fastlloyd.shared_seed import (
    Pairwise,
    SharedSeed,
    iterate,
    opened_by_a_client,
    plan_of,
)


def problem(n_clients: int = 3) -> Problem:
    points = np.random.default_rng(0).integers(-1000, 1001, (90, 2)) / 1024.0
    return Problem(points, 3, n_clients)


def test_examples() -> None:
    assert doctest.testmod(shared_seed).failed == 0


@pytest.mark.parametrize("kind", [SharedSeed, Pairwise])
@pytest.mark.parametrize("n_clients", [2, 3])
def test_masks_hide_each_vector_and_cancel(kind: type, n_clients: int) -> None:
    masks, own = kind(n_clients), np.arange(5, dtype=np.uint64)
    sent = [masks.hide(client, 4, own) for client in range(n_clients)]
    assert not any(np.array_equal(one, own) for one in sent)
    total = np.sum(sent, axis=0, dtype=np.uint64)
    assert not np.array_equal(total, n_clients * own)
    assert np.array_equal(masks.open(4, total), n_clients * own)
    assert not np.array_equal(masks.hide(0, 5, own), sent[0])


def test_both_masks_give_the_same_centroids() -> None:
    plan, parts = plan_of(problem(), 50.0, 3, NoiseKind.SEEDED), problem().parts
    one, other = iterate(plan, parts, SharedSeed(3)), iterate(plan, parts, Pairwise(3))
    assert one.digest == other.digest
    # And nearly those of the package's own run, whose noise is another.
    assert np.allclose(one.centroids, run_direct(plan, parts).state.centroids, atol=0.2)


def test_any_client_opens_any_other() -> None:
    masks, exact = SharedSeed(3), np.arange(7, dtype=np.uint64)
    assert np.array_equal(
        opened_by_a_client(masks, 2, 1, masks.hide(2, 1, exact)), exact
    )
    with pytest.raises(AttributeError):
        opened_by_a_client(Pairwise(3), 2, 1, exact)  # type: ignore[arg-type]


def test_table_3_times_both_and_warns(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--only",
        "TimeSynth-10K-2-2",
        "--repeats",
        "1",
        "--iterations",
        "3",
        "--output",
        str(tmp_path),
    ]
    assert table3.main([*arguments, "--shared-seed"]) == 0
    told = capsys.readouterr()
    assert "let every client unmask every other one's sums" in " ".join(
        told.err.split()
    )
    page = (tmp_path / "table3.md").read_text()  # type: ignore[operator]
    assert "shared seed, bare CPU ms" in page
