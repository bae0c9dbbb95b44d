"""Steps of the searches for noise and for prices, against numbers worked out here."""

from __future__ import annotations

import math
from collections.abc import Callable

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


def path_of(price: Callable[[float], float], start: float) -> tuple[float | None, list[int]]:
    """What is found for a third, and the scales of the lattice that were priced on the way."""
    asked: list[int] = []

    def noted(scale: float) -> float:
        asked.append(calibration._index_of(scale))
        return price(scale)

    try:
        return calibration.first_private(noted, 1.0 / 3.0, start), asked
    except PlanError:
        return None, asked


@pytest.mark.parametrize(
    ("price", "start", "found", "path"),
    [
        # A step along the price as if it were 1/s, then along its slope, one further than asked where it rounds up.
        (lambda s: 1.0 / s, 1.0, 3.0, [0, 1661954, 1582587, 1572592, 1572865, 1572864, 1572863]),
        (lambda s: s**-2.0, 1.0, 3.0**0.5, [0, 1661954, 791294, 772223, 767581, 767611, 767610]),
        # Sixteen octaves at most in one step, and halves of the bracket where the price has no slope.
        (
            lambda s: math.inf if s < 10.0 else 0.0,
            1.0,
            10.0,
            [
                *(0, 16777216, 8388608, 4194304, 2097152, 3145728, 3670016, 3407872, 3276800, 3342336, 3375104),
                *(3391488, 3399680, 3403776, 3405824, 3406848, 3407360, 3407616, 3407744, 3407808, 3407840, 3407856),
                *(3407864, 3407868, 3407870, 3407871),
            ],
        ),
        # A flat price: at least 1, 8, 64, ... scales further than the octaves that 1/s would take, up to both ends.
        (
            lambda s: 0.6,
            1.0,
            None,
            [
                *(0, 889190, 1778380, 2667570, 3556760, 4445950, 5335140, 6224330, 8321482, 25098698, 159316426),
                349175808,
            ],
        ),
        (
            lambda s: 0.05,
            1.0,
            None,
            [
                *(0, -2869916, -5739832, -8609748, -11479664, -14349580, -17219496, -20089412, -22959328, -39736544),
                *(-173954272, -349175808),
            ],
        ),
        # Whatever the start, the ends of the lattice are where it begins.
        (
            lambda s: 1.0 / s,
            1e-200,
            3.0,
            [
                *(-349175808, -332398592, -315621376, -298844160, -282066944, -265289728, -248512512, -231735296),
                *(-214958080, -198180864, -63963136, 349175808, 142606336, 125829120, 109051904, 22544384, 5767168),
                *(1572864, -31195136, -14417920, 1572863),
            ],
        ),
        (
            lambda s: 1.0 / s,
            1e200,
            3.0,
            [
                *(349175808, 332398592, 315621376, 298844160, 282066944, 265289728, 248512512, 231735296, 214958080),
                *(198180864, 63963136, -349175808, -142606336, -125829120, -109051904, -22544384, -5767168, 1572864),
                1572863,
            ],
        ),
    ],
)
def test_the_path_of_a_search_for_a_scale(
    price: Callable[[float], float], start: float, found: float | None, path: list[int]
) -> None:
    scale, asked = path_of(price, start)
    assert asked == path
    assert scale is found is None or scale == pytest.approx(found, rel=2.0**-20)


def test_a_search_that_does_not_end_says_so() -> None:
    """Prices that jump about without an end: 500 are asked for."""
    asked: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration._Bracket, "next_index", lambda bracket: 0)
        with pytest.raises(PlanError, match=r"the noise of epsilon = 0\.333333 did not converge"):
            calibration.first_private(lambda scale: asked.append(scale) or 1.0, 1.0 / 3.0, 1.0)  # type: ignore[func-returns-value]
    assert len(asked) == 500


