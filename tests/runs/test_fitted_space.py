"""`predict`, `transform` and `score` measure where the clustering did.

In the scaled box of the bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.flat import flat_estimator

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.points import Bounds

Floats = NDArray[np.float64]

WIDE = ((0.0, 0.0, -1e6), (1.0, 5000.0, 1e6))
"""Bounds of very different widths: in the caller's units the last column alone decides.
"""
ALGORITHMS = (
    "proxy_lloyd",
    "fastlloyd",
    "glloyd",
    "lloyd",
    "sphere_packing",
    "max_cover",
    "balcan",
    "k_fed",
    "optimal",
)


def species(seed: int = 0) -> tuple[list[Floats], list[NDArray[np.int64]]]:
    """Three species, like penguins: bill and flipper tell them apart, body mass in
    grams hardly does.
    """
    generator = np.random.default_rng(seed)
    means = np.array(
        [
            [39.0, 18.0, 190.0, 3700.0],
            [49.0, 18.5, 196.0, 3733.0],
            [47.5, 15.0, 217.0, 4200.0],
        ]
    )
    labels = [generator.integers(0, 3, 1500) for _ in range(2)]
    return [
        means[own] + generator.normal(size=(1500, 4)) * [1.5, 0.5, 4.0, 700.0]
        for own in labels
    ], labels


def of_different_widths() -> list[Floats]:
    """Clusters by the first two columns, and a third one, of a million, that says
    nothing.
    """
    generator = np.random.default_rng(1)
    centers = np.array([[0.2, 1000.0], [0.8, 1000.0], [0.5, 4000.0]])
    chosen = [centers[generator.choice(3, 2000, p=(0.6, 0.3, 0.1))] for _ in range(2)]
    parts = [np.column_stack((own, np.zeros(2000))) for own in chosen]
    return [
        part + generator.normal(size=part.shape) * [0.02, 100.0, 2e5] for part in parts
    ]


def fitted(parts: list[Floats], **values: Any) -> FederatedKMeans:
    options = {
        "n_clusters": 3,
        "noise": "seeded",
        "random_state": 3,
        "epsilon": 20.0,
    } | values
    return flat_estimator(**options).fit(parts)


@pytest.mark.sample(11)
@pytest.mark.parametrize("engine", ["inprocess", "direct"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_labels_agree_with_the_models_own_counts(algorithm: str, engine: str) -> None:
    parts = of_different_widths()
    km = fitted(parts, algorithm=algorithm, bounds=WIDE, engine=engine)
    counts = np.bincount(km.predict(np.concatenate(parts)), minlength=3)
    # The counts are of the last round before the centroids' last step, with little
    # noise at this epsilon.
    assert np.abs(counts - km.cluster_counts_).max() < 120


@pytest.mark.sample(5)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_transform_is_in_the_scaled_box_and_score_is_not(algorithm: str) -> None:
    parts = of_different_widths()
    rows = np.concatenate(parts)
    rows[0] *= 100.0  # outside, where the clustering saw the nearest point of the box
    km = fitted(parts, algorithm=algorithm, bounds=WIDE)
    scale = Bounds(*km.bounds_).scale
    seen = np.rint(scale(rows) * 2.0**16) / 2.0**16
    distances = np.sqrt(
        ((seen[:, None] - scale(km.cluster_centers_)[None]) ** 2).sum(axis=2)
    )
    assert km.transform(rows) == pytest.approx(distances, abs=1e-9)
    assert np.array_equal(km.predict(rows), km.transform(rows).argmin(axis=1))
    in_units = np.square(rows[:, None] - km.cluster_centers_).sum(axis=2)
    assert km.score(rows) == pytest.approx(-in_units.min(axis=1).sum(), rel=1e-9)


def test_centroids_outside_the_box_are_not_clipped_before_they_are_measured() -> None:
    generator = np.random.default_rng(5)
    parts = [generator.uniform(-1, 1, (50, 2)) for _ in range(2)]
    km = fitted(
        parts,
        algorithm="sulloyd",
        bounds=(-1.0, 1.0),
        epsilon=0.05,
        post_processing="none",
    )
    assert np.abs(km.cluster_centers_).max() > 1.0
    nearest = np.linalg.norm(parts[0][:, None] - km.cluster_centers_[None], axis=2)
    assert km.transform(parts[0]) == pytest.approx(nearest, abs=1e-4)


def test_private_bounds_are_the_fitted_box() -> None:
    parts = of_different_widths()
    km = fitted(parts, bounds="private")
    counts = np.bincount(km.predict(np.concatenate(parts)), minlength=3)
    assert np.abs(counts - km.cluster_counts_).max() < 120
