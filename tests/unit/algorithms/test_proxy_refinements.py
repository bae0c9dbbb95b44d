"""ProxyLloyd's location beside server points, its life in a subspace and its
refinements, by hand.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_proxy_formulas import SERVER, public_of

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.kmeans_task import CENTRE_DEVIATION
from flwr_dpkmeans.algorithms.proxy.covariance import covariance_round
from flwr_dpkmeans.algorithms.proxy.entries import (
    AVERAGE_COUNTS,
    AXES,
    CENTRE,
    EXTENT,
    RADIUS,
    SHAPE,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.location import location_round
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.algorithms.proxy.proxy_plan import ProxyPlan
from flwr_dpkmeans.algorithms.proxy.proxy_space import in_proxy_space
from flwr_dpkmeans.algorithms.proxy.refining.refinement import refinement_round
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_CENTERS,
    cluster_state,
)
from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts
from flwr_dpkmeans.kmeans.residuals.noisy_counts import pulled_together
from flwr_dpkmeans.kmeans.residuals.radii import RadiusRule, next_radii
from flwr_dpkmeans.kmeans.residuals.shrinkage import StepPosterior
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    as_released,
)
from flwr_dpkmeans.sums.round import PrivateSum, State

Floats = NDArray[np.float64]
GRID = 2.0**16
N = 10_000


def setting_of(
    d: int, k: int, n_components: int | None = None, *, n_proxies: int = 3,
    n_passes: int = 1, n: int = N, widening: float = 1.5, **options: Any,
) -> Setting:  # fmt: skip
    plan = ProxyPlan(
        n_proxies, n_passes, n_components, (0.3, 0.2, 0.1), 0.35, cover_box=False,
        widening=widening,
    )  # fmt: skip
    server = options.pop("server", None)
    # By hand, proxies are clustered as they are; what is made of few ones, a test of
    # its own says.
    return Setting(
        public_of(d, k, n, server=server),
        plan,
        ProxyOptions(**{"most_scattered_features": 0} | options),
    )


def with_noise(planned: PlannedSum, *noises: float) -> PrivateSum:
    """A round whose arrays have these deviations."""
    parts, step = planned
    moved = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD)
    pairs = zip(parts, (*noises, *[noises[-1]] * len(parts)), strict=False)
    return replace(
        step,
        blocks=tuple(
            Block(one.name, one.shape, moved, NoiseShape.GAUSSIAN, noise, 1.0)
            for one, noise in pairs
        ),
    )


def after(step: PrivateSum, state: State, *arrays: Any) -> State:
    values = np.concatenate([np.ravel(array) for array in arrays])
    return step.advance(
        state,
        as_released(
            np.rint(values * GRID).astype(np.int64).view(np.uint64), step.blocks, 16
        ),
    )


def state_of(d: int, centroids: Any = None, **extras: Any) -> State:
    centroids = np.zeros((2, d)) if centroids is None else np.array(centroids)
    given = {
        "seed": np.array([5.0]),
        CENTRE: np.zeros(d),
        SPREAD: np.array([0.5]),
        EXTENT: np.array([4.0]),
    }
    given[SHAPE] = np.vstack([np.ones(d), np.eye(d)])
    arrays = {name: np.array(value, dtype=np.float64) for name, value in extras.items()}
    return cluster_state(centroids, np.zeros(len(centroids)), (), given | arrays)


# -- location --------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.5, 3.0])
@pytest.mark.parametrize("square", [0.3, 0.85, 0.9, 1.2])
def test_beside_server_points_rows_are_seen_from_their_mean_at_their_radius(
    radius: float, square: float
) -> None:
    """At most the box's diagonal, 2 sqrt(2)."""
    server = replace(SERVER, centre=(0.25, -0.5), data_radius=radius)
    step = with_noise(location_round(setting_of(2, 3, server=server)), 40.0, 900.0)
    clip = min(radius, 2.0 * math.sqrt(2.0))
    sums, squares = step.statistic(
        np.array([[0.25, -0.25], [0.5, -0.5], [0.25, -0.5]]), state_of(2)
    )
    assert sums == pytest.approx(np.array([0.25, 0.25]) / clip, abs=4 / GRID)
    assert squares == pytest.approx(np.array([0.125]) / clip**2, abs=4 / GRID)
    mean, expected = np.array([0.02, 0.01]), clip**2 / 2
    found = after(step, state_of(2), mean * N, square * N).extras
    offset = mean * clip * (1.0 - 0.004**2 / np.square(mean).mean())
    assert found[CENTRE] == pytest.approx(np.array([0.25, -0.5]) + offset, abs=2 / GRID)
    measured, own, prior = (
        (square * clip**2 - offset @ offset) / 2,
        0.09 * clip**2 / 2,
        0.75 * expected,
    )
    variance = min((measured * prior**2 + expected * own**2) / (prior**2 + own**2), 1.0)
    clipped = min(max((square - 0.8) / 0.2, 0.0), 1.0)
    assert found[SPREAD].item() == pytest.approx(
        math.sqrt(2 * max(variance, clipped * expected / 4)), abs=4 / GRID
    )
    assert found[EXTENT].item() == pytest.approx(2.0 * math.sqrt(2.0), abs=1 / GRID)