def test_the_path_of_a_search_for_a_multiplier() -> None:
    """Upwards by 2^-43, nine times as much, and so on, each step eight times the one before; downwards likewise."""
    unit = 2.0**-43
    for least, path in (
        (1.0 + 60.0 * unit, [1.0, 1.0 + unit, 1.0 + 9.0 * unit, 1.0 + 73.0 * unit, 1.0 + 9.0 * unit]),
        (1.0 - 60.0 * unit, [1.0, 1.0, 1.0 - unit, 1.0 - 9.0 * unit, 1.0 - 73.0 * unit, 1.0 - 73.0 * unit]),
    ):
        asked: list[float] = []
        found = calibration.smallest_multiplier(lambda sigma: asked.append(sigma) or sigma >= least, 1.0)  # noqa: B023
        assert asked[: len(path)] == pytest.approx(path, rel=1e-15)
        assert 0.0 <= found - least <= unit
        assert len(asked) == (13 if least > 1.0 else 14)


@pytest.mark.parametrize(("start", "reachable"), [(1e99, True), (1e-99, True), (1e100, False), (1e-100, False)])
def test_multipliers_end_at_a_hundred_powers_of_ten(start: float, reachable: bool) -> None:
    """A step to either side is taken before the end is seen."""
    for private in (lambda sigma: sigma >= start * (1.0 + 1e-9), lambda sigma: sigma >= start * (1.0 - 1e-9)):
        outward = private(start) == (start < 1.0)
        if reachable or not outward:
            assert calibration.smallest_multiplier(private, start) == pytest.approx(start, rel=1e-8)
        else:
            with pytest.raises(PlanError, match="meets the privacy condition"):
                calibration.smallest_multiplier(private, start)


def test_newton_steps_are_at_most_a_factor_of_e_and_end_where_they_no_longer_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    delta_of = calibration.gaussian_delta
    monkeypatch.setattr(calibration, "gaussian_delta", lambda *at: asked.append(at[1]) or delta_of(*at))
    assert delta_of(0.01, calibration._refine_mu(0.01, 0.3, 5.0)) == pytest.approx(0.3, rel=1e-14)
    assert asked[:4] == pytest.approx([5.0, 5.0 / math.e, 5.0 / math.e**2, 0.7792351146977798])
    assert len(asked) == 6
    asked.clear()
    assert delta_of(5.0, calibration._refine_mu(5.0, 1e-10, 0.5)) == pytest.approx(1e-10, rel=1e-13)
    assert asked[:4] == pytest.approx([0.5, 0.6741819852792378, 0.7663007320192358, 0.7805203859856794])
    assert len(asked) == 6
    # Where delta is 0, there is nothing to go by.
    assert calibration._refine_mu(1.0, 1e-5, 0.001) == 0.001


def test_a_bisection_asks_at_both_ends_and_then_in_the_middle() -> None:
    asked: list[float] = []
    found = losses.smallest_true(lambda x: asked.append(x) or x >= 0.3, 0.0, 1.0)
    assert asked[:6] == [0.0, 1.0, 0.5, 0.25, 0.375, 0.3125]
    assert (len(asked), 0.0 < found - 0.3 <= 2.0**-43 * 0.3) == (47, True)
    assert losses.smallest_true(lambda x: x >= 0.3, 0.5, math.inf) == 0.5
    for low, high in ((1.0, math.inf), (1.0, 1.0), (1.0, 2.0)):
        with pytest.raises(PlanError, match=f"no value up to {high} meets"):
            losses.smallest_true(lambda x: x > 2.0, low, high)


def test_golden_sections_ask_once_for_each_step() -> None:
    """Each step keeps 0.618 of the range: of 1 down to 1e-7 of the larger end, 0.2, that is 37 steps."""
    asked: list[float] = []
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    found = accounting._lowest_point(lambda x: asked.append(x) or (x - 0.2) ** 2, 0.0, 1.0)
    assert asked[:4] == pytest.approx([1.0 - golden, golden, golden - golden**2, 1.0 - golden - golden**3])
    assert found == pytest.approx(0.2, abs=1e-7)
    assert len(asked) == 2 + math.ceil(math.log(0.2e-7) / math.log(golden))
