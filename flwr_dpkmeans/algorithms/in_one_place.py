"""Baselines that need all rows in one place: named and configured like algorithms, run by `baselines` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.round import Algorithm
from flwr_dpkmeans.sums.settings import Options, whole
from flwr_dpkmeans.sums.task import Known


@dataclass(frozen=True, kw_only=True)
class InOnePlace(KMeansTask):
    """A baseline that `FederatedKMeans` runs in this process, never in a federation."""

    trust = "central"
    noise = NoiseShape.NONE

    def build(self, known: Known) -> Algorithm:
        """Refuse: there are no rounds."""
        del known
        raise needs_all_rows(self.name)


@dataclass(frozen=True)
class OptimalOptions(Options):
    """Options of central k-means."""

    n_init: int = whole(20, 1, 20, "restarts of k-means", most=10_000)


@dataclass(frozen=True, kw_only=True)
class KFed(InOnePlace):
    """One-shot federated k-means."""

    name = "k_fed"
    title = "one-shot federated k-means from each client's own centres; not private"


@dataclass(frozen=True, kw_only=True)
class Optimal(InOnePlace):
    """Central k-means."""

    name = "optimal"
    title = "k-means on all rows in one place; not private"
    options: OptimalOptions = OptimalOptions()


@dataclass(frozen=True, kw_only=True)
class MaxCover(InOnePlace):
    """Central differentially private k-means."""

    name = "max_cover"
    title = "central k-means by maximum cover (Nguyen, Chaturvedi, Xu 2021): private, on all rows in one place"
    noise = NoiseShape.GAUSSIAN


NOT_FEDERATED: Mapping[str, type[InOnePlace]] = MappingProxyType(
    {kind.name: kind for kind in (KFed, Optimal, MaxCover)}
)
"""Baselines that `FederatedKMeans` runs in one process, by name."""


def needs_all_rows(name: str) -> ConfigurationError:
    """Say why a federation cannot run a baseline."""
    return ConfigurationError(
        f"algorithm is {name!r}, which needs all rows in one place: run it as FederatedKMeans(algorithm={name!r}), "
        "or use 'feddp_kmeans' in a federation."
    )
