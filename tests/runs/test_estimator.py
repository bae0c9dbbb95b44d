"""`FederatedKMeans`: scikit-learn's conventions, the caller's units, and the sentences
for bad input.
"""

from __future__ import annotations

import functools
import logging
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from support.quiet_grid import forbid_messages

from flwr_dpkmeans import (
    Auto,
    ClientLevel,
    Cohort,
    DPKMeans,
    DPNaiveBayes,
    Evaluation,
    ExactEvaluation,
    FastLloyd,
    FastLloydOptions,
    FedDPKMeansOptions,
    FederatedKMeans,
    FederatedNaiveBayes,
    PrivateBounds,
    PrivateCount,
    PrivateKMeans,
    ProxyLloydOptions,
    SecureSum,
    federate,
)
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    DPKMeansError,
    PlanError,
    PrivacyWarning,
    warn_once,
)
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.kernels.grid import round_to_grid

Floats = NDArray[np.float64]


def blobs(sizes: tuple[int, ...] = (300, 200, 250), seed: int = 0) -> list[Floats]:
    """Three blobs in [-1, 1]^2, some of each with every client."""
    generator = np.random.default_rng(seed)
    centers = np.array([[-0.5, -0.5], [0.5, -0.4], [0.0, 0.6]])
    return [
        centers[generator.integers(0, 3, n)] + generator.normal(0, 0.08, (n, 2))
        for n in sizes
    ]


def model(**values: Any) -> FederatedKMeans:
    settings = {
        "n_clusters": 3,
        "epsilon": 2.0,
        "bounds": (-1.0, 1.0),
        "noise": "seeded",
        "random_state": 4,
    }
    return FederatedKMeans(**(settings | values))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted() -> FederatedKMeans:
    return model().fit(blobs())


# -- scikit-learn's conventions --------------------------------------------------------


def test_constructor_only_stores() -> None:
    odd = {
        "n_clusters": "many",
        "epsilon": -1,
        "bounds": "x",
        "trust": 3,
        "noise": None,
        "server_data": [1],
    }
    km = FederatedKMeans(**odd)  # type: ignore[arg-type]
    for name, value in odd.items():
        assert getattr(km, name) is value
    assert set(vars(km)) == set(km.get_params())


def test_clone_and_params() -> None:
    km = model(bounds=((0, 0), (1, 2)), max_iter=3)
    twin = clone(km)
    assert twin is not km
    assert twin.get_params() == km.get_params()
    assert twin.get_params()["max_iter"] == 3
    assert twin.set_params(epsilon=0.5, trust="central") is twin
    assert (twin.epsilon, twin.trust, km.epsilon) == (0.5, "central", 2.0)
    with pytest.raises(ValueError, match="Invalid parameter 'eps'"):
        twin.set_params(eps=1)


OBJECTS: dict[str, Any] = {
    "n_clusters": Auto(4),
    "algorithm": FedDPKMeansOptions(n_init=3, budget_shares=[0.2, 0.2, 0.4, 0.2]),
    "unit": ClientLevel(examples_per_client=20, sampling_rate=1),
    "bounds": PrivateBounds(domain=((0, 0), (1, 2))),
    "n_examples": PrivateCount(share=0.1),
    "evaluation": Evaluation(n_classes=3, radius=0.5),
    "cohort": Cohort(max_silent=1, dropout="retry"),
}


