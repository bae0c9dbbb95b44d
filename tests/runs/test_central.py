"""Baselines on all rows together: what they find, what their reports say, and where
they are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.flat import flat_estimator
from support.installed import install

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.one_place.not_federated import (
    NOT_FEDERATED,
    algorithm_entry,
)
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd

CENTERS = np.array([[-6.0, -6.0], [6.0, 6.0], [6.0, -6.0]])


def parts(n: int = 3000) -> list[NDArray[np.float64]]:
    generator = np.random.default_rng(5)
    rows = CENTERS[generator.integers(0, 3, n)] + 0.3 * generator.standard_normal(
        (n, 2)
    )
    return list(np.array_split(rows, 4))


def fitted(algorithm: str, **values: Any) -> FederatedKMeans:
    settings: dict[str, Any] = {
        "bounds": (-10.0, 10.0),
        "random_state": 1,
        "noise": "seeded",
    }
    return flat_estimator(3, algorithm=algorithm, **(settings | values)).fit(parts())


@pytest.mark.parametrize("algorithm", NOT_FEDERATED)
def test_an_app_s_bundle_has_none_and_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    install(monkeypatch, flwr_dpkmeans__baselines=None)
    with pytest.raises(
        ConfigurationError, match=rf"'{algorithm}' is .*in a copy of the project"
    ):
        fitted(algorithm)


@pytest.mark.parametrize("algorithm", NOT_FEDERATED)
def test_each_finds_clear_clusters_in_the_callers_units(algorithm: str) -> None:
    model = fitted(algorithm, epsilon=4.0)
    distances = np.linalg.norm(model.cluster_centers_[:, None] - CENTERS[None], axis=2)
    assert (distances.min(axis=0) < 0.5).all()
    assert model.cluster_counts_.sum() == pytest.approx(3000, rel=0.05)
    assert model.privacy_.algorithm == algorithm
    assert model.privacy_.trust == "central"
    assert model.privacy_.unit == "record"


def test_a_report_says_in_which_norm_each_release_is_bounded() -> None:
    lines = fitted("max_cover").privacy_.releases
    assert {(line.noise, line.norm) for line in lines} == {
        ("exponential mechanism", "l1"),
        ("gaussian", "l2"),
    }


@pytest.mark.parametrize("algorithm", ["k_fed", "optimal"])
def test_exact_ones_say_that_they_protect_nobody(algorithm: str) -> None:
    report = fitted(algorithm, noise="secure").privacy_
    assert not report.is_private
    assert report.epsilon == math.inf
    assert "imulation only" in report.warnings[0]
    assert [line.noise for line in report.releases] == ["none"]


def test_max_cover_is_priced_line_by_line() -> None:
    report = fitted(
        "max_cover", epsilon=1.5, noise="secure", random_state=None
    ).privacy_
    assert report.is_private
    assert report.warnings == ()
    assert 1.499 < report.epsilon <= 1.5
    costs = [line.epsilon_so_far for line in report.releases]
    assert costs == sorted(costs)
    assert costs[-1] == report.epsilon
    assert {line.noise for line in report.releases} == {
        "exponential mechanism",
        "gaussian",
    }
    assert all(line.theorem for line in report.releases)
    assert "One party holds all rows" in report.guarantee


def test_seeded_noise_repeats_and_says_so() -> None:
    first, again = fitted("max_cover"), fitted("max_cover")
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)
    assert not first.privacy_.is_private
    assert "seeded" in first.privacy_.warnings[0]


@pytest.mark.parametrize("algorithm", NOT_FEDERATED)
@pytest.mark.parametrize(
    ("values", "mend"),
    [
        ({"unit": "client"}, "choose unit='record'"),
        ({"trust": "oblivious"}, "choose trust='central'"),
        ({"trust": "distributed"}, "choose trust='central'"),
        ({"server_data": [[0.0, 0.0], [1.0, 1.0]]}, "leave it out"),
    ],
)
def test_other_combinations_are_refused_with_the_nearest(
    algorithm: str, values: dict[str, Any], mend: str
) -> None:
    with pytest.raises(DPKMeansError, match=mend) as caught:
        fitted(algorithm, **values)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("algorithm", NOT_FEDERATED)
def test_a_federation_cannot_run_them(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="needs all rows in one place"):
        algorithm_entry(algorithm)
    with pytest.raises(ConfigurationError, match="needs all rows in one place"):
        FastLloyd(3, bounds=(-1, 1), algorithm=algorithm)


def test_a_private_number_of_rows_is_refused_where_nothing_counts_them() -> None:
    model = FederatedKMeans(
        3, algorithm="max_cover", n_examples="private", bounds=(-1.0, 1.0)
    )
    with pytest.raises(ConfigurationError, match="but 'max_cover' releases no private"):
        model.fit([np.zeros((20, 2)), np.zeros((17, 2))])


def test_a_declared_number_of_rows_stands_in_the_report() -> None:
    options: dict[str, Any] = {"n_examples": 1000, "bounds": (-1.0, 1.0)}
    model = FederatedKMeans(3, algorithm="max_cover", epsilon=5.0, **options)
    report = model.fit([np.zeros((20, 2)), np.zeros((17, 2))]).privacy_
    assert report.n_examples == 1000
