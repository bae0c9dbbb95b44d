"""Figures with lines: curves, areas, ablations, elbows and Pareto fronts, drawn from
their numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from simulations.figures.frame import (
    Frame,
    add_legend,
    dress,
    handle_of,
    line_style,
    make_frame,
    scale_x,
    scale_y,
)
from simulations.figures.kinds import (
    AblationSpec,
    AreaSpec,
    CurveSpec,
    ElbowSpec,
    ParetoSpec,
    Scale,
)
from simulations.figures.looks import Look, column_label, readable, series_seen
from simulations.figures.numbers import Numbers, seeds_text
from simulations.figures.table import in_order

Looks = Mapping[str, Look]
LineSpec = CurveSpec | AreaSpec | AblationSpec | ElbowSpec


def draw_lines(
    spec: LineSpec, shown: Numbers, looks: Looks, notes: Sequence[str]
) -> Any:
    """Draw the mean of each series over x, with its confidence band.

    Parameters
    ----------
    spec : CurveSpec, AreaSpec, AblationSpec or ElbowSpec
        What is shown.
    shown : Numbers
        Its numbers; cells without x are lines across.
    looks : mapping of str to Look
        Of all series, in the order of the legend.
    notes : sequence of str
        Sentences for the caption.

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to any display.
    """
    cells = shown.cells
    seen = series_seen(looks, cells["series"].to_list())
    handles = _series_handles(cells, seen)
    if isinstance(spec, ElbowSpec):
        handles += _elbow_handles(cells)
    sentences = [
        *_about(spec, looks),
        _spread_sentence(cells, _shown(cells)),
        _cut_sentence(spec, cells),
        *notes,
    ]
    panels, frame = _panels(spec, shown, handles, sentences)
    for axes, panel in zip(frame.axes, panels, strict=True):
        in_panel = cells[cells["panel"] == panel]
        for name, look in seen.items():
            of_series = in_panel[in_panel["series"] == name]
            _draw_series(axes, _within(of_series, spec.y_scale), look)
        if isinstance(spec, AblationSpec):
            axes.axhline(1.0, color="#777777", linewidth=1.0, zorder=1)
        if isinstance(spec, ElbowSpec):
            _mark_elbow(axes, in_panel, seen)
            axes.xaxis.get_major_locator().set_params(integer=True)
        else:
            values = in_panel["x"].dropna().to_list()
            scale_x(axes, values, spec.x_scale, frame.panel_width)
        scale_y(axes, spec.y_scale)
    x_label = "clusters k" if isinstance(spec, ElbowSpec) else column_label(spec.x)
    dress(
        frame, _titles(spec, panels), _with_scale(x_label, spec), _y_label(spec, looks)
    )
    add_legend(frame, handles)
    return frame.figure


def _series_handles(cells: pd.DataFrame, seen: Looks) -> list[Any]:
    """Legend of the series; lines across have no markers."""
    is_across = cells["x"].isna().groupby(cells["series"]).all()
    return [handle_of(look, marked=not is_across[name]) for name, look in seen.items()]


def draw_fronts(
    spec: ParetoSpec, shown: Numbers, looks: Looks, notes: Sequence[str]
) -> Any:
    """Draw every setting as a point, and the front of each series as a step line.

    Parameters
    ----------
    spec : ParetoSpec
        What is shown.
    shown : Numbers
        Its numbers; cells without x are lines across.
    looks : mapping of str to Look
        Of all series, in the order of the legend.
    notes : sequence of str
        Sentences for the caption.

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to any display.
    """
    cells = shown.cells
    seen = series_seen(looks, cells["series"].to_list())
    handles = _series_handles(cells, seen)
    tops = {}
    n_above = 0
    for panel, in_panel in cells.groupby("panel", sort=False):
        tops[panel] = _top(spec, in_panel)
        n_above += int((in_panel["y"] > tops[panel]).sum())
    sentences = [
        "Lines: settings that no other one of the method beats (chosen by exact"
        " costs, so what good settings can reach); pale marks: other settings.",
        _spread_sentence(cells, "bars"),
    ]
    if n_above:
        lie = "setting lies" if n_above == 1 else "settings lie"
        sentences.append(f"{n_above} {lie} above the frame.")
    sentences += notes
    panels, frame = _panels(spec, shown, handles, sentences)
    for axes, panel in zip(frame.axes, panels, strict=True):
        shown_here = cells[cells["panel"] == panel]
        epsilons = shown_here["x"].dropna().to_list()
        largest = max(epsilons, default=math.nan)
        for name, look in seen.items():
            of_series = shown_here[shown_here["series"] == name]
            _draw_front(axes, of_series, look, largest)
        scale_x(axes, epsilons, spec.x_scale, frame.panel_width, at_values=False)
        scale_y(axes, spec.y_scale)
        if math.isfinite(tops[panel]):
            axes.set_ylim(top=tops[panel])
    dress(
        frame,
        _titles(spec, panels),
        _with_scale(column_label(spec.x), spec),
        _y_label(spec, looks),
    )
    add_legend(frame, handles)
    return frame.figure


def _panels(
    spec: LineSpec | ParetoSpec,
    shown: Numbers,
    handles: Sequence[Any],
    sentences: Sequence[str],
) -> tuple[list[str], Frame]:
    """The panels' values, and a figure for them."""
    panels = in_order(shown.cells["panel"].to_list())
    labels = [handle.get_label() for handle in handles]
    caption = ""
    if spec.footer:
        caption = " ".join(filter(None, (*sentences, *shown.notes)))
    frame = make_frame(len(panels), title=spec.title, labels=labels, caption=caption)
    return panels, frame


