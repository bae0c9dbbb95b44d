"""ProxyLloyd's looks at where the data lie.

Each number by hand, and data that a single look would have lost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.flat import flat_estimator
from test_proxy_formulas import SERVER, public_of

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.proxy.entries import (
    CENTRE,
    CLIP,
    DISTANCES,
    EXTENT,
    SPREAD,
    SPREAD_ERROR,
)
from flwr_dpkmeans.algorithms.proxy.first_proxies import without_proxies
from flwr_dpkmeans.algorithms.proxy.location import before_looks, location_round
from flwr_dpkmeans.algorithms.proxy.look import look_round
from flwr_dpkmeans.algorithms.proxy.proxy_count import options_for
from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import build
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.algorithms.proxy.proxy_plan import derive_plan
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS, cluster_state
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.kmeans.proxies.distances import (
    N_DISTANCES,
    distance_counts,
    squared_edges,
)
from flwr_dpkmeans.kmeans.proxies.ellipsoid import Ellipsoid
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    as_released,
)
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State

Floats = NDArray[np.float64]
GRID = 2.0**16
N = 10_000


def look(
    noise: float, d: int = 2, index: int = 1, server: ServerFacts | None = None
) -> PrivateSum:
    """A look of 10,000 rows at one noise for all arrays."""
    public = public_of(d, 3, N, server=server)
    parts, planned = look_round(
        Setting(public, derive_plan(public, ProxyOptions()), ProxyOptions()), index
    )
    sensitivity = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD)
    return replace(
        planned,
        blocks=tuple(
            Block(part.name, part.shape, sensitivity, NoiseShape.GAUSSIAN, noise, 1.0)
            for part in parts
        ),
    )


def first_state(d: int = 2, **extras: Floats) -> State:
    public = public_of(d, 3, N)
    setting = Setting(public, derive_plan(public, ProxyOptions()), ProxyOptions())
    return cluster_state(
        np.zeros((3, d)), np.zeros(3), (), before_looks(setting) | extras
    )


def after(
    step: PrivateSum, state: State, sums: Any, square: float, counts: Floats
) -> State:
    values = np.concatenate([np.ravel(sums), [square], counts])
    return step.advance(
        state,
        as_released(
            np.rint(values * GRID).astype(np.int64).view(np.uint64), step.blocks, 16
        ),
    )


def shares(place: int, count: float = N) -> Floats:
    found = np.zeros(N_DISTANCES)
    found[place] = count
    return found


def test_zoom_decides_between_three_looks_and_one_round() -> None:
    """N sqrt(w) / (sigma sqrt(d)) with w = 0.05 * 0.8 / 3, against 5."""
    sigma = gaussian_noise_multiplier(2.0, 1e-6)
    for d in (1, 4, 30):
        least = 5.0 * sigma * math.sqrt(d) / math.sqrt(0.05 * 0.8 / 3)
        for n, n_looks in ((int(least), 0), (int(least) + 1, 3)):
            assert derive_plan(public_of(d, 2, n), ProxyOptions()).n_looks == n_looks
            public = public_of(d, 2, n, server=replace(SERVER, centre=(0.0,) * d))
            assert (
                derive_plan(public, options_for(public, ProxyOptions())).n_looks
                == n_looks
            )
    # A server that gave clip bounds only says where to look first, too.
    assert (
        derive_plan(
            public_of(2, 2, 10**6, server=replace(SERVER, n_points=0)), ProxyOptions()
        ).n_looks
        == 3
    )


def test_what_a_look_sends() -> None:
    """Around the centre and at the clip bound of the state."""
    state = first_state(**{CENTRE: np.array([0.5, 0.0]), CLIP: np.array([0.25])})
    rows = np.array([[0.5, 0.125], [0.5, -1.0], [0.5, 0.0]])
    sums, square, counts = look(1.0).statistic(rows, state)
    assert sums == pytest.approx(np.array([0.0, 0.5 - 1.0]), abs=1e-4)
    assert square == pytest.approx(np.array([0.25 + 1.0]), abs=1e-4)
    assert counts.tolist() == distance_counts(rows, np.array([0.5, 0.0])).tolist()


def test_a_first_look_by_hand() -> None:
    """Centre by James and Stein, variance by precision with the prior, the rest."""
    s, clip = 40.0, float(first_state().extras[CLIP][0])
    step = np.array([0.3, 0.1])
    square = 0.5
    found = after(look(s), first_state(), step * N, square * N, shares(3)).extras
    error = s / N * clip
    gain = 1.0 - error**2 / (0.05 * clip**2)
    offset = step * clip * gain
    assert found[CENTRE] == pytest.approx(offset, abs=2 / GRID)
    # The mean square is more exact than a histogram, whose own error is 15%.
    # Its noise, and that of the square of the centre's distance.
    own = math.hypot(s / N * clip**2, 2.0 * error * math.hypot(*offset)) / 2
    measured, prior = (square * clip**2 - offset @ offset) / 2, (0.2, 0.15)
    variance = (measured * prior[1] ** 2 + prior[0] * own**2) / (prior[1] ** 2 + own**2)
    assert found[SPREAD].item() == pytest.approx(math.sqrt(2 * variance), abs=2 / GRID)
    expected = min(clip, 1.5 * math.sqrt(2 * variance) + 2 * error * math.sqrt(2))
    assert found[CLIP].item() == pytest.approx(expected, abs=2 / GRID)
    # All rows in the fourth bin, which ends at a squared distance of 8 / 8; from the
    # new centre a step more.
    assert found[EXTENT].item() == pytest.approx(
        1.0 + math.hypot(*offset), abs=2 / GRID
    )
    trusted = math.sqrt(1.0 / (1.0 / own**2 + 1.0 / prior[1] ** 2))
    assert found[SPREAD_ERROR].item() ** 2 == pytest.approx(trusted, rel=1e-3)
    assert found[DISTANCES][0].tolist() == shares(3).tolist()
    # Bins that end within four steps of the centre are forgotten.
    far = squared_edges(2) > 16 * float(offset @ offset)
    assert found[DISTANCES][1].tolist() == far.astype(float).tolist()


@pytest.mark.parametrize("radius", [0.5, 4.0])
def test_the_first_look_is_where_the_servers_points_lie(radius: float) -> None:
    """At their mean and radius, at most the box's diagonal."""
    server = replace(SERVER, centre=(0.25, -0.5), data_radius=radius)
    public = public_of(2, 3, N, server=server)
    found = before_looks(
        Setting(public, derive_plan(public, ProxyOptions()), ProxyOptions()), server
    )
    clip = min(radius, 2.0 * math.sqrt(2.0))
    assert found[CENTRE].tolist() == [0.25, -0.5]
    assert (
        found[CLIP].item() == found[SPREAD].item() == pytest.approx(clip, abs=1 / GRID)
    )
    assert found[SPREAD_ERROR].item() ** 2 == pytest.approx(
        0.75 * clip**2 / 2, rel=1e-3
    )
    assert not found[DISTANCES].any()


