"""Adapters to packages that cluster, or make rows, with central privacy.

Each says so where it is not installed.
"""

from __future__ import annotations

import itertools
import math
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.baselines.pooled import run_kmeans
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier

Array = NDArray[np.float64]

PACKAGES = {"diffprivlib": "diffprivlib", "mst": "mbi"}
"""Of each method, the package that it needs."""
_BINS = 16
_ITERATIONS = 300
_TREES = {
    "DOUBLE": np.float64,
    "DTYPE": np.float32,
    "NODE_DTYPE": None,
}
"""Names that diffprivlib 0.6 imports from scikit-learn for its forests, and that
scikit-learn has no more.
"""
_ONE_WAY, _TREE, _TWO_WAY = 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0
"""Of the squared GDP parameter, as in McKenna, Miklau and Sheldon 2021."""


def is_installed(method: str) -> bool:
    """Whether its package can be imported here."""
    return find_spec(PACKAGES[method]) is not None


def _package(method: str, module: str) -> Any:
    if not is_installed(method):
        name = PACKAGES[method]
        raise ConfigurationError(
            f"{method!r} needs the package {name}, which is not installed: pip install"
            f" {name}."
        )
    return import_module(module)


def diffprivlib_kmeans(
    points: Array,
    n_clusters: int,
    *,
    epsilon: float,
    seed: int,
) -> Array:
    """IBM's k-means, (n_clusters, d), of rows (n, d) in [-1, 1]^d.

    Pure epsilon, after Su et al. 2016.

    It skips clusters that are exactly empty, which is not private; nothing is mended
    here.
    """
    trees: Any = import_module("sklearn.tree._tree")
    for name, value in _TREES.items():
        if not hasattr(trees, name):
            setattr(trees, name, value)
    models = _package("diffprivlib", "diffprivlib.models.k_means")
    n_features = points.shape[1]
    bounds = ([-1.0] * n_features, [1.0] * n_features)
    model = models.KMeans(
        n_clusters=n_clusters,
        epsilon=epsilon,
        bounds=bounds,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(model.fit(points).cluster_centers_)


def mst_kmeans(
    points: Array,
    n_clusters: int,
    *,
    epsilon: float,
    delta: float,
    seed: int,
) -> Array:
    """k-means, (n_clusters, d), of a table that MST made from rows (n, d) in [-1, 1]^d
    with `mbi`.

    Columns are cut into 16 bins; noisy histograms of all columns, a tree of pairs that
    the exponential mechanism chooses, and noisy tables of its pairs (McKenna, Miklau
    and Sheldon 2021). A synthetic row stands in the middle of its cell.
    """
    mbi = _package("mst", "mbi")
    generator = np.random.default_rng(seed)
    n, d = points.shape
    bins = np.minimum((points + 1.0) * (_BINS / 2.0), _BINS - 1).astype(np.int64)
    names = [f"x{column}" for column in range(d)]
    domain = mbi.Domain(names, [_BINS] * d)
    squared = gaussian_noise_multiplier(epsilon, delta) ** -2.0
    one_way = math.sqrt(d / (squared * _ONE_WAY))
    measured = [
        mbi.LinearMeasurement(
            _noisy(np.bincount(bins[:, i], minlength=_BINS), one_way, generator),
            (names[i],),
            one_way,
        )
        for i in range(d)
    ]
    pairs = list(
        _tree(
            bins,
            [measurement.noisy_measurement for measurement in measured],
            squared * _TREE,
            generator,
        )
    )
    two_way = math.sqrt(max(1, len(pairs)) / (squared * _TWO_WAY))
    for i, j in pairs:
        table = np.bincount(bins[:, i] * _BINS + bins[:, j], minlength=_BINS**2)
        measured.append(
            mbi.LinearMeasurement(
                _noisy(table, two_way, generator), (names[i], names[j]), two_way
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mbi.estimation.MirrorDescent().estimate(
            domain,
            measured,
            known_total=n,
            iters=_ITERATIONS,
        )
        columns = model.synthetic_data(rows=n).to_dict()
    cells = np.stack([np.asarray(columns[name]) for name in names], axis=1)
    return run_kmeans(
        (cells + 0.5) * (2.0 / _BINS) - 1.0,
        n_clusters,
        n_init=10,
        random_state=seed,
    )


def _noisy(
    counts: NDArray[np.int64],
    std: float,
    generator: np.random.Generator,
) -> Array:
    return np.asarray(counts + generator.normal(0.0, std, counts.shape))


def _tree(
    bins: NDArray[np.int64],
    ones: list[Any],
    squared: float,
    generator: np.random.Generator,
) -> list[tuple[int, int]]:
    """Pairs of columns that connect all, each chosen by how far their table is from
    what single columns tell.

    One row moves a score, an L1 distance of counts, by at most 1; d - 1 choices by the
    exponential mechanism, of which each is eps^2 / 8 zCDP (eps^2 / 4 in squared GDP).
    """
    d = bins.shape[1]
    if d < 2:
        return []
    rate = math.sqrt(4.0 * squared / (d - 1))
    n = len(bins)
    shares = [
        np.maximum(np.asarray(counts), 0.0)
        / max(float(np.maximum(counts, 0.0).sum()), 1.0)
        for counts in ones
    ]
    scores = {}
    for i, j in itertools.combinations(range(d), 2):
        table = np.bincount(
            bins[:, i] * _BINS + bins[:, j], minlength=_BINS**2
        ).reshape(_BINS, _BINS)
        scores[i, j] = float(np.abs(table - n * np.outer(shares[i], shares[j])).sum())
    part = list(range(d))
    chosen: list[tuple[int, int]] = []
    while len(chosen) < d - 1:
        open_pairs = [pair for pair in scores if part[pair[0]] != part[pair[1]]]
        noisy = [0.5 * rate * scores[pair] + generator.gumbel() for pair in open_pairs]
        i, j = open_pairs[int(np.argmax(noisy))]
        chosen.append((i, j))
        part = [part[i] if label == part[j] else label for label in part]
    return chosen