def _titles(spec: LineSpec | ParetoSpec, panels: Sequence[str]) -> list[str]:
    return [readable(spec.panel, panel) if spec.panel else "" for panel in panels]


def _with_scale(label: str, spec: LineSpec | ParetoSpec) -> str:
    """Say of a logarithmic axis that it is one."""
    scale = Scale.LINEAR if isinstance(spec, ElbowSpec) else spec.x_scale
    return label if scale is Scale.LINEAR else f"{label} (log scale)"


def _y_label(spec: LineSpec | ParetoSpec, looks: Looks) -> str:
    label = f"{'mean ' if isinstance(spec, ParetoSpec) else ''}{column_label(spec.y)}"
    if isinstance(spec, AreaSpec):
        label = f"area under {label}\nover epsilon"
        if spec.baseline:
            label += f", relative to {looks[spec.baseline].label}"
    if isinstance(spec, AblationSpec):
        label += ",\nrelative to the baseline"
    return label if spec.y_scale is Scale.LINEAR else f"{label}\n(log scale)"


def _about(spec: LineSpec, looks: Looks) -> list[str]:
    """What the caption says of a kind."""
    if isinstance(spec, AblationSpec):
        rows = []
        for column, values in spec.baseline:
            texts = [
                str(value).lower() if isinstance(value, bool) else str(value)
                for value in values
            ]
            rows.append(readable((column,), " or ".join(texts)))
        return [f"Grey line at 1: the baseline ({', '.join(rows)})."]
    return []


def _shown(cells: pd.DataFrame) -> str:
    """What intervals are drawn as: where a series has one x alone, as bars."""
    n_x = cells.groupby(["panel", "series"])["x"].transform("count")
    is_alone = n_x.eq(1)[cells["high"].notna()]
    if not is_alone.any():
        return "bands"
    if is_alone.all():
        return "bars"
    return "bands or bars"


def _spread_sentence(cells: pd.DataFrame, shown: str) -> str:
    """How many seeds there are, and what bands mean."""
    seeds = seeds_text(cells)
    if cells["seeds"].max() < 2:
        return f"{seeds.capitalize()}, so no confidence {shown}."
    return (
        f"Means over {seeds}; {shown}: 95% confidence interval of the mean (Student t)."
    )


