"""The sets of the comparison of rivals.

PE-means' conditions, the yardsticks in their own range, and drawn ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, nearest
from simulations.papers.fastlloyd.utility import find_source, load_scaled

Array = NDArray[np.float64]

BALL, RANGE, DPM = "ball", "range", "dpm"
EPSILONS = MappingProxyType(
    {BALL: (0.25, 0.5, 1.0, 2.0, 4.0), RANGE: (0.1, 0.25, 0.5, 0.75, 1.0), DPM: (1.0,)}
)
_BLOBS = 20_000


@dataclass(frozen=True)
class RivalSet:
    """One set: where it is, its number of clusters, and under which conditions it is
    clustered.

    ``ball``: rows less their exact mean, over the largest norm; bounds +- the largest
    coordinate, in all columns; delta N^-1.1 (PE-means' paper; all of this from private
    rows). ``range``: columns scaled by their own range; delta 1 / (N ln N) (FastLloyd's
    paper). ``dpm``: bounds +-100 and delta N^-1.5 (DPM's paper).
    """

    name: str
    source: str
    n_clusters: int
    conditions: str
    n_features: int = 0
    """Of drawn sets."""
    published: Mapping[str, float] | None = None
    """Areas that the PE-means repository prints, by our methods' names."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows, (n, d), their box [-bound, bound]^d, the radius of their ball (None: only
    the box is known), and delta.
    """

    points: Array
    bound: float
    radius: float | None
    delta: float


_COLUMNS = ("optimal", "pe_means", "hdpe_means", "lsh_tree", "fastlloyd", "diffprivlib")
_PUBLISHED = """
iris         .1361 .2894 -     .6892 .3979 1.3048
adult        .0056 .0056 -     .0076 .0155 .0213
blobs_4_4    .0777 .0778 -     .1305 .1777 .2355
blobs_16_4   .0459 .0445 -     .0979 .0990 .1409
blobs_64_4   .0343 .0379 -     .1289 .0818 .1191
blobs_4_16   .0950 .0955 -     .1395 .7110 .5049
blobs_16_16  .0606 .0668 -     .1596 .7160 .5809
blobs_64_16  .0642 .1183 -     .3872 .7631 .8720
blobs_4_64   .0954 .0993 .0974 .1090 1.4623 .8614
blobs_16_64  .0847 .1192 .1189 .2258 1.7475 1.3716
blobs_64_64  .0823 .3070 .4678 .7878 2.2002 2.2456
blobs_4_128  .1054 .1333 .1097 .1186 1.7604 1.1632
blobs_16_128 .0919 .1942 .1562 .2838 2.3038 1.9742
blobs_64_128 .0933 .5740 .7190 .9675 2.7204 2.9608
"""
"""Areas under the cost over epsilon .25 to 4, from the table in
github.com/t3humphries/PE-means; 50 runs each.
"""


def _sets() -> dict[str, RivalSet]:
    sets = {}
    for line in _PUBLISHED.split("\n")[1:-1]:
        name, *values = line.split()
        published = {
            column: float(value)
            for column, value in zip(_COLUMNS, values, strict=True)
            if value != "-"
        }
        kind, *numbers = name.split("_")
        k, d = map(int, numbers) if numbers else (3, 0)
        sets[name] = RivalSet(name, kind, k, BALL, d, published)
    for name, k in (("lsun", 3), ("iris", 3), ("yeast", 10), ("s1", 15), ("adult", 3)):
        sets[f"{name}_range"] = RivalSet(f"{name}_range", name, k, RANGE)
    for d in (10, 100):
        sets[f"dpm_{d}"] = RivalSet(f"dpm_{d}", "dpm", 64, DPM, d)
    return sets


SETS: Mapping[str, RivalSet] = MappingProxyType(_sets())


def rival_set(name: str) -> RivalSet:
    """The set of a name."""
    if name not in SETS:
        raise ConfigurationError(f"there is no set {name!r}: {nearest(name, SETS)}")
    return SETS[name]


@lru_cache(maxsize=2)
def prepared(name: str, data_dir: str) -> Prepared:
    """Rows as the set's conditions have them.

    Files, NAME.npz and the like, are those of `data_dir`.
    """
    rival = rival_set(name)
    if rival.conditions == RANGE:
        points = load_scaled(find_source(rival.source, [data_dir]))
        return Prepared(points, 1.0, None, 1.0 / (len(points) * math.log(len(points))))
    if rival.conditions == DPM:
        points = _blobs(100_000, rival.n_features, rival.n_clusters, seed=42, box=100.0)
        return Prepared(points, 100.0, None, len(points) ** -1.5)
    if rival.n_features:
        points = np.round(
            _blobs(_BLOBS, rival.n_features, rival.n_clusters, seed=1, box=10.0), 4
        )
    else:
        from flwr_dpkmeans.data.loading.source import load_source

        points = load_source(find_source(rival.source, [data_dir])).points
    points = points - points.mean(axis=0)
    points = points / np.linalg.norm(points, axis=1).max()
    return Prepared(points, float(np.abs(points).max()), 1.0, len(points) ** -1.1)


def _blobs(n: int, n_features: int, n_clusters: int, *, seed: int, box: float) -> Array:
    from sklearn.datasets import make_blobs

    rows, _ = make_blobs(
        n_samples=n,
        n_features=n_features,
        centers=n_clusters,
        random_state=seed,
        center_box=(-box, box),
    )
    return np.asarray(rows, dtype=np.float64)
