"""Figures without a screen, as PNG."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Okabe and Ito's palette is distinguishable with any kind of colour vision.
BLUE = "#0072B2"


ORANGE = "#E69F00"


GREY = "#999999"


_DPI = 110


SMALL = 8


def new_figure(
    width: float,
    height: float,
    dpi: int | None = None,
) -> Figure:
    """A figure of so many inches.

    It needs no display and leaves matplotlib's global state alone.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Figure = Figure(
        figsize=(width, height), dpi=dpi or _DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    return figure


def png_of(figure: Figure) -> bytes:
    """A figure as a PNG."""
    buffer = io.BytesIO()
    canvas: Any = figure.canvas
    canvas.print_png(buffer)
    return buffer.getvalue()


def finished(figure: Figure, report: PrivacyReport) -> Figure:
    """The figure, its origin at the foot.

    Texts are drawn as they are: two dollar signs in names make no formula.
    """
    from matplotlib.text import Text

    if report.provenance is not None:
        # A character of this size takes at most an eighteenth of an inch.
        width = int(18 * figure.get_figwidth())
        origin = "\n".join(textwrap.wrap(str(report.provenance), width))
        figure.supxlabel(origin, fontsize=SMALL - 1, color=GREY)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return figure
