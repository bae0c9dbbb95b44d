"""Refinements: shrunk Lloyd steps on residuals, whose radius falls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms import kmeans_task
from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.proxy.entries import (
    AVERAGE_COUNTS,
    AXES,
    CENTRE,
    RADIUS,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.proxy_space import in_proxy_space, length_of
from flwr_dpkmeans.algorithms.proxy.refining.excess_shells import cut_off, shells_of
from flwr_dpkmeans.algorithms.proxy.refining.refined_centroids import (
    RefinedClusters,
    centre_deviations,
    without_empty_clusters,
)
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.states.cluster_states import PROJECTED_CENTERS, SEED
from flwr_dpkmeans.algorithms.states.steps_ahead import stepped
from flwr_dpkmeans.kernels.grid import LabelArray, round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import are_saturated, unheard_cut
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import are_faint
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.residuals.excess_sums import excess_sums
from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts
from flwr_dpkmeans.kmeans.residuals.noisy_counts import adding_up, pulled_together
from flwr_dpkmeans.kmeans.residuals.radii import RadiusRule, next_radii
from flwr_dpkmeans.kmeans.residuals.shrinkage import StepPosterior
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.round import Array, PrivateSum, State

_SMALLEST_SHRINKING = 0.05


def refinement_round(setting: Setting, index: int) -> PlannedSum:
    """Lloyd step on clipped residuals, the `index`-th from 1.

    The first one assigns rows in the proxies' space, where these were clustered.
    """
    refinement = _Refinement(setting, index)
    parts = refinement.parts()
    reads: tuple[str, ...] = (RADIUS,)
    if refinement.assigns_in_proxy_space:
        reads = (RADIUS, CENTRE, AXES, PROJECTED_CENTERS)
    planned = PrivateSum(
        name=f"refinement-{index}",
        blocks=(),
        statistic=setting.summing(parts)(refinement.statistic),
        advance=refinement.advance,
        reads=reads,
        admits=setting.admitting(reads),
    )
    return parts, planned


@dataclass(frozen=True, repr=False)
class _Release:
    """What a refinement releases of the k clusters that there are."""

    radii: Array
    """That residuals were clipped to: (k,), or (1,) of all clusters."""
    sums: Array
    """Of clipped residuals, (k, d)."""
    sums_noise: Array
    """Standard deviation on an entry of these sums: (k,), or (1,) of all clusters."""
    counts: Array
    """Of rows, (k,)."""
    counts_noise: float
    squares: Array
    """Sums of squared residuals, in squared radii: (k,), or (1,) of all clusters."""
    squares_noise: float

    @property
    def n_clusters(self) -> int:
        """k, fewer than planned where fewer were chosen."""
        return len(self.counts)


@dataclass(frozen=True, repr=False)
class _Counts:
    """Better estimates of the rows of each cluster."""

    likely: Array
    """Posterior means, (k,), at least 1."""
    noise: float
    """Standard deviation that is left on what they are made of."""


@dataclass(frozen=True)
class _Refinement:
    """One Lloyd step on clipped residuals."""

    setting: Setting
    index: int
    """From 1."""

    @property
    def n_refinements(self) -> int:
        """All of the run."""
        return len(self.setting.plan.refinement_shares)

    @property
    def has_excess(self) -> bool:
        """Whether what residuals have beyond the radius is released too.

        Nothing follows the last refinement, so what it cuts would stay cut.
        """
        is_last = self.index == self.n_refinements
        return self.setting.plan.n_shells > 0 and is_last

    @property
    def assigns_in_proxy_space(self) -> bool:
        """Whether rows are assigned on the axes that the proxies live on."""
        follows_proxies = self.index == 1 and self.setting.plan.n_passes > 0
        return follows_proxies and self.setting.in_subspace

    @property
    def has_radius_by_cluster(self) -> bool:
        """Whether each cluster has a radius and a sum of squares, not all one."""
        return self.setting.n_radii > 1

    def parts(self) -> list[ReleasePart]:
        """Return the arrays that are released, with their shares of the budget."""
        setting = self.setting
        share = setting.plan.refinement_shares[self.index - 1]
        if not self.has_excess:
            return setting.parts("refinement", share)
        excess_share = setting.options.excess_share * share
        parts = setting.parts("refinement", share - excess_share)
        return parts + setting.parts("excess", excess_share)

    def statistic(self, rows: Array, state: State) -> Sequence[Array]:
        """Sum the clipped residuals of rows, (n_rows, d), in the order of `parts`."""
        labels = self._labels(rows, state)
        n_clusters = self.setting.n_clusters
        residuals = residual_sums(
            rows,
            labels,
            state.centroids,
            state[RADIUS],
            n_clusters,
            drop=not self.setting.options.clips,
        )
        squares = residuals.squares
        if not self.has_radius_by_cluster:
            squares = squares.sum(keepdims=True)
        arrays = [residuals.sums, residuals.counts, squares]
        if self.has_excess:
            radii, lengths = shells_of(self.setting, state)
            excess = excess_sums(
                rows,
                labels,
                state.centroids,
                radii,
                lengths,
                n_clusters,
            )
            arrays.append(excess)
        return arrays

    def _labels(self, rows: Array, state: State) -> LabelArray:
        """Assign rows to their nearest centroids, (n_rows,)."""
        if self.assigns_in_proxy_space:
            projected = in_proxy_space(rows, state)
            return nearest_projected(projected, None, state[PROJECTED_CENTERS])
        return nearest_projected(rows, None, state.centroids)

    def advance(self, state: State, released: ReleasedSum) -> State:
        """Move the centroids, choose the next radii, and state the centres' errors."""
        release = self._release(state, released)
        counts = self._better_counts(release)
        steps, step_errors = self._shrunk_steps(state, release, counts)
        if self.has_excess:
            excess, cut = self._excess(state, released, release, counts)
            steps = steps + excess
        else:
            cut = self._cut_unheard(release, counts)
        refined = self._refined_clusters(state, release, counts, steps)
        after_splits = self._without_empty_clusters(state, release, refined)
        following = self._following_state(state, release, after_splits)
        if self.setting.per_client:
            return following
        faint = are_faint(after_splits.average_counts, self._average_noise(release))
        cut = np.where(faint[:, None], WIDEST, cut)
        deviations = centre_deviations(
            state.centroids,
            refined.centroids,
            step_errors,
            after_splits.mean_squares,
            cut,
        )
        return following.changed(**{kmeans_task.CENTRE_DEVIATION: deviations})

    def _release(self, state: State, released: ReleasedSum) -> _Release:
        """Read the arrays of the clusters that there are, with their noise."""
        k = len(state.centroids)
        radii = state[RADIUS][:k]
        sums_block, counts_block, squares_block = released.blocks[:3]
        return _Release(
            radii=radii,
            sums=released["residual_sums"][:k] * radii[:, None],
            sums_noise=self.setting.noise(sums_block) * radii,
            counts=released["counts"][:k],
            counts_noise=self.setting.noise(counts_block),
            squares=released["residual_squares"][:k],
            squares_noise=self.setting.noise(squares_block),
        )

    def _better_counts(self, release: _Release) -> _Counts:
        """Estimate the clusters' rows from all noisy counts together."""
        options = self.setting.options
        total = self._total_of_counts(release)
        pulled, noise = release.counts, release.counts_noise
        if total is not None:
            pulled, noise = adding_up(pulled, noise, total)
        if options.pulls:
            pulled, noise = pulled_together(pulled, noise)
        likely = likely_counts(pulled, noise, total)
        return _Counts(likely, noise)

    def _total_of_counts(self, release: _Release) -> float | None:
        """What all counts add up to; None if that is not sure.

        A client's shares of rows are clipped, and some clients may be silent: then
        counts add up to less.
        """
        setting = self.setting
        if setting.per_client or not setting.options.adds_up:
            return None
        n_rows = setting.public.n_units
        missing = abs(n_rows - math.fsum(release.counts))
        by_noise = setting.options.audible_deviations * release.counts_noise
        may_be_noise = missing <= by_noise * math.sqrt(release.n_clusters)
        return n_rows if may_be_noise else None

    def _shrunk_steps(
        self,
        state: State,
        release: _Release,
        counts: _Counts,
    ) -> tuple[Array, Array]:
        """Estimate the centroids' steps: means and deviations, both (k, d)."""
        n_features = self.setting.n_features
        axis_variance = length_of(state, SPREAD) ** 2 / n_features
        # Early centroids still have far to go.
        least_tau = self.setting.options.least_tau ** (2 * self.index - 1)
        posterior = StepPosterior.of(
            release.sums,
            counts.likely,
            sums_noise=release.sums_noise,
            counts_noise=counts.noise,
            axis_variance=axis_variance,
            least_tau=least_tau,
        )
        return posterior.means(release.radii), posterior.deviations()

    def _cut_unheard(self, release: _Release, counts: _Counts) -> Array:
        """Estimate what clipping moves means by, unreleased: (k, d) or (k, 1)."""
        k = release.n_clusters
        radii = np.resize(release.radii, k)
        sums_noise = np.resize(release.sums_noise, k)
        cut = unheard_cut(radii, self.setting.n_features)
        saturated = are_saturated(release.sums, counts.likely, radii, sums_noise)
        return np.where(saturated[:, None], WIDEST, cut)

    def _excess(
        self,
        state: State,
        released: ReleasedSum,
        release: _Release,
        counts: _Counts,
    ) -> tuple[Array, Array]:
        """Estimate what clipping took off the means: means and deviations, both (k, d).

        From the released sums of what residuals have beyond the radius, by shell.
        """
        mean_squares = release.squares / self._rows_of_squares(counts)
        root_mean_squares = np.sqrt(np.maximum(mean_squares, 0.0))
        fullness = np.resize(root_mean_squares, release.n_clusters)
        return cut_off(self.setting, state, released, counts.likely, fullness)

    def _rows_of_squares(self, counts: _Counts) -> Array:
        """Rows that each released sum of squares is of, (k,) or (1,)."""
        if self.has_radius_by_cluster:
            return counts.likely
        return np.full(1, self.setting.public.n_units, dtype=np.float64)

    def _refined_clusters(
        self,
        state: State,
        release: _Release,
        counts: _Counts,
        steps: Array,
    ) -> RefinedClusters:
        """Take the steps, and choose the radii that follow from what they leave."""
        k = release.n_clusters
        squares = np.maximum(release.squares, 0.0) * np.square(release.radii)
        mean_squares = squares / self._rows_of_squares(counts)
        return RefinedClusters(
            centroids=round_to_grid(truncate(state.centroids + steps)),
            average_counts=self._average_counts(state, release),
            # One for each centroid, also where all are alike.
            radii=np.resize(self._next_radii(release, counts, steps), k),
            mean_squares=np.resize(mean_squares, k),
            total_square=float(squares.sum()),
        )

    def _next_radii(self, release: _Release, counts: _Counts, steps: Array) -> Array:
        """Radii of the next refinement, (k,), or (1,) of all clusters."""
        explained = np.square(steps).sum(axis=1)
        rows_noise = counts.noise
        if not self.has_radius_by_cluster:
            weights = np.maximum(release.counts, 0.0)
            n_weighted = max(1.0, float(weights.sum()))
            explained = np.full(1, float(explained @ weights) / n_weighted)
            # All rows are public.
            rows_noise = 0.0
        return next_radii(
            release.radii,
            release.squares,
            self._rows_of_squares(counts),
            explained,
            noise=release.squares_noise,
            counts_noise=rows_noise,
            rule=RadiusRule(
                width=self.setting.plan.widening,
                prior_variance=self.setting.options.residual_prior_variance,
                floor=_SMALLEST_SHRINKING,
            ),
        )

    def _average_counts(self, state: State, release: _Release) -> Array:
        """Average the noisy counts of all refinements up to this one, (k,)."""
        if self.index == 1:
            return release.counts
        before = state[AVERAGE_COUNTS]
        return before + (release.counts - before) / self.index

    def _average_noise(self, release: _Release) -> float:
        """Standard deviation of the noise on the average counts."""
        return release.counts_noise / math.sqrt(self.index)

    def _without_empty_clusters(
        self,
        state: State,
        release: _Release,
        refined: RefinedClusters,
    ) -> RefinedClusters:
        """Split large clusters by centroids that likely have no rows, if that pays."""
        setting = self.setting
        # Which of few clients' clusters costs most is noise, where each has a mean
        # square of its own.
        is_noise = self.has_radius_by_cluster and setting.per_client
        # The first count is not enough, and a split centroid is to be refined again.
        is_between = 2 <= self.index < self.n_refinements
        if is_noise or not is_between or not setting.options.splits:
            return refined
        return without_empty_clusters(
            setting,
            refined,
            self._average_noise(release),
            setting.generator(state, setting.plan.n_passes + self.index),
        )

    def _following_state(
        self,
        state: State,
        release: _Release,
        clusters: RefinedClusters,
    ) -> State:
        """The state after the step, with what the next refinement reads."""
        setting = self.setting
        radii = np.minimum(clusters.radii, setting.farthest)
        # As many as planned, also where fewer clusters were chosen.
        n_missing = setting.n_clusters - len(radii)
        radii = np.pad(radii, (0, n_missing), "edge")
        radii = radii[: setting.n_radii]
        carried = state.view((SEED, SPREAD, COST_CURVE))
        after = stepped(carried, clusters.centroids, release.counts)
        return after.changed(
            **{
                RADIUS: as_length(radii),
                AVERAGE_COUNTS: round_to_grid(clusters.average_counts),
            }
        )
