"""What FedDP-KMeans' appendix adds for its theory.

Lemma 17 (E.1) and Algorithm 4 (E.3), as histograms of their own.

Lemma 17 parts the server's points where nobody is for long, and brings the parts nearer
to each other, rows with the server's point that is nearest to them; what is gained in
radius all later rounds use by a zoom, so that bounds and noise of the plan stay.
Algorithm 4 halves points that few rows are near to until each of them stands for many.

A row is in one bin of each histogram, wherever the server's points lie; and where it is
moved to is a function of that row alone, which is clipped afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms import noise_budget
from flwr_dpkmeans.algorithms.kmeans_task import (
    PROJECTED_POINTS,
    SERVER_POINTS,
    is_near,
    is_table,
    seed_of,
)
from flwr_dpkmeans.algorithms.server_points import squared_unit
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import GRID, is_on_grid, round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.privacy.release import PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Settings

PARTS, SHIFTS, ZOOM = "parts", "shifts", "zoom"
MOVED = (PARTS, SHIFTS, ZOOM)
FROZEN = "frozen"
QUARTER = 0.25
"""Of the start's budget, for either (Algorithm 5, lines 2 and 4)."""
SPACING = 100.0
"""Distance of the parts over the largest diameter of one."""
_MOST_POINTS = 2_000
_LARGEST_ZOOM = 2.0**15
_NEAREST = "S7: one row is nearest to one server point (FedDP-KMeans, appendix E)"


def require_known(options: Any, settings: Settings) -> None:
    """Refuse either without the public numbers that it is computed from, and these
    numbers alone.
    """
    used = options.reduce_diameter or options.simplify_server_data
    for name, is_needed in {
        "least_weight": used,
        "deviation": options.reduce_diameter,
    }.items():
        if is_needed != (getattr(options, name) is not None):
            why = "it is needed" if is_needed else "nothing needs it"
            raise ConfigurationError(
                f"{name} is {getattr(options, name)}, but {why}: give public knowledge"
                f" such as {name}=0.1 with reduce_diameter, or leave both out."
            )
    if used and (
        settings.unit is not PrivacyUnit.RECORD or settings.n_examples is None
    ):
        raise ConfigurationError(
            f"unit is {settings.unit.value!r} and n_examples {settings.n_examples}, but"
            " Lemma 17 and Algorithm 4 are about a public number of rows: choose"
            " unit='record' and declare n_examples, or leave both out."
        )


def cautions(plan: Plan) -> tuple[str, ...]:
    """What the plan's public numbers say against these steps, and against centroids of
    the clearest rows alone.
    """
    config, facts, said = plan.config, plan.server, []
    if facts is not None and plan.n_features is not None and config.reduce_diameter:
        distance = connecting_distance(config, plan.n_features)
        if SPACING * distance > facts.data_radius:
            said.append(
                f"reduce_diameter puts parts {SPACING * distance:.3g} apart (in the"
                f" box; server points nearer than {distance:.3g} are one part), but"
                f" rows are clipped to {facts.data_radius:.3g} anyway: it changes"
                " nothing and costs a quarter of the start's budget; leave it out."
            )
    halving = [one for one in plan.rounds if one.name.startswith("simplify-")]
    if halving:
        noise = plan.released_std(halving[0], halving[0].blocks[0])
        if noise > least_rows(config):
            said.append(
                f"simplify_server_data asks {len(halving)} times, each with noise of"
                f" {noise:.3g} rows, whether a server point stands for over"
                f" {least_rows(config):.3g}: noise decides; leave it out, or raise"
                " epsilon."
            )
    if config.margin != 1.0:
        said.append(
            f"margin is {config.margin:g}: the first centroids are of the rows that are"
            " clear by that much, perhaps next to none, and where that was so Lloyd"
            " rounds did not mend it; give margin=1."
        )
    return tuple(said)


def connecting_distance(config: RunConfig, n_features: int) -> float:
    """D of Lemma 17, up to which it connects server points, in scaled units.

    4 log(n) sqrt(d) sigma.
    """
    unit = squared_unit(config.settings.bounds)
    if unit is None:
        raise ConfigurationError(
            f"deviation is {config.deviation:g}, in the caller's units, but the"
            " features' bounds have different widths: give all features one width."
        )
    return (
        4.0
        * math.log(config.n_examples)
        * math.sqrt(n_features / unit)
        * float(config.deviation)
    )


