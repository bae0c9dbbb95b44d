"""Naive Bayes of one table and of several parties, where scikit-learn's classifiers
stand.
"""

from __future__ import annotations

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from support.stored import joblib_file

from flwr_dpkmeans import DPNaiveBayes, FederatedNaiveBayes, Schema, federate
from flwr_dpkmeans.errors import ConfigurationError, DataError

SPECIES = np.array(["adelie", "chinstrap", "gentoo"])
MEANS = np.array([[38.8, 3700.0], [48.8, 3733.0], [47.5, 5076.0]])
BOUNDS = ((30.0, 2500.0), (60.0, 6500.0))
SEEDED: dict[str, Any] = {
    "epsilon": 20.0,
    "bounds": BOUNDS,
    "noise": "seeded",
    "random_state": 0,
}


@functools.cache
def penguins() -> tuple[Any, Any, Any]:
    """Rows, the names of their classes, and the party of each."""
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 3, 900)
    rows = MEANS[codes] + generator.normal(size=(900, 2)) * [2.5, 300.0]
    return rows, SPECIES[codes], generator.choice(["dream", "torgersen", "biscoe"], 900)


def one_table(**options: Any) -> DPNaiveBayes:
    return DPNaiveBayes(**SEEDED | options)


def of_parties(**options: Any) -> FederatedNaiveBayes:
    return FederatedNaiveBayes(**SEEDED | {"engine": "direct"} | options)


def test_classes_may_be_names_from_fit_to_score() -> None:
    rows, species, islands = penguins()
    for model in (
        one_table().fit(rows, species),
        of_parties().fit(rows, species, groups=islands),
    ):
        assert is_classifier(model)
        assert model.classes_.tolist() == SPECIES.tolist()
        assert set(model.predict(rows)) == set(SPECIES)
        assert (
            model.score(rows, species)
            > GaussianNB().fit(rows, species).score(rows, species) - 0.02
        )
        assert model.predict_proba(rows).shape == (900, 3)
        np.testing.assert_allclose(model.theta_, MEANS, rtol=0.03)


def test_numbers_of_classes_may_be_any() -> None:
    rows, species, _ = penguins()
    years = np.where(species == "gentoo", 2009, 2007)
    assert one_table().fit(rows, years).classes_.tolist() == [2007, 2009]
    flags = one_table(classes=[False, True]).fit(rows, species == "gentoo")
    assert flags.predict(rows).dtype == bool


def test_parties_have_one_list_of_classes_even_where_one_has_none_of_them() -> None:
    rows, species, _ = penguins()
    is_first = species == "adelie"
    parts, labels = (
        [rows[is_first], rows[~is_first]],
        [species[is_first], species[~is_first]],
    )
    models = [
        of_parties().fit(parts, labels),
        of_parties(classes=list(SPECIES)).fit(parts, labels),
    ]
    for model in models:
        assert model.classes_.tolist() == SPECIES.tolist()
        assert model.score(parts, labels) == pytest.approx(model.score(rows, species))
        assert (
            model.score(
                dict(zip("ab", parts, strict=True)),
                dict(zip("ab", labels, strict=True)),
            )
            > 0.9
        )
    np.testing.assert_array_equal(models[0].theta_, models[1].theta_)


def test_a_report_says_whether_the_classes_were_stated() -> None:
    rows, species, _ = penguins()
    taken, stated = (
        one_table(classes=names).fit(rows, species).privacy_
        for names in (None, list(SPECIES))
    )
    sentence = (
        "('adelie', 'chinstrap', 'gentoo') was taken from the labels, and is taken for"
        " public"
    )
    assert [sentence in " ".join(report.assumptions) for report in (taken, stated)] == [
        True,
        False,
    ]
    assert (taken.trust, taken.n_clients) == ("curator", 1)


def test_a_stated_class_may_have_no_rows() -> None:
    rows, species, _ = penguins()
    some = species != "gentoo"
    model = one_table(classes=SPECIES.tolist()).fit(rows[some], species[some])
    assert model.classes_.tolist() == SPECIES.tolist()
    assert model.class_prior_[2] < 0.02


@pytest.mark.parametrize(
    ("options", "labels", "sentence"),
    [
        ({"classes": ["a", "b"]}, ["a", "c"], "labels have 'c', which is none of the"),
        ({"classes": ["a", "b"]}, ["a", None], "labels have"),
        (
            {"classes": ["a", "b"], "n_classes": 3},
            ["a", "b"],
            "n_classes is 3, but classes has 2: leave n_classes",
        ),
        ({"n_classes": 2}, ["a", "b"], "labels must be whole numbers"),
        ({}, ["a", "a"], "y has 1 class, but naive Bayes needs at least 2"),
        ({}, ["a", 1.5], "labels must be all numbers or all texts"),
        ({}, [0.5, 1.7], "Unknown label type"),
    ],
)
def test_labels_that_are_no_classes_are_refused(
    options: Any, labels: list[Any], sentence: str
) -> None:
    model = one_table(**options)
    with pytest.raises((ConfigurationError, DataError, ValueError), match=sentence):
        model.fit(
            np.tile([[40.0, 3000.0]], (20, 1)),
            np.array(labels * 10, dtype=object if "a" in labels else None),
        )


