"""The releases of max cover cost at most what was asked for, and are described as they
are drawn.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from support.pricing import mixture_epsilon

from flwr_dpkmeans.baselines.cover_budget import CoverBudget, draft_budget
from flwr_dpkmeans.baselines.selection import selection_delta
from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import GaussianRelease, PureRelease


def draft(
    epsilon: float, delta: float, radius: float = 10.0, n_clusters: int = 8,
    n_features: int = 100,
) -> CoverBudget:  # fmt: skip
    return draft_budget(
        epsilon, delta, radius=radius, n_clusters=n_clusters, n_features=n_features,
        n_levels=7,
    )  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [1e-4, 9e-8])
@pytest.mark.parametrize(("n_clusters", "n_features"), [(1, 1), (64, 784)])
def test_the_total_is_at_most_the_request(
    epsilon: float, delta: float, n_clusters: int, n_features: int
) -> None:
    budget = draft(epsilon, delta, math.sqrt(n_features), n_clusters, n_features)
    total = compose_epsilon(budget.events, delta)
    assert 0.999 * epsilon < total <= epsilon


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3.0, 10.0])
@pytest.mark.parametrize("radius", [0.1, math.sqrt(3.0), 10.0])
def test_no_scale_is_drawn_below_the_priced_one_by_the_last_digit(
    epsilon: float, radius: float
) -> None:
    budget = draft(epsilon, 1e-6, radius)
    bounds = {line.name: line.sensitivity for line in budget.lines}
    for event in budget.events:
        if isinstance(event, GaussianRelease):
            exact = Fraction(event.noise_multiplier) * Fraction(bounds[event.name])
            assert Fraction(budget.stds[event.name]) >= exact


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_total_holds_by_an_independent_composition(epsilon: float) -> None:
    """Randomised response beside normal noise, by the definition of delta."""
    delta = 1e-6
    budget = draft(epsilon, delta)
    (pure,) = [
        event.epsilon for event in budget.events if isinstance(event, PureRelease)
    ]
    gaussians = [event for event in budget.events if isinstance(event, GaussianRelease)]
    failure, mu = (
        selection_delta(pure, budget.rate),
        math.sqrt(sum(one.noise_multiplier**-2 for one in gaussians)),
    )
    spent = mixture_epsilon(mu, [pure], delta - (1.0 + math.exp(epsilon)) * failure)
    assert 0.99 * epsilon < spent <= epsilon
    # By basic composition the same noise would cost more than what was asked for: this
    # is what exact composition earns.
    assert pure + compose_epsilon([GaussianRelease("all", 1.0 / mu)], delta) > epsilon
    # The slack that the accountant charges covers the selections' failure.
    assert sum(event.closeness.additive for event in gaussians) >= failure > 0.0


def test_lines_tell_what_events_and_noise_are() -> None:
    budget = draft(1.0, 1e-6, radius=3.0)
    gaussians = {
        event.name: event
        for event in budget.events
        if isinstance(event, GaussianRelease)
    }
    assert [line.name for line in budget.lines] == [
        event.name for event in budget.events
    ]
    assert budget.lines[0].noise_scale == pytest.approx(1.0 / budget.rate)
    for line in budget.lines[1:]:
        assert line.noise_scale == budget.stds[line.name]
        assert line.noise_scale / line.sensitivity == pytest.approx(
            gaussians[line.name].noise_multiplier
        )
        assert line.sensitivity == (3.0 if "sums" in line.name else 1.0)
        assert "Gaussian mechanism" in line.theorem
    assert len(gaussians) == 5


def test_squared_multipliers_add_up_to_the_whole() -> None:
    budget = draft(1.0, 1e-6)
    squares = [
        1.0 / event.noise_multiplier**2
        for event in budget.events
        if isinstance(event, GaussianRelease)
    ]
    whole = GaussianRelease("all", 1.0 / math.sqrt(sum(squares)))
    pure = next(event for event in budget.events if isinstance(event, PureRelease))
    # Most of what is not given to the selections is used.
    assert compose_epsilon([whole], 1e-6) > 0.95 * (1.0 - pure.epsilon)


def test_bad_budgets_get_one_sentence() -> None:
    with pytest.raises(LocalMisuseError, match=r"but it must be greater than 0: .*\.$"):
        draft(0.0, 1e-6)
    with pytest.raises(LocalMisuseError, match=r"^delta is 0.0, but .*\.$"):
        draft(1.0, 0.0)
    with pytest.raises(PlanError, match=r"^[^.\n]*.*\.$"):
        draft(1.0, 1e-30)
