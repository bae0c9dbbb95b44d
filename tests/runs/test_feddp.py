"""FedDP-KMeans from its budget to its reports, against arithmetic of its own and
against what the server sends.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from flwr.app import Message
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from support.cases import OF_PARTIES, pairs
from support.flat import flat_estimator
from support.grid_values import GRID, on_grid
from support.protocol_federation import all_bytes, make_federation
from support.watching import calls_of

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.budget.noise_budget import private_sums
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_round
from flwr_dpkmeans.algorithms.feddp.projected_centers import centers_round, lloyd_rounds
from flwr_dpkmeans.algorithms.feddp.server_weights import weights_round
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.algorithms.server.server_facts import (
    bounds_from_server,
    derive_server_facts,
    facts_without_server,
)
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state, seeded_state
from flwr_dpkmeans.errors import ConfigurationError, DataError, PlanError, RefusalError
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.kernels.outer_products import triangle_size
from flwr_dpkmeans.kernels.triangles import symmetric_from_triangle
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.noise import SeededNoise
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    as_released,
    draw_noise,
    round_events,
)
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums import local as direct
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State
from flwr_dpkmeans.sums.statement import build_report
from simulations.sources.mixture import GaussianMixture, draw_gaussian_mixture

Floats = NDArray[np.float64]
UNITS = ("record", "client")
FACTS = ServerFacts(30, (0.0, 0.25, -0.5), 1.0, 0.5, 1.5, 1.2, 1.3)


def config_of(**values: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "n_clusters": 4,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "feddp_kmeans",
        "trust": "central",
    }
    return parse_config(**(settings | values))


def plan_of(facts: ServerFacts = FACTS, **values: Any) -> Plan:
    n_features = len(facts.centre)
    return draft_plan(
        config_of(**values),
        run_id=1,
        n_clients=20,
        seed=1,
        n_features=n_features,
        server=facts,
    )


def blocks_of(plan: Plan) -> list[list[Block]]:
    return [list(planned.blocks) for planned in plan.rounds]


# -- from shares to noise --------------------------------------------------------------


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """Balle and Wang 2018, Theorem 8, solved for epsilon."""

    def excess(epsilon: float) -> float:
        a, b = (
            0.5 / multiplier - epsilon * multiplier,
            -0.5 / multiplier - epsilon * multiplier,
        )
        return float(ndtr(a) - math.exp(epsilon + log_ndtr(b))) / delta - 1.0

    return float(brentq(excess, 0.0, 60.0, xtol=1e-12))


def shares_of_squares(plan: Plan) -> list[list[float]]:
    """Each block's part of the joint squared GDP parameter."""
    total = sum(
        block.noise_multiplier**-2 for blocks in blocks_of(plan) for block in blocks
    )
    return [
        [block.noise_multiplier**-2 / total for block in blocks]
        for blocks in blocks_of(plan)
    ]


PAPER_SHARES = {"record": (0.2, 0.2, 0.45, 0.15), "client": (0.35, 0.1, 0.45, 0.1)}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("given", [None, (1.0, 2.0, 3.0, 4.0)])
def test_gaussian_shares_are_squared(
    unit: str, given: tuple[float, ...] | None
) -> None:
    s = given or PAPER_SHARES[unit]
    expected = [x**2 / sum(y**2 for y in s) for x in s]
    (outer,), (weights,), (sums, counts) = shares_of_squares(
        plan_of(unit=unit, budget_shares=given)
    )
    assert [outer, weights, sums, counts] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("rounds", "lloyd"), [(1, 0.3), (2, 0.3), (5, 0.3), (2, 0.6)])
def test_all_lloyd_rounds_together_take_their_share(
    unit: str, rounds: int, lloyd: float
) -> None:
    plan = plan_of(unit=unit, max_iter=rounds, lloyd_share=lloyd)
    start, later = shares_of_squares(plan)[:3], shares_of_squares(plan)[3:]
    assert len(later) == rounds
    assert sum(map(sum, start)) == pytest.approx(1.0 - lloyd, rel=1e-9)
    sums, counts = PAPER_SHARES[unit][2:]
    for parts in later:
        assert sum(parts) == pytest.approx(lloyd / rounds, rel=1e-9)
        assert parts[0] / parts[1] == pytest.approx((sums / counts) ** 2, rel=1e-9)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rounds", [0, 2])
def test_the_papers_shares_are_shares_of_epsilon(unit: str, rounds: int) -> None:
    plan = plan_of(unit=unit, noise_kind="paper", max_iter=rounds)
    s = PAPER_SHARES[unit]
    left = 0.7 if rounds else 1.0
    expected = [[s[0] * left], [s[1] * left], [s[2] * left, s[3] * left]]
    expected += [
        [0.3 / rounds * x / (s[2] + s[3]) for x in s[2:]] for _ in range(rounds)
    ]
    scales = []
    for blocks, parts in zip(blocks_of(plan), expected, strict=True):
        for block, part in zip(blocks, parts, strict=True):
            pure = block.noise is NoiseShape.LAPLACE
            assert pure is (block.name in ("weights", "counts", "indicators"))
            own = (
                1.0 / block.noise_multiplier
                if pure
                else gaussian_epsilon(block.noise_multiplier, plan.delta)
            )
            scales.append(own / part)
    # Every release is (s_i E)-DP for one and the same E.
    assert scales == pytest.approx([scales[0]] * len(scales), rel=1e-3)
    assert 0.9 < scales[0] < 2.0


