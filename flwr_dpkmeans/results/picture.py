"""The picture of a run: its clusters, the cost of each release, and each radius."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.dates import iso_date
from flwr_dpkmeans.privacy.released_counts import faint_clusters
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.shown import size_text
from flwr_dpkmeans.results.cautions.shades import column_shades
from flwr_dpkmeans.results.cautions.sureness import unsure_columns
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.pictures.figures import (
    BLUE,
    GREY,
    SMALL,
    finished,
    new_figure,
    png_of,
)
from flwr_dpkmeans.results.value_texts import with_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

    from flwr_dpkmeans.results.run_result import RunResult


_MOST_COLUMNS = 5  # images beside each other


_MOST_CAUTIONS = 14


_LINES = 20  # of the column of counts beside the centroids


_MOST_CELLS = 160  # whose values there is room for


_MOST_VALUES = 6  # clusters whose values there is room for beside each other


_MOST_SHOWN = 24  # columns, and clusters, of a heat map


_LONGEST_NAME = 18


_COUNT_CHARACTER = (
    0.015  # part of the summary's width that a character of a count takes
)


_SUMMARY_DPI = 160


_WIDTH = 4.0  # inches: on a telephone's 390 pixels, eight points are ten pixels high


_WRAP = 62  # characters of the smallest texts that the width has room for


_FULL_SHADE = (
    1.25  # of the colours' ends only some may be used, on which a number can be read
)


_LINE_HEIGHT, _ROW_HEIGHT, _SCATTER_HEIGHT = 0.16, 0.26, 3.2


_CHARACTER_HEIGHT = 0.08  # of an upright label


_FEW_CLUSTERS = 3  # whose labels stand beside each other


_ALARM = "#A00000"


_QUIET = "#666666"
"""Grey of values that tell no clusters apart; its contrast to their cell is 5 to 1."""


def draw_summary(result: RunResult) -> bytes:
    """Draw `summary_figure` as a PNG."""
    return png_of(summary_figure(result))


def summary_figure(result: RunResult) -> Figure:
    """Draw what came out: the clusters, and what speaks against them.

    Narrow, so that a telephone shows it.
    """
    figure = new_figure(_WIDTH, 1.0, _SUMMARY_DPI)
    wrapper = textwrap.TextWrapper(
        _WRAP, initial_indent="WARNING  ", subsequent_indent=" " * 4
    )
    cautions = list[str]()
    for sentence in result.report.warnings:
        cautions += wrapper.wrap(sentence)
    cautions = cautions[:_MOST_CAUTIONS]
    sentences = [*headline(result.report, result), result.report.line]
    if result.evaluation is not None:
        sentences.append(str(result.evaluation))
    words = list[str]()
    for sentence in sentences:
        words += textwrap.wrap(sentence, _WRAP)
    heights = _heights(result)
    last = _LINE_HEIGHT * len(cautions) + 0.01
    whole = sum(heights) + last + _LINE_HEIGHT * (len(words) + 1)
    figure.set_size_inches(_WIDTH, whole)
    subfigures = figure.subfigures(
        len(heights) + 1,
        1,
        squeeze=False,
        height_ratios=(*heights, last),
    )
    *parts, below = subfigures.ravel()
    below.text(
        0.01,
        0.5,
        "\n".join(cautions),
        fontsize=SMALL,
        va="center",
        color=_ALARM,
    )
    if result.image_shape is not None:
        _draw_images(parts[0], result)
    elif result.model.scaled.shape[1] <= 2:
        axis = _beside_counts(parts[0], result)
        _draw_scatter(axis, result)
    else:
        _draw_columns(parts[0], result)
    if len(parts) > 1:
        # Beside columns, the counts stand below these.
        axis = parts[-1].subplots()
        _draw_scatter(axis, result)
    figure.suptitle("\n".join(words), fontsize=SMALL)
    return finished(figure, result.report)


def _heights(result: RunResult) -> list[float]:
    """Heights of the parts in inches: images, or columns and perhaps a scatter plot.

    The latter stands where two axes have most of the differences.
    """
    points = result.model.scaled
    if result.image_shape is not None:
        return [1.05 * math.ceil(len(points) / _MOST_COLUMNS)]
    if points.shape[1] <= 2:
        return [_SCATTER_HEIGHT]
    shown = min(points.shape[1], _MOST_SHOWN)
    labels = [
        _count_label(j, count, result.report)
        for j, count in enumerate(result.model.sizes[:_MOST_SHOWN])
    ]
    upright = (
        _CHARACTER_HEIGHT * max(map(len, labels))
        if len(labels) > _FEW_CLUSTERS
        else 0.0
    )
    heat = 1.0 + upright + _ROW_HEIGHT * shown
    says_most = _axes_of(points)[1][:2].sum() >= 0.5
    return [heat, _SCATTER_HEIGHT] if says_most else [heat]


def _draw_images(figure: SubFigure, result: RunResult) -> None:
    k = len(result.model.centroids)
    rows = math.ceil(k / _MOST_COLUMNS)
    columns = math.ceil(k / rows)
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    low = float(result.model.centroids.min())
    high = float(result.model.centroids.max())
    for axis in axes:
        axis.set_axis_off()
    counts = result.model.sizes
    for cluster, centroid in enumerate(result.model.centroids):
        axis = axes[cluster]
        image = centroid.reshape(result.image_shape)
        label = _count_label(cluster, counts[cluster], result.report)
        axis.imshow(
            image,
            cmap="gray_r",
            vmin=low,
            vmax=high,
        )
        axis.set_title(label, fontsize=SMALL - 1)
    noisy = "" if result.report.is_exact else "noisy "
    title = f"Centroids, with {noisy}counts of the last release"
    figure.suptitle(title, fontsize=SMALL)


def _count_label(
    cluster: int,
    count: float,
    report: PrivacyReport,
) -> str:
    """Noisy size of a cluster, with a word of caution where it is mostly noise."""
    n_rows = count / report.weight_unit
    caution = ", mostly noise" if faint_clusters([n_rows], report) else ""
    return f"{cluster}: n ~ {size_text(count)}{caution}"


def _draw_columns(figure: SubFigure, result: RunResult) -> None:
    """Draw columns x clusters: values in units, shaded by how clusters differ."""
    model = result.model
    columns = model.leading(_MOST_SHOWN)
    clusters = slice(0, _MOST_SHOWN)
    axis = figure.subplots()
    # A column that tells no clusters apart has no shade, and its values are grey.
    unsure = np.isin(columns, unsure_columns(model, result.radius))
    shades = column_shades(model, result.radius)[columns, clusters]
    axis.imshow(
        shades,
        cmap="RdBu_r",
        vmin=-_FULL_SHADE,
        vmax=_FULL_SHADE,
        aspect="auto",
    )
    has_room = shades.shape[1] <= _MOST_VALUES and shades.size <= _MOST_CELLS
    shown = with_errors(model) if has_room else []
    for (row, cluster), shade in np.ndenumerate(shades) if shown else ():
        colour = "white" if abs(shade) > 0.75 else "black"
        colour = _QUIET if unsure[row] else colour
        text = shown[columns[row]][cluster].replace(" ±", "\n±")
        axis.text(
            cluster,
            row,
            text,
            ha="center",
            va="center",
            size=SMALL,
            color=colour,
        )
    all_names = model.shown_names
    names = [_shortened(all_names[column]) for column in columns]
    axis.set_yticks(range(len(columns)), names, fontsize=SMALL)
    labels = [
        _count_label(j, count, result.report)
        for j, count in enumerate(model.sizes[clusters])
    ]
    upright = 90 if len(labels) > _FEW_CLUSTERS else 0
    axis.set_xticks(
        range(len(labels)),
        labels,
        rotation=upright,
        fontsize=SMALL,
    )
    cut = []
    if len(columns) < len(all_names):
        cut.append(f"{len(columns)} of {len(all_names)} columns")
    if len(labels) < len(model.counts):
        cut.append(f"{len(labels)} of {len(model.counts)} clusters")
    parts = f" ({', '.join(cut)})" if cut else ""
    axis.set_title(
        f"Centroids{parts}\nby column: red high, blue low, faint may be noise",
        fontsize=SMALL,
    )


def _shortened(name: str) -> str:
    """A column's name, without its middle where it is long."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2 - 1
    return f"{name[: half - 1]}...{name[-half:]}"