@pytest.mark.parametrize(
    ("part", "index", "anew"), [(0.81, 1, True), (0.79, 1, False), (0.81, 2, False)]
)
def test_where_rows_are_elsewhere_than_the_servers_points_looks_begin_anew(
    part: float, index: int, anew: bool
) -> None:
    """Nearly all rows are beyond what the points take in."""
    server = replace(SERVER, centre=(0.25, -0.5), data_radius=0.125)
    state = first_state(**{CENTRE: np.array([0.25, -0.5]), CLIP: np.array([0.125])})
    found = after(
        look(1.0, index=index, server=server), state, np.zeros(2), part * N, shares(4)
    )
    if anew:
        assert {name: array.tolist() for name, array in found.extras.items()} == {
            name: array.tolist() for name, array in first_state().extras.items()
        }
    else:
        assert found[CENTRE].tolist() == [0.25, -0.5]
        assert found[DISTANCES][0].tolist() == shares(4).tolist()
    # Without points of a server, they go on.
    alone = after(look(1.0, index=index), state, np.zeros(2), part * N, shares(4))
    assert alone[DISTANCES][0].tolist() == shares(4).tolist()


def test_a_centre_does_not_follow_noise() -> None:
    """A step no longer than its noise is none."""
    state = first_state(**{CENTRE: np.array([0.25, -0.5]), CLIP: np.ones(1)})
    assert after(look(50.0), state, np.full(2, 49.0), 0.1 * N, shares(5)).extras[
        CENTRE
    ].tolist() == [0.25, -0.5]


def test_where_rows_are_clipped_the_histogram_says_how_far_they_spread() -> None:
    state = first_state(**{CLIP: np.array([0.01])})
    found = after(look(5.0), state, np.zeros(2), 0.99 * N, shares(6)).extras
    binned = 8.0 * 2.0**-6 * math.sqrt(0.5) / 2
    own = 0.15 * binned
    variance = (binned * 0.15**2 + 0.2 * own**2) / (0.15**2 + own**2)
    assert found[SPREAD].item() == pytest.approx(math.sqrt(2 * variance), rel=1e-3)


