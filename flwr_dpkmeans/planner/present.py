"""A forecast for people.

Its table, and its picture of expected excess against epsilon and against k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_dpkmeans.planner.excess import MOST_EPSILON
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.results.pictures.figures import new_figure, png_of
from flwr_dpkmeans.results.rendering import rendered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from flwr_dpkmeans.planner.excess import Curve
    from flwr_dpkmeans.planner.forecast import AlgorithmForecast, Forecast

# Okabe and Ito's palette for any kind of colour vision; markers and dashes tell lines
# apart in grey.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_MARKERS = "osD^vX"
_DASHES = ("-", "--", "-.", ":")
_GREY = "#555555"
_FLOOR = 1e-3


def described(forecast: Forecast, form: str) -> str:
    """Table, answer and notes in one of the forms of `flwr_dpkmeans.results.page`."""
    things = "rows" if forecast.request.unit is PrivacyUnit.RECORD else "clients"
    values = {
        "forecast": forecast,
        "request": forecast.request,
        "things": things,
        "most_epsilon": MOST_EPSILON,
    }
    return rendered("forecast.j2", form, **values)


def draw_forecast(forecast: Forecast) -> bytes:
    """Draw `forecast_figure` as a PNG."""
    return png_of(forecast_figure(forecast))


def forecast_figure(forecast: Forecast) -> Figure:
    """Draw expected excess, with its candidates as lines and the request marked."""
    from matplotlib.ticker import LogLocator

    request = forecast.request
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_curves(
        left,
        forecast,
        "excess_by_epsilon",
        request.epsilon,
        f"asked: epsilon {request.epsilon:g}",
    )
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    left.set_xlabel(f"epsilon, total over the run (per {request.unit.value})")
    left.set_ylabel("expected cost above the optimum (%, 0.1 or more)")
    left.set_title(f"k = {request.n_clusters}", fontsize=10)
    _draw_curves(
        right,
        forecast,
        "excess_by_n_clusters",
        request.n_clusters,
        f"asked: k = {request.n_clusters}",
    )
    right.set_xscale("log", base=2)
    ks = sorted(
        {
            int(k)
            for candidate in forecast.algorithms
            for k, _ in candidate.excess_by_n_clusters
        }
    )
    right.set_xticks(ks, [str(k) for k in ks])
    right.set_xlabel("number of clusters k")
    right.set_title(f"epsilon = {request.epsilon:g}", fontsize=10)
    left.set_yscale("log")
    # An error as large as its mean would reach down to zero, which a logarithmic axis
    # cannot show.
    left.set_ylim(bottom=_lowest(forecast))
    for kind in ("major", "minor"):
        # Decades alone would leave a narrow range without a number.
        getattr(left.yaxis, f"set_{kind}_formatter")(
            lambda value, position: f"{value:g}"
        )
    left.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    figure.suptitle(
        f"Simulated on {request.seeds} public synthetic data sets: N ="
        f" {request.n_examples:,}, d = {request.n_features}, {request.n_clients}"
        " clients; bands: standard error",
        fontsize=10,
    )
    return figure


def _lowest(forecast: Forecast) -> float:
    curves = [
        curve
        for candidate in forecast.algorithms
        for curve in (candidate.excess_by_epsilon, candidate.excess_by_n_clusters)
    ]
    means = [max(_FLOOR, excess.mean) for curve in curves for _, excess in curve]
    return 100.0 * min(forecast.request.target_excess, *means) / 1.5


def _draw_curves(
    axis: Axes,
    forecast: Forecast,
    name: str,
    requested: float,
    label: str,
) -> None:
    """One panel: a line and a band for each candidate, the request and the target."""
    ordered = sorted(forecast.algorithms, key=lambda candidate: candidate.algorithm)
    for index, candidate in enumerate(ordered):
        _draw_curve(
            axis,
            getattr(candidate, name),
            candidate,
            index,
        )
    axis.axvline(
        requested,
        color=_GREY,
        linestyle=(0, (1, 2)),
        linewidth=1.4,
        label=label,
    )
    target = forecast.request.target_excess
    axis.axhline(
        100.0 * target,
        color=_GREY,
        linewidth=1.0,
        alpha=0.7,
        label=f"target: {target:.0%}",
    )
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8)


def _draw_curve(
    axis: Axes,
    points: Curve,
    candidate: AlgorithmForecast,
    index: int,
) -> None:
    colour = _COLOURS[index % len(_COLOURS)]
    xs = [value for value, _ in points]
    mean, low, high = (
        [
            100.0 * max(_FLOOR, excess.mean + sign * excess.standard_error)
            for _, excess in points
        ]
        for sign in (0.0, -1.0, 1.0)
    )
    axis.fill_between(
        xs,
        low,
        high,
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    axis.plot(
        xs,
        mean,
        color=colour,
        linestyle=_DASHES[index % len(_DASHES)],
        marker=_MARKERS[index % len(_MARKERS)],
        markersize=5,
        label=candidate.algorithm,
    )
