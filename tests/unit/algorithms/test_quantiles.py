"""Quantiles: by hand, at their noise, and with intervals that cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedQuantiles, PrivateBounds
from flwr_dpkmeans.algorithms.statistics.quantiles.dyadic_sums import (
    cumulated,
    dyadic_arrays,
    variances_below,
)
from flwr_dpkmeans.algorithms.statistics.quantiles.noisy_distribution import (
    NoisyDistribution,
)
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.round import State

Array = NDArray[np.float64]
LEVELS = (0.25, 0.5, 0.75, 0.9)
NOISE = 3.7
"""Of one count at epsilon 1."""


def test_differences_of_halves_by_hand() -> None:
    points = np.array([[-1.0, 1.0], [-0.4, -0.5], [0.6, 0.1], [0.7, -0.1]])
    rows, differences = dyadic_arrays(points, 2, 0.0)
    assert rows.tolist() == [4.0]
    assert differences.tolist() == [[0.0, 0.0, -2.0], [0.0, -2.0, 0.0]]
    below = cumulated(4.0, differences)
    assert below.tolist() == [[0, 1, 2, 2, 4], [0, 0, 2, 3, 4]]


def draw(shape: str, generator: np.random.Generator) -> Array:
    """Of 0 to 1: 3,000 rows of one column."""
    rows = {
        "normal": lambda: generator.normal(0.5, 0.08, 3000),
        "exponential": lambda: generator.exponential(0.05, 3000),
        "lognormal": lambda: generator.lognormal(-4.6, 1.0, 3000),
        "zero-inflated": lambda: (
            generator.gamma(2.0, 0.05, 3000) * (generator.random(3000) > 0.2)
        ),
    }[shape]()
    return np.clip(rows, 0.0, 1.0)


@pytest.mark.parametrize(
    "shape", ["normal", "exponential", "lognormal", "zero-inflated"]
)
def test_intervals_cover_the_quantiles_of_all_rows(shape: str) -> None:
    """In 93 to 99 of 100 runs, and ranks are off as the noise of halvings says."""
    generator = np.random.default_rng(0)
    halvings = 10
    deviation = NOISE * np.sqrt(halvings)
    variances = variances_below(halvings) * deviation**2
    hits = list[bool]()
    ranks = list[float]()
    for _ in range(200):
        rows = np.sort(draw(shape, generator))
        _, exact = dyadic_arrays(2.0 * rows[:, None] - 1.0, halvings, 0.0)
        noisy = exact + generator.normal(0.0, deviation, exact.shape)
        total = len(rows) + generator.normal(0.0, NOISE)
        (below,) = cumulated(total, noisy)
        column = NoisyDistribution.of(below, variances, NOISE, (0.0, 1.0))
        found = [column.quantile(level) for level in LEVELS]
        assert np.all(np.diff([one.estimate for one in found]) >= 0.0)
        for level, one in zip(LEVELS, found, strict=True):
            index = int(np.ceil(level * len(rows))) - 1
            hits.append(one.lower <= rows[index] <= one.upper)
            ranks.append(np.searchsorted(rows, one.estimate) - index)
    assert 0.93 <= np.mean(hits) <= 0.99
    theory = halvings * NOISE / np.sqrt(12.0)
    assert np.std(ranks) < 1.3 * theory


def test_values_that_many_rows_have_are_in_the_interval() -> None:
    """Half of all rows are 0, and the others far away: no line is drawn there."""
    parts = [np.repeat([0.0, 70.0], 2000)[:, None] for _ in range(2)]
    options: dict[str, Any] = {"bounds": (0, 100), "engine": "direct"}
    model = FederatedQuantiles([0.2, 0.4, 0.7], **options).fit(parts)
    assert (model.lower_ <= [0.0, 0.0, 70.0]).all()
    assert (model.upper_ >= [0.0, 0.0, 70.0]).all()
    assert model.quantiles_error_.max() < 0.2
    assert model.quantiles_[0, :2].tolist() == [0.0, 0.0]


def tables() -> list[pd.DataFrame]:
    generator = np.random.default_rng(1)
    return [
        pd.DataFrame(
            {"age": generator.normal(40, 9, 200), "cost": generator.gamma(2, 90, 200)}
        )
        for _ in range(40)
    ]


@pytest.mark.parametrize("unit", ["record", "client", "person"])
def test_quantiles_of_every_unit_by_name(unit: str) -> None:
    parts = tables()
    model = FederatedQuantiles(
        (0.3, 0.5),
        unit=unit,
        epsilon=80.0 if unit == "client" else 8.0,
        delta=1e-6,
        noise="seeded",
        random_state=0,
        bounds={"age": (0, 120), "cost": (0, 10_000)},
        engine="direct",
    )
    ids = [np.arange(len(part)) // 2 for part in parts]
    model.fit(parts, persons=ids if unit == "person" else None)
    exact = np.quantile(np.concatenate(parts), (0.3, 0.5), axis=0).T
    np.testing.assert_allclose(model.quantiles_, exact, rtol=0.08)
    assert model.privacy_.unit == unit
    assert "quantiles  cost, 0.5" in str(model.values_)
    np.testing.assert_allclose(model.quantile(0.5)[:, 0], model.quantiles_[:, 1])


@pytest.mark.parametrize("bounds", ["private", PrivateBounds(domain=(0, 1e6))])
def test_bounds_may_be_found_privately(bounds: object) -> None:
    rows = np.concatenate(tables())
    parts = [rows[:3000], rows[3000:]]
    model = FederatedQuantiles((0.3, 0.5), bounds=bounds, epsilon=4.0).fit(parts)
    exact = np.quantile(rows, (0.3, 0.5), axis=0).T
    np.testing.assert_allclose(model.quantiles_, exact, rtol=0.08)
    assert model.privacy_.epsilon == pytest.approx(4.0, rel=1e-3)
    assert {line.round_name for line in model.privacy_.releases} > {"ranges"}


def test_one_client_adds_no_more_than_a_row_where_clients_are_protected() -> None:
    config = read_config(
        algorithm="quantiles", unit="client", bounds=((-1.0,), (1.0,)), n_examples=90
    )
    plan = draft_plan(config, run_id=1, n_clients=3, seed=7, n_features=2)
    (step,) = build_algorithm(plan).rounds
    generator = np.random.default_rng(0)
    for n_rows in (0, 1, 2, 7):
        rows = generator.choice([-1.0, 0.0, 0.25, 1.0], (n_rows, 2))
        arrays = step.arrays_of(rows, State({}))
        for block, array in zip(step.blocks, arrays, strict=True):
            assert np.linalg.norm(array) <= block.sensitivity.bound


@pytest.mark.parametrize("levels", [(), (0.0,), (0.5, 1.0), ("half",)])
def test_levels_outside_of_0_and_1_are_refused(levels: Any) -> None:
    with pytest.raises(ConfigurationError, match="strictly between 0 and 1: give such"):
        FederatedQuantiles(levels, bounds=(0, 1)).fit(tables())