@pytest.mark.parametrize("agrees", [True, False])
def test_a_histogram_that_missed_most_rows_does_not_say_how_far_they_spread(
    agrees: bool,
) -> None:
    """200 of N rows are heard near the centre."""
    s, state = 40.0, first_state()
    clip = float(state.extras[CLIP][0])
    binned = 200.0 / N * 8.0 * 2.0**-12 * math.sqrt(0.5)
    binned_own = math.hypot(
        0.15 * binned,
        s * 8.0 / N * math.sqrt(0.5 * math.fsum(4.0**-i for i in range(12, 28))),
    )
    own = s / N * clip**2
    above = math.hypot(own, binned_own) * (0.99 if agrees else 1.01)
    found = after(
        look(s), state, np.zeros(2), (binned + above) / clip**2 * N, shares(12, 200.0)
    ).extras
    square, error = (binned, binned_own) if agrees else (binned + above, own)
    variance = (square / 2 * 0.15**2 + 0.2 * (error / 2) ** 2) / (
        0.15**2 + (error / 2) ** 2
    )
    trusted = 1.0 / math.sqrt(4.0 / error**2 + 1.0 / 0.15**2)
    assert found[SPREAD].item() == pytest.approx(
        math.sqrt(2 * max(variance, 0.3 * trusted)), rel=0.01
    )


@pytest.mark.parametrize(("noise", "heard"), [(1.0, True), (30.0, False)])
def test_rows_beyond_the_clip_bound_that_are_heard_belong_to_the_spread(
    noise: float, heard: bool
) -> None:
    """100 of N rows in the bin of squares up to 2."""
    state = first_state(**{CLIP: np.array([0.5]), SPREAD_ERROR: np.array([10.0])})
    counts = shares(2, 100.0) + shares(10)
    found = after(look(noise), state, np.zeros(2), 0.1 * N, counts).extras
    beyond = 100.0 / N * (2.0 * math.sqrt(0.5) - 0.25) if heard else 0.0
    assert found[SPREAD].item() == pytest.approx(
        math.sqrt(0.1 * 0.25 + beyond), rel=0.01
    )


@pytest.mark.parametrize(
    ("part", "clipped"), [(0.5, False), (0.88, False), (0.92, True)]
)
def test_a_mean_square_near_the_squared_bound_says_only_that_rows_lie_beyond(
    part: float, clipped: bool
) -> None:
    """All rows are in the bin of squares up to 1/2."""
    state = first_state(**{CLIP: np.array([0.5]), SPREAD_ERROR: np.array([10.0])})
    found = after(look(1.0), state, np.zeros(2), part * N, shares(4)).extras
    square = (
        0.5 * math.sqrt(0.5) if clipped else part * 0.25 + 0.5 * math.sqrt(0.5) - 0.25
    )
    assert found[SPREAD].item() == pytest.approx(math.sqrt(square), rel=1e-3)


def test_histograms_of_looks_from_one_place_are_averaged() -> None:
    """Twice 30 rows far away are heard at a noise of 15, once they are not."""
    far, near = 4, 20
    counts = shares(near) + shares(far, 40.0)
    state = first_state()
    for index, heard in ((1, False), (2, True)):
        state = after(look(15.0), state, np.zeros(2), 0.0, counts)
        assert state.extras[DISTANCES][1].tolist() == [float(index)] * N_DISTANCES
        edge = squared_edges(2)[far if heard else near]
        assert state.extras[EXTENT].item() == pytest.approx(
            math.sqrt(edge), abs=2 / GRID
        )
    state = after(look(15.0), state, np.full(2, 0.3 * N), 0.0, counts)
    moved = math.hypot(*state.extras[CENTRE])
    assert state.extras[DISTANCES][1].tolist() == [
        3.0 * (edge > (4 * moved) ** 2) for edge in squared_edges(2)
    ]


def test_a_variance_is_at_least_a_part_of_what_is_not_known_of_it() -> None:
    state = first_state()
    found = after(
        look(100.0), state, np.zeros(2), -2.0 * N, np.zeros(N_DISTANCES)
    ).extras
    clip = float(state.extras[CLIP][0])
    own = 100.0 / N * clip**2 / 2
    trusted = math.sqrt(1.0 / (1.0 / own**2 + 1.0 / 0.15**2))
    assert found[SPREAD].item() == pytest.approx(
        math.sqrt(2 * 0.3 * trusted), abs=2 / GRID
    )


def test_a_variance_is_at_most_that_of_rows_on_the_walls() -> None:
    found = after(
        look(1.0), first_state(**{CLIP: np.array([2.0])}), np.zeros(2), 0.9 * N,
        shares(0),
    ).extras  # fmt: skip
    assert found[SPREAD].item() == pytest.approx(math.sqrt(2.0), abs=1 / GRID)


