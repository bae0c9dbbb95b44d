"""The delta of a run that names none, by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums import draft
from flwr_dpkmeans.sums import price as price_module
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import resolve_delta


def plan_of(counted: int | None, **values: Any) -> Plan:
    """Of a run that counts its rows, before or after it did."""
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), algorithm="glloyd", **values
    )
    return draft_plan(
        config, run_id=1, n_clients=3, seed=1, n_features=2, n_examples=counted
    )


@pytest.mark.parametrize(
    ("n_clients", "delta"),
    [
        (1, 1e-6),
        (2, 1e-6),
        (3, 1e-6),
        (1000, 1e-6),
        (200_000, 1 / (200_000 * math.log(200_000))),
    ],
)
def test_many_clients_lower_the_delta_of_one(n_clients: int, delta: float) -> None:
    """At client level 1/(M ln M), which is below 1e-6 from some 90,000 clients on."""
    config = parse_config(
        n_clusters=2,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        trust="central",
        unit="client",
    )
    assert resolve_delta(config, n_clients) == delta
    assert 1 / (200_000 * math.log(200_000)) < 1e-6


@pytest.mark.parametrize("n_examples", [3, 500, 10**6])
def test_declared_rows_give_the_delta_of_one(n_examples: int) -> None:
    config = parse_config(
        n_clusters=2,
        bounds=((-1.0,), (1.0,)),
        algorithm="fastlloyd",
        n_examples=n_examples,
    )
    assert resolve_delta(config, 5) == 1 / (n_examples * math.log(n_examples))
    for n_rows in (1, 2):
        with pytest.raises(
            ConfigurationError,
            match=rf"n_examples is {n_rows}, but 1/\(N ln N\) needs at least 3",
        ):
            resolve_delta(config.changed(n_examples=n_rows, n_clusters=1), 5)


@pytest.mark.parametrize(
    ("given", "counted", "expected"),
    [
        # 1/(N ln N) of a million and six deviations more is below 7.3e-8: a sixteenth
        # of 1e-6.
        (None, 10**6, 1e-6 / 16),
        (None, 400_000, 1e-6 / 16),  # 1.94e-7 is below a quarter
        (None, 1_000, 1e-6),
        # Below 1/N: 1e-6 and less.
        (1e-4, 10**6, 1e-4 / 256),
        (1e-4, 9_000, 1e-4),
    ],
)
def test_a_counted_table_lowers_delta_by_quarters(
    given: float | None, counted: int, expected: float
) -> None:
    plan = plan_of(counted, delta=given)
    assert plan.delta == expected
    assert plan_of(None, delta=given).delta == (given or 1e-6)


@pytest.mark.parametrize("evaluation", ["none", "private"])
def test_delta_is_lowered_as_long_as_seven_tenths_of_epsilon_cover_what_came_before(
    evaluation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less the share of a private evaluation.

    At the price itself it is lowered, above it is not.
    """
    share = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,))
    ).settings.evaluation_share
    most = 0.7 * (1.0 - (share if evaluation == "private" else 0.0)) * 2.0
    asked: list[float] = []

    def price(events: object, delta: float) -> float:
        asked.append(delta)
        return most if delta > 2e-7 else math.nextafter(most, 3.0)

    monkeypatch.setattr(price_module, "price_or_infinity", price)
    plan = plan_of(10**6, evaluation=evaluation, epsilon=2.0)
    assert price_module.counted_delta(plan) == 2.5e-7
    assert asked[-2:] == [2.5e-7, 6.25e-8]


def test_six_deviations_more_rows_are_allowed_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(10**6)
    monkeypatch.setattr(
        type(plan), "released_std", lambda self, planned, block: 50_000.0
    )
    n = 1_300_000
    # 1/(N ln N) of 1.3 million is 5.46e-8; a sixteenth of 1e-6, 6.25e-8, is too much.
    assert 1.0 / (n * math.log(n)) < 6.25e-8
    assert price_module.counted_delta(plan) == 1e-6 / 64
    monkeypatch.setattr(type(plan), "released_std", lambda self, planned, block: 0.0)
    assert price_module.counted_delta(plan) == 1e-6 / 16


@pytest.mark.parametrize(("n_clients", "most"), [(3, 1), (4, 2), (10, 8)])
def test_two_clients_must_be_heard(n_clients: int, most: int) -> None:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=1_000, max_silent=most
    )
    assert draft.resolve_max_silent(config, n_clients) == most
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=1_000, max_silent=most + 1
    )
    with pytest.raises(
        ConfigurationError,
        match=f"with {n_clients} clients at most {most} may be silent or collude",
    ):
        draft.resolve_max_silent(config, n_clients)


def test_the_whole_budget_repeated_is_priced_as_its_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two retries are three times as much: the noise multiplier over sqrt(3)."""
    asked: list[Any] = []
    monkeypatch.setattr(
        draft,
        "compose_epsilon",
        lambda events, delta: asked.append((list(events), delta)) or 9.0,
    )
    gaussian = plan_of(10**6, max_retries=2)
    asked.clear()
    assert draft._whole_repeated(gaussian) == 9.0
    whole = price_module.whole_multiplier(gaussian.config, 1e-6)
    (([event], delta),) = asked
    assert (event.name, event.noise_multiplier, delta) == (
        "all rounds",
        pytest.approx(whole / math.sqrt(3.0)),
        1e-6,
    )


def test_laplace_rounds_beside_a_count_are_priced_at_a_twentieth_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    config = parse_config(
        n_clusters=2,
        bounds=((-1.0,), (1.0,)),
        algorithm="sulloyd",
        epsilon=2.0,
        max_retries=2,
    )
    plan: Any = SimpleNamespace(config=config, n_clients=3)
    share = config.settings.reserved_share(counts=True)
    whole = price_module.whole_multiplier(config, 1e-6)
    shade = 1.0 - 1e-6
    expected = price_module.gaussian_noise_multiplier(
        2.0 * share * shade, 1e-6 * shade
    ) * math.sqrt(share)
    assert whole == pytest.approx(expected, rel=1e-14)
    monkeypatch.setattr(
        draft,
        "compose_epsilon",
        lambda events, delta: asked.append((list(events), delta)) or 9.0,
    )
    assert draft._whole_repeated(plan) == 9.0
    (([others, pure], delta),) = asked
    assert (others.name, others.noise_multiplier) == (
        "other rounds",
        pytest.approx(whole / math.sqrt(3.0 * share)),
    )
    assert (pure.name, pure.epsilon, delta) == (
        "Laplace rounds",
        pytest.approx(1.05 * 2.0 * 3.0),
        1e-6,
    )
