"""The picture of a run: what the clusters look like, what each release cost, and the radius of each round."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.schema import Kind, iso_date
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, PrivacyReport, faint_clusters
from flwr_dpkmeans.results.sureness import unsure_columns, with_errors
from flwr_dpkmeans.sums.plan import Plan

if TYPE_CHECKING:
    from flwr_dpkmeans.results.writer import RunResult

# Okabe and Ito's palette is distinguishable with any kind of colour vision.
_BLUE, _ORANGE, _GREEN, _PALE, _GREY = "#0072B2", "#E69F00", "#009E73", "#B3E2D5", "#999999"
_MOST_COLUMNS = 8
_MOST_CHARACTERS = 130
_MOST_CAUTIONS = 14
_LINES = 20  # of a column of counts beside the centroids
_MOST_LISTED = 3 * _LINES
_TICK_CHARACTERS = 60  # that fit below half of the picture
_MOST_CELLS = 160  # whose values there is room for
_MOST_SHOWN = 24  # columns, and clusters, of a heat map
_LONGEST_NAME = 24
_CHARACTER = 0.016  # part of the strip's width that a character of its labels takes
_DPI = 110


def draw_summary(result: RunResult) -> bytes:
    """Draw the summary of a run as a PNG, with the report's warnings below."""
    figure = new_figure(11, 7.5)
    wrapped = textwrap.TextWrapper(190, initial_indent="WARNING  ", subsequent_indent=" " * 16).wrap
    cautions = [line for sentence in result.report.warnings for line in wrapped(sentence)][:_MOST_CAUTIONS]
    upper, lower, below = figure.subfigures(3, 1, height_ratios=(1.25, 1, 0.01 + 0.06 * len(cautions)))
    below.text(0.01, 0.5, "\n".join(cautions), fontsize=8, va="center", color="#A00000")
    if result.image_shape is not None:
        _draw_images(upper, result)
    elif result.model.scaled.shape[1] > 2:
        _draw_columns(upper, result)
    else:
        _draw_scatter(_beside_counts(upper, result), result)
    left, right = lower.subplots(1, 2)
    _draw_epsilon(left, result.report)
    _draw_radius(right, result)
    measured = [] if result.evaluation is None else textwrap.wrap(str(result.evaluation), _MOST_CHARACTERS)
    figure.suptitle("\n".join([result.report.line, *measured]), fontsize=11)
    return _finished(figure, result.report)


