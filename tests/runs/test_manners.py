"""scikit-learn's manners: parties by name or group, pipelines, searches, names of
columns, and what is not there.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from support.installed import install

from flwr_dpkmeans import (
    DPNaiveBayes,
    Evaluation,
    FederatedKMeans,
    FederatedNaiveBayes,
    federate,
)
from flwr_dpkmeans.data.columns.column import Column
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    warn_once,
)
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.progress_bar import progress_bar
from flwr_dpkmeans.sums.statement import Step

SIZES = {"ward 7": 120, "ward 9": 80, "out-patients": 100}
NAMES = ["age", "height"]


def tables() -> dict[str, NDArray[np.float64]]:
    generator = np.random.default_rng(0)
    centres = np.array([[0.2, 0.2], [0.8, 0.3], [0.5, 0.8]])
    return {
        name: centres[generator.integers(0, 3, n)] + generator.normal(0, 0.03, (n, 2))
        for name, n in SIZES.items()
    }


def model(**options: Any) -> FederatedKMeans:
    """A run whose noise each client draws by its own place.

    Another order of the parties is another result.
    """
    own = {
        "n_clusters": 3,
        "bounds": (0, 1),
        "noise": "seeded",
        "random_state": 1,
        "trust": "distributed",
    }
    return FederatedKMeans(
        **({"engine": "direct", "algorithm": "glloyd", "epsilon": 8.0} | own | options)
    )


def stacked(shuffled: bool = True) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """All rows in one table, mixed, but with the parties first met in their order."""
    rows, groups = (
        np.concatenate(list(tables().values())),
        np.repeat(list(SIZES), list(SIZES.values())),
    )
    rest = (
        np.random.default_rng(1).permutation(len(rows))
        if shuffled
        else np.arange(len(rows))
    )
    order = np.concatenate(
        [[0, 120, 200], [row for row in rest if row not in (0, 120, 200)]]
    ).astype(int)
    return rows[order], groups[order]


# -- who the parties are ---------------------------------------------------------------


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
def test_a_mapping_and_groups_are_the_list_of_their_tables(engine: str) -> None:
    rows, groups = stacked()
    expected = (
        model(engine=engine)
        .fit([rows[groups == name] for name in SIZES])
        .cluster_centers_
    )
    np.testing.assert_array_equal(
        model(engine=engine).fit(tables()).cluster_centers_.round(9), expected.round(9)
    )
    for own in (
        groups,
        list(groups),
        pd.Series(groups, index=range(7, 307)),
        pd.Categorical(groups),
    ):
        np.testing.assert_array_equal(
            model(engine=engine).fit(rows, groups=own).cluster_centers_, expected
        )


def test_names_are_in_a_refusal_and_nowhere_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    fitted = model(engine="inprocess").fit(tables())
    told = caplog.text + fitted.privacy_.to_json() + repr(fitted.history_)
    assert not [name for name in SIZES if name in told]
    with pytest.raises(DataError, match=r"^X\['ward 9'\]: .* missing or infinite"):
        model().fit(tables() | {"ward 9": [[0.5, np.nan]]})
    evaluated = model(evaluation=Evaluation(n_classes=2))
    with pytest.raises(DataError, match=r"^y\['ward 9'\]: labels have shape"):
        evaluated.fit(
            tables(),
            {name: [0] * (n - (name == "ward 9")) for name, n in SIZES.items()},
        )


def test_labels_follow_their_tables() -> None:
    rows, groups = stacked()
    labels = np.arange(300) % 3
    parts = [rows[groups == name] for name in SIZES]
    named = {name: labels[groups == name] for name in reversed(SIZES)}
    km = model(evaluation=Evaluation(n_classes=3), epsilon=50.0)
    fits = [
        km.fit(parts, [labels[groups == name] for name in SIZES]).evaluation_,
        km.fit(dict(zip(SIZES, parts, strict=True)), named).evaluation_,
        km.fit(rows, labels, groups=groups).evaluation_,
    ]
    assert fits[0] == fits[1] == fits[2]
    assert fits[0] != km.fit(rows, np.roll(labels, 1), groups=groups).evaluation_
    bayes = FederatedNaiveBayes(
        3, bounds=(0, 1), epsilon=50.0, noise="seeded", random_state=1, engine="direct"
    )
    expected = bayes.fit(parts, [labels[groups == name] for name in SIZES]).theta_
    np.testing.assert_array_equal(
        bayes.fit(dict(zip(SIZES, parts, strict=True)), named).theta_, expected
    )


def test_labels_of_rows_that_a_schema_leaves_out_go_with_them() -> None:
    age = Column(name="age", kind="number", bounds=(0, 1), missing="drop")
    schema = Schema(columns=(age,))
    table = pd.DataFrame({"age": [0.1, np.nan, 0.3, 0.4, np.nan, 0.6]})
    grouped = Tables.of(table, groups=["a", "b", "b", "a", "a", "b"], schema=schema)
    alone = Tables.alone(table, schema)
    for tables_read, expected in (
        (grouped, [[0, 3], [2, 5]]),
        (alone, [[0, 2, 3, 5], []]),
    ):
        labels = tables_read.labels([0, 1, 2, 3, 4, 5], 6)
        assert [part.tolist() for part in labels] == expected


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        (["a"] * 300, "groups names 1 parties, but there must be at least 2"),
        (["a"] * 200 + [None] * 100, "groups names 1 parties and leaves rows without"),
        (
            [0.0] * 100 + [np.nan] * 100 + [1.0] * 100,
            "groups names 2 parties and leaves rows without one, but",
        ),
        (["a", "b"], r"groups has shape \(2,\), but X has 300 rows: give one for each"),
        (np.zeros((300, 2)), r"groups has shape \(300, 2\), but X has 300 rows"),
    ],
)
def test_groups_that_name_no_parties_are_refused(groups: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^{sentence}"):
        model().fit(stacked()[0], groups=groups)


def test_one_table_without_groups_says_what_there_is() -> None:
    with pytest.raises(DataError, match="name each row's party by groups, or use"):
        model().fit(stacked()[0])


def test_what_follows_a_fit_has_the_form_of_the_tables() -> None:
    rows, groups = stacked()
    labels = model().fit_predict(rows, groups=groups)
    np.testing.assert_array_equal(
        labels, model().fit(rows, groups=groups).predict(rows)
    )
    assert {
        name: len(own) for name, own in model().fit_predict(tables()).items()
    } == SIZES
    assert [own.shape for own in model().fit_transform(list(tables().values()))] == [
        (n, 3) for n in SIZES.values()
    ]


# -- pipelines and searches ------------------------------------------------------------


def frame() -> tuple[pd.DataFrame, NDArray[np.str_]]:
    rows, groups = stacked()
    return pd.DataFrame(rows * [100, 200], columns=NAMES).assign(ward=groups), groups


def test_a_pipeline_takes_one_table_and_groups() -> None:
    table, groups = frame()
    pipe = make_pipeline(make_column_transformer((MinMaxScaler(), NAMES)), model())
    pipe.set_output(transform="pandas")
    shares = pipe.fit_transform(table, federatedkmeans__groups=groups)
    assert (
        list(shares.columns)
        == list(pipe.get_feature_names_out())
        == [f"federatedkmeans{j}" for j in range(3)]
    )
    assert list(pipe[-1].feature_names_in_) == [
        "minmaxscaler__age",
        "minmaxscaler__height",
    ]
    scaled = MinMaxScaler().fit_transform(table[NAMES])
    np.testing.assert_array_equal(
        pipe.predict(table), model().fit(scaled, groups=groups).predict(scaled)
    )
    assert [
        type(own)
        for own in (
            model().set_output(transform="pandas").fit_transform(tables()).values()
        )
    ] == [pd.DataFrame] * 3


def search(km: Any, grid: dict[str, Any], *given: Any, cv: Any, **named: Any) -> Any:
    return GridSearchCV(km, grid, cv=cv, error_score="raise").fit(*given, **named)


def test_a_search_splits_rows_or_parties() -> None:
    """Each fold is fitted as it would be by hand."""
    rows, groups = stacked()
    pipe = make_pipeline(MinMaxScaler(), model())
    grid = {
        "federatedkmeans__epsilon": [0.01, 50.0],
        "federatedkmeans__algorithm__max_iter": [1, 4],
    }
    for cv, split in ((3, {}), (GroupKFold(3), {"groups": groups})):
        found = search(pipe, grid, rows, cv=cv, federatedkmeans__groups=groups, **split)
        assert found.best_params_["federatedkmeans__epsilon"] == 50.0
        assert np.isfinite(found.cv_results_["mean_test_score"]).all()
    train, test = next(GroupKFold(3).split(rows, groups=groups))
    by_hand = pipe.set_params(**found.cv_results_["params"][-1]).fit(
        rows[train], federatedkmeans__groups=groups[train]
    )
    assert found.cv_results_["split0_test_score"][-1] == by_hand.score(rows[test])


def test_a_search_routes_groups_or_splits_a_list_of_tables() -> None:
    rows, groups = stacked()
    grid = {"epsilon": [0.01, 50.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        routed = search(
            model().set_fit_request(groups=True), grid, rows, cv=KFold(2), groups=groups
        )
    listed = search(model(), grid, list(tables().values()), cv=3)
    assert routed.best_params_ == listed.best_params_ == {"epsilon": 50.0}
    left_out = list(tables().values())
    fitted = model(epsilon=50.0).fit(left_out[1:])
    assert (
        listed.cv_results_["split0_test_score"][1]
        == fitted.score(left_out[:1])
        == fitted.score(left_out[0])
    )
    # Parties as `fit` takes them.
    own = fitted.score(left_out)
    assert (
        own
        == fitted.score(tuple(left_out))
        == fitted.score(tables())
        == sum(map(fitted.score, left_out))
    )


# -- names of columns ------------------------------------------------------------------


def test_bounds_by_name_may_be_a_mapping_or_a_data_frame() -> None:
    table, groups = frame()
    rows = table[NAMES]
    expected = (
        model(bounds=((0, 0), (100, 200))).fit(rows, groups=groups).cluster_centers_
    )
    stated = {"height": (0, 200), "weight": (0, 1), "age": [0, 100]}
    by_index = pd.DataFrame({"lower": 0, "upper": [200, 100]}, index=["height", "age"])
    for bounds in (
        stated,
        by_index,
        by_index.reset_index(names="feature"),
        by_index.reset_index(drop=True)[::-1],
    ):
        np.testing.assert_array_equal(
            model(bounds=bounds).fit(rows, groups=groups).cluster_centers_, expected
        )
    for bounds, sentence in (
        (
            {"age": (0, 100)},
            (
                "feature 'height' has no row in the mapping of bounds, but every"
                " feature needs a range"
            ),
        ),
        (
            {"age": (0, 100), "height": 200},
            "the bounds of 'height' are 200, but they must be a pair",
        ),
        (
            {"age": (0, 100), "height": (200, 0)},
            "feature 'height' has lower bound 200.0 and upper bound 0.0",
        ),
        (
            by_index.drop(columns="upper"),
            "the data frame of bounds has no 'upper', but it needs 'lower' and 'upper'",
        ),
    ):
        with pytest.raises(ConfigurationError, match=f"^{sentence}"):
            model(bounds=bounds).fit(rows, groups=groups)


# -- what is not there -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "where"),
    [("labels_", "call predict"), ("inertia_", "evaluation='private'")],
)
def test_exact_values_say_where_one_looks(name: str, where: str) -> None:
    fitted = model().fit(tables())
    assert not hasattr(fitted, name)
    with pytest.raises(AttributeError, match=where):
        getattr(fitted, name)


def test_an_unknown_argument_of_fit_is_refused() -> None:
    rows, groups = stacked()
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        model().fit(rows, groups=groups, weights=1)


@pytest.mark.parametrize(
    ("rule", "cells", "times"),
    [
        ("default", (), 2),
        ("always", (), 3),
        ("default", (1, 1, 1), 2),
        ("default", (1, 2, 3), 3),
    ],
)
def test_a_sentence_is_said_once_for_each_line_with_a_fit_and_run_of_a_cell(
    monkeypatch: pytest.MonkeyPatch, rule: Any, cells: tuple[int, ...], times: int
) -> None:
    """Two fits on one line and a third on another."""
    warn_once.cache_clear()
    numbers = iter(cells)
    shell = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(execution_count=next(numbers))
    )
    if cells:
        install(monkeypatch, IPython=shell)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(rule)
        for _ in range(2):
            globals().pop("__warningregistry__", None)  # as IPython and scikit-learn do
            model().fit(tables())
        model().fit(tables())
    assert sum("seeded generator" in str(one.message) for one in caught) == times


def test_a_loop_over_federate_or_naive_bayes_warns_once_of_each_thing() -> None:
    """Also where scikit-learn has emptied Python's own memory of what it has shown."""
    warn_once.cache_clear()
    generator = np.random.default_rng(0)
    parts = [generator.normal(0.0, 0.1, (40, 2)) for _ in range(2)]
    labels = [generator.integers(0, 2, 40) for _ in range(2)]
    exact = {"bounds": (-1.0, 1.0), "noise": "seeded", "random_state": 1}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            globals().pop("__warningregistry__", None)
            FederatedNaiveBayes(**exact).fit(parts, labels)
            federate("moments", parts, **exact)
            DPNaiveBayes(**exact).fit(parts[0], labels[0])
    said = [(one.lineno, str(one.message)) for one in caught]
    assert sum("seeded generator" in sentence for _, sentence in said) == 3
    assert len(said) == len(set(said))
    assert {one.filename for one in caught} == {__file__}


