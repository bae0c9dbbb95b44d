"""Private greedy max cover on nested grids.

The price of its selections, their exact sampling, and the grids.

A sequence of candidates is chosen, one per step. A candidate covers the records of a
set that depends on nothing but the candidate and the records' own values. At each step
a candidate is drawn with probability proportional to ``exp(rate * coverage)``, coverage
being the number of records covered by it and by no candidate chosen before. Which
candidates may be drawn, and their number, may depend on earlier choices but not on the
records.

**Theorem.** Under the add-or-remove-one-record relation, the whole sequence, of any
length, is (epsilon, delta)-DP for every ``epsilon >= rate`` with

    delta = (1 - exp(-rate)) exp(-(epsilon + rate) / (exp(rate) - 1)).

For rates up to 1 it sharpens Lemma 17 of Nguyen, Chaturvedi and Xu 2021 (whose
technique is that of Gupta et al. 2010), where delta is ``exp(-epsilon / (e rate))``
(their epsilon_E is twice the rate).

*Proof.* Let A be B with one more record x, and v = exp(rate). Until a chosen candidate
covers x, the two runs see the same uncovered records but for x; afterwards they see the
same ones. Let p be the probability under B, given the choices so far, that the next
candidate covers x. Its weight under A is v times the one under B if it covers x, else
the same, so the normaliser under A is ``u = 1 + (v - 1) p`` times the one under B.
Hence the next choice has the likelihood ratio (A over B) v/u if it covers x and 1/u
otherwise, and x is covered under A with probability v p/u.

(1) A against B. Before x is covered each ratio is 1/u <= 1, when it is covered v/u <=
v, afterwards 1: the whole ratio is at most v, so P_A(S) <= exp(rate) P_B(S) for every
S.

(2) B against A. For c > 0 let G(c) be the largest value of ``sup_S P_B(S) - c P_A(S)``
over all ways in which the p of at most T further steps can depend on the choices.
Without a further step it is max(0, 1 - c). Conditioning on whether the next choice
covers x,

    G_T(c) <= sup_p { max(0, p - c v p/u) + (1 - p) G_{T-1}(c/u) }    (G_0(c) = max(0, 1
    - c)).

Let F(c) = 1 - c for c <= 1/v, and (1 - 1/v) (c v)^(-1/(v-1)) for c >= 1/v. Both agree
at 1/v in value and slope (-1) and the second is convex, so that F(c) >= max(0, 1 - c).
By induction G_T <= F, because F satisfies the inequality:

* if c v >= u, the first term is 0, and ``(1 - p) F(c/u) = F(c) (1 - p) u^(1/(v-1)) <=
  F(c)``, as ``log(1 - p) + log(1 + (v - 1) p) / (v - 1) <= -p + p``;
* if c v < u, then F(c/u) = 1 - c/u, and the terms add up to 1 - c (v p + 1 - p)/u = 1 -
  c <= F(c).

With c = exp(epsilon) >= 1 >= 1/v, F(c) is the delta above. QED. (F is the value for an
exponential waiting time of rate 1 against one of rate v, which many steps with small p
approach: the theorem is exact.)

The candidates here are the points of nested grids, max cover's second step. The paper
covers by balls around grid points; here a grid point covers the cube of half-width
``spacing`` around it, that is the 2^m cells that touch it (m dimensions). A point then
lies in exactly 2^m cubes, the cells are found by one comparison per coordinate, and any
set within distance spacing / 2 (in the largest coordinate) of some centre lies in the
cube of the grid point nearest to that centre. The price is a factor of sqrt(m) in the
radius.
"""

from __future__ import annotations

import bisect
import itertools
import math
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.pooled import FloatArray
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.noise import NoiseSource, OpenDPNoise
from flwr_dpkmeans.privacy.searches import smallest_true

_Keys = npt.NDArray[np.int64]

