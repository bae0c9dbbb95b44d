"""ProxyLloyd: its public numbers by hand, its report, and rounds that no released value
can break.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from support.cases import pairs
from support.flat import flat_estimator

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.proxy.entries import AVERAGE_COUNTS
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.options import parse_config, read_config
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    ReleasedSum,
    as_released,
)
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import PrivateSum, State
from flwr_dpkmeans.sums.statement import build_report

Floats = NDArray[np.float64]
GRID = 2.0**16
SEEDING, REFINING = 0.35, 1.0 - 0.05 - 0.01 - 0.05 - 0.35


@cache
def plan_of(d: int, k: int, n: int, epsilon: float = 2.0, **values: Any) -> Plan:
    settings: dict[str, Any] = {
        "trust": "central", "delta": 1e-5, "n_init": 2, "n_clients": 5,
    } | values  # fmt: skip
    # Less than 1/N.
    settings["delta"] = 1e-7 if n > 50_000 else settings["delta"]
    n_clients = settings.pop("n_clients")
    config = parse_config(
        n_clusters=k, bounds=((-1.0,), (1.0,)), algorithm="proxy_lloyd", n_examples=n,
        epsilon=epsilon, **settings,
    )  # fmt: skip
    return draft_plan(config, run_id=1, n_clients=n_clients, seed=3, n_features=d)


def delta_of(mu: float, epsilon: float) -> float:
    """Delta of a Gaussian mechanism of sensitivity over noise mu (Balle 2018)."""
    return float(
        ndtr(mu / 2 - epsilon / mu)
        - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    )


def sigma_of(epsilon: float, delta: float) -> float:
    """Noise multiplier of one Gaussian release, by Balle and Wang's formula."""
    return 1.0 / float(
        brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-3, 100.0, xtol=1e-14)
    )


def blocks_of(plan: Plan) -> list[tuple[str, Block]]:
    return [
        (planned.name, block) for planned in plan.rounds for block in planned.blocks
    ]


def n_proxies_of(plan: Plan) -> int:
    return next(
        (
            block.shape[0]
            for _, block in blocks_of(plan)
            if block.name == "proxy_counts"
        ),
        0,
    )


# -- public numbers --------------------------------------------------------------------


def test_numbers_of_a_narrow_table_by_hand() -> None:
    plan = plan_of(2, 4, 1000)
    # 3.5 deviations of the noise on a count for each proxy: one pass has 0.35 * 0.6 of
    # the budget for counts.
    counts_noise = sigma_of(2.0, 1e-5) / math.sqrt(SEEDING * 0.6)
    assert n_proxies_of(plan) == int(1000 / (3.5 * counts_noise)) == 65
    assert [planned.name for planned in plan.rounds] == [
        *(f"look-{t}" for t in range(1, 4)),
        "covariance",
        "proxies-1",
        *(f"refinement-{t}" for t in range(1, 6)),
    ]
    shapes = {block.name: block.shape for _, block in blocks_of(plan)}
    assert shapes == {
        "row_sums": (2,),
        "row_squares": (1,),
        "row_distances": (28,),
        "unit_outer_product": (3,),
        "proxy_sums": (65, 2),
        "proxy_counts": (65,),
        "residual_sums": (4, 2),
        "counts": (4,),
        "residual_squares": (4,),
        # Five shells of both columns.
        "excess_sums": (4, 10),
    }
    assert [name for name, block in blocks_of(plan) if block.name == "excess_sums"] == [
        "refinement-5"
    ]


def test_clusters_have_radii_of_their_own_where_noise_is_below_a_fiftieth_of_one() -> (
    None
):
    """Of one release with all that is left, on a centroid of N / k rows."""
    noise = (
        sigma_of(2.0, 1e-5)
        * math.sqrt(2.0)
        * 4
        / math.sqrt(1.0 - 0.06 - 0.05 - SEEDING)
    )
    for n, k, n_radii in (
        (math.floor(0.999 * noise / 0.02), 4, 1),
        (math.ceil(1.001 * noise / 0.02), 4, 4),
    ):
        assert shape_of(plan_of(2, k, n), "residual_squares") == (n_radii,)
    assert shape_of(plan_of(2, 1, 100_000), "residual_squares") == (1,)


