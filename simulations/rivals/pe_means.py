"""PE-means and HDPE-means (Humphries, Lin and Yekhanin 2026, arXiv 2606.00342),
federated: noisy histograms of votes.

Candidates evolve: each row votes for the nearest one, the noisy votes weigh the
candidates in a k-means, and its centroids with their mutants are the next candidates. A
vote has sensitivity 1 whatever the dimension and the bounds. In many dimensions
HDPE-means evolves candidates for rows that a random matrix brought into a few
dimensions, and ends with noisy sums and counts of the rows of each cluster.

What differs from the authors' code, and why:

* Votes are summed over parties under masks, with distributed noise; candidates are on
  the grid, centroids in the box.
* HDPE-means pays for all of its releases: that code calibrates the noise of its last
  step for two steps too few, adds one and the same number to all coordinates of a sum,
  and leaves out clusters whose exact count is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import gamma

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum, private_sums
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.states.cluster_states import seed_of, seeded_state
from flwr_dpkmeans.algorithms.states.steps_ahead import stepped
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.baselines.pooled import run_kmeans
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import is_on_grid, round_to_grid
from flwr_dpkmeans.kernels.label_sums import counts_by_label, sums_and_counts
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.option_rules import Options, real, whole
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import (
    Algorithm,
    Array,
    PrivateSum,
    RowWeights,
    State,
)

CANDIDATES, OFFSPRING, PROJECTION = "candidates", "offspring", "projection"

_GENERATIONS_PER_ROOT = 4.0
_ROWS_PER_MUTANT = 5
_FEWEST_MUTANTS = 4
_STEP = 0.01  # of the radius
_TAIL = 1.75  # exponent of the Levy flights: 2 would be Gaussian
_RESTARTS = 10
_TRIES = 100
_WIDEST_TREE = 16
_MOST_CANDIDATES = 2**15
"""Packing them takes the square of their number, half a minute, and a plan may come
from a hostile server.
"""
_FARTHEST = 64.0
"""Largest coordinate of a candidate or a projection that a client takes from a server.

Labels stay exact.
"""


@dataclass(frozen=True)
class PEMeansOptions(Options):
    """Options of PE-means; the defaults are the paper's."""

    max_iter: int | None = whole(
        None,
        1,
        8,
        "generations; automatic: 4 sqrt(d), times epsilon above 1",
        most=1_000,
    )
    mutants: int | None = whole(
        None,
        1,
        20,
        "mutants of a centroid; automatic: N / (5 k), at least 4",
        most=100_000,
    )
    radius: float | None = real(
        None,
        0.0,
        1e3,
        "1.2",
        "public norm of the longest row in the box; automatic: its corners'",
    )


@dataclass(frozen=True, kw_only=True)
class PEMeansTask(KMeansTask):
    """Votes for evolving candidates, Gaussian noise."""

    name = "pe_means"
    trust = "distributed"
    needs_n_examples = True
    options: PEMeansOptions = PEMeansOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """As many histograms as generations, of equal noise."""
        d = public.n_features
        evolution = Evolution(self, public, d, self.radius(d))
        planned = [
            evolution.generation(index, public)
            for index in range(1, evolution.n_generations + 1)
        ]
        return Algorithm(
            self.name, evolution.bound(private_sums(public, planned)), evolution.start
        )

    def radius(self, n_features: int) -> float:
        """Of the ball of all rows, in the box."""
        return self.options.radius or root_at_least(n_features)

    def generations(self, public: PublicFacts, width: int) -> int:
        """The paper's rule, floor(4 sqrt(d)), and above epsilon 1 its product with
        epsilon.
        """
        usual = int(_GENERATIONS_PER_ROOT * math.sqrt(width))
        automatic = max(
            1,
            (
                int(public.settings.epsilon * usual)
                if public.settings.epsilon > 1.0
                else usual
            ),
        )
        return self.max_rounds or automatic