_WEIGHT_BITS = 192
LARGEST_NUMBER_OF_CANDIDATES = 2**62
"""Keys of candidates are 64-bit integers, and the slack below counts on it."""

SELECTION_SLACK = 2.0**-100
"""Total-variation distance of one selection from the exact exponential mechanism.

See `CoverageSampler`.
"""

# The search for a rate ends above the largest one by 2^-43 of it at most.
_SHADE = 1.0 - 2.0**-40
# Below this part of epsilon the theorem's delta is 0 in floats, whatever epsilon.
_SLOWEST = 2.0**-12
_SLOWEST_RATE = 2.0**-16
_UP = 1.0 + 2.0**-50


def selection_delta(epsilon: float, rate: float) -> float:
    """Delta of any number of selections, by this module's theorem.

    At an epsilon of at least the rate, which is positive.
    """
    numerator = epsilon + rate
    exponent = -numerator / math.expm1(rate)
    factor = -math.expm1(-rate)
    return factor * math.exp(exponent)


def selection_rate(epsilon: float, delta: float) -> float:
    """Return a rate whose selections, of any number, are (`epsilon`, `delta`)-DP.

    The largest up to a shade.

    It is less than `epsilon`, and `selection_delta` rises with the rate: the derivative
    of its logarithm's second term has the sign of ``(epsilon + rate) exp(rate) -
    exp(rate) + 1``, and ``rate >= 1 - exp(-rate)``.
    """

    def too_fast(rate: float) -> bool:
        return selection_delta(epsilon, rate) > delta

    if not too_fast(epsilon):
        return epsilon * _SHADE
    slowest = epsilon * _SLOWEST
    fastest = smallest_true(too_fast, slowest, epsilon)
    return fastest * _SHADE