# -- covariance and the subspace -------------------------------------------------------


def test_a_covariance_by_hand() -> None:
    """Outer products are of residuals in 1.2 spreads."""
    step = with_noise(covariance_round(setting_of(2, 2)), 50.0)
    state = state_of(2, **{CENTRE: [0.25, 0.5], SPREAD: [0.625]})
    clip = 1.2 * 0.625
    (sent,) = step.statistic(
        np.array([[0.25 + 0.6 * clip, 0.5], [0.25, 0.5 - 2.0 * clip]]), state
    )
    assert sorted(sent.tolist()) == pytest.approx([0.0, 0.36, 1.0], abs=4 / GRID)


TURN = (
    np.rint(np.array([[0.6, 0.8, 0.0], [0.8, -0.6, 0.0], [0.0, 0.0, 1.0]]) * GRID)
    / GRID
)


def test_rows_are_projected_around_the_centre() -> None:
    points, state = (
        np.array([[0.5, 0.25, 1.0], [0.0, 0.5, -1.0]]),
        state_of(3, **{CENTRE: [0.25, -0.5, 0.5]}),
    )
    assert in_proxy_space(points, state).tolist() == points.tolist()
    found = in_proxy_space(points, state.changed(**{AXES: TURN[:, :2]}))
    assert found == pytest.approx(
        (points - [0.25, -0.5, 0.5]) @ [[0.6, 0.8], [0.8, -0.6], [0.0, 0.0]],
        abs=3 / GRID,
    )
    assert (found * GRID == np.rint(found * GRID)).all()


# -- refinements -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "n_passes", "n_components", "projects"),
    [
        (1, 2, 2, True), (1, 1, 2, True), (2, 2, 2, False), (1, 0, 2, False),
        (1, 2, None, False),
    ],
)  # fmt: skip
def test_only_the_first_refinement_assigns_rows_in_the_proxies_space(
    index: int, n_passes: int, n_components: int | None, projects: bool
) -> None:
    """A row nearer to the second centroid, whose projection is farther from it."""
    planned = refinement_round(setting_of(3, 2, n_components, n_passes=n_passes), index)
    step = with_noise(planned, 1.0)
    assert step.reads == (
        (RADIUS, CENTRE, AXES, PROJECTED_CENTERS) if projects else (RADIUS,)
    )
    extras = {
        AXES: np.eye(3)[:, :2],
        PROJECTED_CENTERS: [[0.0, 0.0], [0.75, 0.0]],
        RADIUS: [1.0, 1.0],
    }
    state = state_of(3, [[0.0, 0.0, 0.0], [0.75, 0.0, 0.75]], **extras)
    sums, counts, squares = step.statistic(np.array([[0.25, 0.0, 0.75]]), state)
    assert counts.tolist() == ([1.0, 0.0] if projects else [0.0, 1.0])
    residual = [0.25, 0.0, 0.75] if projects else [-0.5, 0.0, 0.0]
    assert sums[counts.argmax()] == pytest.approx(residual, abs=2 / GRID)
    assert squares == pytest.approx(
        counts * math.fsum(one**2 for one in residual), abs=4 / GRID
    )
    # Each refinement has its own share.
    share = (0.3, 0.2, 0.1)[index - 1]
    assert [one.share**2 for one in planned[0]] == pytest.approx(
        [0.87 * share, 0.1 * share, 0.03 * share]
    )


