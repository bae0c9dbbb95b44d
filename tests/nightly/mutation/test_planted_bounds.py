"""Planted bugs of sensitivities and clipping; see the table in `test_planted_bugs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support import bound_bugs
from support.bound_detectors import (
    require_bounds,
    require_information,
    require_nothing_of_nobody,
)
from support.planting import Bug, require_caught, require_missed

from flwr_dpkmeans.kernels.implementation import Implementation, using

WIDE: dict[str, Any] = {"n_features": 4, "alpha": 1.2}
"""FastLloyd's radii are above 1, but below the box's diagonal."""
LOOKS: dict[str, Any] = {"epsilon": 1000.0}
"""So much that ProxyLloyd has looks, of few rows or clients too."""
PAPER: dict[str, Any] = {"noise_kind": "paper"}


@pytest.fixture(autouse=True)
def by_numpy() -> Iterator[None]:
    """Bugs are planted in Python: where kernels are compiled, they would not run."""
    with using(Implementation.NUMPY):
        yield


@pytest.mark.parametrize(
    ("bug", "algorithm", "unit", "values"),
    [
        (bound_bugs.sensitivity_without_the_radius, "fastlloyd", "record", WIDE),
        (bound_bugs.no_radius_in_the_second_round, "fastlloyd", "record", WIDE),
        (bound_bugs.centroid_of_another_cluster, "fastlloyd", "record", WIDE),
        (bound_bugs.empty_clusters_counted_as_one, "fastlloyd", "record", WIDE),
        (bound_bugs.rows_in_two_clusters, "glloyd", "record", {}),
        (
            bound_bugs.residuals_not_divided_by_the_radius,
            "proxy_lloyd",
            "record",
            {"n_features": 6},
        ),
        (
            bound_bugs.residuals_not_divided_by_the_radius,
            "proxy_lloyd",
            "record",
            {"stretched": 8.0},
        ),
        (bound_bugs.rows_in_two_bins_of_distance, "proxy_lloyd", "record", LOOKS),
        (
            bound_bugs.shares_of_distances_not_divided_by_rows,
            "proxy_lloyd",
            "client",
            LOOKS,
        ),
        (bound_bugs.rounded_away_from_zero, "proxy_lloyd", "record", {}),
        (bound_bugs.rounded_away_from_zero, "feddp_kmeans", "record", {}),
        (bound_bugs.rounded_away_from_zero, "feddp_kmeans", "client", {}),
        (bound_bugs.no_slack_for_the_rounded_triangle, "feddp_kmeans", "record", {}),
        (bound_bugs.no_clip_of_rows, "feddp_kmeans", "record", {}),
        (bound_bugs.no_clip_of_a_client, "feddp_kmeans", "client", {}),
        (
            bound_bugs.no_clip_of_a_client,
            "proxy_lloyd",
            "client",
            {"examples_per_client": 10},
        ),
        (bound_bugs.no_clip_of_means, "feddp_kmeans", "client", {}),
        (
            bound_bugs.client_clipped_in_the_euclidean_norm,
            "feddp_kmeans",
            "client",
            PAPER,
        ),
        (bound_bugs.laplace_noise_for_the_euclidean_norm, "sulloyd", "record", {}),
    ],
)
def test_a_unit_that_moves_too_far_is_caught(
    bug: Bug, algorithm: str, unit: str, values: dict[str, Any]
) -> None:
    require_caught(
        bug, lambda: require_bounds(algorithm, unit, **values), "a unit moves"
    )


@pytest.mark.parametrize(
    ("bug", "algorithm"),
    [
        (bound_bugs.sensitivity_without_the_radius, "fastlloyd"),
        (bound_bugs.no_radius_in_the_second_round, "fastlloyd"),
        (bound_bugs.laplace_noise_for_the_euclidean_norm, "sulloyd"),
    ],
)
def test_the_audits_own_targets_show_a_false_bound(bug: Bug, algorithm: str) -> None:
    require_caught(
        bug,
        lambda: require_information(algorithm, n_features=4, schedule="step"),
        "of a sensitivity",
    )


@pytest.mark.parametrize(
    ("bug", "algorithm", "unit"),
    [
        (bound_bugs.empty_clusters_sent_as_one, "sphere_packing", "record"),
        (bound_bugs.empty_clusters_sent_as_one, "feddp_kmeans", "client"),
        (bound_bugs.empty_clusters_counted_as_one, "fastlloyd", "record"),
    ],
)
def test_a_client_without_rows_that_is_seen_is_caught(
    bug: Bug, algorithm: str, unit: str
) -> None:
    require_caught(
        bug, lambda: require_nothing_of_nobody(algorithm, unit), "does not send zeros"
    )


@pytest.mark.parametrize("unit", ["record", "client"])
def test_ones_for_empty_clusters_break_no_bound(unit: str) -> None:
    """With a 1 sent for 0 neighbours differ less than before."""
    require_missed(
        bound_bugs.empty_clusters_sent_as_one,
        lambda: require_bounds("feddp_kmeans", unit),
    )
