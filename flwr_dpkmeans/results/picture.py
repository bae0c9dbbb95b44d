"""The picture of a run: its clusters, the cost of each release, and each radius."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.dates import iso_date
from flwr_dpkmeans.privacy.released_counts import faint_clusters
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, PrivacyReport
from flwr_dpkmeans.privacy.shown import size_text
from flwr_dpkmeans.results.cautions.sureness import column_shades, unsure_columns
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.value_texts import with_errors
from flwr_dpkmeans.sums.plan import Plan

if TYPE_CHECKING:
    from flwr_dpkmeans.results.run_result import RunResult

# Okabe and Ito's palette is distinguishable with any kind of colour vision.
_BLUE = "#0072B2"
_ORANGE = "#E69F00"
_GREEN = "#009E73"
_PALE = "#B3E2D5"
_GREY = "#999999"
_MOST_COLUMNS = 5  # images beside each other
_MOST_CAUTIONS = 14
_LINES = 20  # of the column of counts beside the centroids
_TICK_CHARACTERS = 60  # that fit below half of the picture
_MOST_CELLS = 160  # whose values there is room for
_MOST_VALUES = 6  # clusters whose values there is room for beside each other
_MOST_SHOWN = 24  # columns, and clusters, of a heat map
_LONGEST_NAME = 18
_COUNT_CHARACTER = (
    0.015  # part of the summary's width that a character of a count takes
)
_CHARACTER = 0.016  # part of the strip's width that a character of its labels takes
_DPI = 110
_SUMMARY_DPI = 160
_WIDTH = 4.0  # inches: on a telephone's 390 pixels, eight points are ten pixels high
_WRAP = 62  # characters of the smallest texts that the width has room for
_FULL_SHADE = (
    1.25  # of the colours' ends only some may be used, on which a number can be read
)
_SMALL = 8
_LINE_HEIGHT, _ROW_HEIGHT, _SCATTER_HEIGHT = 0.16, 0.26, 3.2
_CHARACTER_HEIGHT = 0.08  # of an upright label
_FEW_CLUSTERS = 3  # whose labels stand beside each other
_ALARM = "#A00000"
_QUIET = "#666666"
"""Grey of values that tell no clusters apart; its contrast to their cell is 5 to 1."""


def draw_summary(result: RunResult) -> bytes:
    """Draw `summary_figure` as a PNG."""
    return png_of(summary_figure(result))


def summary_figure(result: RunResult) -> Any:
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
    *parts, below = figure.subfigures(
        len(heights) + 1, 1, height_ratios=(*heights, last)
    )
    below.text(
        0.01,
        0.5,
        "\n".join(cautions),
        fontsize=_SMALL,
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
    figure.suptitle("\n".join(words), fontsize=_SMALL)
    return _finished(figure, result.report)


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
        for j, count in enumerate(result.model.counts[:_MOST_SHOWN])
    ]
    upright = (
        _CHARACTER_HEIGHT * max(map(len, labels))
        if len(labels) > _FEW_CLUSTERS
        else 0.0
    )
    heat = 1.0 + upright + _ROW_HEIGHT * shown
    says_most = _axes_of(points)[1][:2].sum() >= 0.5
    return [heat, _SCATTER_HEIGHT] if says_most else [heat]


def draw_rounds(result: RunResult) -> bytes:
    """Draw `rounds_figure` as a PNG."""
    return png_of(rounds_figure(result))


def rounds_figure(result: RunResult) -> Any:
    """Draw what each release cost, and each round's radius and movement."""
    figure = new_figure(11, 4.0)
    left, right = figure.subplots(1, 2)
    _draw_epsilon(left, result.report)
    _draw_radius(right, result)
    figure.suptitle(result.report.line, fontsize=11)
    return _finished(figure, result.report)


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
) -> Any:
    """Draw a cost curve, (largest k,), with its elbow at `n_clusters`."""
    figure = new_figure(6.5, 4)
    axes = figure.subplots()
    ks = np.arange(1, len(costs) + 1)
    axes.plot(
        ks,
        costs,
        color=_BLUE,
        marker="o",
        markersize=4,
        label="weighted server points",
    )
    if 1 <= n_clusters <= len(costs):
        axes.axvline(
            n_clusters,
            color=_ORANGE,
            linestyle="--",
            label=f"elbow: k = {n_clusters}",
        )
    axes.set(
        xlabel="number of clusters k",
        ylabel="k-means cost per row (projected)",
        ylim=(0.0, None),
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    figure.suptitle(report.line, fontsize=9)
    return _finished(figure, report)


def new_figure(
    width: float,
    height: float,
    dpi: int | None = None,
) -> Any:
    """A figure of so many inches.

    It needs no display and leaves matplotlib's global state alone.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), dpi=dpi or _DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def png_of(figure: Any) -> bytes:
    """A figure as a PNG."""
    buffer = io.BytesIO()
    figure.canvas.print_png(buffer)
    return buffer.getvalue()


def _finished(figure: Any, report: PrivacyReport) -> Any:
    """The figure, its origin at the foot.

    Texts are drawn as they are: two dollar signs in names make no formula.
    """
    from matplotlib.text import Text

    if report.provenance is not None:
        # A character of this size takes at most an eighteenth of an inch.
        width = int(18 * figure.get_figwidth())
        origin = "\n".join(textwrap.wrap(str(report.provenance), width))
        figure.supxlabel(origin, fontsize=_SMALL - 1, color=_GREY)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return figure


def _draw_images(figure: Any, result: RunResult) -> None:
    k = len(result.model.centroids)
    rows = math.ceil(k / _MOST_COLUMNS)
    columns = math.ceil(k / rows)
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    low = float(result.model.centroids.min())
    high = float(result.model.centroids.max())
    for axis in axes:
        axis.set_axis_off()
    counts = result.model.counts
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
        axis.set_title(label, fontsize=_SMALL - 1)
    noisy = "" if result.report.is_exact else "noisy "
    title = f"Centroids, with {noisy}counts of the last release"
    figure.suptitle(title, fontsize=_SMALL)


def _count_label(
    cluster: int,
    count: float,
    report: PrivacyReport,
) -> str:
    """Noisy count of a cluster, with a word of caution where it is mostly noise."""
    caution = ", mostly noise" if faint_clusters([count], report) else ""
    return f"{cluster}: n ~ {size_text(count)}{caution}"


def _draw_columns(figure: Any, result: RunResult) -> None:
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
            size=_SMALL,
            color=colour,
        )
    all_names = model.shown_names
    names = [_shortened(all_names[column]) for column in columns]
    axis.set_yticks(range(len(columns)), names, fontsize=_SMALL)
    labels = [
        _count_label(j, count, result.report)
        for j, count in enumerate(model.counts[clusters])
    ]
    upright = 90 if len(labels) > _FEW_CLUSTERS else 0
    axis.set_xticks(
        range(len(labels)),
        labels,
        rotation=upright,
        fontsize=_SMALL,
    )
    cut = []
    if len(columns) < len(all_names):
        cut.append(f"{len(columns)} of {len(all_names)} columns")
    if len(labels) < len(model.counts):
        cut.append(f"{len(labels)} of {len(model.counts)} clusters")
    parts = f" ({', '.join(cut)})" if cut else ""
    axis.set_title(
        f"Centroids{parts}\nby column: red high, blue low, faint may be noise",
        fontsize=_SMALL,
    )


def _shortened(name: str) -> str:
    """A column's name, without its middle where it is long."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2 - 1
    return f"{name[: half - 1]}...{name[-half:]}"


def _beside_counts(figure: Any, result: RunResult) -> Any:
    """Axes of a scatter plot, with the noisy counts listed beside them."""
    listed = [
        _count_label(j, count, result.report)
        for j, count in enumerate(result.model.counts[:_LINES])
    ]
    share = _COUNT_CHARACTER * max(map(len, listed))
    axis, beside = figure.subplots(1, 2, width_ratios=(1.0 - share, share))
    beside.set_axis_off()
    for line, label in enumerate(listed):
        beside.text(
            0.0,
            1.0 - line / _LINES,
            label,
            va="top",
            fontsize=_SMALL - 1,
        )
    return axis


def _axes_of(
    points: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Principal axes of points, in rows, and the part of their variance along each."""
    centred = points - points.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    variances = singular**2
    total = max(float(np.sum(variances)), np.finfo(float).tiny)
    return axes, variances / total


def _draw_scatter(axis: Any, result: RunResult) -> None:
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
        for side, column in zip((axis.xaxis, axis.yaxis), columns, strict=False):
            if column.kind == Kind.DATE:
                side.set_major_formatter(
                    lambda days, _, span=column.range: iso_date(days, *span)
                )
                side.get_major_locator().set_params(nbins=4)
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
    colours = np.where(faint, _GREY, _BLUE)
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
    axis.set_xlabel(labels[0], fontsize=_SMALL)
    axis.set_ylabel(labels[1], fontsize=_SMALL)
    axis.tick_params(labelsize=_SMALL)
    noisy = "" if result.report.is_exact else "noisy "
    axis.set_title(f"Centroids, area by {noisy}count", fontsize=_SMALL)
    axis.margins(0.12)


def _draw_epsilon(axis: Any, report: PrivacyReport) -> None:
    """The budget as a strip, which each aggregation takes a part of.

    It ends at the cost so far.
    """
    costs: dict[str, float] = {}
    attempts: dict[int, list[int]] = {}
    for line in report.releases:
        # Attempts are numbered through the whole run, so what marks a repetition is an
        # earlier one of the same round.
        tried = attempts.setdefault(line.round_index, [line.attempt])
        if line.attempt not in tried:
            tried.append(line.attempt)
        costs[str(line.round_index) + "'" * tried.index(line.attempt)] = (
            line.epsilon_so_far
        )
    axis.set_xlabel("epsilon so far")
    axis.set_title("Budget by round", fontsize=10)
    axis.set_yticks([])
    finite = [cost for cost in costs.values() if math.isfinite(cost)]
    if not finite:
        axis.text(
            0.5,
            0.5,
            "no noise was added: epsilon is infinite",
            ha="center",
            transform=axis.transAxes,
        )
        return
    beyond = 1.05 if len(finite) == len(costs) else 1.3
    whole = beyond * max(report.epsilon_requested, *finite)
    before = 0.0
    for index, (name, cost) in enumerate(costs.items()):
        ends = max(cost, before)
        label = name
        shade = _GREEN if index % 2 == 0 else _PALE
        if math.isinf(cost):
            # What was released without noise reaches beyond the end.
            ends = 1.5 * whole
            label = f"{name}: infinite"
            shade = "white"
        axis.barh(
            0.0,
            ends - before,
            left=before,
            height=1.0,
            color=shade,
            edgecolor="black",
            linewidth=0.6,
        )
        if min(ends, whole) - before > _CHARACTER * (1 + len(label)) * whole:
            axis.text(
                (before + min(ends, whole)) / 2.0,
                0.0,
                label,
                ha="center",
                va="center",
                fontsize=7,
            )
        before = ends
    axis.axvline(
        report.epsilon_requested,
        color=_ORANGE,
        linestyle="--",
        label="epsilon asked for",
    )
    axis.set(xlim=(0.0, whole), ylim=(-2.0, 2.0))
    axis.legend(loc="upper left", fontsize=8)
    # Rounds before the first one have names, which are too long for the strip.
    named = [
        f"{line.round_index}: {line.round_name}"
        for line in report.releases
        if Plan.discovers(line.round_index)
    ]
    notes = ["numbers are rounds", *dict.fromkeys(named)]
    if any("'" in name for name in costs):
        notes.append("' marks a repeated attempt")
    axis.text(
        0.02,
        0.05,
        textwrap.fill("; ".join(notes), _TICK_CHARACTERS),
        fontsize=8,
        transform=axis.transAxes,
    )


def _set_ticks(
    axis: Any,
    positions: Sequence[int],
    labels: Sequence[str],
) -> None:
    """Label as many positions on the x-axis, evenly, as there is room for."""
    widest = max(map(len, labels), default=0)
    n_characters = len(labels) * (1 + widest)
    step = max(1, math.ceil(n_characters / _TICK_CHARACTERS))
    axis.set_xticks(positions[::step], labels[::step])


def _draw_radius(axis: Any, result: RunResult) -> None:
    """Radius in force and largest movement of a centroid, in scaled units."""
    moving = [
        line
        for line in result.report.releases
        if not Plan.discovers(line.round_index)
        and line.round_name not in CLOSING_ROUNDS
    ]
    radii = {line.round_index: line.radius for line in moving}
    rounds = sorted(radii)
    with_radius = [index for index in rounds if radii[index] is not None]
    if with_radius:
        axis.step(
            with_radius,
            [radii[index] for index in with_radius],
            where="mid",
            color=_BLUE,
            marker="o",
            label="radius",
        )
    if result.movements:
        # Rounds before the first Lloyd round move nothing.
        shown = rounds[-len(result.movements) :]
        axis.plot(
            shown,
            result.movements,
            color=_ORANGE,
            marker="s",
            label="largest movement",
        )
    _set_ticks(axis, rounds, [str(index) for index in rounds])
    axis.set(ylim=(0.0, None), xlabel="round", ylabel="distance (box [-1, 1])")
    title = "Radius and movement per round" if with_radius else "Movement per round"
    axis.set_title(title, fontsize=10)
    if with_radius or result.movements:
        axis.legend(fontsize=8)
