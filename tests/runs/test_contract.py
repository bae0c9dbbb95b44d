"""One contract for every algorithm, trust model, unit of privacy and kind of noise.

It fits, or one sentence says why.

Which combinations are supported is written down here, so that neither support nor its
loss comes by accident.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.cases import OF_PARTIES
from support.flat import flat_estimator

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.options import own_options, read_config
from flwr_dpkmeans.privacy.release import PrivacyUnit
from simulations.sources.mixture import GaussianMixture, draw_gaussian_mixture

EPSILON = 3.0
LOWER, UPPER = -1.0, 2.0
Case = tuple[str, str, str, str]

ANY = ("oblivious", "central", "distributed")
SERVER_NOISE = ("oblivious", "central")

# algorithm, unit, kind of noise: trust models
SUPPORTED: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("proxy_lloyd", "record", "gaussian"): ANY,
    ("proxy_lloyd", "client", "gaussian"): ANY,
    ("fastlloyd", "record", "gaussian"): ANY,
    ("glloyd", "record", "gaussian"): ANY,
    ("sulloyd", "record", "gaussian"): SERVER_NOISE,  # its own noise is Laplace
    ("fastlloyd", "client", "gaussian"): ANY,
    ("glloyd", "client", "gaussian"): ANY,
    ("sulloyd", "client", "gaussian"): SERVER_NOISE,
    ("lloyd", "record", "gaussian"): ANY,  # and not private
    ("feddp_kmeans", "record", "gaussian"): ANY,
    ("feddp_kmeans", "record", "paper"): SERVER_NOISE,
    ("feddp_kmeans", "client", "gaussian"): ANY,
    ("feddp_kmeans", "client", "paper"): SERVER_NOISE,
    ("feddp_choose_k", "record", "gaussian"): ("distributed",),  # the choice is public
    ("feddp_choose_k", "client", "gaussian"): ("distributed",),
    ("server_kmeans++", "record", "gaussian"): ANY,
    ("server_kmeans++", "record", "paper"): SERVER_NOISE,
    ("server_kmeans++", "client", "gaussian"): ANY,
    ("server_kmeans++", "client", "paper"): SERVER_NOISE,
    ("server_lloyd", "record", "gaussian"): ANY,
    ("server_lloyd", "record", "paper"): SERVER_NOISE,
    ("server_lloyd", "client", "gaussian"): ANY,
    ("server_lloyd", "client", "paper"): SERVER_NOISE,
    ("sphere_packing", "record", "gaussian"): ANY,
    ("sphere_packing", "record", "paper"): SERVER_NOISE,
    ("sphere_packing", "client", "gaussian"): ANY,
    ("sphere_packing", "client", "paper"): SERVER_NOISE,
}
FEDDP_FAMILY = (
    "feddp_kmeans",
    "feddp_choose_k",
    "server_kmeans++",
    "server_lloyd",
    "sphere_packing",
)
SERVER_DATA = {
    "feddp_kmeans": True,
    "feddp_choose_k": True,
    "server_kmeans++": True,
    "server_lloyd": True,
}
CASES: list[Case] = [
    (algorithm, trust, unit, kind)
    for algorithm, trust, unit in itertools.product(
        clusterings(), OF_PARTIES, ("record", "client")
    )
    for kind in (("gaussian", "paper") if algorithm in FEDDP_FAMILY else ("gaussian",))
]
FITS = [
    case for case in CASES if case[1] in SUPPORTED.get((case[0], case[2], case[3]), ())
]
REFUSED = [case for case in CASES if case not in FITS]


@cache
def mixture() -> GaussianMixture:
    generator = np.random.default_rng(1)
    return draw_gaussian_mixture(
        generator,
        n_clients=5,
        points_per_client=40,
        n_components=3,
        n_features=3,
        variance=0.02,
        n_uniform=10,
    )


NAMES = ("trust", "unit", "noise_kind")
"""Of a case's values but the first, the algorithm, which decides about further
settings.
"""


def estimator(case: Case, **values: Any) -> FederatedKMeans:
    algorithm, trust, unit, kind = case
    settings: dict[str, Any] = {
        "n_clusters": "auto" if algorithm == "feddp_choose_k" else 3,
        "max_clusters": 4 if algorithm == "feddp_choose_k" else 20,
        "algorithm": algorithm,
        "trust": trust,
        "unit": unit,
        "noise_kind": kind,
        "epsilon": EPSILON,
        "bounds": (LOWER, UPPER),
        "server_data": mixture().server_points if algorithm in SERVER_DATA else None,
        "engine": "direct",
        "noise": "seeded",
        "random_state": 1,
        "n_init": 3,
    }
    return flat_estimator(**(own_options(settings, algorithm, clusterings()) | values))


def fitted(case: Case, **values: Any) -> FederatedKMeans:
    return estimator(case, **values).fit(list(mixture().clients))


@functools.cache
def known(case: Case) -> FederatedKMeans:
    """A combination's model, which several tests look at."""
    return fitted(case)


