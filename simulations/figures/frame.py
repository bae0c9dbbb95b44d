"""What all figures share: title and legend above, panels, a caption below.

And the two encodings.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulations.figures.kinds import Scale
from simulations.figures.looks import Look

LARGEST_PNG = 200_000
_DPIS = (150, 130, 110, 95, 80, 65, 50, 40)
_SMALL = 7.5
_MEDIUM = 8.5
_LARGE = 10.5


@dataclass(frozen=True)
class Frame:
    """An empty figure.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The whole.
    head : matplotlib.figure.SubFigure
        For the legend.
    axes : list of matplotlib.axes.Axes
        The panels.
    panel_width : float
        In inches.
    n_columns : int
        Of panels.
    """

    figure: Any
    head: Any
    axes: list[Any]
    panel_width: float
    n_columns: int


def columns_for(n_panels: int) -> int:
    """Choose how many panels stand side by side.

    Examples
    --------
    >>> [columns_for(n) for n in (1, 2, 3, 4, 5, 6, 9, 10)]
    [1, 2, 3, 2, 3, 3, 3, 4]
    """
    if n_panels == 1:
        return 1
    if n_panels in (2, 4):
        return 2
    if n_panels in (3, 5, 6, 9):
        return 3
    return 4


def make_frame(
    n_panels: int,
    *,
    title: str,
    labels: Sequence[str],
    caption: str,
    panel: tuple[float, float] = (0.0, 0.0),
    n_columns: int = 0,
) -> Frame:
    """Make an empty figure whose parts have the room that they need.

    Parameters
    ----------
    n_panels : int
        At least 1.
    title, caption : str
        Wrapped as needed.
    labels : sequence of str
        Of the legend.
    panel : tuple of float
        Width and height of a panel in inches; zeros for what suits their number.
    n_columns : int
        Of panels; 0 for what suits their number.
    """
    # The object-oriented interface needs no display and leaves matplotlib's global
    # state alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n_columns = n_columns or columns_for(n_panels)
    n_rows = math.ceil(n_panels / n_columns)
    panel_width, panel_height = panel
    if not panel_width:
        panel_width, panel_height = (6.2, 3.7) if n_panels == 1 else (3.3, 2.5)
    width = max(6.2, n_columns * panel_width)
    title_lines = textwrap.wrap(title, int(width * 11.5))
    caption_lines = textwrap.wrap(caption, int(width * 17.0))
    head_height = 0.12 + 0.22 * len(title_lines)
    if labels:
        n_legend_rows = math.ceil(len(labels) / legend_columns(labels, width))
        head_height += 0.05 + 0.185 * n_legend_rows
    body_height = n_rows * panel_height
    foot_height = 0.08 + 0.145 * len(caption_lines)
    heights = [head_height, body_height, foot_height]
    size = (width, sum(heights))
    figure: Any = Figure(
        figsize=size,
        dpi=_DPIS[0],
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    head, body, foot = figure.subfigures(3, 1, height_ratios=heights)
    head.text(
        0.5,
        1.0 - 0.07 / head_height,
        "\n".join(title_lines),
        ha="center",
        va="top",
        fontsize=_LARGE,
    )
    foot.text(
        0.08 / width,
        1.0,
        "\n".join(caption_lines),
        ha="left",
        va="top",
        fontsize=_SMALL,
        color="#444444",
    )
    axes = list(body.subplots(n_rows, n_columns, squeeze=False).flat)
    for spare in axes[n_panels:]:
        spare.remove()
    return Frame(figure, head, axes[:n_panels], panel_width, n_columns)


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Choose how many entries of a legend stand side by side."""
    if not labels:
        return 1
    widest = max(len(label) for label in labels)
    n_fitting = int(width / (0.66 + 0.06 * widest))
    n_columns = max(1, min(len(labels), n_fitting))
    n_rows = math.ceil(len(labels) / n_columns)
    return math.ceil(len(labels) / n_rows)


def add_legend(frame: Frame, handles: Sequence[Any]) -> None:
    """Put a legend below the title."""
    labels = [handle.get_label() for handle in handles]
    width = frame.figure.get_size_inches()[0]
    frame.head.legend(
        handles=list(handles),
        loc="lower center",
        ncols=legend_columns(labels, width),
        frameon=False,
        fontsize=_MEDIUM,
        handlelength=3.2,
        columnspacing=1.6,
        borderaxespad=0.1,
    )