def shape_of(plan: Plan, array: str) -> tuple[int, ...] | None:
    """Of an array of the last round; None where it has none such."""
    return next(
        (block.shape for block in plan.rounds[-1].blocks if block.name == array), None
    )


def test_what_the_last_refinement_cuts_is_released_where_it_would_be_heard() -> None:
    """Up to a noise of 3% of a radius, in at most 64 columns, never of clients."""
    noise = (
        sigma_of(2.0, 1e-5)
        * math.sqrt(2.0)
        * 4
        / math.sqrt(1.0 - 0.06 - 0.05 - SEEDING)
    )
    for n, shape in (
        (math.floor(0.999 * noise / 0.03), None),
        (math.ceil(1.001 * noise / 0.03), (4, 10)),
    ):
        assert shape_of(plan_of(2, 4, n), "excess_sums") == shape
    for d, shape in ((64, (4, 320)), (65, None)):
        assert shape_of(plan_of(d, 4, 10**6, 50.0), "excess_sums") == shape
    # 204 clusters of 64 columns have 65,280 entries, and 205 have 65,600.
    for k, shape in ((204, (204, 320)), (205, None)):
        assert shape_of(plan_of(64, k, 9 * 10**6, 50.0), "excess_sums") == shape
    plan = plan_of(
        2, 4, 10**6, 50.0, unit="client", examples_per_client=10, n_clients=10_000
    )
    assert shape_of(plan, "excess_sums") is None


@pytest.mark.parametrize(
    ("d", "least_proxies"), [(1, 50), (2, 50), (4, 50), (5, 63), (6, 75), (8, 100)]
)
def test_a_narrow_table_has_a_second_pass_where_so_many_proxies_are_heard_in_each(
    d: int, least_proxies: int
) -> None:
    """A quarter of 200 in up to four columns, and as much more in more."""
    # Each has 3.5 deviations of a count's noise, whose share is half of 0.35 * 0.6.
    least = (
        200 * max(4, d) / 16 * 3.5 * sigma_of(2.0, 1e-5) / math.sqrt(SEEDING / 2 * 0.6)
    )
    for n, n_passes in ((math.floor(0.999 * least), 1), (math.ceil(1.001 * least), 2)):
        plan = plan_of(d, 4, n)
        names = [planned.name for planned in plan.rounds]
        assert [name for name in names if name.startswith("proxies")] == [
            f"proxies-{t + 1}" for t in range(n_passes)
        ]
        assert [name for name in names if name.startswith("refinement")] == [
            f"refinement-{t}" for t in range(1, 6)
        ]
    assert n_proxies_of(plan) in (least_proxies, least_proxies - 1)


