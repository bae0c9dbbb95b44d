"""Whole private clusterings in one process."""

from __future__ import annotations

import warnings

import numpy as np

from flwr_dpkmeans import DPKMeans, FederatedKMeans

N_ROWS, N_COLUMNS, N_CLUSTERS, N_PARTIES = 20_000, 8, 5, 5


def clustered_rows() -> np.ndarray:
    """Draw rows around centres in the box from -1 to 1, (20000, 8)."""
    generator = np.random.default_rng(0)
    centers = generator.uniform(-0.8, 0.8, (N_CLUSTERS, N_COLUMNS))
    labels = generator.integers(N_CLUSTERS, size=N_ROWS)
    noise = generator.normal(0.0, 0.05, (N_ROWS, N_COLUMNS))
    return np.clip(centers[labels] + noise, -1.0, 1.0)


class OneTable:
    """One party's table, no federation."""

    def setup(self) -> None:
        """Draw the rows; cautions about them are not what is timed."""
        warnings.simplefilter("ignore")
        self.rows = clustered_rows()

    def time_fit(self) -> None:
        """Fit with real noise."""
        DPKMeans(N_CLUSTERS, epsilon=1.0, bounds=(-1.0, 1.0)).fit(self.rows)

    def peakmem_fit(self) -> None:
        """Fit with real noise: memory."""
        self.time_fit()


class FiveParties:
    """A federation whose parties and server share this process."""

    params = ("proxy_lloyd", "fastlloyd", "feddp_kmeans")
    param_names = ("algorithm",)
    timeout = 300.0

    def setup(self, algorithm: str) -> None:
        """Give each party its share of the rows."""
        warnings.simplefilter("ignore")
        self.tables = np.array_split(clustered_rows(), N_PARTIES)
        self.options = {}
        if algorithm == "feddp_kmeans":
            self.options["server_data"] = clustered_rows()[:500]

    def time_fit(self, algorithm: str) -> None:
        """Fit with masks and real noise."""
        FederatedKMeans(
            N_CLUSTERS,
            algorithm=algorithm,
            epsilon=1.0,
            bounds=None if self.options else (-1.0, 1.0),
            **self.options,
        ).fit(self.tables)
