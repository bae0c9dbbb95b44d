"""What the benchmarks of FedDP-KMeans share.

The paper's mixture, and one fit on it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.options import Cohort
from simulations.experiments.configuration import algorithm_value
from simulations.sources.mixture import GaussianMixture, draw_gaussian_mixture

N_CLUSTERS = 10
DELTA = 1e-6
WITH_SERVER_DATA = ("feddp_kmeans", "server_kmeans++", "server_lloyd", "sphere_packing")
"""Algorithms that get the server's points, ``sphere_packing`` only for its clip bounds.
"""


@dataclass(frozen=True)
class Setting:
    """One federation of the paper's section 5.

    Parameters
    ----------
    unit : str
        "record" or "client".
    n_clients, rows : int
        Number of clients, and of rows of each.
    missing : int
        Components of the mixture of which the server has no point.
    """

    unit: str
    n_clients: int
    rows: int
    missing: int = 0


PAPER: Mapping[str, Setting] = MappingProxyType(
    {"record": Setting("record", 100, 1000), "client": Setting("client", 2000, 50)}
)
"""Sections 5.1 and 5.2."""


@dataclass(frozen=True)
class Fit:
    """One fit on the mixture of a seed.

    Parameters
    ----------
    setting : Setting
        Whose data.
    seed : int
        Of mixture, start and noise.
    algorithm : str
        Of `FederatedKMeans`.
    epsilon : float
        Total asked for; without meaning for methods that are not private.
    options : tuple of (name, value)
        Further options of `FederatedKMeans`.
    """

    setting: Setting
    seed: int
    algorithm: str
    epsilon: float
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Fitted:
    """What one fit gave: exact cost per point, and the epsilon that its privacy report
    states.
    """

    cost: float
    epsilon: float


@lru_cache(maxsize=1)
def drawn(setting: Setting, seed: int) -> GaussianMixture:
    """Draw clients and server of a seed, once in a row of jobs."""
    return draw_gaussian_mixture(
        np.random.default_rng(seed),
        n_clients=setting.n_clients,
        points_per_client=setting.rows,
        missing_components=setting.missing,
    )


@lru_cache(maxsize=1)
def all_rows(setting: Setting, seed: int) -> NDArray[np.float64]:
    """Put the rows of all clients of a seed together, once in a row of jobs."""
    return np.concatenate(drawn(setting, seed).clients)


def optimum(setting: Setting, seed: int, restarts: int) -> float:
    """Best non-private cost per point: Lloyd from the true means, and `restarts`
    k-means++ starts.
    """
    from sklearn.cluster import KMeans

    mixture, points = drawn(setting, seed), all_rows(setting, seed)
    # scikit-learn's default tolerance stops before convergence.
    models = [KMeans(N_CLUSTERS, init=mixture.means, n_init=1, max_iter=1000, tol=0.0)]
    if restarts:
        models.append(KMeans(N_CLUSTERS, n_init=restarts, random_state=seed))
    return min(
        cost_per_point(points, model.fit(points).cluster_centers_) for model in models
    )


def run_fit(fit: Fit) -> Fitted:
    """Fit once, without masks and with seeded noise, on one thread, and look at the
    exact data for the cost.
    """
    mixture = drawn(fit.setting, fit.seed)
    of_algorithm = dict(fit.options)
    options: dict[str, Any] = {"unit": fit.setting.unit}
    for name in ("max_iter", "trust"):
        if name in of_algorithm:
            options[name] = of_algorithm.pop(name)
    if fit.algorithm in WITH_SERVER_DATA:
        options["server_data"] = mixture.server_points
    else:
        options["bounds"] = (MIXTURE_BOUNDS.lower, MIXTURE_BOUNDS.upper)
    if fit.algorithm not in NOT_FEDERATED:
        options |= {"engine": "direct", "cohort": Cohort(masking=False)}
    if fit.algorithm in ("k_fed", "optimal"):
        # They protect no unit at all, and the estimator knows them under this one only.
        options["unit"] = "record"
    model = FederatedKMeans(
        N_CLUSTERS,
        algorithm=algorithm_value(fit.algorithm, of_algorithm),
        epsilon=fit.epsilon,
        delta=DELTA,
        noise="seeded",
        random_state=fit.seed,
        **options,
    ).fit(mixture.clients)
    return Fitted(
        cost_per_point(all_rows(fit.setting, fit.seed), model.cluster_centers_),
        model.privacy_.epsilon,
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the paper's federation."""
    parser.add_argument(
        "--clients", type=int, default=0, help="0: 100 (record) or 2000 (client)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=0,
        help="of each client; 0: 1000 (record) or 50 (client)",
    )
    parser.add_argument(
        "--missing",
        type=int,
        default=0,
        help="components of which the server has no point",
    )


def setting_from(options: argparse.Namespace, unit: str) -> Setting:
    """Change the paper's federation as the command line says."""
    paper = PAPER[unit]
    return replace(
        paper,
        n_clients=options.clients or paper.n_clients,
        rows=options.rows or paper.rows,
        missing=options.missing,
    )
