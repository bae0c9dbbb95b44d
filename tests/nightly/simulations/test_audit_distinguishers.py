"""Distinguishers on made-up views with known answers, and information that is computed
by hand.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.sums.build import initial_state
from simulations.audit.audit import AuditOptions, prepare
from simulations.audit.cases import Case, Neighbours, build_cases
from simulations.audit.distinguishers import (
    LIKELIHOOD,
    RESIDUALS,
    SEED,
    UNMASKED,
    WORDS,
    Observer,
    log_likelihood_ratio,
    nearness,
)
from simulations.audit.information import Part, Truth, information_of
from simulations.audit.linear import learn_direction
from simulations.audit.runs import make_runner
from simulations.audit.views import Adversary, HiddenWords, View

Array = NDArray[np.float64]


def part_of(
    delta: list[float], scales: list[float], laplace: list[bool], rate: float = 1.0
) -> Part:
    return Part(
        (),
        np.zeros(len(delta)),
        np.array(delta),
        np.array(scales),
        np.array(laplace),
        rate,
    )


def test_likelihood_ratios_are_those_of_the_densities() -> None:
    residual = np.array([0.7, -2.0])
    gaussian = part_of([1.0, -3.0], [2.0, 5.0], [False, False])
    expected = sum(
        (r**2 - (r - d) ** 2) / (2.0 * s**2)
        for r, d, s in zip(residual, gaussian.delta, gaussian.scales, strict=True)
    )
    assert log_likelihood_ratio(residual, gaussian) == pytest.approx(
        expected, rel=1e-12
    )
    laplace = part_of([1.0, -3.0], [2.0, 5.0], [True, True])
    expected = (0.7 - 0.3) / 2.0 + (2.0 - 1.0) / 5.0
    assert log_likelihood_ratio(residual, laplace) == pytest.approx(expected, rel=1e-12)
    mixed = part_of([1.0, -3.0], [2.0, 5.0], [False, True])
    assert log_likelihood_ratio(residual, mixed) == pytest.approx(
        (0.49 - 0.09) / 8.0 + 0.2, rel=1e-12
    )


def test_the_ratio_of_a_sampled_client_is_that_of_the_mixture() -> None:
    residual = np.array([1.5])
    sampled = part_of([2.0], [1.0], [False], rate=0.25)

    def density(mean: float) -> float:
        return math.exp(-((1.5 - mean) ** 2) / 2.0)

    expected = math.log((0.75 * density(0.0) + 0.25 * density(2.0)) / density(0.0))
    assert log_likelihood_ratio(residual, sampled) == pytest.approx(expected, rel=1e-12)


def test_nearness_sees_exact_sums_only() -> None:
    base, delta = np.array([1000.0, 7.0]), np.array([65536.0, 0.0])
    exact = (base + delta).astype(np.int64).view(np.uint64)
    assert nearness(exact, base, delta) > 20.0
    assert nearness(base.astype(np.int64).view(np.uint64), base, delta) < -20.0
    random = np.random.default_rng(0).integers(0, 2**64, 2, dtype=np.uint64)
    assert abs(nearness(random, base, delta)) < 1e-6


@pytest.fixture
def noise() -> Array:
    return np.random.default_rng(1).normal(size=(2000, 4))


def separation(absent: Array, present: Array) -> float:
    """Distance of the means in deviations, on rows that were not learnt from."""
    direction = learn_direction(absent[:1000], present[:1000])
    scores = direction.scores(absent[1000:]), direction.scores(present[1000:])
    return float((scores[1].mean() - scores[0].mean()) / scores[0].std())


def test_a_learnt_direction_finds_what_is_there(noise: Array) -> None:
    signal = np.array([0.6, 0.8, 0.0, 0.0])
    assert separation(noise, noise[::-1] + signal) == pytest.approx(1.0, abs=0.15)
    assert abs(separation(noise, noise[::-1])) < 0.2


def test_a_learnt_direction_finds_noise_that_is_used_twice(noise: Array) -> None:
    """The same stream for two arrays of which the target moves one."""
    signal = np.array([0.2, 0.0, 0.0, 0.0])
    twice = noise[:, [0, 0, 2, 3]]
    assert separation(twice, twice[::-1] + signal) > 50.0
    half = noise.copy()
    half[:, 1] = 0.9 * noise[:, 0] + math.sqrt(0.19) * noise[:, 1]
    assert separation(half, half[::-1] + signal) == pytest.approx(
        0.2 / math.sqrt(0.19), abs=0.15
    )


def test_a_constant_feature_is_no_obstacle(noise: Array) -> None:
    absent = np.hstack([noise, np.ones((2000, 1))])
    assert separation(absent, absent[::-1] + 1.0) > 1.0


def test_a_row_that_is_shorter_than_what_was_learnt_from_has_a_score(
    noise: Array,
) -> None:
    direction = learn_direction(noise, noise[::-1] + 1.0)
    assert (
        direction.scores(noise[:5, :2]).shape
        == direction.scores(np.hstack([noise[:5], noise[:5]])).shape
        == (5,)
    )


def fastlloyd() -> tuple[Case, Array]:
    (case,) = build_cases("fastlloyd", "central", "record", "edge", {"max_iter": 1})
    return case, np.asarray(initial_state(case.plan).centroids)


def information_at(case: Case, row: Array) -> float:
    nothing = np.zeros((0, 1))
    pair = Neighbours("row", (nothing, nothing), (row, nothing))
    part = Truth(pair).part(case.plan, 1, initial_state(case.plan), (0, 1))
    return information_of([part], case.plan, [(1, 0)]).share


def test_information_of_a_row_by_hand() -> None:
    """In one dimension sums have 2/3 of the squared budget (equation 7)."""
    case, start = fastlloyd()
    radius = case.plan.rounds[0].radius
    assert radius == pytest.approx(0.8)
    sign = -1.0 if start[0, 0] > 0.0 else 1.0

    def row(share: float) -> Array:
        return np.array(
            [[start[0, 0] + sign * math.floor(share * 0.8 * 2**16) / 2**16]]
        )

    assert information_at(case, row(1.0)) == pytest.approx(1.0, abs=1e-4)
    assert information_at(case, row(0.5)) == pytest.approx(
        2 / 3 * 0.25 + 1 / 3, abs=1e-4
    )
    assert information_at(case, start) == pytest.approx(1 / 3, abs=1e-6)
    # Dropped beyond the radius.
    assert information_at(case, row(1.01)) == 0.0


def test_the_pilot_finds_the_worst_row() -> None:
    setup = prepare(AuditOptions("fastlloyd", trust="central", values={"max_iter": 1}))
    run = make_runner(setup.case, setup.neighbours, Adversary.CLIENTS)
    found = Observer(setup.case, setup.neighbours).features(run(False)).information
    assert found.share == pytest.approx(1.0, abs=1e-3)
    assert found.gaussian_claimed == pytest.approx(
        gaussian_noise_multiplier(1.0, 1e-5) ** -2, rel=1e-6
    )


def test_scores_of_a_view_made_by_hand() -> None:
    """Noise of 0.5 deviations in all entries, and the target present."""
    case, start = fastlloyd()
    neighbours = case.candidates[0]
    run = make_runner(case, neighbours, Adversary.CLIENTS)
    view = run(True)
    part = Truth(neighbours).part(case.plan, 1, initial_state(case.plan), (0, 1))
    values = (
        np.rint(part.base + part.delta + 0.5 * part.scales)
        .astype(np.int64)
        .view(np.uint64)
    )
    made = View(
        (replace(view.sums[0], values=values),),
        (),
        np.zeros(0),
        view.plan,
        view.attempts,
    )
    features = Observer(case, neighbours).features(made)
    shift = part.delta / part.scales
    expected = float(np.sum((shift + 0.5) * shift - shift**2 / 2.0))
    assert features.scores[LIKELIHOOD] == pytest.approx(expected, rel=1e-3)
    assert features.vectors[RESIDUALS][:2] == pytest.approx(shift + 0.5, rel=1e-3)
    assert features.information.bound_used <= 1.0
    assert start.shape == (1, 1)


def test_the_seed_score_takes_seeded_noise_off() -> None:
    """With noise from the plan's seed the ratio is that of no noise at all."""
    (case,) = build_cases(
        "glloyd", "central", "record", "edge", {"max_iter": 2, "noise": "seeded"}
    )
    neighbours = case.candidates[0]
    observer, run = (
        Observer(case, neighbours),
        make_runner(case, neighbours, Adversary.CLIENTS),
    )
    present, absent = (observer.features(run(kind)) for kind in (True, False))
    half = 0.5 * present.information.gaussian
    assert present.scores[SEED] == pytest.approx(half, rel=1e-6)
    assert absent.scores[SEED] == pytest.approx(-half, rel=1e-6)


