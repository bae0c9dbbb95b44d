"""ProxyLloyd's steps held against hand-computed ones.

Directions, what is dropped, where samples go, which options.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.watching import calls_of

from flwr_dpkmeans.algorithms.proxy.entries import (
    CENTRE,
    DISTANCES,
    EXTENT,
    PROXIES,
    PROXY_RADIUS,
    SHAPE,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.heard_proxies import with_server_points
from flwr_dpkmeans.algorithms.proxy.proxy_count import options_for
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions, look_share
from flwr_dpkmeans.algorithms.proxy.proxy_pass import proxy_round
from flwr_dpkmeans.algorithms.proxy.proxy_plan import ProxyPlan, derive_plan
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.proxy.summed import ROUNDS, client_bounds
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS, cluster_state
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kmeans.proxies.distances import N_DISTANCES, distance_counts
from flwr_dpkmeans.kmeans.proxies.refined_samples import samples_around
from flwr_dpkmeans.kmeans.proxies.weights import likely_weights
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
    as_released,
)
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State

Floats = NDArray[np.float64]
GRID = 2.0**16


def public_of(
    d: int, k: int, n: int, *, server: ServerFacts | None = None, **values: Any
) -> PublicFacts:
    config = parse_config(
        n_clusters=k,
        bounds=((-1.0,), (1.0,)),
        n_examples=n,
        **({"epsilon": 2.0} | values),
    )
    return PublicFacts(
        config=config, n_examples=n, n_features=d, delta=1e-6, released_multiplier=None,
        released_closeness=SAME, fraction_bits=16, server=server, noise_factor=1.0,
        n_clients=5,
    )  # fmt: skip


def quiet_pass(
    d: int, k: int, proxies: Floats, *, n_passes: int, radius: float = 1.0,
    clips: bool = True,
) -> tuple[PrivateSum, State, Setting]:  # fmt: skip
    """The first pass over some proxies, with noise of two steps of the grid."""
    plan = ProxyPlan(len(proxies), n_passes, None, (0.5,), 0.35, cover_box=False)
    setting = Setting(
        public_of(d, k, 10_000),
        plan,
        ProxyOptions(clips=clips, most_scattered_features=0),
    )
    parts, step = proxy_round(setting, 1)
    blocks = tuple(
        Block(
            part.name, part.shape, Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD),
            NoiseShape.GAUSSIAN, 2.0 / GRID, 1.0,
        )
        for part in parts
    )  # fmt: skip
    extras = {
        "seed": np.array([5.0]),
        CENTRE: np.zeros(d),
        SPREAD: np.array([0.5]),
        EXTENT: np.array([2.0 * math.sqrt(d)]),
        PROXIES: proxies,
        PROXY_RADIUS: np.full(len(proxies), radius),
        SHAPE: np.vstack([np.arange(1.0, d + 1.0), np.eye(d)]),
    }
    state = cluster_state(np.zeros((k, d)), np.zeros(k), (), extras)
    return replace(step, blocks=blocks), state, setting


def released(step: PrivateSum, sums: Floats, counts: Floats) -> ReleasedSum:
    values = np.concatenate([sums.ravel(), counts])
    return as_released(
        np.rint(values * GRID).astype(np.int64).view(np.uint64), step.blocks, 16
    )


def test_proxies_move_toward_the_released_means() -> None:
    """Two proxies, each moved by its residuals' mean times the radius."""
    proxies = np.array([[-0.5, 0.0], [0.25, 0.0]])
    step, state, _ = quiet_pass(2, 1, proxies, n_passes=1, radius=0.5)
    counts = np.array([3000.0, 1000.0])
    # In radii: the first proxy's rows lie 0.2 * 0.5 to its right, the second's 0.4 *
    # 0.5 above it.
    sums = np.array([[0.2 * 3000.0, 0.0], [0.0, 0.4 * 1000.0]])
    found = step.advance(state, released(step, sums, counts)).centroids
    moved = np.array([[-0.4, 0.0], [0.25, 0.2]])
    assert found == pytest.approx((counts @ moved / 4000.0)[None, :], abs=1e-4)


@pytest.mark.parametrize(("clips", "expected"), [(True, 1.0 + 0.2), (False, 0.2)])
def test_rows_beyond_the_radius_are_clipped_or_dropped_as_the_option_says(
    clips: bool, expected: float
) -> None:
    step, state, _ = quiet_pass(
        1, 1, np.array([[0.0]]), n_passes=1, radius=0.25, clips=clips
    )
    sums, counts = step.statistic(np.array([[0.05], [0.5]]), state)
    # In radii: 0.05 / 0.25, and a row at two radii, which counts as one at the edge.
    assert sums.item() == pytest.approx(expected, abs=1e-4)
    assert counts.item() == (2.0 if clips else 1.0)


