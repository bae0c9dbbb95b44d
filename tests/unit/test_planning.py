"""The public plan against a stranger's arithmetic.

Formulas of the papers, written again with SciPy.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from support.cases import pairs

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    DPKMeansError,
    PlanError,
    ProtocolError,
)
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.release import (
    GaussianRelease,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.sound import MAX_VECTOR_LENGTH, check_budget
from flwr_dpkmeans.sums.checks.verify import require_next, verify_plan
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan, worst_case
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.wire import dump_plan, load_plan

BOX = ((-1.0,), (1.0,))
RHO = 0.225


def config(**values: Any) -> RunConfig:
    return parse_config(
        **({"n_clusters": 3, "bounds": BOX, "n_examples": 1000} | values)
    )


def plan_of(
    width: int | None = 2, *, n_clients: int = 5, counted: int | None = None,
    box: Box | None = None, **values: Any,
) -> Plan:  # fmt: skip
    known = {"n_features": width, "n_examples": counted, "box": box}
    return draft_plan(config(**values), run_id=9, n_clients=n_clients, seed=7, **known)  # type: ignore[arg-type]


# -- a stranger's formulas (DESIGN, section 5) -----------------------------------------


def stranger_sigma(
    epsilon: float,
    delta: float,
    log_ratios: Callable[[float], tuple[float, float]] = lambda _: (0.0, 0.0),
) -> float:
    """Smallest multiplier that is (epsilon, delta)-DP (Balle and Wang 2018)."""

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        above, below = log_ratios(sigma)
        left = epsilon - above - below
        a, b = 0.5 / sigma - left * sigma, -0.5 / sigma - left * sigma
        return (
            math.exp(above) * float(ndtr(a) - math.exp(left + log_ndtr(b))) / delta
            - 1.0
        )

    return math.exp(brentq(excess, math.log(1e-3), math.log(1e7), xtol=1e-12))


def stranger_log_ratios(
    stds: Sequence[float], sizes: Sequence[int], rounds: int
) -> tuple[float, float]:
    """Log-ratios, up to e^-100, of m entries of noise of deviation s in steps."""
    above = below = 0.0
    for std, size in zip(stds, sizes, strict=True):
        unit = 24.0 * (std * 2.0**16) ** 2
        above += rounds * min(size, math.sqrt(600.0 * size)) / unit
        below += rounds * (2.0 * math.sqrt(100.0 * size) + 200.0) / unit
    return above, below


def stranger_iterations(estimate: float, max_iter: int | None) -> int:
    return max_iter if max_iter is not None else min(7, max(2, math.floor(estimate)))


SHAPES = pairs([150, 1797, 48842], [1, 2, 64], [1, 3, 15])
SETTINGS = list(itertools.product((0.1, 1.0, 3.0), (None, 1, 4), ("step", "constant")))


@pytest.mark.sample(5)
@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
def test_fastlloyd_equals_a_strangers_recomputation(n: int, d: int, k: int) -> None:
    delta = 1.0 / (n * math.log(n))
    beta = 2.0 * math.sqrt(d)
    eta = 0.8 * beta / (2.0 * k ** (1.0 / d))
    root = 1.0 + math.sqrt(4.0 * d)
    for epsilon, max_iter, schedule in SETTINGS:

        def t_of(sigma: float, max_iter: int | None = max_iter) -> int:
            return stranger_iterations(
                0.004 * 4.0 * n**2 / (k**3 * eta**2 * sigma**2 * root**2), max_iter
            )

        def multipliers(sigma: float) -> tuple[float, float]:
            return sigma * math.sqrt(root) / (4.0 * d) ** 0.25, sigma * math.sqrt(root)

        def log_ratios(
            sigma: float, t_of: Callable[[float], int] = t_of
        ) -> tuple[float, float]:
            t = t_of(sigma)
            sums, counts = multipliers(sigma * math.sqrt(t))
            return stranger_log_ratios((sums * eta, counts), (k * d, k), t)

        sigma = stranger_sigma(epsilon, delta, log_ratios)
        sigma_r, sigma_c = multipliers(sigma)
        t = t_of(sigma)
        assert 1.0 / sigma_r**2 + 1.0 / sigma_c**2 == pytest.approx(1.0 / sigma**2)
        values = {
            "n_examples": n,
            "epsilon": epsilon,
            "max_iter": max_iter,
            "schedule": schedule,
        }
        plan = plan_of(d, algorithm="fastlloyd", n_clusters=k, **values)
        radii = [beta / 2.0 if schedule == "step" else eta] + [eta] * (t - 1)
        assert plan.delta == pytest.approx(delta)
        assert plan.last_round == t
        assert [planned.radius for planned in plan.rounds] == pytest.approx(
            radii, rel=1e-9
        )
        for planned, radius in zip(plan.rounds, radii, strict=True):
            sums, counts = planned.blocks
            assert (sums.name, sums.shape, counts.name, counts.shape) == (
                "relative_sums",
                (k, d),
                "counts",
                (k,),
            )
            assert sums.sensitivity.bound == pytest.approx(radius, rel=1e-9)
            assert counts.sensitivity.bound == 1.0
            assert sums.noise_scale == pytest.approx(
                sigma_r * radius * math.sqrt(t), rel=1e-8
            )
            assert counts.noise_scale == pytest.approx(sigma_c * math.sqrt(t), rel=1e-8)
        assert 0.999999 * epsilon <= plan.epsilon <= epsilon


@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
def test_glloyd_equals_a_strangers_recomputation(n: int, d: int, k: int) -> None:
    delta = 1.0 / (n * math.log(n))
    root = 2.0 * RHO + math.sqrt(d)
    for epsilon, max_iter in itertools.product((0.1, 1.0, 3.0), (None, 3)):

        def t_of(sigma: float, max_iter: int | None = max_iter) -> int:
            return stranger_iterations(
                0.004 * n**2 / (k**3 * d * sigma**2 * root**2), max_iter
            )

        def multipliers(sigma: float) -> tuple[float, float]:
            return sigma * math.sqrt(root) / d**0.25, sigma * math.sqrt(
                root
            ) / math.sqrt(2.0 * RHO)

        def log_ratios(
            sigma: float, t_of: Callable[[float], int] = t_of
        ) -> tuple[float, float]:
            t = t_of(sigma)
            sums, counts = multipliers(sigma * math.sqrt(t))
            return stranger_log_ratios((sums * math.sqrt(d), counts), (k * d, k), t)

        sigma = stranger_sigma(epsilon, delta, log_ratios)
        sigma_s, sigma_c = multipliers(sigma)
        t = t_of(sigma)
        plan = plan_of(
            d, algorithm="glloyd", n_clusters=k, n_examples=n, epsilon=epsilon,
            max_iter=max_iter,
        )  # fmt: skip
        assert plan.last_round == t
        for planned in plan.rounds:
            sums, counts = planned.blocks
            assert sums.sensitivity.bound == pytest.approx(math.sqrt(d), rel=1e-15)
            assert counts.sensitivity.bound == 1.0
            assert sums.noise_scale == pytest.approx(
                sigma_s * math.sqrt(d) * math.sqrt(t), rel=1e-8
            )
            assert counts.noise_scale == pytest.approx(sigma_c * math.sqrt(t), rel=1e-8)
        assert 0.999999 * epsilon <= plan.epsilon <= epsilon


@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
def test_sulloyd_equals_a_strangers_recomputation(n: int, d: int, k: int) -> None:
    for epsilon, max_iter in itertools.product((0.1, 1.0, 3.0), (None, 3)):
        part = (4.0 * d * RHO**2) ** (1.0 / 3.0)
        t = stranger_iterations(
            epsilon / math.sqrt(500.0 * k**3 / n**2 * (d + part) ** 3), max_iter
        )
        sums_epsilon, counts_epsilon = (
            epsilon / t * d / (d + part),
            epsilon / t * part / (d + part),
        )
        plan = plan_of(
            d, algorithm="sulloyd", n_clusters=k, n_examples=n, epsilon=epsilon,
            max_iter=max_iter,
        )  # fmt: skip
        assert plan.last_round == t
        for planned in plan.rounds:
            sums, counts = planned.blocks
            assert (sums.sensitivity.bound, counts.sensitivity.bound) == (float(d), 1.0)
            assert sums.noise_scale == pytest.approx(d / sums_epsilon, rel=1e-9)
            assert counts.noise_scale == pytest.approx(1.0 / counts_epsilon, rel=1e-9)
        assert 0.999 * epsilon <= plan.epsilon <= epsilon * (1 + 1e-9)


def test_lloyd_adds_nothing_and_costs_everything() -> None:
    plan = plan_of(algorithm="lloyd", n_examples=None)
    assert plan.last_round == 7
    assert plan.epsilon == plan.epsilon_worst_case == math.inf
    assert all(
        block.noise_scale == 0.0 for planned in plan.rounds for block in planned.blocks
    )
    assert plan_of(algorithm="lloyd", max_iter=12).last_round == 12


def test_alpha_scales_the_radius_and_bounds_do_not() -> None:
    wide = plan_of(algorithm="fastlloyd", alpha=0.4, bounds=((0.0,), (100.0,)))
    usual = plan_of(algorithm="fastlloyd", alpha=0.8)
    assert wide.rounds[-1].radius == pytest.approx(usual.rounds[-1].radius / 2.0)
    assert wide.rounds[0].radius == math.sqrt(2.0)


# -- composition, checked with another library -----------------------------------------


def pld_epsilon(multipliers: Sequence[float], delta: float) -> float:
    """Compose Gaussian mechanisms of sensitivity 1 by privacy-loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = None
    for multiplier in multipliers:
        one = pld.from_gaussian_mechanism(
            multiplier, value_discretization_interval=1e-3
        )
        total = one if total is None else total.compose(one)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def multipliers_of(plan: Plan, indices: Sequence[int]) -> list[float]:
    return [
        block.noise_multiplier
        for index in indices
        for block in plan.round_at(index).blocks
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd", "glloyd"])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_worst_case_equals_independent_composition(
    algorithm: str, retries: int
) -> None:
    plan = plan_of(algorithm=algorithm, epsilon=1.5, max_retries=retries, max_iter=4)
    indices = list(range(1, plan.last_round + 1))
    assert plan.epsilon == pytest.approx(
        pld_epsilon(multipliers_of(plan, indices), plan.delta), rel=0.01
    )
    repeated = max(
        indices, key=lambda index: sum(m**-2 for m in multipliers_of(plan, [index]))
    )
    worst = pld_epsilon(
        multipliers_of(plan, indices + [repeated] * retries), plan.delta
    )
    assert plan.epsilon_worst_case == pytest.approx(worst, rel=0.01)
    assert (plan.epsilon_worst_case > plan.epsilon) is (retries > 0)


