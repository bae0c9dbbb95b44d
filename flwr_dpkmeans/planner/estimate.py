"""What follows from a plan alone: noise on a centroid, the smallest cluster that survives, messages and minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions
from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.planner.request import DEFAULT_SPREAD, PlanningRequest
from flwr_dpkmeans.privacy.release import vector_length
from flwr_dpkmeans.privacy.report import COUNT_DEVIATIONS, EVALUATION_ROUND
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.recovery.agreement import GIVEN_BYTES
from flwr_dpkmeans.secagg.recovery.graph import recovery_graph
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, Plan, round_trips
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.wire import dump_plan

MEAN_SQUARED_COORDINATE = 1.0 / 3.0
"""Of a centroid that is anywhere in [-1, 1] alike: what noise on a count does to an absolute mean."""
MOST_CLUSTERS = 1_000
"""Largest k that is looked at."""
START_UP_SECONDS = 20.0
"""From `flwr run` to the first message, with the app's dependencies installed."""
# Bytes around the numbers in each of the six messages as Flower serialises their content, measured in process.
_PLAN_REQUEST, _KEYS_REPLY = 280, 380
_ROSTER_REQUEST, _ROSTER_MEMBER = 250, 40
_SUM_REQUEST, _SUM_REPLY = 772, 773
_FINISH_REQUEST, _FINISH_REPLY = 749, 249
_BOX = 80
_BYTES_PER_ENTRY = 8
# Likewise where sums are recovered; boxes, shares and tickets each come with a node id and a length.
_SHARE_REPLY, _UNMASK_REQUEST, _UNMASK_REPLY = 250, 100, 80
_ID, _ID_AND_LENGTH, _SEALED = 8, 12, 28


@dataclass(frozen=True)
class CentroidNoise:
    """The noise of the last release that carries centroids: deviations of one entry of sums and counts, scaled units.

    Of sums that are not relative to the centroid the count's noise moves the mean as well.
    """

    sums_std: float
    counts_std: float
    relative: bool

    @property
    def total_std(self) -> float:
        """Standard deviation of a centroid's coordinate times the size of its cluster, in scaled units."""
        if self.relative:
            return self.sums_std
        return math.hypot(self.sums_std, self.counts_std * math.sqrt(MEAN_SQUARED_COORDINATE))

    def per_coordinate(self, units: float) -> float:
        """Deviation of a centroid's coordinate, to first order, for a cluster of so many rows (or clients)."""
        return self.total_std / units

    def smallest_cluster(self, spread: float) -> int:
        """Rows (or clients) from which a cluster survives.

        Its centroid's noise is then at most the spread (standard deviation) of its own rows in each coordinate, and its
        count is three deviations of the count's noise above zero.
        """
        # The tolerance keeps a quotient that is whole from being rounded up by its last digit.
        return max(1, math.ceil(max(self.total_std / spread, COUNT_DEVIATIONS * self.counts_std) * (1.0 - 1e-12)))


def centroid_noise(plan: Plan, spread: float = DEFAULT_SPREAD) -> CentroidNoise | None:
    """Noise of a final plan's last release of sums and counts per cluster; None if no round releases both.

    Residuals that are released in radii, as ProxyLloyd's are, are taken to have the radius that the spread of a
    cluster's rows leads to.
    """
    k, d = plan.config.n_clusters, plan.n_features
    for planned in reversed([planned for planned in plan.rounds if planned.name != EVALUATION_ROUND]):
        sums = [block for block in planned.blocks if block.shape == (k, d)]
        counts = [block for block in planned.blocks if block.shape == (k,)]
        if sums and counts:
            in_radii = sums[0].name == "residual_sums"
            unit = ProxyOptions().residual_width * spread * math.sqrt(plan.n_features or 1) if in_radii else 1.0
            return CentroidNoise(
                plan.released_std(planned, sums[0]) * unit,
                plan.released_std(planned, counts[0]),
                in_radii or sums[0].name.startswith("relative"),
            )
    return None