@dataclass(frozen=True)
class HDPEMeansOptions(PEMeansOptions):
    """Options of HDPE-means."""

    latent_dimensions: int = whole(
        16, 2, 16, "columns of the random projection", most=64
    )


@dataclass(frozen=True, kw_only=True)
class HDPEMeansTask(PEMeansTask):
    """Votes for candidates in a random projection, then one sum of the rows."""

    name = "hdpe_means"
    options: HDPEMeansOptions = HDPEMeansOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """Histograms of the projected rows, and at the end sums and counts.

        Each of the releases has the same share.
        """
        d, width = public.n_features, self.options.latent_dimensions
        if d <= width:
            raise ConfigurationError(
                f"there are {d} columns, but 'hdpe_means' projects onto"
                f" latent_dimensions = {width} and needs more: choose 'pe_means'."
            )
        evolution = Evolution(self, public, width, self.radius(d))
        planned = [
            evolution.generation(index, public)
            for index in range(1, evolution.n_generations + 1)
        ]
        planned.append(self._back(evolution, d))
        return Algorithm(
            self.name, evolution.bound(private_sums(public, planned)), evolution.start
        )

    def generations(self, public: PublicFacts, width: int) -> int:
        """Two fewer than PE-means', whatever epsilon, so that the sums and counts are
        paid for as two more steps.
        """
        return self.max_rounds or max(
            1, int(_GENERATIONS_PER_ROOT * math.sqrt(width)) - 2
        )

    def _back(self, evolution: Evolution, n_features: int) -> PlannedSum:
        """Sums and counts of the rows whose projection is nearest to each projected
        centroid.
        """
        k, radius = self.n_clusters, evolution.radius
        within = Sensitivity(
            Norm.L2,
            radius,
            PrivacyUnit.RECORD,
            "one row, clipped to the radius, is in one cluster",
        )
        sensitivity = Sensitivity(
            Norm.L2,
            1.0,
            PrivacyUnit.RECORD,
            "one row is in one cluster",
            nonnegative=True,
        )
        parts = [
            ReleasePart("sums", (k, n_features), within, 1.0, min(radius, 1.0)),
            ReleasePart("counts", (k,), sensitivity, 1.0, 1.0),
        ]

        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            labels = nearest(evolution.seen(points, state), state[CANDIDATES])
            return sums_and_counts(clip_rows(points, radius), labels, k, weights)

        def advance(state: State, released: ReleasedSum) -> State:
            sums, counts = released["sums"], released["counts"]
            means = sums / np.maximum(counts, 1.0)[:, None]
            return stepped(
                state,
                round_to_grid(np.clip(_in_ball(means, radius), -1.0, 1.0)),
                round_to_grid(counts),
            )

        return parts, PrivateSum(
            "rows",
            (),
            statistic,
            advance,
            reads=evolution.reads,
            admits=evolution.admits,
            weighted=weighing(PrivacyUnit.RECORD, statistic),
        )


