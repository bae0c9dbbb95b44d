"""Data frames in a notebook: columns by name, in `fit` and afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import (
    Evaluation,
    FederatedKMeans,
    FederatedNaiveBayes,
    PrivateBounds,
    Schema,
    federate,
)
from flwr_dpkmeans.errors import ConfigurationError, DataError

NAMES = ["age", "income", "height"]
WIDTHS = np.array([100.0, 1e5, 2.0])
FILE = "feature,lower,upper\nheight,0,2\nage,0,100\nincome,0,100000\n"


def frames(*orders: list[str]) -> list[pd.DataFrame]:
    generator = np.random.default_rng(0)
    return [
        pd.DataFrame(generator.uniform(0, WIDTHS, (200, 3)), columns=NAMES)[order]
        for order in orders
    ]


def model(**options: Any) -> FederatedKMeans:
    defaults: dict[str, Any] = {
        "bounds": ([0.0] * 3, WIDTHS),
        "noise": "seeded",
        "random_state": 1,
        "epsilon": 5.0,
    }
    return FederatedKMeans(3, **(defaults | options))


@pytest.mark.parametrize(
    "options", [{}, {"engine": "direct"}, {"algorithm": "optimal"}], ids=str
)
def test_frames_in_another_order_are_put_in_the_first_ones(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "bounds.csv"
    path.write_text(FILE)
    same = model(bounds=path, **options).fit(frames(NAMES, NAMES))
    other = model(bounds=path, **options).fit(frames(NAMES, NAMES[::-1]))
    np.testing.assert_array_equal(same.cluster_centers_, other.cluster_centers_)
    assert other.feature_names_in_.tolist() == NAMES
    assert any("matched by name" in line for line in other.privacy_.assumptions)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bounds": ([0.0] * 3, [100.0, 1e5, 1e5])},
        {"bounds": "private", "bounds_domain": ([0.0] * 3, WIDTHS)},
        {"algorithm": "optimal"},
    ],
    ids=["bounds", "two alike", "domain", "in one place"],
)
def test_bounds_by_position_take_one_order_only(options: dict[str, Any]) -> None:
    """Owners of other tables need not know the first one."""
    if "bounds_domain" in options:
        options = {"bounds": PrivateBounds(domain=options["bounds_domain"])}
    tables = frames(NAMES, NAMES[::-1])
    with pytest.raises(ConfigurationError, match=r"but the tables .* give a bounds"):
        model(**options).fit(tables)
    assert model(bounds=(0.0, 1e5)).fit(tables).feature_names_in_.tolist() == NAMES
    with pytest.raises(ConfigurationError, match="by position"):
        federate("moments", tables, bounds=([0.0] * 3, WIDTHS))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda frame: frame.rename(columns={"age": "aeg"}),
            r"X\[1\]: the points have no column 'age'.* rename this table's; .*'aeg'",
        ),
        (
            lambda frame: frame.rename(
                columns={"age": "hiegth"}
            ),  # nearer to a name that is there, and taken
            (
                r"X\[1\]: the points have no column 'age'.* add it or rename this"
                r" table's; choose one of 'hiegth'"
            ),
        ),
        (
            lambda frame: frame.rename(columns={"age": "AGE"}),
            r"'age', but the first table.* did you mean 'AGE'\?",
        ),
        (
            lambda frame: pd.concat([frame, frame[["age"]]], axis=1),
            (
                r"X\[1\]: 2 of 4 columns have the name 'age', but each needs one of its"
                r" own: rename them"
            ),
        ),
        (lambda frame: frame.assign(more=1.0), r"X\[1\]: the points have a column"),
        (lambda frame: frame.to_numpy(), "1 of 2 tables in X have column names and"),
        (lambda frame: frame.rename(columns={"age": 1}), "text and the others are not"),
    ],
)
def test_other_names_are_refused(
    change: Callable[[pd.DataFrame], Any], sentence: str
) -> None:
    first, second = frames(NAMES, NAMES)
    with pytest.raises(DataError, match=sentence):
        model().fit([first, change(second)])


def test_a_name_that_looks_the_same_in_other_characters_is_told_by_them() -> None:
    """A letter and an accent are no one character."""
    composed, apart = "Gr\xf6\xdfe", "Gro\u0308\xdfe"
    tables = [
        pd.DataFrame({name: np.linspace(0.0, 1.0, 50)}) for name in (composed, apart)
    ]
    with pytest.raises(DataError, match="looks the same but has other characters"):
        FederatedKMeans(2, bounds=(0, 1)).fit(tables)


def test_server_data_are_matched_by_name() -> None:
    (points,) = frames(NAMES)
    fitted = [
        model(bounds=None, server_data=points[order])
        .fit(frames(NAMES, NAMES))
        .cluster_centers_
        for order in (NAMES, NAMES[::-1])
    ]
    np.testing.assert_array_equal(*fitted)
    with pytest.raises(ConfigurationError, match="server_data has no column names"):
        model(bounds=None, server_data=points.to_numpy()).fit(frames(NAMES, NAMES))
    with pytest.raises(ConfigurationError, match="server_data lacks a column 'age'"):
        model(bounds=None, server_data=points.drop(columns="age")).fit(
            frames(NAMES, NAMES)
        )
    with pytest.raises(DataError, match="but the bounds or server_data name 3"):
        model(bounds=None, server_data=points).fit(
            [frame.to_numpy() for frame in frames(NAMES, NAMES)]
        )


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_columns_are_checked_after_the_fit(method: str) -> None:
    fitted = model().fit(frames(NAMES, NAMES))
    (rows,) = frames(NAMES)
    use = getattr(fitted, method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = use(rows)
        np.testing.assert_array_equal(use(rows[NAMES[::-1]]), expected)
    with pytest.warns(
        UserWarning,
        match=(
            "X does not have valid feature names, but FederatedKMeans was fitted with"
        ),
    ):
        np.testing.assert_array_equal(use(rows.to_numpy()), expected)
    with pytest.raises(DataError, match="the points have no column 'height'"):
        use(rows.rename(columns={"height": "hight"}))


def test_a_fit_to_arrays_has_no_names() -> None:
    fitted = (
        model()
        .fit(frames(NAMES, NAMES))
        .fit([frame.to_numpy() for frame in frames(NAMES, NAMES)])
    )
    assert not hasattr(fitted, "feature_names_in_")
    assert (
        "The tables' columns have no names and were matched by position."
        in fitted.privacy_.assumptions
    )
    with pytest.warns(
        UserWarning,
        match=(
            "X has feature names, but FederatedKMeans was fitted without feature names"
        ),
    ):
        fitted.predict(frames(NAMES)[0])


def test_fit_predict_takes_frames_in_any_order() -> None:
    labels = model(bounds=(0.0, 1e5)).fit_predict(frames(NAMES, NAMES[::-1]))
    assert list(map(len, labels)) == [200, 200]


def labelled(seed: int, n: int = 400) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Two groups, of which the first column tells one and the second the other.

    Columns are numbered.
    """
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, n)
    centres = np.where(labels[:, None] == [1, 0], 10.0, 0.0)
    return (
        pd.DataFrame(centres + generator.normal(0.0, 1.0, (n, 2)), columns=[0, 1]),
        labels,
    )