def test_the_table_speaks_of_every_algorithm() -> None:
    assert {algorithm for algorithm, _, _ in SUPPORTED} == set(clusterings())
    assert set(ANY) == set(OF_PARTIES)
    # Persons are those of `test_persons.py`: whatever protects one row protects them.
    assert {unit.value for unit in PrivacyUnit} == {"record", "person", "client"}
    assert len(FITS) == sum(map(len, SUPPORTED.values()))
    assert len(FITS) + len(REFUSED) == len(CASES)


@pytest.mark.sample(9)
@pytest.mark.parametrize("case", FITS, ids="-".join)
def test_supported_combinations_fit_within_their_budget(case: Case) -> None:
    algorithm, trust, unit, kind = case
    km = known(case)
    report = km.privacy_
    assert (report.algorithm, report.trust, report.unit) == (algorithm, trust, unit)
    assert report.epsilon_requested == EPSILON
    if algorithm == "lloyd":
        assert report.epsilon == math.inf
    else:
        assert 0.98 * EPSILON <= report.epsilon <= EPSILON * (1.0 + 1e-9)
    assert 0.0 < report.delta < 1.0 / (5 if unit == "client" else 200)
    # Seeded noise protects nobody, and the report says so.
    assert not report.is_private
    assert any("seed" in warning for warning in report.warnings)
    assert {line.trust for line in report.releases} == {trust}
    noises = {line.noise for line in report.releases}
    if algorithm == "lloyd":
        assert noises == {"none"}
    elif algorithm == "sulloyd":
        assert noises == {"laplace"}
    else:
        assert noises == ({"gaussian", "laplace"} if kind == "paper" else {"gaussian"})
    centers: NDArray[np.float64] = km.cluster_centers_
    assert centers.shape[1] == 3
    assert (
        1 <= len(centers) <= 4 if algorithm == "feddp_choose_k" else len(centers) == 3
    )
    assert np.isfinite(centers).all()
    assert centers.min() >= LOWER - 1e-4
    assert centers.max() <= UPPER + 1e-4
    assert np.isfinite(km.cluster_counts_).all()
    assert len(km.history_) == len(
        {(line.round_index, line.attempt) for line in report.releases}
    )
    assert km.predict(mixture().clients[0]).shape == (40,)


# Under each trust model in turn: the evaluation's arrays are those of the unit,
# whatever comes before.
EVALUATED = [
    (algorithm, trusts[place % len(trusts)], unit, kind)
    for place, ((algorithm, unit, kind), trusts) in enumerate(SUPPORTED.items())
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", EVALUATED, ids="-".join)
def test_a_private_evaluation_fits_into_the_same_budget(case: Case) -> None:
    algorithm, trust, _, _ = case
    km = estimator(case, evaluation="private", n_classes=3, evaluation_share=0.1)
    km.fit(list(mixture().clients), list(mixture().labels))
    report, found = km.privacy_, km.evaluation_
    assert found is not None
    numbers = [found.cost, found.clipped, found.accuracy, found.purity]
    assert all(
        number is not None and np.isfinite(number.value) and number.noise > 0.0
        for number in numbers
    )
    assert len(found.cells) == len(found.counts) == len(km.cluster_centers_)
    lines = [line for line in report.releases if line.round_name == "evaluation"]
    assert {(line.trust, line.noise) for line in lines} == {(trust, "gaussian")}
    assert km.history_[-1]["name"] == "evaluation"
    if algorithm == "lloyd":
        assert report.epsilon == math.inf
    else:
        # Laplace noise is split off by basic composition, which leaves something over.
        least = 0.85 if algorithm == "sulloyd" else 0.98
        assert least * EPSILON <= report.epsilon <= EPSILON * (1.0 + 1e-9)


@pytest.mark.parametrize("algorithm", clusterings())
def test_secure_noise_is_private_for_all_but_the_baseline_without_noise(
    algorithm: str,
) -> None:
    trust, *_ = SUPPORTED[algorithm, "record", "gaussian"]
    report = fitted((algorithm, trust, "record", "gaussian"), noise="secure").privacy_
    assert report.is_private is (algorithm != "lloyd")
    assert any("adds no noise" in sentence for sentence in report.warnings) is (
        algorithm == "lloyd"
    )


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", FITS[::5], ids="-".join)
def test_equal_seeds_give_equal_results_and_the_noise_is_really_added(
    case: Case,
) -> None:
    first, again, other = known(case), fitted(case), fitted(case, random_state=2)
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)
    if case[0] != "lloyd":
        # Where noise is below 0 a count is 0.
        counts = first.cluster_counts_
        assert not counts.any() or not np.array_equal(counts, np.rint(counts))
    assert not np.array_equal(first.cluster_centers_, other.cluster_centers_)


