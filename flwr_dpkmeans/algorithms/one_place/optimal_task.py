"""Clusterings without privacy."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.algorithms.one_place.in_one_place import InOnePlaceTask
from flwr_dpkmeans.sums.option_rules import Options, whole


@dataclass(frozen=True)
class OptimalOptions(Options):
    """Options of central k-means."""

    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means",
        most=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class KFedTask(InOnePlaceTask):
    """One-shot federated k-means from each client's own centres; not private."""

    name = "k_fed"


@dataclass(frozen=True, kw_only=True)
class OptimalTask(InOnePlaceTask):
    """k-means on all rows in one place; not private."""

    name = "optimal"
    options: OptimalOptions = OptimalOptions()