class Evolution:
    """Candidates over the generations of a task, in as many dimensions as they have."""

    def __init__(
        self, task: PEMeansTask, public: PublicFacts, width: int, radius: float
    ) -> None:
        k, n = task.n_clusters, public.required_n_examples
        self.k, self.n, self.width, self.radius, self.n_features = (
            k,
            n,
            width,
            radius,
            public.n_features,
        )
        self.mutants = task.options.mutants or max(
            _FEWEST_MUTANTS, n // (_ROWS_PER_MUTANT * k)
        )
        self.n_candidates = (self.mutants + 1) * k
        self.n_generations = task.generations(public, width)
        self.projects = width != public.n_features
        self.reads = (CANDIDATES, PROJECTION) if self.projects else (CANDIDATES,)
        self._noise = 0.0
        if self.n_candidates > _MOST_CANDIDATES:
            raise ConfigurationError(
                f"{self.mutants} mutants of each of {k} centroids are"
                f" {self.n_candidates} candidates, but at most {_MOST_CANDIDATES} can"
                " be voted for: give mutants, such as 20."
            )

    def bound(self, rounds: tuple[PrivateSum, ...]) -> tuple[PrivateSum, ...]:
        """The rounds themselves; their noise is known from here on."""
        self._noise = rounds[0].blocks[0].noise_scale
        return rounds

    def start(self, seed: int, server_points: Array | None = None, /) -> State:
        """Candidates far from each other, from public randomness."""
        packed = round_to_grid(
            packed_ball(self.n_candidates, self.width, self.radius, seed)
        )
        state = seeded_state(np.zeros((self.k, self.n_features)), seed)
        state = state.changed(
            **{CANDIDATES: packed, OFFSPRING: np.array([float(self.mutants)])}
        )
        if not self.projects:
            return state
        # Entries of variance 1 / width keep the rows' lengths on average.
        matrix = np.random.default_rng([seed, 1]).standard_normal(
            (self.n_features, self.width)
        )
        return state.changed(
            **{PROJECTION: round_to_grid(matrix / math.sqrt(self.width))}
        )

    def seen(self, points: Array, state: State) -> Array:
        """Rows as they vote: each one a function of itself alone, since sums of
        products on the grid are exact.
        """
        return round_to_grid(points @ state[PROJECTION]) if self.projects else points

    def generation(self, index: int, public: PublicFacts) -> PlannedSum:
        """One histogram of votes.

        Where there are fewer candidates than at first, the last entries have no votes.
        """
        vote = Sensitivity(
            Norm.L2, 1.0, PrivacyUnit.RECORD, "one row has one vote", nonnegative=True
        )

        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            return [
                counts_by_label(
                    nearest(self.seen(points, state), state[CANDIDATES]),
                    self.n_candidates,
                    weights,
                )
            ]

        def advance(state: State, released: ReleasedSum) -> State:
            return self._select(index, state, released["votes"], public.noise_factor)

        planned = PrivateSum(
            f"votes-{index}",
            (),
            statistic,
            advance,
            reads=self.reads,
            admits=self.admits,
            weighted=weighing(PrivacyUnit.RECORD, statistic),
        )
        return [ReleasePart("votes", (self.n_candidates,), vote, 1.0, 1.0)], planned

    def _select(
        self, index: int, state: State, released: Array, noise_factor: float
    ) -> State:
        """Centroids of the candidates by their votes.

        And their mutants, fewer where votes are mostly noise.
        """
        candidates = state[CANDIDATES]
        votes = above_threshold(released[: len(candidates)], self.n)
        mutants = int(state[OFFSPRING][0])
        if np.square(votes).sum() < len(votes) * (self._noise * noise_factor) ** 2:
            mutants = max(mutants // 2, _FEWEST_MUTANTS)
        voted = (
            votes > 0.0
            if np.count_nonzero(votes) >= self.k
            else np.ones(len(votes), dtype=bool)
        )
        weights = votes[voted] if votes.any() else None
        centres = run_kmeans(
            candidates[voted], self.k, n_init=_RESTARTS, random_state=0, weights=weights
        )
        centres = round_to_grid(
            centres if self.projects else np.clip(centres, -1.0, 1.0)
        )
        counts = np.bincount(nearest(candidates, centres), votes, minlength=self.k)
        following = centres
        if index < self.n_generations:
            generator = np.random.default_rng([seed_of(state), 2, index])
            following = np.vstack(
                [
                    centres,
                    round_to_grid(mutated(centres, mutants, self.radius, generator)),
                ]
            )
        extras = {CANDIDATES: following, OFFSPRING: np.array([float(mutants)])}
        if self.projects:
            return state.changed(counts=round_to_grid(counts), **extras)
        return stepped(state, centres, round_to_grid(counts)).changed(**extras)

    def admits(self, state: State) -> bool:
        """Whether a server's candidates, and its projection, have the plan's shapes and
        leave labels exact.
        """
        tables = {CANDIDATES: self.width} | (
            {PROJECTION: self.width} if self.projects else {}
        )
        fits = all(
            state[name].ndim == 2
            and state[name].shape[1] == width
            and is_on_grid(state[name])
            and bool(np.abs(state[name]).max(initial=0.0) <= _FARTHEST)
            for name, width in tables.items()
        )
        fits = fits and self.k <= len(state[CANDIDATES]) <= self.n_candidates
        return fits and (not self.projects or len(state[PROJECTION]) == self.n_features)


def nearest(points: Array, candidates: Array) -> NDArray[np.int32]:
    """Index of each row's nearest candidate, a function of that row alone.

    a tree pays in few dimensions.
    """
    if points.shape[1] > _WIDEST_TREE:
        return nearest_centroids(points, candidates)[0]
    return np.asarray(cKDTree(candidates).query(points)[1], dtype=np.int32)


def above_threshold(votes: Array, n_rows: int) -> Array:
    """Noisy votes, (n,), without the small ones.

    The largest that add up to the number of rows are kept.

    >>> above_threshold(np.array([4.0, 1.0, -2.0, 7.0, 0.5]), 11)
    array([4., 0., 0., 7., 0.])
    """
    descending = np.sort(votes)[::-1]
    enough = np.flatnonzero(np.cumsum(descending) >= n_rows)
    threshold = max(float(descending[enough[0]]), 0.0) if len(enough) else 0.0
    return np.asarray(np.where((votes >= threshold) & (votes > 0.0), votes, 0.0))


def mutated(
    centroids: Array, mutants: int, radius: float, generator: np.random.Generator
) -> Array:
    """So many mutants of each centroid, (k, d), by Levy flights (Mantegna 1994) of a
    hundredth of the radius.
    """
    parents = np.repeat(centroids, mutants, axis=0)
    numerator = gamma(1.0 + _TAIL) * math.sin(math.pi * _TAIL / 2.0)
    denominator = gamma((1.0 + _TAIL) / 2.0) * _TAIL * 2.0 ** ((_TAIL - 1.0) / 2.0)
    scale = (numerator / denominator) ** (1.0 / _TAIL)
    steps = generator.normal(0.0, scale, parents.shape) / np.abs(
        generator.standard_normal(parents.shape)
    ) ** (1.0 / _TAIL)
    return _in_ball(parents + _STEP * radius * steps, radius)


def _in_ball(points: Array, radius: float) -> Array:
    """Points, (n, d), pulled into the ball where they lie outside."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points * np.minimum(1.0, radius / np.maximum(norms, radius)))


@lru_cache(maxsize=8)
def packed_ball(n_points: int, width: int, radius: float, seed: int) -> Array:
    """Points, (n, d), of a ball, of which no two are nearer than twice a distance that
    is halved until all fit.
    """
    generator = np.random.default_rng([seed, 0])
    distance = radius / 2.0
    while True:
        packed = _packed(n_points, width, radius - distance, 2.0 * distance, generator)
        if packed is not None:
            return packed
        distance /= 2.0


def _packed(
    n_points: int,
    width: int,
    radius: float,
    apart: float,
    generator: np.random.Generator,
) -> Array | None:
    """Points at random, each far enough from those before it.

    None after too many tries in a row.
    """
    points, n, tries = np.empty((n_points, width)), 0, 0
    while n < n_points and tries < _TRIES:
        directions = generator.standard_normal((_TRIES, width))
        lengths = radius * generator.random((_TRIES, 1)) ** (1.0 / width)
        for point in (
            directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths
        ):
            offsets = points[:n] - point
            if n and np.einsum("ij,ij->i", offsets, offsets).min() < apart**2:
                tries += 1
            else:
                points[n], n, tries = point, n + 1, 0
            if n == n_points or tries == _TRIES:
                break
    return points if n == n_points else None
