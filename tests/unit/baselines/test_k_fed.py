"""One-shot federated clustering, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_dpkmeans.baselines import k_fed
from flwr_dpkmeans.baselines.pooled import combine_centres
from flwr_dpkmeans.errors import ConfigurationError, DataError


def test_the_farthest_centres_become_starts() -> None:
    # Start 0; the farthest is 10; then 4 (its distance 4 from 0 is larger than that of
    # 9 from 10).
    centroids = combine_centres(
        [np.array([[0.0]]), np.array([[4.0], [10.0]]), np.array([[9.0], [5.0]])], 3
    )
    # Nearest starts: 0 -> {0}, 10 -> {10, 9}, then 4 or 5 (5 is farther from 0 and 10):
    # {4, 5}.
    assert centroids.tolist() == [[0.0], [9.5], [4.5]]


def test_centres_are_not_weighted_by_the_points_behind_them() -> None:
    many, few = np.full((99, 1), 0.0), np.full((1, 1), 1.0)
    assert k_fed([many, few], 1, k_local=1).tolist() == [[0.5]]


def test_one_lloyd_step_only() -> None:
    # Starts 0 and 10. 4.9 joins 0; a second step would move it nowhere, but 5.1 goes to
    # 10 and stays averaged there.
    received = [np.array([[0.0], [10.0]]), np.array([[4.9], [5.1]])]
    assert combine_centres(received, 2) == pytest.approx(np.array([[2.45], [7.55]]))


def test_all_centres_of_the_first_client_are_starts() -> None:
    # Farthest-first from 0 alone would start from 0, 9 and 4 instead.
    received = [np.array([[0.0], [0.5]]), np.array([[4.0], [9.0]])]
    assert combine_centres(received, 3).tolist() == [[0.0], [2.25], [9.0]]


def test_repeated_starts_stay_where_they_are() -> None:
    assert (
        combine_centres([np.zeros((1, 1)), np.zeros((3, 1))], 3).tolist() == [[0.0]] * 3
    )


def test_small_and_empty_clients() -> None:
    parts = [np.zeros((0, 1)), np.array([[0.0]]), np.array([[0.25], [4.0], [4.25]])]
    assert k_fed(parts, 2, random_state=0).tolist() == [[0.125], [4.125]]


def test_heterogeneous_clients_recover_separated_clusters() -> None:
    generator = np.random.default_rng(0)
    centres = generator.uniform(-1.0, 1.0, (6, 10))
    parts = [
        centres[[j, (j + 1) % 6]].repeat(50, axis=0)
        + generator.normal(0.0, 0.01, (100, 10))
        for j in range(6)
    ]
    found = k_fed(parts, 6, k_local=2, random_state=0)
    errors = np.linalg.norm(found[:, None] - centres, axis=2).min(axis=0)
    assert errors.max() < 0.02


def test_equal_seeds_give_equal_centroids() -> None:
    parts = list(np.random.default_rng(0).uniform(-1.0, 1.0, (3, 50, 2)))
    first, second = (k_fed(parts, 5, n_init=1, random_state=3) for _ in range(2))
    assert np.array_equal(first, second)


def test_bad_input_gets_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match="but it must be at most n_clusters"):
        k_fed([np.zeros((4, 1))], 2, k_local=3)
    with pytest.raises(DataError, match=r"^the clients sent 2 centres in all"):
        k_fed([np.zeros((4, 1)), np.ones((4, 1))], 3, k_local=1)
    with pytest.raises(DataError, match=r"^the number of points is 1, but .*\.$"):
        k_fed([np.zeros((1, 1)), np.zeros((0, 1))], 2)
