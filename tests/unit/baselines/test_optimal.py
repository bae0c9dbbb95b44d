"""The non-private central baseline."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_dpkmeans.baselines import optimal
from flwr_dpkmeans.baselines.pooled import run_kmeans
from flwr_dpkmeans.errors import ConfigurationError, DataError


def test_pooled_parts_are_clustered() -> None:
    # Neither part alone shows the clusters {-1, -0.5} and {0.5, 1}.
    centroids = optimal(
        [[[-1.0], [1.0]], np.zeros((0, 1)), [[-0.5], [0.5]]], 2, random_state=0
    )
    assert np.sort(centroids[:, 0]).tolist() == [-0.75, 0.75]


def test_as_many_clusters_as_points_and_repeated_points(
    recwarn: pytest.WarningsRecorder,
) -> None:
    assert np.sort(optimal([[[0.0], [1.0]]], 2)[:, 0]).tolist() == [0.0, 1.0]
    assert (
        optimal([np.full((5, 2), 0.25)], 3, random_state=0).tolist()
        == [[0.25, 0.25]] * 3
    )
    assert not recwarn.list


def test_equal_seeds_give_equal_centroids() -> None:
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 3))
    first, second = (optimal([points], 7, n_init=1, random_state=5) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("parts", "n_clusters", "error", "sentence"),
    [
        ([[[0.0]], [[1.0]]], 3, DataError, "but it must be at least n_clusters = 3"),
        ([], 1, DataError, "the number of parts is 0"),
        ([[[0.0]], [[0.0, 1.0]]], 1, DataError, "from 1 to 2 columns"),
        ([[[0.0], [np.nan]]], 1, DataError, "1 of 2 rows are not finite"),
        ([[0.0, 1.0]], 1, DataError, "shape"),
        ([[[0.0]]], 0, ConfigurationError, "n_clusters is 0"),
        ([[[0.0]]], True, ConfigurationError, "n_clusters is True"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(
    parts: list[object], n_clusters: int, error: type, sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as caught:
        optimal(parts, n_clusters)  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_where_clusters_share_a_centroid_k_means_plus_plus_is_not_the_best() -> None:
    rng = np.random.default_rng(1)
    points = np.repeat(rng.normal(0.0, 10.0, (40, 60)), 12, axis=0) + rng.normal(
        0.0, 1.0, (480, 60)
    )

    def cost(centres: np.ndarray) -> float:
        return float(
            ((points[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1).mean()
        )

    found = optimal([points], 5, n_init=3, random_state=0)
    plain = [run_kmeans(points, 5, n_init=3, random_state=seed) for seed in range(3)]
    assert cost(found) < 0.999 * min(map(cost, plain))
    # Where both agree the usual one is returned, bit by bit.
    apart = np.repeat(np.eye(3), 30, axis=0) + rng.normal(0.0, 0.01, (90, 3))
    same = run_kmeans(apart, 3, n_init=3, random_state=0)
    assert np.array_equal(optimal([apart], 3, n_init=3, random_state=0), same)
