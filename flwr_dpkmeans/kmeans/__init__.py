"""Numerics of k-means on clean arrays: no privacy, no messages, no files.

Points and centroids are float64 arrays whose entries are multiples of 2^-16 inside [-1, 1]. Products are then
multiples of 2^-32 and every sum below is exact, so that results do not depend on the order of summation, on the
BLAS library or on the machine.

* ``assignment``: the nearest centroid of each point
* ``statistics``: what a client sums, relative (FastLloyd) or absolute (Lloyd) sums with their counts
* ``packing``: data-independent first centroids by sphere packing
* ``update``: from noisy sums and counts to the next centroids
* ``metrics``: the cost per point
"""

from __future__ import annotations

from flwr_dpkmeans.kmeans.assignment import nearest_centroids
from flwr_dpkmeans.kmeans.metrics import cost_per_point
from flwr_dpkmeans.kmeans.packing import PackingMethod, sphere_packing
from flwr_dpkmeans.kmeans.statistics import absolute_statistics, relative_statistics
from flwr_dpkmeans.kmeans.update import (
    PostProcessing,
    absolute_update,
    clip_steps,
    fold,
    relative_update,
    round_to_grid,
    truncate,
)

__all__ = [
    "PackingMethod",
    "PostProcessing",
    "absolute_statistics",
    "absolute_update",
    "clip_steps",
    "cost_per_point",
    "fold",
    "nearest_centroids",
    "relative_statistics",
    "relative_update",
    "round_to_grid",
    "sphere_packing",
    "truncate",
]