CASES = list(itertools.product(UNITS, ("gaussian", "paper"), (0, 2), (0.3, 1.0, 5.0)))


@pytest.mark.parametrize(("unit", "kind", "rounds", "epsilon"), CASES)
def test_plans_cost_what_was_asked_for_and_never_more(
    unit: str, kind: str, rounds: int, epsilon: float
) -> None:
    plan = plan_of(unit=unit, noise_kind=kind, max_iter=rounds, epsilon=epsilon)
    assert 0.999 * epsilon <= plan.epsilon <= epsilon
    assert plan.epsilon == compose_epsilon(plan.events(), plan.delta)


@pytest.mark.parametrize(("rate", "rounds", "epsilon"), [(0.1, 0, 1.0), (0.5, 2, 0.5)])
def test_sampled_plans_cost_what_was_asked_for(
    rate: float, rounds: int, epsilon: float
) -> None:
    plan = plan_of(
        unit="client", client_sampling_rate=rate, max_iter=rounds, epsilon=epsilon
    )
    everybody = plan_of(unit="client", max_iter=rounds, epsilon=epsilon)
    assert 0.999 * epsilon <= plan.epsilon <= epsilon
    # Amplification: less noise than for everybody, more than for rate times as much.
    for sampled, whole in zip(blocks_of(plan), blocks_of(everybody), strict=True):
        for a, b in zip(sampled, whole, strict=True):
            assert rate * b.noise_multiplier < a.noise_multiplier < b.noise_multiplier
    # Without amplification the same noise would cost more than twice as much.
    assert (
        compose_epsilon(
            [e for r in plan.rounds for e in round_events(r.blocks, 16)], plan.delta
        )
        > 1.7 * epsilon
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("unit", "rounds", "epsilon"), pairs(UNITS, (0, 2), (0.5, 1.0, 3.0))
)
def test_the_papers_mixture_against_an_independent_composition(
    unit: str, rounds: int, epsilon: float
) -> None:
    """Ours may be a little above, hardly below."""
    plan = plan_of(unit=unit, noise_kind="paper", max_iter=rounds, epsilon=epsilon)
    whole = None
    for block in itertools.chain.from_iterable(blocks_of(plan)):
        make: Callable[..., Any] = pld.from_gaussian_mechanism
        if block.noise is NoiseShape.LAPLACE:
            make = pld.from_laplace_mechanism
        std = block.noise_scale / block.sensitivity.bound
        part = make(
            std,
            sensitivity=1.0,
            value_discretization_interval=1e-4,
            use_connect_dots=True,
        )
        whole = part if whole is None else whole.compose(part)
    assert whole is not None
    independent = whole.get_epsilon_for_delta(plan.delta)
    assert 0.995 * independent <= plan.epsilon <= 1.03 * independent


@pytest.mark.parametrize(("unit", "rounds"), list(itertools.product(UNITS, (0, 2))))
def test_gaussian_plans_against_the_closed_form(unit: str, rounds: int) -> None:
    plan = plan_of(unit=unit, max_iter=rounds)
    mu = math.hypot(
        *(
            1.0 / block.noise_multiplier
            for blocks in blocks_of(plan)
            for block in blocks
        )
    )
    closed = gaussian_epsilon(1.0 / mu, plan.delta)
    assert closed <= plan.epsilon <= 1.001 * closed


def test_laplace_noise_comes_with_l1_sensitivity() -> None:
    for unit in UNITS:
        for block in itertools.chain.from_iterable(
            blocks_of(plan_of(unit=unit, noise_kind="paper", max_iter=1))
        ):
            expected = Norm.L1 if block.noise is NoiseShape.LAPLACE else Norm.L2
            assert block.sensitivity.norm is expected
            assert block.sensitivity.unit is PrivacyUnit(unit)


# -- rounds ----------------------------------------------------------------------------


def exact(arrays: Sequence[Floats], blocks: Sequence[Block]) -> Any:
    """A release whose noise happened to be zero."""
    return as_released(
        encode(np.concatenate([np.ravel(a) for a in arrays])).values, blocks, 16
    )


def one_round(
    private_sum: PrivateSum, points: Floats, state: State, copies: int = 1
) -> State:
    arrays = [copies * array for array in private_sum.statistic(points, state)]
    return private_sum.advance(state, exact(arrays, private_sum.blocks))


def two_groups() -> tuple[Floats, Floats]:
    """Rows around two places on the first axis, and a server's points along it."""
    generator = np.random.default_rng(0)
    rows = np.repeat([[0.5, 0.0, 0.0], [-0.75, 0.0, 0.0]], [300, 200], axis=0)
    rows = on_grid(rows + generator.uniform(-0.02, 0.02, rows.shape))
    server = on_grid(
        np.stack([np.linspace(-1, 1, 9), np.zeros(9), np.zeros(9)], axis=1)
    )
    return rows, server


