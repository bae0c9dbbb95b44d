"""The numbers of the comparison of rivals.

Areas under cost over epsilon, excess, wins and losses.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from simulations.experiments.clustering_metrics import area_under
from simulations.rivals.rival_data import EPSILONS, rival_set
from simulations.rivals.rival_runs import METHODS, OPTIMAL

OURS = "proxy_lloyd"
_COLUMNS = ("data.name", "algorithm.name", "privacy.epsilon", "seed", "cost")


@dataclass(frozen=True)
class Area:
    """Mean area under cost over epsilon, its standard error over seeds (NaN for one),
    and how many seeds there are.
    """

    mean: float
    error: float
    n_seeds: int


@dataclass(frozen=True)
class Compared:
    """One set: the optimum's area, and each method's."""

    name: str
    optimum: float
    areas: Mapping[str, Area]

    def excess(self, method: str) -> float:
        """Area above the optimum's."""
        return self.areas[method].mean - self.optimum

    @property
    def best_rival(self) -> str:
        """Of all other methods that were run, the one with the least area."""
        return min(
            (one for one in self.areas if one != OURS),
            key=lambda one: self.areas[one].mean,
        )

    @property
    def lead(self) -> float:
        """The best rival's area over ours: below 1 we lose."""
        return self.areas[self.best_rival].mean / self.areas[OURS].mean


def compared(rows: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Each set's areas from finished runs, those that we lose first.

    a method needs all epsilons of a seed.
    """
    frame = pd.DataFrame(
        [row for row in rows if row["status"] == "done"], columns=list(_COLUMNS)
    )
    found = []
    for name, own in frame.groupby("data.name", sort=False):
        epsilons = EPSILONS[rival_set(str(name)).conditions]
        optimal = own[own["algorithm.name"] == OPTIMAL]["cost"]
        if optimal.empty or OURS not in set(own["algorithm.name"]):
            continue
        # No run can be below the best clustering: where one is, that one is nearer to
        # it.
        optimum = _area(epsilons, [float(own["cost"].min())] * len(epsilons))
        areas = {
            one: area
            for one in METHODS
            if one != OPTIMAL and (area := _areas(own, one, epsilons)) is not None
        }
        if set(areas) > {OURS}:
            found.append(Compared(str(name), optimum, areas))
    return sorted(found, key=lambda one: one.lead)


def _areas(own: pd.DataFrame, method: str, epsilons: Sequence[float]) -> Area | None:
    """Over the seeds that have all epsilons."""
    by_seed = []
    for _, runs in own[own["algorithm.name"] == method].groupby("seed"):
        costs = runs.set_index("privacy.epsilon")["cost"]
        if set(epsilons) <= set(costs.index):
            by_seed.append(
                _area(epsilons, [float(costs[epsilon]) for epsilon in epsilons])
            )
    if not by_seed:
        return None
    error = (
        statistics.stdev(by_seed) / math.sqrt(len(by_seed))
        if len(by_seed) > 1
        else math.nan
    )
    return Area(statistics.fmean(by_seed), error, len(by_seed))


def _area(epsilons: Sequence[float], costs: Sequence[float]) -> float:
    """The area; for a single epsilon the cost itself."""
    return area_under(epsilons, costs) if len(epsilons) > 1 else costs[0]


def markdown(sets: Sequence[Compared]) -> str:
    """The table of areas, one row a set, ours and the rivals', the least in bold type."""
    methods = [one for one in METHODS if any(one in own.areas for own in sets)]
    lines = [
        "| set | optimum | " + " | ".join(methods) + " |",
        "|---" * (len(methods) + 2) + "|",
    ]
    for own in sets:
        best = min(own.areas, key=lambda one: own.areas[one].mean)
        cells = [_cell(own.areas.get(one), bold=one == best) for one in methods]
        lines.append(f"| {own.name} | {own.optimum:.4f} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(area: Area | None, *, bold: bool) -> str:
    if area is None:
        return ""
    text = f"{area.mean:.4f}" + (
        "" if math.isnan(area.error) else f" ± {area.error:.4f}"
    )
    return f"**{text}**" if bold else text


def wins(sets: Sequence[Compared]) -> str:
    """Against each rival: sets won and lost by more than two standard errors, the rest,
    and ratios.
    """
    lines = [
        "| ours against | sets | won | level | lost | area, ratio | excess, ratio |",
        "|---" * 7 + "|",
    ]
    for method in METHODS:
        both = [own for own in sets if method in own.areas and method != OURS]
        if not both:
            continue
        signs = [verdict(own, method) for own in both]
        areas = statistics.geometric_mean(
            [own.areas[OURS].mean / own.areas[method].mean for own in both]
        )
        ratios = [
            own.excess(OURS) / own.excess(method)
            for own in both
            if min(own.excess(OURS), own.excess(method)) > 0
        ]
        excess = f"{statistics.geometric_mean(ratios):.3f}" if ratios else ""
        numbers = (
            f"{len(both)} | {signs.count(1)} | {signs.count(0)} | {signs.count(-1)} |"
            f" {areas:.3f} | {excess}"
        )
        lines.append(f"| {method} | {numbers} |")
    return "\n".join(lines) + "\n"


def verdict(own: Compared, method: str) -> int:
    """1 if our area is smaller by more than two standard errors of the difference, -1
    if it is larger, else 0.

    One seed alone tells no error: then any difference counts.
    """
    ours, theirs = own.areas[OURS], own.areas[method]
    errors = [0.0 if math.isnan(one.error) else one.error for one in (ours, theirs)]
    difference = theirs.mean - ours.mean
    return (
        0
        if abs(difference) <= 2.0 * math.hypot(*errors)
        else int(math.copysign(1, difference))
    )


def beside_published(sets: Sequence[Compared]) -> str:
    """Areas that the PE-means repository prints, each before ours: one row a set."""
    known = [
        own
        for own in sorted(sets, key=lambda one: one.name)
        if rival_set(own.name).published
    ]
    methods = [
        one
        for one in METHODS
        if any(one in own.areas and one in _printed(own) for own in known)
    ]
    lines = ["| set | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for own in known:
        cells = [
            (
                f"{_printed(own)[one]:.4f}: {_cell(own.areas[one], bold=False)}"
                if one in own.areas and one in _printed(own)
                else ""
            )
            for one in methods
        ]
        lines.append(f"| {own.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _printed(own: Compared) -> Mapping[str, float]:
    return rival_set(own.name).published or {}
