"""Lemma 17 of FedDP-KMeans: far parts of the data are brought nearer to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.feddp.appendix.separation import (
    SPACING,
    connecting_distance,
)
from flwr_dpkmeans.algorithms.feddp.appendix.server_histogram import server_histogram
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS
from flwr_dpkmeans.algorithms.states.state_arrays import is_table
from flwr_dpkmeans.algorithms.states.state_geometry import is_near
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import GRID, is_on_grid, round_to_grid
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

PARTS, SHIFTS, ZOOM = "parts", "shifts", "zoom"
MOVED = (PARTS, SHIFTS, ZOOM)
_MOST_POINTS = 2_000
_LARGEST_ZOOM = 2.0**15


def parting_round(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> PlannedSum:
    """Count the rows that each server point is nearest to; then find the parts.

    Distances are those in the space of the data.
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
    def statistic(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        labels = nearest_projected(points - centre, None, state[SERVER_POINTS])
        return [counts_by_label(labels, facts.n_points, weights)]

    def advance(state: State, released: ReleasedSum) -> State:
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial.distance import cdist

        points = state[SERVER_POINTS]
        near = cdist(points, points) < distance
        weights = released["weights"][: len(points)]
        has_points_around = near.sum(axis=1) >= crowd
        has_rows_around = near @ weights >= least
        stays = has_points_around | has_rows_around
        if stays.sum() < config.n_clusters:
            stays[:] = True
        points = points[stays]
        near = near[np.ix_(stays, stays)]
        _, parts = connected_components(near, directed=False)
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
    return server_histogram(public, facts, share), PrivateSum(
        "parting",
        (),
        statistic,
        advance,
        None,
        reads,
        admits,
        weighted=weighing(public.settings.unit, statistic),
    )


def _brought_nearer(
    points: Array,
    parts: NDArray[np.int32],
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
    n_parts = int(parts.max()) + 1
    if n_parts < 2:
        return none
    groups = [points[parts == part] for part in range(n_parts)]
    diameters = [float(cdist(group, group).max()) for group in groups]
    widest = max([distance, 1.0 / GRID, *diameters])
    # The parts' first points come to lie on one line, evenly.
    steps = np.arange(n_parts) - 0.5 * (n_parts - 1)
    targets = np.zeros((n_parts, points.shape[1]))
    targets[:, 0] = SPACING * widest * steps
    first_points = np.stack([group[0] for group in groups])
    by_part = targets - first_points
    shifts = round_to_grid(by_part[parts])
    # Rows lie around the points, too.
    lengths = np.linalg.norm(points + shifts, axis=1)
    reach = float(lengths.max()) + distance
    zoom = 2.0 ** math.floor(math.log2(max(radius / reach, 1.0)))
    if zoom <= 1.0:
        return none
    return shifts, min(zoom, _LARGEST_ZOOM)


def admits_moved(
    state: State,
    facts: ServerFacts,
    n_features: int,
) -> bool:
    """Whether what a server sent of the parts has the plan's shapes.

    And whether all sums stay exact with it.
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
