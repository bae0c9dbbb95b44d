"""k-means++: starts that are drawn far from each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.threads import one_thread


@one_thread()
def plus_plus(
    points: FloatArray,
    weights: FloatArray,
    n_chosen: int,
    generator: np.random.Generator,
    *,
    is_greedy: bool = False,
) -> list[int]:
    """Choose places of points by k-means++ (Arthur and Vassilvitskii 2007).

    Greedy ones are the best of some trials.
    """
    n_trials = 2 + int(math.log(n_chosen)) if is_greedy else 1
    lengths = np.einsum("ij,ij->i", points, points)
    chosen, squares = (
        [_drawn(weights, generator.random(1))[0]],
        np.full(len(points), np.inf),
    )
    for uniforms in generator.random((n_chosen, n_trials)):
        np.minimum(squares, squares_to(points, lengths, chosen[-1:])[0], out=squares)
        if len(chosen) == n_chosen:
            break
        trials = _drawn(weights * squares, uniforms)
        if is_greedy:
            left = np.cumsum(
                weights * np.minimum(squares, squares_to(points, lengths, trials)),
                axis=1,
            )[:, -1]
            trials = trials[int(left.argmin()) :]
        chosen.append(trials[0])
    return chosen


def _drawn(weights: FloatArray, uniforms: FloatArray) -> list[int]:
    """Places in proportion to weights (n,); the last one where all are 0."""
    sums = np.cumsum(weights)
    return [
        min(int(i), len(weights) - 1)
        for i in np.searchsorted(sums, uniforms * sums[-1], side="right")
    ]


def squares_to(
    points: FloatArray,
    lengths: FloatArray,
    places: Sequence[int],
) -> FloatArray:
    """Squared distances (m, n) of points from m of them.

    Points have the squared lengths (n,).
    """
    squares: FloatArray = lengths + (
        lengths[places][:, None] - 2.0 * (points[places] @ points.T)
    )
    np.maximum(squares, 0.0, out=squares)
    squares[range(len(places)), places] = 0.0
    return squares