def draw_cost_curve(costs: NDArray[np.float64], n_clusters: int, report: PrivacyReport) -> bytes:
    """Draw a cost curve for k = 1, 2, ..., (largest k,), as a PNG, with its elbow at `n_clusters`."""
    figure = new_figure(6.5, 4)
    axes = figure.subplots()
    ks = np.arange(1, len(costs) + 1)
    axes.plot(ks, costs, color=_BLUE, marker="o", markersize=4, label="weighted server points")
    if 1 <= n_clusters <= len(costs):
        axes.axvline(n_clusters, color=_ORANGE, linestyle="--", label=f"elbow: k = {n_clusters}")
    axes.set(xlabel="number of clusters k", ylabel="k-means cost per row (projected)", ylim=(0.0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    figure.suptitle(report.line, fontsize=9)
    return _finished(figure, report)


def new_figure(width: float, height: float) -> Any:
    """A figure of so many inches; it needs no display and leaves matplotlib's global state alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def png_of(figure: Any) -> bytes:
    """A figure as a PNG."""
    buffer = io.BytesIO()
    figure.canvas.print_png(buffer)
    return buffer.getvalue()


def _finished(figure: Any, report: PrivacyReport) -> bytes:
    """The PNG, its origin at the foot; texts are drawn as they are: two dollar signs in names make no formula."""
    from matplotlib.text import Text

    if report.provenance is not None:
        figure.supxlabel(str(report.provenance), fontsize=7, color=_GREY)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return png_of(figure)


def _draw_images(figure: Any, result: RunResult) -> None:
    k = len(result.model.centroids)
    rows = math.ceil(k / _MOST_COLUMNS)
    columns = math.ceil(k / rows)
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    low, high = float(result.model.centroids.min()), float(result.model.centroids.max())
    for axis in axes:
        axis.set_axis_off()
    for j, (centroid, count) in enumerate(zip(result.model.centroids, result.model.counts, strict=True)):
        axes[j].imshow(centroid.reshape(result.image_shape), cmap="gray_r", vmin=low, vmax=high)
        axes[j].set_title(_count_label(j, count, result.report), fontsize=9)
    figure.suptitle(f"Centroids, with {'noisy ' * (not result.report.is_exact)}counts of the last release", fontsize=10)


def _count_label(cluster: int, count: float, report: PrivacyReport) -> str:
    """Noisy count of a cluster, with a word of caution where it is within three noise scales of zero."""
    caution = ", mostly noise" if faint_clusters([count], report) else ""
    return f"{cluster}: n ~ {count:.0f}{caution}"


def _draw_columns(figure: Any, result: RunResult) -> None:
    """Clusters x columns: values in units, shaded by their difference from the middle of all clusters.

    Beside it are the two axes on which centroids differ most, if they have most of the differences.
    """
    model = result.model
    columns, clusters = model.leading(_MOST_SHOWN), slice(0, _MOST_SHOWN)
    left = figure
    if _axes_of(model.scaled)[1][:2].sum() >= 0.5:
        left, right = figure.subfigures(1, 2, width_ratios=(1.8, 1.0))
        _draw_scatter(right.subplots(), result)
    axis = left.subplots()
    differences = (model.scaled - model.scaled.mean(axis=0))[clusters, columns]
    most = float(np.abs(differences).max()) or 1.0
    unsure = np.isin(columns, unsure_columns(model))
    # A column that tells no clusters apart is left grey.
    axis.imshow(np.where(unsure, 0.0, differences), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    shown = with_errors(model) if differences.size <= _MOST_CELLS else []
    turned = 90 if len(columns) > _MOST_SHOWN / 2 else 0
    for (j, place), difference in np.ndenumerate(differences) if shown else ():
        colour = "white" if abs(difference) > 0.6 * most else "black"
        colour = _GREY if unsure[place] else colour
        text = shown[columns[place]][j].replace(" ±", "\n±")
        axis.text(place, j, text, ha="center", va="center", size=7, color=colour, rotation=turned)
    own = model.names
    half = _LONGEST_NAME // 2 - 1
    names = [own[i] if len(own[i]) <= _LONGEST_NAME else f"{own[i][: half - 1]}...{own[i][-half:]}" for i in columns]
    axis.set_xticks(range(len(columns)), names, rotation=90, fontsize=7)
    labels = [_count_label(j, count, result.report) for j, count in enumerate(model.counts[clusters])]
    axis.set_yticks(range(len(labels)), labels, fontsize=7)
    cut = [f"{len(columns)} of {len(own)} columns"] * (len(columns) < len(own))
    cut += [f"{len(labels)} of {len(model.counts)} clusters"] * (len(labels) < len(model.counts))
    told = f" ({', '.join(cut)})" if cut else ""
    axis.set_title(f"Centroids{told}; red is above their mean, blue below", fontsize=10)


def _beside_counts(figure: Any, result: RunResult) -> Any:
    """Axes of a scatter plot, with the noisy counts listed beside them."""
    listed = [_count_label(j, count, result.report) for j, count in enumerate(result.model.counts[:_MOST_LISTED])]
    longest, n_columns = max(map(len, listed)), math.ceil(len(listed) / _LINES)
    share = 0.0064 * longest * n_columns
    axis, beside = figure.subplots(1, 2, width_ratios=(1.0 - share, share))
    beside.set_axis_off()
    for j, label in enumerate(listed):
        column, line = divmod(j, _LINES)
        beside.text(column / n_columns, 1.0 - line / _LINES, label, va="top", fontsize=8)
    return axis


def _axes_of(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Principal axes of points, in rows, and the part of their variance along each."""
    _, singular, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return axes, singular**2 / max(float(np.sum(singular**2)), np.finfo(float).tiny)


def _draw_scatter(axis: Any, result: RunResult) -> None:
    """Centroids on their two principal axes, or as they are in two columns; areas from noisy counts."""
    model = result.model
    faint = np.isin(np.arange(len(model.counts)), faint_clusters(model.counts, result.report))
    # Centroids that are mostly noise are drawn, but the axes are those of the others, if there are two.
    leading = model.scaled[~faint] if np.count_nonzero(~faint) > 1 else model.scaled
    centred = model.scaled - leading.mean(axis=0)
    if centred.shape[1] <= 2:
        shown = np.column_stack([model.centroids, np.zeros((len(centred), 2))])[:, :2]
        labels = [*model.names, ""][:2]
        columns = model.schema.clustered.columns if model.schema else ()
        for side, column in zip((axis.xaxis, axis.yaxis), columns, strict=False):
            if column.kind is Kind.DATE:
                side.set_major_formatter(lambda days, _, span=column.range: iso_date(days, *span))
                side.get_major_locator().set_params(nbins=4)
    else:
        axes, shares = _axes_of(leading)
        shown = np.zeros((len(centred), 2))
        kept = min(2, int(np.count_nonzero(shares > 1e-12)))  # k centroids have at most k - 1; rounding has no other
        shown[:, :kept] = centred @ axes[:kept].T
        labels = [f"principal axis {i + 1} of the centroids ({shares[i]:.0%})" for i in range(kept)] + [""] * (2 - kept)
    sizes = np.clip(model.counts, 0.0, None)
    area = 60.0 + 600.0 * sizes / max(float(sizes.max()), 1.0)
    colours = np.where(faint, _GREY, _BLUE)
    axis.scatter(shown[:, 0], shown[:, 1], s=area, color=colours, alpha=0.55, edgecolor="black", linewidth=0.6)
    for j, place in enumerate(shown):
        axis.annotate(str(j), place, ha="center", va="center", fontsize=7)
    axis.set(xlabel=labels[0], ylabel=labels[1], **({} if labels[1] else {"yticks": []}))
    axis.set_title(f"Centroids, area by {'noisy ' * (not result.report.is_exact)}count", fontsize=10)
    axis.margins(0.12)


def _draw_epsilon(axis: Any, report: PrivacyReport) -> None:
    """The budget as a strip, which each aggregation takes a part of: it ends at the cost so far."""
    costs: dict[str, float] = {}
    attempts: dict[int, list[int]] = {}
    for line in report.releases:
        # Attempts are numbered through the whole run, so what marks a repetition is an earlier one of the same round.
        tried = attempts.setdefault(line.round_index, [line.attempt])
        if line.attempt not in tried:
            tried.append(line.attempt)
        costs[str(line.round_index) + "'" * tried.index(line.attempt)] = line.epsilon_so_far
    axis.set_xlabel("epsilon so far")
    axis.set_title("Budget by round", fontsize=10)
    axis.set_yticks([])
    finite = [cost for cost in costs.values() if math.isfinite(cost)]
    if not finite:
        axis.text(0.5, 0.5, "no noise was added: epsilon is infinite", ha="center", transform=axis.transAxes)
        return
    beyond = 1.05 if len(finite) == len(costs) else 1.3
    whole, before = beyond * max(report.epsilon_requested, *finite), 0.0
    for place, (name, cost) in enumerate(costs.items()):
        ends, label, shade = max(cost, before), name, (_GREEN, _PALE)[place % 2]
        if math.isinf(cost):
            # What was released without noise reaches beyond the end.
            ends, label, shade = 1.5 * whole, f"{name}: infinite", "white"
        axis.barh(0.0, ends - before, left=before, height=1.0, color=shade, edgecolor="black", linewidth=0.6)
        if min(ends, whole) - before > _CHARACTER * (1 + len(label)) * whole:
            axis.text((before + min(ends, whole)) / 2.0, 0.0, label, ha="center", va="center", fontsize=7)
        before = ends
    axis.axvline(report.epsilon_requested, color=_ORANGE, linestyle="--", label="epsilon asked for")
    axis.set(xlim=(0.0, whole), ylim=(-2.0, 2.0))
    axis.legend(loc="upper left", fontsize=8)
    # Rounds before the first one have names, which are too long for the strip.
    named = [f"{line.round_index}: {line.round_name}" for line in report.releases if Plan.discovers(line.round_index)]
    told = ["numbers are rounds", *dict.fromkeys(named)]
    told += ["' marks a repeated attempt"] if any("'" in name for name in costs) else []
    axis.text(0.02, 0.05, textwrap.fill("; ".join(told), _TICK_CHARACTERS), fontsize=8, transform=axis.transAxes)


def _set_ticks(axis: Any, places: Sequence[int], labels: Sequence[str]) -> None:
    """Label as many places on the x-axis, evenly, as there is room for."""
    step = math.ceil(len(labels) * (1 + max(map(len, labels), default=0)) / _TICK_CHARACTERS) or 1
    axis.set_xticks(places[::step], labels[::step])


def _draw_radius(axis: Any, result: RunResult) -> None:
    """Radius in force and largest movement of a centroid, in scaled units."""
    own = [line for line in result.report.releases if not Plan.discovers(line.round_index)]
    moving = [line for line in own if line.round_name not in CLOSING_ROUNDS]
    radii = {line.round_index: line.radius for line in moving}
    rounds = sorted(radii)
    known = [(index, radii[index]) for index in rounds if radii[index] is not None]
    if known:
        axis.step(*zip(*known, strict=True), where="mid", color=_BLUE, marker="o", label="radius")
    if result.movements:
        # Rounds before the first Lloyd round move nothing.
        shown = rounds[-len(result.movements) :]
        axis.plot(shown, result.movements, color=_ORANGE, marker="s", label="largest movement")
    _set_ticks(axis, rounds, [str(index) for index in rounds])
    axis.set(ylim=(0.0, None), xlabel="round", ylabel="distance (box [-1, 1])")
    axis.set_title("Radius and movement per round" if known else "Movement per round", fontsize=10)
    if known or result.movements:
        axis.legend(fontsize=8)