def test_a_proxy_with_a_wider_cell_moves_farther_by_its_own_radius() -> None:
    """Equal steps in radii: that of the radius 0.5 is four times that of 0.125."""
    proxies = np.array([[-0.5, 0.0], [0.25, 0.0]])
    step, state, _ = quiet_pass(2, 1, proxies, n_passes=1)
    state = state.changed(**{PROXY_RADIUS: np.array([0.125, 0.5])})
    sums, counts = step.statistic(
        np.array([[-0.5, 0.0625], [0.25, 0.25], [0.5, 1.0]]), state
    )
    # Half of each radius; and a row of the second at (0.25, 1), two radii away: of
    # length 1.
    assert sums == pytest.approx(
        np.array([[0.0, 0.5], [0.24254, 0.5 + 0.97014]]), abs=1e-4
    )
    assert counts.tolist() == [1.0, 2.0]
    found = step.advance(
        state,
        released(step, np.array([[0.0, 800.0], [0.0, 800.0]]), np.full(2, 1000.0)),
    ).centroids
    # Weighed alike: the mean of the steps 0.8 * 0.125 and 0.8 * 0.5.
    assert found == pytest.approx(np.array([[-0.125, 0.25]]), abs=1e-3)


def test_far_proxies_are_whole_in_the_next_pass_where_they_have_moved_to() -> None:
    """The third is beyond what was heard, 0.5, once it has moved."""
    proxies = np.array([[0.0, 0.0], [0.25, 0.0], [0.46875, 0.0], *np.zeros((5, 2))])
    step, state, _ = quiet_pass(2, 1, proxies, n_passes=2, radius=0.125)
    state = state.changed(**{CENTRE: np.zeros(2), EXTENT: np.array([0.5])})
    counts = np.array([6000.0, 3000.0, 1000.0, *np.zeros(5)])
    sums = np.zeros((8, 2))
    sums[2, 0] = 500.0  # half a radius to the right
    found = step.advance(state, released(step, sums, counts))[PROXIES]
    far = found[np.abs(found).max(axis=1) > 0.5]
    assert far == pytest.approx(np.array([[0.46875 + 0.0625, 0.0]]), abs=1e-3)
    apart = step.advance(
        state.changed(**{EXTENT: np.array([0.625])}), released(step, sums, counts)
    )[PROXIES]
    assert np.abs(apart[apart[:, 0] > 0.4][:, 1]).max() > 0.0


@pytest.mark.parametrize("times", [0.0, 3.0])
def test_rows_that_are_heard_far_away_but_at_no_proxy_get_a_centroid(
    times: float,
) -> None:
    """A mass in the middle, and rows around it that only the histogram tells of."""
    angles = np.arange(40) * (2 * np.pi / 40)
    ring = (
        np.rint(0.75 * np.stack([np.cos(angles), np.sin(angles)], axis=1) * GRID) / GRID
    )
    proxies = np.concatenate([[[0.0, 0.0], [0.03125, 0.0]], ring])
    step, state, setting = quiet_pass(2, 2, proxies, n_passes=1, radius=0.0625)
    histogram = distance_counts(proxies, np.zeros(2)) * 10.0
    histogram[-1] = 9600.0
    looks, noise = np.full((2, N_DISTANCES), [[3.0], [9.0]])
    state = state.changed(**{DISTANCES: np.stack([histogram, looks, noise])})
    counts = np.array([6000.0, 3600.0, *np.zeros(40)])
    options = replace(setting.options, unheard_times=times)
    again = replace(
        proxy_round(replace(setting, options=options), 1)[1], blocks=step.blocks
    )
    start = again.advance(state, released(step, np.zeros((42, 2)), counts)).centroids
    assert (np.abs(start).max() > 0.25) == (times > 0.0)


# -- the server's own points -----------------------------------------------------------


KNOWN = np.array([[-0.5, 0.0], [-0.25, 0.0], [0.5, 0.25]])
PROXIES_AT = np.array([[-0.5, 0.25], [0.5, 0.5], [0.5, -0.75]])


def server_pass(n_passes: int) -> Any:
    """A quiet pass beside three points of the server's."""
    step, state, setting = quiet_pass(2, 2, PROXIES_AT, n_passes=n_passes, radius=0.5)
    return step, state.changed(**{SERVER_POINTS: KNOWN}), setting


