"""A picture of principal components: variances beside the noise, and directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.pictures.figures import (
    BLUE,
    GREY,
    ORANGE,
    SMALL,
    finished,
    new_figure,
    png_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
_MOST_SHOWN = 24
"""Components, and columns."""


def draw_components(
    directions: Array,
    variances: Array,
    floor: float,
    names: Sequence[str],
    report: PrivacyReport,
) -> bytes:
    """Draw `components_figure` as a PNG."""
    figure = components_figure(
        directions,
        variances,
        floor,
        names,
        report,
    )
    return png_of(figure)


def draw_arrays(
    arrays: Mapping[str, ArrayLike],
    names: Sequence[str],
    report: PrivacyReport,
) -> bytes:
    """Draw the arrays of a run's result, whose columns may have no names."""
    directions = np.asarray(arrays["components"])
    variances = [arrays["explained_variance"], arrays["explained_variance_error"]]
    n_known = int(np.ravel(arrays["n_known"])[0])
    numbers = [str(index) for index in range(directions.shape[1])]
    return draw_components(
        directions[:n_known],
        np.array(variances),
        float(np.ravel(arrays["noise_floor"])[0]),
        list(names) or numbers,
        report,
    )


def components_figure(
    directions: Array,
    variances: Array,
    floor: float,
    names: Sequence[str],
    report: PrivacyReport,
) -> Figure:
    """Draw variances with errors, (2, n), and those directions that are known.

    Directions are (n_known, n_features). Variances below the `floor` are grey.
    """
    n_columns = min(len(names), _MOST_SHOWN)
    figure = new_figure(8.0, max(3.5, 1.5 + 0.2 * n_columns))
    left, right = figure.subplots(1, 2)
    n_known = len(directions)
    shown = variances[:, :_MOST_SHOWN]
    numbers = np.arange(shown.shape[1])
    colours = [BLUE if number < n_known else GREY for number in numbers]
    left.bar(
        numbers,
        shown[0],
        yerr=shown[1],
        color=colours,
        capsize=2,
    )
    left.axhline(
        floor,
        color=ORANGE,
        linestyle="--",
        label="noise alone stays below",
    )
    left.set(xlabel="component", ylabel="explained variance", ylim=(0.0, None))
    left.locator_params(axis="x", integer=True)
    left.legend(fontsize=SMALL)
    _draw_directions(right, directions[:_MOST_SHOWN], names[:n_columns])
    figure.suptitle(report.line, fontsize=9)
    return finished(figure, report)


def _draw_directions(
    axes: Axes,
    directions: Array,
    names: Sequence[str],
) -> None:
    if not len(directions):
        axes.set_axis_off()
        axes.set_title("No component stands out of the noise", fontsize=SMALL)
        return
    axes.imshow(
        directions[:, : len(names)].T,
        cmap="RdBu_r",
        vmin=-1.0,
        vmax=1.0,
        aspect="auto",
    )
    axes.set_yticks(range(len(names)), names, fontsize=SMALL)
    axes.set(xlabel="component: red with the column, blue against it")
    axes.locator_params(axis="x", integer=True)
