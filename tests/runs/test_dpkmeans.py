"""`DPKMeans`: one table under a trusted curator.

What it shares with a federation, and what scikit-learn expects.
"""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.utils.estimator_checks import check_estimator

from flwr_dpkmeans import Cohort, DPKMeans, Evaluation, FederatedKMeans
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    PlanError,
    PrivacyWarning,
    RefusalError,
    warn_once,
)
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan

CENTRES = np.array([[0.2, 0.2], [0.8, 0.3], [0.5, 0.8]])


def table(n: int = 600, seed: int = 0) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return CENTRES[generator.integers(0, 3, n)] + generator.normal(0, 0.03, (n, 2))


def model(**options: Any) -> DPKMeans:
    return DPKMeans(
        **(
            {"n_clusters": 3, "epsilon": 4.0, "bounds": (0, 1), "random_state": 1}
            | options
        )
    )


# -- the same mechanisms as in a federation --------------------------------------------


@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "glloyd", "sulloyd"])
def test_the_curator_draws_the_noise_once(algorithm: str) -> None:
    """Bit for bit the run under `central`."""
    alone = model(algorithm=algorithm, noise="seeded").fit(table())
    options = {
        "algorithm": algorithm,
        "noise": "seeded",
        "trust": "central",
        "engine": "direct",
        "epsilon": 4.0,
    }
    together = FederatedKMeans(3, bounds=(0, 1), random_state=1, **options).fit(
        [table()[:250], table()[250:]]
    )
    np.testing.assert_array_equal(alone.cluster_centers_, together.cluster_centers_)
    np.testing.assert_array_equal(alone.cluster_counts_, together.cluster_counts_)
    lines = zip(alone.privacy_.releases, together.privacy_.releases, strict=True)
    assert all(
        (a.noise_scale, a.epsilon_so_far) == (b.noise_scale, b.epsilon_so_far)
        for a, b in lines
    )


def test_without_noise_it_is_lloyds_algorithm() -> None:
    alone = model(algorithm="lloyd").fit(table())
    together = FederatedKMeans(3, bounds=(0, 1), algorithm="lloyd", random_state=1).fit(
        [table()[:250], table()[250:]]
    )
    np.testing.assert_array_equal(alone.cluster_centers_, together.cluster_centers_)
    assert not alone.privacy_.is_private


@pytest.mark.parametrize("algorithm", ["max_cover", "optimal"])
def test_what_takes_all_rows_together_takes_one_table_as_well(algorithm: str) -> None:
    alone = model(algorithm=algorithm, noise="seeded").fit(table())
    options = {
        "algorithm": algorithm,
        "noise": "seeded",
        "random_state": 1,
        "epsilon": 4.0,
    }
    together = FederatedKMeans(3, bounds=(0, 1), **options).fit(
        [table()[:250], table()[250:]]
    )
    np.testing.assert_array_equal(alone.cluster_centers_, together.cluster_centers_)
    assert (alone.privacy_.trust, alone.privacy_.unit) == ("central", "record")