@pytest.mark.parametrize(("more", "trusted"), [(0.0, 0.0), (0.5, 0.0), (2.0, 0.75)])
def test_counts_are_trusted_as_far_as_noise_does_not_explain_them(
    more: float, trusted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 rows the three points stand for 3,333 each."""
    _, state, setting = server_pass(1)
    noise, each = 100.0, 10_000 / 3
    counts = np.array([2 * each + more * noise, each - more * noise, -0.5 * noise])
    points, found = with_server_points(setting, state, PROXIES_AT, counts, noise)
    assert points.tolist() == [*KNOWN.tolist(), PROXIES_AT[2].tolist()]
    rows = np.array([2 * each, each]) + trusted * more * noise * np.array([1.0, -1.0])
    if trusted:
        rows = likely_weights(rows, math.sqrt(trusted) * noise, 10_000.0, least=2.0)
    assert found == pytest.approx([rows[0] / 2, rows[0] / 2, rows[1], 0.0], abs=1e-4)
    beside = with_server_points(
        setting, state, PROXIES_AT, counts + np.array([0.0, 0.0, 4.5 * noise]), noise
    )[1]
    alone = likely_weights(np.array([4.0 * noise]), noise, 10_000.0, least=2.0)
    assert beside[-1:].tolist() == alone.tolist()
    assert alone.item() == pytest.approx(380.0, abs=15.0)
    counts = np.array([-4.0, 70.0, 0.0]) * noise
    far_less = with_server_points(setting, state, PROXIES_AT, counts, noise)[1]
    assert (
        far_less[:2].max() < 0.01 * each
    )  # the slab's own part of a count that is below zero


@pytest.mark.parametrize(
    ("noise", "likely"), [(2400.0, True), (2500.0, True), (2600.0, False)]
)
def test_posterior_means_weigh_where_an_average_proxy_is_told_from_none(
    noise: float, likely: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies with points stand for 5,000 rows on average."""
    _, state, setting = server_pass(1)
    expected, more = np.array([20_000 / 3, 10_000 / 3]), np.array([2.0, -2.0]) * noise
    counts = np.array([*(expected + more), 0.0])
    rows = np.maximum(expected + 0.75 * more, 0.0)
    if likely:
        rows = likely_weights(
            expected + 0.75 * more, math.sqrt(0.75) * noise, 10_000.0, least=2.0
        )
    found = with_server_points(setting, state, PROXIES_AT, counts, noise)[1]
    assert found[:3] == pytest.approx([rows[0] / 2, rows[0] / 2, rows[1]], abs=1e-4)


def test_the_next_pass_is_drawn_around_points_and_proxies_that_were_heard() -> None:
    step, state, _ = server_pass(2)
    with calls_of(samples_around) as calls:
        after = step.advance(
            state, released(step, np.zeros((3, 2)), np.array([6000.0, 3000.0, 1000.0]))
        )
    points, weights = [*calls[0].arguments.values()][:2]
    assert len(points) == 4
    assert weights == pytest.approx([3000.0, 3000.0, 3000.0, 1000.0], abs=1e-2)
    assert SERVER_POINTS in after.arrays


# -- public numbers --------------------------------------------------------------------


SERVER = ServerFacts(
    n_points=20, centre=(0.0, 0.0), data_radius=1.0, outer_product_bound=1.0,
    weights_bound=1.0, means_bound=1.0, indicators_bound=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("n_points", "few_rows", "few_proxies"),
    [(0, False, 2.5), (20, False, 0.0), (20, True, 2.5)],
)
def test_few_proxies_beside_server_points_only_where_there_would_be_none(
    n_points: int, few_rows: bool, few_proxies: float
) -> None:
    """A server that gave clip bounds only has no points that say where to look."""
    least = math.ceil(
        5 * 3.5 * gaussian_noise_multiplier(2.0, 1e-6) / math.sqrt(0.35 * 0.6)
    )
    public = public_of(
        2, 3, least - few_rows, server=replace(SERVER, n_points=n_points)
    )
    found = options_for(public, ProxyOptions())
    assert found == replace(ProxyOptions(), few_proxies=few_proxies)
    assert derive_plan(public, found).n_proxies >= 5


def test_without_server_facts_the_options_stay_as_they_are() -> None:
    assert options_for(public_of(2, 3, 1000), ProxyOptions()) == ProxyOptions()


def test_at_client_level_fewer_rows_of_a_client_are_told_from_none() -> None:
    """The noise on counts is the clip bound of one client's shares times as large."""
    public = public_of(2, 3, 2000, unit="client", n_clients=2000)
    public = replace(public, n_clients=2000)
    sigma = gaussian_noise_multiplier(2.0, 1e-6) / math.sqrt(0.35 * 0.6)
    expected = int(2000 / (3.5 * sigma * math.sqrt(1.0 / 50.0 + 1.0 / 3.0)))
    plan = derive_plan(public, ProxyOptions())
    assert 4 < plan.n_proxies == expected < 200
    # One pass, although a quarter of 200 would be heard in each of two: that was
    # measured for rows alone.
    assert expected / math.sqrt(2.0) > 50
    assert plan.n_passes == 1


@pytest.mark.parametrize(("d", "k", "n"), [(2, 3, 10**5), (20, 5, 10**5), (2, 3, 20)])
@pytest.mark.parametrize("server", [None, SERVER])
def test_all_rounds_together_have_the_whole_budget(
    d: int, k: int, n: int, server: ServerFacts | None
) -> None:
    """With one pass, several, and without proxies, whose share refinements get."""
    public = public_of(d, k, n, server=server)
    options = options_for(public, ProxyOptions())
    plan = derive_plan(public, options)
    setting = Setting(public, plan, options)
    parts = setting.parts("covariance")
    if plan.n_looks:
        parts += [
            part
            for _ in range(plan.n_looks)
            for part in setting.parts("look", look_share(options))
        ]
    else:
        parts += setting.parts("location", 1.0)
    parts += [
        part
        for _ in range(plan.n_passes)
        for part in setting.parts("proxies", plan.pass_share)
    ]
    parts += [
        part
        for share in plan.refinement_shares
        for part in setting.parts("refinement", share)
    ]
    assert math.fsum(part.share**2 for part in parts) == pytest.approx(1.0)


def test_bounds_of_one_clients_means() -> None:
    """50 rows in 10 cells: points 1 / sqrt(50), shares sqrt(1/50 + 1/10)."""
    config = parse_config(n_clusters=10, bounds=((-1,), (1,)))
    steps, shares = (
        dict.fromkeys(("proxy_sums", "residual_sums"), 0.02),
        dict.fromkeys(("proxy_counts", "counts"), 0.12),
    )
    whole = (
        "row_sums", "row_squares", "row_distances", "residual_squares", "excess_sums",
    )  # fmt: skip
    others = dict.fromkeys(whole, 1.0)
    squares = steps | shares | others | {"unit_outer_product": 4 * 0.02}
    assert {
        name: bound**2 for name, bound in client_bounds(config).items()
    } == pytest.approx(squares, rel=1e-11)
    single = client_bounds(
        parse_config(
            n_clusters=10, bounds=((-1,), (1,)), unit="client", examples_per_client=1
        )
    )
    assert set(single.values()) == {1.0}


@pytest.mark.parametrize(
    ("n_rows", "expected"), [(0, [0.0, 0.0]), (1, [0.5, 0.25]), (4, [0.125, 0.0625])]
)
def test_a_client_sends_the_mean_over_its_rows(
    n_rows: int, expected: list[float]
) -> None:
    """Up to the bound, which is 1 for the location and 1 / sqrt(50) for residuals."""
    rows = np.array([0.5, 0.25]) * (n_rows > 0)
    for unit, mean in (("client", expected), ("record", rows.tolist())):
        public = public_of(2, 3, 2000, unit=unit)
        setting = Setting(public, derive_plan(public, ProxyOptions()), ProxyOptions())
        (sent,) = setting.sent([rows], n_rows, setting.parts("location", 1.0)[:1])
        assert sent.tolist() == pytest.approx(mean, abs=1 / GRID)
        (clipped,) = setting.sent([rows], n_rows, setting.parts("refinement", 1.0)[:1])
        if unit == "client":
            mean = (
                np.array(mean) / max(1.0, math.hypot(*mean) * math.sqrt(50.0))
            ).tolist()
            assert math.hypot(*clipped) <= 1.0 / math.sqrt(50.0)
        assert clipped.tolist() == pytest.approx(mean, abs=2 / GRID)
    assert setting.farthest == 2.0 * math.sqrt(2.0)


def test_few_proxies_may_have_few_rows() -> None:
    """floor(N / 3.5 s), but up to 2.5 k of them floor(N / 2 s); none below k + 2."""
    s = gaussian_noise_multiplier(2.0, 1e-6) / math.sqrt(0.35 * 0.6)
    for k, rows, expected in (
        (10, 3.5 * 26, 26),
        (10, 2.0 * 25, 25),
        (10, 2.0 * 20, 20),
        (10, 2.0 * 12, 12),
    ):
        assert (
            derive_plan(public_of(2, k, math.ceil(rows * s)), ProxyOptions()).n_proxies
            == expected
        )
    assert (
        derive_plan(
            public_of(2, 10, math.floor(2.0 * 12 * s) - 1), ProxyOptions()
        ).n_proxies
        == 0
    )
    at = [
        derive_plan(public_of(2, 2, math.ceil(2.0 * n * s)), ProxyOptions()).n_proxies
        for n in (3, 4)
    ]
    assert at == [0, 4]


def test_a_choice_of_k_among_too_few_proxies_is_refused() -> None:
    """At least 10 + 2; k - 1 would do for a k that is given."""
    s = gaussian_noise_multiplier(2.0, 1e-6) / math.sqrt(0.35 * 0.6)
    enough, few = (
        public_of(2, 10, math.ceil(2.0 * 12 * s) - less, choose_n_clusters=True)
        for less in (0, 2)
    )
    assert derive_plan(enough, ProxyOptions()).n_proxies == 12
    with pytest.raises(PlanError, match="at least 12 proxies to look for up to 10"):
        derive_plan(few, ProxyOptions())


@pytest.mark.parametrize(("max_iter", "expected"), [(None, 5), (1, 1), (7, 7), (0, 0)])
def test_refinements_share_what_is_left(max_iter: int | None, expected: int) -> None:
    plan = derive_plan(public_of(2, 3, 2000, max_iter=max_iter), ProxyOptions())
    left = 1.0 - 0.05 - 0.01 - 0.05 - 0.35
    # The last one has as much as two others.
    part = left / (expected + 1)
    others = max(0, expected - 1)
    assert plan.refinement_shares == pytest.approx(
        ([part] * others + [2.0 * part])[:expected]
    )


@pytest.mark.parametrize(
    ("unit", "theorems"), [("record", "S"), ("client", "S15: one client's ")]
)
def test_one_row_or_one_client_moves_a_sum_by_no_more_than_its_bound(
    unit: str, theorems: str
) -> None:
    """One row by 1, outer products, rounded once, by less than two steps more."""
    public = public_of(2, 3, 2000, unit=unit)
    setting = Setting(public, derive_plan(public, ProxyOptions()), ProxyOptions())
    for one in [one for kind in ROUNDS for one in setting.parts(kind, 0.5)]:
        moved = one.sensitivity
        least = client_bounds(public.config)[one.name] if unit == "client" else 1.0
        rounds = unit == "record" and one.name == "unit_outer_product"
        assert least + rounds / GRID <= moved.bound <= least + 2.0 * rounds / GRID
        assert (one.entry_bound, moved.unit.value, moved.norm) == (
            moved.bound,
            unit,
            Norm.L2,
        )
        assert moved.because.startswith(theorems)
        signed = {
            "row_sums", "unit_outer_product", "proxy_sums", "residual_sums",
            "excess_sums",
        }  # fmt: skip
        assert moved.nonnegative is (one.name not in signed)


@pytest.mark.parametrize(("most", "covers"), [(87, False), (88, True)])
def test_the_box_is_covered_from_so_many_proxies_on_and_never_from_a_subspace(
    most: int, covers: bool
) -> None:
    at = derive_plan(
        public_of(7, 3, 10**6), ProxyOptions(most_proxies=most, proxies_per_cluster=1)
    )
    assert (at.n_proxies, at.cover_box) == (most, covers)
    wide = derive_plan(public_of(9, 3, 10**7), ProxyOptions(most_proxies=2000))
    assert (wide.n_proxies, wide.n_components, wide.cover_box) == (2000, 2, False)


@pytest.mark.parametrize(
    ("n", "within"), [(100, (1.0, 1.0)), (2_000, (1.1, 2.9)), (10**9, (100.0, 200.0))]
)
def test_radii_are_widened_until_noise_is_audible_and_never_narrowed(
    n: int, within: tuple[float, float]
) -> None:
    """Noise of sigma sqrt(2) 3 / (N sqrt(1 - shares)), 2% of a radius is heard."""
    before = 0.05 + 0.01 + 0.05 + 0.35
    noise = (
        gaussian_noise_multiplier(2.0, 1e-6)
        * math.sqrt(2.0)
        * 3.0
        / (n * math.sqrt(1.0 - before))
    )
    found = derive_plan(public_of(2, 3, n), ProxyOptions()).widening
    assert found == pytest.approx(max(1.0, (0.02 / noise) ** (1.0 / 3.0)))
    assert within[0] <= found <= within[1]