def test_objects_are_cloned_and_their_options_are_parameters() -> None:
    km = FederatedKMeans(**OBJECTS)
    twin = clone(km)
    assert twin.get_params() == km.get_params()
    assert twin.get_params()["cohort__max_silent"] == 1
    twin.set_params(
        algorithm__n_init=5,
        unit__sampling_rate=0.5,
        n_clusters__max_clusters=6,
        evaluation__n_classes=2,
    )
    assert (twin.algorithm.n_init, km.algorithm.n_init) == (5, 3)
    assert (twin.unit.sampling_rate, twin.n_clusters, twin.evaluation.n_classes) == (
        0.5,
        Auto(6),
        2,
    )
    assert twin.evaluation.radius == 0.5
    with pytest.raises(ConfigurationError, match="FedDPKMeansOptions has no option"):
        twin.set_params(algorithm__n_inti=5)
    with pytest.raises(ValueError, match="Invalid parameter 'eps'"):
        twin.set_params(eps__x=1)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"algorithm": "fastlloyd"}, {"algorithm": FastLloydOptions()}),
        ({"bounds": "private"}, {"bounds": PrivateBounds()}),
        ({"n_examples": "private"}, {"n_examples": PrivateCount()}),
        ({"unit": "client"}, {"unit": ClientLevel()}),
        ({"evaluation": "private"}, {"evaluation": Evaluation()}),
        ({"evaluation": "exact"}, {"evaluation": ExactEvaluation()}),
        ({"cohort": None}, {"cohort": Cohort()}),
    ],
)
def test_short_and_long_form_fit_alike(
    short: dict[str, Any], long: dict[str, Any]
) -> None:
    fits = [
        model(epsilon=20.0, engine="direct", **form).fit(blobs())
        for form in (short, long)
    ]
    assert np.array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    assert fits[0].privacy_.releases == fits[1].privacy_.releases


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("alpha", 0.6, "give algorithm=FastLloydOptions(alpha=0.6)."),
        ("n_init", 4, "leave it out, or give algorithm=ProxyLloydOptions(n_init=5)."),
        ("n_levels", 4, "and then set_params(algorithm__n_levels=4)."),
        ("init", [[0.0]], "methods start by themselves, or from public server_data"),
        ("X_init", [[0.0]], "methods start by themselves, or from public server_data"),
        ("private_bounds", True, "give bounds='private' or bounds=PrivateBounds(share"),
        ("feature_names", ("a",), "give data frames, whose columns have names."),
        ("seed", 1, "the seed of what is public is random_state: give random_state=7."),
        ("k", 3, "the number of clusters is n_clusters: give n_clusters=10."),
        ("eps", 3, "the budget is epsilon: give epsilon=1.0."),
        ("copy_x", True, "tables are never changed: leave it out."),
        ("allow_unnamed", True, "matched by position where none of them has names."),
        ("alpah", 0.5, "and alpha is an option of some algorithms: give algorithm=Fa"),
        ("max_silent", 1, "give cohort=Cohort(max_silent=1)."),
        ("bounds_domain", (0, 1), "give bounds=PrivateBounds(domain=(0, 1))."),
        ("epsilom", 1.0, "there is no parameter 'epsilom': did you mean 'epsilon'?"),
    ],
)
def test_an_argument_that_moved_says_where_to(
    name: str, value: object, mend: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(mend)) as caught:
        FederatedKMeans(3, **{name: value})  # type: ignore[arg-type]
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "name", ["verbose", "n_jobs", "tol", "copy_x", "k", "eps", "n_init", "batch_size"]
)
def test_options_of_other_libraries_have_an_answer_at_every_door(name: str) -> None:
    doors = (
        lambda: FederatedKMeans(3, **{name: 1}),
        lambda: DPKMeans(3, **{name: 1}),
        lambda: FastLloyd(3, bounds=(-1, 1), **{name: 1}),
        lambda: strategy_from_run_config(
            {"n-clusters": 3, name.replace("_", "-"): True}, simulated=True
        ),
    )
    sentences = []
    for door in doors:
        # A run's configuration has a key verbose, for the log.
        try:
            door()
        except ConfigurationError as error:
            sentences.append(str(error))
    assert len(sentences) >= 3
    assert not any(
        "did you mean" in sentence or "choose one of" in sentence
        for sentence in sentences
    )


FOREIGN = ("k", "eps", "n_init", "verbose", "n_jobs", "tol", "copy_x", "init", "clip")
OF_OTHER_DOORS = r"n_clusters|tolerance|[A-Z]\w+Options|server_data|max_iter|'clip'"


@pytest.mark.parametrize("name", FOREIGN)
def test_a_door_without_clusters_suggests_nothing_of_clusterings(name: str) -> None:
    zeros = ArrayRecord([np.zeros(2)])
    doors: list[Callable[..., object]] = [
        lambda **given: DPNaiveBayes(bounds=(-1, 1), **given),
        lambda **given: FederatedNaiveBayes(bounds=(-1, 1), **given),
        lambda **given: federate("moments", blobs(), bounds=(-1, 1), **given),
    ]
    if name != "clip":
        doors.append(lambda **given: SecureSum(zeros, **given))
    for door in doors:
        with pytest.raises(ConfigurationError) as caught:
            door(**{name: 1})
        sentence = str(caught.value)
        assert f"{name!r}" in sentence or sentence.startswith(f"{name} is 1, but")
        if name in ("verbose", "n_jobs", "copy_x", "eps"):
            assert ", as " in sentence
        if ", as " in sentence or "did you mean" in sentence:
            assert not re.search(OF_OTHER_DOORS, sentence.partition(":")[2])