def test_rounds_are_eleven_at_most_with_three_looks() -> None:
    for d in (2, 12):
        names = [planned.name for planned in build(public_of(d, 4, 10**5)).rounds]
        assert names[:4] == ["look-1", "look-2", "look-3", "covariance"]
        assert len(names) == 11


# -- what they are for -----------------------------------------------------------------


def small_blobs(scale: float, place: float, outlier: bool = False) -> Floats:
    generator = np.random.default_rng(1)
    centres = np.array([[-0.7, -0.6], [0.6, -0.7], [0.7, 0.6], [-0.5, 0.7]])
    rows = place + scale * np.clip(
        np.repeat(centres, 750, axis=0) + generator.normal(0, 0.06, (3000, 2)), -1, 1
    )
    return np.concatenate([rows, [[-1.0, -1.0]]]) if outlier else rows


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("scale", "place", "outlier"),
    [
        (1.0, 0.0, False), (0.1, 0.0, False), (0.03, 0.3, False), (0.05, 0.95, False),
        (0.02, 0.3, True),
    ],
)  # fmt: skip
def test_small_data_are_found_wherever_they_lie(
    scale: float, place: float, outlier: bool
) -> None:
    """In far wider bounds, in a corner of them, and with one row far away."""
    rows = small_blobs(scale, place, outlier)
    truth = np.array(
        [rows[start : start + 750].mean(axis=0) for start in range(0, 3000, 750)]
    )
    for seed in range(3):
        parts = np.array_split(
            rows[np.random.default_rng(seed).permutation(len(rows))], 3
        )
        km = flat_estimator(
            n_clusters=4, algorithm="proxy_lloyd", epsilon=2.0, bounds=(-1.0, 1.0),
            engine="direct", noise="seeded", random_state=seed,
        ).fit(parts)  # fmt: skip
        distances = np.sqrt(
            np.square(truth[:, None] - km.cluster_centers_[None]).sum(axis=2)
        ).min(axis=1)
        assert distances.max() < 0.1 * scale


@pytest.mark.parametrize("noise", [40.0, 1_000.0, 2_000.0])
def test_one_round_that_looks_for_the_location_by_hand(noise: float) -> None:
    """Centre by James and Stein, variance by precision with the prior, as in a look."""
    public = public_of(2, 3, N)
    options = ProxyOptions()
    parts, planned = location_round(
        Setting(public, derive_plan(public, options), options)
    )
    sensitivity = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD)
    step = replace(
        planned,
        blocks=tuple(
            Block(part.name, part.shape, sensitivity, NoiseShape.GAUSSIAN, noise, 1.0)
            for part in parts
        ),
    )
    clip, mean, square = 1.5 * math.sqrt(0.2 * 2.0), np.array([0.3, 0.1]), 0.5
    values = np.concatenate([mean * N, [square * N]])
    words = np.rint(values * GRID).astype(np.int64).view(np.uint64)
    found = step.advance(first_state(), as_released(words, step.blocks, 16)).extras
    offset = mean * clip * (1.0 - (noise / N) ** 2 / 0.05)
    assert found[CENTRE] == pytest.approx(offset, abs=2 / GRID)
    # Noise of the mean square, and of the square of the centre's distance, along an
    # axis.
    own = (
        math.hypot(noise / N * clip**2, 2.0 * noise / N * clip * math.hypot(*offset))
        / 2
    )
    measured, prior = (square * clip**2 - offset @ offset) / 2, (0.2, 0.15)
    variance = (measured * prior[1] ** 2 + prior[0] * own**2) / (prior[1] ** 2 + own**2)
    assert found[SPREAD].item() == pytest.approx(math.sqrt(2 * variance), abs=4 / GRID)