@pytest.mark.parametrize("unit", UNITS)
def test_each_step_is_usable_alone(unit: str) -> None:
    """With a share of a budget, its state, and no other step."""
    rows, server = two_groups()
    facts = ServerFacts(9, (0.0, 0.0, 0.0), 1.5, 500.0, 500.0, 3.0, 3.0)
    config = config_of(
        n_clusters=2, unit=unit, n_init=3, budget_shares=(1.0, 1.0, 0.6, 0.4)
    )
    # At client level one client is hidden by the noise: fifty of them are not.
    copies = 50 if unit == "client" else 1
    public = PublicFacts(config, None, 3, 1e-6, None, SAME, 16, facts)
    empty = seeded_state(np.zeros((2, 3)), 5, server)
    axis = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    given = {
        "projection": axis,
        "projected_points": server @ axis,
        "projected_centers": np.array([[0.4, 0], [-1, 0]]),
    }
    ready = cluster_state(
        np.array([[0.4, 0.0, 0.0], [-1.0, 0.0, 0.0]]),
        np.zeros(2),
        (),
        empty.extras | given,
    )

    (step,) = private_sums(public, [outer_product_round(public, facts, 1.0)])
    after = one_round(step, rows, empty, copies)
    assert abs(after.extras["projection"][0, 0]) > 0.99
    assert after.extras["projected_points"].shape == (9, 2)
    assert cost(step.blocks) <= 1.0

    (step,) = private_sums(public, [weights_round(public, facts, 1.0)])
    after = one_round(step, rows, ready, copies)
    assert sorted(after.extras["projected_centers"][:, 0]) == pytest.approx(
        [-0.75, 0.5], abs=0.05
    )
    # Lifted back, they are a first guess at the centroids.
    assert sorted(after.centroids[:, 0]) == pytest.approx([-0.75, 0.5], abs=0.05)
    assert cost(step.blocks) <= 1.0

    for planned in (
        centers_round(public, facts, 0.6, 0.4),
        *lloyd_rounds(public, facts, 1.0, 1),
    ):
        (step,) = private_sums(public, [planned])
        after = one_round(step, rows, ready, copies)
        assert sorted(after.centroids[:, 0]) == pytest.approx([-0.75, 0.5], abs=0.01)
        assert cost(step.blocks) <= 1.0


def cost(blocks: Sequence[Block]) -> float:
    return compose_epsilon(round_events(blocks, 16), 1e-6)


def test_steps_say_what_they_miss() -> None:
    rows, _ = two_groups()
    algorithm = build_algorithm(plan_of())
    nothing = cluster_state(np.zeros((4, 3)), np.zeros(4))
    for private_sum in algorithm.rounds[1:]:
        with pytest.raises(PlanError, match="run the step that makes it first"):
            private_sum.statistic(rows, nothing)
    with pytest.raises(PlanError, match="server points"):
        one_round(algorithm.rounds[0], rows, nothing)


@pytest.mark.parametrize("unit", UNITS)
def test_rows_are_taken_relative_to_the_servers_centre(unit: str) -> None:
    """Rows, server points and centre moved together give the same run, moved."""
    rows, server = two_groups()
    rows, server, shift = rows / 2, server / 2, np.array([0.25, -0.125, 0.5])
    rows = on_grid(rows)
    found = []
    for moved in (np.zeros(3), shift):
        facts = ServerFacts(9, tuple(moved.tolist()), 0.35, 0.05, 100.0, 0.5, 1.2)
        algorithm = build_algorithm(
            plan_of(facts, n_clusters=2, unit=unit, max_iter=2, epsilon=5.0, n_init=3)
        )
        state = algorithm.initial_state(3, server + moved)
        for private_sum in algorithm.rounds:
            state = one_round(private_sum, rows + moved, state, 50)
        found.append(state.centroids)
    assert np.array_equal(found[0] + shift, found[1])
    assert sorted(found[0][:, 0]) == pytest.approx([-0.35, 0.25], abs=0.01)


def test_a_cluster_lost_in_noise_keeps_its_place() -> None:
    rows, _ = two_groups()
    plan = plan_of(ServerFacts(9, (0.0, 0.0, 0.0), 1.5, 1.0), n_clusters=3, max_iter=1)
    lloyd = build_algorithm(plan).rounds[3]
    state = cluster_state(
        np.array([[0.375, 0, 0], [-1.0, 0, 0], [0.0, 1.0, 1.0]]), np.zeros(3)
    )
    after = one_round(lloyd, rows, state)
    assert after.centroids[2].tolist() == [0.0, 1.0, 1.0]
    assert after.counts.tolist() == [300.0, 200.0, 0.0]
    # A few rows are fewer than the noise: the centroid that they would make is not
    # trusted.
    assert lloyd.blocks[1].noise_scale > 5.0
    after = one_round(lloyd, rows[:3], state)
    assert np.array_equal(after.centroids, state.centroids)


# -- noise of the outer product --------------------------------------------------------


def test_outer_product_noise_is_isotropic_over_symmetric_matrices() -> None:
    """Standard deviation s on the diagonal, s / sqrt(2) off it."""
    d, draws = 6, 4000
    facts = ServerFacts(9, (0.0,) * d, 1.0, 0.7)
    (block,) = plan_of(facts, n_clusters=2).rounds[0].blocks
    source = SeededNoise(np.random.default_rng(3))
    noise = [draw_noise([block], source, 16) for _ in range(draws)]
    matrices = np.stack(
        [
            symmetric_from_triangle(as_released(v, [block], 16)["outer_product"], d)
            for v in noise
        ]
    )
    s = block.noise_scale
    assert s == pytest.approx(block.noise_multiplier * block.sensitivity.bound)
    assert block.size == triangle_size(d)
    diagonal = matrices[:, np.arange(d), np.arange(d)].ravel()
    above = matrices[:, *np.triu_indices(d, 1)].ravel()
    for sample, std in ((diagonal, s), (above, s / math.sqrt(2.0))):
        statistic = float((sample**2).sum() / std**2)
        assert (
            min(
                stats.chi2.cdf(statistic, sample.size),
                stats.chi2.sf(statistic, sample.size),
            )
            > 1e-6
        )
        for factor in (0.95, 1.05):
            wrong = statistic / factor**2
            assert (
                min(
                    stats.chi2.cdf(wrong, sample.size),
                    stats.chi2.sf(wrong, sample.size),
                )
                < 1e-6
            )
    # Isotropic: turned into any other frame, the noise has the same distribution.
    frame = np.linalg.qr(np.random.default_rng(4).normal(size=(d, d)))[0]
    turned = frame @ matrices @ frame.T
    assert turned[:, 0, 0].std() == pytest.approx(s, rel=0.06)
    assert turned[:, 0, 1].std() == pytest.approx(s / math.sqrt(2.0), rel=0.06)