def test_an_unknown_algorithm_is_answered_with_those_of_the_door() -> None:
    doors: dict[str, Callable[[], object]] = {
        "moments": lambda: FederatedKMeans(3, algorithm="zz").fit(blobs()),
        "radii": lambda: DPKMeans(3, algorithm="zz", bounds=(-1, 1)).fit(blobs()[0]),
        "balcan": lambda: PrivateKMeans(3, algorithm="zz", bounds=(-1, 1)),
        "optimal": lambda: federate("zz", blobs(), bounds=(-1, 1)),
    }
    for other, door in doors.items():
        with pytest.raises(ConfigurationError, match="not known: choose one") as caught:
            door()
        assert "'proxy_lloyd'" in str(caught.value)
        assert other not in str(caught.value)


def test_rounds_without_a_limit_are_refused() -> None:
    three: dict[str, Any] = {"n_clusters": 3, "bounds": (-1, 1)}
    for door in (
        lambda: FederatedKMeans(3, bounds=(-1, 1), max_iter=-1).fit(blobs()),
        lambda: FastLloyd(3, bounds=(-1, 1), max_iter=-1),
        lambda: ProxyLloydOptions(max_iter=-1),
        lambda: federate("proxy_lloyd", blobs(), **three, max_iter=-1),
        lambda: SecureSum(ArrayRecord([np.zeros(2)]), max_iter=-1),
        lambda: strategy_from_run_config(
            {"n-clusters": 3, "bounds": "0,1", "max-iter": -1}, simulated=True
        ),
    ):
        with pytest.raises(ConfigurationError, match="max_iter is -1, but each round"):
            door()


@pytest.mark.parametrize("n_clusters", [3.0, "3", 2.5])
def test_a_number_of_clusters_is_an_integer(n_clusters: Any) -> None:
    with pytest.raises(ConfigurationError, match="but it must be an integer or 'auto'"):
        FederatedKMeans(n_clusters, bounds=(-1, 1)).fit(blobs())


def test_a_table_without_rows_is_not_predicted() -> None:
    km = model().fit([*blobs(), np.empty((0, 2))])
    for method in (km.predict, km.transform):
        with pytest.raises(DataError, match="X has 0 rows, but at least 1 is needed"):
            method(np.empty((0, 2)))
    # A party may have none.
    assert [
        len(labels) for labels in model().fit_predict([*blobs(), np.empty((0, 2))])
    ][-1] == 0


def test_a_random_state_is_what_scikit_learn_takes() -> None:
    def centers(random_state: Any) -> Any:
        return (
            DPKMeans(3, bounds=(-2, 2), noise="seeded", random_state=random_state)
            .fit(blobs()[0])
            .cluster_centers_
        )

    for make in (np.random.RandomState, np.random.default_rng):
        assert np.array_equal(centers(make(3)), centers(make(3)))
        generator = make(3)
        assert not np.array_equal(centers(generator), centers(generator))
    assert np.array_equal(centers(5), centers(np.int64(5)))
    model_of = DPKMeans(3, random_state=np.random.RandomState(3))
    assert clone(model_of).random_state.randint(100) == np.random.RandomState(
        3
    ).randint(100)