def test_worst_case_repeats_the_costliest_release_be_it_a_round_or_the_count() -> None:
    values = {
        "algorithm": "fastlloyd", "count_share": 0.45, "max_iter": 7, "max_retries": 2,
    }  # fmt: skip
    plan = plan_of(n_examples=None, counted=900, **values)
    counted = pld_epsilon(multipliers_of(plan, [*range(8), 0, 0]), plan.delta)
    repeated = pld_epsilon(multipliers_of(plan, [*range(8), 1, 1]), plan.delta)
    assert counted > 1.1 * repeated
    assert plan.epsilon_worst_case == pytest.approx(counted, rel=0.01)


def continuous(plan: Plan) -> float:
    """Price of the plan as if its noise were not discrete."""
    gaussians = [event for event in plan.events() if isinstance(event, GaussianRelease)]
    return compose_epsilon(
        [replace(event, closeness=SAME) for event in gaussians], plan.delta
    )


@pytest.mark.parametrize(
    ("algorithm", "trust", "shape", "epsilon"),
    pairs(
        ["proxy_lloyd", "fastlloyd", "feddp_kmeans"],
        ["central", "distributed"],
        [(1, 2), (100, 10), (819, 100)],
        [0.01, 1.0, 8.0, 20.0],
    ),
)
def test_discrete_noise_is_affordable_at_every_epsilon(
    algorithm: str, trust: str, shape: tuple[int, int], epsilon: float
) -> None:
    """Also with a retry, and for the entries of an outer product."""
    d, k = shape
    server = (
        ServerFacts(200, (0.0,) * d, 0.4 * math.sqrt(d), 0.5)
        if algorithm == "feddp_kmeans"
        else None
    )
    values = config(
        algorithm=algorithm, trust=trust, n_clusters=k, epsilon=epsilon, delta=1e-6,
        n_examples=50_000,
    )  # fmt: skip
    plan = draft_plan(
        values, run_id=9, n_clients=20, seed=7, n_features=d, server=server
    )
    assert 0.999 * epsilon <= plan.epsilon <= epsilon
    assert math.isfinite(plan.epsilon_worst_case)
    assert plan.epsilon < plan.epsilon_worst_case < 2.0 * epsilon
    assert plan.epsilon * (1 - 1e-6) < continuous(plan) <= plan.epsilon * (1 + 1e-12)


