"""A picture of the cost over the number of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.pictures.figures import (
    BLUE,
    ORANGE,
    finished,
    new_figure,
    png_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_cost_curve(
    costs: NDArray[np.float64],
    n_clusters: int,
    report: PrivacyReport,
) -> bytes:
    """Draw `cost_curve_figure` as a PNG."""
    return png_of(cost_curve_figure(costs, n_clusters, report))


def cost_curve_figure(
    costs: NDArray[np.float64],
    n_clusters: int,
    report: PrivacyReport,
) -> Figure:
    """Draw a cost curve, (largest k,), with its elbow at `n_clusters`."""
    figure = new_figure(6.5, 4)
    axes = figure.subplots()
    ks = np.arange(1, len(costs) + 1)
    axes.plot(
        ks,
        costs,
        color=BLUE,
        marker="o",
        markersize=4,
        label="weighted server points",
    )
    if 1 <= n_clusters <= len(costs):
        axes.axvline(
            n_clusters,
            color=ORANGE,
            linestyle="--",
            label=f"elbow: k = {n_clusters}",
        )
    axes.set(
        xlabel="number of clusters k",
        ylabel="k-means cost per row (projected)",
        ylim=(0.0, None),
    )
    axes.locator_params(axis="x", integer=True)
    axes.legend()
    figure.suptitle(report.line, fontsize=9)
    return finished(figure, report)