@pytest.mark.parametrize(
    ("values", "start"),
    [
        ({"unit": Cohort()}, "unit is Cohort(min_clients=2, "),
        ({"bounds": FastLloydOptions()}, "bounds is FastLloydOptions(max_iter=None, "),
        ({"cohort": "large"}, "cohort is 'large', but it must be a Cohort"),
        (
            {"algorithm": FastLloydOptions(max_iter=3), "max_iter": 4},
            "max_iter is 4, but algorithm=FastLloydOptions(",
        ),
    ],
)
def test_objects_in_the_wrong_place_are_refused(
    values: dict[str, Any], start: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        model(**values).fit(blobs())
    assert str(caught.value).startswith(start)


def test_max_iter_may_stand_in_either_place() -> None:
    options: list[dict[str, Any]] = [
        {"max_iter": 3, "algorithm": "fastlloyd"},
        {"algorithm": FastLloydOptions(max_iter=3)},
        {"max_iter": 3, "algorithm": FastLloydOptions()},
        {"max_iter": 3, "algorithm": FastLloydOptions(max_iter=3)},
    ]
    assert [
        model(engine="direct", **each).fit(blobs()).n_iter_ for each in options
    ] == [3] * 4


def test_clone_of_a_fitted_one_is_not_fitted(fitted: FederatedKMeans) -> None:
    twin = clone(fitted)
    assert not [name for name in vars(twin) if name.endswith("_")]
    for call in (twin.predict, twin.transform, twin.score):
        with pytest.raises(NotFittedError):
            call(np.zeros((1, 2)))


def test_fit_returns_itself_and_leaves_parameters_and_data_alone() -> None:
    parts = blobs()
    before = [part.copy() for part in parts]
    km = model()
    params = km.get_params()
    assert km.fit(parts, y=[1, 2]) is km
    assert km.get_params() == params
    assert all(
        np.array_equal(part, kept) for part, kept in zip(parts, before, strict=True)
    )


@pytest.mark.parametrize(
    ("noise", "seed", "repeats"),
    [("seeded", 4, True), ("seeded", None, False), ("secure", 4, False)],
)
def test_only_seeded_noise_with_a_seed_repeats(
    noise: str, seed: int | None, repeats: bool
) -> None:
    assert (
        model(noise=noise, random_state=seed).__sklearn_tags__().non_deterministic
        is not repeats
    )


def test_attributes(fitted: FederatedKMeans) -> None:
    assert fitted.cluster_centers_.shape == (3, 2)
    assert fitted.cluster_counts_.sum() == pytest.approx(750, abs=150)
    assert fitted.n_features_in_ == 2
    assert (fitted.schema_, fitted.profile_) == (None, None)
    report = fitted.privacy_
    assert 0.999 * 2.0 <= report.epsilon <= 2.0
    assert report.delta == pytest.approx(1.0 / (750 * math.log(750)))
    assert (report.n_examples, report.n_examples_source) == (750, "declared public")
    assert (report.unit, report.trust) == ("record", "oblivious")
    assert report.n_clients == 3


@pytest.mark.parametrize(
    ("algorithm", "n_before"), [("proxy_lloyd", 5), ("fastlloyd", 0)]
)
def test_history_has_one_entry_for_each_aggregation(
    algorithm: str, n_before: int
) -> None:
    km = model(algorithm=algorithm).fit(blobs())
    assert 2 <= km.n_iter_ <= 7
    rounds = [entry["round"] for entry in km.history_]
    assert rounds == list(range(1, n_before + km.n_iter_ + 1))
    costs = [entry["epsilon"] for entry in km.history_]
    assert costs == sorted(costs)
    assert costs[-1] == km.privacy_.epsilon
    movements = [entry["movement"] for entry in km.history_]
    assert movements[:n_before] == [None] * n_before
    assert min(movements[n_before:]) >= 0.0
    for entry in km.history_:
        lines = [
            line for line in km.privacy_.releases if line.round_index == entry["round"]
        ]
        assert entry["name"] == lines[0].round_name
        assert entry["radius"] == lines[0].radius
        assert all(entry[f"noise_{line.array}"] == line.noise_scale for line in lines)
    shorter = model(algorithm=algorithm, max_iter=3).fit(blobs())
    assert (shorter.n_iter_, len(shorter.history_)) == (3, n_before + 3)


def test_history_of_what_adds_no_noise_costs_infinitely_much() -> None:
    assert {
        entry["epsilon"] for entry in model(algorithm="lloyd").fit(blobs()).history_
    } == {math.inf}


def test_centers_find_the_blobs(fitted: FederatedKMeans) -> None:
    centers = fitted.cluster_centers_[np.argsort(fitted.cluster_centers_[:, 0])]
    assert centers == pytest.approx(
        np.array([[-0.5, -0.5], [0.0, 0.6], [0.5, -0.4]]), abs=0.25
    )


# -- what a fit leaves -----------------------------------------------------------------


@functools.cache
def oblivious(algorithm: str) -> FederatedKMeans:
    return model(algorithm=algorithm, trust="oblivious").fit(blobs())


@pytest.mark.sample(5)
@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd", "glloyd", "lloyd"])
def test_every_trust_model(algorithm: str, trust: str) -> None:
    """The server's seeded noise is the same wherever the server adds it."""
    km = model(algorithm=algorithm, trust=trust).fit(blobs())
    assert km.privacy_.trust == trust
    assert np.abs(km.cluster_centers_).max() <= 1.0
    same = oblivious(algorithm)
    equal = np.array_equal(km.cluster_centers_, same.cluster_centers_)
    assert equal is (trust != "distributed" or algorithm == "lloyd")


def test_an_empty_part_is_fine() -> None:
    km = model().fit([*blobs(), np.empty((0, 2))])
    assert km.privacy_.n_clients == 4
    assert km.privacy_.n_examples == 750


def test_fewer_points_than_clusters_on_one_client_are_fine() -> None:
    assert model().fit([blobs()[0], np.zeros((1, 2))]).cluster_centers_.shape == (3, 2)


def test_parts_may_be_any_sequence_of_tables() -> None:
    parts = blobs()
    expected = model().fit(parts).cluster_centers_
    ragged = np.empty(3, dtype=object)
    ragged[:] = parts
    lists = [part.tolist() for part in parts]
    for same in (tuple(parts), iter(parts), lists, ragged):
        assert np.array_equal(model().fit(same).cluster_centers_, expected)
    cube = np.stack([part[:100] for part in parts])
    assert model().fit(cube).privacy_.n_clients == 3


# -- predict, transform, score equal numpy ---------------------------------------------

SCALES = {
    "unit box": ((-1.0, 1.0), 1.0, 0.0),
    "tiny values": ((-1e-6, 1e-6), 1e-6, 0.0),
    "far from zero": ((1e8 - 1, 1e8 + 1), 1.0, 1e8),
    "large values": ((-1e12, 1e12), 1e12, 0.0),
}


@pytest.mark.parametrize("name", SCALES)
def test_predict_transform_and_score_equal_numpy(name: str) -> None:
    bounds, factor, offset = SCALES[name]
    parts = [part * factor + offset for part in blobs()]
    km = model(bounds=bounds).fit(parts)
    rows, box = np.concatenate(parts), Bounds(*km.bounds_)
    seen, centers = round_to_grid(box.scale(rows)), box.scale(km.cluster_centers_)
    distances = np.sqrt(((seen[:, None] - centers[None]) ** 2).sum(axis=2))
    # Far from zero, the centroids in the caller's units are rounded to some 1e-8.
    assert np.array_equal(km.predict(rows), distances.argmin(axis=1))
    assert km.predict(rows).dtype == np.int64
    assert km.transform(rows) == pytest.approx(distances, abs=1e-7)
    # Not rounded to the grid, as in the clustering.
    cost = factor**2 * (distances.min(axis=1) ** 2).sum()
    assert km.score(rows) == pytest.approx(-cost, rel=1e-4)
    assert km.score(rows, y=3) == km.score(rows)
    # Rows outside the bounds count as the nearest ones inside, as in the clustering.
    far = offset + 1000 * (rows - offset)
    assert np.array_equal(
        km.predict(far), km.predict(offset + np.clip(far - offset, -factor, factor))
    )


def test_one_cluster_predicts_zero() -> None:
    km = model(n_clusters=1).fit(blobs())
    assert km.predict(blobs()[0]).tolist() == [0] * 300


@pytest.mark.parametrize("method", ["fit_predict", "fit_transform"])
def test_what_needs_tables_afterwards_spends_nothing_without_them(method: str) -> None:
    """There was nothing to predict after a fit."""
    km = model()
    for given in ({}, {"clients": lambda place: blobs()[place], "n_clients": 3}):
        with pytest.raises(DataError, match="but its tables are what is predicted"):
            getattr(km, method)(None, **given)
        with pytest.raises(DataError, match="and then predict for each table"):
            getattr(km, method)(**given)
    assert not hasattr(km, "privacy_")


def test_centers_are_in_the_callers_units_with_bounds_for_each_feature() -> None:
    lower, upper = np.array([100.0, -5.0]), np.array([300.0, 0.0])
    parts = [lower + (part + 1) / 2 * (upper - lower) for part in blobs()]
    km = model(bounds=(lower, upper)).fit(parts)
    plain = model().fit(blobs())
    assert km.cluster_centers_ == pytest.approx(
        lower + (plain.cluster_centers_ + 1) / 2 * (upper - lower), abs=0.01
    )
    assert (km.cluster_centers_ >= lower).all()
    assert (km.cluster_centers_ <= upper).all()


def test_one_cluster_without_noise_is_the_mean_in_the_callers_units() -> None:
    """Rounding to the grid moves a point by at most 2^-17 of half the range."""
    lower, upper = np.array([100.0, -5.0]), np.array([300.0, 0.0])
    parts = [lower + (part + 1) / 2 * (upper - lower) for part in blobs()]
    km = model(n_clusters=1, algorithm="lloyd", bounds=(lower, upper)).fit(parts)
    errors = km.cluster_centers_[0] - np.concatenate(parts).mean(axis=0)
    assert np.abs(errors).max() < 200 * 2.0**-16
    assert km.cluster_counts_.tolist() == [750.0]


def test_values_outside_the_bounds_are_clipped_and_only_the_client_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = blobs()
    parts[1][:60] = 50.0
    with caplog.at_level(logging.DEBUG, "flwr_dpkmeans"):
        km = model().fit(parts)
    assert np.abs(km.cluster_centers_).max() <= 1.0
    assert any("outside" in sentence for sentence in km.privacy_.warnings)
    # How many rows is a private number.
    assert "outside" not in str(km.history_) + caplog.text


# -- noise -----------------------------------------------------------------------------


def test_seeded_runs_repeat_and_depend_on_the_seed() -> None:
    first, again, other = (model(random_state=seed).fit(blobs()) for seed in (4, 4, 5))
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)
    assert np.array_equal(first.cluster_counts_, again.cluster_counts_)
    assert first.history_ == again.history_
    assert not np.array_equal(first.cluster_counts_, other.cluster_counts_)