def test_noise_of_a_few_grid_steps_costs_more_but_has_a_price() -> None:
    """A tiny clip bound: discrete noise costs a noticeable part of epsilon."""
    server = ServerFacts(30, (0.0,) * 8, 1e-4, 1e-6)
    values = config(algorithm="feddp_kmeans", trust="central", epsilon=8.0, delta=1e-6)
    plan = draft_plan(
        values, run_id=9, n_clients=20, seed=7, n_features=8, server=server
    )
    assert 0.999 * 8.0 <= plan.epsilon <= 8.0
    assert 7.0 < continuous(plan) < 0.99 * 8.0


def test_worst_case_of_laplace_rounds_adds_up() -> None:
    plan = plan_of(algorithm="sulloyd", epsilon=1.5, max_retries=2, max_iter=3)
    assert plan.epsilon_worst_case == pytest.approx(1.5 * 5 / 3)


def test_worst_case_of_spread_retries_is_covered() -> None:
    """A strong round of fine noise and a weaker one of coarse noise."""
    from flwr_dpkmeans.sums.price import price

    plan = plan_of(algorithm="fastlloyd", max_retries=2, max_iter=2, trust="central")
    first, second = plan.rounds[0].blocks[0], plan.rounds[1].blocks[0]
    coarse = Sensitivity(Norm.L2, 5.0 * 0.71 * 2.0**-16, PrivacyUnit.RECORD)
    fine = replace(first, shape=(1, 1), noise_multiplier=1.0 / (0.71 * 1.925))
    weak = replace(
        second, shape=(500, 1), sensitivity=coarse, noise_multiplier=1.0 / 0.71
    )
    rounds = [
        replace(plan.rounds[0], blocks=(fine,)),
        replace(plan.rounds[1], blocks=(weak,)),
    ]
    plan = replace(plan, rounds=tuple(rounds), delta=1e-6)
    costs = {
        pair: price(plan.events([1, 2, *pair]), plan.delta)
        for pair in ((1, 1), (2, 2), (1, 2))
    }
    assert costs[1, 2] > 1.009 * max(costs[1, 1], costs[2, 2])
    assert plan.epsilon_worst_case >= costs[1, 2]
    assert plan.epsilon_worst_case <= 1.3 * costs[1, 2]
    once = replace(plan, config=plan.config.changed(max_retries=1))
    # Which of them is repeated may follow from what was released: the price holds for
    # both at once.
    assert once.epsilon_worst_case > max(
        price(once.events([1, 2, index]), once.delta) for index in (1, 2)
    )
    assert once.epsilon_worst_case <= 1.3 * price(once.events([1, 2, 2]), once.delta)


