"""The number of clusters that a run chose, and the curve that it was chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.writer import write_whole


@dataclass(frozen=True)
class ClusterChoice:
    """The elbow of a private cost curve.

    Parameters
    ----------
    n_clusters : int
        Where the curve bends.
    costs : ndarray, (largest k,)
        k-means cost per unit of weight of the weighted server points for k = 1, 2, ..., in the projected space; squared
        units of the caller where all features have bounds of one width, else squared scaled units.
    privacy : PrivacyReport
        What the two releases behind the curve cost; the curve itself is post-processing.

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.report import example_report
    >>> ClusterChoice(2, np.array([3.0, 1.0, 0.9]), example_report()).n_clusters
    2
    """

    n_clusters: int
    costs: NDArray[np.float64]
    privacy: PrivacyReport

    def plot(self, path: str | Path) -> Path:
        """Draw the curve with its elbow as a PNG, whole or not at all; returns its absolute path."""
        from flwr_dpkmeans.results.picture import draw_cost_curve

        return write_whole(Path(path), draw_cost_curve(self.costs, self.n_clusters, self.privacy))