def test_rows_are_clipped_at_their_own_radius_or_at_that_of_all() -> None:
    rows = np.array([[0.5, 0.25], [0.5, 0.125], [0.0, 0.625]])
    for widening, radii, first, each in (
        (1.5, [0.125, 0.5], 1.0, [2.0, 0.0625]),
        (1.0, [0.25], 0.5, [1.5]),
    ):
        step = with_noise(refinement_round(setting_of(2, 2, widening=widening), 1), 1.0)
        state = state_of(2, [[0.5, 0.0], [0.0, 0.5]], **{RADIUS: radii})
        sums, counts, squares = step.statistic(rows, state)
        assert counts.tolist() == [2.0, 1.0]
        assert sums == pytest.approx(
            np.array([[0.0, 1.0 + first], [0.0, 0.125 / radii[-1]]]), abs=4 / GRID
        )
        assert squares == pytest.approx(np.array(each), abs=4 / GRID)


@pytest.mark.parametrize("owns", [True, False])
@pytest.mark.parametrize("pulls", [True, False])
@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_refinement_by_hand(pulls: bool, index: int, owns: bool) -> None:
    """Five clusters, of which one may not be used."""
    # In the second round more is missing than noise explains: a client may be silent.
    n = 3200 if index != 2 else 4000
    setting = setting_of(2, 6, n=n, pulls=pulls, widening=1.5 if owns else 1.0)
    step = with_noise(refinement_round(setting, index), 20.0, 90.0, 30.0)
    centroids = np.array(
        [[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.0, -0.5], [0.9375, 0.9375]]
    )
    before = [600.0, 800.0, 500.0, 350.0, 700.0]
    radii = (
        np.array([0.25, 0.125, 0.375, 0.25, 0.5, 0.75]) if owns else np.array([0.25])
    )
    state = state_of(
        2,
        centroids,
        **{RADIUS: radii, "cost_curve": [3.0], "other": [1.0], AVERAGE_COUNTS: before},
    )
    sums = np.array(
        [
            [300.0, -40.0], [0.0, 90.0], [15.0, 5.0], [-60.0, -60.0], [800.0, 700.0],
            [9.0, 9.0],
        ]
    )  # fmt: skip
    counts = np.array([1000.0, 700.0, 300.0, 150.0, 900.0, 50.0])
    squares = [600.0, 100.0, 200.0, 100.0, 850.0, 40.0] if owns else [2500.0]
    found = after(step, state, sums, counts, squares)
    # They add up to all rows: each gets a fifth of what is missing, and a fifth of its
    # variance is known.
    likelier, left, total = counts[:5] + 150.0 / 5.0, 90.0 * math.sqrt(0.8), float(n)
    if index == 2:
        likelier, left, total = counts[:5], 90.0, None
    likelier, left = pulled_together(likelier, left) if pulls else (likelier, left)
    assert (left < (80.0 if index != 2 else 89.0)) is pulls
    posterior = StepPosterior.of(
        sums[:5] * radii[:5, None], likely_counts(likelier, left, total),
        sums_noise=20.0 * radii[:5], counts_noise=left, axis_variance=0.125,
        least_tau=0.25 * 0.0625 ** (index - 1),
    )  # fmt: skip
    steps = posterior.means(radii[:5])
    moved = np.clip(centroids + steps, -1.0, 1.0)
    assert found.centroids == pytest.approx(moved, abs=2 / GRID)
    assert found.counts.tolist() == counts[:5].tolist()
    assert found.movements == pytest.approx(
        (np.linalg.norm(moved - centroids, axis=1).max(),), abs=4 / GRID
    )
    assert set(found.extras) == {
        "seed", SPREAD, "cost_curve", RADIUS, AVERAGE_COUNTS, CENTRE_DEVIATION,
    }  # fmt: skip
    average = (np.array(before) * (index - 1) + counts[:5]) / index
    assert found[AVERAGE_COUNTS] == pytest.approx(average, abs=1 / GRID)
    lengths = (steps**2).sum(axis=1)
    if owns:
        # Rows are as likely as steps take them to be; one more radius than clusters
        # were chosen.
        rows = likely_counts(likelier, left, total)
        more = next_radii(
            radii[:5],
            np.array(squares[:5]),
            rows,
            lengths,
            counts_noise=left,
            noise=30.0,
            rule=RadiusRule(width=1.5, prior_variance=0.06, floor=0.05),
        )
        assert len(set(more)) >= 3
        assert found.extras[RADIUS] == pytest.approx([*more, more[4]], abs=2 / GRID)
        return
    # What steps leave of the mean square, weighted by noisy counts; with the prior that
    # the radius is right.
    whole = 2500.0 / n
    square = whole - min(
        float(lengths @ counts[:5]) / counts[:5].sum() / 0.0625, 0.9 * whole
    )
    own = (30.0 / n) ** 2
    part = math.sqrt((square * 0.06 + own) / (0.06 + own))
    assert found.extras[RADIUS].item() == pytest.approx(
        0.25 * min(1.0, part), abs=2 / GRID
    )