def test_secure_noise_differs_between_runs_even_with_a_random_state() -> None:
    first, again = (model(noise="secure").fit(blobs()) for _ in range(2))
    assert not np.array_equal(first.cluster_counts_, again.cluster_counts_)
    assert first.privacy_.is_private
    assert first.privacy_.warnings == ()


def test_a_seeded_run_says_that_it_is_not_private() -> None:
    warn_once.cache_clear()
    with pytest.warns(PrivacyWarning, match="The noise comes from a seeded generator"):
        km = model().fit(blobs())
    assert not km.privacy_.is_private
    assert str(km.privacy_).startswith("NOT PRIVATE")


def test_lloyd_says_that_it_is_not_private() -> None:
    km = model(algorithm="lloyd", noise="secure").fit(blobs())
    assert km.privacy_.epsilon == math.inf
    assert not km.privacy_.is_private


# -- bad input: one sentence, and nothing was computed ---------------------------------


@pytest.fixture
def untouched() -> None:
    forbid_messages()


def with_bad_row(value: float) -> list[Floats]:
    parts = blobs()
    parts[1][17, 1] = value
    return parts


NAMES = [
    ("algorithm", "fastloyd", "did you mean 'fastlloyd'?"),
    ("trust", "centrall", "did you mean 'central'?"),
    ("noise", "secured", "did you mean 'secure'?"),
    ("unit", "row", "choose one of 'client', 'person', 'record'."),
    ("engine", "in-process", "did you mean 'inprocess'?"),
    ("schedule", "stepp", "did you mean 'step'?"),
    ("post_processing", "trunc", "did you mean 'truncate'?"),
    ("packing", "halves", "did you mean 'halve'?"),
]
PARAMETERS = [
    (
        {"n_clusters": 0},
        "n_clusters is 0, but it must be an integer of at least 1: give 10.",
    ),
    (
        {"n_clusters": -2},
        "n_clusters is -2, but it must be an integer of at least 1: give 10.",
    ),
    (
        {"n_clusters": 2.5},
        "n_clusters is 2.5, but it must be an integer or 'auto': give 10.",
    ),
    (
        {"epsilon": 0},
        "epsilon is 0.0, but it must be a finite number greater than 0: give 1.0.",
    ),
    (
        {"epsilon": -1.0},
        "epsilon is -1.0, but it must be a finite number greater than 0: give 1.0.",
    ),
    (
        {"epsilon": math.inf},
        "epsilon is inf, but it must be a finite number greater than 0: give 1.0.",
    ),
    (
        {"max_iter": 0},
        "max_iter is 0, but it must be an integer of at least 1: give 5.",
    ),
    (
        {"random_state": -1},
        "random_state is -1, but it must be an integer of at least 0: give 7.",
    ),
    (
        {"delta": 0.01},
        (
            "delta is 0.01, but it must be below 1/N = 0.00133333 or a run may publish"
            " whole rows: leave delta unset for 1/(N ln N)."
        ),
    ),
    (
        {"bounds": (1.0, -1.0)},
        (
            "every feature has lower bound 1.0 and upper bound -1.0, but the lower one"
            " must be smaller: exchange the two."
        ),
    ),
    (
        {"bounds": ((0, 2), (1, 2))},
        (
            "feature 1 has lower bound 2.0 and upper bound 2.0, but the lower one must"
            " be smaller: widen the range around a constant value, or leave the feature"
            " out."
        ),
    ),
    (
        {"bounds": (-1.0, math.nan)},
        (
            "every feature has lower bound -1.0 and upper bound nan, but both must be"
            " finite: give the public range of the feature."
        ),
    ),
    (
        {"bounds": ((0, 0, 0), (1, 1, 1))},
        (
            "there are bounds for 3 features, but the table has 2: give one pair for"
            " all features or one pair for each."
        ),
    ),
    (
        {"unit": "client", "algorithm": "lloyd"},
        (
            "unit is 'client', but 'lloyd' protects 'record', 'person' only: choose"
            " unit='record', or the algorithm 'proxy_lloyd' for 'client'."
        ),
    ),
    (
        {"server_data": [[0.0, 0.0]], "algorithm": "fastlloyd"},
        (
            "server_data was given, but 'fastlloyd' starts without it: leave it out, or"
            " use 'proxy_lloyd'."
        ),
    ),
    (
        {"n_examples": "many"},
        (
            "n_examples is 'many', but it must be a number or 'private': give 1000, or"
            " leave it out."
        ),
    ),
    (
        {"n_examples": 2},
        (
            "n_examples is 2, but 3 clusters need at least as many rows: choose fewer"
            " clusters or add data."
        ),
    ),
    (
        {"n_examples": 16, "n_clusters": "auto", "trust": "distributed"},
        (
            "n_examples is 16, but 'auto' tries up to 20 clusters, which need as many"
            " rows: give Auto(10), or add data."
        ),
    ),
]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("name", "value", "hint"), NAMES)
def test_unknown_names_get_the_nearest_one(name: str, value: str, hint: str) -> None:
    own = name in ("schedule", "packing", "post_processing")
    given = (
        {"algorithm": "fastlloyd", f"algorithm__{name}": value}
        if own
        else {name: value}
    )
    with pytest.raises(ConfigurationError) as caught:
        model().set_params(**given).fit(blobs())
    assert str(caught.value) == f"{name} is {value!r}, which is not known: {hint}"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("values", "text"), PARAMETERS)
