"""Slips in sensitivities, clipping and rounding: patches of the real code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.feddp import (
    centred_rows,
    outer_product,
    projected_statistics,
    server_weights,
)
from flwr_dpkmeans.algorithms.proxy import look, setting
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.kernels import (
    clipping,
    cluster_sums,
    grid,
    projected_sums,
    residual_sums,
    vector_clipping,
)
from flwr_dpkmeans.sums.round import PrivateSum, State
from support.wrong_tasks import plant_rounds

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


Divide = Callable[[Array, Any, Array], Array]


def _plant_division(patch: pytest.MonkeyPatch, divide: Divide) -> None:
    """Let ``divide(rows, radius, scratch)`` put rows onto the grid."""
    patch.setattr(residual_sums, "_divide", divide)


def residuals_not_divided_by_the_radius(patch: pytest.MonkeyPatch) -> None:
    """Pulled back to the radius, but in units of the data."""

    def unscaled(rows: Array, radius: Any, _: Array) -> Array:
        squares: Array = np.einsum("ij,ij->i", rows, rows)
        factors = np.minimum(1.0, radius / np.maximum(np.sqrt(squares), 1e-12))
        rows *= (factors * 2.0**16)[:, None]
        np.trunc(rows, out=rows)
        return squares

    _plant_division(patch, unscaled)


def rows_in_two_bins_of_distance(patch: pytest.MonkeyPatch) -> None:
    """As a cumulative histogram would have it.

    a row counts in its own bin and in the next.
    """
    counted = look.distance_counts

    def twice(points: Array, centre: Array, weights: Array | None = None) -> Array:
        counts = counted(points, centre, weights)
        return counts + np.roll(counts, 1)

    patch.setattr(look, "distance_counts", twice)


def shares_of_distances_not_divided_by_rows(patch: pytest.MonkeyPatch) -> None:
    """At client level: the histogram of all rows, not a mean that is clipped."""
    sent = Setting.sent

    def unclipped(setting: Any, arrays: Any, n_rows: int, parts: Any) -> Any:
        found = sent(setting, arrays, n_rows, parts)
        return [
            array if part.name == "row_distances" else own
            for array, own, part in zip(arrays, found, parts, strict=True)
        ]

    patch.setattr(Setting, "sent", unclipped)


def no_radius_in_the_second_round(patch: pytest.MonkeyPatch) -> None:
    def statistic(rows: Array, state: State) -> tuple[Array, Array]:
        return cluster_sums.relative_statistics(rows, state.centroids, None)

    plant_rounds(
        patch,
        "fastlloyd",
        lambda index, step: replace(step, statistic=statistic) if index == 2 else step,
    )


def no_clip_of_a_client(patch: pytest.MonkeyPatch) -> None:
    def on_grid(vectors: Array, *_: Any, **__: Any) -> Array:
        return grid.toward_zero(vectors)

    for module, name in (
        (outer_product, "clip_each"),
        (server_weights, "clip_each"),
        (setting, "clip_vector"),
    ):
        patch.setattr(module, name, on_grid)


def no_clip_of_means(patch: pytest.MonkeyPatch) -> None:
    def all_as_they_are(vectors: Array, *_: Any, **__: Any) -> Array:
        return np.ones(len(vectors))

    patch.setattr(projected_sums, "clip_factors", all_as_they_are)


def no_clip_of_rows(patch: pytest.MonkeyPatch) -> None:
    for module in (outer_product, projected_statistics, centred_rows):
        patch.setattr(module, "clip_rows", lambda rows, _: rows)


def rounded_away_from_zero(patch: pytest.MonkeyPatch) -> None:
    def away(values: Any) -> Array:
        scaled = np.asarray(values) * 2.0**16
        return np.copysign(np.ceil(np.abs(scaled)), scaled) / 2.0**16 + 0.0

    for module in (clipping, vector_clipping):
        patch.setattr(module, "toward_zero", away)
    divided = residual_sums._divide

    def divided_away(rows: Array, radius: Any, scratch: Array) -> Array:
        before = rows.copy()
        squares = divided(rows, radius, scratch)
        at_least = np.maximum(radius, residual_sums.SMALLEST_RADIUS)
        whole = (
            before
            * (clipping.SHADE * 2.0**16 / np.maximum(np.sqrt(squares), at_least))[
                :, None
            ]
        )
        rows[:] = np.copysign(np.ceil(np.abs(whole)), whole)
        return squares

    _plant_division(patch, divided_away)


def no_slack_for_the_rounded_triangle(patch: pytest.MonkeyPatch) -> None:
    for module in (outer_product, setting):
        patch.setattr(module, "outer_product_rounding", lambda _: 0.0)


def laplace_noise_for_the_euclidean_norm(patch: pytest.MonkeyPatch) -> None:
    def change(_: int, step: PrivateSum) -> PrivateSum:
        sums, *others = step.blocks
        wrong = replace(sums.sensitivity, bound=float(sums.shape[1]) ** 0.5)
        return replace(step, blocks=(replace(sums, sensitivity=wrong), *others))

    plant_rounds(patch, "sulloyd", change)


def client_clipped_in_the_euclidean_norm(patch: pytest.MonkeyPatch) -> None:
    """Beside Laplace noise, which needs the sum of magnitudes."""
    for module in (server_weights, projected_statistics):
        patch.setattr(module, "count_order", lambda _: 2)


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
    sums_and_counts = projected_sums.sums_and_counts

    def at_least_one(*args: Any) -> tuple[Array, Array]:
        sums, counts = sums_and_counts(*args)
        return sums, np.maximum(counts, 1.0)

    patch.setattr(projected_statistics, "sums_and_counts", at_least_one)
