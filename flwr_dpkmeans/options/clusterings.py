"""Algorithms that an estimator runs, and what their own options are called."""

from __future__ import annotations

from dataclasses import fields

from flwr_dpkmeans.algorithms import NOT_FEDERATED
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.options.kinds import kinds_of_task
from flwr_dpkmeans.sums.task import Task


def clusterings() -> list[type[Task]]:
    """Every algorithm that an estimator runs."""
    return [kind for kind in kinds_of_task() if issubclass(kind, KMeansTask)]


def names_of(kind: type[Task]) -> set[str]:
    """An algorithm's own options."""
    return {option.name for option in fields(kind.option_class())}


def clustering_names() -> set[str]:
    """Names of the algorithms that an estimator runs."""
    return {kind.name for kind in clusterings()} | {*NOT_FEDERATED}