def test_bad_parameters_have_one_sentence(values: dict[str, Any], text: str) -> None:
    km = model(**values)
    with pytest.raises(ConfigurationError) as caught:
        km.fit(blobs())
    assert str(caught.value) == text
    assert not [name for name in vars(km) if name.endswith("_")]


@pytest.mark.usefixtures("untouched")
def test_laplace_shares_are_refused() -> None:
    with pytest.raises(PlanError, match="which the trust model 'distributed' cannot"):
        model(algorithm="sulloyd", trust="distributed").fit(blobs())


DATA = [
    (
        with_bad_row(math.nan),
        [
            "X[1]: the points have 1 rows with a missing or infinite value",
            "remove the rows",
        ],
    ),
    (
        with_bad_row(math.inf),
        ["X[1]: the points have 1 rows with a missing or infinite value", "(the first"],
    ),
    (with_bad_row(-math.inf), ["X[1]: ", "but every value must be finite"]),
    ([blobs()[0], np.zeros((5, 3))], ["[2, 3] features", "all need the same columns"]),
    (
        [np.zeros((1, 2)), np.zeros((1, 2))],
        ["have 2 rows, but 3 clusters", "fewer clusters or add data"],
    ),
    ([np.empty((0, 2))] * 3, ["have 0 rows, but 3 clusters"]),
    (
        [blobs()[0]],
        ["X has 1 client(s), but masks need at least 2", "pass one array for each"],
    ),
    ([], ["X has 0 client(s), but masks need at least 2"]),
    (blobs()[0], ["one table of shape (300, 2)", "pass a list such as [X_a, X_b]"]),
    (
        [[0.0, 1.0], [1.0, 2.0]],
        ["X[0]: the points have 1 dimensions, but they must have 2"],
    ),
    ([blobs()[0], np.zeros((5, 0))], ["X[1]: ", "0 feature"]),
    ([blobs()[0], [["a", "b"]]], ["real numbers"]),
    ([blobs()[0], [[1.0, 2.0], [3.0]]], ["rows of different lengths"]),
    (None, ["NoneType", "pass a list such as [X_a, X_b]"]),
    ("file.csv", ["of type str", "pass a list such as [X_a, X_b]"]),
    (7, ["of type int"]),
]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("parts", "words"), DATA, ids=lambda value: str(value)[:40])
def test_bad_data_have_one_sentence(parts: Any, words: list[str]) -> None:
    km = model()
    with pytest.raises(DataError) as caught:
        km.fit(parts)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert all(word in text for word in words), text
    assert not [name for name in vars(km) if name.endswith("_")]


