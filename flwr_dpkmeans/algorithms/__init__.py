"""Algorithms: each is one file with its options, its rounds and its task.

Importing this room registers them all.
"""

from __future__ import annotations

from flwr_dpkmeans.algorithms import feddp_kmeans as feddp
from flwr_dpkmeans.algorithms.array_sum import ArraySum, ExactArraySum
from flwr_dpkmeans.algorithms.kmeans_task import (
    NOT_FEDERATED,
    KMeansTask,
    algorithm_entry,
)
from flwr_dpkmeans.algorithms.lloyd_family import FastLloyd, GLloyd, Lloyd, SuLloyd
from flwr_dpkmeans.algorithms.moments import Histograms, Moments, Radii
from flwr_dpkmeans.algorithms.naive_bayes import NaiveBayes
from flwr_dpkmeans.algorithms.proxy_rounds import ProxyLloyd
from flwr_dpkmeans.sums.task import TASKS, ServerData, Task, register

__all__ = ["NOT_FEDERATED", "ServerData", "algorithm_entry", "clusterings"]

_OWN: tuple[type[Task], ...] = (
    *(ProxyLloyd, FastLloyd, GLloyd, SuLloyd, Lloyd),
    *(
        feddp.FedDPKMeans,
        feddp.FedDPChooseK,
        feddp.ServerKMeansPlusPlus,
        feddp.ServerLloyd,
        feddp.SpherePacking,
    ),
    *(NaiveBayes, Moments, Histograms, Radii, ArraySum, ExactArraySum),
)
for _kind in _OWN:
    register(_kind)


def clusterings() -> dict[str, type[Task]]:
    """Every clustering that a federation can run, those of other packages included, by
    name.
    """
    return {name: kind for name, kind in TASKS.items() if issubclass(kind, KMeansTask)}