# -- what comes out --------------------------------------------------------------------


@cache
def mixture(
    missing: int = 0, n_clients: int = 20, n_points: int = 150
) -> GaussianMixture:
    return draw_gaussian_mixture(
        np.random.default_rng(5),
        n_clients=n_clients,
        points_per_client=n_points,
        n_components=5,
        n_features=8,
        variance=0.01,
        n_uniform=40,
        missing_components=missing,
    )


def estimator(drawn: GaussianMixture, **values: Any) -> FederatedKMeans:
    settings: dict[str, Any] = {
        "n_clusters": 5,
        "algorithm": "feddp_kmeans",
        "epsilon": 2.0,
        "server_data": drawn.server_points,
        "engine": "direct",
        "noise": "seeded",
        "random_state": 3,
        "n_init": 5,
    }
    return flat_estimator(**(settings | values))


def cost_per_row(km: FederatedKMeans, drawn: GaussianMixture) -> float:
    return cost_per_point(np.concatenate(drawn.clients), km.cluster_centers_)


@pytest.mark.nightly
def test_missing_components_degrade_gracefully() -> None:
    """The fewer components the server knows, the dearer."""
    rows = np.concatenate(mixture().clients)
    trivial = float(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())
    optimal = 8 * 0.01
    costs = {}
    for missing in (0, 2, 5):
        drawn = mixture(missing)
        found = [
            cost_per_row(estimator(drawn, random_state=seed).fit(drawn.clients), drawn)
            for seed in range(3)
        ]
        assert np.isfinite(found).all()
        costs[missing] = float(np.median(found))
    assert optimal < costs[0] < 1.5 * optimal
    assert costs[0] <= costs[2] <= costs[5] < trivial
    # Lloyd rounds, on the same budget, find some of what the start did not know.
    drawn = mixture(5)
    lloyd = [
        cost_per_row(
            estimator(drawn, max_iter=3, random_state=seed).fit(drawn.clients), drawn
        )
        for seed in (0, 1)
    ]
    assert max(lloyd) < trivial


@pytest.mark.nightly
def test_client_level_finds_the_clusters_too() -> None:
    drawn = mixture(0, 800, 10)
    km = estimator(
        drawn, unit="client", examples_per_client=10, masking=False, epsilon=5.0
    ).fit(drawn.clients)
    nearest = np.linalg.norm(
        km.cluster_centers_[:, None] - drawn.means[None], axis=2
    ).min(axis=0)
    assert np.sort(nearest)[:4].max() < 0.25


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [2, 5])
def test_the_number_of_clusters_of_the_papers_mixture(seed: int) -> None:
    """Appendix H.3: 100 clients with 1000 rows each, ten components, epsilon 1."""
    drawn = draw_gaussian_mixture(np.random.default_rng(seed))
    km = flat_estimator(
        "auto",
        algorithm="feddp_kmeans",
        epsilon=1.0,
        server_data=drawn.server_points,
        engine="direct",
        masking=False,
        noise="seeded",
        random_state=seed,
        n_init=8,
    )
    choice = km.choose_k(drawn.clients)
    assert choice.n_clusters == 10
    assert choice.privacy.epsilon <= 1.0
    assert [line.array for line in choice.privacy.releases] == [
        "outer_product",
        "weights",
    ]


def test_choosing_and_clustering_in_one_run_costs_one_budget() -> None:
    drawn = mixture()
    km = estimator(drawn, n_clusters="auto", max_clusters=9).fit(drawn.clients)
    assert 4 <= len(km.cluster_centers_) <= 6
    assert km.privacy_.epsilon <= 2.0
    assert km.cost_curve_ is not None
    assert len(km.cost_curve_) == 9
    assert (np.diff(km.cost_curve_) <= 0.0).all()


# -- facts from server data ------------------------------------------------------------


def test_facts_of_a_few_points_by_hand() -> None:
    points = np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.25], [0.0, -0.25], [0.0, 0.0]])
    facts = derive_server_facts(config_of(n_clusters=2), points)
    assert (facts.n_points, facts.centre) == (5, (0.0, 0.0))
    # Norms 0, 1/4, 1/4, 1/2, 1/2: the 0.9 quantile is 1/2, the median 1/4.
    assert facts.data_radius == pytest.approx(0.5)
    assert facts.outer_product_bound == pytest.approx(0.25**2)
    # Outer products are never clipped to more than a radius that was given.
    given = derive_server_facts(config_of(n_clusters=2, data_radius=0.2), points)
    assert (given.data_radius, given.outer_product_bound) == (
        pytest.approx(0.2),
        pytest.approx(0.04),
    )
    given = derive_server_facts(
        config_of(n_clusters=2, data_radius=0.2, outer_product_bound=0.02), points
    )
    assert given.outer_product_bound == pytest.approx(0.02)