def test_what_comes_before_round_one_has_one_noise_too() -> None:
    """A private count's errors have the deviation that its line says."""
    counting = model(
        algorithm="glloyd", max_iter=1, n_examples="private", random_state=None
    )
    fits = [counting.fit(table(200)).privacy_ for _ in range(80)]
    line = fits[0].releases[0]
    assert (line.array, line.trust) == ("count", "curator")
    spread = np.std([(fit.n_examples or 0) - 200 for fit in fits]) / line.noise_scale
    assert 0.72 < spread < 1.28


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {"bounds": "private"},
        {"n_clusters": "auto"},
        {"evaluation": "private"},
        {"n_examples": "private"},
    ],
)
def test_what_is_found_privately_is_found(options: dict[str, Any]) -> None:
    fitted = model(epsilon=8.0, **options).fit(table(3000))
    centres = fitted.cluster_centers_[np.argsort(fitted.cluster_centers_[:, 0])]
    np.testing.assert_allclose(centres, CENTRES[[0, 2, 1]], atol=0.05)
    report = fitted.privacy_
    assert (report.is_private, report.n_clients) == (True, 1)
    assert report.epsilon <= report.epsilon_worst_case <= 8.0
    assert {line.trust for line in report.releases} == {"curator"}
    assumptions = " ".join(report.assumptions)
    assert "mask" not in assumptions
    assert "server" not in assumptions


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"alpha": 0.6},
            (
                "alpha is an option of some algorithms: give"
                " algorithm=FastLloydOptions(alpha=0.6)."
            ),
        ),
        (
            {"trust": "central"},
            (
                "trust is an argument of FederatedKMeans alone: leave it out for one"
                " table."
            ),
        ),
        ({"epsilom": 1.0}, "there is no parameter 'epsilom': did you mean 'epsilon'?"),
    ],
)
def test_an_unknown_argument_is_told_in_one_sentence(
    values: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DPKMeans(3, **values)
    assert str(caught.value) == text


def test_a_number_of_rows_that_a_curator_would_refuse_is_refused_before_release() -> (
    None
):
    assert model(n_examples=300).fit(table(600)).privacy_.n_examples == 300
    with pytest.raises(DataError, match="but the table has 600 rows, more than twice"):
        model(n_examples=299).fit(table(600))


def test_labels_are_for_an_evaluation() -> None:
    classes = np.argmin(((table()[:, None] - CENTRES) ** 2).sum(-1), axis=1)
    measured = model(evaluation=Evaluation(n_classes=3), epsilon=20.0)
    assert measured.fit(table(), classes).evaluation_.accuracy.value > 0.9


def test_many_parties_under_a_curator_are_refused() -> None:
    """The report would speak of a table that nobody has."""
    for engine in ("direct", "inprocess"):
        with pytest.raises(PlanError, match=r"^trust is 'curator', where one party"):
            FederatedKMeans(3, bounds=(0, 1), trust="curator", engine=engine).fit(
                [table(), table()]
            )
    config = parse_config(
        n_clusters=3, bounds=((0,), (1,)), trust="curator", n_examples=100
    )
    with pytest.raises(PlanError, match="use DPKMeans for one table, or choose"):
        draft_plan(config, run_id=1, n_clients=5, seed=1, n_features=2)
    unmasked = {"engine": "direct", "cohort": Cohort(masking=False)}
    fitted = FederatedKMeans(3, bounds=(0, 1), trust="central", **unmasked).fit(
        [table(), table()]
    )
    assert not fitted.privacy_.is_private


@pytest.mark.parametrize(
    ("masking", "sentence"),
    [(False, "turns masks off"), (True, "one party holds all rows")],
)
def test_no_client_of_a_flower_run_answers_a_curators_plan(
    masking: bool, sentence: str
) -> None:
    """Whatever a server makes of a plan that is otherwise sound."""
    central = parse_config(
        n_clusters=3, bounds=((0,), (1,)), trust="central", n_examples=100
    )
    plan = draft_plan(central, run_id=1, n_clients=5, seed=1, n_features=2)
    guard = NodeGuard(
        NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True),
        1,
        2,
        2,
        0.0,
    )
    guard.require_approved(plan, b"digest")
    rounds = tuple(replace(one, trust="curator") for one in plan.rounds)
    curated = replace(
        plan, config=central.changed(trust="curator", masking=masking), rounds=rounds
    )
    with pytest.raises(RefusalError, match=sentence):
        guard.require_approved(curated, b"digest")


# -- nothing exact stays in the model --------------------------------------------------


def test_what_exact_rows_say_is_a_warning_and_not_in_the_model(tmp_path: Path) -> None:
    warn_once.cache_clear()
    with pytest.warns(
        PrivacyWarning,
        match="not to be published: More than 5% of the rows lie outside the bounds",
    ):
        fitted = model(bounds=(0, 0.5)).fit(table())
    assert not [one for one in fitted.privacy_.warnings if "outside" in one]
    written = [path.read_bytes() for path in fitted.write(tmp_path / "files")]
    assert not [
        one for one in (pickle.dumps(fitted), *written) if b"outside the bounds" in one
    ]


def test_a_model_is_as_large_for_many_rows_as_for_few(tmp_path: Path) -> None:
    few, many = (model(n_examples=10**6).fit(table(n)) for n in (100, 5000))
    assert abs(len(pickle.dumps(few)) - len(pickle.dumps(many))) < 600
    joblib.dump(many, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(loaded.predict(table()), many.predict(table()))
    assert (loaded.privacy_, loaded.get_params()) == (many.privacy_, many.get_params())


# -- scikit-learn's own checks ---------------------------------------------------------

EXCLUDED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "noise is that of rows of the largest weight, which repeated rows do not have"
    ),
    "check_clustering": (
        "reads labels_, exact labels of private rows, which would travel with the model"
    ),
    "check_dtype_object": (
        "wants Python's TypeError for a dict in a cell; ours is a ValueError that names"
        " the column"
    ),
}
"""Checks that cannot pass, by name, with the reason."""
EXCLUDED_BY_NOISE = {"check_fit_idempotent": "secure noise is fresh in each fit"}


@pytest.mark.nightly
@pytest.mark.skipif(
    not hasattr(sklearn.utils, "get_tags"),
    reason="older versions cannot leave checks out by name",
)
@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_scikit_learns_checks_pass_but_for_those_that_cannot(noise: str) -> None:
    excluded = EXCLUDED | (EXCLUDED_BY_NOISE if noise == "secure" else {})
    short = {"algorithm": "glloyd", "max_iter": 2} if noise == "secure" else {}
    short = {"algorithm": "glloyd", "max_iter": 2} if noise == "secure" else {}
    # Checks fit as few as one row, of which 1/(N ln N) is no delta, and k-means of
    # little noise; rows weigh one at most, so that their count is enough.
    estimator = model(
        epsilon=1e3,
        delta=1e-6,
        bounds=(-100, 100),
        max_weight=1.0,
        noise=noise,
        **short,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(
            estimator, on_skip=None, expected_failed_checks=excluded
        )
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(
        excluded
    )
    assert sum(one["status"] == "passed" for one in found) >= 34