@pytest.mark.parametrize(
    ("square", "part"), [(0.8, 0.0), (0.9, 0.5), (1.0, 1.0), (1.2, 1.0)]
)
def test_rows_that_are_nearly_all_clipped_still_have_a_spread(
    square: float, part: float
) -> None:
    """A quarter of the prior's variance, 0.2, from 0.8 to 1 clip bounds."""
    public, options = public_of(2, 3, N), ProxyOptions()
    parts, planned = location_round(
        Setting(public, derive_plan(public, options), options)
    )
    sensitivity = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD)
    blocks = tuple(
        Block(part.name, part.shape, sensitivity, NoiseShape.GAUSSIAN, 1e-3, 1.0)
        for part in parts
    )
    # All of the mean square is of the centre, so that nothing is left of it for a
    # variance.
    values = np.concatenate([np.full(2, N * math.sqrt(square / 2.0)), [square * N]])
    words = np.rint(values * GRID).astype(np.int64).view(np.uint64)
    found = (
        replace(planned, blocks=blocks)
        .advance(first_state(), as_released(words, blocks, 16))
        .extras
    )
    assert found[SPREAD].item() == pytest.approx(
        math.sqrt(2.0 * part * 0.2 * 0.25), abs=0.005
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("n_features", "epsilon", "with_server"), [(64, 1.0, False), (3, 1.0, True)]
)
def test_noise_that_hides_the_spread_does_not_put_all_clusters_into_one_place(
    n_features: int, epsilon: float, with_server: bool
) -> None:
    """A variance of 0 was believed, and cost more than one centre for all."""
    rng = np.random.default_rng(2)
    centers = rng.normal(size=(3, n_features))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    rows = centers[rng.integers(0, 3, 600)] + rng.normal(0, 0.02, (600, n_features))
    points = rng.uniform(-1.0, 1.0, (100, n_features)) if with_server else None
    one = np.square(rows - rows.mean(axis=0)).sum()
    for seed in range(8):
        model = FederatedKMeans(
            3,
            epsilon=epsilon,
            bounds=(-2.0, 2.0) if with_server else (-1.0, 1.0),
            server_data=points,
            engine="direct",
            noise="seeded",
            random_state=seed,
        ).fit([rows[:300], rows[300:]])
        assert -model.score(rows) < 0.5 * one


def test_without_proxies_centroids_begin_at_those_of_the_servers_points() -> None:
    options = SimpleNamespace(n_init=3)
    setting: Any = SimpleNamespace(
        n_clusters=2,
        generator=lambda *seeds: np.random.default_rng(1),
        public=SimpleNamespace(options=options),
        n_features=2,
        options=ProxyOptions(),
        plan=SimpleNamespace(widening=1.0),
        farthest=2.0,
        n_radii=1,
    )
    points = np.array([[-0.5, 0.0], [-0.5, 0.25], [0.5, 0.0]])
    state = first_state(
        **{CENTRE: np.array([0.25, 0.0]), "seed": np.ones(1), SPREAD: np.ones(1)}
    )
    found = Ellipsoid(np.full(2, 1e-6), np.eye(2))
    at_points = without_proxies(
        setting, state.changed(**{SERVER_POINTS: points}), found
    )
    assert sorted(at_points.centroids.tolist()) == [[-0.5, 0.125], [0.5, 0.0]]
    spread = without_proxies(setting, state, found).centroids
    assert spread == pytest.approx(np.array([[0.25, 0.0]] * 2), abs=0.01)


FOUR = np.array([[-0.7, -0.5], [0.6, -0.6], [0.1, 0.2], [-0.4, 0.7]])


def scattered(n: int, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Rows of the first of four clusters: their optimum is 2 * 0.1^2."""
    return FOUR[rng.integers(0, n_clusters, n)] + rng.normal(0, 0.1, (n, 2))


def require_all_four(
    rows: Floats, points: Floats | None, bound: float, epsilon: float, seed: int
) -> None:
    """A fit in bounds that are far too wide loses no cluster."""
    model = FederatedKMeans(
        4, epsilon=epsilon, bounds=(-bound, bound), server_data=points, engine="direct",
        noise="seeded", random_state=seed,
    ).fit(np.array_split(rows, 4))  # fmt: skip
    assert cost_per_point(rows, model.cluster_centers_) < 1.05 * 2 * 0.1**2


def test_misleading_server_points_cost_nothing_where_rows_can_be_looked_for() -> None:
    """All in one place far from the rows: it cost 10 to 30 times the optimum."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = scattered(3000, 4, rng)
        require_all_four(
            rows, np.array([9.5, -9.5]) + rng.normal(0, 0.01, (50, 2)), 10.0, 1.0, seed
        )


@pytest.mark.parametrize("covered", [True, False])
def test_beside_server_points_wide_bounds_lose_no_cluster(covered: bool) -> None:
    """Noise in a box 100 times too wide took centroids in six runs of seven."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows, points = scattered(2850, 4, rng), scattered(150, 4 if covered else 2, rng)
        require_all_four(rows, points, 100.0, 10.0, seed)


@pytest.mark.parametrize(("epsilon", "seed"), [(0.5, 18), (1.0, 21)])
def test_wide_cells_far_away_take_no_centroid_with_them(
    epsilon: float, seed: int
) -> None:
    """They cost 15 and 4 times the optimum."""
    require_all_four(
        scattered(3000, 4, np.random.default_rng(seed)), None, 30.0, epsilon, seed
    )
