"""The oracle finds wrong prices: each test breaks one rule of the accountant and sees
the comparison fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from support.budget_bugs import wrong_plan
from support.deltas import compose_delta
from support.integration import beside_gaussian, discrete_laplace_losses, laplace_losses
from support.plans import (
    Request,
    draws_of_all,
    require_noise_of_shares,
    require_plan,
    require_used,
    verdict,
)
from support.pricing import Draw, Noise
from test_oracle_lists import events_of, priced

from flwr_dpkmeans.errors import BudgetError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import Closeness
from flwr_dpkmeans.privacy.release import (
    Event,
    GaussianRelease,
    Norm,
    PrivacyUnit,
    PureRelease,
    Sensitivity,
)
from flwr_dpkmeans.sums.checks.sound import check_budget
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import price
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.trust import Shares

BOX = ((-1.0,), (1.0,))
GAUSSIAN = [
    Draw((Noise(True, 3.0, 1.0, 100, 2.0**-16), Noise(True, 5.0, 1.0, 10, 2.0**-16)))
] * 4
COARSE_NOISE = [Draw((Noise(True, 2.0**-12, 2.0**-12, 100, 2.0**-16),))] * 4
MIXED = [
    Draw((Noise(True, 3.0, 1.0, 100, 2.0**-16), Noise(False, 4.0, 1.0, 10, 2.0**-16)))
] * 4
SAMPLED = [
    Draw(
        (Noise(True, 1.5, 1.0, 100, 2.0**-16), Noise(True, 2.0, 1.0, 10, 2.0**-16)), 0.2
    )
] * 4


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """Prices are remembered by the house.

    Here neither before nor after a rule is broken.
    """
    price.cache_clear()
    yield
    price.cache_clear()


def drafted(**values: Any) -> Plan:
    given = {
        "algorithm": "fastlloyd",
        "n_clusters": 3,
        "bounds": BOX,
        "n_examples": 5000,
        "max_retries": 2,
    } | values
    return Request(given, 10, 2, None, None).draft()


def fresh(plan: Plan) -> Plan:
    """The same plan, with nothing priced yet."""
    price.cache_clear()
    return replace(plan)


def walked(plan: Plan) -> None:
    for seed in range(4):
        for one in require_plan(fresh(plan), np.random.default_rng(seed)):
            one.require()


def test_nothing_broken_nothing_found() -> None:
    for draws in (GAUSSIAN, COARSE_NOISE, MIXED, SAMPLED):
        assert priced(draws, 1e-6) is not None
    plan = drafted()
    walked(plan)
    require_used(plan)


def with_closeness(
    events: Sequence[Event], change: Callable[[Closeness], Closeness]
) -> list[Event]:
    return [replace(event, closeness=change(event.closeness)) for event in events]


@pytest.mark.parametrize(
    "draws", [GAUSSIAN, MIXED, SAMPLED], ids=["gaussian", "mixed", "sampled"]
)
def test_a_release_that_is_not_counted(draws: list[Draw]) -> None:
    with pytest.raises(AssertionError, match="too low"):
        priced(draws, 1e-6, lambda events, delta: compose_epsilon(events[:-1], delta))


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.01, 2.0])
def test_another_law_of_composition(factor: float) -> None:
    """The sum of all squares times `factor` squared."""

    def price(events: list[Event], delta: float) -> float:
        changed = [
            replace(event, noise_multiplier=event.noise_multiplier / factor)
            for event in events
            if isinstance(event, GaussianRelease)
        ]
        return compose_epsilon(changed, delta)

    with pytest.raises(AssertionError, match="too low" if factor < 1 else "too high"):
        priced(GAUSSIAN, 1e-6, price)


def test_slack_of_the_wrong_sign() -> None:
    def price(events: list[Event], delta: float) -> float:
        parts = [event.closeness for event in events]
        above = sum(part.log_ratio_above for part in parts)
        ratio = sum(part.log_ratio for part in parts)
        bare = with_closeness(
            events,
            lambda found: replace(found, log_ratio_above=0.0, log_ratio_below=0.0),
        )
        return compose_epsilon(bare, delta * math.exp(above)) - ratio

    for draws in (COARSE_NOISE, GAUSSIAN):
        with pytest.raises(AssertionError, match="too low"):
            priced(draws, 1e-6, price)


@pytest.mark.parametrize("part", ["log_ratio_above", "log_ratio_below"])
def test_half_of_the_slack(part: str) -> None:
    def price(events: list[Event], delta: float) -> float:
        half = with_closeness(events, lambda found: replace(found, **{part: 0.0}))
        return compose_epsilon(half, delta)

    with pytest.raises(AssertionError, match="too low"):
        priced(COARSE_NOISE, 1e-6, price)


def test_sums_of_coarse_shares_priced_as_one_draw() -> None:
    noise = Noise(True, 2.0**-16 * math.sqrt(9.0), 2.0**-15, 10, 2.0**-16, shares=9)
    whole = events_of([Draw((replace(noise, shares=1),))])
    assert priced([Draw((noise,))], 1e-6) is not None
    with pytest.raises(AssertionError, match="too low"):
        priced([Draw((noise,))], 1e-6, lambda _, delta: compose_epsilon(whole, delta))


@pytest.mark.parametrize("kept", ["_pmf_add", "_pmf_remove"])
def test_one_direction_of_a_sample(kept: str) -> None:
    from dp_accounting.pld import privacy_loss_distribution as numerical

    def one_way(events: Sequence[Event], delta: float) -> float:
        composed = None
        for event in events:
            assert isinstance(event, GaussianRelease)
            loss = numerical.from_gaussian_mechanism(
                event.noise_multiplier, sampling_prob=event.sampling_rate
            )
            composed = loss if composed is None else composed.compose(loss)
        assert composed is not None
        half = getattr(composed, kept)
        return float(
            numerical.PrivacyLossDistribution(half, half).get_epsilon_for_delta(delta)
        )

    if kept == "_pmf_remove":
        # Of Gaussian noise, removing is the dearer way at every epsilon above 0:
        # nothing is lost.
        assert priced(SAMPLED, 1e-6, one_way) is not None
        return
    with pytest.raises(AssertionError, match="too low"):
        priced(SAMPLED, 1e-6, one_way)


def test_arrays_under_one_coin_priced_as_if_each_had_its_own() -> None:
    apart = [
        GaussianRelease(event.name, event.noise_multiplier, event.closeness, draw.rate)
        for draw in SAMPLED
        for event in events_of([replace(draw, rate=1.0)])
    ]
    with pytest.raises(AssertionError, match="too low"):
        priced(SAMPLED, 1e-6, lambda _, delta: compose_epsilon(apart, delta))


def test_laplace_noise_priced_as_less_than_the_worst() -> None:
    """By a response that lies too often, and continuous noise."""

    def price(events: list[Event], delta: float) -> float:
        less = [
            replace(event, epsilon=0.97 * event.epsilon)
            if isinstance(event, PureRelease)
            else event
            for event in events
        ]
        return compose_epsilon(less, delta)

    with pytest.raises(AssertionError, match="too low"):
        priced(MIXED, 1e-6, price)
    exact = beside_gaussian(0.0, 0.0, [discrete_laplace_losses(1.0, [1])])
    assert beside_gaussian(0.0, 0.0, [laplace_losses(1.0)]) < 0.9 * exact
    assert compose_delta([PureRelease("count", 1.0)], 0.0) >= exact * (1 - 1e-12)


# -- whole plans -----------------------------------------------------------------------


def test_a_retry_that_is_not_in_the_worst_case() -> None:
    plan = drafted()
    fewer = replace(plan, config=plan.config.changed(max_retries=1)).epsilon_worst_case
    with pytest.raises(AssertionError, match="a worst case is too low"):
        walked(wrong_plan(plan, epsilon_worst_case=property(lambda self: fewer)))


def test_a_worst_case_of_another_round() -> None:
    plan = drafted(n_examples=None, count_share=0.3, evaluation="private", delta=1e-6)
    own = {"algorithm": plan.task.name, "n_clusters": plan.config.n_clusters}
    settings = {
        one.name: getattr(plan.settings, one.name) for one in fields(plan.settings)
    }
    plan = Request(settings | vars(plan.task.options) | own, 10, 2, 5000, None).draft()
    cheapest = min(
        price(
            plan.events([*range(plan.first_round, plan.last_round + 1), i, i]),
            plan.delta,
        )
        for i in range(plan.first_round, plan.last_round + 1)
    )
    with pytest.raises(AssertionError, match="a worst case is too low"):
        walked(wrong_plan(plan, epsilon_worst_case=property(lambda self: cheapest)))


def test_a_worst_case_of_one_round_repeated() -> None:
    """Two retries."""
    plan = drafted(max_iter=2, trust="central")
    strong, weak = (planned.blocks[0] for planned in plan.rounds)
    strong = replace(strong, shape=(1, 1), noise_multiplier=0.732)
    coarse = Sensitivity(Norm.L2, 5.0 / 1.408 * 2.0**-16, PrivacyUnit.RECORD)
    weak = replace(weak, shape=(500, 1), sensitivity=coarse, noise_multiplier=1.408)
    rounds = tuple(
        replace(p, blocks=(b,))
        for p, b in zip(plan.rounds, (strong, weak), strict=True)
    )
    plan = replace(plan, rounds=rounds, delta=1e-6)
    repeated = max(
        price(plan.events([1, 2, index, index]), plan.delta) for index in (1, 2)
    )
    spread = draws_of_all(plan, [1, 1, 2, 2])
    with pytest.raises(AssertionError, match="too low"):
        verdict(spread, plan.delta, repeated).require()
    assert verdict(spread, plan.delta, plan.epsilon_worst_case).margin > 1.0


def test_a_repetition_that_the_report_does_not_charge() -> None:
    plan, original = drafted(), Plan.events

    def once(self: Plan, indices: Any = None) -> Any:
        return original(self, indices if indices is None else sorted(set(indices)))

    worst = plan.epsilon_worst_case
    wrong = wrong_plan(
        plan, events=once, epsilon_worst_case=property(lambda self: worst)
    )
    with pytest.raises(AssertionError, match="too low"):
        walked(wrong)


@pytest.mark.parametrize("algorithm", ["fastlloyd", "proxy_lloyd", "feddp_kmeans"])
def test_preliminary_rounds_and_evaluations_that_are_free(algorithm: str) -> None:
    values = {
        "algorithm": algorithm,
        "n_clusters": 3,
        "bounds": BOX,
        "evaluation": "private",
        "delta": 1e-6,
    }
    server = (
        ServerFacts(30, (0.0, 0.0), 1.0, 1.0) if algorithm == "feddp_kmeans" else None
    )
    plan, original = Request(values, 10, 2, 5000, server).draft(), Plan.events

    def without(self: Plan, indices: Any = None) -> Any:
        released = range(self.first_round, self.last_round + 1)
        chosen = released if indices is None else indices
        charged = [index for index in chosen if 0 < index < self.last_round]
        return original(self, charged)

    worst = plan.epsilon_worst_case
    wrong = wrong_plan(
        plan, events=without, epsilon_worst_case=property(lambda self: worst)
    )
    with pytest.raises(AssertionError, match="too low"):
        walked(wrong)


@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_shares_of_clients_that_cannot_be_counted_on(dropout: str) -> None:
    plan = drafted(trust="distributed", dropout=dropout, max_silent=2)
    require_noise_of_shares(plan)

    class TooMany(Shares):
        @property
        def n_honest(self) -> int:
            return self.n_clients - self.max_silent + 1

    def shares_of(self: Plan, *numbers: int) -> Shares:
        return TooMany(**vars(Plan.shares_of(self, *numbers)))

    with pytest.raises(AssertionError):
        require_noise_of_shares(wrong_plan(plan, shares_of=shares_of))


def test_a_calibration_beside_the_request() -> None:
    plan = drafted(algorithm="proxy_lloyd", n_examples=5017)
    require_used(plan)
    with pytest.raises(AssertionError, match="the plan costs"):
        require_used(wrong_plan(plan, epsilon=0.998 * plan.epsilon))
    with pytest.raises(BudgetError, match="the plan costs"):
        check_budget(wrong_plan(plan, epsilon=1.002 * plan.epsilon), math.inf, plan)


def test_events_of_the_lists_are_the_house_s_own() -> None:
    """The lists of these tests are priced from blocks, as plans are."""
    assert [type(event).__name__ for event in events_of([MIXED[0], SAMPLED[0]])] == [
        "GaussianRelease",
        "PureRelease",
        "GaussianRelease",
    ]
