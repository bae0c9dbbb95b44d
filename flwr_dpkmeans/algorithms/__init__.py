"""Algorithms: each is one file with its options, its rounds and its task.

Importing this room registers them all.
"""

from __future__ import annotations

from flwr_dpkmeans.algorithms.array_sum import ArraySumTask, ExactArraySumTask
from flwr_dpkmeans.algorithms.feddp.choose_k import FedDPChooseKTask
from flwr_dpkmeans.algorithms.feddp.feddp_kmeans import FedDPKMeansTask
from flwr_dpkmeans.algorithms.feddp.packed_start import SpherePackingTask
from flwr_dpkmeans.algorithms.feddp.public_start import ServerKMeansPlusPlusTask
from flwr_dpkmeans.algorithms.feddp.server_lloyd import ServerLloydTask
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.lloyd_family.absolute_sums import LloydTask
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import FastLloydTask
from flwr_dpkmeans.algorithms.lloyd_family.glloyd import GLloydTask
from flwr_dpkmeans.algorithms.lloyd_family.sulloyd import SuLloydTask
from flwr_dpkmeans.algorithms.moments import HistogramsTask, MomentsTask, RadiiTask
from flwr_dpkmeans.algorithms.naive_bayes import NaiveBayesTask
from flwr_dpkmeans.algorithms.one_place.not_federated import (
    NOT_FEDERATED,
    algorithm_entry,
)
from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import ProxyLloydTask
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.task import TASKS, Task, register

__all__ = ["NOT_FEDERATED", "ServerData", "algorithm_entry", "clusterings"]

_OWN: tuple[type[Task], ...] = (
    *(ProxyLloydTask, FastLloydTask, GLloydTask, SuLloydTask, LloydTask),
    *(
        FedDPKMeansTask,
        FedDPChooseKTask,
        ServerKMeansPlusPlusTask,
        ServerLloydTask,
        SpherePackingTask,
    ),
    *(
        NaiveBayesTask,
        MomentsTask,
        HistogramsTask,
        RadiiTask,
        ArraySumTask,
        ExactArraySumTask,
    ),
)
for _kind in _OWN:
    register(_kind)


def clusterings() -> dict[str, type[Task]]:
    """Every clustering that a federation can run, those of other packages included, by
    name.
    """
    return {name: kind for name, kind in TASKS.items() if issubclass(kind, KMeansTask)}
