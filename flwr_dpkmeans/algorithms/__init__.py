"""Algorithms: each is one file with its options, its rounds and its task; importing this room registers them all."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.dplloyd import GLloyd, Lloyd, SuLloyd
from flwr_dpkmeans.algorithms.fastlloyd import FastLloyd
from flwr_dpkmeans.algorithms.feddp_kmeans import FedDPChooseK, FedDPKMeans
from flwr_dpkmeans.algorithms.kmeans_task import NOT_FEDERATED, needs_all_rows
from flwr_dpkmeans.algorithms.proxy_lloyd import ProxyLloyd
from flwr_dpkmeans.algorithms.server_starts import ServerKMeansPlusPlus, ServerLloyd, SpherePacking
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.sums.task import TASKS, ServerData, Task, register

__all__ = ["ALGORITHMS", "NOT_FEDERATED", "ServerData", "algorithm_entry"]

_OWN: tuple[type[Task], ...] = (
    *(ProxyLloyd, FastLloyd, GLloyd, SuLloyd, Lloyd),
    *(FedDPKMeans, FedDPChooseK, ServerKMeansPlusPlus, ServerLloyd, SpherePacking),
)
for _kind in _OWN:
    register(_kind)

ALGORITHMS = TASKS
"""Every algorithm that a federation can run, those of other packages included."""


def algorithm_entry(name: str) -> type[Task]:
    """Look an algorithm up by name; an unknown one is a `ConfigurationError` with the nearest valid name.

    Examples
    --------
    >>> algorithm_entry("lloyd").noise
    <NoiseShape.NONE: 'none'>
    """
    if name in NOT_FEDERATED:
        raise needs_all_rows(name)
    if name not in ALGORITHMS:
        known = nearest(name, (*ALGORITHMS, *NOT_FEDERATED))
        raise ConfigurationError(f"algorithm is {name!r}, which is not known: {known}")
    return ALGORITHMS[name]
