"""Expected excess cost, its curves, and what meets a target on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flwr_dpkmeans.planner.request import PlanningRequest

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MOST_EPSILON = 100.0
"""Where the search gives up, unless the curve itself goes beyond."""
_DOUBLINGS = 6
_BISECTIONS = 4
"""Of a factor of two: the answer is within 2^(1/16), or 4%, which is finer than the
simulation's own spread.
"""


@dataclass(frozen=True)
class Excess:
    """How far the cost is above the optimum, as a fraction of it, over the seeds.

    `low` is the best.
    """

    mean: float
    standard_error: float
    low: float
    high: float


Curve = tuple[tuple[float, Excess], ...]
"""Excess by epsilon or by number of clusters, ascending."""


def n_clusters_grid(request: PlanningRequest) -> tuple[int, ...]:
    """Numbers of clusters of the curve: a quarter to four times the requested one.

    Of at least two rows each.
    """
    k = request.n_clusters
    most = max(k, request.n_examples // 2)
    quarter = max(2, k // 4)
    half = max(2, k // 2)
    twice = 2 * k
    values = {quarter, half, k, twice, 2 * twice}
    possible = [value for value in values if value <= most]
    return tuple(sorted(possible))


def expected_points(request: PlanningRequest, n_candidates: int) -> int:
    """About how many points are simulated: both grids and the bisection.

    The grids share one point.
    """
    n_numbers = len(n_clusters_grid(request))
    return n_candidates * (len(FACTORS) + n_numbers + _BISECTIONS)


def n_clusters_for_target(
    curve: Curve,
    excess_at: Callable[[int], Excess | None],
    target: float,
    requested: int,
) -> tuple[int, int] | None:
    """Smallest and largest k with a mean excess of at most `target`.

    Around the `requested` one, or the nearest that does, from a curve; above its
    largest k that does, by bisection to within a tenth. None if no point of it does.
    """
    good = [int(k) for k, excess in curve if excess.mean <= target]
    bad = [int(k) for k, excess in curve if excess.mean > target]
    if not good:
        return None
    nearest = min(good, key=lambda k: abs(k - requested))
    below = [k for k in bad if k < nearest]
    above = [k for k in bad if k > nearest]
    too_few = max(below, default=0)
    beyond = max(good) + 1
    too_many = min(above, default=beyond)
    fewest = min(k for k in good if k > too_few)
    most = max(k for k in good if k < too_many)
    while too_many - most > max(1, most // 10):
        middle = (most + too_many) // 2
        if _is_enough(excess_at(middle), target):
            most = middle
        else:
            too_many = middle
    return fewest, most


def _is_enough(
    excess: Excess | None,
    target: float,
) -> bool:
    """Whether there is a plan, with a mean excess of at most the target."""
    return excess is not None and excess.mean <= target


def epsilon_for_target(
    curve: Curve,
    excess_at: Callable[[float], Excess | None],
    target: float,
) -> float | None:
    """Smallest epsilon with a mean excess of at most `target`.

    By bisection of its logarithm, from an ascending curve: from a 64th of its smallest
    epsilon to `MOST_EPSILON`. None if the curve is empty, or nothing is enough.
    """
    epsilons = [epsilon for epsilon, _ in curve]
    if not epsilons:
        return None
    smallest = epsilons[0] / 2.0**_DOUBLINGS
    largest = max(MOST_EPSILON, epsilons[-1])
    too_small = None
    for enough in sorted({smallest, *epsilons, largest}):
        if _is_enough(excess_at(enough), target):
            break
        too_small = enough
    else:
        return None
    if too_small is None:
        return enough
    n_octaves = math.log2(enough / too_small)
    n_bisections = math.ceil(_BISECTIONS + math.log2(n_octaves))
    for _ in range(n_bisections):
        middle = math.sqrt(too_small * enough)
        if _is_enough(excess_at(middle), target):
            enough = middle
        else:
            too_small = middle
    return enough
