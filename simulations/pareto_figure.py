"""The figure of `simulations.pareto`, from the rows of its table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.errors import DataError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Look:
    """How a method is drawn.

    Parameters
    ----------
    label : str
        In the legend.
    colour : str
        Of Okabe and Ito's palette, which is distinguishable with any kind of colour vision.
    marker : str
        Of matplotlib; "" for a line without points.
    dashes : tuple of float
        Offset, then lengths of dash and gap; () for a solid line.
    """

    label: str
    colour: str
    marker: str = ""
    dashes: tuple[float, ...] = ()


LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "feddp_kmeans": Look("FedDP-KMeans", "#0072B2", "o"),
        "server_kmeans++": Look("server k-means++", "#E69F00", "s"),
        "server_lloyd": Look("server Lloyd", "#009E73", "^"),
        "sphere_packing": Look("sphere packing", "#CC79A7", "D"),
        "fastlloyd": Look("FastLloyd", "#D55E00", "v"),
        "max_cover": Look("max cover (central)", "#56B4E9", "X"),
        # Dashes that fill each other's gaps: both lines are seen where they coincide.
        "k_fed": Look("k-FED (not private)", "#999999", "", (0.0, 3.0, 3.0)),
        "optimal": Look("optimal (not private)", "#000000", "", (3.0, 3.0, 3.0)),
    }
)
_WHOLE = ("n_clients", "rows_per_client", "missing", "n_rounds", "seeds")
_REAL = ("epsilon", "mean_cost", "se")
_TEXT = ("unit", "method", "budget_shares")
_MAY_BE_EMPTY = ("epsilon", "n_rounds", "budget_shares")
_DPI = 150


def front_of(rows: Sequence[Row]) -> list[Row]:
    """Keep the rows of one method that no other row beats, by epsilon; without epsilon all rows stay.

    Epsilons are compared in three digits: calibration leaves each a little below what was asked for.

    Examples
    --------
    >>> rows = [{"epsilon": e, "mean_cost": c} for e, c in ((1.0, 3.0), (0.5, 4.0), (2.0, 3.5), (1.0, 5.0))]
    >>> [row["epsilon"] for row in front_of(rows)]
    [0.5, 1.0]
    """
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (float(f"{row['epsilon'] or 0.0:.3g}"), row["mean_cost"])):
        if row["epsilon"] is None or not front or row["mean_cost"] < front[-1]["mean_cost"]:
            front.append(row)
    return front


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a table that `simulations.pareto` wrote.

    Raises
    ------
    DataError
        If the file cannot be read, or is no such table.
    """
    try:
        with path.open(newline="") as file:
            rows = [_parsed(row) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read as a table of fronts ({type(error).__name__}: {error}): give the .csv file that "
            "simulations.pareto wrote."
        ) from error
    if not rows:
        raise DataError(f"{path} has no rows, but a figure needs at least one: run simulations.pareto again.")
    return rows


def draw_fronts(rows: Sequence[Row]) -> dict[str, bytes]:
    """Draw the fronts of all methods.

    Parameters
    ----------
    rows : sequence of mappings
        As `read_rows` returns them.

    Returns
    -------
    dict of bytes
        The figure as "png" and "pdf".
    """
    # The object-oriented interface needs no display and leaves matplotlib's global state alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7.6, 4.4), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    largest = max((row["epsilon"] for row in rows if row["epsilon"] is not None), default=1.0)
    for method, look in LOOKS.items():
        own = front_of([row for row in rows if row["method"] == method])
        if own:
            _draw_method(axes, own, look, largest)
    _label(axes, rows)
    # Matplotlib lists plain lines before those with error bars; the methods' own order is kept.
    found = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    labels = [look.label for look in LOOKS.values() if look.label in found]
    handles = [found[label] for label in labels]
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.0)
    images = {}
    for kind in ("png", "pdf"):
        buffer = io.BytesIO()
        # Without its date the same table makes the same file.
        figure.savefig(buffer, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
        images[kind] = buffer.getvalue()
    return images


def _draw_method(axes: Any, front: Sequence[Row], look: Look, largest: float) -> None:
    """Draw a line through a front, or a dashed one across for a method without epsilon."""
    costs = [row["mean_cost"] for row in front]
    if front[0]["epsilon"] is None:
        style = (look.dashes[0], look.dashes[1:])
        axes.axhline(costs[0], color=look.colour, linestyle=style, linewidth=1.6, label=look.label, zorder=1)
        return
    # A larger budget need not be spent, so a front goes on at its last cost.
    axes.plot([front[-1]["epsilon"], largest], [costs[-1]] * 2, color=look.colour, linewidth=1.4, zorder=2)
    axes.errorbar(
        [row["epsilon"] for row in front],
        costs,
        yerr=[row["se"] for row in front],
        color=look.colour,
        marker=look.marker,
        markersize=6.0,
        markeredgecolor="white",
        markeredgewidth=0.5,
        linewidth=1.4,
        elinewidth=0.8,
        label=look.label,
        zorder=3,
    )


def _label(axes: Any, rows: Sequence[Row]) -> None:
    """Name axes and data."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    first = rows[0]
    epsilons = [row["epsilon"] for row in rows if row["epsilon"] is not None]
    axes.set_xscale("log")
    if epsilons:
        axes.set_xlim(min(epsilons) / 1.15, max(epsilons) * 1.15)
        axes.xaxis.set_major_locator(FixedLocator(_ticks(min(epsilons), max(epsilons))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("total epsilon (log scale)")
    axes.set_ylabel("mean cost per point")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    missing = f", server misses {first['missing']} clusters" if first["missing"] else ""
    seeds = max(row["seeds"] for row in rows)
    axes.set_title(
        f"Gaussian mixture, {first['unit']}-level privacy\n{first['n_clients']} clients x {first['rows_per_client']} "
        f"rows, {seeds} seed{'s' if seeds > 1 else ''} (bars: standard error){missing}",
        fontsize=10,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers (1, 2, 5 of each decade) that a log axis from low to high can bear."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    return [tick for tick in found if low / 1.15 <= tick <= high * 1.15]


def _parsed(row: Mapping[str, str]) -> dict[str, Any]:
    """Read one line of the table."""
    empty = [name for name in (*_WHOLE, *_REAL, *_TEXT) if not row[name] and name not in _MAY_BE_EMPTY]
    if empty:
        raise ValueError(f"{empty[0]} is empty")
    parsed: dict[str, Any] = {name: row[name] for name in _TEXT}
    parsed |= {name: int(row[name]) if row[name] else None for name in _WHOLE}
    parsed |= {name: float(row[name]) if row[name] else None for name in _REAL}
    if parsed["method"] not in LOOKS:
        raise ValueError(f"method {parsed['method']!r} is not known")
    return parsed