@pytest.mark.parametrize(
    ("index", "n", "noise", "splits", "is_split"),
    [
        (2, N, 90.0, True, True),
        (2, N, 90.0, False, False),
        # Where an average cluster has less than two deviations of the average of two
        # counts; in the first and the last.
        (2, N, 1.01 * N / 10.0 * math.sqrt(2.0), True, False),
        (2, N, 0.99 * N / 10.0 * math.sqrt(2.0), True, True),
        (1, N, 90.0, True, False),
        (3, N, 90.0, True, False),
    ],
)
def test_the_largest_cluster_is_split_by_a_centroid_without_rows(
    index: int, n: int, noise: float, splits: bool, is_split: bool
) -> None:
    setting = setting_of(2, 5, n=n, splits=splits, widening=1.0)
    step = with_noise(refinement_round(setting, index), 20.0, noise, 30.0)
    centroids = np.array(
        [[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.98, -0.5], [0.5, 0.03125]]
    )
    before = np.array([1500.0, 1500.0, 1500.0, 5000.0, -3000.0])
    state = state_of(2, centroids, **{RADIUS: [0.25], AVERAGE_COUNTS: before})
    counts = np.array([1000.0, 1100.0, 1200.0, 6000.0, -3000.0])
    found = after(step, state, np.zeros((5, 2)), counts, 2500.0)
    average = before + (counts - before) / index
    if not is_split:
        assert found.centroids == pytest.approx(centroids, abs=1 / GRID)
        assert found[AVERAGE_COUNTS] == pytest.approx(average, abs=1 / GRID)
        return
    assert found[AVERAGE_COUNTS].tolist() == [
        *average[:3],
        average[3] / 2.0,
        average[3] / 2.0,
    ]
    assert found.centroids[:3] == pytest.approx(centroids[:3], abs=1 / GRID)
    # A mean square of a quarter of the squared radius; both within the box.
    away = np.random.default_rng([5, 1 + index]).standard_normal(2)
    away *= math.sqrt(2.0 / math.pi * 0.25 * 0.0625 / 2.0) / np.linalg.norm(away)
    halves = np.clip([centroids[3] - away, centroids[3] + away], -1.0, 1.0)
    assert found.centroids[3:] == pytest.approx(halves, abs=1 / GRID)
    assert found.counts.tolist() == counts.tolist()


