"""`score` is in the caller's units, or in a schema's own scale, so that models with
different boxes can be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV

from flwr_dpkmeans import DPKMeans, FederatedKMeans, Schema

CENTRES = np.array([[20.0, 60.0], [45.0, 90.0], [70.0, 65.0]])


def adults(seed: int = 0) -> np.ndarray[Any, Any]:
    """Ages and weights in three groups."""
    generator = np.random.default_rng(seed)
    return generator.normal(CENTRES[:, None], 3.0, (3, 500, 2)).reshape(-1, 2)


def model(**options: Any) -> DPKMeans:
    """A clustering of one table."""
    return DPKMeans(
        3,
        **{"epsilon": 1.0, "bounds": (0, 150), "noise": "seeded", "random_state": 0}
        | options,
    )


def exact_cost(rows: Any, centres: Any) -> float:
    """Sum of squared distances to the nearest centre, without this package."""
    squares = np.square(np.asarray(rows)[:, None] - centres).sum(axis=2)
    return float(squares.min(axis=1).sum())


def test_it_is_scikit_learns_score_of_the_same_centres() -> None:
    rows = adults()
    fitted = model().fit(rows)
    theirs = KMeans(3, init=fitted.cluster_centers_, n_init=1).fit(rows)
    theirs.cluster_centers_ = fitted.cluster_centers_
    assert fitted.score(rows) == pytest.approx(theirs.score(rows), rel=1e-9)
    assert fitted.score(rows) == pytest.approx(
        -exact_cost(rows, fitted.cluster_centers_), rel=1e-9
    )


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_it_is_exact_far_from_zero(offset: float) -> None:
    rows = adults() + offset
    fitted = model(bounds=(offset, offset + 150)).fit(rows)
    assert fitted.score(rows) == pytest.approx(
        -exact_cost(rows, fitted.cluster_centers_), rel=1e-9
    )


def test_a_grid_over_bounds_picks_neither_the_widest_box_nor_the_narrowest() -> None:
    rows = np.random.default_rng(0).permutation(adults())
    grid = {"bounds": [(0, 50), (0, 150), (-1e3, 1e3), (-1e5, 1e5)]}
    search = GridSearchCV(model(), grid, cv=2).fit(rows)
    costs = -search.cv_results_["mean_test_score"]
    assert search.best_params_["bounds"] in grid["bounds"][1:3]
    assert costs[0] > 10.0 * costs[1]
    assert costs[3] > costs[1]


@pytest.mark.nightly
def test_models_whose_private_boxes_differ_are_as_good_as_their_scores_say() -> None:
    rows = adults()
    fits = [
        model(bounds="private", epsilon=8.0, random_state=seed).fit(rows)
        for seed in range(12)
    ]
    assert len({fitted.bounds_ for fitted in fits}) > 1
    scores = [fitted.score(rows) for fitted in fits]
    assert scores == pytest.approx(
        [-exact_cost(rows, fitted.cluster_centers_) for fitted in fits], rel=1e-9
    )
    assert max(scores) / min(scores) == pytest.approx(1.0, abs=0.05)


def test_parties_tables_have_the_sum_of_their_scores() -> None:
    parts = np.array_split(np.random.default_rng(0).permutation(adults()), 3)
    fitted = FederatedKMeans(3, bounds=(0, 150), noise="seeded", random_state=0).fit(
        parts
    )
    assert fitted.score(parts) == pytest.approx(
        sum(map(fitted.score, parts)), rel=1e-12
    )


COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "bounds": (0, 200)},
    "weight": {"kind": "number", "bounds": (0, 300), "weight": 0.5},
    "smokes": {"kind": "flag"},
    "ward": {"kind": "category", "values": ["A", "B"], "weight": 0.1},
}
UNITS = {"bounds": (200.0, 600.0, 1.0, 20.0, 20.0), "none": (1.0, 2.0, 1.0, 20.0, 20.0)}
UNITS["standard"] = UNITS["bounds"]
"""By the scale of a schema, what is one unit long in each column of the points."""


@pytest.mark.parametrize("scale", UNITS)
def test_with_a_schema_its_units_are_those_that_it_states(scale: str) -> None:
    rows, generator = adults(), np.random.default_rng(3)
    smokes, is_first = generator.integers(0, 2, (2, len(rows)))
    table = pd.DataFrame(
        {"age": rows[:, 0], "weight": rows[:, 1], "smokes": smokes.astype(bool)}
    )
    table["ward"] = np.where(is_first, "A", "B")
    schema = Schema(columns=COLUMNS, scale=scale)
    points = np.column_stack([rows, smokes, is_first, 1 - is_first]) / UNITS[scale]
    for seed in range(2):
        fitted = model(bounds=schema, random_state=seed).fit(table)
        cost = exact_cost(points, fitted.cluster_centers_ / UNITS[scale])
        assert fitted.score(table) == pytest.approx(-cost, rel=1e-9)