def test_facts_of_clients_are_of_simulated_clients() -> None:
    """They look alike, so their norms can be computed."""
    points = np.repeat([[0.5, 0.0], [-0.5, 0.0]], 10, axis=0)
    points = on_grid(
        points + np.random.default_rng(0).uniform(-1e-3, 1e-3, points.shape)
    )
    many = derive_server_facts(
        config_of(n_clusters=2, unit="client", examples_per_client=400), points
    )
    assert many.data_radius == pytest.approx(0.5, abs=2e-3)
    # 400 rows of squared norm 1/4; two means of norm 1/2; two clusters, both always
    # there.
    assert many.outer_product_bound == pytest.approx(100.0, rel=0.01)
    assert many.means_bound == pytest.approx(math.sqrt(0.5), rel=0.01)
    assert many.indicators_bound == pytest.approx(math.sqrt(2.0), rel=1e-9)
    # About 200 rows in each of two clusters, of sums 100 long.
    assert many.sums_bound == pytest.approx(math.sqrt(2.0) * 100.0, rel=0.01)
    assert many.counts_bound == pytest.approx(math.sqrt(2.0) * 200.0, rel=0.01)
    # Twenty bins of twenty rows each, and their variance: E = 400^2 / 20 + 400 * 19 /
    # 20.
    assert many.weights_bound == pytest.approx(math.sqrt(8000 + 380), rel=0.02)
    paper = derive_server_facts(
        config_of(
            n_clusters=2, unit="client", examples_per_client=400, noise_kind="paper"
        ),
        points,
    )
    assert (paper.weights_bound, paper.indicators_bound) == (400.0, 2.0)
    single = derive_server_facts(
        config_of(n_clusters=2, unit="client", examples_per_client=1), points
    )
    assert single.outer_product_bound == pytest.approx(0.25, rel=0.01)
    assert (single.weights_bound, single.indicators_bound) == (1.0, 1.0)


def test_facts_need_no_randomness_of_the_run() -> None:
    points = on_grid(np.random.default_rng(1).uniform(-1, 1, (40, 3)))
    config = config_of(unit="client")
    assert derive_server_facts(config, points) == derive_server_facts(
        config.changed(random_state=7), points.copy()
    )


@pytest.mark.parametrize("unit", UNITS)
def test_given_bounds_override_and_change_their_units(unit: str) -> None:
    """Bounds of the data from -10 to 30."""
    points = on_grid(np.random.default_rng(1).uniform(-1, 1, (40, 3)))
    names = ["data_radius", "outer_product_bound"]
    given = {"data_radius": 8.0, "outer_product_bound": 50.0}
    if unit == "client":
        given |= {"weights_bound": 3.0, "means_bound": 12.0, "indicators_bound": 1.7}
        given |= {"sums_bound": 90.0, "counts_bound": 2.5}
        names += [
            "weights_bound",
            "means_bound",
            "indicators_bound",
            "sums_bound",
            "counts_bound",
        ]
    facts = derive_server_facts(
        config_of(unit=unit, bounds=((-10.0,), (30.0,)), **given), points
    )
    expected = {
        "data_radius": 0.4,
        "outer_product_bound": 0.125,
        "weights_bound": 3.0,
        "means_bound": 0.6,
    }
    expected |= {"indicators_bound": 1.7, "sums_bound": 4.5, "counts_bound": 2.5}
    for name in names:
        assert getattr(facts, name) == pytest.approx(expected[name]), name
    # One that is given leaves the others as they were.
    alone = derive_server_facts(
        config_of(unit=unit, bounds=((-10.0,), (30.0,)), outer_product_bound=50.0),
        points,
    )
    default = derive_server_facts(
        config_of(unit=unit, bounds=((-10.0,), (30.0,))), points
    )
    assert alone == replace(default, outer_product_bound=0.125)


def test_distances_need_one_width_for_all_features() -> None:
    points = on_grid(np.random.default_rng(1).uniform(-1, 1, (40, 2)))
    unequal = ((0.0, 0.0), (1.0, 2.0))
    for name in ("data_radius", "outer_product_bound", "means_bound", "sums_bound"):
        with pytest.raises(
            ConfigurationError,
            match=rf"{name} is 1, a distance .* widths from 1 to 2: give all",
        ):
            derive_server_facts(config_of(bounds=unequal, **{name: 1.0}), points)
        with pytest.raises(ConfigurationError, match=name):
            facts_without_server(config_of(bounds=unequal, **{name: 1.0}), 2)
    # Numbers of rows and of clusters have no width, and without any the bounds follow
    # from scaled points.
    assert (
        derive_server_facts(
            config_of(bounds=unequal, unit="client", weights_bound=3.0), points
        ).weights_bound
        == 3.0
    )
    assert derive_server_facts(config_of(bounds=unequal), points).data_radius > 0.0


def test_facts_without_server_points() -> None:
    """A client with four rows has four clusters at most."""
    config = config_of(n_clusters=9, examples_per_client=4)
    facts = facts_without_server(config, 16)
    assert (facts.n_points, facts.centre, facts.data_radius) == (0, (0.0,) * 16, 4.0)
    assert (facts.outer_product_bound, facts.weights_bound) == (16.0, 4.0)
    assert (facts.means_bound, facts.indicators_bound) == (8.0, 2.0)
    assert (facts.sums_bound, facts.counts_bound) == (16.0, 4.0)
    paper = config_of(n_clusters=9, examples_per_client=4, noise_kind="paper")
    assert facts_without_server(paper, 1).indicators_bound == 4
    in_units = config_of(bounds=((0.0,), (10.0,)), data_radius=2.5)
    assert facts_without_server(in_units, 3).data_radius == 0.5