def noise_in_units(plan: Plan, per_coordinate: float) -> tuple[float, ...]:
    """A scaled standard deviation in the caller's units: one number, or one per feature if their bounds differ.

    With private bounds their width is unknown, so it stays a fraction of half of what they will be.
    """
    if plan.config.private_bounds:
        return (per_coordinate,)
    lower, upper = plan.config.bounds
    widths = [0.5 * (high - low) * per_coordinate for low, high in zip(lower, upper, strict=True)]
    return (widths[0],) if len(set(widths)) == 1 else tuple(widths)


def largest_n_clusters(request: PlanningRequest, algorithm: str) -> int:
    """Largest k, up to 1,000, at which a cluster of half the average size still survives, by bisection; 0: none."""
    low, high = 0, min(MOST_CLUSTERS, request.n_examples)
    while low < high:
        middle = (low + high + 1) // 2
        if half_survives(request, algorithm, middle):
            low = middle
        else:
            high = middle - 1
    return low


def half_survives(request: PlanningRequest, algorithm: str, n_clusters: int) -> bool:
    """Whether a cluster of half the average size survives with k clusters; one that has no plan does not."""
    try:
        noise = centroid_noise(request.draft(algorithm, n_clusters=n_clusters), request.spread)
    except LocalMisuseError:
        return False
    return noise is not None and 0.5 * request.units_per_cluster(n_clusters) >= noise.smallest_cluster(request.spread)


@dataclass(frozen=True)
class Deployment:
    """What one run without dropouts sends, and how long it takes."""

    n_rounds: int
    """Aggregations without those that steer the plan (a private count, private bounds)."""
    n_round_trips: int
    n_messages: int
    """Requests and replies of all clients."""
    bytes_down: int
    """Payload for one client on average, without transport and TLS; so is `bytes_up`."""
    bytes_up: int
    minutes: float
    """Start-up and polling; a client's own computation comes on top."""


def deployment_of(plan: Plan) -> Deployment:
    """Count what a final plan's run sends."""
    planned_rounds = [plan.round_at(index) for index in range(plan.first_round, plan.last_round + 1)]
    vectors = [_BYTES_PER_ENTRY * vector_length(planned.blocks) for planned in planned_rounds]
    trips = round_trips(plan)
    # Every author seals a box for every other client: on average each client sends as many as it receives.
    boxed = any(trust_model(planned.trust).blinded for planned in plan.rounds)
    boxes = _BOX * max(2, plan.max_silent + 2) * (plan.n_clients - 1) // plan.n_clients if boxed else 0
    down = sum(len(dump_plan(sent)) + _PLAN_REQUEST for sent in _sent_plans(plan)) + boxes
    down += _ROSTER_REQUEST + _ROSTER_MEMBER * plan.n_clients
    down += sum(vector + _SUM_REQUEST for vector in vectors[:-1]) + vectors[-1] + _FINISH_REQUEST
    up = _KEYS_REPLY + sum(vector + _SUM_REPLY for vector in vectors) + _FINISH_REPLY + boxes
    if plan.dropout is Dropout.RECOVER:
        more_down, more_up = _recovery_bytes(plan, len(vectors))
        down, up = down + more_down, up + more_up
    minutes = (START_UP_SECONDS + SECONDS_PER_ROUND_TRIP * trips) / 60.0
    return Deployment(len(plan.rounds), trips, 2 * plan.n_clients * trips, down, up, minutes)


def _recovery_bytes(plan: Plan, n_aggregations: int) -> tuple[int, int]:
    """What one client receives and sends besides, where sums are recovered and nobody falls silent."""
    degree, keys = recovery_graph(plan.n_clients, plan.max_silent).degree, KEY_BYTES * plan.slots.number
    boxes = degree * (_ID_AND_LENGTH + _SEALED + 3 * keys)
    tickets, given = degree * (_ID_AND_LENGTH + KEY_BYTES), degree * (_ID_AND_LENGTH + GIVEN_BYTES)
    down = boxes + n_aggregations * (2 * _ID * plan.n_clients + _UNMASK_REQUEST)
    up = boxes + _SHARE_REPLY + 2 * keys + n_aggregations * (tickets + given + _UNMASK_REPLY)
    return down, up


def _sent_plans(plan: Plan) -> list[Plan]:
    """The plans that travel in a run which ends with this one: before releases that steer it, it is shorter."""
    if not plan.preliminary:
        return [plan]
    first = replace(plan, rounds=(), n_examples=plan.config.n_examples, box=None)
    return [first, plan]
