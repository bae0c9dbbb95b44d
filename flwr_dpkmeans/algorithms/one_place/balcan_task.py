"""Local search (Balcan et al. 2017), with a trusted curator."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.algorithms.one_place.max_cover_task import (
    MaxCoverOptions,
    MaxCoverTask,
)


@dataclass(frozen=True)
class BalcanOptions(MaxCoverOptions):
    """Options of Balcan et al.'s, of a class of their own.

    Options say which algorithm they are of.
    """


@dataclass(frozen=True, kw_only=True)
class BalcanTask(MaxCoverTask):
    """Private k-means by noisy trees and local search (Balcan et al. 2017).

    On all rows in one place.
    """

    name = "balcan"
    options: BalcanOptions = BalcanOptions()
