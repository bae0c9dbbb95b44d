"""What it costs to protect persons instead of rows: hardly anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans

N_PERSONS, N_STAYS, MOST_STAYS = 11_000, 30_000, 60
N_PARTIES, N_CLUSTERS, WIDTH = 5, 8, 4
N_SEEDS = 3
Points = NDArray[np.float64]
Ids = NDArray[np.int64]


def stays(seed: int) -> tuple[Points, Ids]:
    """Stays of persons, 1 to 60 each, most of which are in the cluster of a person."""
    generator = np.random.default_rng(seed)
    sizes = np.ones(N_PERSONS, dtype=np.int64)
    shares = generator.pareto(1.2, N_PERSONS)
    while sizes.sum() < N_STAYS:
        n_missing = N_STAYS - sizes.sum()
        more = generator.multinomial(n_missing, shares / shares.sum())
        sizes = np.minimum(sizes + more, MOST_STAYS)
    ids = generator.permutation(np.repeat(np.arange(N_PERSONS), sizes))
    centres = generator.uniform(-0.8, 0.8, (N_CLUSTERS, WIDTH))
    of_persons = generator.integers(0, N_CLUSTERS, N_PERSONS)[ids]
    elsewhere = generator.integers(0, N_CLUSTERS, N_STAYS)
    is_elsewhere = generator.random(N_STAYS) < 0.3
    clusters = np.where(is_elsewhere, elsewhere, of_persons)
    habits = generator.normal(0.0, 0.05, (N_PERSONS, WIDTH))[ids]
    spread = generator.normal(0.0, 0.08, (N_STAYS, WIDTH))
    return np.clip(centres[clusters] + habits + spread, -1.0, 1.0), ids


def cost_per_person(points: Points, ids: Ids, centres: Points) -> float:
    """Mean of the persons' mean squared distances from the nearest centre."""
    squares = ((points[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1)
    weights = 1.0 / np.bincount(ids)[ids]
    return float(squares @ weights / weights.sum())


@pytest.mark.sample(1)
@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd", "glloyd"])
def test_stays_of_persons_cost_little_more_than_one_row_of_each(
    algorithm: str,
) -> None:
    ratios = []
    for seed in range(N_SEEDS):
        points, ids = stays(seed)
        is_first = np.zeros(len(ids), dtype=bool)
        is_first[np.unique(ids, return_index=True)[1]] = True
        of_parties = [ids % N_PARTIES == party for party in range(N_PARTIES)]
        options: dict[str, Any] = {
            "algorithm": algorithm,
            "bounds": (-1, 1),
            "epsilon": 1.0,
            "noise": "seeded",
            "random_state": seed,
            "engine": "direct",
        }
        rows = FederatedKMeans(N_CLUSTERS, **options)
        rows.fit([points[is_first & rows_of] for rows_of in of_parties])
        persons = FederatedKMeans(N_CLUSTERS, **options)
        persons.fit(
            [points[rows_of] for rows_of in of_parties],
            persons=[ids[rows_of] for rows_of in of_parties],
        )
        assert persons.privacy_.n_examples == N_PERSONS
        costs = [
            cost_per_person(points, ids, model.cluster_centers_)
            for model in (persons, rows)
        ]
        ratios.append(costs[0] / costs[1])
    print(f"{algorithm}: median ratio of costs {np.median(ratios):.3f}")
    assert np.median(ratios) <= 1.2
