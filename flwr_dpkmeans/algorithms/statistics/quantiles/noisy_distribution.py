"""The distribution of one column with its noise, and quantiles with their intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from flwr_dpkmeans.algorithms.statistics.noise_errors import Z
from flwr_dpkmeans.sums.round import Array


class Quantile(NamedTuple):
    """A quantile with the ends of its 95% interval, in the units of the data."""

    estimate: float
    lower: float
    upper: float


_EVEN = 2.0
"""How many times as many rows as in its neighbours a leaf has at most, if its rows are
spread over it: others may be one value's.
"""


@dataclass(frozen=True)
class NoisyDistribution:
    """Rows of a column below the edges of its leaves.

    Monotone, by the nearest monotone sequence (isotonic regression), from 0 to all.
    """

    below: Array = field(repr=False)
    """(n_leaves + 1,)."""
    variances: Array = field(repr=False)
    """(n_leaves + 1,): of the noise in them, as they were released."""
    rows_noise: float
    """Standard deviation of the noise in the number of all rows."""
    bounds: tuple[float, float]
    """Of the column, in the units of the data."""

    @classmethod
    def of(
        cls,
        below: Array,
        variances: Array,
        rows_noise: float,
        bounds: tuple[float, float],
    ) -> NoisyDistribution:
        """Make a released sequence monotone."""
        total = max(float(below[-1]), 1.0)
        inner = below[1:-1]
        monotone = np.zeros(len(below))
        monotone[1:-1] = isotonic_regression(inner).x
        monotone[-1] = total
        within = np.clip(monotone, 0.0, total)
        return cls(
            within,
            variances,
            rows_noise,
            bounds,
        )

    def quantile(self, level: float) -> Quantile:
        """The quantile of a level, with its interval.

        The interval has the edges at which no more than `Z` deviations of the noise
        separate the rows below from those that the level asks for. Within a leaf rows
        are taken to be spread evenly, unless so many are in it that they may have one
        value: then it reaches to the leaf's end.
        """
        wanted = level * self.below[-1]
        excess = self.below - wanted
        reach = self._reach(level)
        estimate = self._estimate(_Crossing(excess, _first_leaf(excess)))
        high = excess + reach
        first = _Crossing(high, _first_leaf(high))
        low = excess - reach
        last = _Crossing(low, _last_leaf(low))
        leaves = [
            estimate,
            min(self._within(first, 0.0), estimate),
            max(self._within(last, 1.0), estimate),
        ]
        n_leaves = len(excess) - 1
        values = np.interp(leaves, [0, n_leaves], self.bounds)
        return Quantile(*values.tolist())

    def _estimate(self, crossing: _Crossing) -> float:
        """Where a line crosses; a bound if many rows are there, clipped ones or not."""
        if crossing.leaf == 0:
            return self._within(crossing, 0.0)
        if crossing.leaf == len(self.below) - 2:
            return self._within(crossing, 1.0)
        return crossing.position

    def _reach(self, level: float) -> Array:
        """How far rows below each edge may be off what the level asks for.

        By noise, and by where in their leaves rows are.
        """
        in_leaves = np.diff(self.below)
        n_edges = len(self.below)
        positions = np.linspace(0.0, 1.0, n_edges)
        by_rows = (positions - level) * self.rows_noise
        of_rows = np.square(by_rows)
        # Below the middle of a leaf is about half of it: each row is anywhere in it.
        scatter = _at_edges(in_leaves / 4.0)
        deviations = np.sqrt(self.variances + of_rows + scatter)
        # By the slope that the leaves beside it show.
        before = in_leaves[:-2]
        after = in_leaves[2:]
        slopes = np.abs(after - before)
        most = in_leaves[1:-1] / 4.0
        bend = np.zeros(len(in_leaves))
        bend[1:-1] = np.minimum(slopes / 8.0, most)
        reach = Z * deviations + _at_edges(bend)
        # Nothing is below the lower bound, and all rows are below the upper one.
        reach[0] = 0.0
        reach[-1] = 0.0
        return np.asarray(reach)

    def _within(self, crossing: _Crossing, end: float) -> float:
        """Where a line crosses, or the leaf's end where its rows may have one value."""
        leaf = crossing.leaf
        start = max(leaf - 1, 0)
        in_leaves = np.diff(self.below)
        around = in_leaves[start : leaf + 2].tolist()
        rows = around.pop(leaf - start)
        fullest = max(around, default=0.0)
        if rows <= _EVEN * fullest:
            return crossing.position
        return leaf + end


@dataclass(frozen=True)
class _Crossing:
    """Where in a leaf a line between values at the edges reaches 0."""

    values: Array = field(repr=False)
    leaf: int

    @property
    def position(self) -> float:
        """In leaves from the lower bound."""
        leaf = self.leaf
        start = float(self.values[leaf])
        end = float(self.values[leaf + 1])
        rise = end - start
        if rise <= 0.0:
            return leaf + 1.0
        fraction = max(-start / rise, 0.0)
        return leaf + min(fraction, 1.0)


def _at_edges(of_leaves: Array) -> Array:
    """For each edge the larger number of the two leaves that meet there."""
    at_edges = np.zeros(len(of_leaves) + 1)
    before = of_leaves[:-1]
    after = of_leaves[1:]
    at_edges[1:-1] = np.maximum(before, after)
    return at_edges


def _first_leaf(values: Array) -> int:
    """The first leaf at whose end values have reached 0."""
    at_ends = values[1:]
    return int(np.argmax(at_ends >= 0.0))


def _last_leaf(values: Array) -> int:
    """The last leaf at whose beginning values are not above 0."""
    at_starts = values[:-1]
    below = np.flatnonzero(at_starts <= 0.0)
    return int(below[-1])