def test_worst_case_of_mixed_rounds_is_no_less_than_any_order_of_retries() -> None:
    plan = plan_of(
        algorithm="sulloyd", n_examples=None, counted=900, count_share=0.3,
        max_retries=1, max_iter=2,
    )  # fmt: skip
    from flwr_dpkmeans.sums.price import price

    for repeated in (0, 1, 2):
        assert (
            price(plan.events([0, 1, 2, repeated]), plan.delta)
            <= plan.epsilon_worst_case
        )


# -- what is charged before the rounds are known ---------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd", "glloyd", "sulloyd"])
def test_what_is_charged_before_a_count_covers_whatever_follows_from_it(
    algorithm: str, retries: int
) -> None:
    values: dict[str, Any] = {
        "algorithm": algorithm,
        "n_examples": None,
        "max_retries": retries,
        "epsilon": 1.0,
    }
    charged, undecided = (
        worst_case(plan_of(**values)),
        worst_case(plan_of(None, delta=1e-9, **values)),
    )
    # With each number of retries every count meets one width, and over all of them
    # every width.
    for place, counted in enumerate((10, 300, 3_000, 30_000, 10**6, 10**8)):
        width = (1, 2, 30)[(place + (0, 1, 3).index(retries)) % 3]
        plan = plan_of(width, counted=counted, delta=1e-9, **values)
        assert plan.epsilon_worst_case <= worst_case(plan) * (1 + 1e-9)
        # It is one number, whatever is counted, and no larger than before widths were
        # public.
        before = plan_of(width, delta=1e-9, **values)
        assert worst_case(plan) == worst_case(before) <= undecided * (1 + 1e-9)
    assert charged <= (1 + retries) * 1.1
    assert retries or charged == 1.0


@pytest.mark.parametrize(
    "values", [{}, {"unit": "client"}, {"unit": "client", "client_sampling_rate": 0.5}]
)
def test_what_is_charged_before_private_bounds_is_the_final_plans_worst_case(
    values: dict[str, Any],
) -> None:
    """No price depends on what the bounds are found to be."""
    given: dict[str, Any] = {
        "private_bounds": True,
        "bounds": ((-8.0,), (8.0,)),
        "max_iter": 1,
    } | values
    before, after = plan_of(**given), plan_of(box=((-1.0, 0.0), (2.0, 3.0)), **given)
    assert (before.is_final, after.is_final) == (False, True)
    assert worst_case(before) == worst_case(after) == after.epsilon_worst_case


def test_a_declared_largest_epsilon_caps_what_is_charged_before_a_count() -> None:
    known: dict[str, Any] = {
        "algorithm": "fastlloyd",
        "n_examples": None,
        "epsilon": 1.0,
    }
    free, capped = plan_of(**known), plan_of(max_epsilon=1.15, **known)
    assert worst_case(free) > 1.2
    assert (
        worst_case(capped)
        == 1.15
        >= plan_of(max_epsilon=1.15, counted=100_000, **known).epsilon_worst_case
    )


def test_a_plan_that_can_cost_more_than_was_charged_is_refused() -> None:
    values: dict[str, Any] = {
        "algorithm": "fastlloyd",
        "n_examples": None,
        "max_iter": 2,
    }
    plan = plan_of(counted=1000, **values)
    check_budget(plan, plan.epsilon_worst_case, plan)
    with pytest.raises(BudgetError, match="was charged before the rows were"):
        check_budget(plan, plan.epsilon, plan)


@pytest.mark.parametrize(
    "values",
    [{"algorithm": "lloyd"}, {"algorithm": "fastlloyd", "evaluation": "exact"}],
)
@pytest.mark.parametrize("n_examples", [1000, None])
def test_without_noise_everything_is_charged(
    values: dict[str, Any], n_examples: int | None
) -> None:
    assert worst_case(plan_of(n_examples=n_examples, **values)) == math.inf


# -- the private count -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "share", "epsilon"),
    pairs(
        ["proxy_lloyd", "fastlloyd", "glloyd", "sulloyd"],
        [0.001, 0.02, 0.3],
        [0.1, 1.0, 5.0],
    ),
)
def test_count_and_rounds_together_stay_within_the_budget(
    algorithm: str, share: float, epsilon: float
) -> None:
    plan = plan_of(
        n_examples=None, counted=5000, algorithm=algorithm, count_share=share,
        epsilon=epsilon,
    )  # fmt: skip
    assert plan.count is not None
    assert plan.first_round == 0
    assert plan.count.trust == "distributed"
    assert plan.epsilon <= epsilon
    if algorithm == "sulloyd":
        assert (
            plan.epsilon >= 0.7 * epsilon
        )  # the mixture composes better than its shares add up
    else:
        assert plan.epsilon >= 0.999 * epsilon
        everything = multipliers_of(plan, range(plan.last_round + 1))
        squares = [1.0 / multiplier**2 for multiplier in everything]
        whole = stranger_sigma(epsilon, plan.delta) ** -2
        assert squares[0] == pytest.approx(share * whole, rel=1e-6)
        assert 0.99 * whole < sum(squares) < whole * (1 + 1e-9)