def test_server_data_that_say_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="there are 3 server points, but 4 clusters"):
        derive_server_facts(config_of(), np.zeros((3, 2)))
    with pytest.raises(DataError, match="all server points are equal"):
        derive_server_facts(config_of(), np.full((9, 2), 0.5))
    with pytest.raises(DataError, match="all server points are equal"):
        bounds_from_server(np.full((9, 2), 0.5))
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigurationError, match="data_radius is"):
            ServerFacts(9, (0.0,), value, 1.0)
        with pytest.raises(ConfigurationError, match="means_bound is"):
            ServerFacts(9, (0.0,), 1.0, 1.0, means_bound=value)
    for centre in ((math.nan,), (2.1,), (math.inf,)):
        with pytest.raises(ConfigurationError, match="centre"):
            ServerFacts(9, centre, 1.0, 1.0)


# -- a client that declared too little -------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "paper"])
def test_a_client_with_many_more_rows_than_declared_moves_the_sum_by_its_bound_only(
    kind: str,
) -> None:
    """Equal seeds give equal noise."""
    generator = np.random.default_rng(0)
    server = on_grid(generator.uniform(-1, 1, (30, 3)))
    config = config_of(
        unit="client",
        noise_kind=kind,
        noise="seeded",
        examples_per_client=10,
        random_state=4,
    )
    held = hold_points(config, server)
    plan = draft_plan(
        config, run_id=1, n_clients=6, seed=4, n_features=3, server=held.facts
    )
    parts = [on_grid(generator.uniform(-1, 1, (10, 3))) for _ in range(6)]
    huge = np.repeat(on_grid(generator.choice([-1.0, 1.0], (1, 3))), 20_000, axis=0)
    sums = []
    for last in (np.empty((0, 3)), huge):
        with calls_of(as_released) as released:
            run_direct(plan, [*parts[:5], last], server_points=held.on_server)
        words = next(iter(released[0].arguments.values()))
        sums.append(words.view(np.int64))
    (block,) = plan.rounds[0].blocks
    change = (sums[1] - sums[0]).astype(np.float64)
    assert (
        0.999 * block.sensitivity.bound
        < np.linalg.norm(change) / GRID
        <= block.sensitivity.bound
    )
    # The other rounds, from one state that both sides know.
    state = cluster_state(server[:4], np.zeros(4), (), dict(three_extras(server)))
    for private_sum in build_algorithm(plan).rounds:
        for block, array in zip(
            private_sum.blocks, private_sum.statistic(huge, state), strict=True
        ):
            order = 1 if block.sensitivity.norm is Norm.L1 else 2
            assert np.linalg.norm(np.ravel(array), order) <= block.sensitivity.bound


def three_extras(server: Floats) -> dict[str, Floats]:
    return {
        "projection": np.eye(3),
        "projected_points": server,
        "projected_centers": server[:4],
    }


def test_lloyd_rounds_of_clients_average_rows_and_not_their_means() -> None:
    """Clients of 2 rows at -1 and of 50 rows at -0.4."""
    facts = ServerFacts(9, (0.25,), 2.0, 4.0, sums_bound=1e3, counts_bound=1e3)
    plan = plan_of(facts, n_clusters=1, unit="client", max_iter=1)
    *_, lloyd = build_algorithm(plan).rounds
    state = cluster_state(np.zeros((1, 1)), np.zeros(1), (), {})
    shares = [
        lloyd.statistic(np.full((n, 1), place), state)
        for n, place in ((2, -1.0), (50, -0.4))
    ]
    sums, counts = (
        sum(float(np.ravel(one)[0]) for one in arrays)
        for arrays in zip(*shares, strict=True)
    )
    assert counts == 52.0
    assert sums / counts + 0.25 == pytest.approx((2 * -1.0 + 50 * -0.4) / 52, abs=1e-3)


# -- reports ---------------------------------------------------------------------------

THEOREMS = {
    "record": {
        "outer_product": "one row x within the radius R adds x x^T",
        "weights": "one row is nearest to one server point",
        "clipped_sums": "one row, clipped to the data radius, lies in one cluster",
        "counts": "one row lies in at most one cluster",
    },
    "client": {
        "outer_product": (
            "one client's outer product, in Frobenius norm, is scaled down to the bound"
        ),
        "weights": "one client's histogram is scaled down to the bound",
        "means": "one client's list of cluster means is scaled down to the bound",
        "indicators": (
            "one client's list of non-empty clusters is scaled down to the bound"
        ),
        "clipped_sums": "one client's list of cluster sums is scaled down to the bound",
        "counts": "one client's list of rows by cluster is scaled down to the bound",
    },
}


