"""Principal components: those of all rows, as far as the noise lets them be known."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from flwr_dpkmeans import FederatedPCA, federate
from flwr_dpkmeans.algorithms.statistics.components.covariance_sums import (
    admits_location,
)
from flwr_dpkmeans.algorithms.statistics.components.noisy_components import (
    NoisyComponents,
)
from flwr_dpkmeans.errors import ConfigurationError, PrivacyWarning
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.results.writer import write_report
from flwr_dpkmeans.sums import check_sensitivity
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

Array = NDArray[np.float64]
NAMES = ["age", "height", "pulse", "dose"]
BOUNDS = {"age": (0, 100), "height": (100, 220), "pulse": (20, 200), "dose": (0, 1)}
CENTRE = np.array([50.0, 160.0, 80.0, 0.5])
LOCATION = State({"mean": np.array([0.25, -0.5]), "reach": np.array([0.75])})


def tables(n_parties: int = 3) -> list[pd.DataFrame]:
    """Rows of two directions, and a column that has hardly anything."""
    generator = np.random.default_rng(0)
    parts = []
    for _ in range(n_parties):
        hidden = generator.normal(size=(2000, 2)) @ [[9, 6, 0, 0], [0, -4, 14, 0]]
        rows = hidden + generator.normal(size=(2000, 4)) * [1.0, 1.0, 1.0, 0.01]
        parts.append(pd.DataFrame(rows + CENTRE, columns=NAMES))
    return parts


def fitted(**options: Any) -> FederatedPCA:
    seeded = {"noise": "seeded", "random_state": 0, "engine": "direct"}
    return FederatedPCA(bounds=BOUNDS, **seeded | options).fit(tables())


@pytest.mark.parametrize("standardize", [False, True])
def test_components_are_those_of_all_rows(standardize: bool) -> None:
    model = fitted(epsilon=50.0, standardize=standardize)
    rows = pd.concat(tables()).to_numpy()
    deviations = rows.std(axis=0) if standardize else np.ones(4)
    exact = PCA(2).fit((rows - rows.mean(axis=0)) / deviations)
    cosines = np.abs((model.components_[:2] * exact.components_).sum(axis=1))
    np.testing.assert_allclose(cosines, 1.0, atol=0.01)
    np.testing.assert_allclose(
        model.explained_variance_[:2], exact.explained_variance_, rtol=0.05
    )
    np.testing.assert_allclose(
        model.explained_variance_ratio_[:2], exact.explained_variance_ratio_, rtol=0.06
    )
    np.testing.assert_allclose(model.mean_, rows.mean(axis=0), rtol=0.02)
    assert (model.explained_variance_ratio_ >= 0.0).all()


def test_rows_go_there_and_back_and_a_model_is_stored(tmp_path: Path) -> None:
    model = pickle.loads(pickle.dumps(fitted(epsilon=20.0, n_components=2)))
    rows = tables()[0]
    there = model.transform(rows[NAMES[::-1]])
    assert there.shape == (2000, 2)
    back = model.inverse_transform(there)
    assert np.abs(back - rows.to_numpy())[:, :3].std() < 1.5
    picture = model.plot(tmp_path / "pca.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    run = federate("pca", tables(), bounds=BOUNDS, epsilon=1.0)
    paths = write_report(tmp_path / "run", run.privacy, run.result.arrays, NAMES)
    assert {"summary.png", "result.npz"} < {path.name for path in paths}


def test_what_noise_could_be_is_called_unknown() -> None:
    with pytest.warns(PrivacyWarning, match="variance of component 2, 3 is not told"):
        model = fitted(epsilon=1.0)
    assert model.n_known_ == 2
    assert model.angles_[2:].tolist() == [90.0, 90.0]
    assert (model.angles_[:2] < 15.0).all()


def symmetric_noise(generator: np.random.Generator, d: int) -> Array:
    entries = np.triu(generator.normal(size=(d, d)))
    beside = np.triu(entries, 1) / np.sqrt(2.0)
    return beside + beside.T + np.diag(np.diag(entries))


def test_intervals_and_angles_cover_and_noise_alone_stays_below_its_floor() -> None:
    generator = np.random.default_rng(1)
    exact = np.diag([4.0, 2.0, 1.0, 0.1, 0.1, 0.0])
    scales = np.array([1.0, 1.0, 1.5, 1.0, 1.0, 0.5])
    values = np.diag(exact) * scales**2
    order = np.argsort(-values)[:3]
    hits, turns = [], []
    for _ in range(200):
        noise = 0.03 * symmetric_noise(generator, 6)
        read = NoisyComponents(exact + noise, 0.03, scales).read()
        assert read.n_known >= 3
        hits.append(np.abs(read.variances[:3] - values[order]) <= read.errors[:3])
        cosines = np.abs(read.directions[range(3), order])
        turns.append(np.degrees(np.arccos(cosines)) <= read.angles[:3])
        assert NoisyComponents(noise, 0.03, scales).read().n_known == 0
    assert 0.93 <= np.mean(hits) <= 0.99
    assert 0.93 <= np.mean(turns) <= 0.99


def plan_of(unit: str = "record") -> Plan:
    config = read_config(
        algorithm="pca", unit=unit, bounds=((-1.0,), (1.0,)), n_examples=900
    )
    return draft_plan(config, run_id=1, n_clients=3, seed=7, n_features=2)


@pytest.mark.parametrize("reach", [0.1, 0.75, 3.0])
def test_no_row_moves_outer_products_by_more_than_is_declared(reach: float) -> None:
    _, step = build_algorithm(plan_of()).rounds
    state = LOCATION.changed(reach=np.array([reach]))
    used = check_sensitivity(step.blocks, lambda rows: step.arrays_of(rows, state), 2)
    assert min(used.values()) > 0.2


def test_one_client_adds_no_more_than_a_row_where_clients_are_protected() -> None:
    generator = np.random.default_rng(0)
    for step in build_algorithm(plan_of("client")).rounds:
        for n_rows in (0, 1, 2, 7):
            rows = generator.choice([-1.0, 0.25, 1.0], (n_rows, 2))
            arrays = step.arrays_of(rows, LOCATION)
            for block, array in zip(step.blocks, arrays, strict=True):
                assert np.linalg.norm(array) <= block.sensitivity.bound


@pytest.mark.parametrize(
    ("name", "value"),
    [("mean", [0.5]), ("mean", [1.5, 0.0]), ("reach", [0.0]), ("reach", [1e-9])],
)
def test_a_location_that_no_release_leads_to_is_not_admitted(
    name: str, value: list[float]
) -> None:
    assert admits_location(LOCATION, 2)
    assert not admits_location(LOCATION.changed(**{name: np.array(value)}), 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 0}, "components is 0"),
        ({"outreach": 0.5}, "outreach is 0.5, .* strictly between 1 and 100"),
    ],
)
def test_components_that_are_none_are_refused(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        fitted(**options)