def test_count_of_sulloyd_costs_its_share_of_epsilon() -> None:
    plan = plan_of(
        n_examples=None, counted=5000, algorithm="sulloyd", epsilon=2.0,
        count_share=0.1, max_iter=2,
    )  # fmt: skip
    (block,) = plan.count.blocks
    assert block.noise_multiplier == pytest.approx(
        stranger_sigma(0.2, plan.delta), rel=1e-4
    )
    per_round = sum(1.0 / block.noise_multiplier for block in plan.rounds[0].blocks)
    assert 2 * per_round >= 1.8
    assert 0.999 * 2.0 < plan.epsilon <= 2.0


def test_plan_is_preliminary_until_rows_and_width_are_known() -> None:
    assert not plan_of(n_examples=None).is_final
    assert not plan_of(None).is_final
    assert plan_of(None).count is None
    assert plan_of(None, n_features=3).is_final
    assert plan_of(n_examples=None, counted=500).is_final
    assert plan_of(n_examples=None, algorithm="lloyd").is_final
    assert plan_of(n_examples=None, algorithm="lloyd").count is None


@pytest.mark.parametrize(("released", "n"), [(999.6, 1000), (1000.4, 1000), (3.2, 3)])
def test_released_count_is_rounded(released: float, n: int) -> None:
    assert config(n_examples=None).task.counted_examples(released) == n


@pytest.mark.parametrize("released", [2.4, 0.0, -17.0])
def test_released_count_below_k_is_refused(released: float) -> None:
    with pytest.raises(PlanError, match="but 3 clusters need at least as many rows"):
        config(n_examples=None).task.counted_examples(released)


# -- delta, cohort, limits -------------------------------------------------------------


def test_delta_is_as_given_or_follows_from_n() -> None:
    assert plan_of(delta=1e-7).delta == 1e-7
    assert plan_of(n_examples=1797).delta == 1.0 / (1797 * math.log(1797))
    assert plan_of(n_examples=None).delta == 1e-6
    assert plan_of(n_examples=None, counted=500).delta == 1e-6
    with pytest.raises(ConfigurationError, match=r"but 1/\(N ln N\) needs at least 3"):
        plan_of(n_examples=2, n_clusters=1)
    assert plan_of(n_examples=3, n_clusters=1).delta < 1.0 / 3.0
    assert plan_of(n_examples=None, counted=1_000_000).delta == 1e-6 / 16


def test_silent_clients_follow_from_the_cohort() -> None:
    assert [plan_of(n_clients=n).max_silent for n in (2, 32, 33, 100)] == [0, 0, 3, 10]
    assert [plan_of(n_clients=n).min_cohort for n in (2, 33)] == [2, 5]
    assert plan_of(max_silent=3).min_cohort == 5
    assert plan_of(min_clients=4, max_silent=0).min_cohort == 4
    with pytest.raises(ConfigurationError, match="max_silent is 4, but with 5"):
        plan_of(max_silent=4)


def test_unit_that_the_algorithm_does_not_protect_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="but 'lloyd' protects 'record'"):
        plan_of(algorithm="lloyd", unit="client")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"algorithm": "fastloyd"},
         "algorithm is 'fastloyd', which is not known: did you mean 'fastlloyd'?"),
        ({"trust": "oblivous"},
         "trust is 'oblivous', which is not known: did you mean 'oblivious'?"),
        ({"n_features": 3},
         "n_features is declared as 3, but the clients' tables have 2 features:"
         " correct n_features or leave it out."),
        ({"bounds": ((0.0,) * 3, (1.0,) * 3)},
         "there are bounds for 3 features, but the table has 2: give one pair"
         " for all features or one pair for each."),
    ],
)  # fmt: skip
def test_what_no_plan_follows_from_is_refused(
    values: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_of(**values)
    assert str(caught.value) == text


def test_sums_that_could_wrap_are_refused() -> None:
    with pytest.raises(PlanError, match=r"but the ring wraps at 9.22e\+18: use fewer"):
        plan_of(n_clients=2**20)
    with pytest.raises(PlanError, match="the ring wraps"):
        plan_of(epsilon=1e-14, delta=1e-15)
    assert plan_of(n_clients=2**17).is_final


def test_vectors_that_are_too_long_are_refused() -> None:
    k = MAX_VECTOR_LENGTH // 512
    assert plan_of(511, n_clusters=k - 1, n_examples=2 * k).is_final
    # ProxyLloyd sends the sum of the residuals' squares besides.
    message = (
        r"'refinement-1' has 16777217 entries, but at most 16777216 can be aggregated:"
        r" use fewer"
    )
    with pytest.raises(PlanError, match=message):
        plan_of(511, n_clusters=k, n_examples=2 * k)


@pytest.mark.parametrize(
    "algorithm", ["fastlloyd", "glloyd", "lloyd", "sphere_packing"]
)
def test_packings_that_take_minutes_are_refused(algorithm: str) -> None:
    assert plan_of(
        10, algorithm=algorithm, n_clusters=10_000, n_examples=10**9
    ).is_final
    with pytest.raises(ConfigurationError, match="n_clusters is 10001 with 10"):
        plan_of(10, algorithm=algorithm, n_clusters=10_001, n_examples=10**9)


def test_no_plan_is_for_more_clients_than_can_be_priced_quickly() -> None:
    with pytest.raises(PlanError, match="the plan is for 1048577 clients"):
        plan_of(n_clients=2**20 + 1)


def test_noise_finer_than_the_grid_is_refused() -> None:
    with pytest.raises(PlanError, match=r"but the grid has steps of 1.53e-05: lower"):
        plan_of(algorithm="sulloyd", epsilon=1e7)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-9, 1e3, 1e6, 1e300])