# -- what a person looks at ------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


STEP = Step(3, 10, 0, "sums", 2, 0.5, (("sums", 1.0),), None, None)


@pytest.mark.parametrize(
    ("stream", "slow", "shown"),
    [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)],
)
def test_a_bar_is_shown_in_a_terminal_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], slow: bool, shown: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    wait = 0.0 if slow else 60.0
    with (
        contextlib.redirect_stderr(screen := stream()),
        progress_bar(seconds_before=wait) as on_step,
    ):
        on_step(STEP)
        time.sleep(0.3)
    assert "30%" in screen.getvalue() if shown else screen.getvalue() == ""
    # What hid the cursor shows it again, and nothing draws on.
    assert (
        screen.getvalue().count("\x1b[?25l")
        == screen.getvalue().count("\x1b[?25h")
        == shown
    )


def test_a_notebook_shows_small_tables_and_a_line_is_short() -> None:
    report = model(noise="secure").fit(tables()).privacy_
    report = replace(report, warnings=("a < b",))
    forecast = FederatedKMeans(3).plan(2_000, 2, 3, seeds=2, algorithms="glloyd")
    for one, words in (
        (report, ["cost", "guarantee", "a &lt; b", "report.details()"]),
        (forecast, ["glloyd", "messages", "Note: "]),
    ):
        page = one._repr_html_()
        assert [word for word in words if word not in page] == []
        assert "<script" not in page
        assert page.count("<tr>") == page.count("</tr>") > 5
        assert "\n" not in repr(one)
        assert len(repr(one)) < 150
    assert [word for word in ("glloyd", "messages") if word not in str(forecast)] == []
