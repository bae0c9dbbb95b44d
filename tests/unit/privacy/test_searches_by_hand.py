"""Steps of the searches for noise and for prices, against numbers worked out here."""

from __future__ import annotations

import math

import pytest

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import accounting, calibration, losses
from flwr_dpkmeans.privacy.release import GaussianRelease, SampledGaussianRelease, dominating_release

OCTAVE = 2**20


def test_scales_lie_in_equal_steps_within_each_octave() -> None:
    """3 is half way from 2 to 4, the octave that begins at 2^1; 0.75 half way from 1/2 to 1."""
    for scale, octaves in ((1.0, 0.0), (3.0, 1.5), (0.75, -0.5), (5.0, 2.25)):
        index = int(octaves * OCTAVE)
        assert calibration._index_of(scale) == index
        assert calibration._scale_at(index) == scale


@pytest.mark.parametrize(("octave", "found"), [(332.0, True), (332.75, True), (333.25, False), (334.5, False)])
def test_scales_end_at_two_to_the_333(octave: float, found: bool) -> None:
    """About 1.7e100. The price halves with each octave, and is the budget at the wanted one."""
    budget = 1.0

    def price(scale: float) -> float:
        return 2.0 ** (octave - math.log2(scale))

    if found:
        scale = calibration.first_private(price, budget, 1.0)
        assert math.log2(scale) == pytest.approx(octave, abs=1e-5)
    else:
        with pytest.raises(PlanError, match="no noise scale up to 1e100"):
            calibration.first_private(price, budget, 1.0)


@pytest.mark.parametrize("beyond", [math.inf, 1e9])
def test_a_cost_that_is_flat_far_beyond_its_lowest_point_is_searched_before_it(beyond: float) -> None:
    def cost(x: float) -> float:
        return (x - 0.2) ** 2 if x < 0.3 else beyond

    assert accounting._lowest_point(cost, 0.0, 1.0) == pytest.approx(0.2, abs=1e-3)


def test_the_step_of_a_grid_of_losses_is_that_of_its_reach() -> None:
    """A release of mu reaches 10 mu + mu^2 / 2 to either side, and log(100) further, with 2^16 points for all of it.

    2 (10 mu + mu^2 / 2) + log(100) = 2^16 * 2^7 has the root below, at which the step doubles.
    """
    root = math.sqrt(2.0**23 + 100.0 - math.log(100.0)) - 10.0
    for mu, step in ((root - 0.1, 2.0**6), (root + 0.1, 2.0**7)):
        assert losses._grid_step({(1.0 / mu, 1.0): 1}, ()) == step


def test_a_round_of_a_sampled_release_and_another_one_is_not_joined() -> None:
    sampled, other = SampledGaussianRelease("rows", 2.0, 0.5), GaussianRelease("sums", 2.0)
    with pytest.raises(LocalMisuseError, match="a sampled round has several releases"):
        dominating_release([[sampled, other]])


def test_losses_of_twelve_different_responses_are_all_listed_and_of_thirteen_on_a_grid() -> None:
    """Each has two losses: 2^12 = 4096 sums are kept one by one, 8192 are rounded to a grid of half as many steps."""
    epsilons = [0.1 * 2.0**place for place in range(13)]
    assert len(losses.mixture_of(1.0, epsilons[:12]).losses) == 4096
    assert len(losses.mixture_of(1.0, epsilons).losses) < 8192


def test_the_slope_of_a_search_is_the_change_per_octave() -> None:
    """From 3 to -1 over two octaves; without two prices, as if the price were 1 / scale."""
    bracket = calibration._Bracket()
    assert bracket._slope() == -math.log(2.0)
    bracket.add(OCTAVE, 3.0)
    assert bracket._slope() == -math.log(2.0)
    bracket.add(3 * OCTAVE, -1.0)
    assert bracket._slope() == -2.0
