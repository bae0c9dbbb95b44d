"""All of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from flwr_dpkmeans.algorithms.one_place.balcan_task import BalcanTask
from flwr_dpkmeans.algorithms.one_place.in_one_place import (
    InOnePlaceTask,
    needs_all_rows,
)
from flwr_dpkmeans.algorithms.one_place.max_cover_task import MaxCoverTask
from flwr_dpkmeans.algorithms.one_place.optimal_task import KFedTask, OptimalTask
from flwr_dpkmeans.sums.task import TASKS, Task

NOT_FEDERATED: Mapping[str, type[InOnePlaceTask]] = MappingProxyType(
    {kind.name: kind for kind in (KFedTask, OptimalTask, MaxCoverTask, BalcanTask)}
)
"""Baselines that `FederatedKMeans` runs in one process, by name."""


def algorithm_entry(name: str) -> type[Task]:
    """Look an algorithm up by name.

    An unknown one is a `ConfigurationError` with the nearest valid name.
    """
    if name in NOT_FEDERATED:
        raise needs_all_rows(name)
    return TASKS.find(name)
