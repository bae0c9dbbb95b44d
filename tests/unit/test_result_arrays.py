"""The arrays of a result's file: all that a run has, as they are, and no others."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from support.results import result_of

from flwr_dpkmeans.results.writer import result_files

SCALED = np.array([[0.5, -0.25], [0.125, 1.0]])


def arrays_of(**values: Any) -> dict[str, Any]:
    with np.load(
        io.BytesIO(result_files(result_of(2, 2, **values))["centroids.npz"])
    ) as archive:
        return dict(archive)


def test_scaled_centroids_and_bounds_are_those_of_the_run() -> None:
    found = arrays_of(
        centroids=SCALED,
        bounds=(np.array([0.0, 1.0]), np.array([2.0, 3.0])),
    )
    assert set(found) == {
        "centroids", "cluster_centers_error", "counts", "feature_names", "scaled",
        "bounds",
    }  # fmt: skip
    assert found["scaled"].tolist() == SCALED.tolist()
    assert found["bounds"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