def test_what_one_table_shows_to_be_wrong_is_refused_before_anything_is_spent() -> None:
    rows, species, _ = penguins()
    with pytest.raises(DataError, match="but the table has 900 rows, more than twice"):
        one_table(n_examples=100).fit(rows, species)
    with pytest.raises(ConfigurationError, match="n_clases"):
        one_table(n_clases=3)
    with pytest.raises(ConfigurationError, match="trust"):
        one_table(trust="central")


@pytest.mark.parametrize("make", [one_table, of_parties])
def test_cross_validation_a_search_and_a_pipeline_take_it(make: Any) -> None:
    rows, species, islands = penguins()
    with_groups = {"groups": islands} if make is of_parties else {}
    scores = cross_val_score(
        make(), rows, species, params=with_groups, error_score="raise"
    )
    assert scores.min() > 0.9
    pipe = make_pipeline(MinMaxScaler(), make(bounds=(0, 1)))
    step = type(make()).__name__.lower()
    named = {f"{step}__{name}": value for name, value in with_groups.items()}
    assert pipe.fit(rows, species, **named).score(rows, species) > 0.9
    grid = {f"{step}__smoothing": [0.1, 1.0], f"{step}__epsilon": [1.0, 20.0]}
    search = GridSearchCV(pipe, grid, error_score="raise").fit(rows, species, **named)
    assert search.best_score_ > 0.9
    assert cross_val_predict(
        make(), rows, species, params=with_groups, method="predict_proba"
    ).shape == (900, 3)


@pytest.mark.parametrize("make", [one_table, of_parties])
def test_its_chances_can_be_calibrated(make: Any) -> None:
    rows, species, islands = penguins()
    with_groups = {"groups": islands} if make is of_parties else {}
    calibrated = CalibratedClassifierCV(make(), cv=3).fit(rows, species, **with_groups)
    assert calibrated.score(rows, species) > 0.9
    np.testing.assert_allclose(calibrated.predict_proba(rows).sum(axis=1), 1.0)


def test_a_series_is_put_into_the_order_of_a_frames_rows() -> None:
    rows, species, islands = penguins()
    frame = pd.DataFrame(rows, columns=["bill", "mass"])
    labels = pd.Series(species).sample(frac=1.0, random_state=0)
    bounds = {"bill": (30, 60), "mass": (2500, 6500)}
    for model in (
        one_table(bounds=bounds).fit(frame, labels),
        of_parties(bounds=bounds).fit(frame, labels, groups=pd.Series(islands)),
    ):
        assert model.feature_names_in_.tolist() == ["bill", "mass"]
        assert model.score(frame, labels) > 0.9
        assert (
            model.predict(frame[["mass", "bill"]]).tolist()
            == model.predict(frame).tolist()
        )


def skops_bytes(model: Any, folder: Path) -> Any:
    skops = pytest.importorskip("skops.io")
    stored = skops.dumps(model)
    names = skops.get_untrusted_types(data=stored)
    assert [name for name in names if not name.startswith("flwr_dpkmeans.")] == []
    return skops.loads(stored, trusted=names)


WAYS = {
    "joblib": joblib_file,
    "skops": skops_bytes,
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "copy": lambda model, _: copy.deepcopy(model),
}
CATEGORIES: dict[str, Any] = {"categories": [0, 2], "bounds": ((30, 0), (60, 1))}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["numbers", "categories", "schema", "parties"])
def test_a_stored_classifier_predicts_as_before(
    kind: str, way: str, tmp_path: Path
) -> None:
    rows, species, islands = penguins()
    table: Any = rows
    if kind == "categories":
        table = np.column_stack([rows[:, 0], rows[:, 1] > 4000.0])
        model: Any = one_table(**CATEGORIES).fit(table, species)
    elif kind == "schema":
        table = pd.DataFrame({"bill": rows[:, 0], "heavy": rows[:, 1] > 4000.0})
        columns = {
            "bill": {"kind": "number", "bounds": (30, 60)},
            "heavy": {"kind": "flag"},
        }
        model = one_table(bounds=Schema(columns=columns)).fit(table, species)
    elif kind == "parties":
        model = of_parties(engine="inprocess").fit(rows, species, groups=islands)
    else:
        model = one_table().fit(rows, species)
    again = WAYS[way](model, tmp_path)
    np.testing.assert_array_equal(
        again.predict_proba(table), model.predict_proba(table)
    )
    assert again.predict(table).tolist() == model.predict(table).tolist()
    assert again.privacy_ == model.privacy_
    assert clone(again).get_params().keys() == model.get_params().keys()


def test_a_statistic_over_labels_takes_names_too() -> None:
    rows, species, islands = penguins()
    parts = [rows[islands == name] for name in np.unique(islands)]
    labels = [species[islands == name] for name in np.unique(islands)]
    run: dict[str, Any] = {
        "bounds": BOUNDS,
        "epsilon": 20.0,
        "noise": "seeded",
        "random_state": 0,
    }
    found = federate("naive_bayes", parts, labels=labels, classes=3, **run)
    assert found.classes == tuple(SPECIES)
    np.testing.assert_allclose(found["theta"], MEANS, rtol=0.03)
    with pytest.raises(ConfigurationError, match="labels have 3 different names"):
        federate("naive_bayes", parts, labels=labels, classes=2, **run)
