"""A picture of which clusters are merged first: a dendrogram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.shown import size_text
from flwr_dpkmeans.results.pictures.figures import (
    BLUE,
    GREY,
    ORANGE,
    SMALL,
    new_figure,
    png_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def draw_hierarchy(
    merges: Array,
    counts: Array,
    n_clusters: int,
) -> bytes:
    """Draw `hierarchy_figure` as a PNG."""
    return png_of(hierarchy_figure(merges, counts, n_clusters))


def hierarchy_figure(
    merges: Array,
    counts: Array,
    n_clusters: int,
) -> Figure:
    """Draw merges, as SciPy writes them, of clusters with counts, (n_released,).

    A line cuts them into so many clusters, whose own merges are blue.
    """
    from scipy.cluster.hierarchy import dendrogram

    n_released = len(counts)
    figure = new_figure(max(5.0, 1.5 + 0.18 * n_released), 4.0)
    axes = figure.subplots()
    axes.set(ylabel="root of twice the growth of the sum of squares")
    if len(merges) == 0:
        return figure
    tree = dendrogram(merges, no_plot=True)
    heights = np.concatenate([[0.0], merges[:, 2], merges[-1:, 2]])
    place = n_released - n_clusters
    level = float(heights[place : place + 2].mean())
    for across, up in zip(tree["icoord"], tree["dcoord"], strict=True):
        colour = BLUE if max(up) <= level else GREY
        axes.plot(across, up, color=colour, linewidth=1.2)
    axes.axhline(
        level,
        color=ORANGE,
        linestyle="--",
        label=f"sensible: k = {n_clusters}",
    )
    # SciPy draws leaves at 5, 15, 25 and so on.
    middles = 10.0 * np.arange(n_released) + 5.0
    labels = [f"{leaf}: {size_text(counts[leaf])}" for leaf in tree["leaves"]]
    axes.set_xticks(
        middles,
        labels,
        rotation=90,
        fontsize=SMALL - 1,
    )
    axes.set_xlabel("released cluster: noisy count")
    axes.legend(fontsize=SMALL)
    return figure
