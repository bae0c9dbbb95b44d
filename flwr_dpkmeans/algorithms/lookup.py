"""Clusterings by name, for whoever makes a run."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.sums.task import TASKS, Task


def clusterings() -> dict[str, type[Task]]:
    """Every clustering that a federation can run, by name.

    Those of other packages are included.
    """
    kinds: dict[str, type[Task]] = {}
    for name in TASKS:
        kind = TASKS[name]
        if issubclass(kind, KMeansTask):
            kinds[name] = kind
    return kinds