def test_numbered_columns_in_another_order_are_refused_at_every_door(
    tmp_path: Path,
) -> None:
    (one, own), (other, others) = labelled(1), labelled(2)
    settings: dict[str, Any] = {
        "epsilon": 4.0,
        "bounds": (-10, 20),
        "noise": "seeded",
        "random_state": 1,
    }
    bayes = FederatedNaiveBayes(2, **settings).fit([one, other], [own, others])
    assert bayes.score(one, own) > 0.9
    model = FederatedKMeans(2, **settings).fit([one, other])
    model.save(tmp_path / "model.json")
    loaded = FederatedKMeans.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict(one), model.predict(one))
    for asked in (bayes.predict, model.predict, loaded.predict, model.model_.predict):
        with pytest.raises(DataError, match=r"but those of .* are 0, 1: put them in"):
            asked(one[[1, 0]])
        asked(one.to_numpy())
    tables = [one, other[[1, 0]]]
    with pytest.raises(DataError, match=r"^clients\(1\) has other columns"):
        FederatedKMeans(2, **settings).fit(
            clients=lambda place: tables[place], n_clients=2
        )


def test_naive_bayes_warns_of_names_as_the_clustering_does() -> None:
    tables, labels = zip(labelled(1), labelled(2), strict=True)
    named = [table.rename(columns={0: "p", 1: "q"}) for table in tables]
    arrays = [table.to_numpy() for table in tables]
    options: dict[str, Any] = {"bounds": (-10, 20), "noise": "seeded"}
    bayes = FederatedNaiveBayes(2, epsilon=4.0, **options).fit(arrays, labels)
    fitted_without = "^X has feature names, but FederatedNaiveBayes was fitted without"
    with pytest.warns(UserWarning, match=fitted_without):
        bayes.predict(named[0])
    bayes.fit(named, labels)
    no_names = "^X does not have valid feature names, but FederatedNaiveBayes was"
    with pytest.warns(UserWarning, match=no_names):
        bayes.predict(arrays[0])
    turned = named[0][["q", "p"]]
    assert np.array_equal(bayes.predict(turned), bayes.predict(named[0]))


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ([(-10, 20), (0, 1)], r"one pair per feature"),
        ([(-10, 20)], r"bounds"),
        (((-10, -10, -10), (20, 20, 20)), "^the bounds have 3 ranges, but the points"),
    ],
)
def test_bounds_beside_categories_are_read_as_everywhere(
    bounds: Any, told: str
) -> None:
    rows, labels = labelled(1)
    rows[1] = labels
    with pytest.raises(ConfigurationError, match=told):
        FederatedNaiveBayes(2, bounds=bounds, categories=[0, 2]).fit(
            [rows, rows], [labels, labels]
        )


