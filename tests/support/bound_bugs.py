"""Slips in sensitivities, clipping and rounding: tasks in the place of honest ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_rounding
from flwr_dpkmeans.algorithms.server.server_facts import facts_without_server
from flwr_dpkmeans.kernels import cluster_sums, grid
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import PrivateSum, State
from support.wrong_tasks import plant_arrays, plant_facts, plant_rounds

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


def sensitivity_without_the_radius(patch: pytest.MonkeyPatch) -> None:
    def change(_: int, step: PrivateSum) -> PrivateSum:
        blocks = [
            replace(block, sensitivity=replace(block.sensitivity, bound=1.0))
            for block in step.blocks
        ]
        return replace(step, blocks=tuple(blocks))

    plant_rounds(patch, "fastlloyd", change)


RADII = {
    "row_sums": "clip",
    "row_squares": "clip",
    "proxy_sums": "proxy_radius",
    "residual_sums": "radius",
    "residual_squares": "radius",
}
"""The lengths in a state that ProxyLloyd's arrays are divided by."""


def residuals_not_divided_by_the_radius(patch: pytest.MonkeyPatch) -> None:
    """Pulled back to the radius, but in units of the data."""

    def unscaled(name: str, array: Array, _: Array, state: State) -> Array:
        if name not in RADII:
            return array
        radius = state[RADII[name]]
        if name.endswith("squares"):
            return grid.toward_zero(array * radius**2)
        return grid.toward_zero(array * radius[:, None] if array.ndim > 1 else radius)

    plant_arrays(patch, "proxy_lloyd", unscaled)


def rows_in_two_bins_of_distance(patch: pytest.MonkeyPatch) -> None:
    """As a cumulative histogram would have it.

    a row counts in its own bin and in the next.
    """

    def twice(name: str, array: Array, *_: object) -> Array:
        return array + np.roll(array, 1) if name == "row_distances" else array

    plant_arrays(patch, "proxy_lloyd", twice)


def shares_of_distances_not_divided_by_rows(patch: pytest.MonkeyPatch) -> None:
    """At client level: the histogram of all rows, not a mean that is clipped."""

    def of_all_rows(name: str, array: Array, rows: Array, _: State) -> Array:
        return array * len(rows) if name == "row_distances" else array

    plant_arrays(patch, "proxy_lloyd", of_all_rows)


def no_radius_in_the_second_round(patch: pytest.MonkeyPatch) -> None:
    def statistic(rows: Array, state: State) -> tuple[Array, Array]:
        return cluster_sums.relative_statistics(rows, state.centroids, None)

    plant_rounds(
        patch,
        "fastlloyd",
        lambda index, step: replace(step, statistic=statistic) if index == 2 else step,
    )


def _with_bounds(
    *names: str, radius: float = 1e3
) -> Callable[[PublicFacts], PublicFacts]:
    """Clip to a bound that nothing reaches."""

    def other(public: PublicFacts) -> PublicFacts:
        honest = public.server or facts_without_server(public.config, public.n_features)
        wide = replace(honest, **dict.fromkeys(names, radius**2))
        return replace(public, server=wide)

    return other


def no_clip_of_a_client(patch: pytest.MonkeyPatch) -> None:
    wide = _with_bounds("outer_product_bound", "weights_bound")
    plant_facts(patch, "feddp_kmeans", wide)

    def of_one_row(public: PublicFacts) -> PublicFacts:
        """Means of a single row are within their bounds as they are."""
        settings = replace(public.settings, examples_per_client=1)
        return replace(public, config=replace(public.config, settings=settings))

    plant_facts(patch, "proxy_lloyd", of_one_row)


def no_clip_of_means(patch: pytest.MonkeyPatch, name: str = "feddp_kmeans") -> None:
    means = _with_bounds(
        "means_bound", "indicators_bound", "sums_bound", "counts_bound"
    )
    plant_facts(patch, name, means)


def no_clip_of_rows(patch: pytest.MonkeyPatch, name: str = "feddp_kmeans") -> None:
    plant_facts(patch, name, _with_bounds("data_radius", "outer_product_bound"))