def _beside_counts(figure: SubFigure, result: RunResult) -> Axes:
    """Axes of a scatter plot, with the noisy counts listed beside them."""
    listed = [
        _count_label(j, count, result.report)
        for j, count in enumerate(result.model.sizes[:_LINES])
    ]
    share = _COUNT_CHARACTER * max(map(len, listed))
    axis: Axes
    beside: Axes
    axis, beside = figure.subplots(1, 2, width_ratios=(1.0 - share, share))
    beside.set_axis_off()
    for line, label in enumerate(listed):
        beside.text(
            0.0,
            1.0 - line / _LINES,
            label,
            va="top",
            fontsize=SMALL - 1,
        )
    return axis


def _date_texts(span: tuple[float, float]) -> Callable[[float, float], str]:
    """What writes a column's numbers of days as dates."""

    def date_text(days: float, _: float) -> str:
        return iso_date(days, *span)

    return date_text


def _axes_of(
    points: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Principal axes of points, in rows, and the part of their variance along each."""
    centred = points - points.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    variances = singular**2
    total = max(float(np.sum(variances)), np.finfo(float).tiny)
    return axes, variances / total


def _draw_scatter(axis: Axes, result: RunResult) -> None:
    """Centroids on their two principal axes, or as they are in two columns.

    Areas from noisy counts.
    """
    model = result.model
    faint = np.isin(
        np.arange(len(model.counts)), faint_clusters(model.counts, result.report)
    )
    # Centroids that are mostly noise are drawn, but the axes are those of the others,
    # if there are two.
    leading = model.scaled[~faint] if np.count_nonzero(~faint) > 1 else model.scaled
    centred = model.scaled - leading.mean(axis=0)
    if centred.shape[1] <= 2:
        shown = np.column_stack([model.placed_means, np.zeros((len(centred), 2))])[
            :, :2
        ]
        labels = [*model.names, ""][:2]
        columns = model.schema.clustered.columns if model.schema else ()
        sides: dict[Literal["x", "y"], Axis] = {"x": axis.xaxis, "y": axis.yaxis}
        for (letter, side), column in zip(sides.items(), columns, strict=False):
            if column.kind == Kind.DATE:
                side.set_major_formatter(_date_texts(column.range))
                axis.locator_params(axis=letter, nbins=4)
    else:
        axes, shares = _axes_of(leading)
        shown = np.zeros((len(centred), 2))
        # k centroids have at most k - 1 axes; rounding has no other.
        n_axes = min(2, int(np.count_nonzero(shares > 1e-12)))
        shown[:, :n_axes] = centred @ axes[:n_axes].T
        labels = ["", ""]
        for index in range(n_axes):
            labels[index] = f"principal axis {index + 1} ({shares[index]:.0%})"
    sizes = np.clip(model.counts, 0.0, None)
    area = 60.0 + 600.0 * sizes / max(float(sizes.max()), 1.0)
    colours = np.where(faint, GREY, BLUE)
    axis.scatter(
        shown[:, 0],
        shown[:, 1],
        s=area,
        color=colours,
        alpha=0.55,
        edgecolor="black",
        linewidth=0.6,
    )
    for cluster, point in enumerate(shown):
        axis.annotate(
            str(cluster),
            point,
            ha="center",
            va="center",
            fontsize=7,
        )
    if not labels[1]:
        axis.set_yticks([])
    axis.set_xlabel(labels[0], fontsize=SMALL)
    axis.set_ylabel(labels[1], fontsize=SMALL)
    axis.tick_params(labelsize=SMALL)
    noisy = "" if result.report.is_exact else "noisy "
    axis.set_title(f"Centroids, area by {noisy}count", fontsize=SMALL)
    axis.margins(0.12)
