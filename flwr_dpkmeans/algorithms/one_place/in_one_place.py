"""What such a clustering says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm


@dataclass(frozen=True, kw_only=True)
class InOnePlaceTask(KMeansTask):
    """A baseline that `FederatedKMeans` runs in this process, never in a federation."""

    trust = "central"
    noise = NoiseShape.NONE

    def build(self, public: PublicFacts) -> Algorithm:
        """Refuse: no sum over clients is enough for it."""
        raise needs_all_rows(self.name)


def needs_all_rows(name: str) -> ConfigurationError:
    """Say why a federation cannot run a baseline."""
    return ConfigurationError(
        f"algorithm is {name!r}, which needs all rows in one place: run it as"
        f" FederatedKMeans(algorithm={name!r}), or use 'feddp_kmeans' in a federation."
    )