@pytest.mark.usefixtures("untouched")
def test_a_data_frame_for_all_clients_is_one_table() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DataError, match=r"X is one table of shape \(2, 1\)"):
        model().fit(pandas.DataFrame({"a": [1.0, 2.0]}))


def test_bad_rows_to_predict_have_one_sentence(fitted: FederatedKMeans) -> None:
    for call in (fitted.predict, fitted.transform, fitted.score):
        with pytest.raises(DataError, match="3 features, but"):
            call(np.zeros((4, 3)))
        with pytest.raises(DataError, match="finite"):
            call([[0.0, math.nan]])


def test_errors_of_the_package_are_value_errors() -> None:
    with pytest.raises(ValueError) as caught:
        model(epsilon=-1).fit(blobs())
    assert isinstance(caught.value, DPKMeansError)


def test_a_failed_fit_keeps_the_last_result(fitted: FederatedKMeans) -> None:
    km = model().fit(blobs())
    centers = km.cluster_centers_.copy()
    with pytest.raises(ConfigurationError):
        km.set_params(epsilon=-1).fit(blobs())
    assert np.array_equal(km.cluster_centers_, centers)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ((1.0 - 5.0**0.5, 3.0 - 5.0**0.5), (1.0 + 5.0**0.5, 3.0 + 5.0**0.5))),
        ((-1.0, 9.0), ((-1.0,), (9.0,))),
    ],
)
def test_a_forecast_takes_bounds_from_server_data_where_none_are_given(
    given: Any, expected: Any
) -> None:
    """The farthest points are (1, 2) from the middle."""
    points = np.array([[0.0, 1.0], [2.0, 5.0], [1.0, 3.0]])
    km = FederatedKMeans(n_clusters=2, server_data=points, bounds=given)
    request = km.plan(2000, 2, 3, seeds=2, algorithms="fastlloyd").request
    np.testing.assert_allclose(request.options["bounds"], expected)
    assert (request.target_excess, request.spread) == (0.1, 0.15)


