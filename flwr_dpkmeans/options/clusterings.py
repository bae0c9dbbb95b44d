"""Algorithms that an estimator runs, and what their own options are called."""

from __future__ import annotations

from dataclasses import fields

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.options.kinds import Kinds, kinds_of_task
from flwr_dpkmeans.sums.task import Task


def clusterings() -> Kinds:
    """Every algorithm that an estimator runs."""
    kinds = kinds_of_task()
    return tuple(kind for kind in kinds if issubclass(kind, KMeansTask))


def names_of(kind: type[Task]) -> list[str]:
    """An algorithm's own options."""
    options = kind.option_class()
    declared = fields(options)
    return [option.name for option in declared]


def clustering_names() -> set[str]:
    """Names of the algorithms that an estimator runs."""
    names = set(NOT_FEDERATED)
    for kind in clusterings():
        names.add(kind.name)
    return names