def refusal(case: Case) -> str:
    with pytest.raises((ConfigurationError, PlanError)) as caught:
        fitted(case)
    return str(caught.value)


@pytest.mark.parametrize("case", REFUSED, ids="-".join)
def test_unsupported_combinations_are_refused_in_one_sentence(case: Case) -> None:
    _, trust, unit, kind = case
    sentence = refusal(case)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert not re.search(r"[.!?] ", sentence.replace("n_clusters='auto'", ""))
    # It names what was asked for, and after the colon what to do instead.
    assert any(repr(value) in sentence for value in (trust, unit, kind))
    mend = sentence.split(": ", 1)[1]
    assert proposals(mend)


def proposals(mend: str) -> list[dict[str, str]]:
    """Settings that the second half of a sentence proposes.

    ``name='value'``, and quoted names of known things.
    """
    found = [{name: value} for name, value in re.findall(r"(\w+)='(\w+)'", mend)]
    rest = re.sub(r"\w+='\w+'", "", mend)
    for quoted in re.findall(r"'([^']+)'", rest):
        if quoted in OF_PARTIES:
            found.append({"trust": quoted})
        elif quoted in clusterings():
            found.append({"algorithm": quoted})
    return found


BAD_ADVICE = {
    ("feddp_choose_k", "distributed", "record", "paper"): {"trust": "central"},
    ("feddp_choose_k", "distributed", "client", "paper"): {"trust": "central"},
}
"""Proposed, but refused in turn: see `test_advice_that_leads_to_another_refusal`."""


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "case", [case for case in REFUSED if case not in BAD_ADVICE], ids="-".join
)
def test_what_a_refusal_proposes_works(case: Case) -> None:
    """Each proposal alone; two that the sentence joins with 'with' together."""
    mend = refusal(case).split(": ", 1)[1]
    options = proposals(mend)
    if " with " in mend or case[0] == "feddp_choose_k":
        options = [
            {name: value for option in options for name, value in option.items()}
        ]
    if case[0] == "feddp_choose_k" and case[3] == "paper":
        # Two things are wrong; the sentence mends one of them at a time.
        options = [option | {"noise_kind": "gaussian"} for option in options]
    for option in options:
        algorithm = option.get("algorithm", case[0])
        changes: dict[str, Any] = dict(option)
        if algorithm in SERVER_DATA:
            changes["server_data"] = mixture().server_points
        if (
            case[0] == "sulloyd"
            and case[1] == "distributed"
            and case[2] == "client"
            and "unit" in option
        ):
            changes["trust"] = "central"
        own = (
            case[0],
            *(
                changes.get(name, kept)
                for name, kept in zip(NAMES, case[1:], strict=True)
            ),
        )
        km = known(own) if changes.keys() <= {*NAMES} else fitted(case, **changes)
        assert np.isfinite(km.cluster_centers_).all()


@pytest.mark.parametrize("case", BAD_ADVICE, ids="-".join)
def test_advice_that_leads_to_another_refusal(case: Case) -> None:
    for option in proposals(refusal(case).split(": ", 1)[1]):
        fitted(case, **option)


@pytest.mark.parametrize(
    "algorithm", [name for name in clusterings() if name in SERVER_DATA]
)
def test_algorithms_that_need_server_data_say_so(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="give server_data"):
        fitted((algorithm, "distributed", "record", "gaussian"), server_data=None)


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "sulloyd", "lloyd"])
def test_algorithms_without_server_data_refuse_it(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="leave it out, or use 'proxy_lloyd'"):
        fitted(
            (algorithm, "central", "record", "gaussian"),
            server_data=mixture().server_points,
        )


@pytest.mark.parametrize("trust", SERVER_NOISE)
def test_sampled_clients_need_gaussian_noise(trust: str) -> None:
    with pytest.raises(PlanError, match="choose noise_kind='gaussian'"):
        fitted(("feddp_kmeans", trust, "client", "paper"), client_sampling_rate=0.5)
    with pytest.raises(ConfigurationError, match="choose unit='client' or leave"):
        read_config(
            n_clusters=3,
            bounds=((0,), (1,)),
            algorithm="feddp_kmeans",
            client_sampling_rate=0.5,
        )
    report = fitted(
        ("feddp_kmeans", trust, "client", "gaussian"), client_sampling_rate=0.5
    ).privacy_
    assert report.epsilon <= EPSILON
    assert any("probability 0.5" in sentence for sentence in report.assumptions)