def test_the_costliest_cluster_is_split_and_both_halves_have_its_radius() -> None:
    """6,000 rows in a tight cluster, and 1,000 that are spread ten times as wide."""
    step = with_noise(refinement_round(setting_of(2, 5), 2), 20.0, 90.0, 3.0)
    centroids = np.array(
        [[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.9375, -0.5], [-0.5, 0.03125]]
    )
    counts, radii = (
        np.array([1000.0, 1000.0, 1000.0, 6000.0, -300.0]),
        [0.0625, 0.0625, 0.5, 0.0625, 0.0625],
    )
    state = state_of(2, centroids, **{RADIUS: radii, AVERAGE_COUNTS: counts})
    found = after(
        step, state, np.zeros((5, 2)), counts, [250.0, 250.0, 250.0, 1500.0, 0.0]
    )
    assert found[AVERAGE_COUNTS].tolist() == [1000.0, 1000.0, 500.0, 6000.0, 500.0]
    # Of 1,000 rows, or a little more, as all counts are pulled together.
    rows = float(likely_counts(*pulled_together(counts, 90.0))[2])
    away = np.random.default_rng([5, 3]).standard_normal(2)
    away *= math.sqrt(2.0 / math.pi * 250.0 / rows * 0.25 / 2.0) / np.linalg.norm(away)
    assert found.centroids[[2, 4]] == pytest.approx(
        np.array([-away, away]) + centroids[2], abs=2 / GRID
    )
    assert found.centroids[[0, 1, 3]] == pytest.approx(
        centroids[[0, 1, 3]], abs=1 / GRID
    )
    assert (
        found.extras[RADIUS][2]
        == found.extras[RADIUS][4]
        > 2.0 * found.extras[RADIUS][0]
    )


def of_clients(setting: Setting, *, per_client: bool) -> Setting:
    """The same setting at client level, or not."""

    class Other(Setting):
        @property
        def per_client(self) -> bool:
            return per_client

    return Other(**{each.name: getattr(setting, each.name) for each in fields(setting)})


def test_at_client_level_nothing_is_split_by_squares_of_its_own() -> None:
    """What each costs is mostly noise with few clients."""
    setting = of_clients(setting_of(2, 5), per_client=True)
    step = with_noise(refinement_round(setting, 2), 20.0, 90.0, 3.0)
    centroids = np.array(
        [[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.9375, -0.5], [-0.5, 0.03125]]
    )
    counts, radii = (
        np.array([1000.0, 1000.0, 1000.0, 6000.0, -300.0]),
        [0.0625, 0.0625, 0.5, 0.0625, 0.0625],
    )
    state = state_of(2, centroids, **{RADIUS: radii, AVERAGE_COUNTS: counts})
    found = after(
        step, state, np.zeros((5, 2)), counts, [250.0, 250.0, 250.0, 1500.0, 0.0]
    )
    assert found[AVERAGE_COUNTS].tolist() == counts.tolist()


@pytest.mark.parametrize("per_client", [False, True])
def test_shares_of_clients_rows_need_not_add_up(per_client: bool) -> None:
    """They are clipped: a count that noise drowns is as large as noise lets it."""
    setting = of_clients(setting_of(2, 2, n=100, widening=1.0), per_client=per_client)
    step = with_noise(refinement_round(setting, 1), 1.0, 1e4, 1.0)
    state = state_of(2, [[0.5, 0.0], [0.0, 0.5]], **{RADIUS: [0.25]})
    found = after(step, state, [[20.0, 0.0], [0.0, 20.0]], [50.0, 50.0], [50.0])
    moved = np.linalg.norm(found.centroids - state.centroids, axis=1)
    # 20 radii of 0.25 over 50 rows.
    assert (moved < 0.01).all() if per_client else moved == pytest.approx(0.1, rel=0.1)


def test_no_radius_is_longer_than_the_box() -> None:
    """Else clients would refuse the state: each is four times as long."""
    step = with_noise(refinement_round(setting_of(2, 2), 3), 1.0)
    state = state_of(
        2,
        [[0.5, 0.0], [0.0, 0.5]],
        **{RADIUS: [1.75, 0.25], AVERAGE_COUNTS: [500.0, 500.0]},
    )
    found = after(step, state, np.zeros((2, 2)), [500.0, 500.0], [500.0, 10.0])
    assert found.extras[RADIUS][0] == pytest.approx(2.0 * math.sqrt(2.0), abs=1 / GRID)