def test_naive_bayes_predicts_the_frames_of_its_schema() -> None:
    columns = {
        "a": {"kind": "number", "bounds": (-10, 20)},
        "w": {"kind": "category", "values": ["A", "B"]},
    }
    (one, own), (other, others) = labelled(1), labelled(2)
    parts = [
        pd.DataFrame({"w": np.where(of == 1, "A", "B"), "more": 0, "a": part[0]})
        for part, of in ((one, own), (other, others))
    ]
    settings: dict[str, Any] = {"epsilon": 4.0, "noise": "seeded", "random_state": 1}
    bayes = FederatedNaiveBayes(2, bounds=Schema(columns=columns), **settings).fit(
        parts, [own, others]
    )
    assert bayes.score(parts[0], own) > 0.9
    parts[0].loc[3, "a"] = np.nan
    with pytest.raises(DataError, match=r"^1 of 400 rows lack what the schema"):
        bayes.predict(parts[0])


def test_rows_that_a_schema_may_leave_out_are_counted_privately() -> None:
    generator = np.random.default_rng(7)
    labels = [generator.integers(0, 3, 1000) for _ in range(3)]
    centres = np.array([[2.0, 2.0], [12.0, 12.0], [2.0, 12.0]])
    parts = [
        pd.DataFrame(
            centres[own] + generator.normal(0.0, 0.5, (1000, 2)), columns=["a", "b"]
        )
        for own in labels
    ]
    for part in parts:
        part.loc[generator.random(1000) < 0.1, "a"] = np.nan
    settings: dict[str, Any] = {
        "epsilon": 4.0,
        "noise": "seeded",
        "random_state": 1,
        "engine": "direct",
    }
    for missing, source in (("drop", "private count"), ("centre", "declared public")):
        schema = Schema(
            columns={
                name: {"kind": "number", "bounds": (-5, 20), "missing": missing}
                for name in "ab"
            }
        )
        model = FederatedKMeans(
            3, bounds=schema, evaluation=Evaluation(n_classes=3), **settings
        ).fit(parts, labels)
        assert model.privacy_.n_examples_source == source
        if missing == "drop":
            accuracy = model.evaluation_.accuracy
            assert (
                abs(accuracy.value - 1.0) < 3.0 * accuracy.noise
            )  # it was .9, with N as the divisor
            stated = FederatedKMeans(3, bounds=schema, n_examples=3000, **settings).fit(
                parts
            )
            assert stated.privacy_.n_examples_source == "declared public"


def test_a_schema_decodes_centroids_of_its_own_width_only() -> None:
    columns = {
        "a": {"kind": "number", "bounds": (-10, 20)},
        "w": {"kind": "category", "values": ["A", "B"]},
    }
    schema = Schema(columns=columns)
    assert schema.decode([[1, 1, 0]])["a"] == [1.0]
    for wrong in ([[1, 2]], [[1, 1, 0, 9]]):
        with pytest.raises(
            DataError,
            match=f"^the centroids have {len(wrong[0])} columns, but the schema 3",
        ):
            schema.decode(wrong)
