"""One release cut at any number of clusters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.cluster.hierarchy import dendrogram, fcluster, is_valid_linkage, linkage

from flwr_dpkmeans import DPKMeans
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.results.hierarchy import Hierarchy
from flwr_dpkmeans.results.model import Model

Floats = NDArray[np.float64]


def hierarchy_of(counts: Floats | None = None, n: int = 12) -> Hierarchy:
    centres = np.random.default_rng(n).uniform(-1.0, 1.0, (n, 3))
    return Hierarchy(centres, np.ones(n) if counts is None else counts)


def partition(labels: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label)) for label in set(labels)}


@pytest.mark.parametrize("n", [1, 2, 3, 12, 60])
def test_clusters_of_equal_counts_are_merged_as_scipy_does(n: int) -> None:
    hierarchy = hierarchy_of(n=n)
    if n > 1:
        expected = linkage(hierarchy.scaled, "ward")
        assert hierarchy.merges == pytest.approx(expected)
        assert is_valid_linkage(hierarchy.merges)
    for k in range(1, n + 1):
        if n > 1:
            theirs = fcluster(hierarchy.merges, k, "maxclust")
            assert partition(hierarchy.labels(k)) == partition(theirs)
        assert len(hierarchy.centres(k)) == k


def test_a_cluster_of_many_rows_counts_as_they_would() -> None:
    """Each centre as often as its count says."""
    counts = np.array([5.0, 1.0, 2.0, 7.0, 1.0, 3.0])
    weighed = hierarchy_of(counts, 6)
    repeated = np.repeat(weighed.scaled, counts.astype(int), axis=0)
    expected = linkage(repeated, "ward")[-5:, 2]
    assert weighed.merges[:, 2] == pytest.approx(expected)
    for k in (2, 3, 4):
        labels = weighed.labels(k)
        for cluster in range(k):
            rows = np.repeat(labels, counts.astype(int)) == cluster
            centre = repeated[rows].mean(axis=0)
            assert weighed.centres(k)[cluster] == pytest.approx(centre)


def test_clusters_without_rows_move_nothing() -> None:
    counts = np.array([100.0, -4.0, 80.0, 0.0, 90.0])
    hierarchy = hierarchy_of(counts, 5)
    assert np.isfinite(hierarchy.merges).all()
    distances = np.abs(hierarchy.centres(3)[:, None] - hierarchy.scaled[[0, 2, 4]])
    assert distances.max(axis=2).min(axis=1).max() < 1e-9
    assert hierarchy.sizes(3).sum() == counts.sum()


def test_a_cut_is_nested_in_finer_ones_and_is_drawn_by_scipy() -> None:
    hierarchy = hierarchy_of(np.arange(1.0, 13.0))
    for k in range(1, 12):
        finer = partition(hierarchy.labels(k + 1))
        assert all(
            any(part <= cluster for cluster in partition(hierarchy.labels(k)))
            for part in finer
        )
    assert len(dendrogram(hierarchy.merges, no_plot=True)["ivl"]) == 12


def cost(rows: Floats, model: Model) -> float:
    squares = np.square(rows[:, None] - model.centroids).sum(axis=2)
    return float(squares.min(axis=1).mean())


@pytest.fixture(scope="module")
def rows() -> Floats:
    generator = np.random.default_rng(1)
    middles = generator.uniform(-0.8, 0.8, (8, 4))
    rows = middles[generator.integers(0, 8, 20_000)]
    return np.clip(rows + generator.normal(0.0, 0.08, rows.shape), -1.0, 1.0)


def test_a_cut_costs_little_more_than_a_run_of_its_own(rows: Floats) -> None:
    fine = DPKMeans(40, bounds=(-1.0, 1.0), epsilon=1.0).fit(rows).model_
    for k in (3, 8, 15):
        alone = DPKMeans(k, bounds=(-1.0, 1.0), epsilon=1.0).fit(rows).model_
        assert cost(rows, fine.cut(k)) <= 1.15 * cost(rows, alone)


def test_a_cut_is_a_model(rows: Floats, tmp_path: Path) -> None:
    fine = DPKMeans(12, bounds=(-1.0, 1.0), epsilon=1.0).fit(rows).model_
    cut = fine.cut(5)
    assert cut.counts.sum() == pytest.approx(fine.counts.sum())
    assert cut.privacy == fine.privacy
    assert np.isinf(cut.cluster_centers_error).all()
    again = Model.load(cut.save(tmp_path / "cut.json"))
    assert np.array_equal(again.predict(rows), cut.predict(rows))
    assert set(cut.predict(rows)) == set(range(5))
    assert "epsilon" in str(cut)


def test_steps_after_a_cut_put_released_clusters_to_the_nearest_centre() -> None:
    hierarchy = hierarchy_of()
    for k in (1, 2, 3, 12):
        centres, labels = hierarchy.settled(k)
        squares = np.square(hierarchy.scaled[:, None] - centres).sum(axis=2)
        assert np.array_equal(squares.argmin(axis=1), labels)
        assert squares.min(axis=1).sum() <= hierarchy.costs[k - 1] + 1e-12


def test_costs_and_sensible_k(rows: Floats, tmp_path: Path) -> None:
    hierarchy = hierarchy_of()
    for k in (1, 4, 12):
        of_cut = hierarchy.scaled - hierarchy.centres(k)[hierarchy.labels(k)]
        assert hierarchy.costs[k - 1] == pytest.approx(np.square(of_cut).sum())
    fine = DPKMeans(40, bounds=(-1.0, 1.0), epsilon=1.0).fit(rows).model_
    assert fine.hierarchy.sensible_k == 8
    assert hierarchy_of(n=1).sensible_k == hierarchy_of(n=60).sensible_k == 1
    for drawn in (fine.hierarchy, hierarchy_of(n=1), hierarchy_of(n=2)):
        assert drawn.plot(tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("n_clusters", [0, 13, 2.5, True])
def test_a_number_that_no_cut_has_is_refused(n_clusters: int) -> None:
    with pytest.raises(ConfigurationError, match="an integer from 1 to 12"):
        hierarchy_of().labels(n_clusters)