@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd", "glloyd", "sulloyd"])
@pytest.mark.parametrize("trust", ["oblivious", "distributed"])
def test_extreme_budgets_give_a_plan_within_them_or_a_sentence(
    epsilon: float, algorithm: str, trust: str
) -> None:
    try:
        plan = plan_of(epsilon=epsilon, algorithm=algorithm, trust=trust)
    except DPKMeansError:
        return
    assert 0.0 <= plan.epsilon <= epsilon * (1 + 1e-9)


def test_laplace_shares_are_refused() -> None:
    with pytest.raises(PlanError, match="'sums' has Laplace noise, which the trust"):
        plan_of(algorithm="sulloyd", trust="distributed")


# -- refusal before anything is sent ---------------------------------------------------


class CountingGrid(InProcessGrid):
    """Counts the messages that are sent."""

    sent = 0

    def push_messages(self, messages: Any) -> Any:
        listed = list(messages)
        self.sent += len(listed)
        return super().push_messages(listed)


@pytest.fixture
def grid() -> Iterator[CountingGrid]:
    """Three clients with 100 rows each."""
    generator = np.random.default_rng(0)
    clients = [KMeansClient(generator.uniform(-1, 1, (100, 2))) for _ in range(3)]
    built = CountingGrid(
        [Node(client_app(lambda _, client=client: client)) for client in clients],
        run_id=77,
    )
    with built.running():
        yield built


@pytest.mark.parametrize(
    "known",
    [{"n_features": 2, "n_examples": 300}, {"n_features": 2}, {"n_examples": 300}, {}],
    ids=str,
)
@pytest.mark.parametrize(
    "algorithm", ["proxy_lloyd", "fastlloyd", "glloyd", "sulloyd", "lloyd"]
)
def test_plan_over_the_limit_is_refused_before_a_message(
    grid: InProcessGrid, known: dict[str, int], algorithm: str
) -> None:
    strategy = PrivateKMeans(
        3, bounds=(-1, 1), algorithm=algorithm, epsilon=1.0, max_epsilon=0.9, **known
    )  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match=r"can cost epsilon .* max_epsilon is 0.9"):
        strategy.start(grid)
    assert grid.sent == 0  # type: ignore[attr-defined]


def test_retries_count_toward_the_limit(grid: InProcessGrid) -> None:
    limited = {
        "epsilon": 1.0, "max_epsilon": 1.1, "n_features": 2, "n_examples": 300,
        "max_iter": 2,
    }  # fmt: skip
    with pytest.raises(BudgetError, match="when all 1 retries are used"):
        PrivateKMeans(3, bounds=(-1, 1), algorithm="fastlloyd", **limited).start(grid)  # type: ignore[arg-type]
    assert grid.sent == 0  # type: ignore[attr-defined]
    plan = plan_of(**limited, max_retries=0)
    assert plan.epsilon_worst_case == plan.epsilon <= 1.0


def test_limit_that_only_a_long_run_meets_does_not_refuse_early() -> None:
    limited: dict[str, Any] = {
        "algorithm": "fastlloyd",
        "epsilon": 1.0,
        "max_epsilon": 1.12,
        "n_examples": None,
    }
    assert not plan_of(**limited).is_final
    assert plan_of(**limited, counted=100_000).last_round == 7
    with pytest.raises(BudgetError):
        plan_of(**limited, counted=100)


@pytest.mark.parametrize("width", [9, None])
def test_limit_that_only_a_wide_table_with_many_rows_meets_does_not_refuse_early(
    width: int | None,
) -> None:
    """With proxies in a subspace no release takes as much as without."""
    worst = plan_of(9, n_examples=None, counted=100_000).epsilon_worst_case
    assert (
        worst < plan_of(9, n_examples=None, counted=10, n_clusters=9).epsilon_worst_case
    )
    limited: dict[str, Any] = {"max_epsilon": worst * 1.001, "n_examples": None}
    assert not plan_of(width, **limited).is_final
    assert plan_of(9, counted=100_000, **limited).is_final
    with pytest.raises(BudgetError):
        plan_of(9, counted=10, **(limited | {"n_clusters": 9}))
    with pytest.raises(BudgetError):
        plan_of(width, n_examples=None, max_epsilon=1.01)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(PlanError, match="the plan's seed is -1, but it must be 0"):
        draft_plan(config(), run_id=9, n_clients=5, seed=-1, n_features=2)


