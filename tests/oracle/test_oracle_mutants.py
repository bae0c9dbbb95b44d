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
from support.deltas import compose_delta
from support.integration import beside_gaussian, discrete_laplace_losses
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

from flwr_dpkmeans.privacy import accounting, calibration, mixtures
from flwr_dpkmeans.privacy.calibration import first_private
from flwr_dpkmeans.privacy.closeness import Closeness, discrete_gaussian_closeness
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, PureRelease, Sensitivity
from flwr_dpkmeans.privacy.release import block as mechanisms
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


def broken_totals(
    change: Callable[[accounting.Totals], accounting.Totals],
) -> Callable[..., accounting.Totals]:
    return lambda events: change(accounting.add_up(events))


@pytest.mark.parametrize(
    "draws", [GAUSSIAN, MIXED, SAMPLED], ids=["gaussian", "mixed", "sampled"]
)
def test_a_release_that_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, draws: list[Draw]
) -> None:
    original = accounting.add_up
    monkeypatch.setattr(
        accounting, "add_up", lambda events: original(list(events)[:-1])
    )
    with pytest.raises(AssertionError, match="too low"):
        priced(draws, 1e-6)


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.01, 2.0])
def test_another_law_of_composition(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    original = accounting.add_up
    monkeypatch.setattr(
        accounting,
        "add_up",
        lambda events: replace(found := original(events), mu=found.mu * factor),
    )
    with pytest.raises(AssertionError, match="too low" if factor < 1 else "too high"):
        priced(GAUSSIAN, 1e-6)


def test_slack_of_the_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(
        found: accounting.Totals,
        delta: float,
        by: Callable[[accounting.Totals, float], float],
    ) -> float:
        return (
            by(found, delta * math.exp(found.closeness.log_ratio_above))
            - found.closeness.log_ratio
        )

    monkeypatch.setattr(accounting, "epsilon_as_drawn", drawn)
    for draws in (COARSE_NOISE, GAUSSIAN):
        with pytest.raises(AssertionError, match="too low"):
            priced(draws, 1e-6)


@pytest.mark.parametrize("part", ["log_ratio_above", "log_ratio_below"])
def test_half_of_the_slack(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    original = discrete_gaussian_closeness

    def closeness(std: float, n_entries: int) -> Closeness:
        return replace(original(std, n_entries), **{part: 0.0})

    monkeypatch.setattr(mechanisms, "discrete_gaussian_closeness", closeness)
    with pytest.raises(AssertionError, match="too low"):
        priced(COARSE_NOISE, 1e-6)


def test_sums_of_coarse_shares_priced_as_one_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws = [
        Draw(
            (Noise(True, 2.0**-16 * math.sqrt(9.0), 2.0**-15, 10, 2.0**-16, shares=9),)
        )
    ]
    assert priced(draws, 1e-6) is not None
    monkeypatch.setattr(
        mechanisms, "discrete_gaussian_sum_log_ratio", lambda *sizes: 0.0
    )
    with pytest.raises(AssertionError, match="too low"):
        priced(draws, 1e-6)


@pytest.mark.parametrize("kept", ["_pmf_add", "_pmf_remove"])
def test_one_direction_of_a_sample(monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    from dp_accounting.pld import privacy_loss_distribution as numerical

    original = numerical.from_gaussian_mechanism

    def one_way(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        return numerical.PrivacyLossDistribution(
            getattr(found, kept), getattr(found, kept)
        )

    monkeypatch.setattr(numerical, "from_gaussian_mechanism", one_way)
    if kept == "_pmf_remove":
        # Of Gaussian noise, removing is the dearer way at every epsilon above 0:
        # nothing is lost.
        assert priced(SAMPLED, 1e-6) is not None
        return
    with pytest.raises(AssertionError, match="too low"):
        priced(SAMPLED, 1e-6)


def test_arrays_under_one_coin_priced_as_if_each_had_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import test_oracle_lists

    from flwr_dpkmeans.privacy.release import GaussianRelease

    def apart(
        blocks: Sequence[Any], bits: int, shares: int = 1, rate: float = 1.0
    ) -> Any:
        events = [block.event(bits, shares) for block in blocks]
        return tuple(
            GaussianRelease(e.name, e.noise_multiplier, e.closeness, rate)
            for e in events
        )

    monkeypatch.setattr(test_oracle_lists, "round_events", apart)
    with pytest.raises(AssertionError, match="too low"):
        priced(SAMPLED, 1e-6)


def test_laplace_noise_priced_as_less_than_the_worst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A response that lies more often than its epsilon allows, and continuous Laplace
    noise in its place.
    """
    from support.integration import laplace_losses

    original = mixtures.responses
    monkeypatch.setattr(
        mixtures, "responses", lambda epsilon, count: original(0.97 * epsilon, count)
    )
    with pytest.raises(AssertionError, match="too low"):
        priced(MIXED, 1e-6)
    monkeypatch.undo()
    exact = beside_gaussian(0.0, 0.0, [discrete_laplace_losses(1.0, [1])])
    assert beside_gaussian(0.0, 0.0, [laplace_losses(1.0)]) < 0.9 * exact
    assert compose_delta([PureRelease("count", 1.0)], 0.0) >= exact * (1 - 1e-12)


# -- whole plans -----------------------------------------------------------------------


def test_a_retry_that_is_not_in_the_worst_case(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = drafted()
    fewer = replace(plan, config=plan.config.changed(max_retries=1)).epsilon_worst_case
    monkeypatch.setattr(Plan, "epsilon_worst_case", property(lambda self: fewer))
    with pytest.raises(AssertionError, match="a worst case is too low"):
        walked(plan)


def test_a_worst_case_of_another_round(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(Plan, "epsilon_worst_case", property(lambda self: cheapest))
    with pytest.raises(AssertionError, match="a worst case is too low"):
        walked(plan)


def test_a_worst_case_of_one_round_repeated() -> None:
    """Two retries: one of a strong round and one of a coarse one may cost more than two
    of either, by 1% here.
    """
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


def test_a_repetition_that_the_report_does_not_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, original = drafted(), Plan.events

    def once(self: Plan, indices: Any = None) -> Any:
        return original(self, indices if indices is None else sorted(set(indices)))

    worst = plan.epsilon_worst_case
    monkeypatch.setattr(Plan, "events", once)
    monkeypatch.setattr(Plan, "epsilon_worst_case", property(lambda self: worst))
    with pytest.raises(AssertionError, match="too low"):
        walked(plan)


@pytest.mark.parametrize("algorithm", ["fastlloyd", "proxy_lloyd", "feddp_kmeans"])
def test_preliminary_rounds_and_evaluations_that_are_free(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
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
    plan, original = Request(values, 10, 2, 5000, server).draft(), Plan._round_events

    def free(self: Plan, index: int) -> Any:
        return () if index <= 0 or index == self.last_round else original(self, index)

    worst = plan.epsilon_worst_case
    monkeypatch.setattr(Plan, "_round_events", free)
    monkeypatch.setattr(Plan, "epsilon_worst_case", property(lambda self: worst))
    with pytest.raises(AssertionError, match="too low"):
        walked(plan)


@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_shares_of_clients_that_cannot_be_counted_on(
    monkeypatch: pytest.MonkeyPatch, dropout: str
) -> None:
    plan = drafted(trust="distributed", dropout=dropout, max_silent=2)
    require_noise_of_shares(plan)
    monkeypatch.setattr(
        Shares, "n_honest", property(lambda self: self.n_clients - self.max_silent + 1)
    )
    with pytest.raises(AssertionError):
        require_noise_of_shares(fresh(plan))


@pytest.mark.parametrize("factor", [0.998, 1.002])
def test_a_calibration_beside_the_request(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    original = first_private
    monkeypatch.setattr(
        calibration,
        "first_private",
        lambda cost, epsilon, start, **named: factor * original(cost, epsilon, start),
    )
    if factor > 1.0:
        plan = drafted(algorithm="proxy_lloyd", n_examples=5017)
        with pytest.raises(AssertionError, match="the plan costs"):
            require_used(plan)
    else:
        from flwr_dpkmeans.errors import BudgetError

        with pytest.raises(BudgetError):
            drafted(algorithm="proxy_lloyd", n_examples=5018)


def test_events_of_the_lists_are_the_house_s_own() -> None:
    """The lists of these tests are priced from blocks, as plans are."""
    assert [type(event).__name__ for event in events_of([MIXED[0], SAMPLED[0]])] == [
        "GaussianRelease",
        "PureRelease",
        "GaussianRelease",
    ]