class CoverageSampler:
    """Draw coverages exactly: by ``number of candidates * exp(rate * coverage)``.

    Weights are integers: W[j], about ``2^192 exp(-rate j)``, is the weight of a
    candidate whose coverage is j below the largest one. The base ``exp(-rate)`` is
    rounded up to a fraction, so that the actual rate is at most `rate`, and what
    follows is integer arithmetic. Each W is less than j + 1 too small, also beyond the
    end of the table, whose last weight was rounded to 0. A rate of at least 2^-16 makes
    the table shorter than 2^24; with at most 2^62 candidates, of which the largest
    weighs 2^192, the distribution is within 2^62 2^24 / 2^192 < 2^-100 of the exact one
    in total variation.

    `random_bytes` returns as many as asked for; a rate below 2^-16 raises a PlanError.
    """

    def __init__(
        self,
        rate: float,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        if not rate >= _SLOWEST_RATE:
            raise PlanError(
                f"the rate of the selections is {rate:.3g}, but it must be at least"
                f" {_SLOWEST_RATE:.3g}: give a larger epsilon or a larger delta."
            )
        rounded_up = math.exp(-rate) * _UP
        self._base = Fraction(rounded_up)
        self._weights = [1 << _WEIGHT_BITS]
        self._random_bytes = random_bytes

    def weight(self, deficit: int) -> int:
        """Return W[`deficit`], the weight of a candidate by its coverage.

        It covers so many fewer records than the best one.
        """
        weights = self._weights
        base = self._base
        while len(weights) <= deficit and weights[-1]:
            numerator = weights[-1] * base.numerator
            weight = numerator // base.denominator
            weights.append(weight)
        if deficit < len(weights):
            return weights[deficit]
        return 0

    def draw_coverage(
        self,
        histogram: npt.NDArray[np.int64],
        n_uncovering: int,
    ) -> int:
        """Return a coverage.

        `histogram` says how many candidates have each, `n_uncovering` how many have
        none.
        """
        numbers: dict[int, int] = {}
        if n_uncovering:
            numbers[0] = n_uncovering
        present = np.flatnonzero(histogram[1:]) + 1
        for coverage in present.tolist():
            numbers[coverage] = int(histogram[coverage])
        coverages = list(numbers)
        largest = coverages[-1]
        weights = []
        for coverage, number in numbers.items():
            weight = self.weight(largest - coverage)
            weights.append(number * weight)
        totals = list(itertools.accumulate(weights))
        n_tickets = totals[-1]
        ticket = self.below(n_tickets)
        index = bisect.bisect_right(totals, ticket)
        return coverages[index]

    def below(self, bound: int) -> int:
        """Return a uniform integer from 0 to `bound` - 1, by rejection."""
        n_bits = bound.bit_length()
        n_bytes = (n_bits + 7) // 8
        n_spare = 8 * n_bytes - n_bits
        while True:
            random_bytes = self._random_bytes(n_bytes)
            value = int.from_bytes(random_bytes, "little") >> n_spare
            if value < bound:
                return value


def byte_source(
    source: NoiseSource, generator: np.random.Generator
) -> Callable[[int], bytes]:
    """Return where selections take random bytes from.

    The system's entropy beside private noise, else the generator.
    """
    if isinstance(source, OpenDPNoise):
        return secrets.token_bytes
    return generator.bytes


class CoverGrid:
    """The grid of spacing ``2^-level`` on [-1, 1]^m, and its points' coverages.

    One record has one cell, found from its own coordinates alone, and raises the
    coverage of that cell's 2^m corners by 1 each until one of them is chosen: this is
    what the theorem above asks for. Grid points without coverage are counted, never
    listed. Points are (n_points, m), in [-1, 1]; ``m log2(2^(level + 1) + 1) <= 62``.
    """

    def __init__(
        self,
        points: FloatArray,
        level: int,
    ) -> None:
        self._level = level
        self._n_axis = (2 << level) + 1
        n_components = points.shape[1]
        exponents = np.arange(n_components, dtype=np.int64)
        self._strides = self._n_axis**exponents
        sides = (0, 1)
        vertices = list(itertools.product(sides, repeat=n_components))
        corners = np.array(vertices, dtype=np.int64)
        keys_of_corners = corners @ self._strides
        self._corners = np.sort(keys_of_corners)
        from_corner = points + 1.0
        in_steps = from_corner * 2.0**level
        whole_steps = np.floor(in_steps)
        cells = whole_steps.astype(np.int64)
        last_cell = self._n_axis - 2
        np.clip(cells, 0, last_cell, out=cells)
        keys_of_cells = cells @ self._strides
        self._cells, self._cell_of_point = np.unique(
            keys_of_cells,
            return_inverse=True,
        )
        n_cells = len(self._cells)
        cell_counts = np.bincount(self._cell_of_point, minlength=n_cells)
        self._cell_counts = cell_counts.astype(np.int64)
        corners_of_cells = self._corners_of(self._cells)
        touching = corners_of_cells.ravel()
        self.keys, positions = np.unique(touching, return_inverse=True)
        n_corners = len(self._corners)
        weights = np.repeat(self._cell_counts, n_corners)
        coverage = np.bincount(
            positions.ravel(),
            weights=weights,
            minlength=len(self.keys),
        )
        self.coverage = coverage.astype(np.int64)
        self._chosen: list[int] = []

    @property
    def n_candidates(self) -> int:
        """Number of grid points."""
        n_components = len(self._strides)
        return int(self._n_axis**n_components)

    def choose(self, sampler: CoverageSampler) -> int:
        """Choose one grid point that was not chosen before, and cover its points.

        Return its key.
        """
        histogram = np.bincount(self.coverage, minlength=1)
        n_without = int(histogram[0])
        n_covering = len(self.coverage) - n_without
        # A chosen grid point covers no uncovered points: it is one of the uncovering
        # ones, and left out of them.
        n_chosen = len(self._chosen)
        n_uncovering = self.n_candidates - n_covering - n_chosen
        coverage = sampler.draw_coverage(histogram, n_uncovering)
        if coverage:
            members = self.keys[self.coverage == coverage]
            index = sampler.below(len(members))
            key = int(members[index])
        else:
            key = self._missing(sampler)
        self._cover(key)
        self._chosen.append(key)
        return key

    def covered_points(self) -> npt.NDArray[np.bool_]:
        """Return which points lie in the cube of a chosen grid point."""
        counts = self._cell_counts[self._cell_of_point]
        return np.asarray(counts == 0)

    def coordinates(self, keys: list[int]) -> FloatArray:
        """Return the (n_keys, m) coordinates of grid points."""
        numbers = np.array(keys, dtype=np.int64)
        above = numbers[:, None] // self._strides
        digits = above % self._n_axis
        spacing = 2.0**-self._level
        points = digits * spacing - 1.0
        return np.asarray(points, dtype=np.float64)

    def _missing(self, sampler: CoverageSampler) -> int:
        """Return a uniform key of those that cover no point and were not chosen."""
        is_covering = self.coverage > 0
        covering = self.keys[is_covering]
        chosen = np.array(self._chosen, dtype=np.int64)
        unsorted = np.append(covering, chosen)
        # In order but for the few that were chosen: a merge, where sorting took two
        # thirds of a whole fit.
        present = np.sort(unsorted, kind="stable")
        n_present = len(present)
        rank = sampler.below(self.n_candidates - n_present)
        # present[i] - i absent keys lie below present[i].
        n_absent_below = present - np.arange(n_present)
        n_present_below = np.searchsorted(n_absent_below, rank, side="right")
        return rank + int(n_present_below)

    def _corners_of(self, cells: _Keys) -> _Keys:
        """Return the keys, (n_cells, 2^m), of the grid points around cells."""
        return cells[:, None] + self._corners

    def _cover(self, key: int) -> None:
        """Take the points in the cube around a grid point out of all coverages."""
        # Beyond a wall there is no cell: the lowest digit that borrows becomes n_axis -
        # 1, which no cell has.
        cells_around = key - self._corners
        touched = self._positions(self._cells, cells_around)
        counts = self._cell_counts[touched]
        cells = self._cells[touched]
        corners = self._corners_of(cells)
        around = np.searchsorted(self.keys, corners)
        np.subtract.at(
            self.coverage,
            around,
            counts[:, None],
        )
        self._cell_counts[touched] = 0

    @staticmethod
    def _positions(keys: _Keys, wanted: _Keys) -> _Keys:
        """Return the positions of those wanted keys that exist."""
        if len(keys) == 0:
            return np.zeros(0, dtype=np.int64)
        last = len(keys) - 1
        insertions = np.searchsorted(keys, wanted)
        positions = np.minimum(insertions, last)
        exists = keys[positions] == wanted
        return np.asarray(positions[exists])


def cover_centres(
    points: FloatArray,
    n_choices: int,
    n_levels: int,
    sampler: CoverageSampler,
) -> FloatArray:
    """Return the distinct grid points, (n_centres, m), chosen on all levels.

    From the finest grid to the coarsest. On each level with spacing ``2^-(n_levels -
    1), ..., 1/2, 1`` so many are chosen (all, where the grid has fewer). Points of [-1,
    1]^m that are covered on one level stay covered on the next, so that all levels are
    one sequence: the sampler's rate says what this costs, by the theorem above.
    """
    uncovered = points
    centres = []
    for level in reversed(range(n_levels)):
        grid = CoverGrid(uncovered, level)
        n_chosen = min(n_choices, grid.n_candidates)
        keys = [grid.choose(sampler) for _ in range(n_chosen)]
        centres.append(grid.coordinates(keys))
        is_covered = grid.covered_points()
        uncovered = uncovered[~is_covered]
    on_all_levels = np.concatenate(centres)
    distinct = np.unique(on_all_levels, axis=0)
    return np.asarray(distinct)
