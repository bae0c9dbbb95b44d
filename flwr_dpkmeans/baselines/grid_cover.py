"""Private greedy max cover on nested grids: the candidate centres of max cover's second step.

The paper covers by balls around grid points; here a grid point covers the cube of half-width ``spacing`` around it,
that is the 2^m cells that touch it (m dimensions). A point then lies in exactly 2^m cubes, the cells are found by one
comparison per coordinate, and any set within distance spacing / 2 (in the largest coordinate) of some centre lies in
the cube of the grid point nearest to that centre. The price is a factor of sqrt(m) in the radius.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.pooled import FloatArray
from flwr_dpkmeans.baselines.selection import CoverageSampler

KeyArray = npt.NDArray[np.int64]


class CoverGrid:
    """The grid of spacing ``2^-level`` on [-1, 1]^m, and how many points each of its points covers.

    One record has one cell, found from its own coordinates alone, and raises the coverage of that cell's 2^m corners by
    1 each until one of them is chosen: this is what the theorem of `selection` asks for. Grid points without coverage
    are counted, never listed.

    Parameters
    ----------
    points : array of shape (n_points, m)
        In [-1, 1].
    level : int
        At least 0, with ``m log2(2^(level + 1) + 1) <= 62``.
    """

    def __init__(self, points: FloatArray, level: int) -> None:
        self._level = level
        self._n_axis = (2 << level) + 1
        n_components = points.shape[1]
        self._strides = self._n_axis ** np.arange(n_components, dtype=np.int64)
        corners = np.array(list(itertools.product((0, 1), repeat=n_components)), dtype=np.int64)
        self._corners = np.sort(corners @ self._strides)
        cells = np.floor((points + 1.0) * 2.0**level).astype(np.int64)
        np.clip(cells, 0, self._n_axis - 2, out=cells)
        self._cells, self._cell_of_point = np.unique(cells @ self._strides, return_inverse=True)
        self._cell_counts = np.bincount(self._cell_of_point, minlength=len(self._cells)).astype(np.int64)
        touching = (self._cells[:, None] + self._corners).ravel()
        self._keys, positions = np.unique(touching, return_inverse=True)
        weights = np.repeat(self._cell_counts, len(self._corners))
        self._coverage = np.bincount(positions.ravel(), weights=weights, minlength=len(self._keys)).astype(np.int64)
        self._chosen: list[int] = []

    @property
    def n_candidates(self) -> int:
        """Number of grid points."""
        return int(self._n_axis ** len(self._strides))

    def choose(self, sampler: CoverageSampler) -> int:
        """Choose one grid point that was not chosen before, and cover its points; return its key."""
        histogram = np.bincount(self._coverage, minlength=1)
        n_covering = len(self._coverage) - int(histogram[0])
        # A chosen grid point covers no uncovered points: it is one of the uncovering ones, and left out of them.
        coverage = sampler.draw_coverage(histogram, self.n_candidates - n_covering - len(self._chosen))
        if coverage:
            members = self._keys[self._coverage == coverage]
            key = int(members[sampler.below(len(members))])
        else:
            key = self._missing(sampler)
        self._cover(key)
        self._chosen.append(key)
        return key

    def covered_points(self) -> npt.NDArray[np.bool_]:
        """Return which points lie in the cube of a chosen grid point."""
        return np.asarray(self._cell_counts[self._cell_of_point] == 0)

    def coordinates(self, keys: list[int]) -> FloatArray:
        """Return the (n_keys, m) coordinates of grid points."""
        digits = np.array(keys, dtype=np.int64)[:, None] // self._strides % self._n_axis
        return np.asarray(digits * 2.0**-self._level - 1.0, dtype=np.float64)

    def _missing(self, sampler: CoverageSampler) -> int:
        """Return a uniform key among those that neither cover a point nor were chosen."""
        present = np.sort(np.append(self._keys[self._coverage > 0], np.array(self._chosen, dtype=np.int64)))
        rank = sampler.below(self.n_candidates - len(present))
        # present[i] - i absent keys lie below present[i].
        return rank + int(np.searchsorted(present - np.arange(len(present)), rank, side="right"))

    def _cover(self, key: int) -> None:
        """Take the points in the cube around a grid point out of all coverages."""
        # Beyond a wall there is no cell: the lowest digit that borrows becomes n_axis - 1, which no cell has.
        touched = self._positions(self._cells, key - self._corners)
        counts = self._cell_counts[touched]
        around = np.searchsorted(self._keys, self._cells[touched][:, None] + self._corners)
        np.subtract.at(self._coverage, around, counts[:, None])
        self._cell_counts[touched] = 0

    @staticmethod
    def _positions(keys: KeyArray, wanted: KeyArray) -> KeyArray:
        """Return the positions of those wanted keys that exist."""
        if len(keys) == 0:
            return np.zeros(0, dtype=np.int64)
        positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.asarray(positions[keys[positions] == wanted])


def cover_centres(points: FloatArray, n_choices: int, n_levels: int, sampler: CoverageSampler) -> FloatArray:
    """The distinct (n_centres, m) grid points chosen on all levels, from the finest grid to the coarsest.

    On each level with spacing ``2^-(n_levels - 1), ..., 1/2, 1`` so many are chosen (all, where the grid has fewer).
    Points of [-1, 1]^m that are covered on one level stay covered on the next, so that all levels are one sequence: the
    sampler's rate says what this costs, by the theorem in ``selection``.
    """
    uncovered = points
    found = []
    for level in reversed(range(n_levels)):
        grid = CoverGrid(uncovered, level)
        keys = [grid.choose(sampler) for _ in range(min(n_choices, grid.n_candidates))]
        found.append(grid.coordinates(keys))
        uncovered = uncovered[~grid.covered_points()]
    return np.asarray(np.unique(np.concatenate(found), axis=0))
