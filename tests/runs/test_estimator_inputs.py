"""Wrong input in a notebook: one sentence each, in the words of the user."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.flat import flat_estimator

from flwr_dpkmeans import DPKMeans, FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError, DataError, PlanError

PARTS = [np.random.default_rng(seed).uniform(0, 1, (40, 2)) for seed in range(2)]


def fit(parts: Any = PARTS, y: Any = None, **options: Any) -> FederatedKMeans:
    return flat_estimator(**({"n_clusters": 2, "bounds": (0, 1)} | options)).fit(
        parts, y
    )


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [(name, "fastlloyd") for name in ("schedule", "packing", "unit", "noise")]
    + [("noise_kind", "sphere_packing")],
)
def test_a_choice_of_none_is_answered_with_the_choices(
    name: str, algorithm: str
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"^{name} is None, which is not known: (choose one of|did you mean) '",
    ):
        fit(algorithm=algorithm, **{name: None})


def test_an_algorithm_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^algorithm is \['x'\], but it must"):
        fit(algorithm=["x"])


def test_the_algorithm_behind_choose_k_says_what_it_needs() -> None:
    with pytest.raises(PlanError, match="looks for the number of clusters"):
        fit(algorithm="feddp_choose_k", server_data=PARTS[0])


@pytest.mark.parametrize("most", [0, "x", 2.5])
def test_a_wrong_max_clusters_is_called_by_its_name(most: Any) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"^max_clusters is {most!r}, but it must be an integer of at least 1",
    ):
        fit(n_clusters="auto", max_clusters=most, trust="distributed")


def test_labels_of_different_lengths_are_refused_in_one_sentence() -> None:
    with pytest.raises(DataError, match=r"^y\[0\]: labels .*give one for each row.$"):
        fit(y=[[[1], [1, 2]], [0] * 40], evaluation="private", n_classes=2)


def test_labels_by_other_names_than_the_tables_are_refused() -> None:
    with pytest.raises(DataError, match=r"^y must have one array of labels for each"):
        fit(y={"a": [0] * 40, "b": [1] * 40}, evaluation="private", n_classes=2)


def test_bounds_that_are_no_flat_numbers_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^the lower bounds hold a Series"):
        fit(bounds=(pd.Series([0, 0]), pd.Series([1, 1])))


@pytest.mark.parametrize("columns", [[1, 0], [5, 7], [("a", "y"), ("a", "x")]])
def test_columns_that_are_numbered_otherwise_are_not_matched_by_position(
    columns: list[Any],
) -> None:
    first = [0, 1] if isinstance(columns[0], int) else [("a", "x"), ("a", "y")]
    frames = [
        pd.DataFrame(part, columns=pd.Index(labels))
        for part, labels in zip(PARTS, (first, columns), strict=True)
    ]
    with pytest.raises(DataError, match=r"^X\[1\]: the columns are .*, but those"):
        fit(frames)
    km = fit([frames[0], frames[0]])
    fit([frames[0], PARTS[1]])
    grouped = FederatedKMeans(2, bounds=(0, 1)).fit(frames[0], groups=[0, 1] * 20)
    alone = DPKMeans(2, bounds=(0, 1)).fit(frames[0])
    for model in (km, grouped, alone, pickle.loads(pickle.dumps(km))):
        np.testing.assert_array_equal(
            model.predict(frames[0]), model.predict(frames[0].to_numpy())
        )
        with pytest.raises(DataError, match=r"but those of the fit are .*: put them"):
            model.predict(frames[1])


def test_missing_values_and_text_in_a_frame_are_told_by_the_name_of_the_column() -> (
    None
):
    frames = [pd.DataFrame(part, columns=["age", "height"]) for part in PARTS]
    for wrong, sentence in (
        (np.nan, "feature is 'height'"),
        ("tall", "values in feature 'height'"),
    ):
        with pytest.raises(DataError, match=rf"^X\[1\]: .*{sentence}"):
            fit([frames[0], frames[1].assign(height=wrong)])
        with pytest.raises(DataError, match=rf"^X\[0\]: .*{sentence}"):
            fit([frames[0].assign(height=wrong), frames[1][["height", "age"]]])


@pytest.mark.parametrize("method", ["predict", "score"])
def test_a_warning_about_names_points_at_the_caller(method: str) -> None:
    km = fit([pd.DataFrame(part, columns=["a", "b"]) for part in PARTS])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(km, method)(PARTS[0])
    assert [each.filename for each in caught] == [__file__]


def test_one_name_of_an_algorithm_is_a_plan_s_only_candidate() -> None:
    forecast = FederatedKMeans(2).plan(2_000, 2, 3, seeds=2, algorithms="glloyd")
    assert [entry.algorithm for entry in forecast.algorithms] == ["glloyd"]
