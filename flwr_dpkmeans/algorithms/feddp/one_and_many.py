"""Statistics of one client, and of many at once, that differ in nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from flwr_dpkmeans.algorithms.weighing import Weighable
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import Sizes
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, RowWeights, State, StatisticOfEach

SumsOfEach = Callable[[Array, Sizes, State, RowWeights | None], Sequence[Array]]
"""Clients' sums over rows, each times its weight if there are weights (n_rows,)."""
FromSums = Callable[[Sequence[Array]], Sequence[Array]]
"""What is made of clients' sums, such as clipped ones: each has an axis of clients."""


class OneAndMany(NamedTuple):
    """A round's statistic, of one client or of many at once.

    Rows with weights of their own are one client's: of many, each row weighs 1.
    """

    of_one: Weighable
    of_each: StatisticOfEach | None


def of_one_and_many(
    public: PublicFacts,
    sums_of_each: SumsOfEach,
    from_sums: FromSums,
) -> OneAndMany:
    """Make a round's statistic of one client, in blocks of rows, and of many.

    Parameters
    ----------
    public : PublicFacts
        Of the run.
    sums_of_each : callable
        ``sums_of_each(rows, sizes, state, weights) -> arrays``, exact on the grid, so
        that neither blocks nor other clients' rows show in them.
    from_sums : callable
        ``from_sums(arrays) -> arrays``.
    """

    @in_blocks
    def sums_of_one(
        points: Array,
        state: State,
        weights: RowWeights | None,
    ) -> Sequence[Array]:
        one_client = np.array([len(points)])
        return sums_of_each(
            points,
            one_client,
            state,
            weights,
        )

    def of_one(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        sums = sums_of_one(points, state, weights)
        arrays = from_sums(sums)
        return [of_client for (of_client,) in arrays]

    def of_each(
        rows: Array,
        sizes: Sizes,
        state: State,
    ) -> Sequence[Array]:
        sums = sums_of_each(
            rows,
            sizes,
            state,
            None,
        )
        return from_sums(sums)

    return OneAndMany(of_one, unless_moved(public, of_each))


def unless_moved(
    public: PublicFacts,
    of_each: StatisticOfEach,
) -> StatisticOfEach | None:
    """A statistic of many clients, unless what Lemma 17 finds moves their rows.

    That takes rows off the grid, where the last digits of sums depend on their order.
    """
    if getattr(public.options, "reduce_diameter", False):
        return None
    return of_each
