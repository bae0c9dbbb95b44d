"""One fit of the comparison of rivals, as a job of a sweep.

Every method on the same rows, unit and accountant.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.sums.option_rules import Options
from simulations.experiments.configuration import flat, job_key
from simulations.experiments.expansion import Sweep
from simulations.experiments.job import failed_row
from simulations.papers.fastlloyd.utility import find_source
from simulations.rivals import register_rivals
from simulations.rivals.installed_methods import (
    PACKAGES,
    diffprivlib_kmeans,
    is_installed,
    mst_kmeans,
)
from simulations.rivals.locality_hashing import lsh_clustering
from simulations.rivals.pe_means import HDPEMeansOptions, PEMeansOptions
from simulations.rivals.rival_data import (
    DPM,
    EPSILONS,
    Prepared,
    RivalSet,
    prepared,
    rival_set,
)
from simulations.rivals.uniform_grid import UniformGridOptions

Array = NDArray[np.float64]

FEDERATED = (
    *("proxy_lloyd", "fastlloyd", "glloyd", "sulloyd"),
    *("pe_means", "hdpe_means", "eugkm", "eugkm_hybrid"),
)
CENTRAL = ("max_cover", "balcan", "lsh_tree", "diffprivlib", "mst")
OPTIMAL = "optimal"
METHODS = (*FEDERATED, *CENTRAL, OPTIMAL)
_PARTIES = 4
_FEW_COLUMNS = 32
"""Up to here PE-means evolves candidates for the rows themselves, as in its paper
HDPE-means beyond.
"""
_GRID_COLUMNS = 16


def fits(method: str, rival: RivalSet, n_features: int) -> bool:
    """Whether a method is for such a set, and can be run here."""
    if method in PACKAGES and not is_installed(method):
        return False
    if method == "mst":
        # A synthetic table takes about ten seconds.
        return n_features <= _GRID_COLUMNS and rival.conditions != DPM
    if method in ("eugkm", "eugkm_hybrid"):
        return n_features <= _GRID_COLUMNS
    if method in ("pe_means", "diffprivlib"):
        return n_features <= _FEW_COLUMNS and rival.conditions != DPM
    return n_features > _FEW_COLUMNS if method == "hdpe_means" else True


def jobs(
    sets: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    data_dir: str,
    *,
    other_code: bool = False,
) -> Sweep:
    """A sweep over sets, methods, the epsilons of the sets, and seeds.

    The optimum is found once.
    """
    runs: list[Mapping[str, Any]] = []
    for name in sets:
        rival, n_features = rival_set(name), prepared(name, data_dir).points.shape[1]
        for method in methods:
            if not fits(method, rival, n_features):
                continue
            once = method == OPTIMAL
            for epsilon in (
                EPSILONS[rival.conditions][:1] if once else EPSILONS[rival.conditions]
            ):
                runs += [
                    _settings(rival, method, epsilon, seed, data_dir)
                    for seed in range(1 if once else seeds)
                ]
    return Sweep(
        "rivals", tuple(runs), {"sweep": {"figures": []}, "other_code": other_code}
    )


def _settings(
    rival: RivalSet, method: str, epsilon: float, seed: int, data_dir: str
) -> dict[str, Any]:
    """A job's settings, in the groups that a sweep's key is made of."""
    # The content of a file is part of a job's key.
    path = {} if rival.n_features else {"path": find_source(rival.source, [data_dir])}
    data = {
        "name": rival.name,
        "conditions": rival.conditions,
        "n_clusters": rival.n_clusters,
        **path,
    }
    return {
        "algorithm": {"name": method},
        "privacy": {"epsilon": epsilon, "unit": "record"},
        "data": {**data, "bounds": None, "server": None},
        "engine": {"name": "direct", "masking": False},
        "n_clients": _PARTIES,
        "seed": seed,
        "data_dir": data_dir,
    }


def run(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One fit: the row of a table, with the cost per point in the units of the set's
    conditions.
    """
    start = time.process_time()
    try:
        rows = prepared(settings["data"]["name"], settings["data_dir"])
        k, seed = int(settings["data"]["n_clusters"]), int(settings["seed"])
        with warnings.catch_warnings():
            # Each report says what the warnings say; a sweep has thousands.
            warnings.simplefilter("ignore")
            centers = cluster(
                settings["algorithm"]["name"],
                rows,
                k,
                settings["privacy"]["epsilon"],
                seed,
            )
    except DPKMeansError as error:
        return failed_row(settings, f"{type(error).__name__}: {error}")
    except Exception as error:
        return failed_row(settings, f"unexpected {type(error).__name__}: {error}")
    seconds = time.process_time() - start
    columns = {
        "job": job_key(settings),
        "status": "done",
        "reason": None,
        "seconds": seconds,
    }
    return flat(settings) | columns | {"cost": cost_per_point(rows.points, centers)}


def cluster(
    method: str, rows: Prepared, n_clusters: int, epsilon: float, seed: int
) -> Array:
    """Centroids, (n_clusters, d), by one method in the units of the rows.

    Noise is seeded.
    """
    if method not in CENTRAL or method in NOT_FEDERATED:
        return _fitted(method, rows, n_clusters, epsilon, seed)
    scaled = np.clip(rows.points / rows.bound, -1.0, 1.0)
    if method == "diffprivlib":
        centres = diffprivlib_kmeans(scaled, n_clusters, epsilon=epsilon, seed=seed)
    elif method == "mst":
        centres = mst_kmeans(
            scaled, n_clusters, epsilon=epsilon, delta=rows.delta, seed=seed
        )
    else:
        radius = (
            scaled.shape[1] ** 0.5 if rows.radius is None else rows.radius / rows.bound
        )
        generator = np.random.default_rng([seed, 3])
        centres = lsh_clustering(
            scaled,
            n_clusters,
            epsilon=epsilon,
            delta=rows.delta,
            radius=radius,
            generator=generator,
        )
    return centres * rows.bound


def _fitted(
    method: str, rows: Prepared, n_clusters: int, epsilon: float, seed: int
) -> Array:
    """By the estimator, over equal parts of the shuffled rows."""
    register_rivals()
    order = np.random.default_rng([seed, 1]).permutation(len(rows.points))
    model = FederatedKMeans(
        n_clusters,
        algorithm=_algorithm(method, rows),
        epsilon=epsilon,
        delta=rows.delta,
        bounds=(-rows.bound, rows.bound),
        noise="seeded",
        random_state=seed,
        engine="direct",
        # The noise of the rivals' papers: shares of parties that may fall silent would
        # make it larger.
        trust="central",
    )
    return np.asarray(
        model.fit(np.array_split(rows.points[order], _PARTIES)).cluster_centers_
    )


def _algorithm(method: str, rows: Prepared) -> str | Options:
    """A method with what the conditions say of it.

    Only the PE-means methods make use of the ball.
    """
    radius = None if rows.radius is None else rows.radius / rows.bound
    if method == "pe_means":
        return PEMeansOptions(radius=radius)
    if method == "hdpe_means":
        return HDPEMeansOptions(radius=radius)
    return (
        UniformGridOptions(hybrid=method != "eugkm")
        if method.startswith("eugkm")
        else method
    )
