"""A forecast as a table for people."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flwr_dpkmeans.planner.estimate import MOST_CLUSTERS
from flwr_dpkmeans.privacy.release import PrivacyUnit

if TYPE_CHECKING:
    from flwr_dpkmeans.planner.forecast import AlgorithmForecast, Forecast
    from flwr_dpkmeans.planner.simulate import Excess

TEXT_WIDTH = 110
_UNKNOWN = "unknown"


def as_text(forecast: Forecast) -> str:
    """The same as on a terminal, without colours."""
    buffer = io.StringIO()
    Console(file=buffer, width=TEXT_WIDTH, color_system=None).print(renderable(forecast))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def renderable(forecast: Forecast) -> RenderableType:
    """Table, answer and notes, to be printed with rich."""
    request = forecast.request
    title = (
        f"N = {request.n_examples:,}, d = {request.n_features}, k = {request.n_clusters}, {request.n_clients} clients, "
        f"epsilon {request.epsilon:g} per {request.unit.value}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for one in forecast.algorithms:
        mark = " (best)" if one.algorithm == forecast.recommended and len(forecast.algorithms) > 1 else ""
        table.add_column(one.algorithm + mark, justify="right")
    for label, *cells in _rows(forecast):
        table.add_row(label, *cells)
    lines = [_answer(forecast), *(f"Left out: {name}: {reason}" for name, reason in forecast.left_out)]
    lines += [f"Note: {note}" for note in forecast.notes]
    return Group(table, *(Text(line) for line in lines))


def _rows(forecast: Forecast) -> list[tuple[str, ...]]:
    """Label and one cell per algorithm."""
    request = forecast.request
    things = "rows" if request.unit is PrivacyUnit.RECORD else "clients"
    average = f"{request.units_per_cluster():,.0f} {things}"
    found = forecast.algorithms
    deployments = [one.deployment for one in found]
    retries = found[0].max_retries
    return [
        ("expected excess cost, ± standard error", *(_excess(one.excess) for one in found)),
        ("  of which noise of the last release", *(_noise_part(one) for one in found)),
        (f"epsilon for an excess of {request.target_excess:.0%}", *(_target(one) for one in found)),
        (f"noise per centroid coordinate, {average}", *(_noise(one) for one in found)),
        (f"smallest cluster that survives, {things}", *(_whole(one.smallest_cluster) for one in found)),
        ("largest k that the noise allows", *(_largest(one.largest_n_clusters) for one in found)),
        (f"epsilon with all retries ({retries})", *(_number(one.epsilon_worst_case) for one in found)),
        ("delta", *(f"{one.delta:.3g}" for one in found)),
        ("iterations, round trips", *(f"{sent.n_rounds}, {sent.n_round_trips}" for sent in deployments)),
        ("messages", *(f"{sent.n_messages:,}" for sent in deployments)),
        (
            "kB per client down, up",
            *(f"{sent.bytes_down / 1e3:,.1f}, {sent.bytes_up / 1e3:,.1f}" for sent in deployments),
        ),
        ("minutes in deployment, without computing", *(f"{sent.minutes:.1f}" for sent in deployments)),
    ]


def _answer(forecast: Forecast) -> str:
    """The recommendation in three sentences."""
    request, allowed, needed = forecast.request, forecast.n_clusters_range, forecast.epsilon_for_target
    sensible = "No number of clusters is sensible at this budget: raise epsilon or add data."
    if allowed is not None:
        sensible = f"Sensible k, as far as noise goes: {allowed[0]} to {_largest(allowed[1])}."
    reached = f"An excess of {request.target_excess:.0%} is out of its reach."
    if needed is not None:
        reached = f"For an excess of {request.target_excess:.0%} it needs epsilon {needed:.2g}."
    return f"Recommended: {forecast.recommended}. {sensible} {reached}"


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


def _target(one: AlgorithmForecast) -> str:
    return "out of reach" if one.epsilon_for_target is None else f"{one.epsilon_for_target:.2g}"


def _noise(one: AlgorithmForecast) -> str:
    if not one.noise_per_centroid:
        return _UNKNOWN
    low, high = min(one.noise_per_centroid), max(one.noise_per_centroid)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _whole(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _largest(value: int | None) -> str:
    return f"{MOST_CLUSTERS:,} or more" if value == MOST_CLUSTERS else _whole(value)


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3g}"