def handle_of(look: Look, *, marked: bool = True) -> Any:
    """A series in the legend, with or without its marker."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        label=look.label,
        **line_style(look, marked=marked),
    )


def line_style(look: Look, *, marked: bool = True) -> dict[str, Any]:
    """A series as arguments of matplotlib."""
    style = {
        "color": look.colour,
        "linestyle": look.line,
        "linewidth": 1.4,
    }
    if marked:
        style |= {
            "marker": look.marker,
            "markersize": 5.0,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }
    return style


def dress(
    frame: Frame,
    titles: Sequence[str],
    x_label: str,
    y_label: str,
) -> None:
    """Give panels their titles, grids and, at the left and the bottom, labels."""
    n_rows = frame.axes[0].get_subplotspec().get_gridspec().nrows
    is_alone = n_rows == 1 and len(frame.axes) == 1
    for index, (axes, title) in enumerate(zip(frame.axes, titles, strict=True)):
        axes.set_title(title, fontsize=9.0)
        axes.tick_params(labelsize=_MEDIUM - 0.5)
        axes.grid(color="#E2E2E2", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if index + frame.n_columns >= len(frame.axes):
            axes.set_xlabel(x_label, fontsize=9.0)
        if index % frame.n_columns == 0:
            wrapped = _wrap_label(y_label, 44 if is_alone else 30)
            axes.set_ylabel(wrapped, fontsize=9.0)


def _wrap_label(label: str, width: int) -> str:
    """Wrap a label to lines of so many characters."""
    lines = []
    for part in label.split("\n"):
        if len(part) > width:
            # A unit in brackets stays in one piece where its line is too long.
            part = part.replace(" (", "\n(")
        for piece in part.split("\n"):
            lines += textwrap.wrap(piece, width)
    return "\n".join(lines)


def scale_x(
    axes: Any,
    values: Sequence[float],
    scale: Scale,
    width: float,
    *,
    at_values: bool = True,
) -> None:
    """Scale an x axis, with ticks at the values where their numbers have room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale(**_named(scale))
    if scale is not Scale.LINEAR:
        values = [value for value in values if value > 0.0]
    # Without values (only methods that have none) matplotlib's own axis stays.
    if not values:
        return
    if scale is Scale.LINEAR and not at_values:
        return
    candidates = sorted(set(values))
    if not at_values:
        low = min(values) / 1.15
        high = max(values) * 1.15
        axes.set_xlim(low, high)
        candidates = _round_numbers(low, high)
        if not candidates:
            # One value alone may be far from all round numbers; without its own the
            # axis would have none.
            candidates = sorted({float(f"{value:.3g}") for value in values})
    ticks = spaced(candidates, scale, width)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def scale_y(axes: Any, scale: Scale) -> None:
    """Scale a y axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale(**_named(scale))
    if scale is not Scale.LINEAR:
        if scale is Scale.LOG:
            low, high = sorted(axes.get_ylim())
            is_wide = high > 1e3 * low > 0.0
            steps = (1.0,) if is_wide else (1.0, 2.0, 5.0)
            axes.yaxis.set_major_locator(LogLocator(subs=steps))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def spaced(
    values: Sequence[float],
    scale: Scale,
    width: float,
) -> list[float]:
    """Keep sorted values whose numbers do not run into each other on an axis.

    Its width is in inches.

    Examples
    --------
    >>> spaced([0.01, 0.02, 0.5, 1.0], Scale.LINEAR, 3.0)
    [0.01, 0.5, 1.0]
    """
    if scale is not Scale.LINEAR:
        values = [value for value in values if value > 0.0]
    if len(values) < 2:
        return list(values)

    def position(value: float) -> float:
        return value if scale is Scale.LINEAR else math.log(value)

    length = position(values[-1]) - position(values[0])
    room = 0.4 * length / (0.75 * width)
    chosen = [values[0]]
    for value in values[1:]:
        if position(value) - position(chosen[-1]) >= room:
            chosen.append(value)
    return chosen


def encode(figure: Any) -> Mapping[str, bytes]:
    """Write a figure as "png", with as many dots as its limit allows, and "pdf".

    Equal figures give equal bytes.
    """
    # Both files have one layout, which is computed once.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    page = io.BytesIO()
    # Without its date the same table makes the same file.
    figure.savefig(
        page,
        format="pdf",
        metadata={"CreationDate": None},
    )
    for dpi in _DPIS:
        buffer = io.BytesIO()
        figure.savefig(
            buffer,
            format="png",
            dpi=dpi,
        )
        image = buffer.getvalue()
        if len(image) >= LARGEST_PNG:
            image = _fewer_colours(image, dpi)
        if len(image) < LARGEST_PNG:
            break
    return {"png": image, "pdf": page.getvalue()}


def _fewer_colours(png: bytes, dpi: int) -> bytes:
    """Keep 256 colours, which take a third of the room."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        reduced = image.convert("RGB").quantize(
            256,
            method=Image.Quantize.MEDIANCUT,
            dither=Image.Dither.NONE,
        )
    reduced.save(
        buffer,
        format="png",
        optimize=True,
        dpi=(dpi, dpi),
    )
    return buffer.getvalue()


def _named(scale: Scale) -> dict[str, Any]:
    """A scale as matplotlib takes it."""
    if scale is Scale.LINEAR:
        return {"value": "linear"}
    return {"value": "log", "base": 10 if scale is Scale.LOG else 2}


def _round_numbers(low: float, high: float) -> list[float]:
    """Round numbers (1, 2, 5 of each decade) from low to high."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]