@pytest.mark.parametrize("name", ["algorithm", "trust"])
def test_unknown_names_are_refused_when_the_strategy_is_made(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{name} is 'glloid', which is not known"
    ):
        PrivateKMeans(3, bounds=(-1, 1), **({"algorithm": "glloyd"} | {name: "glloid"}))  # type: ignore[arg-type]


# -- what a client checks --------------------------------------------------------------

PLANS = {
    "proxy_lloyd": {"delta": 1e-5, "max_iter": 2},
    "fastlloyd": {"algorithm": "fastlloyd", "delta": 1e-5, "max_iter": 2},
    "glloyd": {"algorithm": "glloyd", "trust": "central"},
    "sulloyd": {"algorithm": "sulloyd", "schedule": "constant"},
    "lloyd": {"algorithm": "lloyd", "max_iter": 1},
    "counted": {"n_examples": None, "counted": 1234},
    "preliminary": {"n_examples": None},
    "private bounds": {"n_examples": None, "private_bounds": True, "counted": 900,
                       "box": ((-0.5, 0.0), (0.5, 0.75))},
    "declared width": {"n_features": 2},
    "large cohort": {"n_clients": 40},
    "evaluated": {"evaluation": "private", "n_classes": 3, "evaluation_radius": 0.5},
}  # fmt: skip
# What the sender may choose freely: nothing in the plan follows from it. The digest in
# every reply covers it.
FREE = {
    *("run_id", "n_clients", "seed"),
    *(
        f"config.settings.{name}"
        for name in ("min_clients", "max_retries", "bounds.0.0", "bounds.1.0")
    ),
}
# Options of FedDP-KMeans.
FREE |= {
    *(
        "config.task.options.lloyd_share",
        "config.task.options.n_init",
        "config.task.options.margin",
        "config.settings.examples_per_client",
    ),
    *("config.settings.client_sampling_rate", "config.task.options.weight_threshold"),
}
# So is an option that an algorithm does not use, and what the mod compares with the
# released count and its own table.
UNUSED = {
    "proxy_lloyd": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share",
    },
    "fastlloyd": {"config.settings.count_share", "config.settings.bounds_share"},
    "glloyd": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share",
    },
    "sulloyd": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share",
    },
    "lloyd": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share", "config.settings.epsilon",
        "config.settings.n_examples",
    },
    "counted": {
        "config.task.options.alpha", "n_examples", "config.settings.bounds_share",
    },
    "preliminary": {
        "config.task.options.alpha", "config.task.n_clusters", "n_features",
        "config.settings.bounds_share",
    },
    "private bounds": {
        "config.task.options.alpha",
        "n_examples",
        *(f"box.{side}.{feature}" for side in (0, 1) for feature in (0, 1)),
    },
    "declared width": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share",
    },
    "large cohort": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share",
    },
    "evaluated": {
        "config.task.options.alpha", "config.settings.count_share",
        "config.settings.bounds_share",
    },
}  # fmt: skip
for name, unused in UNUSED.items():
    if name != "evaluated":
        unused |= {"config.settings.evaluation_share", "config.settings.n_classes"}


def built(name: str) -> Plan:
    values = dict(PLANS[name])
    return plan_of(None if "n_features" in values else 2, **values)  # type: ignore[arg-type]


def leaves(
    value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every scalar of a JSON document with its path."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from leaves(item, (*path, key))
    if not isinstance(value, dict | list):
        yield path, value


def changed(document: Any, path: tuple[Any, ...], value: Any) -> bytes:
    """The document as JSON, with another value in one place."""
    copy = json.loads(json.dumps(document))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(copy).encode()


def is_refused(blob: bytes) -> bool:
    """Whether a client turns a plan down with one of the package's errors."""
    try:
        verify_plan(load_plan(blob))
    except DPKMeansError:
        return True
    return False


@pytest.mark.parametrize("name", PLANS)
def test_own_plan_survives_the_wire_and_is_accepted(name: str) -> None:
    plan = built(name)
    received = load_plan(dump_plan(plan))
    assert received == plan
    assert dump_plan(received) == dump_plan(plan)
    assert received.epsilon == plan.epsilon
    verify_plan(received)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PLANS)