@pytest.mark.parametrize(
    ("unit", "kind"), list(itertools.product(UNITS, ("gaussian", "paper")))
)
def test_reports_name_unit_and_theorem_of_every_release(unit: str, kind: str) -> None:
    drawn = mixture(0, 20, 20)
    km = estimator(drawn, unit=unit, noise_kind=kind, trust="central", max_iter=1).fit(
        drawn.clients
    )
    report = km.privacy_
    assert report.unit == unit
    assert (
        "one row appears or disappears"
        if unit == "record"
        else "one client's rows are replaced"
    ) in report.neighbours
    assert [line.round_name for line in report.releases] == (
        ["outer-product", "weights", "centers", "centers", "lloyd-1", "lloyd-1"]
    )
    assert {line.array for line in report.releases} == set(THEOREMS[unit])
    for line in report.releases:
        assert THEOREMS[unit][line.array] in line.theorem
        mechanism = (
            "Laplace mechanism" if line.noise == "laplace" else "Gaussian mechanism"
        )
        assert mechanism in line.theorem
        assert line.norm == ("l1" if line.noise == "laplace" else "l2")
        assert line.noise_scale == pytest.approx(
            line.noise_multiplier * line.sensitivity
        )
        wrong = "one row" if unit == "client" else "one client"
        assert wrong not in line.theorem
    so_far = [line.epsilon_so_far for line in report.releases]
    assert so_far == sorted(so_far)
    assert so_far[-1] == report.epsilon <= 2.0
    assert report.epsilon_worst_case > report.epsilon
    if kind == "gaussian":
        assert 0.0 < report.slack < 1e-6
    assert report.n_examples_source == (
        "declared public" if unit == "record" else "not needed"
    )
    assert json.loads(json.dumps(report.to_dict()))["unit"] == unit
    assert any(
        "points are not the clients' data" in sentence
        for sentence in report.assumptions
    )


# -- engines ---------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("trust", "unit", "kind", "rate"),
    [
        *itertools.product(OF_PARTIES, ["record"], ["gaussian"], [1.0]),
        ("central", "record", "paper", 1.0),
        ("oblivious", "client", "paper", 1.0),
        *itertools.product(OF_PARTIES, ["client"], ["gaussian"], [0.6]),
    ],
)
def test_engines_masked_or_not_give_equal_centroids_for_equal_seeds(
    trust: str, unit: str, kind: str, rate: float
) -> None:
    drawn = mixture(0, 5, 40)
    found = []
    for values in (
        {"engine": "inprocess"},
        {"engine": "direct"},
        {"engine": "direct", "masking": False},
    ):
        km = estimator(
            drawn,
            trust=trust,
            unit=unit,
            noise_kind=kind,
            client_sampling_rate=rate,
            max_iter=1,
            n_init=3,
            **values,
        ).fit(list(drawn.clients))
        found.append(km)
        assert km.privacy_.epsilon == found[0].privacy_.epsilon
        assert any("Masks are off" in w for w in km.privacy_.warnings) is (
            values.get("masking") is False
        )
    for km in found[1:]:
        assert np.array_equal(km.cluster_centers_, found[0].cluster_centers_)
        assert np.array_equal(km.cluster_counts_, found[0].cluster_counts_)
        assert km.history_ == found[0].history_


@pytest.mark.parametrize("unit", UNITS)
def test_server_side_noise_gives_the_same_result_whoever_reads_it(unit: str) -> None:
    """Under 'oblivious' clients run the steps that the server runs under 'central'."""
    drawn = mixture(0, 5, 40)
    central, oblivious = (
        estimator(drawn, unit=unit, trust=trust).fit(drawn.clients).cluster_centers_
        for trust in ("central", "oblivious")
    )
    assert np.array_equal(central, oblivious)


def test_runs_without_masks_are_never_called_private() -> None:
    drawn = mixture(0, 5, 40)
    km = estimator(drawn, masking=False, noise="secure").fit(drawn.clients)
    assert not km.privacy_.is_private
    assert "not private" in km.privacy_.guarantee
    assert estimator(drawn, noise="secure").fit(drawn.clients).privacy_.is_private


# -- where the server's points are -----------------------------------------------------


@dataclass
class Wire:
    """Everything that a run sent, in both directions, and its plan."""

    requests: list[bytes]
    replies: list[bytes]
    plan: Plan


def wire_of(
    drawn: GaussianMixture, policy: ClientPolicy | None = None, **values: Any
) -> Wire:
    """A whole run through Flower's messages."""
    federation = make_federation(
        drawn.clients, policy=policy or ClientPolicy(max_delta=0.5)
    )
    requests: list[bytes] = []

    def keep(message: Message) -> bool:
        requests.append(all_bytes(message))
        return True

    federation.faults.on_request = keep
    lower, upper = bounds_from_server(drawn.server_points)
    n_features = drawn.means.shape[1]
    config = config_of(
        **(
            {
                "bounds": (lower, upper),
                "n_features": n_features,
                "random_state": 2,
                "n_init": 3,
                "epsilon": 20.0,
            }
            | values
        )
    )
    strategy = PrivateKMeans.from_config(
        config, server_points=drawn.server_points, on_step=lambda _: None
    )
    with federation.grid.running():
        strategy.start(federation.grid)
    return Wire(
        requests,
        [all_bytes(message) for message in federation.grid.received],
        strategy.run.plan,
    )


def scaled_points(drawn: GaussianMixture) -> Floats:
    lower, upper = (np.array(b) for b in bounds_from_server(drawn.server_points))
    return on_grid((2 * drawn.server_points - lower - upper) / (upper - lower))


def traces(drawn: GaussianMixture, facts: ServerFacts) -> list[bytes]:
    """Ways to write two neighbouring coordinates of a server point.

    Doubles, grid integers, decimal text.
    """
    scaled = scaled_points(drawn)
    found = []
    for table in (drawn.server_points, scaled, scaled - np.asarray(facts.centre)):
        for row in table:
            found.append(row[:2].astype("<f8").tobytes())
            found.append(np.rint(row[:2] * GRID).astype("<i4").tobytes())
            found.append(np.rint(row[:2] * GRID).astype("<i8").tobytes())
            found.append(repr(float(row[0])).encode()[:9])
            found.append(json.dumps(row[:2].tolist())[1:-1].encode())
    return [trace for trace in found if len(trace) >= 8]