def test_the_words_score_finds_a_sum_in_the_clear() -> None:
    (case,) = build_cases("glloyd", "oblivious", "record", "edge", {"max_iter": 1})
    neighbours = case.candidates[0]
    view = make_runner(case, neighbours, Adversary.SERVER)(True)
    observer = Observer(case, neighbours)
    assert abs(observer.features(view).scores[WORDS]) < 1e-3
    part = Truth(neighbours).part(case.plan, 1, initial_state(case.plan), (0, 1))
    clear = (part.base + part.delta).astype(np.int64).view(np.uint64)
    leaked = (*view.words, HiddenWords("aggregate", 1, 0, (0, 1), clear))
    assert observer.features(replace(view, words=leaked)).scores[WORDS] > 20.0


def test_the_unmasked_score_is_the_ratio_of_the_targets_own_vector() -> None:
    """One share of the noise hides less than all do."""
    (case,) = build_cases("glloyd", "distributed", "record", "edge", {"max_iter": 1})
    neighbours = case.candidates[0]
    observer, view = (
        Observer(case, neighbours),
        make_runner(case, neighbours, Adversary.SERVER)(True),
    )
    part = Truth(neighbours).part(case.plan, 1, initial_state(case.plan), (0,))
    for share, expected in ((1.0, 0.5), (0.0, -0.5)):
        clear = (part.base + share * part.delta).astype(np.int64).view(np.uint64)
        words = tuple(
            replace(one, values=clear) if one.members == (0,) else one
            for one in view.words
        )
        score = observer.features(replace(view, words=words)).scores[UNMASKED]
        assert score == pytest.approx(expected * part.gaussian, rel=1e-9)
