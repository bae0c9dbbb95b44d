"""Algorithms by name, for whoever makes a run."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.one_place.not_federated import (
    NOT_FEDERATED,
    algorithm_entry,
)
from flwr_dpkmeans.sums.task import TASKS, Task

__all__ = ["NOT_FEDERATED", "algorithm_entry", "clusterings"]


def clusterings() -> dict[str, type[Task]]:
    """Every clustering that a federation can run, by name.

    Those of other packages are included.
    """
    kinds: dict[str, type[Task]] = {}
    for name, kind in TASKS.items():
        if issubclass(kind, KMeansTask):
            kinds[name] = kind
    return kinds