def decoded(blob: bytes) -> bytes:
    """A message with what may be base64 in it decoded as well."""
    parts = [blob]
    for text in blob.split(b'"'):
        if len(text) >= 16 and len(text) % 4 == 0:
            try:
                parts.append(base64.b64decode(text, validate=True))
            except ValueError:
                continue
    return b"\0".join(parts)


def seen_points(wire: Wire, drawn: GaussianMixture) -> int:
    """How many traces of server points there are in all messages."""
    assert wire.plan.server is not None
    everything = b"\0".join(decoded(blob) for blob in [*wire.requests, *wire.replies])
    return sum(trace in everything for trace in traces(drawn, wire.plan.server))


def test_under_oblivious_the_plan_holds_the_points() -> None:
    drawn = mixture(0, 3, 40)
    wire = wire_of(drawn, trust="oblivious", n_clusters=5)
    assert wire.plan.public_points is not None
    assert np.array_equal(wire.plan.public_points.table, scaled_points(drawn))
    assert not wire.plan.server_advances
    # The search below would find them.
    assert seen_points(wire, drawn) >= len(drawn.server_points)


@pytest.mark.parametrize("trust", ["central", "distributed"])
@pytest.mark.parametrize(
    "algorithm", ["feddp_kmeans", "server_lloyd", "sphere_packing"]
)
def test_elsewhere_no_message_holds_a_point(trust: str, algorithm: str) -> None:
    drawn = mixture(0, 3, 40)
    wire = wire_of(drawn, trust=trust, algorithm=algorithm, n_clusters=5, max_iter=1)
    assert wire.plan.public_points is None
    # Sphere packing uses what follows from the points only, so its clients go on by
    # themselves.
    assert wire.plan.server_advances == (algorithm != "sphere_packing")
    assert len(wire.requests) == 3 * (wire.plan.last_round + 2)
    assert seen_points(wire, drawn) == 0


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_k_means_plus_plus_shows_some_points_and_the_report_says_so(trust: str) -> None:
    drawn = mixture(0, 3, 40)
    wire = wire_of(
        drawn, trust=trust, algorithm="server_kmeans++", n_clusters=5, max_iter=1
    )
    assert seen_points(wire, drawn) > 0
    said = " ".join(build_report(wire.plan, [(1, 0)]).assumptions)
    assert "except for their mean, the clip bounds, how far they are beyond" in said
    assert "and the start that is made of them" in said


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_a_projection_onto_all_directions_gives_the_points_away_and_the_report_says_so(
    trust: str,
) -> None:
    drawn = draw_gaussian_mixture(
        np.random.default_rng(3),
        n_clients=3,
        points_per_client=40,
        n_components=3,
        n_features=3,
        variance=0.01,
    )
    config = config_of(
        n_clusters=3, trust=trust, bounds=bounds_from_server(drawn.server_points)
    )
    held = hold_points(config, drawn.server_points)
    plan = draft_plan(
        config, run_id=1, n_clients=3, seed=1, n_features=3, server=held.facts
    )
    outer, weights, *_ = build_algorithm(plan).rounds
    state = outer.advance(
        initial_state(plan, held.on_server),
        exact([np.diag([3.0, 2.0, 1.0])[np.triu_indices(3)]], outer.blocks),
    )
    sent = state.view(weights.reads).extras
    rebuilt = sent["projected_points"] @ sent["projection"].T + np.asarray(
        held.facts.centre
    )
    assert np.abs(rebuilt - held.scaled).max() < 0.01
    assert "which gives them away" in " ".join(build_report(plan, [(1, 0)]).assumptions)
    wider = wire_of(mixture(0, 3, 40), trust=trust, n_clusters=5)
    assert "which gives them away" not in " ".join(
        build_report(wider.plan, [(1, 0)]).assumptions
    )


def test_a_policy_can_refuse_server_data() -> None:
    drawn = mixture(0, 3, 40)
    for trust in OF_PARTIES:
        with pytest.raises(RefusalError, match="server"):
            wire_of(
                drawn,
                ClientPolicy(max_delta=0.5, allow_server_data=False),
                trust=trust,
                n_clusters=5,
            )
    federation = make_federation(
        drawn.clients, policy=ClientPolicy(max_delta=0.5, allow_server_data=False)
    )
    lower, upper = bounds_from_server(drawn.server_points)
    config = config_of(
        algorithm="sphere_packing", bounds=(lower, upper), n_features=8, trust="central"
    )
    federation.start(config)
    assert federation.charges() > 0


def test_points_are_not_put_into_a_plan_where_the_server_reads() -> None:
    points = on_grid(np.random.default_rng(1).uniform(-1, 1, (30, 3)))
    for trust in ("central", "distributed"):
        assert hold_points(config_of(trust=trust), points).public is None
        with pytest.raises(ConfigurationError, match="keeps them on the server"):
            draft_plan(
                config_of(trust=trust),
                run_id=1,
                n_clients=5,
                seed=1,
                n_features=3,
                server=FACTS,
                public_points=PublicPoints.of(points),
            )
    assert hold_points(config_of(trust="oblivious"), points).on_server is None


def test_direct_runs_refuse_what_they_cannot_run() -> None:
    plan = plan_of()
    with pytest.raises(PlanError, match="the plan is for 20 clients, but there are 2"):
        run_direct(plan, [np.zeros((1, 3))] * 2)
    with pytest.raises(PlanError, match="server points"):
        run_direct(plan, [np.zeros((1, 3))] * 20)
    assert direct.FIRST_NODE_ID == 2