def _within(cells: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """On a log axis a band goes no farther below its mean than above.

    An end near 0 would take the axis for itself.
    """
    if scale is Scale.LINEAR:
        return cells
    return cells.assign(low=cells["low"].clip(lower=_least(cells)))


def _least(cells: pd.DataFrame) -> pd.Series:
    """The end of a band that is as far below its mean as the upper end is above.

    On a log axis.
    """
    return cells["y"] ** 2 / cells["high"]


def _cut_sentence(spec: LineSpec, cells: pd.DataFrame) -> str:
    """Say it where a band is cut."""
    if spec.y_scale is Scale.LINEAR:
        return ""
    is_cut = cells["low"] < _least(cells) * (1.0 - 1e-9)
    if not is_cut.any():
        return ""
    return "Bands are drawn no farther below their mean than above it, as factors."


def _draw_series(axes: Any, cells: pd.DataFrame, look: Look) -> None:
    """Draw the line of one series, or one across."""
    for cell in cells[cells["x"].isna()].itertuples():
        axes.axhline(cell.y, zorder=2, **line_style(look, marked=False))
        if math.isfinite(cell.low):
            axes.axhspan(
                cell.low,
                cell.high,
                color=look.colour,
                alpha=0.12,
                linewidth=0.0,
                zorder=1,
            )
    line = cells[cells["x"].notna()].sort_values("x")
    if not len(line):
        return
    x = line["x"]
    # A cell of one seed has no band, but must not cut that of its neighbours into
    # pieces with gaps.
    low = line["low"].fillna(line["y"])
    high = line["high"].fillna(line["y"])
    has_band = (high > low).any()
    if has_band and len(line) > 1:
        axes.fill_between(
            x,
            low,
            high,
            color=look.colour,
            alpha=0.18,
            linewidth=0.0,
            zorder=1,
        )
    elif has_band:
        # A band at one x would have no width.
        axes.vlines(x, low, high, color=look.colour, linewidth=0.9, zorder=3)
    axes.plot(x, line["y"], zorder=3, **line_style(look))


def _draw_front(axes: Any, cells: pd.DataFrame, look: Look, largest: float) -> None:
    """Draw the settings of one series and their front."""
    front = cells[cells["on_front"]].sort_values("x")
    if cells["x"].isna().any():
        axes.axhline(front["y"].iloc[0], zorder=2, **line_style(look, marked=False))
        return
    others = cells[~cells["on_front"]]
    style = {"marker": look.marker, "linestyle": "none", "color": look.colour}
    axes.plot(
        others["x"],
        others["y"],
        markersize=3.2,
        alpha=0.3,
        markeredgewidth=0.0,
        zorder=1,
        **style,
    )
    # A larger budget need not be spent, so a front goes on at its last cost.
    x = [*front["x"], largest]
    y = [*front["y"], front["y"].iloc[-1]]
    axes.step(x, y, where="post", zorder=2, **line_style(look, marked=False))
    widths = (front["high"] - front["y"]).fillna(0.0)
    axes.errorbar(
        front["x"],
        front["y"],
        yerr=widths,
        ecolor=look.colour,
        elinewidth=0.9,
        fmt="none",
        zorder=3,
    )
    axes.plot(
        front["x"],
        front["y"],
        markersize=6.0,
        markeredgecolor="white",
        markeredgewidth=0.5,
        zorder=4,
        **style,
    )


def _top(spec: ParetoSpec, cells: pd.DataFrame) -> float:
    """Upper end of the y axis: all fronts are seen, settings far above them are not.

    NaN for matplotlib's own.
    """
    if spec.y_scale is not Scale.LINEAR:
        return math.nan
    front = cells[cells["on_front"]]
    high = float(front["high"].fillna(front["y"]).max())
    low = float(cells["y"].min())
    top = high + 0.15 * (high - low)
    return top if (cells["y"] > top).any() else math.nan


def _elbow_handles(cells: pd.DataFrame) -> list[Any]:
    """Legend of the marks on cost curves."""
    from matplotlib.lines import Line2D

    ring: dict[str, Any] = {
        "markerfacecolor": "none",
        "markeredgecolor": "black",
        "markersize": 10.0,
        "markeredgewidth": 1.4,
    }
    handles = []
    if cells["chosen"].any():
        chosen = Line2D(
            [],
            [],
            label="chosen k (number of runs)",
            linestyle="none",
            marker="o",
            **ring,
        )
        handles.append(chosen)
    if cells["true"].any():
        true = Line2D(
            [],
            [],
            label="true k",
            color="#777777",
            linestyle=":",
            linewidth=1.6,
        )
        handles.append(true)
    return handles


def _mark_elbow(axes: Any, cells: pd.DataFrame, looks: Looks) -> None:
    """Mark chosen and true numbers of clusters."""
    for k in cells.loc[cells["true"], "x"].unique():
        axes.axvline(k, color="#777777", linestyle=":", linewidth=1.6, zorder=1)
    for cell in cells[cells["chosen"] > 0].itertuples():
        axes.plot(
            cell.x,
            cell.y,
            "o",
            markerfacecolor="none",
            markeredgecolor="black",
            markersize=10.0,
            zorder=5,
        )
        axes.annotate(
            f"{cell.chosen}",
            (cell.x, cell.y),
            xytext=(6.0, 6.0),
            textcoords="offset points",
            fontsize=7.5,
            color=looks[cell.series].colour if len(looks) > 1 else "black",
        )
