"""Steps of the searches for noise and for prices, against numbers worked out here."""

from __future__ import annotations

import math

import pytest

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import accounting, calibration, losses
from flwr_dpkmeans.privacy.events import GaussianRelease, SampledGaussianRelease, dominating_release

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
    """One release of mu reaches 10 mu + mu^2 / 2 to either side, and so many steps must do for all of it."""
    for mu in (3.0, 10.0, 28.0, 31.0, 60.0):
        reach = mu * 10.0 + mu * mu / 2.0
        points = 2.0 * reach + min(reach, math.log(100.0))
        variance = mu * mu * min(1.0, math.expm1(mu * mu) / (mu * mu)) if mu < 26 else mu * mu
        step = max(losses._STEP * math.sqrt(variance), points / losses._MOST_POINTS)
        assert losses._grid_step({(1.0 / mu, 1.0): 1}, ()) == 2.0 ** math.floor(math.log2(step))


def test_a_round_of_a_sampled_release_and_another_one_is_not_joined() -> None:
    sampled, other = SampledGaussianRelease("rows", 2.0, 0.5), GaussianRelease("sums", 2.0)
    with pytest.raises(LocalMisuseError, match="a sampled round has several releases"):
        dominating_release([[sampled, other]])