def test_numbers_of_a_wide_table_by_hand() -> None:
    plan = plan_of(30, 6, 20_000, 1.0)
    # Three passes in a space of k - 1 directions.
    counts_noise = sigma_of(1.0, 1e-5) / math.sqrt(SEEDING / 3 * 0.6)
    n_proxies = int(20_000 / (3.5 * counts_noise))
    assert 1.3 * 6 < n_proxies_of(plan) == min(n_proxies, 200)
    assert [planned.name for planned in plan.rounds] == [
        *(f"look-{t}" for t in range(1, 4)),
        "covariance",
        "proxies-1",
        "proxies-2",
        "proxies-3",
        *(f"refinement-{t}" for t in range(1, 5)),
    ]
    shapes = {block.name: block.shape for _, block in blocks_of(plan)}
    assert shapes["proxy_sums"] == (n_proxies_of(plan), 5)
    assert shapes["unit_outer_product"] == (30 * 31 // 2,)


@pytest.mark.parametrize(
    ("d", "k", "width"),
    [(8, 3, 8), (9, 1, 2), (9, 3, 2), (9, 10, 9), (50, 10, 9), (50, 40, 12)],
)
def test_dimension_of_the_proxies(d: int, k: int, width: int) -> None:
    plan = plan_of(d, k, 500_000)
    assert {
        block.shape[1] for _, block in blocks_of(plan) if block.name == "proxy_sums"
    } == {width}


@pytest.mark.parametrize(
    ("k", "most"),
    [(3, 200), (25, 200), (26, 208), (100, 800), (125, 1000), (500, 4000)],
)
def test_largest_number_of_proxies(k: int, most: int) -> None:
    assert n_proxies_of(plan_of(2, k, 1_000_000)) == most


def test_proxies_are_skipped_where_there_are_hardly_more_than_clusters() -> None:
    n_proxies = n_proxies_of(plan_of(2, 60, 1000))
    # As many as have 2 deviations of rows each, fewer than 2.5 * 60; with few clusters
    # each has 3.5.
    assert n_proxies == pytest.approx(
        n_proxies_of(plan_of(2, 4, 1000)) * 3.5 / 2.0, abs=2
    )
    last = n_proxies - 2
    assert n_proxies_of(plan_of(2, last, 1000)) == n_proxies
    skipped = plan_of(2, last + 1, 1000)
    assert n_proxies_of(skipped) == 0
    assert [planned.name for planned in skipped.rounds] == [
        *(f"look-{t}" for t in range(1, 4)),
        "covariance",
        *(f"refinement-{t}" for t in range(1, 6)),
    ]


WEIGHTS_CASES = [
    (2, 4, 4000, 3, 2), (2, 4, 900, 3, 1), (30, 6, 20_000, 3, 3), (3, 5, 20, 3, 0),
    (1, 1, 3, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(("d", "k", "n", "_e", "n_passes"), WEIGHTS_CASES)
def test_shares_add_up_to_the_whole_budget(
    d: int, k: int, n: int, _e: int, n_passes: int
) -> None:
    plan = plan_of(d, k, n)
    blocks = blocks_of(plan)
    total = math.fsum(block.noise_multiplier**-2 for _, block in blocks)
    share = {
        (name, block.name): block.noise_multiplier**-2 / total for name, block in blocks
    }
    looks = [f"look-{index}" for index in range(1, 4)] if n >= 900 else []
    for name in looks or ["location"]:
        # A fifth of a look's 2% is for the histogram.
        part = 0.8 / 3 if looks else 1.0
        assert share[name, "row_sums"] == pytest.approx(0.05 * part)
        assert share[name, "row_squares"] == pytest.approx(0.01 * part)
    for name in looks:
        assert share[name, "row_distances"] == pytest.approx(0.004)
    assert share["covariance", "unit_outer_product"] == pytest.approx(0.05)
    for index in range(1, n_passes + 1):
        assert share[f"proxies-{index}", "proxy_sums"] == pytest.approx(
            SEEDING / n_passes * 0.4
        )
        assert share[f"proxies-{index}", "proxy_counts"] == pytest.approx(
            SEEDING / n_passes * 0.6
        )
    rest = REFINING + (0.0 if n_passes else SEEDING)
    n_rounds = 5 if n_passes < 3 else 4
    has_excess = (f"refinement-{n_rounds}", "excess_sums") in share
    for index in range(1, n_rounds + 1):
        # The last one has as much as two others, and where it says what it cuts, two
        # fifths are for that.
        part = rest / (n_rounds + 1) * (2.0 if index == n_rounds else 1.0)
        if has_excess and index == n_rounds:
            assert share[f"refinement-{index}", "excess_sums"] == pytest.approx(
                0.4 * part
            )
            part *= 0.6
        assert share[f"refinement-{index}", "residual_sums"] == pytest.approx(
            part * 0.87
        )
        assert share[f"refinement-{index}", "counts"] == pytest.approx(part * 0.1)
        assert share[f"refinement-{index}", "residual_squares"] == pytest.approx(
            part * 0.03
        )
    assert len(share) == (10 if looks else 3) + 2 * n_passes + 3 * n_rounds + has_excess
    assert math.fsum(share.values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("d", "k", "n", "epsilon"),
    [(2, 4, 4000, 2.0), (30, 6, 20_000, 0.1), (3, 5, 20, 1.0), (8, 3, 5000, 30.0)],
)
@pytest.mark.parametrize("trust", ["central", "oblivious", "distributed"])
def test_epsilon_is_the_joint_gaussian_composition_of_all_arrays(
    d: int, k: int, n: int, epsilon: float, trust: str
) -> None:
    plan = plan_of(d, k, n, epsilon, trust=trust)
    mu = math.sqrt(
        math.fsum(block.noise_multiplier**-2 for _, block in blocks_of(plan))
    )
    assert delta_of(mu, epsilon) <= 1e-5
    # Hardly anything is given away: 1 % more noise would not be needed.
    assert delta_of(mu, epsilon * 0.999) > 1e-5 or epsilon < 0.5
    assert delta_of(mu * 1.01, epsilon) > 1e-5
    assert 0.99 * epsilon <= plan.epsilon <= epsilon


def test_every_array_has_sensitivity_one_and_the_outer_product_its_rounding() -> None:
    for plan in (plan_of(2, 4, 4000), plan_of(30, 6, 20_000, 1.0)):
        for _, block in blocks_of(plan):
            rounding = 0.0
            if block.name == "unit_outer_product":
                rounding = math.sqrt(block.size) * 1.05 * 2.0**-16
            assert block.sensitivity.bound == pytest.approx(1.0 + rounding, abs=1e-15)
            assert block.sensitivity.norm is Norm.L2
            assert block.noise is NoiseShape.GAUSSIAN
            assert block.entry_bound >= 1.0


@pytest.mark.parametrize(
    ("d", "k", "n", "epsilon"),
    pairs([1, 2, 8, 9, 30], [1, 3, 40], [50, 3000, 100_000], [0.1, 3.0]),
)
def test_at_most_eleven_rounds(d: int, k: int, n: int, epsilon: float) -> None:
    plan = plan_of(d, k, n, epsilon)
    looks = plan.rounds[0].name == "look-1"
    assert 7 + 2 * looks <= len(plan.rounds) <= 9 + 2 * looks


def test_max_iter_is_the_number_of_refinements() -> None:
    for max_iter in (1, 3, 12):
        plan = plan_of(2, 4, 4000, max_iter=max_iter)
        assert [planned.name for planned in plan.rounds][6:] == [
            f"refinement-{t}" for t in range(1, max_iter + 1)
        ]
        mu = math.sqrt(
            math.fsum(block.noise_multiplier**-2 for _, block in blocks_of(plan))
        )
        assert delta_of(mu * 1.01, 2.0) > 1e-5


def test_shares_of_noise_from_all_clients_are_reckoned_with() -> None:
    """Under 'distributed' noise is of 5 shares where 4 are counted on."""
    counts_noise = sigma_of(2.0, 1e-5) / math.sqrt(SEEDING * 0.6) * math.sqrt(5 / 4)
    assert (
        n_proxies_of(plan_of(2, 4, 1000, trust="distributed"))
        == int(1000 / (3.5 * counts_noise))
        == 58
    )


def test_the_papers_mixture_of_noises_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="but the algorithm is 'proxy_lloyd'"):
        read_config(n_clusters=2, bounds=((-1,), (1,)), noise_kind="paper")


def test_a_plan_depends_on_public_numbers_only() -> None:
    """Not on the seed, the run, the source of noise."""
    one, two = plan_of(2, 4, 4000), plan_of(2, 4, 4000, noise="seeded", random_state=7)
    assert one.rounds == two.rounds


# -- reports ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", [(2, 4, 4000), (9, 4, 20_000), (3, 5, 20)])
def test_every_array_has_a_line_with_its_theorem(case: tuple[int, int, int]) -> None:
    plan = plan_of(*case)
    report = build_report(
        plan, tuple((index, 0) for index in range(1, plan.last_round + 1))
    )
    assert [(line.round_name, line.array) for line in report.releases] == [
        (name, block.name) for name, block in blocks_of(plan)
    ]
    for line, (_, block) in zip(report.releases, blocks_of(plan), strict=True):
        assert line.sensitivity == block.sensitivity.bound
        assert line.noise_scale == pytest.approx(block.noise_scale)
        assert "one row" in line.theorem, line.array
        assert "Gaussian" in line.theorem
        if line.array not in ("counts",):
            assert "ProxyLloyd" in line.theorem, line.array
    spent = [line.epsilon_so_far for line in report.releases]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(2.0, rel=1e-3)


# -- rounds ----------------------------------------------------------------------------


def released(private_sum: PrivateSum, values: Floats) -> ReleasedSum:
    words = np.rint(values * GRID).astype(np.int64).view(np.uint64)
    return as_released(words, private_sum.blocks, 16)


def exact(private_sum: PrivateSum, points: Floats, state: State) -> Floats:
    arrays = private_sum.statistic(points, state.view(private_sum.reads))
    return np.concatenate([np.ravel(array) for array in arrays])


def blobs(n: int, d: int, seed: int = 0) -> Floats:
    generator = np.random.default_rng(seed)
    centers = generator.uniform(-0.7, 0.7, (4, d))
    rows = np.clip(
        centers[generator.integers(0, 4, n)] + generator.normal(0, 0.03, (n, d)), -1, 1
    )
    found: Floats = np.rint(rows * GRID) / GRID
    return found


def states(plan: Plan, points: Floats, noise: float, seed: int = 0) -> list[State]:
    """A whole run on one table, with noise of so many times the planned size."""
    generator = np.random.default_rng(seed)
    algorithm = build_algorithm(plan)
    found = [algorithm.initial_state(plan.seed)]
    for private_sum in algorithm.rounds:
        scales = np.concatenate(
            [np.full(block.size, block.noise_scale) for block in private_sum.blocks]
        )
        values = exact(
            private_sum, points, found[-1]
        ) + noise * scales * generator.normal(size=scales.shape)
        found.append(private_sum.advance(found[-1], released(private_sum, values)))
    return found


CASES = [(1, 2, 4000), (2, 4, 4000), (9, 4, 20_000), (3, 5, 20)]


@pytest.mark.parametrize(("d", "k", "n"), CASES)
def test_equal_releases_give_equal_states_to_the_last_bit(
    d: int, k: int, n: int
) -> None:
    """Clients go on by themselves and must agree."""
    points = blobs(n, d)
    one = states(plan_of(d, k, n), points, 1.0)
    two = states(plan_of.__wrapped__(d, k, n), np.asfortranarray(points), 1.0)
    for first, second in zip(one, two, strict=True):
        assert first.digest == second.digest
        assert first.movements == second.movements


@pytest.mark.parametrize(("d", "k", "n"), CASES)
def test_the_last_digits_of_the_planned_noise_change_no_state(
    d: int, k: int, n: int
) -> None:
    """Another machine's numerical search ends a few last digits away."""
    plan = plan_of(d, k, n)
    algorithm, points = build_algorithm(plan), blobs(n, d)
    other = build_algorithm(plan_of(d, k, n, 2.0 * (1.0 + 1e-15)))
    multipliers = [
        [b.noise_multiplier for s in a.rounds for b in s.blocks]
        for a in (algorithm, other)
    ]
    assert multipliers[0] == pytest.approx(multipliers[1], rel=1e-12)
    path = states(plan, points, 1.0)
    generator = np.random.default_rng(0)
    for private_sum, theirs, state in zip(
        algorithm.rounds, other.rounds, path, strict=False
    ):
        scales = np.concatenate(
            [np.full(block.size, block.noise_scale) for block in private_sum.blocks]
        )
        values = exact(private_sum, points, state) + scales * generator.normal(
            size=scales.shape
        )
        after = [
            s.advance(state, released(s, values)).digest for s in (private_sum, theirs)
        ]
        assert after[0] == after[1], private_sum.name


def test_without_noise_separate_blobs_are_found() -> None:
    for d, n in ((2, 4000), (9, 20_000)):
        points = blobs(n, d)
        plan = plan_of(d, 4, n, 8.0)
        truth = np.random.default_rng(0).uniform(-0.7, 0.7, (4, d))
        for noise in (0.0, 1.0):
            centroids = states(plan, points, noise)[-1].centroids
            distances = np.sqrt(
                np.square(truth[:, None] - centroids[None]).sum(axis=2)
            ).min(axis=1)
            assert distances.max() < 0.06, (d, noise)


def test_states_carry_what_the_next_round_reads() -> None:
    for d, k, n in CASES:
        plan = plan_of(d, k, n)
        for private_sum, state in zip(
            build_algorithm(plan).rounds, states(plan, blobs(n, d), 1.0), strict=False
        ):
            exact(private_sum, blobs(5, d), state.view(private_sum.reads))
            whole = private_sum.statistic(blobs(50, d), state)
            some = private_sum.statistic(blobs(50, d), state.view(private_sum.reads))
            for one, other in zip(whole, some, strict=True):
                assert np.array_equal(one, other)


def test_fewer_centroids_than_planned_leave_the_last_rows_zero() -> None:
    """There may be fewer clusters than the largest number that was planned."""
    plan = plan_of(2, 4, 4000)
    path = states(plan, blobs(4000, 2), 1.0)
    last = build_algorithm(plan).rounds[-1]
    averages = {AVERAGE_COUNTS: path[-2][AVERAGE_COUNTS][:2]}
    state = cluster_state(
        path[-2].centroids[:2],
        np.zeros(2),
        path[-2].movements,
        {**path[-2].extras, **averages},
    )
    sums, counts, squares, excess = last.statistic(blobs(300, 2), state)
    assert not excess[2:].any()
    assert sums.shape == (4, 2)
    assert not sums[2:].any()
    assert counts[2:].tolist() == [0.0, 0.0]
    assert counts.sum() == 300.0
    assert 0.0 < squares[0] <= 300.0
    after = last.advance(
        state,
        released(last, np.concatenate([sums.ravel(), counts, squares, excess.ravel()])),
    )
    assert after.centroids.shape == (2, 2)


def test_surplus_noise_of_all_shares_shrinks_more() -> None:
    """Two clients' shares where one is counted on: twice the variance."""
    found = {}
    for trust in ("central", "distributed"):
        plan = plan_of(2, 4, 4000, trust=trust, n_clients=2)
        location = build_algorithm(plan).rounds[0]
        noise = location.blocks[0].noise_scale
        values = np.array([3.0 * noise, 3.0 * noise, 0.3 * 4000, *np.zeros(28)])
        found[trust] = location.advance(
            build_algorithm(plan).initial_state(1), released(location, values)
        )
    clip = 1.5 * math.sqrt(0.2 * 2.0)
    for trust, variance in (("central", 1.0), ("distributed", 2.0)):
        expected = 3.0 * noise * clip / 4000 * (9.0 - variance) / 9.0
        assert found[trust].extras["centre"] == pytest.approx(
            np.full(2, expected), abs=1.0 / GRID
        )
    assert not np.array_equal(
        found["central"].extras["centre"], found["distributed"].extras["centre"]
    )


SIZES: dict[str, float] = {"nothing": 0.0, "noise": 1.0, "much": 1e4, "vast": 2.0**40}


@pytest.mark.sample(19)
@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("d", "k", "n"), [(1, 1, 3), (1, 4, 4), (2, 4, 4000), (9, 4, 20_000), (40, 3, 30)]
)
def test_no_released_value_breaks_a_run(
    d: int, k: int, n: int, size: str, sign: float
) -> None:
    """The budget is spent: whatever came out, centroids follow from it."""
    plan = plan_of(d, k, n)
    generator = np.random.default_rng(1)
    state = build_algorithm(plan).initial_state(plan.seed)
    for private_sum in build_algorithm(plan).rounds:
        scales = np.concatenate(
            [np.full(block.size, block.noise_scale) for block in private_sum.blocks]
        )
        values = (
            SIZES[size]
            * generator.normal(size=scales.shape)
            * (scales if size == "noise" else 1.0)
        )
        with np.errstate(invalid="raise", divide="raise"):
            state = private_sum.advance(
                state, released(private_sum, sign * np.abs(values) if sign else values)
            )
        for array in (state.centroids, state.counts, *state.extras.values()):
            assert np.isfinite(array).all()
        assert np.abs(state.centroids).max() <= 1.0
    assert state.centroids.shape == (k, d)
    assert len(state.movements) == sum(
        s.name.startswith("refinement") for s in build_algorithm(plan).rounds
    )
    assert all(map(math.isfinite, state.movements))


# -- whole runs at the edges -----------------------------------------------------------


def fitted(
    parts: list[Floats], k: int, epsilon: float, **values: Any
) -> FederatedKMeans:
    settings: dict[str, Any] = {
        "engine": "direct", "noise": "seeded", "random_state": 1, "n_init": 2,
    } | values  # fmt: skip
    km = flat_estimator(
        n_clusters=k, algorithm="proxy_lloyd", epsilon=epsilon, bounds=(-1.0, 1.0),
        **settings,
    )  # fmt: skip
    with np.errstate(invalid="raise", divide="raise"):
        return km.fit(parts)


def is_planned(d: int, k: int, n: int, epsilon: float) -> bool:
    """Whether there is a plan; a refusal has to be a sentence."""
    try:
        plan_of(d, k, n, epsilon, delta=None)
    except DPKMeansError as error:
        return not str(error).endswith(".")
    return True


@pytest.mark.sample(6)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0, 1000.0])
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [
        (3, 1, 1), (6, 2, 6), (20, 1, 20), (30, 9, 2), (400, 2, 1), (2000, 2, 3),
        (500, 20, 3),
    ],
)  # fmt: skip
def test_extremes_give_centroids_or_a_refusal_before_anything_is_spent(
    n: int, d: int, k: int, epsilon: float
) -> None:
    rows = blobs(n, d)
    if not is_planned(d, k, n, epsilon):
        assert epsilon >= 50.0
        return
    km = fitted([rows[::2], rows[1::2]], k, epsilon)
    assert km.cluster_centers_.shape == (k, d)
    assert np.isfinite(km.cluster_centers_).all()
    assert np.abs(km.cluster_centers_).max() <= 1.0 + 1e-9


@pytest.mark.parametrize("d", [1, 2, 9])
def test_equal_rows_and_constant_columns_are_no_trouble(d: int) -> None:
    constant = np.full((500, d), 0.25)
    for rows in (constant, np.ones((500, d)), np.zeros((500, d))):
        km = fitted([rows[:200], rows[200:]], 3, 5.0)
        assert np.isfinite(km.cluster_centers_).all()
        assert np.abs(km.cluster_centers_ - rows[0]).max(axis=1).min() < 0.3
    if d > 1:
        rows = blobs(800, d)
        rows[:, 0] = -1.0
        assert np.isfinite(
            fitted([rows[:300], rows[300:]], 3, 5.0).cluster_centers_
        ).all()
