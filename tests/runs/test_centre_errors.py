"""Every centre comes with how far it may be from the exact mean of the rows that it
labels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import ClientLevel, DPKMeans, FederatedKMeans
from flwr_dpkmeans.errors import PrivacyWarning
from flwr_dpkmeans.results.model import Model

Array = NDArray[np.float64]
CENTRES = np.array([[20.0, 60.0], [50.0, 90.0], [80.0, 70.0]])
BOUNDS = ((0.0, 30.0), (100.0, 180.0))
WIDTHS = np.array([100.0, 150.0])
BY_RECORD = ("proxy_lloyd", "fastlloyd", "glloyd", "sulloyd", "lloyd", "feddp_kmeans")


def table(seed: int = 0, n: int = 3_000) -> Array:
    """Three clear clusters."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n)
    return generator.normal(CENTRES[labels], [3.0, 4.0])


def fitted(algorithm: str, seed: int = 0, **options: Any) -> DPKMeans:
    """A seeded fit of the table."""
    if algorithm == "feddp_kmeans":
        options |= {"server_data": table(seed + 100, 300)}
    settings: dict[str, Any] = {
        "epsilon": 2.0,
        "bounds": BOUNDS,
        "noise": "seeded",
        "random_state": seed,
    }
    return DPKMeans(3, algorithm=algorithm, **(settings | options)).fit(table(seed))


def exact_means(model: DPKMeans, rows: Array) -> Array:
    """Of the rows that each centre labels; NaN where there are none."""
    labels = model.predict(rows)
    means = np.full(model.cluster_centers_.shape, np.nan)
    for label in np.unique(labels):
        means[label] = rows[labels == label].mean(axis=0)
    return means


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", BY_RECORD)
def test_every_algorithm_says_how_far_its_centres_may_be_off(algorithm: str) -> None:
    model = fitted(algorithm)
    errors = model.cluster_centers_error_
    assert errors.shape == (3, 2)
    assert (errors > 0.0).all()
    assert (errors <= WIDTHS).all()


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", BY_RECORD)
def test_intervals_hold_the_exact_means_of_the_rows_with_their_labels(
    algorithm: str,
) -> None:
    covered = []
    for seed in range(12):
        model = fitted(algorithm, seed)
        misses = np.abs(model.cluster_centers_ - exact_means(model, table(seed)))
        covered.append(
            misses[np.isfinite(misses)]
            <= model.cluster_centers_error_[np.isfinite(misses)]
        )
    # Of 72 coordinates of 95% intervals fewer than 60 hold with a chance of one in a
    # million.
    assert np.concatenate(covered).mean() > 60 / 72


@pytest.mark.filterwarnings("ignore")
def test_without_noise_and_once_settled_nothing_but_the_grid_is_unsure() -> None:
    model = fitted("lloyd", max_iter=30)
    assert np.abs(model.cluster_centers_ - exact_means(model, table())).max() < 0.01
    assert model.cluster_centers_error_.max() < 0.01


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd"])
def test_less_noise_makes_errors_smaller(algorithm: str) -> None:
    means = [
        fitted(algorithm, epsilon=epsilon).cluster_centers_error_.mean()
        for epsilon in (0.5, 2.0, 10.0)
    ]
    assert means[0] > 1.5 * means[1] > 2.0 * means[2]


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_an_earlier_version_says_nothing_of_errors(tmp_path: Path) -> None:
    path = fitted("proxy_lloyd").save(tmp_path / "model.json")
    plain = json.loads(path.read_text())
    del plain["cluster_centers_error"], plain["deviations"]
    path.write_text(json.dumps(plain))
    assert np.isinf(Model.load(path).cluster_centers_error).all()


@pytest.mark.filterwarnings("ignore")
def test_where_nothing_is_known_the_error_is_infinite_and_null_in_the_file(
    tmp_path: Path,
) -> None:
    parts = np.array_split(table(), 30)
    unit = ClientLevel(examples_per_client=100)
    options: dict[str, Any] = {
        "bounds": BOUNDS,
        "noise": "seeded",
        "random_state": 0,
        "engine": "direct",
    }
    model = FederatedKMeans(3, unit=unit, epsilon=5.0, **options).fit(parts)
    assert np.isinf(model.cluster_centers_error_).all()
    path = model.save(tmp_path / "model.json")
    assert json.loads(path.read_text())["cluster_centers_error"] == [[None, None]] * 3
    assert np.isinf(Model.load(path).cluster_centers_error).all()


@pytest.mark.filterwarnings("ignore")
def test_the_tail_that_the_last_round_clips_is_in_the_default_centres() -> None:
    """Clipped residuals alone were 11% short at epsilon 1."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 6_000)
    values = generator.exponential(np.array([1.0, 3.0, 20.0])[labels])
    ages = generator.normal(np.array([30.0, 55.0, 80.0])[labels], 4.0)
    weights = generator.normal(np.array([60.0, 90.0, 65.0])[labels], 5.0)
    rows = np.clip(
        np.stack([ages, weights, values], axis=1), (0, 30, 0), (110, 180, 150)
    )
    misses, covered = [], []
    for seed in range(8):
        options: dict[str, Any] = {
            "epsilon": 1.0,
            "noise": "seeded",
            "random_state": seed,
        }
        model = DPKMeans(
            3, bounds=((0.0, 30.0, 0.0), (110.0, 180.0, 150.0)), **options
        ).fit(rows)
        third = int(model.cluster_centers_[:, 0].argmax())
        exact = exact_means(model, rows)[third, 2]
        misses.append(model.cluster_centers_[third, 2] / exact - 1.0)
        covered.append(
            abs(model.cluster_centers_[third, 2] - exact)
            <= model.cluster_centers_error_[third, 2]
        )
    assert abs(np.mean(misses)) < 0.03
    assert np.sqrt(np.mean(np.square(misses))) < 0.06
    assert np.mean(covered) >= 0.75
    (line,) = [line for line in model.privacy_.releases if line.array == "excess_sums"]
    assert (line.sensitivity, line.round_name) == (1.0, "refinement-5")
    assert "S35" in line.theorem


WIDE = {"age": (0, 1e6), "kg": (30, 180)}


def wide_fit() -> DPKMeans:
    """Ages within bounds of a million years, which hide all differences."""
    rows = pd.DataFrame(table(), columns=["age", "kg"])
    options: dict[str, Any] = {"epsilon": 1.0, "noise": "seeded", "random_state": 0}
    return DPKMeans(3, bounds=WIDE, **options).fit(rows)


def test_a_column_that_tells_no_clusters_apart_is_named() -> None:
    with pytest.warns(
        PrivacyWarning,
        match="In column 'age' the centres differ by no more than their errors",
    ):
        model = wide_fit()
    (named,) = [
        line
        for line in str(model.model_).splitlines()
        if line.startswith("| age (not told apart)")
    ]
    assert named.count("±") == 3
    (other,) = [
        line for line in str(model.model_).splitlines() if line.startswith("| kg ")
    ]
    assert other.count("±") == 3
