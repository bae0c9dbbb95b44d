"""What a refusal suggests is taken at the door that refused, by the name that stands
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans import (
    ClientLevel,
    DPKMeans,
    DPNaiveBayes,
    Evaluation,
    FederatedKMeans,
    FederatedNaiveBayes,
    PrivateBounds,
    PrivateCount,
    ProxyLloyd,
    federate,
)
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    DPKMeansError,
    LocalMisuseError,
)

BOX = (-1.0, 1.0)
ROWS = np.random.default_rng(0).uniform(-1.0, 1.0, (400, 2))
PARTS = [ROWS[:200], ROWS[200:]]


def statistic(**options: Any) -> Any:
    return federate("moments", PARTS, bounds=BOX, epsilon=1.0, **options)


def strategy(**options: Any) -> Any:
    run: dict[str, Any] = {"n_clusters": 2, "n_features": 2, "epsilon": 1.0}
    return ProxyLloyd(**run | {"n_examples": 400, "bounds": BOX} | options)


DOORS: dict[str, Callable[..., Any]] = {
    "FederatedKMeans": FederatedKMeans,
    "DPKMeans": DPKMeans,
    "FederatedNaiveBayes": FederatedNaiveBayes,
    "DPNaiveBayes": DPNaiveBayes,
    "federate": statistic,
    "strategy": strategy,
}
SLIPS = (
    *("k", "eps", "n_init", "verbose", "n_jobs", "tol", "copy_x", "init", "seed"),
    *("n_int", "look_share", "share", "max_cluster", "n_client", "allow_unamed"),
    *("private_bounds", "bounds_share", "min_clients", "max_silent", "alpha", "x"),
    *("choose_n_clusters", "client_sampling_rate", "trust_modl", "evaluatoin"),
)
ITS_OWN = {
    "strategy": {*SLIPS} & {"n_init", "private_bounds", "min_clients", "max_silent"},
    "federate": {"min_clients", "max_silent"},
}
"""What is no slip there."""


UNKNOWN = "no parameter|no argument of its own|no such option|unexpected keyword"


def answer(door: str, name: str) -> str:
    """What a door says of an option's value, if it refuses it."""
    try:
        DOORS[door](**{name: 0.25})
    except (DPKMeansError, TypeError) as error:
        return str(error)
    return ""


def refusal(door: str, name: str) -> str:
    """The sentence with which a door refuses an option."""
    with pytest.raises(LocalMisuseError) as caught:
        DOORS[door](**{name: 0.25})
    return str(caught.value)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("slip", SLIPS)
def test_what_is_suggested_is_an_option_there(door: str, slip: str) -> None:
    if slip in ITS_OWN.get(door, ()):
        return
    sentence = refusal(door, slip)
    suggested = re.findall(r"(?:give|\bor) (\w+)=", sentence)
    suggested += re.findall(r"did you mean '(\w+)'", sentence)
    listed = sentence.partition("choose one of ")[2]
    suggested += re.findall(r"'(\w+)'", listed)
    for name in set(suggested):
        said = answer(door, name)
        assert not re.search(UNKNOWN, said), said


@pytest.mark.parametrize("door", ["FederatedNaiveBayes", "DPNaiveBayes"])
def test_a_classifier_speaks_of_no_clusters(door: str) -> None:
    for slip in SLIPS:
        sentence = refusal(door, slip)
        for word in (
            "n_clusters",
            "algorithm=",
            "cohort=",
            "FederatedKMeans",
            "_share",
        ):
            assert (
                word not in sentence.partition(", as ")[2] + sentence.partition(":")[2]
            )


def test_no_algorithm_is_suggested_that_only_a_method_runs() -> None:
    model = FederatedKMeans(
        2,
        algorithm="fastlloyd",
        bounds=BOX,
        unit=ClientLevel(examples_per_client=5),
    )
    with pytest.raises(ConfigurationError, match="or 'feddp_kmeans'") as caught:
        model.fit(PARTS)
    assert "choose_k" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"unit": ClientLevel(examples_per_client=5, sampling_rate=2.0)},
            "sampling_rate of ClientLevel is 2",
        ),
        (
            {"unit": "client", "n_examples": PrivateCount(share=0.1)},
            "share of PrivateCount is 0.1",
        ),
        (
            {
                "n_examples": PrivateCount(share=0.45),
                "bounds": PrivateBounds(share=0.45),
                "evaluation": Evaluation(share=0.45),
            },
            "share of PrivateCount, share of PrivateBounds",
        ),
        (
            {"epsilon": 0.01, "bounds": "private", "n_examples": 400},
            "domain of PrivateBounds, or raise",
        ),
    ],
)
def test_an_estimator_names_options_as_its_objects_have_them(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(LocalMisuseError, match=said) as caught:
        FederatedKMeans(2, **{"bounds": BOX} | options).fit(PARTS)
    flat = r"(bounds|count|evaluation)_(share|domain|radius)|client_sampling_rate"
    assert not re.search(flat, str(caught.value))


def test_no_rows_are_no_question() -> None:
    model = DPKMeans(2, bounds=BOX).fit(ROWS)
    for ask in (model.predict, model.transform, model.score, model.model_.predict):
        with pytest.raises(DataError, match="0 rows, but at least 1"):
            ask(ROWS[:0])
    assert model.score([ROWS[:0], ROWS]) == model.score(ROWS)