def least_rows(config: RunConfig) -> float:
    """Rows that a server point must stand for, by Algorithm 4: 2 log(n) / epsilon."""
    return 2.0 * math.log(config.n_examples) / float(config.epsilon)


def simplify_steps(config: RunConfig, n_server: int) -> int:
    """Histograms of Algorithm 4: t = 0 to T = 10 log(4 log|Q| / (epsilon w_min))."""
    log_inside = (
        math.log(4.0 * math.log(max(2, n_server)))
        - math.log(config.epsilon)
        - math.log(config.least_weight)
    )
    return 1 + max(0, math.ceil(10.0 * log_inside))


def _histogram(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> list[noise_budget.ReleasePart]:
    moved = Sensitivity(
        noise_budget.count_norm(public.config),
        1.0,
        PrivacyUnit.RECORD,
        _NEAREST,
        nonnegative=True,
    )
    return [
        noise_budget.ReleasePart(
            "weights",
            (facts.n_points,),
            moved,
            share,
            1.0,
        )
    ]


# -- Lemma 17 --------------------------------------------------------------------------


def parting_round(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> noise_budget.PlannedSum:
    """How many rows each of the server's points is nearest to, in the space of the
    data; then the parts.
    """
    if facts.n_points > _MOST_POINTS:
        raise ConfigurationError(
            f"the server has {facts.n_points} points, but reduce_diameter compares all"
            f" pairs of at most {_MOST_POINTS}: give fewer points."
        )
    d, config, centre = public.n_features, public.config, np.asarray(facts.centre)
    if facts.data_radius > 2.0 * math.sqrt(d):
        # rows that grow to fill it leave the ranges in which labels are exact
        raise ConfigurationError(
            f"data_radius is {facts.data_radius:.4g} in the scaled box, but with"
            f" reduce_diameter it may be at most {2.0 * math.sqrt(d):.4g}, beyond which"
            " there are no rows: leave it out."
        )
    n, distance = float(public.required_n_examples), connecting_distance(config, d)
    least = n * config.least_weight / 3.0
    crowd = (
        config.epsilon
        * n
        * config.least_weight
        / (200.0 * math.log(max(2, facts.n_points)))
    )

    @in_blocks
    def statistic(points: Array, state: State) -> Sequence[Array]:
        labels = nearest_projected(points - centre, None, state[SERVER_POINTS])
        return [np.bincount(labels, minlength=facts.n_points).astype(np.float64)]

    def advance(state: State, released: ReleasedSum) -> State:
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial.distance import cdist

        points = state[SERVER_POINTS]
        near = cdist(points, points) < distance
        kept = (near.sum(axis=1) >= crowd) | (
            near @ released["weights"][: len(points)] >= least
        )
        if kept.sum() < config.n_clusters:
            kept[:] = True
        points = points[kept]
        _, parts = connected_components(near[np.ix_(kept, kept)], directed=False)
        shifts, zoom = _brought_nearer(
            points,
            parts,
            distance,
            facts.data_radius,
        )
        moved = {
            SERVER_POINTS: (points + shifts) * zoom,
            PARTS: points,
            SHIFTS: shifts,
            ZOOM: np.array([zoom]),
        }
        return state.changed(**moved)

    def admits(state: State) -> bool:
        table = state.arrays[SERVER_POINTS]
        return (
            is_table(table, facts.n_points, d)
            and len(table) == facts.n_points
            and is_near(table, d)
        )

    reads = (SERVER_POINTS,)
    return _histogram(public, facts, share), PrivateSum(
        "parting",
        (),
        statistic,
        advance,
        None,
        reads,
        admits,
    )


def _brought_nearer(
    points: Array,
    parts: Any,
    distance: float,
    radius: float,
) -> tuple[Array, float]:
    """What to add to each point, and the power of two by which all may grow then.

    Nothing and 1 where that gains none.

    A part of one point has no diameter, but rows around it: no part counts as narrower
    than the connecting distance or a step of the grid, below which parts would come to
    lie on each other.
    """
    from scipy.spatial.distance import cdist

    none = np.zeros_like(points), 1.0
    groups = [points[parts == part] for part in range(int(parts.max()) + 1)]
    if len(groups) < 2:
        return none
    widest = max(
        [distance, 1.0 / GRID, *[float(cdist(one, one).max()) for one in groups]]
    )
    places = np.zeros((len(groups), points.shape[1]))
    places[:, 0] = SPACING * widest * (np.arange(len(groups)) - 0.5 * (len(groups) - 1))
    shifts = round_to_grid((places - np.stack([one[0] for one in groups]))[parts])
    # Rows lie around the points, too.
    reach = float(np.linalg.norm(points + shifts, axis=1).max()) + distance
    zoom = 2.0 ** math.floor(math.log2(max(radius / reach, 1.0)))
    return (shifts, min(zoom, _LARGEST_ZOOM)) if zoom > 1.0 else none


def moved_rows(rows: Array, state: State) -> Array:
    """Rows, relative to the centre, where Lemma 17 has them.

    With the nearest of the server's points that were kept.
    """
    if PARTS not in state.arrays:
        return rows
    labels = nearest_projected(rows, None, state[PARTS])
    return np.asarray((rows + state[SHIFTS][labels]) * state[ZOOM][0])


def moved_centroids(
    centroids: Array,
    state: State,
    facts: ServerFacts,
) -> Array:
    """The same of centroids, which a server may place anywhere, but no farther than its
    rows can be.
    """
    return (
        clip_rows(moved_rows(centroids, state), facts.data_radius)
        if PARTS in state.arrays
        else centroids
    )


def moved_back(rows: Array, state: State) -> Array:
    """Undo `moved_rows`, by the nearest of the points where they were moved to."""
    if PARTS not in state.arrays:
        return rows
    zoom = state[ZOOM][0]
    labels = nearest_projected(
        round_to_grid(rows), None, (state[PARTS] + state[SHIFTS]) * zoom
    )
    return np.asarray(rows / zoom - state[SHIFTS][labels])


def admits_moved(
    state: State,
    facts: ServerFacts,
    n_features: int,
) -> bool:
    """Whether what a server sent of the parts has the plan's shapes and keeps all sums
    exact.
    """
    parts, shifts, zoom = (state.arrays[name] for name in MOVED)
    if not (
        is_table(parts, facts.n_points, n_features)
        and shifts.shape == parts.shape
        and zoom.shape == (1,)
    ):
        return False
    # From one place of the cube around the centre to another.
    near = bool(
        np.square(shifts).sum(axis=1).max() <= 17.0 * n_features
    ) and is_on_grid(shifts)
    return (
        near
        and is_near(parts, n_features)
        and 1.0 <= zoom[0] <= _LARGEST_ZOOM
        and math.frexp(zoom[0])[0] == 0.5
    )


# -- Algorithm 4 -----------------------------------------------------------------------


def simplify_rounds(
    public: PublicFacts,
    facts: ServerFacts,
    total: float,
    later: PrivateSum,
) -> list[noise_budget.PlannedSum]:
    """Histograms over a set that shrinks: who stands for enough rows is frozen, of the
    others half is kept.

    Clients count as in the round after them, `later`, which weighs what is left.
    """
    k, least = public.config.n_clusters, least_rows(public.config)
    n_steps = simplify_steps(public.config, facts.n_points)

    def one_round(index: int, share: float) -> noise_budget.PlannedSum:
        def advance(state: State, released: ReleasedSum) -> State:
            table = state[PROJECTED_POINTS]
            weights = released["weights"][: len(table)]
            frozen = (weights > least) | (
                state.arrays.get(FROZEN, np.zeros(len(table))) > 0.0
            )
            kept = frozen.copy()
            if index < n_steps:
                kept |= (
                    np.random.default_rng((seed_of(state), index)).random(len(table))
                    < 0.5
                )
            # k-means needs as many points as clusters, which the paper takes for
            # granted.
            kept[np.argsort(-weights, kind="stable")[: k if kept.sum() < k else 0]] = (
                True
            )
            return state.changed(
                **{
                    PROJECTED_POINTS: table[kept],
                    FROZEN: frozen[kept].astype(np.float64),
                }
            )

        return _histogram(public, facts, share), replace(
            later, name=f"simplify-{index}", advance=advance
        )

    shares = noise_budget.shared((1.0,) * n_steps, total, public.options.noise_kind)
    return [one_round(index, share) for index, share in enumerate(shares, start=1)]
