"""Where the simulated curves are looked at, and where one of them meets the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.simulate import Excess

Curve = tuple[tuple[float, Excess], ...]
Number = TypeVar("Number", int, float)

_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BEYOND_GRID = 8.0
"""Times the curve's largest epsilon: where the search gives up."""
_DOUBLINGS = 6
_BISECTIONS = 4
"""Of a factor of two: the answer is within 2^(1/16), or 4%, which is finer than the simulation's own spread."""


def epsilon_grid(epsilon: float) -> tuple[float, ...]:
    """Epsilons of the curve, an eighth to eight times the asked one.

    Examples
    --------
    >>> epsilon_grid(1.0)
    (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    """
    return tuple(epsilon * factor for factor in _FACTORS)


def n_clusters_grid(request: PlanningRequest) -> tuple[int, ...]:
    """Numbers of clusters of the curve: a quarter to four times the asked one, of at least two rows each.

    Examples
    --------
    >>> n_clusters_grid(PlanningRequest(100, 2, 2, {"n_clusters": 20, "bounds": (0, 1)}))
    (5, 10, 20, 40)
    """
    k = request.n_clusters
    most = max(k, request.n_examples // 2)
    return tuple(sorted({value for value in (max(2, k // 4), max(2, k // 2), k, 2 * k, 4 * k) if value <= most}))


def expected_points(request: PlanningRequest, n_candidates: int) -> int:
    """About how many points are simulated: both grids, which share one, and the bisection."""
    return n_candidates * (len(_FACTORS) + len(n_clusters_grid(request)) + _BISECTIONS)


def curve(values: Sequence[Number], excess_at: Callable[[Number], Excess | None]) -> Curve:
    """Simulated excess over some values; those without a plan are left out."""
    found = ((float(value), excess_at(value)) for value in values)
    return tuple((value, excess) for value, excess in found if excess is not None)


def epsilon_for_target(known: Curve, excess_at: Callable[[float], Excess | None], target: float) -> float | None:
    """Smallest epsilon with a mean excess of at most `target`, by bisection of its logarithm.

    Parameters
    ----------
    known : tuple of (epsilon, Excess)
        Ascending.
    excess_at : callable
        Simulates one more epsilon; None where there is no plan.
    target : float

    Returns
    -------
    float or None
        None if even eight times the largest known epsilon is not enough, or nothing is known.

    Examples
    --------
    >>> def halved(epsilon):
    ...     return Excess(1.0 / epsilon, 0.0, 0.0, 2.0 / epsilon)
    >>> round(epsilon_for_target(((1.0, halved(1.0)), (8.0, halved(8.0))), halved, 0.25), 1)
    4.0
    """

    def enough(epsilon: float) -> bool:
        excess = excess_at(epsilon)
        return excess is not None and excess.mean <= target

    if not known:
        return None
    met = next((index for index, (_, excess) in enumerate(known) if excess.mean <= target), None)
    if met is None:
        low, high = known[-1][0], known[-1][0] * BEYOND_GRID
        if not enough(high):
            return None
    elif met == 0:
        low = high = known[0][0]
        for _ in range(_DOUBLINGS):
            low /= 2.0
            if not enough(low):
                break
            high = low
        if low == high:
            return high
    else:
        low, high = known[met - 1][0], known[met][0]
    for _ in range(math.ceil(_BISECTIONS + math.log2(math.log2(high / low)))):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
