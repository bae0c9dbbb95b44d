"""Private naive Bayes against hand-computed models, scikit-learn's, its declared bounds
and the page's figures.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from flwr_dpkmeans import (
    FederatedKMeans,
    FederatedNaiveBayes,
    KMeansClient,
    PrivateBounds,
    PrivateKMeans,
    federate,
)
from flwr_dpkmeans.algorithms.statistics.class_estimates import (
    likely_variances,
    pulled_together,
)
from flwr_dpkmeans.algorithms.statistics.naive_bayes import NaiveBayesOptions
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    PlanError,
    PrivacyWarning,
)
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.wire import dump_plan, load_plan

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
BOUNDS = (-6.0, 6.0)
NOWHERE = 1e6
"""An epsilon at which noise is a step of the grid or so."""
SEEDED: Any = {"noise": "seeded", "random_state": 1, "engine": "direct"}


@cache
def overlapping() -> tuple[Array, Labels]:
    """6,000 rows of four Gaussian classes in six columns, which overlap."""
    generator = np.random.default_rng(0)
    centers = generator.normal(0.0, 1.0, (4, 6)) * 1.15
    labels = generator.integers(0, 4, 6000)
    widths = generator.uniform(0.6, 1.4, (4, 6))
    return (
        centers[labels] + generator.normal(0.0, 1.0, (6000, 6)) * widths[labels],
        labels,
    )


def split(values: NDArray[Any], n: int = 3) -> list[NDArray[Any]]:
    return [values[start::n] for start in range(n)]


def plan_of(**values: Any) -> Plan:
    settings: dict[str, Any] = {
        "algorithm": "naive_bayes",
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 900,
    }
    run = read_config(**settings | values)
    return draft_plan(
        run, run_id=1, n_clients=3, seed=7, n_features=values.get("n_features", 2)
    )


# -- accuracy --------------------------------------------------------------------------


def test_the_median_of_twenty_runs_is_nearly_as_accurate_as_without_privacy() -> None:
    points, labels = overlapping()
    exact = GaussianNB().fit(points, labels).score(points, labels)
    assert exact == pytest.approx(0.878, abs=0.002)
    model = FederatedNaiveBayes(4, epsilon=2.0, bounds=BOUNDS, engine="direct")
    scores = [
        model.fit(split(points), split(labels)).score(points, labels) for _ in range(20)
    ]
    assert model.privacy_.is_private
    assert model.privacy_.epsilon <= 2.0
    assert exact - float(np.median(scores)) < 0.01


def test_without_noise_it_is_gaussian_naive_bayes() -> None:
    points, labels = overlapping()
    own = FederatedNaiveBayes(4, epsilon=NOWHERE, bounds=BOUNDS, **SEEDED)
    own.fit(split(points), split(labels))
    theirs = GaussianNB().fit(points, labels)
    np.testing.assert_allclose(own.theta_, theirs.theta_, atol=0.02)
    np.testing.assert_allclose(own.var_, theirs.var_, rtol=0.05)
    np.testing.assert_allclose(own.class_prior_, theirs.class_prior_, atol=5e-3)
    assert np.mean(own.predict(points) == theirs.predict(points)) > 0.99
    # Rows beyond the bounds are clipped here and not there, so single ones may differ.
    assert (
        np.quantile(
            np.abs(own.predict_proba(points) - theirs.predict_proba(points)), 0.99
        )
        < 0.02
    )


def test_without_noise_tables_are_those_of_categorical_naive_bayes() -> None:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, 900)
    codes = np.stack(
        [generator.integers(0, 2 + labels), generator.integers(0, 3, 900)], axis=1
    )
    own = FederatedNaiveBayes(2, epsilon=NOWHERE, categories=(3, 3), engine="direct")
    own.fit(split(codes.astype(float)), split(labels))
    theirs = CategoricalNB(alpha=1.0, min_categories=3).fit(codes, labels)
    chances = np.exp(np.concatenate(theirs.feature_log_prob_, axis=1))
    assert own.chances_ is not None
    np.testing.assert_allclose(own.chances_, chances, atol=0.01)
    assert own.theta_ is None
    np.testing.assert_allclose(
        own.predict_proba(codes.astype(float)), theirs.predict_proba(codes), atol=0.02
    )


def test_rows_beyond_bounds_and_categories_that_there_are_not_are_said() -> None:
    """Codes from 1 on were taken for others, 1.5 for 2, and 7 for the last one."""
    labels, codes = np.tile([0, 1], 150), np.tile([[1.0], [2.0], [3.0]], (100, 1))
    numbers = FederatedNaiveBayes(2, epsilon=NOWHERE, bounds=(0, 2), engine="direct")
    for _ in range(2):  # at each of two fits
        with pytest.warns(
            PrivacyWarning, match="lie outside the bounds of column 0"
        ) as told:
            numbers.fit(split(codes), split(labels))
        assert {Path(one.filename).name for one in told} == {Path(__file__).name}
    assert not any("outside" in sentence for sentence in numbers.privacy_.warnings)
    model = FederatedNaiveBayes(2, epsilon=NOWHERE, categories=(3,), engine="direct")
    for wrong, cell in ((codes, "3"), (codes - 1.5, "-0.5"), (codes - 0.5, "0.5")):
        with pytest.raises(
            DataError,
            match=(
                f"X has {cell} in column 0, whose categories are 0 to 2: code them so"
            ),
        ):
            model.fit(iter(split(wrong)), split(labels))
    assert not hasattr(model, "privacy_")
    model.fit(iter(split(codes - 1.0)), split(labels))
    with pytest.raises(DataError, match="whose categories are 0 to 2: code them so"):
        model.predict(codes)
    assert len(model.predict(codes[codes < 3.0][:, None])) == 200
    with pytest.warns(PrivacyWarning, match="lie outside the bounds of column 0"):
        federate(
            "moments", split(codes), bounds=(0, 1), epsilon=NOWHERE, engine="direct"
        )


# -- by hand ---------------------------------------------------------------------------


def test_cells_by_hand() -> None:
    """A column of numbers and one of three categories."""
    plan = plan_of(classes=2, categories=(0, 3), bounds=((-1.0, 0.0), (1.0, 2.0)))
    (step,) = build_algorithm(plan).rounds
    points = np.array([[0.5, -1.0], [0.25, 0.0], [-0.5, 1.0], [1.0, 1.0]])
    rows, sums, squares, cells = step.arrays_of(
        points, State({}), np.array([0, 0, 1, 7])
    )
    assert rows.tolist() == [2.0, 1.0]
    assert sums.tolist() == [[0.75], [-0.5]]
    assert squares.tolist() == [[0.25 - 0.5 + 0.0625 - 0.5], [-0.25]]
    assert cells.tolist() == [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert step.arrays_of(points, State({}))[0].tolist() == [0.0, 0.0]


def test_smoothing_by_hand() -> None:
    """Three rows of one class, none of the other."""
    plan = plan_of(classes=2, categories=(2,), bounds=((0.0,), (1.0,)), n_features=1)
    state = State(
        {"rows": np.array([3.0, -0.4]), "cells": np.array([[2.0, 1.0], [0.0, 0.0]])}
    )
    found = plan.task.result(plan, state)
    assert found["class_prior"].tolist() == [0.8, 0.2]
    assert found["chances"].tolist() == [[0.6, 0.4], [0.5, 0.5]]


def test_variances_are_kept_apart_as_far_as_they_differ_by_more_than_noise() -> None:
    variances, rows = np.array([[0.1], [0.3]]), np.array([100.0, 100.0])
    # The differences are 0.01, of which noise of 0.05 explains a quarter.
    pulled, left = pulled_together(variances, rows, np.full((2, 1), 0.05))
    np.testing.assert_allclose(pulled, [[0.125], [0.275]])
    # Three quarters of its own noise, and a quarter of that of the mean of two.
    np.testing.assert_allclose(left, 0.05 * math.hypot(0.75, 0.25 / math.sqrt(2.0)))


@pytest.mark.parametrize("noisy", [-0.05, -0.001, 0.0, 0.004, 0.03, 0.2, 0.81])
@pytest.mark.parametrize("noise", [0.0005, 0.01, 0.3])
def test_a_likely_variance_is_the_posterior_mean_under_two_exponential_priors(
    noisy: float, noise: float
) -> None:
    """By trapezoids: nine tenths have the mean 0.02, one tenth 0.3."""
    sizes = np.linspace(0.0, max(noisy, 0.0) + 12.0 * noise, 400_001)
    prior = 0.9 / 0.02 * np.exp(-sizes / 0.02) + 0.1 / 0.3 * np.exp(-sizes / 0.3)
    logs = -0.5 * ((noisy - sizes) / noise) ** 2
    chances = np.exp(logs - logs.max()) * prior
    expected = np.trapezoid(chances * sizes, sizes) / np.trapezoid(chances, sizes)
    assert likely_variances(np.array([noisy]), np.array([noise]))[0] == pytest.approx(
        expected, rel=2e-3
    )


def test_a_broad_variance_that_stands_out_is_hardly_shrunk() -> None:
    """Under the narrow prior alone 0.81, five deviations from none, became 0.05."""
    assert 0.7 < likely_variances(np.array([0.81]), np.array([0.15]))[0] < 0.81


def test_without_noise_a_variance_is_what_it_is() -> None:
    assert likely_variances(
        np.array([0.25, 0.0, -0.125]), np.zeros(3)
    ).tolist() == pytest.approx([0.25, 0.0, 0.0])


def test_no_class_takes_hardly_a_row_because_noise_made_its_variance_small() -> None:
    """Three classes of 500 rows six deviations apart, in bounds of thirty."""
    accuracies = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        labels = generator.integers(0, 3, 1500)
        points = generator.normal(20.0 + 25.0 * labels, 4.0)[:, None]
        model = FederatedNaiveBayes(
            3, epsilon=2.0, bounds=(0, 120), **SEEDED | {"random_state": seed}
        )
        accuracies.append(model.fit(split(points), split(labels)).score(points, labels))
    assert min(accuracies) > 0.95


def test_classes_that_are_mostly_noise_are_warned_of() -> None:
    """Labels that are no class anywhere, such as text, leave noise alone."""
    points, labels = overlapping()
    with pytest.warns(
        PrivacyWarning, match=r"3 of 4 groups are mostly noise \(number 1, 2, 3\)"
    ):
        FederatedNaiveBayes(4, epsilon=1.0, bounds=BOUNDS, **SEEDED).fit(
            split(points), split(labels * 0)
        )


# -- privacy ---------------------------------------------------------------------------


def test_a_row_moves_no_array_by_more_than_its_bound_and_half_of_one_is_refused() -> (
    None
):
    plan = plan_of(
        classes=3,
        categories=(0, 0, 4),
        bounds=((-1.0, -1.0, 0.0), (1.0, 1.0, 3.0)),
        n_features=3,
    )
    (step,) = build_algorithm(plan).rounds

    def statistic(rows: Array) -> Any:
        # The label travels as a fourth column here, so that neighbours differ in a row
        # and its label.
        labels = np.rint((rows[:, 3] + 1.0) * 1.5).astype(np.int64)
        return step.arrays_of(rows[:, :3], State({}), labels)

    found = check_sensitivity(step.blocks, statistic, 4)
    assert set(found) == {"group_counts", "group_sums", "group_squares", "cells"}
    assert min(found.values()) > 0.99
    for place, block in enumerate(step.blocks):
        half = replace(
            block,
            sensitivity=replace(block.sensitivity, bound=block.sensitivity.bound / 2.0),
        )
        with pytest.raises(PlanError, match=f"'{block.name}' moves by"):
            check_sensitivity(
                [*step.blocks[:place], half, *step.blocks[place + 1 :]], statistic, 4
            )


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("engine", ["direct", "inprocess"])
def test_every_trust_model_and_engine_runs_to_the_report(
    engine: str, trust: str
) -> None:
    points, labels = overlapping()
    model = FederatedNaiveBayes(
        4, epsilon=2.0, bounds=BOUNDS, engine=engine, trust=trust
    )
    model.fit(split(points), split(labels))
    assert model.score(points, labels) > 0.8
    report = model.privacy_
    assert report.is_private
    assert report.trust == trust
    assert report.epsilon == pytest.approx(2.0, rel=1e-3)
    assert [line.array for line in report.releases] == [
        "group_counts",
        "group_sums",
        "group_squares",
    ]
    assert any(
        "The number of label classes, 4, is public knowledge" in line
        for line in report.assumptions
    )


def test_equal_seeds_give_equal_models_with_messages_and_without() -> None:
    points, labels = overlapping()
    arguments: dict[str, Any] = {
        "epsilon": 2.0, "bounds": BOUNDS, "noise": "seeded", "random_state": 3,
    }  # fmt: skip
    models = [
        FederatedNaiveBayes(4, engine=engine, trust="central", **arguments).fit(
            split(points), split(labels)
        )
        for engine in ("direct", "inprocess")
    ]
    np.testing.assert_array_equal(models[0].theta_, models[1].theta_)
    np.testing.assert_array_equal(models[0].var_, models[1].var_)


def test_the_plan_travels_and_is_verified_with_its_options() -> None:
    plan = plan_of(classes=2, categories=(0, 3), bounds=((-1.0, 0.0), (1.0, 2.0)))
    again = load_plan(dump_plan(plan))
    assert again == plan
    verify_plan(again)
    assert plan.task.admits(plan, None, State({"rows": np.zeros(2)})) is False
    assert (
        plan.task.admits(
            plan, build_algorithm(plan).rounds[0], State({"rows": np.zeros(2)})
        )
        is False
    )


def test_a_client_without_labels_refuses_the_plan() -> None:
    from flwr_dpkmeans.errors import RefusalError
    from flwr_dpkmeans.sums.checks.columns import require_labels

    with pytest.raises(RefusalError, match="labels of 2 classes, but this client"):
        require_labels(plan_of(), has_labels=False)


# -- through Flower --------------------------------------------------------------------


def test_a_flower_run_writes_the_model_for_whoever_may_know_it(tmp_path: Path) -> None:
    from flwr_dpkmeans.flower.engines import node_of
    from flwr_dpkmeans.flower.in_process_grid import InProcessGrid

    points, labels = overlapping()
    clients = [
        KMeansClient(
            part,
            labels=own,
            output_dir=tmp_path / str(i),
            feature_names=[f"c{j}" for j in range(6)],
        )
        for i, (part, own) in enumerate(zip(split(points), split(labels), strict=True))
    ]
    strategy = PrivateKMeans(
        algorithm="naive_bayes", classes=4, bounds=BOUNDS, epsilon=2.0, trust="central"
    )
    grid = InProcessGrid([node_of(client) for client in clients], run_id=5)
    with grid.running():
        result = strategy.start(grid)
    assert result.arrays is not None
    theta = result.arrays["theta"].numpy()
    assert theta.shape == (4, 6)
    for i in range(3):
        with np.load(tmp_path / str(i) / "result.npz") as found:
            np.testing.assert_array_equal(found["theta"], theta)
        assert (tmp_path / str(i) / "privacy_report.json").is_file()
        assert not (tmp_path / str(i) / "centroids.npz").exists()


# -- conventions -----------------------------------------------------------------------


def test_scikit_learns_conventions() -> None:
    points, labels = overlapping()
    model = FederatedNaiveBayes(4, epsilon=2.0, bounds=BOUNDS, engine="direct")
    assert clone(model).get_params() == model.get_params()
    model.fit(split(points), split(labels))
    chances = model.predict_proba(points[:50])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(
        model.classes_[chances.argmax(axis=1)], model.predict(points[:50])
    )
    np.testing.assert_allclose(np.log(chances), model.predict_log_proba(points[:50]))
    assert model.score(points, labels) == np.mean(model.predict(points) == labels)


def test_columns_are_matched_by_name() -> None:
    import pandas as pd

    points, labels = overlapping()
    frames = [pd.DataFrame(part, columns=list("abcdef")) for part in split(points)]
    frames[1] = frames[1][list("fedcba")]
    model = FederatedNaiveBayes(4, epsilon=NOWHERE, bounds=BOUNDS, engine="direct").fit(
        frames, split(labels)
    )
    np.testing.assert_allclose(
        model.theta_, GaussianNB().fit(points, labels).theta_, atol=0.02
    )
    assert model.feature_names_in_.tolist() == list("abcdef")
    assert (
        model.score(
            pd.DataFrame(points, columns=list("abcdef"))[list("cabdef")], labels
        )
        > 0.85
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"n_classes": 1}, "classes is 1, but it must be an integer of at least 2"),
        ({"categories": (0, 1)}, r"categories is \(0, 1\), but it must have a whole"),
        ({"categories": (0, 0, 0)}, "categories has 3 entries, but the table has 2"),
        ({"engine": "ray"}, "engine is 'ray', which is not known"),
        ({"smoothing": -1.0}, "smoothing is -1.0"),
        ({"trust": "nobody"}, "nobody"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(
    values: dict[str, Any], sentence: str
) -> None:
    model = FederatedNaiveBayes(
        **{"n_classes": 2, "bounds": (-1.0, 1.0), "engine": "direct"} | values
    )
    with pytest.raises((ConfigurationError, PlanError), match=sentence):
        model.fit([np.zeros((5, 2))] * 2, [np.zeros(5, dtype=int)] * 2)


def test_categories_may_be_an_array() -> None:
    labels = np.tile([0, 1], 30)
    codes = np.stack([labels / 2.0, labels], axis=1)
    model = FederatedNaiveBayes(
        2, epsilon=NOWHERE, bounds=BOUNDS, categories=np.array([0, 2]), **SEEDED
    )
    assert (
        model.fit([codes, codes], [labels, labels]).predict(codes).tolist()
        == labels.tolist()
    )


def test_chances_that_are_far_apart_have_finite_logarithms() -> None:
    labels = np.tile([0, 1], 150)
    rows = np.where(labels == 0, -1.0, 1.0)[:, None]
    model = FederatedNaiveBayes(
        2, epsilon=NOWHERE, bounds=(-1, 1), engine="direct"
    ).fit(split(rows), split(labels))
    logarithms = model.predict_log_proba([[-1.0], [1.0]])
    assert (logarithms[0, 0], logarithms[1, 1]) == (0.0, 0.0)
    # How far apart they are is the noise's in the spreads, of which nothing else is
    # left.
    assert -1e9 < logarithms[0, 1] < -50.0
    with pytest.raises(DataError, match="but naive Bayes learns from labels"):
        model.fit(split(rows), None)  # type: ignore[arg-type]


def test_categories_have_their_own_bounds() -> None:
    with pytest.raises(ConfigurationError, match="column 1 has 3 categories"):
        plan_of(categories=(0, 3))


def test_labels_are_needed_where_they_are_looked_at_and_nowhere_else() -> None:
    parts = [np.zeros((5, 2))] * 2
    with pytest.raises(DataError, match="this task looks at labels, but none were"):
        federate("naive_bayes", parts, bounds=(-1, 1))
    with pytest.raises(DataError, match="this task looks at no labels, but labels"):
        federate("moments", parts, bounds=(-1, 1), labels=[np.zeros(5)] * 2)
    labels = [np.array([0, 0, 0, 0, 2])] * 2
    with pytest.raises(DataError, match=r"labels go from 0 to 2, .* declare classes"):
        federate("naive_bayes", parts, bounds=(-1, 1), labels=labels, classes=2)
    with pytest.raises(DataError, match="declare n_classes as large as they need"):
        federate(
            "proxy_lloyd", parts, bounds=(-1, 1), labels=labels, n_clusters=2,
            evaluation="private", n_classes=2,
        )  # fmt: skip


def test_it_is_no_clustering() -> None:
    with pytest.raises(ConfigurationError, match="which is no clustering"):
        FederatedKMeans(2, algorithm="naive_bayes", bounds=(-1.0, 1.0)).fit(
            [np.zeros((5, 2))] * 2
        )


@pytest.mark.parametrize("bounds", [None, "private", PrivateBounds()])
@pytest.mark.parametrize("categories", [None, (0, 2)])
def test_naive_bayes_takes_public_bounds_only(bounds: Any, categories: Any) -> None:
    parts, labels = [np.zeros((20, 2))] * 2, [np.zeros(20, dtype=int)] * 2
    with pytest.raises(ConfigurationError, match="does not find them by itself"):
        FederatedNaiveBayes(2, epsilon=1.0, bounds=bounds, categories=categories).fit(
            parts, labels
        )


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        ((), {"rows": (3,), "means": (3, 2), "deviations": (3, 2)}),
        (
            (0, 4),
            {"rows": (3,), "means": (3, 1), "deviations": (3, 1), "cells": (3, 4)},
        ),
        ((2, 4), {"rows": (3,), "cells": (3, 6)}),
    ],
)
def test_shapes_of_what_was_found(
    categories: tuple[int, ...], expected: dict[str, tuple[int, ...]]
) -> None:
    """Three classes and two columns: numbers, four categories, or two and four."""
    values: dict[str, Any] = {"categories": categories} if categories else {}
    bounds = ((0.0, 0.0), (1.0, 3.0))
    run = read_config(
        algorithm="naive_bayes", classes=3, bounds=bounds, n_examples=900, **values
    )
    assert run.task.shapes(2) == expected


@pytest.mark.parametrize(
    ("rows", "epsilon", "warned"),
    [(333, 1.0, True), (333, 2.0, True), (333, 4.0, False)],
)
def test_few_rows_in_a_class_are_warned_of(
    rows: int, epsilon: float, warned: bool
) -> None:
    plan = plan_of(classes=3, n_examples=rows, epsilon=epsilon, n_features=4)
    sentences = plan.task.cautions(plan)
    assert len(sentences) == warned
    if epsilon == 1.0:
        assert sentences[0].startswith(
            "For 333 rows in 3 classes, noise is about 7% of what one of them adds to a"
            " sum,"
        )


def test_the_warning_reaches_whoever_fits() -> None:
    points, labels = overlapping()
    model = FederatedNaiveBayes(4, epsilon=1.0, bounds=BOUNDS, engine="direct")
    with pytest.warns(PrivacyWarning, match="For 300 rows in 4 classes"):
        model.fit(split(points[:300]), split(labels[:300]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        model.fit(split(points), split(labels))


def test_classes_of_hardly_a_row_weigh_as_one_row() -> None:
    """Weights of 1, 1 and 3 give a mean of 0.48."""
    found, _ = pulled_together(
        np.array([[0.2], [0.4], [0.6]]),
        np.array([-5.0, 0.25, 3.0]),
        np.full((3, 1), 0.1),
    )
    kept = (0.0992 / 3.0 - 0.01) / (0.0992 / 3.0)
    assert found.ravel() == pytest.approx(
        [0.48 - 0.28 * kept, 0.48 - 0.08 * kept, 0.48 + 0.12 * kept]
    )


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        *[("0, 2,7", (0, 2, 7)), ([0, 2], (0, 2)), ((100_000,), (100_000,)), ((), ())],
        *[
            (np.array([0, 2]), (0, 2)),
            ([np.int32(0), 2], (0, 2)),
            (np.array([0.0, 2.0]), None),
        ],
        *[
            ((1,), None),
            ((-1,), None),
            ((100_001,), None),
            ((0, True), None),
            ((2.0,), None),
            ("2,x", None),
            (3, None),
        ],
    ],
)
def test_categories_that_are_taken(given: Any, taken: Any) -> None:
    (rule,) = [
        rule_of(one) for one in fields(NaiveBayesOptions) if one.name == "categories"
    ]
    if taken is None:
        with pytest.raises(ConfigurationError, match="it must have a whole number"):
            rule.take("categories", given)
    else:
        assert rule.take("categories", given) == taken
        assert {type(one) for one in rule.take("categories", given)} <= {int}


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        # 25 classes of 4,000 categories are 100,000 cells.
        (
            {
                "classes": 25,
                "categories": (0, 4000),
                "bounds": ((-1.0, 0.0), (1.0, 3999.0)),
            },
            None,
        ),
        (
            {
                "classes": 26,
                "categories": (0, 4000),
                "bounds": ((-1.0, 0.0), (1.0, 3999.0)),
            },
            "a table of 104000 cells",
        ),
        ({"categories": (2, 2), "bounds": ((0.0,), (1.0,))}, None),
        ({"categories": (2, 3), "bounds": ((0.0,), (1.0,))},
         "column 1 has 3 categories, but bounds from 0 to 1"),
        ({"categories": (0, 3), "bounds": ((5.0, 1.0), (6.0, 2.0))},
         "column 1 has 3 categories, but bounds from 1"),
        ({"categories": (0, 3), "bounds": ((5.0, 0.0), (6.0, 3.0))},
         "column 1 has 3 categories, but bounds from 0"),
    ],
)  # fmt: skip
def test_tables_of_categories_that_are_taken(
    values: dict[str, Any], refused: str | None
) -> None:
    def check() -> None:
        run = read_config(algorithm="naive_bayes", n_examples=900, **values)
        run.task.check(run.settings)

    if refused is None:
        check()
    else:
        with pytest.raises(ConfigurationError, match=refused):
            check()


def test_a_model_of_numbers_and_categories_by_hand() -> None:
    """Two columns of numbers around one of three categories."""
    plan = plan_of(
        classes=2, categories=(0, 3, 0), bounds=((-1.0, 0.0, 0.0), (1.0, 2.0, 8.0)),
        n_features=3, least_deviation=0.25, smoothing=0.5,
    )  # fmt: skip
    (step,), (planned,) = build_algorithm(plan).rounds, plan.rounds
    assert [one.name for one in planned.blocks] == [
        "group_counts", "group_sums", "group_squares", "cells",
    ]  # fmt: skip
    assert planned.blocks[3].shape == (2, 3)
    assert (planned.blocks[3].sensitivity.bound, planned.blocks[3].entry_bound) == (
        1.0,
        1.0,
    )
    assert planned.blocks[3].sensitivity.nonnegative
    arrays = [
        [4.0, 12.0],
        [[1.0, -2.0], [6.0, 0.0]],
        [[2.0, 2.0], [-6.0, -6.0]],
        [[3.0, 1.0, -2.0], [1.5, 1.5, 8.5]],
    ]
    steps = np.ldexp(
        np.concatenate([np.ravel(one) for one in arrays]), plan.fraction_bits
    ).astype(np.int64)
    state = step.advance(
        State({}),
        as_released(steps.view(np.uint64), planned.blocks, plan.fraction_bits),
    )
    assert state["rows"].tolist() == [4.0, 12.0]
    assert state["means"].tolist() == [[0.25, -0.5], [0.5, 0.0]]
    assert state["deviations"].min() >= 0.25
    assert state["cells"].tolist() == [[3.0, 1.0, 0.0], [1.5, 1.5, 8.5]]


def test_the_noise_in_a_variance_is_that_of_its_squares_and_of_its_mean() -> None:
    """Of sums it counts twice the mean; of a class of half a row as of one row."""
    plan = plan_of(classes=2, n_features=1, epsilon=40.0)
    (step,), (planned,) = build_algorithm(plan).rounds, plan.rounds
    std = {one.name: one.noise_scale for one in planned.blocks}
    rows, means, variances = (
        np.array([0.5, 64.0]),
        np.array([[0.5], [-0.5]]),
        np.array([[0.75], [0.125]]),
    )
    sums, squares = (
        means * [[1.0], [64.0]],
        (variances + means**2 - 0.5) * [[1.0], [64.0]],
    )
    steps = np.ldexp(
        np.concatenate([np.ravel(one) for one in (rows, sums, squares)]),
        plan.fraction_bits,
    )
    released = as_released(
        steps.astype(np.int64).view(np.uint64), planned.blocks, plan.fraction_bits
    )
    noise = math.hypot(std["group_squares"], 2.0 * 0.5 * std["group_sums"]) / np.array(
        [[1.0], [64.0]]
    )
    expected = likely_variances(*pulled_together(variances, rows, noise))
    assert 0.01 < abs(expected[0, 0] - expected[1, 0]) < 0.6
    expected = expected + (std["group_sums"] / np.array([[1.0], [64.0]])) ** 2
    assert step.advance(State({}), released)["deviations"] == pytest.approx(
        np.sqrt(expected), abs=2.0**-16
    )
