"""A forecast for people: its table, and its picture of expected excess against epsilon and against k."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.planner.simulate import MOST_EPSILON
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.results.page import rendered
from flwr_dpkmeans.results.picture import new_figure, png_of

if TYPE_CHECKING:
    from flwr_dpkmeans.planner.forecast import AlgorithmForecast, Forecast
    from flwr_dpkmeans.planner.simulate import Curve, Excess

_UNKNOWN = "unknown"
# Okabe and Ito's palette for any kind of colour vision; markers and dashes tell lines apart in grey.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_MARKERS = "osD^vX"
_DASHES = ("-", "--", "-.", ":")
_GREY = "#555555"
_FLOOR = 1e-3


def told(forecast: Forecast, form: str) -> str:
    """Table, answer and notes in one of the forms of `flwr_dpkmeans.results.page`."""
    head, *rows = _rows(forecast)
    values = {"forecast": forecast, "request": forecast.request, "head": head, "rows": rows}
    values |= {"sensible": _ks(forecast.n_clusters_range), "most_epsilon": MOST_EPSILON}
    return rendered("forecast.j2", form, **values)


def _rows(forecast: Forecast) -> list[tuple[str, ...]]:
    """Label and one cell per algorithm; first their names."""
    request = forecast.request
    things = "rows" if request.unit is PrivacyUnit.RECORD else "clients"
    average = f"{request.units_per_cluster():,.0f} {things}"
    found = forecast.algorithms
    deployments = [one.deployment for one in found]
    retries, target = found[0].max_retries, f"{100.0 * request.target_excess:.3g}%"
    best = " (best)" if len(found) > 1 else ""
    return [
        ("", *(one.algorithm + (best if one.algorithm == forecast.recommended else "") for one in found)),
        ("expected excess cost, ± standard error", *(_excess(one.excess) for one in found)),
        ("  of which noise of the last release", *(_noise_part(one) for one in found)),
        (
            f"epsilon for an excess of {target}",
            *(_shown(one.epsilon_for_target, ".2g", "out of reach") for one in found),
        ),
        (f"noise per centroid coordinate, {average}", *(_noise(one) for one in found)),
        (f"smallest cluster told from noise, {things}", *(_shown(one.smallest_cluster, ",") for one in found)),
        (f"k with an excess of {target}", *(_ks(one.n_clusters_range) for one in found)),
        (f"epsilon with all retries ({retries})", *(_worst(one.epsilon_worst_case) for one in found)),
        ("delta", *(f"{one.delta:.3g}" for one in found)),
        ("iterations, round trips", *(f"{sent.n_rounds}, {sent.n_round_trips}" for sent in deployments)),
        ("messages", *(f"{sent.n_messages:,}" for sent in deployments)),
        (
            "kB per client down, up",
            *(f"{sent.bytes_down / 1e3:,.1f}, {sent.bytes_up / 1e3:,.1f}" for sent in deployments),
        ),
        ("minutes in deployment, without computing", *(f"{sent.minutes:.1f}" for sent in deployments)),
    ]


def _excess(excess: Excess | None) -> str:
    if excess is None:
        return _UNKNOWN
    return f"{_percent(excess.mean)} ± {_percent(excess.standard_error)}"


def _noise_part(one: AlgorithmForecast) -> str:
    if one.excess is not None and one.excess_of_noise is not None and one.excess_of_noise >= one.excess.mean:
        return "all of it"
    return _percent(one.excess_of_noise)


def _percent(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"


def _shown(value: float | None, spec: str, unknown: str = _UNKNOWN) -> str:
    return unknown if value is None else format(value, spec)


def _noise(one: AlgorithmForecast) -> str:
    if not one.noise_per_centroid:
        return _UNKNOWN
    low, high = min(one.noise_per_centroid), max(one.noise_per_centroid)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _ks(allowed: tuple[int, int] | None) -> str:
    return "none" if allowed is None else " to ".join(map(str, sorted(set(allowed))))


def _worst(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3g}"


def draw_forecast(forecast: Forecast) -> bytes:
    """Draw expected excess as a PNG, with its candidates as lines and the request marked."""
    from matplotlib.ticker import LogLocator

    request = forecast.request
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_curves(left, forecast, "excess_by_epsilon", request.epsilon, f"asked: epsilon {request.epsilon:g}")
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    left.set_xlabel(f"epsilon, total over the run (per {request.unit.value})")
    left.set_ylabel("expected cost above the optimum (%, 0.1 or more)")
    left.set_title(f"k = {request.n_clusters}", fontsize=10)
    _draw_curves(right, forecast, "excess_by_n_clusters", request.n_clusters, f"asked: k = {request.n_clusters}")
    right.set_xscale("log", base=2)
    ks = sorted({int(k) for one in forecast.algorithms for k, _ in one.excess_by_n_clusters})
    right.set_xticks(ks, [str(k) for k in ks])
    right.set_xlabel("number of clusters k")
    right.set_title(f"epsilon = {request.epsilon:g}", fontsize=10)
    left.set_yscale("log")
    # An error as large as its mean would reach down to zero, which a logarithmic axis cannot show.
    left.set_ylim(bottom=_lowest(forecast))
    for kind in ("major", "minor"):
        # Decades alone would leave a narrow range without a number.
        getattr(left.yaxis, f"set_{kind}_formatter")(lambda value, position: f"{value:g}")
    left.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    figure.suptitle(
        f"Simulated on {request.seeds} public synthetic data sets: N = {request.n_examples:,}, d = "
        f"{request.n_features}, {request.n_clients} clients; bands: standard error",
        fontsize=10,
    )
    return png_of(figure)


def _lowest(forecast: Forecast) -> float:
    """A little below every line, in percent."""
    curves = [curve for one in forecast.algorithms for curve in (one.excess_by_epsilon, one.excess_by_n_clusters)]
    means = [max(_FLOOR, excess.mean) for curve in curves for _, excess in curve]
    return 100.0 * min(forecast.request.target_excess, *means) / 1.5


def _draw_curves(axis: Any, forecast: Forecast, name: str, asked: float, label: str) -> None:
    """One panel: a line and a band for each candidate, the request and the target."""
    ordered = sorted(forecast.algorithms, key=lambda one: one.algorithm)
    for index, one in enumerate(ordered):
        _draw_curve(axis, getattr(one, name), one, index)
    axis.axvline(asked, color=_GREY, linestyle=(0, (1, 2)), linewidth=1.4, label=label)
    target = forecast.request.target_excess
    axis.axhline(100.0 * target, color=_GREY, linewidth=1.0, alpha=0.7, label=f"target: {target:.0%}")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8)


def _draw_curve(axis: Any, points: Curve, one: AlgorithmForecast, index: int) -> None:
    colour = _COLOURS[index % len(_COLOURS)]
    xs = [value for value, _ in points]
    mean, low, high = (
        [100.0 * max(_FLOOR, excess.mean + sign * excess.standard_error) for _, excess in points]
        for sign in (0.0, -1.0, 1.0)
    )
    axis.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(
        xs,
        mean,
        color=colour,
        linestyle=_DASHES[index % len(_DASHES)],
        marker=_MARKERS[index % len(_MARKERS)],
        markersize=5,
        label=one.algorithm,
    )