def rounded_away_from_zero(patch: pytest.MonkeyPatch) -> None:
    def away(_: str, array: Array, *__: object) -> Array:
        """A grid step further from zero, unless nothing was rounded."""
        was_rounded = array != np.rint(array)
        return array + np.copysign(was_rounded * 2.0**-16, array)

    for name in ("proxy_lloyd", "feddp_kmeans"):
        plant_arrays(patch, name, away)


def no_slack_for_the_rounded_triangle(patch: pytest.MonkeyPatch) -> None:
    def change(_: int, step: PrivateSum) -> PrivateSum:
        first, *others = step.blocks
        if first.name != "outer_product":
            return step
        bound = first.sensitivity.bound - outer_product_rounding(first.size)
        without = replace(first, sensitivity=replace(first.sensitivity, bound=bound))
        return replace(step, blocks=(without, *others))

    plant_rounds(patch, "feddp_kmeans", change)


def laplace_noise_for_the_euclidean_norm(patch: pytest.MonkeyPatch) -> None:
    def change(_: int, step: PrivateSum) -> PrivateSum:
        sums, *others = step.blocks
        wrong = replace(sums.sensitivity, bound=float(sums.shape[1]) ** 0.5)
        return replace(step, blocks=(replace(sums, sensitivity=wrong), *others))

    plant_rounds(patch, "sulloyd", change)


def client_clipped_in_the_euclidean_norm(patch: pytest.MonkeyPatch) -> None:
    """Beside Laplace noise, which needs the sum of magnitudes."""

    def other(public: PublicFacts) -> PublicFacts:
        task = public.config.task
        options = replace(task.options, noise_kind=NoiseFamily.GAUSSIAN)
        config = replace(public.config, task=replace(task, options=options))
        return replace(public, config=config)

    plant_facts(patch, "feddp_kmeans", other)


Sums = tuple[Array, Array]


def _plant_sums(
    patch: pytest.MonkeyPatch,
    algorithm: str,
    change: Callable[[Array, Array, Array, Array], Sums],
) -> None:
    """Let ``change(rows, centroids, sums, counts)`` follow the honest statistic."""

    def with_change(_: int, step: PrivateSum) -> PrivateSum:
        def statistic(rows: Array, state: State) -> Sums:
            sums, counts = step.statistic(rows, state)
            return change(rows, state.centroids, sums, counts)

        return replace(step, statistic=statistic)

    plant_rounds(patch, algorithm, with_change)


def centroid_of_another_cluster(patch: pytest.MonkeyPatch) -> None:
    def change(_: Array, centroids: Array, sums: Array, counts: Array) -> Sums:
        moved = centroids - np.roll(centroids, 1, axis=0)
        return sums + counts[:, None] * moved, counts

    _plant_sums(patch, "fastlloyd", change)


def rows_in_two_clusters(patch: pytest.MonkeyPatch) -> None:
    """A row that is nearly as near to the next centroid counts there as well."""

    def change(rows: Array, centroids: Array, sums: Array, counts: Array) -> Sums:
        if len(rows):
            squares = np.square(rows[:, None] - centroids[None]).sum(axis=2)
            second = np.argsort(squares, axis=1)[:, 1]
            np.add.at(counts, second, 1.0)
        return sums, counts

    _plant_sums(patch, "glloyd", change)


def empty_clusters_counted_as_one(patch: pytest.MonkeyPatch) -> None:
    """Before sums are taken relative to the centroids, against a division by zero that
    is not there.
    """

    def change(_: Array, centroids: Array, sums: Array, counts: Array) -> Sums:
        larger = np.maximum(counts, 1.0)
        return sums + (counts - larger)[:, None] * centroids, larger

    _plant_sums(patch, "fastlloyd", change)


def empty_clusters_sent_as_one(patch: pytest.MonkeyPatch) -> None:
    """Only the counts that are sent: no neighbour moves them further, but who has no
    rows is seen.
    """

    def at_least_one(name: str, array: Array, *_: object) -> Array:
        least = {"counts": 1.0, "indicators": 2.0**-16}  # a step: they are scaled down
        return np.maximum(array, least[name]) if name in least else array

    for name in ("sphere_packing", "feddp_kmeans"):
        plant_arrays(patch, name, at_least_one)
