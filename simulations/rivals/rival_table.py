"""The numbers of the comparison of rivals.

Areas under cost over epsilon, excess, wins and losses.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from simulations.experiments.clustering_metrics import area_under
from simulations.rivals.rival_data import EPSILONS, rival_set
from simulations.rivals.rival_runs import METHODS, OPTIMAL

OURS = "proxy_lloyd"
_COLUMNS = ("data.name", "algorithm.name", "privacy.epsilon", "seed", "cost")


@dataclass(frozen=True)
class Area:
    """Mean area under cost over epsilon, and its standard error over seeds.

    The error is NaN for one seed.
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
        rivals = [method for method in self.areas if method != OURS]
        return min(rivals, key=lambda method: self.areas[method].mean)

    @property
    def lead(self) -> float:
        """The best rival's area over ours: below 1 we lose."""
        return self.areas[self.best_rival].mean / self.areas[OURS].mean


def compared(rows: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Each set's areas from finished runs, those that we lose first.

    A method needs all epsilons of a seed.
    """
    done = [row for row in rows if row["status"] == "done"]
    frame = pd.DataFrame(done, columns=list(_COLUMNS))
    sets = []
    for name, runs in frame.groupby("data.name", sort=False):
        epsilons = EPSILONS[rival_set(str(name)).conditions]
        methods = set(runs["algorithm.name"])
        if not {OPTIMAL, OURS} <= methods:
            continue
        # No run can be below the best clustering: where one is, that one is nearer to
        # it.
        least_cost = float(runs["cost"].min())
        optimum = _area(epsilons, [least_cost] * len(epsilons))
        areas = {}
        for method in METHODS:
            area = _areas(runs, method, epsilons)
            if area is not None and method != OPTIMAL:
                areas[method] = area
        if set(areas) > {OURS}:
            sets.append(Compared(str(name), optimum, areas))
    return sorted(sets, key=lambda compared_set: compared_set.lead)


def _areas(
    runs: pd.DataFrame,
    method: str,
    epsilons: Sequence[float],
) -> Area | None:
    """Over the seeds that have all epsilons."""
    by_seed = []
    for _, of_seed in runs[runs["algorithm.name"] == method].groupby("seed"):
        by_epsilon = of_seed.set_index("privacy.epsilon")["cost"]
        if set(epsilons) <= set(by_epsilon.index):
            costs = [float(by_epsilon[epsilon]) for epsilon in epsilons]
            by_seed.append(_area(epsilons, costs))
    if not by_seed:
        return None
    n_seeds = len(by_seed)
    error = math.nan
    if n_seeds > 1:
        error = statistics.stdev(by_seed) / math.sqrt(n_seeds)
    return Area(statistics.fmean(by_seed), error, n_seeds)


def _area(epsilons: Sequence[float], costs: Sequence[float]) -> float:
    """The area; for a single epsilon the cost itself."""
    return area_under(epsilons, costs) if len(epsilons) > 1 else costs[0]


def markdown(sets: Sequence[Compared]) -> str:
    """The table of areas, one row a set, ours and the rivals', the least in bold."""
    methods = [
        method
        for method in METHODS
        if any(method in compared_set.areas for compared_set in sets)
    ]
    lines = []
    for compared_set in sets:
        areas = compared_set.areas
        best = min(areas, key=lambda method: areas[method].mean)
        cells = [_cell(areas.get(method), bold=method == best) for method in methods]
        lines.append([compared_set.name, f"{compared_set.optimum:.4f}", *cells])
    return _markdown_table(["set", "optimum", *methods], lines)


def _markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    texts = [f"| {' | '.join(cells)} |" for cells in (head, *lines)]
    texts.insert(1, "|---" * len(head) + "|")
    return "\n".join(texts) + "\n"


def _cell(area: Area | None, *, bold: bool) -> str:
    if area is None:
        return ""
    text = f"{area.mean:.4f}"
    if not math.isnan(area.error):
        text += f" ± {area.error:.4f}"
    return f"**{text}**" if bold else text


def wins(sets: Sequence[Compared]) -> str:
    """Against each rival: sets won, level and lost, and ratios.

    Won and lost are differences of more than two standard errors.
    """
    lines = []
    for method in METHODS:
        both = [compared_set for compared_set in sets if method in compared_set.areas]
        if method == OURS or not both:
            continue
        verdicts = [verdict(compared_set, method) for compared_set in both]
        area_ratios = []
        excess_ratios = []
        for compared_set in both:
            areas = compared_set.areas
            area_ratios.append(areas[OURS].mean / areas[method].mean)
            ours = compared_set.excess(OURS)
            theirs = compared_set.excess(method)
            if min(ours, theirs) > 0:
                excess_ratios.append(ours / theirs)
        excess = ""
        if excess_ratios:
            excess = f"{statistics.geometric_mean(excess_ratios):.3f}"
        counts = [len(both), *(verdicts.count(sign) for sign in (1, 0, -1))]
        area = f"{statistics.geometric_mean(area_ratios):.3f}"
        lines.append([method, *map(str, counts), area, excess])
    head = ["ours against", "sets", "won", "level", "lost"]
    return _markdown_table([*head, "area, ratio", "excess, ratio"], lines)


def verdict(compared_set: Compared, method: str) -> int:
    """1 if our area is smaller, -1 if it is larger, 0 if they are level.

    Level is within two standard errors of the difference. One seed alone tells no
    error: then any difference counts.
    """
    ours = compared_set.areas[OURS]
    theirs = compared_set.areas[method]
    errors = np.nan_to_num([ours.error, theirs.error])
    difference = theirs.mean - ours.mean
    if abs(difference) <= 2.0 * math.hypot(*errors):
        return 0
    return int(math.copysign(1, difference))


def beside_published(sets: Sequence[Compared]) -> str:
    """Areas that the PE-means repository prints, each before ours: one row a set."""
    cells_of_sets = {}
    for compared_set in sorted(sets, key=lambda compared_set: compared_set.name):
        published = rival_set(compared_set.name).published
        if not published:
            continue
        cells = {}
        for method in METHODS:
            if method in published and method in compared_set.areas:
                area = _cell(compared_set.areas[method], bold=False)
                cells[method] = f"{published[method]:.4f}: {area}"
        cells_of_sets[compared_set.name] = cells
    methods = [
        method
        for method in METHODS
        if any(method in cells for cells in cells_of_sets.values())
    ]
    lines = []
    for name, cells in cells_of_sets.items():
        lines.append([name, *(cells.get(method, "") for method in methods)])
    return _markdown_table(["set", *methods], lines)
