"""A picture of what each round cost and moved."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, PrivacyReport
from flwr_dpkmeans.results.pictures.figures import (
    BLUE,
    ORANGE,
    finished,
    new_figure,
    png_of,
)
from flwr_dpkmeans.sums.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from flwr_dpkmeans.results.run_result import RunResult


_GREEN = "#009E73"


_PALE = "#B3E2D5"


_TICK_CHARACTERS = 60  # that fit below half of the picture


_CHARACTER = 0.016  # part of the strip's width that a character of its labels takes


def draw_rounds(result: RunResult) -> bytes:
    """Draw `rounds_figure` as a PNG."""
    return png_of(rounds_figure(result))


def rounds_figure(result: RunResult) -> Figure:
    """Draw what each release cost, and each round's radius and movement."""
    figure = new_figure(11, 4.0)
    left, right = figure.subplots(1, 2)
    _draw_epsilon(left, result.report)
    _draw_radius(right, result)
    figure.suptitle(result.report.line, fontsize=11)
    return finished(figure, result.report)


def _draw_epsilon(axis: Axes, report: PrivacyReport) -> None:
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
        color=ORANGE,
        linestyle="--",
        label="epsilon asked for",
    )
    axis.set(xlim=(0.0, whole), ylim=(-2.0, 2.0))
    axis.legend(loc="upper left", fontsize=8)
    # Rounds before the first one have names, which are too long for the strip.
    named = [
        f"{line.round_index}: {line.round_name}"
        for line in report.releases
        if Plan.is_preliminary(line.round_index)
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
    axis: Axes,
    positions: Sequence[int],
    labels: Sequence[str],
) -> None:
    """Label as many positions on the x-axis, evenly, as there is room for."""
    widest = max(map(len, labels), default=0)
    n_characters = len(labels) * (1 + widest)
    step = max(1, math.ceil(n_characters / _TICK_CHARACTERS))
    axis.set_xticks(positions[::step], labels[::step])


def _draw_radius(axis: Axes, result: RunResult) -> None:
    """Radius in force and largest movement of a centroid, in scaled units."""
    moving = [
        line
        for line in result.report.releases
        if not Plan.is_preliminary(line.round_index)
        and line.round_name not in CLOSING_ROUNDS
    ]
    radii = {line.round_index: line.radius for line in moving}
    rounds = sorted(radii)
    drawn = {}
    for index in rounds:
        radius = radii[index]
        if radius is not None:
            drawn[index] = radius
    if drawn:
        axis.step(
            list(drawn),
            list(drawn.values()),
            where="mid",
            color=BLUE,
            marker="o",
            label="radius",
        )
    if result.movements:
        # Rounds before the first Lloyd round move nothing.
        shown = rounds[-len(result.movements) :]
        axis.plot(
            shown,
            result.movements,
            color=ORANGE,
            marker="s",
            label="largest movement",
        )
    _set_ticks(axis, rounds, [str(index) for index in rounds])
    axis.set(ylim=(0.0, None), xlabel="round", ylabel="distance (box [-1, 1])")
    title = "Radius and movement per round" if drawn else "Movement per round"
    axis.set_title(title, fontsize=10)
    if drawn or result.movements:
        axis.legend(fontsize=8)