def test_every_tampered_number_is_refused(name: str) -> None:
    document = json.loads(dump_plan(built(name)))
    free = FREE | UNUSED[name]
    numbers = [
        (path, value)
        for path, value in leaves(document)
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and ".".join(map(str, path)) not in free
    ]
    if name != "preliminary":
        assert len([path for path, _ in numbers if path[0] == "rounds"]) >= 7
    for place, (path, value) in enumerate(numbers):
        larger = (
            value + 1
            if isinstance(value, int)
            else value * 1.001 + (1e-3 if value == 0.0 else 0.0)
        )
        smaller = (
            value - 1
            if isinstance(value, int)
            else value * 0.999 - (1e-3 if value == 0.0 else 0.0)
        )
        # Of the first plan's numbers both, of the others' by turns: what refuses is one
        # comparison of two drafts.
        for other in (
            (larger, smaller)
            if name == next(iter(PLANS))
            else ((larger, smaller)[place % 2],)
        ):
            assert is_refused(changed(document, path, other)), (
                f"{path}: {value} -> {other} was accepted"
            )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("rounds", 0, "trust"), "central"),
        (("rounds", 0, "name"), "lloyd-9"),
        (("rounds", 0, "radius"), None),
        (("rounds", 0, "blocks", 0, "noise"), "none"),
        (("rounds", 0, "blocks", 0, "name"), "sums"),
        (("rounds", 0, "blocks", 0, "sensitivity", "norm"), "l1"),
        (("rounds", 0, "blocks", 0, "sensitivity", "unit"), "client"),
        (("rounds", 0, "blocks", 0, "noise_multiplier"), "12"),
        (("rounds", 0, "blocks", 0, "noise_multiplier"), None),
        (("rounds", 0, "blocks", 0, "shape"), [6]),
        (("rounds", 0, "blocks"), []),
        (("rounds",), []),
        (
            ("preliminary",),
            [{"name": "count", "trust": "distributed", "blocks": [], "radius": None}],
        ),
        (("box",), [[-1.0, -1.0], [1.0, 1.0]]),
        (("config", "settings", "private_bounds"), True),
        (("config", "task", "name"), "glloyd"),
        (("config", "settings", "trust"), "central"),
        (("config", "settings", "trust"), "nobody"),
        (("config", "task", "n_clusters"), "3"),
        (("config",), None),
    ],
)
def test_tampered_structure_is_refused(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(DPKMeansError):
        verify_plan(
            load_plan(changed(json.loads(dump_plan(built("fastlloyd"))), path, value))
        )


@pytest.mark.parametrize(
    "blob", [b"", b"{}", b"[1]", b"\xff", b"null", b'{"run_id": 1']
)
def test_malformed_plans_are_a_protocol_error(blob: bytes) -> None:
    with pytest.raises(ProtocolError, match="the plan is malformed"):
        load_plan(blob)


def test_a_plan_may_differ_in_the_last_digits() -> None:
    plan = built("fastlloyd")
    first = plan.rounds[0]
    block = replace(
        first.blocks[0], noise_multiplier=first.blocks[0].noise_multiplier * (1 + 1e-11)
    )
    verify_plan(
        replace(
            plan,
            rounds=(replace(first, blocks=(block, first.blocks[1])), *plan.rounds[1:]),
        )
    )


def test_final_plan_must_continue_the_preliminary_one() -> None:
    before = plan_of(n_examples=None)
    final = plan_of(n_examples=None, counted=800)
    require_next(before, final, Discoveries(800), begun=True, released=0)
    for changed in (
        {"run_id": 10},
        {"n_clients": 6},
        {"max_silent": 1},
        {"seed": 8},
        {"n_features": 3},
        {"server": ServerFacts(20, (0.0, 0.0), 0.5, 0.2)},
        {"columns_digest": "0" * 64},
        {"version": 6},
        {"config": final.config.changed(epsilon=2.0)},
    ):
        [name] = changed
        with pytest.raises(
            ProtocolError,
            match=f"has another {name} than the one in force, which had fixed it",
        ):
            require_next(
                before, replace(final, **changed), Discoveries(800), begun=True,
                released=0,
            )  # fmt: skip
    with pytest.raises(ProtocolError, match="but the private count released 800"):
        require_next(
            before, replace(final, n_examples=801), Discoveries(800), begun=True,
            released=0,
        )  # fmt: skip
    with pytest.raises(ProtocolError, match="another box than the private histograms"):
        require_next(
            before, replace(final, box=((0.0,), (1.0,))), Discoveries(800), begun=True,
            released=0,
        )  # fmt: skip
    for released in (None, -1, 1):
        with pytest.raises(ProtocolError, match="n_examples than the one in force"):
            require_next(before, final, Discoveries(800), begun=True, released=released)
    # What follows from the rest is recomputed.
    for other in (before, replace(final, delta=2e-6), replace(final, preliminary=())):
        with pytest.raises(DPKMeansError):
            verify_plan(replace(other, n_examples=800))


def test_rounds_of_a_plan_are_counted_from_the_count() -> None:
    plan = plan_of(n_examples=None, counted=800)
    assert plan.round_at(0).name == "count"
    assert plan.round_at(1).name == "look-1"
    for index in (-1, plan.last_round + 1):
        with pytest.raises(ProtocolError, match=f"but not {index}"):
            plan.round_at(index)
    with pytest.raises(ProtocolError, match="but not 0"):
        plan_of().round_at(0)


def test_start_is_public_and_shared_read_only() -> None:
    plan = plan_of(algorithm="fastlloyd")
    first, again = (
        initial_state(plan),
        initial_state(plan_of(algorithm="fastlloyd", epsilon=0.5)),
    )
    assert np.array_equal(first.centroids, again.centroids)
    assert not first.centroids.flags.writeable
    assert not np.array_equal(
        first.centroids, initial_state(replace(plan, seed=8)).centroids
    )
    assert build_algorithm(plan_of()) is build_algorithm(plan_of())


def test_start_of_proxy_lloyd_is_empty_and_follows_from_the_seed() -> None:
    first, again = initial_state(plan_of()), initial_state(plan_of(epsilon=0.5))
    assert not first.centroids.any()
    assert first.digest == again.digest
    assert first.digest != initial_state(replace(plan_of(), seed=8)).digest
    assert not any(
        array.flags.writeable for array in (first.centroids, *first.extras.values())
    )