def test_a_forecast_takes_the_number_of_features_from_bounds_by_column() -> None:
    km = FederatedKMeans(2, bounds=((0.0, 0.0, 0.0), (1.0, 2.0, 3.0)))
    forecast = km.plan(2000, None, 3, seeds=2, algorithms="fastlloyd")
    assert forecast.request.n_features == 3


def test_k_is_chosen_from_weights_of_server_points_alone() -> None:
    with pytest.raises(ConfigurationError, match="but it needs weights of server"):
        model().choose_k(blobs())


def test_tables_that_can_be_read_only_once_are_labelled_and_measured_too() -> None:
    parts, km = blobs(), model(engine="direct", max_iter=1)
    for method, shape in ((km.fit_predict, ()), (km.fit_transform, (3,))):
        assert [own.shape for own in method(iter(parts))] == [
            (len(part), *shape) for part in parts
        ]


def test_k_is_chosen_without_a_profile() -> None:
    said = {name: {"kind": "number", "bounds": (-1, 1)} for name in ("x", "y")}
    frames: Any = [pd.DataFrame(part, columns=["x", "y"]) for part in blobs()]
    given: dict[str, Any] = {
        "bounds": Schema(columns=said, profile=["x"]),
        "server_data": frames[0][:40],
    }
    found = model(
        algorithm="feddp_kmeans",
        trust="distributed",
        epsilon=8.0,
        engine="direct",
        **given,
    ).choose_k(frames, 4)
    assert {one.round_name for one in found.privacy.releases} == {
        "outer-product",
        "weights",
    }


def test_what_all_rows_in_one_place_give_has_no_history() -> None:
    assert model(algorithm="optimal").fit([np.eye(2), -np.eye(2)]).history_ == []


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
def test_a_plan_of_laplace_noise_alone_takes_a_delta_of_0_and_says_so(
    engine: str,
) -> None:
    report = (
        model(algorithm="sulloyd", delta=0, engine=engine, noise="secure")
        .fit(blobs())
        .privacy_
    )
    assert (report.delta, report.is_private) == (0.0, True)
    assert 0.98 * 2.0 <= report.epsilon <= 2.0
    assert (
        "All noise is Laplace, so that the guarantee is pure: delta is 0."
        in report.assumptions
    )
    assert " at delta 0 " in str(report)
    usual = model(algorithm="sulloyd", engine=engine).fit(blobs()).privacy_
    assert not any("pure" in sentence for sentence in usual.assumptions)


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": "fastlloyd"},
        {"algorithm": "lloyd"},
        {"n_examples": "private"},
        {"bounds": "private"},
        {"evaluation": "private"},
    ],
    ids=str,
)
def test_no_other_plan_takes_a_delta_of_0(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="delta is 0, but not all noise"):
        model(**{"algorithm": "sulloyd", "delta": 0, **values}).fit(blobs())
